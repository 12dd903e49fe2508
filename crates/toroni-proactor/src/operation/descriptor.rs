//! A descriptor that operations share.

use super::{OperationKind, State};
use crate::hook::{Point, mutant, point};
use crate::shards::Shard;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kind of a descriptor, as far as engines distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// `recv` and `send` exist, and take `MSG_DONTWAIT`.
    Socket,
    /// A regular file or a block device: always ready; transfers wait for the disk.
    File,
    /// Pipes, terminals, eventfds and so on.
    Other,
}

/// A descriptor that operations share. It is closed after the last of them, so that its number is never given
/// to another file while the kernel still works on this one.
#[derive(Debug)]
pub(crate) struct Descriptor {
    descriptor: OwnedFd,
    kind: DescriptorKind,
    home: Shard,
    /// Operations that wait to read, and to write. If there are none, a start may attempt at once without
    /// overtaking.
    waiting: [Count; 2],
    /// Operations that are READY.
    ready: Count,
    /// Operations that are finished, and whose handlers have not been called.
    results: [Count; 2],
    edges: Arc<Edges>,
    /// Held by a thread that attempts a write outside of the proactor's lock, until the operation is over or
    /// waits.
    writing: Mutex<()>,
}

impl Descriptor {
    /// Takes over a descriptor for this shard, and determines its kind.
    pub(crate) fn new(descriptor: OwnedFd, home: Shard) -> Result<Self, Errno> {
        let kind = match FileType::from_raw_mode(fstat(&descriptor)?.st_mode) {
            FileType::Socket => DescriptorKind::Socket,
            FileType::RegularFile | FileType::BlockDevice => DescriptorKind::File,
            _ => DescriptorKind::Other,
        };
        Ok(Self {
            descriptor,
            kind,
            home,
            waiting: Default::default(),
            ready: Count::default(),
            results: Default::default(),
            edges: Arc::default(),
            writing: Mutex::new(()),
        })
    }

    pub(crate) fn kind(&self) -> DescriptorKind {
        self.kind
    }

    /// Returns the shard that has all of its operations.
    pub(crate) fn home(&self) -> Shard {
        self.home
    }

    /// Waits for the turn to write to a stream outside of the proactor's lock: parts of two threads' writes
    /// must not mix. Taken before the lock, never under it.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no operation of that direction is started or deferred.
    pub(crate) fn is_idle(&self, kind: OperationKind) -> bool {
        self.waiting[usize::from(kind.is_reading())].get() == 0
    }

    /// Returns what is known about its readiness. Engines keep a reference, which does not keep the
    /// descriptor open.
    pub(crate) fn edges(&self) -> &Arc<Edges> {
        &self.edges
    }

    /// Counts an operation's change of state. Called under the proactor's lock.
    pub(crate) fn changed(&self, kind: OperationKind, before: State, after: State) {
        self.count(kind, before, after, Count::add_locked);
    }

    /// Counts a change of state in a local run, by a thread that need not hold the proactor's lock.
    pub(crate) fn changed_in_run(&self, kind: OperationKind, before: State, after: State) {
        self.count(kind, before, after, Count::add_in_run);
    }

    fn count(&self, kind: OperationKind, before: State, after: State, add: fn(&Count, i32)) {
        let waits = |state| matches!(state, State::Started | State::Ready | State::Deferred);
        let has_result = |state| state == State::ResultReady;
        let direction = usize::from(kind.is_reading());
        let change = |count, before, after| {
            if before != after {
                add(count, if after { 1 } else { -1 });
            }
        };
        change(&self.waiting[direction], waits(before), waits(after));
        change(&self.results[direction], has_result(before), has_result(after));
        change(&self.ready, before == State::Ready, after == State::Ready);
    }

    /// Returns whether any of its operations are READY. Called under the proactor's lock.
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.get() > 0
    }

    /// Returns the number of operations of that direction whose results wait for their handlers.
    pub(crate) fn results(&self, kind: OperationKind) -> u32 {
        self.results[usize::from(kind.is_reading())].get()
    }
}

/// A number of operations that is the sum of two parts. What the proactor's lock protects is changed by plain
/// stores; only local runs, which have locks of their own, need an atomic addition.
///
/// An operation that moves from one part to the other is added before it is subtracted, so a reader without the
/// lock never misses one.
#[derive(Debug, Default)]
struct Count {
    locked: AtomicU32,
    in_runs: AtomicU32,
}

impl Count {
    fn add_locked(&self, change: i32) {
        let before = self.locked.load(Ordering::Relaxed);
        self.locked.store(before.wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// *Releases* the other part, so that a reader that sees this change also sees what it follows.
    fn add_in_run(&self, change: i32) {
        self.in_runs.fetch_add(change.cast_unsigned(), Ordering::Release);
    }

    fn get(&self) -> u32 {
        let in_runs = self.in_runs.load(Ordering::Acquire);
        in_runs.wrapping_add(self.locked.load(Ordering::Relaxed))
    }
}

/// Counts when a descriptor was reported ready, and when an attempt found it not ready. An *edge* is one such
/// report, as in edge-triggered epoll.
#[derive(Debug)]
pub(crate) struct Edges {
    /// The number of reports that it can be written, and that it can be read; counted from 1.
    reported: [AtomicU64; 2],
    /// The edge after which an attempt last found it not ready.
    blocked: [AtomicU64; 2],
}

impl Default for Edges {
    fn default() -> Self {
        Self { reported: [AtomicU64::new(1), AtomicU64::new(1)], blocked: Default::default() }
    }
}

impl Edges {
    /// Returns whether an engine has watched it: a start that has to wait does not fail for want of that.
    pub(crate) fn is_watched(&self, reading: bool) -> bool {
        self.reported[usize::from(reading)].load(Ordering::Relaxed) > 1
    }

    /// Records that it became ready, or may have: an attempt that found it not ready must be repeated.
    ///
    /// The edge is *released* to the attempts that *acquire* it. An attempt that sees the edge sees the data
    /// that it reports; one that does not see it is recognised as older by the thread that puts the operation into a
    /// queue.
    pub(crate) fn report(&self, reading: bool) {
        self.reported[usize::from(reading)].fetch_add(1, Ordering::Release);
    }

    /// Returns the number of the last edge, or `None` if an attempt has found the descriptor not ready since.
    pub(crate) fn last(&self, reading: bool) -> Option<u64> {
        let edge = self.reported[usize::from(reading)].load(Ordering::Acquire);
        (self.blocked[usize::from(reading)].load(Ordering::Relaxed) != edge).then_some(edge)
    }

    /// Records that an attempt found it not ready after this edge.
    pub(crate) fn block(&self, reading: bool, edge: u64) {
        point(Point::BeforeBlocked);
        let direction = usize::from(reading);
        let after = || self.reported[direction].load(Ordering::Acquire);
        let edge = if mutant("edge_of_afterwards") { after() } else { edge };
        self.blocked[direction].store(edge, Ordering::Relaxed);
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::Count;
    use std::thread;

    /// As if a thread ended local runs, one after another.
    #[test]
    fn an_operation_that_leaves_a_local_run_is_never_missed() {
        const OPERATIONS: i32 = 500_000;
        let count = Count::default();
        count.add_in_run(OPERATIONS);
        thread::scope(|scope| {
            let moving = scope.spawn(|| {
                for _ in 0..OPERATIONS {
                    count.add_locked(1);
                    count.add_in_run(-1);
                }
            });
            while !moving.is_finished() {
                assert!(count.get() >= OPERATIONS.cast_unsigned(), "one seems to be over");
            }
        });
        assert_eq!(count.get(), OPERATIONS.cast_unsigned());
    }
}
