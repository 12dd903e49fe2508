//! What the lock protects: the operations, the dispatcher and the processors. Their algorithms are in
//! `dispatcher/` and `processor/`, as methods of this type, because each touches all three.

use crate::dispatcher::Dispatcher;
use crate::hook::mutant;
use crate::operation::Pool;
use crate::processor::Processor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Everything behind the lock.
pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) dispatcher: Dispatcher,
    /// The primary one, and perhaps a secondary one.
    pub(crate) processors: Vec<Processor>,
    pub(crate) phase: Phase,
    /// Starts that are under way outside of the lock, but for those by handlers.
    pub(crate) starting: Arc<AtomicUsize>,
    /// How long the end of a proactor waits for each engine to let go of its operations. Then they are
    /// leaked: what the kernel may still write to is never freed.
    pub(crate) drain_timeout: Duration,
}

/// Beyond what a disk takes for what it has begun.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How far the proactor is on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// At work.
    Running,
    /// Nothing new is started; what there was is completed and dispatched.
    Finishing,
    /// That is done.
    Finished,
    /// No thread dispatches; operations go on.
    Stopped,
    /// The proactor is dropped: dedicated leaders leave, too.
    Closing,
}

impl Core {
    /// Operations, timers and posts that are not yet over.
    pub(crate) fn outstanding(&self) -> usize {
        // One operation of each processor is its interrupt's.
        self.pool.live() - self.processors.len()
    }

    /// Whether new operations are started.
    pub(crate) fn accepts(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopped)
    }

    /// Whether threads call handlers.
    pub(crate) fn dispatches(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Finishing)
    }

    /// When everything is over in a graceful stop, everybody leaves. What is being started may have been
    /// transferred by now, and is to be dispatched then; whoever starts it asks this when that is known.
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
