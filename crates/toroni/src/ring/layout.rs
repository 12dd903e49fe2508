//! The layout of every byte that processes share: the three files of a bus, their offsets, version
//! and compile-time checks.
//!
//! ```text
//!  ring                          publishers                    readers
//!  +-------------------------+ 0 +---------------------------+ +---------------------------+
//!  | RawHeader               |   | RawFileHeader             | | RawFileHeader             |
//!  +-------------------------+ 1 | page                      | | ReadersControl, one page  |
//!  | Control: lock, tail,    |   +---------------------------+ +---------------------------+
//!  | reserved, waits, budget,|   | PublisherSlot 0           | | Arming 0, 1 …             |
//!  | blocks index, bounds    |   | PublisherSlot 1 …         | | row of topic 0, 1 …       |
//!  +-------------------------+   +---------------------------+ +---------------------------+
//!  | topic table             |                                 | ReaderSlot 0              |
//!  +-------------------------+                                 | ReaderSlot 1 …            |
//!  | PendingArrival          |                                 +---------------------------+
//!  | ArrivalEntry 0          |                                 | ReaderPatterns 0          |
//!  | ArrivalEntry 1 …        |                                 | ReaderPatterns 1 …        |
//!  +-------------------------+                                 +---------------------------+
//!  | futex words of readers  |
//!  +-------------------------+
//!  | entry of topic 0, 1 …   |
//!  | ValueEntry 0, 1 …       |
//!  | area for values         |
//!  +-------------------------+ data_offset
//!  | the stream: capacity    |
//!  +-------------------------+   mapped twice in a row, so that no record wraps
//! ```
//!
//! The header says where each part is ([`RawRegion`]). A later release may add parts, which this one leaves alone.
//!
//! A page in this drawing is [`PAGE`] bytes, whatever the machine's page size. Integers have the
//! machine's byte order, which the header states.
//!
//! # Synchronisation
//!
//! | label | release | acquire | what becomes visible |
//! |---|---|---|---|
//! | COMMIT | writer: header word of a record | reader: the same word | the record, the 0 after it, the blocks index |
//! | TAIL | writer: `tail` | joining reader, next writer | everything before `tail` |
//! | RESERVE | writer: fence before the first byte | reader: fence after its copy | `reserved` |
//! | INDEX | writer: `position` of an entry | reader: the same word | the entry's `sequence` |
//! | LOCK | unlock, or the death of the owner | lock, or takeover | everything that the previous owner wrote |
//! | JOIN | reader: fence after `joins` | writer: fence before its scan | the new reader's slot |
//! | JOIN | writer: fence before its scan | reader: fence after `joins` | the tail of a writer that does not see the slot |
//! | JOIN | writer: fence after `proposed` | reader: fence after `joins` | what is about to be overwritten |
//! | LEASE | reader: `generation` and `state` of its slot | writer: fence after its scan | that the reader holds its lease |
//! | SLEEP | reader: fence after `sleeps` | writer: fence after unlock | that a reader must be woken |
//! | SLEEP | reader: membarrier after `asymmetric` | writer: light fence after COMMIT | that a reader must be woken |
//! | WANT | reader: `sleeps`, after its bits in the rows and its [`Arming`] | writer: `sleeps`, or a count that one of its threads has noted | what the reader wants, and that it armed |
//! | PASSED | writer: COMMIT and `tail`, after the bound of the topic | reader: `tail` | where the newest record before `tail` of each topic ends |
//! | ANNOUNCE | writer: COMMIT, after the announcement of a value | a process that has received the record | that the entry of the topic may be outdated |
//! | RETAIN | writer: `version` of a value | reader: the same word | the valid buffer |
//! | REUSE | writer: fence before it writes a buffer | reader: fence before it reads `version` again | that the buffer is being reused |
//! | END | writer: `sequence`, after `next` | reader: `sequence`, before it loads `next` | that a commit has begun |
//! | ROUND | thread of a writer: what it notes of sleepers | other thread of that writer: the same | who sleeps, and that a futex word was raised |
//! | SPACE | publisher: fence after `waits` | reader: fence after its position | that a publisher waits for space |
//! | SPACE | reader: fence after its position | reader: fence after its position | that the other reader has come as far |
//! | TOPIC | writer: `topics` | every process: the same word | the table's entries below the count |
//! | PATTERNS | subscriber: even `version`, after its text | observer: fence after it read `version` | the text |
//! | PATTERNS | subscriber: fence after the odd `version` | observer: fence before it reads `version` again | that the text is changing |
//!
//! # Invariants
//!
//! These hold for the stream as long as every process that may write `ring` follows the protocol:
//!
//! - **I1** The end of the stream is below `reserved`: `tail` plus one word is at most `reserved`.
//! - **I2** If a reader reads at position `p`, then loads `reserved` and finds
//!   `reserved <= p + capacity`, it has read what was committed at `p`.
//! - **I3** Records lie without gaps from each valid index entry up to the first word that is 0. That
//!   word is the end of the stream, even if the owner of the lock died before it stored `tail`.
//! - **I4** `next` equals `tail`, except between the store of `next` and that of `tail`. If the owner
//!   of the lock dies in between, the next owner recovers.

use super::position::to_index;
use crate::sync::{AtomicU32, AtomicU64};

/// The page of the drawing above, in bytes.
pub(crate) const PAGE: usize = 4096;
/// The first eight bytes of each file, the same in both byte orders.
pub(crate) const MAGIC: [u8; 8] = *b"TORONI\0\x01";
/// The version of this layout. Raised with every change that an older process would misread.
///
/// Version 2 added [`ReaderPatterns`], version 3 [`Commit::next`] and [`RawHeader::stream_id`], version 4 the table of
/// arrivals, records with a number and of the kind `loss`, [`Wake::asymmetric`] and [`READER_NEEDS_FENCE`], version 5
/// [`ReaderSlot::losses`] and [`ReaderSlot::lost_on_the_way`], version 6 [`ArrivalEntry::highest`],
/// [`ArrivalEntry::flags`] and [`MARK_TOLD`], version 7 a futex word, an [`Arming`] and a column of the rows for each reader,
/// version 8 [`RawRegion`], [`RawHeader::must_read`], [`RawHeader::must_write`] and [`Control::bounds`].
pub(crate) const LAYOUT_VERSION: u32 = 8;
/// A number that reads differently on a machine with the other byte order.
pub(crate) const ENDIANNESS: u32 = 0x0102_0304;
/// The number of blocks of a ring, whatever its capacity. Index entries, `reserved` and the check
/// for slow readers work in whole blocks.
///
/// Loom models use fewer, because every read of the whole index takes a step per block.
pub(crate) const BLOCKS: u64 = if cfg!(loom) { 16 } else { 64 };
/// Every position, record length and header word is aligned to this many bytes.
pub(crate) const ALIGNMENT: u64 = 8;

/// What the ring knows of a tag, which `topic/frame.rs` makes: the place of the topic's number.
pub(crate) const TAG_TOPIC_SHIFT: u32 = 8;
/// The number of [`Control::bounds`], a power of two. Topics share one whose numbers differ by a multiple of it.
pub(crate) const BOUNDS: usize = if cfg!(loom) { 1 } else { 4096 };

/// Offset of [`Control`] in `ring`.
pub(crate) const CONTROL_OFFSET: usize = PAGE;
/// Offset of the first region of `ring`, which is the topic table of a new bus.
pub(crate) const TABLE_OFFSET: usize = CONTROL_OFFSET + size_of::<Control>().next_multiple_of(PAGE);
/// Offset of [`ReadersControl`] in `readers`: in the first page, after its [`RawFileHeader`].
pub(crate) const READERS_CONTROL_OFFSET: usize = 128;
/// Offset of the first region of `publishers` and of `readers`.
pub(crate) const SLOTS_OFFSET: usize = PAGE;
/// What the offset of each region is a multiple of.
pub(crate) const REGION_ALIGNMENT: u64 = 128;
/// How many regions a header can name.
pub(crate) const REGIONS: usize = 12;
/// How many topics of a new bus have a row in `readers`. The header says how many those of a bus are.
pub(crate) const TRACKED_TOPICS: u32 = 4096;
/// The most that a header may say.
pub(crate) const MOST_TRACKED_TOPICS: u32 = 1 << 16;
/// Size of a slot in bytes, in both files.
pub(crate) const SLOT_BYTES: usize = 128;
/// Size of a [`ReaderPatterns`] in bytes.
pub(crate) const PATTERNS_BYTES: usize = 512;
/// Words of text in a [`ReaderPatterns`]. The longest pattern, 255 bytes, fits completely.
pub(crate) const PATTERNS_TEXT_WORDS: usize = 62;
/// The lease byte of slot `n` is `LEASE_OFFSET + n`. That is beyond the end of any file, which is
/// possible because a lock may cover bytes that do not exist.
pub(crate) const LEASE_OFFSET: u64 = 1 << 40;
/// The byte of `ring` on which every handle holds a shared lock, and `clean` takes an exclusive
/// one.
pub(crate) const BUS_LOCK_OFFSET: u64 = LEASE_OFFSET - 1;

/// `kind` of the file `ring`.
pub(crate) const KIND_RING: u32 = 1;
/// `kind` of the file `publishers`.
pub(crate) const KIND_PUBLISHERS: u32 = 2;
/// `kind` of the file `readers`.
pub(crate) const KIND_READERS: u32 = 3;

/// The start of each file. It never changes. See `shm/header.rs`, which reads and writes it as
/// bytes.
#[repr(C)]
pub(crate) struct RawFileHeader {
    /// [`MAGIC`].
    pub(crate) magic: [u8; 8],
    /// [`ENDIANNESS`]. It precedes every field that depends on it.
    pub(crate) endianness: u32,
    /// [`LAYOUT_VERSION`]. The fields up to this one have the same offsets in every version.
    pub(crate) version: u32,
    /// The machine's number in the ELF format, such as 62 for x86-64.
    pub(crate) architecture: u32,
    /// The machine's page size.
    pub(crate) page_bytes: u32,
    /// [`KIND_RING`], [`KIND_PUBLISHERS`] or [`KIND_READERS`].
    pub(crate) kind: u32,
    /// The number of slots in the file; 0 in `ring`.
    pub(crate) slots: u32,
    /// Random, and the same in the three files of a bus. `Bus::id` is [`RawHeader::stream_id`].
    pub(crate) bus_id: [u8; 16],
    /// 64-bit FNV-1a hash of the header up to `kernel_context`, without this field.
    pub(crate) checksum: u64,
    pub(crate) _unused: u64,
}

/// The start of `ring`. Only `kernel_context` and `stream_id` ever change.
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) file: RawFileHeader,
    /// Sizes of `ring`, its stream and its topic table, and the offset of the stream, in bytes.
    pub(crate) file_bytes: u64,
    pub(crate) capacity: u64,
    pub(crate) topic_table_bytes: u64,
    pub(crate) data_offset: u64,
    pub(crate) max_publishers: u32,
    pub(crate) max_subscribers: u32,
    /// Lock kind, notifier and policy, as numbered in `shm/encoding.rs`.
    pub(crate) lock: u32,
    pub(crate) notify: u32,
    pub(crate) policy: u32,
    /// [`FLAG_PERSISTENT`], [`FLAG_HUGE_PAGES`].
    pub(crate) flags: u32,
    /// The policy's limit or budget, and its interval.
    pub(crate) policy_ns: u64,
    pub(crate) policy_per_ns: u64,
    /// Multicast group and port, or 0.
    pub(crate) group_address: u32,
    pub(crate) group_port: u32,
    /// Permissions requested at creation. Each is [`UNSET`] if it was not requested.
    pub(crate) mode: u32,
    pub(crate) writers_gid: u32,
    pub(crate) readers_gid: u32,
    /// The number of entries of the table of arrivals.
    pub(crate) max_arrivals: u32,
    /// Features that a process must know to open the bus, and those that it must know to publish on it, or to check it after a
    /// reboot. A later release sets a bit when it creates a bus on which an earlier one would do harm.
    pub(crate) must_read: u32,
    pub(crate) must_write: u32,
    /// CLOCK_REALTIME, ns.
    pub(crate) created_ns: u64,
    /// The creator's C library, such as `glibc 2.36`, padded with 0.
    pub(crate) libc: [u8; 32],
    /// The parts of the three files, in any order.
    pub(crate) regions: [RawRegion; REGIONS],
    pub(crate) kernel_context: RawKernelContext,
    /// Random. `bus_id` at first; new whenever the bus starts empty after a reboot.
    pub(crate) stream_id: [u8; 16],
}

/// A part of a file. See `shm/regions.rs`, which knows the kinds.
#[repr(C)]
pub(crate) struct RawRegion {
    /// What it is, or 0 if this entry is not used.
    pub(crate) kind: u32,
    /// [`KIND_RING`], [`KIND_PUBLISHERS`] or [`KIND_READERS`].
    pub(crate) file: u32,
    pub(crate) entries: u32,
    pub(crate) _unused: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The features of [`RawHeader::must_read`] that this release knows, and those of [`RawHeader::must_write`].
pub(crate) const KNOWN_TO_READ: u32 = 0;
pub(crate) const KNOWN_TO_WRITE: u32 = FEATURE_VALUES;
/// Publishers keep the values of retained topics: see `values.rs`.
pub(crate) const FEATURE_VALUES: u32 = 1;

/// The boot and the namespaces that the bus belongs to. Rewritten, in one write, after a reboot.
#[repr(C)]
pub(crate) struct RawKernelContext {
    pub(crate) boot_id: [u8; 16],
    /// Inodes of the creator's namespaces, or 0 if unknown.
    pub(crate) pid_namespace: u64,
    pub(crate) net_namespace: u64,
}

/// A plain `clean` keeps the bus.
pub(crate) const FLAG_PERSISTENT: u32 = 1;
/// The stream starts at a multiple of 2 MiB.
pub(crate) const FLAG_HUGE_PAGES: u32 = 2;
/// A permission that was not requested.
pub(crate) const UNSET: u32 = u32::MAX;

/// A value on a cache line of its own, for what one side writes and the other polls. The alignment
/// is two 64-byte lines of the processor, because it fetches adjacent lines in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// The words of `ring` that change, at [`CONTROL_OFFSET`]. Writers write them. Readers map them
/// read-only.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// The writer lock and the end of the stream.
    pub(crate) commit: Line<Commit>,
    /// The position up to which writers may have begun to write. Everything before `reserved -
    /// capacity` may be overwritten.
    pub(crate) reserved: Line<AtomicU64>,
    /// Not 0 while an exclusive publisher leaves out the fence between its commit and its look at
    /// `sleeps`. A reader that is about to sleep then executes a membarrier; see
    /// `notify/adaptive_fence.rs`. The value names the publisher.
    pub(crate) asymmetric: Line<AtomicU32>,
    /// The requests of publishers that wait for space.
    pub(crate) waits: Line<Waits>,
    /// The time that the policy `Bounded` has spent.
    pub(crate) budget: Line<Budget>,
    /// The process-shared robust mutex, for buses with that kind of lock.
    pub(crate) mutex: Line<[AtomicU64; 8]>,
    /// The number of names in the topic table.
    pub(crate) topics: Line<AtomicU32>,
    /// The end of the stream when the last publisher closed, for buses on a disk.
    pub(crate) clean_close: Line<CleanClose>,
    /// One entry for each block.
    pub(crate) index: [BlockEntry; to_index(BLOCKS)],
    /// By topic: the end of its newest record, or of one that its writer did not commit. See `bounds.rs`.
    pub(crate) bounds: [AtomicU64; BOUNDS],
}

/// How often the futex of a reader was armed, and its descriptor; see `notify/eventcount.rs`. Only grows, over all owners of
/// the slot.
pub(crate) type Arming = [AtomicU32; 2];

/// The requests for space. Written under the writer lock.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Waits {
    /// The number of times that a publisher has registered to wait. Only grows.
    pub(crate) count: AtomicU64,
    /// The position that the last registered publisher waits for. When all gating readers have
    /// reached it, one publisher is woken. This is a hint: a waiting publisher also checks by
    /// itself from time to time.
    pub(crate) until: AtomicU64,
    /// The latest proposal for `reserved`. The owner of the writer lock stores it before it checks
    /// whether a reader is in the way. If one is, the owner lowers it to `reserved` again. If the
    /// owner dies before that, the next owner does so.
    pub(crate) proposed: AtomicU64,
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
    /// The number of the message that will start at `tail`.
    pub(crate) sequence: AtomicU64,
    /// The end of the record, or batch, that is being committed: stored before COMMIT, and equal to
    /// `tail` once TAIL is stored. It is in the line of the lock, so that the next owner sees without a
    /// further cache line whether the last one died between the two. The word at `tail` says the
    /// same, but it is in a line that readers poll.
    pub(crate) next: AtomicU64,
}

/// The state of the policy `Bounded`, changed under the writer lock. Times are CLOCK_MONOTONIC in
/// ns.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Budget {
    pub(crate) interval_start_ns: AtomicU64,
    pub(crate) spent_ns: AtomicU64,
    /// The end of the latest slice already charged. Concurrent waiters are charged once for the
    /// same time.
    pub(crate) charged_until_ns: AtomicU64,
}

/// The mark of a clean close.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CleanClose {
    pub(crate) position: AtomicU64,
    pub(crate) sequence: AtomicU64,
    /// 1 if the state at the two words above was written back to the disk.
    pub(crate) valid: AtomicU64,
}

/// The first record that starts at or after the first byte of a block.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct BlockEntry {
    /// The position of that record, or [`NO_ENTRY`] while the entry changes.
    pub(crate) position: AtomicU64,
    /// Its sequence number.
    pub(crate) sequence: AtomicU64,
}

/// What the owner of the writer lock is about to enter into the table of arrivals; see `arrivals.rs`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct PendingArrival {
    /// The index of the entry plus 1, or 0 if nothing is pending.
    pub(crate) entry: AtomicU32,
    pub(crate) _unused: AtomicU32,
    /// Where the record starts that raises the mark.
    pub(crate) position: AtomicU64,
    /// What the entry's words of the same names are once that record is committed.
    pub(crate) mark: AtomicU64,
    pub(crate) highest: AtomicU64,
}

/// How far a stream from elsewhere has arrived. Written under the writer lock.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct ArrivalEntry {
    /// [`ARRIVAL_FREE`], [`ARRIVAL_USED`] or [`ARRIVAL_REPLACED`].
    pub(crate) state: AtomicU32,
    pub(crate) source: AtomicU32,
    pub(crate) series: AtomicU32,
    /// The stream, 16 bits.
    pub(crate) stream: AtomicU32,
    /// The lowest number that has not arrived, and [`MARK_TOLD`].
    pub(crate) mark: AtomicU64,
    /// The slot of the publisher that brings it, plus 1, or 0; and the slot's generation.
    pub(crate) bringer_slot: AtomicU32,
    pub(crate) bringer_generation: AtomicU32,
    /// When something last came of the stream: CLOCK_REALTIME, ns.
    pub(crate) reached_ns: AtomicU64,
    /// The number after the highest that has arrived. It is above the mark where messages come in any order.
    pub(crate) highest: AtomicU64,
    /// [`ARRIVAL_AWAITED`] and [`ARRIVAL_OVER`].
    pub(crate) flags: AtomicU32,
    /// The life of its source in which it last began to come, or 0 if that is not known.
    pub(crate) session: AtomicU32,
}

/// The bit of [`ArrivalEntry::mark`] that says: the newest record of the stream states that more may be missing after it, or
/// nothing follows. It is in the same word as the mark, so one store changes both.
pub(crate) const MARK_TOLD: u64 = 1 << 63;
/// The flag of an entry that inlets bring which await streams; see [`Inlet::awaiting`](crate::Inlet::awaiting).
pub(crate) const ARRIVAL_AWAITED: u32 = 1;
/// The flag of an entry of a series that nothing follows in, as its last inlet has said.
pub(crate) const ARRIVAL_OVER: u32 = 2;

/// An entry that was never used, and that no search goes beyond.
pub(crate) const ARRIVAL_FREE: u32 = 0;
/// The entry of a stream.
pub(crate) const ARRIVAL_USED: u32 = 1;
/// An entry that is being made, or whose maker died.
pub(crate) const ARRIVAL_REPLACED: u32 = 2;

/// The value of a retained topic; see `values.rs`. Written under the writer lock.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ValueEntry {
    /// The number of the topic plus 1, or 0 if the entry is not used.
    pub(crate) topic: AtomicU32,
    pub(crate) _unused: AtomicU32,
    /// Only grows. The low bit names the valid buffer; 0 says that there is none.
    pub(crate) version: AtomicU64,
    /// The record that will be the value once it is committed, and where the word is that commits it. The position is
    /// [`NO_ENTRY`] while the other two change.
    pub(crate) announced_position: AtomicU64,
    pub(crate) announced_sequence: AtomicU64,
    pub(crate) announced_commit: AtomicU64,
    pub(crate) buffers: [ValueBuffer; 2],
    /// A place for the buffer that is the shorter one, as in [`ValueBuffer::place`].
    pub(crate) spare: AtomicU64,
}

/// A copy of a record. It is missing if its place is too short.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ValueBuffer {
    /// Where in the area it is, and how long: units of [`VALUE_UNIT`] bytes, in the high and in the low half.
    pub(crate) place: AtomicU64,
    pub(crate) sequence: AtomicU64,
    pub(crate) position: AtomicU64,
    /// The header word of the record, which the copy begins with, too.
    pub(crate) header: AtomicU64,
}

/// The area for values is divided in units of that many bytes.
pub(crate) const VALUE_UNIT: u64 = 64;

/// The position of an index entry that is being changed or was never set.
pub(crate) const NO_ENTRY: u64 = u64::MAX;

/// The words of `readers` that belong to no slot. Readers write them. Publishers map everything before the slots
/// read-only, and survive if a reader truncates the file.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ReadersControl {
    /// The number of times that a reader armed its futex or its descriptor. Only grows, so a reader that
    /// dies asleep leaves nothing to clean up.
    pub(crate) sleeps: Line<AtomicU64>,
    /// Futex word of publishers that wait for space. Raised before each wake.
    pub(crate) space: Line<AtomicU32>,
    /// The number of times that a reader joined, left, or came back after it was lapped. After each
    /// of these, what a publisher has learned from the slots is outdated.
    pub(crate) joins: Line<AtomicU64>,
    /// Slots `0 .. slots_used` have been claimed at some time. The others need not be read.
    pub(crate) slots_used: Line<AtomicU32>,
}

/// An unused slot.
pub(crate) const SLOT_FREE: u32 = 0;
/// A slot that is in use, provided that its lease is held.
pub(crate) const SLOT_ACTIVE: u32 = 1;

/// The slot of a publishing participant, that is, of an opened bus that publishes.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct PublisherSlot {
    /// Raised by each claim. Its low bits are part of the lock word.
    pub(crate) generation: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) _unused: AtomicU32,
    /// Inode of the PID namespace to which `pid` belongs.
    pub(crate) pid_namespace: AtomicU64,
    /// CLOCK_REALTIME of the claim, ns.
    pub(crate) started_ns: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// The number of waits for space, and their total duration.
    pub(crate) waits: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    /// The number of times that the policy let the publisher overwrite although a gating reader was
    /// in the way, after a wait or without one.
    pub(crate) overwrites: AtomicU64,
    /// Wake-ups sent.
    pub(crate) wakes: AtomicU64,
    /// UTF-8, padded with 0.
    pub(crate) name: [AtomicU64; 5],
}

/// The slot of a subscriber.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ReaderSlot {
    /// Raised by each claim.
    pub(crate) generation: AtomicU32,
    pub(crate) state: AtomicU32,
    /// The reader has read everything before this position, and does not hold it.
    pub(crate) position: AtomicU64,
    pub(crate) pid: AtomicU32,
    /// [`READER_GATES`], [`READER_HAS_SOCKET`], [`READER_HOLDS`], [`READER_NEEDS_FENCE`].
    pub(crate) flags: AtomicU32,
    pub(crate) pid_namespace: AtomicU64,
    pub(crate) started_ns: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) lost_messages: AtomicU64,
    pub(crate) lapses: AtomicU64,
    /// The messages that were lost on their way to this bus, as stated by the losses that the reader was told of.
    pub(crate) lost_on_the_way: AtomicU64,
    pub(crate) _unused: AtomicU32,
    /// The number of these losses, at most `u32::MAX`.
    pub(crate) losses: AtomicU32,
    /// UTF-8, padded with 0.
    pub(crate) name: [AtomicU64; 6],
}

/// The patterns of a subscriber. They follow the last slot of `readers`, in the order of the slots.
/// They are not part of the slots, because publishers copy all slots once per block.
///
/// Observers read them: `toroni info`, `toroni topics` and `toroni pub --wait-subscribers`.
/// Publishing and receiving do not depend on them.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ReaderPatterns {
    /// Odd while the owner of the slot changes the other fields.
    pub(crate) version: AtomicU32,
    /// The slot's `generation` when its owner wrote the other fields. If it differs, the patterns
    /// belong to a former owner.
    pub(crate) generation: AtomicU32,
    /// The number of bytes of `text` in use.
    pub(crate) length: AtomicU32,
    /// 0 or [`PATTERNS_TRUNCATED`].
    pub(crate) flags: AtomicU32,
    /// UTF-8: as many whole patterns as fit, separated by [`PATTERN_SEPARATOR`].
    pub(crate) text: [AtomicU64; PATTERNS_TEXT_WORDS],
}

/// The subscriber has more patterns than fit into the text.
pub(crate) const PATTERNS_TRUNCATED: u32 = 1;
/// The separator of patterns: a control character, which no pattern contains.
pub(crate) const PATTERN_SEPARATOR: u8 = b'\n';

/// Publishers wait for the reader.
pub(crate) const READER_GATES: u32 = 1;
/// The reader has bound `sockets/<slot>.<generation>`.
pub(crate) const READER_HAS_SOCKET: u32 = 2;
/// The reader holds messages that it has read: `position` does not follow its reading. A hint for
/// publishers, which otherwise expect that a reader frees half of the ring soon.
pub(crate) const READER_HOLDS: u32 = 4;
/// The reader is refused the system call membarrier: publishers must not leave out the fence.
pub(crate) const READER_NEEDS_FENCE: u32 = 8;

// Loom's atomics are larger than real ones, so the layout holds only without loom.
#[cfg(not(loom))]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<RawFileHeader>() == 64);
    assert!(offset_of!(RawFileHeader, endianness) == 8 && offset_of!(RawFileHeader, version) == 12);
    assert!(size_of::<RawFileHeader>() <= READERS_CONTROL_OFFSET);
    assert!(size_of::<RawHeader>() == 640 && offset_of!(RawHeader, kernel_context) == 592);
    assert!(size_of::<RawRegion>() == 32 && offset_of!(RawHeader, regions) == 208);
    // They are rewritten together.
    assert!(offset_of!(RawHeader, stream_id) == 592 + size_of::<RawKernelContext>());
    assert!(offset_of!(Control, bounds) == 2048);
    // Whatever a region has fits its alignment.
    assert!(REGION_ALIGNMENT.is_multiple_of(align_of::<ReaderSlot>() as u64));
    assert!((PAGE as u64).is_multiple_of(REGION_ALIGNMENT));
    assert!(offset_of!(Control, commit) == 0);
    assert!(offset_of!(Control, reserved) == 128);
    assert!(offset_of!(Control, asymmetric) == 256);
    assert!(offset_of!(Control, waits) == 384);
    assert!(offset_of!(Control, budget) == 512);
    assert!(offset_of!(Control, mutex) == 640);
    assert!(offset_of!(Control, topics) == 768);
    assert!(offset_of!(Control, clean_close) == 896);
    assert!(offset_of!(Control, index) == 1024);
    assert!(size_of::<Arming>() == 8);
    assert!(offset_of!(Commit, tail) == 8 && offset_of!(Commit, sequence) == 16);
    assert!(offset_of!(Commit, next) == 24);
    assert!(size_of::<BlockEntry>() == 16);
    assert!(size_of::<PendingArrival>() == 64 && size_of::<ArrivalEntry>() == 64);
    assert!(offset_of!(PendingArrival, position) == 8 && offset_of!(PendingArrival, mark) == 16);
    assert!(offset_of!(PendingArrival, highest) == 24 && offset_of!(ArrivalEntry, highest) == 40);
    assert!(offset_of!(ArrivalEntry, mark) == 16 && offset_of!(ArrivalEntry, reached_ns) == 32);
    assert!(READERS_CONTROL_OFFSET + size_of::<ReadersControl>() <= PAGE);
    assert!(size_of::<PublisherSlot>() == SLOT_BYTES);
    assert!(size_of::<ReaderSlot>() == SLOT_BYTES);
    assert!(size_of::<ReaderPatterns>() == PATTERNS_BYTES);
    assert!(offset_of!(ReaderPatterns, generation) == 4 && offset_of!(ReaderPatterns, text) == 16);
    assert!(16 + 8 * PATTERNS_TEXT_WORDS == PATTERNS_BYTES);
    // Patterns are aligned after any number of slots.
    assert!(SLOT_BYTES.is_multiple_of(align_of::<ReaderPatterns>()));
};

/// Returns the number of words of a row in `readers`, with a bit for each of the slots.
pub(crate) const fn row_words(slots: u32) -> u32 {
    slots.div_ceil(u64::BITS)
}

/// Returns how many bytes of `ring` a table of arrivals with this many entries takes.
pub(crate) const fn arrivals_bytes(entries: u32) -> u64 {
    (size_of::<PendingArrival>() + entries as usize * size_of::<ArrivalEntry>()) as u64
}

impl Control {
    /// Resets the bus to an empty one. Requires that no other process uses it.
    pub(crate) fn reset(&self) {
        use crate::sync::Ordering::Relaxed;
        let Self {
            commit,
            reserved,
            asymmetric,
            waits,
            budget,
            mutex,
            topics,
            clean_close,
            index,
            bounds,
        } = self;
        commit.0.lock.store(0, Relaxed);
        commit.0.tail.store(0, Relaxed);
        commit.0.sequence.store(0, Relaxed);
        commit.0.next.store(0, Relaxed);
        reserved.0.store(ALIGNMENT, Relaxed);
        asymmetric.0.store(0, Relaxed);
        waits.0.count.store(0, Relaxed);
        waits.0.until.store(0, Relaxed);
        waits.0.proposed.store(0, Relaxed);
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
        for bound in bounds {
            bound.store(0, Relaxed);
        }
    }
}

impl Default for Control {
    /// Returns the words of an empty bus.
    fn default() -> Self {
        let control = Self {
            commit: Line::default(),
            reserved: Line::default(),
            asymmetric: Line::default(),
            waits: Line::default(),
            budget: Line::default(),
            mutex: Line::default(),
            topics: Line::default(),
            clean_close: Line::default(),
            index: core::array::from_fn(|_| BlockEntry::default()),
            bounds: core::array::from_fn(|_| AtomicU64::new(0)),
        };
        control.reset();
        control
    }
}
