//! Local runs: a thread collects what its handler starts, without the lock.
//!
//! The thread of a handler mostly continues with what the handler has started. So if an operation is finished
//! as it is started, the thread keeps the result, and calls its handler next. If an operation waits for its turn
//! to be attempted, the thread keeps the start, attempts it in its turn, and calls its handler. None of that needs
//! the lock or an entry of the pool. Only an attempt that finds nothing is passed on to the processor, when the thread
//! takes the lock anyway. The paper has no such runs: there, each start takes the lock.
//!
//! A handler may block. So a run is *open*, which means that it collects, only while a waiting thread of its shard
//! checks whether the others make progress; or while its thread is the only one there, and a thread of another shard ticks
//! or none waits. To *end* a run is to move what it has collected to the lists of the dispatcher and of the processors. From
//! then on its handler's starts take the lock. Runs are ended
//!
//! - by the thread that checks or ticks, if their handlers have not returned meanwhile;
//! - by each caller that must see everything: a cancellation, a stop, `outstanding`, a second start in one direction of a
//!   stream, a post that comes after a check, and a handler that handles events;
//! - by a second thread that comes, and by one that has nothing to do while a run keeps more than its thread will finish
//!   soon;
//! - by their own thread, if its handler panics.
//!
//! If another thread of the same shard checks, a run stays open while its own thread returns to its owner. So sessions stay
//! with their thread, and in the cache of its core. If the thread does not come back, the thread that checks ends the run as
//! if a handler blocked. The next thread that handles events may get the run, too. What is kept comes after everything in the
//! lists. If it waits for its turn longer than about a millisecond, or two turns of everything, a check of the engines ends
//! the run.
//!
//! The lock of a run is taken after the proactor's lock, or without it. A thread holds it while it attempts what it
//! has kept, which never waits. So a thread that ends a run finds each operation waiting or over.

use super::OVERTAKERS;
use crate::core::{Core, Phase};
use crate::dispatcher::Notify;
use crate::hook::mutant;
use crate::operation::{Completion, Done, Key, Outcome, Request, State};
use crate::provider::Attempt;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of keys that a run has for the starts of a round. Further starts take the lock.
const KEYS: usize = 32;

thread_local! {
    /// The run of the innermost `handle_events` of this thread.
    static CURRENT: RefCell<Option<Arc<LocalRun>>> = const { RefCell::new(None) };
}

/// What one thread has collected.
pub(crate) struct LocalRun {
    number: usize,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    is_open: bool,
    /// How many more handlers this thread may call before it takes the lock.
    room: usize,
    results: VecDeque<Finished>,
    /// Operations that wait for their turn to be attempted. Results of the dispatcher come first.
    starts: VecDeque<Begun>,
    /// Whether it is their turn.
    may_attempt: bool,
    /// Operations that were attempted in vain.
    blocked: Vec<Begun>,
    /// The number of attempts of what was kept, in this round.
    attempted_of_kept: usize,
    /// The number of attempts in vain that the dispatcher has not been told.
    in_vain: usize,
    /// Keys for starts, so that they can be cancelled.
    keys: Vec<Key>,
    /// Keys of operations that are over.
    spent: Vec<Key>,
    /// The number of results collected since the beginning.
    serial: u32,
    /// The operation that this thread has attempted and whose handler it calls, if its processor has not been
    /// told.
    attempted: Option<u32>,
}

/// A result whose handler is to be called.
struct Finished {
    processor: usize,
    completion: Box<dyn Completion>,
    done: Done,
}

/// A start of an operation that waits for its turn.
struct Begun {
    key: Key,
    offer: Offer,
}

/// A start by a handler. It is the only operation of its descriptor and direction.
pub(crate) struct Offer {
    pub(crate) processor: usize,
    pub(crate) request: Request,
    pub(crate) completion: Box<dyn Completion>,
    /// The outcome, if it is over; otherwise it waits for its turn to be attempted.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) attempt: Attempt,
}

/// Collects a start of this thread's handler. Continues with the offer if the start has to take the lock.
pub(crate) fn collect(offer: Offer) -> ControlFlow<Key, Offer> {
    CURRENT.with_borrow(|run| match run {
        Some(run) => run.take(offer),
        None => ControlFlow::Continue(offer),
    })
}

impl LocalRun {
    fn new(number: usize) -> Arc<Self> {
        Arc::new(Self { number, collected: Mutex::default() })
    }

    /// A panic with this lock held is a broken invariant of the proactor, and was reported.
    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, mut offer: Offer) -> ControlFlow<Key, Offer> {
        let mut collected = self.collected();
        if !collected.is_open {
            return ControlFlow::Continue(offer);
        }
        let kind = offer.request.kind;
        let Some(outcome) = offer.outcome.take() else {
            let Some(key) = collected.keys.pop() else { return ControlFlow::Continue(offer) };
            if !mutant("collected_start_unseen") {
                offer.request.on().changed_in_run(kind, State::Initialized, State::Deferred);
            }
            collected.starts.push_back(Begun { key, offer });
            return ControlFlow::Break(key);
        };
        if collected.room == 0 {
            return ControlFlow::Continue(Offer { outcome: Some(outcome), ..offer });
        }
        collected.room -= 1;
        collected.serial = collected.serial.wrapping_add(1);
        let key = Key::outside(self.number, collected.serial);
        offer.request.on().changed_in_run(kind, State::Initialized, State::ResultReady);
        let Offer { processor, request, completion, .. } = offer;
        let done = Done { kind, descriptor: request.descriptor, outcome };
        collected.results.push_back(Finished { processor, completion, done });
        ControlFlow::Break(key)
    }

    /// Records that this thread has attempted an operation and is about to call its handler. Returns false if the
    /// run was ended.
    pub(crate) fn begin_handler(&self, index: u32, request: &Request) -> bool {
        let mut collected = self.collected();
        if collected.is_open {
            collected.attempted = Some(index);
            // So that the handler may attempt the next operation.
            request.on().changed_in_run(request.kind, State::Ready, State::Completed);
        }
        collected.is_open
    }

    /// Takes the next result. If there is none, attempts what waits for its turn. There is nothing if the run was ended.
    pub(crate) fn next_result(&self) -> Option<(Box<dyn Completion>, Done)> {
        let mut collected = self.collected();
        if let Some(Finished { completion, done, .. }) = collected.results.pop_front() {
            leaves_results(&done);
            return Some((completion, done));
        }
        // The engine is checked before a single one, which goes to the list for that. And what a handler continues with
        // needs room, too.
        while collected.may_attempt && collected.room > 1 && collected.starts.len() > 1 {
            collected.room -= 1;
            let over = collected.attempt_first();
            if over.is_some() {
                return over;
            }
        }
        None
    }
}

impl Collected {
    /// Attempts the operation whose turn it is.
    fn attempt_first(&mut self) -> Option<(Box<dyn Completion>, Done)> {
        let Begun { key, mut offer } = self.starts.pop_front()?;
        self.attempted_of_kept += 1;
        let Some(outcome) = (offer.attempt)(&mut offer.request) else {
            self.in_vain += 1;
            self.blocked.push(Begun { key, offer });
            return None;
        };
        self.spent.push(key);
        let Offer { mut request, completion, .. } = offer;
        request.on().changed_in_run(request.kind, State::Deferred, State::Completed);
        let done = Done { kind: request.kind, descriptor: request.descriptor.take(), outcome };
        Some((completion, done))
    }
}

/// Counts a result that is no longer waiting for its handler in a local run.
fn leaves_results(done: &Done) {
    if let Some(descriptor) = &done.descriptor {
        descriptor.changed_in_run(done.kind, State::ResultReady, State::Completed);
    }
}

/// The local runs of all threads.
#[derive(Default)]
pub(crate) struct LocalRuns {
    slots: Vec<Slot>,
}

struct Slot {
    run: Arc<LocalRun>,
    /// A thread in `handle_events` has it.
    is_used: bool,
    is_open: bool,
    /// The number of operations that it keeps for their turn, after its last round.
    kept: usize,
    /// The number of operations that were kept at a check of the engines and have not had their turn since.
    due: usize,
    /// The dispatcher's `taken` at that check.
    due_since: u64,
    /// How often it was opened, and that number at the last check.
    opened: u64,
    checked: u64,
}

impl Slot {
    fn new(run: Arc<LocalRun>) -> Self {
        Self {
            run,
            is_used: true,
            is_open: false,
            kept: 0,
            due: 0,
            due_since: 0,
            opened: 0,
            checked: 0,
        }
    }
}

/// A thread's local run, until the thread returns to its owner.
pub(crate) struct Lent {
    run: Option<Arc<LocalRun>>,
    /// That of the `handle_events` whose handler has called this one.
    before: Option<Arc<LocalRun>>,
}

impl Lent {
    pub(crate) fn run(&self) -> Option<&LocalRun> {
        self.run.as_deref()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}

impl Core {
    /// Lends a thread that begins to handle events its local run.
    pub(crate) fn lend_local_run(&mut self) -> Lent {
        let runs = &mut self.dispatcher.local_runs.slots;
        let number = runs.iter().position(|slot| !slot.is_used).unwrap_or(runs.len());
        if number == runs.len() {
            let run = LocalRun::new(number);
            runs.push(Slot::new(run));
        }
        runs[number].is_used = true;
        let run = Arc::clone(&runs[number].run);
        Lent { before: CURRENT.replace(Some(Arc::clone(&run))), run: Some(run) }
    }

    /// Lends none: a handler handles events, and its thread's run was ended.
    pub(crate) fn lend_no_local_run() -> Lent {
        Lent { before: CURRENT.take(), run: None }
    }

    /// Ends [`Core::lend_local_run`]. What the thread keeps stays for when it comes back, if another thread checks
    /// whether it does.
    pub(crate) fn return_local_run(&mut self, run: Option<&LocalRun>) {
        if let Some(run) = run {
            let is_checked = self.is_checked() || mutant("nobody_misses_what_is_kept");
            if !is_checked || !self.dispatcher.policy.threads_return() {
                self.end_local_run(run);
            }
            self.dispatcher.local_runs.slots[run.number].is_used = false;
        }
    }

    /// Opens this thread's run for the handlers that it is about to call. Returns whether it is open.
    pub(crate) fn open_local_run(&mut self, run: &LocalRun) -> bool {
        let dispatcher = &self.dispatcher;
        let is_alone = dispatcher.threads() == 1;
        let is_checked =
            (is_alone && self.is_looked_at()) || self.suffices(self.dispatcher.handlers);
        if !is_checked || self.dispatcher.policy.handlers_sleep() || self.phase != Phase::Running {
            self.end_local_run(run);
            return false;
        }
        let attempts = !self.has_work();
        let mut collected = run.collected();
        let dispatcher = &self.dispatcher;
        let until_check = dispatcher.policy.results_before_check() - 1;
        let until_check = until_check.saturating_sub(dispatcher.since_lead);
        collected.is_open = true;
        collected.may_attempt = attempts;
        collected.room = if collected.may_attempt {
            // At least an operation, and what its handler starts: a round must not end as it began.
            let most = dispatcher.policy.results_between_looks().min(OVERTAKERS);
            until_check.min(most).max(2)
        } else {
            until_check.min(OVERTAKERS.saturating_sub(dispatcher.overtaken))
        };
        while collected.keys.len() < KEYS {
            collected.keys.push(self.pool.reserve());
        }
        let slot = &mut self.dispatcher.local_runs.slots[run.number];
        slot.is_open = true;
        slot.opened += 1;
        true
    }

    /// Ends a round, in which `handled` handlers were called: counts it, and moves what is over, or has to wait, to the
    /// lists. `has_taken`: the first one was of a result that was taken from a list, and is counted.
    pub(crate) fn end_local_round(&mut self, run: &LocalRun, handled: usize, has_taken: bool) {
        let mut collected = run.collected();
        let attempted = std::mem::take(&mut collected.attempted_of_kept);
        let tried = handled + std::mem::take(&mut collected.in_vain);
        let dispatcher = &mut self.dispatcher;
        if !has_taken && dispatcher.completed.is_empty() {
            // No result waits that these went ahead of.
            dispatcher.overtaken = 0;
        } else {
            dispatcher.overtaken += handled.saturating_sub(usize::from(has_taken));
        }
        let more = tried.saturating_sub(usize::from(has_taken));
        dispatcher.taken += u64::try_from(more).unwrap_or(0);
        dispatcher.since_lead += more;
        self.link(&mut collected);
        let slot = &mut self.dispatcher.local_runs.slots[run.number];
        slot.kept = collected.starts.len();
        slot.due = slot.due.saturating_sub(attempted);
    }

    /// Called before a check of the engines. Posts that come after it come after what threads keep, too.
    pub(super) fn end_runs_for_posts(&mut self) {
        if !self.dispatcher.after_check.is_empty() && !mutant("posts_overtake_what_is_kept") {
            self.end_local_runs();
        }
    }

    /// Called when the engines are checked. Ends each run in which something has waited too long for its turn, because its
    /// thread blocks, is with its owner, or has too much else to do.
    pub(crate) fn end_overdue_local_runs(&mut self) {
        let dispatcher = &self.dispatcher;
        let in_visits = dispatcher.policy.results_in_visit() * dispatcher.handlers.max(1);
        // A turn of everything is a read and a write each.
        let patience = u64::try_from(in_visits.max(4 * self.kept())).unwrap_or(u64::MAX);
        let taken = dispatcher.taken;
        self.end_runs_of(|slot| {
            if slot.due == 0 {
                (slot.due, slot.due_since) = (slot.kept, taken);
            }
            taken - slot.due_since > patience && !mutant("what_is_kept_starves")
        });
    }

    /// Ends the runs of threads that have more to do than they will finish soon, for a thread that has nothing to do.
    /// `others` are at work. Returns whether there is something to do now.
    pub(crate) fn take_share(&mut self, others: usize) -> bool {
        let (policy, kept) = (&self.dispatcher.policy, self.kept());
        if kept < 2
            || policy.finish_sooner(others, kept)
            || policy.occupy_all_cores(others)
            || mutant("runs_are_not_shared")
        {
            return false;
        }
        self.end_local_runs();
        self.has_work()
    }

    /// Moves what this thread has collected to the lists, and lets it collect on.
    pub(crate) fn flush_local_run(&mut self) {
        let run = CURRENT.with_borrow(Clone::clone);
        if let Some(run) = run {
            self.link(&mut run.collected());
        }
    }

    /// Returns the number of operations that this thread keeps for their turn.
    pub(crate) fn kept_in(&self, run: &LocalRun) -> usize {
        self.dispatcher.local_runs.slots[run.number].kept
    }

    /// Returns the number of operations that all threads keep for their turn.
    pub(crate) fn kept(&self) -> usize {
        self.dispatcher.local_runs.slots.iter().map(|slot| slot.kept).sum()
    }

    /// Returns whether a thread collects.
    pub(crate) fn has_open_run(&self) -> bool {
        self.dispatcher.local_runs.slots.iter().any(|slot| slot.is_open)
    }

    /// Ends the runs of all threads.
    pub(crate) fn end_local_runs(&mut self) {
        self.end_runs_of(|_| true);
    }

    /// Ends the runs whose handlers have not returned since the last call.
    pub(crate) fn end_blocked_local_runs(&mut self) {
        self.end_runs_of(|slot| {
            std::mem::replace(&mut slot.checked, slot.opened) == slot.opened
                && !mutant("blocked_runs_stay")
        });
    }

    fn end_runs_of(&mut self, chosen: impl Fn(&mut Slot) -> bool) {
        for number in 0..self.dispatcher.local_runs.slots.len() {
            let slot = &mut self.dispatcher.local_runs.slots[number];
            if slot.is_open && chosen(slot) {
                let run = Arc::clone(&slot.run);
                self.end_local_run(&run);
            }
        }
    }

    /// Ends this thread's run, if it has one.
    pub(super) fn end_lent_run(&mut self, run: Option<&LocalRun>) {
        if let Some(run) = run {
            self.end_local_run(run);
        }
    }

    fn end_local_run(&mut self, run: &LocalRun) {
        let slot = &mut self.dispatcher.local_runs.slots[run.number];
        if !slot.is_open {
            return;
        }
        slot.is_open = false;
        slot.kept = 0;
        slot.due = 0;
        let mut collected = run.collected();
        collected.is_open = false;
        self.link(&mut collected);
        if !mutant("what_is_kept_stays") {
            self.link_starts(&mut collected);
        }
    }

    /// Moves what waits for its turn to the lists.
    fn link_starts(&mut self, collected: &mut Collected) {
        for Begun { key, offer } in collected.starts.drain(..) {
            self.link_start(key, offer);
        }
    }

    /// Moves what is over, or has to wait, to the lists.
    fn link(&mut self, collected: &mut Collected) {
        if let Some(index) = collected.attempted.take() {
            self.complete_attempted(index);
        }
        for Begun { key, offer } in collected.blocked.drain(..) {
            self.link_start(key, offer);
        }
        for finished in collected.results.drain(..) {
            self.link_result(finished);
        }
        for key in collected.spent.drain(..) {
            self.pool.give_back(key);
        }
    }

    fn link_start(&mut self, key: Key, offer: Offer) {
        let Offer { processor, request, completion, .. } = offer;
        let kind = request.kind;
        self.pool.create_at(key, request, Some(completion));
        if let Err(error) = self.start_aio(processor, key.index) {
            // The start has returned: this is a deferred error.
            self.pool[key.index].outcome = Some(Outcome::of(Err(error)));
            self.post_completion(key.index, Notify::Strong);
        }
        // Afterwards, so that another thread never finds the direction idle.
        if !mutant("collected_start_unseen") {
            let descriptor = self.pool[key.index].request.on();
            descriptor.changed_in_run(kind, State::Deferred, State::Initialized);
        }
    }

    fn link_result(&mut self, finished: Finished) {
        let Finished { processor, completion, done } = finished;
        let Done { kind, descriptor, outcome } = done;
        let request = Request { kind, descriptor, ..Request::timer() };
        let index = self.pool.create(request, Some(completion)).index;
        let operation = &mut self.pool[index];
        operation.processor = processor;
        operation.finish(outcome);
        // The operation counts from here on.
        operation.request.on().changed_in_run(kind, State::ResultReady, State::Completed);
        self.post_first(index);
    }
}
