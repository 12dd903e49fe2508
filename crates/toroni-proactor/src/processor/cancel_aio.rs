//! The paper's `cancel_aio`, called by any thread: cancels all operations of a descriptor, or one.

use crate::core::Core;
use crate::dispatcher::Notify;
use crate::operation::{Descriptor, Key, Operation, OperationKind, Outcome, State};
use crate::provider::Cancel;
use std::os::fd::{AsRawFd, BorrowedFd};

impl Core {
    /// Cancels all operations of a descriptor. Returns the number of operations asked to end.
    pub(crate) fn cancel_aio(&mut self, descriptor: &Descriptor) -> usize {
        let number = Some(descriptor.as_raw_fd());
        let on_it =
            |operation: &Operation| !operation.is_internal() && operation.request.raw() == number;
        let processors = 0..self.processors.len();
        let cancelled: usize = processors.map(|which| self.cancel_where(which, on_it)).sum();
        // Most have none, and finding them takes a walk over all operations.
        if descriptor.has_ready() { cancelled + self.cancel_ready_where(on_it) } else { cancelled }
    }

    /// Cancels all operations of all processors.
    pub(crate) fn cancel_all(&mut self) {
        for which in 0..self.processors.len() {
            self.cancel_where(which, |operation| !operation.is_internal());
        }
        self.cancel_ready_where(|_| true);
    }

    /// Cancels all operations of a processor, including the read of its interrupt strategy.
    pub(super) fn cancel_everything_of(&mut self, which: usize) {
        self.cancel_where(which, |_| true);
        self.cancel_ready_where(|operation| operation.processor == which);
    }

    /// Cancels one operation or timer. Returns whether it was asked to end: it may already be over.
    pub(crate) fn cancel_one(&mut self, key: Key) -> bool {
        let Some(operation) = self.pool.get(key) else { return false };
        let which = operation.processor;
        match (operation.state(), operation.request.kind) {
            (State::Deferred, _) => self.cancel_deferred(which, key.index),
            (State::Started, _) if !operation.is_cancelled => self.cancel_started(which, key.index),
            (State::Ready, _) if !operation.is_cancelled => self.cancel_ready(key.index),
            (State::Initialized, OperationKind::Timer) => self.cancel_timer(key.index),
            _ => return false,
        }
        true
    }

    /// Makes all providers stop watching a descriptor whose operations have been cancelled.
    pub(crate) fn forget(&mut self, descriptor: BorrowedFd<'_>) {
        self.processors.iter_mut().for_each(|processor| processor.provider.forget(descriptor));
    }

    fn cancel_where(&mut self, which: usize, chosen: impl Fn(&Operation) -> bool) -> usize {
        let mut cancelled = 0;
        // Steps 1 and 2.
        let mut next = self.processors[which].deferred.first();
        while let Some(index) = next {
            next = self.processors[which].deferred.after(&self.pool, index);
            if chosen(&self.pool[index]) {
                self.cancel_deferred(which, index);
                cancelled += 1;
            }
        }
        // Steps 3 to 5.
        let mut next = self.processors[which].started.first();
        while let Some(index) = next {
            next = self.processors[which].started.after(&self.pool, index);
            let operation = &self.pool[index];
            if !operation.is_cancelled && chosen(operation) {
                self.cancel_started(which, index);
                cancelled += 1;
            }
        }
        cancelled
    }

    /// Cancels operations that are READY: at the dispatcher, or being attempted.
    fn cancel_ready_where(&mut self, chosen: impl Fn(&Operation) -> bool) -> usize {
        let ready =
            |operation: &Operation| operation.state() == State::Ready && !operation.is_cancelled;
        let (mut cancelled, mut from) = (0, 0);
        while self.processors.iter().any(|processor| processor.ready > 0)
            && let Some(index) =
                self.pool.find(from, |operation| ready(operation) && chosen(operation))
        {
            self.cancel_ready(index);
            cancelled += 1;
            from = index + 1;
        }
        cancelled
    }

    fn cancel_ready(&mut self, index: u32) {
        self.pool[index].is_cancelled = true;
        // If a thread is attempting it, that thread ends it.
        if self.withdraw(index) {
            let next = self.leave_ready(index, Outcome::cancelled());
            self.post_completion(index, Notify::Strong);
            self.try_next(next);
        }
    }

    fn cancel_deferred(&mut self, which: usize, index: u32) {
        self.processors[which].deferred.remove(&mut self.pool, index);
        self.pool[index].is_cancelled = true;
        self.pool[index].finish(Outcome::cancelled());
        self.post_completion(index, Notify::Strong);
    }

    fn cancel_started(&mut self, which: usize, index: u32) {
        self.pool[index].is_cancelled = true;
        let processor = &mut self.processors[which];
        match processor.provider.cancel_aio(&mut self.pool, index) {
            Cancel::Finished(outcome) => {
                processor.started.remove(&mut self.pool, index);
                self.pool[index].finish(outcome);
                self.pass_on(which, index, Notify::Strong);
                // A deferred operation may start now: the leader does that.
                let processor = &mut self.processors[which];
                if !processor.deferred.is_empty() {
                    processor.interrupt_leader();
                }
            }
            // Only the leader may submit the request.
            Cancel::Requested if !processor.provider.can_start_in_any_thread() => {
                processor.interrupt_leader();
            }
            Cancel::Requested => processor.submit_for_leader(),
            // The leader requests it again.
            Cancel::Later => {
                self.pool[index].is_cancelled = false;
                processor.cancel_later(self.pool.key(index));
                processor.interrupt_leader();
            }
        }
    }
}
