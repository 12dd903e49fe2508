//! A hostile publisher, which may write every file of the bus. The stream contains what it likes,
//! but readers continue and their calls end.

use crate::common::Fixture;
use crate::{CAPACITY, LONG, Raw, at, config, in_time, under};
use std::time::{Duration, Instant};
use toroni::{Limit, Policy, PublishError, PublisherError, ReceiveError, Start};

const MS: Duration = Duration::from_millis(1);

/// The ring is full of messages on other topics, and `reserved` advances ahead of the reader, round
/// and round.
#[test]
fn an_endless_stream_for_others_holds_up_no_call_that_has_a_limit() {
    /// Large enough that the attacker stays ahead even on a busy machine.
    const CAPACITY: u64 = 4 << 20;
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::Overwrite).capacity(CAPACITY).open("b").unwrap();
    let publisher = bus.publisher("other").unwrap();
    // Records of 16 bytes, so every lap has the same layout.
    for _ in 0..2 * CAPACITY / 16 / 1024 {
        publisher.burst(&[[7; 8]; 1024], Limit::Policy).unwrap();
    }
    let (readers, ring) = (Raw::open(&fixture, "readers"), Raw::open(&fixture, "ring"));
    // Another message at the end of the stream.
    let end = ring.get(at::DATA_OFFSET) + ring.get(at::TAIL) % CAPACITY;
    ring.put(end, ring.get(end + 16));
    let builder = bus.subscriber().pattern("mine").start(Start::Oldest);
    let mut subscriber = builder.build().unwrap();
    let attack = || {
        let position = readers.get(at::slot(0) + at::POSITION);
        ring.put(at::RESERVED, (position + CAPACITY) & !1023);
    };
    under(attack, || {
        let began = subscriber.position();
        let end = Instant::now() + LONG;
        let mut longest = 0;
        while subscriber.position() - began < 16 * CAPACITY {
            // The result may be a loss or an invalid message.
            let before = subscriber.position();
            in_time("receive_timeout", || subscriber.receive_timeout(MS).is_ok());
            in_time("try_receive", || subscriber.try_receive().is_ok());
            longest = longest.max(subscriber.position() - before);
            assert!(Instant::now() < end, "the attack has no effect: {}", before - began);
        }
        // Each call scans the ring at most twice, until its deadline.
        assert!(longest <= 5 * CAPACITY, "a call took {} laps", longest / CAPACITY);
    });
}

/// The end of the stream moves to and fro.
#[test]
fn joins_and_stats_end_while_the_stream_moves_to_and_fro() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::Overwrite).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    for _ in 0..2 * CAPACITY / 16 {
        publisher.publish([7; 8]).unwrap();
    }
    let ring = Raw::open(&fixture, "ring");
    let (tail, reserved) = (ring.get(at::TAIL), ring.get(at::RESERVED));
    let attack = || {
        ring.put(at::RESERVED, reserved + (1 << 40));
        ring.put(at::RESERVED, reserved);
        ring.put(at::TAIL, tail - CAPACITY / 2);
        ring.put(at::TAIL, tail);
    };
    under(attack, || {
        for _ in 0..50 {
            let (position, sequence) =
                (Start::Position(tail - 160), Start::Sequence(tail / 16 - 10));
            for start in [Start::Latest, Start::Oldest, position, sequence] {
                let builder = bus.subscriber().pattern("**").start(start);
                if let Ok(mut subscriber) = in_time("subscribe", || builder.build()) {
                    in_time("receive_timeout", || subscriber.receive_timeout(MS).is_ok());
                }
            }
            let _ = in_time("topics", || bus.topics());
            let _ = in_time("stats", || bus.stats());
        }
    });
}

/// The index says anything. A hold is refused, or its subscriber gates somewhere in what it has read.
#[test]
fn holds_end_whatever_the_index_says() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::Overwrite).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let mut subscriber = bus.subscribe("**").unwrap();
    // Messages of a block, one and a half laps.
    for _ in 0..96 {
        publisher.publish([7; 1016]).unwrap();
        subscriber.receive().unwrap();
    }
    let (readers, ring) = (Raw::open(&fixture, "readers"), Raw::open(&fixture, "ring"));
    let reserved = ring.get(at::RESERVED);
    for (position, sequence) in [
        (u64::MAX, 0),
        (u64::MAX - 7, 0),
        (1 << 62, 0),
        (0, 0),
        (96 << 10, u64::MAX),
        (96 << 10, 0),
        (90 << 10, 1 << 60),
        (50 << 10, 7),
    ] {
        for block in 0..64 {
            ring.put(at::INDEX + 16 * block, position);
            ring.put(at::INDEX + 16 * block + 8, sequence);
        }
        for first in [0, 60, 95, 96, 97, u64::MAX] {
            for reserved in [reserved, reserved + (1 << 40), 0, u64::MAX] {
                ring.put(at::RESERVED, reserved);
                let held = in_time("hold", || subscriber.hold(first).is_ok());
                let gating = readers.get(at::slot(0) + at::POSITION);
                assert!(gating <= subscriber.position(), "at {gating}, held: {held}");
                assert!(subscriber.held().is_none_or(|held| held == first));
                subscriber.release_hold();
                assert_eq!(readers.get(at::slot(0) + at::POSITION), subscriber.position());
            }
        }
    }
}

/// The index says that the stream has come to its last number, again and again. So a loss is as long as can be, and the
/// number of what follows wraps.
#[test]
fn losses_are_counted_however_long_they_are() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::Overwrite).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let mut subscriber = bus.subscribe("**").unwrap();
    let ring = Raw::open(&fixture, "ring");
    for lapses in 1..=2 {
        // Messages of a block, one and a half laps.
        for _ in 0..96 {
            publisher.publish([7; 1016]).unwrap();
        }
        for block in 0..64 {
            ring.put(at::INDEX + 16 * block + 8, u64::MAX - 1);
        }
        let mut longest = 0;
        loop {
            match subscriber.try_receive() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(ReceiveError::Lapped { lost_messages, .. }) => longest = lost_messages,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(longest > u64::MAX - 100, "the attack has no effect: {longest}");
        assert_eq!(subscriber.stats().lapses, lapses);
    }
    assert_eq!(subscriber.stats().lost_messages, u64::MAX);
    let shown = &bus.stats().unwrap().subscribers.unwrap()[0];
    assert_eq!(shown.lost_messages, u64::MAX);
}

/// The lock word names a living owner, which never unlocks.
#[test]
fn a_lock_that_is_never_released_is_an_error_for_calls_with_a_limit() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::default()).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let other = config(&fixture, Policy::default()).open("b").unwrap();
    let others = other.publisher("a").unwrap();
    let ring = Raw::open(&fixture, "ring");
    let publishers = Raw::open(&fixture, "publishers");
    let word_of = |slot: u64| {
        let generation = publishers.get(at::publisher_slot(slot)) & 0x3_FFFF;
        u32::try_from((slot + 1) << 18 | generation).unwrap()
    };
    ring.put_u32(at::LOCK, word_of(1));
    for _ in 0..2 {
        assert!(matches!(publisher.try_publish(b"x"), Err(PublishError::Busy)));
        let late = in_time("publishing", || publisher.publish_within(b"x", 20 * MS));
        assert!(matches!(late, Err(PublishError::Timeout)), "{late:?}");
    }
    let text = publisher.publish_within(b"x", MS).unwrap_err().to_string();
    assert!(text.contains("toroni info"), "{text}");
    // The owner dies, and its lock is taken over.
    drop((others, other));
    in_time("publishing", || publisher.publish(b"x")).unwrap();

    // A lock on its byte makes a dead owner look alive.
    publishers.lock(at::LEASES + 1, 1);
    ring.put_u32(at::LOCK, word_of(1));
    let late = in_time("publishing", || publisher.publish_within(b"x", 20 * MS));
    assert!(matches!(late, Err(PublishError::Timeout)), "{late:?}");
    drop(publishers);
    in_time("publishing", || publisher.publish(b"x")).unwrap();

    // The lock word names no possible owner.
    for word in [u32::MAX >> 2, 1, 4 << 18 | 1, 0xC000_0000 | 4000 << 18] {
        ring.put_u32(at::LOCK, word);
        in_time("publishing", || publisher.publish(b"x")).unwrap();
    }
}

#[test]
fn all_slots_can_be_taken_which_is_an_error_for_new_publishers_alone() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::default()).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let mut subscriber = bus.subscribe("**").unwrap();
    let publishers = Raw::open(&fixture, "publishers");
    publishers.lock(at::LEASES + 1, 1023);
    let other = config(&fixture, Policy::default()).open("b").unwrap();
    let refused = other.publisher("a").map(drop).unwrap_err();
    assert!(matches!(refused, PublisherError::TooManyPublishers { limit: 4 }), "{refused}");
    publisher.publish(b"x").unwrap();
    assert_eq!(subscriber.receive().unwrap().payload(), b"x");
}

/// A file that is truncated and extended again between two checks causes no fault: it holds zeros.
#[test]
fn a_ring_that_was_recreated_while_in_use_is_noticed() {
    for punch in [false, true] {
        let fixture = Fixture::new();
        let bus = config(&fixture, Policy::default()).open("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        let mut subscriber = bus.subscribe("**").unwrap();
        for _ in 0..100 {
            publisher.publish(b"x").unwrap();
            assert!(subscriber.receive().is_ok());
        }
        let ring = Raw::open(&fixture, "ring");
        if punch {
            ring.punch();
        } else {
            let length = ring.file().metadata().unwrap().len();
            ring.file().set_len(0).unwrap();
            ring.file().set_len(length).unwrap();
        }
        let end = Instant::now() + LONG;
        let error = loop {
            match subscriber.receive_timeout(20 * MS) {
                Ok(None) => assert!(Instant::now() < end, "the subscriber got no error"),
                Ok(Some(message)) => panic!("a message that was not published: {message:?}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ReceiveError::Corrupt(_)), "{error}");
        let error = (0..3 * CAPACITY / 1000).find_map(|_| publisher.publish([7; 992]).err());
        assert!(matches!(error, Some(PublishError::Corrupt(_))), "{error:?}");
        assert!(bus.subscribe("**").is_ok() || bus.stats().is_err());
        assert!(config(&fixture, Policy::default()).open_existing("b").is_err());
    }
}
