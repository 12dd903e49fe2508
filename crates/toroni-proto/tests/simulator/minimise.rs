//! Makes a scenario that fails smaller: fewer faults, fewer receivers, senders and messages.

use super::oracle::Failure;
use super::scenario::Scenario;
use super::world;

/// How many scenarios are tried.
const TRIES: u32 = 600;

/// Returns a smaller scenario that breaks the same promise, and how.
pub(super) fn minimise(mut scenario: Scenario, mut failure: Failure) -> (Scenario, Failure) {
    let mut tries = 0;
    loop {
        let mut shrunk = false;
        for candidate in smaller(&scenario) {
            tries += 1;
            if tries > TRIES {
                return (scenario, failure);
            }
            match world::run(&candidate) {
                Err(found) if found.is_like(&failure) => {
                    (scenario, failure) = (candidate, found);
                    shrunk = true;
                    break;
                }
                _ => {}
            }
        }
        if !shrunk {
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
    // A required receiver that does not exist would hold the senders for ever: another failure.
    if scenario.receivers > scenario.required.max(1) {
        with(&|one| one.receivers -= 1);
    }
    if scenario.publishes.len() > 1 {
        for at in 0..scenario.publishes.len() {
            with(&|one| drop(one.publishes.remove(at)));
        }
    }
    if scenario.legs > 1 {
        with(&|one| one.legs = 1);
    }
    if scenario.repairers > 0 {
        with(&|one| one.repairers = 0);
    }
    if scenario.rekeys {
        with(&|one| one.rekeys = false);
    }
    if scenario.keyed && !scenario.rekeys {
        with(&|one| one.keyed = false);
    }
    if scenario.config.group_min > 0 {
        with(&|one| one.config.group_min -= 1);
    } else if scenario.required > 0 {
        with(&|one| one.required -= 1);
    }
    if scenario.jitter > 0 {
        with(&|one| one.jitter = 0);
    }
    for (stream, publishes) in scenario.publishes.iter().enumerate() {
        let mut step = publishes.len();
        while step > 0 {
            for from in (0..publishes.len()).step_by(step) {
                let until = (from + step).min(publishes.len());
                with(&|one| drop(one.publishes[stream].drain(from..until)));
            }
            step /= 4;
        }
    }
    for at in 0..scenario.faults.len() {
        let length = scenario.faults[at].until - scenario.faults[at].from;
        if length > 1_000_000 {
            with(&|one| one.faults[at].until = one.faults[at].from + length / 2);
        }
    }
    list
}
