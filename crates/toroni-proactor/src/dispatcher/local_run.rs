//! Local runs: a thread collects what its handler starts, without the lock.
//!
//! The thread of a handler mostly continues with what the handler has started. So if an operation is finished
//! as it is started, the thread keeps the result, and calls its handler next. If an operation waits for its turn
//! to be attempted, the thread keeps the start until it takes the lock anyway. Neither needs the lock, nor does a
//! result need an entry of the pool. The paper has no such runs: there, each start takes the lock.
//!
//! A handler may block. So a run is *open*, which means that it collects, only while a waiting thread checks
//! whether the others make progress, or while there is no other thread. The thread that checks ends the runs of
//! handlers that have not returned in the meantime, and so does each caller that must see everything: a
//! cancellation, a stop, a second thread. To end a run is to move what it has collected to the lists of
//! the dispatcher and of the processors. From then on its handler's starts take the lock.
//!
//! The lock of a run is taken after the proactor's lock, or without it.

use super::OVERTAKERS;
use crate::core::{Core, Phase};
use crate::dispatcher::Notify;
use crate::hook::mutant;
use crate::operation::{Completion, Done, Key, Outcome, Request, State};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of keys that a run has for its starts. Further starts take the lock.
const KEYS: usize = 4;

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
    /// How many more results may go ahead of those of other threads.
    room: usize,
    results: VecDeque<Finished>,
    starts: Vec<Begun>,
    /// Keys for starts, so that they can be cancelled.
    keys: Vec<Key>,
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
            collected.starts.push(Begun { key, offer });
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

    /// Takes the next result. There is none if the run was ended.
    pub(crate) fn next_result(&self) -> Option<(Box<dyn Completion>, Done)> {
        let Finished { completion, done, .. } = self.collected().results.pop_front()?;
        leaves_results(&done);
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
pub(crate) struct LocalRuns(Vec<Slot>);

struct Slot {
    run: Arc<LocalRun>,
    /// A thread in `handle_events` has it.
    is_used: bool,
    is_open: bool,
    /// How often it was opened, and that number at the last check.
    opened: u64,
    checked: u64,
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
        let runs = &mut self.dispatcher.local_runs.0;
        let number = runs.iter().position(|slot| !slot.is_used).unwrap_or(runs.len());
        if number == runs.len() {
            let run = LocalRun::new(number);
            runs.push(Slot { run, is_used: true, is_open: false, opened: 0, checked: 0 });
        }
        runs[number].is_used = true;
        let run = Arc::clone(&runs[number].run);
        Lent { before: CURRENT.replace(Some(Arc::clone(&run))), run: Some(run) }
    }

    /// Lends none: a handler handles events, and its thread's run was ended.
    pub(crate) fn lend_no_local_run() -> Lent {
        Lent { before: CURRENT.take(), run: None }
    }

    /// Ends [`Core::lend_local_run`].
    pub(crate) fn return_local_run(&mut self, run: Option<&LocalRun>) {
        if let Some(run) = run {
            self.dispatcher.local_runs.0[run.number].is_used = false;
        }
    }

    /// Opens this thread's run for the handler that it is about to call. Returns whether it is open.
    pub(crate) fn open_local_run(&mut self, run: &LocalRun) -> bool {
        let dispatcher = &self.dispatcher;
        let is_alone = dispatcher.threads() == 1;
        let is_checked =
            (is_alone && self.is_looked_at()) || self.suffices(self.dispatcher.handlers);
        let dispatcher = &self.dispatcher;
        if !is_checked || dispatcher.policy.handlers_sleep() || self.phase != Phase::Running {
            return false;
        }
        let until_check = dispatcher.policy.results_before_check() - 1;
        let room = until_check.saturating_sub(dispatcher.since_lead);
        let mut collected = run.collected();
        collected.is_open = true;
        collected.room = room.min(OVERTAKERS.saturating_sub(dispatcher.overtaken));
        while collected.keys.len() < KEYS {
            collected.keys.push(self.pool.reserve());
        }
        let slot = &mut self.dispatcher.local_runs.0[run.number];
        slot.is_open = true;
        slot.opened += 1;
        true
    }

    /// Ends this thread's run, whose handlers have returned. `more` handlers were called after the first.
    pub(crate) fn close_local_run(&mut self, run: &LocalRun, more: usize) {
        self.dispatcher.taken += u64::try_from(more).unwrap_or(0);
        self.dispatcher.since_lead += more;
        self.dispatcher.overtaken += more;
        self.end_local_run(run);
    }

    /// Moves what this thread has collected to the lists, and lets it collect on.
    pub(crate) fn flush_local_run(&mut self) {
        let run = CURRENT.with_borrow(Clone::clone);
        if let Some(run) = run {
            self.link(&mut run.collected());
        }
    }

    /// Returns whether a thread collects.
    pub(crate) fn has_open_run(&self) -> bool {
        self.dispatcher.local_runs.0.iter().any(|slot| slot.is_open)
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
        for number in 0..self.dispatcher.local_runs.0.len() {
            let slot = &mut self.dispatcher.local_runs.0[number];
            if slot.is_open && chosen(slot) {
                let run = Arc::clone(&slot.run);
                self.end_local_run(&run);
            }
        }
    }

    fn end_local_run(&mut self, run: &LocalRun) {
        self.dispatcher.local_runs.0[run.number].is_open = false;
        let mut collected = run.collected();
        collected.is_open = false;
        self.link(&mut collected);
    }

    fn link(&mut self, collected: &mut Collected) {
        if let Some(index) = collected.attempted.take() {
            self.complete_attempted(index);
        }
        for Begun { key, offer } in collected.starts.drain(..) {
            self.link_start(key, offer);
        }
        for finished in collected.results.drain(..) {
            self.link_result(finished);
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
