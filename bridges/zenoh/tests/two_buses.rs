//! Two buses, each with a bridge: what is published on one arrives on the other.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use std::collections::HashMap;
use std::time::Duration;
use toroni::{Limit, LostBound, LostReason};
use toroni_zenoh::config::Congestion;

#[test]
fn messages_arrive_in_the_order_of_their_topics() {
    let Pair { a, b: _b, from, to, mut subscriber } = Pair::new();
    let topics = ["a", "a/b", "a/b/c", "d", "e/ä"];
    let publishers = topics.map(|topic| a.bus.publisher(topic).unwrap());
    let count = 20_000;
    for number in 0..count {
        publishers[number % topics.len()].publish(number.to_string()).unwrap();
    }
    a.publish("d", "end");
    let mut next = HashMap::new();
    for got in until(&mut subscriber, "end") {
        let Got::Message { topic, payload } = got else { panic!("{got:?}") };
        let at = topics.iter().position(|known| *known == topic).unwrap();
        let expected = next.entry(topic).or_insert(at);
        assert_eq!(payload, expected.to_string());
        *expected += topics.len();
    }
    assert_eq!(next.values().sum::<usize>(), 5 * count + (0..5).sum::<usize>());
    assert!(from.counters().exported_messages >= count as u64);
    let counters = to.counters();
    assert!(counters.imported_messages >= count as u64);
    assert_eq!((counters.lost_messages, counters.late, counters.unnumbered), (0, 0, 0));
}

#[test]
fn prefixes_are_added_and_removed() {
    let (a, b) = (Site::new(), Site::new());
    let mut exports = export(&["plant/**"]);
    exports.prefix = "site-a".to_owned();
    let _from = a.exporting(exports, &[]);
    let mut imports = import(&["plant/**"]);
    (imports.prefix, imports.under) = ("site-a".to_owned(), "remote/a".to_owned());
    let _to = b.importing(imports, &[&a]);
    let mut subscriber = b.subscribe("**");
    connect(&a, "plant/pump", &mut subscriber);
    a.publish("elsewhere", "not exported");
    a.publish("plant/pump", "on");
    assert_eq!(next(&mut subscriber).text(), "remote/a/plant/pump=on");
}

#[test]
fn posts_to_descendants_reach_imports_of_what_is_below() {
    let (a, b) = (Site::new(), Site::new());
    let _from = a.exporting(export(&["**"]), &[]);
    let to = b.importing(import(&["plant/boiler/*", "probe"]), &[&a]);
    let (mut all, mut below) = (b.subscribe("**"), b.subscribe("plant/boiler/temperature"));
    connect(&a, "probe", &mut all);
    a.bus.publisher("plant").unwrap().publish("only for plant").unwrap();
    a.bus.publisher("plant").unwrap().to_descendants(true).publish("all stop").unwrap();
    a.publish("plant/boiler/temperature", "351");
    assert_eq!(next(&mut below).text(), "plant=all stop");
    assert_eq!(next(&mut below).text(), "plant/boiler/temperature=351");
    assert_eq!(next(&mut all).text(), "plant=all stop");
    assert_eq!(to.counters().lost_messages, 0);
}

#[test]
fn timestamps_of_the_source_arrive() {
    let stamped = Site::with(toroni::BusConfig::new().timestamps(true));
    let pair = Pair::of(stamped, Site::new());
    let (a, mut there) = (&pair.a, pair.subscriber);
    let mut here = a.subscribe("t");
    a.publish("t", "1");
    let sent = here.receive().unwrap().timestamp().unwrap();
    let arrived = there.receive().unwrap().timestamp().unwrap();
    let difference = sent.duration_since(arrived).unwrap_or_else(|error| error.duration());
    assert!(difference < Duration::from_micros(1), "{difference:?}");
}

/// The queue between Zenoh and the bus is small, and the bus waits for its subscriber, which reads nothing. So the
/// queue overflows. What was dropped is reported exactly: at gaps, and at the end by a heartbeat.
#[test]
fn what_finds_no_room_is_reported_exactly() {
    let a = Site::new();
    let b = Site::with(
        toroni::BusConfig::new().capacity(64 << 10).policy(toroni::Policy::Wait { limit: None }),
    );
    let from = a.exporting(export(&["**"]), &[]);
    let mut config = b.config(&[&a]);
    config.imports.push(import(&["**"]));
    config.queue.messages = 64;
    let to = start(&config);
    let mut subscriber = b.subscribe("**");
    connect(&a, "x", &mut subscriber);
    let before = (from.counters().exported_messages, to.counters());
    assert_eq!(before.1.lost_messages, 0);
    let count = 10_000;
    for number in 0..count {
        a.publish(if number % 2 == 0 { "x" } else { "y" }, format!("{number:0>500}"));
    }
    wait_until("all is sent", || from.counters().exported_messages == before.0 + count);
    wait_until("the queue overflows", || to.counters().queue_full > 0);
    // What is reported after the end of a topic shows that all before is accounted for.
    let (mut received, mut lost) = (0, 0);
    let mut last = HashMap::new();
    while received + lost < count {
        match next(&mut subscriber) {
            Got::Message { topic, payload } => {
                received += 1;
                let number: u64 = payload.parse().unwrap();
                assert!(last.insert(topic, number) < Some(number), "order");
            }
            Got::Lost(report) => {
                assert_eq!((report.bound, report.reason), (LostBound::Exact, LostReason::Gone));
                lost += report.messages;
            }
        }
    }
    assert_eq!((received + lost, lost > 0), (count, true));
    // Nothing else follows.
    connect(&a, "x", &mut subscriber);
    assert_eq!(to.counters().lost_messages, lost);
    assert_eq!(to.counters().late, 0);
}

#[test]
fn a_message_that_is_too_long_for_the_bus_is_reported_as_lost() {
    let b = Site::with(toroni::BusConfig::new().capacity(64 << 10));
    let Pair { a, b: _b, from, to, mut subscriber } = Pair::of(Site::new(), b);
    a.publish("x", "before");
    a.publish("x", [b'1'; 40 << 10]);
    a.publish("x", "after");
    assert_eq!(next(&mut subscriber).text(), "x=before");
    assert_eq!(next(&mut subscriber).text(), "lost 1 too_long");
    assert_eq!(next(&mut subscriber).text(), "x=after");
    assert_eq!((from.counters().export_too_long, to.counters().import_too_long), (0, 1));
    // Longer than bridges send.
    a.publish("x", vec![0; (16 << 20) + 1]);
    a.publish("x", "last");
    assert_eq!(next(&mut subscriber).text(), "lost 1 gone");
    assert_eq!(next(&mut subscriber).text(), "x=last");
    assert_eq!(from.counters().export_too_long, 1);
}

/// Bridges use the segment `@bridge` themselves, and no wildcard of Zenoh matches a segment that begins with `@`. What is
/// published on such topics does not arrive, and subscribers learn that, also of what was published while the importing
/// bridge was away.
#[test]
fn topics_that_do_not_pass_are_reported_as_lost() {
    let Pair { a, b, from, to, mut subscriber } = Pair::new();
    let loss = |got: Got| {
        let Got::Lost(lost) = got else { panic!("{got:?}") };
        let scope: Vec<_> = lost.scope.iter().map(ToString::to_string).collect();
        (scope.join(" "), lost.messages, lost.bound)
    };
    // A batch brings all topics that the import's patterns match.
    let passes = import(&["**"]).batches;
    for (topic, count) in [("plant/@bridge/pump", 3), ("@bridge/loss", 2), ("a/@b", 1)] {
        for _ in 0..count {
            a.publish(topic, "1");
        }
        if passes && topic == "a/@b" {
            assert_eq!(next(&mut subscriber).text(), "a/@b=1");
            continue;
        }
        // A heartbeat may come between two of them.
        let mut lost = 0;
        while lost < count {
            let (scope, messages, bound) = loss(next(&mut subscriber));
            assert_eq!((scope, bound), (format!("{topic}/**"), LostBound::Exact));
            lost += messages;
        }
        assert_eq!(lost, count);
    }
    assert_eq!(from.counters().export_no_key, 5);
    assert_eq!(from.counters().export_verbatim, u64::from(!passes));
    a.publish("x", "before");
    assert_eq!(next(&mut subscriber).text(), "x=before");
    to.stop();
    a.publish("plant/@bridge/pump", "1");
    a.publish("x", vec![0; (16 << 20) + 1]);
    a.publish("x", "after");
    let to = b.importing(import(&["**"]), &[&a]);
    assert_eq!(loss(next(&mut subscriber)), ("**".to_owned(), 2, LostBound::AtMost));
    assert_eq!(next(&mut subscriber).text(), "x=after");
    assert_eq!(to.counters().lost_messages, 2);
}

/// Publishers do not wait for the export, and it cannot keep up. What was overwritten before it was sent is reported.
#[test]
fn what_is_overwritten_before_it_is_sent_is_reported() {
    let a =
        Site::with(toroni::BusConfig::new().capacity(64 << 10).policy(toroni::Policy::Overwrite));
    let b = Site::new();
    let mut exports = export(&["**"]);
    (exports.gating, exports.congestion) = (false, Congestion::Drop);
    let from = a.exporting(exports, &[]);
    let to = b.importing(import(&["**"]), &[&a]);
    let mut subscriber = b.subscribe("**");
    connect(&a, "x", &mut subscriber);
    let publisher = a.bus.publisher("x").unwrap();
    let mut published = 0u64;
    while from.counters().export_overtaken == 0 {
        publisher.publish_batch(&[[7; 32]; 64], Limit::Policy).unwrap();
        published += 64;
    }
    publisher.publish("end").unwrap();
    let got = until(&mut subscriber, "end");
    let mut received = 0;
    let mut lost = 0;
    for got in got {
        match got {
            Got::Message { .. } => received += 1,
            Got::Lost(report) => lost += report.messages,
        }
    }
    assert!(lost > 0 && received + lost >= published, "{received} + {lost} of {published}");
    assert_eq!(to.counters().late, 0);
}
