//! Whether it pays to wake a thread for what there is to do, while others are at work.
//!
//! A wake-up takes longer than a short handler. Where handlers are short, the thread that posted a result is
//! back before one that is woken for it arrives; and where as many threads are at work as there are cores,
//! one more only takes turns with them, unless handlers sleep. So wake-ups are left out, and threads rest,
//! where what waits is done sooner without them, judged by how handlers were lately. Whether a handler
//! returns this time nobody knows: one of those who wait looks every [`TICK`] whether the others get on, and
//! if not, does what there is to do. Where nobody could look, nothing is left out.

use crate::core::Core;
use crate::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often somebody looks.
const TICK: Duration = Duration::from_micros(500);

/// Nanoseconds from the decision to wake a thread until it is at work.
const WAKE_UP: u64 = 20_000;

/// Nanoseconds between two looks of those at work, as far as handlers are as they were lately.
const BETWEEN_CHECKS: u64 = 1_000_000;

/// Results between two looks, however short handlers are.
const MOST: usize = 64;

/// One handler of so many is measured: an odd number, so that handlers that alternate are measured alike.
const SAMPLED: u32 = 17;

/// So many times longer than the average is no ordinary handler.
const OUTLIER: u64 = 4;

/// All of them.
const ALL: u64 = 1 << 10;

/// What is known of the handlers, and who looks.
#[derive(Debug)]
pub(super) struct WakePolicy {
    cores: usize,
    /// Nanoseconds from one result to the next, in one thread: a moving average.
    average_ns: u64,
    /// How many of [`ALL`] handlers sleep: a moving average.
    sleeping: u64,
    /// Whether that is a share that counts, for those who do not hold the lock.
    sleep: Arc<AtomicBool>,
    since_sample: u32,
    /// Somebody looks.
    ticks: bool,
    /// What had been taken when this look began. Where nothing has been since, nobody looks anew: so a
    /// proactor that has nothing to do sleeps.
    ticked_at: u64,
}

/// A handler that is measured.
pub(super) struct Sample {
    begun: Instant,
    slept: i64,
}

impl WakePolicy {
    /// Of handlers of which nothing is known: they may sleep.
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cores,
            average_ns: 10 * WAKE_UP,
            sleeping: ALL,
            sleep: Arc::new(AtomicBool::new(true)),
            since_sample: 0,
            ticks: false,
            ticked_at: 0,
        }
    }

    /// Whether so many threads do what waits sooner than one more would be there.
    fn finish_sooner(&self, at_work: usize, waiting: usize) -> bool {
        let waiting = u64::try_from(waiting.max(1)).unwrap_or(u64::MAX);
        at_work > 0 && self.average_ns.saturating_mul(waiting) < WAKE_UP
    }

    /// Whether so many threads keep all cores busy.
    fn occupy_all_cores(&self, at_work: usize) -> bool {
        at_work >= self.cores && !self.sleep.load(Ordering::Relaxed)
    }

    /// Whether handlers sleep now and then: to be asked without the lock.
    pub(super) fn sleep(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.sleep)
    }

    /// How many results are dispatched before somebody looks whether more operations are finished, or timers
    /// due: handlers whose operations complete at once must not starve the others.
    pub(super) fn results_before_check(&self) -> usize {
        usize::try_from(BETWEEN_CHECKS / self.average_ns).unwrap_or(MOST).clamp(1, MOST)
    }

    /// A result is taken: whether it is measured.
    pub(super) fn sample(&mut self) -> Option<Sample> {
        self.since_sample += 1;
        (self.since_sample >= SAMPLED).then(|| Sample { begun: Instant::now(), slept: 0 })
    }

    /// What was measured, once the handler has returned.
    pub(super) fn add(&mut self, sample: &Sample) {
        let took = u64::try_from(sample.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Not before: of what is taken, some is not ready, and no handler is called. Is it much, the next one
        // tells whether that goes on.
        self.since_sample = if took > OUTLIER * self.average_ns { SAMPLED } else { 0 };
        self.note(took, sample.slept > 0);
    }

    fn note(&mut self, took: u64, slept: bool) {
        // Who lost its core meanwhile has not become slow.
        self.average_ns = average(self.average_ns, took.min(2 * OUTLIER * self.average_ns)).max(8);
        self.sleeping = average(self.sleeping, if slept { ALL } else { 0 });
        // Now and then one waits for the proactor's own lock.
        self.sleep.store(self.sleeping >= ALL / 4, Ordering::Relaxed);
    }
}

impl Sample {
    /// The handler begins.
    pub(super) fn begin(&mut self) {
        self.slept = -sys::times_slept();
    }

    /// The handler has returned.
    pub(super) fn end(&mut self) {
        self.slept += sys::times_slept();
    }
}

/// Moves by an eighth of the difference.
fn average(before: u64, sample: u64) -> u64 {
    before - before / 8 + sample / 8
}

impl Core {
    /// Whether nobody needs to be woken: those at work, of whom so many stay, are enough, and somebody looks
    /// whether they get on. Who leaves mostly comes again at once.
    pub(super) fn suffices(&self, staying: usize) -> bool {
        let policy = &self.dispatcher.policy;
        let at_work = self.dispatcher.handlers;
        policy.ticks
            && (policy.finish_sooner(at_work, self.waiting()) || policy.occupy_all_cores(staying))
    }

    /// Whether this thread, which found nothing to dispatch, leaves the rest to the others who are at work.
    pub(super) fn may_rest(&self) -> bool {
        let others = self.dispatcher.handlers - 1;
        self.may_tick() && self.dispatcher.policy.finish_sooner(others, self.waiting())
    }

    /// Whether this thread would only take turns with the others who are at work.
    pub(super) fn is_superfluous(&self) -> bool {
        let others = self.dispatcher.handlers - 1;
        self.has_completed() && self.may_tick() && self.dispatcher.policy.occupy_all_cores(others)
    }

    /// Results for whoever comes first, and a processor to be led. What a handler goes on with is for its
    /// own thread, and speculations can wait.
    fn waiting(&self) -> usize {
        let dispatcher = &self.dispatcher;
        let results = dispatcher.completed.len().saturating_sub(dispatcher.ahead);
        results + dispatcher.after_check.len() + usize::from(self.wants_leader().is_some())
    }

    fn may_tick(&self) -> bool {
        let policy = &self.dispatcher.policy;
        policy.ticks || policy.ticked_at != self.dispatcher.taken
    }

    /// This thread is about to wait: when it looks whether those at work get on, if it is the one who does.
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

    /// It is awake again. Whether anybody got on meanwhile.
    pub(super) fn end_tick(&mut self, tick: Option<Instant>) -> bool {
        let policy = &mut self.dispatcher.policy;
        policy.ticks &= tick.is_none();
        policy.ticked_at != self.dispatcher.taken
    }
}

#[cfg(test)]
mod tests;
