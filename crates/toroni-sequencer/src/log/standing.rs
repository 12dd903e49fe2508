//! How a log stands in its group: by which id the group knows it, whether it may lack what it had answered for, what it has
//! voted, and whether it was closed.

use std::fs::File;
use std::io::{self, Read};
use std::sync::PoisonError;

use super::state::Position;
use super::{Log, LogError};
use crate::entry::Vote;

/// How a log was found when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The random id of the log, by which the group knows it.
    pub log: [u8; 16],
    /// Whether it did not exist.
    pub new: bool,
    /// Whether it was closed, and not left by a process that died.
    pub closed: bool,
    /// Whether the kernel has been started since.
    pub rebooted: bool,
}

impl Log {
    /// Returns how the log was found.
    #[must_use]
    pub fn found(&self) -> Found {
        self.shared.found
    }

    /// Syncs everything and notes that the log was closed. All handles are then good for reading only, and another process
    /// may open the log.
    ///
    /// # Errors
    ///
    /// If the state cannot be written.
    pub fn close(&self) -> Result<(), LogError> {
        let mut inner = self.shared.lock();
        inner.sync();
        let end = Position { segment: inner.segment().number, offset: inner.tail };
        inner.check_open()?;
        let id = inner.state.state.log;
        inner.committed.write(&self.shared.directory, id);
        inner.state.state.closed = Some(end);
        // Of the same generation, as when it is opened: see `reach.rs`. With the other copy, it counts as not closed.
        inner.state.save_again()?;
        inner.closed = true;
        inner.spare = None;
        inner.state.unlock()
    }

    /// Returns whether entries that were answered may be missing: the kernel was started again before they were synced.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.shared.lock().state.state.uncertain
    }

    /// Notes that nothing is missing any more.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn settle(&self) -> Result<(), LogError> {
        let mut inner = self.shared.lock();
        inner.check_open()?;
        // What was brought instead must not get lost in the same way.
        inner.sync();
        inner.state.state.uncertain = false;
        inner.state.save()?;
        // Others may say only later what earlier lives have shown. None of that is missing now.
        let reach = inner.reach(self.shared.options.sync);
        drop(inner);
        let mut opened = self.shared.opened.lock().unwrap_or_else(PoisonError::into_inner);
        *opened = reach.max(*opened);
        Ok(())
    }

    /// Takes the log out of its group: gives it a new id, by which no member of the group knows it. Returns the id.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn leave(&self) -> Result<[u8; 16], LogError> {
        let id =
            random_id().map_err(LogError::io("read random bytes for", &self.shared.directory))?;
        let mut inner = self.shared.lock();
        inner.check_open()?;
        (inner.state.state.log, inner.state.state.uncertain) = (id, false);
        inner.state.save()?;
        Ok(id)
    }

    /// Returns the random id in its files. It stays the same when the log leaves its group.
    #[must_use]
    pub fn files(&self) -> [u8; 16] {
        self.shared.lock().state.state.files
    }

    /// Returns the last vote.
    #[must_use]
    pub fn vote(&self) -> Option<Vote> {
        self.shared.lock().state.state.vote
    }

    /// Keeps a vote. It is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn save_vote(&self, vote: Vote) -> Result<(), LogError> {
        let mut inner = self.shared.lock();
        inner.check_open()?;
        inner.state.state.vote = Some(vote);
        inner.state.save()
    }
}

/// Returns 16 random bytes.
pub(super) fn random_id() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

#[cfg(test)]
impl Log {
    /// Makes a log that is not in use look as if the kernel had been started again since.
    pub(crate) fn forget_boot(directory: &std::path::Path) -> Result<(), LogError> {
        let mut file = super::state::StateFile::open(directory)?;
        file.state.boot = [0xB0; 16];
        file.save()
    }
}
