//! Tests of the bus within one process: what publishers and subscribers guarantee each other.

use crate::common::Fixture;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use toroni::{
    Bus, BusConfig, Exclusive, ExclusiveTopic, FileError, Limit, LockKind, NotifyKind, OpenError,
    Policy, PublishError, Publisher, PublisherError, ReceiveError, Start, Subscriber,
    SubscriberError, WaitStrategy,
};

fn received(subscriber: &mut Subscriber) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(message) = subscriber.try_receive().unwrap() {
        messages.push(message.payload().to_vec());
    }
    messages
}

#[test]
fn a_message_arrives_with_all_it_says() {
    for lock in [LockKind::Lease, LockKind::Robust] {
        let fixture = Fixture::new();
        let bus = fixture.config().lock(lock).open("b").unwrap();
        let mut subscriber = bus.subscribe("plant/**").unwrap();
        let publisher = bus.publisher("plant/boiler/temperature").unwrap();
        publisher.publish(b"351.2").unwrap();
        let message = subscriber.receive().unwrap();
        assert_eq!(message.topic(), "plant/boiler/temperature");
        assert_eq!(message.payload(), b"351.2");
        assert_eq!((message.sequence(), message.position()), (0, 0));
        assert_eq!(message.next_position(), 16);
        assert!(message.timestamp().is_none() && !message.to_descendants());
        assert!(subscriber.try_receive().unwrap().is_none());
    }
}

#[test]
fn every_size_from_nothing_to_the_largest() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    let largest = usize::try_from(publisher.largest_message()).unwrap();
    assert_eq!(largest, (32 << 10) - 8);
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(largest).collect();
    for size in (0..300).chain([1023, 1024, 1025, 4096, largest - 1, largest]) {
        publisher.publish(&bytes[..size]).unwrap();
        assert_eq!(subscriber.receive().unwrap().payload(), &bytes[..size], "{size}");
    }
    let error = publisher.publish(vec![0; largest + 1]).unwrap_err();
    assert!(
        matches!(error, PublishError::TooLong { length, limit }
            if length == largest as u64 + 1 && limit == largest as u64),
        "{error}"
    );
    assert!(subscriber.try_receive().unwrap().is_none());
}

#[test]
fn patterns_filter_and_descendants_are_reached() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let mut all = bus.subscribe("**").unwrap();
    let mut boiler =
        bus.subscriber().pattern("plant/boiler/*").pattern("plant/boiler/**").build().unwrap();
    let mut other = bus.subscribe("plants/**").unwrap();
    bus.publisher("plant/boiler/t").unwrap().publish(b"1").unwrap();
    bus.publisher("plant/boiler").unwrap().publish(b"2").unwrap();
    bus.publisher("plant").unwrap().publish(b"3").unwrap();
    bus.publisher("plant").unwrap().to_descendants(true).publish(b"4").unwrap();
    bus.publisher("plant")
        .unwrap()
        .to_descendants(true)
        .publish_batch(&["5", "6"], Limit::Policy)
        .unwrap();
    assert_eq!(received(&mut all), [b"1", b"2", b"3", b"4", b"5", b"6"]);
    assert_eq!(received(&mut boiler), [b"1", b"2", b"4", b"5", b"6"]);
    assert!(received(&mut other).is_empty());
    other.add_pattern("plant/pump").unwrap();
    bus.publisher("plant/pump").unwrap().publish(b"7").unwrap();
    bus.publisher("plant").unwrap().to_descendants(true).publish(b"8").unwrap();
    assert_eq!(received(&mut other), [b"7", b"8"]);
}

#[test]
fn a_full_topic_table_refuses_no_topic() {
    let fixture = Fixture::new();
    let bus = fixture.config().topic_table_bytes(4096).open("b").unwrap();
    let mut all = bus.subscribe("long/**").unwrap();
    let mut one = bus.subscribe("long/*/599").unwrap();
    let filler = "x".repeat(40);
    for number in 0..600 {
        let topic = format!("long/{filler}/{number}");
        bus.publisher(&topic).unwrap().publish(topic.as_bytes()).unwrap();
        let message = all.receive().unwrap();
        assert_eq!((message.topic(), message.payload()), (&*topic, topic.as_bytes()));
    }
    assert!(bus.stats().unwrap().topics < 100, "the table must be too small");
    let last = one.try_receive().unwrap().unwrap();
    assert_eq!(last.topic(), format!("long/{filler}/599"));
    assert_eq!(bus.topics().unwrap().iter().map(|topic| topic.messages).sum::<u64>(), 600);
}

#[test]
fn batches_are_all_or_nothing() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    assert!(publisher.publish_batch::<&[u8]>(&[], Limit::Policy).unwrap().is_empty());
    assert_eq!(publisher.publish_batch(&["a", "", "ccc"], Limit::Policy).unwrap(), 0..3);
    assert_eq!(received(&mut subscriber), [&b"a"[..], b"", b"ccc"]);
    let half = vec![1_u8; 20_000];
    assert!(matches!(
        publisher.publish_batch(&[&half, &half], Limit::Policy),
        Err(PublishError::TooLong { limit: 32768, .. })
    ));
    assert!(received(&mut subscriber).is_empty());
}

#[test]
fn bursts_pass_the_ring_many_times() {
    let fixture = Fixture::new();
    // Longer than a busy machine delays the subscriber. But not unlimited, because the subscriber
    // may have failed.
    let policy = Policy::Wait { limit: Some(Duration::from_secs(30)) };
    let bus = fixture.config().capacity(64 << 10).policy(policy).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    let messages: Vec<[u8; 8]> = (0..50_000_u64).map(u64::to_le_bytes).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| publisher.burst(&messages, Limit::Policy).unwrap());
        for expected in &messages {
            assert_eq!(subscriber.receive().unwrap().payload(), expected);
        }
    });
    let too_long = vec![0; 1 << 20];
    let error = publisher.burst(&[&b"short"[..], &too_long], Limit::Policy).unwrap_err();
    assert_eq!(error.published, 0);
    assert!(received(&mut subscriber).is_empty());
}

#[test]
fn in_place_both_ways() {
    let fixture = Fixture::new();
    let bus = fixture.config().timestamps(true).open("b").unwrap();
    let publisher = bus.publisher("frame").unwrap();
    let mut subscriber = bus.subscribe("frame").unwrap();
    let published = publisher
        .publish_with(13, Limit::Policy, |frame| {
            frame.fill(7);
            frame.write(3, b"abc");
            frame.len()
        })
        .unwrap();
    assert_eq!(published, (0, 13));
    let borrowed = subscriber.borrow().unwrap().unwrap();
    assert_eq!(borrowed.topic(), "frame");
    // A header, a timestamp and two words of payload.
    assert_eq!((borrowed.next_position(), borrowed.to_descendants()), (32, false));
    assert_eq!(borrowed.payload().to_vec(), b"\x07\x07\x07abc\x07\x07\x07\x07\x07\x07\x07");
    assert!(borrowed.timestamp().unwrap().elapsed().unwrap() < Duration::from_secs(60));
    borrowed.validate().unwrap();
    assert!(subscriber.borrow().unwrap().is_none());
}

#[test]
fn an_overtaken_borrow_is_not_valid() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).policy(Policy::Overwrite).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    publisher.publish([1; 1000]).unwrap();
    let borrowed = subscriber.borrow().unwrap().unwrap();
    borrowed.validate().unwrap();
    for _ in 0..70 {
        publisher.publish([2; 1000]).unwrap();
    }
    assert!(matches!(borrowed.validate(), Err(ReceiveError::Lapped { lost_messages: 1, .. })));
}

#[test]
fn a_panic_in_place_publishes_nothing_and_unlocks() {
    for lock in [LockKind::Lease, LockKind::Robust] {
        let fixture = Fixture::new();
        let bus = fixture.config().lock(lock).open("b").unwrap();
        let publisher = bus.publisher("t").unwrap();
        let mut subscriber = bus.subscribe("t").unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            publisher.publish_with(8, Limit::Policy, |_| panic!("on purpose"))
        }));
        assert!(outcome.is_err());
        publisher.publish(b"after").unwrap();
        assert_eq!(received(&mut subscriber), [b"after"]);
    }
}

#[test]
fn the_bus_inside_publish_with_is_an_error_and_no_deadlock() {
    for lock in [LockKind::Lease, LockKind::Robust] {
        let fixture = Fixture::new();
        let bus = fixture.config().lock(lock).open("b").unwrap();
        let again = fixture.config().open("b").unwrap();
        let publisher = bus.publisher("t").unwrap();
        let other_handle = again.publisher("t").unwrap();
        let (_, errors) = publisher
            .publish_with(1, Limit::Policy, |_| {
                let topic = bus.publisher("new/topic").unwrap_err();
                (publisher.publish(b"x"), other_handle.publish(b"x"), topic)
            })
            .unwrap();
        assert!(
            matches!(
                errors,
                (
                    Err(PublishError::Reentrant),
                    Err(PublishError::Reentrant),
                    PublisherError::Reentrant
                )
            ),
            "{errors:?}"
        );
        publisher.publish(b"after").unwrap();
    }
}

/// Threads publish at the same time, as shared and then as exclusive publishers. Topics and time stamps
/// make records of several kinds.
#[test]
fn each_publisher_learns_the_sequences_of_its_messages() {
    for timestamps in [false, true] {
        let fixture = Fixture::new();
        let bus = fixture.config().timestamps(timestamps).open("b").unwrap();
        let mut subscriber = bus.subscribe("**").unwrap();
        let publish = |thread: u32| {
            let publisher = bus.publisher(&format!("t/{thread}")).unwrap();
            let publish = |number: u32| {
                let payload = [thread.to_ne_bytes(), number.to_ne_bytes()].concat();
                // Messages without a number come in between.
                publisher.publish_batch(&["a", "b"], Limit::Policy).unwrap();
                (publisher.publish(&payload).unwrap(), payload)
            };
            (0..500).map(publish).collect::<Vec<_>>()
        };
        let mut numbered: Vec<(u64, Vec<u8>)> = std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| scope.spawn(move || publish(thread)));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let feed = bus.exclusive().unwrap();
        let (one, other) = (feed.topic("x/1").unwrap(), feed.topic("x/2").unwrap());
        for number in 0..100_u64 {
            let payload = number.to_ne_bytes().to_vec();
            feed.publish(&one, b"c", Limit::Policy).unwrap();
            numbered.push((feed.publish(&other, &payload, Limit::Policy).unwrap(), payload));
        }
        numbered.sort_unstable();
        let received = std::iter::from_fn(|| {
            let message = subscriber.try_receive().unwrap()?;
            Some((message.sequence(), message.payload().to_vec()))
        });
        let received: Vec<_> = received.filter(|(_, payload)| payload.len() == 8).collect();
        assert_eq!(received, numbered);
    }
}

#[test]
fn a_message_that_is_not_published_has_no_sequence() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let error = publisher.publish([0; 40 << 10]).unwrap_err();
    assert!(matches!(error, PublishError::TooLong { .. }), "{error}");
    assert_eq!(publisher.publish(b"first").unwrap(), 0);
    assert_eq!(publisher.clone().to_descendants(true).publish(b"").unwrap(), 1);
    let (sequence, inside) =
        publisher.publish_with(1, Limit::Policy, |_| publisher.publish(b"inside")).unwrap();
    assert_eq!(sequence, 2);
    assert!(matches!(inside, Err(PublishError::Reentrant)), "{inside:?}");
    let feed = bus.exclusive().unwrap();
    let error = publisher.publish(b"shared").unwrap_err();
    assert!(matches!(error, PublishError::Exclusive { .. }), "{error}");
    let elsewhere = fixture.config().open("c").unwrap();
    let foreign = elsewhere.exclusive().unwrap().topic("t").unwrap();
    let error = feed.publish(&foreign, b"", Limit::Policy).unwrap_err();
    assert!(matches!(error, PublishError::ForeignTopic), "{error}");
    assert_eq!(feed.publish(&feed.topic("t").unwrap(), b"last", Limit::Policy).unwrap(), 3);
}

/// Each way to publish 1016 bytes within a limit. Returns the sequence of the first message, if the call returns one.
type Way<P> = (&'static str, fn(&P, Limit) -> Result<Option<u64>, PublishError>);

const WAYS: [Way<Publisher>; 4] = [
    ("publish_within", |publisher, limit| publisher.publish_within([7; 1016], limit).map(Some)),
    ("publish_batch", |publisher, limit| {
        let sequences = publisher.publish_batch(&[[7; 500], [8; 500]], limit)?;
        assert_eq!(sequences.end, sequences.start + 2);
        Ok(Some(sequences.start))
    }),
    ("burst", |publisher, limit| match publisher.burst(&[[7; 1016]], limit) {
        Ok(()) => Ok(None),
        Err(error) => {
            assert_eq!(error.published, 0);
            Err(error.source)
        }
    }),
    ("publish_with", |publisher, limit| {
        let (sequence, length) = publisher.publish_with(1016, limit, |bytes| {
            bytes.fill(7);
            bytes.len()
        })?;
        assert_eq!(length, 1016);
        Ok(Some(sequence))
    }),
];

const EXCLUSIVE_WAYS: [Way<(Exclusive, ExclusiveTopic)>; 4] = [
    ("publish", |(exclusive, topic), limit| exclusive.publish(topic, [7; 1016], limit).map(Some)),
    ("publish_batch", |(exclusive, topic), limit| {
        let sequences = exclusive.publish_batch(topic, &[[7; 500], [8; 500]], limit)?;
        assert_eq!(sequences.end, sequences.start + 2);
        Ok(Some(sequences.start))
    }),
    ("burst", |(exclusive, topic), limit| match exclusive.burst(topic, &[[7; 1016]], limit) {
        Ok(()) => Ok(None),
        Err(error) => {
            assert_eq!(error.published, 0);
            Err(error.source)
        }
    }),
    ("publish_with", |(exclusive, topic), limit| {
        let fill = |bytes: &mut toroni::RacyBytesMut<'_>| bytes.fill(7);
        exclusive.publish_with(topic, 1016, limit, fill).map(|(sequence, ())| Some(sequence))
    }),
];

/// Publishes until the ring is full of what `subscriber` has not read. Then each limit does what it says.
fn obeys_limits<P>(bus: &Bus, publisher: &P, (name, publish): Way<P>, subscriber: &mut Subscriber) {
    let next = || bus.stats().unwrap().sequence;
    let waits = || bus.stats().unwrap().publishers.unwrap()[0].waits;
    let publish = |limit| {
        let before = next();
        let published = publish(publisher, limit);
        if let Ok(Some(sequence)) = published {
            assert_eq!(sequence, before, "{name}, {limit:?}");
        }
        assert_eq!(next() > before, published.is_ok(), "{name}, {limit:?}");
        published
    };
    for limit in [Limit::Policy, Limit::Try, Limit::Within(Duration::ZERO), Limit::Overwrite] {
        publish(limit).unwrap();
    }
    let full = loop {
        if let Err(error) = publish(Limit::Try) {
            break error;
        }
    };
    assert!(matches!(full, PublishError::Full), "{name}: {full}");
    assert_eq!(waits(), 0, "{name} has waited");
    let limit = Duration::from_millis(20);
    let began = Instant::now();
    let late = publish(limit.into()).unwrap_err();
    assert!(matches!(late, PublishError::Timeout), "{name}: {late}");
    assert!(began.elapsed() >= limit, "{name}: {:?}", began.elapsed());
    let waited = waits();
    assert!(waited > 0, "{name} has not waited");
    publish(Limit::Overwrite).unwrap();
    assert_eq!(waits(), waited, "{name} has waited, although it overwrites");
    let Err(ReceiveError::Lapped { lost_messages, .. }) = subscriber.try_receive() else {
        panic!("{name}: the subscriber was not overtaken")
    };
    let received = received(subscriber).len() as u64;
    assert_eq!(lost_messages + received, next(), "{name}: all but {received} are lost");
    publish(Limit::Policy).unwrap();
}

#[test]
fn each_way_to_publish_obeys_each_limit() {
    let open = || {
        let fixture = Fixture::new();
        let forever = Policy::Wait { limit: None };
        let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
        // Of another thread: this one would wait for itself.
        let subscribe = || bus.subscribe("**").unwrap();
        let subscriber = std::thread::scope(|scope| scope.spawn(subscribe).join().unwrap());
        (fixture, bus, subscriber)
    };
    for way in WAYS {
        let (_fixture, bus, mut subscriber) = open();
        obeys_limits(&bus, &bus.publisher("t").unwrap(), way, &mut subscriber);
    }
    for way in EXCLUSIVE_WAYS {
        let (_fixture, bus, mut subscriber) = open();
        let exclusive = bus.exclusive().unwrap();
        let topic = exclusive.topic("t").unwrap();
        obeys_limits(&bus, &(exclusive, topic), way, &mut subscriber);
    }
}

/// Also with a policy that would let it wait, and with one that is shorter than that of the bus.
#[test]
fn a_limit_never_makes_a_handle_wait_longer_than_its_policy() {
    let fixture = Fixture::new();
    let brief = Policy::Wait { limit: Some(Duration::from_millis(1)) };
    let bus = fixture.config().capacity(64 << 10).policy(brief).open("b").unwrap();
    let mut subscriber =
        std::thread::scope(|scope| scope.spawn(|| bus.subscribe("**").unwrap()).join().unwrap());
    let publisher = bus.publisher("t").unwrap();
    while publisher.try_publish([7; 1016]).is_ok() {}
    publisher.publish_within([7; 1016], Duration::from_secs(3600)).unwrap();
    assert!(matches!(subscriber.try_receive(), Err(ReceiveError::Lapped { .. })));
    received(&mut subscriber);
    let overwriting = publisher.with_policy(Policy::Overwrite).unwrap();
    for _ in 0..100 {
        overwriting.publish_within([7; 1016], Limit::Try).unwrap();
    }
    assert!(matches!(subscriber.try_receive(), Err(ReceiveError::Lapped { .. })));
}

#[test]
fn a_call_that_overwrites_waits_for_other_publishers_and_one_that_tries_does_not() {
    let fixture = Fixture::new();
    let bus = fixture.config().open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let other = fixture.config().open("b").unwrap().publisher("t").unwrap();
    std::thread::scope(|scope| {
        let mut overwriting = None;
        let publishes = publisher.publish_with(1, Limit::Policy, |_| {
            let other = &other;
            let publishes =
                |limit| scope.spawn(move || other.publish_within(b"", limit)).join().unwrap();
            assert!(matches!(publishes(Limit::Try), Err(PublishError::Busy)));
            let brief = Duration::from_millis(1).into();
            assert!(matches!(publishes(brief), Err(PublishError::Timeout)));
            overwriting =
                Some(scope.spawn(move || other.publish_within(b"after", Limit::Overwrite)));
        });
        assert_eq!(publishes.unwrap().0, 0);
        assert_eq!(overwriting.unwrap().join().unwrap().unwrap(), 1);
    });
}

#[test]
fn a_call_for_a_sequence_waits_no_longer_than_it_may() {
    const LONG: [u8; 1016] = [7; 1016];
    let fixture = Fixture::new();
    let config = fixture.config().capacity(64 << 10).policy(Policy::Wait { limit: None });
    let bus = config.open("b").unwrap();
    let mut subscriber = bus.subscribe("**").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let brief = Duration::from_millis(1);
    let mut next = 0;
    let error = loop {
        match publisher.try_publish(LONG) {
            Ok(sequence) => assert_eq!(sequence, next),
            Err(error) => break error,
        }
        next += 1;
    };
    assert!(matches!(error, PublishError::Full) && next > 30, "{next}: {error}");
    let error = std::thread::scope(|scope| {
        // Another thread, because this one would wait for itself.
        scope.spawn(|| publisher.publish_within(LONG, brief)).join().unwrap()
    });
    assert!(matches!(error, Err(PublishError::Timeout)), "{error:?}");
    assert_eq!(received(&mut subscriber).len() as u64, next);
    assert_eq!(publisher.publish_within(LONG, brief).unwrap(), next);
    assert_eq!(subscriber.receive().unwrap().sequence(), next);

    let feed = bus.exclusive().unwrap();
    let topic = feed.topic("t").unwrap();
    let error = loop {
        next += 1;
        match feed.publish(&topic, LONG, Limit::Try) {
            Ok(sequence) => assert_eq!(sequence, next),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PublishError::Full), "{error}");
    let feed = std::thread::scope(|scope| {
        let publish = || {
            let error = feed.publish(&topic, LONG, brief).unwrap_err();
            assert!(matches!(error, PublishError::Timeout), "{error}");
            feed
        };
        scope.spawn(publish).join().unwrap()
    });
    received(&mut subscriber);
    assert_eq!(feed.publish(&topic, LONG, brief).unwrap(), next);
    assert_eq!(subscriber.receive().unwrap().sequence(), next);
}

#[test]
fn a_call_for_a_sequence_waits_for_no_other_publisher_longer_than_it_may() {
    let fixture = Fixture::new();
    let bus = fixture.config().open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let other = fixture.config().open("b").unwrap().publisher("t").unwrap();
    publisher
        .publish_with(1, Limit::Policy, |_| {
            std::thread::scope(|scope| {
                let publish = || {
                    let busy = other.try_publish(b"").unwrap_err();
                    assert!(matches!(busy, PublishError::Busy), "{busy}");
                    let brief = Duration::from_millis(1);
                    let late = other.publish_within(b"", brief).unwrap_err();
                    assert!(matches!(late, PublishError::Timeout), "{late}");
                };
                scope.spawn(publish).join().unwrap();
            });
        })
        .unwrap();
    assert_eq!(other.publish(b"").unwrap(), 1);
}

#[test]
fn starts_are_exact() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut positions = Vec::new();
    {
        let mut subscriber = bus.subscribe("t").unwrap();
        for number in 0..10_u8 {
            publisher.publish([number]).unwrap();
            positions.push(subscriber.receive().unwrap().position());
        }
    }
    let start = |start| bus.subscriber().pattern("**").start(start).build();
    assert!(received(&mut start(Start::Latest).unwrap()).is_empty());
    assert_eq!(received(&mut start(Start::Oldest).unwrap()).len(), 10);
    let mut middle = start(Start::Position(positions[4])).unwrap();
    assert_eq!(middle.receive().unwrap().sequence(), 4);
    assert_eq!(received(&mut middle).len(), 5);
    let end = middle.position();
    assert!(received(&mut start(Start::Position(end)).unwrap()).is_empty());
    let error = start(Start::Position(positions[4] + 8)).unwrap_err();
    assert!(matches!(error, SubscriberError::NotAPosition { .. }), "{error}");
    let error = start(Start::Position(end + 8)).unwrap_err();
    assert!(matches!(error, SubscriberError::PositionAhead { .. }), "{error}");
    let mut by_sequence = start(Start::Sequence(4)).unwrap();
    assert_eq!(by_sequence.position(), positions[4]);
    assert_eq!(received(&mut by_sequence).len(), 6);
    let mut next = start(Start::Sequence(10)).unwrap();
    assert!(received(&mut next).is_empty());
    let error = start(Start::Sequence(11)).unwrap_err();
    assert!(matches!(error, SubscriberError::SequenceAhead { sequence: 11, end: 10 }), "{error}");
    drop((middle, by_sequence, next));
    for _ in 0..100 {
        publisher.publish([0; 1000]).unwrap();
    }
    let error = start(Start::Sequence(4)).unwrap_err();
    let SubscriberError::SequenceLost { sequence: 4, oldest } = error else { panic!("{error}") };
    let mut rest = start(Start::Sequence(oldest)).unwrap();
    assert_eq!(rest.position(), start(Start::Oldest).unwrap().position());
    assert_eq!(received(&mut rest).len() as u64, 110 - oldest);
    let error = start(Start::Position(positions[4])).unwrap_err();
    assert!(
        matches!(error, SubscriberError::PositionLost { position, oldest } if oldest > position),
        "{error}"
    );
}

#[test]
fn losses_are_reported_exactly() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).policy(Policy::Overwrite).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut slow = bus.subscribe("t").unwrap();
    let mut next = 0_u32;
    for round in 0..50_u32 {
        for _ in 0..(round * 37 % 400) {
            publisher.publish([&next.to_le_bytes()[..], &[0; 200]].concat()).unwrap();
            next += 1;
        }
        let mut expected =
            u32::try_from(slow.stats().received + slow.stats().lost_messages).unwrap();
        loop {
            match slow.try_receive() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let bytes: [u8; 4] = message.payload()[..4].try_into().unwrap();
                    assert_eq!(u32::from_le_bytes(bytes), expected);
                    assert_eq!(message.sequence(), u64::from(expected));
                    expected += 1;
                }
                Err(ReceiveError::Lapped { lost_messages, lost_bytes }) => {
                    assert!(lost_messages > 0 && lost_bytes == lost_messages * 216);
                    expected += u32::try_from(lost_messages).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(expected, next, "received and lost messages add up");
    }
    assert!(slow.stats().lapses > 5);
}

#[test]
fn a_full_ring_is_full_at_once_and_in_time() {
    let fixture = Fixture::new();
    let forever = Policy::Wait { limit: None };
    let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let subscriber = bus.subscribe("t").unwrap();
    let filled = std::iter::repeat_with(|| publisher.try_publish([0; 1000]))
        .take_while(Result::is_ok)
        .count();
    assert!((63..=65).contains(&filled), "{filled} messages of 1,008 bytes in 64 KiB");
    assert!(matches!(publisher.try_publish([0; 1000]), Err(PublishError::Full)));
    let began = Instant::now();
    let answer = publisher.publish_within([0; 1000], Duration::from_millis(30));
    assert!(matches!(answer, Err(PublishError::Timeout)));
    assert!(began.elapsed() >= Duration::from_millis(30));
    let [long, short] = [[0; 1000], [0; 1000]];
    let answer = publisher.publish_batch(&[long, short], Duration::from_millis(30));
    assert!(matches!(answer, Err(PublishError::Timeout)));
    let hasty = publisher.clone().with_policy(Policy::Overwrite).unwrap();
    hasty.publish([0; 1000]).unwrap();
    drop(subscriber);
    publisher.try_publish([0; 1000]).unwrap();
}

/// The limit is so short that it is over before the publisher knows whether the subscriber in its
/// way is alive.
#[test]
fn a_try_never_overwrites_however_short_the_limit() {
    let fixture = Fixture::new();
    let policy = Policy::Wait { limit: Some(Duration::from_nanos(1)) };
    let bus = fixture.config().capacity(64 << 10).policy(policy).open("b").unwrap();
    let mut subscriber = bus.subscribe("**").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let published = std::iter::repeat_with(|| publisher.try_publish([0; 1000]))
        .take(1000)
        .take_while(Result::is_ok)
        .count();
    assert!(matches!(publisher.try_publish([0; 1000]), Err(PublishError::Full)));
    assert_eq!(received(&mut subscriber).len(), published);
}

#[test]
fn a_burst_that_runs_out_of_time_says_how_far_it_got() {
    let fixture = Fixture::new();
    let forever = Policy::Wait { limit: None };
    let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    let payloads = [[7; 1000]; 100];
    let began = Instant::now();
    let error = publisher.burst(&payloads, Duration::from_millis(30)).unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert!(matches!(error.source, PublishError::Timeout), "{error}");
    assert!((63..=65).contains(&error.published), "{error}");
    assert_eq!(received(&mut subscriber).len(), error.published);
    publisher.burst(&payloads[error.published..], Duration::ZERO).unwrap();
    publisher.publish_batch(&["a", "b"], Duration::ZERO).unwrap();
    assert_eq!(received(&mut subscriber).len(), 100 - error.published + 2);
}

#[test]
fn observers_do_not_gate() {
    let fixture = Fixture::new();
    let forever = Policy::Wait { limit: None };
    let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut watcher = bus.subscriber().pattern("t").gating(false).build().unwrap();
    for _ in 0..200 {
        publisher.try_publish([0; 1000]).unwrap();
    }
    let Err(ReceiveError::Lapped { lost_messages, .. }) = watcher.try_receive() else { panic!() };
    assert_eq!(lost_messages + received(&mut watcher).len() as u64, 200);
}

#[test]
fn a_publisher_that_would_wait_for_its_own_thread_gets_an_error() {
    let fixture = Fixture::new();
    let forever = Policy::Wait { limit: None };
    let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    assert!(subscriber.try_receive().unwrap().is_none());
    let error = (0..100).find_map(|_| publisher.publish([0; 1000]).err()).unwrap();
    assert!(matches!(error, PublishError::WouldWaitForItself), "{error}");
    assert!(received(&mut subscriber).len() > 50);
    publisher.publish(b"still works").unwrap();
}

#[test]
fn policies_are_only_shortened() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let publisher = bus.publisher("t").unwrap();
    let wait = |millis| Policy::Wait { limit: Some(Duration::from_millis(millis)) };
    assert!(publisher.clone().with_policy(wait(99)).is_ok());
    assert!(publisher.clone().with_policy(wait(101)).is_err());
    assert!(publisher.clone().with_policy(Policy::Wait { limit: None }).is_err());
    assert!(publisher.clone().with_policy(Policy::Overwrite).is_ok());
}

#[test]
fn each_strategy_and_notifier_waits_and_wakes() {
    let kinds = [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }];
    for notify in kinds {
        let fixture = Fixture::new();
        let bus = fixture.config().notify(notify).open("b").unwrap();
        let publisher = bus.publisher("t").unwrap();
        let echo = bus.publisher("echo").unwrap();
        for wait in
            [WaitStrategy::Block, WaitStrategy::Backoff, WaitStrategy::Yield, WaitStrategy::Spin]
        {
            let mut there = bus.subscriber().pattern("t").wait(wait).build().unwrap();
            let mut back = bus.subscriber().pattern("echo").wait(wait).build().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let number = there.receive().unwrap().payload().to_vec();
                        echo.publish(&number).unwrap();
                    }
                });
                for number in 0..100_u8 {
                    publisher.publish([number]).unwrap();
                    assert_eq!(back.receive().unwrap().payload(), [number]);
                }
            });
        }
        let mut quiet = bus.subscribe("t").unwrap();
        assert!(quiet.receive_timeout(Duration::from_millis(120)).unwrap().is_none());
    }
}

fn is_readable(subscriber: &Subscriber, timeout: Duration) -> bool {
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut watched =
        [rustix::event::PollFd::from_borrowed_fd(subscriber.as_fd(), rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut watched, Some(&timeout)).map_err(io::Error::from).unwrap() > 0
}

#[test]
fn a_descriptor_reports_messages_before_and_after_arming() {
    for notify in [NotifyKind::Futex, NotifyKind::Multicast { group: None }] {
        let fixture = Fixture::new();
        let bus = fixture.config().notify(notify).open("b").unwrap();
        let publisher = bus.publisher("t").unwrap();
        let mut subscriber = bus.subscribe("t").unwrap();
        publisher.publish(b"before").unwrap();
        subscriber.enable_fd().unwrap();
        assert!(is_readable(&subscriber, Duration::from_secs(10)), "{notify:?}");
        assert_eq!(received(&mut subscriber), [b"before"]);
        assert!(!is_readable(&subscriber, Duration::ZERO), "drained and armed");
        for number in 0..50_u8 {
            publisher.publish([number]).unwrap();
            assert!(is_readable(&subscriber, Duration::from_secs(10)), "{notify:?} {number}");
            assert_eq!(received(&mut subscriber), [[number]]);
        }
    }
}

#[test]
fn routers_call_handlers_in_order() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let (sender, calls) = std::sync::mpsc::channel();
    let mut router = bus.router().unwrap();
    for (name, pattern) in [("one", "plant/**"), ("two", "**"), ("three", "plant/boiler")] {
        let sender = sender.clone();
        router
            .on(pattern, move |message| {
                sender.send(format!("{name} {}", message.topic())).unwrap();
            })
            .unwrap();
    }
    bus.publisher("plant/boiler").unwrap().publish(b"x").unwrap();
    bus.publisher("other").unwrap().publish(b"x").unwrap();
    bus.publisher("plant").unwrap().to_descendants(true).publish(b"x").unwrap();
    assert_eq!(router.poll().unwrap(), 3);
    let calls: Vec<String> = calls.try_iter().collect();
    assert_eq!(
        calls,
        [
            "one plant/boiler",
            "two plant/boiler",
            "three plant/boiler",
            "two other",
            "one plant",
            "two plant",
            "three plant",
        ]
    );
    assert!(!router.run_once(Duration::from_millis(1)).unwrap());
    assert!(router.on("bad/*x", |_| {}).is_err());
}

#[test]
fn limits_are_errors_with_numbers() {
    let fixture = Fixture::new();
    let bus = fixture.config().max_subscribers(2).max_publishers(1).open("b").unwrap();
    let first = bus.subscribe("t").unwrap();
    let _second = bus.subscribe("t").unwrap();
    let error = bus.subscribe("t").unwrap_err();
    assert!(matches!(error, SubscriberError::TooManySubscribers { limit: 2 }), "{error}");
    drop(first);
    let _third = bus.subscribe("t").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let again = fixture.config().open("b").unwrap();
    let error = again.publisher("t").unwrap_err();
    assert!(matches!(error, PublisherError::TooManyPublishers { limit: 1 }), "{error}");
    drop((publisher, bus));
    again.publisher("t").unwrap();
}

#[test]
fn open_creates_or_opens_as_documented() {
    let fixture = Fixture::new();
    let config = fixture.config();
    assert!(matches!(config.open_existing("b"), Err(OpenError::File(FileError::NotFound { .. }))));
    let bus = config.create("b").unwrap();
    assert!(matches!(config.create("b"), Err(OpenError::AlreadyExists { .. })));
    assert_eq!(config.open_existing("b").unwrap().id(), bus.id());
    let other = config.clone().capacity(1 << 20);
    assert_eq!(other.open("b").unwrap().stats().unwrap().capacity, 4 << 20);
    let error = other.require_capacity().open("b").unwrap_err();
    assert!(matches!(error, OpenError::SettingMismatch { setting: "capacity", .. }), "{error}");
    assert!(matches!(config.open("../b"), Err(OpenError::InvalidName(_))));
    assert!(matches!(bus.publisher("a//b"), Err(PublisherError::Topic(_))));
    assert!(matches!(bus.subscribe("a*"), Err(SubscriberError::Pattern(_))));
    let error = BusConfig::new().directory(fixture.path()).capacity(5).open("c").unwrap_err();
    assert!(matches!(error, OpenError::InvalidSetting(_)), "{error}");
}

#[test]
fn a_removed_bus_says_so() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    publisher.publish(b"last").unwrap();
    std::fs::remove_dir_all(bus.path()).unwrap();
    assert_eq!(subscriber.receive().unwrap().payload(), b"last");
    assert!(matches!(subscriber.receive(), Err(ReceiveError::Unlinked)));
    let error = (0..1000).find_map(|_| publisher.publish([0; 1000]).err()).unwrap();
    assert!(matches!(error, PublishError::Unlinked), "{error}");
}

#[test]
fn stats_show_all_participants() {
    let fixture = Fixture::new();
    let bus = fixture.config().participant_name("tester").open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber =
        bus.subscriber().pattern("t").name("watcher").gating(false).build().unwrap();
    subscriber.enable_fd().unwrap();
    publisher.burst(&["a", "b", "c"], Limit::Policy).unwrap();
    received(&mut subscriber);
    let stats = bus.stats().unwrap();
    assert_eq!((stats.sequence, stats.tail, stats.topics), (3, 48, 1));
    assert_eq!(stats.lock_owner, None);
    let publishers = stats.publishers.unwrap();
    assert_eq!(publishers.len(), 1);
    assert_eq!((publishers[0].name.as_str(), publishers[0].messages), ("tester", 3));
    assert_eq!(publishers[0].pid, std::process::id());
    assert!(publishers[0].alive && publishers[0].same_pid_namespace);
    let subscribers = stats.subscribers.unwrap();
    assert_eq!((subscribers[0].name.as_str(), subscribers[0].received), ("watcher", 3));
    assert!(!subscribers[0].gating && subscribers[0].alive && subscribers[0].lag_bytes == 0);
    assert_eq!(stats.sockets, ["0.1"]);
    drop((publisher, subscriber));
    let stats = fixture.config().open("b").unwrap().stats().unwrap();
    assert!(stats.subscribers.unwrap().is_empty() && stats.sockets.is_empty());
    drop(bus);
    let stats = fixture.config().open("b").unwrap().stats().unwrap();
    assert!(stats.publishers.unwrap().is_empty());
}

#[test]
fn threads_share_one_participant() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let mut subscriber = bus.subscribe("**").unwrap();
    let publisher = bus.publisher("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let publisher = publisher.clone();
            scope.spawn(move || {
                for number in 0..20_000_u32 {
                    let mut bytes = vec![thread];
                    bytes.extend(number.to_le_bytes());
                    publisher.publish(&bytes).unwrap();
                }
            });
        }
        let mut next = [0_u32; 4];
        for sequence in 0..80_000_u64 {
            let message = subscriber.receive().unwrap();
            assert_eq!(message.sequence(), sequence);
            let (thread, number) = message.payload().split_at(1);
            let number = u32::from_le_bytes(number.try_into().unwrap());
            assert_eq!(number, next[usize::from(thread[0])]);
            next[usize::from(thread[0])] += 1;
        }
    });
    assert_eq!(bus.stats().unwrap().publishers.unwrap()[0].messages, 80_000);
}

/// The sequence of the next message counts what a subscriber received, passed over, and missed.
#[test]
fn a_subscriber_knows_the_sequence_of_its_next_message() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).policy(Policy::Overwrite).open("b").unwrap();
    let publishers = ["a", "b"].map(|topic| bus.publisher(topic).unwrap());
    publishers[1].publish("before").unwrap();
    let mut subscriber = bus.subscribe("a").unwrap();
    assert_eq!(subscriber.sequence(), 1);
    publishers[0].burst(&["1", "2"], Limit::Policy).unwrap();
    publishers[1].publish("passed over").unwrap();
    assert_eq!(subscriber.sequence(), 1);
    let first = subscriber.try_receive().unwrap().unwrap().sequence();
    assert_eq!((first, subscriber.sequence()), (1, 2));
    assert!(subscriber.try_receive().unwrap().is_some());
    assert!(subscriber.try_receive().unwrap().is_none());
    assert_eq!(subscriber.sequence(), 4);
    for _ in 0..200 {
        publishers[0].publish([0; 1_000]).unwrap();
    }
    let Err(ReceiveError::Lapped { lost_messages, .. }) = subscriber.try_receive() else {
        panic!("200 KB do not fit the ring");
    };
    assert_eq!(subscriber.sequence(), 4 + lost_messages);
    let next = subscriber.try_receive().unwrap().unwrap().sequence();
    assert_eq!(next, 4 + lost_messages);
}

#[test]
fn a_subscriber_that_was_lapped_gates_again() {
    let fixture = Fixture::new();
    let policy = Policy::Wait { limit: Some(Duration::from_millis(5)) };
    let bus = fixture.config().capacity(64 << 10).policy(policy).open("b").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let publish = |count| {
        std::thread::scope(|scope| {
            let publisher = &publisher;
            let full = scope.spawn(move || {
                (0..count)
                    .any(|_| matches!(publisher.try_publish([0; 1000]), Err(PublishError::Full)))
            });
            full.join().unwrap()
        })
    };
    for _ in 0..100 {
        publisher.publish([0; 1000]).unwrap();
    }
    assert!(!publish(100), "a lapped subscriber does not gate");
    assert!(matches!(subscriber.receive(), Err(ReceiveError::Lapped { .. })));
    assert!(publish(100), "it has come back and gates again");
    assert!(received(&mut subscriber).len() > 50, "it has lost nothing since");
    assert_eq!(subscriber.stats().lapses, 1);
}

/// The message that the subscriber borrowed was overwritten at the limit. The next record, at its
/// position, was not.
#[test]
fn a_subscriber_that_was_overtaken_unnoticed_gates_again() {
    let fixture = Fixture::new();
    let policy = Policy::Wait { limit: Some(Duration::from_millis(5)) };
    let bus = fixture.config().capacity(64 << 10).policy(policy).open("b").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    let publisher = bus.publisher("t").unwrap();
    publisher.publish([0; 20_000]).unwrap();
    subscriber.borrow().unwrap().unwrap();
    let in_a_thread = |work: &(dyn Fn() -> bool + Sync)| {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    };
    in_a_thread(&|| (0..53).all(|_| publisher.publish([0; 1000]).is_ok()));
    assert_eq!(subscriber.receive().unwrap().position(), 20_008);
    let is_full = in_a_thread(&|| {
        (0..100).any(|_| matches!(publisher.try_publish([0; 1000]), Err(PublishError::Full)))
    });
    assert!(is_full, "it reads, so it gates");
    assert!(received(&mut subscriber).len() > 50, "it has lost nothing");
    assert_eq!(subscriber.stats().lapses, 0);
}

#[test]
fn a_new_topic_elsewhere_does_not_block_a_closure_that_asks_for_one() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let publisher = bus.publisher("t").unwrap();
    let (entered, enter) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        publisher
            .publish_with(1, Limit::Policy, |_| {
                scope.spawn(|| {
                    entered.send(()).unwrap();
                    // Waits for the writer lock while it holds whatever it has taken.
                    bus.publisher("from/another/thread").unwrap();
                });
                enter.recv().unwrap();
                std::thread::sleep(Duration::from_millis(20));
                assert!(matches!(bus.publisher("from/here"), Err(PublisherError::Reentrant)));
            })
            .unwrap();
    });
}

#[test]
fn polling_subscribers_learn_that_the_bus_was_removed() {
    for wait in [WaitStrategy::Spin, WaitStrategy::Yield] {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let mut subscriber = bus.subscriber().pattern("t").wait(wait).build().unwrap();
        std::fs::remove_dir_all(bus.path()).unwrap();
        assert!(matches!(subscriber.receive(), Err(ReceiveError::Unlinked)), "{wait:?}");
        let error = (0..10_000).find_map(|_| subscriber.try_receive().err()).unwrap();
        assert!(matches!(error, ReceiveError::Unlinked), "{error}");
    }
}

#[test]
fn waits_are_shown_while_they_last_and_tries_are_not_waits() {
    let fixture = Fixture::new();
    let forever = Policy::Wait { limit: None };
    let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
    let subscriber = bus.subscribe("t").unwrap();
    let publisher = bus.publisher("t").unwrap();
    while publisher.try_publish([0; 1000]).is_ok() {}
    let waits = || bus.stats().unwrap().publishers.unwrap()[0].waits;
    assert_eq!(waits(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| publisher.publish([0; 1000]).unwrap());
        while bus.stats().unwrap().publishers.unwrap()[0].waited < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        assert_eq!(waits(), 1);
        drop(subscriber);
    });
}

#[test]
fn an_observer_in_the_same_thread_is_not_waited_for() {
    let fixture = Fixture::new();
    let forever = Policy::Wait { limit: None };
    let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
    let mut watcher = bus.subscriber().pattern("t").gating(false).build().unwrap();
    let publisher = bus.publisher("t").unwrap();
    for _ in 0..200 {
        let _ = watcher.try_receive();
        publisher.publish([0; 1000]).unwrap();
    }
}
