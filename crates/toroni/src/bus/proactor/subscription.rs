//! The handle of a subscriber that a proactor serves.

use super::served::Served;
use crate::bus::Subscriber;
use std::fmt;
use std::sync::Arc;

/// A handle to end the service of a subscriber by a proactor. Clones are handles of the same subscription;
/// dropping them does not end it.
#[derive(Clone)]
pub struct Subscription(pub(super) Arc<Served>);

impl Subscription {
    /// Ends the subscription. If the handler is running, that is its last call; otherwise it is not called
    /// again.
    ///
    /// The handler itself or any thread may call this. [`Subscription::on_end`] reports when the
    /// subscription is over.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Returns whether it is over: then the handler has been dropped, and the subscriber can be taken
    /// back.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Returns the subscriber when the subscription is over; only the first call gets it. The subscriber
    /// continues after the last message that the handler got.
    #[must_use]
    pub fn take_back(&self) -> Option<Subscriber> {
        self.0.take_back()
    }

    /// Calls a handler when it is over, in a thread that handles the proactor's events. If the proactor
    /// was dropped, calls it at once, in this thread. The handler may [take the subscriber
    /// back](Self::take_back).
    pub fn on_end<F: FnOnce(&Subscription) + Send + 'static>(&self, handler: F) {
        self.0.on_end(Box::new(handler));
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subscription").field("is_over", &self.is_over()).finish()
    }
}
