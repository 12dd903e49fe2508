//! The state behind the lock of a shard: the operations, the dispatcher and the processors. Their algorithms are in
//! `dispatcher/` and `processor/`, as methods of this type, because each uses all three.

use crate::dispatcher::Dispatcher;
use crate::operation::Pool;
use crate::processor::Processor;
use crate::shards::{Errands, Group};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) dispatcher: Dispatcher,
    /// The primary processor, and optionally a secondary one.
    pub(crate) processors: Vec<Processor>,
    /// The same in all shards: it is changed with all of them locked.
    pub(crate) phase: Phase,
    pub(crate) group: Arc<Group>,
    /// How long closing a proactor waits for each engine to release its operations. Then they are leaked:
    /// memory that the kernel may still write to is never freed.
    pub(crate) drain_timeout: Duration,
}

/// Longer than a disk takes for what it has begun.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How far the proactor is on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Starts nothing new; completes and dispatches the rest.
    Finishing,
    /// A graceful stop is complete.
    Finished,
    /// No thread dispatches; operations continue.
    Stopped,
    /// The proactor is being dropped: dedicated leaders leave, too.
    Closing,
}

impl Core {
    pub(crate) fn new(pool: Pool, processors: Vec<Processor>, group: Arc<Group>) -> Self {
        Self {
            pool,
            dispatcher: Dispatcher::new(group.shards()),
            processors,
            phase: Phase::Running,
            group,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }

    /// Returns until when closing the proactor, which begins now, waits for engines.
    pub(crate) fn drain_until(&self) -> Instant {
        Instant::now() + self.drain_timeout
    }

    /// Returns the number of operations, timers and posts that are not over. One whose handler runs is not over.
    pub(crate) fn outstanding(&self) -> usize {
        // One operation of each processor is the read of its interrupt strategy.
        self.pool.live() - self.processors.len() + self.dispatcher.in_kept_rounds
    }

    /// Takes what is to be done in other shards when this one is open.
    pub(crate) fn take_errands(&mut self) -> Errands {
        if self.group.is_only() {
            return Errands::default();
        }
        let mut errands = Errands { calls: self.dispatcher.calls.take_call(), frees_slots: false };
        for processor in &mut self.processors {
            errands.frees_slots |= processor.give_slots_back();
        }
        errands
    }

    /// Lets leaders start what is deferred.
    pub(crate) fn retry_deferred(&mut self) {
        for which in 0..self.processors.len() {
            if self.processors[which].has_deferred() {
                self.processors[which].interrupt_leader();
                self.wants_a_leader(which);
            }
        }
    }

    /// Returns whether new operations may start.
    pub(crate) fn accepts(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopped)
    }

    /// Returns whether threads call handlers.
    pub(crate) fn dispatches(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Finishing)
    }

    /// Returns whether nothing is left to do in this shard for a graceful stop.
    pub(crate) fn may_have_finished(&self) -> bool {
        self.phase == Phase::Finishing && self.outstanding() == 0
    }
}
