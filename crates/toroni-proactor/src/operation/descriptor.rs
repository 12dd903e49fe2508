//! A descriptor as operations hold it.

use super::{OperationKind, State};
use crate::hook::{Point, mutant, point};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What kind of thing a descriptor is, as far as engines care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// A socket: `recv` and `send` exist, and take `MSG_DONTWAIT`.
    Socket,
    /// A regular file or a block device: always ready, transfers wait for the disk.
    File,
    /// Pipes, terminals, eventfds and so on.
    Other,
}

/// A descriptor that operations share: it is closed when the last of them is done with it, so that its
/// number is never given to another file while the kernel still works on this one.
#[derive(Debug)]
pub(crate) struct Descriptor {
    descriptor: OwnedFd,
    kind: DescriptorKind,
    /// Operations that wait to read, and to write: who finds none may try at once without overtaking.
    waiting: [AtomicU32; 2],
    /// Those that are READY.
    ready: AtomicU32,
    /// Those that are finished, and whose handlers have not been called.
    results: [AtomicU32; 2],
    edges: Arc<Edges>,
    /// Held by who tries to write outside of the proactor's lock, until its operation is over or waits.
    writing: Mutex<()>,
}

impl Descriptor {
    /// Takes it over, and looks what it is.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let kind = match FileType::from_raw_mode(fstat(&descriptor)?.st_mode) {
            FileType::Socket => DescriptorKind::Socket,
            FileType::RegularFile | FileType::BlockDevice => DescriptorKind::File,
            _ => DescriptorKind::Other,
        };
        Ok(Self {
            descriptor,
            kind,
            waiting: Default::default(),
            ready: AtomicU32::new(0),
            results: Default::default(),
            edges: Arc::default(),
            writing: Mutex::new(()),
        })
    }

    /// What it is.
    pub(crate) fn kind(&self) -> DescriptorKind {
        self.kind
    }

    /// The turn of who writes to a stream outside of the proactor's lock: a part of what another thread
    /// writes must not come between the parts of this. It is taken before the lock, never under it.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no operation of that direction is started or deferred.
    pub(crate) fn is_idle(&self, kind: OperationKind) -> bool {
        self.waiting[usize::from(kind.is_reading())].load(Ordering::Relaxed) == 0
    }

    /// What is known of its readiness. Engines keep it, too: it does not keep the descriptor open.
    pub(crate) fn edges(&self) -> &Arc<Edges> {
        &self.edges
    }

    /// An operation went over from one state to another. Under the proactor's lock.
    pub(super) fn changed(&self, kind: OperationKind, before: State, after: State) {
        let waits = |state| matches!(state, State::Started | State::Ready | State::Deferred);
        let has_result = |state| state == State::ResultReady;
        let direction = usize::from(kind.is_reading());
        count(&self.waiting[direction], waits(before), waits(after));
        count(&self.results[direction], has_result(before), has_result(after));
        count(&self.ready, before == State::Ready, after == State::Ready);
    }

    /// Whether any of its operations are READY. Under the proactor's lock.
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) > 0
    }

    /// Operations of that direction whose results wait for their handlers.
    pub(super) fn results(&self, kind: OperationKind) -> u32 {
        self.results[usize::from(kind.is_reading())].load(Ordering::Relaxed)
    }
}

fn count(counter: &AtomicU32, before: bool, after: bool) {
    match (before, after) {
        (false, true) => counter.fetch_add(1, Ordering::Relaxed),
        (true, false) => counter.fetch_sub(1, Ordering::Relaxed),
        _ => 0,
    };
}

/// When a descriptor was said to be ready, and when it was found not to be.
#[derive(Debug)]
pub(crate) struct Edges {
    /// How often it was said, to write and to read; counted from 1.
    told: [AtomicU64; 2],
    /// The edge after which it was last found not to be.
    blocked: [AtomicU64; 2],
}

impl Default for Edges {
    fn default() -> Self {
        Self { told: [AtomicU64::new(1), AtomicU64::new(1)], blocked: Default::default() }
    }
}

impl Edges {
    /// It became ready, or may have: whoever found that it was not looks again.
    ///
    /// The edge is *released* to the attempts that *acquire* it: one that sees it sees what it tells of,
    /// and one that does not is seen to be older by whoever puts the operation into a queue.
    pub(crate) fn tell(&self, reading: bool) {
        self.told[usize::from(reading)].fetch_add(1, Ordering::Release);
    }

    /// The number of the last edge, unless it was found not to be ready since.
    pub(crate) fn last(&self, reading: bool) -> Option<u64> {
        let edge = self.told[usize::from(reading)].load(Ordering::Acquire);
        (self.blocked[usize::from(reading)].load(Ordering::Relaxed) != edge).then_some(edge)
    }

    /// After this edge, it was found not to be ready.
    pub(crate) fn block(&self, reading: bool, edge: u64) {
        point(Point::BeforeBlocked);
        let direction = usize::from(reading);
        let after = || self.told[direction].load(Ordering::Acquire);
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
