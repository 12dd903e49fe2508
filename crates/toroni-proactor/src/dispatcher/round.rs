//! One round of a thread: the handlers that it calls from one unlock to the next lock.

use super::local_run::LocalRun;
use super::wake_policy::Sample;
use crate::operation::{Completion, Done, Request};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a thread does without the lock: it calls the handler of the result that it has taken, if any, then those of the
/// results in its local run, and attempts what it keeps there.
pub(crate) struct Round<'a> {
    /// The thread's local run, if it is open.
    run: Option<&'a LocalRun>,
    /// The thread returns to its owner when this is set.
    until: Option<&'a AtomicBool>,
    sample: Option<Sample>,
    /// The number of handlers called.
    handled: usize,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        run: Option<&'a LocalRun>,
        until: Option<&'a AtomicBool>,
        sample: Option<Sample>,
    ) -> Self {
        Self { run, until, sample, handled: 0 }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.run.is_some()
    }

    /// [`LocalRun::begin_handler`].
    pub(crate) fn begin_handler(&self, index: u32, request: &Request) -> bool {
        self.run.is_some_and(|run| run.begin_handler(index, request))
    }

    /// Calls a handler, and then those of the local run. None follows a panic.
    pub(crate) fn run(&mut self, completion: Box<dyn Completion>, done: Done) {
        self.sample.iter_mut().for_each(Sample::begin);
        self.handled = 1;
        completion.complete(done);
        self.run_on();
        self.sample.iter_mut().for_each(Sample::end);
    }

    /// Attempts what waits for its turn in the local run, and calls the handlers of what is over.
    pub(super) fn run_kept(&mut self) {
        self.sample.iter_mut().for_each(Sample::begin);
        self.run_on();
        self.sample.iter_mut().for_each(Sample::end);
    }

    /// Calls the handlers of the local run, until there is nothing left for this round.
    fn run_on(&mut self) {
        let is_over = || self.until.is_some_and(|flag| flag.load(Ordering::Relaxed));
        while let Some(run) = self.run
            && !is_over()
            && let Some((completion, done)) = run.next_result()
        {
            self.handled += 1;
            completion.complete(done);
        }
    }

    pub(super) fn handled(&self) -> usize {
        self.handled
    }

    pub(super) fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// Returns the local run, if it is open.
    pub(super) fn local_run(&self) -> Option<&'a LocalRun> {
        self.run
    }
}
