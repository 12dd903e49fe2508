//! Deaths around the wait for space: of publishers that wait for a slow reader, and of the reader for which
//! they wait, as it wakes one of them.

use crate::survivors::{Case, LONGEST, Stalls, Survivors};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use system_tests::LIMIT;
use system_tests::worker::Worker;
use toroni::Start;
use toroni::hook::CrashPoint as P;

/// A publisher dies before, while or after it waits for space: a subscriber is stopped.
pub(crate) fn publisher_without_space(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    // The publisher that waits first begins the interval.
    if case.n == 1 && case.point != P::MidBudget && !case.is_exclusive() {
        // It waits for space, too, and may have been next to be woken.
        survivors.start_publisher();
    }
    let seed = format!("seed={}", case.seed ^ 1);
    let options = ["kind=single", LONGEST, "count=200000", &seed, case.exclusive_option()];
    survivors.subscribers[0].running.stop();
    let mut victim = survivors.fixture.start_doomed("publish", &options, &case.crash());
    if case.point == P::BeforePassingOn {
        // It gets there each time that it has got space.
        survivors.make_space_until_death(&mut victim, case);
    }
    survivors.wait_for_death(&mut victim, case);
    let told = survivors.fixture.counters.count(victim.id);
    if matches!(case.point, P::Proposing | P::BeforeWithdrawing) {
        join_in_protected_history(&survivors, case);
    }
    survivors.subscribers[0].running.resume();
    if case.is_exclusive() && case.seed.is_multiple_of(2) {
        survivors.publish_exclusively();
    }
    survivors.assert_progress(stalls);
    let committed = told + u64::from(case.point == P::BeforePassingOn);
    case.assert_arrived(&survivors.finish(), victim.id, &(committed..=committed));
}

/// What the stopped subscriber has not read is there for a subscriber that joins, although the dead publisher wanted the space.
fn join_in_protected_history(survivors: &Survivors, case: &Case) {
    let bus = survivors.fixture.bus();
    let stopped = survivors.subscribers[0].running.id();
    let subscribers = bus.stats().expect("statistics").subscribers.expect("for all to see");
    let stopped = subscribers.iter().find(|one| one.pid == stopped).expect("it is there");
    for start in [Start::Oldest, Start::Position(stopped.position)] {
        let joined = bus.subscriber().start(start).build();
        let position = joined.unwrap_or_else(|error| panic!("{case:?}: {error}")).position();
        assert!(position <= stopped.position, "{case:?}: {start:?} begins at {position}");
    }
}

/// The last reader for which publishers wait dies when it has made space, before it wakes one of them.
pub(crate) fn reader_that_makes_space(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    let engine = format!("engine={}", case.engine.unwrap_or_default());
    let how = if case.engine.is_some() { "how=proactor" } else { "how=receive" };
    let options = [how, "wait=backoff", &engine];
    let mut victim = survivors.fixture.start_doomed("subscribe", &options, &case.crash());
    victim.running.expect("ready");
    let kinds = ["kind=single", "kind=burst"];
    for (kind, number) in kinds.iter().take(if case.n == 2 { 1 } else { 2 }).zip(2..) {
        let seed = format!("seed={}", case.seed ^ number);
        let options = [*kind, LONGEST, &seed];
        survivors.others.push(survivors.fixture.start_ready("publish", &options));
    }
    stop_and_go(&mut victim, case);
    survivors.wait_for_death(&mut victim, case);
    survivors.assert_progress(stalls);
    drop(survivors.finish());
}

/// Stops and continues a reader until it has ended. While it is stopped, publishers wait. When it continues, it reads
/// everything at once and wakes them.
fn stop_and_go(victim: &mut Worker, case: &Case) {
    let mut random = case.random();
    let deadline = Instant::now() + LIMIT;
    while victim.running.ended().is_none() {
        assert!(Instant::now() < deadline, "{case:?}: it does not get there");
        victim.running.signal(Signal::STOP);
        std::thread::sleep(Duration::from_micros(random.between(500, 3000)));
        victim.running.signal(Signal::CONT);
        std::thread::sleep(Duration::from_micros(random.between(500, 3000)));
    }
}
