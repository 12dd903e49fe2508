//! Wait strategies: the paper's *AIO_Wait_Strategy*. How the leader waits for its processor's operations,
//! and what it saw when it woke. What an event means for an operation is the provider's business.

mod callback;
mod epoll;
mod linux_rt;
mod mailbox;
mod ppoll;
mod recheck;
mod sigwait;
mod suspend;
mod uring;

pub(crate) use callback::Callback;
pub(crate) use epoll::Epoll;
pub(crate) use linux_rt::LinuxRt;
pub(crate) use mailbox::Mailbox;
pub(crate) use ppoll::Ppoll;
pub(crate) use sigwait::Sigwait;
pub(crate) use suspend::Suspend;
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
    /// Some changes were not told: any descriptor may be ready, any operation over.
    Rescan,
    /// An operation may be over, which the provider can ask for: the number of its operation.
    Check {
        /// What a notice gave, so perhaps of an operation that has another operation by now.
        index: u32,
    },
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

    /// This thread is about to release the leadership.
    fn on_leader_deactivated(&self) {}

    /// The last call before `wait`. What is started later is not in the list.
    fn prepare_to_wait(&self, started: Started<'_>);

    /// Waits for an event, an interrupt or the end of the time; may end for no reason. `None` is for ever.
    fn wait(&self, timeout: Option<Duration>);

    /// Whether [`WaitStrategy::next_event`] finds all that there is now without a `wait` of no time, and so
    /// without a system call.
    fn is_current(&self) -> bool {
        false
    }

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

    /// The opposite, for a descriptor that is not about to be closed for good: others may have it, too, and
    /// would cause events for ever.
    fn unwatch(&self, _: BorrowedFd<'_>) {}

    /// Whether events tell of changes only: then an operation has to be tried after `watch`, and until
    /// it would block.
    fn is_edge_triggered(&self) -> bool;
}

/// A wait strategy that learns of the ends of the C library's asynchronous operations: what the POSIX
/// provider works with.
pub(crate) trait AioWaitStrategy: WaitStrategy {
    /// `on_aio_start`: how the C library is to tell that the operation of this operation is over.
    fn notification(&self, index: u32) -> AioNotification;

    /// Whether a leader that already waits learns of a new operation only when it waits anew.
    fn has_a_list(&self) -> bool {
        false
    }

    /// An operation was started while the leader waits.
    fn on_started(&self) {}
}

/// How the C library tells that an operation is over: the paper's `aiocb.aio_sigevent`.
#[derive(Clone, Copy)]
pub(crate) enum AioNotification {
    /// `SIGEV_NONE`.
    None,
    /// `SIGEV_SIGNAL`: this signal to the process, with this value.
    Signal { number: i32, value: usize },
    /// `SIGEV_THREAD`: a call of this function in a thread of its own, with this value.
    Thread { function: extern "C" fn(usize), value: usize },
}

/// A timeout of this length is as good as none. None is what a signal's handler that was installed with
/// `SA_RESTART` would make of a wait that was interrupted.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(3600);
