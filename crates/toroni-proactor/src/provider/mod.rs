//! Providers: the paper's *AIO_Provider*, the pluggable device driver. A provider starts and cancels single
//! operations and interprets what its wait strategy has seen. It knows nothing of the dispatcher, of leaders or
//! of limits.

mod attempt;
pub(crate) mod combined;
pub(crate) mod posix;
mod queues;
pub(crate) mod select;
pub(crate) mod uring;

use crate::interrupt::InterruptStrategy;
use crate::operation::{List, Operation, OperationMask, Outcome, Pool, Request, State};
use crate::wait::{Event, WaitStrategy};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The result of a start.
#[derive(Debug)]
pub(crate) enum Start {
    /// In progress: a later event finishes it.
    Started,
    /// Its descriptor may be ready: a thread that dispatches attempts it in its turn.
    Ready,
    /// Started and finished at once.
    Finished(Outcome),
    /// Not now: try again later.
    Deferred,
    /// Not now and not later. Only for what the engine cannot do. An error of the operation itself, such as a
    /// refused connection, is an [`Outcome`].
    Failed(Errno),
}

/// The result of a cancellation.
#[derive(Debug)]
pub(crate) enum Cancel {
    /// The operation is over, with this outcome.
    Finished(Outcome),
    /// The kernel was asked; an event will finish the operation, cancelled or not.
    Requested,
    /// The kernel could not be asked now; try again later.
    Later,
}

/// One attempt of an operation. It never waits for a peer. Returns `None` if the operation has to wait, or to be started.
pub(crate) type Attempt = fn(&mut Request) -> Option<Outcome>;

/// A device driver. All methods are called under the proactor's lock.
pub(crate) trait Provider: Send {
    /// `get_supported_operations_mask`. Never changes.
    fn supported_operations(&self) -> OperationMask;

    /// `can_start_in_any_thread`: otherwise only the leader starts. Never changes.
    fn can_start_in_any_thread(&self) -> bool;

    /// `should_start_interrupt_leader`: whether a leader that already waits learns of a new operation only
    /// when it waits again. Never changes.
    fn should_start_interrupt_leader(&self) -> bool;

    /// `get_max_aio_num`: the maximum number of operations in progress. Never changes.
    fn max_operations(&self) -> usize;

    /// Returns the attempt that the caller's thread makes, without the lock, before a start. The attempt
    /// returns `None` if the operation has to be started.
    fn eager(&self) -> Option<Attempt> {
        None
    }

    /// Returns whether an operation that a handler starts is better attempted in its turn than at once. Then
    /// its start returns [`Start::Ready`], if its descriptor may be ready.
    fn speculates(&self) -> fn(&Request) -> bool {
        |_| false
    }

    /// Returns whether its start returns [`Start::Ready`] without a request to the kernel. Then any thread
    /// may start it, even if only the leader starts otherwise.
    fn is_tried_first(&self, _: &Request) -> bool {
        false
    }

    /// `start_read_stream`, `start_write_stream`, `start_read_file`, `start_write_file`, `start_read_dgram`,
    /// `start_write_dgram`, `start_accept` and `start_connect`: the request says which. The operation is
    /// INITIALIZED or DEFERRED; the caller changes its state.
    fn start(&mut self, pool: &mut Pool, index: u32) -> Start;

    /// Submits what was started, for an engine that collects starts. The leader's wait does that, too; this
    /// is for a thread that starts while the leader already waits. Returns false if the engine does not take
    /// everything now: then the leader has to wait again.
    fn submit(&mut self) -> bool {
        true
    }

    /// Stops watching a descriptor that another library continues to use. Its last handle is gone, and no
    /// operation on it is started.
    fn forget(&mut self, _: BorrowedFd<'_>) {}

    /// Called when the leader is about to wait. Returns whether the engine has taken everything that was
    /// started. If not, the wait is short.
    fn is_prepared(&mut self) -> bool {
        true
    }

    /// `cancel_aio`. The operation is STARTED.
    fn cancel_aio(&mut self, pool: &mut Pool, index: u32) -> Cancel;

    /// Finishes the operations that an event says are, or may be, finished: the second half of the paper's
    /// `get_next_completed_result`. The first half is [`WaitStrategy::next_event`].
    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event);

    /// Returns the attempt of an operation that is READY: made without the lock, in the thread that took the
    /// operation from the dispatcher. The attempt returns `None` if the operation is not over: it has to wait
    /// again, or has moved its share.
    fn attempt(&self) -> Attempt {
        |_| None
    }

    /// Removes an operation that was READY and is over. Returns the next one in its queue, which may be
    /// attempted now.
    fn leave(&mut self, _operations: &mut Pool, _index: u32) -> Option<u32> {
        None
    }

    /// Prepares an operation that was READY to wait again. It is about to be STARTED.
    fn wait_on(&mut self, _operations: &mut Pool, _index: u32) {}

    /// Returns whether a leader sees an operation that waits again only when the leader itself waits again.
    fn should_retry_interrupt_leader(&self) -> bool {
        false
    }

    /// `create_wait_strategy`: returns the one that the provider was made with.
    fn wait_strategy(&self) -> Arc<dyn WaitStrategy>;
}

/// A provider, its wait strategy and the interrupt strategy: what a processor works with.
pub(crate) struct Engine {
    pub(crate) provider: Box<dyn Provider>,
    pub(crate) wait: Arc<dyn WaitStrategy>,
    pub(crate) interrupt: Box<dyn InterruptStrategy>,
}

/// A processor's operations, as its provider sees them.
pub(crate) struct InProgress<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) started: &'a mut List,
    pub(crate) finished: &'a mut List,
}

impl InProgress<'_> {
    /// Changes a started operation to RESULT_READY, for the processor to pass on.
    pub(crate) fn finish(&mut self, index: u32, outcome: Outcome) {
        self.started.remove(self.pool, index);
        self.pool[index].finish(outcome);
        self.finished.push(self.pool, index);
    }

    /// Changes a started operation to READY, for the processor to pass on: a thread attempts it without the
    /// lock.
    pub(crate) fn make_ready(&mut self, index: u32) {
        self.started.remove(self.pool, index);
        self.pool[index].become_(State::Ready);
        self.finished.push(self.pool, index);
    }
}

/// An iterator over the started operations of a processor, in the order of their starts.
pub(crate) struct Started<'a> {
    pool: &'a Pool,
    list: &'a List,
    next: Option<u32>,
}

impl<'a> Started<'a> {
    pub(crate) fn new(pool: &'a Pool, list: &'a List) -> Self {
        Self { pool, list, next: list.first() }
    }
}

impl<'a> Iterator for Started<'a> {
    type Item = (u32, &'a Operation);

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next?;
        self.next = self.list.after(self.pool, index);
        Some((index, &self.pool[index]))
    }
}
