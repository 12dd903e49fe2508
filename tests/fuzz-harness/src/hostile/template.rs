//! The bytes of a bus with a history. Restores and changes them.

use super::sites::{Change, Site};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toroni::{
    BusConfig, Entry, Limit, LockKind, Lost, LostBound, LostReason, NotifyKind, Origin, Pattern,
    Policy, ReceiveError, Start,
};

/// Bytes of the stream: the smallest there can be, so that cases are fast.
pub const CAPACITY: u64 = 64 << 10;
/// Where the bounds of the topics begin in `ring`. The offsets are those of `crates/toroni/src/ring/layout.rs`.
pub const BOUNDS_OFFSET: u64 = 4096 + 2048;
/// Where the topic table begins in `ring`, after the bounds of 4,096 topics.
pub const TABLE_OFFSET: u64 = (BOUNDS_OFFSET + 8 * 4096).next_multiple_of(4096);
/// Bytes of the topic table.
pub const TABLE_BYTES: u64 = 4096;
/// Where the table of arrivals begins in `ring`.
pub const ARRIVALS_OFFSET: u64 = TABLE_OFFSET + TABLE_BYTES;
/// Entries of that table.
pub const ARRIVALS: u32 = 6;
/// Where the futex words of the subscribers begin in `ring`, after that table.
pub const WAKE_OFFSET: u64 = (ARRIVALS_OFFSET + 64 * (1 + ARRIVALS as u64)).next_multiple_of(128);
/// Slots of subscribers.
pub const SLOTS: u64 = 4;
/// Where the numbers of the entries begin in `ring`, by topic.
pub const VALUE_INDEX_OFFSET: u64 = (WAKE_OFFSET + 4 * SLOTS).next_multiple_of(128);
/// Where the entries of retained topics begin, of 128 bytes each.
pub const VALUES_OFFSET: u64 = VALUE_INDEX_OFFSET + 4 * ROWS;
/// Topics that can be retained.
pub const VALUES: u64 = 4;
/// Where the values begin.
pub const VALUE_AREA_OFFSET: u64 = VALUES_OFFSET + 128 * VALUES;
/// Bytes for values.
pub const VALUE_AREA_BYTES: u64 = 8 << 10;
/// Where the stream begins in `ring`.
pub const DATA_OFFSET: u64 = (VALUE_AREA_OFFSET + VALUE_AREA_BYTES).next_multiple_of(4096);
/// Where the counts of the slots begin in `readers`: how often each armed.
pub const ARMING_OFFSET: u64 = 4096;
/// Where the rows of the topics begin, each of a word, and how many there are.
pub const ROWS_OFFSET: u64 = (ARMING_OFFSET + 8 * SLOTS).next_multiple_of(128);
/// How many rows there are.
pub const ROWS: u64 = 4096;
/// Where the slots begin in `readers`.
pub const READER_SLOTS_OFFSET: u64 = (ROWS_OFFSET + 8 * ROWS).next_multiple_of(4096);
const CHECKSUM_OFFSET: usize = 48;
/// Bytes under the checksum: the header of `ring` without its last part, and that of the others.
pub(super) const RING_HEADER_BYTES: usize = 592;
const FILE_HEADER_BYTES: usize = 64;

/// Name of the bus in its directory.
pub const BUS: &str = "b";
/// A topic that the table has.
pub const KNOWN: &str = "plant/known";

/// Of what comes from elsewhere.
pub const SOURCE: u32 = 0x0B01_1E12;
pub const SERIES: u32 = 1;

/// The files of a bus.
pub const FILES: [&str; 3] = ["ring", "publishers", "readers"];

/// What the bus is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Lease lock, futex, and the policy with state in the ring; lapped twice.
    Lease,
    /// Robust lock, datagrams; lapped twice.
    Robust,
    /// With a full topic table, so that some records carry their topics.
    Full,
    Young,
}

/// A bus as it was when all had left.
#[derive(Debug)]
pub struct Template {
    /// What it is like.
    pub kind: Kind,
    root: PathBuf,
    files: [Vec<u8>; 3],
    /// Positions of the messages that it holds.
    pub positions: Vec<u64>,
    /// Positions of the losses on the way to it, with the length of each without its header: one goes through the
    /// read-ahead of subscribers, the other is too long for that.
    pub losses: [(u64, u64); 2],
    /// Where the stream ends.
    pub tail: u64,
}

impl Template {
    /// Makes a bus below `directory` and gives it a past.
    pub fn new(directory: &Path, kind: Kind) -> Self {
        let root = directory.join(format!("{kind:?}"));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir(&root).unwrap();
        let budget = Duration::from_millis(1);
        let (lock, notify, policy) = match kind {
            Kind::Lease | Kind::Full => {
                let per = Duration::from_millis(3);
                (LockKind::Lease, NotifyKind::Futex, Policy::Bounded { budget, per })
            }
            Kind::Robust => {
                (LockKind::Robust, NotifyKind::Datagram, Policy::Wait { limit: Some(budget) })
            }
            Kind::Young => (LockKind::Lease, NotifyKind::Datagram, Policy::Overwrite),
        };
        let bus = BusConfig::new()
            .directory(&root)
            .capacity(CAPACITY)
            .topic_table_bytes(TABLE_BYTES)
            .max_arrivals(ARRIVALS)
            .retained_topics(u32::try_from(VALUES).unwrap())
            .retained_bytes(VALUE_AREA_BYTES)
            .max_publishers(4)
            .max_subscribers(4)
            .lock(lock)
            .notify(notify)
            .policy(policy)
            .persistent(true)
            .timestamps(kind == Kind::Robust)
            .create(BUS)
            .unwrap();
        let known = bus.publisher(KNOWN).unwrap();
        known.publish(b"").unwrap();
        known.clone().to_descendants(true).publish(b"12345").unwrap();
        let names = if kind == Kind::Full { 18 } else { 2 };
        for number in 0..names {
            let publisher = bus.publisher(&name(number)).unwrap();
            // Its value stays what it is now.
            let publisher = if number == 0 { publisher.retained().unwrap() } else { publisher };
            publisher.publish([7; 40]).unwrap();
        }
        let _retains = known.clone().retained().unwrap();
        let inlet = bus.inlet().unwrap();
        let topic = inlet.topic(KNOWN).unwrap();
        for stream in 0..3 {
            let origin = Some(Origin { source: SOURCE, series: SERIES, stream, number: 1 });
            inlet
                .publish(
                    &[Entry { origin, ..Entry::new(&topic, &[b"from elsewhere"]) }],
                    Limit::Policy,
                )
                .unwrap();
        }
        let mut size = 0;
        while kind != Kind::Young && bus.stats().unwrap().tail < 2 * CAPACITY + 1000 {
            size = (size * 7 + 13) % 900;
            known.publish(vec![0xA5; size]).unwrap();
            known.publish_batch(&[&b"one"[..], b"", b"three"], Limit::Policy).unwrap();
            bus.publisher(&name(names - 1)).unwrap().publish(b"perhaps inline").unwrap();
        }
        let scopes = [vec![pattern("other/x"), pattern(KNOWN)], vec![long("plant/**"); 16]];
        let losses = scopes.map(|scope| {
            let position = bus.stats().unwrap().tail;
            bus.inlet().unwrap().publish_lost(&loss(scope), Some(0), Limit::Policy).unwrap();
            let length = bus.stats().unwrap().tail - position - 8;
            known.publish(b"after a loss").unwrap();
            (position, length)
        });
        let mut subscriber = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
        let mut positions = Vec::new();
        loop {
            match subscriber.try_receive() {
                Ok(Some(message)) => positions.push(message.position()),
                Err(ReceiveError::Lost(_)) => {}
                Ok(None) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let tail = bus.stats().unwrap().tail;
        drop((subscriber, known, topic, inlet, bus));
        let files = FILES.map(|name| std::fs::read(root.join(BUS).join(name)).unwrap());
        let template = Self { kind, root, files, positions, losses, tail };
        template.assert_layout();
        template
    }

    /// Asserts that the offsets in this folder are those of the library.
    fn assert_layout(&self) {
        let word = |offset| u64::from_le_bytes(self.bytes("ring", offset, 8).try_into().unwrap());
        let ring = self.length("ring");
        let header = checksum(self.bytes("ring", 0, RING_HEADER_BYTES as u64));
        assert_eq!(word(CHECKSUM_OFFSET as u64), header, "the checksum");
        assert_eq!(ring, DATA_OFFSET + CAPACITY, "where the stream begins");
        let half = |offset: u64| (word(offset) % (1 << 32), word(offset) >> 32);
        assert_eq!(half(VALUE_INDEX_OFFSET), (2, 1), "the entries of the first two topics");
        assert_eq!(half(VALUES_OFFSET), (2, 0), "the topic of the first entry");
        assert!((3..VALUE_AREA_BYTES / 64).contains(&word(VALUE_AREA_OFFSET)), "units in use");
        let readers = READER_SLOTS_OFFSET + SLOTS * (128 + 512);
        assert_eq!(self.length("readers"), readers, "where the slots of the subscribers begin");
        assert!(self.positions.iter().all(|position| word(Self::offset_of(*position)) != 0));
        assert_eq!(word(Self::offset_of(self.tail)), 0, "the end of the stream");
        let sources = (0..u64::from(ARRIVALS)).map(|entry| {
            let offset = ARRIVALS_OFFSET + 64 * (1 + entry);
            word(offset) == u64::from(SOURCE) << 32 | 1
        });
        assert_eq!(sources.filter(|is_used| *is_used).count(), 3, "the table of arrivals");
    }

    /// The directory that the bus is in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A configuration that opens it.
    pub fn config(&self) -> BusConfig {
        BusConfig::new().directory(&self.root)
    }

    /// Makes the bus what it was.
    pub fn restore(&self) {
        let directory = self.root.join(BUS);
        let _ = std::fs::create_dir(&directory);
        let _ = std::fs::remove_dir_all(directory.join("sockets"));
        std::fs::create_dir(directory.join("sockets")).unwrap();
        for (name, bytes) in FILES.iter().zip(&self.files) {
            std::fs::write(directory.join(name), bytes).unwrap();
        }
    }

    /// Bytes of a file.
    pub(super) fn length(&self, name: &str) -> u64 {
        self.file(name).len() as u64
    }

    /// Bytes that a file had.
    pub(super) fn bytes(&self, name: &str, offset: u64, length: u64) -> &[u8] {
        let [offset, length] = [offset, length].map(|count| usize::try_from(count).unwrap());
        &self.file(name)[offset..][..length]
    }

    /// Writes into a file, if it is there, and makes the checksum fit.
    pub(crate) fn write(&self, name: &str, offset: u64, bytes: &[u8]) {
        if let Ok(file) = self.open(name) {
            file.write_all_at(bytes, offset).unwrap();
        }
        if offset < RING_HEADER_BYTES as u64 {
            self.sum_up(name);
        }
    }

    /// Makes a file shorter.
    pub(super) fn cut(&self, name: &str, length: u64) {
        if let Ok(file) = self.open(name) {
            file.set_len(length).unwrap();
        }
    }

    /// What a word was.
    pub fn original(&self, site: &Site) -> u64 {
        let offset = usize::try_from(site.offset).unwrap();
        let mut bytes = [0; 8];
        bytes[..site.width].copy_from_slice(&self.file(site.file)[offset..][..site.width]);
        u64::from_le_bytes(bytes)
    }

    pub fn apply(&self, change: &Change) {
        self.set(&change.site, change.value);
        if change.site.is_under_checksum() {
            self.sum_up(change.site.file);
        }
    }

    /// Makes a word what it was.
    pub fn mend(&self, site: &Site) {
        self.set(site, self.original(site));
        if site.is_under_checksum() {
            self.sum_up(site.file);
        }
    }

    /// Offset in `ring` of a position of the stream.
    pub fn offset_of(position: u64) -> u64 {
        DATA_OFFSET + position % CAPACITY
    }

    fn set(&self, site: &Site, value: u64) {
        // It is missing if `clean` took the bus for one that may be removed.
        if let Ok(file) = self.open(site.file) {
            file.write_all_at(&value.to_le_bytes()[..site.width], site.offset).unwrap();
        }
    }

    /// A checksum that fits, so that the changed field is looked at.
    fn sum_up(&self, name: &str) {
        let mut bytes = [0; RING_HEADER_BYTES];
        let length = if name == "ring" { RING_HEADER_BYTES } else { FILE_HEADER_BYTES };
        let Ok(file) = self.open(name) else { return };
        // It may have been cut.
        if file.read_exact_at(&mut bytes[..length], 0).is_err() {
            return;
        }
        let sum = checksum(&bytes[..length]);
        file.write_all_at(&sum.to_le_bytes(), CHECKSUM_OFFSET as u64).unwrap();
    }

    fn open(&self, name: &str) -> std::io::Result<File> {
        File::options().read(true).write(true).open(self.root.join(BUS).join(name))
    }

    fn file(&self, name: &str) -> &[u8] {
        &self.files[FILES.iter().position(|file| *file == name).unwrap()]
    }
}

fn loss(scope: Vec<Pattern>) -> Lost {
    Lost {
        from: Origin { source: 1, series: 2, stream: 3, number: 7 },
        until: 9,
        messages: u64::MAX,
        bound: LostBound::AtLeast,
        reason: LostReason::Memory,
        scope,
    }
}

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap()
}

/// A pattern that is about as long as can be, and begins as the given one does.
fn long(start: &str) -> Pattern {
    let rest = "/**/x".repeat(60);
    let whole = format!("{start}{rest}");
    pattern(whole[..255].trim_end_matches(['/', '*']))
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    let field = CHECKSUM_OFFSET..CHECKSUM_OFFSET + 8;
    (0..bytes.len())
        .filter(|index| !field.contains(index))
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, index| {
            (sum ^ u64::from(bytes[index])).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

fn name(number: u32) -> String {
    format!("plant/{}/{number}", "long-name".repeat(if number < 2 { 1 } else { 26 }))
}
