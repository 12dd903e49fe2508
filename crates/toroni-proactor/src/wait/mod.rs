//! Wait strategies: the paper's *AIO_Wait_Strategy*. A strategy is how the leader waits for its processor's
//! operations, and what it has seen when it wakes. The provider decides what an event means for an operation.

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

/// What a leader has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A descriptor can be read or written, or has failed.
    Ready {
        descriptor: RawFd,
        /// A read will not block.
        readable: bool,
        /// A write will not block.
        writable: bool,
    },
    /// Some changes were not reported: any descriptor may be ready, any operation over.
    Rescan,
    /// An operation may be over; the provider can ask.
    Check {
        /// The index of the operation when the notification was requested. The entry may have another
        /// operation by now.
        index: u32,
    },
    /// An operation of the kernel is complete.
    Complete {
        /// The number that it was submitted with.
        number: u64,
        /// The result, as a system call returns it.
        result: i32,
    },
}

/// How the leader waits.
///
/// Only the leader calls `prepare_to_wait`, `wait` and `next_event`, so a strategy may keep the leader's data
/// in a mutex without contention. All methods but `wait` are called under the proactor's lock.
pub(crate) trait WaitStrategy: Send + Sync {
    /// `init`: called once, before anything else.
    fn init(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// `fini`: called once, when no operation is in progress any more.
    fn fini(&self) {}

    /// Called when this thread has become the leader. The mask contains the signals to block while it waits,
    /// if its interrupt strategy needs a signal to pass.
    fn on_leader_activated(&self, while_waiting: Option<SignalSet>);

    /// Called before this thread releases the leadership.
    fn on_leader_deactivated(&self) {}

    /// The last call before `wait`. The list does not contain operations that are started later.
    fn prepare_to_wait(&self, started: Started<'_>);

    /// Waits for an event, an interrupt or the timeout; may end without a reason. `None` waits without a limit.
    fn wait(&self, timeout: Option<Duration>);

    /// Returns whether [`WaitStrategy::next_event`] finds everything that is complete now, without a `wait`
    /// of no time, and so without a system call.
    fn is_current(&self) -> bool {
        false
    }

    /// The first half of `get_next_completed_result`: returns the next event of the last `wait`.
    fn next_event(&self) -> Option<Event>;

    /// `create_interrupt_strategy`: creates the wanted strategy, or the wait strategy's own choice instead.
    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno>;
}

/// A wait strategy that learns that descriptors are ready. The SELECT provider works with it.
pub(crate) trait Readiness: WaitStrategy {
    /// `on_aio_start`: reports events of this descriptor from now on. Called once for each open file.
    fn watch(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Ends that, for a descriptor whose open file another library keeps: otherwise it would cause events for
    /// ever.
    fn unwatch(&self, _: BorrowedFd<'_>) {}

    /// Returns whether events report changes only. Then an operation has to be attempted after `watch`, and
    /// until it would block.
    fn is_edge_triggered(&self) -> bool;
}

/// A wait strategy that learns that asynchronous operations of the C library are over. The POSIX provider
/// works with it.
pub(crate) trait AioWaitStrategy: WaitStrategy {
    /// `on_aio_start`: returns how the C library must report that this operation is over.
    fn notification(&self, index: u32) -> AioNotification;

    /// Returns whether a leader that already waits learns of a new operation only when it waits again.
    fn has_a_list(&self) -> bool {
        false
    }

    /// Called when an operation was started while the leader waits.
    fn on_started(&self) {}
}

/// How the C library reports that an operation is over: the paper's `aiocb.aio_sigevent`. A notification may
/// be lost, arrive at another thread, or come late.
#[derive(Clone, Copy)]
pub(crate) enum AioNotification {
    /// `SIGEV_NONE`.
    None,
    /// `SIGEV_SIGNAL`: sends this signal with this value to the process.
    Signal { number: i32, value: usize },
    /// `SIGEV_THREAD`: calls this function with this value in a thread of its own.
    Thread { function: extern "C" fn(usize), value: usize },
}

/// A timeout that is as good as none. Without a timeout, a signal handler installed with `SA_RESTART` would
/// make an interrupted wait continue.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(3600);
