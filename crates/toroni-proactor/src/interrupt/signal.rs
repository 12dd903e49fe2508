//! *Interrupt_Signal_Strategy*: a signal to the leader's thread.
//!
//! In the paper's words the signal provokes `EINTR`. A signal that comes between the leader's last look
//! and its system call provokes nothing, and the wake-up is lost. So it is blocked in the leader, and let
//! through by the wait itself, which takes a mask: the kernel delivers a blocked signal the moment that
//! the wait begins.

use super::{Activation, InterruptChoice, InterruptStrategy};
use crate::sys::{self, SignalSet, ThreadId};
use rustix::io::Errno;

/// See the module.
pub(crate) struct Signal {
    number: i32,
    /// What the leader blocked before.
    before: Option<SignalSet>,
}

impl Signal {
    /// With this signal. Installs a handler that does nothing, unless a handler is installed.
    pub(crate) fn new(number: i32) -> Result<Self, Errno> {
        sys::ensure_handler(number)?;
        Ok(Self { number, before: None })
    }
}

impl InterruptStrategy for Signal {
    fn choice(&self) -> InterruptChoice {
        InterruptChoice::Signal(self.number)
    }

    fn interrupt(&mut self, leader: ThreadId) {
        leader.signal(self.number);
    }

    fn on_leader_activated(&mut self) -> Activation {
        let before = SignalSet::block_in_this_thread(self.number);
        let while_waiting = before.without(self.number);
        self.before = Some(before);
        Activation { while_waiting: Some(while_waiting) }
    }

    fn on_leader_deactivated(&mut self) {
        if let Some(before) = self.before.take() {
            before.set_in_this_thread();
        }
    }
}
