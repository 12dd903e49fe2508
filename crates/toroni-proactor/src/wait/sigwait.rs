//! *POSIX_SIG_Strategy*: `SIGEV_SIGNAL`, and a leader that takes signals from their queue with `sigtimedwait`.
//!
//! The C library sends its signals to the process, so the kernel delivers one to any thread that does not block
//! it. A handler there records that a notification went astray, and wakes the leader, which checks all
//! operations. A program that blocks the signal in all threads avoids that detour.
//!
//! If the user's signal queue is full, the C library drops the signal without an error: see `recheck.rs`.

use super::recheck::Recheck;
use super::{AioNotification, AioWaitStrategy, Event, Mailbox, Started, WaitStrategy, mailbox};
use crate::interrupt::{self, Gate, InterruptChoice, InterruptStrategy};
use crate::sys::{self, SignalSet};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The maximum number of signals of one wait. Further ones come with the next.
const SIGNALS: usize = 256;

pub(crate) struct Sigwait {
    signal: i32,
    interrupt_signal: OnceLock<i32>,
    mailbox: Mailbox,
    recheck: Recheck,
    leader: Mutex<Leader>,
}

/// The leader's data.
struct Leader {
    events: VecDeque<Event>,
    /// The signals that the thread blocked before it led.
    before: Option<SignalSet>,
}

impl Sigwait {
    /// Creates the strategy with this signal for operations that are over.
    pub(crate) fn new(signal: i32, mailbox: Mailbox) -> Self {
        let leader = Leader { events: VecDeque::with_capacity(SIGNALS), before: None };
        Self {
            signal,
            interrupt_signal: OnceLock::new(),
            mailbox,
            recheck: Recheck::new(),
            leader: Mutex::new(leader),
        }
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
    }

    /// Returns all signals that end a wait. The leader blocks them.
    fn awaited(&self) -> SignalSet {
        let own = self.interrupt_signal.get().copied().unwrap_or(self.signal);
        SignalSet::of(&[self.signal, own, interrupt::SPARE])
    }
}

impl WaitStrategy for Sigwait {
    fn init(&self) -> Result<(), Errno> {
        sys::install_aio_handler(self.signal, mailbox::is_astray)
    }

    fn on_leader_activated(&self, _: Option<SignalSet>) {
        self.leader().before =
            Some(SignalSet::of(&[self.signal, interrupt::SPARE]).block_in_this_thread());
    }

    fn on_leader_deactivated(&self) {
        if let Some(before) = self.leader().before.take() {
            before.set_in_this_thread();
        }
    }

    fn prepare_to_wait(&self, started: Started<'_>) {
        self.recheck.prepare(started);
        self.mailbox.begin_to_wait();
    }

    fn wait(&self, timeout: Option<Duration>) {
        let leader = &mut *self.leader();
        let awaited = self.awaited();
        let mut timeout = self.recheck.limit(timeout);
        if self.mailbox.has_stray() {
            timeout = Some(Duration::ZERO);
        }
        for _ in 0..SIGNALS {
            let Some(taken) = sys::take_signal(&awaited, timeout) else { break };
            if let Some(value) = taken.aio_value {
                match self.mailbox.index_of(value) {
                    Some(index) => leader.events.push_back(Event::Check { index }),
                    // It belongs to another proactor that uses the same signal.
                    None => mailbox::is_astray(self.signal, value),
                }
            }
            timeout = Some(Duration::ZERO);
        }
        self.mailbox.end_to_wait();
        if self.recheck.is_due(self.mailbox.take_stray()) {
            leader.events.push_back(Event::Rescan);
        }
    }

    fn next_event(&self) -> Option<Event> {
        self.leader().events.pop_front()
    }

    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno> {
        match wanted {
            // Taken from the queue like the others, so it need not be repeated.
            InterruptChoice::Signal(number) => {
                self.interrupt_signal.get_or_init(|| number);
                interrupt::create(wanted)
            }
            _ => interrupt::create_for_aio(wanted, &Arc::new(Gate::default())),
        }
    }
}

impl AioWaitStrategy for Sigwait {
    fn notification(&self, index: u32) -> AioNotification {
        AioNotification::Signal { number: self.signal, value: self.mailbox.value(index) }
    }

    fn on_started(&self) {
        if self.recheck.on_started() {
            self.mailbox.nudge();
        }
    }
}
