//! Every byte that processes share, drawn once: the three files of a bus, their offsets, version
//! and checks.
//!
//! ```text
//!  ring                          publishers                    readers
//!  +-------------------------+ 0 +---------------------------+ +---------------------------+
//!  | RawHeader               |   | RawFileHeader             | | RawFileHeader             |
//!  +-------------------------+ 1 | page                      | | ReadersControl, one page  |
//!  | Control: lock, tail,    |   +---------------------------+ +---------------------------+
//!  | reserved, wake, waits,  |   | PublisherSlot 0           | | ReaderSlot 0              |
//!  | budget, blocks index    |   | PublisherSlot 1 …         | | ReaderSlot 1 …            |
//!  +-------------------------+ 2 +---------------------------+ +---------------------------+
//!  | topic table             |                                 | ReaderPatterns 0          |
//!  +-------------------------+ data_offset                     | ReaderPatterns 1 …        |
//!  | the stream: capacity    |                                 +---------------------------+
//!  +-------------------------+   mapped twice in a row, so that no record wraps
//! ```
//!
//! A page of this drawing is [`PAGE`] bytes, whatever the machine's page size. Integers are in the
//! byte order of the machine, which the header states.
//!
//! # Synchronisation
//!
//! | label | release | acquire | what becomes visible |
//! |---|---|---|---|
//! | COMMIT | writer: header word of a record | reader: the same word | the record, its successor's 0, the blocks index |
//! | TAIL | writer: `tail` | joining reader, next writer | everything before `tail` |
//! | RESERVE | writer: fence before the first byte | reader: fence after its copy | `reserved` |
//! | INDEX | writer: `position` of an entry | reader: the same word | the entry's `sequence` |
//! | LOCK | unlock, or the death of the owner | lock, or takeover | all that the previous owner wrote |
//! | JOIN | reader: fence after `joins` | writer: fence before its scan | the new reader's slot |
//! | JOIN | writer: fence before its look | reader: fence after `joins` | the tail of a writer that does not see the slot |
//! | JOIN | writer: fence after `wanted` | reader: fence after `joins` | what is about to be overwritten |
//! | LEASE | reader: `generation` and `state` of its slot | writer: fence after its scan | that the reader holds its lease |
//! | SLEEP | reader: fence after `sleeps`/`arms` | writer: fence after unlock | that somebody must be woken |
//! | SPACE | publisher: fence after `waits` | reader: fence after its position | that a publisher waits for room |
//! | SPACE | reader: fence after its position | reader: fence after its position | that the other one is there, too |
//! | TOPIC | writer: `topics` | everyone: the same word | the table's entries below the count |
//! | PATTERNS | subscriber: even `version`, after its text | observer: fence after it read `version` | the text |
//! | PATTERNS | subscriber: fence after the odd `version` | observer: fence before it reads `version` again | that the text changes |
//!
//! # Invariants
//!
//! Of the stream, while all who may write `ring` keep to the protocol:
//!
//! - **I1** `tail + 8 <= reserved`. Both are multiples of 8 and only grow; recovery, too, never lowers
//!   `reserved`.
//! - **I2** While the lock is free, the word at `tail` is 0, and every record that starts at or after
//!   `reserved - capacity` and before `tail` is intact.
//! - **I3** What was read at position `p` is what was committed there if `reserved <= p + capacity`
//!   when looked at afterwards.
//! - **I4** A writer that died before its commit leaves 0 at `tail`. One that died after it left `tail`
//!   behind; recovery counts from the newest valid entry of the blocks index to the first 0.

use super::position::to_index;
use crate::sync::{AtomicU32, AtomicU64};

/// The unit of the drawing above, in bytes.
pub(crate) const PAGE: usize = 4096;
/// First eight bytes of each file, the same in both byte orders.
pub(crate) const MAGIC: [u8; 8] = *b"TORONI\0\x01";
/// Raised with every change of this file that an older process would misread.
///
/// Version 2 added [`ReaderPatterns`].
pub(crate) const LAYOUT_VERSION: u32 = 2;
/// Reads as another number on a machine of the other byte order.
pub(crate) const ENDIANNESS: u32 = 0x0102_0304;
/// Blocks of a ring, whatever its capacity: the grain of the index, of `reserved` and of the look
/// for slow readers.
///
/// Models have fewer: each look at the whole index is a step for each of them.
pub(crate) const BLOCKS: u64 = if cfg!(loom) { 16 } else { 64 };
/// Every position, record and header word is a multiple of this.
pub(crate) const ALIGNMENT: u64 = 8;

/// Offset of [`Control`] in `ring`.
pub(crate) const CONTROL_OFFSET: usize = PAGE;
/// Offset of the topic table in `ring`.
pub(crate) const TABLE_OFFSET: usize = 2 * PAGE;
/// Offset of [`ReadersControl`] in `readers`: within the first page, behind its [`RawFileHeader`].
pub(crate) const READERS_CONTROL_OFFSET: usize = 128;
/// Offset of the first slot in `publishers` and in `readers`.
pub(crate) const SLOTS_OFFSET: usize = PAGE;
/// Bytes of a slot, in both files.
pub(crate) const SLOT_BYTES: usize = 128;
/// Bytes of a [`ReaderPatterns`].
pub(crate) const PATTERNS_BYTES: usize = 512;
/// Words of text in a [`ReaderPatterns`]. The longest pattern, 255 bytes, fits whole.
pub(crate) const PATTERNS_TEXT_WORDS: usize = 62;
/// Lease byte of slot `n` is `LEASE_OFFSET + n`: beyond any size a file can have, since locks do not
/// need the bytes that they cover.
pub(crate) const LEASE_OFFSET: u64 = 1 << 40;
/// Byte of `ring` on which every handle holds a shared lock, and `clean` an exclusive one.
pub(crate) const BUS_LOCK_OFFSET: u64 = LEASE_OFFSET - 1;

/// `kind` of the file `ring`.
pub(crate) const KIND_RING: u32 = 1;
/// `kind` of the file `publishers`.
pub(crate) const KIND_PUBLISHERS: u32 = 2;
/// `kind` of the file `readers`.
pub(crate) const KIND_READERS: u32 = 3;

/// The first bytes of each file. Never changes. Read and written as bytes, see `shm/header.rs`.
#[repr(C)]
pub(crate) struct RawFileHeader {
    /// [`MAGIC`].
    pub(crate) magic: [u8; 8],
    /// [`ENDIANNESS`]; stands before everything that depends on it.
    pub(crate) endianness: u32,
    /// [`LAYOUT_VERSION`]; the fields up to here have their place in every version.
    pub(crate) version: u32,
    /// Number of the machine in the ELF format, such as 62 for x86-64.
    pub(crate) architecture: u32,
    /// The machine's page size.
    pub(crate) page_bytes: u32,
    /// [`KIND_RING`], [`KIND_PUBLISHERS`] or [`KIND_READERS`].
    pub(crate) kind: u32,
    /// Slots of the file; 0 in `ring`.
    pub(crate) slots: u32,
    /// Random; the same in the three files of a bus.
    pub(crate) bus_id: [u8; 16],
    /// FNV-1a, 64 bits, of the header without this field and without `home`.
    pub(crate) checksum: u64,
    pub(crate) _unused: u64,
}

/// The first bytes of `ring`. Never changes, but for `home`.
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) file: RawFileHeader,
    /// Size of `ring`, of its stream, of its topic table, and where the stream starts.
    pub(crate) file_bytes: u64,
    pub(crate) capacity: u64,
    pub(crate) topic_table_bytes: u64,
    pub(crate) data_offset: u64,
    pub(crate) max_publishers: u32,
    pub(crate) max_subscribers: u32,
    /// Lock kind, notifier and policy: numbers given by `shm/header.rs`.
    pub(crate) lock: u32,
    pub(crate) notify: u32,
    pub(crate) policy: u32,
    /// [`FLAG_PERSISTENT`], [`FLAG_HUGE_PAGES`].
    pub(crate) flags: u32,
    /// Limit or budget of the policy, and its interval.
    pub(crate) policy_ns: u64,
    pub(crate) policy_per_ns: u64,
    /// Multicast group, or 0, and its port.
    pub(crate) group_address: u32,
    pub(crate) group_port: u32,
    /// Permissions asked for at creation, each [`UNSET`] if it was not.
    pub(crate) mode: u32,
    pub(crate) writers_gid: u32,
    pub(crate) readers_gid: u32,
    pub(crate) _unused: u32,
    /// CLOCK_REALTIME, ns.
    pub(crate) created_ns: u64,
    /// C library of the creator, such as `glibc 2.36`, padded with 0.
    pub(crate) libc: [u8; 32],
    pub(crate) home: RawHome,
}

/// Which boot and namespaces the bus belongs to. Rewritten, in one write, after a reboot.
#[repr(C)]
pub(crate) struct RawHome {
    pub(crate) boot_id: [u8; 16],
    /// Inodes of the creator's namespaces, 0 if unknown.
    pub(crate) pid_namespace: u64,
    pub(crate) net_namespace: u64,
}

/// `clean` never removes the bus.
pub(crate) const FLAG_PERSISTENT: u32 = 1;
/// The stream starts at a multiple of 2 MiB.
pub(crate) const FLAG_HUGE_PAGES: u32 = 2;
/// A permission that was not asked for.
pub(crate) const UNSET: u32 = u32::MAX;

/// A cache line of its own for what one side writes and the other polls: two of the processor's 64
/// bytes, because adjacent lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// The words of `ring` that change, at [`CONTROL_OFFSET`]. Writers write them; readers map them
/// read-only.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// Writer lock and the end of the stream.
    pub(crate) commit: Line<Commit>,
    /// Bytes of the stream up to which writers may have begun to write: everything before
    /// `reserved - capacity` may be overwritten.
    pub(crate) reserved: Line<AtomicU64>,
    /// Futex word of sleeping readers; raised before each wake.
    pub(crate) wake: Line<AtomicU32>,
    /// What publishers that wait for room announce.
    pub(crate) waits: Line<Waits>,
    /// What the policy `Bounded` has spent.
    pub(crate) budget: Line<Budget>,
    /// The process-shared robust mutex, for buses of that lock kind.
    pub(crate) mutex: Line<[AtomicU64; 8]>,
    /// Number of names in the topic table.
    pub(crate) topics: Line<AtomicU32>,
    /// Where the stream ended when the last publisher closed, for buses on a disk.
    pub(crate) clean_close: Line<CleanClose>,
    /// One entry a block.
    pub(crate) index: [BlockEntry; to_index(BLOCKS)],
}

/// What publishers say of the room that they need. Written under the writer lock.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Waits {
    /// How often one announced that it waits. Only grows.
    pub(crate) count: AtomicU64,
    /// The position that the last of them waits for: once all gating readers have reached it, one is
    /// woken. A hint: whoever waits checks again by itself after a while.
    pub(crate) until: AtomicU64,
    /// What the owner of the writer lock wants to raise `reserved` to, or wanted at last: said before
    /// it looks whether a reader is in the way. Taken back to `reserved` if one is, also by the next owner after
    /// a death.
    pub(crate) wanted: AtomicU64,
}

/// The writer lock and what only its owner changes.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Commit {
    /// The `lease` lock's futex word; see `shm/lock.rs`.
    pub(crate) lock: AtomicU32,
    pub(crate) _unused: AtomicU32,
    /// Position at which the next record starts.
    pub(crate) tail: AtomicU64,
    /// Number of the message that will start at `tail`.
    pub(crate) sequence: AtomicU64,
}

/// State of the policy `Bounded`; changed under the writer lock. Times are CLOCK_MONOTONIC in ns.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Budget {
    pub(crate) interval_start_ns: AtomicU64,
    pub(crate) spent_ns: AtomicU64,
    /// End of the latest slice already charged: concurrent waiters pay for each instant once.
    pub(crate) charged_until_ns: AtomicU64,
}

/// The mark of a clean close.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CleanClose {
    pub(crate) position: AtomicU64,
    pub(crate) sequence: AtomicU64,
    /// 1 when the two words above stand for a state that was written back to the disk.
    pub(crate) valid: AtomicU64,
}

/// The first record that starts at or after the first byte of a block.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct BlockEntry {
    /// Position of that record, or [`NO_ENTRY`] while the entry changes.
    pub(crate) position: AtomicU64,
    /// Its sequence number.
    pub(crate) sequence: AtomicU64,
}

/// Position of an index entry that is being changed, or was never set.
pub(crate) const NO_ENTRY: u64 = u64::MAX;

/// The words of `readers` that are not a slot's. Readers write them; publishers map this page
/// read-only and survive its loss.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ReadersControl {
    /// How often a reader went to sleep on the futex. Only grows: a reader that dies asleep leaves
    /// nothing to clean up.
    pub(crate) sleeps: Line<AtomicU64>,
    /// How often a reader armed its descriptor. Only grows.
    pub(crate) arms: Line<AtomicU64>,
    /// Futex word of publishers that wait for room; raised before each wake.
    pub(crate) space: Line<AtomicU32>,
    /// How often a reader joined, left, or came back after it was lapped: what a publisher learned from
    /// the slots before is old then.
    pub(crate) joins: Line<AtomicU64>,
    /// Slots `0 .. slots_used` have been claimed at some time; the rest need no look.
    pub(crate) slots_used: Line<AtomicU32>,
}

/// A slot that nobody uses.
pub(crate) const SLOT_FREE: u32 = 0;
/// A slot whose owner is at work, if its lease is held.
pub(crate) const SLOT_ACTIVE: u32 = 1;

/// One publishing participant: an opened bus that publishes.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct PublisherSlot {
    /// Raised by each claim; its low bits stand in the lock word.
    pub(crate) generation: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) _unused: AtomicU32,
    /// Inode of the PID namespace in which `pid` has a meaning.
    pub(crate) pid_namespace: AtomicU64,
    /// CLOCK_REALTIME of the claim, ns.
    pub(crate) started_ns: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Waits for room, and how long they took in all.
    pub(crate) waits: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    /// How often the policy let it go on although a gating reader was in the way, with or without a
    /// wait before.
    pub(crate) overwrites: AtomicU64,
    /// Wake-ups sent.
    pub(crate) wakes: AtomicU64,
    /// UTF-8, padded with 0.
    pub(crate) name: [AtomicU64; 5],
}

/// One subscriber.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ReaderSlot {
    /// Raised by each claim.
    pub(crate) generation: AtomicU32,
    pub(crate) state: AtomicU32,
    /// Everything before it has been read.
    pub(crate) position: AtomicU64,
    pub(crate) pid: AtomicU32,
    /// [`READER_GATES`], [`READER_HAS_SOCKET`].
    pub(crate) flags: AtomicU32,
    pub(crate) pid_namespace: AtomicU64,
    pub(crate) started_ns: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) lost_messages: AtomicU64,
    pub(crate) lapses: AtomicU64,
    /// How often this slot's descriptor was armed: another value than last time means it wants a
    /// datagram.
    pub(crate) arms: AtomicU32,
    pub(crate) _unused: AtomicU32,
    /// UTF-8, padded with 0.
    pub(crate) name: [AtomicU64; 6],
}

/// The patterns of one subscriber. They follow the last slot of `readers`, in the order of the slots. They
/// are not part of the slots because publishers copy all slots once a block.
///
/// Observers read them: `toroni info`, `toroni topics` and `toroni pub --wait-subscribers`. Publishing and
/// receiving do not depend on them.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ReaderPatterns {
    /// Odd while the owner of the slot changes the rest.
    pub(crate) version: AtomicU32,
    /// The slot's `generation` when its owner wrote the rest: the patterns of a former owner have another.
    pub(crate) generation: AtomicU32,
    /// Bytes of `text` that are in use.
    pub(crate) length: AtomicU32,
    /// 0 or [`PATTERNS_TRUNCATED`].
    pub(crate) flags: AtomicU32,
    /// UTF-8: the first patterns, each whole, with [`PATTERN_SEPARATOR`] between two.
    pub(crate) text: [AtomicU64; PATTERNS_TEXT_WORDS],
}

/// The subscriber has more patterns than the text has room for.
pub(crate) const PATTERNS_TRUNCATED: u32 = 1;
/// A control character, which no pattern contains.
pub(crate) const PATTERN_SEPARATOR: u8 = b'\n';

/// Publishers wait for this reader.
pub(crate) const READER_GATES: u32 = 1;
/// This reader has bound `sockets/<slot>.<generation>`.
pub(crate) const READER_HAS_SOCKET: u32 = 2;

// Loom's atomics are larger than the words they stand for; the drawing holds for the real ones.
#[cfg(not(loom))]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<RawFileHeader>() == 64);
    assert!(offset_of!(RawFileHeader, endianness) == 8 && offset_of!(RawFileHeader, version) == 12);
    assert!(size_of::<RawFileHeader>() <= READERS_CONTROL_OFFSET);
    assert!(size_of::<RawHeader>() == 232 && offset_of!(RawHeader, home) == 200);
    assert!(size_of::<Control>() <= PAGE);
    assert!(offset_of!(Control, commit) == 0);
    assert!(offset_of!(Control, reserved) == 128);
    assert!(offset_of!(Control, wake) == 256);
    assert!(offset_of!(Control, waits) == 384);
    assert!(offset_of!(Control, budget) == 512);
    assert!(offset_of!(Control, mutex) == 640);
    assert!(offset_of!(Control, topics) == 768);
    assert!(offset_of!(Control, clean_close) == 896);
    assert!(offset_of!(Control, index) == 1024);
    assert!(offset_of!(Commit, tail) == 8 && offset_of!(Commit, sequence) == 16);
    assert!(size_of::<BlockEntry>() == 16);
    assert!(READERS_CONTROL_OFFSET + size_of::<ReadersControl>() <= PAGE);
    assert!(size_of::<PublisherSlot>() == SLOT_BYTES);
    assert!(size_of::<ReaderSlot>() == SLOT_BYTES);
    assert!(size_of::<ReaderPatterns>() == PATTERNS_BYTES);
    assert!(offset_of!(ReaderPatterns, generation) == 4 && offset_of!(ReaderPatterns, text) == 16);
    assert!(16 + 8 * PATTERNS_TEXT_WORDS == PATTERNS_BYTES);
    // After any number of slots they are aligned.
    assert!(SLOT_BYTES.is_multiple_of(align_of::<ReaderPatterns>()));
};

impl Control {
    /// Makes the bus an empty one. Only while nobody else uses it.
    pub(crate) fn reset(&self) {
        use crate::sync::Ordering::Relaxed;
        let Self { commit, reserved, wake, waits, budget, mutex, topics, clean_close, index } =
            self;
        commit.0.lock.store(0, Relaxed);
        commit.0.tail.store(0, Relaxed);
        commit.0.sequence.store(0, Relaxed);
        reserved.0.store(ALIGNMENT, Relaxed);
        wake.0.store(0, Relaxed);
        waits.0.count.store(0, Relaxed);
        waits.0.until.store(0, Relaxed);
        waits.0.wanted.store(0, Relaxed);
        budget.0.interval_start_ns.store(0, Relaxed);
        budget.0.spent_ns.store(0, Relaxed);
        budget.0.charged_until_ns.store(0, Relaxed);
        for word in &mutex.0 {
            word.store(0, Relaxed);
        }
        topics.0.store(0, Relaxed);
        clean_close.0.position.store(0, Relaxed);
        clean_close.0.sequence.store(0, Relaxed);
        clean_close.0.valid.store(0, Relaxed);
        for entry in index {
            entry.position.store(NO_ENTRY, Relaxed);
            entry.sequence.store(0, Relaxed);
        }
        index[0].position.store(0, Relaxed);
    }
}

impl Default for Control {
    /// The words of an empty bus.
    fn default() -> Self {
        let control = Self {
            commit: Line::default(),
            reserved: Line::default(),
            wake: Line::default(),
            waits: Line::default(),
            budget: Line::default(),
            mutex: Line::default(),
            topics: Line::default(),
            clean_close: Line::default(),
            index: core::array::from_fn(|_| BlockEntry::default()),
        };
        control.reset();
        control
    }
}
