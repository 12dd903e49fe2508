//! `fork` without exec: the child can do nothing with its parent's handles, and nothing to them.

use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use system_tests::info::number;
use system_tests::worker::{BUS, Fixture, Worker};
use system_tests::{Watchdog, wait_until};
use toroni::{Limit, LockKind, NotifyKind, Policy, PublishError};
use toroni_testkit::order::Agreement;

fn fixture(notify: NotifyKind) -> Fixture {
    Fixture::new(|config| config.capacity(64 << 10).notify(notify))
}

/// Both of its slots are there and alive.
fn assert_alive(fixture: &Fixture, worker: &Worker) {
    let info = fixture.root.info(BUS);
    for slots in [info.publishers(), info.subscribers()] {
        let pid = u64::from(worker.running.id());
        let mine = slots.iter().filter(|slot| number(slot, "pid") == pid);
        assert_eq!(mine.filter(|slot| slot["alive"] == true).count(), 1, "{info:?}");
    }
}

#[test]
fn a_child_is_refused_and_does_no_harm_and_can_open_the_bus_again() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    for notify in [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }] {
        let mut fixture = fixture(notify);
        let mut worker = fixture.start("fork", &["case=child"]);
        for said in ["one child", "two children"] {
            worker.running.expect(said);
            assert_alive(&fixture, &worker);
            worker.running.tell("go on");
        }
        let status = worker.running.wait();
        assert!(status.success(), "{notify:?}: {status}{}", worker.running.errors());
        fixture.root.info(BUS).assert_no_dead(true);
        fixture.root.assert_clean_leaves_nothing();
    }
}

#[test]
fn children_of_a_process_with_busy_threads_open_the_bus_again() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let forever = Policy::Wait { limit: None };
    let mut fixture = Fixture::new(|config| config.capacity(64 << 10).policy(forever));
    let mut worker = fixture.start("fork", &["case=busy", "capacity=65536"]);
    let status = worker.running.wait();
    assert!(status.success(), "{status}{}", worker.running.errors());
    fixture.root.info(BUS).assert_no_dead(true);
    fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn a_child_that_lives_on_does_not_keep_its_dead_parent_alive() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let mut fixture = fixture(NotifyKind::Futex);
    let mut worker = fixture.start("fork", &["case=orphan"]);
    let child: i32 = worker.running.expect("child").parse().expect("a pid");
    let child = Orphan(Pid::from_raw(child).expect("a pid"));
    assert_alive(&fixture, &worker);
    worker.running.kill();
    wait_until("the leases of the dead parent are free", || {
        let info = fixture.root.info(BUS);
        let mut slots = info.publishers().iter().chain(info.subscribers());
        slots.all(|slot| slot["alive"] == false)
    });
    // The bus itself is given back, too.
    assert!(rustix::process::test_kill_process(child.0).is_ok(), "the child lives");
    fixture.root.assert_clean_leaves_nothing();
}

/// The child of a worker, which this test has to end.
struct Orphan(Pid);

impl Drop for Orphan {
    fn drop(&mut self) {
        // It ends by nothing else before its alarm, so that the number is still its own.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn a_process_that_closes_all_descriptors_learns_that_its_lease_is_lost() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let mut fixture = fixture(NotifyKind::Futex);
    let mut worker = fixture.start("fork", &["case=daemon", "capacity=65536"]);
    worker.running.expect("again");
    assert_alive(&fixture, &worker);
    worker.running.tell("go on");
    let status = worker.running.wait();
    assert!(status.success(), "{status}{}", worker.running.errors());
    let _ = fixture.root.succeed(&["clean"]);
    fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn a_process_that_closes_all_descriptors_takes_no_lock_from_the_living() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let mut fixture = fixture(NotifyKind::Futex);
    let bus = fixture.bus();
    let mut worker = fixture.start("fork", &["case=careless", "against=owner"]);
    worker.running.expect("ready");
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    let publisher = bus.publisher("fork/owner").expect("a publisher");
    publisher
        .publish_with(5, Limit::Policy, |bytes| {
            bytes.write(0, b"who");
            worker.running.tell("go on");
            worker.running.expect("refused");
            bytes.write(3, b"le");
        })
        .expect("published");
    let message = subscriber.receive().expect("received").to_owned();
    assert_eq!((message.topic(), message.payload()), ("fork/owner", &b"whole"[..]));
    assert!(subscriber.try_receive().expect("received").is_none());
    worker.running.tell("go on");
    drop(worker.running.succeed());
}

#[test]
fn a_child_leaves_the_mark_of_an_exclusive_publisher_without_fences_alone() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let mut fixture = fixture(NotifyKind::Futex);
    let worker = fixture.start("fork", &["case=unfenced"]);
    drop(worker.running.succeed());
    fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn an_exclusive_publisher_that_closes_all_descriptors_stops_when_another_takes_over() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let mut fixture = fixture(NotifyKind::Futex);
    let bus = fixture.bus();
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    let publisher = bus.publisher("fork/owner").expect("a publisher");
    let mut worker = fixture.start("fork", &["case=exclusive"]);
    worker.running.expect("ready");
    let refused = publisher.publish(b"early");
    let pid = worker.running.id();
    assert!(
        matches!(&refused, Err(PublishError::Exclusive { pid: holder, .. }) if *holder == pid),
        "{refused:?}"
    );
    worker.running.tell("go on");
    worker.running.expect("closed");
    publisher.publish(b"taken over").expect("published");
    worker.running.tell("go on");
    worker.running.expect("refused");
    publisher.publish(b"after").expect("published");
    for expected in [&b"before"[..], b"after the child", b"taken over", b"after"] {
        assert_eq!(subscriber.receive().expect("received").payload(), expected);
    }
    assert!(subscriber.try_receive().expect("received").is_none());
    worker.running.tell("go on");
    drop(worker.running.succeed());
}

#[test]
fn an_exclusive_publisher_that_is_stopped_keeps_the_bus() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let mut fixture = fixture(NotifyKind::Futex);
    let publisher = fixture.bus().publisher("fork/owner").expect("a publisher");
    let worker = fixture.start_ready("publish", &["exclusive=true", "phase=ignored"]);
    worker.running.stop();
    for _ in 0..3 {
        let refused = publisher.publish(b"early");
        assert!(matches!(refused, Err(PublishError::Exclusive { .. })), "{refused:?}");
    }
    worker.kill(&mut Agreement::default());
    publisher.publish(b"after").expect("published");
}

#[test]
fn a_process_that_closes_all_descriptors_overwrites_no_living_subscriber() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let wait = Policy::Wait { limit: None };
    let mut fixture = Fixture::new(|config| config.capacity(64 << 10).policy(wait));
    let bus = fixture.bus();
    let options = ["case=careless", "against=reader", "capacity=65536"];
    let mut worker = fixture.start("fork", &options);
    worker.running.expect("ready");
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    worker.running.tell("go on");
    worker.running.expect("refused");
    while subscriber.try_receive().expect("received").is_some() {}
    assert_eq!(subscriber.stats().lost_messages, 0);
    worker.running.tell("go on");
    drop(worker.running.succeed());
}

#[test]
fn a_process_that_closes_all_descriptors_leaves_its_slot_to_the_next_subscriber() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    let mut fixture = Fixture::new(|config| config.capacity(64 << 10));
    let mut worker = fixture.start("fork", &["case=careless", "against=successor"]);
    worker.running.expect("ready");
    let bus = fixture.bus();
    let slot = |bus: &toroni::Bus| {
        let subscribers = bus.stats().expect("statistics").subscribers.expect("readable");
        assert_eq!(subscribers.len(), 1, "one slot, which changes hands");
        (subscribers[0].pid, subscribers[0].position, subscribers[0].patterns.clone())
    };
    assert_eq!(slot(&bus).0, worker.running.id());
    worker.running.tell("go on");
    worker.running.expect("closed");
    let subscriber = bus.subscribe("mine").expect("a subscriber");
    let before = slot(&bus);
    assert_eq!(before.0, std::process::id());
    bus.publisher("fork/owner").expect("a publisher").publish(b"news").expect("published");
    worker.running.tell("go on");
    worker.running.expect("refused");
    assert_eq!(slot(&bus), before);
    worker.running.tell("go on");
    drop(worker.running.succeed());
    drop(subscriber);
}

#[test]
fn a_child_that_is_made_under_the_lock_neither_commits_nor_unlocks() {
    let _watchdog = Watchdog::start("fork", Duration::from_secs(300));
    for lock in [LockKind::Lease, LockKind::Robust] {
        for case in ["case=inside", "case=beside"] {
            let mut fixture = Fixture::new(|config| config.capacity(64 << 10).lock(lock));
            let bus = fixture.bus();
            let mut subscriber = bus.subscribe("**").expect("a subscriber");
            let publisher = bus.publisher("fork/test").expect("a publisher");
            let mut worker = fixture.start("fork", &[case]);
            worker.running.expect("inside");
            // The child has ended, and its parent is at it still.
            let tried = publisher.publish_within(b"early", Duration::from_millis(50));
            assert!(matches!(tried, Err(PublishError::Timeout)), "{lock:?} {case}: {tried:?}");
            let early =
                subscriber.try_receive().expect("received").map(|message| message.to_owned());
            assert!(early.is_none(), "{lock:?} {case}: {early:?}");
            worker.running.tell("go on");
            worker.running.expect("outside");
            publisher.publish(b"late").expect("published");
            for expected in [&b"whole"[..], b"late"] {
                let message = subscriber.receive().expect("received");
                assert_eq!(message.payload(), expected, "{lock:?} {case}");
            }
            assert!(subscriber.try_receive().expect("received").is_none(), "{lock:?} {case}");
            worker.running.tell("go on");
            let status = worker.running.wait();
            assert!(status.success(), "{lock:?} {case}: {status}{}", worker.running.errors());
            drop((publisher, subscriber, bus));
            fixture.root.info(BUS).assert_no_dead(true);
            fixture.root.assert_clean_leaves_nothing();
        }
    }
}
