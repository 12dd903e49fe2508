//! Wait strategies: the paper's *AIO_Wait_Strategy*. How the leader waits for its processor's operations,
//! and what it saw when it woke. What an event means for an operation is the provider's business.

mod epoll;
mod linux_rt;
mod ppoll;
mod uring;

pub(crate) use epoll::Epoll;
pub(crate) use linux_rt::LinuxRt;
pub(crate) use ppoll::Ppoll;
pub(crate) use uring::Uring;

use crate::interrupt::{InterruptChoice, InterruptStrategy};
use crate::provider::Started;
use crate::sys::SignalSet;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

/// What a leader saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A descriptor can be read or written, or has failed.
    Ready {
        /// Its number.
        descriptor: RawFd,
        /// Reading will not block.
        readable: bool,
        /// Writing will not block.
        writable: bool,
    },
    /// Some changes were not told: any descriptor may be ready.
    Rescan,
    /// An operation of the kernel is complete.
    Complete {
        /// As it was submitted.
        number: u64,
        /// As a system call returns it.
        result: i32,
    },
}

/// How the leader waits.
///
/// `prepare_to_wait`, `wait` and `next_event` are called by the leader only, so a strategy may keep what
/// belongs to it in a mutex that nobody contends for. All but `wait` are called under the proactor's lock.
pub(crate) trait WaitStrategy: Send + Sync {
    /// `init`: once, before anything else.
    fn init(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// `fini`: once, when no operation is in progress any more.
    fn fini(&self) {}

    /// This thread has become the leader. The mask is what signals to block while it waits, if its
    /// interrupt strategy wants a signal through.
    fn on_leader_activated(&self, while_waiting: Option<SignalSet>);

    /// The last call before `wait`. What is started later is not in the list.
    fn prepare_to_wait(&self, started: Started<'_>);

    /// Waits for an event, an interrupt or the end of the time; may end for no reason. `None` is for ever.
    fn wait(&self, timeout: Option<Duration>);

    /// The first half of `get_next_completed_result`: the next event that the last `wait` brought.
    fn next_event(&self) -> Option<Event>;

    /// `create_interrupt_strategy`: the wanted one, or the strategy's own choice in its place.
    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno>;
}

/// A wait strategy that learns of readiness: what the SELECT provider works with.
pub(crate) trait Readiness: WaitStrategy {
    /// `on_aio_start`: from now on, events of this descriptor are of interest. Once for each descriptor
    /// that was opened.
    fn watch(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Whether events tell of changes only: then an operation has to be tried after `watch`, and until
    /// it would block.
    fn is_edge_triggered(&self) -> bool;
}
