//! *Interrupt_Signal_Strategy* for waits that take no signal mask, such as `aio_suspend`.
//!
//! The leader blocks the signal, and unblocks it around its wait. A signal that comes just before the system
//! call still provokes nothing. So the leader passes a gate on its way in and out, and the interrupting thread
//! signals again until the leader is out. It does so under the proactor's lock, which a leader does not need to
//! leave its wait.

use super::{Activation, InterruptChoice, InterruptStrategy, Signal};
use crate::hook::{Point, mutant, point};
use crate::sys::{SignalSet, ThreadId};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Whether a leader is in its wait.
#[derive(Default)]
pub(crate) struct Gate {
    is_inside: AtomicBool,
    is_interrupted: AtomicBool,
}

impl Gate {
    /// Called before the leader waits, under the proactor's lock. An interrupt before this was for an earlier
    /// wait.
    pub(crate) fn enter(&self) {
        self.is_interrupted.store(false, Ordering::Relaxed);
        self.is_inside.store(true, Ordering::Release);
    }

    /// Waits, with the signals of the mask blocked and no others, if there is a mask. Does not wait if the
    /// leader was interrupted on its way here.
    pub(crate) fn pass(&self, mask: Option<SignalSet>, wait: impl FnOnce()) {
        let _exit = Exit(self);
        let before = mask.map(SignalSet::set_in_this_thread);
        if !self.is_interrupted.load(Ordering::Acquire) {
            point(Point::BeforeWait);
            wait();
        }
        if let Some(before) = before {
            before.set_in_this_thread();
        }
    }

    fn is_left(&self) -> bool {
        !self.is_inside.load(Ordering::Acquire)
    }
}

/// Marks the leader as out, even after a panic: otherwise another thread would signal for ever.
struct Exit<'a>(&'a Gate);

impl Drop for Exit<'_> {
    fn drop(&mut self) {
        self.0.is_inside.store(false, Ordering::Release);
    }
}

pub(crate) struct Insistent {
    signal: Signal,
    gate: Arc<Gate>,
}

impl Insistent {
    /// Creates the strategy with this signal, for leaders that pass this gate.
    pub(crate) fn new(number: i32, gate: Arc<Gate>) -> Result<Self, Errno> {
        Ok(Self { signal: Signal::new(number)?, gate })
    }
}

impl InterruptStrategy for Insistent {
    fn choice(&self) -> InterruptChoice {
        self.signal.choice()
    }

    fn interrupt(&mut self, leader: ThreadId) {
        /// Checks between two signals, before the leader gets more time. It leaves within microseconds, if it
        /// has a core.
        const CHECKS: usize = 20;
        self.gate.is_interrupted.store(true, Ordering::Release);
        let mut pause = Duration::from_micros(20);
        while !self.gate.is_left() {
            self.signal.interrupt(leader);
            if mutant("interrupts_once") {
                return;
            }
            for _ in 0..CHECKS {
                if self.gate.is_left() {
                    return;
                }
                thread::yield_now();
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    fn on_leader_activated(&mut self) -> Activation {
        self.signal.on_leader_activated()
    }

    fn on_leader_deactivated(&mut self) {
        self.signal.on_leader_deactivated();
    }
}
