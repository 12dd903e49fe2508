//! The state behind the lock: the operations, the dispatcher and the processors. Their algorithms are in
//! `dispatcher/` and `processor/`, as methods of this type, because each uses all three.

use crate::dispatcher::Dispatcher;
use crate::hook::mutant;
use crate::operation::Pool;
use crate::processor::Processor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) dispatcher: Dispatcher,
    /// The primary processor, and optionally a secondary one.
    pub(crate) processors: Vec<Processor>,
    pub(crate) phase: Phase,
    /// The number of starts that run outside of the lock, except those by handlers.
    pub(crate) starting: Arc<AtomicUsize>,
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
    pub(crate) fn new(pool: Pool, processors: Vec<Processor>) -> Self {
        Self {
            pool,
            dispatcher: Dispatcher::new(),
            processors,
            phase: Phase::Running,
            starting: Arc::default(),
            drain_timeout: DRAIN_TIMEOUT,
        }
    }

    /// Returns the number of operations, timers and posts that are not over.
    pub(crate) fn outstanding(&self) -> usize {
        // One operation of each processor is the read of its interrupt strategy.
        self.pool.live() - self.processors.len()
    }

    /// Returns whether new operations may start.
    pub(crate) fn accepts(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopped)
    }

    /// Returns whether threads call handlers.
    pub(crate) fn dispatches(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Finishing)
    }

    /// Completes a graceful stop if everything is over, and makes every thread leave. A start that is under way
    /// may have transferred already and must be dispatched then; its thread calls this again when that is
    /// known.
    pub(crate) fn stop_if_finished(&mut self) {
        if self.phase == Phase::Finishing
            && self.outstanding() == 0
            && (self.starting.load(Ordering::SeqCst) == 0 || mutant("finish_forgets_starts"))
        {
            self.phase = Phase::Finished;
            self.wake_everybody();
        }
    }
}
