//! What all handles of a proactor share: the lock, and what never changes.

use crate::config::{Config, Effective, create_engine};
use crate::core::{Core, Phase};
use crate::dispatcher::local_run::{self, Offer};
use crate::dispatcher::{self, After, Notify};
use crate::error::{OperationError, SetupError, StartError};
use crate::fork::Generation;
use crate::hook::{Point, point};
use crate::lock::{Lock, Locked};
use crate::operation::{Completion, Descriptor, Key, OperationKind, Outcome, Pool, Request};
use crate::processor::{Processor, run_dedicated};
use crate::sys::{SignalSet, ThreadId};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The error of a refused start, and its completion.
pub(crate) type Returned = (StartError, Box<dyn Completion>);

pub(crate) struct Inner {
    pub(crate) lock: Lock,
    routes: Vec<Route>,
    effective: Vec<Effective>,
    generation: Generation,
    /// Whether new operations are accepted. The phase behind the lock decides; this copy is for checks
    /// outside of it.
    accepts: AtomicBool,
    /// [`Core::starting`].
    starting: Arc<AtomicUsize>,
    /// Whether the dispatcher has recently seen handlers sleep.
    handlers_sleep: Arc<AtomicBool>,
    dedicated: Mutex<Vec<JoinHandle<()>>>,
}

/// What one processor supports, and which part of it needs no lock.
struct Route {
    effective: crate::operation::OperationMask,
    eager: Option<fn(&mut Request) -> Option<Outcome>>,
    speculates: fn(&Request) -> bool,
    /// Whether threads may collect starts in their local runs.
    collects: bool,
}

impl Inner {
    /// Creates the engines, and starts the threads of dedicated processors.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>, SetupError> {
        config.check()?;
        let mut pool = Pool::new();
        let (mut processors, mut routes, mut effective) = (Vec::new(), Vec::new(), Vec::new());
        for (number, wanted) in config.processors().iter().enumerate() {
            let (engine, chosen) = create_engine(wanted)?;
            routes.push(Route {
                effective: chosen.operations,
                eager: engine.provider.eager(),
                speculates: engine.provider.speculates(),
                collects: engine.provider.can_start_in_any_thread()
                    && chosen.config.processor_type == crate::config::ProcessorType::Shared,
            });
            let limit = chosen.config.max_operations.unwrap_or(usize::MAX);
            let is_dedicated =
                chosen.config.processor_type == crate::config::ProcessorType::Dedicated;
            processors.push(Processor::new(number, is_dedicated, limit, engine, &mut pool));
            effective.push(chosen);
        }
        let leaders: Vec<usize> =
            (0..processors.len()).filter(|which| processors[*which].is_dedicated()).collect();
        let core = Core::new(pool, processors);
        let inner = Arc::new(Self {
            routes,
            effective,
            generation: Generation::current(),
            accepts: AtomicBool::new(true),
            starting: Arc::clone(&core.starting),
            handlers_sleep: core.dispatcher.handlers_sleep(),
            lock: Lock::new(core),
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

    pub(crate) fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// Creates an operation and starts it, under one lock.
    pub(crate) fn start(
        &self,
        mut request: Request,
        completion: Box<dyn Completion>,
    ) -> Result<Key, Returned> {
        let operation = request.kind;
        let _starting = Starting::new(self);
        if let Err(error) = self.accepts(operation) {
            return Err((error, completion));
        }
        // To io_uring, the largest number means the file's own position.
        if i64::try_from(request.offset).is_err() {
            let errno = libc::EINVAL;
            let error = OperationError { operation, descriptor: request.raw(), errno };
            return Err((error.into(), completion));
        }
        let supporting = self.routes.iter().position(|route| route.effective.contains(operation));
        let Some(which) = supporting else {
            return Err((StartError::Unsupported { operation }, completion));
        };
        let eager = self.routes[which].eager;
        let written = (eager.is_some() && operation == OperationKind::WriteStream)
            .then(|| Arc::clone(request.on()));
        let _turn = written.as_ref().map(|descriptor| descriptor.turn());
        // If handlers sleep, its turn would come late.
        let is_in_handler = self.lock.is_in_handler();
        let waits_its_turn = (self.routes[which].speculates)(&request)
            && is_in_handler
            && !self.handlers_sleep.load(Ordering::Relaxed);
        // It must not overtake an operation that waits.
        let outcome = match eager {
            Some(attempt) if request.is_idle() && !waits_its_turn => attempt(&mut request),
            _ => None,
        };
        let descriptor = request.raw();
        point(Point::BeforeStart);
        let is_alone = request.is_idle() && !request.has_result();
        let is_collected = outcome.is_some() || (waits_its_turn && request.is_watched());
        let mut offer = Offer { processor: which, request, completion, outcome };
        if is_in_handler && is_alone && is_collected && self.routes[which].collects {
            offer = match local_run::collect(offer) {
                ControlFlow::Break(key) => return Ok(key),
                ControlFlow::Continue(offer) => offer,
            };
        }
        let Offer { request, completion, outcome, .. } = offer;
        let mut core = self.lock.lock();
        if !is_alone && descriptor.is_some() {
            // Another thread may have collected an operation that comes first.
            core.end_local_runs();
        } else if is_in_handler {
            core.flush_local_run();
        }
        // A finished transfer is delivered unless the proactor is closing. If only a part was transferred, the
        // outcome is that the rest will not follow.
        let outcome = match outcome {
            None if request.moved > 0 && !core.accepts() => Some(Outcome::cancelled()),
            other => other,
        };
        let refuses =
            if outcome.is_some() { core.phase == Phase::Closing } else { !core.accepts() };
        if refuses {
            return Err((StartError::Stopping { operation }, completion));
        }
        let key = core.pool.create(request, Some(completion));
        if let Some(outcome) = outcome {
            core.pool[key.index].processor = which;
            core.pool[key.index].finish(outcome);
            core.post_first(key.index);
            return Ok(key);
        }
        match core.start_aio(which, key.index) {
            Ok(()) => Ok(key),
            // A part has been transferred: if this start were refused, the caller would send that part again.
            Err(errno) if core.pool[key.index].request.moved > 0 => {
                core.pool[key.index].outcome = Some(Outcome::of(Err(errno)));
                core.post_completion(key.index, Notify::Strong);
                Ok(key)
            }
            Err(errno) => {
                let completion = core.pool.destroy(key.index).expect("given above");
                let errno = errno.raw_os_error();
                let error = OperationError { operation, descriptor, errno };
                Err((error.into(), completion))
            }
        }
    }

    /// Takes the lock, and ends the local runs of all threads: everything that was started is in its list.
    fn lock_all(&self) -> Locked<'_> {
        let mut core = self.lock.lock();
        core.end_local_runs();
        core
    }

    /// Posts a completion. No provider takes part.
    pub(crate) fn post(
        &self,
        completion: Box<dyn Completion>,
        after: After,
    ) -> Result<(), Returned> {
        if let Err(error) = self.accepts(OperationKind::Post) {
            return Err((error, completion));
        }
        let mut core = self.lock.lock();
        if !core.accepts() {
            return Err((StartError::Stopping { operation: OperationKind::Post }, completion));
        }
        core.post(completion, after);
        Ok(())
    }

    /// Posts the continuation of something that has begun, also while the proactor is stopping.
    pub(crate) fn resume(
        &self,
        completion: Box<dyn Completion>,
        after: After,
    ) -> Result<(), Returned> {
        if !self.generation.is_current() {
            return Err((StartError::Forked, completion));
        }
        let mut core = self.lock.lock();
        if core.phase == Phase::Closing {
            return Err((StartError::Stopping { operation: OperationKind::Post }, completion));
        }
        core.post(completion, after);
        Ok(())
    }

    /// Sets a timer for after a duration.
    pub(crate) fn timer_after(
        &self,
        after: Duration,
        completion: Box<dyn Completion>,
    ) -> Result<Key, Returned> {
        // A time that the clock cannot represent is far enough away.
        const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        let now = Instant::now();
        self.timer(now.checked_add(after).unwrap_or(now + FAR), completion)
    }

    pub(crate) fn timer(
        &self,
        deadline: Instant,
        completion: Box<dyn Completion>,
    ) -> Result<Key, Returned> {
        if let Err(error) = self.accepts(OperationKind::Timer) {
            return Err((error, completion));
        }
        let mut core = self.lock.lock();
        if !core.accepts() {
            return Err((StartError::Stopping { operation: OperationKind::Timer }, completion));
        }
        let key = core.pool.create(Request::timer(), Some(completion));
        core.start_timer(key, deadline);
        Ok(key)
    }

    /// Cancels one operation or timer. Returns whether it was asked to end.
    pub(crate) fn cancel(&self, key: Key) -> bool {
        self.generation.is_current() && self.lock_all().cancel_one(key)
    }

    /// Cancels all operations of a descriptor. Returns their number.
    pub(crate) fn cancel_all_of(&self, descriptor: &Descriptor) -> usize {
        if !self.generation.is_current() {
            return 0;
        }
        self.lock_all().cancel_aio(descriptor)
    }

    /// Stops watching a descriptor that another library continues to use.
    pub(crate) fn forget(&self, descriptor: &Descriptor) {
        if self.generation.is_current() {
            self.lock.lock().forget(descriptor.as_fd());
        }
    }

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

    /// Makes every thread in `handle_events` check whether it should leave.
    pub(crate) fn wake_everybody(&self) {
        if self.generation.is_current() {
            self.lock.lock().wake_everybody();
        }
    }

    /// Makes all threads leave; operations continue.
    pub(crate) fn stop(&self) {
        if self.generation.is_current() {
            let mut core = self.lock_all();
            if core.phase != Phase::Closing {
                core.phase = Phase::Stopped;
                core.wake_everybody();
            }
        }
    }

    /// Refuses new starts and cancels everything. Threads leave when all handlers have been called.
    pub(crate) fn finish(&self) {
        if self.generation.is_current() {
            let mut core = self.lock_all();
            if matches!(core.phase, Phase::Running | Phase::Stopped) {
                core.phase = Phase::Finishing;
                // Before the count of starts that have not seen it is read: see `Starting`.
                self.accepts.store(false, Ordering::SeqCst);
                core.cancel_all();
                core.cancel_timers();
                core.stop_if_finished();
            }
        }
    }

    pub(crate) fn restart(&self) {
        if self.generation.is_current() {
            let mut core = self.lock.lock();
            if core.phase != Phase::Closing {
                core.phase = Phase::Running;
                self.accepts.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether threads leave.
    pub(crate) fn is_stopped(&self) -> bool {
        !self.generation.is_current() || !self.lock.lock().dispatches()
    }

    pub(crate) fn outstanding(&self) -> usize {
        if self.generation.is_current() { self.lock_all().outstanding() } else { 0 }
    }

    /// Closes the proactor: nothing starts or is dispatched any more. Returns when the kernel has released
    /// every buffer, or the time limit has passed. Handlers that were not called are dropped with their
    /// buffers.
    pub(crate) fn close(self: &Arc<Self>) {
        if !self.generation.is_current() {
            // A child process shares the parent's rings and descriptors, and may find the lock held.
            std::mem::forget(Arc::clone(self));
            return;
        }
        let mut core = self.lock_all();
        core.phase = Phase::Closing;
        self.accepts.store(false, Ordering::Relaxed);
        core.wake_everybody();
        core.processors.iter_mut().for_each(Processor::interrupt_leader);
        drop(core);
        let dedicated = std::mem::take(&mut *self.dedicated.lock().expect("never panics"));
        for leader in dedicated {
            // One that panicked has reported that, and its engine is not idle.
            let _ = leader.join();
        }

        let mut core = self.lock.lock();
        for which in 0..core.processors.len() {
            // If its leader panicked, nothing can drain it.
            if !core.processors[which].is_dedicated() && !core.processors[which].is_led() {
                core.processors[which].acquire_leadership(ThreadId::current());
                core.drain(which);
                core.processors[which].release_leadership();
            }
        }
        let is_idle = core.processors.iter().all(Processor::is_idle);
        let left = core.pool.take_all();
        if is_idle {
            core.processors.iter().for_each(Processor::fini);
            drop(core);
            drop(left);
        } else {
            // The kernel still works on some of them: they are never freed.
            drop(core);
            std::mem::forget(left);
            std::mem::forget(Arc::clone(self));
        }
    }

    fn accepts(&self, operation: OperationKind) -> Result<(), StartError> {
        if !self.generation.is_current() {
            return Err(StartError::Forked);
        }
        if !self.accepts.load(Ordering::SeqCst) {
            return Err(StartError::Stopping { operation });
        }
        Ok(())
    }

    fn spawn_leader(self: &Arc<Self>, which: usize) -> Result<(), std::io::Error> {
        let inner = Arc::clone(self);
        // Signal handlers must run in a thread of the program, so the new thread blocks all signals from its
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

/// Counts a start that runs outside of the lock, by a thread that is in none of the proactor's handlers: a
/// graceful stop waits for it. A handler needs no such count, because it is outstanding itself.
///
/// Either the start sees that nothing is accepted any more, or `finish` sees the start.
struct Starting<'a>(Option<&'a Inner>);

impl<'a> Starting<'a> {
    fn new(inner: &'a Inner) -> Self {
        let counted = (!inner.lock.is_in_handler()).then_some(inner);
        if let Some(inner) = counted {
            inner.starting.fetch_add(1, Ordering::SeqCst);
        }
        Self(counted)
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let Some(inner) = self.0 else { return };
        inner.starting.fetch_sub(1, Ordering::SeqCst);
        // Otherwise `finish` is still to come, and reads the count then.
        if !inner.accepts.load(Ordering::SeqCst) && inner.generation.is_current() {
            inner.lock.lock().stop_if_finished();
        }
    }
}
