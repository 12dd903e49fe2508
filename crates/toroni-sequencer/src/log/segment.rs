//! A segment: a file of fixed length with entries one after another.
//!
//! ```text
//!  byte 0        8         24       32         40             65    96
//!       +--------+---------+--------+----------+--------------+-----+---------+---------+--- - -
//!       | magic  | log 16  | number | capacity | before       | 0,  | record  | record  | 0 …
//!       |        |         | u64    | u64      | 1 + place    | CRC |         |         |
//!       +--------+---------+--------+----------+--------------+-----+---------+---------+--- - -
//!  before   the entry before the first one, or the last that was purged
//!
//!  record   at a multiple of 8
//!       +---------+---------+---------+-----------+------------+-----+-------------+------------+
//!       | length  | CRC-32C | at u64  | synced    | previous   | 0   | entry       | 0 up to a  |
//!       | u32     | u32     |         | u64       | CRC u32    | u32 |             | multiple 8 |
//!       +---------+---------+---------+-----------+------------+-----+-------------+------------+
//!  at        where this record is in the file
//!  synced    up to this byte of this file, the log was synced when the record was written
//!  CRC       of the segment's number, the record without the CRC, and the entry. `previous` is that of the record before,
//!            or of the header: so an entry that was cut does not come back after another one
//! ```

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::error::LogError;
use crate::bytes::{Fields, TooShort};
use crate::entry::{Entry, MAX_ENTRY_BYTES, Place};

pub(super) const HEADER_BYTES: u64 = 96;
pub(super) const RECORD_BYTES: usize = 32;
pub(super) const MAGIC: [u8; 8] = *b"TNSEQLG\x01";
/// No log has more segments: what says so is not believed, and counting cannot overflow.
pub(super) const MOST_SEGMENTS: u64 = 1 << 32;
/// A place for a reader to begin is remembered each this many bytes.
const SPARSE_BYTES: u64 = 64 << 10;
const CHUNK_BYTES: usize = 64 << 10;

/// Returns the length of a record with its padding, in bytes.
pub(super) const fn record_bytes(entry_bytes: usize) -> usize {
    (RECORD_BYTES + entry_bytes).next_multiple_of(8)
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) capacity: u64,
    pub(super) before: Option<Place>,
    /// The CRC of the header, where the chain begins.
    pub(super) crc: u32,
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Where entries are: (index, offset), some of them, in order.
    pub(super) sparse: Mutex<Vec<(u64, u64)>>,
}

/// Entries that were read from a segment.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) entries: Vec<Entry>,
    /// Where some of them are: (index, offset).
    pub(super) places: Vec<(u64, u64)>,
    /// Whether another one would have been too much.
    pub(super) is_full: bool,
}

/// What precedes the entry of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHeader {
    pub(super) length: u32,
    pub(super) crc: u32,
    pub(super) at: u64,
    pub(super) synced: u64,
    pub(super) previous: u32,
}

impl RecordHeader {
    fn decode(bytes: &[u8]) -> Result<Self, TooShort> {
        let mut fields = Fields::of(bytes);
        let header = Self {
            length: fields.u32()?,
            crc: fields.u32()?,
            at: fields.u64()?,
            synced: fields.u64()?,
            previous: fields.u32()?,
        };
        if fields.u32()? == 0 { Ok(header) } else { Err(TooShort) }
    }

    /// The length of the whole record, if it can be one at all.
    fn record_bytes(&self, at: u64, capacity: u64) -> Option<usize> {
        let length = usize::try_from(self.length)
            .ok()
            .filter(|length| (1..=MAX_ENTRY_BYTES).contains(length))?;
        let whole = record_bytes(length);
        let end = at.checked_add(whole as u64)?;
        (self.at == at && self.synced <= at && end <= capacity).then_some(whole)
    }
}

/// Appends the record of an encoded entry to the bytes that are written at once. Returns its CRC.
pub(super) fn encode_record(
    to: &mut Vec<u8>,
    segment: u64,
    at: u64,
    synced: u64,
    previous: u32,
    entry: impl FnOnce(&mut Vec<u8>),
) -> u32 {
    let start = to.len();
    to.resize(start + RECORD_BYTES, 0);
    entry(to);
    let length = to.len() - start - RECORD_BYTES;
    // Entries are at most a mebibyte long.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    to[start..start + 4].copy_from_slice(&length.to_le_bytes());
    to[start + 8..start + 16].copy_from_slice(&at.to_le_bytes());
    to[start + 16..start + 24].copy_from_slice(&synced.to_le_bytes());
    to[start + 24..start + 28].copy_from_slice(&previous.to_le_bytes());
    let crc = record_crc(segment, &to[start..]);
    to[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    to.resize(start + (to.len() - start).next_multiple_of(8), 0);
    crc
}

/// The CRC of a record without its padding.
fn record_crc(segment: u64, record: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&segment.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &record[..4]);
    crc32c::crc32c_append(crc, &record[8..])
}

impl Segment {
    pub(super) fn name(number: u64) -> String {
        format!("{number:016x}.log")
    }

    /// Allocates a file of this length, without a header, under this name.
    pub(super) fn allocate(path: &Path, capacity: u64) -> Result<File, LogError> {
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path);
        let file = file.map_err(LogError::io("create", path))?;
        let allocated =
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, capacity);
        if let Err(error) = allocated {
            let _ = std::fs::remove_file(path);
            // `RLIMIT_FSIZE` and quotas are limits of room, too.
            if matches!(error, rustix::io::Errno::FBIG | rustix::io::Errno::DQUOT) {
                return Err(LogError::Full(path.to_owned()));
            }
            return Err(LogError::io("allocate", path)(error.into()));
        }
        Ok(file)
    }

    pub(super) fn header(
        log: [u8; 16],
        number: u64,
        capacity: u64,
        before: Option<Place>,
    ) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        bytes.extend(MAGIC);
        bytes.extend(log);
        bytes.extend(number.to_le_bytes());
        bytes.extend(capacity.to_le_bytes());
        Place::encode_option(before, &mut bytes);
        bytes.resize(92, 0);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    /// Opens a segment of this log and checks its header.
    pub(super) fn open(directory: &Path, log: [u8; 16], number: u64) -> Result<Self, LogError> {
        let path = directory.join(Self::name(number));
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(LogError::io("open", &path))?;
        let (segment, of) = Self::read(file, path)?;
        if of != log || segment.number != number {
            let why = "a segment of another log, or under another name";
            return Err(LogError::Foreign { path: segment.path, why });
        }
        Ok(segment)
    }

    /// Checks the header of a segment. Returns the id of its log, too.
    pub(super) fn read(file: File, path: PathBuf) -> Result<(Self, [u8; 16]), LogError> {
        let mut bytes = [0; 96];
        let read = file.read_exact_at(&mut bytes, 0);
        let rotten = || LogError::Rotten { path: path.clone(), offset: 0 };
        read.map_err(|_| rotten())?;
        let (covered, crc) = bytes.split_at(92);
        let crc = Fields::of(crc).u32().map_err(|_| rotten())?;
        if crc != crc32c::crc32c(covered) {
            return Err(rotten());
        }
        if !covered.starts_with(&MAGIC) {
            return Err(LogError::Foreign { path, why: "not a segment of version 1" });
        }
        let mut fields = Fields::of(&covered[MAGIC.len()..]);
        let log: [u8; 16] = fields.array().map_err(|_| rotten())?;
        let (number, capacity) =
            (fields.u64().map_err(|_| rotten())?, fields.u64().map_err(|_| rotten())?);
        let before = Place::decode_option(&mut fields).map_err(|_| rotten())?;
        if number > MOST_SEGMENTS {
            return Err(LogError::Foreign { path, why: "no log has that many segments" });
        }
        let length = file.metadata().map_err(LogError::io("read the length of", &path))?.len();
        if length < capacity {
            return Err(LogError::Rotten { path, offset: length });
        }
        Ok((Self { number, capacity, before, crc, file, path, sparse: Mutex::new(vec![]) }, log))
    }

    /// The index of the first entry.
    pub(super) fn first(&self) -> u64 {
        self.before.map_or(0, |place| place.index + 1)
    }

    /// Remembers where an entry is, if the last one that is remembered is far enough away.
    pub(super) fn remember(&self, index: u64, offset: u64) {
        let mut sparse = self.sparse.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if sparse.last().is_none_or(|(last, at)| index > *last && offset >= at + SPARSE_BYTES) {
            sparse.push((index, offset));
        }
    }

    /// Forgets where entries from this offset on are.
    pub(super) fn forget(&self, offset: u64) {
        let mut sparse = self.sparse.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sparse.retain(|(_, at)| *at < offset);
    }

    /// Where a reader begins that wants the entry of this index: (index, offset).
    pub(super) fn near(&self, index: u64) -> (u64, u64) {
        let sparse = self.sparse.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let after = sparse.partition_point(|(known, _)| *known <= index);
        after
            .checked_sub(1)
            .and_then(|place| sparse.get(place))
            .copied()
            .unwrap_or((self.first(), HEADER_BYTES))
    }

    /// Reads the entries of this range, up to the byte `end`, which may be cut off meanwhile. `weight` is that of what was read
    /// before. At least one entry is read in all.
    pub(super) fn read_entries(
        &self,
        range: Range<u64>,
        end: u64,
        max_bytes: usize,
        weight: &mut usize,
    ) -> Result<Piece, LogError> {
        let mut piece = Piece::default();
        let (mut index, offset) = self.near(range.start);
        let mut walk = Walk::new(self, offset, end);
        while index < range.end {
            let at = walk.at();
            let rotten = || LogError::Rotten { path: self.path.clone(), offset: at };
            let Some((_, bytes)) = walk.next()? else { return Err(rotten()) };
            if index >= range.start {
                let entry = Entry::decode(bytes).map_err(|_| rotten())?;
                if entry.place.index != index {
                    return Err(rotten());
                }
                if *weight > 0 && *weight + entry.weight() > max_bytes {
                    piece.is_full = true;
                    return Ok(piece);
                }
                *weight += entry.weight();
                piece.entries.push(entry);
            }
            if piece.places.last().is_none_or(|(_, last)| at >= last + SPARSE_BYTES) {
                piece.places.push((index, at));
            }
            index += 1;
        }
        Ok(piece)
    }

    /// Returns whether a whole record with its own place and a right CRC is in these bytes, which are the segment from
    /// `at` on.
    pub(super) fn valid(&self, at: u64, bytes: &[u8]) -> Option<(RecordHeader, usize)> {
        let header = RecordHeader::decode(bytes).ok()?;
        let whole = header.record_bytes(at, self.capacity)?;
        let length = RECORD_BYTES + usize::try_from(header.length).ok()?;
        let record = bytes.get(..length)?;
        let padding = bytes.get(length..whole)?;
        (record_crc(self.number, record) == header.crc && padding.iter().all(|byte| *byte == 0))
            .then_some((header, whole))
    }

    /// Fills the bytes from this offset on with zeros, up to `end`, and syncs.
    pub(super) fn clear(&self, from: u64, end: u64) -> Result<(), LogError> {
        let zeros = vec![0; 1 << 20];
        let mut found = vec![0; 1 << 20];
        let mut at = from;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
            let found = &mut found[..length];
            self.file.read_exact_at(found, at).map_err(LogError::io("read", &self.path))?;
            if found.iter().any(|byte| *byte != 0) {
                self.file
                    .write_all_at(&zeros[..length], at)
                    .map_err(LogError::io("write", &self.path))?;
                super::crash_point::point(super::crash_point::CrashPoint::MidCut);
            }
            at += length as u64;
        }
        super::sync_or_die(&self.file, &self.path);
        Ok(())
    }
}

/// Walks over the records of a segment.
pub(super) struct Walk<'a> {
    segment: &'a Segment,
    at: u64,
    end: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(segment: &'a Segment, at: u64, end: u64) -> Self {
        Self { segment, at, end, chunk: vec![], chunk_at: at }
    }

    /// Where the next record begins.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Has at least this many bytes from `at` on in the chunk, if there are that many before the end.
    fn fill(&mut self, wanted: usize) -> Result<(), LogError> {
        let have = self.chunk_at + self.chunk.len() as u64;
        if self.at + wanted as u64 <= have || have >= self.end {
            return Ok(());
        }
        let length =
            u64::try_from(wanted.max(CHUNK_BYTES)).unwrap_or(u64::MAX).min(self.end - self.at);
        self.chunk.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        self.chunk_at = self.at;
        let read = self.segment.file.read_exact_at(&mut self.chunk, self.at);
        read.map_err(LogError::io("read", &self.segment.path))
    }

    fn bytes(&self) -> &[u8] {
        usize::try_from(self.at - self.chunk_at)
            .ok()
            .and_then(|from| self.chunk.get(from..))
            .unwrap_or_default()
    }

    /// Returns the next record with its entry, if there is a valid one.
    pub(super) fn next(&mut self) -> Result<Option<(RecordHeader, &[u8])>, LogError> {
        self.fill(RECORD_BYTES)?;
        let Some(whole) = RecordHeader::decode(self.bytes())
            .ok()
            .and_then(|header| header.record_bytes(self.at, self.segment.capacity.min(self.end)))
        else {
            return Ok(None);
        };
        self.fill(whole)?;
        let Some((header, whole)) = self.segment.valid(self.at, self.bytes()) else {
            return Ok(None);
        };
        let from = usize::try_from(self.at - self.chunk_at).unwrap_or(usize::MAX);
        self.at += whole as u64;
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let entry =
            self.chunk.get(from + RECORD_BYTES..from + RECORD_BYTES + length).unwrap_or_default();
        Ok(Some((header, entry)))
    }
}
