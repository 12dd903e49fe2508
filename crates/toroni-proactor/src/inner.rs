//! What all handles of a proactor share: the shards, and what never changes.

use crate::config::{Config, Effective};
use crate::core::Phase;
use crate::dispatcher::local_run::{self, Offer};
use crate::dispatcher::{After, Notify};
use crate::error::{OperationError, SetupError, StartError};
use crate::fork::Generation;
use crate::hook::{Point, mutant, point};
use crate::lock::Locked;
use crate::operation::{Completion, Descriptor, Id, OperationKind, Outcome, Request};
use crate::part::{Part, Route};
use crate::processor::{Processor, Slots, run_dedicated};
use crate::shards::{self, Group, Shard, Shards};
use crate::sys::{SignalSet, ThreadId};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The error of a refused start, and its completion.
pub(crate) type Returned = (StartError, Box<dyn Completion>);

pub(crate) struct Inner {
    pub(crate) shards: Shards,
    routes: Vec<Route>,
    effective: Vec<Effective>,
    generation: Generation,
    /// Whether new operations are accepted. The phase behind the locks decides; this copy is for checks
    /// outside of them.
    accepts: AtomicBool,
    /// Whether the dispatcher of each shard has recently seen handlers sleep.
    handlers_sleep: Vec<Arc<AtomicBool>>,
    dedicated: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    /// Creates the engines, and starts the threads of dedicated processors.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>, SetupError> {
        config.check()?;
        let (shards, why) = config.effective_shards();
        let group = Arc::new(Group::new(shards));
        let (mut cores, mut routes) = (Vec::new(), Vec::new());
        let mut effective = Vec::new();
        let slots = config
            .processors()
            .iter()
            .map(|processor| processor.max_operations.filter(|_| shards > 1).map(Slots::new));
        let slots: Vec<_> = slots.collect();
        for _ in 0..shards {
            let part = Part::new(config, &group, &slots)?;
            cores.push(part.core);
            // The same configuration makes the same of each shard.
            routes = part.routes;
            effective = part.effective;
        }
        for processor in &mut effective {
            let processor: &mut Effective = processor;
            processor.shards = shards;
            processor.notes.extend(why.clone());
        }
        let inner = Arc::new(Self {
            routes,
            effective,
            generation: Generation::current(),
            accepts: AtomicBool::new(true),
            handlers_sleep: cores.iter().map(|core| core.dispatcher.handlers_sleep()).collect(),
            shards: Shards::new(cores, config.threads()),
            dedicated: Mutex::new(Vec::new()),
        });
        if let Err(source) = inner.spawn_leaders() {
            inner.close();
            return Err(SetupError::System { action: "start a dedicated thread", source });
        }
        Ok(inner)
    }

    pub(crate) fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// [`Shards::home`]. A child process takes no lock: a thread of its parent may have held it.
    pub(crate) fn home(&self) -> (Shard, Option<MutexGuard<'_, ()>>) {
        if self.generation.is_current() { self.shards.home() } else { (self.shards.here(), None) }
    }

    /// Creates an operation and starts it, under one lock.
    pub(crate) fn start(
        &self,
        mut request: Request,
        completion: Box<dyn Completion>,
    ) -> Result<Id, Returned> {
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
        let shard = self.shards.of(&request);
        let is_in_handler = self.shards.calling() == Some(shard);
        // If handlers sleep, its turn would come late.
        let waits_its_turn = (self.routes[which].speculates)(&request)
            && is_in_handler
            && !self.handlers_sleep[usize::from(shard)].load(Ordering::Relaxed);
        // It must not overtake an operation that waits.
        let outcome = match eager {
            Some(attempt) if request.is_idle() && !waits_its_turn => attempt(&mut request),
            _ => None,
        };
        let descriptor = request.raw();
        point(Point::BeforeStart);
        let is_alone = request.is_idle() && !request.has_result();
        let is_collected = outcome.is_some() || (waits_its_turn && request.may_be_kept());
        let attempt = self.routes[which].attempt;
        let mut offer = Offer { processor: which, request, completion, outcome, attempt };
        if is_in_handler && is_alone && is_collected && self.routes[which].collects {
            offer = match local_run::collect(offer) {
                ControlFlow::Break(key) => return Ok(Id { shard, key }),
                ControlFlow::Continue(offer) => offer,
            };
        }
        let Offer { request, completion, outcome, .. } = offer;
        let mut core = self.shards.lock(shard);
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
            return Ok(Id { shard, key });
        }
        match core.start_aio(which, key.index) {
            Ok(()) => Ok(Id { shard, key }),
            // A part has been transferred: if this start were refused, the caller would send that part again.
            Err(errno) if core.pool[key.index].request.moved > 0 => {
                core.pool[key.index].outcome = Some(Outcome::of(Err(errno)));
                core.post_completion(key.index, Notify::Strong);
                Ok(Id { shard, key })
            }
            Err(errno) => {
                let completion = core.pool.destroy(key.index).expect("given above");
                let errno = errno.raw_os_error();
                let error = OperationError { operation, descriptor, errno };
                Err((error.into(), completion))
            }
        }
    }

    /// Locks a shard, and ends the local runs of its threads: everything that was started there is in its list.
    fn lock_settled(&self, shard: Shard) -> Locked<'_> {
        let mut core = self.shards.lock(shard);
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
        let mut core = self.shards.lock(self.shards.here());
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
        let mut core = self.shards.lock(self.shards.here());
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
    ) -> Result<Id, Returned> {
        // A time that the clock cannot represent is far enough away.
        const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        let now = Instant::now();
        self.timer(now.checked_add(after).unwrap_or(now + FAR), completion)
    }

    pub(crate) fn timer(
        &self,
        deadline: Instant,
        completion: Box<dyn Completion>,
    ) -> Result<Id, Returned> {
        if let Err(error) = self.accepts(OperationKind::Timer) {
            return Err((error, completion));
        }
        let shard = self.shards.here();
        let mut core = self.shards.lock(shard);
        if !core.accepts() {
            return Err((StartError::Stopping { operation: OperationKind::Timer }, completion));
        }
        let key = core.pool.create(Request::timer(), Some(completion));
        core.start_timer(key, deadline);
        Ok(Id { shard, key })
    }

    /// Cancels one operation or timer. Returns whether it was asked to end.
    pub(crate) fn cancel(&self, Id { shard, key }: Id) -> bool {
        if !self.generation.is_current() {
            return false;
        }
        let mut core = self.shards.lock(shard);
        // No thread keeps timers. Many programs set one for each operation, and cancel it.
        if !core.is_timer(key) || mutant("timers_end_runs") {
            core.end_local_runs();
        }
        core.cancel_one(key)
    }

    /// Cancels all operations of a descriptor. Returns their number.
    pub(crate) fn cancel_all_of(&self, descriptor: &Descriptor) -> usize {
        if !self.generation.is_current() {
            return 0;
        }
        self.lock_settled(descriptor.home()).cancel_aio(descriptor)
    }

    /// Stops watching a descriptor that another library continues to use.
    pub(crate) fn forget(&self, descriptor: &Descriptor) {
        if self.generation.is_current() {
            self.shards.lock(descriptor.home()).forget(descriptor.as_fd());
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
        shards::handle_events(&self.shards, timeout, until)
    }

    /// Makes every thread in `handle_events` check whether it should leave.
    pub(crate) fn wake_everybody(&self) {
        if self.generation.is_current() {
            self.shards.numbers().for_each(|shard| self.shards.lock(shard).wake_everybody());
        }
    }

    /// Makes all threads leave; operations continue.
    pub(crate) fn stop(&self) {
        if self.generation.is_current() {
            for core in self.shards.all_settled().iter_mut() {
                if core.phase != Phase::Closing {
                    core.phase = Phase::Stopped;
                    core.wake_everybody();
                }
            }
        }
    }

    /// Refuses new starts and cancels everything. Threads leave when all handlers have been called.
    pub(crate) fn finish(&self) {
        if !self.generation.is_current() {
            return;
        }
        let mut all = self.shards.all_settled();
        if matches!(all[0].phase, Phase::Running | Phase::Stopped) {
            // Before the count of starts that have not seen it is read: see `Starting`.
            self.accepts.store(false, Ordering::SeqCst);
            for core in all.iter_mut() {
                core.phase = Phase::Finishing;
                core.cancel_all();
                core.cancel_timers();
            }
            drop(all);
            self.shards.stop_if_finished();
        }
    }

    pub(crate) fn restart(&self) {
        if self.generation.is_current() {
            for core in self.shards.all().iter_mut() {
                if core.phase != Phase::Closing {
                    core.phase = Phase::Running;
                    self.accepts.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns whether threads leave.
    pub(crate) fn is_stopped(&self) -> bool {
        !self.generation.is_current() || !self.shards.lock(self.shards.here()).dispatches()
    }

    pub(crate) fn outstanding(&self) -> usize {
        if self.generation.is_current() { self.shards.outstanding() } else { 0 }
    }

    /// Closes the proactor: nothing starts or is dispatched any more. Returns when the kernel has released
    /// every buffer, or the time limit has passed. Handlers that were not called are dropped with their
    /// buffers.
    pub(crate) fn close(self: &Arc<Self>) {
        if !self.generation.is_current() {
            // A child process shares the parent's rings and descriptors, and may find a lock held.
            std::mem::forget(Arc::clone(self));
            return;
        }
        let mut all = self.shards.all_settled();
        self.accepts.store(false, Ordering::Relaxed);
        for core in all.iter_mut() {
            core.phase = Phase::Closing;
            core.wake_everybody();
            core.processors.iter_mut().for_each(Processor::interrupt_leader);
        }
        drop(all);
        let dedicated = std::mem::take(&mut *self.dedicated.lock().expect("never panics"));
        for leader in dedicated {
            // One that panicked has reported that, and its engine is not idle.
            let _ = leader.join();
        }
        // One time limit for all of them.
        let until = self.shards.lock(0).drain_until();
        let idle = self.shards.numbers().filter(|shard| self.close_shard(*shard, until)).count();
        if idle < self.shards.numbers().count() {
            // The kernel still works on some operations.
            std::mem::forget(Arc::clone(self));
        }
    }

    /// Returns whether the kernel has released everything in a shard.
    fn close_shard(&self, shard: Shard, until: Instant) -> bool {
        let mut core = self.shards.lock(shard);
        for which in 0..core.processors.len() {
            // If its leader panicked, nothing can drain it.
            if !core.processors[which].is_dedicated() && !core.processors[which].is_led() {
                core.processors[which].acquire_leadership(ThreadId::current());
                core.drain(which, until);
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
            // They are never freed.
            drop(core);
            std::mem::forget(left);
        }
        is_idle
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

    /// Starts the threads of dedicated processors.
    fn spawn_leaders(self: &Arc<Self>) -> Result<(), std::io::Error> {
        for shard in self.shards.numbers() {
            for which in 0..self.routes.len() {
                if self.shards.lock(shard).processors[which].is_dedicated() {
                    self.spawn_leader(shard, which)?;
                }
            }
        }
        Ok(())
    }

    fn spawn_leader(self: &Arc<Self>, shard: Shard, which: usize) -> Result<(), std::io::Error> {
        let inner = Arc::clone(self);
        // Signal handlers must run in a thread of the program, so the new thread blocks all signals from its
        // first instruction.
        let before = SignalSet::all().set_in_this_thread();
        let spawned = thread::Builder::new()
            .name("toroni-proactor".to_owned())
            .spawn(move || run_dedicated(&inner.shards, shard, which));
        before.set_in_this_thread();
        self.dedicated.lock().expect("never panics").push(spawned?);
        Ok(())
    }
}

/// Counts a start that runs outside of the locks, by a thread that is in none of the proactor's handlers: a
/// graceful stop waits for it. A handler needs no such count, because it is outstanding itself.
///
/// Either the start sees that nothing is accepted any more, or `finish` sees the start.
struct Starting<'a>(Option<&'a Inner>);

impl<'a> Starting<'a> {
    fn new(inner: &'a Inner) -> Self {
        let counted = inner.shards.calling().is_none().then_some(inner);
        if let Some(inner) = counted {
            inner.shards.begin_start();
        }
        Self(counted)
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let Some(inner) = self.0 else { return };
        inner.shards.end_start();
        // Otherwise `finish` is still to come, and reads the count then.
        if !inner.accepts.load(Ordering::SeqCst) && inner.generation.is_current() {
            inner.shards.stop_if_finished();
        }
    }
}
