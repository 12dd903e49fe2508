//! The replicated log and the vote of a member, on a disk. It knows places and bytes, and not who asks for them.
//!
//! ```text
//!  directory of a log
//!    state                      vote, what was purged, a cut under way: two copies (state.rs)
//!    0000000000000000.log …     segments with entries, allocated ahead (segment.rs)
//!    snapshot                   the state of the machine (snapshot.rs)
//!    committed                  up to where it was committed, at least (committed.rs)
//!    states/                    states of the machine in between, of the module `feed`
//!    *.tmp                      what was not finished; removed at the next start
//! ```
//!
//! **What a start believes** (`open.rs`). Only the last segment is scanned: the others were synced before it was made. If
//! bytes there are wrong, and a later record states that they had been synced, they are rotten, and the log does not
//! open. If none does, the write was never synced and so never answered: the log ends before it. What follows is filled
//! with zeros before anything is appended. That bytes of the last group of all have rotted cannot be told from a write
//! that was torn.
//!
//! **A failed `fdatasync` ends the process.** The kernel may have dropped the pages, so no later one would tell the truth
//! (Rebello et al.: "Can Applications Recover from fsync Failures?", USENIX ATC 2020).

mod committed;
mod crash_point;
mod error;
pub mod inspect;
mod open;
mod reach;
mod segment;
mod snapshot;
mod standing;
mod state;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::committed::Committed;
use self::crash_point::{CrashPoint, point};
pub use self::error::LogError;
pub use self::reach::Glance;
use self::segment::{HEADER_BYTES, RECORD_BYTES, Segment, Walk, encode_record, record_bytes};
pub use self::snapshot::NewSnapshot;
pub use self::standing::Found;
use self::state::{Position, StateFile};
use self::sync::Syncer;
use crate::entry::{Entry, Place, Reach};
use crate::hook::mutant;
use crate::say::say;

/// When entries are synced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Before they are answered.
    Always,
    /// In this interval. After a power failure, a member may lack what it answered for.
    Interval(Duration),
}

impl Sync {
    /// Every 50 ms.
    pub const OFTEN: Self = Self::Interval(Duration::from_millis(50));
}

/// How a log is kept.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The length of a segment, in bytes [default: 64 MiB].
    pub segment_bytes: u64,
    /// When entries are synced [default: always].
    pub sync: Sync,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, sync: Sync::Always }
    }
}

/// Entries of this many bytes are kept in memory, for members that follow closely.
const RECENT_BYTES: usize = 4 << 20;

/// The log of a member. Clones are handles of the same log.
#[derive(Debug, Clone)]
pub struct Log {
    shared: Arc<Shared>,
    syncer: Arc<Syncer>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    options: Options,
    /// How the log was found.
    found: Found,
    /// Of this opening alone.
    life: [u8; 16],
    inner: Mutex<Inner>,
    /// What was last shown of it.
    seen: Mutex<Glance>,
    /// How far the log had come when it was opened, or with what else it was compared.
    opened: Mutex<Reach>,
}

#[derive(Debug)]
struct Inner {
    state: StateFile,
    /// At least one. Entries are appended to the last.
    segments: VecDeque<Arc<Segment>>,
    /// Where the next record begins in the last segment.
    tail: u64,
    /// Up to where the last segment is synced.
    synced: u64,
    /// The last entry that is synced, or the last one that was purged.
    last_synced: Option<Place>,
    /// Whether it was closed, and may belong to another process.
    closed: bool,
    /// How often entries were cut off.
    cuts: u64,
    /// The CRC of the last record of the last segment, or of its header.
    crc: u32,
    /// The last entry.
    last: Option<Place>,
    /// The last entries.
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    committed: Committed,
    /// How many snapshots were begun.
    snapshots: u64,
    /// A segment without a header and a number.
    spare: Option<(File, u64)>,
}

/// Syncs the contents of a file, or ends the process: nothing can be believed after a failure.
fn sync_or_die(file: &File, path: &Path) {
    if let Err(error) = file.sync_data() {
        say(format_args!(
            "could not sync {}: {error}; ending, because what is on the disk is unknown",
            path.display()
        ));
        std::process::abort();
    }
}

fn sync_directory(directory: &Path) -> Result<(), LogError> {
    let opened = File::open(directory).and_then(|directory| directory.sync_all());
    opened.map_err(LogError::io("sync", directory))
}

impl Log {
    /// Opens the log in this directory. If there is none, makes an empty one with a new id.
    ///
    /// # Errors
    ///
    /// If synced bytes have changed, a file is foreign, another process uses the log, or the disk is full.
    pub fn open(directory: &Path, options: Options) -> Result<Self, LogError> {
        let (found, inner) = open::open(directory, options)?;
        let generation = inner.state.state.generation;
        let opened = Reach { generation, last: inner.last_synced };
        let life =
            standing::random_id().map_err(LogError::io("read random bytes for", directory))?;
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            options,
            found,
            life,
            inner: Mutex::new(inner),
            seen: Mutex::default(),
            opened: Mutex::new(opened),
        });
        let syncer = Arc::new(Syncer::start(Arc::clone(&shared))?);
        let log = Self { shared, syncer };
        // So that there is something to show.
        let _ = log.glance();
        Ok(log)
    }

    /// Returns its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Returns the last entry that was purged, and the last entry.
    #[must_use]
    pub fn ends(&self) -> (Option<Place>, Option<Place>) {
        self.shared.lock().ends()
    }

    /// Returns whether an append of `bytes` bytes will find room. If not, tries to allocate it.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let mut inner = self.shared.lock();
        // Each entry may be alone, with padding.
        let needed = bytes as u64 + 4 * RECORD_BYTES as u64;
        if inner.tail + needed <= inner.segment().capacity {
            return true;
        }
        inner.make_spare(&self.shared.directory, self.shared.options.segment_bytes).is_ok()
            && inner.spare.as_ref().is_some_and(|(_, capacity)| HEADER_BYTES + needed <= *capacity)
    }

    /// Returns how many bytes are free on the disk.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.shared.directory);
        found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Appends entries. `done` is called, by another thread, when they may be answered: with [`Sync::Always`] when they are
    /// on the disk.
    ///
    /// # Errors
    ///
    /// [`LogError::Full`] if there is no room for a further segment, [`LogError::Order`] if an entry does not follow the
    /// last one. What was appended before stays, `done` is dropped.
    pub fn append(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<(), LogError> {
        let mut inner = self.shared.lock();
        inner.check_open()?;
        let entries: Vec<Entry> = entries.into_iter().collect();
        let mut last = inner.ends().1;
        for Entry { place, .. } in &entries {
            if last.is_some_and(|last| last.index.checked_add(1) != Some(place.index)) {
                return Err(LogError::Order(place.index));
            }
            last = Some(*place);
        }
        let mut bytes = Vec::new();
        let mut scratch = Vec::new();
        let mut written = vec![];
        for entry in entries {
            let last = written.last().map(|entry: &Entry| entry.place).or(inner.last);
            scratch.clear();
            entry.encode(&mut scratch);
            let needed = record_bytes(scratch.len()) as u64;
            if last.is_none() && inner.segment().first() != entry.place.index {
                let index = entry.place.index.checked_sub(1);
                let before = index.map(|index| Place { index, ..Place::default() });
                inner.start_over(&self.shared, before)?;
            }
            if inner.tail + bytes.len() as u64 + needed > inner.segment().capacity {
                inner.write(&mut bytes, &mut written)?;
                // Before the first entry there may be what was purged.
                let before = last.or(inner.state.state.purged);
                inner.roll(&self.shared, needed, before)?;
            }
            let at = inner.tail + bytes.len() as u64;
            let (number, synced, crc) = (inner.segment().number, inner.synced, inner.crc);
            inner.crc =
                encode_record(&mut bytes, number, at, synced, crc, |to| to.extend(&scratch));
            inner.segment().remember(entry.place.index, at);
            written.push(entry);
        }
        inner.write(&mut bytes, &mut written)?;
        drop(inner);
        self.syncer.ask(done);
        Ok(())
    }

    /// Reads entries, as many of the range as there are and as weigh about `max_bytes` together; at least one, if there
    /// is one. From 0, it begins with the first entry that was not purged.
    ///
    /// # Errors
    ///
    /// [`LogError::Gone`] if the range begins with an entry that was purged, or if entries cannot be read or have changed.
    pub fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>, LogError> {
        loop {
            if let Some(found) = self.read_unless_cut(&range, max_bytes)? {
                return Ok(found);
            }
        }
    }

    /// Reads entries. None if entries were cut off meanwhile: others may be in their place. Files are read without the lock, so
    /// that a slow disk holds up nothing else.
    fn read_unless_cut(
        &self,
        range: &Range<u64>,
        max_bytes: usize,
    ) -> Result<Option<Vec<Entry>>, LogError> {
        let cuts = self.shared.lock().cuts;
        let is_cut = |inner: &Inner| inner.cuts != cuts && !mutant("cut_while_reading");
        let mut found = vec![];
        let mut weight = 0;
        let mut next = range.start;
        loop {
            let (segment, end, last) = {
                let inner = self.shared.lock();
                if is_cut(&inner) {
                    return Ok(None);
                }
                let purged = inner.state.state.purged.map_or(0, |place| place.index + 1);
                let first = purged.max(inner.segments.front().map_or(0, |segment| segment.first()));
                if next < first {
                    // Purged since the piece before was read.
                    if !found.is_empty() {
                        return Ok(Some(found));
                    }
                    if range.start > 0 && !mutant("read_clamped") {
                        return Err(LogError::Gone { wanted: next, first });
                    }
                    next = first;
                }
                let Some(last) = inner.last.map(|place| place.index) else {
                    return Ok(Some(found));
                };
                let until = range.end.min(last + 1);
                if next >= until {
                    return Ok(Some(found));
                }
                if let Some(oldest) = inner.recent.front().map(|entry| entry.place.index)
                    && oldest <= next
                {
                    let skip = usize::try_from(next - oldest).unwrap_or(usize::MAX);
                    for entry in
                        inner.recent.iter().skip(skip).take_while(|entry| entry.place.index < until)
                    {
                        if weight > 0 && weight + entry.weight() > max_bytes {
                            break;
                        }
                        weight += entry.weight();
                        found.push(entry.clone());
                    }
                    return Ok(Some(found));
                }
                let after = inner.segments.partition_point(|segment| segment.first() <= next);
                let place = after.saturating_sub(1);
                let Some(segment) = inner.segments.get(place) else { return Ok(Some(found)) };
                let following = inner.segments.get(place + 1).map(|segment| segment.first());
                let end = if following.is_none() { inner.tail } else { segment.capacity };
                (Arc::clone(segment), end, until.min(following.unwrap_or(until)))
            };
            let piece = segment.read_entries(next..last, end, max_bytes, &mut weight);
            let inner = self.shared.lock();
            // First of all: what was read of a cut may look like rot.
            if is_cut(&inner) {
                return Ok(None);
            }
            let piece = piece?;
            piece.places.into_iter().for_each(|(index, at)| segment.remember(index, at));
            drop(inner);
            found.extend(piece.entries);
            if piece.is_full {
                return Ok(Some(found));
            }
            next = last;
        }
    }

    /// Removes the entries from this index on. It is done on the disk when this returns.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn truncate(&self, index: u64) -> Result<(), LogError> {
        let before = match index.checked_sub(1).map(|before| self.read(before..index, 0)) {
            // All entries that are left are cut off.
            None | Some(Err(LogError::Gone { .. })) => vec![],
            Some(read) => read?,
        };
        let mut inner = self.shared.lock();
        let inner = &mut *inner;
        inner.check_open()?;
        if inner.last.is_none_or(|last| last.index < index) {
            return Ok(());
        }
        let after = inner.segments.partition_point(|segment| segment.first() <= index);
        let keep = after.saturating_sub(1);
        let Some(segment) = inner.segments.get(keep).cloned() else { return Ok(()) };
        let end = if keep + 1 == inner.segments.len() { inner.tail } else { segment.capacity };
        let (mut at_index, offset) = segment.near(index);
        let mut walk = Walk::new(&segment, offset, end);
        let mut crc = segment.crc;
        let offset = loop {
            let at = walk.at();
            let Some((header, _)) = walk.next()? else {
                return Err(LogError::Rotten { path: segment.path.clone(), offset: at });
            };
            if at_index >= index {
                if at != HEADER_BYTES {
                    crc = header.previous;
                }
                break at;
            }
            at_index += 1;
        };
        inner.state.state.cut = Some(Position { segment: segment.number, offset });
        inner.state.save()?;
        point(CrashPoint::BeforeCut);
        open::cut(
            &self.shared.directory,
            &segment,
            inner.segments.iter().skip(keep + 1).map(|one| one.number),
            offset,
            end,
        )?;
        inner.cuts += 1;
        inner.segments.truncate(keep + 1);
        segment.forget(offset);
        (inner.tail, inner.synced, inner.crc) = (offset, offset, crc);
        inner.last = before.first().map(|entry| entry.place);
        inner.last_synced = inner.ends().1;
        while inner.recent.back().is_some_and(|entry| entry.place.index >= index) {
            inner.recent_bytes -= inner.recent.pop_back().map_or(0, |entry| entry.weight());
        }
        point(CrashPoint::AfterCut);
        inner.state.state.cut = None;
        inner.state.save()
    }

    /// Gives up the entries up to this place. Segments without others are removed.
    ///
    /// # Errors
    ///
    /// If a file cannot be written or removed.
    pub fn purge(&self, place: Place) -> Result<(), LogError> {
        let mut inner = self.shared.lock();
        inner.check_open()?;
        if inner.state.state.purged.is_some_and(|purged| purged.index >= place.index) {
            return Ok(());
        }
        inner.state.state.purged = Some(place);
        inner.state.save()?;
        point(CrashPoint::PurgeNoted);
        while inner.recent.front().is_some_and(|entry| entry.place.index <= place.index) {
            inner.recent_bytes -= inner.recent.pop_front().map_or(0, |entry| entry.weight());
        }
        if inner.last.is_none_or(|last| last.index <= place.index) {
            inner.last = None;
            return inner.start_over(&self.shared, Some(place));
        }
        while inner.segments.get(1).is_some_and(|next| next.first() <= place.index + 1) {
            if let Some(segment) = inner.segments.pop_front() {
                std::fs::remove_file(&segment.path)
                    .map_err(LogError::io("remove", &segment.path))?;
                point(CrashPoint::MidPurge);
            }
        }
        sync_directory(&self.shared.directory)
    }

    /// Returns up to which index the log can be purged so that at least `retain_bytes` bytes of whole segments stay.
    #[must_use]
    pub fn purgeable(&self, retain_bytes: u64) -> Option<u64> {
        let inner = self.shared.lock();
        let mut kept = 0;
        let mut oldest = None;
        for segment in inner.segments.iter().rev() {
            kept += segment.capacity;
            oldest = segment.before;
            if kept >= retain_bytes {
                break;
            }
        }
        oldest.map(|place| place.index)
    }

    /// Returns how much follows an entry, or all of it: its length in bytes at least, and the number of entries. After a start, the
    /// bytes may include up to a segment from before the entry.
    #[must_use]
    pub fn after(&self, place: Option<Place>) -> (u64, u64) {
        let inner = self.shared.lock();
        let next = place.map_or(0, |place| place.index + 1);
        let entries = inner.last.map_or(0, |last| (last.index + 1).saturating_sub(next));
        if entries == 0 {
            return (0, 0);
        }
        let first = inner.segments.partition_point(|segment| segment.first() <= next);
        let first = first.saturating_sub(1);
        let mut bytes = 0;
        for (at, segment) in inner.segments.iter().enumerate().skip(first) {
            let is_last = at + 1 == inner.segments.len();
            let end = if is_last { inner.tail } else { segment.capacity };
            let begin = if at == first { segment.near(next).1 } else { HEADER_BYTES };
            bytes += end.saturating_sub(begin);
        }
        (bytes, entries)
    }

    /// Notes up to where the log is committed. It is on the disk some time later, or when the log is closed.
    pub fn note_committed(&self, place: Place) {
        let Shared { directory, options, .. } = &*self.shared;
        let mut inner = self.shared.lock();
        let inner = &mut *inner;
        let end = inner.segment().number * options.segment_bytes + inner.tail;
        inner.committed.note(place, end, directory, inner.state.state.log);
    }

    /// Returns up to where the log was committed, at least. None if that is not known.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub fn committed(&self) -> Result<Option<Place>, LogError> {
        let id = self.shared.lock().state.state.log;
        let place = committed::load(&self.shared.directory, id);
        let Some(place) = place.filter(|_| !mutant("committed_forgotten")) else { return Ok(None) };
        // A power failure may have taken it.
        Ok((self.has(place)? || mutant("committed_beyond_the_log")).then_some(place))
    }

    /// Returns whether the log has this entry, or was purged up to it.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub fn has(&self, place: Place) -> Result<bool, LogError> {
        if self.ends().0 == Some(place) {
            return Ok(true);
        }
        match self.read(place.index..place.index.saturating_add(1), 0) {
            Err(LogError::Gone { .. }) => Ok(false),
            found => Ok(found?.first().is_some_and(|entry| entry.place == place)),
        }
    }

    /// Returns the length of all segments, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().segments.iter().map(|segment| segment.capacity).sum()
    }

    /// Takes the room for a snapshot of this length, and for the empty segment that the log becomes if the snapshot stands
    /// for all of it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn reserve_snapshot(&self, bytes: usize) -> Result<NewSnapshot, LogError> {
        let Shared { directory, options, .. } = &*self.shared;
        self.shared.lock().make_spare(directory, options.segment_bytes)?;
        self.new_snapshot(bytes)
    }

    /// Begins a snapshot of this length. Those that are written at the same time do not disturb each other, nor the log.
    ///
    /// # Errors
    ///
    /// If there is no room for it.
    pub fn new_snapshot(&self, bytes: usize) -> Result<NewSnapshot, LogError> {
        let (number, files) = {
            let mut inner = self.shared.lock();
            inner.check_open()?;
            inner.snapshots += 1;
            (inner.snapshots, inner.state.state.files)
        };
        let path = self.shared.directory.join(format!("snapshot-{number}.tmp"));
        NewSnapshot::allocate(path, files, bytes)
    }

    /// Replaces the snapshot by one that was written. It may be the earlier one again after a power failure, until
    /// [`Log::sync_snapshot`] returns.
    ///
    /// # Errors
    ///
    /// If it cannot be renamed.
    pub fn replace_snapshot(&self, new: NewSnapshot) -> Result<(), LogError> {
        let inner = self.shared.lock();
        inner.check_open()?;
        new.replace(&self.shared.directory)
    }

    /// Makes sure that the last snapshot is on the disk.
    ///
    /// # Errors
    ///
    /// If the directory cannot be synced.
    pub fn sync_snapshot(&self) -> Result<(), LogError> {
        sync_directory(&self.shared.directory)?;
        point(CrashPoint::AfterSnapshotName);
        Ok(())
    }

    /// Replaces the snapshot. It is on the disk when this returns.
    #[cfg(test)]
    pub(crate) fn save_snapshot(&self, bytes: &[u8]) -> Result<(), LogError> {
        let new = self.new_snapshot(bytes.len())?;
        new.write(bytes)?;
        self.replace_snapshot(new)?;
        self.sync_snapshot()
    }

    /// Returns the snapshot, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be read, has changed, or is one of another log.
    pub fn snapshot(&self) -> Result<Option<Vec<u8>>, LogError> {
        let files = self.shared.lock().state.state.files;
        snapshot::load(&self.shared.directory, files)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn segment(&self) -> &Arc<Segment> {
        // There is always one.
        &self.segments[self.segments.len() - 1]
    }

    fn check_open(&self) -> Result<(), LogError> {
        if self.closed { Err(LogError::Closed) } else { Ok(()) }
    }

    fn ends(&self) -> (Option<Place>, Option<Place>) {
        let purged = self.state.state.purged;
        (purged, self.last.or(purged))
    }

    /// Writes the bytes at the tail, and counts the entries as appended.
    fn write(&mut self, bytes: &mut Vec<u8>, entries: &mut Vec<Entry>) -> Result<(), LogError> {
        if bytes.is_empty() {
            return Ok(());
        }
        point(CrashPoint::BeforeWrite);
        let segment = self.segment();
        let (one, other) = bytes.split_at(if cfg!(test) { bytes.len() / 2 } else { 0 });
        let written = segment.file.write_all_at(one, self.tail).and_then(|()| {
            point(CrashPoint::MidWrite);
            segment.file.write_all_at(other, self.tail + one.len() as u64)
        });
        if let Err(error) = written {
            // Part of an append may be there. It must not come back after a shorter one.
            say(format_args!("could not write {}: {error}; ending", segment.path.display()));
            std::process::abort();
        }
        point(CrashPoint::BeforeSync);
        self.tail += bytes.len() as u64;
        bytes.clear();
        for entry in entries.drain(..) {
            self.last = Some(entry.place);
            self.recent_bytes += entry.weight();
            self.recent.push_back(entry);
        }
        while self.recent_bytes > RECENT_BYTES
            && let Some(entry) = self.recent.pop_front()
        {
            self.recent_bytes -= entry.weight();
        }
        Ok(())
    }

    /// Syncs the last segment.
    fn sync(&mut self) {
        if self.synced < self.tail {
            let segment = self.segment();
            sync_or_die(&segment.file, &segment.path);
            self.synced = self.tail;
            self.last_synced = self.ends().1;
        }
    }

    /// Allocates the next segment, so that its room is certain.
    fn make_spare(&mut self, directory: &Path, capacity: u64) -> Result<(), LogError> {
        self.check_open()?;
        if self.spare.is_none() {
            let path = directory.join("spare.tmp");
            let file = Segment::allocate(&path, capacity)?;
            point(CrashPoint::MidSegment);
            self.spare = Some((file, capacity));
        }
        Ok(())
    }

    /// Begins the next segment after `before`, with room for a record of this length.
    fn roll(
        &mut self,
        shared: &Shared,
        needed: u64,
        before: Option<Place>,
    ) -> Result<(), LogError> {
        self.sync();
        let number = self.segment().number + 1;
        let (directory, log) = (&shared.directory, self.state.state.files);
        let segment_bytes = shared.options.segment_bytes;
        let capacity = segment_bytes.max(HEADER_BYTES + needed);
        let segment = if capacity == segment_bytes {
            self.make_spare(directory, capacity)?;
            self.spare = None;
            open::name_segment(directory, "spare.tmp", log, number, capacity, before)?
        } else {
            Segment::allocate(&directory.join("long.tmp"), capacity)?;
            open::name_segment(directory, "long.tmp", log, number, capacity, before)?
        };
        (self.tail, self.synced, self.crc) = (HEADER_BYTES, HEADER_BYTES, segment.crc);
        self.last_synced = self.ends().1;
        self.segments.push_back(Arc::new(segment));
        Ok(())
    }

    /// Replaces all segments by an empty one.
    fn start_over(&mut self, shared: &Shared, before: Option<Place>) -> Result<(), LogError> {
        self.roll(shared, 0, before)?;
        while self.segments.len() > 1
            && let Some(segment) = self.segments.pop_front()
        {
            std::fs::remove_file(&segment.path).map_err(LogError::io("remove", &segment.path))?;
            point(CrashPoint::MidPurge);
        }
        self.recent.clear();
        self.recent_bytes = 0;
        sync_directory(&shared.directory)
    }
}
