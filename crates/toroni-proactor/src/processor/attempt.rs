//! Attempts: the thread that takes a READY operation from the dispatcher attempts it without the lock, so that
//! transfers run in parallel. The paper's leader does all transfers, under the lock.

use crate::core::Core;
use crate::dispatcher::Notify;
use crate::dispatcher::round::Round;
use crate::hook::{Point, mutant, point};
use crate::lock::{Locked, Panic};
use crate::operation::{Done, Outcome, Request, State};

/// What came of an attempt.
pub(crate) enum Tried {
    /// The operation waits again.
    Waits,
    /// It is over, and must be dispatched.
    Over,
    /// It is over, and its handler was called, or the local run's. The result is the handler's.
    Called(Result<(), Panic>),
}

impl Locked<'_> {
    /// Attempts an operation that is READY and in no list. If the thread's local run is open, the handler follows
    /// before the lock is taken again.
    pub(crate) fn try_ready(&mut self, index: u32, round: &mut Round<'_>) -> Tried {
        let attempt = self.processors[self.pool[index].processor].attempt;
        let operation = &mut self.pool[index];
        let mut request = operation.request.lend();
        if !round.is_open() {
            let outcome = self.unlocked(|| attempt(&mut request));
            return self.tried(index, request, outcome);
        }
        let completion = operation.lend_completion();
        let mut not_called = None;
        let called = self.dispatch(|| {
            let outcome = attempt(&mut request);
            point(Point::AfterAttempt);
            match (outcome, completion) {
                (Some(outcome), Some(completion)) if round.begin_handler(index, &request) => {
                    let descriptor = request.descriptor.take();
                    round.run(completion, Done { kind: request.kind, descriptor, outcome });
                }
                other => not_called = Some(other),
            }
        });
        let Some((outcome, completion)) = not_called else { return Tried::Called(called) };
        self.pool[index].return_completion(completion);
        self.tried(index, request, outcome)
    }
}

impl Core {
    /// Handles a start whose descriptor may be ready. It is attempted like an operation reported ready, but
    /// later.
    pub(super) fn become_ready(&mut self, which: usize, index: u32) {
        self.pool[index].become_(State::Ready);
        self.processors[which].ready += 1;
        self.post_speculative(index);
    }

    /// Handles the result of an attempt. If the operation is not over, it is STARTED again.
    pub(crate) fn tried(
        &mut self,
        index: u32,
        request: Request,
        outcome: Option<Outcome>,
    ) -> Tried {
        let operation = &mut self.pool[index];
        operation.request = request;
        let is_cancelled = operation.is_cancelled;
        let Some(outcome) = outcome.or_else(|| is_cancelled.then(Outcome::cancelled)) else {
            self.wait_on(index);
            return Tried::Waits;
        };
        let next = self.leave_ready(index, outcome);
        self.try_next(next);
        Tried::Over
    }

    /// Handles an operation that was READY and whose handler is being called, or has been.
    pub(crate) fn complete_attempted(&mut self, index: u32) {
        let next = self.leave_queue(index);
        self.pool[index].was_completed();
        self.try_next(next);
    }

    /// Finishes an operation that is READY and in no list. Returns the next one in its queue: handlers are
    /// called in the order of the operations, so the caller attempts the next one when this one is on its way
    /// to its handler.
    pub(super) fn leave_ready(&mut self, index: u32, outcome: Outcome) -> Option<u32> {
        let next = self.leave_queue(index);
        self.pool[index].finish(outcome);
        next
    }

    fn leave_queue(&mut self, index: u32) -> Option<u32> {
        let which = self.pool[index].processor;
        let processor = &mut self.processors[which];
        processor.ready -= 1;
        let next = processor.provider.leave(&mut self.pool, index);
        // A deferred operation may start now: the leader does that.
        if !processor.deferred.is_empty() {
            processor.interrupt_leader();
        }
        next
    }

    /// Makes the operation that [`Core::leave_ready`] returned READY.
    pub(super) fn try_next(&mut self, next: Option<u32>) {
        if let Some(next) = next {
            let which = self.pool[next].processor;
            self.processors[which].started.remove(&mut self.pool, next);
            self.pool[next].become_(State::Ready);
            self.pass_on(which, next, Notify::Strong);
        }
    }

    /// Lets an operation wait again: its descriptor was not ready after all, or it has moved its share.
    fn wait_on(&mut self, index: u32) {
        let which = self.pool[index].processor;
        let processor = &mut self.processors[which];
        let request = &self.pool[index].request;
        if request.on().edges().last(request.kind.is_reading()).is_some() {
            // It may continue: it has moved its share, or it became ready meanwhile, and the thread that saw that
            // left it to this one. This thread may not come back.
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
