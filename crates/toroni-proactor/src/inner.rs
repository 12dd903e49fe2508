//! What a proactor's handles share: the lock, and what never changes behind it.

use crate::config::{Config, Effective, create_engine};
use crate::core::{Core, Phase};
use crate::dispatcher::{self, Dispatcher, Notify};
use crate::error::{OperationError, SetupError, StartError};
use crate::fork::Generation;
use crate::lock::Lock;
use crate::processor::{Processor, run_dedicated};
use crate::record::{Completion, Descriptor, Key, Operation, Outcome, Records, Request};
use crate::sys::{SignalSet, ThreadId};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A start that failed, and the completion that it would have had.
pub(crate) type Returned = (StartError, Box<dyn Completion>);

/// See the module.
pub(crate) struct Inner {
    lock: Lock,
    routes: Vec<Route>,
    effective: Vec<Effective>,
    generation: Generation,
    /// New operations are accepted. The truth is behind the lock; this is to ask before work outside of it.
    accepts: AtomicBool,
    dedicated: Mutex<Vec<JoinHandle<()>>>,
}

/// What one processor does, and what of it can be tried without the lock.
struct Route {
    effective: crate::record::OperationMask,
    eager: Option<fn(&mut Request) -> Option<Outcome>>,
}

impl Inner {
    /// Makes the engines, and starts the threads of dedicated processors.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>, SetupError> {
        config.check()?;
        let mut records = Records::new();
        let (mut processors, mut routes, mut effective) = (Vec::new(), Vec::new(), Vec::new());
        for (number, wanted) in config.processors().iter().enumerate() {
            let (engine, chosen) = create_engine(wanted)?;
            routes.push(Route { effective: chosen.operations, eager: engine.provider.eager() });
            let limit = chosen.config.max_operations.unwrap_or(usize::MAX);
            let is_dedicated =
                chosen.config.processor_type == crate::config::ProcessorType::Dedicated;
            processors.push(Processor::new(number, is_dedicated, limit, engine, &mut records));
            effective.push(chosen);
        }
        let leaders: Vec<usize> =
            (0..processors.len()).filter(|which| processors[*which].is_dedicated()).collect();
        let dispatcher = Dispatcher::new();
        let core = Core { records, dispatcher, processors, phase: Phase::Running };
        let inner = Arc::new(Self {
            lock: Lock::new(core),
            routes,
            effective,
            generation: Generation::current(),
            accepts: AtomicBool::new(true),
            dedicated: Mutex::new(Vec::new()),
        });
        for which in leaders {
            if let Err(source) = inner.spawn_leader(which) {
                inner.close();
                return Err(SetupError::System { action: "start a dedicated thread", source });
            }
        }
        Ok(inner)
    }

    /// What it really runs on.
    pub(crate) fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// Creates a record and starts it, under one lock.
    pub(crate) fn start(
        &self,
        mut request: Request,
        completion: Box<dyn Completion>,
    ) -> Result<Key, Returned> {
        let operation = request.operation;
        if let Err(error) = self.accepts(operation) {
            return Err((error, completion));
        }
        let supporting = self.routes.iter().position(|route| route.effective.contains(operation));
        let Some(which) = supporting else {
            return Err((StartError::Unsupported { operation }, completion));
        };
        // Whoever finds an operation that waits must not overtake it.
        let outcome = match self.routes[which].eager {
            Some(attempt) if request.on().is_idle(operation) => attempt(&mut request),
            _ => None,
        };
        let descriptor = request.raw();
        let mut core = self.lock.lock();
        // What has been transferred is delivered as long as there is a way.
        let refuses =
            if outcome.is_some() { core.phase == Phase::Closing } else { !core.accepts() };
        if refuses {
            return Err((StartError::Stopping { operation }, completion));
        }
        let key = core.records.create(request, Some(completion));
        if let Some(outcome) = outcome {
            core.records[key.index].processor = which;
            core.records[key.index].finish(outcome);
            core.post_completion(key.index, Notify::Strong);
            return Ok(key);
        }
        match core.start_aio(which, key.index) {
            Ok(()) => Ok(key),
            Err(errno) => {
                let completion = core.records.destroy(key.index).expect("given above");
                let errno = errno.raw_os_error();
                let error = OperationError { operation, descriptor, errno };
                Err((error.into(), completion))
            }
        }
    }

    /// Posts a completion that no provider sees.
    pub(crate) fn post(&self, completion: Box<dyn Completion>) -> Result<(), Returned> {
        if let Err(error) = self.accepts(Operation::Post) {
            return Err((error, completion));
        }
        let mut core = self.lock.lock();
        if !core.accepts() {
            return Err((StartError::Stopping { operation: Operation::Post }, completion));
        }
        let key = core.records.create(Request::post(), Some(completion));
        core.post_completion(key.index, Notify::Strong);
        Ok(())
    }

    /// Sets a timer.
    pub(crate) fn timer(
        &self,
        deadline: Instant,
        completion: Box<dyn Completion>,
    ) -> Result<Key, Returned> {
        if let Err(error) = self.accepts(Operation::Timer) {
            return Err((error, completion));
        }
        let mut core = self.lock.lock();
        if !core.accepts() {
            return Err((StartError::Stopping { operation: Operation::Timer }, completion));
        }
        let key = core.records.create(Request::timer(), Some(completion));
        core.start_timer(key, deadline);
        Ok(key)
    }

    /// Cancels one operation or timer.
    pub(crate) fn cancel(&self, key: Key) -> bool {
        self.generation.is_current() && self.lock.lock().cancel_one(key)
    }

    /// Cancels all operations of a descriptor.
    pub(crate) fn cancel_all_of(&self, descriptor: &Descriptor) -> usize {
        if !self.generation.is_current() {
            return 0;
        }
        self.lock.lock().cancel_aio(descriptor.as_raw_fd())
    }

    /// Handles events in this thread.
    pub(crate) fn handle_events(
        &self,
        timeout: Option<Duration>,
        until: Option<&AtomicBool>,
    ) -> usize {
        if !self.generation.is_current() {
            return 0;
        }
        dispatcher::handle_events(&self.lock, timeout, until)
    }

    /// Makes every thread in `handle_events` look whether it should leave.
    pub(crate) fn wake_everybody(&self) {
        if self.generation.is_current() {
            self.lock.lock().wake_everybody();
        }
    }

    /// Threads leave; operations go on.
    pub(crate) fn stop(&self) {
        if self.generation.is_current() {
            let mut core = self.lock.lock();
            if core.phase != Phase::Closing {
                core.phase = Phase::Stopped;
                core.wake_everybody();
            }
        }
    }

    /// Nothing new begins, everything is cancelled, and threads leave when all handlers have been called.
    pub(crate) fn finish(&self) {
        if self.generation.is_current() {
            let mut core = self.lock.lock();
            if core.phase == Phase::Running {
                core.phase = Phase::Finishing;
                self.accepts.store(false, Ordering::Relaxed);
                core.cancel_all();
                core.cancel_timers();
                core.stop_if_finished();
            }
        }
    }

    /// Back to work after `stop` or `finish`.
    pub(crate) fn restart(&self) {
        if self.generation.is_current() {
            let mut core = self.lock.lock();
            if core.phase != Phase::Closing {
                core.phase = Phase::Running;
                self.accepts.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether threads leave.
    pub(crate) fn is_stopped(&self) -> bool {
        !self.generation.is_current() || !self.lock.lock().dispatches()
    }

    /// Operations, timers and posts that are not yet over.
    pub(crate) fn outstanding(&self) -> usize {
        if self.generation.is_current() { self.lock.lock().outstanding() } else { 0 }
    }

    /// The end: nothing is started or dispatched any more. Returns when the kernel has let go of every
    /// buffer; handlers that were not called are dropped with their buffers.
    pub(crate) fn close(self: &Arc<Self>) {
        if !self.generation.is_current() {
            // A child process shares the parent's rings and descriptors, and may find the lock taken.
            std::mem::forget(Arc::clone(self));
            return;
        }
        let mut core = self.lock.lock();
        core.phase = Phase::Closing;
        self.accepts.store(false, Ordering::Relaxed);
        core.wake_everybody();
        core.processors.iter_mut().for_each(Processor::interrupt_leader);
        drop(core);
        let dedicated = std::mem::take(&mut *self.dedicated.lock().expect("never panics"));
        for leader in dedicated {
            // One that panicked has said so, and its engine is not idle.
            let _ = leader.join();
        }

        let mut core = self.lock.lock();
        for which in 0..core.processors.len() {
            // One whose leader panicked has none who could drain it.
            if !core.processors[which].is_dedicated() && !core.processors[which].is_led() {
                core.processors[which].acquire_leadership(ThreadId::current());
                core.drain(which);
                core.processors[which].release_leadership();
            }
        }
        let is_idle = core.processors.iter().all(Processor::is_idle);
        let left = core.records.take_all();
        if is_idle {
            core.processors.iter().for_each(Processor::fini);
            drop(core);
            drop(left);
        } else {
            // The kernel still works on some of it: never to be freed.
            drop(core);
            std::mem::forget(left);
            std::mem::forget(Arc::clone(self));
        }
    }

    fn accepts(&self, operation: Operation) -> Result<(), StartError> {
        if !self.generation.is_current() {
            return Err(StartError::Forked);
        }
        if !self.accepts.load(Ordering::Relaxed) {
            return Err(StartError::Stopping { operation });
        }
        Ok(())
    }

    fn spawn_leader(self: &Arc<Self>, which: usize) -> Result<(), std::io::Error> {
        let inner = Arc::clone(self);
        // A handler of a signal is to run in a thread of the program, so the new one blocks all, from its
        // first instruction.
        let before = SignalSet::all().set_in_this_thread();
        let spawned = thread::Builder::new()
            .name("toroni-proactor".to_owned())
            .spawn(move || run_dedicated(&inner.lock, which));
        before.set_in_this_thread();
        self.dedicated.lock().expect("never panics").push(spawned?);
        Ok(())
    }
}
