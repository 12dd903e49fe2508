//! The paper's `start_aio`, called by any thread, and the deferred starts, by the leader. The steps have the
//! paper's numbers.

use super::Processor;
use crate::core::Core;
use crate::dispatcher::{NotificationState, Notify};
use crate::hook::mutant;
use crate::operation::{OperationKind, Outcome, Pool, State};
use crate::provider::Start;
use rustix::io::Errno;

impl Core {
    /// Starts an operation that is INITIALIZED. After an error it is START_ERROR and in no list, and the
    /// caller destroys it.
    pub(crate) fn start_aio(&mut self, which: usize, index: u32) -> Result<(), Errno> {
        self.pool[index].processor = which;
        let processor = &mut self.processors[which];
        let had_nothing = processor.waits_for() == 0;

        // Step 1. Operations that are deferred already go first: otherwise they would wait for ever while handlers
        // start more, and a stream's operations would not be done in order.
        let is_full = processor.is_full();
        if is_full || !processor.deferred.is_empty() {
            processor.defer(&mut self.pool, index);
            if !is_full {
                processor.interrupt_leader();
            }
            return Ok(());
        }
        // Step 2.
        let is_leader = processor.is_led_by_this_thread();
        let is_for_leader = !processor.provider.can_start_in_any_thread()
            && !processor.provider.is_tried_first(&self.pool[index].request);
        if is_for_leader && !is_leader {
            processor.defer(&mut self.pool, index);
            processor.interrupt_leader();
            if had_nothing {
                self.wants_a_leader(which);
            }
            return Ok(());
        }
        // Step 3.
        match processor.start(&mut self.pool, index) {
            // Step 4.
            Start::Deferred => {
                processor.defer(&mut self.pool, index);
                // A leader that waits for other operations would not try again.
                processor.interrupt_leader();
            }
            // Step 5.
            Start::Failed(error) => {
                self.pool[index].become_(State::StartError);
                return Err(error);
            }
            // Step 6.
            Start::Finished(outcome) => {
                self.pool[index].finish(outcome);
                self.post_completion(index, Notify::Strong);
                return Ok(());
            }
            // Not in the paper, whose leader attempts under the lock.
            Start::Ready => {
                self.become_ready(which, index);
                return Ok(());
            }
            // Step 7.
            Start::Started => {
                processor.add_started(&mut self.pool, index);
                processor.submit_for_leader();
            }
        }
        // Step 8.
        if had_nothing && !is_leader {
            self.wants_a_leader(which);
        }
        // Step 9.
        let processor = &mut self.processors[which];
        if processor.provider.should_start_interrupt_leader() && !is_leader {
            processor.interrupt_leader();
        }
        // Step 10.
        Ok(())
    }

    /// Starts deferred operations in order, as far as the limit allows. Only the leader calls this.
    pub(super) fn start_deferred(&mut self, which: usize) {
        loop {
            let processor = &mut self.processors[which];
            let Some(index) = processor.deferred.first() else { return };
            if processor.is_full() {
                return;
            }
            let start = processor.start(&mut self.pool, index);
            if matches!(start, Start::Deferred) {
                return;
            }
            processor.deferred.remove(&mut self.pool, index);
            match start {
                Start::Started => processor.add_started(&mut self.pool, index),
                Start::Ready => self.become_ready(which, index),
                Start::Finished(outcome) => self.finish_deferred(index, outcome),
                Start::Failed(error) => {
                    self.pool[index].become_(State::StartError);
                    self.pool[index].outcome = Some(Outcome::of(Err(error)));
                    self.post_completion(index, self.level_of(which));
                }
                Start::Deferred => unreachable!("left the loop above"),
            }
        }
    }

    fn finish_deferred(&mut self, index: u32, outcome: Outcome) {
        let level = self.level_of(self.pool[index].processor);
        self.pool[index].finish(outcome);
        self.post_completion(index, level);
    }

    /// Returns the level at which a leader of this processor announces what it found.
    ///
    /// A leader in a caller's thread is about to dispatch itself. A dedicated one announces to a follower, or
    /// else to the leader of the other processor, which may be the only thread that dispatches.
    pub(super) fn level_of(&self, which: usize) -> Notify {
        let wakes_only = mutant("dedicated_leader_wakes_followers_only")
            && self.dispatcher.notification_state() != NotificationState::WakeupFollower;
        let is_notified = self.processors[which].is_dedicated && !wakes_only;
        if is_notified { Notify::Strong } else { Notify::None }
    }

    pub(crate) fn wants_a_leader(&mut self, which: usize) {
        if self.processors[which].wants_leader() {
            self.notify_only_follower();
        }
    }
}

impl Processor {
    /// Asks the provider to start. The caller changes the operation's state and list.
    pub(super) fn start(&mut self, pool: &mut Pool, index: u32) -> Start {
        match pool[index].request.kind {
            OperationKind::Timer | OperationKind::Post => Start::Failed(Errno::INVAL),
            _ => self.provider.start(pool, index),
        }
    }

    /// Submits for a leader that already waits: it has submitted only what it knew of.
    pub(super) fn submit_for_leader(&mut self) {
        if self.is_waited_for() && !self.provider.submit() {
            self.interrupt_leader();
        }
    }

    pub(super) fn add_started(&mut self, pool: &mut Pool, index: u32) {
        pool[index].become_(State::Started);
        self.started.push(pool, index);
    }

    fn defer(&mut self, pool: &mut Pool, index: u32) {
        pool[index].become_(State::Deferred);
        self.deferred.push(pool, index);
    }
}
