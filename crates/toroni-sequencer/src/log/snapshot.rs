//! The snapshot: one file, replaced as a whole.
//!
//! ```text
//!  "TNSEQSN" 1 · log 16 · contents · CRC-32C of everything before, u32
//! ```

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::crash_point::{CrashPoint, point};
use super::error::LogError;
use super::segment::Segment;
use super::sync_directory;

const MAGIC: [u8; 8] = *b"TNSEQSN\x01";

const UNFINISHED: &str = "snapshot.tmp";
/// What a snapshot has besides its contents.
const FRAME_BYTES: usize = 28;

/// Allocates the file of a snapshot with contents of this length.
pub(super) fn reserve(directory: &Path, contents: usize) -> Result<(), LogError> {
    Segment::allocate(&directory.join(UNFINISHED), (contents + FRAME_BYTES) as u64).map(drop)
}

pub(super) fn save(directory: &Path, log: [u8; 16], contents: &[u8]) -> Result<(), LogError> {
    let mut bytes = Vec::with_capacity(contents.len() + FRAME_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(log);
    bytes.extend(contents);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    let path = directory.join(UNFINISHED);
    // As long as it is not longer than what was reserved, this needs no room.
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let mut file = file.map_err(LogError::io("create", &path))?;
    file.write_all(&bytes).map_err(LogError::io("write", &path))?;
    file.set_len(bytes.len() as u64).map_err(LogError::io("cut", &path))?;
    file.sync_all().map_err(LogError::io("sync", &path))?;
    point(CrashPoint::BeforeSnapshotName);
    fs::rename(&path, directory.join("snapshot")).map_err(LogError::io("rename", &path))?;
    sync_directory(directory)?;
    point(CrashPoint::AfterSnapshotName);
    Ok(())
}

pub(super) fn load(directory: &Path, log: [u8; 16]) -> Result<Option<Vec<u8>>, LogError> {
    let path = directory.join("snapshot");
    let mut bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("read", &path)(error)),
    };
    let is_right = bytes.split_last_chunk::<4>().is_some_and(|(covered, crc)| {
        covered.len() >= 24 && crc32c::crc32c(covered).to_le_bytes() == *crc
    });
    if !is_right || bytes[..8] != MAGIC {
        return Err(LogError::Rotten { path, offset: 0 });
    }
    if bytes[8..24] != log {
        return Err(LogError::Foreign { path, why: "the snapshot of another log" });
    }
    bytes.truncate(bytes.len() - 4);
    bytes.drain(..24);
    Ok(Some(bytes))
}
