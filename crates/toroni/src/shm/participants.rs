//! The files `publishers` and `readers`: their slots, and the words beside the slots.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::description::CheckedFd;
use super::directory::{BusDirectory, BusFile, failed};
use super::header::{FILE_HEADER_BYTES, Header};
use super::mapping::{MappedSlice, Mapping, Protection};
use super::patterns::with_patterns;
use super::regions::Part;
use super::snapshot::{PatternsSnapshot, PublisherSnapshot, ReaderSnapshot, Snapshot};
use crate::error::FileError;
use crate::ring::layout::{
    Arming, PATTERNS_BYTES, PublisherSlot, READERS_CONTROL_OFFSET, ReaderPatterns, ReaderSlot,
    ReadersControl, SLOT_BYTES, row_words,
};
use crate::ring::position::to_index;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The file `readers`.
///
/// A subscriber maps all of it. A publisher maps only what is before the slots, read-only and guarded, and reads the
/// slots with one system call. Any subscriber can truncate this file, and publishers must continue nevertheless.
#[derive(Debug)]
pub(crate) struct ReadersSegment {
    mapping: Mapping,
    control: MappedSlice<ReadersControl>,
    arming: MappedSlice<Arming>,
    rows: MappedSlice<AtomicU64>,
    file: CheckedFd,
    slots: u32,
    /// The offsets of the first slot and of its patterns.
    slots_offset: usize,
    patterns_offset: usize,
    was_damaged_before: bool,
    /// 1 once a scan found it, see [`Self::is_blind`].
    is_blind: AtomicU32,
}

impl ReadersSegment {
    /// Opens and maps the file: with [`Protection::Write`] for a subscriber, with [`Protection::Read`] for a
    /// publisher. A publisher opens it whatever its content, see [`was_damaged`](Self::was_damaged); otherwise a
    /// subscriber that damaged it would lock out new publishers.
    pub(crate) fn open(
        directory: &BusDirectory,
        header: &Header,
        protection: Protection,
    ) -> Result<Self, FileError> {
        let path = directory.path().join(BusFile::Readers.name());
        let file = directory.open_file(BusFile::Readers, protection)?;
        let checked = check(&file, header, BusFile::Readers, directory);
        let slots_offset = to_index(header.offset(Part::ReaderSlots));
        let patterns_offset = to_index(header.offset(Part::Patterns));
        let (length, was_damaged_before) = match protection {
            Protection::Read => (slots_offset, checked.is_err()),
            Protection::Write => {
                checked?;
                (to_index(header.file_bytes(BusFile::Readers)), false)
            }
        };
        let mapping = Mapping::file(&file, length, protection)
            .map_err(|error| failed("map", &path, error))?;
        let slots = header.slots(BusFile::Readers);
        let file = CheckedFd::new(file).map_err(|errno| failed("open", &path, errno))?;
        let control = mapping.mapped_slice(READERS_CONTROL_OFFSET, 1);
        let arming =
            mapping.mapped_slice(to_index(header.offset(Part::Arming)), to_index(slots.into()));
        let words =
            to_index(u64::from(header.tracked_topics()).saturating_mul(row_words(slots).into()));
        let rows = mapping.mapped_slice(to_index(header.offset(Part::Rows)), words);
        let (Some(control), Some(arming), Some(rows)) = (control, arming, rows) else {
            unreachable!("all of it is before the slots, and mapped");
        };
        let is_blind = AtomicU32::new(0);
        Ok(Self {
            mapping,
            control,
            arming,
            rows,
            file,
            slots,
            slots_offset,
            patterns_offset,
            was_damaged_before,
            is_blind,
        })
    }

    /// Returns how often each slot has armed.
    #[inline]
    pub(crate) fn arming(&self) -> &[Arming] {
        // SAFETY: the mapping lives as long as self.
        unsafe { self.arming.slice() }
    }

    /// Returns which slots want no message of which topic: a row of [`row_words`] for each topic.
    #[inline]
    pub(crate) fn rows(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as self.
        unsafe { self.rows.slice() }
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the words that belong to no slot.
    #[inline]
    pub(crate) fn control(&self) -> &ReadersControl {
        // SAFETY: the mapping lives as long as self.
        unsafe { self.control.first() }
    }

    /// Returns a slot, whose number must be below the number of slots. Only for subscribers: publishers have not
    /// mapped them.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> &ReaderSlot {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let offset = offset_of_slot(self.slots_offset, slot);
        self.mapping.at(offset).expect("a subscriber maps all of the file")
    }

    /// Returns the patterns of a slot, under the same conditions as [`slot`](Self::slot).
    pub(crate) fn patterns(&self, slot: u32) -> &ReaderPatterns {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let offset = offset_of_patterns(self.patterns_offset, slot);
        self.mapping.at(offset).expect("a subscriber maps all of the file")
    }

    /// Returns the slots that were ever used. Only for subscribers.
    pub(crate) fn used_slots(&self) -> impl Iterator<Item = &ReaderSlot> {
        let used = self.control().slots_used.0.load(Ordering::Acquire);
        (0..used.min(self.slots)).map(|slot| self.slot(slot))
    }

    /// Reads slots `0 .. used` with one system call; `into[n]` is slot n. `used` comes from another process, so it
    /// is limited to the number of slots. If the file was truncated, the missing slots read as free.
    ///
    /// # Errors
    /// Also fails if the descriptor no longer stands for this file, see [`Self::is_blind`].
    pub(crate) fn scan(&self, used: u32, into: &mut Vec<ReaderSnapshot>) -> io::Result<()> {
        let answer = read_slots(&self.file, self.slots_offset, used.min(self.slots), into);
        if self.file.is_intact() {
            return answer;
        }
        self.is_blind.store(1, Ordering::Relaxed);
        Err(rustix::io::Errno::BADF.into())
    }

    /// Reads one slot. If the file is too short, the slot reads as free.
    pub(crate) fn read(&self, slot: u32) -> io::Result<ReaderSnapshot> {
        let mut one = [ReaderSnapshot::default()];
        self.file.ask(|file| {
            let offset = offset_of_slot(self.slots_offset, slot) as u64;
            Ok(rustix::io::pread(file, Snapshot::bytes_of(&mut one), offset)?)
        })?;
        Ok(one[0])
    }

    /// Returns whether a [`scan`](Self::scan) found that other code closed the descriptor. From then on nothing is
    /// known about the subscribers.
    #[inline]
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the file was truncated or does not match `ring`. Then its content about subscribers cannot
    /// be relied on.
    pub(crate) fn was_damaged(&self) -> bool {
        self.was_damaged_before || self.mapping.was_damaged()
    }
}

/// The file `publishers`, mapped whole and writable. Subscribers cannot open it.
#[derive(Debug)]
pub(crate) struct PublishersSegment {
    mapping: Mapping,
    slots: MappedSlice<PublisherSlot>,
}

impl PublishersSegment {
    pub(crate) fn open(directory: &BusDirectory, header: &Header) -> Result<Self, FileError> {
        let path = directory.path().join(BusFile::Publishers.name());
        let file = directory.open_file(BusFile::Publishers, Protection::Write)?;
        check(&file, header, BusFile::Publishers, directory)?;
        let length = to_index(header.file_bytes(BusFile::Publishers));
        let mapping = Mapping::file(&file, length, Protection::Write)
            .map_err(|error| failed("map", &path, error))?;
        let count = to_index(header.slots(BusFile::Publishers).into());
        let first = to_index(header.offset(Part::PublisherSlots));
        let slots = mapping.mapped_slice(first, count).expect("as large as the header says");
        Ok(Self { mapping, slots })
    }

    /// Returns a slot, whose number must be below the number of slots.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> &PublisherSlot {
        // SAFETY: the mapping lives as long as self.
        let slots = unsafe { self.slots.slice() };
        &slots[slot as usize]
    }

    /// Returns whether the file was truncated.
    pub(crate) fn was_damaged(&self) -> bool {
        self.mapping.was_damaged()
    }
}

/// A copy of the slot of a subscriber and of its patterns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderView {
    pub(crate) number: u32,
    pub(crate) slot: ReaderSnapshot,
    /// `None` if the owner did not write them, or if they kept changing while they were read.
    pub(crate) patterns: Option<PatternsSnapshot>,
}

/// Reads all active slots of `readers`, for `toroni info`. Read permission is enough.
pub(crate) fn read_readers(
    directory: &BusDirectory,
    header: &Header,
) -> Result<Vec<ReaderView>, FileError> {
    let file = BusFile::Readers;
    let fd = open_slots(directory, header, file)?;
    read_views(&fd, header)
        .map_err(|error| failed("read", &directory.path().join(file.name()), error))
}

/// Reads all slots of `publishers`, for `toroni info`. Read permission is enough.
pub(crate) fn read_publishers(
    directory: &BusDirectory,
    header: &Header,
) -> Result<Vec<PublisherSnapshot>, FileError> {
    let file = BusFile::Publishers;
    let fd = open_slots(directory, header, file)?;
    let mut slots = Vec::new();
    let first = to_index(header.offset(Part::PublisherSlots));
    read_slots(&fd, first, header.slots(file), &mut slots)
        .map_err(|error| failed("read", &directory.path().join(file.name()), error))?;
    Ok(slots)
}

fn read_views(fd: impl AsFd, header: &Header) -> io::Result<Vec<ReaderView>> {
    let [first, patterns] =
        [Part::ReaderSlots, Part::Patterns].map(|part| to_index(header.offset(part)));
    let mut slots = Vec::<ReaderSnapshot>::new();
    read_slots(&fd, first, header.slots(BusFile::Readers), &mut slots)?;
    let mut views = Vec::new();
    for (number, slot) in (0..).zip(slots) {
        let slot_now = || read_one(&fd, offset_of_slot(first, number));
        let patterns_now = || read_one(&fd, offset_of_patterns(patterns, number));
        if let Some((slot, patterns)) = with_patterns(slot, slot_now, patterns_now)? {
            views.push(ReaderView { number, slot, patterns });
        }
    }
    Ok(views)
}

/// Returns the offset of a slot in its file, whose first slot is at `first`.
pub(super) fn offset_of_slot(first: usize, slot: u32) -> usize {
    to_index(u64::from(slot)).saturating_mul(SLOT_BYTES).saturating_add(first)
}

/// Returns the offset of a slot's patterns in `readers`, whose first patterns are at `first`.
pub(super) fn offset_of_patterns(first: usize, slot: u32) -> usize {
    to_index(u64::from(slot)).saturating_mul(PATTERNS_BYTES).saturating_add(first)
}

/// Returns state and generation of a slot in a file that is mapped whole: `clean` reads them, and frees the slot by them.
pub(super) fn state_of<'a>(
    mapping: &'a Mapping,
    header: &Header,
    file: BusFile,
    slot: u32,
) -> Option<(&'a AtomicU32, &'a AtomicU32)> {
    match file {
        BusFile::Ring => None,
        BusFile::Publishers => {
            let first = to_index(header.offset(Part::PublisherSlots));
            let slot = mapping.at::<PublisherSlot>(offset_of_slot(first, slot))?;
            Some((&slot.state, &slot.generation))
        }
        BusFile::Readers => {
            let first = to_index(header.offset(Part::ReaderSlots));
            let slot = mapping.at::<ReaderSlot>(offset_of_slot(first, slot))?;
            Some((&slot.state, &slot.generation))
        }
    }
}

/// Checks that a file belongs to the bus of this header and has the right size.
pub(super) fn check(
    fd: &OwnedFd,
    header: &Header,
    file: BusFile,
    directory: &BusDirectory,
) -> Result<(), FileError> {
    let path = directory.path().join(file.name());
    let mut bytes = [0; FILE_HEADER_BYTES];
    let length = rustix::io::pread(fd, &mut bytes, 0);
    let length = length.map_err(|errno| failed("read", &path, errno))?;
    let stat = rustix::fs::fstat(fd).map_err(|errno| failed("read", &path, errno))?;
    let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    header.check_file(file, &bytes[..length], file_bytes, &path)
}

pub(super) fn open_slots(
    directory: &BusDirectory,
    header: &Header,
    file: BusFile,
) -> Result<OwnedFd, FileError> {
    let fd = directory.open_file(file, Protection::Read)?;
    check(&fd, header, file, directory)?;
    Ok(fd)
}

fn read_slots<T: Snapshot>(
    fd: impl AsFd,
    first: usize,
    count: u32,
    into: &mut Vec<T>,
) -> io::Result<()> {
    into.clear();
    into.resize(to_index(u64::from(count)), T::default());
    // If the file was truncated, the read is short, and the remaining slots stay free.
    rustix::io::pread(fd, T::bytes_of(into), first as u64)?;
    Ok(())
}

pub(super) fn read_one<T: Snapshot>(fd: impl AsFd, offset: usize) -> io::Result<T> {
    let mut one = [T::default()];
    rustix::io::pread(fd, T::bytes_of(&mut one), offset as u64)?;
    let [one] = one;
    Ok(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::layout::{READER_GATES, SLOT_ACTIVE, SLOT_FREE};
    use crate::shm::ring_file::RingFile;
    use crate::shm::testing::TempDir;
    use crate::sync::Ordering::Relaxed;

    fn header(bus: &BusDirectory) -> Header {
        RingFile::open(bus, Protection::Read).unwrap().header().clone()
    }

    #[test]
    fn publishers_see_what_subscribers_write() {
        let root = TempDir::new();
        let bus = root.bus();
        let header = header(&bus);
        let subscriber = ReadersSegment::open(&bus, &header, Protection::Write).unwrap();
        let publisher = ReadersSegment::open(&bus, &header, Protection::Read).unwrap();
        subscriber.control().joins.0.store(3, Relaxed);
        assert_eq!(publisher.control().joins.0.load(Relaxed), 3);
        let slot = subscriber.slot(3);
        slot.generation.store(9, Relaxed);
        slot.state.store(SLOT_ACTIVE, Relaxed);
        slot.position.store(1 << 40, Relaxed);
        slot.flags.store(READER_GATES, Relaxed);
        slot.name[0].store(u64::from_ne_bytes(*b"watcher\0"), Relaxed);
        let mut seen = Vec::new();
        publisher.scan(u32::MAX, &mut seen).unwrap();
        assert_eq!(seen.len(), 4);
        assert_eq!((seen[3].generation, seen[3].position), (9, 1 << 40));
        assert_eq!((seen[3].state, seen[3].flags), (SLOT_ACTIVE, READER_GATES));
        assert_eq!(seen[3].name(), "watcher");
        assert_eq!(seen[0].state, SLOT_FREE);
        publisher.scan(1, &mut seen).unwrap();
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn publishers_survive_the_truncation_of_readers() {
        let root = TempDir::new();
        let bus = root.bus();
        let header = header(&bus);
        let subscriber = ReadersSegment::open(&bus, &header, Protection::Write).unwrap();
        let publisher = ReadersSegment::open(&bus, &header, Protection::Read).unwrap();
        for slot in 0..4 {
            subscriber.slot(slot).state.store(SLOT_ACTIVE, Relaxed);
        }
        let file = std::fs::File::options().write(true).open(bus.path().join("readers")).unwrap();
        // In the middle of slot 1.
        file.set_len((offset_of_slot(to_index(header.offset(Part::ReaderSlots)), 1) + 4) as u64)
            .unwrap();
        let mut seen = Vec::new();
        publisher.scan(4, &mut seen).unwrap();
        let states: Vec<_> = seen.iter().map(|slot| slot.state).collect();
        assert_eq!(states, [SLOT_ACTIVE, SLOT_FREE, SLOT_FREE, SLOT_FREE]);
        assert!(!publisher.was_damaged());
        file.set_len(0).unwrap();
        publisher.scan(4, &mut seen).unwrap();
        assert!(seen.iter().all(|slot| slot.state == SLOT_FREE));
        assert_eq!(publisher.control().sleeps.0.load(Relaxed), 0);
        assert!(publisher.was_damaged());
        // A new publisher still works; a new subscriber gets an error.
        let newer = ReadersSegment::open(&bus, &header, Protection::Read).unwrap();
        assert!(newer.was_damaged());
        assert_eq!(newer.control().sleeps.0.load(Relaxed), 0);
        assert!(matches!(
            ReadersSegment::open(&bus, &header, Protection::Write),
            Err(FileError::Truncated { .. })
        ));
    }

    #[test]
    fn publishers_have_slots() {
        let root = TempDir::new();
        let bus = root.bus();
        let header = header(&bus);
        let segment = PublishersSegment::open(&bus, &header).unwrap();
        segment.slot(2).messages.store(77, Relaxed);
        for word in &segment.slot(2).name {
            word.store(u64::MAX, Relaxed);
        }
        let seen = read_publishers(&bus, &header).unwrap();
        assert_eq!((seen.len(), seen[2].messages), (4, 77));
        assert_eq!(seen[2].name().chars().count(), 40);
    }

    #[test]
    fn files_of_another_bus_are_refused() {
        let (one, two) = (TempDir::new(), TempDir::new());
        let (bus, other) = (one.bus(), two.bus());
        let header = header(&bus);
        std::fs::copy(other.path().join("publishers"), bus.path().join("publishers")).unwrap();
        assert!(matches!(
            PublishersSegment::open(&bus, &header),
            Err(FileError::ForeignFile { .. })
        ));
    }
}
