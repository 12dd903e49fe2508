//! The torn read of the Toroni paper, with real processes: subscribers that are overtaken again and
//! again while they copy are never handed a message that is half one and half another.

use std::time::Duration;
use system_tests::worker::{Fixture, Worker};
use system_tests::{Random, Watchdog, wait_until};
use toroni::Policy;
use toroni_testkit::order::Agreement;

/// Each subscriber has lost messages at least so often before the test ends.
const LAPSES: u64 = 200;

#[test]
fn no_subscriber_that_is_overtaken_receives_a_torn_message() {
    let _watchdog = Watchdog::start("torn", Duration::from_secs(300));
    let mut random = Random::from_environment();
    // The smallest ring, and messages up to almost half of it: a writer that enters a block is upon
    // the message that a reader there is copying.
    let mut fixture = Fixture::new(|config| config.capacity(64 << 10).policy(Policy::Overwrite));
    let mut subscribers = Vec::new();
    for (how, lazy) in
        [("receive", 50), ("poll", 50), ("try", 2000), ("borrow", 50), ("borrow", 2000)]
    {
        let options = [
            format!("how={how}"),
            format!("lazy_every={lazy}"),
            "lazy_us=3000".to_owned(),
            format!("seed={}", random.number()),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        subscribers.push(fixture.start_ready("subscribe", &options));
    }
    let publishers: Vec<Worker> = (0..2)
        .map(|_| {
            let seed = format!("seed={}", random.number());
            fixture.start_ready("publish", &["longest=32000", &seed])
        })
        .collect();

    let bus = fixture.bus();
    wait_until("all subscribers are overtaken many times", || {
        let stats = bus.stats().expect("statistics");
        stats.subscribers.is_some_and(|all| all.iter().all(|one| one.lapses >= LAPSES))
    });
    drop(bus);
    let total = fixture.stop_publishers(publishers);
    let mut order = Agreement::default();
    for seen in fixture.finish_subscribers(total, subscribers, &mut order) {
        println!(
            "{} messages, {} received whole, {} lost in {} lapses",
            total, seen.received, seen.lost, seen.lapses
        );
        assert_eq!(seen.received + seen.lost, total, "lost messages are counted exactly");
        assert!(seen.lapses >= LAPSES && seen.received > LAPSES);
    }
    fixture.root.assert_clean_leaves_nothing();
}
