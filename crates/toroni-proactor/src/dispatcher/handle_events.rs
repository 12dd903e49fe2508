//! The paper's `handle_events`: what a thread does that its owner lends to the proactor. The steps have the
//! paper's numbers.

use super::local_run::{Lent, LocalRun};
use super::round::Round;
use super::{Dispatcher, NotificationState};
use crate::core::Core;
use crate::hook::mutant;
use crate::lock::{Locked, Panic};
use crate::operation::State;
use crate::processor::attempt::Tried;
use crate::shards::{Advice, Elsewhere, Lookout};
use crate::sys::ThreadId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the only thread leads one processor while the other waits for its turn.
const TURN: Duration = Duration::from_millis(1);

/// One call of a thread that its owner lends.
pub(crate) struct Visit<'a> {
    end: End,
    /// The thread returns when another thread sets this and wakes everybody.
    until: Option<&'a AtomicBool>,
    lookout: Lookout,
    /// The number of handlers called so far.
    pub(crate) handled: usize,
}

impl<'a> Visit<'a> {
    pub(crate) fn new(timeout: Option<Duration>, until: Option<&'a AtomicBool>) -> Self {
        Self { end: End { timeout, at: None }, until, lookout: Lookout::default(), handled: 0 }
    }
}

/// Why a thread is done with its shard.
pub(crate) enum Served {
    /// It has called handlers.
    Handled,
    /// The timeout has expired.
    TimedOut,
    /// The proactor is stopped, or the thread is wanted back.
    Over,
    /// Another shard needs it.
    Elsewhere(Elsewhere),
}

impl Dispatcher {
    /// Returns whether it is time to check the engines and the clock.
    fn is_check_due(&self) -> bool {
        self.since_lead >= self.policy.results_before_check() || !self.after_check.is_empty()
    }
}

impl Locked<'_> {
    /// Counts this thread, unless it is in a handler and is counted there.
    pub(crate) fn enter(&mut self) -> Lent {
        if self.is_in_handler() {
            self.end_local_runs();
            return Core::lend_no_local_run();
        }
        if self.dispatcher.threads() == 1 {
            // The other thread is alone no longer, and may be in a handler that blocks.
            self.end_local_runs();
        }
        self.dispatcher.handlers += 1;
        self.lend_local_run()
    }

    /// Handles events of this shard until at least one handler was called, or the visit ends otherwise.
    pub(crate) fn serve_visit(&mut self, visit: &mut Visit<'_>) -> Served {
        let lent = self.enter();
        self.dispatcher.policy.note_arrival();
        let served = self.serve(visit, lent.run());
        self.end_lookout(&mut visit.lookout);
        self.leave(lent.run());
        served
    }

    fn serve(&mut self, visit: &mut Visit<'_>, run: Option<&LocalRun>) -> Served {
        let until = visit.until;
        let mut has_checked = false;
        loop {
            if self.leaves(until) {
                return Served::Over;
            }
            // Step 1.
            self.expire_timers();
            if self.is_superfluous()
                && visit.handled == 0
                && let Wait::Until(deadline) = visit.end.wait()
            {
                self.end_lent_run(run);
                match self.look_around(&mut visit.lookout) {
                    Advice::Wait(look) => {
                        self.wait_as_follower(look.into_iter().chain(deadline).min(), until);
                    }
                    Advice::Again => {}
                    Advice::Go(elsewhere) => return Served::Elsewhere(elsewhere),
                }
                continue;
            }
            if self.dispatcher.is_check_due() {
                self.end_runs_for_posts();
                self.check_engines();
                if let Some(shard) = self.look_at_work() {
                    return Served::Elsewhere(Elsewhere::Help(shard));
                }
            }
            if self.has_work() {
                self.end_lookout(&mut visit.lookout);
            }
            let handled = self.process_completed(has_checked, until, run);
            visit.handled += handled;
            // What this thread keeps costs less as long as it stays.
            let stays = visit.handled < self.dispatcher.policy.results_in_visit()
                && run.is_some_and(|run| self.kept_in(run) > 0);
            if handled > 0 && stays && !self.leaves(until) {
                has_checked = false;
                continue;
            }
            if visit.handled > 0 {
                return Served::Handled;
            }
            if !self.dispatches() {
                return Served::Over;
            }
            // A single operation that this thread kept: the engine is checked first.
            self.end_lent_run(run);
            // What was attempted and has to wait again may have become ready meanwhile.
            if self.has_completed() {
                continue;
            }
            // The lock was released meanwhile, and `wake_everybody` counted this thread as awake.
            if self.leaves(until) {
                return Served::Over;
            }

            let Wait::Until(mut deadline) = visit.end.wait() else {
                self.end_lookout(&mut visit.lookout);
                self.check_engines();
                if let Some(shard) = self.look_at_work() {
                    return Served::Elsewhere(Elsewhere::Help(shard));
                }
                visit.handled += self.process_completed(true, until, run);
                return if visit.handled > 0 { Served::Handled } else { Served::TimedOut };
            };
            let others = self.dispatcher.handlers - 1;
            if !self.has_work() && self.take_share(others) {
                continue;
            }
            if !self.has_work() {
                match self.look_around(&mut visit.lookout) {
                    Advice::Wait(look) => deadline = look.into_iter().chain(deadline).min(),
                    Advice::Again => continue,
                    Advice::Go(elsewhere) => return Served::Elsewhere(elsewhere),
                }
            }
            if self.may_rest() {
                self.wait_as_follower(deadline, until);
            } else if self.lead_one(deadline) || self.has_work() {
                // Step 2.
                has_checked = true;
            } else {
                // Step 3.
                self.wait_as_follower(deadline, until);
            }
        }
    }

    /// Returns whether this thread returns to its owner.
    pub(crate) fn leaves(&self, until: Option<&AtomicBool>) -> bool {
        !self.dispatches() || until.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Calls the handlers of all results, including those that arrive meanwhile, until it is time to check
    /// the engines and the clock.
    pub(crate) fn process_completed(
        &mut self,
        mut has_checked: bool,
        until: Option<&AtomicBool>,
        run: Option<&LocalRun>,
    ) -> usize {
        let mut handled = 0;
        while !self.dispatcher.is_check_due() {
            let core = &mut **self;
            let kept = run.map_or(0, |run| core.kept_in(run));
            let taken = core.pop_completed(has_checked, kept);
            if taken.is_none() && kept < 2 {
                break;
            }
            let open = run.filter(|run| core.open_local_run(run));
            if taken.is_none() && open.is_none() {
                // What was kept is in the list now.
                continue;
            }
            let sample = core.dispatcher.policy.sample();
            let mut round = Round::new(open, until, sample);
            let called = match taken {
                Some(index) => self.take_turn(index, &mut round),
                None => Some(self.take_turn_of_kept(&mut round)),
            };
            self.end_round(&round, taken.is_some());
            handled += round.handled();
            let Some(result) = called else {
                if !self.dispatches() {
                    break;
                }
                continue;
            };
            if let Some(index) = taken {
                self.close_later(index);
                self.pool.destroy(index);
            }
            self.stop_if_finished();
            if let Err(panic) = result {
                // The thread may not come back.
                self.end_lent_run(run);
                self.leave(run);
                panic.resume();
            }
            // New operations may be finished by now.
            has_checked = false;
            if self.leaves(until) {
                break;
            }
        }
        handled
    }

    /// Attempts what this thread keeps, and calls the handlers of what is over.
    fn take_turn_of_kept(&mut self, round: &mut Round<'_>) -> Result<(), Panic> {
        self.hand_over();
        let counted = usize::from(!mutant("a_kept_handler_is_not_outstanding"));
        self.dispatcher.in_kept_rounds += counted;
        let called = self.dispatch(|| round.run_kept());
        self.dispatcher.in_kept_rounds -= counted;
        called
    }

    /// Attempts an operation if it is READY, and calls its handler if it is over. Returns `None` if the handler
    /// was not called.
    fn take_turn(&mut self, index: u32, round: &mut Round<'_>) -> Option<Result<(), Panic>> {
        // Step 1a, and everything else that this thread would have done.
        self.hand_over();
        if self.pool[index].state() == State::Ready {
            match self.try_ready(index, round) {
                Tried::Called(result) => return Some(result),
                Tried::Waits => return None,
                Tried::Over if !self.dispatches() => {
                    self.put_back(index);
                    return None;
                }
                Tried::Over => self.hand_over(),
            }
        }
        let (completion, done) = self.pool.complete(index);
        Some(self.dispatch(|| round.run(completion, done)))
    }

    /// Prepares this thread's return to its owner; or, if that is a handler, to where the thread is counted.
    pub(crate) fn leave(&mut self, run: Option<&LocalRun>) {
        self.return_local_run(run);
        let leaving = usize::from(!self.dispatcher.policy.threads_return());
        let staying = self.dispatcher.handlers - leaving;
        self.hand_over_to(staying);
        if !self.is_in_handler() {
            self.dispatcher.handlers -= 1;
        }
    }

    /// Ends a round. `has_taken`: at its beginning this thread took a result from the list, and counted it.
    fn end_round(&mut self, round: &Round<'_>, has_taken: bool) {
        if let Some(run) = round.local_run() {
            self.end_local_round(run, round.handled(), has_taken);
        }
        if let Some(sample) = round.sample()
            && round.handled() > 0
        {
            self.dispatcher.policy.add(sample, round.handled());
        }
    }

    /// Called when this thread, which waited, does not check any more: no thread ends the local runs of handlers
    /// that block.
    fn stop_checking(&mut self, tick: Option<Instant>) {
        if tick.is_some() {
            self.end_local_runs();
        }
    }

    /// Leads a processor that wants a leader. Returns whether there was one.
    fn lead_one(&mut self, deadline: Option<Instant>) -> bool {
        let Some(which) = self.wants_leader() else { return false };
        self.lead_processor(which, |core| {
            let other_waits = core.wants_leader().is_some() && !core.dispatcher.wake_follower();
            let turn = other_waits.then(|| Instant::now() + TURN);
            Wait::Until(turn.into_iter().chain(deadline).min())
        });
        true
    }

    /// Leads each processor without a leader once, without waiting. Then everything that may be ready, and
    /// what had to come after a check, gets its turn.
    pub(crate) fn check_engines(&mut self) {
        for which in 0..self.processors.len() {
            if self.processors[which].wants_leader() {
                self.lead_processor(which, |_| Wait::Not);
            }
        }
        self.end_overdue_local_runs();
        self.end_speculation();
        self.release_after_check();
        self.dispatcher.since_lead = 0;
    }

    fn lead_processor(&mut self, which: usize, wait: impl FnOnce(&mut Core) -> Wait) {
        self.dispatcher.handlers -= 1;
        self.dispatcher.leaders += 1;
        self.dispatcher.since_lead = 0;
        self.dispatcher.last_led = which;
        self.processors[which].acquire_leadership(ThreadId::current());
        match wait(self) {
            Wait::Until(deadline) if !self.has_work() => self.lead_until(which, deadline),
            _ => self.handle_aio_events(which, Some(Duration::ZERO)),
        }
        self.processors[which].release_leadership();
        self.dispatcher.leaders -= 1;
        self.dispatcher.handlers += 1;
    }

    /// Waits as the leader of a processor.
    fn lead_until(&mut self, which: usize, deadline: Option<Instant>) {
        let watch = self.watch();
        let tick = self.begin_tick();
        let until = watch.into_iter().chain(deadline).chain(tick).min();
        self.handle_aio_events(which, until.map(left));
        self.end_tick(tick, true);
        self.stop_checking(tick);
        self.unwatch(watch);
    }

    /// Waits, unless there is a call to deliver: it would wait, too, until a thread of this shard returns from its handler.
    pub(super) fn wait_as_follower(
        &mut self,
        deadline: Option<Instant>,
        flag: Option<&AtomicBool>,
    ) {
        if self.dispatcher.calls.has_call() {
            return self.unlocked(|| ());
        }
        let watch = self.watch();
        self.dispatcher.handlers -= 1;
        self.dispatcher.followers += 1;
        loop {
            let tick = self.begin_tick();
            let until = watch.into_iter().chain(deadline).chain(tick).min();
            self.follow(until.map(left));
            let gets_on = self.end_tick(tick, false);
            // Waits on while only a tick has passed and the running threads make progress. Another follower may
            // have taken the wake-up as its own. The last running thread may have left, perhaps to its own shard,
            // without waking anybody, because this thread would check.
            let others_run = self.dispatcher.handlers > 0 || mutant("a_follower_waits_for_nobody");
            let mut may_wait_on = tick.is_some() && tick == until && gets_on && others_run;
            if may_wait_on {
                self.end_blocked_local_runs();
                let others = self.dispatcher.handlers;
                may_wait_on = !self.take_share(others);
            }
            let is_over =
                self.dispatcher.woken > 0 || self.leaves(flag) || self.dispatcher.calls.has_call();
            if !may_wait_on || is_over {
                self.stop_checking(tick);
                break;
            }
        }
        self.dispatcher.followers -= 1;
        self.dispatcher.woken = self.dispatcher.woken.saturating_sub(1);
        self.dispatcher.handlers += 1;
        self.unwatch(watch);
    }
}

impl Core {
    /// Returns a processor without a leader that has something to wait for. If both want one, it is the one
    /// that was not led last.
    pub(crate) fn wants_leader(&self) -> Option<usize> {
        let mut wanting = (0..self.processors.len())
            .filter(|which| self.processors[*which].wants_leader())
            .peekable();
        let first = wanting.next()?;
        let second = wanting.next();
        Some(if first == self.dispatcher.last_led { second.unwrap_or(first) } else { first })
    }

    /// Called before this thread runs a handler: leaves its next work to a waiting thread, if there is one
    /// and the running threads are not enough. A follower that is on its way hands over in its turn.
    fn hand_over(&mut self) {
        self.hand_over_to(self.dispatcher.handlers);
    }

    /// Leaves work to the `staying` threads, or wakes one.
    fn hand_over_to(&mut self, staying: usize) {
        let wants_leader = self.wants_leader().is_some();
        if self.dispatcher.notification_state() == NotificationState::DoNothing {
            if self.has_work() || wants_leader || self.next_deadline().is_some() {
                self.call_for_help();
            }
            return;
        }
        let is_uncovered = self
            .next_deadline()
            .is_some_and(|next| self.dispatcher.watched.is_none_or(|watched| next < watched));
        if !is_uncovered && self.suffices(staying) {
            return;
        }
        let somebody_comes =
            (self.has_work() || wants_leader || is_uncovered) && self.dispatcher.wake_follower();
        if !somebody_comes && (is_uncovered || wants_leader) {
            // The leader of the other processor will wait no longer than until the timer, or take turns.
            self.interrupt_any_leader();
        }
    }

    /// Returns the timer that this thread, which is about to wait, must wake for, unless another one does.
    fn watch(&mut self) -> Option<Instant> {
        let next = self.next_deadline()?;
        if self.dispatcher.watched.is_some_and(|watched| watched <= next) {
            return None;
        }
        self.dispatcher.watched = Some(next);
        Some(next)
    }

    /// Ends [`Core::watch`]: this thread is awake again.
    fn unwatch(&mut self, watch: Option<Instant>) {
        if watch.is_some() && self.dispatcher.watched == watch {
            self.dispatcher.watched = None;
        }
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// The time until which a thread is lent.
struct End {
    timeout: Option<Duration>,
    /// Computed on first use, so a call that finds results reads no clock. The inner `None` is a timeout that
    /// the clock cannot represent.
    at: Option<Option<Instant>>,
}

/// How long a thread may wait.
enum Wait {
    Not,
    Until(Option<Instant>),
}

impl End {
    fn wait(&mut self) -> Wait {
        // The two usual timeouts need no clock.
        match self.timeout {
            None => return Wait::Until(None),
            Some(Duration::ZERO) => return Wait::Not,
            Some(_) => {}
        }
        let now = Instant::now();
        let timeout = self.timeout;
        let at = *self.at.get_or_insert_with(|| timeout.and_then(|limit| now.checked_add(limit)));
        if at.is_some_and(|at| at <= now) { Wait::Not } else { Wait::Until(at) }
    }
}
