//! Tests of receiving on a tokio runtime: no message is lost, and no task starves.

use crate::common::Fixture;
use std::future::Future;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use toroni::{Bus, BusConfig, Limit, NotifyKind, Policy, ReceiveError, Start, Subscriber};

const NOTIFIERS: [NotifyKind; 3] =
    [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }];

/// Runs a future on a single-threaded runtime. A test that hangs fails.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { tokio::time::timeout(Duration::from_secs(60), future).await };
    runtime.block_on(bounded).expect("finishes within a minute")
}

/// Returns a bus that loses nothing, however slow the machine.
fn lossless(fixture: &Fixture, notify: NotifyKind) -> Bus {
    let config = fixture.config().policy(Policy::Wait { limit: None }).notify(notify);
    config.open("b").unwrap()
}

async fn next_number(subscriber: &mut Subscriber) -> u64 {
    number(subscriber.receive_async().await.unwrap().payload())
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().unwrap())
}

/// Publishes 0, 1, 2, … in another thread, with pauses so that the reader sleeps sometimes.
fn publish_numbers(bus: &Bus, topic: &str, count: u64) -> std::thread::JoinHandle<()> {
    let publisher = bus.publisher(topic).unwrap();
    std::thread::spawn(move || {
        for number in 0..count {
            publisher.publish(number.to_le_bytes()).unwrap();
            if number % 1000 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

#[test]
fn tokio_many_messages_arrive_in_order() {
    const COUNT: u64 = 20_000;
    for notify in NOTIFIERS {
        let fixture = Fixture::new();
        let bus = lossless(&fixture, notify);
        let mut subscriber = bus.subscribe("n/*").unwrap();
        let threads = [publish_numbers(&bus, "n/a", COUNT), publish_numbers(&bus, "n/b", COUNT)];
        run(async {
            let mut expected = [0, 0];
            for _ in 0..2 * COUNT {
                let message = subscriber.receive_async().await.unwrap();
                let expected = &mut expected[usize::from(message.topic() == "n/b")];
                assert_eq!(number(message.payload()), *expected, "{notify:?}");
                *expected += 1;
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(subscriber.try_receive().unwrap().is_none());
    }
}

#[test]
fn tokio_cancelling_loses_nothing() {
    const COUNT: u64 = 20_000;
    for notify in NOTIFIERS {
        let fixture = Fixture::new();
        let bus = lossless(&fixture, notify);
        let mut subscriber = bus.subscribe("n").unwrap();
        let thread = publish_numbers(&bus, "n", COUNT);
        let cancelled = run(async {
            let (mut expected, mut cancelled) = (0, 0);
            while expected < COUNT {
                // Polled once, and dropped if it is not ready.
                tokio::select! {
                    biased;
                    number = next_number(&mut subscriber) => {
                        assert_eq!(number, expected, "{notify:?}");
                        expected += 1;
                    }
                    () = std::future::ready(()) => {
                        cancelled += 1;
                        tokio::task::yield_now().await;
                    }
                }
            }
            cancelled
        });
        thread.join().unwrap();
        assert!(cancelled > 0);
    }
}

#[test]
fn tokio_a_timer_cancels_a_wait_and_the_next_continues() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let mut subscriber = bus.subscribe("n").unwrap();
    let publisher = bus.publisher("n").unwrap();
    run(async {
        for number in 0..5u64 {
            let wait = tokio::time::timeout(Duration::from_millis(5), subscriber.receive_async());
            assert!(wait.await.is_err(), "a message that was not published");
            // The cancelled wait has armed the descriptor. This message comes before the next wait.
            publisher.publish(number.to_le_bytes()).unwrap();
            assert_eq!(next_number(&mut subscriber).await, number);
        }
    });
}

#[test]
fn tokio_two_subscribers_wake_each_other_in_one_thread() {
    const ROUNDS: u64 = 2_000;
    for notify in NOTIFIERS {
        let fixture = Fixture::new();
        let bus = lossless(&fixture, notify);
        let (mut ping, mut pong) = (bus.subscribe("ping").unwrap(), bus.subscribe("pong").unwrap());
        let (to_ping, to_pong) = (bus.publisher("ping").unwrap(), bus.publisher("pong").unwrap());
        run(async {
            // A task must be Send, and the future of a receive is.
            let echo = tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let number = next_number(&mut ping).await;
                    to_pong.publish(number.to_le_bytes()).unwrap();
                }
            });
            for round in 0..ROUNDS {
                to_ping.publish(round.to_le_bytes()).unwrap();
                assert_eq!(next_number(&mut pong).await, round, "{notify:?}");
            }
            echo.await.unwrap();
        });
    }
}

#[test]
fn tokio_a_subscriber_with_much_to_read_lets_others_run() {
    const COUNT: u64 = 10_000;
    let fixture = Fixture::new();
    let bus = fixture.open();
    let numbers: Vec<[u8; 8]> = (0..COUNT).map(u64::to_le_bytes).collect();
    bus.publisher("n").unwrap().burst(&numbers, Limit::Policy).unwrap();
    let mut subscriber = bus.subscriber().pattern("n").start(Start::Oldest).build().unwrap();
    run(async {
        let (turns, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let other = tokio::spawn({
            let (turns, done) = (turns.clone(), done.clone());
            async move {
                while !done.load(Ordering::Relaxed) {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        for expected in 0..COUNT {
            assert_eq!(next_number(&mut subscriber).await, expected);
        }
        done.store(true, Ordering::Relaxed);
        other.await.unwrap();
        // Every receive was ready at once. The runtime allows a task 128 such operations per turn.
        let turns = turns.load(Ordering::Relaxed);
        assert!(turns >= COUNT / 1000, "the other task had {turns} turns");
    });
}

#[test]
fn tokio_a_loss_is_reported_and_the_next_receive_continues() {
    let fixture = Fixture::new();
    let bus = fixture.config().capacity(64 << 10).policy(Policy::Overwrite).open("b").unwrap();
    let mut subscriber = bus.subscribe("n").unwrap();
    let publisher = bus.publisher("n").unwrap();
    for number in 0..20_000u64 {
        publisher.publish(number.to_le_bytes()).unwrap();
    }
    run(async {
        let lost = match subscriber.receive_async().await {
            Err(ReceiveError::Lapped { lost_messages, .. }) => lost_messages,
            other => panic!("{other:?}"),
        };
        for expected in lost..20_000 {
            assert_eq!(next_number(&mut subscriber).await, expected);
        }
    });
}

#[test]
fn tokio_woken_by_another_process() {
    for (notify, name) in NOTIFIERS.into_iter().zip(["futex", "datagram", "multicast"]) {
        let fixture = Fixture::new();
        let bus = lossless(&fixture, notify);
        let mut subscriber = bus.subscribe("n").unwrap();
        run(async {
            // Gives this task time to fall asleep before the other process starts.
            let wait = tokio::time::timeout(Duration::from_millis(20), subscriber.receive_async());
            assert!(wait.await.is_err());
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tokio::tokio_the_other_process"])
                .env("TORONI_TEST_CHILD_DIR", fixture.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            for expected in 0..CHILD_COUNT {
                assert_eq!(next_number(&mut subscriber).await, expected, "{name}");
            }
            assert!(child.wait().unwrap().success());
        });
    }
}

const CHILD_COUNT: u64 = 100;

/// Does nothing unless `tokio_woken_by_another_process` started it.
#[test]
fn tokio_the_other_process() {
    let Some(directory) = std::env::var_os("TORONI_TEST_CHILD_DIR").map(PathBuf::from) else {
        return;
    };
    let bus = BusConfig::new().directory(directory).open_existing("b").unwrap();
    let publisher = bus.publisher("n").unwrap();
    for number in 0..CHILD_COUNT {
        publisher.publish(number.to_le_bytes()).unwrap();
        // A pause, so that the subscriber sleeps in between.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn tokio_the_socket_is_removed_with_the_subscriber() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    run(async {
        let mut subscriber = bus.subscribe("n").unwrap();
        bus.publisher("n").unwrap().publish(0u64.to_le_bytes()).unwrap();
        assert_eq!(next_number(&mut subscriber).await, 0);
        assert_eq!(bus.stats().unwrap().sockets.len(), 1);
        drop(subscriber);
        assert!(bus.stats().unwrap().sockets.is_empty());
    });
}
