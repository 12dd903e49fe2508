//! A process that crashes and dumps core: the kernel frees its leases when the dump is written. A process that can see
//! the crash earlier does not wait for that.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use system_tests::LIMIT;
use system_tests::core_dump::{self, Morgue};
use system_tests::worker::{BUS, Fixture, Worker};
use system_tests::{Watchdog, wait_until};
use toroni::{LockKind, Policy, PublishError};

const CAPACITY: u64 = 64 << 10;

fn morgue(fixture: &Fixture) -> Option<Morgue> {
    Morgue::open(fixture.root.file("cores"))
}

/// Starts a worker of the role `dump`, with its case.
fn start(morgue: &Morgue, fixture: &mut Fixture, case: &str) -> Worker {
    let cwd = format!("cwd={}", morgue.directory().display());
    fixture.start_ready("dump", &[case, &cwd])
}

fn is_dumping(worker: &Worker) -> bool {
    core_dump::is_dumping(worker.running.id())
}

/// It has crashed, and its slots are given back by `clean`.
fn assert_over(fixture: &Fixture, mut worker: Worker) {
    assert_eq!(worker.running.wait().signal(), Some(libc::SIGABRT));
    let _ = fixture.root.succeed(&["clean"]);
    fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn publishers_do_not_wait_for_a_core_dump_with_the_lock_lease() {
    let _watchdog = Watchdog::start("dump", Duration::from_secs(300));
    let mut fixture = Fixture::new(|config| config.capacity(CAPACITY).policy(Policy::Overwrite));
    let Some(mut morgue) = morgue(&fixture) else { return };
    let bus = fixture.bus();
    let publisher = bus.publisher("dump/survivor").expect("a publisher");
    let waiting = bus.publisher("dump/waiting").expect("a publisher");
    let mut worker = start(&morgue, &mut fixture, "case=publisher");
    wait_until("its threads publish", || fixture.messages() > 1000);
    worker.running.tell("crash");
    let dump = morgue.hold(worker.running.id());
    let mut subscriber = bus.subscribe("dump/**").expect("a subscriber");

    let info = fixture.root.info(BUS);
    let victim = info.publishers().iter().find(|one| one["pid"] == worker.running.id());
    assert_eq!(victim.expect("its slot")["dumping"], true, "{info:?}");
    assert!(fixture.root.succeed(&["info", BUS]).contains("is dumping core: the next publisher"));
    waiting.publish_within(b"waited", LIMIT).expect("published");
    publisher.publish(b"after").expect("published");
    assert!(is_dumping(&worker), "they did not wait for its end");

    for expected in [&b"waited"[..], b"after"] {
        assert_eq!(subscriber.receive().expect("received").payload(), expected);
    }
    assert!(subscriber.try_receive().expect("received").is_none());
    drop(dump);
    drop((subscriber, publisher, waiting, bus));
    assert_over(&fixture, worker);
}

/// The crash meets threads that copy, wait for the lock and wait for space. The survivors publish all the time, and check
/// for a dump whenever they make no progress.
#[test]
fn nothing_is_torn_by_a_process_that_begins_to_dump() {
    const SURVIVORS: usize = 2;
    let rounds: usize =
        std::env::var("TORONI_CRASHES").map_or(2, |rounds| rounds.parse().expect("a number"));
    let _watchdog = Watchdog::start("dump", Duration::from_secs(300 + 10 * rounds as u64));
    for _ in 0..rounds {
        let wait = Policy::Wait { limit: None };
        let mut fixture = Fixture::new(|config| config.capacity(CAPACITY).policy(wait));
        let Some(mut morgue) = morgue(&fixture) else { return };
        let bus = fixture.bus();
        let is_over = AtomicBool::new(false);
        let survived: [AtomicU64; SURVIVORS] = std::array::from_fn(|_| AtomicU64::new(0));
        let of_victim = AtomicU64::new(0);
        let mut subscriber = bus.subscribe("dump/**").expect("a subscriber");
        let mut worker = start(&morgue, &mut fixture, "case=publisher");
        std::thread::scope(|scope| {
            for count in &survived {
                let publisher = fixture.bus().publisher("dump/survivor").expect("a publisher");
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        publisher.publish_within(b"survivor", LIMIT).expect("published");
                        count.fetch_add(1, Relaxed);
                    }
                });
            }
            let (is_over, of_victim) = (&is_over, &of_victim);
            let reader = scope.spawn(move || {
                let mut ours = 0;
                loop {
                    let ended = is_over.load(Relaxed);
                    match subscriber.receive_timeout(Duration::from_millis(10)).expect("whole") {
                        Some(message) if message.topic() == "dump/victim" => {
                            assert_eq!(message.payload(), b"whole");
                            of_victim.fetch_add(1, Relaxed);
                        }
                        Some(message) => {
                            assert_eq!(message.payload(), b"survivor");
                            ours += 1;
                        }
                        // The survivors have ended, and the end of the stream is reached.
                        None if ended => return ours,
                        None => {}
                    }
                }
            });
            wait_until("the victim publishes", || of_victim.load(Relaxed) > 0);
            worker.running.tell("crash");
            let dump = morgue.hold(worker.running.id());
            for count in &survived {
                let before = count.load(Relaxed);
                wait_until("a survivor continues", || count.load(Relaxed) > before + 200);
            }
            assert!(is_dumping(&worker), "they did not wait for its end");
            drop(dump);
            is_over.store(true, Relaxed);
            let ours: u64 = reader.join().expect("the subscriber");
            // The last call of each may have ended after the subscriber had left.
            let published: u64 = survived.iter().map(|count| count.load(Relaxed)).sum();
            assert!(published.abs_diff(ours) <= SURVIVORS as u64, "{ours} of {published}");
        });
        drop(bus);
        assert_over(&fixture, worker);
    }
}

#[test]
fn publishers_wait_for_a_core_dump_with_the_lock_robust_and_it_is_named() {
    let _watchdog = Watchdog::start("dump", Duration::from_secs(300));
    let configure = |config: toroni::BusConfig| config.capacity(CAPACITY).policy(Policy::Overwrite);
    let mut fixture = Fixture::new(|config| configure(config).lock(LockKind::Robust));
    let Some(mut morgue) = morgue(&fixture) else { return };
    let bus = fixture.bus();
    let publisher = bus.publisher("dump/survivor").expect("a publisher");
    let mut worker = start(&morgue, &mut fixture, "case=publisher");
    worker.running.tell("crash");
    let dump = morgue.hold(worker.running.id());
    let timed = publisher.publish_within(b"early", Duration::from_millis(20));
    assert!(matches!(timed, Err(PublishError::Timeout)), "{timed:?}");
    if cfg!(target_env = "gnu") {
        assert_eq!(fixture.root.info(BUS).0["lock_owner"]["dumping"], true);
        let text = fixture.root.succeed(&["info", BUS]);
        assert!(text.contains("is dumping core: publishers wait"), "{text}");
    }
    drop(dump);
    publisher.publish(b"late").expect("published");
    drop((publisher, bus));
    assert_over(&fixture, worker);
}

#[test]
fn publishers_do_not_wait_for_a_subscriber_that_dumps_core() {
    let _watchdog = Watchdog::start("dump", Duration::from_secs(300));
    let wait = Policy::Wait { limit: None };
    let mut fixture = Fixture::new(|config| config.capacity(CAPACITY).policy(wait));
    let Some(mut morgue) = morgue(&fixture) else { return };
    let bus = fixture.bus();
    let mut publishers =
        ["publish", "try"].map(|topic| fixture.bus().publisher(topic).expect("a publisher"));
    let mut worker = start(&morgue, &mut fixture, "case=subscriber");
    while publishers[0].try_publish([7; 1000]).is_ok() {}
    worker.running.tell("crash");
    let dump = morgue.hold(worker.running.id());

    let info = fixture.root.info(BUS);
    assert_eq!(info.subscribers()[0]["dumping"], true, "{info:?}");
    let [publisher, trying] = &mut publishers;
    // More than a lap each.
    for _ in 0..100 {
        publisher.publish_within([8; 1000], LIMIT).expect("published");
    }
    wait_until("a try finds it out", || trying.try_publish([9; 1000]).is_ok());
    for _ in 0..100 {
        trying.try_publish([9; 1000]).expect("published");
    }
    assert!(is_dumping(&worker), "they did not wait for its end");
    drop(dump);
    drop((publishers, bus));
    assert_over(&fixture, worker);
}
