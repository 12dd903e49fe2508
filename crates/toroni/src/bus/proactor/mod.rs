//! Subscribers in a proactor: one thread serves many of them, and sockets, files and timers.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("toroni-doc-proactor-{}", std::process::id()));
//! # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
//! use toroni::proactor::Subscribe;
//! use toroni_proactor::Proactor;
//!
//! let proactor = Proactor::from_environment()?;
//! let stopping = proactor.clone();
//! proactor.subscribe(bus.subscribe("plant/**")?, move |message, _| match message {
//!     Ok(message) => {
//!         println!("{} {}", message.topic(), message.text());
//!         stopping.stop();
//!     }
//!     Err(loss) if loss.is_loss() => eprintln!("{loss}"),
//!     Err(error) => eprintln!("{error}"), // the last call
//! })?;
//! # let publisher = bus.publisher("plant/pump")?;
//! # proactor.timer(std::time::Duration::from_millis(1), move |_| {
//! #     publisher.publish("on").unwrap();
//! # })?;
//! // Sockets, files, timers, more subscribers …
//! proactor.run();
//! # drop((proactor, bus));
//! # std::fs::remove_dir_all(directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it waits
//!
//! If the proactor has an io_uring on Linux 6.7 or newer, and the bus wakes by futex (the default), the
//! proactor waits for the futex directly. Otherwise it waits for the subscriber's descriptor, and makes it
//! if necessary. Nothing polls, so the subscriber's [`WaitStrategy`](crate::WaitStrategy) does not matter.
//!
//! As a safety net the proactor checks the bus every 50 ms, and every 250 ms after a second of silence, as
//! a blocking call does. It checks for all subscribers of a process at the same moments.
//!
//! # Publishing in a handler
//!
//! A handler may publish on any bus. While it runs, its thread receives nothing. If the publish has to
//! wait for a slow subscriber that this very thread serves, it would wait for ever; it returns
//! [`PublishError::WouldWaitForItself`](crate::PublishError) instead.

mod receiver;
mod served;
mod subscription;
mod waiting;

#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use subscription::Subscription;

use crate::bus::{Message, Subscriber};
use crate::error::{FileError, ReceiveError};
use served::Served;
use toroni_proactor::{Proactor, SetupError, StartError};
use waiting::{Rechecks, Waits};

/// The functions of a proactor for subscribers.
pub trait Subscribe {
    /// Calls a handler with each message of a subscriber, in order, in a thread that handles the
    /// proactor's events. The handler never runs in two threads at a time.
    ///
    /// The handler gets losses and errors as callers of [`Subscriber::receive`] do. After
    /// a [loss](ReceiveError::is_loss), [`ReceiveError::Interrupted`], and a corrupt message or value, which is skipped, the
    /// subscription continues. Any other error is the last call. A handler that panics is not called
    /// again.
    ///
    /// Messages without end starve no other operation: after 32 of them, everything else that is ready is
    /// handled.
    ///
    /// The subscription ends by [`Subscription::cancel`], which the handler can call on the subscription
    /// that it is given; by an error; and with the proactor. Afterwards [`Subscription::take_back`]
    /// returns the subscriber. Dropping the subscription does not end it.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be made or the proactor is stopping. The error contains
    /// the subscriber.
    fn subscribe(
        &self,
        subscriber: Subscriber,
        handler: impl FnMut(Result<Message<'_>, ReceiveError>, &Subscription) + Send + 'static,
    ) -> Result<Subscription, NotSubscribed>;

    /// Makes a receiver for async code, on this proactor's `block_on` or any other executor, as long as
    /// threads handle the proactor's events.
    ///
    /// # Errors
    /// See [`Subscribe::subscribe`].
    fn receiver(&self, subscriber: Subscriber) -> Result<Receiver, NotSubscribed>;
}

impl Subscribe for Proactor {
    fn subscribe(
        &self,
        subscriber: Subscriber,
        handler: impl FnMut(Result<Message<'_>, ReceiveError>, &Subscription) + Send + 'static,
    ) -> Result<Subscription, NotSubscribed> {
        Served::start(self, subscriber, Box::new(handler), Rechecks::Usual)
    }

    fn receiver(&self, subscriber: Subscriber) -> Result<Receiver, NotSubscribed> {
        let mut subscriber = subscriber;
        match Waits::new(self, &mut subscriber) {
            Ok(waits) => Ok(Receiver::new(self, subscriber, waits)),
            Err(error) => Err(NotSubscribed { error, subscriber: Box::new(subscriber) }),
        }
    }
}

/// A subscriber that a proactor did not accept, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSubscribed {
    /// The reason.
    pub error: ServeError,
    /// The subscriber as it was, except that it may have got a descriptor.
    pub subscriber: Box<Subscriber>,
}

/// Why a proactor does not accept a subscriber.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The subscriber's descriptor could not be made, or it belongs to the parent process.
    #[error(transparent)]
    File(#[from] FileError),
    /// The proactor could not accept the descriptor.
    #[error(transparent)]
    Descriptor(#[from] SetupError),
    /// The proactor does not start operations.
    #[error(transparent)]
    Start(#[from] StartError),
}
