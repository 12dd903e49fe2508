//! The shards of a proactor. Each has a lock, operations, a dispatcher and processors of its own, and is a whole
//! proactor in the paper's sense. A proactor has one so far; nothing outside of this module and `inner.rs` relies
//! on that.
//!
//! An operation stays in the shard in which it was started: that of its descriptor, its *home*. Two shards are
//! locked at the same time only by [`Shards::all`], in the order of their numbers.

use crate::core::{Core, Phase};
use crate::hook::mutant;
use crate::lock::{Lock, Locked};
use crate::operation::Request;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of a shard.
pub(crate) type Shard = u16;

pub(crate) struct Shards {
    locks: Box<[Lock]>,
    /// The number of starts that run outside of the locks, except those by handlers.
    starting: AtomicUsize,
}

impl Shards {
    /// There is at least one core.
    pub(crate) fn new(cores: Vec<Core>) -> Self {
        let locks = cores.into_iter().map(Lock::new).collect();
        Self { locks, starting: AtomicUsize::new(0) }
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = Shard> + use<> {
        0..Shard::try_from(self.locks.len()).unwrap_or(Shard::MAX)
    }

    pub(crate) fn lock(&self, shard: Shard) -> Locked<'_> {
        Locked::new(self, &self.locks[usize::from(shard)])
    }

    /// Locks all shards.
    pub(crate) fn all(&self) -> Vec<Locked<'_>> {
        self.numbers().map(|shard| self.lock(shard)).collect()
    }

    /// Locks all shards, and ends the local runs of all threads: everything that was started is in its list.
    pub(crate) fn all_settled(&self) -> Vec<Locked<'_>> {
        let mut all = self.all();
        all.iter_mut().for_each(|core| core.end_local_runs());
        all
    }

    /// Returns the number of operations, timers and posts that are not over in this shard and those after it, at
    /// a moment at which all of them are locked. Allocates nothing.
    pub(crate) fn outstanding_from(&self, shard: Shard) -> usize {
        if usize::from(shard) == self.locks.len() {
            return 0;
        }
        let mut core = self.lock(shard);
        core.end_local_runs();
        self.outstanding_from(shard + 1) + core.outstanding()
    }

    /// Returns the shard whose handler this thread is in.
    pub(crate) fn calling(&self) -> Option<Shard> {
        self.numbers().find(|shard| self.locks[usize::from(*shard)].is_in_handler())
    }

    /// Returns the shard that this thread works for: that of the handler it is in, or the first.
    pub(crate) fn here(&self) -> Shard {
        self.calling().unwrap_or(0)
    }

    /// Returns the shard in which an operation is started.
    pub(crate) fn of(&self, request: &Request) -> Shard {
        match &request.descriptor {
            Some(descriptor) => descriptor.home(),
            None => self.here(),
        }
    }

    /// Completes a graceful stop if everything is over in all shards, and makes every thread leave. A start that
    /// is under way may have transferred already and must be dispatched then; its thread calls this again when
    /// that is known.
    pub(crate) fn stop_if_finished(&self) {
        let mut all = self.all();
        let is_over = |core: &Locked<'_>| core.may_have_finished();
        let is_first_enough = mutant("finish_forgets_shards");
        if (all.iter().all(is_over) || (is_first_enough && all.iter().any(is_over)))
            && (self.starting.load(Ordering::SeqCst) == 0 || mutant("finish_forgets_starts"))
        {
            for core in &mut all {
                core.phase = Phase::Finished;
                core.wake_everybody();
            }
        }
    }

    /// Counts a start that runs outside of the locks.
    pub(crate) fn begin_start(&self) {
        self.starting.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends [`Shards::begin_start`].
    pub(crate) fn end_start(&self) {
        self.starting.fetch_sub(1, Ordering::SeqCst);
    }
}
