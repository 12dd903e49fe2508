//! Tests of exclusive publishers that leave out their fence while no subscriber sleeps (`notify/adaptive_fence.rs`).

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::{Exclusive, ExclusiveTopic};
use crate::bus::Limit;
use crate::bus::subscribe::{Subscriber, WaitStrategy};
use crate::bus::{Bus, BusConfig};
use crate::hook::{CrashPoint, rehearsal};
use crate::ring::layout::READER_NEEDS_FENCE;
use crate::settings::NotifyKind;
use crate::sync::Ordering;
use crate::sync::membarrier::tests::refuse_in_this_thread;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use toroni_testkit::Directory;

/// More looks than it takes to leave the fence out.
const MANY: u32 = 5000;
const LONG: Duration = Duration::from_secs(60);

struct Fixture {
    directory: Directory,
    bus: Bus,
}

impl Fixture {
    fn new() -> Self {
        Self::with(NotifyKind::Futex)
    }

    fn with(notify: NotifyKind) -> Self {
        let directory = Directory::new();
        let bus = BusConfig::new().directory(directory.path()).notify(notify).create("b").unwrap();
        Self { directory, bus }
    }

    fn other(&self) -> Bus {
        BusConfig::new().directory(self.directory.path()).open("b").unwrap()
    }

    fn mark(&self) -> u32 {
        let publishing = self.bus.publishing().unwrap();
        publishing.participant.ring.control().asymmetric.0.load(Ordering::Relaxed)
    }

    /// How many sleeps were announced.
    fn announced(&self) -> u64 {
        let publishing = self.bus.publishing().unwrap();
        publishing.participant.readers.control().sleeps.0.load(Ordering::Acquire)
    }

    /// Whether the subscriber in the first slot has said that it is refused membarrier.
    fn is_refused(&self) -> bool {
        let publishing = self.bus.publishing().unwrap();
        publishing.participant.readers.read(0).unwrap().flags & READER_NEEDS_FENCE != 0
    }

    /// A subscriber for which no publisher waits.
    fn subscriber(&self) -> Subscriber {
        let builder = self.bus.subscriber().pattern("seen").gating(false);
        builder.wait(WaitStrategy::Block).build().unwrap()
    }
}

fn feed(bus: &Bus) -> (Exclusive, ExclusiveTopic) {
    let exclusive = bus.exclusive().unwrap();
    let topic = exclusive.topic("unseen").unwrap();
    (exclusive, topic)
}

fn publish_many((exclusive, topic): &(Exclusive, ExclusiveTopic)) {
    for _ in 0..MANY {
        exclusive.publish(topic, "x", Limit::Policy).unwrap();
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < LONG, "{what}");
        thread::yield_now();
    }
}

/// Receives one message, which `feed` publishes once the subscriber has announced its sleep.
fn wake_once(fixture: &Fixture, feed: &(Exclusive, ExclusiveTopic), subscriber: &mut Subscriber) {
    let before = fixture.announced();
    let seen = feed.0.topic("seen").unwrap();
    thread::scope(|scope| {
        let receives = scope.spawn(|| {
            assert!(subscriber.receive_timeout(LONG).unwrap().is_some());
        });
        until("the subscriber does not sleep", || fixture.announced() != before);
        feed.0.publish(&seen, "x", Limit::Policy).unwrap();
        receives.join().unwrap();
    });
}

#[test]
fn the_fence_is_left_out_until_a_subscriber_sleeps() {
    for notify in [NotifyKind::Futex, NotifyKind::Datagram] {
        let fixture = Fixture::with(notify);
        let mut subscriber = fixture.subscriber();
        let feed = feed(&fixture.bus);
        for _ in 0..100 {
            feed.0.publish(&feed.1, "x", Limit::Policy).unwrap();
        }
        assert_eq!(fixture.mark(), 0, "it begins with fences");
        publish_many(&feed);
        assert_ne!(fixture.mark(), 0);
        wake_once(&fixture, &feed, &mut subscriber);
        assert_eq!(fixture.mark(), 0);
        publish_many(&feed);
        publish_many(&feed);
        assert_ne!(fixture.mark(), 0);
        drop(feed);
        assert_eq!(fixture.mark(), 0, "it ends with a fence");
    }
}

#[test]
fn short_times_without_a_fence_make_the_next_one_come_later() {
    let fixture = Fixture::new();
    let mut subscriber = fixture.subscriber();
    let feed = feed(&fixture.bus);
    publish_many(&feed);
    wake_once(&fixture, &feed, &mut subscriber);
    publish_many(&feed);
    assert_eq!(fixture.mark(), 0, "less than 1,000 messages had no fence");
    publish_many(&feed);
    assert_ne!(fixture.mark(), 0);
    (0..5).for_each(|_| publish_many(&feed));
    wake_once(&fixture, &feed, &mut subscriber);
    publish_many(&feed);
    assert_ne!(fixture.mark(), 0, "that was worth it");
}

#[test]
fn a_publisher_that_shall_always_fence_does() {
    let fixture = Fixture::new();
    let always = fixture.bus.exclusive().unwrap();
    always.set_always_fenced(true);
    let topic = always.topic("unseen").unwrap();
    let always = (always, topic);
    publish_many(&always);
    assert_eq!(fixture.mark(), 0);
    always.0.set_always_fenced(false);
    publish_many(&always);
    assert_ne!(fixture.mark(), 0);
    always.0.set_always_fenced(true);
    assert_eq!(fixture.mark(), 0, "at once");
    drop(always);
    // The choice was that publisher's.
    let next = feed(&fixture.bus);
    publish_many(&next);
    assert_ne!(fixture.mark(), 0);
}

#[test]
fn a_takeover_removes_the_mark_of_a_dead_publisher() {
    for heir_is_exclusive in [false, true] {
        let fixture = Fixture::new();
        let others = fixture.other();
        let dead = feed(&others);
        publish_many(&dead);
        assert_ne!(fixture.mark(), 0);
        let dies = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::BeforeWake);
        let (_, lived) = rehearsal::act(dies, || dead.0.publish(&dead.1, "last", Limit::Policy));
        assert!(lived.is_none());
        rehearsal::bury((dead, others));
        assert_ne!(fixture.mark(), 0, "a dead process removes nothing");
        if heir_is_exclusive {
            let heir = feed(&fixture.bus);
            assert_eq!(fixture.mark(), 0);
            heir.0.publish(&heir.1, "x", Limit::Policy).unwrap();
        } else {
            fixture.bus.publisher("unseen").unwrap().publish("x").unwrap();
        }
        assert_eq!(fixture.mark(), 0);
        assert_eq!(fixture.bus.stats().unwrap().sequence, u64::from(MANY) + 2);
    }
}

/// As of a publisher that has lost the lock and does not know it yet.
#[test]
fn the_mark_of_another_publisher_is_left_alone_and_costs_no_wake_up() {
    let fixture = Fixture::new();
    let mut subscriber = fixture.subscriber();
    let feed = feed(&fixture.bus);
    let publishing = fixture.bus.publishing().unwrap();
    publishing.participant.ring.control().asymmetric.0.store(u32::MAX, Ordering::Relaxed);
    wake_once(&fixture, &feed, &mut subscriber);
    publish_many(&feed);
    wake_once(&fixture, &feed, &mut subscriber);
    publish_many(&feed);
    drop(feed);
    assert_eq!(fixture.mark(), u32::MAX);
}

#[test]
fn a_publisher_that_is_refused_membarrier_always_fences() {
    let fixture = Fixture::new();
    let mut subscriber = fixture.subscriber();
    thread::scope(|scope| {
        scope.spawn(|| {
            refuse_in_this_thread();
            let feed = feed(&fixture.bus);
            (0..3).for_each(|_| publish_many(&feed));
            assert_eq!(fixture.mark(), 0);
            wake_once(&fixture, &feed, &mut subscriber);
        });
    });
}

#[test]
fn a_subscriber_that_is_refused_membarrier_keeps_publishers_fenced_while_it_lives() {
    for notify in [NotifyKind::Futex, NotifyKind::Datagram] {
        let fixture = Fixture::with(notify);
        let feed = feed(&fixture.bus);
        publish_many(&feed);
        assert_ne!(fixture.mark(), 0);
        let mut refused = fixture.subscriber();
        let publish_much = || (0..10).for_each(|_| publish_many(&feed));
        let seen = feed.0.topic("seen").unwrap();
        let ((asks, asked), (has, had)) = (channel(), channel());
        thread::scope(|scope| {
            let receives = scope.spawn(|| {
                refuse_in_this_thread();
                for () in asked {
                    assert!(refused.receive_timeout(LONG).unwrap().is_some());
                    has.send(()).unwrap();
                }
            });
            for round in 0..2 {
                let before = fixture.announced();
                asks.send(()).unwrap();
                until("it does not sleep", || {
                    fixture.is_refused() && fixture.announced() != before
                });
                feed.0.publish(&seen, "x", Limit::Policy).unwrap();
                had.recv().unwrap();
                publish_much();
                assert_eq!(fixture.mark(), 0, "{notify:?}, round {round}");
            }
            drop(asks);
            receives.join().unwrap();
        });
        // The next owner of the slot is not refused, and need not ever sleep.
        drop(refused);
        let _next = fixture.subscriber();
        (0..3).for_each(|_| publish_much());
        assert_ne!(fixture.mark(), 0, "{notify:?}: it has left");
    }
}
