//! Opens a log: what was under way is finished, and what was never answered is cut off.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::committed::Committed;
use super::crash_point::{CrashPoint, point};
use super::error::LogError;
use super::segment::{HEADER_BYTES, RECORD_BYTES, Segment, Walk};
use super::state::{State, StateFile};
use super::{Found, Inner, Options, Sync, sync_directory};
use crate::entry::{Entry, MAX_ENTRY_BYTES, Place};

pub(super) fn open(directory: &Path, options: Options) -> Result<(Found, Inner), LogError> {
    fs::create_dir_all(directory).map_err(LogError::io("create", directory))?;
    let new = !directory.join("state").exists();
    if new {
        if !numbers(directory)?.is_empty() {
            return Err(LogError::Foreign {
                path: directory.to_owned(),
                why: "segments without a state",
            });
        }
        let log = super::standing::random_id()
            .map_err(LogError::io("read random bytes for", directory))?;
        StateFile::create(directory, State { log, files: log, ..State::default() })?;
        sync_directory(directory)?;
    }
    let mut file = StateFile::open(directory)?;
    remove_unfinished(directory)?;
    let log = file.state.files;
    if let Some(at) = file.state.cut {
        finish_cut(directory, log, at.segment, at.offset)?;
    }

    let mut segments = VecDeque::new();
    for number in numbers(directory)? {
        segments.push_back(Arc::new(Segment::open(directory, log, number)?));
    }
    if let Some(purged) = file.state.purged {
        while segments.get(1).is_some_and(|next: &Arc<Segment>| next.first() <= purged.index + 1) {
            remove_first(&mut segments)?;
        }
        sync_directory(directory)?;
    }
    for (one, next) in segments.iter().zip(segments.iter().skip(1)) {
        if one.number + 1 != next.number || one.first() > next.first() {
            return Err(LogError::Foreign {
                path: next.path.clone(),
                why: "the segment before it is missing",
            });
        }
    }
    if segments.is_empty() {
        segments.push_back(Arc::new(first_segment(directory, options, &file.state)?));
    }
    let last_segment = Arc::clone(&segments[segments.len() - 1]);
    let tail = Tail::find(&last_segment)?;
    let is_sealed = |closed: super::Position| {
        closed.segment > last_segment.number
            || closed.segment == last_segment.number && closed.offset > tail.at
    };
    if tail.was_synced || file.state.closed.is_some_and(is_sealed) {
        return Err(LogError::Rotten { path: last_segment.path.clone(), offset: tail.at });
    }
    // Syncs, too: what a process that died has written may be in memory only.
    last_segment.clear(tail.at, last_segment.capacity)?;

    let boot = boot_id();
    let found = Found {
        log: file.state.log,
        new,
        closed: file.state.closed.is_some(),
        rebooted: !new && boot != file.state.boot,
    };
    // A member that is started again before it was brought up is as uncertain as before.
    file.state.uncertain |= found.rebooted && !found.closed && file.state.loose;
    file.state.boot = boot;
    file.state.loose = matches!(options.sync, Sync::Interval(_));
    (file.state.cut, file.state.closed) = (None, None);
    // Of the same generation: a log that is only opened again has come no further.
    file.save_again()?;

    let has_entries = segments.len() > 1 || tail.last.is_some();
    let last = tail.last.or(last_segment.before).filter(|_| has_entries);
    // The tail was synced above.
    let synced = last.or(file.state.purged);
    let mut inner = Inner {
        state: file,
        segments,
        tail: tail.at,
        synced: tail.at,
        last_synced: synced,
        closed: false,
        cuts: 0,
        crc: tail.crc,
        last,
        recent: VecDeque::new(),
        recent_bytes: 0,
        committed: Committed::default(),
        snapshots: 0,
        spare: None,
    };
    restart_after_purge(&mut inner, directory, options)?;
    Ok((found, inner))
}

/// If everything was purged, nothing that is left of the entries counts.
fn restart_after_purge(
    inner: &mut Inner,
    directory: &Path,
    options: Options,
) -> Result<(), LogError> {
    let Some(purged) = inner.state.state.purged else { return Ok(()) };
    if inner.last.is_some_and(|last| last.index > purged.index) {
        return Ok(());
    }
    if inner.last.is_none() && inner.segment().before == Some(purged) {
        return Ok(());
    }
    let number = inner.segment().number + 1;
    Segment::allocate(&directory.join("first.tmp"), options.segment_bytes)?;
    let segment = name_segment(
        directory,
        "first.tmp",
        inner.state.state.files,
        number,
        options.segment_bytes,
        Some(purged),
    )?;
    while !inner.segments.is_empty() {
        remove_first(&mut inner.segments)?;
    }
    sync_directory(directory)?;
    (inner.tail, inner.synced, inner.crc, inner.last) =
        (HEADER_BYTES, HEADER_BYTES, segment.crc, None);
    inner.segments.push_back(Arc::new(segment));
    Ok(())
}

fn first_segment(directory: &Path, options: Options, state: &State) -> Result<Segment, LogError> {
    Segment::allocate(&directory.join("first.tmp"), options.segment_bytes)?;
    name_segment(directory, "first.tmp", state.files, 0, options.segment_bytes, state.purged)
}

fn remove_first(segments: &mut VecDeque<Arc<Segment>>) -> Result<(), LogError> {
    let Some(segment) = segments.pop_front() else { return Ok(()) };
    fs::remove_file(&segment.path).map_err(LogError::io("remove", &segment.path))
}

/// Gives an allocated file its header, and then its name.
pub(super) fn name_segment(
    directory: &Path,
    temporary: &str,
    log: [u8; 16],
    number: u64,
    capacity: u64,
    before: Option<Place>,
) -> Result<Segment, LogError> {
    let path = directory.join(temporary);
    let file = File::options().write(true).open(&path).map_err(LogError::io("open", &path))?;
    let header = Segment::header(log, number, capacity, before);
    file.write_all_at(&header, 0).map_err(LogError::io("write", &path))?;
    if let Err(error) = file.sync_all() {
        return Err(LogError::io("sync", &path)(error));
    }
    point(CrashPoint::BeforeSegmentName);
    fs::rename(&path, directory.join(Segment::name(number)))
        .map_err(LogError::io("rename", &path))?;
    sync_directory(directory)?;
    point(CrashPoint::AfterSegmentName);
    Segment::open(directory, log, number)
}

/// Removes the segments of these numbers, the last one first, and the bytes of a segment from `offset` to `end`.
pub(super) fn cut(
    directory: &Path,
    segment: &Segment,
    later: impl DoubleEndedIterator<Item = u64>,
    offset: u64,
    end: u64,
) -> Result<(), LogError> {
    for number in later.rev() {
        let path = directory.join(Segment::name(number));
        fs::remove_file(&path).map_err(LogError::io("remove", &path))?;
        point(CrashPoint::MidCut);
    }
    sync_directory(directory)?;
    segment.clear(offset, end)
}

fn finish_cut(directory: &Path, log: [u8; 16], number: u64, offset: u64) -> Result<(), LogError> {
    let later = numbers(directory)?.into_iter().filter(|other| *other > number).collect::<Vec<_>>();
    let segment = Segment::open(directory, log, number)?;
    if offset < HEADER_BYTES || offset > segment.capacity {
        return Err(LogError::Foreign {
            path: segment.path,
            why: "the state cuts it where it cannot be cut",
        });
    }
    cut(directory, &segment, later.into_iter(), offset, segment.capacity)
}

/// Where the entries of a segment end.
pub(super) struct Tail {
    at: u64,
    crc: u32,
    last: Option<Place>,
    /// Whether a record after the end states that the end was synced.
    was_synced: bool,
}

impl Tail {
    fn find(segment: &Segment) -> Result<Self, LogError> {
        let mut tail = Self { at: HEADER_BYTES, crc: segment.crc, last: None, was_synced: false };
        let mut walk = Walk::new(segment, HEADER_BYTES, segment.capacity);
        let mut index = segment.first();
        while let Some((header, bytes)) = walk.next()? {
            // A record of before a cut does not follow its predecessor.
            if header.previous != tail.crc {
                break;
            }
            let entry = Entry::decode(bytes).ok().filter(|entry| entry.place.index == index);
            let Some(entry) = entry else {
                return Err(LogError::Rotten { path: segment.path.clone(), offset: tail.at });
            };
            segment.remember(index, tail.at);
            index += 1;
            (tail.at, tail.crc, tail.last) = (walk.at(), header.crc, Some(entry.place));
        }
        tail.was_synced = Self::is_marked(segment, tail.at)?;
        Ok(tail)
    }

    /// Searches everything after `end` for a record that names a synced offset beyond it.
    pub(super) fn is_marked(segment: &Segment, end: u64) -> Result<bool, LogError> {
        // Whole records of the greatest length, and as much again, so that each lies whole in one of the pieces.
        let longest = MAX_ENTRY_BYTES + RECORD_BYTES + 8;
        let mut from = end;
        let mut piece = vec![];
        while from < segment.capacity {
            let length =
                u64::try_from(2 * longest).unwrap_or(u64::MAX).min(segment.capacity - from);
            piece.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
            segment
                .file
                .read_exact_at(&mut piece, from)
                .map_err(LogError::io("read", &segment.path))?;
            let is_last = from + length == segment.capacity;
            let starts = if is_last { piece.len() } else { longest.next_multiple_of(8) };
            for start in (0..starts).step_by(8) {
                let record = &piece[start..];
                // Zeros are no record. Most of what follows the end is zeros.
                if record.first_chunk::<8>().is_none_or(|bytes| *bytes == [0; 8]) {
                    continue;
                }
                if let Some((header, _)) = segment.valid(from + start as u64, record)
                    && header.synced > end
                {
                    return Ok(true);
                }
            }
            from += starts as u64;
        }
        Ok(false)
    }
}

/// The numbers of the segments in a directory, in order.
pub(super) fn numbers(directory: &Path) -> Result<Vec<u64>, LogError> {
    let mut numbers = vec![];
    for entry in fs::read_dir(directory).map_err(LogError::io("list", directory))? {
        let name = entry.map_err(LogError::io("list", directory))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
        numbers.extend(number.and_then(|number| u64::from_str_radix(number, 16).ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn remove_unfinished(directory: &Path) -> Result<(), LogError> {
    for entry in fs::read_dir(directory).map_err(LogError::io("list", directory))? {
        let path = entry.map_err(LogError::io("list", directory))?.path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            fs::remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// The kernel's id of this boot; zeros if it cannot be read, which counts as another boot.
fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}
