//! Threads that end with handles of the bus in their hands, in order, by a panic, or without a word.

use std::time::{Duration, Instant};
use system_tests::Watchdog;
use system_tests::worker::{BUS, Fixture};
use toroni::{LockKind, NotifyKind, PublishError};

fn fixture(lock: LockKind) -> Fixture {
    Fixture::new(|config| config.capacity(64 << 10).lock(lock))
}

#[test]
fn threads_end_with_their_handles_and_the_bus_does_not_notice() {
    let _watchdog = Watchdog::start("thread", Duration::from_secs(300));
    for lock in [LockKind::Lease, LockKind::Robust] {
        let mut fixture = fixture(lock);
        let worker = fixture.start("thread", &["case=ends"]);
        let said = worker.running.succeed();
        assert!(said.contains("ended"), "{lock:?}: {said}");
        fixture.root.info(BUS).assert_no_dead(true);
        fixture.root.assert_clean_leaves_nothing();
    }
}

#[test]
fn code_that_panics_under_the_lock_gives_it_back_and_publishes_nothing() {
    let _watchdog = Watchdog::start("thread", Duration::from_secs(300));
    for notify in [NotifyKind::Futex, NotifyKind::Datagram] {
        let mut fixture = Fixture::new(|config| config.capacity(64 << 10).notify(notify));
        let bus = fixture.bus();
        let mut subscriber = bus.subscribe("**").expect("a subscriber");
        subscriber.enable_fd().expect("a descriptor");
        let mut worker = fixture.start("thread", &["case=panics"]);
        worker.running.expect("ready");
        assert!(subscriber.try_receive().expect("received").is_none());
        worker.running.tell("go on");
        worker.running.expect("panicked");
        assert!(subscriber.try_receive().expect("received").is_none(), "something was published");
        bus.publisher("other").expect("a publisher").publish(b"other").expect("published");
        worker.running.tell("go on");
        worker.running.expect("after");
        for expected in [&b"other"[..], b"after"] {
            assert_eq!(subscriber.receive().expect("received").payload(), expected);
        }
        worker.running.tell("go on");
        drop(worker.running.succeed());
        drop((subscriber, bus));
        fixture.root.assert_clean_leaves_nothing();
    }
}

/// The kernel ends the thread while it holds the lock. `robust` belongs to the thread, so the next publisher takes over.
/// `lease` belongs to the process: as long as the process lives, its lock counts as held. Calls that wait for it end in
/// time, and `toroni info` names the owner. This is a limit, and the reason why code in `publish_with` must not end its
/// thread.
#[test]
fn a_thread_that_vanishes_under_the_lock() {
    let _watchdog = Watchdog::start("thread", Duration::from_secs(300));
    for lock in [LockKind::Lease, LockKind::Robust] {
        let mut fixture = fixture(lock);
        let bus = fixture.bus();
        let mut subscriber = bus.subscribe("**").expect("a subscriber");
        let publisher = bus.publisher("test").expect("a publisher");
        let mut worker = fixture.start("thread", &["case=vanishes"]);
        worker.running.expect("vanished");
        let began = Instant::now();
        let in_time = publisher.publish_within(b"other", Duration::from_millis(200));
        let is_robust = lock == LockKind::Robust;
        match is_robust {
            true => _ = in_time.expect("the next one takes over"),
            false => {
                assert!(matches!(in_time, Err(PublishError::Timeout)), "{in_time:?}");
                let tried = publisher.try_publish(b"other");
                assert!(matches!(tried, Err(PublishError::Busy)), "{tried:?}");
                let info = fixture.root.info(BUS);
                assert_eq!(info.lock_owner_pid(), Some(worker.running.id().into()), "{info:?}");
            }
        }
        println!("{lock:?}: after {:?}", began.elapsed());
        worker.running.tell("go on");
        let sibling = if is_robust { "sibling published" } else { "sibling waits" };
        worker.running.expect(sibling);
        worker.running.kill();
        publisher.publish(b"late").expect("published");
        let expected: &[&[u8]] = match is_robust {
            true => &[b"before", b"other", b"sibling", b"late"],
            false => &[b"before", b"late"],
        };
        for expected in expected {
            let message = subscriber.receive().expect("received");
            assert_eq!(message.payload(), *expected, "{lock:?}");
        }
        assert!(subscriber.try_receive().expect("received").is_none(), "{lock:?}");
        drop((publisher, subscriber, bus));
        fixture.root.assert_clean_leaves_nothing();
    }
}
