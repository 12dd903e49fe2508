//! The mapped file `ring`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::directory::{BusDirectory, failed};
use super::header::Header;
use super::mapping::{MapOptions, MappedSlice, Mapping, Protection};
use super::regions::Part;
use super::ring_file::RingFile;
use crate::error::FileError;
use crate::hook::{self, CrashPoint};
use crate::ring::layout::{
    ArrivalEntry, CONTROL_OFFSET, Control, PendingArrival, RawFileHeader, VALUE_UNIT, ValueEntry,
};
use crate::ring::position::{Shape, to_index};
use crate::settings::LockKind;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::io;

/// `ring`, mapped read-only for subscribers and writable for publishers. The stream is mapped twice in a row, so
/// that no record wraps.
#[derive(Debug)]
pub(crate) struct RingSegment {
    mapping: Mapping,
    control: MappedSlice<Control>,
    words: MappedSlice<AtomicU64>,
    wake_words: MappedSlice<AtomicU32>,
    values: Option<MappedValues>,
    shape: Shape,
    file: RingFile,
}

/// The values of retained topics: index, entries, and the words of their area.
#[derive(Debug)]
struct MappedValues(MappedSlice<AtomicU32>, MappedSlice<ValueEntry>, MappedSlice<AtomicU64>);

impl MappedValues {
    /// Returns where they are, if the bus has any.
    fn of(mapping: &Mapping, header: &Header) -> Option<Self> {
        if header.settings.retained_topics == 0 {
            return None;
        }
        let place =
            |part| (to_index(header.offset(part)), to_index(header.regions.entries(part).into()));
        let (index, topics) = place(Part::ValueIndex);
        let (entries, count) = place(Part::Values);
        let (area, units) = place(Part::ValueArea);
        let words = units.saturating_mul(to_index(VALUE_UNIT / 8));
        Some(Self(
            mapping.mapped_slice(index, topics)?,
            mapping.mapped_slice(entries, count)?,
            mapping.mapped_slice(area, words)?,
        ))
    }
}

impl RingSegment {
    pub(crate) fn open(
        directory: &BusDirectory,
        protection: Protection,
        options: &MapOptions,
    ) -> Result<Self, FileError> {
        Self::map(RingFile::open(directory, protection)?, protection, options)
    }

    /// Returns the header. All of it was checked.
    #[inline]
    pub(crate) fn header(&self) -> &Header {
        self.file.header()
    }

    /// Returns the words that change.
    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: the mapping lives as long as self.
        unsafe { self.control.first() }
    }

    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    #[inline]
    pub(crate) fn table(&self) -> &[AtomicU64] {
        let words = to_index(self.header().settings.topic_table_bytes / 8);
        let offset = to_index(self.header().offset(Part::TopicTable));
        self.mapping.slice(offset, words).expect("as large as the header says")
    }

    /// Returns the table of arrivals, and what is about to be entered.
    pub(crate) fn arrivals(&self) -> (&PendingArrival, &[ArrivalEntry]) {
        let settings = &self.header().settings;
        let offset = to_index(self.header().offset(Part::Arrivals));
        let entries = offset.saturating_add(size_of::<PendingArrival>());
        let pending = self.mapping.slice(offset, 1).and_then(<[_]>::first);
        let entries = self.mapping.slice(entries, to_index(settings.max_arrivals.into()));
        pending.zip(entries).expect("as large as the header says")
    }

    /// Returns the stream, twice in a row: 2 × capacity bytes.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as self.
        unsafe { self.words.slice() }
    }

    /// Returns the futex words of the readers, by slot.
    #[inline]
    pub(crate) fn wake_words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping lives as long as self.
        unsafe { self.wake_words.slice() }
    }

    /// Returns the index of the values of retained topics, their entries and the words of their area, if the bus has any.
    #[inline]
    pub(crate) fn values(&self) -> Option<(&[AtomicU32], &[ValueEntry], &[AtomicU64])> {
        let MappedValues(index, entries, area) = self.values.as_ref()?;
        // SAFETY: the mapping lives as long as self.
        Some(unsafe { (index.slice(), entries.slice(), area.slice()) })
    }

    /// Returns whether the bus was removed. For slow paths.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.file.is_unlinked()
    }

    /// Returns whether the file was truncated and this mapping was used to access a lost part.
    #[inline]
    pub(crate) fn was_damaged(&self) -> bool {
        self.mapping.was_damaged()
    }

    /// Returns whether the file no longer has the id of this bus. That happens if the file is made again while it
    /// is mapped, for example by truncating it to nothing and extending it.
    pub(crate) fn is_foreign(&self) -> bool {
        const WORDS: usize = 2;
        let place = std::mem::offset_of!(RawFileHeader, bus_id);
        let Some(words) = self.mapping.slice::<AtomicU64>(place, WORDS) else { return true };
        let (halves, _) = self.header().bus_id.as_chunks();
        words
            .iter()
            .zip(halves)
            .any(|(word, half)| word.load(Ordering::Relaxed) != u64::from_ne_bytes(*half))
    }

    /// Returns the file and its lock.
    pub(crate) fn file(&self) -> &RingFile {
        &self.file
    }

    fn map(
        file: RingFile,
        protection: Protection,
        options: &MapOptions,
    ) -> Result<Self, FileError> {
        let header = file.header();
        let directory = file.directory().path();
        if file.is_on_disk()
            && protection == Protection::Write
            && header.settings.lock == LockKind::Robust
        {
            return Err(FileError::RobustOnDisk { path: directory.to_owned() });
        }
        let path = directory.join("ring");
        let prefix = to_index(header.data_offset);
        let capacity = to_index(header.settings.capacity);
        let mapped = file.open_for_mapping(protection)?;
        let mapping = Mapping::twice(&mapped, prefix, capacity, protection)
            .map_err(|error| failed("map", &path, error))?;
        if options.huge_pages || header.settings.huge_pages {
            mapping.ask_for_huge_pages(prefix);
        }
        if options.mlock {
            mapping.lock(prefix.saturating_add(capacity)).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN) => FileError::MemoryLock {
                        wanted: header.ring_bytes(),
                        limit: rustix::process::getrlimit(rustix::process::Resource::Memlock)
                            .current
                            .unwrap_or(u64::MAX),
                        path: path.clone(),
                    },
                    _ => failed("lock in memory", &path, error),
                }
            })?;
        }
        // Locked pages are in memory, but those of the second copy are not in the page tables.
        if options.prefault || options.mlock {
            mapping.prefault().map_err(|error| failed("prefault", &path, error))?;
        }
        let shape = Shape::new(header.settings.capacity);
        let control = mapping.mapped_slice(CONTROL_OFFSET, 1);
        let words = mapping.mapped_slice(prefix, capacity / 4);
        let wake_words = mapping.mapped_slice(
            to_index(header.offset(Part::WakeWords)),
            to_index(header.settings.max_subscribers.into()),
        );
        let (Some(shape), Some(control), Some(words), Some(wake_words)) =
            (shape, control, words, wake_words)
        else {
            unreachable!("as large as the header says, which was checked");
        };
        let values = MappedValues::of(&mapping, header);
        Ok(Self { mapping, control, words, wake_words, values, shape, file })
    }
}

/// What only buses on a disk need, because their pages are written back in any order.
///
/// While a publisher has the bus open, the mark of a clean close is absent. The last publisher to leave writes
/// everything back and then sets the mark. After a crash of the machine there is no mark, and the ring holds pages
/// of any age: it starts empty. For a bus in memory all of this does nothing.
impl RingSegment {
    /// Returns whether the bus was last used before this machine booted. Then nothing in it may be believed until
    /// the caller, under the exclusive lock of [`file`](Self::file), has checked [`clean_close`](Self::clean_close)
    /// and called [`adopt`](Self::adopt).
    pub(crate) fn boot_changed(&self) -> bool {
        self.file.is_on_disk()
            && self.header().kernel_context.boot_id
                != super::platform::KernelContext::current().boot_id
    }

    /// Returns position and sequence at the end of the stream, if everything was written back and nothing has been
    /// written since.
    pub(crate) fn clean_close(&self) -> Option<(u64, u64)> {
        let mark = &self.control().clean_close.0;
        (mark.valid.load(Ordering::Relaxed) == 1)
            .then(|| (mark.position.load(Ordering::Relaxed), mark.sequence.load(Ordering::Relaxed)))
    }

    /// Removes the mark, on the disk too. Must precede the first write of a publisher.
    pub(crate) fn mark_in_use(&self) -> io::Result<()> {
        if !self.file.is_on_disk() {
            return Ok(());
        }
        self.control().clean_close.0.valid.store(0, Ordering::Relaxed);
        hook::point(CrashPoint::MidMarkInUse);
        self.mapping.write_back(0, self.prefix())
    }

    /// Writes everything back and then sets the mark. Only the last publisher may call this, under the writer lock.
    pub(crate) fn mark_clean_close(&self, position: u64, sequence: u64) -> io::Result<()> {
        if !self.file.is_on_disk() {
            return Ok(());
        }
        let capacity = to_index(self.header().settings.capacity);
        self.mapping.write_back(0, self.prefix().saturating_add(capacity))?;
        hook::point(CrashPoint::BeforeCloseMark);
        let mark = &self.control().clean_close.0;
        mark.position.store(position, Ordering::Relaxed);
        mark.sequence.store(sequence, Ordering::Relaxed);
        mark.valid.store(1, Ordering::Relaxed);
        hook::point(CrashPoint::AfterCloseMark);
        self.mapping.write_back(0, self.prefix())
    }

    /// Writes this boot into the header of the bus. Only under the exclusive lock, and after the content was
    /// verified or, if the stream `is_new`, discarded ([`Control::reset`]).
    pub(crate) fn adopt(&mut self, is_new: bool) -> io::Result<()> {
        self.mapping.write_back(0, self.prefix())?;
        self.file.adopt(is_new)
    }

    fn prefix(&self) -> usize {
        to_index(self.header().data_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::OpenError;
    use crate::settings::Settings;
    use crate::shm::acl::Permissions;
    use crate::shm::create;
    use crate::shm::header::KERNEL_CONTEXT_OFFSET;
    use crate::shm::testing::{TempDir, small};
    use std::os::unix::fs::FileExt;

    fn open(bus: &BusDirectory, protection: Protection) -> RingSegment {
        RingSegment::open(bus, protection, &MapOptions::default()).unwrap()
    }

    #[test]
    fn both_roles_see_the_same_ring() {
        let root = TempDir::new();
        let bus = root.bus();
        let writer = open(&bus, Protection::Write);
        let reader = open(&bus, Protection::Read);
        assert_eq!(writer.header(), reader.header());
        assert_eq!(reader.control().reserved.0.load(Ordering::Relaxed), 8);
        writer.control().commit.0.tail.store(64, Ordering::Relaxed);
        assert_eq!(reader.control().commit.0.tail.load(Ordering::Relaxed), 64);
        assert_eq!(reader.table().len(), 4096 / 8);
        let words = reader.words().len();
        assert_eq!(words, 2 * 65536 / 8);
        writer.words()[words / 2 - 1].store(5, Ordering::Relaxed);
        writer.words()[words / 2].store(6, Ordering::Relaxed);
        assert_eq!(reader.words()[words - 1].load(Ordering::Relaxed), 5);
        assert_eq!(reader.words()[0].load(Ordering::Relaxed), 6);
    }

    #[test]
    fn every_option_maps() {
        let root = TempDir::new();
        let settings = Settings { huge_pages: true, capacity: 2 << 20, ..small() };
        let (bus, _) =
            create::create(root.path(), "huge", &settings, &Permissions::default()).unwrap();
        for protection in [Protection::Read, Protection::Write] {
            let options = MapOptions { huge_pages: true, prefault: true, mlock: true };
            let segment = RingSegment::open(&bus, protection, &options).unwrap();
            assert!(segment.header().data_offset.is_multiple_of(2 << 20));
            assert_eq!(segment.words()[0].load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn truncation_is_survived_and_reported() {
        let root = TempDir::new();
        let bus = root.bus();
        let segment = open(&bus, Protection::Read);
        let file = std::fs::File::options().write(true).open(bus.path().join("ring")).unwrap();
        file.set_len(0).unwrap();
        assert_eq!(segment.control().reserved.0.load(Ordering::Relaxed), 0);
        assert_eq!(segment.words()[segment.words().len() - 1].load(Ordering::Relaxed), 0);
        assert!(segment.was_damaged());
    }

    #[test]
    fn memory_needs_no_marks() {
        let root = TempDir::new();
        let segment = open(&root.bus(), Protection::Write);
        segment.mark_clean_close(8, 1).unwrap();
        assert_eq!(segment.clean_close(), None);
        assert!(!segment.boot_changed());
    }

    /// On the disk that has the target directory, if it is one.
    #[test]
    fn a_disk_remembers_its_boot_and_its_clean_close() {
        let root = TempDir::below("/var/tmp");
        let bus = root.bus();
        let mut segment = open(&bus, Protection::Write);
        if !segment.file().is_on_disk() {
            return eprintln!("skipped: /var/tmp is in memory");
        }
        segment.mark_clean_close(72, 3).unwrap();
        drop(segment);
        segment = open(&bus, Protection::Write);
        assert_eq!(segment.clean_close(), Some((72, 3)));
        segment.mark_in_use().unwrap();
        assert_eq!(segment.clean_close(), None);
        assert!(!segment.boot_changed());
        let file = std::fs::File::options().write(true).open(bus.path().join("ring")).unwrap();
        file.write_all_at(&[7; 16], KERNEL_CONTEXT_OFFSET as u64).unwrap();
        segment = open(&bus, Protection::Write);
        assert!(segment.boot_changed());
        assert!(segment.file().try_exclusive().unwrap());
        segment.adopt(false).unwrap();
        segment.file().back_to_shared().unwrap();
        assert!(!segment.boot_changed());
        assert!(!open(&bus, Protection::Read).boot_changed());
    }

    #[test]
    fn robust_is_refused_on_disks() {
        let root = TempDir::below("/var/tmp");
        if !open(&root.bus(), Protection::Read).file().is_on_disk() {
            return eprintln!("skipped: /var/tmp is in memory");
        }
        let settings = Settings { lock: LockKind::Robust, ..small() };
        let created = create::create(root.path(), "robust", &settings, &Permissions::default());
        assert!(matches!(created, Err(OpenError::File(FileError::RobustOnDisk { .. }))));
        assert_eq!(root.names(), ["bus"]);
    }
}
