//! *POSIX_STD_Strategy*: `aio_suspend` over the started operations.
//!
//! The C library receives the list with each wait, so starts interrupt a leader that waits. The wait takes no
//! signal mask: see `interrupt/insistent.rs`.

use super::{AioNotification, AioWaitStrategy, Event, FOR_EVER, Started, WaitStrategy};
use crate::interrupt::{self, Gate, InterruptChoice, InterruptStrategy};
use crate::provider::posix::{Blocks, Suspended};
use crate::sys::SignalSet;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) struct Suspend {
    blocks: Arc<Blocks>,
    gate: Arc<Gate>,
    leader: Mutex<Leader>,
}

/// The leader's data.
#[derive(Default)]
struct Leader {
    list: Suspended,
    /// The number of operations that `next_event` has checked.
    seen: usize,
    mask: Option<SignalSet>,
}

impl Suspend {
    pub(crate) fn new(blocks: Arc<Blocks>) -> Self {
        Self { blocks, gate: Arc::new(Gate::default()), leader: Mutex::default() }
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
    }
}

impl WaitStrategy for Suspend {
    fn on_leader_activated(&self, while_waiting: Option<SignalSet>) {
        self.leader().mask = while_waiting;
    }

    fn prepare_to_wait(&self, started: Started<'_>) {
        let leader = &mut *self.leader();
        leader.seen = 0;
        self.blocks.list(started.map(|(index, _)| index), &mut leader.list);
        self.gate.enter();
    }

    fn wait(&self, timeout: Option<Duration>) {
        let leader = &*self.leader();
        let timeout = timeout.map_or(FOR_EVER, |timeout| timeout.min(FOR_EVER));
        self.gate.pass(leader.mask, || self.blocks.suspend(&leader.list, timeout));
    }

    fn next_event(&self) -> Option<Event> {
        let leader = &mut *self.leader();
        loop {
            let index = leader.list.get(leader.seen)?;
            leader.seen += 1;
            if self.blocks.is_over(index) {
                return Some(Event::Check { index });
            }
        }
    }

    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno> {
        interrupt::create_for_aio(wanted, &self.gate)
    }
}

impl AioWaitStrategy for Suspend {
    fn notification(&self, _: u32) -> AioNotification {
        AioNotification::None
    }

    fn has_a_list(&self) -> bool {
        true
    }
}
