//! Tests of reading in place: one by one, in runs, while being overtaken, and mixed with copies.

use crate::common::Fixture;
use std::time::Duration;
use toroni::{
    Borrowed, Bus, Limit, Policy, PublishError, Publisher, ReceiveError, Start, Subscriber,
    WaitStrategy,
};

#[derive(Debug, PartialEq, Eq)]
struct Contents {
    topic: String,
    payload: Vec<u8>,
    sequence: u64,
    position: u64,
    next_position: u64,
    to_descendants: bool,
    is_stamped: bool,
}

fn contents(message: &Borrowed<'_>) -> Contents {
    Contents {
        topic: message.topic().to_owned(),
        payload: message.payload().to_vec(),
        sequence: message.sequence(),
        position: message.position(),
        next_position: message.next_position(),
        to_descendants: message.to_descendants(),
        is_stamped: message.timestamp().is_some(),
    }
}

fn copied(subscriber: &mut Subscriber) -> Option<Contents> {
    let message = subscriber.try_receive().unwrap()?;
    Some(Contents {
        topic: message.topic().to_owned(),
        payload: message.payload().to_vec(),
        sequence: message.sequence(),
        position: message.position(),
        next_position: message.next_position(),
        to_descendants: message.to_descendants(),
        is_stamped: message.timestamp().is_some(),
    })
}

fn run(subscriber: &mut Subscriber) -> Option<Vec<Contents>> {
    let mut run = subscriber.try_receive_in_place().unwrap()?;
    let all = run.by_ref().map(|message| contents(&message)).collect();
    run.validate().unwrap();
    Some(all)
}

/// Publishes messages of all sizes on three topics, two of which are `a/…`, starting with number
/// `first`.
fn publish(publishers: &[Publisher; 3], first: usize, count: usize) {
    const LENGTHS: [usize; 10] = [8, 8, 8, 0, 1, 300, 8, 64, 1500, 8];
    for number in first..first + count {
        let payload = vec![number.to_le_bytes()[0]; LENGTHS[number % LENGTHS.len()]];
        let publisher = &publishers[number / 3 % 3];
        if number % 7 == 0 {
            publisher.clone().to_descendants(true).publish(&payload).unwrap();
        } else {
            publisher.publish(&payload).unwrap();
        }
    }
}

fn publishers(bus: &Bus) -> [Publisher; 3] {
    ["a/x", "b", "a/y"].map(|topic| bus.publisher(topic).unwrap())
}

#[test]
fn runs_contain_what_copies_contain() {
    // Plain records, records with timestamps, and records with inline topics because the topic
    // table is full.
    for (timestamps, topics) in [(false, 8), (true, 8), (false, 5000), (true, 5000)] {
        let fixture = Fixture::new();
        let bus = fixture.config().capacity(64 << 10).topic_table_bytes(4096);
        let bus = bus.timestamps(timestamps).open("b").unwrap();
        for number in 0..topics {
            bus.publisher(&format!("filler/{number}")).unwrap();
        }
        let publishers = publishers(&bus);
        let mut by_copy = bus.subscribe("a/*").unwrap();
        let mut by_run = bus.subscribe("a/*").unwrap();
        let mut by_one = bus.subscribe("a/*").unwrap();
        let mut longest = 0;
        for round in 0..200 {
            publish(&publishers, round * 100, 100);
            let expected: Vec<_> = std::iter::from_fn(|| copied(&mut by_copy)).collect();
            assert!(
                expected.len() > 50
                    && expected.iter().all(|message| message.is_stamped == timestamps)
            );
            let mut runs = Vec::new();
            while let Some(run) = run(&mut by_run) {
                assert!(!run.is_empty());
                longest = longest.max(run.len());
                runs.extend(run);
            }
            assert_eq!(runs, expected, "round {round}");
            for expected in expected {
                let message = by_one.borrow().unwrap().unwrap();
                assert_eq!(contents(&message), expected);
                message.validate().unwrap();
            }
            assert!(by_one.borrow().unwrap().is_none());
        }
        assert!((if topics == 5000 { 1 } else { 4 }..100).contains(&longest), "{longest}");
        assert_eq!(by_run.stats(), by_copy.stats());
        assert_eq!(by_one.stats(), by_copy.stats());
    }
}

#[test]
fn what_a_run_has_not_handed_out_comes_with_the_next() {
    let fixture = Fixture::new();
    let bus = fixture.config().open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    let payloads: Vec<[u8; 1]> = (0..10).map(|number| [number]).collect();
    publisher.burst(&payloads, Limit::Policy).unwrap();
    let firsts = |subscriber: &mut Subscriber, count| -> Vec<u8> {
        let run = subscriber.receive_in_place().unwrap();
        run.take(count).map(|message| message.payload().get(0).unwrap()).collect()
    };
    assert_eq!(firsts(&mut subscriber, 2), [0, 1]);
    assert_eq!(subscriber.stats().received, 2);
    assert_eq!(subscriber.receive().unwrap().payload(), [2], "it and the rest are copied");
    assert_eq!(firsts(&mut subscriber, 9), [3], "copies come one by one");
    assert_eq!(subscriber.position(), 4 * 16);
    assert_eq!(firsts(&mut subscriber, 9), [4]);
    for expected in 5..10 {
        let message = subscriber.borrow().unwrap().unwrap();
        assert_eq!(message.payload().array(0), Some([expected]));
        message.validate().unwrap();
    }
    assert!(subscriber.try_receive_in_place().unwrap().is_none());
    // A run that is not dropped affects only what the call itself received.
    publisher.burst(&payloads, Limit::Policy).unwrap();
    let mut run = subscriber.receive_in_place().unwrap();
    assert_eq!(run.by_ref().count(), 10);
    std::mem::forget(run);
    assert_eq!(firsts(&mut subscriber, 99), (1..10).collect::<Vec<u8>>());
    assert_eq!(subscriber.stats().received, 20);
}

#[test]
fn a_run_continues_while_it_is_used() {
    let fixture = Fixture::new();
    let bus = fixture.config().open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    publisher.publish([0]).unwrap();
    let mut run = subscriber.receive_in_place().unwrap();
    let first = run.next().unwrap();
    assert!(run.next().is_none());
    publisher.publish([1]).unwrap();
    let second = run.next().unwrap();
    run.validate().unwrap();
    drop(run);
    assert_eq!([first, second].map(|message| message.payload().to_vec()), [[0], [1]]);
}

#[test]
fn publishers_wait_for_the_messages_of_a_run() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).policy(Policy::Wait { limit: None });
    let bus = bus.open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscribe("t").unwrap();
    for lap in 0..50_u8 {
        let mut published = 0;
        let mut fill = || {
            let before = published;
            loop {
                match publisher.try_publish([lap; 100]) {
                    Ok(_) => published += 1,
                    Err(PublishError::Full) => return published - before,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        fill();
        let run = subscriber.receive_in_place().unwrap();
        let messages: Vec<_> = run.collect();
        assert_eq!(messages.len(), 10, "one 64th of the ring");
        assert_eq!(fill(), 0, "they are still in use");
        for message in &messages {
            assert_eq!(message.payload().to_vec(), [lap; 100]);
            message.validate().unwrap();
        }
        let mut received = messages.len();
        // The next call releases them.
        assert!(subscriber.borrow().unwrap().is_some());
        received += 1;
        assert!(fill() >= 9, "once a block");
        while let Some(run) = subscriber.try_receive_in_place().unwrap() {
            received += run.inspect(|message| message.validate().unwrap()).count();
        }
        assert_eq!(received, published);
    }
    assert_eq!(subscriber.stats().lost_messages, 0);
}

#[test]
fn an_overtaken_run_is_not_valid_and_losses_add_up() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).policy(Policy::Overwrite).open("b").unwrap();
    let publishers = publishers(&bus);
    let mut subscriber = bus.subscribe("a/*").unwrap();
    publish(&publishers, 0, 20);
    // This does not wait, and nothing has been lost.
    let mut run = subscriber.try_receive_in_place().unwrap().unwrap();
    let kept: Vec<_> = run.by_ref().take(5).collect();
    run.validate().unwrap();
    let behind = kept.last().unwrap().sequence() + 1;
    assert!(kept.len() > 1);
    publish(&publishers, 20, 1000);
    let Err(ReceiveError::Lapped { lost_messages, lost_bytes }) = run.validate() else {
        panic!("overtaken");
    };
    assert_eq!(lost_messages, behind, "including those of other topics");
    assert!(lost_bytes > 20);
    assert!(run.next().is_none(), "a header was overwritten");
    drop(run);
    for message in kept {
        assert!(matches!(message.validate(), Err(ReceiveError::Lapped { lost_messages: 1, .. })));
    }
    let Err(ReceiveError::Lapped { lost_messages, .. }) = subscriber.receive_in_place() else {
        panic!("overtaken");
    };
    let next = subscriber.receive_in_place().unwrap().next().unwrap();
    assert!(
        next.sequence() >= behind + lost_messages && next.sequence() <= behind + lost_messages + 3
    );
    assert_eq!(subscriber.stats().lost_messages, lost_messages);
}

#[test]
fn overtaken_readers_of_runs_report_every_loss() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).policy(Policy::Overwrite).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let mut subscriber = bus.subscriber().pattern("t").start(Start::Oldest).build().unwrap();
    const MESSAGES: u64 = 300_000;
    let words = |number: u64| [number; 12].map(u64::to_le_bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                publisher.publish(words(number).as_flattened()).unwrap();
            }
        });
        let (mut seen, mut lost) = (0, 0);
        while seen + lost < MESSAGES {
            let mut run = match subscriber.receive_in_place_timeout(Duration::from_secs(60)) {
                Ok(run) => run.expect("messages come"),
                Err(ReceiveError::Lapped { lost_messages, .. }) => {
                    lost += lost_messages;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let mut read = Vec::new();
            for message in run.by_ref() {
                read.push((message.sequence(), message.payload().words().collect::<Vec<_>>()));
            }
            match run.validate() {
                Ok(()) => {
                    for (sequence, payload) in read {
                        assert_eq!(sequence, seen + lost);
                        assert_eq!(payload, words(sequence), "torn");
                        seen += 1;
                    }
                }
                Err(ReceiveError::Lapped { lost_messages, .. }) => {
                    assert_eq!(lost_messages, read.len() as u64);
                    lost += lost_messages;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(seen > 0);
    });
}

#[test]
fn waits_end_with_a_message_and_in_time() {
    for strategy in [WaitStrategy::Backoff, WaitStrategy::Block, WaitStrategy::Yield] {
        let fixture = Fixture::new();
        let bus = fixture.config().open("b").unwrap();
        let publisher = bus.publisher("t").unwrap();
        let mut subscriber = bus.subscriber().pattern("t").wait(strategy).build().unwrap();
        let moment = Duration::from_millis(1);
        assert!(subscriber.receive_in_place_timeout(moment).unwrap().is_none());
        publisher.publish([1]).unwrap();
        let run = subscriber.receive_in_place_timeout(Duration::MAX).unwrap().unwrap();
        assert_eq!(run.count(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..100_u8 {
                    publisher.publish([number]).unwrap();
                    std::thread::sleep(Duration::from_micros(u64::from(number % 3) * 50));
                }
            });
            let mut expected = 0;
            while expected < 100 {
                for message in subscriber.receive_in_place().unwrap() {
                    assert_eq!(message.payload().get(0), Some(expected));
                    message.validate().unwrap();
                    expected += 1;
                }
            }
        });
    }
}

/// Also with a timestamp, whose bytes are added.
#[test]
fn every_excessive_length_is_refused() {
    let fixture = Fixture::new();
    for stamped in [false, true] {
        let bus = fixture.config().timestamps(stamped).open("b").unwrap();
        let publisher = bus.publisher("t").unwrap();
        for length in [usize::MAX, usize::MAX - 7, usize::MAX / 2, 1 << 32] {
            let error = publisher.publish_with(length, Limit::Policy, |_| ()).unwrap_err();
            assert!(matches!(error, PublishError::TooLong { .. }), "{length}: {error}");
        }
        publisher.try_publish(b"the lock is free").unwrap();
    }
}
