//! *Interrupt_Signal_Strategy*: a signal to the leader's thread.
//!
//! In the paper's words the signal provokes `EINTR`. A signal that comes between the leader's last look
//! and its system call provokes nothing, and the wake-up is lost. So it is blocked in the leader, and let
//! through by the wait itself, which takes a mask: the kernel delivers a blocked signal the moment that
//! the wait begins.
//!
//! A real-time signal is refused while the user's queue of signals is full. Then the leader gets another one,
//! which never is.

use super::{Activation, InterruptChoice, InterruptStrategy};
use crate::hook::mutant;
use crate::sys::{self, SignalSet, ThreadId};
use rustix::io::Errno;

/// What a leader gets that its own signal is refused for. The kernel sends it for urgent data to who asked for
/// that, which is rare, and ignores it by default.
pub(crate) const SPARE: i32 = libc::SIGURG;

/// See the module.
pub(crate) struct Signal {
    number: i32,
    /// What the leader blocked before.
    before: Option<SignalSet>,
}

impl Signal {
    /// With this signal. Installs handlers that do nothing, unless handlers are installed.
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
