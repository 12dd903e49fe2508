//! Two deaths: the first victim dies with the lock, the second one as it takes over.

use crate::survivors::{Case, LONGEST, Stalls, Survivors};
use toroni::hook::CrashPoint as P;

/// Where first victims die, and whether their message is committed then. All hold the lock.
pub(crate) const FIRST: [(P, bool); 6] = [
    (P::AfterCommit, true),
    (P::MidCopy, false),
    (P::BetweenSequenceAndTail, true),
    (P::AfterLock, false),
    (P::BeforeUnlock, true),
    (P::AfterEndWord, false),
];

pub(crate) fn second_victim(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    let mut random = case.random();
    // It has its slot and its topic before the first one dies.
    let mut second =
        survivors.fixture.start_doomed("step", &["kind=single", LONGEST], &case.crash());
    second.running.expect("ready");
    let mut first_victims = Vec::new();
    for takeover in 1..=case.n {
        let (point, committed) = FIRST[random.index(FIRST.len())];
        // Its topic is new, entered under the lock, and declared under it: the third time is that of the message.
        let topic = format!("topic=victim/{takeover}");
        let n = if matches!(point, P::AfterLock | P::BeforeUnlock) { 3 } else { 1 };
        let crash = format!("{}:{n}", point.name());
        let options = ["kind=single", "longest=24", "count=1", &topic];
        let mut first = survivors.fixture.start_doomed("publish", &options, &crash);
        survivors.wait_for_death(&mut first, &Case { point, n, ..*case });
        first_victims.push((first.id, u64::from(committed)));
        second.running.tell("publish");
        if takeover < case.n {
            second.running.expect("done");
        }
    }
    survivors.wait_for_death(&mut second, case);
    survivors.assert_progress(stalls);
    let seen = survivors.finish();
    for (first, committed) in first_victims {
        case.assert_arrived(&seen, first, &(committed..=committed));
    }
    case.assert_arrived(&seen, second.id, &(case.n - 1..=case.n - 1));
}
