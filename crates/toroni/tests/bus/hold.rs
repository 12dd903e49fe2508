//! Tests of subscribers that hold messages which they have read.

use crate::common::Fixture;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use toroni::{Bus, HoldError, Policy, PublishError, Publisher, ReceiveError, Start, Subscriber};
use toroni_testkit::random::Random;

const CAPACITY: u64 = 64 << 10;
/// Bytes of a block, in which publishers reserve.
const BLOCK: u64 = CAPACITY / 64;
/// A payload whose record takes [`RECORD`] bytes of the stream.
const PAYLOAD: [u8; 192] = [7; 192];
const RECORD: u64 = 200;
const LOSSLESS: Policy = Policy::Wait { limit: None };

fn open(fixture: &Fixture, policy: Policy) -> (Bus, Publisher) {
    let bus = fixture.config().capacity(CAPACITY).policy(policy).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    (bus, publisher)
}

/// Receives all messages and returns the sequence of the next one.
fn drain(subscriber: &mut Subscriber) -> u64 {
    while subscriber.try_receive().unwrap().is_some() {}
    subscriber.position() / RECORD
}

/// Publishes until the ring is full. The subscriber reads each message at once.
fn fill(publisher: &Publisher, subscriber: &mut Subscriber) -> u64 {
    let mut published = 0;
    loop {
        match publisher.try_publish(PAYLOAD) {
            Ok(_) => published += 1,
            Err(PublishError::Full) => return published,
            Err(error) => panic!("{error}"),
        }
        drain(subscriber);
    }
}

/// Returns the sequence of the first message that a new subscriber finds from there on.
fn first_from(bus: &Bus, sequence: u64) -> u64 {
    let start = Start::Sequence(sequence);
    let builder = bus.subscriber().pattern("**").gating(false).start(start);
    builder.build().unwrap().try_receive().unwrap().unwrap().sequence()
}

#[test]
fn publishers_do_not_overwrite_what_is_held_until_the_hold_is_raised() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, LOSSLESS);
    let mut subscriber = bus.subscribe("**").unwrap();
    for _ in 0..500 {
        publisher.publish(PAYLOAD).unwrap();
        drain(&mut subscriber);
    }
    assert_eq!(subscriber.held(), None);
    subscriber.hold(500).unwrap();
    let most = (CAPACITY - BLOCK) / RECORD;
    let published = fill(&publisher, &mut subscriber);
    assert!((most - 6..=most + 6).contains(&published), "{published} of about {most}");
    assert_eq!((first_from(&bus, 500), subscriber.held()), (500, Some(500)));
    // It has read everything, and holds it nevertheless.
    assert_eq!((subscriber.lag_bytes(), subscriber.stats().received), (0, 500 + published));
    let info = &bus.stats().unwrap().subscribers.unwrap()[0];
    assert!(info.position <= 500 * RECORD && info.lag_bytes >= CAPACITY - 2 * BLOCK);

    // Five blocks are free for new messages.
    subscriber.hold(500 + 5 * BLOCK / RECORD).unwrap();
    let more = fill(&publisher, &mut subscriber);
    assert!((5 * BLOCK / RECORD - 6..=5 * BLOCK / RECORD + 6).contains(&more), "{more}");
    subscriber.release_hold();
    assert_eq!(subscriber.held(), None);
    for _ in 0..1000 {
        publisher.try_publish(PAYLOAD).unwrap();
        drain(&mut subscriber);
    }
    assert_eq!((subscriber.stats().lapses, subscriber.stats().lost_messages), (0, 0));
}

/// What publishers may do follows from the first message that is held or not read, to the byte. Holds
/// move forth and back, begin in the future and in the past, and are released.
#[test]
fn the_space_is_what_the_first_held_message_leaves() {
    let mut random = Random::new(20_261_123);
    for _ in 0..20 {
        let fixture = Fixture::new();
        let (bus, publisher) = open(&fixture, LOSSLESS);
        let mut subscriber = bus.subscribe("**").unwrap();
        let (mut published, mut read, mut reserved, mut held) = (0, 0, 8, None);
        let (mut full, mut moved) = (0, 0);
        for _ in 0..600 {
            match random.below(8) {
                0..4 => {
                    for _ in 0..random.below(30) {
                        let end = (published + 1) * RECORD + 8;
                        let wanted = end.next_multiple_of(BLOCK);
                        let gating = held.map_or(read, |held: u64| held.min(read)) * RECORD;
                        let fits = end <= reserved || wanted <= gating + CAPACITY;
                        match publisher.try_publish(PAYLOAD) {
                            Ok(_) => assert!(fits, "{published} with {held:?}, read {read}"),
                            Err(PublishError::Full) => {
                                assert!(!fits, "{published} with {held:?}, read {read}");
                                full += 1;
                                break;
                            }
                            Err(error) => panic!("{error}"),
                        }
                        reserved = reserved.max(if end <= reserved { 0 } else { wanted });
                        published += 1;
                    }
                }
                4 => read = drain(&mut subscriber),
                5 => {
                    subscriber.release_hold();
                    // That publishes how far it has read, too.
                    held = None;
                }
                _ => {
                    let sequence = (read + 40).saturating_sub(random.below(400));
                    let oldest = reserved.saturating_sub(CAPACITY).div_ceil(RECORD);
                    match subscriber.hold(sequence) {
                        Ok(()) => {
                            assert!(sequence >= oldest, "{sequence} is gone");
                            held = Some(sequence);
                            moved += 1;
                        }
                        Err(HoldError::SequenceLost { sequence: told, oldest: first }) => {
                            assert!(sequence < oldest, "{sequence} is there");
                            assert_eq!((told, first), (sequence, oldest));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            assert_eq!(subscriber.held(), held);
            if let Some(held) = held.filter(|held| *held < published) {
                assert_eq!(first_from(&bus, held), held);
            }
        }
        assert!(full > 5 && moved > 20 && published > 1000, "{full}, {moved}, {published}");
    }
}

#[test]
fn a_hold_in_the_future_begins_when_its_message_is_read() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, LOSSLESS);
    let mut subscriber = bus.subscribe("**").unwrap();
    subscriber.hold(2000).unwrap();
    let published = fill(&publisher, &mut subscriber);
    let most = 2000 + (CAPACITY - BLOCK) / RECORD;
    assert!((most - 6..=most + 6).contains(&published), "{published} of about {most}");
    assert_eq!(first_from(&bus, 2000), 2000);
    // A sequence that no message ever has holds nothing.
    subscriber.hold(u64::MAX).unwrap();
    for _ in 0..1000 {
        publisher.try_publish(PAYLOAD).unwrap();
        drain(&mut subscriber);
    }
    assert_eq!(subscriber.held(), Some(u64::MAX));
}

#[test]
fn messages_that_were_read_in_place_can_be_held() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, LOSSLESS);
    let mut subscriber = bus.subscribe("**").unwrap();
    subscriber.hold(3).unwrap();
    let mut published = 0;
    while publisher.try_publish(PAYLOAD).is_ok() {
        published += 1;
        while let Some(messages) = subscriber.try_receive_in_place().unwrap() {
            messages.for_each(|message| message.validate().unwrap());
        }
    }
    assert!(published * RECORD < CAPACITY);
    assert_eq!(first_from(&bus, 3), 3);
}

#[test]
fn a_message_that_was_overwritten_cannot_be_held_and_the_previous_hold_stays() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, LOSSLESS);
    let mut subscriber = bus.subscribe("**").unwrap();
    for _ in 0..1000 {
        publisher.publish(PAYLOAD).unwrap();
        drain(&mut subscriber);
    }
    subscriber.hold(900).unwrap();
    let error = subscriber.hold(3).unwrap_err();
    let HoldError::SequenceLost { sequence: 3, oldest } = error else { panic!("{error}") };
    assert_eq!(first_from(&bus, oldest), oldest);
    assert_eq!(subscriber.held(), Some(900));
    fill(&publisher, &mut subscriber);
    assert_eq!(first_from(&bus, 900), 900);
}

/// Publishers wait as the policy says, and then overwrite what is held. Afterwards they wait for what the
/// subscriber has not read, as before.
#[test]
fn a_hold_that_publishers_overwrote_has_ended() {
    let limit = Some(Duration::from_millis(5));
    for policy in [Policy::Overwrite, Policy::Wait { limit }] {
        let fixture = Fixture::new();
        let (bus, publisher) = open(&fixture, policy);
        let mut subscriber = bus.subscribe("**").unwrap();
        publisher.publish(PAYLOAD).unwrap();
        drain(&mut subscriber);
        subscriber.hold(0).unwrap();
        std::thread::scope(|scope| {
            let publish = |count| {
                let publisher = &publisher;
                move || (0..count).for_each(|_| _ = publisher.publish(PAYLOAD).unwrap())
            };
            // A few at a time, so that reading is never the slower one.
            for _ in 0..60 {
                scope.spawn(publish(10)).join().unwrap();
                drain(&mut subscriber);
            }
            assert_eq!(subscriber.held(), None, "{policy}");
            let error = subscriber.hold(0).unwrap_err();
            assert!(matches!(error, HoldError::SequenceLost { sequence: 0, .. }), "{error}");
            assert_eq!(subscriber.stats().lapses, 0, "it has missed nothing itself");
            let info = &bus.stats().unwrap().subscribers.unwrap()[0];
            assert_eq!(info.position, subscriber.position(), "the slot follows the reading again");
            assert_eq!(
                bus.stats().unwrap().publishers.unwrap()[0].overwrites,
                match policy {
                    Policy::Overwrite => 0,
                    _ => 1,
                }
            );
            // A new hold works as the first one.
            let next = subscriber.position() / RECORD;
            subscriber.hold(next).unwrap();
            scope.spawn(publish(100)).join().unwrap();
            drain(&mut subscriber);
            assert_eq!((subscriber.held(), first_from(&bus, next)), (Some(next), next));
        });
    }
}

#[test]
fn a_subscriber_that_was_lapped_can_hold_what_comes() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, Policy::Overwrite);
    let mut subscriber = bus.subscribe("**").unwrap();
    let publish = |count| (0..count).for_each(|_| _ = publisher.publish(PAYLOAD).unwrap());
    publish(1000);
    // It has not noticed yet that it was lapped.
    for sequence in [999, 1000, 1100] {
        subscriber.hold(sequence).unwrap();
        assert_eq!(first_from(&bus, 999), 999);
    }
    let error = subscriber.hold(10).unwrap_err();
    assert!(matches!(error, HoldError::SequenceLost { sequence: 10, .. }), "{error}");
    let error = subscriber.receive().map(|_| ()).unwrap_err();
    assert!(matches!(error, ReceiveError::Lapped { .. }), "{error}");
    assert_eq!(subscriber.held(), Some(1100));
    drain(&mut subscriber);
    publish(200);
    drain(&mut subscriber);
    assert_eq!(subscriber.held(), Some(1100));
    publish(400);
    assert_eq!(subscriber.held(), None);
}

/// A thread without a limit waits for the hold, and continues each time that it is raised. No message of
/// the window is ever overwritten.
#[test]
fn waiting_publishers_continue_as_the_hold_is_raised() {
    const MESSAGES: u64 = 20_000;
    for window in [1, 40, 200, 300] {
        let fixture = Fixture::new();
        let (bus, publisher) = open(&fixture, LOSSLESS);
        let mut subscriber = bus.subscribe("**").unwrap();
        subscriber.hold(0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..MESSAGES / 2).for_each(|_| _ = publisher.publish(PAYLOAD).unwrap());
                });
            }
            for expected in 0..MESSAGES {
                assert_eq!(subscriber.receive().unwrap().sequence(), expected);
                let held = (expected + 1).saturating_sub(window);
                subscriber.hold(held).unwrap();
                assert_eq!(subscriber.held(), Some(held));
                if expected % 97 == 0 {
                    assert_eq!(first_from(&bus, held), held);
                }
            }
        });
        assert_eq!(subscriber.stats().lapses, 0);
    }
}

/// Publishers propose to overwrite the history, and withdraw, because another subscriber has not read it. A
/// subscriber that has read it may hold it at any time, and holds it alone when the other one is gone.
#[test]
fn a_hold_can_go_back_while_publishers_ask_for_space() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, LOSSLESS);
    (0..100).for_each(|_| _ = publisher.publish(PAYLOAD).unwrap());
    let mut subscriber = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
    drain(&mut subscriber);
    let done = AtomicBool::new(false);
    let (published, rounds) = (AtomicU64::new(0), 300);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match publisher.try_publish(PAYLOAD) {
                        Ok(_) => _ = published.fetch_add(1, Ordering::Relaxed),
                        Err(PublishError::Full | PublishError::Busy) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let mut refused = Vec::new();
        for _ in 0..rounds {
            let keeper = bus.subscriber().start(Start::Oldest).build().unwrap();
            drain(&mut subscriber);
            let oldest = keeper.position().div_ceil(RECORD);
            assert_eq!(oldest * RECORD, keeper.position());
            if let Err(error) = subscriber.hold(oldest) {
                refused.push(error.to_string());
            }
            drop(keeper);
            // Publishers would overwrite it now.
            for _ in 0..20 {
                let _ = publisher.try_publish(PAYLOAD);
            }
            drain(&mut subscriber);
            if refused.is_empty() {
                assert_eq!((subscriber.held(), first_from(&bus, oldest)), (Some(oldest), oldest));
            }
            subscriber.release_hold();
            drain(&mut subscriber);
        }
        done.store(true, Ordering::Relaxed);
        assert!(refused.is_empty(), "{} of {rounds}, such as {}", refused.len(), refused[0]);
    });
    assert!(published.into_inner() > 0);
}

#[test]
fn a_thread_that_publishes_does_not_wait_for_its_own_hold() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, LOSSLESS);
    let mut subscriber = bus.subscribe("**").unwrap();
    subscriber.hold(0).unwrap();
    fill(&publisher, &mut subscriber);
    let error = publisher.publish(PAYLOAD).unwrap_err();
    assert!(matches!(error, PublishError::WouldWaitForItself), "{error}");
    // Another thread waits until this one raises the hold, by whatever call.
    for raise in
        [|subscriber: &mut Subscriber| subscriber.hold(200).unwrap(), Subscriber::release_hold]
    {
        std::thread::scope(|scope| {
            let waits = || bus.stats().unwrap().publishers.unwrap()[0].waits;
            let before = waits();
            let waiting = scope.spawn(|| publisher.publish(PAYLOAD));
            while waits() == before && !waiting.is_finished() {
                std::thread::yield_now();
            }
            assert!(!waiting.is_finished(), "it waits");
            raise(&mut subscriber);
            waiting.join().unwrap().unwrap();
        });
        let next = drain(&mut subscriber);
        subscriber.hold(next).unwrap();
        fill(&publisher, &mut subscriber);
    }
}

#[test]
fn a_hold_ends_with_its_subscriber() {
    let fixture = Fixture::new();
    let (bus, publisher) = open(&fixture, LOSSLESS);
    let mut holder = bus.subscribe("**").unwrap();
    let mut reader = bus.subscribe("**").unwrap();
    holder.hold(0).unwrap();
    while publisher.try_publish(PAYLOAD).is_ok() {
        drain(&mut holder);
        drain(&mut reader);
    }
    drop(holder);
    for _ in 0..1000 {
        publisher.try_publish(PAYLOAD).unwrap();
        drain(&mut reader);
    }
}

#[test]
fn a_subscriber_that_does_not_gate_cannot_hold() {
    let fixture = Fixture::new();
    let (bus, _publisher) = open(&fixture, LOSSLESS);
    let mut watcher = bus.subscriber().pattern("**").gating(false).build().unwrap();
    let error = watcher.hold(0).unwrap_err();
    assert!(matches!(error, HoldError::NotGating), "{error}");
    assert_eq!(watcher.held(), None);
    watcher.release_hold();
}
