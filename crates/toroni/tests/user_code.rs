//! User code that the library calls. It never runs under the writer lock, except for the closure of
//! `publish_with` and what that closure calls.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use common::Fixture;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use toroni::{Bus, Limit, LockKind, PublishError, Publisher, Subscriber};

const LOCKS: [LockKind; 2] = [LockKind::Lease, LockKind::Robust];
/// A few slices are kept on the stack, many on the heap.
const COUNTS: [usize; 3] = [1, 16, 40];

fn open(fixture: &Fixture, lock: LockKind) -> (Bus, Publisher, Subscriber) {
    let bus = fixture.config().lock(lock).capacity(64 << 10).open("b").unwrap();
    let (publisher, subscriber) = (bus.publisher("t").unwrap(), bus.subscribe("t").unwrap());
    (bus, publisher, subscriber)
}

fn received(subscriber: &mut Subscriber) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(message) = subscriber.try_receive().unwrap() {
        messages.push(message.payload().to_vec());
    }
    messages
}

/// A payload that publishes each time its bytes are requested.
struct Chatty<'a> {
    publisher: &'a Publisher,
    answers: &'a RefCell<Vec<Result<u64, PublishError>>>,
}

impl AsRef<[u8]> for Chatty<'_> {
    fn as_ref(&self) -> &[u8] {
        self.answers.borrow_mut().push(self.publisher.try_publish(b"aside"));
        b"payload"
    }
}

#[test]
fn a_payload_that_publishes_does_so_once_and_without_the_lock() {
    for lock in LOCKS {
        let fixture = Fixture::new();
        let (_bus, publisher, mut subscriber) = open(&fixture, lock);
        for count in COUNTS {
            let answers = RefCell::new(Vec::new());
            let payloads: Vec<_> =
                (0..count).map(|_| Chatty { publisher: &publisher, answers: &answers }).collect();
            let mut expected = vec![&b"aside"[..]; count];
            expected.resize(2 * count, b"payload");
            publisher.publish_batch(&payloads, Limit::Policy).unwrap();
            assert_eq!(received(&mut subscriber), expected);
            publisher.burst(&payloads, Limit::Policy).unwrap();
            assert_eq!(received(&mut subscriber), expected);
            let answers = answers.into_inner();
            assert_eq!(answers.len(), 2 * count);
            assert!(answers.iter().all(Result::is_ok), "{lock:?}: {answers:?}");
        }
    }
}

/// A payload that grows each time its bytes are requested.
struct Growing(Cell<usize>);

impl AsRef<[u8]> for Growing {
    fn as_ref(&self) -> &[u8] {
        self.0.set(self.0.get() + 700);
        &[7; 60_000][..self.0.get()]
    }
}

#[test]
fn a_payload_that_changes_is_published_as_it_was_first() {
    for lock in LOCKS {
        let fixture = Fixture::new();
        let (_bus, publisher, mut subscriber) = open(&fixture, lock);
        for count in COUNTS {
            let payloads = || (0..count).map(|_| Growing(Cell::new(0))).collect::<Vec<_>>();
            for batched in [true, false] {
                if batched {
                    publisher.publish_batch(&payloads(), Limit::Policy).unwrap();
                } else {
                    publisher.burst(&payloads(), Limit::Policy).unwrap();
                }
                let messages = received(&mut subscriber);
                assert_eq!(messages.len(), count);
                assert!(messages.iter().all(|message| message.len() == 700));
            }
        }
    }
}

/// A payload that panics when its bytes are requested.
struct Panicking;

impl AsRef<[u8]> for Panicking {
    fn as_ref(&self) -> &[u8] {
        panic!("on purpose")
    }
}

#[test]
fn a_payload_that_panics_publishes_nothing_and_unlocks() {
    for lock in LOCKS {
        let fixture = Fixture::new();
        let (_bus, publisher, mut subscriber) = open(&fixture, lock);
        let calls: [&dyn Fn(); 2] =
            [&|| drop(publisher.publish_batch(&[Panicking], Limit::Policy)), &|| {
                drop(publisher.burst(&[Panicking], Limit::Policy))
            }];
        for call in calls {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
            publisher.try_publish(b"after").unwrap();
            assert_eq!(received(&mut subscriber), [b"after"]);
        }
    }
}

/// Publishes when it is dropped, and records the result.
struct LastWords(Publisher, Arc<Mutex<Vec<Result<u64, PublishError>>>>);

impl Drop for LastWords {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.try_publish(b"last words"));
    }
}

#[test]
fn a_closure_that_is_refused_is_dropped_without_the_lock() {
    // One more than the maximum nesting depth of closures.
    const BUSES: usize = 17;
    fn nest(publishers: &[Publisher], answers: &Arc<Mutex<Vec<Result<u64, PublishError>>>>) {
        let [first, rest @ ..] = publishers else { return };
        if rest.is_empty() {
            let words = LastWords(first.clone(), Arc::clone(answers));
            let refused = first.publish_with(1, Limit::Policy, move |_| drop(words));
            assert!(matches!(refused, Err(PublishError::Reentrant)), "{refused:?}");
            return;
        }
        first.publish_with(1, Limit::Policy, |_| nest(rest, answers)).unwrap();
    }
    for lock in LOCKS {
        let fixture = Fixture::new();
        let config = fixture.config().lock(lock).capacity(64 << 10);
        let buses: Vec<Bus> =
            (0..BUSES).map(|bus| config.clone().open(&format!("b{bus}")).unwrap()).collect();
        let publishers: Vec<Publisher> =
            buses.iter().map(|bus| bus.publisher("t").unwrap()).collect();
        let answers = Arc::default();
        nest(&publishers, &answers);
        let answers = answers.lock().unwrap();
        assert!(matches!(answers[..], [Ok(_)]), "{lock:?}: {answers:?}");
    }
}

#[test]
fn a_panic_hook_that_publishes_under_the_lock_is_refused() {
    for lock in LOCKS {
        let fixture = Fixture::new();
        let (_bus, publisher, mut subscriber) = open(&fixture, lock);
        let answers = Arc::new(Mutex::new(Vec::new()));
        let me = std::thread::current().id();
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new({
            let (publisher, answers) = (publisher.clone(), Arc::clone(&answers));
            move |panic| {
                if std::thread::current().id() == me {
                    answers.lock().unwrap().push(publisher.publish(b"from the hook"));
                } else {
                    others(panic);
                }
            }
        }));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            publisher.publish_with(8, Limit::Policy, |_| panic!("on purpose"))
        }));
        let _ = std::panic::take_hook();
        assert!(outcome.is_err());
        let answers = answers.lock().unwrap();
        assert!(matches!(answers[..], [Err(PublishError::Reentrant)]), "{answers:?}");
        publisher.try_publish(b"after").unwrap();
        assert_eq!(received(&mut subscriber), [b"after"]);
    }
}
