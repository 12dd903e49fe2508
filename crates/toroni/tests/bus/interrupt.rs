//! Tests of interrupting a blocked call from another thread and from a signal handler.

use crate::common::Fixture;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;
use toroni::{Bus, Interrupter, NotifyKind, ReceiveError, Subscriber, WaitStrategy};

const NEVER: Duration = Duration::from_secs(600);
/// The time limit for anything that must happen, on any machine.
const LONG: Duration = Duration::from_secs(60);

fn notifiers() -> [NotifyKind; 3] {
    [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }]
}

fn subscriber(bus: &Bus, wait: WaitStrategy) -> Subscriber {
    bus.subscriber().pattern("**").wait(wait).build().unwrap()
}

fn is_interrupted<T>(outcome: Result<T, ReceiveError>) -> bool {
    matches!(outcome, Err(ReceiveError::Interrupted))
}

#[test]
fn every_blocking_call_ends_whatever_it_sleeps_on() {
    for notify in notifiers() {
        for wait in [WaitStrategy::Block, WaitStrategy::Backoff, WaitStrategy::Spin] {
            let fixture = Fixture::new();
            let bus = fixture.config().notify(notify).open("b").unwrap();
            let mut subscriber = subscriber(&bus, wait);
            let interrupter = subscriber.interrupter().unwrap();
            let (ended, endings) = mpsc::channel();
            let receiver = std::thread::spawn(move || {
                ended.send(is_interrupted(subscriber.receive())).unwrap();
                ended.send(is_interrupted(subscriber.receive_timeout(NEVER))).unwrap();
                ended.send(is_interrupted(subscriber.receive_in_place())).unwrap();
                ended.send(is_interrupted(subscriber.receive_in_place_timeout(NEVER))).unwrap();
                // Each request ends one call.
                assert!(subscriber.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
                subscriber
            });
            for call in 0..4 {
                interrupter.interrupt();
                assert!(endings.recv_timeout(LONG).unwrap(), "call {call}, {notify:?}, {wait:?}");
            }
            let mut subscriber = receiver.join().unwrap();
            bus.publisher("t").unwrap().publish(b"on").unwrap();
            assert_eq!(subscriber.receive().unwrap().payload(), b"on");
        }
    }
}

#[test]
fn a_request_waits_for_the_next_blocking_call_and_loses_no_message() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let mut subscriber = subscriber(&bus, WaitStrategy::Block);
    let interrupter = subscriber.interrupter().unwrap();
    bus.publisher("t").unwrap().publish(b"first").unwrap();
    interrupter.interrupt();
    interrupter.clone().interrupt();
    assert_eq!(subscriber.receive().unwrap().payload(), b"first");
    assert!(subscriber.try_receive().unwrap().is_none());
    assert!(is_interrupted(subscriber.receive()));
    assert!(subscriber.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
    // The interrupter outlives its subscriber.
    drop((subscriber, bus));
    interrupter.interrupt();
}

#[test]
fn a_router_ends_even_if_it_never_waits() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let publisher = bus.publisher("t").unwrap();
    let mut router = bus.router().unwrap();
    let interrupter = router.interrupter().unwrap();
    let within = interrupter.clone();
    let mut left = 10;
    router
        .on("t", move |_| {
            left -= 1;
            if left == 0 {
                within.interrupt();
            }
            // There is always another message, up to a limit, so the test ends even if it fails.
            if left > -100 {
                publisher.publish(b"").unwrap();
            }
        })
        .unwrap();
    bus.publisher("t").unwrap().publish(b"").unwrap();
    assert!(is_interrupted(router.run()));
    assert_eq!(router.subscriber().stats().received, 10);
}

static IN_HANDLER: OnceLock<Interrupter> = OnceLock::new();

extern "C" fn handler(_signal: libc::c_int) {
    if let Some(interrupter) = IN_HANDLER.get() {
        interrupter.interrupt();
    }
}

#[test]
fn a_signal_handler_of_the_blocked_thread_ends_its_call() {
    let fixture = Fixture::new();
    let bus = fixture.open();
    let mut subscriber = subscriber(&bus, WaitStrategy::Block);
    IN_HANDLER.set(subscriber.interrupter().unwrap()).unwrap();
    // SAFETY: the handler only reads a static and makes a system call.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let (send, receive) = mpsc::channel();
    let receiver = std::thread::spawn(move || {
        // SAFETY: returns the id of the calling thread.
        send.send(unsafe { libc::pthread_self() }).unwrap();
        is_interrupted(subscriber.receive())
    });
    let thread = receive.recv().unwrap();
    // SAFETY: the thread has not been joined yet.
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    assert!(receiver.join().unwrap());
}
