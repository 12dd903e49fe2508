//! Tests of threads that publish to their own gating subscriber. If no other thread can free space,
//! the publisher gets an error. Otherwise it waits for the other threads as the policy says.

use crate::common::Fixture;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use toroni::{Bus, Policy, PublishError, Publisher, Subscriber};

/// Longer than anything here takes on a busy machine. Only a test that hangs reaches it.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a publisher waits for another thread to start reading.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs `work` in a thread. If it hangs, the thread is left running and the test fails.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel::<()>();
    let worker = std::thread::spawn(move || {
        let _done = done;
        work();
    });
    assert_eq!(is_done.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected), "it hangs");
    worker.join().unwrap();
}

/// Returns a bus of 64 KiB whose publishers wait without a limit.
fn lossless(fixture: &Fixture) -> (Bus, Publisher) {
    let forever = Policy::Wait { limit: None };
    let bus = fixture.config().capacity(64 << 10).policy(forever).open("b").unwrap();
    let publisher = bus.publisher("t").unwrap();
    (bus, publisher)
}

/// Publishes three times what the ring holds.
fn publish_laps(publisher: &Publisher) -> Result<(), PublishError> {
    (0..2000).try_for_each(|_| publisher.publish([7; 100]).map(drop))
}

/// Returns the number of times that the bus's only publisher has waited for subscribers.
fn waits(bus: &Bus) -> u64 {
    bus.stats().unwrap().publishers.unwrap()[0].waits
}

#[track_caller]
fn assert_would_wait_for_itself(publisher: &Publisher) {
    let error = publish_laps(publisher).unwrap_err();
    assert!(matches!(error, PublishError::WouldWaitForItself), "{error}");
}

/// A call that receives the only message.
type Receive = fn(&mut Subscriber);

const FORMS: [(&str, Receive); 8] = [
    ("receive", |subscriber| assert_eq!(subscriber.receive().unwrap().payload(), b"one")),
    ("try_receive", |subscriber| assert!(subscriber.try_receive().unwrap().is_some())),
    ("receive_timeout", |subscriber| {
        assert!(subscriber.receive_timeout(LIMIT).unwrap().is_some());
    }),
    ("receive_in_place", |subscriber| {
        assert!(subscriber.receive_in_place().unwrap().next().is_some())
    }),
    ("try_receive_in_place", |subscriber| {
        assert!(subscriber.try_receive_in_place().unwrap().is_some());
    }),
    ("receive_in_place_timeout", |subscriber| {
        assert!(subscriber.receive_in_place_timeout(LIMIT).unwrap().is_some());
    }),
    ("borrow", |subscriber| assert!(subscriber.borrow().unwrap().is_some())),
    ("fd", |subscriber| {
        subscriber.fd().unwrap();
        assert!(subscriber.try_receive().unwrap().is_some());
    }),
];

#[test]
fn a_thread_that_has_received_one_message_gets_the_error_at_once() {
    for (form, receive) in FORMS {
        in_time(move || {
            let fixture = Fixture::new();
            let (bus, publisher) = lossless(&fixture);
            let mut subscriber = bus.subscribe("t").unwrap();
            publisher.publish(b"one").unwrap();
            receive(&mut subscriber);
            assert_would_wait_for_itself(&publisher);
            assert_eq!(waits(&bus), 0, "{form}: the error comes at once");
            while subscriber.try_receive().unwrap().is_some() {}
            publisher.publish(b"still works").unwrap();
        });
    }
}

#[test]
fn a_router_that_has_received_one_message_gets_the_error_at_once() {
    in_time(|| {
        let fixture = Fixture::new();
        let (bus, publisher) = lossless(&fixture);
        let mut router = bus.router().unwrap();
        router.on("t", |_| {}).unwrap();
        publisher.publish(b"one").unwrap();
        assert!(router.run_once(LIMIT).unwrap());
        assert_would_wait_for_itself(&publisher);
        assert_eq!(waits(&bus), 0);
    });
}

#[test]
fn a_thread_that_has_never_read_gets_the_error_if_no_other_thread_reads() {
    in_time(|| {
        let fixture = Fixture::new();
        let (bus, publisher) = lossless(&fixture);
        let mut subscriber = bus.subscribe("t").unwrap();
        let began = Instant::now();
        assert_would_wait_for_itself(&publisher);
        assert!(began.elapsed() >= READER_TIMEOUT);
        // Calls that do not wait, or not that long, are not affected.
        let tried = publisher.try_publish([7; 100]);
        assert!(matches!(tried, Err(PublishError::Full)), "{tried:?}");
        assert!(subscriber.try_receive().unwrap().is_some());
    });
}

/// Waits in many short calls, like a language binding that regularly checks for something else.
#[test]
fn a_wait_of_many_calls_ends_as_well() {
    in_time(|| {
        let fixture = Fixture::new();
        let (bus, publisher) = lossless(&fixture);
        let _subscriber = bus.subscribe("t").unwrap();
        let error = loop {
            match publisher.publish_within([7; 100], READER_TIMEOUT / 100) {
                Ok(_) | Err(PublishError::Timeout) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, PublishError::WouldWaitForItself), "{error}");
    });
}

#[test]
fn a_thread_that_begins_to_read_late_is_waited_for() {
    in_time(|| {
        let fixture = Fixture::new();
        let (bus, publisher) = lossless(&fixture);
        let mut subscriber = bus.subscribe("t").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Only when the publisher waits.
                while waits(&bus) == 0 {
                    std::thread::yield_now();
                }
                for _ in 0..2000 {
                    assert_eq!(subscriber.receive().unwrap().payload(), [7; 100]);
                }
            });
            publish_laps(&publisher).unwrap();
        });
    });
}

#[test]
fn a_subscriber_returned_by_an_ended_thread_belongs_to_its_creator_again() {
    in_time(|| {
        let fixture = Fixture::new();
        let (bus, publisher) = lossless(&fixture);
        let mut subscriber = bus.subscribe("t").unwrap();
        publisher.publish(b"one").unwrap();
        let reader = std::thread::spawn(move || {
            subscriber.receive().unwrap();
            subscriber
        });
        let mut subscriber = reader.join().unwrap();
        assert_would_wait_for_itself(&publisher);
        assert!(subscriber.try_receive().unwrap().is_some());
    });
}
