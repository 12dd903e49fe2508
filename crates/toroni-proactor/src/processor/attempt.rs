//! Trials: an operation that became READY is tried by the thread that took it from the dispatcher,
//! without the lock, so that transfers run side by side. The paper's leader does them all, under the lock.

use crate::core::Core;
use crate::dispatcher::Notify;
use crate::hook::mutant;
use crate::lock::Locked;
use crate::operation::{Outcome, Request, State};

impl Locked<'_> {
    /// Tries an operation that is READY and in no list: whether it is over, and to be dispatched.
    pub(crate) fn try_ready(&mut self, index: u32) -> bool {
        let attempt = self.processors[self.pool[index].processor].provider.attempt();
        let mut request = self.pool[index].request.lend();
        let outcome = self.unlocked(|| attempt(&mut request));
        self.tried(index, request, outcome)
    }
}

impl Core {
    /// A start whose descriptor may be ready. It is tried like one that is said to be, but later.
    pub(super) fn become_ready(&mut self, which: usize, index: u32) {
        self.pool[index].become_(State::Ready);
        self.processors[which].ready += 1;
        self.post_speculative(index);
    }

    /// After a trial. Whether the operation is over; it is STARTED anew otherwise.
    pub(crate) fn tried(&mut self, index: u32, request: Request, outcome: Option<Outcome>) -> bool {
        let operation = &mut self.pool[index];
        operation.request = request;
        let is_cancelled = operation.is_cancelled;
        let Some(outcome) = outcome.or_else(|| is_cancelled.then(Outcome::cancelled)) else {
            self.wait_on(index);
            return false;
        };
        let next = self.leave_ready(index, outcome);
        self.try_next(next);
        true
    }

    /// An operation that is READY, and in no list, is over. The one behind it is to be tried next: when this
    /// one is on its way to its handler, because handlers are called in the order of the operations.
    pub(super) fn leave_ready(&mut self, index: u32, outcome: Outcome) -> Option<u32> {
        let which = self.pool[index].processor;
        let processor = &mut self.processors[which];
        processor.ready -= 1;
        let next = processor.provider.leave(&mut self.pool, index);
        self.pool[index].finish(outcome);
        // There is room for what was deferred: the leader starts it.
        if !processor.deferred.is_empty() {
            processor.interrupt_leader();
        }
        next
    }

    /// The one that [`Core::leave_ready`] found behind another.
    pub(super) fn try_next(&mut self, next: Option<u32>) {
        if let Some(next) = next {
            let which = self.pool[next].processor;
            self.processors[which].started.remove(&mut self.pool, next);
            self.pool[next].become_(State::Ready);
            self.pass_on(which, next, Notify::Strong);
        }
    }

    /// It is not over: it was not ready after all, or has moved its share.
    fn wait_on(&mut self, index: u32) {
        let which = self.pool[index].processor;
        let processor = &mut self.processors[which];
        let request = &self.pool[index].request;
        if request.on().edges().last(request.kind.is_reading()).is_some() {
            // It may go on: it has moved its share, or it became ready meanwhile, and who saw that left it to us.
            // This thread may not come back.
            self.post_completion(index, Notify::Strong);
            return;
        }
        processor.ready -= 1;
        let is_alone = processor.waits_for() == 0;
        processor.provider.wait_on(&mut self.pool, index);
        processor.add_started(&mut self.pool, index);
        if processor.provider.should_retry_interrupt_leader() {
            processor.interrupt_leader();
        } else if !mutant("retry_not_submitted") {
            processor.submit_for_leader();
        }
        if is_alone {
            self.wants_a_leader(which);
        }
    }
}
