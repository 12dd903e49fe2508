//! Makes a scenario that fails smaller: fewer faults, fewer receivers, senders and messages.

use super::scenario::Scenario;
use super::world;

pub(super) fn minimise(mut scenario: Scenario, mut failure: String) -> (Scenario, String) {
    let mut runs = 0;
    loop {
        let before = runs;
        let mut shrunk = false;
        for candidate in smaller(&scenario) {
            runs += 1;
            if runs > 400 {
                return (scenario, failure);
            }
            if let Err(found) = world::run(&candidate) {
                (scenario, failure) = (candidate, found);
                shrunk = true;
                break;
            }
        }
        if !shrunk || before == runs {
            return (scenario, failure);
        }
    }
}

fn smaller(scenario: &Scenario) -> Vec<Scenario> {
    let mut list = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut one = scenario.clone();
        change(&mut one);
        list.push(one);
    };
    for at in 0..scenario.faults.len() {
        with(&|one| {
            one.faults.remove(at);
        });
    }
    if scenario.receivers > 1 {
        with(&|one| one.receivers -= 1);
    }
    if scenario.publishes.len() > 1 {
        for at in 0..scenario.publishes.len() {
            with(&|one| {
                one.publishes.remove(at);
            });
        }
    }
    for (stream, publishes) in scenario.publishes.iter().enumerate() {
        let mut step = publishes.len() / 2;
        while step > 0 {
            for from in (0..publishes.len()).step_by(step) {
                let until = (from + step).min(publishes.len());
                with(&|one| {
                    one.publishes[stream].drain(from..until);
                });
            }
            step /= 4;
        }
    }
    for at in 0..scenario.faults.len() {
        with(&|one| {
            let fault = &mut one.faults[at];
            fault.until = fault.from + (fault.until - fault.from) / 2;
        });
    }
    if scenario.jitter > 0 {
        with(&|one| one.jitter = 0);
    }
    list.retain(|one| {
        one.faults != scenario.faults
            || one.jitter != scenario.jitter
            || one.receivers != scenario.receivers
            || one.publishes.iter().map(Vec::len).ne(scenario.publishes.iter().map(Vec::len))
    });
    list
}
