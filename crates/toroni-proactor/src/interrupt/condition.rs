//! The interrupt strategy that is *POSIX_SGI_Strategy* itself: who interrupts changes the word that the leader
//! waits on.

use super::{Activation, InterruptChoice, InterruptStrategy};
use crate::sys::ThreadId;
use crate::wait::Mailbox;
use std::sync::Arc;

/// See the module.
pub(crate) struct Condition {
    mailbox: Arc<Mailbox>,
}

impl Condition {
    /// For the leader that waits for this mailbox.
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox }
    }
}

impl InterruptStrategy for Condition {
    fn choice(&self) -> InterruptChoice {
        InterruptChoice::Callback
    }

    fn interrupt(&mut self, _: ThreadId) {
        self.mailbox.interrupt();
    }

    fn on_leader_activated(&mut self) -> Activation {
        Activation::default()
    }
}
