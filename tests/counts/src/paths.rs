//! The table of hot paths whose instructions are counted. To add one, add a line to the table and, if no function below
//! fits, a function. Then run `cargo xtask counts --bless`.

use std::hint::black_box;

use toroni::{Limit, LockKind, PublishError, Publisher, ReceiveError, RetainedError, Subscriber};

use crate::fixture::{Fixture, Outcome, toroni_counted};

pub(crate) struct Path {
    /// Its name in the baseline, and on the command line.
    pub(crate) name: &'static str,
    /// Runs this number of rounds, and returns how many messages were counted.
    pub(crate) run: fn(&mut Fixture, u64) -> Outcome<u64>,
}

/// Every path. In each a subscriber keeps up: after each round it has read everything.
pub(crate) const PATHS: &[Path] = &[
    Path { name: "publish-8", run: |fixture, rounds| publish(fixture, rounds, 8) },
    Path { name: "publish-64", run: |fixture, rounds| publish(fixture, rounds, 64) },
    Path { name: "publish-1024", run: |fixture, rounds| publish(fixture, rounds, 1024) },
    // The subscriber has slept once. Publishers compare the counters and find no sleeper.
    Path {
        name: "publish-8-to-one-that-slept",
        run: |fixture, rounds| {
            fixture.sleep_once()?;
            publish(fixture, rounds, 8)
        },
    },
    Path {
        name: "publish-8-with-robust-lock",
        run: |fixture, rounds| {
            *fixture = Fixture::with_lock(LockKind::Robust)?;
            publish(fixture, rounds, 8)
        },
    },
    Path { name: "publish-exclusively-8", run: |fixture, rounds| exclusive(fixture, rounds, 8) },
    Path { name: "batch-of-64-8", run: |fixture, rounds| batch(fixture, rounds, 64, 8) },
    Path { name: "burst-of-1000-8", run: |fixture, rounds| burst(fixture, rounds, 1000, 8) },
    Path { name: "burst-of-1000-64", run: |fixture, rounds| burst(fixture, rounds, 1000, 64) },
    Path { name: "receive-8", run: |fixture, rounds| receive(fixture, rounds, 8) },
    Path { name: "receive-64", run: |fixture, rounds| receive(fixture, rounds, 64) },
    Path { name: "borrow-64", run: |fixture, rounds| borrow(fixture, rounds, 64) },
    Path { name: "receive-in-place-8", run: |fixture, rounds| in_place(fixture, rounds, 8) },
    Path { name: "receive-in-place-1024", run: |fixture, rounds| in_place(fixture, rounds, 1024) },
    // One at a time, as in a ping-pong: a run of one message, with the look for a second one.
    Path {
        name: "receive-alone-8",
        run: |fixture, rounds| {
            alone(fixture, rounds, |subscriber| {
                black_box(subscriber.receive()?.payload());
                Ok(())
            })
        },
    },
    Path {
        name: "receive-alone-in-place-8",
        run: |fixture, rounds| {
            alone(fixture, rounds, |subscriber| {
                let mut run = subscriber.receive_in_place()?;
                for message in run.by_ref() {
                    black_box(message.payload().array::<8>(0));
                }
                run.validate()
            })
        },
    },
    Path {
        name: "publish-retained-64",
        run: |fixture, rounds| {
            fixture.retain()?;
            publish(fixture, rounds, 64)
        },
    },
    // Reads the value of a topic; no subscriber takes part.
    Path { name: "get-64", run: |fixture, rounds| get(fixture, rounds, 64) },
    Path { name: "publish-with-64", run: |fixture, rounds| publish_with(fixture, rounds, 64) },
    Path { name: "filter-miss-8", run: |fixture, rounds| filter_miss(fixture, rounds, 8) },
];

/// Messages of a round, where the path does not say it. They fit the ring.
const MESSAGES: usize = 1024;

fn publish(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    let payload = vec![7; bytes];
    publishing(fixture, rounds, MESSAGES, |publisher| {
        for _ in 0..MESSAGES {
            publisher.publish(black_box(&payload))?;
        }
        Ok(())
    })
}

fn exclusive(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    let payload = vec![7; bytes];
    let exclusive = fixture.publisher.bus().exclusive()?;
    let topic = exclusive.topic(fixture.publisher.topic().as_str())?;
    publishing(fixture, rounds, MESSAGES, |_| {
        for _ in 0..MESSAGES {
            exclusive.publish(&topic, black_box(&payload), Limit::Policy)?;
        }
        Ok(())
    })
}

fn batch(fixture: &mut Fixture, rounds: u64, messages: usize, bytes: usize) -> Outcome<u64> {
    let payloads = vec![vec![7; bytes]; messages];
    const BATCHES: usize = 16;
    publishing(fixture, rounds, BATCHES * messages, |publisher| {
        for _ in 0..BATCHES {
            publisher.publish_batch(black_box(&payloads), Limit::Policy)?;
        }
        Ok(())
    })
}

fn burst(fixture: &mut Fixture, rounds: u64, messages: usize, bytes: usize) -> Outcome<u64> {
    let payloads = vec![vec![7; bytes]; messages];
    publishing(fixture, rounds, messages, |publisher| {
        publisher.burst(black_box(&payloads), Limit::Policy).map_err(|error| error.source)
    })
}

fn receive(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    receiving(fixture, rounds, bytes, |subscriber| {
        for _ in 0..MESSAGES {
            black_box(subscriber.receive()?.payload());
        }
        Ok(())
    })
}

fn get(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    fixture.retain()?;
    fixture.publisher.publish(vec![7; bytes])?;
    fixture.receive_all(1)?;
    let (bus, topic) = (fixture.publisher.bus(), fixture.publisher.topic().as_str());
    for round in 0..=rounds {
        let all = || -> Result<(), RetainedError> {
            for _ in 0..MESSAGES {
                let value = bus.retained(black_box(topic))?;
                assert_eq!(value.map_or(0, |value| value.payload().len()), bytes);
            }
            Ok(())
        };
        if round == 0 {
            all()?;
        } else {
            toroni_counted(all)?;
        }
    }
    Ok(rounds * MESSAGES as u64)
}

/// Reads the first eight bytes in place.
fn borrow(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    receiving(fixture, rounds, bytes, |subscriber| {
        for _ in 0..MESSAGES {
            let Some(message) = subscriber.borrow()? else { break };
            let mut first = [0; 8];
            message.payload().copy_to(0, &mut first);
            message.validate()?;
            black_box(first);
        }
        Ok(())
    })
}

/// Reads the first eight bytes of each message of a run in place.
fn in_place(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    receiving(fixture, rounds, bytes, |subscriber| {
        let mut received = 0;
        while received < MESSAGES {
            let mut run = subscriber.receive_in_place()?;
            for message in run.by_ref() {
                black_box(message.payload().array::<8>(0));
                received += 1;
            }
            run.validate()?;
        }
        Ok(())
    })
}

/// Writes the first eight bytes.
fn publish_with(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    publishing(fixture, rounds, MESSAGES, |publisher| {
        for _ in 0..MESSAGES {
            publisher
                .publish_with(black_box(bytes), Limit::Policy, |room| room.write(0, &[7; 8]))?;
        }
        Ok(())
    })
}

/// Messages of another topic, and at the end of the round one that the subscriber wants: its call
/// returns then, and has passed over all the others.
fn filter_miss(fixture: &mut Fixture, rounds: u64, bytes: usize) -> Outcome<u64> {
    let payloads = vec![vec![7; bytes]; MESSAGES - 1];
    for round in 0..=rounds {
        fixture.elsewhere.burst(&payloads, Limit::Policy)?;
        fixture.publisher.publish(&payloads[0])?;
        let subscriber = &mut fixture.subscriber;
        let mut pass_over = || subscriber.receive().map(|message| message.payload().len());
        black_box(if round == 0 { pass_over()? } else { toroni_counted(pass_over)? });
        fixture.receive_all(0)?;
    }
    Ok(rounds * MESSAGES as u64)
}

/// Counts `publish`, which publishes `messages`. The first round is not counted: it meets what is
/// done once.
fn publishing(
    fixture: &mut Fixture,
    rounds: u64,
    messages: usize,
    mut publish: impl FnMut(&Publisher) -> Result<(), PublishError>,
) -> Outcome<u64> {
    for round in 0..=rounds {
        if round == 0 {
            publish(&fixture.publisher)?;
        } else {
            toroni_counted(|| publish(&fixture.publisher))?;
        }
        fixture.receive_all(messages as u64)?;
    }
    Ok(rounds * messages as u64)
}

/// Counts `receive`, which receives [`MESSAGES`] of `bytes` bytes each. The first round is not counted.
fn receiving(
    fixture: &mut Fixture,
    rounds: u64,
    bytes: usize,
    mut receive: impl FnMut(&mut Subscriber) -> Result<(), ReceiveError>,
) -> Outcome<u64> {
    let payloads = vec![vec![7; bytes]; MESSAGES];
    for round in 0..=rounds {
        fixture.publisher.burst(&payloads, Limit::Policy)?;
        if round == 0 {
            receive(&mut fixture.subscriber)?;
        } else {
            toroni_counted(|| receive(&mut fixture.subscriber))?;
        }
        fixture.receive_all(0)?;
    }
    Ok(rounds * MESSAGES as u64)
}

/// Counts `receive`, which receives one message of 8 bytes; there is no other.
fn alone(
    fixture: &mut Fixture,
    rounds: u64,
    mut receive: impl FnMut(&mut Subscriber) -> Result<(), ReceiveError>,
) -> Outcome<u64> {
    for message in 0..(rounds + 1) * MESSAGES as u64 {
        fixture.publisher.publish([7; 8])?;
        if message < MESSAGES as u64 {
            receive(&mut fixture.subscriber)?;
        } else {
            toroni_counted(|| receive(&mut fixture.subscriber))?;
        }
    }
    fixture.receive_all(0)?;
    Ok(rounds * MESSAGES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_path_runs_and_delivers_what_it_counts() {
        for path in PATHS {
            let mut fixture = Fixture::new().unwrap();
            let counted = (path.run)(&mut fixture, 3).unwrap();
            assert!(counted >= 3000, "{}: {counted}", path.name);
            assert_eq!(fixture.subscriber.stats().lost_messages, 0, "{}", path.name);
        }
    }

    #[test]
    fn no_two_paths_have_one_name() {
        let names: BTreeSet<&str> = PATHS.iter().map(|path| path.name).collect();
        assert_eq!(names.len(), PATHS.len());
    }
}
