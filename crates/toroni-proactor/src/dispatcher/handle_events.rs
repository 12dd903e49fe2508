//! `handle_events`: what a thread does that its owner lends to the proactor.

use crate::core::Core;
use crate::lock::{Lock, Locked};
use crate::sys::ThreadId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How many results are dispatched at most before somebody looks whether more operations are finished:
/// handlers whose operations complete at once must not starve the others.
const LOOK_AFTER: usize = 64;

/// How long the only thread leads one processor while the other one waits for its turn.
const TURN: Duration = Duration::from_millis(1);

/// Handles events until at least one handler was called, the time is over, the proactor is stopped, or
/// somebody set the flag and woke everybody. How many handlers were called.
pub(crate) fn handle_events(
    lock: &Lock,
    timeout: Option<Duration>,
    until: Option<&AtomicBool>,
) -> usize {
    // A time-out beyond what the clock can say is none.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut locked = lock.lock();
    locked.dispatcher.handlers += 1;
    let handled = locked.serve(deadline, until);
    locked.dispatcher.handlers -= 1;
    locked.hand_over();
    drop(locked);
    handled
}

impl Locked<'_> {
    fn serve(&mut self, deadline: Option<Instant>, until: Option<&AtomicBool>) -> usize {
        loop {
            if !self.dispatches() || until.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return 0;
            }
            let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());

            // Step 1.
            self.expire_timers();
            if self.dispatcher.since_lead >= LOOK_AFTER {
                self.look();
            }
            let handled = self.process_completed();
            if handled > 0 || !self.dispatches() {
                return handled;
            }

            // Step 2.
            if self.lead_one(deadline, is_over) {
                if is_over {
                    return self.process_completed();
                }
                continue;
            }
            if is_over {
                return 0;
            }

            // Step 3.
            self.wait_as_follower(deadline);
        }
    }

    /// Calls the handlers of the results that are there now.
    fn process_completed(&mut self) -> usize {
        let batch = self.dispatcher.completed.len().min(LOOK_AFTER);
        for handled in 0..batch {
            let core = &mut **self;
            let Some(index) = core.dispatcher.completed.pop(&mut core.records) else {
                return handled;
            };
            core.dispatcher.since_lead += 1;
            let (completion, done) = core.records.complete(index);
            // Step 1a, and whatever else this thread would have done.
            core.hand_over();
            let outcome = self.dispatch(|| completion.complete(done));
            self.records.destroy(index);
            self.stop_if_finished();
            if let Err(panic) = outcome {
                self.dispatcher.handlers -= 1;
                self.hand_over();
                panic.resume();
            }
            if !self.dispatches() {
                return handled + 1;
            }
        }
        batch
    }

    /// Leads a processor that wants a leader, if there is one. Without time, all that want one.
    fn lead_one(&mut self, deadline: Option<Instant>, is_over: bool) -> bool {
        if is_over {
            return self.look();
        }
        let Some(which) = self.wants_leader() else { return false };
        self.lead_processor(which, |core| {
            let other_waits = core.wants_leader().is_some() && !core.dispatcher.wake_follower();
            let turn = other_waits.then(|| Instant::now() + TURN);
            turn.into_iter().chain(deadline).min()
        });
        true
    }

    /// Leads, without waiting, each processor that has no leader.
    fn look(&mut self) -> bool {
        let mut led = false;
        for which in 0..self.processors.len() {
            if self.processors[which].wants_leader() {
                let now = Instant::now();
                self.lead_processor(which, |_| Some(now));
                led = true;
            }
        }
        self.dispatcher.since_lead = 0;
        led
    }

    fn lead_processor(&mut self, which: usize, until: impl FnOnce(&mut Core) -> Option<Instant>) {
        self.dispatcher.handlers -= 1;
        self.dispatcher.leaders += 1;
        self.dispatcher.since_lead = 0;
        self.dispatcher.last_led = which;
        self.processors[which].acquire_leadership(ThreadId::current());
        let until = until(self);
        let watch = self.watch();
        let until = watch.into_iter().chain(until).min();
        let is_immediate = !self.dispatcher.completed.is_empty();
        let timeout = if is_immediate { Some(Duration::ZERO) } else { until.map(left) };
        self.handle_aio_events(which, timeout);
        self.unwatch(watch);
        self.processors[which].release_leadership();
        self.dispatcher.leaders -= 1;
        self.dispatcher.handlers += 1;
    }

    fn wait_as_follower(&mut self, deadline: Option<Instant>) {
        let watch = self.watch();
        let until = watch.into_iter().chain(deadline).min();
        self.dispatcher.handlers -= 1;
        self.dispatcher.followers += 1;
        self.follow(until.map(left));
        self.dispatcher.followers -= 1;
        self.dispatcher.woken = self.dispatcher.woken.saturating_sub(1);
        self.dispatcher.handlers += 1;
        self.unwatch(watch);
    }
}

impl Core {
    /// A processor without a leader that has something to wait for: the primary first, but if both want
    /// one, the one that had none last.
    fn wants_leader(&self) -> Option<usize> {
        let mut wanting = (0..self.processors.len())
            .filter(|which| self.processors[*which].wants_leader())
            .peekable();
        let first = wanting.next()?;
        let second = wanting.next();
        Some(if first == self.dispatcher.last_led { second.unwrap_or(first) } else { first })
    }

    /// This thread is about to call a handler, or to leave: what it would have done next is left to
    /// somebody else, if anybody waits. A follower that is on its way hands over in its turn.
    fn hand_over(&mut self) {
        let has_results = !self.dispatcher.completed.is_empty();
        let wants_leader = self.wants_leader().is_some();
        let is_uncovered = self
            .next_deadline()
            .is_some_and(|next| self.dispatcher.watched.is_none_or(|watched| next < watched));
        let somebody_comes =
            (has_results || wants_leader || is_uncovered) && self.dispatcher.wake_follower();
        if !somebody_comes && (is_uncovered || wants_leader) {
            // The leader of the other processor waits no longer than until the timer, or takes turns.
            self.interrupt_any_leader();
        }
    }

    /// The timer that this thread, which is about to wait, has to wake for, if nobody else does.
    fn watch(&mut self) -> Option<Instant> {
        let next = self.next_deadline()?;
        if self.dispatcher.watched.is_some_and(|watched| watched <= next) {
            return None;
        }
        self.dispatcher.watched = Some(next);
        Some(next)
    }

    /// This thread is awake again.
    fn unwatch(&mut self, watch: Option<Instant>) {
        if watch.is_some() && self.dispatcher.watched == watch {
            self.dispatcher.watched = None;
        }
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
