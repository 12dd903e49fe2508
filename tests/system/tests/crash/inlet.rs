//! An inlet dies at work. The next one brings everything again, and each message arrives once.

use crate::matrix::{self, Victim};
use crate::survivors::{Case, FRESH, LONGEST, Stalls, Survivors};
use system_tests::counters::{Phase, SharedCounters};
use system_tests::worker::{BUNDLE, STREAMS, worker_of_stream};
use toroni::hook::CrashPoint as P;

/// What the next inlet brings after all that its predecessor may have brought.
const MORE: u64 = 60;

/// An inlet dies as it publishes, or as it waits for space.
///
/// Beside it there is another publisher the first time, none the second time, and later one that holds still. Then,
/// depending on the seed, an ordinary publisher recovers before the next inlet comes, or that does it itself.
///
/// Of its messages, one in `losses` is reported as lost; 0 is none, and 1 all of them.
///
/// Subscribers check that the messages and losses of each stream come in order, none is missing, and none comes twice.
pub(crate) fn inlet(case: &Case, losses: u64, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    let waits = matrix::victim_of(case.point) == Victim::SpaceWaiter;
    match case.n {
        // The publisher that waits first begins the interval.
        _ if case.point == P::MidBudget => {}
        1 => survivors.start_publisher(),
        2 => {}
        _ if waits => {}
        _ => {
            survivors.start_publisher();
            survivors.fixture.counters.set_phase(Phase::Pause);
        }
    }
    let seed = format!("seed={}", case.seed ^ 1);
    let topics = if case.point == P::TopicAppend { "topics=many" } else { "topics=few" };
    let pause =
        if matches!(case.point, P::MidRound | P::MidWake) { "pause_us=300" } else { "pause_us=0" };
    let losses = format!("losses={losses}");
    let options = [LONGEST, "phase=ignored", pause, topics, &losses, &seed];
    if waits {
        survivors.subscribers[0].running.stop();
    }
    let mut victim = survivors.fixture.start_doomed("inlet", &options, &case.crash());
    if case.point == P::BeforePassingOn {
        survivors.make_space_until_death(&mut victim, case);
    }
    survivors.wait_for_death(&mut victim, case);
    let told = survivors.fixture.counters.count(victim.id);
    if waits {
        survivors.subscribers[0].running.resume();
    }

    let probes = u64::from(survivors.is_quiet() && case.seed.is_multiple_of(2));
    if probes > 0 {
        drop(survivors.fixture.start("probe", &[&seed, "count=10"]).running.succeed());
    }
    let count = (told + MORE).next_multiple_of(STREAMS);
    let options = [LONGEST, "phase=ignored", "seed=5", &losses, &format!("count={count}")];
    let said = survivors.fixture.start("inlet", &options).running.succeed();
    let duplicates: u64 =
        said.trim().rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    // What it was told has arrived, and perhaps a part of the call in which it died.
    let arrived = told..=told + BUNDLE as u64;
    assert!(arrived.contains(&duplicates), "{case:?}: {duplicates} had arrived, not {arrived:?}");

    survivors.fixture.counters.set_phase(Phase::Run);
    survivors.assert_progress(stalls);
    let counters = SharedCounters::open(&survivors.fixture.root.file("counters"));
    let publisher = survivors.publisher.as_ref().expect("it has made progress").id;
    let (seen, others) = (survivors.finish(), FRESH + 10 * probes);
    // Also what is lost is counted, so this holds under each policy: nothing was published twice.
    let expected = count + counters.count(publisher) + others;
    assert_eq!(seen.received + seen.lost, expected, "{case:?}");
    for stream in 0..STREAMS {
        let all = count / STREAMS;
        case.assert_arrived(&seen, worker_of_stream(0, stream), &(all..=all));
    }
}
