//! One test suite for all notifiers, between threads and between real processes.
//!
//! A child process is this test binary, run again with [`CHILD`] in its environment. Both ends map the same two
//! files, and subscribers map `ring` read-only, as they do on a bus. Timeouts are far longer than a wake-up takes,
//! so a lost wake-up shows as a timeout and is not repaired by the next recheck.

#![cfg(not(loom))]

use super::*;
use crate::sync::{AtomicU64, Ordering, fence};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;
use toroni_testkit::Directory;

/// The environment variable with the role of a child process: `<role> <kind> <directory> <group> <argument>`.
const CHILD: &str = "TORONI_NOTIFY_CHILD";
/// The timeout of a wait that a wake-up must end.
const NEVER: Duration = Duration::from_secs(40);
/// A wait that took this long was not ended by a wake-up, however loaded the machine is.
const LOST: Duration = Duration::from_secs(30);
const SLOTS: usize = 16;
const RECORDS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Futex,
    Datagram,
    Multicast,
}

macro_rules! conformance {
    ($($module:ident: $kind:expr;)*) => {
        $(mod $module {
            conformance!(@tests $kind,
                wakes_a_sleeper
                wakes_sleepers_of_before_the_publisher
                ping_pong_of_threads
                ping_pong_of_processes
                wakes_many_threads_at_once
                wakes_many_processes_at_once
                a_wake_while_falling_asleep_counts
                a_bystander_sleeps_on
                two_publishers_each_wake
                two_threads_share_their_wakers
                a_killed_sleeper_costs_one_wake
                needless_wakes_do_no_harm
                a_signal_ends_the_wait
                no_sleeper_no_system_call
                idle_costs_no_processor
            );
        })*
    };
    (@tests $kind:expr, $($test:ident)*) => {
        $(#[test] fn $test() { super::$test($kind) })*
    };
}

conformance! {
    futex: super::Kind::Futex;
    datagram: super::Kind::Datagram;
    multicast: super::Kind::Multicast;
}

fn wakes_a_sleeper(kind: Kind) {
    let fixture = Fixture::new(kind);
    let mut subscriber = fixture.subscriber(0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| subscriber.receive(0, 0));
        fixture.until_armed(1);
        assert_eq!(fixture.publish(&fixture.wakers(), 0, 7), 1);
        assert_eq!(sleeper.join().unwrap(), 7);
    });
}

fn wakes_sleepers_of_before_the_publisher(kind: Kind) {
    let fixture = Fixture::new(kind);
    let mut subscriber = fixture.subscriber(0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| subscriber.receive(0, 0));
        fixture.until_armed(1);
        thread::sleep(Duration::from_millis(10));
        // A new publisher knows nothing of earlier notifications.
        assert_eq!(fixture.publish(&fixture.wakers(), 0, 1), 1);
        assert_eq!(sleeper.join().unwrap(), 1);
    });
}

const ROUNDS: u64 = 3000;

/// Each side sleeps in each round, unless the answer comes before. Jitter moves the wake-up across all steps of
/// falling asleep.
fn play(fixture: &Fixture, slot: u32, listen: usize, answer: usize, begins: bool) {
    let (wakers, mut subscriber) = (fixture.wakers(), fixture.subscriber(slot));
    let mut jitter = Jitter(0x9E37_79B9 + u64::from(slot));
    for round in 1..=ROUNDS {
        if begins {
            jitter.spin();
            fixture.publish(&wakers, answer, round);
        }
        assert_eq!(subscriber.receive(listen, round - 1), round);
        if !begins {
            jitter.spin();
            fixture.publish(&wakers, answer, round);
        }
    }
}

fn ping_pong_of_threads(kind: Kind) {
    let fixture = Fixture::new(kind);
    thread::scope(|scope| {
        scope.spawn(|| play(&fixture, 1, 0, 1, false));
        play(&fixture, 0, 1, 0, true);
    });
}

fn ping_pong_of_processes(kind: Kind) {
    let fixture = Fixture::new(kind);
    let mut child = fixture.spawn("play", 1);
    play(&fixture, 0, 1, 0, true);
    child.succeeds();
}

fn wakes_many_threads_at_once(kind: Kind) {
    let fixture = Fixture::new(kind);
    let mut subscribers: Vec<_> = (0..12).map(|slot| fixture.subscriber(slot)).collect();
    thread::scope(|scope| {
        let sleepers: Vec<_> = subscribers
            .iter_mut()
            .map(|subscriber| scope.spawn(|| subscriber.receive(0, 0)))
            .collect();
        fixture.until_armed(12);
        let expected = if kind == Kind::Multicast { 1 } else { 12 };
        assert_eq!(fixture.publish(&fixture.wakers(), 0, 1), expected);
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), 1);
        }
    });
}

fn wakes_many_processes_at_once(kind: Kind) {
    let fixture = Fixture::new(kind);
    let mut sleepers: Vec<_> = (0..6).map(|slot| fixture.spawn("receive", slot)).collect();
    fixture.until_armed(6);
    fixture.publish(&fixture.wakers(), 0, 1);
    for sleeper in &mut sleepers {
        sleeper.succeeds();
    }
}

/// A subscriber that counts as woken must wake, even if the wake-up comes between any two of its steps.
fn a_wake_while_falling_asleep_counts(kind: Kind) {
    // These live as long as the thread, because the interlude borrows them. The directory does not.
    let mut fixture = Fixture::new(kind);
    let _owner = fixture.root.owner.take();
    let fixture: &'static Fixture = Box::leak(Box::new(fixture));
    let wakers: &'static Wakers = Box::leak(Box::new(fixture.wakers()));
    let mut subscriber = fixture.subscriber(0);
    let wakes_in_time = |subscriber: &Subscriber<'_>| {
        let started = Instant::now();
        subscriber.sleep(NEVER).unwrap();
        started.elapsed() < LOST
    };

    eventcount::interlude::set(|| assert_eq!(fixture.publish(wakers, 0, 1), 1));
    subscriber.arm();
    assert!(wakes_in_time(&subscriber), "between announcement and recheck");

    subscriber.arm();
    assert_eq!(fixture.publish(wakers, 0, 2), 1);
    assert!(wakes_in_time(&subscriber), "between recheck and sleep");
}

/// One that wants nothing of what is published is not woken, and costs no system call; and then it is for it.
fn a_bystander_sleeps_on(kind: Kind) {
    let fixture = Fixture::new(kind);
    let wakers = fixture.wakers();
    fixture.rows().set(1, 0, true);
    let mut subscriber = fixture.subscriber(0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| subscriber.receive(0, 0));
        fixture.until_armed(1);
        for value in 1..100 {
            assert_eq!(fixture.publish(&wakers, 1, value), 0);
        }
        assert_eq!(fixture.publish(&wakers, 0, 5), 1);
        assert_eq!(sleeper.join().unwrap(), 5);
    });
    assert_eq!(fixture.readers.sleeps.0.load(Ordering::Relaxed), 1, "it slept once");
}

fn two_publishers_each_wake(kind: Kind) {
    let fixture = Fixture::new(kind);
    let publishers = [fixture.wakers(), fixture.wakers()];
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut subscriber = fixture.subscriber(0);
            for value in 0..100 {
                assert_eq!(subscriber.receive(0, value), value + 1);
            }
        });
        for value in 0..100 {
            // What one has notified does not concern the other.
            fixture.until_armed(value + 1);
            assert!(fixture.publish(&publishers[to_usize(value) % 2], 0, value + 1) <= 1);
        }
        sleeper.join().unwrap();
    });
}

fn two_threads_share_their_wakers(kind: Kind) {
    let fixture = Fixture::new(kind);
    let wakers = fixture.wakers();
    thread::scope(|scope| {
        for record in 0..2 {
            let (fixture, wakers) = (&fixture, &wakers);
            scope.spawn(move || {
                let mut jitter = Jitter(7 + to_u64(record));
                for value in 1..=ROUNDS {
                    jitter.spin();
                    fixture.publish(wakers, record, value);
                }
            });
        }
        // The publishers do not wait for this subscriber, so it meets them at all steps of their wake-ups.
        let mut subscriber = fixture.subscriber(0);
        let mut seen = [0; 2];
        while seen != [ROUNDS; 2] {
            seen = subscriber.any(&[0, 1], seen);
        }
    });
}

fn a_killed_sleeper_costs_one_wake(kind: Kind) {
    let fixture = Fixture::new(kind);
    let wakers = fixture.wakers();
    let mut victim = fixture.spawn("receive", 0);
    fixture.until_armed(1);
    victim.kill();
    let mut subscriber = fixture.subscriber(1);
    thread::scope(|scope| {
        let survivor = scope.spawn(|| (subscriber.receive(0, 0), subscriber.receive(0, 1)));
        fixture.until_armed(2);
        assert!(fixture.publish(&wakers, 0, 1) <= 2);
        fixture.until_armed(3);
        assert_eq!(fixture.publish(&wakers, 0, 2), 1, "the dead sleeper is not woken again");
        assert_eq!(survivor.join().unwrap(), (1, 2));
    });
    fixture.publish(&wakers, 0, 3);
    for value in 4..1000 {
        assert_eq!(fixture.publish(&wakers, 0, value), 0);
    }
}

fn needless_wakes_do_no_harm(kind: Kind) {
    let fixture = Fixture::new(kind);
    let over = &fixture.ring.records[9].0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let wakers = fixture.wakers();
            while over.load(Ordering::Relaxed) == 0 {
                for count in fixture.readers.arming[..2].as_flattened() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                fixture.readers.sleeps.0.fetch_add(1, Ordering::Relaxed);
                fixture.notify(&wakers, Audience::All);
            }
        });
        let partner = scope.spawn(|| play(&fixture, 1, 0, 1, false));
        let result = std::panic::catch_unwind(|| play(&fixture, 0, 1, 0, true));
        over.store(1, Ordering::Relaxed);
        partner.join().unwrap();
        result.unwrap();
    });
}

fn a_signal_ends_the_wait(kind: Kind) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an all-zero sigaction is valid: no flags, so system calls are not restarted, and an empty mask. The
    // handler does nothing, and nothing else in these tests uses SIGURG, which is ignored by default.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()), 0);
    }
    let fixture = Fixture::new(kind);
    let (thread_id, of_sleeper) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut subscriber = fixture.subscriber(0);
            thread_id.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let started = Instant::now();
            subscriber.nap(NEVER).unwrap();
            started.elapsed()
        });
        let target = of_sleeper.recv().unwrap();
        fixture.until_armed(1);
        while !sleeper.is_finished() {
            // SAFETY: takes numbers only, and fails for a thread that has ended.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), target, libc::SIGURG) };
            thread::sleep(Duration::from_millis(1));
        }
        assert!(sleeper.join().unwrap() < LOST);
    });
}

fn no_sleeper_no_system_call(kind: Kind) {
    let fixture = Fixture::new(kind);
    fixture.spawn("silent", 0).succeeds();
}

/// A nap yields the processor once and does not poll. What that costs depends on the machine; the system tests
/// measure idle subscribers over seconds. Here it is enough that a nap that polls would use all of its time. Only the
/// time of this thread counts, so other tests may run beside it.
fn idle_costs_no_processor(kind: Kind) {
    use rustix::time::{ClockId, clock_gettime};
    const NAP: Duration = Duration::from_millis(50);
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let times_given_away = || -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let count = |line: &str| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok();
        status.lines().find_map(count).unwrap()
    };
    let fixture = Fixture::new(kind);
    let mut subscriber = fixture.subscriber(0);
    let (mut costs, mut times) = (Vec::new(), Vec::new());
    for _ in 0..16 {
        let (started, used_before, times_before) = (Instant::now(), used(), times_given_away());
        subscriber.nap(NAP).unwrap();
        assert!(started.elapsed() >= NAP, "a nap ended early");
        costs.push(used() - used_before);
        times.push(times_given_away() - times_before);
    }
    // Other processes can make single naps more expensive.
    costs.sort();
    times.sort_unstable();
    let (cost, times) = (costs[costs.len() / 4], times[times.len() / 4]);
    assert!(times <= 2, "a nap yields the processor {times} times");
    assert!(cost < NAP / 10, "a nap costs {cost:?}");
}

/// The other end of the tests between processes. Does nothing unless another test runs it in a process of its own.
#[test]
fn child() {
    let Ok(role) = std::env::var(CHILD) else { return };
    let words: Vec<_> = role.split(' ').collect();
    let [role, kind, directory, group, argument] = words[..] else { panic!("{words:?}") };
    let kind = match kind {
        "Futex" => Kind::Futex,
        "Datagram" => Kind::Datagram,
        "Multicast" => Kind::Multicast,
        other => panic!("{other}"),
    };
    let fixture = Fixture::open(Path::new(directory), kind, group.parse().unwrap());
    let slot = argument.parse().unwrap();
    match role {
        "play" => play(&fixture, slot, 0, 1, false),
        "receive" => assert_eq!(fixture.subscriber(slot).receive(0, 0), 1),
        "silent" => notify_where_system_calls_kill(fixture, slot),
        "scarce" => deliver_with_few_descriptors(&fixture),
        other => panic!("{other}"),
    }
}

/// In seccomp's strict mode, any system call but read, write and exit kills the thread.
fn notify_where_system_calls_kill(fixture: Fixture, slot: u32) {
    // The thread can neither unmap nor free when it ends, so what it uses has to stay.
    let fixture: &'static Fixture = Box::leak(Box::new(fixture));
    let wakers: &'static Wakers = Box::leak(Box::new(fixture.wakers()));
    let mut subscriber = fixture.subscriber(slot);
    subscriber.nap(Duration::from_millis(1)).unwrap();
    assert_eq!(fixture.publish(wakers, 0, 1), 1);
    thread::spawn(move || {
        // SAFETY: takes numbers only, and affects only this thread.
        let strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        let mut sent = 0;
        for value in 2..1000 {
            sent += fixture.publish(wakers, 0, value);
        }
        let verdict = if strict == 0 && sent == 0 { 1 } else { 2 };
        fixture.ring.records[1].0.store(verdict, Ordering::Release);
        // SAFETY: ends this thread. No other thread waits for anything on its stack.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    });
    let started = Instant::now();
    while fixture.ring.records[1].0.load(Ordering::Acquire) == 0 && started.elapsed() < LOST {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fixture.ring.records[1].0.load(Ordering::Acquire), 1);
    // Do not return: the runtime would look for the result of the thread.
    std::process::exit(0);
}

#[test]
fn few_descriptors_suffice() {
    Fixture::new(Kind::Datagram).spawn("scarce", 0).succeeds();
}

fn deliver_with_few_descriptors(fixture: &Fixture) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut subscribers: Vec<_> = (0..12).map(|slot| fixture.subscriber(slot)).collect();
    let wakers = fixture.wakers();
    for subscriber in &mut subscribers {
        subscriber.arm();
    }
    // The number of the next descriptor is the count of open ones. Three more may be opened.
    let next = rustix::io::dup(fixture.sockets.as_fd()).unwrap();
    let limit = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&next)).unwrap() + 3;
    drop(next);
    setrlimit(
        Resource::Nofile,
        Rlimit { current: Some(limit), maximum: getrlimit(Resource::Nofile).maximum },
    )
    .unwrap();
    assert_eq!(fixture.publish(&wakers, 0, 1), 12);
    for subscriber in &mut subscribers {
        subscriber.sleep(NEVER).unwrap();
    }
    assert_eq!(fixture.publish(&wakers, 0, 2), 0, "all have been notified");
}

/// Two files in place of a bus.
struct Fixture {
    kind: Kind,
    group: SocketAddrV4,
    sockets: OwnedFd,
    ring: &'static RingWords,
    ring_read_only: &'static RingWords,
    readers: &'static ReaderWords,
    root: TestDirectory,
}

/// Each word has its own cache line, as on a bus.
#[repr(C, align(128))]
struct Line<T>(T);

#[repr(C)]
struct RingWords {
    wake: [AtomicU32; SLOTS],
    asymmetric: Line<AtomicU32>,
    /// Each on a topic of its own number.
    records: [Line<AtomicU64>; RECORDS],
}

#[repr(C)]
struct ReaderWords {
    sleeps: Line<AtomicU64>,
    arming: [[AtomicU32; 2]; SLOTS],
    slots_used: AtomicU32,
    rows: [AtomicU64; RECORDS],
    slots: [SlotWords; SLOTS],
}

#[repr(C)]
struct SlotWords {
    generation: AtomicU32,
    has_socket: AtomicU32,
    flags: AtomicU32,
}

impl Fixture {
    fn new(kind: Kind) -> Self {
        let root = TestDirectory::new();
        for (name, length) in
            [("ring", size_of::<RingWords>()), ("readers", size_of::<ReaderWords>())]
        {
            let file = std::fs::File::create(root.path.join(name)).unwrap();
            file.set_len(u64::try_from(length).unwrap()).unwrap();
        }
        std::fs::create_dir(root.path.join("sockets")).unwrap();
        // Each test and process has its own group, or they would wake one another.
        let number = root.owner.as_ref().map_or(0, Directory::number);
        let id = (std::process::id() << 8) ^ number;
        let [a, b, c, d] = id.to_le_bytes();
        let port = 49152 | (u16::from_le_bytes([c, d]) & 0x3FFF);
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, a, b), port);
        Self::in_place(root, kind, group)
    }

    fn open(path: &Path, kind: Kind, group: SocketAddrV4) -> Self {
        let root = TestDirectory { path: path.to_owned(), owner: None };
        Self::in_place(root, kind, group)
    }

    fn in_place(root: TestDirectory, kind: Kind, group: SocketAddrV4) -> Self {
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        Self {
            kind,
            group,
            sockets: root.sockets(),
            ring: map(&root.path.join("ring"), read_write),
            ring_read_only: map(&root.path.join("ring"), ProtFlags::READ),
            readers: map(&root.path.join("readers"), read_write),
            root,
        }
    }

    fn wakers(&self) -> Wakers {
        if self.kind == Kind::Multicast {
            Wakers::with_multicast(MulticastWaker::connect(self.group).unwrap(), 16)
        } else {
            Wakers::with_datagrams(DatagramWaker::new(self.sockets.as_fd(), 16).unwrap(), 16)
        }
    }

    fn subscriber(&self, slot: u32) -> Subscriber<'_> {
        let words = &self.readers.slots[slot as usize];
        let generation = words.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.readers.slots_used.fetch_max(slot + 1, Ordering::Release);
        let waiter: Box<dyn Waiter> = match self.kind {
            Kind::Futex => Box::new(FutexWaiter::default()),
            Kind::Datagram => {
                let mode = Mode::from_raw_mode(0o666);
                Box::new(
                    DatagramWaiter::bind(self.sockets.as_fd(), slot, generation, mode).unwrap(),
                )
            }
            Kind::Multicast => Box::new(MulticastWaiter::join(self.group).unwrap()),
        };
        assert_eq!(waiter.fd().is_some(), self.kind != Kind::Futex);
        if self.kind == Kind::Datagram {
            words.has_socket.store(1, Ordering::Release);
        }
        Subscriber { fixture: self, waiter, slot, words }
    }

    fn publish(&self, wakers: &Wakers, record: usize, value: u64) -> usize {
        self.ring.records[record].0.store(value, Ordering::Release); // COMMIT
        self.notify(wakers, Audience::of(record.try_into().unwrap()))
    }

    fn notify(&self, wakers: &Wakers, audience: Audience) -> usize {
        fence(Ordering::SeqCst); // SLEEP
        let eventcount = self.eventcount();
        if !wakers.may_be_any(eventcount.sleeps) || !wakers.concerns(eventcount, audience) {
            return 0;
        }
        wakers.wake(eventcount, audience, |armed| {
            for (slot, words) in (0..).zip(&self.readers.slots) {
                if words.has_socket.load(Ordering::Acquire) == 1 {
                    let generation = words.generation.load(Ordering::Acquire);
                    armed.push(ArmedSlot { slot, generation });
                }
            }
            Ok(())
        })
    }

    fn eventcount(&self) -> EventCount<'static> {
        let ReaderWords { sleeps, arming, slots_used, .. } = self.readers;
        EventCount {
            wake: &self.ring.wake,
            sleeps: &sleeps.0,
            arming,
            slots_used,
            rows: self.rows(),
        }
    }

    fn rows(&self) -> Rows<'static> {
        Rows::new(&self.readers.rows, 1)
    }

    /// Waits until sleeps have been announced `count` times in all.
    fn until_armed(&self, count: u64) {
        let counter = &self.readers.sleeps.0;
        let started = Instant::now();
        while counter.load(Ordering::Acquire) < count {
            assert!(started.elapsed() < Duration::from_secs(60), "no sleep number {count}");
            thread::sleep(Duration::from_micros(100));
        }
    }

    fn spawn(&self, role: &str, argument: u32) -> Other {
        let (kind, path, group) = (self.kind, self.root.path.display(), self.group);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "notify::conformance::child", "--nocapture"])
            .env(CHILD, format!("{role} {kind:?} {path} {group} {argument}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Other(child)
    }
}

struct Subscriber<'a> {
    fixture: &'a Fixture,
    waiter: Box<dyn Waiter>,
    slot: u32,
    words: &'a SlotWords,
}

impl Subscriber<'_> {
    /// Waits until a record is not `old` any more, and returns its value.
    ///
    /// A subscriber that is armed may find the record before it sleeps. A test that counts datagrams keeps the
    /// subscriber until it has counted, because nothing is sent to one that has left.
    fn receive(&mut self, record: usize, old: u64) -> u64 {
        self.any(&[record], [old])[0]
    }

    /// Waits until some records are not all `old` any more, and returns their values.
    fn any<const N: usize>(&mut self, records: &[usize; N], old: [u64; N]) -> [u64; N] {
        let ring = self.fixture.ring_read_only;
        let look = || records.map(|record| ring.records[record].0.load(Ordering::Acquire));
        loop {
            let values = look();
            if values != old {
                return values;
            }
            self.arm();
            let values = look();
            if values != old {
                return values;
            }
            let started = Instant::now();
            self.sleep(NEVER).unwrap();
            assert!(started.elapsed() < LOST, "a wake-up was lost");
        }
    }

    fn nap(&mut self, timeout: Duration) -> io::Result<()> {
        self.arm();
        self.sleep(timeout)
    }

    fn arm(&mut self) {
        self.waiter.arm(self.arming_slot());
    }

    fn sleep(&self, timeout: Duration) -> io::Result<()> {
        self.waiter.wait(self.arming_slot(), Some(timeout))
    }

    fn arming_slot(&self) -> ArmingSlot<'static> {
        let (ring, readers) = (self.fixture.ring_read_only, self.fixture.readers);
        ArmingSlot {
            word: &ring.wake[self.slot as usize],
            asymmetric: &ring.asymmetric.0,
            sleeps: &readers.sleeps.0,
            arming: &readers.arming[self.slot as usize],
            flags: &readers.slots[self.slot as usize].flags,
            needs_fence: 4,
        }
    }
}

impl Drop for Subscriber<'_> {
    fn drop(&mut self) {
        self.words.has_socket.store(0, Ordering::Release);
    }
}

/// A child process, which ends with the test at the latest.
struct Other(Child);

impl Other {
    fn succeeds(&mut self) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "a child did not end");
            thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "{status}");
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of a test. The process that created it removes it at the end.
pub(super) struct TestDirectory {
    pub(super) path: PathBuf,
    owner: Option<Directory>,
}

impl TestDirectory {
    pub(super) fn new() -> Self {
        let owner = Directory::new();
        Self { path: owner.path().to_owned(), owner: Some(owner) }
    }

    fn sockets(&self) -> OwnedFd {
        open_directory(&self.path.join("sockets"))
    }
}

pub(super) fn open_directory(path: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).unwrap()
}

/// Maps a file as a `T`, which consists of atomics only, until the process ends.
fn map<T>(path: &Path, protection: ProtFlags) -> &'static T {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(protection.contains(ProtFlags::WRITE)).open(path).unwrap();
    assert!(usize::try_from(file.metadata().unwrap().len()).unwrap() >= size_of::<T>());
    // SAFETY: a new mapping at an address that the kernel chooses, never unmapped, page-aligned and as long as a
    // `T`. Any bytes are a valid `T`, and the processes that change them do so atomically.
    unsafe {
        let start = rustix::mm::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            protection,
            MapFlags::SHARED,
            &file,
            0,
        );
        &*start.unwrap().cast::<T>()
    }
}

/// Short, repeatable delays.
struct Jitter(u64);

impl Jitter {
    fn spin(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        for _ in 0..self.0 % 2048 {
            core::hint::spin_loop();
        }
    }
}

fn to_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap()
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap()
}
