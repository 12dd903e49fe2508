//! Loom models of calls between shards: every interleaving of a few threads, within a bound of preemptions.
//!
//! A shard of a model has the real [`Calls`] behind a lock, and a number of handlers to be called in place of
//! operations. Its threads do what `serve` in `dispatcher/handle_events.rs` does when it waits, helps, and calls
//! handlers. They have no timers, lead no engines, do not look while they are at work, and stay in their shards. A call that
//! is lost leaves all threads blocked, which loom reports.

use super::{Advice, Before, Calls, Elsewhere, Look, Lookout, Need, Sight, Waiters};
use crate::shards::Shard;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

/// What is behind the lock of a shard.
#[derive(Default)]
struct Core {
    calls: Calls,
    /// Handlers to be called.
    work: usize,
    /// An engine waits for an event, and has no thread. Nothing but a look finds out.
    wants_leader: bool,
    /// The local run of a handler is open.
    is_open: bool,
    handlers: usize,
    followers: usize,
    taken: u64,
    seen: u64,
}

#[derive(Default)]
struct ModelShard {
    core: Mutex<Core>,
    condition: Condvar,
    run: Mutex<Run>,
}

/// What a handler has started without the lock.
#[derive(Default)]
struct Run {
    is_open: bool,
    collected: usize,
}

type Handler = fn(&Model, Shard);

struct Model {
    waiters: Waiters,
    shards: Vec<ModelShard>,
    /// At least a tick has passed since the last one.
    may_tick: AtomicBool,
    /// The event that an engine waits for has occurred.
    has_occurred: Mutex<bool>,
    handler: Handler,
    /// Threads collect what their handlers start.
    collects: bool,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Model {
    fn new(shards: usize, handler: Handler) -> Self {
        Self {
            waiters: Waiters::default(),
            shards: (0..shards).map(|_| ModelShard::default()).collect(),
            may_tick: AtomicBool::new(true),
            has_occurred: Mutex::default(),
            handler,
            collects: false,
            is_over: Mutex::default(),
            over: Condvar::new(),
        }
    }

    fn shard(&self, shard: Shard) -> &ModelShard {
        &self.shards[usize::from(shard)]
    }

    fn lock(&self, shard: Shard) -> MutexGuard<'_, Core> {
        self.shard(shard).core.lock().unwrap()
    }

    fn numbers(&self) -> impl Iterator<Item = Shard> + use<> {
        0..Shard::try_from(self.shards.len()).unwrap()
    }

    /// Releases the lock of a shard, and calls.
    fn open(&self, mut core: MutexGuard<'_, Core>) {
        let calls = core.calls.take_call();
        drop(core);
        if calls {
            let answers = |shard: Shard| {
                let answers = self.lock(shard).calls.answer();
                if answers {
                    self.shard(shard).condition.notify_one();
                }
                answers
            };
            let _ = self.numbers().any(answers);
        }
    }

    /// Brings work to a shard.
    fn bring(&self, shard: Shard) {
        let mut core = self.lock(shard);
        core.work += 1;
        if core.followers > 0 {
            self.shard(shard).condition.notify_one();
        } else {
            core.calls.call(&self.waiters, false);
        }
        self.open(core);
    }

    /// Starts an operation in a handler, which is over at once.
    fn start(&self, shard: Shard) {
        let mut run = self.shard(shard).run.lock().unwrap();
        if run.is_open {
            run.collected += 1;
        } else {
            drop(run);
            self.bring(shard);
        }
    }

    /// Lets all threads return.
    fn end(&self) {
        *self.is_over.lock().unwrap() = true;
        self.over.notify_all();
        for shard in self.numbers() {
            let core = self.lock(shard);
            self.shard(shard).condition.notify_all();
            drop(core);
        }
    }

    fn is_over(&self) -> bool {
        *self.is_over.lock().unwrap()
    }

    /// Blocks a handler until its model is over.
    fn block(&self) {
        let mut is_over = self.is_over.lock().unwrap();
        while !*is_over {
            is_over = self.over.wait(is_over).unwrap();
        }
    }

    /// Calls a handler, with the run open if somebody looks after it.
    fn dispatch<'a>(
        &'a self,
        shard: Shard,
        mut core: MutexGuard<'a, Core>,
    ) -> MutexGuard<'a, Core> {
        core.work -= 1;
        core.taken += 1;
        let is_alone = core.handlers + core.followers == 1;
        core.is_open = self.collects && is_alone && core.calls.is_looked_at(&self.waiters);
        self.shard(shard).run.lock().unwrap().is_open = core.is_open;
        if core.work > 0 {
            core.calls.call(&self.waiters, false);
        }
        self.open(core);
        (self.handler)(self, shard);
        let mut core = self.lock(shard);
        self.end_run(shard, &mut core);
        core
    }

    fn end_run(&self, shard: Shard, core: &mut Core) {
        let mut run = self.shard(shard).run.lock().unwrap();
        core.work += std::mem::take(&mut run.collected);
        (core.is_open, run.is_open) = (false, false);
    }

    fn enter<'a>(&'a self, shard: Shard) -> MutexGuard<'a, Core> {
        let mut core = self.lock(shard);
        if core.handlers + core.followers == 1 {
            self.end_run(shard, &mut core);
        }
        core.handlers += 1;
        core
    }

    /// Serves a shard until the model is over.
    fn serve(&self, own: Shard) {
        let mut lookout = Lookout::default();
        let mut core = self.enter(own);
        while !self.is_over() {
            if core.work > 0 {
                core.calls.end_lookout(&self.waiters, &mut lookout);
                core = self.dispatch(own, core);
                continue;
            }
            let was_called = match core.calls.before_wait(&self.waiters, &mut lookout) {
                Before::Wait(until) => {
                    core.handlers -= 1;
                    core.followers += 1;
                    if until.is_none() {
                        core = self.shard(own).condition.wait(core).unwrap();
                    } else {
                        self.open(core);
                        thread::yield_now();
                        self.may_tick.store(true, Ordering::Release);
                        core = self.lock(own);
                    }
                    core.followers -= 1;
                    core.handlers += 1;
                    continue;
                }
                Before::Look { was_called } => was_called,
            };
            self.open(core);
            let begin_tick = || self.may_tick.swap(false, Ordering::AcqRel);
            let greatest_need = |look| self.greatest_need(own, look);
            let advice =
                self.waiters.look(&mut lookout, was_called, false, begin_tick, greatest_need);
            core = self.lock(own);
            if let Advice::Go(Elsewhere::Help(shard)) = lookout.take_advice(advice) {
                core.calls.end_lookout(&self.waiters, &mut lookout);
                core.handlers -= 1;
                self.open(core);
                self.help(shard);
                core = self.enter(own);
            }
        }
        core.calls.end_lookout(&self.waiters, &mut lookout);
        core.handlers -= 1;
        self.open(core);
    }

    fn help(&self, shard: Shard) {
        let mut core = self.enter(shard);
        if core.wants_leader && *self.has_occurred.lock().unwrap() {
            core.wants_leader = false;
            core.work += 1;
        }
        while core.work > 0 && !self.is_over() {
            core = self.dispatch(shard, core);
        }
        core.seen = core.taken;
        core.handlers -= 1;
        self.open(core);
    }

    fn greatest_need(&self, own: Shard, look: Look) -> (Need, Shard) {
        let mut greatest = (Need::Nothing, own);
        for shard in self.numbers().filter(|shard| *shard != own) {
            match self.need(shard, look) {
                Need::Nothing => {}
                Need::Help | Need::Thread => return (Need::Help, shard),
                need => greatest = (need, shard),
            }
        }
        greatest
    }

    fn need(&self, shard: Shard, look: Look) -> Need {
        let mut core = self.lock(shard);
        let gets_on = core.seen != core.taken;
        if look != Look::Between {
            core.seen = core.taken;
        }
        if core.calls.is_looking() {
            return if gets_on { Need::Tick } else { Need::Nothing };
        }
        if look != Look::Between && !gets_on {
            self.end_run(shard, &mut core);
        }
        let sight = Sight {
            threads: core.handlers,
            gets_on,
            has_open_run: core.is_open,
            has_work: core.work > 0,
            wants_leader: core.wants_leader,
            ..Sight::default()
        };
        sight.need(look)
    }
}

fn check(preemptions: usize, steps: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(steps);
}

/// Runs the threads of these shards, and `meanwhile`, until all have returned.
fn run(model: Model, shards: &[Shard], meanwhile: impl FnOnce(&Model)) {
    let model = Arc::new(model);
    let serve = |shard: &Shard| {
        let (model, shard) = (Arc::clone(&model), *shard);
        thread::spawn(move || model.serve(shard))
    };
    let threads: Vec<_> = shards.iter().map(serve).collect();
    meanwhile(&model);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The first handler blocks until the second one is called, which is that of an operation that the first one has
/// started, or of an event that has occurred since.
fn block_until_the_second(model: &Model, shard: Shard) {
    let is_second = std::mem::replace(&mut *model.has_occurred.lock().unwrap(), true);
    if is_second {
        model.end();
        return;
    }
    if model.collects {
        model.start(shard);
    }
    model.block();
}

/// A thread that waits, or is about to, learns of what comes to a shard without a thread.
#[test]
fn loom_work_that_comes_to_a_shard_without_a_thread_is_found() {
    check(3, || {
        let model = Model::new(2, |model, _| model.end());
        run(model, &[0], |model| model.bring(1));
    });
}

/// A thread that ticks finds a handler that blocks, while another one waits and relies on the ticks.
#[test]
fn loom_who_gets_work_leaves_the_ticks_to_another() {
    check(3, || {
        let model = Model::new(3, block_until_the_second);
        model.lock(2).wants_leader = true;
        model.lock(2).work = 1;
        run(model, &[0, 1], |_| {});
    });
}

/// The only thread of a shard blocks in a handler, after it has collected what the handler has started.
#[test]
fn loom_what_a_handler_that_blocks_has_started_is_found() {
    check(3, || {
        let model = Model { collects: true, ..Model::new(2, block_until_the_second) };
        run(model, &[0, 1], |model| model.bring(1));
    });
}
