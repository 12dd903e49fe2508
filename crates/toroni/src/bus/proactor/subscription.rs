//! The handle of a subscriber that a proactor serves.

use super::served::Served;
use crate::bus::Subscriber;
use std::fmt;
use std::sync::Arc;

/// A subscriber that a proactor serves, to end that. Clones are the same; dropping them ends nothing.
#[derive(Clone)]
pub struct Subscription(pub(super) Arc<Served>);

impl Subscription {
    /// Ends it. If the handler is running, that is its last call; else there is none any more.
    ///
    /// By the handler itself or by any thread. [`Subscription::on_end`] says when it is over.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it is over: the handler has been dropped, and the subscriber can be taken back.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// The subscriber, once it is over; the first call gets it. It goes on behind the last message that the
    /// handler was given.
    #[must_use]
    pub fn take_back(&self) -> Option<Subscriber> {
        self.0.take_back()
    }

    /// Calls a handler when it is over, in a thread that handles the proactor's events; if there is no such
    /// proactor any more, at once, in this one. It may [take the subscriber back](Self::take_back).
    pub fn on_end<F: FnOnce(&Subscription) + Send + 'static>(&self, handler: F) {
        self.0.on_end(Box::new(handler));
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subscription").field("is_over", &self.is_over()).finish()
    }
}
