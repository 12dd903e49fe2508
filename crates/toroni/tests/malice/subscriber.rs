//! A hostile subscriber, which may write all of `readers`, lock any byte of it, and change the
//! sockets.

use crate::common::Fixture;
use crate::{CAPACITY, LONG, Raw, at, config, in_time, is_alone, under};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toroni::{Limit, NotifyKind, Policy, PublishError, Publisher, SubscriberError, WaitStrategy};

const MS: Duration = Duration::from_millis(1);
const ACTIVE: u32 = 1;
const GATES: u32 = 1;
const HAS_SOCKET: u32 = 2;

/// Acts as a subscriber that always claims not to have read the oldest message, changes every
/// counter, and holds its lease.
fn be_as_slow_as_allowed(readers: &Raw, ring: &Raw) {
    let slot = at::slot(3);
    let oldest = ring.get(at::RESERVED).saturating_sub(CAPACITY);
    readers.put(slot + at::POSITION, oldest);
    readers.put_u32(slot + at::FLAGS, GATES);
    readers.put_u32(slot + at::STATE, ACTIVE);
    readers.put_u32(at::SLOTS_USED, u32::MAX);
    for counter in [at::JOINS, at::SLEEPS, at::arming(0), at::arming(3)] {
        readers.put(counter, readers.get(counter).wrapping_add(1));
    }
}

#[test]
fn publishers_are_delayed_as_the_policy_says_and_no_longer() {
    let limit = 5 * MS;
    for policy in [
        Policy::Wait { limit: Some(limit) },
        Policy::Bounded { budget: limit, per: 50 * MS },
        Policy::Overwrite,
    ] {
        let fixture = Fixture::new();
        let bus = config(&fixture, policy).open("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        publisher.publish(b"first").unwrap();
        let (readers, ring) = (Raw::open(&fixture, "readers"), Raw::open(&fixture, "ring"));
        readers.lock(at::LEASES + 3, 1);
        let began = Instant::now();
        in_time("publishing", || {
            under(
                || be_as_slow_as_allowed(&readers, &ring),
                || {
                    // The payloads fill three laps of the ring.
                    for _ in 0..3 * CAPACITY / 1000 {
                        publisher.publish([7; 992]).unwrap();
                    }
                },
            );
        });
        // At most once per block, of which a lap has 64.
        assert!(began.elapsed() < LONG, "{policy:?}: {:?}", began.elapsed());
        let waited = bus.stats().unwrap().publishers.unwrap()[0].waits;
        assert_eq!(waited > 0, policy != Policy::Overwrite, "the attack has no effect: {policy:?}");
    }
}

const SLOTS: u32 = 1024;
const NONE: Policy = Policy::Wait { limit: None };
/// The time that a call with a limit of a few milliseconds may take on a busy machine. The attacks
/// below hold no lease, so they must not delay any other call longer either.
const BRIEF: Duration = Duration::from_secs(2);

type Call = (&'static str, fn(&Publisher) -> Result<(), PublishError>);

/// Each way to publish a message as long as a block.
const CALLS: [Call; 7] = [
    ("publish", |publisher| publisher.publish([7; 1016]).map(drop)),
    ("try_publish", |publisher| publisher.try_publish([7; 1016]).map(drop)),
    ("publish_within", |publisher| publisher.publish_within([7; 1016], 5 * MS).map(drop)),
    ("overwrite", |publisher| publisher.publish_within([7; 1016], Limit::Overwrite).map(drop)),
    ("publish_with", |publisher| {
        publisher.publish_with(1016, Limit::Policy, |words| words.fill(7)).map(drop)
    }),
    ("publish_batch", |publisher| publisher.publish_batch(&[[7; 1016]], Limit::Policy).map(drop)),
    ("burst", |publisher| {
        publisher.burst(&[[7; 1016]], Limit::Policy).map_err(|error| error.source)
    }),
];

/// Publishes in each way under each policy, while all slots claim to gate at the block that is
/// overwritten next. `generation` returns the generation of a slot at each step of the attacker,
/// and `prepare` does the rest of the attack.
fn attack_all_slots(generation: impl Fn(u64, u64) -> u64 + Sync, prepare: impl Fn(&Raw)) {
    let bounded = Policy::Bounded { budget: 5 * MS, per: 50 * MS };
    for policy in [NONE, Policy::Wait { limit: Some(5 * MS) }, bounded, Policy::Overwrite] {
        let fixture = Fixture::new();
        let bus = config(&fixture, policy).max_subscribers(SLOTS).open("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        for _ in 0..2 * CAPACITY / 1024 {
            publisher.publish([7; 1016]).unwrap();
        }
        let (readers, ring) = (Raw::open(&fixture, "readers"), Raw::open(&fixture, "ring"));
        prepare(&readers);
        let first = at::slots(SLOTS.into());
        let memory = readers.map(usize::try_from(first).unwrap() + 128 * SLOTS as usize);
        let turn = AtomicU64::new(0);
        let active = u64::from(ACTIVE);
        let attack = || {
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            let oldest = ring.get(at::RESERVED).saturating_sub(CAPACITY);
            for number in 0..u64::from(SLOTS) {
                let slot = first + 128 * number;
                memory.put(slot + at::POSITION, oldest);
                memory.put(slot + at::POSITION + 8, u64::from(GATES) << 32);
                memory.put(slot, active << 32 | generation(turn, number) & 0xFFFF_FFFF);
            }
            memory.put(at::SLOTS_USED, SLOTS.into());
            memory.put(at::JOINS, 1 + turn);
        };
        in_time("publishing", || {
            under(attack, || {
                for (name, call) in CALLS.iter().cycle().take(4 * CALLS.len()) {
                    attack();
                    let began = Instant::now();
                    let result = call(&publisher);
                    let took = began.elapsed();
                    assert!(took < BRIEF, "{name} under {policy:?} took {took:?}");
                    match result {
                        Ok(()) => {}
                        Err(PublishError::Full) => assert_eq!(*name, "try_publish"),
                        Err(PublishError::Timeout) => assert_eq!(*name, "publish_within"),
                        Err(error) => panic!("{name} under {policy:?}: {error}"),
                    }
                }
            });
        });
    }
}

/// Changes a different slot at each step, so that the slots that a publisher checks stay the same
/// for a while.
fn one_by_one(turn: u64, number: u64) -> u64 {
    (turn + number) / u64::from(SLOTS)
}

#[test]
fn slots_without_a_lease_hold_up_no_call() {
    attack_all_slots(|_, _| 1, |_| {});
}

#[test]
fn slots_whose_generation_changes_without_end_hold_up_no_call() {
    attack_all_slots(one_by_one, |_| {});
    attack_all_slots(|turn, _| turn, |_| {});
}

/// The kernel searches all locks of a file for each query.
#[test]
fn locks_without_number_hold_up_no_call() {
    attack_all_slots(one_by_one, |readers| readers.lock_many(4_000));
}

/// This is what the policy means, but each call can have its own limit.
#[test]
fn a_policy_without_a_limit_can_be_used_to_stop_publishers() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::Wait { limit: None }).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    publisher.publish(b"first").unwrap();
    let (readers, ring) = (Raw::open(&fixture, "readers"), Raw::open(&fixture, "ring"));
    let publish_laps = || {
        (0..3 * CAPACITY / 1000)
            .try_for_each(|_| publisher.publish_within([7; 992], 100 * MS).map(drop))
    };
    readers.lock(at::LEASES + 3, 1);
    be_as_slow_as_allowed(&readers, &ring);
    let stopped = in_time("publishing", publish_laps);
    assert!(matches!(stopped, Err(PublishError::Timeout)), "{stopped:?}");
    assert!(matches!(publisher.try_publish([7; 30_000]), Err(PublishError::Full)));
    // The attacker dies or leaves.
    drop(readers);
    in_time("publishing", publish_laps).unwrap();
}

/// Another process has written to a subscriber's slot that it is far behind. The publisher is in
/// the same process and knows better.
#[test]
fn others_cannot_make_a_publisher_wait_for_itself() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::Wait { limit: Some(LONG) }).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let mut subscriber = bus.subscribe("**").unwrap();
    let readers = Raw::open(&fixture, "readers");
    for _ in 0..4 {
        while subscriber.try_receive().unwrap().is_some() {}
        let position = subscriber.position();
        readers.put(at::slot(0) + at::POSITION, position.saturating_sub(CAPACITY / 2));
        for _ in 0..CAPACITY * 3 / 4 / 1000 {
            publisher.try_publish([7; 992]).unwrap();
        }
    }
    // What it has really not read still gates.
    while publisher.try_publish([7; 992]).is_ok() {}
    assert!(matches!(publisher.publish([7; 992]), Err(PublishError::WouldWaitForItself)));
}

#[test]
fn all_slots_can_be_taken_which_is_an_error_for_subscribers_alone() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::default()).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let readers = Raw::open(&fixture, "readers");
    readers.lock(at::LEASES, 1024);
    let refused = bus.subscribe("**").unwrap_err();
    assert!(matches!(refused, SubscriberError::TooManySubscribers { limit: 4 }), "{refused}");
    assert!(refused.to_string().contains("close some"), "{refused}");
    for _ in 0..3 * CAPACITY / 1000 {
        publisher.publish([7; 992]).unwrap();
    }
    bus.publisher("b").unwrap().publish(b"new").unwrap();
    drop(readers);
    drop(bus.subscribe("**").unwrap());
}

/// The attacker overwrites the patterns of all subscribers, again and again. Observers get an
/// answer, and messages go to the same subscribers as before.
#[test]
fn patterns_that_are_written_over_deceive_only_observers() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::Wait { limit: None }).open("b").unwrap();
    let mut subscriber = bus.subscribe("mine/*").unwrap();
    let mine = bus.publisher("mine/1").unwrap();
    let other = bus.publisher("other").unwrap();
    let readers = Raw::open(&fixture, "readers");
    readers.lock(at::LEASES + 1, 3);
    // The observer accepts some of it, because the generation matches and the version is even.
    let texts: [(u32, u32, &[u8; 8]); 4] = [
        (0, 8, b"**\n**\n**"),
        (1, 6, b"other\x1b*/"),
        (2, u32::MAX, b"mine/1\n*"),
        (2, 5, b"other\0**"),
    ];
    let deceive = || {
        for slot in 0..4 {
            readers.put_u32(at::slot(slot) + at::STATE, ACTIVE);
            let area = at::patterns(slot);
            for (version, length, text) in texts {
                readers.put_u32(area, version);
                readers.put_u32(area + 8, length);
                readers.put(area + at::TEXT, u64::from_ne_bytes(*text));
            }
        }
    };
    let mut deceived = 0;
    in_time("looking", || {
        under(deceive, || {
            for _ in 0..200 {
                let shown = bus.stats().unwrap().subscribers.unwrap();
                deceived += shown.iter().filter(|one| one.matches("other") == Some(true)).count();
                other.publish(b"no").unwrap();
                mine.publish(b"yes").unwrap();
                assert_eq!(subscriber.receive().unwrap().topic(), "mine/1");
            }
        });
    });
    assert!(deceived > 0, "the attack has no effect");
    subscriber.add_pattern("more").unwrap();
    let shown = &bus.stats().unwrap().subscribers.unwrap()[0];
    assert_eq!((shown.matches("more"), shown.matches("other")), (Some(true), Some(false)));
}

/// The attacker binds a socket for each slot and requests wake-ups without end.
#[test]
fn a_publisher_opens_a_descriptor_for_each_slot_at_the_most() {
    if !is_alone("subscriber::a_publisher_opens_a_descriptor_for_each_slot_at_the_most") {
        return;
    }
    let fixture = Fixture::new();
    let config = config(&fixture, Policy::Overwrite).notify(NotifyKind::Datagram);
    let bus = config.max_subscribers(32).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    publisher.publish(b"first").unwrap();
    let readers = Raw::open(&fixture, "readers");
    let _sockets: Vec<UnixDatagram> = (0..64)
        .map(|slot| {
            let path = fixture.path().join(format!("b/sockets/{slot}.7"));
            UnixDatagram::bind(path).unwrap()
        })
        .collect();
    let ask = |count: u64| {
        readers.put_u32(at::SLOTS_USED, u32::MAX);
        for (number, slot) in (0..32).map(|number| (number, at::slot(number))) {
            readers.put_u32(slot, 7);
            readers.put_u32(slot + at::STATE, ACTIVE);
            readers.put_u32(slot + at::FLAGS, HAS_SOCKET);
            readers.put(at::arming(number), count << 32);
        }
        readers.put(at::SLEEPS, count);
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    in_time("publishing", || {
        for count in 1..200 {
            ask(count);
            publisher.publish(b"x").unwrap();
        }
    });
    let wakes = bus.stats().unwrap().publishers.unwrap()[0].wakes;
    assert!(wakes >= 32, "the attack has no effect: {wakes}");
    assert!((before + 1..=before + 32).contains(&open()), "{before} and then {}", open());
}

/// A process that may enter the directory of the sockets can send to them without end.
#[test]
fn a_flood_of_datagrams_delays_no_subscriber() {
    let fixture = Fixture::new();
    let config = config(&fixture, Policy::default()).notify(NotifyKind::Datagram);
    let bus = config.open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let mut subscriber = bus.subscribe("**").unwrap();
    let _ = subscriber.fd().unwrap();
    let names = std::fs::read_dir(fixture.path().join("b/sockets")).unwrap();
    let socket = names.last().unwrap().unwrap().path();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    let flood = || {
        for _ in 0..100 {
            let _ = sender.send_to(b"!", &socket);
        }
    };
    under(flood, || {
        for _ in 0..50 {
            assert!(in_time("try_receive", || subscriber.try_receive().unwrap().is_none()));
            let waited = in_time("receive_timeout", || subscriber.receive_timeout(MS));
            assert!(waited.unwrap().is_none());
            publisher.publish(b"x").unwrap();
            let received = in_time("receive", || subscriber.receive().map(|one| one.sequence()));
            assert!(received.is_ok());
        }
    });
}

/// The attacker says of another subscriber that it wants nothing. Publishers do not wake it; it finds its messages by itself.
#[test]
fn bits_of_another_subscriber_delay_its_messages_only() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::default()).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let builder = bus.subscriber().pattern("a").wait(WaitStrategy::Block);
    let mut subscriber = builder.build().unwrap();
    let readers = Raw::open(&fixture, "readers");
    let deafen = || (0..4).for_each(|topic| readers.put(at::row(4, topic), u64::MAX));
    under(deafen, || {
        for _ in 0..20 {
            std::thread::scope(|scope| {
                let sleeper = scope
                    .spawn(|| subscriber.receive_timeout(LONG).unwrap().expect("one").sequence());
                std::thread::sleep(MS);
                let sequence = publisher.publish(b"x").unwrap();
                assert_eq!(sleeper.join().unwrap(), sequence);
            });
        }
    });
}

/// Any number of threads may wait on the word of a slot, which subscribers can read. A publish wakes one of them at most, so
/// it takes no longer with them.
#[test]
fn threads_that_wait_on_the_words_are_not_all_woken() {
    const THREADS: u32 = 300;
    const ARRIVALS: u32 = 16;
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::default()).max_arrivals(ARRIVALS).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let (readers, ring) = (Raw::open(&fixture, "readers"), Raw::open(&fixture, "ring"));
    let bytes = usize::try_from(ring.get(at::DATA_OFFSET)).unwrap();
    let ring = ring.map(bytes);
    let word = ring.word(at::wake_word(ARRIVALS.into(), 3));
    let (asleep, woken) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = std::sync::atomic::AtomicBool::new(false);
    let wait = || {
        asleep.fetch_add(1, Ordering::Relaxed);
        while !over.load(Ordering::Relaxed) {
            let is_woken = wait_on(word, 1000 * MS);
            woken.fetch_add(u64::from(is_woken), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|_| _ = scope.spawn(wait));
        while asleep.load(Ordering::Relaxed) < THREADS.into() {
            std::thread::sleep(MS);
        }
        readers.put_u32(at::SLOTS_USED, 4);
        for count in 1..=20 {
            readers.put_u32(at::arming(3), count);
            readers.put(at::SLEEPS, count.into());
            in_time("publishing", || publisher.publish(b"x").unwrap());
        }
        over.store(true, Ordering::Relaxed);
    });
    let wakes = bus.stats().unwrap().publishers.unwrap()[0].wakes;
    assert_eq!(wakes, 20, "the attack has no effect");
    assert!(woken.load(Ordering::Relaxed) <= 20, "{woken:?}");
}

/// The attacker makes all slots appear to have gone to sleep since the last message, at last with a thread that waits on the
/// word of each. A publish makes one round and one system call for each slot, which wakes at most one thread. With `--release
/// -- --nocapture`, the test prints what that costs.
#[test]
fn counters_that_are_raised_without_end_cost_a_round_and_a_call_for_each_slot() {
    const MESSAGES: u64 = 100;
    const WITH_THREADS: u64 = 20;
    const ARRIVALS: u32 = 16;
    let fixture = Fixture::new();
    let config = config(&fixture, Policy::Overwrite).max_subscribers(SLOTS);
    let bus = config.max_arrivals(ARRIVALS).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let wakes = || bus.stats().unwrap().publishers.unwrap()[0].wakes;
    let median = |messages: u64, attack: &dyn Fn()| {
        let publish = |_| {
            attack();
            let began = Instant::now();
            publisher.publish([7; 64]).unwrap();
            began.elapsed()
        };
        let mut times: Vec<Duration> = (0..messages).map(publish).collect();
        times.sort();
        times[times.len() / 2]
    };
    let alone = median(MESSAGES, &|| {});
    assert_eq!(wakes(), 0);

    let readers = Raw::open(&fixture, "readers");
    let memory = readers.map(usize::try_from(at::arming(SLOTS.into())).unwrap());
    let raise = |offset: u64| _ = memory.word(offset).fetch_add(1, Ordering::Relaxed);
    readers.put_u32(at::SLOTS_USED, SLOTS);
    // Only the common count: a round that finds no slot to wake.
    let round = median(MESSAGES, &|| raise(at::SLEEPS));
    assert_eq!(wakes(), 0, "no slot has armed");
    let all = || {
        (0..u64::from(SLOTS)).for_each(|slot| raise(at::arming(slot)));
        raise(at::SLEEPS);
    };
    let calls = median(MESSAGES, &all);
    assert_eq!(wakes(), MESSAGES * u64::from(SLOTS), "a call for each slot and message");
    // While another thread raises them all the time: no more calls than slots.
    let before = wakes();
    in_time("publishing", || {
        under(all, || (0..MESSAGES).for_each(|_| _ = publisher.publish([7; 64]).unwrap()));
    });
    let sent = wakes() - before;
    assert!(sent > 0 && sent <= MESSAGES * u64::from(SLOTS), "{sent} calls");

    let ring = Raw::open(&fixture, "ring");
    let ring = ring.map(usize::try_from(ring.get(at::DATA_OFFSET)).unwrap());
    let word = |slot| ring.word(at::wake_word(ARRIVALS.into(), slot));
    let (waiting, woken) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = std::sync::atomic::AtomicBool::new(false);
    let wait = |slot| {
        waiting.fetch_add(1, Ordering::Relaxed);
        while !over.load(Ordering::Relaxed) {
            woken.fetch_add(wait_on(word(slot), 1000 * MS).into(), Ordering::Relaxed);
        }
    };
    let before = wakes();
    let threads = std::thread::scope(|scope| {
        for slot in 0..u64::from(SLOTS) {
            let wait = &wait;
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread.spawn_scoped(scope, move || wait(slot)).unwrap();
        }
        while waiting.load(Ordering::Relaxed) < SLOTS.into() {
            std::thread::sleep(MS);
        }
        let threads = median(WITH_THREADS, &|| {
            // Those that were woken wait again.
            std::thread::sleep(10 * MS);
            all();
        });
        over.store(true, Ordering::Relaxed);
        threads
    });
    let (sent, woken) = (wakes() - before, woken.into_inner());
    assert_eq!(sent, WITH_THREADS * u64::from(SLOTS));
    assert!(woken > 0 && woken <= sent, "{woken} threads by {sent} calls");
    println!(
        "a publish takes {alone:?}, with a round {round:?}, with {SLOTS} calls {calls:?}, with as many threads {threads:?}"
    );
}

/// Waits on a futex word while it has the value that it has. Returns whether the wait was ended by a wake-up.
fn wait_on(word: &AtomicU32, at_most: Duration) -> bool {
    const FUTEX_WAIT: i32 = 0;
    let value = word.load(Ordering::Relaxed);
    let limit = libc::timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap(),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: the word is mapped while it is borrowed, and the time outlives the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), FUTEX_WAIT, value, &raw const limit)
    };
    answer == 0
}

/// The file's memory is freed while it is mapped. Reads return 0.
#[test]
fn publishers_continue_when_the_file_has_holes() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::default()).open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    let subscriber = bus.subscribe("**").unwrap();
    Raw::open(&fixture, "readers").punch();
    in_time("publishing", || {
        for _ in 0..3 * CAPACITY / 1000 {
            publisher.publish([7; 992]).unwrap();
        }
    });
    bus.publisher("b").unwrap().publish(b"another").unwrap();
    drop(subscriber);
}

/// Only a file that was created for sealing can be sealed, which would prevent others from writing
/// or truncating it.
#[test]
fn files_cannot_be_sealed() {
    let fixture = Fixture::new();
    let _bus = config(&fixture, Policy::default()).open("b").unwrap();
    for name in ["ring", "publishers", "readers"] {
        let raw = Raw::open(&fixture, name);
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(raw.file());
        for seal in [libc::F_SEAL_SEAL, libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_WRITE]
        {
            // SAFETY: an open descriptor.
            let answer = unsafe { libc::fcntl(descriptor, libc::F_ADD_SEALS, seal) };
            assert_eq!(answer, -1, "{name} was sealed");
        }
    }
}
