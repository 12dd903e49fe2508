//! Tests of exclusive publishers: what they publish, and what all others get meanwhile.

use crate::common::Fixture;
use std::time::Duration;
use toroni::{
    Bus, BusConfig, Exclusive, ExclusiveError, Limit, LockKind, Policy, PublishError, Subscriber,
    WaitStrategy,
};

fn fixture(configure: impl FnOnce(BusConfig) -> BusConfig) -> (Fixture, Bus) {
    let fixture = Fixture::new();
    let bus = configure(fixture.config()).create("b").unwrap();
    (fixture, bus)
}

fn all(subscriber: &mut Subscriber) -> Vec<(String, Vec<u8>, u64)> {
    let mut all = Vec::new();
    while let Some(message) = subscriber.try_receive().unwrap() {
        let sequence = message.sequence();
        all.push((message.topic().to_owned(), message.payload().to_vec(), sequence));
    }
    all
}

fn assert_exclusive<T: std::fmt::Debug>(result: Result<T, PublishError>) {
    let Err(PublishError::Exclusive { name, pid }) = result else { panic!("{result:?}") };
    assert_eq!((name.as_str(), pid), ("feed", std::process::id()));
}

#[test]
fn messages_arrive_in_order_however_they_are_published() {
    for timestamps in [false, true] {
        let (_fixture, bus) = fixture(|config| config.timestamps(timestamps));
        let mut subscriber = bus.subscribe("**").unwrap();
        let mut beside = bus.subscribe("a/below").unwrap();
        let exclusive = bus.exclusive().unwrap();
        let (a, b) = (exclusive.topic("a").unwrap(), exclusive.topic("b/c").unwrap());
        assert_eq!((a.topic().as_str(), exclusive.bus().id()), ("a", bus.id()));
        exclusive.publish(&a, "1", Limit::Policy).unwrap();
        exclusive.publish(&b, "2", Limit::Try).unwrap();
        exclusive.publish(&a, "3", Duration::from_secs(60)).unwrap();
        exclusive.publish_batch(&b, &["4", "5"], Limit::Policy).unwrap();
        exclusive.burst(&a, &["6", "7", "8"], Limit::Policy).unwrap();
        exclusive.publish_with(&b, 1, Limit::Policy, |bytes| bytes.write(0, b"9")).unwrap();
        exclusive.publish(&a.clone().to_descendants(true), "all", Limit::Policy).unwrap();
        let found = all(&mut subscriber);
        let expected: Vec<_> = "a1 b/c2 a3 b/c4 b/c5 a6 a7 a8 b/c9 aall"
            .split(' ')
            .zip(0..)
            .map(|(text, sequence)| {
                let topic = if text.starts_with('a') { "a" } else { "b/c" };
                (topic.to_owned(), text.as_bytes()[topic.len()..].to_vec(), sequence)
            })
            .collect();
        assert_eq!(found, expected);
        assert_eq!(all(&mut beside), [("a".to_owned(), b"all".to_vec(), 9)]);
    }
}

#[test]
fn every_other_call_that_publishes_is_refused_at_once() {
    let (fixture, mine) = fixture(|config| config.participant_name("feed"));
    let others = fixture.config().participant_name("other").open("b").unwrap();
    let publishers = [mine.publisher("a").unwrap(), others.publisher("a").unwrap()];
    let exclusive = mine.exclusive().unwrap();
    let topic = exclusive.topic("a").unwrap();
    for publisher in &publishers {
        assert_exclusive(publisher.publish("x"));
        assert_exclusive(publisher.try_publish("x"));
        assert_exclusive(publisher.publish_within("x", Duration::from_secs(60)));
        assert_exclusive(publisher.publish_batch(&["x"], Limit::Policy));
        assert_exclusive(publisher.publish_with(1, Limit::Policy, |_| ()));
        let burst = publisher.burst(&["x"], Limit::Policy).unwrap_err();
        assert_eq!(burst.published, 0);
        assert_exclusive::<()>(Err(burst.source));
    }
    // Making one waits for no other publisher, either. The topic is new, so its name travels with the messages.
    let late = others.publisher("late").unwrap();
    assert_exclusive(late.publish("x"));
    let mut subscriber = mine.subscribe("**").unwrap();
    exclusive.publish(&topic, "mine", Limit::Policy).unwrap();
    let owner = others.stats().unwrap().lock_owner.unwrap();
    assert_eq!((owner.exclusive, owner.pid), (true, Some(std::process::id())));
    drop(exclusive);
    assert_eq!(others.stats().unwrap().lock_owner, None);
    for publisher in publishers.iter().chain([&late]) {
        publisher.publish("x").unwrap();
    }
    let topics: Vec<_> = all(&mut subscriber).into_iter().map(|(topic, ..)| topic).collect();
    assert_eq!(topics, ["a", "a", "a", "late"]);
}

#[test]
fn there_is_one_exclusive_publisher_at_a_time() {
    let (fixture, mine) = fixture(|config| config.participant_name("feed"));
    let others = fixture.config().open("b").unwrap();
    let exclusive = mine.exclusive().unwrap();
    let is_taken = |result: Result<Exclusive, ExclusiveError>| {
        let Err(ExclusiveError::Taken { name, pid }) = result else { panic!("{result:?}") };
        assert_eq!((name.as_str(), pid), ("feed", std::process::id()));
    };
    is_taken(others.try_exclusive());
    is_taken(others.exclusive_timeout(Duration::from_millis(30)));
    is_taken(mine.try_exclusive());
    // It would wait for its own thread.
    is_taken(mine.exclusive());
    let topic = exclusive.topic("a").unwrap();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let next = others.exclusive().unwrap();
            next.publish(&next.topic("a").unwrap(), "next", Limit::Policy).unwrap();
        });
        exclusive.publish(&topic, "first", Limit::Policy).unwrap();
        drop(exclusive);
        next.join().unwrap();
    });
    let again = mine.exclusive().unwrap();
    again.publish(&topic, "again", Limit::Policy).unwrap();
    assert_eq!(mine.stats().unwrap().sequence, 3);
}

#[test]
fn who_tries_to_be_exclusive_does_not_wait_for_a_message_that_is_being_written() {
    let (fixture, bus) = fixture(|config| config);
    let others = fixture.config().open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    publisher
        .publish_with(1, Limit::Policy, |_| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let tried = others.try_exclusive();
                    assert!(matches!(tried, Err(ExclusiveError::Busy)), "{tried:?}");
                    let waited = others.exclusive_timeout(Duration::from_millis(20));
                    assert!(matches!(waited, Err(ExclusiveError::Timeout)), "{waited:?}");
                });
            });
        })
        .unwrap();
    drop(others.exclusive().unwrap());
}

/// It can be sent to another thread.
#[test]
fn a_subscriber_that_sleeps_is_woken() {
    let (_fixture, bus) = fixture(|config| config);
    let mut subscriber = bus.subscriber().pattern("a").wait(WaitStrategy::Block).build().unwrap();
    let exclusive = bus.exclusive().unwrap();
    let topic = exclusive.topic("a").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..1000_u32 {
                exclusive.publish(&topic, number.to_le_bytes(), Limit::Policy).unwrap();
                if number % 10 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..1000_u32 {
            assert_eq!(subscriber.receive().unwrap().payload(), number.to_le_bytes());
        }
    });
}

#[test]
fn while_it_waits_for_a_slow_subscriber_it_stays_the_only_one() {
    let (fixture, bus) =
        fixture(|config| config.capacity(64 << 10).policy(Policy::Wait { limit: None }));
    let other = fixture.config().open("b").unwrap().publisher("a").unwrap();
    let mut subscriber = bus.subscribe("a").unwrap();
    let exclusive = bus.exclusive().unwrap();
    let topic = exclusive.topic("a").unwrap();
    let mut count = 0_u32;
    while exclusive.publish(&topic, [7; 1000], Limit::Try).is_ok() {
        count += 1;
    }
    let full = exclusive.publish(&topic, [7; 1000], Limit::Try);
    assert!(matches!(full, Err(PublishError::Full)), "{full:?}");
    let late = exclusive.publish(&topic, [7; 1000], Duration::from_millis(20));
    assert!(matches!(late, Err(PublishError::Timeout)), "{late:?}");
    let late = exclusive.publish_batch(&topic, &[[7; 1000]; 2], Duration::from_millis(20));
    assert!(matches!(late, Err(PublishError::Timeout)), "{late:?}");
    let late = exclusive.burst(&topic, &[[7; 1000]; 2], Duration::from_millis(20));
    let late = late.unwrap_err();
    assert!(matches!(late.source, PublishError::Timeout) && late.published == 0, "{late:?}");
    let (begin, began) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            begin.send(()).unwrap();
            for _ in 0..200 {
                exclusive.publish(&topic, [7; 1000], Limit::Policy).unwrap();
            }
            // Lives until the others have been refused.
            begin.send(()).unwrap();
            drop(exclusive);
        });
        began.recv().unwrap();
        for number in 0..count + 200 {
            // The exclusive publisher waits for this very subscriber.
            if number < count {
                let refused = other.publish("x");
                assert!(matches!(refused, Err(PublishError::Exclusive { .. })), "{refused:?}");
            }
            assert_eq!(subscriber.receive().unwrap().payload(), [7; 1000]);
        }
        began.recv().unwrap();
    });
    other.publish("x").unwrap();
    assert_eq!(subscriber.receive().unwrap().payload(), b"x");
}

#[test]
fn a_function_that_writes_in_place_may_not_publish() {
    let (_fixture, bus) = fixture(|config| config);
    let exclusive = bus.exclusive().unwrap();
    let topic = exclusive.topic("a").unwrap();
    exclusive
        .publish_with(&topic, 1, Limit::Policy, |bytes| {
            let inner = exclusive.publish(&topic, "x", Limit::Policy);
            assert!(matches!(inner, Err(PublishError::Reentrant)), "{inner:?}");
            assert!(exclusive.topic("b").is_err() && bus.publisher("a").is_err());
            bytes.write(0, b"y");
        })
        .unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        exclusive.publish_with(&topic, 1, Limit::Policy, |_| panic!("on purpose"))
    }));
    assert!(panicked.is_err());
    // The lock is still its own.
    exclusive.publish(&topic, "z", Limit::Policy).unwrap();
    assert!(matches!(bus.try_exclusive(), Err(ExclusiveError::Taken { .. })));
    assert_eq!(bus.stats().unwrap().sequence, 2);
}

#[test]
fn a_topic_of_another_bus_is_refused() {
    let (fixture, bus) = fixture(|config| config);
    let other = fixture.config().create("c").unwrap().exclusive().unwrap();
    let exclusive = bus.exclusive().unwrap();
    let foreign = other.topic("a").unwrap();
    let refused = exclusive.publish(&foreign, "x", Limit::Policy);
    assert!(matches!(refused, Err(PublishError::ForeignTopic)), "{refused:?}");
    assert!(exclusive.burst(&foreign, &["x"], Limit::Policy).is_err());
    assert_eq!(other.bus().stats().unwrap().sequence, 0);
}

#[test]
fn a_robust_lock_cannot_be_kept() {
    let (_fixture, bus) = fixture(|config| config.lock(LockKind::Robust));
    assert!(matches!(bus.exclusive(), Err(ExclusiveError::RobustLock { .. })));
    bus.publisher("a").unwrap().publish("x").unwrap();
}
