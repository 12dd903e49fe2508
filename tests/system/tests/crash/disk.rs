//! A bus on a disk: its user dies at each step, all others are gone too, and it is opened
//! again, on the same boot and after another one.
//!
//! On the same boot all that was committed is there. After another boot, which is simulated by another boot
//! id in the header, it is all there if the last publisher closed the bus in order, and else nothing
//! is: never a part. (What the disk itself keeps of unfinished writes cannot be shown without a
//! machine that loses its power; the page cache outlives these processes.)

use crate::matrix::{Victim, victim_of};
use crate::only;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;
use system_tests::check::Stream;
use system_tests::counters::SharedCounters;
use system_tests::worker::{BUNDLE, BUS, Fixture};
use system_tests::{Random, TempRoot, Watchdog};
use toroni::hook::CrashPoint;
use toroni::{Bus, Reopened, Start};

/// A bus on a disk.
struct Disk(Fixture);

impl Disk {
    /// `None` if `/var/tmp` is in memory.
    fn new() -> Option<Self> {
        let root = TempRoot::below(Path::new("/var/tmp"));
        let fixture = Fixture::on(root, |config| config.capacity(64 << 10));
        let on_disk = fixture.bus().stats().expect("statistics").on_disk;
        if !on_disk {
            eprintln!("skipped: /var/tmp is in memory");
        }
        on_disk.then_some(Self(fixture))
    }

    fn counters(&self) -> &SharedCounters {
        &self.0.counters
    }

    /// Runs a worker that dies at the point. Returns its number, and how many messages the bus confirmed to it.
    fn die(&mut self, role: &str, options: &[&str], point: CrashPoint, n: u64) -> (u32, u64) {
        let crash = format!("{}:{n}", point.name());
        let mut victim = self.0.start_doomed(role, options, &crash);
        let status = victim.running.wait();
        assert_eq!(status.signal(), Some(9), "{crash}: {status}{}", victim.running.errors());
        (victim.id, self.counters().count(victim.id))
    }

    /// Puts another boot id into the header, as if the machine had booted since.
    fn reboot(&self) {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
        let id = u128::from_str_radix(&digits, 16).expect("a number").to_be_bytes();
        let path = self.0.root.buses().join(BUS).join("ring");
        let ring = File::options().read(true).write(true).open(path).expect("the ring");
        let mut header = [0; 4096];
        ring.read_exact_at(&mut header, 0).expect("a header");
        let offset = header.windows(16).position(|window| window == id).expect("the boot id");
        ring.write_all_at(&[7; 16], offset as u64).expect("another boot id");
    }

    /// All that the bus holds, each message whole and in its place: how many of each worker.
    fn held(&self, bus: &Bus) -> HashMap<u32, u64> {
        let mut all = bus.subscriber().pattern("**").start(Start::Oldest).build().expect("all");
        let mut stream = Stream::default();
        while let Some(message) = all.try_receive().expect("received") {
            stream.take(message.sequence(), message.payload()).expect("whole, in its place");
        }
        stream.counts().clone()
    }

    /// A new publisher and a new subscriber find their places.
    fn exchange(&mut self) {
        let probe = self.0.start("probe", &["count=6"]);
        drop(probe.running.succeed());
    }
}

/// The points that somebody passes on this bus, by who it is.
fn points(wanted: impl Fn(CrashPoint) -> bool) -> impl Iterator<Item = CrashPoint> {
    let only = only();
    CrashPoint::ALL
        .iter()
        .copied()
        .filter(move |point| only.as_deref().is_none_or(|only| only == point.name()))
        .filter(move |point| wanted(*point))
}

#[test]
fn on_a_disk_a_publisher_dies_at_work_and_all_others_are_gone() {
    let _watchdog = Watchdog::start("crash", Duration::from_secs(900));
    let mut random = Random::from_environment();
    // There is no subscriber to wake.
    let at_work = |point| {
        victim_of(point) == Victim::Publisher
            && !matches!(point, CrashPoint::MidRound | CrashPoint::MidWake)
            // It gets to these once or twice.
            && !matches!(point, CrashPoint::MidDeclaration | CrashPoint::MidGrow)
    };
    for point in points(at_work) {
        for n in [1, 2, random.between(3, 12)] {
            let Some(mut disk) = Disk::new() else { return };
            let kind = match point {
                CrashPoint::TopicAppend => "topics",
                CrashPoint::MidBurst => "burst",
                CrashPoint::MidCopy => ["single", "batch", "burst"][random.index(3)],
                _ => ["single", "batch", "burst", "with"][random.index(4)],
            };
            let seed = format!("seed={}", random.number());
            println!("{point:?} {n} {kind} {seed}");
            let options = [&format!("kind={kind}"), "longest=200", "count=2000", &seed];
            let (victim, told) = disk.die("publish", &options, point, n);
            let bundle = if matches!(kind, "batch" | "burst") { BUNDLE as u64 } else { 1 };
            let is_within = |count: u64| (told..=told + bundle).contains(&count);

            if n == 2 {
                // The machine goes down: the bus was not closed, and nothing of it is believed.
                disk.reboot();
                let bus = disk.0.bus();
                assert_eq!(bus.reopened(), Some(Reopened::Emptied), "{point:?}");
                assert!(disk.held(&bus).is_empty());
            } else {
                // It stays up: all is there, of the last call all or nothing but in a burst.
                let bus = disk.0.bus();
                assert_eq!(bus.reopened(), None);
                let count = disk.held(&bus).get(&victim).copied().unwrap_or(0);
                assert!(is_within(count), "{point:?} {kind}: told {told}, {count} are there");
            }
            disk.exchange();
            let bus = disk.0.bus();
            let held = disk.held(&bus);
            drop(bus);
            // Closed in order by the last one, it is kept over the next boot.
            disk.reboot();
            let bus = disk.0.bus();
            let messages = held.values().sum();
            assert_eq!(bus.reopened(), Some(Reopened::Kept { messages }), "{point:?}");
            assert_eq!(disk.held(&bus), held);
            drop(bus);
            disk.exchange();
            disk.0.root.assert_clean_leaves_nothing();
        }
    }
}

#[test]
fn on_a_disk_a_publisher_dies_as_it_opens_or_closes_the_bus() {
    use CrashPoint as P;
    let _watchdog = Watchdog::start("crash", Duration::from_secs(900));
    let comes_or_leaves = |point| {
        matches!(point, P::MidMarkInUse | P::BeforeCloseMark | P::AfterCloseMark)
            || victim_of(point) == Victim::JoiningPublisher
    };
    for point in points(comes_or_leaves) {
        for n in [1, 2, 5] {
            for reboots in [false, true] {
                let Some(mut disk) = Disk::new() else { return };
                println!("{point:?} {n} {reboots}");
                let options = ["what=publish", &format!("count={}", n + 2)];
                let (victim, mut told) = disk.die("join", &options, point, n);
                if reboots {
                    disk.reboot();
                }
                let bus = disk.0.bus();
                let held = disk.held(&bus).get(&victim).copied().unwrap_or(0);
                if reboots {
                    // It took the mark away, or has not set it yet; else all is there.
                    let is_marked = match point {
                        P::MidMarkInUse | P::BeforeCloseMark => false,
                        P::AfterCloseMark | P::PublisherMidLeave => true,
                        // It opens a bus that was closed cleanly, except the first time.
                        _ => n > 1,
                    };
                    let expected = if is_marked {
                        Reopened::Kept { messages: told }
                    } else {
                        told = 0;
                        Reopened::Emptied
                    };
                    assert_eq!(bus.reopened(), Some(expected), "{point:?} {n}");
                }
                assert_eq!(held, told, "{point:?} {n}: what was told to be published is there");
                drop(bus);
                disk.exchange();
                disk.0.root.assert_clean_leaves_nothing();
            }
        }
    }
}

#[test]
fn on_a_disk_the_process_that_checks_the_bus_after_a_boot_dies() {
    use CrashPoint as P;
    let _watchdog = Watchdog::start("crash", Duration::from_secs(900));
    for point in points(|point| matches!(point, P::MidReopen | P::AfterReopen)) {
        for was_closed in [false, true] {
            let Some(mut disk) = Disk::new() else { return };
            println!("{point:?} {was_closed}");
            let options = ["kind=single", "count=20", "longest=100"];
            let publisher = if was_closed {
                let publisher = disk.0.start("publish", &options);
                drop(publisher.running.succeed());
                20
            } else {
                disk.die("publish", &options, P::BeforeUnlock, 12).1
            };
            disk.reboot();
            let join = ["what=subscribe", "count=1"];
            let (_, told) = disk.die("join", &join, point, 1);
            assert_eq!(told, 0);
            let messages = if was_closed { publisher } else { 0 };
            let expected = match (point, was_closed) {
                (P::AfterReopen, _) => None,
                (_, true) => Some(Reopened::Kept { messages }),
                (_, false) => Some(Reopened::Emptied),
            };
            let bus = disk.0.bus();
            assert_eq!(bus.reopened(), expected, "{point:?} {was_closed}");
            assert_eq!(disk.held(&bus).values().sum::<u64>(), messages);
            drop(bus);
            disk.exchange();
            disk.0.root.assert_clean_leaves_nothing();
        }
    }
}
