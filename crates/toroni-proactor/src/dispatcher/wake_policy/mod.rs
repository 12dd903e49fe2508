//! Decides whether it pays to wake a thread while others run.
//!
//! A wake-up takes longer than a short handler. If handlers are short, the thread that posted a result is back
//! before a woken thread arrives. If as many threads run as there are cores, one more only takes turns with
//! them, unless handlers sleep. So if the running threads will finish the pending work sooner, judged by how
//! long recent handlers took, no thread is woken, and spare threads rest.
//!
//! Nothing says whether a handler will return this time. So one waiting thread checks every [`TICK`] whether
//! the others make progress; if they do not, it does the work. If no thread can check, no wake-up is left out.

use crate::core::Core;
use crate::hook::handler_took;
use crate::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a waiting thread checks.
pub(crate) const TICK: Duration = Duration::from_micros(500);

/// Nanoseconds from the decision to wake a thread until it runs.
const WAKE_UP: u64 = 20_000;

/// Nanoseconds between two checks of the engines by running threads, if handlers take as long as recently.
const BETWEEN_CHECKS: u64 = 1_000_000;

/// The same between two looks at the results of other threads.
const BETWEEN_LOOKS: u64 = 250_000;

/// The same until a thread returns to its owner.
const IN_VISIT: u64 = 1_000_000;

/// The maximum number of results between two checks, however short handlers are.
const MOST: usize = 64;

/// One handler in this many is measured: an odd number, so that handlers that alternate are measured alike.
const SAMPLED: u32 = 17;

/// Nanoseconds that a handler takes at least if it sleeps: two changes of threads.
const SLEEP: u64 = 4_000;

/// A handler that takes this many times the average is not ordinary.
const OUTLIER: u64 = 4;

/// After threads have come this often, one that leaves is expected back soon.
const ARRIVALS: u32 = 16;

/// A share of 100 %.
const ALL: u64 = 1 << 10;

/// What is known of recent handlers, and whether a thread checks.
#[derive(Debug)]
pub(super) struct WakePolicy {
    /// This shard's share of them.
    cores: usize,
    /// Nanoseconds from one result to the next in one thread: a moving average.
    average_ns: u64,
    /// The share of handlers that sleep, of [`ALL`]: a moving average.
    sleeping: u64,
    /// Whether that share is significant, for threads that do not hold the lock.
    sleep: Arc<AtomicBool>,
    since_sample: u32,
    /// How often threads have come since one that was to come back did not.
    arrivals: u32,
    /// A thread checks.
    ticks: bool,
    /// The dispatcher's `taken` when the last check began. If nothing has been taken since, no thread checks
    /// again, so a proactor that has nothing to do sleeps.
    ticked_at: u64,
}

/// A handler that is measured.
pub(super) struct Sample {
    begun: Instant,
    /// Whether the handler may have slept: short ones have not, and asking the kernel takes longer than some of them.
    asks: bool,
    slept: i64,
}

impl WakePolicy {
    /// Creates a policy that knows nothing of the handlers: they may sleep.
    pub(super) fn new(shards: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cores: (cores / shards).max(1),
            average_ns: 10 * WAKE_UP,
            sleeping: ALL,
            sleep: Arc::new(AtomicBool::new(true)),
            since_sample: 0,
            arrivals: 0,
            ticks: false,
            ticked_at: 0,
        }
    }

    /// Returns whether this many running threads finish the waiting results before a woken thread would run.
    pub(super) fn finish_sooner(&self, at_work: usize, waiting: usize) -> bool {
        let waiting = u64::try_from(waiting.max(1)).unwrap_or(u64::MAX);
        at_work > 0 && self.average_ns.saturating_mul(waiting) < WAKE_UP
    }

    /// Returns whether this many running threads keep all cores busy.
    pub(super) fn occupy_all_cores(&self, at_work: usize) -> bool {
        at_work >= self.cores && !self.sleep.load(Ordering::Relaxed)
    }

    /// Notes that a thread has come.
    pub(super) fn note_arrival(&mut self) {
        self.arrivals = self.arrivals.saturating_add(1);
    }

    /// Returns whether threads that return to their owners mostly come back at once.
    pub(super) fn threads_return(&self) -> bool {
        self.arrivals >= ARRIVALS
    }

    /// Returns the flag that says whether handlers sleep now and then, to be read without the lock.
    pub(super) fn sleep(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.sleep)
    }

    /// Returns whether handlers sleep now and then.
    pub(super) fn handlers_sleep(&self) -> bool {
        self.sleep.load(Ordering::Relaxed)
    }

    /// Returns how many results to dispatch before a check for finished operations and due timers: handlers
    /// whose operations complete at once must not starve the others.
    pub(super) fn results_before_check(&self) -> usize {
        usize::try_from(BETWEEN_CHECKS / self.average_ns).unwrap_or(MOST).clamp(1, MOST)
    }

    /// Returns how many results to dispatch before the thread looks whether others wait: half as long as a tick at
    /// most, so that a thread that checks sees progress.
    pub(super) fn results_between_looks(&self) -> usize {
        usize::try_from(BETWEEN_LOOKS / self.average_ns).unwrap_or(MOST).clamp(1, MOST)
    }

    /// Returns how many results to dispatch before a thread returns to its owner.
    pub(super) fn results_in_visit(&self) -> usize {
        usize::try_from(IN_VISIT / self.average_ns).unwrap_or(MOST).max(1)
    }

    /// Returns a sample if the result that was just taken is to be measured.
    pub(super) fn sample(&mut self) -> Option<Sample> {
        self.since_sample += 1;
        let asks = self.average_ns >= SLEEP;
        (self.since_sample >= SAMPLED).then(|| Sample { begun: Instant::now(), asks, slept: 0 })
    }

    /// Adds a sample when its handler has returned, and the others that its thread then called without the lock:
    /// `handled` in all.
    pub(super) fn add(&mut self, sample: &Sample, handled: usize) {
        let handled = u32::try_from(handled.max(1)).unwrap_or(u32::MAX);
        let took = handler_took(sample.begun.elapsed() / handled);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Reset only here, because some operations that are taken are not ready, and call no handler. After an
        // outlier the next handler is measured, too.
        self.since_sample = if took > OUTLIER * self.average_ns { SAMPLED } else { 0 };
        self.note(took, sample.slept > 0);
    }

    fn note(&mut self, took: u64, slept: bool) {
        // A handler that lost its core meanwhile has not become slow.
        self.average_ns = average(self.average_ns, took.min(2 * OUTLIER * self.average_ns)).max(8);
        self.sleeping = average(self.sleeping, if slept { ALL } else { 0 });
        // A few handlers wait for the proactor's own lock.
        self.sleep.store(self.sleeping >= ALL / 4, Ordering::Relaxed);
    }
}

impl Sample {
    /// Marks the beginning of the handler.
    pub(super) fn begin(&mut self) {
        if self.asks {
            self.slept = -sys::times_slept();
        }
    }

    /// Marks the end of the handler.
    pub(super) fn end(&mut self) {
        if self.asks {
            self.slept += sys::times_slept();
        }
    }
}

/// Moves by an eighth of the difference.
fn average(before: u64, sample: u64) -> u64 {
    before - before / 8 + sample / 8
}

impl Core {
    /// Returns whether no thread needs to be woken: the running threads, of which `staying` stay, are enough,
    /// and a thread checks whether they make progress.
    pub(super) fn suffices(&self, staying: usize) -> bool {
        let policy = &self.dispatcher.policy;
        let at_work = self.dispatcher.handlers;
        policy.ticks
            && (policy.finish_sooner(at_work, self.waiting()) || policy.occupy_all_cores(staying))
    }

    /// Returns whether a waiting thread checks whether the others make progress.
    pub(super) fn is_checked(&self) -> bool {
        self.dispatcher.policy.ticks
    }

    /// Returns whether this many running threads finish what waits before a woken thread would run.
    pub(crate) fn finish_sooner(&self, at_work: usize) -> bool {
        self.dispatcher.policy.finish_sooner(at_work, self.waiting())
    }

    /// Returns whether this thread, which found nothing to dispatch, leaves the rest to the other running
    /// threads.
    pub(super) fn may_rest(&self) -> bool {
        let others = self.dispatcher.handlers - 1;
        self.may_tick() && self.dispatcher.policy.finish_sooner(others, self.waiting())
    }

    /// Returns whether this thread would only take turns with the other running threads.
    pub(super) fn is_superfluous(&self) -> bool {
        let others = self.dispatcher.handlers - 1;
        self.has_completed() && self.may_tick() && self.dispatcher.policy.occupy_all_cores(others)
    }

    /// Returns the number of results for any thread, and of a processor to be led. A result that a handler
    /// continues with is for its own thread, and speculations can wait.
    fn waiting(&self) -> usize {
        let dispatcher = &self.dispatcher;
        let results = dispatcher.completed.len().saturating_sub(dispatcher.ahead);
        results + dispatcher.after_check.len() + usize::from(self.wants_leader().is_some())
    }

    fn may_tick(&self) -> bool {
        let policy = &self.dispatcher.policy;
        policy.ticks || policy.ticked_at != self.dispatcher.taken
    }

    /// Called before this thread waits. Returns when it must check whether the running threads make progress,
    /// if it is the one that checks.
    pub(super) fn begin_tick(&mut self) -> Option<Instant> {
        let taken = self.dispatcher.taken;
        let is_alone = self.dispatcher.threads() == 1;
        let policy = &mut self.dispatcher.policy;
        if is_alone || policy.ticks || policy.ticked_at == taken {
            return None;
        }
        policy.ticks = true;
        policy.ticked_at = taken;
        Some(Instant::now() + TICK)
    }

    /// Called when it is awake again. Returns whether any thread made progress meanwhile.
    /// `leads`: it is a leader.
    pub(super) fn end_tick(&mut self, tick: Option<Instant>, leads: bool) -> bool {
        let dispatcher = &self.dispatcher;
        let is_alone = dispatcher.handlers == 0 && dispatcher.leaders == usize::from(leads);
        let is_work_left = self.has_work() || self.kept() > 0 || self.wants_leader().is_some();
        let is_left_alone = is_alone && is_work_left;
        let policy = &mut self.dispatcher.policy;
        if tick.is_some() && is_left_alone {
            policy.arrivals = 0;
        }
        policy.ticks &= tick.is_none();
        policy.ticked_at != self.dispatcher.taken
    }
}

#[cfg(test)]
mod tests;
