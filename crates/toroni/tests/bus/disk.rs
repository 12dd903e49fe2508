//! Tests of a bus on a disk. A different boot id in its header simulates a reboot.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;
use toroni::{
    Bus, BusConfig, Entry, FileError, Limit, OpenError, Origin, Reopened, Start, StreamKey,
    WaitStrategy,
};
use toroni_testkit::Directory;

/// A directory on a disk, if `/var/tmp` is on a disk.
struct Disk {
    path: PathBuf,
    /// `None` for a copy within another one.
    _owner: Option<Directory>,
}

impl Disk {
    fn new() -> Option<Self> {
        let owner = Directory::below("/var/tmp");
        let disk = Self { path: owner.path().to_owned(), _owner: Some(owner) };
        let on_disk = disk.open().stats().unwrap().on_disk;
        std::fs::remove_dir_all(disk.path.join("b")).unwrap();
        if !on_disk {
            eprintln!("skipped: /var/tmp is in memory");
        }
        on_disk.then_some(disk)
    }

    fn open(&self) -> Bus {
        BusConfig::new().directory(&self.path).capacity(64 << 10).open("b").unwrap()
    }

    fn publish(&self, messages: u32) {
        let bus = self.open();
        let publisher = bus.publisher("t").unwrap();
        for number in 0..messages {
            publisher.publish(number.to_le_bytes()).unwrap();
        }
    }

    fn received(&self) -> Vec<u32> {
        let bus = self.open();
        let mut all = bus.subscriber().pattern("t").start(Start::Oldest).build().unwrap();
        let mut numbers = Vec::new();
        while let Some(message) = all.try_receive().unwrap() {
            numbers.push(u32::from_le_bytes(message.payload().try_into().unwrap()));
        }
        numbers
    }

    /// Changes the boot id in the header, as if the machine had rebooted.
    fn reboot(&self) {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let digits: Vec<u8> = id.bytes().filter(u8::is_ascii_hexdigit).collect();
        let id: Vec<u8> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let ring = self.ring();
        let mut header = [0; 4096];
        ring.read_exact_at(&mut header, 0).unwrap();
        let offset = header.windows(16).position(|bytes| bytes == id).unwrap();
        ring.write_all_at(&[7; 16], offset as u64).unwrap();
    }

    /// Copies what the disk holds at the moment of a crash. No closing handle changes the copy.
    fn crashed(&self) -> Disk {
        let crashed = Disk { path: self.path.join("copy"), _owner: None };
        std::fs::create_dir_all(crashed.path.join("b/sockets")).unwrap();
        for file in ["ring", "publishers", "readers"] {
            std::fs::copy(self.path.join("b").join(file), crashed.path.join("b").join(file))
                .unwrap();
        }
        crashed
    }

    fn ring(&self) -> File {
        File::options().read(true).write(true).open(self.path.join("b/ring")).unwrap()
    }
}

#[test]
fn a_bus_that_was_closed_in_order_is_kept() {
    let Some(disk) = Disk::new() else { return };
    disk.publish(100);
    disk.publish(50);
    disk.reboot();
    let bus = disk.open();
    assert_eq!(bus.reopened(), Some(Reopened::Kept { messages: 150 }));
    assert_eq!(disk.open().reopened(), None, "only the first open after the boot reports it");
    drop(bus);
    assert_eq!(disk.received().len(), 150);
    disk.publish(1);
    assert_eq!(disk.received().last(), Some(&0));
}

/// The disk lost the last generation of a slot, so an ordinary publisher gets the one that an inlet had before.
#[test]
fn after_a_reboot_no_publisher_counts_as_the_one_that_brought_a_stream() {
    let Some(disk) = Disk::new() else { return };
    disk.publish(1);
    let publishers = disk.path.join("b/publishers");
    let before = std::fs::read(&publishers).unwrap();
    {
        let bus = disk.open();
        let inlet = bus.inlet().unwrap();
        let topic = inlet.topic("t").unwrap();
        let origin = Some(Origin { source: 1, series: 2, stream: 0, number: 7 });
        inlet
            .publish(&[Entry { origin, ..Entry::new(&topic, &[b"1234"]) }], Limit::Policy)
            .unwrap();
    }
    std::fs::write(&publishers, before).unwrap();
    disk.reboot();
    let bus = disk.open();
    assert_eq!(bus.reopened(), Some(Reopened::Kept { messages: 2 }));
    let _ordinary = bus.publisher("t").unwrap();
    assert_eq!(
        bus.inlet()
            .unwrap()
            .claim(StreamKey { source: 1, series: 2, stream: 0 }, Limit::Policy)
            .unwrap()
            .next,
        8
    );
}

/// Whatever the umask: users who could not subscribe cannot read payloads, neither before the
/// clean-close mark is written nor after the reboot.
#[test]
fn a_reboot_changes_no_rights() {
    let Some(disk) = Disk::new() else { return };
    let modes = || {
        ["ring", "publishers", "readers", "sockets"].map(|part| {
            disk.path.join("b").join(part).metadata().unwrap().permissions().mode() & 0o7777
        })
    };
    disk.publish(1);
    let made = modes();
    disk.reboot();
    assert_eq!(disk.open().reopened(), Some(Reopened::Kept { messages: 1 }));
    assert_eq!(modes(), made);
    let ring = made[0];
    assert!(ring & 0o666 == ring && ring >> 1 & 0o222 == ring & 0o222, "{ring:04o}");
    assert_eq!(made[1..3], [ring, ring]);
}

#[test]
fn a_bus_with_a_wrapped_ring_is_kept() {
    let Some(disk) = Disk::new() else { return };
    disk.publish(20_000);
    disk.reboot();
    let Some(Reopened::Kept { messages }) = disk.open().reopened() else { panic!("not kept") };
    let received = disk.received();
    assert_eq!(received.len() as u64, messages);
    assert!(messages > 3000 && received.last() == Some(&19_999));
}

#[test]
fn a_bus_in_use_at_the_crash_starts_empty() {
    let Some(disk) = Disk::new() else { return };
    let bus = disk.open();
    let publisher = bus.publisher("t").unwrap();
    publisher.publish(b"lost").unwrap();
    let crashed = disk.crashed();
    crashed.reboot();
    assert_eq!(crashed.open().reopened(), Some(Reopened::Emptied));
    assert!(crashed.received().is_empty());
    crashed.publish(3);
    assert_eq!(crashed.received(), [0, 1, 2]);
    drop(publisher);
}

/// The stream is another one, and may lack what had arrived.
#[test]
fn a_bus_that_starts_empty_has_no_arrivals() {
    let Some(disk) = Disk::new() else { return };
    let bring = |bus: &Bus| {
        let inlet = bus.inlet().unwrap();
        let next =
            inlet.claim(StreamKey { source: 1, series: 2, stream: 3 }, Limit::Policy).unwrap().next;
        let topic = inlet.topic("t").unwrap();
        let origin = Some(Origin { source: 1, series: 2, stream: 3, number: 8 });
        inlet.publish(&[Entry { origin, ..Entry::new(&topic, &[]) }], Limit::Policy).unwrap();
        next
    };
    let bus = disk.open();
    let publisher = bus.publisher("t").unwrap();
    assert_eq!(bring(&bus), 0);
    let crashed = disk.crashed();
    drop((publisher, bus));
    disk.reboot();
    assert_eq!(bring(&disk.open()), 9, "the bus was closed");
    crashed.reboot();
    assert_eq!(bring(&crashed.open()), 0);
}

/// Positions and sequences begin at 0 again. Who has saved some must notice that they are of another stream.
#[test]
fn a_bus_that_starts_empty_has_a_new_id() {
    let Some(disk) = Disk::new() else { return };
    disk.publish(3);
    let first = disk.open().id();
    assert_eq!(disk.open().id(), first);
    disk.reboot();
    assert_eq!(disk.open().id(), first, "it is kept");
    let bus = disk.open();
    let publisher = bus.publisher("t").unwrap();
    let crashed = disk.crashed();
    crashed.reboot();
    let emptied = crashed.open();
    assert_eq!(emptied.reopened(), Some(Reopened::Emptied));
    assert_ne!(emptied.id(), first);
    assert_eq!(emptied.stats().unwrap().id, emptied.id());
    drop(emptied);
    assert_ne!(crashed.open().id(), first);
    // The three files still belong together.
    crashed.publish(1);
    assert_eq!(crashed.received(), [0]);
    drop(publisher);
}

/// Neither waits for the exclusive publisher, and the last one leaves the mark.
#[test]
fn others_come_and_go_beside_an_exclusive_publisher() {
    let Some(disk) = Disk::new() else { return };
    let bus = disk.open();
    let exclusive = bus.exclusive().unwrap();
    exclusive.publish(&exclusive.topic("t").unwrap(), 0_u32.to_le_bytes(), Limit::Policy).unwrap();
    let other = disk.open();
    let publisher = other.publisher("t").unwrap();
    let staying = disk.open();
    let stays = staying.publisher("t").unwrap();
    drop((publisher, other));
    drop((exclusive, bus));
    stays.publish(1_u32.to_le_bytes()).unwrap();
    drop((stays, staying));
    disk.reboot();
    assert_eq!(disk.open().reopened(), Some(Reopened::Kept { messages: 2 }));
    assert_eq!(disk.received(), [0, 1]);
}

#[test]
fn a_clean_close_mark_over_broken_messages_is_not_trusted() {
    let Some(disk) = Disk::new() else { return };
    disk.publish(100);
    disk.reboot();
    let length = disk.ring().metadata().unwrap().len();
    // The header of a message in the middle of the stream. The stream is at the end of the file.
    disk.ring().write_all_at(&[0xFF; 8], length - (64 << 10) + 16 * 40).unwrap();
    assert_eq!(disk.open().reopened(), Some(Reopened::Emptied));
    disk.publish(2);
    assert_eq!(disk.received(), [0, 1]);
}

#[test]
fn the_last_publisher_leaves_the_mark_though_a_subscriber_stays() {
    let Some(disk) = Disk::new() else { return };
    let watcher = disk.open();
    let subscriber = watcher.subscribe("t").unwrap();
    let other = disk.open();
    let publisher = other.publisher("t").unwrap();
    disk.publish(5);
    drop((publisher, other));
    drop((subscriber, watcher));
    disk.reboot();
    assert_eq!(disk.open().reopened(), Some(Reopened::Kept { messages: 5 }));
}

#[test]
fn robust_locks_are_refused_on_a_disk() {
    let Some(disk) = Disk::new() else { return };
    let config = BusConfig::new().directory(&disk.path).lock(toroni::LockKind::Robust);
    let error = config.open("r").unwrap_err();
    assert!(matches!(error, OpenError::File(FileError::RobustOnDisk { .. })), "{error}");
}

#[test]
fn of_two_that_close_at_once_one_leaves_the_mark() {
    let Some(disk) = Disk::new() else { return };
    for _ in 0..20 {
        let publishers = [disk.open(), disk.open()].map(|bus| bus.publisher("t").unwrap());
        publishers[0].publish("x").unwrap();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for publisher in publishers {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    drop(publisher);
                });
            }
        });
        disk.reboot();
        assert!(matches!(disk.open().reopened(), Some(Reopened::Kept { .. })));
    }
}

/// The rows of topics may have any bits after a crash, and a publisher that empties the bus cannot write them. Topics begin
/// again, so a bit that stayed would keep wake-ups from the next subscriber. Its claim of the slot clears them.
#[test]
fn bits_that_were_left_in_the_rows_silence_no_subscriber_after_a_reset() {
    const SLEEPS: u64 = 128;
    const TOPICS: u64 = 40;
    const LONG: Duration = Duration::from_secs(60);
    let Some(disk) = Disk::new() else { return };
    let bus = disk.open();
    let in_use = bus.publisher("t").unwrap();
    let crashed = disk.crashed();
    drop((in_use, bus));
    crashed.reboot();
    let readers = File::options().read(true).write(true).open(crashed.path.join("b/readers"));
    let readers = readers.unwrap();
    // After the counts of 128 slots, 4,096 rows of two words.
    let mut random = toroni_testkit::Random::from_environment();
    let bits: Vec<u8> = (0..4096 * 2).flat_map(|_| random.number().to_le_bytes()).collect();
    readers.write_all_at(&bits, 4096 + 128 * 8).unwrap();

    let bus = crashed.open();
    assert_eq!(bus.reopened(), Some(Reopened::Emptied));
    let wanted = bus.publisher("wanted").unwrap();
    let wakes = || bus.stats().unwrap().publishers.unwrap()[0].wakes;
    let sleeps = || {
        let mut count = [0; 8];
        readers.read_exact_at(&mut count, SLEEPS).unwrap();
        u64::from_ne_bytes(count)
    };
    let builder = bus.subscriber().pattern("wanted").pattern("*/wanted");
    let mut subscriber = builder.wait(WaitStrategy::Block).build().unwrap();
    for topic in 0..TOPICS {
        let before = sleeps();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                subscriber.receive_timeout(LONG).unwrap().expect("a message").payload().to_vec()
            });
            toroni_testkit::wait::until("it sleeps", || sleeps() > before);
            let is_wanted = topic % 2 == 0;
            let name = format!("{topic}/{}", if is_wanted { "wanted" } else { "other" });
            // A topic that it cannot have seen, in a row that had bits.
            let publisher = bus.publisher(&name).unwrap();
            let before = wakes();
            publisher.publish("x").unwrap();
            let woken = wakes() - before;
            if is_wanted {
                assert_eq!(woken, 1, "{name}");
            } else {
                // None if it has rechecked meanwhile, and has looked at the topic.
                assert!(woken <= 1, "{name}: {woken}");
                wanted.publish("x").unwrap();
            }
            assert_eq!(sleeper.join().unwrap(), b"x");
        });
    }
}
