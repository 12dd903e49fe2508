//! Slow subscribers, and stopped ones, under each policy; and a publisher that is stopped while it
//! holds the writer lock.

use std::time::{Duration, Instant};
use system_tests::info::number;
use system_tests::worker::{BUS, Fixture, Seen, Worker};
use system_tests::{Watchdog, wait_until};
use toroni::{LockKind, Policy, PublishError, Publisher};
use toroni_testkit::order::Agreement;
use toroni_testkit::turn;

const CAPACITY: u64 = 64 << 10;
const BYTES: usize = 1000;
/// More messages of this size than fit into the ring.
const LAP: u64 = CAPACITY / BYTES as u64 + 10;

/// A bus with a subscriber that another process reads.
struct Setup {
    fixture: Fixture,
    subscriber: Worker,
    published: u64,
}

impl Setup {
    fn new(policy: Policy) -> Self {
        let mut fixture = Fixture::new(|config| config.capacity(CAPACITY).policy(policy));
        let subscriber = fixture.start_ready("subscribe", &[]);
        Self { fixture, subscriber, published: 0 }
    }

    fn publisher(&self) -> Publisher {
        self.fixture.bus().publisher("slow").expect("a publisher")
    }

    /// Publishes this number of messages, and returns how long the longest call took.
    fn publish(&mut self, publisher: &Publisher, messages: u64) -> Duration {
        let mut longest = Duration::ZERO;
        let mut bytes = Vec::new();
        for _ in 0..messages {
            // All of one worker: the subscriber checks that they are in order.
            let payload = system_tests::payload::Payload { worker: 99, counter: self.published };
            system_tests::payload::encode(payload, BYTES, &mut bytes);
            let began = Instant::now();
            publisher.publish(&bytes).expect("published");
            longest = longest.max(began.elapsed());
            self.published += 1;
        }
        longest
    }

    /// A number of the only publisher in `toroni info`.
    fn of_publisher(&self, name: &str) -> u64 {
        number(&self.fixture.root.info(BUS).publishers()[0], name)
    }

    fn waited(&self) -> Duration {
        let info = self.fixture.root.info(BUS);
        let seconds = info.publishers()[0]["waited_seconds"].as_f64().expect("seconds");
        Duration::from_secs_f64(seconds)
    }

    /// Until the subscriber has read everything, or knows what it lost.
    fn catch_up(&self) {
        let (root, published) = (&self.fixture.root, self.published);
        wait_until("the subscriber has caught up", || {
            let info = root.info(BUS);
            let subscriber = &info.subscribers()[0];
            number(subscriber, "received") + number(subscriber, "lost_messages") == published
        });
    }

    /// Ends the subscriber. What it received and what the bus reported as lost is all there was.
    fn finish(self) -> Seen {
        let Self { fixture, subscriber, published } = self;
        assert_eq!(fixture.messages(), published);
        let mut order = Agreement::default();
        let mut seen = fixture.finish_subscribers(published, [subscriber], &mut order);
        fixture.root.assert_clean_leaves_nothing();
        let seen = seen.pop().expect("one subscriber");
        assert_eq!(seen.received + seen.lost, published);
        seen
    }
}

#[test]
fn wait_delays_publishers_up_to_its_limit_and_no_longer() {
    let _turn = turn();
    let _watchdog = Watchdog::start("slow", Duration::from_secs(300));
    let limit = Duration::from_millis(400);
    let mut setup = Setup::new(Policy::Wait { limit: Some(limit) });
    let publisher = setup.publisher();
    // In parts that fit: a busy machine may hold the subscriber up for longer than the limit.
    for _ in 0..3 {
        setup.publish(&publisher, LAP / 2);
        setup.catch_up();
    }
    assert_eq!(setup.of_publisher("overwrites"), 0, "a subscriber that reads is not overtaken");

    let mut limits = Duration::ZERO;
    for lapse in 1..=2 {
        setup.subscriber.running.stop();
        let (waits, waited) = (setup.of_publisher("waits"), setup.waited());
        // Four laps: only the first message without space waits. A lapped subscriber gates no publisher.
        let longest = setup.publish(&publisher, 4 * LAP);
        assert!(longest >= limit, "waited only {longest:?}");
        assert_eq!(setup.of_publisher("waits"), waits + 1);
        assert_eq!(setup.of_publisher("overwrites"), lapse);
        let waited = setup.waited() - waited;
        // Counted is what it slept. Each slice of a millisecond may take much longer on a busy machine,
        // but not all of them.
        let range = limit / 2..10 * limit;
        assert!(range.contains(&waited), "waited {waited:?} instead of {limit:?}");
        limits += waited;
        setup.subscriber.running.resume();
        setup.catch_up();
    }
    println!("two lapses under a limit of {limit:?} cost {limits:?}");
    drop(publisher);
    let seen = setup.finish();
    assert_eq!(seen.lapses, 2);
    assert!(seen.lost >= 2 * 3 * LAP, "{seen:?}");
}

#[test]
fn wait_without_a_limit_waits_as_long_as_the_subscriber_lives() {
    let _turn = turn();
    let _watchdog = Watchdog::start("slow", Duration::from_secs(300));
    let mut setup = Setup::new(Policy::Wait { limit: None });
    let publisher = setup.publisher();
    setup.subscriber.running.stop();
    while publisher.try_publish(b"").is_ok() {
        setup.published += 1;
    }
    assert!(matches!(publisher.try_publish(b""), Err(PublishError::Full)));
    let in_time = publisher.publish_within(b"", Duration::from_millis(50));
    assert!(matches!(in_time, Err(PublishError::Timeout)), "{in_time:?}");
    // It dies while a publisher waits for it. The publisher continues.
    let waiting = std::thread::spawn(move || publisher.publish(b"").expect("published"));
    let root = &setup.fixture.root;
    let waits = || number(&root.info(BUS).publishers()[0], "waits");
    let before = waits();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished() && waits() == before, "it waits");
    setup.subscriber.running.kill();
    waiting.join().expect("the publisher");
    assert_eq!(setup.fixture.messages(), setup.published + 1);
    setup.fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn overwrite_never_delays() {
    let _turn = turn();
    let _watchdog = Watchdog::start("slow", Duration::from_secs(300));
    let mut setup = Setup::new(Policy::Overwrite);
    let publisher = setup.publisher();
    setup.publish(&publisher, 10);
    setup.catch_up();
    setup.subscriber.running.stop();
    let longest = setup.publish(&publisher, 20 * LAP);
    assert_eq!((setup.of_publisher("waits"), setup.waited()), (0, Duration::ZERO));
    println!("the longest of {} calls took {longest:?}", 20 * LAP);
    setup.subscriber.running.resume();
    setup.catch_up();
    drop(publisher);
    let seen = setup.finish();
    assert_eq!(seen.lapses, 1);
    assert!(seen.lost >= 19 * LAP, "{seen:?}");
}

#[test]
fn bounded_delays_at_most_its_budget_in_each_interval() {
    let _turn = turn();
    let _watchdog = Watchdog::start("slow", Duration::from_secs(300));
    let (budget, per) = (Duration::from_millis(20), Duration::from_secs(1));
    let policy = Policy::Bounded { budget, per };
    let mut setup = Setup::new(policy);
    // A stopped subscriber costs the budget once, and then is lapped.
    let publisher = setup.publisher();
    setup.subscriber.running.stop();
    setup.publish(&publisher, 4 * LAP);
    assert_eq!(setup.of_publisher("overwrites"), 1);
    let waited = setup.waited();
    assert!(waited >= budget / 2 && waited < per / 2, "waited {waited:?} instead of {budget:?}");
    setup.subscriber.running.resume();
    setup.catch_up();
    drop(publisher);
    let seen = setup.finish();
    assert_eq!(seen.lapses, 1);

    // One that is slow all the time slows two publishers together by the budget of each interval.
    // Without it they would wait nearly always.
    let mut fixture = Fixture::new(|config| config.capacity(CAPACITY).policy(policy));
    let subscriber = fixture.start_ready("subscribe", &["lazy_every=1", "lazy_us=4000"]);
    let publishers = [0, 1].map(|_| fixture.start_ready("publish", &["kind=single"]));
    let began = Instant::now();
    std::thread::sleep(4 * per);
    let (wall, info) = (began.elapsed(), fixture.root.info(BUS));
    let total = fixture.stop_publishers(publishers);
    let intervals = u32::try_from(wall.as_millis() / per.as_millis()).expect("few") + 2;
    for publisher in info.publishers() {
        let waited = publisher["waited_seconds"].as_f64().expect("seconds");
        println!("waited {waited:.3} s of {wall:?}, {intervals} intervals of {budget:?}");
        assert!(waited > 0.0, "no publisher waited: {info:?}");
        let limit = (intervals * budget).as_secs_f64();
        // A slice of a millisecond takes longer on a busy machine.
        assert!(waited < 8.0 * limit, "waited {waited} s of {wall:?}: {info:?}");
    }
    let seen = fixture.finish_subscribers(total, [subscriber], &mut Agreement::default());
    assert_eq!(seen[0].received + seen[0].lost, total);
    assert!(seen[0].lapses > 0 && seen[0].received > 0, "{seen:?}");
    fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn a_dead_owner_that_meets_only_tries_is_found_out_with_the_lock_lease() {
    let _turn = turn();
    // The first try sees who is in the way; the second sees the same owner, and asks if it lives.
    only_try_after_a_death(LockKind::Lease, 1);
}

#[test]
fn a_dead_owner_that_meets_only_tries_is_found_out_with_the_lock_robust() {
    let _turn = turn();
    only_try_after_a_death(LockKind::Robust, 0);
}

/// A publisher dies with the lock, and those who are left never wait for it.
fn only_try_after_a_death(lock: LockKind, busy_answers: u64) {
    let _watchdog = Watchdog::start("slow", Duration::from_secs(300));
    let mut fixture = Fixture::new(|config| config.capacity(CAPACITY).lock(lock));
    let bus = fixture.bus();
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    let publisher = bus.publisher("try").expect("a publisher");
    for round in 0..3u64 {
        // Under the lock, inside `publish_with`, it stops itself, and does not get further.
        let mut owner = fixture.start_ready("step", &["kind=stopping"]);
        owner.running.tell("publish");
        let pid = owner.running.id();
        wait_until("the owner is stopped", || toroni_testkit::process::is_stopped(pid));
        owner.running.kill();

        let mut busy = 0;
        // A busy machine changes nothing: the owner has been reaped, and with it its lease.
        while let Err(error) = publisher.try_publish(round.to_ne_bytes()) {
            assert!(matches!(error, PublishError::Busy), "{lock:?}: {error:?}");
            busy += 1;
            assert!(busy <= busy_answers, "{lock:?}: {busy} tries met the dead owner");
        }
        assert_eq!(busy, busy_answers, "{lock:?}");
        let message = subscriber.receive().expect("received");
        assert_eq!(message.payload(), round.to_ne_bytes(), "{lock:?}");
        assert!(subscriber.try_receive().expect("received").is_none(), "{lock:?}");
    }
    drop((publisher, subscriber, bus));
    let _ = fixture.root.succeed(&["clean"]);
    fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn a_publisher_that_is_stopped_with_the_lock_lease_is_named_and_not_dead() {
    let _turn = turn();
    stop_the_owner(LockKind::Lease);
}

#[test]
fn a_publisher_that_is_stopped_with_the_lock_robust_is_named_and_not_dead() {
    let _turn = turn();
    stop_the_owner(LockKind::Robust);
}

fn stop_the_owner(lock: LockKind) {
    let _watchdog = Watchdog::start("slow", Duration::from_secs(300));
    let mut fixture = Fixture::new(|config| config.capacity(CAPACITY).lock(lock));
    let subscriber = fixture.start_ready("subscribe", &[]);
    // Under the lock, inside `publish_with`, it stops itself.
    let mut owner = fixture.start_ready("step", &["kind=stopping"]);
    let publisher = fixture.bus().publisher("slow").expect("a publisher");
    owner.running.tell("publish");
    let pid = owner.running.id();
    wait_until("the owner is stopped", || toroni_testkit::process::is_stopped(pid));

    let (mut bytes, mut counter) = (Vec::new(), 0);
    let mut message = |bytes: &mut Vec<u8>| {
        let payload = system_tests::payload::Payload { worker: 99, counter };
        system_tests::payload::encode(payload, BYTES, bytes);
        counter += 1;
    };
    message(&mut bytes);
    for _ in 0..5 {
        let tried = publisher.try_publish(&bytes);
        assert!(matches!(tried, Err(PublishError::Busy)), "{tried:?}");
    }
    for ms in [1, 60] {
        let in_time = publisher.publish_within(&bytes, Duration::from_millis(ms));
        assert!(matches!(in_time, Err(PublishError::Timeout)), "{in_time:?}");
    }
    let info = fixture.root.info(BUS);
    assert_eq!(info.lock_owner_pid(), Some(pid.into()), "{info:?}");
    assert!(info.lock_owner_is_stopped(), "{info:?}");
    assert_eq!(info.0["lock_owner"]["alive"], true, "{info:?}");
    let text = fixture.root.succeed(&["info", BUS]);
    assert!(text.contains(&format!("pid {pid}")) && text.contains("stopped"), "{text}");

    // A publisher that waits without a limit gets the lock when the owner continues.
    let waiting = std::thread::spawn(move || {
        publisher.publish(&bytes).expect("published");
        (publisher, bytes)
    });
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiting.is_finished(), "no process takes the lock of the living");
    owner.running.resume();
    owner.running.expect("done");
    let (publisher, mut bytes) = waiting.join().expect("the publisher");
    message(&mut bytes);
    publisher.publish(&bytes).expect("published");
    drop(publisher);
    drop(owner.running.stdin());
    drop(owner.running.succeed());

    let total = fixture.messages();
    assert_eq!(total, 3);
    let seen = fixture.finish_subscribers(total, [subscriber], &mut Agreement::default());
    assert_eq!((seen[0].received, seen[0].lost), (3, 0));
    fixture.root.info(BUS).assert_no_dead(true);
    fixture.root.assert_clean_leaves_nothing();
}
