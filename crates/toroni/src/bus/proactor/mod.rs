//! Subscribers in a proactor: one thread serves many of them, and sockets, files and timers.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("toroni-doc-proactor-{}", std::process::id()));
//! # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
//! use toroni::ReceiveError;
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
//!     Err(ReceiveError::Lapped { lost_messages, .. }) => eprintln!("missed {lost_messages}"),
//!     Err(error) => eprintln!("{error}"), // the last call
//! })?;
//! # let publisher = bus.publisher("plant/pump")?;
//! # proactor.timer(std::time::Duration::from_millis(1), move |_| publisher.publish("on").unwrap())?;
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
//! With an io_uring, on Linux 6.7 and newer, the subscriber's futex is waited for directly, on a bus that wakes by
//! futex (the default); else the subscriber's descriptor, which is made if it is not there. Nobody polls, so
//! the subscriber's [`WaitStrategy`](crate::WaitStrategy) does not matter.
//!
//! As with a blocking call, the bus is looked at when no wake-up came, too: after 50 ms, and after a second
//! of silence every 250 ms. All subscribers of a process do that at the same moments.
//!
//! # Publishing in a handler
//!
//! A handler may publish, on any bus. One thing to know: while it runs, nothing is received in its thread.
//! Where a publisher waits for slow subscribers and such a one is served by this very thread, publishing
//! fails with [`PublishError::WouldWaitForItself`](crate::PublishError) in place of waiting for ever.

mod receiver;
mod served;
mod subscription;
mod waiting;

#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use subscription::Subscription;

use crate::bus::{Message, Subscriber};
use crate::error::{OpenError, ReceiveError};
use served::Served;
use toroni_proactor::{Proactor, SetupError, StartError};
use waiting::{Rechecks, Waits};

/// What a proactor can do with a subscriber.
pub trait Subscribe {
    /// Calls a handler with each message of a subscriber, in order, in a thread that handles the proactor's
    /// events; never in two at a time.
    ///
    /// The handler is told of losses and errors as the callers of [`Subscriber::receive`] are. After
    /// [`ReceiveError::Lapped`], [`ReceiveError::Interrupted`] and a message that makes no sense, which is
    /// passed over, it goes on; any other error is the last call. A handler that panics is not called again.
    ///
    /// Messages without end starve nobody: after 32 of them, everything else that is ready has its turn.
    ///
    /// The subscription ends by [`Subscription::cancel`], for which the handler is given the subscription,
    /// too; by an error; and with the proactor. The subscriber comes back: [`Subscription::take_back`]. To
    /// drop the subscription ends nothing.
    ///
    /// # Errors
    /// If there is no descriptor for it, or the proactor is stopping. The subscriber comes back.
    fn subscribe(
        &self,
        subscriber: Subscriber,
        handler: impl FnMut(Result<Message<'_>, ReceiveError>, &Subscription) + Send + 'static,
    ) -> Result<Subscription, NotSubscribed>;

    /// The same for async code, on this proactor's `block_on` or any other executor, as long as threads
    /// handle the proactor's events.
    ///
    /// # Errors
    /// As [`Subscribe::subscribe`].
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

/// A subscriber that a proactor did not take, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSubscribed {
    /// Why.
    pub error: SubscribeError,
    /// As it was; it may have got a descriptor.
    pub subscriber: Box<Subscriber>,
}

/// Why a proactor does not take a subscriber.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The subscriber's descriptor could not be made, or it belongs to the parent process.
    #[error(transparent)]
    Subscriber(#[from] OpenError),
    /// The proactor could not take the descriptor.
    #[error(transparent)]
    Descriptor(#[from] SetupError),
    /// The proactor starts nothing.
    #[error(transparent)]
    Start(#[from] StartError),
}
