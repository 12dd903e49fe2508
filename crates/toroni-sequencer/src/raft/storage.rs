//! The log as openraft wants it.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::time::{Duration, Instant};

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogId, LogState, OptionalSend, RaftLogReader, StorageIOError, Vote};

use super::gate::Gate;
use super::types::{
    StorageError, Types, entry_of, id_of, place_of, raft_entry_of, raft_vote_of, vote_of,
};
use crate::batch::MAX_BATCH_BYTES;
use crate::entry::Place;
use crate::hook::mutant;
use crate::log::{Log, LogError};

/// A reader of replication that finds nothing for this long belongs to a leader that will never get further.
const GONE_TIME: Duration = Duration::from_secs(1);

/// A log that is given to openraft.
#[derive(Debug)]
pub(super) struct LogStore {
    log: Log,
    /// What purging waits for. None in openraft's suite, which purges without a snapshot.
    gate: Option<Gate>,
    /// The entry that was wanted last and is gone, and since when.
    gone: Option<(u64, Instant)>,
}

impl Clone for LogStore {
    fn clone(&self) -> Self {
        Self { log: self.log.clone(), gate: self.gate.clone(), gone: None }
    }
}

impl LogStore {
    #[cfg(test)]
    pub(super) const fn of(log: Log) -> Self {
        Self { log, gate: None, gone: None }
    }

    /// A log that is purged only as far as the snapshot on the disk reaches.
    pub(super) const fn behind(log: Log, gate: Gate) -> Self {
        Self { log, gate: Some(gate), gone: None }
    }

    /// Notes that replication wants an entry that is gone. Right after it was purged, openraft asks for it in vain, and sends
    /// a snapshot then. Later, it never does.
    fn note_gone(&mut self, wanted: u64) -> Result<(), StorageError> {
        let since = match self.gone {
            Some((index, since)) if index == wanted => since,
            _ => Instant::now(),
        };
        self.gone = Some((wanted, since));
        if since.elapsed() < GONE_TIME {
            return Ok(());
        }
        let first = self.log.ends().0.map_or(0, |purged| purged.index.saturating_add(1));
        Err(reading(LogError::Gone { wanted, first }))
    }
}

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
        let entries = self.log.read(start..end, usize::MAX).map_err(reading)?;
        Ok(entries.into_iter().map(raft_entry_of).collect())
    }

    /// What is sent to a member at once must fit into the time of a heartbeat.
    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<openraft::Entry<Types>>, StorageError> {
        // Not from the first entry that there is, which a follower could not put behind its own.
        let purged = self.log.ends().0.filter(|_| !mutant("replication_from_the_first_entry"));
        if purged.is_some_and(|purged| start <= purged.index) {
            self.note_gone(start)?;
            return Ok(vec![]);
        }
        let entries = match self.log.read(start..end, MAX_BATCH_BYTES) {
            Err(LogError::Gone { .. }) => vec![],
            entries => entries.map_err(reading)?,
        };
        self.gone = None;
        Ok(entries.into_iter().map(raft_entry_of).collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let (purged, last) = self.log.ends();
        Ok(LogState { last_purged_log_id: purged.map(id_of), last_log_id: last.map(id_of) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError> {
        let saved = self.log.save_vote(vote_of(vote));
        saved.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError> {
        Ok(self.log.vote().map(raft_vote_of))
    }

    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Result<(), StorageError> {
        if let Some(committed) = committed {
            self.log.note_committed(place_of(&committed));
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<u64>>, StorageError> {
        Ok(self.log.committed().map_err(reading)?.map(id_of))
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
        // A snapshot stands for what was purged. openraft's suite appends other entries there, too. A member must not: it would
        // pass over what it has never applied.
        let purged = self.log.ends().0;
        let is_gone = |place: Place| {
            purged == Some(place)
                || self.gate.is_none() && purged.is_some_and(|purged| place.index <= purged.index)
        };
        let entries = entries.into_iter().map(|entry| entry_of(&entry));
        let entries: Vec<_> = entries.filter(|entry| !is_gone(entry.place)).collect();
        self.log.append(entries, move |result| callback.log_io_completed(result)).map_err(writing)
    }

    async fn truncate(&mut self, id: LogId<u64>) -> Result<(), StorageError> {
        self.log.truncate(id.index).map_err(writing)
    }

    async fn purge(&mut self, id: LogId<u64>) -> Result<(), StorageError> {
        let place = place_of(&id);
        if let Some(gate) = self.gate.as_ref().filter(|_| !mutant("purge_before_snapshot"))
            && let Err(why) = gate.wait_for(place).await
        {
            return Err(StorageIOError::write_logs(AnyError::error(why)).into());
        }
        self.log.purge(place).map_err(writing)
    }
}

#[cfg(test)]
mod tests {
    use openraft::storage::RaftLogStorageExt;
    use toroni_testkit::Directory;

    use super::*;
    use crate::entry::{Entry, Payload};
    use crate::log::Options;

    const fn place(index: u64) -> Place {
        Place { term: 1, leader: 0, index }
    }

    fn log_of_ten(directory: &Directory) -> Log {
        let log = Log::open(directory.path(), Options::default()).expect("opened");
        let entries = (0..10).map(|index| Entry { place: place(index), payload: Payload::Blank });
        log.append(entries, |_| ()).expect("appended");
        log
    }

    #[tokio::test]
    async fn the_log_is_purged_only_as_far_as_the_snapshot_on_the_disk_reaches() {
        let directory = Directory::below("/dev/shm");
        let log = log_of_ten(&directory);
        let gate = Gate::new(Some(place(3)));
        let mut store = LogStore::behind(log.clone(), gate.clone());
        store.purge(id_of(place(3))).await.expect("purged");
        let purging = tokio::spawn(async move { store.purge(id_of(place(7))).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(log.ends().0, Some(place(3)));
        gate.raise(Some(place(7)));
        purging.await.expect("no panic").expect("purged");
        assert_eq!(log.ends().0, Some(place(7)));
    }

    #[tokio::test]
    async fn replication_gets_nothing_in_place_of_what_is_gone_and_an_error_when_it_asks_on() {
        let directory = Directory::below("/dev/shm");
        let log = log_of_ten(&directory);
        log.purge(place(4)).expect("purged");
        let mut store = LogStore::of(log);
        for start in [0, 4] {
            assert_eq!(store.limited_get_log_entries(start, 10).await.expect("no error"), []);
        }
        let found = store.limited_get_log_entries(5, 10).await.expect("readable");
        assert_eq!(found.len(), 5);
        assert_eq!(store.try_get_log_entries(0..10).await.expect("readable").len(), 5);
        store.try_get_log_entries(3..10).await.expect_err("it is gone");
        // Other entries in between do not help one that is asked for all the time.
        store.limited_get_log_entries(2, 10).await.expect("no error");
        store.gone = store
            .gone
            .map(|(wanted, since)| (wanted, since.checked_sub(GONE_TIME).expect("later")));
        let error = store.limited_get_log_entries(2, 10).await.expect_err("for a second");
        assert!(error.to_string().contains("the log begins with 5"), "{error}");
        // Another reader begins again.
        let mut other = store.get_log_reader().await;
        other.limited_get_log_entries(2, 10).await.expect("no error");
    }

    #[tokio::test]
    async fn a_member_does_not_pass_over_entries_below_its_snapshot() {
        let directory = Directory::below("/dev/shm");
        let log = log_of_ten(&directory);
        log.purge(place(4)).expect("purged");
        let entry = |term, index| {
            raft_entry_of(Entry { place: Place { term, ..place(index) }, payload: Payload::Blank })
        };
        let mut store = LogStore::behind(log.clone(), Gate::new(Some(place(4))));
        store.truncate(id_of(place(5))).await.expect("cut");
        for wrong in [entry(1, 3), entry(2, 4)] {
            let appended = store.blocking_append([wrong]).await;
            appended.expect_err("the snapshot does not stand for it");
        }
        store
            .blocking_append([entry(1, 4), entry(1, 5)])
            .await
            .expect("the purged place itself is passed over");
        assert_eq!(log.ends(), (Some(place(4)), Some(place(5))));
    }
}
