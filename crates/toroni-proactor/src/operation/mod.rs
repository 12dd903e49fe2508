//! Operations: the paper's *asynchronous results*. An [`Operation`] exists from its start to the end of its
//! handler. It holds all inputs of the start, because a start may be deferred, and the outcome, because
//! dispatching may be.

mod address;
mod descriptor;
mod kind;
mod list;
mod memory;
mod pool;
mod state;

pub(crate) use address::{Address, of_peer};
pub(crate) use descriptor::{Descriptor, DescriptorKind, Edges};
pub use kind::{OperationKind, OperationMask};
pub(crate) use list::{List, Membership};
pub(crate) use memory::Memory;
pub(crate) use pool::Pool;
pub(crate) use state::State;

use crate::error::OperationError;
use crate::hook::mutant;
use crate::shards::Shard;
use list::Links;
use rustix::io::Errno;
use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Identifies an operation of a shard. The generation makes a key that was kept for too long harmless: its operation is
/// gone, and the next one in the same entry has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

/// The index of the first key that identifies no entry of the pool.
const OUTSIDE: u32 = 1 << 31;

impl Key {
    /// Returns the key of an operation that is over as it is started and takes no entry: nothing can be asked
    /// of it. No two of the last 2^32 of a thread are equal.
    pub(crate) fn outside(thread: usize, serial: u32) -> Self {
        let thread = u32::try_from(thread).unwrap_or(0) & !OUTSIDE;
        Self { index: OUTSIDE | thread, generation: serial }
    }

    /// Returns whether it is such a key.
    #[cfg(test)]
    pub(crate) fn is_outside(self) -> bool {
        self.index >= OUTSIDE
    }

    /// Converts to a number that the kernel hands back.
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Converts back.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    pub(crate) fn from_u64(number: u64) -> Self {
        Self { index: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Identifies an operation of a proactor: its shard, and its key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) shard: Shard,
    pub(crate) key: Key,
}

/// The inputs of a start.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kind: OperationKind,
    /// `None` for timers, posts and words.
    pub(crate) descriptor: Option<Arc<Descriptor>>,
    pub(crate) memory: Memory,
    /// Byte offset in the file; files only.
    pub(crate) offset: u64,
    /// The value of a word while it is waited at.
    pub(crate) value: u32,
    /// The address to connect to or to send to.
    pub(crate) address: Option<Address>,
    /// `connect` has been called, and its result is awaited.
    pub(crate) is_connecting: bool,
    /// The whole buffer must be transferred, in as many steps as it takes. Later operations of the stream wait.
    pub(crate) is_whole: bool,
    /// Bytes transferred in earlier steps; the memory is the rest.
    pub(crate) moved: usize,
}

impl Request {
    pub(crate) fn new(kind: OperationKind, descriptor: Arc<Descriptor>) -> Self {
        Self { kind, descriptor: Some(descriptor), ..Self::timer() }
    }

    /// Creates the request of a wait at a word, for as long as it has this value.
    pub(crate) fn word(memory: Memory, value: u32) -> Self {
        Self { kind: OperationKind::WaitWord, memory, value, ..Self::timer() }
    }

    pub(crate) fn timer() -> Self {
        Self {
            kind: OperationKind::Timer,
            descriptor: None,
            memory: Memory::NONE,
            offset: 0,
            value: 0,
            address: None,
            is_connecting: false,
            is_whole: false,
            moved: 0,
        }
    }

    /// Returns a copy to work on outside of the lock. The operation keeps what other threads look up meanwhile.
    pub(crate) fn lend(&mut self) -> Self {
        Self { descriptor: self.descriptor.clone(), address: self.address.take(), ..*self }
    }

    pub(crate) fn post() -> Self {
        Self { kind: OperationKind::Post, ..Self::timer() }
    }

    /// Records that a transfer has moved `bytes` bytes. Returns the result, or `None` if a rest is left to
    /// transfer.
    pub(crate) fn advance(&mut self, bytes: usize) -> Option<Result<usize, Errno>> {
        if !self.is_whole {
            return Some(Ok(bytes));
        }
        self.moved += bytes;
        self.memory = self.memory.after(bytes);
        if self.memory.is_empty() {
            Some(Ok(self.moved))
        } else {
            // It moved nothing although there was something to move: that would repeat for ever.
            (bytes == 0).then_some(Err(Errno::IO))
        }
    }

    /// Returns the descriptor of an operation that has one and is for a provider.
    pub(crate) fn on(&self) -> &Arc<Descriptor> {
        self.descriptor.as_ref().expect("only timers, posts and words have none")
    }

    /// Returns whether no operation of its descriptor and direction waits; false without a descriptor.
    pub(crate) fn is_idle(&self) -> bool {
        self.descriptor.as_ref().is_some_and(|descriptor| descriptor.is_idle(self.kind))
    }

    /// Returns whether a result of its descriptor and direction waits for its handler.
    pub(crate) fn has_result(&self) -> bool {
        self.descriptor.as_ref().is_some_and(|descriptor| descriptor.results(self.kind) > 0)
    }

    /// Returns whether a thread may keep it for its turn: its attempt cannot wait, whatever other readers do meanwhile,
    /// and an engine watches its descriptor. Pipes and terminals are ready at one moment and may not be at the next.
    pub(crate) fn may_be_kept(&self) -> bool {
        let descriptor = self.descriptor.as_ref();
        let is_socket = descriptor.is_some_and(|it| it.kind() == DescriptorKind::Socket);
        (is_socket || mutant("pipes_are_kept")) && self.is_watched()
    }

    /// Returns whether an engine watches its descriptor.
    fn is_watched(&self) -> bool {
        let descriptor = self.descriptor.as_ref();
        descriptor.is_some_and(|descriptor| descriptor.edges().is_watched(self.kind.is_reading()))
    }

    pub(crate) fn raw(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(|descriptor| descriptor.as_raw_fd())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.on().as_fd()
    }
}

/// The outcome of an operation.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Bytes, or the error.
    pub(crate) result: Result<usize, Errno>,
    /// The address of the sender, or of the accepted peer.
    pub(crate) address: Option<SocketAddr>,
    /// The socket of `ACCEPT`. Closed if no handler takes it.
    pub(crate) accepted: Option<OwnedFd>,
    /// The datagram was longer than the buffer.
    pub(crate) is_truncated: bool,
}

impl Outcome {
    pub(crate) fn of(result: Result<usize, Errno>) -> Self {
        Self { result, address: None, accepted: None, is_truncated: false }
    }

    pub(crate) fn cancelled() -> Self {
        Self::of(Err(Errno::CANCELED))
    }
}

/// What happens when an operation is over. Owns the user's buffer and handler.
pub(crate) trait Completion: Any + Send {
    /// Calls the handler. Never called under the lock.
    fn complete(self: Box<Self>, done: Done);
}

/// The argument of a [`Completion`].
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) kind: OperationKind,
    /// Held until the handler has returned, and released outside of the lock: closing may take long.
    pub(crate) descriptor: Option<Arc<Descriptor>>,
    pub(crate) outcome: Outcome,
}

impl Done {
    pub(crate) fn raw(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(|descriptor| descriptor.as_raw_fd())
    }

    /// Returns bytes, or the error as the user receives it.
    pub(crate) fn result(&self) -> Result<usize, OperationError> {
        self.outcome.result.map_err(|errno| OperationError {
            operation: self.kind,
            descriptor: self.raw(),
            errno: errno.raw_os_error(),
        })
    }
}

/// One operation.
pub(crate) struct Operation {
    generation: u32,
    links: [Links; 2],
    state: State,
    /// A cancellation was requested; the operation may succeed nevertheless.
    pub(crate) is_cancelled: bool,
    /// The reusable read of an interrupt strategy, which never reaches the dispatcher.
    is_internal: bool,
    /// The number of its processor.
    pub(crate) processor: usize,
    pub(crate) request: Request,
    pub(crate) outcome: Option<Outcome>,
    /// `None` for an internal read, and while a thread that attempts the operation holds it.
    completion: Option<Box<dyn Completion>>,
}

impl Operation {
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Changes the state.
    pub(crate) fn become_(&mut self, next: State) {
        assert!(self.state.may_become(next), "{:?} does not become {next:?}", self.state);
        let before = std::mem::replace(&mut self.state, next);
        if let Some(descriptor) = &self.request.descriptor {
            descriptor.changed(self.request.kind, before, next);
        }
    }

    /// Returns whether no other operation of its descriptor and direction has a result that waits for its
    /// handler.
    pub(crate) fn has_the_only_result(&self) -> bool {
        let descriptor = self.request.descriptor.as_ref();
        descriptor.is_none_or(|descriptor| descriptor.results(self.request.kind) <= 1)
    }

    pub(crate) fn finish(&mut self, outcome: Outcome) {
        self.become_(State::ResultReady);
        self.outcome = Some(outcome);
    }

    /// Changes from READY to COMPLETED. The thread that called the handler has counted that already.
    pub(crate) fn was_completed(&mut self) {
        assert_eq!(self.state, State::Ready, "it was attempted");
        self.state = State::Completed;
    }

    /// Lends the completion to the thread that attempts the operation.
    pub(crate) fn lend_completion(&mut self) -> Option<Box<dyn Completion>> {
        self.completion.take()
    }

    /// Ends [`Operation::lend_completion`]: the operation is not over, or its handler has not been called.
    pub(crate) fn return_completion(&mut self, completion: Option<Box<dyn Completion>>) {
        self.completion = completion;
    }

    /// Returns whether it is the reusable read of an interrupt strategy.
    pub(crate) fn is_internal(&self) -> bool {
        self.is_internal
    }

    /// Returns whether it is in this list, which is not a provider's queue.
    pub(crate) fn is_in(&self, list: Membership) -> bool {
        self.links[0].member_of == list
    }

    /// Returns whether it is in a provider's queue, and not at the head.
    pub(crate) fn has_predecessor(&self) -> bool {
        self.links[list::QUEUE].has_predecessor()
    }
}
