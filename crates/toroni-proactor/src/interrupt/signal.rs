//! *Interrupt_Signal_Strategy*: a signal to the leader's thread.
//!
//! In the paper's words the signal provokes `EINTR`. But a signal between the leader's last check and its
//! system call provokes nothing, and the wake-up is lost. So the leader blocks the signal, and the wait itself
//! unblocks it by a mask: the kernel delivers a blocked signal the moment that the wait begins.
//!
//! The kernel refuses a real-time signal while the user's signal queue is full. Then the leader receives
//! another signal, which is never refused.

use super::{Activation, InterruptChoice, InterruptStrategy};
use crate::hook::mutant;
use crate::sys::{self, SignalSet, ThreadId};
use rustix::io::Errno;

/// The signal that a leader receives if its own is refused. The kernel sends it for urgent data to programs
/// that ask for that, which is rare, and ignores it by default.
pub(crate) const SPARE: i32 = libc::SIGURG;

pub(crate) struct Signal {
    number: i32,
    /// The signals that the leader blocked before.
    before: Option<SignalSet>,
}

impl Signal {
    /// Creates the strategy with this signal. Installs handlers that do nothing, unless the signals have
    /// handlers.
    pub(crate) fn new(number: i32) -> Result<Self, Errno> {
        sys::ensure_handler(number)?;
        sys::ensure_handler(SPARE)?;
        Ok(Self { number, before: None })
    }
}

impl InterruptStrategy for Signal {
    fn choice(&self) -> InterruptChoice {
        InterruptChoice::Signal(self.number)
    }

    fn interrupt(&mut self, leader: ThreadId) {
        if !leader.signal(self.number) {
            leader.signal(SPARE);
        }
    }

    fn on_leader_activated(&mut self) -> Activation {
        if mutant("signal_unblocked") {
            return Activation::default();
        }
        let before = SignalSet::of(&[self.number, SPARE]).block_in_this_thread();
        let while_waiting = before.without(self.number).without(SPARE);
        self.before = Some(before);
        Activation { while_waiting: Some(while_waiting) }
    }

    fn on_leader_deactivated(&mut self) {
        if let Some(before) = self.before.take() {
            before.set_in_this_thread();
        }
    }
}
