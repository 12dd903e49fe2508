//! The interrupt strategy that *POSIX_SGI_Strategy* itself is: the interrupting thread changes the word that
//! the leader waits at.

use super::{Activation, InterruptChoice, InterruptStrategy};
use crate::sys::ThreadId;
use crate::wait::Mailbox;
use std::sync::Arc;

pub(crate) struct Condition {
    mailbox: Arc<Mailbox>,
}

impl Condition {
    /// Creates the strategy for the leader that waits at this mailbox.
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
