//! *POSIX_SGI_Strategy*: `SIGEV_THREAD` in the place of Irix's `SIGEV_CALLBACK`. For each operation that is
//! over, the C library calls a function in a thread of its own, and that function wakes the leader.
//!
//! The leader waits at a word in memory, which is what a condition variable consists of; unlike one, such a
//! wait also ends with a signal. The word is the strategy's own interrupt, too.
//!
//! The C library does not make a call for which there is no memory: see `recheck.rs`.

use super::recheck::Recheck;
use super::{
    AioNotification, AioWaitStrategy, Event, FOR_EVER, Mailbox, Started, WaitStrategy, mailbox,
};
use crate::interrupt::{self, Condition, Gate, InterruptChoice, InterruptStrategy};
use crate::sys::SignalSet;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) struct Callback {
    mailbox: Arc<Mailbox>,
    gate: Arc<Gate>,
    recheck: Recheck,
    leader: Mutex<Leader>,
}

/// The leader's data.
#[derive(Default)]
struct Leader {
    notifications: Vec<u32>,
    /// All operations have to be checked.
    recheck: bool,
    mask: Option<SignalSet>,
}

impl Callback {
    pub(crate) fn new(mailbox: Mailbox) -> Self {
        Self {
            mailbox: Arc::new(mailbox),
            gate: Arc::new(Gate::default()),
            recheck: Recheck::new(),
            leader: Mutex::default(),
        }
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
    }
}

impl WaitStrategy for Callback {
    fn on_leader_activated(&self, while_waiting: Option<SignalSet>) {
        self.leader().mask = while_waiting;
    }

    fn prepare_to_wait(&self, started: Started<'_>) {
        self.recheck.prepare(started);
        self.mailbox.prepare();
        self.gate.enter();
    }

    fn wait(&self, timeout: Option<Duration>) {
        let leader = &mut *self.leader();
        let timeout = self.recheck.limit(timeout).unwrap_or(FOR_EVER);
        self.gate.pass(leader.mask, || self.mailbox.wait(timeout.min(FOR_EVER)));
        self.mailbox.take_notifications(&mut leader.notifications);
        // Taken from the end, so the oldest comes first.
        leader.notifications.reverse();
        leader.recheck |= self.recheck.is_due(false);
    }

    fn next_event(&self) -> Option<Event> {
        let mut leader = self.leader();
        match leader.notifications.pop() {
            Some(index) => Some(Event::Check { index }),
            None => std::mem::take(&mut leader.recheck).then_some(Event::Rescan),
        }
    }

    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno> {
        match wanted {
            InterruptChoice::Callback => Ok(Box::new(Condition::new(Arc::clone(&self.mailbox)))),
            _ => interrupt::create_for_aio(wanted, &self.gate),
        }
    }
}

impl AioWaitStrategy for Callback {
    fn notification(&self, index: u32) -> AioNotification {
        AioNotification::Thread { function: mailbox::is_over, value: self.mailbox.value(index) }
    }

    fn on_started(&self) {
        if self.recheck.on_started() {
            self.mailbox.interrupt();
        }
    }
}
