//! The snapshot: one file, replaced as a whole.
//!
//! ```text
//!  "TNSEQSN" 1 · log 16 · contents · CRC-32C of everything before, u32
//! ```

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::crash_point::{CrashPoint, point};
use super::error::LogError;
use super::segment::Segment;

const MAGIC: [u8; 8] = *b"TNSEQSN\x01";

/// What a snapshot has besides its contents.
const FRAME_BYTES: usize = 28;

/// A snapshot under a name of its own. It is removed if it does not replace the last one.
#[derive(Debug)]
pub struct NewSnapshot {
    path: PathBuf,
    log: [u8; 16],
}

impl NewSnapshot {
    /// Allocates the file of a snapshot with contents of this length.
    pub(super) fn allocate(
        path: PathBuf,
        log: [u8; 16],
        contents: usize,
    ) -> Result<Self, LogError> {
        let new = Self { path, log };
        Segment::allocate(&new.path, (contents + FRAME_BYTES) as u64)?;
        Ok(new)
    }

    /// Writes the contents. They are on the disk when this returns. This needs no room if they are not longer than was said.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn write(&self, contents: &[u8]) -> Result<(), LogError> {
        let Self { path, log } = self;
        let mut bytes = Vec::with_capacity(contents.len() + FRAME_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(log);
        bytes.extend(contents);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        let file = File::options().write(true).open(path);
        let mut file = file.map_err(LogError::io("open", path))?;
        file.write_all(&bytes).map_err(LogError::io("write", path))?;
        file.set_len(bytes.len() as u64).map_err(LogError::io("cut", path))?;
        file.sync_all().map_err(LogError::io("sync", path))
    }

    /// Replaces the last snapshot. The directory has to be synced.
    pub(super) fn replace(self, directory: &Path) -> Result<(), LogError> {
        point(CrashPoint::BeforeSnapshotName);
        fs::rename(&self.path, directory.join("snapshot"))
            .map_err(LogError::io("rename", &self.path))
    }
}

impl Drop for NewSnapshot {
    fn drop(&mut self) {
        // Gone if it was renamed. What stays is removed at the next start.
        let _ = fs::remove_file(&self.path);
    }
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
