//! The state machine as openraft wants it: what was applied is in memory, and a snapshot of it on the disk.
//!
//! ```text
//!  a snapshot   last entry 1 + 24 · entry of the members 1 + 24 · length of the members u32 · members · machine
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta,
    StorageIOError, StoredMembership,
};

use super::gate::Gate;
use super::group::GroupError;
use super::types::{
    Proposal, StorageError, Types, id_of, members_of, membership_of, place_of, raft_entry_of,
};
use crate::batch::Batch;
use crate::bytes::Fields;
use crate::entry::{EntryError, Member, Members, Payload, Place};
use crate::feed::{Applying, Archive};
use crate::log::{Log, LogError, NewSnapshot};
use crate::machine::{Event, Machine, Outcome};

/// The log is replayed in pieces of this many bytes.
const REPLAY_BYTES: usize = 1 << 20;

/// Receives events, in their order. After a restart, it receives the events since the last snapshot again.
pub trait Events: Send {
    /// The next event.
    fn event(&mut self, event: Event<'_>);
    /// Events up to this number, without it, were not seen here: a snapshot stood for them.
    fn skipped(&mut self, next: u64);
}

/// The state machine with what Raft wants to know of it. Clones are handles of the same.
#[derive(Clone)]
pub(super) struct Applied {
    state: Arc<Mutex<State>>,
    pub(super) gate: Gate,
}

pub(super) struct State {
    log: Log,
    pub(super) machine: Machine,
    pub(super) last: Option<Place>,
    /// The last entry that the snapshot covers, which may not be synced yet.
    pub(super) snapshot: Option<Place>,
    /// A snapshot that was received, and is to be installed.
    received: Option<(Place, NewSnapshot)>,
    members: StoredMembership<u64, Member>,
    events: Box<dyn Events>,
    pub(super) archive: Archive,
}

/// Why bytes are no snapshot of a member.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its head is none.
    #[error("{0}")]
    Head(#[from] EntryError),
    /// The machine in it is none.
    #[error("{0}")]
    Machine(#[from] crate::machine::SnapshotError),
}

/// What a snapshot of a member holds.
pub(super) struct Contents {
    pub(super) last: Option<Place>,
    /// Where the members were set.
    at: Option<Place>,
    pub(super) members: Members,
    pub(super) machine: Machine,
}

impl Contents {
    fn read(bytes: &[u8]) -> Result<Self, StorageError> {
        let read = Self::decode(bytes);
        Ok(read.map_err(|error| StorageIOError::read_snapshot(None, AnyError::new(&error)))?)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut fields = Fields::of(bytes);
        let (last, at) = (Place::decode_option(&mut fields)?, Place::decode_option(&mut fields)?);
        let length = fields.u32().map_err(EntryError::from)?;
        let encoded = fields.take(usize::try_from(length).unwrap_or(usize::MAX));
        let mut encoded = Fields::of(encoded.map_err(EntryError::from)?);
        let members = Members::decode(&mut encoded)?;
        if !encoded.rest().is_empty() {
            return Err(EntryError::Impossible.into());
        }
        Ok(Self { last, at, members, machine: Machine::from_snapshot(fields.rest())? })
    }
}

/// Returns the machine in a member's snapshot, and the last entry that it has applied.
///
/// # Errors
///
/// If the bytes are no snapshot.
pub fn machine_of_snapshot(bytes: &[u8]) -> Result<(Option<Place>, Machine), Unreadable> {
    Contents::decode(bytes).map(|contents| (contents.last, contents.machine))
}

impl Applied {
    /// Starts with the snapshot of the log, if there is one, and with what is known to be committed after it. openraft would
    /// read all of that at once.
    pub(super) fn open(log: Log, events: Box<dyn Events>) -> Result<Self, GroupError> {
        let machine = Machine::new();
        let archive = Archive::open(log.clone(), &machine, None)?;
        let mut state = State {
            log,
            machine,
            last: None,
            snapshot: None,
            received: None,
            members: StoredMembership::default(),
            events,
            archive,
        };
        if let Some(bytes) = state.log.snapshot()? {
            state.restore(&bytes).map_err(|error| GroupError::Raft(error.to_string()))?;
            state.snapshot = state.last;
            // A process that was killed may have renamed it only in memory, and the log is purged behind it.
            state.log.sync_snapshot()?;
        }
        check_gap(&state.log, state.last)?;
        if let Some(committed) = state.log.committed()? {
            state.replay(committed)?;
        }
        let gate = Gate::new(state.snapshot);
        Ok(Self { state: Arc::new(Mutex::new(state)), gate })
    }

    /// Returns the members, as the newest entry of the log says that sets them, applied or not.
    pub(super) fn newest_members(&self) -> Result<Members, LogError> {
        let state = self.lock();
        let mut members = super::types::members_of(state.members.membership());
        let mut next = state.last.map_or(0, |last| last.index.saturating_add(1));
        // What follows is little: the log has a mark of what is committed.
        loop {
            let entries = state.log.read(next..u64::MAX, REPLAY_BYTES)?;
            let Some(last) = entries.last() else { return Ok(members) };
            next = last.place.index.saturating_add(1);
            let set = entries.into_iter().filter_map(|entry| match entry.payload {
                Payload::Members(members) => Some(members),
                _ => None,
            });
            members = set.last().unwrap_or(members);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a snapshot that was received and is on the disk, before openraft learns of it: its task waits for the
    /// installation, and no disk may hold it up for long.
    pub(super) fn receive(&self, last: Place, new: NewSnapshot) {
        let before = self.lock().received.replace((last, new));
        // A file is removed, and not under the lock.
        drop(before);
    }

    /// Gives up a snapshot that was received and not installed: openraft did not need it.
    pub(super) fn give_up_received(&self) {
        let received = self.lock().received.take();
        // Its file is removed, and not under the lock.
        drop(received);
    }

    /// Replaces the snapshot by one that was written and covers everything up to `last`, unless there is a later one.
    fn replace(&self, last: Option<Place>, new: NewSnapshot) -> Result<(), LogError> {
        let log = {
            let mut state = self.lock();
            if state.snapshot >= last {
                return Ok(());
            }
            state.log.replace_snapshot(new)?;
            state.snapshot = last;
            state.log.clone()
        };
        log.sync_snapshot()?;
        self.gate.raise(last);
        Ok(())
    }

    /// Puts a snapshot on the disk. Does not take the lock meanwhile.
    async fn keep(&self, last: Option<Place>, bytes: Arc<[u8]>) -> Result<(), LogError> {
        let (applied, log) = (self.clone(), self.lock().log.clone());
        beside(move || {
            let new = log.new_snapshot(bytes.len())?;
            new.write(&bytes)?;
            applied.replace(last, new)
        })
        .await
    }
}

/// Runs what waits for a disk where it holds up no other task.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    // It is given up only when the process ends, and panics only with a fault of this program, which was printed.
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(LogError::Closed))
}

/// Makes sure that the snapshot reaches as far as the log was purged.
pub(super) fn check_gap(log: &Log, snapshot: Option<Place>) -> Result<(), LogError> {
    match log.ends().0 {
        Some(purged) if snapshot.is_none_or(|last| last.index < purged.index) => {
            Err(LogError::Gap(purged.index))
        }
        _ => Ok(()),
    }
}

impl State {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![];
        Place::encode_option(self.last, &mut bytes);
        Place::encode_option(self.members.log_id().as_ref().map(place_of), &mut bytes);
        let mut members = vec![];
        members_of(self.members.membership()).encode(&mut members);
        bytes.extend(u32::try_from(members.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(members);
        bytes.extend(self.machine.snapshot());
        bytes
    }

    /// Applies the entries of the log up to this one.
    fn replay(&mut self, upto: Place) -> Result<(), GroupError> {
        let mut next = self.last.map_or(0, |last| last.index.saturating_add(1));
        let end = upto.index.saturating_add(1);
        while next < end {
            let entries = self.log.read(next..end, REPLAY_BYTES)?;
            if entries.is_empty() {
                return Err(LogError::Order(next).into());
            }
            for entry in entries {
                next = entry.place.index.saturating_add(1);
                let applied = self.apply(raft_entry_of(entry));
                applied.map_err(|error| GroupError::Raft(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let Contents { last, at, members, machine } = Contents::read(bytes)?;
        self.last = last;
        self.members = StoredMembership::new(at.map(id_of), membership_of(members));
        self.machine = machine;
        self.archive.restart(&self.machine, self.last);
        self.events.skipped(self.machine.next());
        Ok(())
    }

    fn meta(&self) -> SnapshotMeta<u64, Member> {
        let last_log_id = self.last.map(id_of);
        let snapshot_id = last_log_id
            .map_or_else(|| "0".to_owned(), |id| format!("{}-{}", id.leader_id, id.index));
        SnapshotMeta { last_log_id, last_membership: self.members.clone(), snapshot_id }
    }

    fn apply(&mut self, entry: openraft::Entry<Types>) -> Result<Vec<Outcome>, StorageError> {
        let mut outcomes = vec![];
        let mut applying = Applying::begin(&self.machine);
        let mut bytes = 0;
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(Proposal(proposal)) => {
                let batch = Batch::check(&proposal);
                let batch = batch
                    .map_err(|error| StorageIOError::apply(entry.log_id, AnyError::new(&error)))?;
                applying.apply(
                    &mut self.machine,
                    batch,
                    |event| self.events.event(event),
                    |outcome| outcomes.push(outcome),
                );
                bytes = proposal.len();
            }
            EntryPayload::Membership(members) => {
                self.members = StoredMembership::new(Some(entry.log_id), members);
            }
        }
        let place = place_of(&entry.log_id);
        self.last = Some(place);
        self.archive.applied(applying, &self.machine, place, bytes);
        Ok(outcomes)
    }

    /// The snapshot on the disk.
    fn stored(&self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let stored = self.log.snapshot();
        let stored =
            stored.map_err(|error| StorageIOError::read_snapshot(None, AnyError::new(&error)))?;
        stored.map(describe).transpose()
    }
}

impl RaftStateMachine<Types> for Applied {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, Member>), StorageError> {
        let state = self.lock();
        Ok((state.last.map(id_of), state.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Vec<Outcome>>, StorageError>
    where
        I: IntoIterator<Item = openraft::Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.lock();
        entries.into_iter().map(|entry| state.apply(entry)).collect()
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Arc<[u8]>>, StorageError> {
        Ok(Box::new(Arc::from([])))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, Member>,
        snapshot: Box<Arc<[u8]>>,
    ) -> Result<(), StorageError> {
        // First on the disk: the log is purged then, and must not be before.
        let passage = self.gate.passage();
        let last = meta.last_log_id.as_ref().map(place_of);
        let received = self.lock().received.take();
        let kept = match received {
            Some((place, new)) if Some(place) == last => {
                let applied = self.clone();
                beside(move || applied.replace(last, new)).await
            }
            _ => self.keep(last, Arc::clone(&snapshot)).await,
        };
        kept.map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)))?;
        self.lock().restore(&snapshot)?;
        passage.done();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        self.lock().stored()
    }
}

/// The snapshot of before the first entry.
fn nothing() -> Snapshot<Types> {
    Snapshot { meta: SnapshotMeta::default(), snapshot: Box::new(Arc::from([])) }
}

/// Reads the description that openraft wants from the snapshot itself. Checks the snapshot as a whole: an error while one is
/// installed would stop openraft for good.
pub(super) fn describe(bytes: Vec<u8>) -> Result<Snapshot<Types>, StorageError> {
    let Contents { last, at, members, .. } = Contents::read(&bytes)?;
    let last_log_id = last.map(id_of);
    let snapshot_id =
        last_log_id.map_or_else(|| "0".to_owned(), |id| format!("{}-{}", id.leader_id, id.index));
    let last_membership = StoredMembership::new(at.map(id_of), membership_of(members));
    let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
    Ok(Snapshot { meta, snapshot: Box::new(bytes.into()) })
}

impl RaftSnapshotBuilder<Types> for Applied {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let (bytes, meta): (Arc<[u8]>, _) = {
            let state = self.lock();
            (state.encode().into(), state.meta())
        };
        let last = meta.last_log_id.as_ref().map(place_of);
        match self.keep(last, Arc::clone(&bytes)).await {
            Ok(()) => Ok(Snapshot { meta, snapshot: Box::new(bytes) }),
            // An error would stop openraft for good. It passes over a snapshot that is not newer than the last one.
            Err(LogError::Full(_)) => Ok(self.lock().stored()?.unwrap_or_else(nothing)),
            Err(error) => Err(StorageIOError::write_snapshot(None, AnyError::new(&error)).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Options;

    struct Ignores;

    impl Events for Ignores {
        fn event(&mut self, _: Event<'_>) {}
        fn skipped(&mut self, _: u64) {}
    }

    #[test]
    fn a_snapshot_is_refused_whichever_byte_of_the_machine_is_wrong() {
        let directory = toroni_testkit::Directory::new();
        let log = Log::open(&directory.join("log"), Options::default()).expect("opened");
        let applied = Applied::open(log, Box::new(Ignores)).expect("opened");
        let bytes = applied.lock().encode();
        assert!(describe(bytes.clone()).is_ok());
        let machine = applied.lock().machine.snapshot().len();
        for at in bytes.len() - machine..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert!(describe(wrong).is_err(), "byte {at}");
        }
    }
}
