//! *POSIX_STD_Provider*: the C library's `aio_read`, `aio_write` and `aio_cancel`, for files.
//!
//! glibc does them in threads, at most 20 per process, and one operation of a descriptor at a time. So it is no
//! use for sockets: a read that waits would block every write, and 20 of them everything. An operation that a
//! thread works on cannot be cancelled; with files it is over soon.

mod blocks;

pub(crate) use blocks::{Blocks, Suspended};

use super::{Cancel, InProgress, Provider, Start};
use crate::operation::{OperationKind, OperationMask, Outcome, Pool, Request};
use crate::wait::{AioNotification, AioWaitStrategy, Event, Mailbox, WaitStrategy};
use blocks::Cancelled;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use std::sync::Arc;

pub(crate) struct Posix {
    blocks: Arc<Blocks>,
    wait: Arc<dyn AioWaitStrategy>,
    /// The number of operations in progress, without the read of an interrupt strategy.
    in_progress: usize,
    any_thread: bool,
    interrupts: bool,
}

impl Posix {
    /// Creates the provider with a wait strategy that knows these blocks, and the two flags of the
    /// configuration. A strategy that receives a list with each wait sees a start of another thread only
    /// after an interrupt.
    pub(crate) fn new(
        blocks: Arc<Blocks>,
        wait: Arc<dyn AioWaitStrategy>,
        any_thread: bool,
        interrupts: bool,
    ) -> Self {
        let interrupts = any_thread && (interrupts || wait.has_a_list());
        Self { blocks, wait, in_progress: 0, any_thread, interrupts }
    }

    /// Finishes an operation if it is over.
    fn settle_one(&mut self, operations: &mut InProgress<'_>, index: u32) {
        if let Some(result) = self.blocks.take_outcome(index)
            && !self.is_done_again(operations.pool, index, result)
        {
            self.is_over(operations.pool, index);
            operations.finish(index, Outcome::of(result));
        }
    }

    /// Repeats a transfer whose outcome glibc has replaced, and returns whether it did.
    ///
    /// If glibc cannot send a notification, because the signal queue is full or there is no memory for a
    /// thread, it replaces the outcome of the transfer by that of the notification, `EAGAIN`. At an offset of a
    /// file the transfer can be repeated, without a notification; at the end of the file it cannot.
    fn is_done_again(&mut self, pool: &Pool, index: u32, result: Result<usize, Errno>) -> bool {
        let operation = &pool[index];
        let request = &operation.request;
        let appends = || fcntl_getfl(request.fd()).is_ok_and(|has| has.contains(OFlags::APPEND));
        result == Err(Errno::AGAIN)
            && !operation.is_internal()
            && (request.kind == OperationKind::ReadFile
                || request.kind == OperationKind::WriteFile && !appends())
            && self.start_with(request, index, AioNotification::None).is_ok()
    }

    fn start_with(
        &self,
        request: &Request,
        index: u32,
        notification: AioNotification,
    ) -> Result<(), Errno> {
        let offset = libc::off_t::try_from(request.offset).map_err(|_| Errno::INVAL)?;
        self.blocks.start(index, request, offset, notification)
    }

    fn is_over(&mut self, pool: &Pool, index: u32) {
        self.in_progress -= usize::from(!pool[index].is_internal());
    }
}

impl Provider for Posix {
    fn supported_operations(&self) -> OperationMask {
        OperationMask::FILES
    }

    fn can_start_in_any_thread(&self) -> bool {
        self.any_thread
    }

    fn should_start_interrupt_leader(&self) -> bool {
        self.interrupts
    }

    fn max_operations(&self) -> usize {
        // `aio_suspend` keeps an entry for each on the stack, and walks all of them.
        const LIST: usize = 1024;
        if self.wait.has_a_list() { LIST } else { Mailbox::MAX_OPERATIONS }
    }

    /// Starts a transfer. Streams are not among the supported operations, but the read of an interrupt
    /// strategy is one.
    fn start(&mut self, pool: &mut Pool, index: u32) -> Start {
        let request = &pool[index].request;
        if !matches!(
            request.kind,
            OperationKind::ReadFile
                | OperationKind::WriteFile
                | OperationKind::ReadStream
                | OperationKind::WriteStream
        ) {
            return Start::Failed(Errno::OPNOTSUPP);
        }
        match self.start_with(request, index, self.wait.notification(index)) {
            Ok(()) => {
                self.in_progress += usize::from(!pool[index].is_internal());
                Start::Started
            }
            // Otherwise there is no operation whose end could free resources.
            Err(Errno::AGAIN) if self.in_progress > 0 => Start::Deferred,
            // The outcome that the kernel reports with other engines.
            Err(Errno::INVAL) => Start::Finished(Outcome::of(Err(Errno::INVAL))),
            Err(error) => Start::Failed(error),
        }
    }

    fn submit(&mut self) -> bool {
        self.wait.on_started();
        true
    }

    fn cancel_aio(&mut self, pool: &mut Pool, index: u32) -> Cancel {
        match self.blocks.cancel(index) {
            Cancelled::Over(result) if self.is_done_again(pool, index, result) => Cancel::Requested,
            Cancelled::Over(result) => {
                self.is_over(pool, index);
                Cancel::Finished(Outcome::of(result))
            }
            Cancelled::AtWork => Cancel::Requested,
        }
    }

    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event) {
        match event {
            Event::Check { index } => self.settle_one(operations, index),
            Event::Rescan => {
                let mut next = operations.started.first();
                while let Some(index) = next {
                    next = operations.started.after(operations.pool, index);
                    self.settle_one(operations, index);
                }
            }
            Event::Ready { .. } | Event::Complete { .. } => {}
        }
    }

    fn wait_strategy(&self) -> Arc<dyn WaitStrategy> {
        Arc::clone(&self.wait) as Arc<dyn WaitStrategy>
    }
}
