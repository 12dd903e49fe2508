//! Publishers and subscribers that die at work, as they come, or as they leave.

use crate::survivors::{Case, LONGEST, Stalls, Survivors};
use system_tests::counters::Phase;
use system_tests::payload::decode;
use system_tests::worker::BUNDLE;
use toroni::hook::CrashPoint as P;

/// A publisher dies as it publishes.
///
/// The first time, another one publishes beside it. The second time it is alone, and the next one may
/// get its slot. Later times, another one is there and holds still, and finds out after others. An exclusive one
/// is always alone, and followed by another exclusive one or by others.
pub(crate) fn publisher(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    match case.n {
        _ if case.is_exclusive() => {}
        1 => survivors.start_publisher(),
        2 => {}
        _ => {
            survivors.start_publisher();
            survivors.fixture.counters.set_phase(Phase::Pause);
        }
    }
    let kind = kind(case);
    let (kind_option, seed) = (format!("kind={kind}"), format!("seed={}", case.seed ^ 1));
    // It does not look at the phase: it is not paused with the others.
    // Only whom it does not keep awake it has to wake.
    let is_gentle =
        matches!(case.point, P::MidRound | P::MidWake) || case.engine.is_some() && case.n == 2;
    let pause = if is_gentle { "pause_us=300" } else { "pause_us=0" };
    let exclusive = case.exclusive_option();
    let options = [&kind_option, LONGEST, "phase=ignored", pause, &seed, exclusive];
    let mut victim = survivors.fixture.start_doomed("publish", &options, &case.crash());
    survivors.wait_for_death(&mut victim, case);
    let told = survivors.fixture.counters.count(victim.id);
    let committed = committed(case, kind, told);
    // Before and after the next publisher repairs the bus.
    assert_value(case, &survivors, victim.id, &committed);
    if case.n == 2 && case.is_lossless() {
        // No process repairs anything or wakes another yet. What is committed arrives all the same.
        let counters = &survivors.fixture.counters;
        let ids: Vec<u32> = survivors.subscribers.iter().map(|subscriber| subscriber.id).collect();
        let all = (*committed.start()).max(survivors.fixture.messages());
        survivors.soon(|| ids.iter().all(|id| counters.count(*id) >= all));
    }
    if case.is_exclusive() && case.seed.is_multiple_of(2) {
        survivors.publish_exclusively();
    } else if case.n == 2 || case.n > 2 && case.seed.is_multiple_of(2) {
        let probe = survivors.fixture.start("probe", &[&seed]);
        drop(probe.running.succeed());
    }
    survivors.fixture.counters.set_phase(Phase::Run);
    survivors.assert_progress(stalls);
    assert_value(case, &survivors, victim.id, &committed);
    case.assert_arrived(&survivors.finish(), victim.id, &committed);
}

/// Asserts that the value of the victim's topic is the newest message that it committed.
fn assert_value(
    case: &Case,
    survivors: &Survivors,
    worker: u32,
    committed: &std::ops::RangeInclusive<u64>,
) {
    if case.point == P::TopicAppend {
        // Each of its messages is on a topic of its own.
        return;
    }
    let topic = format!("worker/{}", worker % 16);
    let value = survivors.fixture.bus().retained(&topic).expect("the value can be read");
    let count = value.map_or(0, |value| {
        let payload = decode(value.payload()).expect("whole");
        assert_eq!(payload.worker, worker, "{case:?}");
        payload.counter + 1
    });
    assert!(committed.contains(&count), "{case:?}: the value is {count}, not {committed:?}");
}

/// How the victim publishes, so that it gets to the point.
fn kind(case: &Case) -> &'static str {
    let mut random = case.random();
    let mut one_of = |kinds: &[&'static str]| match case.n {
        1 => kinds[0],
        2 => kinds[1 % kinds.len()],
        _ => kinds[random.index(kinds.len())],
    };
    match case.point {
        P::TopicAppend => "topics",
        P::MidBurst => "burst",
        P::MidCopy => one_of(&["single", "batch", "burst", "try", "descendants"]),
        _ => one_of(&["single", "batch", "burst", "with", "try", "timeout", "descendants"]),
    }
}

/// How many of the victim's messages arrive, if the bus had confirmed `told` of them.
fn committed(case: &Case, kind: &str, told: u64) -> std::ops::RangeInclusive<u64> {
    let group = if matches!(kind, "batch" | "burst") { BUNDLE as u64 } else { 1 };
    match case.point {
        P::MidBurst => case.n..=case.n,
        // In the middle of a burst some are committed. Waiting for space, a publisher unlocks and wakes
        // before it has committed anything.
        _ if kind == "burst" => told..=told + group,
        P::BeforeUnlock | P::BeforeWake | P::MidRound | P::MidWake => told..=told + group,
        P::AfterCommit | P::BetweenSequenceAndTail | P::MidRetain | P::AfterRetain => {
            told + group..=told + group
        }
        _ => told..=told,
    }
}

/// A publisher dies while it waits for another one, or while another one waits for it.
pub(crate) fn contended(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    let seed = format!("seed={}", case.seed ^ 2);
    // One of them repeatedly stays under the lock for a while.
    let (victim_kind, other_kind) = match case.point {
        P::WaitingForLock => ("kind=single", "kind=dwell"),
        _ => ("kind=dwell", "kind=single"),
    };
    let options = [other_kind, LONGEST, "pause_us=50", &seed];
    survivors.others.push(survivors.fixture.start_ready("publish", &options));
    let seed = format!("seed={}", case.seed ^ 1);
    // Without an end: on a busy machine, the other one may have no core for many messages.
    let options = [victim_kind, LONGEST, &seed];
    let mut victim = survivors.fixture.start_doomed("publish", &options, &case.crash());
    survivors.wait_for_death(&mut victim, case);
    let told = survivors.fixture.counters.count(victim.id);
    survivors.assert_progress(stalls);
    // It releases the lock after the commit; for its topic, before there is one.
    let committed = match case.point {
        P::WaitingForLock => told..=told,
        _ => told..=told + 1,
    };
    case.assert_arrived(&survivors.finish(), victim.id, &committed);
}

/// A participant dies as it comes, or as it leaves.
pub(crate) fn joining(case: &Case, what: &str, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    if case.n != 2 {
        survivors.start_publisher();
    }
    let what_option = if case.engine.is_some() { "what=serve" } else { &format!("what={what}") };
    let engine = format!("engine={}", case.engine.unwrap_or_default());
    let options = [what_option, &format!("count={}", case.n + 2), &engine];
    let mut victim = survivors.fixture.start_doomed("join", &options, &case.crash());
    survivors.wait_for_death(&mut victim, case);
    let told = survivors.fixture.counters.count(victim.id);
    if what == "publish" {
        let left = u64::from(case.point == P::PublisherMidLeave);
        assert_eq!(told, case.n - 1 + left);
    }
    survivors.assert_progress(stalls);
    case.assert_arrived(&survivors.finish(), victim.id, &(told..=told));
}

/// A subscriber dies at work.
pub(crate) fn subscriber(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    survivors.start_publisher();
    let sleeps_by_itself = case.n != 2 || case.point == P::ReaderAwake;
    let engine = format!("engine={}", case.engine.unwrap_or_default());
    let options = match case.point {
        // Two in a process: both die.
        _ if case.engine.is_some() => ["how=proactor", "beside=1"],
        P::ReaderMidCopy if case.n == 2 => ["how=try", "wait=spin"],
        P::ReaderHasRun => ["how=run", "wait=backoff"],
        _ if sleeps_by_itself => ["how=receive", "wait=block"],
        _ => ["how=poll", "wait=backoff"],
    };
    let options = [options[0], options[1], &engine];
    let mut victim = survivors.fixture.start_doomed("subscribe", &options, &case.crash());
    survivors.wait_for_death(&mut victim, case);
    survivors.assert_progress(stalls);
    drop(survivors.finish());
}
