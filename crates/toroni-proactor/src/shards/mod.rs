//! The shards of a proactor. Each has a lock, operations, a dispatcher and processors of its own, and is a whole
//! proactor in the paper's sense. `place.rs` distributes threads and descriptors among them, `help.rs` is how
//! the threads of one shard work for another, and `calls/` how they learn that they are needed.
//!
//! An operation stays in the shard in which it was started: that of its descriptor, its *home*. Two shards are
//! locked at the same time only by [`Shards::all`], in the order of their numbers.

mod calls;
mod help;
mod place;

pub(crate) use calls::{Advice, Calls, Elsewhere, Lookout};

use calls::Waiters;

use crate::core::{Core, Phase};
use crate::dispatcher::{Served, Visit};
use crate::hook::mutant;
use crate::lock::{Lock, Locked};
use crate::operation::Request;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The number of a shard.
pub(crate) type Shard = u16;

pub(crate) struct Shards {
    locks: Box<[Lock]>,
    /// The number of starts that run outside of the locks, except those by handlers.
    starting: AtomicUsize,
    group: Arc<Group>,
    /// The number of threads of each shard that handle events.
    present: Box<[AtomicUsize]>,
    /// The number of threads that have served each shard last, also while they do something else.
    settled: Arc<[AtomicUsize]>,
    /// The number of threads that the program has announced, or 0.
    announced: usize,
    /// Held by a thread that chooses its shard, or the home of one of the first descriptors.
    arriving: Mutex<()>,
    /// Counts what threads create that serve no shard.
    turns: AtomicUsize,
    /// The number of handles of descriptors at home in each shard, without those that other libraries use, too.
    handles: Box<[AtomicUsize]>,
    /// The home of the first descriptors.
    first_home: AtomicU16,
}

/// What the shards know of each other without their locks.
pub(crate) struct Group {
    shards: usize,
    waiters: Waiters,
    began: Instant,
    /// When a thread last ticked, in nanoseconds since the beginning.
    ticked_ns: AtomicU64,
    /// The shard that was found to need help last.
    helped: AtomicU16,
}

/// What a shard has left to do in others when its lock is released.
#[derive(Clone, Copy, Default)]
pub(crate) struct Errands {
    /// Calls a thread that waits.
    pub(crate) calls: bool,
    /// Slots of a limit have become free, and others want them.
    pub(crate) frees_slots: bool,
}

impl Errands {
    fn and(self, more: Self) -> Self {
        Self { calls: self.calls || more.calls, frees_slots: self.frees_slots || more.frees_slots }
    }
}

/// Handles events until at least one handler was called, the timeout expires, the proactor is stopped, or
/// another thread sets the flag and wakes everybody. Returns the number of handlers called.
pub(crate) fn handle_events(
    shards: &Shards,
    timeout: Option<Duration>,
    until: Option<&AtomicBool>,
) -> usize {
    let mut visit = Visit::new(timeout, until);
    let mut present = shards.arrive();
    loop {
        let served = shards.lock(present.shard).serve_visit(&mut visit);
        // The lock is open.
        match served {
            Served::Handled | Served::Over => return visit.handled,
            Served::TimedOut if shards.is_only() => return 0,
            Served::TimedOut => return shards.help_all(present.shard, until),
            Served::Elsewhere(Elsewhere::Help(shard)) => visit.handled += shards.help(shard, until),
            Served::Elsewhere(Elsewhere::Move(shard)) => {
                drop(present);
                shards.settle(shard);
                present = shards.arrive();
            }
        }
        if visit.handled > 0 {
            return visit.handled;
        }
    }
}

impl Shards {
    /// There is at least one core, and all know this group.
    pub(crate) fn new(cores: Vec<Core>, announced: usize) -> Self {
        let group = Arc::clone(&cores[0].group);
        let present = cores.iter().map(|_| AtomicUsize::new(0)).collect();
        let settled = cores.iter().map(|_| AtomicUsize::new(0)).collect();
        let handles = cores.iter().map(|_| AtomicUsize::new(0)).collect();
        Self {
            locks: cores.into_iter().map(Lock::new).collect(),
            starting: AtomicUsize::new(0),
            group,
            present,
            settled,
            announced,
            arriving: Mutex::new(()),
            turns: AtomicUsize::new(0),
            handles,
            first_home: AtomicU16::new(0),
        }
    }

    fn is_only(&self) -> bool {
        self.group.is_only()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = Shard> + Clone + use<> {
        0..Shard::try_from(self.locks.len()).unwrap_or(Shard::MAX)
    }

    pub(crate) fn lock(&self, shard: Shard) -> Locked<'_> {
        Locked::new(self, shard, &self.locks[usize::from(shard)])
    }

    /// Locks all shards.
    pub(crate) fn all(&self) -> All<'_> {
        All { shards: self, locked: self.numbers().map(|shard| self.lock(shard)).collect() }
    }

    /// Locks all shards, and ends the local runs of all threads: everything that was started is in its list.
    pub(crate) fn all_settled(&self) -> All<'_> {
        let mut all = self.all();
        all.iter_mut().for_each(|core| core.end_local_runs());
        all
    }

    /// Returns the number of operations, timers and posts that are not over, at a moment at which all shards are
    /// locked. Allocates nothing.
    pub(crate) fn outstanding(&self) -> usize {
        let (outstanding, errands) = self.outstanding_from(0);
        self.run(errands);
        outstanding
    }

    /// Returns the errands, too: not while other shards are locked.
    fn outstanding_from(&self, shard: Shard) -> (usize, Errands) {
        if usize::from(shard) == self.locks.len() {
            return (0, Errands::default());
        }
        let mut core = self.lock(shard);
        core.end_local_runs();
        let (after, errands) = self.outstanding_from(shard + 1);
        (after + core.outstanding(), errands.and(core.take_errands()))
    }

    /// Does what a shard has left to do in others. None of them is locked.
    pub(crate) fn run(&self, errands: Errands) {
        if errands.frees_slots {
            self.numbers().for_each(|shard| self.lock(shard).retry_deferred());
        }
        if errands.calls {
            self.call();
        }
    }

    /// Returns the shard whose handler this thread is in.
    pub(crate) fn calling(&self) -> Option<Shard> {
        self.numbers().find(|shard| self.locks[usize::from(*shard)].is_in_handler())
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
            for core in all.iter_mut() {
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

/// All shards, locked.
pub(crate) struct All<'a> {
    shards: &'a Shards,
    locked: Vec<Locked<'a>>,
}

impl<'a> Deref for All<'a> {
    type Target = [Locked<'a>];

    fn deref(&self) -> &[Locked<'a>] {
        &self.locked
    }
}

impl<'a> DerefMut for All<'a> {
    fn deref_mut(&mut self) -> &mut [Locked<'a>] {
        &mut self.locked
    }
}

impl Drop for All<'_> {
    /// Errands lock shards one after another, so they wait until all of these are open.
    fn drop(&mut self) {
        let errands = self.locked.iter_mut().map(|core| core.take_errands());
        let errands = errands.fold(Errands::default(), Errands::and);
        self.locked.clear();
        self.shards.run(errands);
    }
}
