//! Providers: the paper's *AIO_Provider*, the pluggable device driver. A provider starts and cancels
//! single operations and makes sense of what its wait strategy saw. It knows nothing of the dispatcher,
//! of leaders or of limits.

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

/// What became of a start.
#[derive(Debug)]
pub(crate) enum Start {
    /// In progress: a later event finishes it.
    Started,
    /// Its descriptor may be ready: it is tried in its turn, by a thread that dispatches.
    Ready,
    /// Started and finished at once.
    Finished(Outcome),
    /// Not now: try again later.
    Deferred,
    /// Not now and not later. Only for what the engine cannot do; what the operation itself meets, such
    /// as a connection that is refused, is an [`Outcome`].
    Failed(Errno),
}

/// What became of a cancellation.
#[derive(Debug)]
pub(crate) enum Cancel {
    /// The operation is over, with this outcome.
    Finished(Outcome),
    /// The kernel was asked; an event will finish the operation, cancelled or not.
    Requested,
    /// The kernel could not be asked now; it has to be tried again.
    Later,
}

/// A device driver. All methods are called under the proactor's lock.
pub(crate) trait Provider: Send {
    /// `get_supported_operations_mask`. The same always.
    fn supported_operations(&self) -> OperationMask;

    /// `can_start_in_any_thread`: else only the leader starts. The same always.
    fn can_start_in_any_thread(&self) -> bool;

    /// `should_start_interrupt_leader`: whether a leader that already waits learns of a new operation
    /// only when it waits anew. The same always.
    fn should_start_interrupt_leader(&self) -> bool;

    /// `get_max_aio_num`: operations at the same time. The same always.
    fn max_operations(&self) -> usize;

    /// What can be tried in the thread of the caller, without the lock, before a start: `None` if the
    /// operation has to be started, and waited for.
    fn eager(&self) -> Option<fn(&mut Request) -> Option<Outcome>> {
        None
    }

    /// Whether an operation that a handler starts is better tried in its turn than at once: then its start
    /// gives [`Start::Ready`], if its descriptor may be ready.
    fn speculates(&self) -> fn(&Request) -> bool {
        |_| false
    }

    /// Whether a start of it gives [`Start::Ready`], and nobody has to be asked for that: then any thread may
    /// start it, also where only the leader starts otherwise.
    fn is_tried_first(&self, _: &Request) -> bool {
        false
    }

    /// `start_read_stream`, `start_write_stream`, `start_read_file`, `start_write_file`, `start_read_dgram`,
    /// `start_write_dgram`, `start_accept` and `start_connect`: the request says which. The operation is
    /// INITIALIZED or DEFERRED; the caller moves it.
    fn start(&mut self, pool: &mut Pool, index: u32) -> Start;

    /// Hands over what was started, to an engine that collects. The leader's wait does, too; this is for
    /// one who starts while the leader waits already. False if the engine takes not all now: then the leader
    /// has to wait anew.
    fn submit(&mut self) -> bool {
        true
    }

    /// The last handle of a descriptor that others go on using is gone, and no operation on it is started:
    /// nobody wants to hear of it any more.
    fn forget(&mut self, _: BorrowedFd<'_>) {}

    /// The leader is about to wait: whether the engine has taken all that was started. If not, the wait is
    /// short.
    fn is_prepared(&mut self) -> bool {
        true
    }

    /// `cancel_aio`. The operation is STARTED.
    fn cancel_aio(&mut self, pool: &mut Pool, index: u32) -> Cancel;

    /// Finishes what the event says is, or may be, finished: the second half of the paper's
    /// `get_next_completed_result`; the first is [`WaitStrategy::next_event`].
    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event);

    /// How an operation that is READY is tried: without the lock, in the thread that took it from the dispatcher.
    /// `None` if it is not over: it has to wait on, or has moved its share.
    fn attempt(&self) -> fn(&mut Request) -> Option<Outcome> {
        |_| None
    }

    /// An operation that was READY is over, or is about to be. Which one stood behind it, and may be
    /// tried now.
    fn leave(&mut self, _operations: &mut Pool, _index: u32) -> Option<u32> {
        None
    }

    /// An operation that was READY has to wait on: it is about to be STARTED anew.
    fn wait_on(&mut self, _operations: &mut Pool, _index: u32) {}

    /// Whether an operation that was READY, and waits on, is seen by a leader only when it waits anew.
    fn should_retry_interrupt_leader(&self) -> bool {
        false
    }

    /// `create_wait_strategy`: the one that the provider was made with.
    fn wait_strategy(&self) -> Arc<dyn WaitStrategy>;
}

/// A provider, how it waits, and how its leader is interrupted: what a processor works with.
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
    /// A started operation goes over to RESULT_READY, and to those that the processor will pass on.
    pub(crate) fn finish(&mut self, index: u32, outcome: Outcome) {
        self.started.remove(self.pool, index);
        self.pool[index].finish(outcome);
        self.finished.push(self.pool, index);
    }

    /// A started operation goes over to READY, and to those that the processor will pass on: it is tried
    /// without the lock.
    pub(crate) fn make_ready(&mut self, index: u32) {
        self.started.remove(self.pool, index);
        self.pool[index].become_(State::Ready);
        self.finished.push(self.pool, index);
    }
}

/// The started operations of a processor, in the order of their starts.
pub(crate) struct Started<'a> {
    pool: &'a Pool,
    list: &'a List,
    next: Option<u32>,
}

impl<'a> Started<'a> {
    /// All that are in the list.
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
