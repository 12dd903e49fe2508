//! What an importer does with messages that its bus does not take: nothing of them vanishes silently.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use std::time::Instant;
use toroni::{BusConfig, Policy};

fn numbers(got: &[Got]) -> Vec<String> {
    got.iter().map(Got::text).collect()
}

fn expected(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("x={number}")).collect()
}

/// The importer's bus waits for a subscriber that reads nothing. The bridge ends nevertheless, and its successor brings all
/// that it has left.
#[test]
fn an_import_that_ends_while_its_bus_is_full_settles_nothing_that_it_has_not_published() {
    let full = Site::with(BusConfig::new().capacity(64 << 10).policy(Policy::Wait { limit: None }));
    let Pair { a, b, from, to, mut subscriber } = Pair::of(Site::new(), full);
    let (sent, before) = (from.counters().exported_messages, to.counters());
    for number in 0..3_000 {
        a.publish("x", number.to_string());
    }
    wait_until("all is sent", || from.counters().exported_messages >= sent + 3_000);
    let heard = from.counters().heartbeats_sent;
    wait_until("heartbeats follow", || from.counters().heartbeats_sent >= heard + 3);
    let mut imported = before.imported_messages;
    wait_until("the bus is full", || {
        let last = std::mem::replace(&mut imported, to.counters().imported_messages);
        std::thread::sleep(std::time::Duration::from_millis(100));
        imported > before.imported_messages && imported == last
    });
    let began = Instant::now();
    to.stop();
    assert!(began.elapsed() < LONG / 2, "it waits for the bus: {:?}", began.elapsed());
    let to = std::thread::scope(|scope| {
        let started = scope.spawn(|| b.importing(import(&["**"]), &[&a]));
        a.publish("x", "end");
        assert_eq!(numbers(&until(&mut subscriber, "end")), expected(0..3_000));
        started.join().unwrap()
    });
    assert_eq!(to.counters().lost_messages, 0);
}

/// Another program keeps the bus for itself for a while. What comes meanwhile waits.
#[test]
fn messages_wait_for_an_exclusive_publisher() {
    let Pair { a, b, from, to, mut subscriber } = Pair::new();
    let exclusive = b.bus.exclusive().unwrap();
    let sent = from.counters().exported_messages;
    for number in 0..100 {
        a.publish("x", number.to_string());
    }
    wait_until("all is sent", || from.counters().exported_messages >= sent + 100);
    let heard = from.counters().heartbeats_sent;
    wait_until("heartbeats follow", || from.counters().heartbeats_sent >= heard + 3);
    assert!(next_within(&mut subscriber, std::time::Duration::from_millis(100)).is_none());
    drop(exclusive);
    a.publish("x", "end");
    assert_eq!(numbers(&until(&mut subscriber, "end")), expected(0..100));
    let counters = to.counters();
    assert_eq!((counters.lost_messages, counters.import_failed), (0, 0));
}
