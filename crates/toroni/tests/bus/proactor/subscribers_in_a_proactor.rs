//! Tests of subscribers on every engine: no message is lost, no handler starves, and every
//! subscriber is returned.

use super::engine::{Crew, alone};
use crate::common::Fixture;
use crate::daemon::ENGINES;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use toroni::proactor::{Subscribe, Subscription};
use toroni::{Bus, Message, NotifyKind, Policy, ReceiveError, Start};
use toroni_proactor::{BufResult, Config, Proactor, Stream};

/// Much longer than anything here takes.
const LOST: Duration = Duration::from_secs(60);

const NOTIFIERS: [NotifyKind; 3] =
    [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }];

/// Runs the test on each engine, with a proactor that no thread runs yet.
fn each(test: impl Fn(&Proactor)) {
    each_named(|_, proactor| test(proactor));
}

/// The same, with the name of the engine.
fn each_named(test: impl Fn(&str, &Proactor)) {
    for (name, config) in ENGINES {
        println!("{name}");
        test(name, &Proactor::new(&Config::parse(config).unwrap()).unwrap());
    }
}

/// Returns a bus that loses nothing, however slow the machine.
fn lossless(fixture: &Fixture, notify: NotifyKind) -> Bus {
    fixture.config().policy(Policy::Wait { limit: None }).notify(notify).open("b").unwrap()
}

fn number(message: &Message<'_>) -> u64 {
    u64::from_le_bytes(message.payload().try_into().unwrap())
}

#[track_caller]
fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(LOST).expect("a result arrives in time")
}

#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LOST, "the condition does not become true");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a subscription whose handler must be called once, with an error, and a receiver for that
/// error.
fn expecting_an_error(proactor: &Proactor, bus: &Bus) -> (Subscription, Receiver<ReceiveError>) {
    let (done, results) = channel();
    let subscription = proactor
        .subscribe(bus.subscribe("a").unwrap(), move |message, _| {
            done.send(message.map(|_| ()).unwrap_err()).unwrap();
        })
        .unwrap();
    (subscription, results)
}

/// Returns the only error that the handler gets. Another thread runs the proactor.
#[track_caller]
fn last_call(subscription: &Subscription, results: &Receiver<ReceiveError>) -> ReceiveError {
    let error = next(results);
    until(|| subscription.is_over());
    assert!(results.recv().is_err(), "called again");
    error
}

/// Publishes 0, 1, 2, … in another thread, with pauses so that the subscribers sleep sometimes.
fn publish_numbers(bus: &Bus, topic: &str, count: u64) -> JoinHandle<()> {
    let publisher = bus.publisher(topic).unwrap();
    thread::spawn(move || {
        for number in 0..count {
            publisher.publish(number.to_le_bytes()).unwrap();
            if number % 500 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

#[test]
fn messages_come_in_order_and_one_at_a_time() {
    const COUNT: u64 = 5000;
    for notify in NOTIFIERS {
        each(|proactor| {
            let fixture = Fixture::new();
            let bus = lossless(&fixture, notify);
            let _crew = Crew::new(proactor, 3);
            let (done, results) = channel();
            for _ in 0..3 {
                let (done, mut expected) = (done.clone(), 0);
                let is_inside = AtomicBool::new(false);
                proactor
                    .subscribe(bus.subscribe("a/*").unwrap(), move |message, _| {
                        assert!(!is_inside.swap(true, Ordering::Acquire), "two at a time");
                        assert_eq!(number(&message.unwrap()), expected);
                        expected += 1;
                        if expected == COUNT {
                            done.send(()).unwrap();
                        }
                        is_inside.store(false, Ordering::Release);
                    })
                    .unwrap();
            }
            publish_numbers(&bus, "a/b", COUNT).join().unwrap();
            (0..3).for_each(|_| next(&results));
        });
    }
}

#[test]
fn losses_are_reported_and_the_subscriber_continues() {
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.config().capacity(64 * 1024).policy(Policy::Overwrite).open("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        let subscriber = bus.subscribe("a").unwrap();
        for number in 0..10_000_u64 {
            publisher.publish(number.to_le_bytes()).unwrap();
        }
        let (done, results) = channel();
        let (mut lost, mut seen) = (0, 0);
        proactor
            .subscribe(subscriber, move |message, _| match message {
                Ok(message) => {
                    seen += 1;
                    assert_eq!(number(&message), lost + seen - 1, "the number of losses is exact");
                    if number(&message) == 9_999 {
                        done.send((lost, seen)).unwrap();
                    }
                }
                Err(ReceiveError::Lapped { lost_messages, .. }) => lost += lost_messages,
                Err(error) => panic!("{error}"),
            })
            .unwrap();
        let _crew = Crew::new(proactor, 1);
        let (lost, seen) = next(&results);
        assert!(lost > 0 && seen > 0, "{lost} lost, {seen} seen");
    });
}

#[test]
fn a_handler_ends_the_subscription_and_the_subscriber_continues() {
    for notify in NOTIFIERS {
        each(|proactor| {
            let fixture = Fixture::new();
            let bus = lossless(&fixture, notify);
            let publisher = bus.publisher("a").unwrap();
            (0..100_u64)
                .for_each(|number| publisher.publish(number.to_le_bytes()).map(drop).unwrap());
            let subscriber = bus.subscriber().pattern("a").start(Start::Oldest).build().unwrap();
            let _crew = Crew::new(proactor, 2);
            let (done, results) = channel();
            let mut calls = 0;
            let subscription = proactor
                .subscribe(subscriber, move |message, subscription| {
                    assert_eq!(number(&message.unwrap()), calls);
                    calls += 1;
                    if calls == 40 {
                        let done = done.clone();
                        subscription.on_end(move |over| done.send(over.take_back()).unwrap());
                        subscription.cancel();
                    }
                    assert!(calls <= 40, "called after its end");
                })
                .unwrap();
            let mut subscriber = next(&results).unwrap();
            assert!(subscription.is_over() && subscription.take_back().is_none());
            // This works here too, and the subscriber sleeps and is woken as usual.
            for expected in 40..100 {
                assert_eq!(number(&subscriber.receive().unwrap()), expected);
            }
            let publishing = thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                publisher.publish(100_u64.to_le_bytes()).map(drop).unwrap();
            });
            assert_eq!(number(&subscriber.receive().unwrap()), 100);
            publishing.join().unwrap();
        });
    }
}

#[test]
fn it_is_ended_from_elsewhere_again_and_again() {
    let test = "proactor::subscribers_in_a_proactor::it_is_ended_from_elsewhere_again_and_again";
    alone(test, || {
        each(|proactor| {
            let fixture = Fixture::new();
            let bus = fixture.open();
            let publisher = bus.publisher("a").unwrap();
            let _crew = Crew::new(proactor, 2);
            let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let outstanding = proactor.outstanding();
            let mut before = None;
            let mut subscriber = bus.subscribe("a").unwrap();
            for round in 0..300_u64 {
                let (heard, messages) = channel();
                let subscription = proactor
                    .subscribe(subscriber, move |message, _| {
                        heard.send(number(&message.unwrap())).unwrap();
                    })
                    .unwrap();
                publisher.publish(round.to_le_bytes()).unwrap();
                assert_eq!(next(&messages), round);
                subscription.cancel();
                until(|| subscription.is_over());
                subscriber = subscription.take_back().unwrap();
                assert!(messages.recv().is_err(), "the handler is gone");
                if before.is_none() {
                    until(|| proactor.outstanding() == outstanding);
                    before = Some(descriptors());
                }
            }
            // Cancelled operations are reported, and none is left.
            until(|| proactor.outstanding() == outstanding);
            until(|| Some(descriptors()) == before);
        })
    });
}

#[test]
fn a_dropped_proactor_gives_the_subscriber_back() {
    each(|other| {
        let mut configs = other.effective().iter().map(|effective| effective.config.clone());
        let first = configs.next().unwrap();
        let config = match configs.next() {
            Some(second) => Config::two(first, second),
            None => Config::one(first),
        };
        for runs in [false, true] {
            let fixture = Fixture::new();
            let bus = fixture.open();
            let proactor = Proactor::new(&config).unwrap();
            let held = Arc::new(());
            let token = Arc::clone(&held);
            let subscription = proactor
                .subscribe(bus.subscribe("a").unwrap(), move |_, _| drop(Arc::clone(&token)))
                .unwrap();
            // Without a handle, the subscriber is dropped with the proactor.
            drop(proactor.subscribe(bus.subscribe("a").unwrap(), |_, _| {}).unwrap());
            if runs {
                proactor.handle_events(Some(Duration::from_millis(5)));
                proactor.handle_events(Some(Duration::from_millis(5)));
            }
            assert_eq!(bus.stats().unwrap().subscribers.unwrap().len(), 2);
            drop(proactor);
            assert!(subscription.is_over());
            assert_eq!(Arc::strong_count(&held), 1, "the handler is dropped");
            let mut subscriber = subscription.take_back().unwrap();
            bus.publisher("a").unwrap().publish(b"x").unwrap();
            assert_eq!(subscriber.receive().unwrap().payload(), b"x");
            assert_eq!(bus.stats().unwrap().subscribers.unwrap().len(), 1);
        }
    });
}

#[test]
fn a_proactor_that_finishes_ends_it() {
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let (done, results) = channel();
        let subscription = proactor
            .subscribe(bus.subscribe("a").unwrap(), |message, _| panic!("{message:?}"))
            .unwrap();
        subscription.on_end(move |over| done.send(over.take_back().is_some()).unwrap());
        proactor.handle_events(Some(Duration::from_millis(5)));
        let running = proactor.clone();
        let thread = thread::spawn(move || running.run());
        proactor.finish();
        assert!(next(&results));
        thread.join().unwrap();
        let refused = proactor.subscribe(bus.subscribe("a").unwrap(), |_, _| {}).unwrap_err();
        assert!(refused.to_string().contains("stopping"), "{refused}");
        drop(refused.subscriber);
        proactor.restart();
    });
}

#[test]
fn the_end_of_the_bus_is_the_last_call() {
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let _crew = Crew::new(proactor, 1);
        let (subscription, results) = expecting_an_error(proactor, &bus);
        std::fs::remove_dir_all(fixture.path().join("b")).unwrap();
        assert!(matches!(last_call(&subscription, &results), ReceiveError::Unlinked));
    });
}

#[test]
fn a_handler_that_panics_is_not_called_again() {
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let subscription = proactor
            .subscribe(bus.subscribe("a").unwrap(), |_, _| {
                // Unlike `panic!`, this prints nothing.
                std::panic::resume_unwind(Box::new("on purpose"))
            })
            .unwrap();
        bus.publisher("a").unwrap().publish(b"x").unwrap();
        let caught = thread::scope(|scope| scope.spawn(|| proactor.run()).join());
        assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "on purpose");
        assert!(subscription.is_over() && subscription.take_back().is_some());
        // The proactor continues.
        let _crew = Crew::new(proactor, 1);
        let (done, results) = channel();
        proactor.post(move || done.send(()).unwrap()).unwrap();
        next(&results);
    });
}

/// One thread: the subscriber never runs out of messages, but the socket is still served. The
/// handler itself requests the echoes and checks for them, so no other thread's scheduling is
/// measured.
#[test]
fn a_stream_of_messages_starves_no_socket() {
    const ECHOES: usize = 50;
    // After this many messages, everything else that is ready gets a turn.
    const TURN: u64 = 32;

    fn echo(stream: Stream) {
        let again = stream.clone();
        let _ = stream.read(vec![0; 16], move |BufResult(result, buffer)| {
            if let Ok(1..) = result {
                let _ = again.clone().write(buffer, move |_| echo(again));
            }
        });
    }

    each_named(|name, proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let publisher = bus.publisher("a").unwrap();
        publisher.publish(b"first").unwrap();
        // Unlike a network connection, it transfers a byte before the call returns.
        let (mut client, served) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        echo(Stream::new(proactor, served).unwrap());
        let (done, results) = channel();
        let (mut messages, mut asked) = (0_u64, None);
        // Each message causes the next, so there is always one.
        let subscription = proactor
            .subscribe(
                bus.subscriber().pattern("a").start(Start::Oldest).build().unwrap(),
                move |message, _| {
                    message.unwrap();
                    messages += 1;
                    publisher.publish(b"next").unwrap();
                    match asked {
                        None if messages > 1000 => {
                            client.write_all(b"x").unwrap();
                            asked = Some(messages);
                        }
                        Some(before) if client.read(&mut [0]).is_ok() => {
                            let _ = done.send(messages - before);
                            asked = None;
                        }
                        _ => {}
                    }
                },
            )
            .unwrap();
        let crew = Crew::new(proactor, 1);
        let most = (0..ECHOES).map(|_| next(&results)).max().unwrap();
        // When a dedicated leader is scheduled depends on the machine.
        let is_alone = !name.contains("dedicated") && name != "linux-rt";
        assert!(!is_alone || most <= TURN, "up to {most} messages during an echo");
        subscription.cancel();
        drop(crew);
    });
}

#[test]
fn handlers_publish() {
    const TURNS: u64 = 1000;
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let (done, results) = channel();
        // Two subscribers in one thread exchange messages.
        for (from, to) in [("ping", "pong"), ("pong", "ping")] {
            let (publisher, done) = (bus.publisher(to).unwrap(), done.clone());
            proactor
                .subscribe(bus.subscribe(from).unwrap(), move |message, _| {
                    let turn = number(&message.unwrap());
                    if turn == TURNS {
                        done.send(()).unwrap();
                    } else {
                        publisher.publish((turn + 1).to_le_bytes()).unwrap();
                    }
                })
                .unwrap();
        }
        let _crew = Crew::new(proactor, 1);
        bus.publisher("ping").unwrap().publish(0_u64.to_le_bytes()).unwrap();
        next(&results);
    });
}

#[test]
fn receivers_of_async_code() {
    const COUNT: u64 = 3000;
    for notify in NOTIFIERS {
        each(|proactor| {
            let fixture = Fixture::new();
            let bus = lossless(&fixture, notify);
            let mut receiver = proactor.receiver(bus.subscribe("a").unwrap()).unwrap();
            let publishing = publish_numbers(&bus, "a", COUNT);
            // A timer runs in the same thread the whole time.
            let ticks = Arc::new(AtomicU64::new(0));
            tick(proactor, Arc::clone(&ticks));
            proactor
                .block_on(async {
                    for expected in 0..COUNT {
                        assert_eq!(number(&receiver.receive().await.unwrap()), expected);
                    }
                })
                .unwrap();
            publishing.join().unwrap();
            assert!(ticks.load(Ordering::Relaxed) > 0, "starved");
            // A call that is dropped consumes no message.
            let publisher = bus.publisher("a").unwrap();
            proactor.block_on(async {
                let soon = Instant::now() + Duration::from_millis(2);
                let mut timer = proactor.timer_at_async(soon);
                let mut receiving = std::pin::pin!(receiver.receive());
                std::future::poll_fn(|context| {
                    assert!(receiving.as_mut().poll(context).is_pending());
                    std::pin::Pin::new(&mut timer).poll(context).map(drop)
                })
                .await;
            });
            publisher.publish(7_u64.to_le_bytes()).unwrap();
            let mut subscriber = receiver.into_subscriber();
            assert_eq!(number(&subscriber.receive().unwrap()), 7);
        });
    }

    fn tick(proactor: &Proactor, ticks: Arc<AtomicU64>) {
        ticks.fetch_add(1, Ordering::Relaxed);
        let weak = proactor.downgrade();
        let _ = proactor.timer(Duration::from_millis(1), move |result| {
            if let (Ok(()), Some(proactor)) = (result, weak.upgrade()) {
                tick(&proactor, ticks);
            }
        });
    }
}

/// The receiver is polled by the executor that is woken. The end of the proactor is reported,
/// although no thread of the proactor calls the receiver any more.
#[test]
fn a_receiver_on_another_executor_ends_with_the_proactor() {
    struct SendWhenWoken(Mutex<Sender<()>>);
    impl Wake for SendWhenWoken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().send(());
        }
    }
    let is_the_end = |error: ReceiveError| match error {
        ReceiveError::Os { source, .. } => source.raw_os_error() == Some(libc::ECANCELED),
        _ => false,
    };
    for notify in NOTIFIERS {
        for (name, config) in ENGINES {
            println!("{name}");
            let proactor = Proactor::new(&Config::parse(config).unwrap()).unwrap();
            let fixture = Fixture::new();
            let bus = lossless(&fixture, notify);
            let mut receiver = proactor.receiver(bus.subscribe("a").unwrap()).unwrap();
            let (woken, wakes) = channel();
            let waker = Waker::from(Arc::new(SendWhenWoken(Mutex::new(woken))));
            let mut context = Context::from_waker(&waker);
            {
                let mut receiving = pin!(receiver.receive());
                assert!(receiving.as_mut().poll(&mut context).is_pending());
                drop(proactor);
                next(&wakes);
                let Poll::Ready(ended) = receiving.as_mut().poll(&mut context) else {
                    panic!("still waiting");
                };
                assert!(is_the_end(ended.map(|_| ()).unwrap_err()));
            }
            let Poll::Ready(ended) = pin!(receiver.receive()).as_mut().poll(&mut context) else {
                panic!("waits");
            };
            assert!(is_the_end(ended.map(|_| ()).unwrap_err()));
            // Messages are still received.
            let mut subscriber = receiver.into_subscriber();
            bus.publisher("a").unwrap().publish(7_u64.to_le_bytes()).unwrap();
            assert_eq!(number(&subscriber.receive().unwrap()), 7);
        }
    }
}

/// An interrupter ends a blocking call. Here the interruption is reported, and the subscriber
/// continues.
#[test]
fn an_interruption_is_reported() {
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let mut subscriber = bus.subscribe("a").unwrap();
        let interrupter = subscriber.interrupter().unwrap();
        let _crew = Crew::new(proactor, 1);
        let (done, results) = channel();
        let _subscription: Subscription = proactor
            .subscribe(subscriber, move |message, _| done.send(message.map(|_| ())).unwrap())
            .unwrap();
        interrupter.interrupt();
        assert!(matches!(next(&results), Err(ReceiveError::Interrupted)));
        bus.publisher("a").unwrap().publish(b"x").unwrap();
        assert!(next(&results).is_ok());
    });
}

/// Two subscriptions end each other, in handlers that run at the same time. Neither waits for the
/// other.
#[test]
fn subscriptions_end_each_other() {
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let _crew = Crew::new(proactor, 2);
        let both: Arc<Mutex<Vec<Subscription>>> = Arc::default();
        for _ in 0..2 {
            let others = Arc::clone(&both);
            let subscription = proactor
                .subscribe(bus.subscribe("a").unwrap(), move |_, _| {
                    let others = others.lock().unwrap().clone();
                    others.iter().for_each(Subscription::cancel);
                })
                .unwrap();
            both.lock().unwrap().push(subscription);
        }
        bus.publisher("a").unwrap().publish(b"x").unwrap();
        let subscriptions = both.lock().unwrap().clone();
        until(|| subscriptions.iter().all(Subscription::is_over));
    });
}

/// A file of the bus, opened by an attacker.
fn file_of(fixture: &Fixture, name: &str) -> std::fs::File {
    std::fs::File::options().write(true).open(fixture.path().join("b").join(name)).unwrap()
}

#[test]
fn an_invalid_message_is_skipped() {
    /// Returns the offset of the stream, which is at the end of the file.
    fn stream(fixture: &Fixture, capacity: u64) -> u64 {
        std::fs::metadata(fixture.path().join("b/ring")).unwrap().len() - capacity
    }

    const CAPACITY: u64 = 64 << 10;
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.config().capacity(CAPACITY).open("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        let subscriber = bus.subscribe("a").unwrap();
        publisher.publish(b"one").unwrap();
        let second = bus.subscribe("a").unwrap().position();
        publisher.publish(b"two").unwrap();
        publisher.publish(b"three").unwrap();
        // A topic that does not exist, in the second half of the header.
        let offset = stream(&fixture, CAPACITY) + second % CAPACITY + 4;
        file_of(&fixture, "ring").write_all_at(&0x00AB_CDEF_u32.to_ne_bytes(), offset).unwrap();
        let _crew = Crew::new(proactor, 1);
        let (done, results) = channel();
        proactor
            .subscribe(subscriber, move |message, _| {
                done.send(message.map(|message| message.text().into_owned())).unwrap();
            })
            .unwrap();
        assert_eq!(next(&results).unwrap(), "one");
        let error = next(&results).unwrap_err();
        assert!(matches!(error, ReceiveError::Corrupt(_)), "{error}");
        assert_eq!(next(&results).unwrap(), "three");
    });
}

#[test]
fn a_ring_that_is_cut_off_is_the_last_call() {
    each(|proactor| {
        let fixture = Fixture::new();
        let bus = fixture.open();
        let _crew = Crew::new(proactor, 1);
        let (subscription, results) = expecting_an_error(proactor, &bus);
        thread::sleep(Duration::from_millis(5));
        file_of(&fixture, "ring").set_len(0).unwrap();
        let error = last_call(&subscription, &results);
        assert!(matches!(error, ReceiveError::Corrupt(_)), "{error}");
    });
}

/// The ring is cut off between the last check and the wait, so the kernel meets it first.
#[test]
fn a_ring_that_is_cut_off_before_the_wait_is_the_last_call() {
    let proactor = Proactor::new(&Config::parse(ENGINES[0].1).unwrap()).unwrap();
    let fixture = Fixture::new();
    let bus = fixture.open();
    let (subscription, results) = expecting_an_error(&proactor, &bus);
    // The first turn. io_uring learns of its wait with the leader's next system call.
    assert_eq!(proactor.handle_events(Some(Duration::ZERO)), 1);
    file_of(&fixture, "ring").set_len(0).unwrap();
    let _crew = Crew::new(&proactor, 1);
    let error = last_call(&subscription, &results);
    assert!(matches!(error, ReceiveError::Corrupt(_)), "{error}");
}

#[test]
fn a_proactor_that_waits_for_nothing_takes_no_subscriber() {
    let config = "[[processor]]\nprovider = 'select'\noperations = ['read-file', 'write-file']";
    let proactor = Proactor::new(&Config::parse(config).unwrap()).unwrap();
    let fixture = Fixture::new();
    let bus = fixture.open();
    let refused = proactor.subscribe(bus.subscribe("a").unwrap(), |_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("WAIT_READABLE"), "{refused}");
    let refused = proactor.receiver(*refused.subscriber).unwrap_err();
    assert!(refused.to_string().contains("WAIT_READABLE"), "{refused}");
}

/// Subscribers join and leave in several threads while messages arrive. Each continues where it
/// stopped.
#[test]
fn subscribers_come_and_go_and_miss_nothing() {
    const SUBSCRIBERS: usize = 4;
    const MESSAGES: u64 = 20_000;
    let seed = std::env::var("TORONI_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("TORONI_SEED={seed}");
    for notify in NOTIFIERS {
        each(|proactor| {
            let fixture = Fixture::new();
            let bus = lossless(&fixture, notify);
            let _crew = Crew::new(proactor, 3);
            let expected: Arc<Vec<AtomicU64>> =
                Arc::new((0..SUBSCRIBERS).map(|_| AtomicU64::new(0)).collect());
            let subscribers = (0..SUBSCRIBERS).map(|_| bus.subscribe("a").unwrap());
            let subscribe = |which: usize, subscriber| {
                let expected = Arc::clone(&expected);
                let handler = move |message: Result<Message<'_>, _>, _: &Subscription| {
                    let next = expected[which].fetch_add(1, Ordering::Relaxed);
                    assert_eq!(number(&message.unwrap()), next);
                };
                proactor.subscribe(subscriber, handler).unwrap()
            };
            let mut subscriptions: Vec<_> =
                subscribers.enumerate().map(|(which, it)| subscribe(which, it)).collect();
            let publishing = publish_numbers(&bus, "a", MESSAGES);
            let mut state: u32 = seed;
            let started = Instant::now();
            while expected.iter().any(|next| next.load(Ordering::Relaxed) < MESSAGES) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let which = (state >> 24) as usize % SUBSCRIBERS;
                subscriptions[which].cancel();
                until(|| subscriptions[which].is_over());
                let subscriber = subscriptions[which].take_back().unwrap();
                subscriptions[which] = subscribe(which, subscriber);
                (0..state >> 20).for_each(|_| std::hint::spin_loop());
                assert!(started.elapsed() < LOST, "{expected:?}");
            }
            publishing.join().unwrap();
        });
    }
}
