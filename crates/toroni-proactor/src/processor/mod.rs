//! Processors: the paper's *AIO_Processor*. A processor owns the started and the deferred operations of one
//! engine, plans starts and cancellations, and is led by one thread at a time.

pub(crate) mod attempt;
mod cancel_aio;
mod dedicated;
mod handle_aio_events;
mod slots;
mod start_aio;

pub(crate) use dedicated::run_dedicated;
pub(crate) use slots::{Limit, Slots};

use crate::interrupt::InterruptStrategy;
use crate::operation::{Key, List, Membership, Pool, Request};
use crate::provider::{Attempt, Engine, Provider};
use crate::sys::ThreadId;
use crate::wait::WaitStrategy;
use std::sync::Arc;

pub(crate) struct Processor {
    is_dedicated: bool,
    /// Operations beyond it are deferred.
    limit: Limit,
    started: List,
    deferred: List,
    /// Finished, or READY, and not yet passed on: empty whenever the lock is released.
    finished: List,
    /// The number of operations that are READY: at the dispatcher, or being attempted.
    ready: usize,
    provider: Box<dyn Provider>,
    /// [`Provider::attempt`], asked once.
    attempt: Attempt,
    wait: Arc<dyn WaitStrategy>,
    interrupt: Box<dyn InterruptStrategy>,
    /// The reusable read of the interrupt strategy.
    interrupt_read: u32,
    /// Whether that read is started.
    reads_interrupts: bool,
    leader: Option<Leader>,
    /// Operations that the engine could not be asked to cancel yet.
    cancellations: Vec<Key>,
}

/// The thread that leads.
#[derive(Clone, Copy, Debug)]
struct Leader {
    thread: ThreadId,
    /// It waits, or is about to.
    waits: bool,
    /// It waits, and will leave the wait.
    is_interrupted: bool,
}

impl Processor {
    /// Creates a processor with this engine.
    pub(crate) fn new(
        number: usize,
        is_dedicated: bool,
        limit: Limit,
        engine: Engine,
        pool: &mut Pool,
    ) -> Self {
        let interrupt_read = pool.create(Request::timer(), None).index;
        Self {
            is_dedicated,
            limit,
            started: List::new(Membership::Started(number)),
            deferred: List::new(Membership::Deferred(number)),
            finished: List::new(Membership::Finished(number)),
            ready: 0,
            attempt: engine.provider.attempt(),
            provider: engine.provider,
            wait: engine.wait,
            interrupt: engine.interrupt,
            interrupt_read,
            reads_interrupts: false,
            leader: None,
            cancellations: Vec::new(),
        }
    }

    pub(crate) fn is_dedicated(&self) -> bool {
        self.is_dedicated
    }

    /// Returns whether a thread in `handle_events` may lead it: it has no leader, has something to wait for,
    /// and is not dedicated.
    pub(crate) fn wants_leader(&self) -> bool {
        self.leader.is_none() && !self.is_dedicated && self.waits_for() > 0
    }

    pub(crate) fn is_led(&self) -> bool {
        self.leader.is_some()
    }

    /// Returns whether its leader waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.leader.is_some_and(|leader| leader.waits)
    }

    /// Returns whether its leader waits and will leave the wait.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.leader.is_some_and(|leader| leader.is_interrupted)
    }

    /// `interrupt`: does nothing if there is no leader, or the leader is awake or already interrupted.
    pub(crate) fn interrupt_leader(&mut self) {
        if let Some(leader) = &mut self.leader
            && leader.waits
            && !leader.is_interrupted
        {
            leader.is_interrupted = true;
            self.interrupt.interrupt(leader.thread);
        }
    }

    /// `acquire_leadership`, for this thread. There must be no leader.
    pub(crate) fn acquire_leadership(&mut self, thread: ThreadId) {
        assert!(self.leader.is_none(), "a processor has one leader");
        self.leader = Some(Leader { thread, waits: false, is_interrupted: false });
        let activation = self.interrupt.on_leader_activated();
        self.wait.on_leader_activated(activation.while_waiting);
    }

    /// `release_leadership`, by the thread that acquired it.
    pub(crate) fn release_leadership(&mut self) {
        assert!(self.leader.take().is_some(), "a leader releases its leadership");
        self.wait.on_leader_deactivated();
        self.interrupt.on_leader_deactivated();
    }

    /// Returns the number of operations that a leader waits for or starts: without those that are READY, and
    /// without the read of the interrupt strategy.
    fn waits_for(&self) -> usize {
        self.started.len() - usize::from(self.reads_interrupts) + self.deferred.len()
    }

    /// Returns whether there is nothing that a leader waits for, starts or has to be attempted.
    pub(crate) fn is_idle_but_for_interrupts(&self) -> bool {
        self.waits_for() == 0 && self.ready == 0
    }

    /// Returns whether the engine holds no operation of any kind.
    pub(crate) fn is_idle(&self) -> bool {
        self.started.is_empty() && self.deferred.is_empty() && self.ready == 0
    }

    /// Completes the read of the interrupt strategy, if it is started, by an interrupt. This thread leads.
    fn end_internal_read(&mut self) {
        if self.reads_interrupts
            && let Some(leader) = self.leader
        {
            self.interrupt.interrupt(leader.thread);
        }
    }

    /// `fini`: called when it is idle.
    pub(crate) fn fini(&self) {
        self.wait.fini();
    }

    /// Leaves a cancellation to the leader, because the engine's queue is full. The leader requests it before
    /// it waits again.
    fn cancel_later(&mut self, key: Key) {
        self.cancellations.push(key);
    }

    /// Returns the number of operations that are started and not over, without the read of the interrupt
    /// strategy.
    pub(crate) fn in_progress(&self) -> usize {
        self.started.len() - usize::from(self.reads_interrupts) + self.ready
    }

    /// Returns whether one more operation is to be deferred.
    fn is_full(&mut self) -> bool {
        let in_progress = self.in_progress();
        self.limit.is_reached(in_progress)
    }

    /// Gives slots back. Returns whether another shard wants them.
    pub(crate) fn give_slots_back(&mut self) -> bool {
        let in_progress = self.in_progress();
        self.limit.give_back(in_progress)
    }

    /// Returns whether operations are deferred.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn is_led_by_this_thread(&self) -> bool {
        self.leader.is_some_and(|leader| leader.thread == ThreadId::current())
    }
}
