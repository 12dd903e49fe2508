//! One death after another: the owner of the lock dies, then the process that takes over, then the next one, each in
//! the middle of the repair that the one before needed. No other process comes in between.

use crate::survivors::{Case, LONGEST, Stalls, Survivors, Who};
use crate::takeover::FIRST;
use std::time::Duration;
use system_tests::{Random, Watchdog};
use toroni::hook::CrashPoint as P;
use toroni::{LockKind, NotifyKind, Policy};

/// How many die in a row: one for each slot, except the one that then continues.
const DEATHS: usize = 5;

#[test]
fn a_chain_of_deaths_leaves_no_trace() {
    let _watchdog = Watchdog::start("crash", Duration::from_secs(900));
    let mut random = Random::from_environment();
    let rounds = if std::env::var_os("TORONI_FULL").is_some() { 20 } else { 4 };
    let mut stalls = Stalls::default();
    for lock in [LockKind::Lease, LockKind::Robust] {
        for _ in 0..rounds {
            let case = Case {
                point: P::Takeover,
                n: 1,
                lock,
                notify: NotifyKind::Futex,
                policy: Policy::Wait { limit: None },
                seed: random.number(),
                engine: None,
                who: Who::Publisher,
            };
            println!("{case:?}");
            chain(&case, &mut stalls);
        }
    }
    println!("{} chains of {DEATHS} deaths; survivors went on after {stalls}", 2 * rounds);
    stalls.assert_short();
}

fn chain(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    let mut random = case.random();
    let mut victims = Vec::new();
    // All have their slots and topics before the first one dies.
    for number in 0..DEATHS {
        let repairs = [(P::Takeover, false), (P::MidRecovery, false)];
        let (point, committed) = match random.index(3) {
            repair @ 0..=1 if number > 0 => repairs[repair],
            _ => FIRST[random.index(FIRST.len())],
        };
        // Its topic was entered and declared under the lock, too.
        let n = if matches!(point, P::AfterLock | P::BeforeUnlock) { 3 } else { 1 };
        let topic = format!("topic=victim/{number}");
        let crash = format!("{}:{n}", point.name());
        let options = ["kind=single", LONGEST, &topic];
        let mut victim = survivors.fixture.start_doomed("step", &options, &crash);
        victim.running.expect("ready");
        victims.push((victim, u64::from(committed), Case { point, n, ..*case }));
    }
    for (victim, _, case) in &mut victims {
        victim.running.tell("publish");
        survivors.wait_for_death(victim, case);
    }
    survivors.assert_progress(stalls);
    let seen = survivors.finish();
    for (victim, committed, case) in victims {
        case.assert_arrived(&seen, victim.id, &(committed..=committed));
    }
}
