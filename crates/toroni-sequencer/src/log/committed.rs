//! Up to where the log was committed, at least. A member that starts again applies this much in pieces, before a leader tells
//! it more.
//!
//! ```text
//!  committed    "TNSEQCM" 1 · log 16 · place 24 · CRC-32C u32
//! ```
//!
//! It is a lower bound, written now and then and never synced: what is old, torn or lost costs time alone. It has the id by
//! which the group knows the log, so it says nothing about a log that has left its group.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bytes::Fields;
use crate::entry::Place;

const MAGIC: [u8; 8] = *b"TNSEQCM\x01";
const NAME: &str = "committed";
const COVERED_BYTES: usize = 48;
/// After this many bytes of log, it is written again.
const EVERY: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };

/// What is known to be committed, and was written.
#[derive(Debug, Default)]
pub(super) struct Committed {
    file: Option<File>,
    place: Option<Place>,
    /// Where the log ended when it was written last, in bytes.
    written_at: u64,
}

impl Committed {
    /// Takes what is committed. `end` is where the log ends, in bytes.
    pub(super) fn note(&mut self, place: Place, end: u64, directory: &Path, log: [u8; 16]) {
        self.place = Some(place);
        if end >= self.written_at.saturating_add(EVERY) {
            self.written_at = end;
            self.write(directory, log);
        }
    }

    /// Writes what is committed. A failure leaves an earlier place, or one that is not believed.
    pub(super) fn write(&mut self, directory: &Path, log: [u8; 16]) {
        let Some(place) = self.place else { return };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(log);
        place.encode(&mut bytes);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        if self.file.is_none() {
            let path = directory.join(NAME);
            self.file = File::options().create(true).truncate(false).write(true).open(path).ok();
        }
        if let Some(file) = &self.file {
            let _ = file.write_all_at(&bytes, 0);
        }
    }
}

/// Reads what was written about the log of this id.
pub(super) fn load(directory: &Path, log: [u8; 16]) -> Option<Place> {
    let bytes = fs::read(directory.join(NAME)).ok()?;
    let (covered, crc) = (bytes.get(..COVERED_BYTES)?, bytes.get(COVERED_BYTES..)?);
    if crc != crc32c::crc32c(covered).to_le_bytes() {
        return None;
    }
    let mut fields = Fields::of(covered);
    if fields.array() != Ok(MAGIC) || fields.array() != Ok(log) {
        return None;
    }
    Place::decode(&mut fields).ok()
}
