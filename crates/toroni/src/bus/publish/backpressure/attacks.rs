//! Tests with subscribers that cost publishers as much as they can. They count the work, not the time.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::bus::Limit;
use crate::bus::{Bus, BusConfig, Publisher};
use crate::error::PublishError;
use crate::hook::{CrashPoint, rehearsal};
use crate::ring::gate::{Suspect, Unowned};
use crate::ring::layout::{READER_GATES, ReaderSlot, SLOT_ACTIVE};
use crate::settings::Policy;
use crate::shm::testing::TempDir;
use crate::sync::Ordering;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Scans of the slots, each with the writer lock.
    pub(super) static SCANS: Cell<u32> = const { Cell::new(0) };
    /// Rounds in which leases are asked for, each without the lock.
    pub(super) static ROUNDS: Cell<u32> = const { Cell::new(0) };
}

const CAPACITY: u64 = 64 << 10;
const SLOTS: u32 = 1024;
/// A message of this is as long as a block.
const LENGTH: usize = 1016;
const MS: Duration = Duration::from_millis(1);

fn open(root: &TempDir, policy: Policy) -> Bus {
    let config = BusConfig::new().directory(root.path()).capacity(CAPACITY).policy(policy);
    config.max_subscribers(SLOTS).open("b").unwrap()
}

/// Puts a subscriber that gates into a slot, without a lease.
fn put(bus: &Bus, number: u32, position: u64) {
    let subscribing = bus.subscribing().unwrap();
    let slot: &ReaderSlot = subscribing.readers.slot(number);
    slot.generation.fetch_add(1, Ordering::Relaxed);
    slot.position.store(position, Ordering::Relaxed);
    slot.flags.store(READER_GATES, Ordering::Relaxed);
    slot.state.store(SLOT_ACTIVE, Ordering::Release);
    subscribing.readers.control().slots_used.0.fetch_max(number + 1, Ordering::Release);
}

fn reserved(bus: &Bus) -> u64 {
    bus.subscribing().unwrap().ring.control().reserved.0.load(Ordering::Relaxed)
}

fn joined(bus: &Bus) {
    let subscribing = bus.subscribing().unwrap();
    subscribing.readers.control().joins.0.fetch_add(1, Ordering::Release);
}

/// Returns what `work` costs this thread: scans, and rounds in which leases are asked for.
fn cost(work: impl FnOnce()) -> (u32, u32) {
    SCANS.set(0);
    ROUNDS.set(0);
    work();
    (SCANS.get(), ROUNDS.get())
}

/// The first publish of a full ring costs each publisher one round, and the next ones cost none.
#[test]
fn a_thousand_dead_subscribers_cost_each_publisher_one_round() {
    for policy in [Policy::Wait { limit: None }, Policy::Wait { limit: Some(1000 * MS) }] {
        let root = TempDir::new();
        let (bus, other) = (open(&root, policy), open(&root, policy));
        let publishers = [&bus, &other].map(|bus| bus.publisher("a").unwrap());
        for _ in 0..CAPACITY / 1024 - 1 {
            publishers[0].publish([7; LENGTH]).unwrap();
        }
        for (publisher, call) in publishers.iter().zip(["publish", "try_publish"]) {
            // The first publisher overwrites the start; the message of the second one is a block further.
            let oldest = reserved(&bus) - CAPACITY;
            (0..1000).for_each(|number| put(&bus, number, oldest));
            joined(&bus);
            let costs = cost(|| match call {
                "publish" => publisher.publish([7; LENGTH]).map(drop).unwrap(),
                _ => publisher.try_publish([7; LENGTH]).map(drop).unwrap(),
            });
            assert!(costs.0 <= 3 && costs.1 == 1, "{call}: {costs:?} scans and rounds");
            let costs = cost(|| publisher.publish([7; LENGTH]).map(drop).unwrap());
            assert!(costs.0 <= 1 && costs.1 == 0, "{call}, again: {costs:?}");
        }
        assert_eq!(
            bus.stats().unwrap().publishers.unwrap()[0].waits,
            0,
            "no subscriber was waited for"
        );
    }
}

/// Each way to publish one message.
type Call = (&'static str, fn(&Publisher) -> Result<(), PublishError>);

const CALLS: [Call; 8] = [
    ("publish", |publisher| publisher.publish([7; LENGTH]).map(drop)),
    ("try_publish", |publisher| publisher.try_publish([7; LENGTH]).map(drop)),
    ("publish_within", |publisher| publisher.publish_within([7; LENGTH], 5 * MS).map(drop)),
    ("overwrite", |publisher| publisher.publish_within([7; LENGTH], Limit::Overwrite).map(drop)),
    ("publish_with", |publisher| {
        publisher.publish_with(LENGTH, Limit::Policy, |words| words.fill(7)).map(drop)
    }),
    ("publish_batch", |publisher| publisher.publish_batch(&[[7; LENGTH]], Limit::Policy).map(drop)),
    ("publish_batch, 5 ms", |publisher| publisher.publish_batch(&[[7; LENGTH]], 5 * MS).map(drop)),
    ("burst", |publisher| {
        publisher.burst(&[[7; LENGTH]], Limit::Policy).map_err(|error| error.source)
    }),
];

/// Those that may give up.
const TIMED: [&str; 2] = ["publish_within", "publish_batch, 5 ms"];

/// Before each scan all slots get a new generation at the position that is overwritten next, and none has
/// a lease. So what a publisher has learned of them is out of date each time. A call makes at most two
/// scans each time that it has the lock, and gives up after a number of rounds, whatever its limit.
#[test]
fn slots_that_change_without_end_cost_a_bounded_number_of_scans() {
    let none = Policy::Wait { limit: None };
    let limit = Policy::Wait { limit: Some(5 * MS) };
    let bounded = Policy::Bounded { budget: 5 * MS, per: 50 * MS };
    for policy in [none, limit, bounded, Policy::Overwrite] {
        let root = TempDir::new();
        let bus = open(&root, policy);
        let publisher = bus.publisher("a").unwrap();
        for _ in 0..2 * CAPACITY / 1024 {
            publisher.publish([7; LENGTH]).unwrap();
        }
        let mut most = 0;
        for (name, call) in CALLS {
            let attacked = bus.clone();
            let attack = move |reached: &[CrashPoint]| {
                if reached.last() == Some(&CrashPoint::Proposing) {
                    let oldest = reserved(&attacked) - CAPACITY;
                    (0..SLOTS).for_each(|number| put(&attacked, number, oldest));
                }
                false
            };
            joined(&bus);
            let mut result = None;
            let (scans, rounds) = cost(|| result = rehearsal::act(attack, || call(&publisher)).1);
            match result.unwrap() {
                Ok(()) => {}
                Err(PublishError::Full) => assert_eq!((name, rounds), ("try_publish", 1)),
                Err(PublishError::Timeout) => assert!(TIMED.contains(&name), "{name}"),
                Err(error) => panic!("{name}: {error}"),
            }
            assert!(scans <= 2 * rounds + 2, "{name} under {policy:?}: {scans}, {rounds}");
            assert!(rounds <= Unowned::MOST, "{name} under {policy:?}: {rounds} rounds");
            let is_patient =
                !TIMED.contains(&name) && !["try_publish", "overwrite"].contains(&name);
            if policy == none && is_patient {
                assert_eq!(rounds, Unowned::MOST, "{name} goes on for no other reason");
            }
            most = most.max(rounds);
        }
        assert_eq!(most > 0, policy != Policy::Overwrite, "the attack has no effect");
    }
}

/// A publisher waits for a subscriber that lives and reads nothing at the first block that it is in the
/// way of. Then the subscriber has been lapped, and costs nothing more until it has caught up.
#[test]
fn a_stopped_subscriber_costs_the_limit_once() {
    let root = TempDir::new();
    let limit = 5 * MS;
    let bus = open(&root, Policy::Wait { limit: Some(limit) });
    let publisher = bus.publisher("a").unwrap();
    // Another thread makes it: this one would wait for itself.
    let subscribe = || bus.subscribe("**").unwrap();
    let stopped = std::thread::scope(|scope| scope.spawn(subscribe).join().unwrap());
    for _ in 0..4 * CAPACITY / 1024 {
        publisher.publish([7; LENGTH]).unwrap();
    }
    let publisher = &bus.stats().unwrap().publishers.unwrap()[0];
    assert_eq!((publisher.waits, publisher.overwrites), (1, 1));
    drop(stopped);
}

/// A living subscriber stands between two dead ones, so no single question shows that both are free. A
/// round that runs out of time before it has asked about each returns that one may live, and learns about
/// one of them all the same.
#[test]
fn a_round_that_runs_out_of_time_is_no_round_of_the_dead() {
    let root = TempDir::new();
    let bus = open(&root, Policy::Wait { limit: None });
    let publishing = bus.publishing().unwrap();
    let (backpressure, participant) = (&publishing.backpressure, &publishing.participant);
    let between = [0, 1, 2].map(|_| bus.subscribe("**").unwrap()).into_iter().nth(1).unwrap();
    let suspects = [0, 2].map(|number| Suspect { number, generation: 1 });
    let mut unowned = Unowned::default();
    let long_ago = 0;
    assert!(
        backpressure.ask(participant, &suspects, &mut unowned, long_ago),
        "one of the two may live"
    );
    let known =
        suspects.map(|suspect| participant.reader_slots.lock().unwrap().dead.knows(suspect));
    assert_eq!(known.iter().filter(|is_known| **is_known).count(), 1);
    assert!(!backpressure.ask(participant, &suspects, &mut unowned, u64::MAX), "both are dead");
    drop(between);
}
