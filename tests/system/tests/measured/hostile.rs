//! What a hostile subscriber costs the publishers of sleepers.

use std::time::{Duration, Instant};
use system_tests::wake::{Stamp, now_ns};
use system_tests::worker::Fixture;
use system_tests::{Watchdog, wait_until};
use toroni_testkit::turn;

const THREADS: u64 = 4000;
const MESSAGES: u64 = 40;
/// With one word for all, each publish woke all threads, which took 19 to 24 ms on two idle cores.
const LONGEST: Duration = Duration::from_millis(5);

/// A process waits with 4,000 threads on the words on which subscribers sleep, half of them on that of the only subscriber. Each
/// message wakes one thread. The subscriber finds the message by itself if that thread was none of its own.
#[test]
fn four_thousand_waiting_threads_cost_a_publish_one_wake_up() {
    let _turn = turn();
    let _watchdog = Watchdog::start("hostile", Duration::from_secs(240));
    let mut fixture = Fixture::new(|config| config.capacity(1 << 20));
    let bus = fixture.bus();
    let publisher = bus.publisher("wanted").unwrap();
    let messages = format!("messages={}", 2 * MESSAGES);
    let sleeper = fixture.start_ready("doze", &["pattern=wanted", &messages]);
    let mut round = 0;
    let mut median = |fixture: &Fixture| {
        let mut times: Vec<Duration> = (0..MESSAGES)
            .map(|_| {
                let stamp = Stamp { round, sent_ns: now_ns() }.encode();
                let began = Instant::now();
                publisher.publish(stamp).unwrap();
                let took = began.elapsed();
                round += 1;
                wait_until("the message", || fixture.counters.count(sleeper.id) == round);
                // It falls asleep again.
                std::thread::sleep(Duration::from_millis(2));
                took
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let wakes = || bus.stats().unwrap().publishers.unwrap()[0].wakes;
    let alone = median(&fixture);

    let threads = format!("threads={THREADS}");
    let mut hostile = fixture.start_ready("hostile", &["attack=wait", &threads]);
    let before = wakes();
    let disturbed = median(&fixture);
    let sent = wakes() - before;
    drop(hostile.running.stdin());
    let said = hostile.running.succeed();
    let woken = said.lines().find_map(|line| line.strip_prefix("woken "));
    let woken: u64 = woken.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    println!(
        "a publish takes {alone:?}, with {THREADS} threads {disturbed:?}; {sent} wake-ups, {woken} of them for these"
    );
    let _ = sleeper.running.succeed();

    assert!(woken > 0, "the attack has no effect");
    assert!(woken <= sent && sent <= MESSAGES, "{woken} threads were woken by {sent} wake-ups");
    assert!(disturbed < alone + LONGEST, "{disturbed:?}, and {alone:?} without them");
}
