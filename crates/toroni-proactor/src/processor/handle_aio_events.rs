//! The paper's `handle_aio_events`: one wait of a leader, and the handling of its events. The steps have the
//! paper's numbers.

use super::Processor;
use crate::core::{Core, Phase};
use crate::dispatcher::Notify;
use crate::lock::Locked;
use crate::operation::State;
use crate::provider::{InProgress, Start, Started};
use std::sync::Arc;
use std::time::Duration;

/// How soon to retry an engine whose queue was full or that had no memory, also for the read of the interrupts.
const AGAIN: Duration = Duration::from_millis(1);

impl Locked<'_> {
    /// Waits once for the operations of a processor that this thread leads, and passes the finished ones on
    /// to the dispatcher.
    pub(crate) fn handle_aio_events(&mut self, which: usize, timeout: Option<Duration>) {
        // Step 1.
        for key in std::mem::take(&mut self.processors[which].cancellations) {
            self.cancel_one(key);
        }
        self.start_deferred(which);
        // While closing, no thread dispatches results, so they are no reason not to wait.
        let is_dispatching = !self.processors[which].is_dedicated && self.phase != Phase::Closing;
        let has_results = self.has_work() && is_dispatching;
        let hears = self.phase == Phase::Closing || self.read_interrupts(which);

        // Step 2.
        let core = &mut **self;
        let processor = &mut core.processors[which];
        let timeout = if processor.provider.is_prepared() && hears {
            timeout
        } else {
            Some(timeout.map_or(AGAIN, |limit| limit.min(AGAIN)))
        };
        let wait = Arc::clone(&processor.wait);
        wait.prepare_to_wait(Started::new(&core.pool, &processor.started));
        let timeout = if has_results { Some(Duration::ZERO) } else { timeout };

        // Steps 3 to 5.
        if timeout != Some(Duration::ZERO) || !wait.is_current() {
            processor.set_waiting(true);
            self.lead(&*wait, timeout);
            self.processors[which].set_waiting(false);
        }

        // Steps 6 to 8.
        self.settle(which, &*wait);
    }
}

impl Core {
    /// Lets the provider finish what the wait has seen, and passes it on.
    fn settle(&mut self, which: usize, wait: &dyn crate::wait::WaitStrategy) {
        while let Some(event) = wait.next_event() {
            let processor = &mut self.processors[which];
            let mut operations = InProgress {
                pool: &mut self.pool,
                started: &mut processor.started,
                finished: &mut processor.finished,
            };
            processor.provider.settle(&mut operations, event);
        }
        // Step 7.
        let level = self.level_of(which);
        while let Some(index) = self.processors[which].finished.pop(&mut self.pool) {
            self.pass_on(which, index, level);
        }
    }

    /// Passes a finished or READY operation on to the dispatcher, unless it is the read of the interrupt
    /// strategy.
    pub(super) fn pass_on(&mut self, which: usize, index: u32, level: Notify) {
        let operation = &mut self.pool[index];
        if operation.state() == State::Ready {
            self.processors[which].ready += 1;
            self.post_completion(index, level);
        } else if operation.is_internal() {
            operation.become_(State::Initialized);
            operation.is_cancelled = false;
            self.processors[which].reads_interrupts = false;
        } else {
            self.post_completion(index, level);
        }
    }

    /// Starts the read of the interrupt strategy unless it is started: it is in progress whenever a leader
    /// waits. Returns false if it could not be started: interrupts will not end the wait.
    fn read_interrupts(&mut self, which: usize) -> bool {
        let processor = &mut self.processors[which];
        let index = processor.interrupt_read;
        while !processor.reads_interrupts
            && let Some(request) = processor.interrupt.read()
        {
            self.pool[index].request = request;
            match processor.start(&mut self.pool, index) {
                Start::Started => {
                    processor.add_started(&mut self.pool, index);
                    processor.reads_interrupts = true;
                }
                // Old interrupts: this thread has seen their reasons.
                Start::Finished(_) => {}
                Start::Ready | Start::Deferred | Start::Failed(_) => return false,
            }
        }
        true
    }
}

impl Processor {
    /// Records that this thread, which leads, is about to wait, or is awake again.
    pub(crate) fn set_waiting(&mut self, waits: bool) {
        if let Some(leader) = &mut self.leader {
            leader.waits = waits;
            leader.is_interrupted = false;
        }
    }
}
