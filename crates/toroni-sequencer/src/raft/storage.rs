//! The log as openraft wants it.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogId, LogState, OptionalSend, RaftLogReader, StorageIOError, Vote};

use super::types::{
    StorageError, Types, entry_of, id_of, place_of, raft_entry_of, raft_vote_of, vote_of,
};
use crate::batch::MAX_BATCH_BYTES;
use crate::log::{Log, LogError};

/// A log that is given to openraft.
#[derive(Debug, Clone)]
pub(super) struct LogStore(pub(super) Log);

fn reading(error: LogError) -> StorageError {
    StorageIOError::read_logs(AnyError::new(&error)).into()
}

fn writing(error: LogError) -> StorageError {
    StorageIOError::write_logs(AnyError::new(&error)).into()
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<openraft::Entry<Types>>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let entries = self.0.read(start..end, usize::MAX).map_err(reading)?;
        Ok(entries.into_iter().map(raft_entry_of).collect())
    }

    /// What is sent to a member at once must fit into the time of a heartbeat.
    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<openraft::Entry<Types>>, StorageError> {
        let entries = self.0.read(start..end, MAX_BATCH_BYTES).map_err(reading)?;
        Ok(entries.into_iter().map(raft_entry_of).collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let (purged, last) = self.0.ends();
        Ok(LogState { last_purged_log_id: purged.map(id_of), last_log_id: last.map(id_of) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError> {
        let saved = self.0.save_vote(vote_of(vote));
        saved.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError> {
        Ok(self.0.vote().map(raft_vote_of))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = openraft::Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        // A snapshot stands for what was purged. openraft's suite appends such an entry.
        let purged = self.0.ends().0.map_or(0, |place| place.index + 1);
        let entries = entries.into_iter().filter(|entry| entry.log_id.index >= purged);
        let entries: Vec<_> = entries.map(|entry| entry_of(&entry)).collect();
        self.0.append(entries, move |result| callback.log_io_completed(result)).map_err(writing)
    }

    async fn truncate(&mut self, id: LogId<u64>) -> Result<(), StorageError> {
        self.0.truncate(id.index).map_err(writing)
    }

    async fn purge(&mut self, id: LogId<u64>) -> Result<(), StorageError> {
        self.0.purge(place_of(&id)).map_err(writing)
    }
}
