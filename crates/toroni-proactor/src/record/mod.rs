//! Records: the paper's *asynchronous results*. One record is one operation, from its start to the end of
//! its handler; it carries everything that a start needs, because starts may be deferred, and everything
//! that came out, because dispatching may be.

mod descriptor;
mod list;
mod memory;
mod operation;
mod records;
mod state;

pub(crate) use descriptor::{Descriptor, Kind};
pub(crate) use list::{List, Membership};
pub(crate) use memory::Memory;
pub use operation::{Operation, OperationMask};
pub(crate) use records::Records;
pub(crate) use state::State;

use crate::error::OperationError;
use list::Links;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use std::any::Any;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Names a record. The generation makes a name that was kept for too long harmless: its record is gone,
/// and who lives in its place has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl Key {
    /// As a number that the kernel hands back.
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The other way.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    pub(crate) fn from_u64(number: u64) -> Self {
        Self { index: number as u32, generation: (number >> 32) as u32 }
    }
}

/// What a start needs.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// None for timers and posts.
    pub(crate) descriptor: Option<Arc<Descriptor>>,
    pub(crate) memory: Memory,
    /// Byte in the file; files only.
    pub(crate) offset: u64,
    /// Where to connect or to send.
    pub(crate) address: Option<SocketAddrAny>,
    /// `connect` has been called, and its result is awaited.
    pub(crate) is_connecting: bool,
}

impl Request {
    /// An operation on a descriptor.
    pub(crate) fn new(operation: Operation, descriptor: Arc<Descriptor>) -> Self {
        Self { operation, descriptor: Some(descriptor), ..Self::timer() }
    }

    /// A timer.
    pub(crate) fn timer() -> Self {
        Self {
            operation: Operation::Timer,
            descriptor: None,
            memory: Memory::NONE,
            offset: 0,
            address: None,
            is_connecting: false,
        }
    }

    /// A post.
    pub(crate) fn post() -> Self {
        Self { operation: Operation::Post, ..Self::timer() }
    }

    /// The descriptor of an operation that a provider was asked for; such have one.
    pub(crate) fn on(&self) -> &Arc<Descriptor> {
        self.descriptor.as_ref().expect("timers and posts are never given to a provider")
    }

    /// Its number.
    pub(crate) fn raw(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(|descriptor| descriptor.as_raw_fd())
    }

    /// The descriptor, borrowed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.on().as_fd()
    }
}

/// What came out.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Bytes, or what went wrong.
    pub(crate) result: Result<usize, Errno>,
    /// Of the sender, or of the accepted peer.
    pub(crate) address: Option<SocketAddrAny>,
    /// By `ACCEPT`. Closed if nobody takes it.
    pub(crate) accepted: Option<OwnedFd>,
    /// The datagram was longer than the buffer.
    pub(crate) is_truncated: bool,
}

impl Outcome {
    /// Bytes, and nothing else.
    pub(crate) fn of(result: Result<usize, Errno>) -> Self {
        Self { result, address: None, accepted: None, is_truncated: false }
    }

    /// `ECANCELED`.
    pub(crate) fn cancelled() -> Self {
        Self::of(Err(Errno::CANCELED))
    }
}

/// What to do when the operation is over: owns the user's buffer and handler.
pub(crate) trait Completion: Any + Send {
    /// Calls the handler. Never under the lock.
    fn complete(self: Box<Self>, done: Done);
}

/// What a [`Completion`] is told.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) operation: Operation,
    pub(crate) descriptor: Option<RawFd>,
    pub(crate) outcome: Outcome,
}

impl Done {
    /// Bytes, or what went wrong, as the user is told of it.
    pub(crate) fn result(&self) -> Result<usize, OperationError> {
        self.outcome.result.map_err(|errno| OperationError {
            operation: self.operation,
            descriptor: self.descriptor,
            errno: errno.raw_os_error(),
        })
    }
}

/// One operation.
pub(crate) struct Record {
    generation: u32,
    links: [Links; 2],
    state: State,
    /// Somebody asked to cancel it; it may succeed nevertheless.
    pub(crate) is_cancelled: bool,
    /// The number of its processor.
    pub(crate) processor: usize,
    pub(crate) request: Request,
    pub(crate) outcome: Option<Outcome>,
    /// None for the reusable read of an interrupt strategy, which never reaches the dispatcher.
    completion: Option<Box<dyn Completion>>,
}

impl Record {
    /// Its state.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Goes over to another state.
    pub(crate) fn become_(&mut self, next: State) {
        assert!(self.state.may_become(next), "{:?} does not become {next:?}", self.state);
        let waited = self.is_waiting();
        self.state = next;
        let Some(descriptor) = &self.request.descriptor else { return };
        match (waited, self.is_waiting()) {
            (false, true) => descriptor.begin(self.request.operation),
            (true, false) => descriptor.end(self.request.operation),
            _ => {}
        }
    }

    /// Finishes it with this outcome.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        self.become_(State::ResultReady);
        self.outcome = Some(outcome);
    }

    /// Whether it is the reusable read of an interrupt strategy.
    pub(crate) fn is_internal(&self) -> bool {
        self.completion.is_none()
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Started | State::Deferred)
    }
}
