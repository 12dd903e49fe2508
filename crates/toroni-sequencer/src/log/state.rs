//! The small state beside the entries: the vote, what was purged, a cut that is under way, a clean close.
//!
//! ```text
//!  file `state`: two copies, at byte 0 and 4,096
//!  "TNSEQVT" 1 · generation u64 · log 16 · files 16 · boot 16 · vote 1 + 17 · purged 1 + 24 · cut 1 + 16 · closed 1 + 16 ·
//!  loose u8 · uncertain u8 · CRC-32C u32
//! ```
//!
//! Both copies are written and synced one after the other, before anything is answered. So a copy that is damaged costs
//! nothing. If a write was torn, the other copy is the state before, and no answer has reported the change yet. If
//! bytes have rotted, the other copy is as new.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::crash_point::{CrashPoint, point};
use super::error::LogError;
use crate::bytes::Fields;
use crate::entry::{EntryError, MOST_ENTRIES, Place, Vote};

const MAGIC: [u8; 8] = *b"TNSEQVT\x01";
const COPY_AT: [u64; 2] = [0, 4096];
const COPY_BYTES: usize = 8 + 8 + 16 + 16 + 16 + 18 + 25 + 17 + 17 + 2 + 4;

/// A byte of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    pub(super) generation: u64,
    /// The random id by which the group knows the log.
    pub(super) log: [u8; 16],
    /// The random id in its files. It differs from the other after the log was taken out of its group.
    pub(super) files: [u8; 16],
    /// The kernel's id of its boot, when the log was last opened.
    pub(super) boot: [u8; 16],
    pub(super) vote: Option<Vote>,
    /// The last entry that was purged.
    pub(super) purged: Option<Place>,
    /// What follows is being removed.
    pub(super) cut: Option<Position>,
    /// The end of the log when it was closed. None while it is open.
    pub(super) closed: Option<Position>,
    /// Whether entries are answered before they are synced.
    pub(super) loose: bool,
    /// Whether entries that were answered may be missing.
    pub(super) uncertain: bool,
}

impl State {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(COPY_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(self.log);
        bytes.extend(self.files);
        bytes.extend(self.boot);
        bytes.push(u8::from(self.vote.is_some()));
        self.vote.unwrap_or_default().encode(&mut bytes);
        Place::encode_option(self.purged, &mut bytes);
        for position in [self.cut, self.closed] {
            let Position { segment, offset } = position.unwrap_or_default();
            bytes.push(u8::from(position.is_some()));
            bytes.extend(segment.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        bytes.extend([u8::from(self.loose), u8::from(self.uncertain)]);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; COPY_BYTES]) -> Result<Self, EntryError> {
        let (covered, crc) = bytes.split_at(COPY_BYTES - 4);
        if crc != crc32c::crc32c(covered).to_le_bytes() {
            return Err(EntryError::Impossible);
        }
        let mut fields = Fields::of(covered);
        if fields.array()? != MAGIC {
            return Err(EntryError::Impossible);
        }
        let (generation, log) = (fields.u64()?, fields.array()?);
        let (files, boot) = (fields.array()?, fields.array()?);
        let has_vote = fields.u8()? == 1;
        let vote = Vote::decode(&mut fields)?;
        let purged = Place::decode_option(&mut fields)?;
        let mut position = || {
            let there_is = fields.u8()? == 1;
            let position = Position { segment: fields.u64()?, offset: fields.u64()? };
            Ok::<_, EntryError>(there_is.then_some(position))
        };
        if generation > MOST_ENTRIES {
            return Err(EntryError::Impossible);
        }
        let (cut, closed) = (position()?, position()?);
        let (loose, uncertain) = (fields.u8()? == 1, fields.u8()? == 1);
        let vote = has_vote.then_some(vote);
        Ok(Self { generation, log, files, boot, vote, purged, cut, closed, loose, uncertain })
    }
}

/// The file with the state.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    path: std::path::PathBuf,
    pub(super) state: State,
}

impl StateFile {
    /// Writes the first state of a log. The name appears when the contents are synced.
    pub(super) fn create(directory: &Path, state: State) -> Result<(), LogError> {
        let path = directory.join("state.tmp");
        let file =
            OpenOptions::new().create(true).truncate(true).write(true).read(true).open(&path);
        let file = file.map_err(LogError::io("create", &path))?;
        let mut new = Self { file, path: path.clone(), state };
        new.save()?;
        new.file.sync_all().map_err(LogError::io("sync", &path))?;
        std::fs::rename(&path, directory.join("state")).map_err(LogError::io("rename", &path))
    }

    /// Opens the state, locks it against other processes, and repairs a damaged copy.
    pub(super) fn open(directory: &Path) -> Result<Self, LogError> {
        let path = directory.join("state");
        let file = OpenOptions::new().write(true).read(true).open(&path);
        let file = file.map_err(LogError::io("open", &path))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LogError::InUse(directory.to_owned()));
            }
            Err(error) => return Err(LogError::io("lock", &path)(error.into())),
        }
        let state = newest(&file, &path)?;
        Ok(Self { file, path, state })
    }

    /// Lets another process open the log.
    pub(super) fn unlock(&self) -> Result<(), LogError> {
        let unlocked = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::NonBlockingUnlock);
        unlocked.map_err(|error| LogError::io("unlock", &self.path)(error.into()))
    }

    /// Writes the state to the disk, twice.
    pub(super) fn save(&mut self) -> Result<(), LogError> {
        self.state.generation = self.state.generation.saturating_add(1);
        self.save_again()
    }

    /// The same for a state to which the one before leads each time that the log is opened: which of the two copies is read after a
    /// crash makes no difference.
    pub(super) fn save_again(&mut self) -> Result<(), LogError> {
        let bytes = self.state.encode();
        for (at, after) in
            COPY_AT.into_iter().zip([CrashPoint::BetweenCopies, CrashPoint::AfterCopies])
        {
            self.file.write_all_at(&bytes, at).map_err(LogError::io("write", &self.path))?;
            super::sync_or_die(&self.file, &self.path);
            point(after);
        }
        Ok(())
    }
}

/// Reads the newer copy of the state, and takes no lock.
pub(super) fn read(directory: &Path) -> Result<State, LogError> {
    let path = directory.join("state");
    let file = File::open(&path).map_err(LogError::io("open", &path))?;
    newest(&file, &path)
}

fn newest(file: &File, path: &Path) -> Result<State, LogError> {
    let copies = COPY_AT.map(|at| {
        let mut bytes = [0; COPY_BYTES];
        file.read_exact_at(&mut bytes, at).ok()?;
        State::decode(&bytes).ok()
    });
    let newest = copies.into_iter().flatten().max_by_key(|state| state.generation);
    let why = "neither copy of the state can be read";
    newest.ok_or_else(|| LogError::Foreign { path: path.to_owned(), why })
}

/// A process that was forked meanwhile, and has not yet started another program, shares the lock: without this, the log
/// would stay locked until it has.
impl Drop for StateFile {
    fn drop(&mut self) {
        // What fails here is released when the descriptor is closed.
        let _ = self.unlock();
    }
}
