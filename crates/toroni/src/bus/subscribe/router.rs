//! One subscriber with many handlers: the reading side of what the Toroni paper calls a channel manager.

use super::interrupter::Interrupter;
use super::message::Message;
use super::subscriber::Subscriber;
use crate::error::{FileError, ReceiveError, SubscriberError};
use crate::topic::interest::Interest;
use crate::topic::{Lost, Pattern, PatternSet};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Receives each message once and calls every handler whose pattern matches, in the order in which the
/// handlers were added.
///
/// It belongs to one thread, which runs the handlers.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-router-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// let mut router = bus.router()?;
/// router.on("plant/*/temperature", |message| println!("{:?}", message.payload()))?;
/// router.on("alarm/**", |message| eprintln!("{}", message.topic()))?;
/// bus.publisher("plant/boiler/temperature")?.publish(b"351.2")?;
/// assert_eq!(router.poll()?, 1);
/// # drop((router, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
pub struct Router {
    subscriber: Subscriber,
    handlers: Vec<Handler>,
    on_lapped: Option<Box<dyn FnMut(u64, u64) + Send>>,
    on_lost: Option<LossHandler>,
}

type LossHandler = Box<dyn FnMut(&Lost) + Send>;

struct Handler {
    interest: Interest,
    call: Box<dyn FnMut(&Message<'_>) + Send>,
}

impl Router {
    pub(in crate::bus) fn new(subscriber: Subscriber) -> Self {
        Self { subscriber, handlers: Vec::new(), on_lapped: None, on_lost: None }
    }

    /// Adds a handler for a pattern. It is called for messages that are received from now on.
    ///
    /// # Errors
    /// See [`Subscriber::add_pattern`].
    pub fn on(
        &mut self,
        pattern: &str,
        handler: impl FnMut(&Message<'_>) + Send + 'static,
    ) -> Result<(), SubscriberError> {
        let mut patterns = PatternSet::default();
        patterns.push(Pattern::new(pattern)?);
        self.subscriber.add_pattern(pattern)?;
        self.handlers.push(Handler { interest: Interest::new(patterns), call: Box::new(handler) });
        Ok(())
    }

    /// Sets the function that is called with the number of lost messages and bytes, in place of the error
    /// [`ReceiveError::Lapped`].
    pub fn on_lapped(&mut self, handler: impl FnMut(u64, u64) + Send + 'static) {
        self.on_lapped = Some(Box::new(handler));
    }

    /// Sets the function that is called with each loss on the way to this bus that concerns a handler's pattern, in
    /// place of the error [`ReceiveError::Lost`].
    pub fn on_lost(&mut self, handler: impl FnMut(&Lost) + Send + 'static) {
        self.on_lost = Some(Box::new(handler));
    }

    /// Handles all messages that are there. Returns how many there were; a loss that was handled counts, too.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn poll(&mut self) -> Result<usize, ReceiveError> {
        let mut count = 0;
        while self.step(Subscriber::try_receive)? {
            count += 1;
        }
        Ok(count)
    }

    /// Handles the next message. Returns false if there is none within `timeout`.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn run_once(&mut self, timeout: Duration) -> Result<bool, ReceiveError> {
        self.step(|subscriber| subscriber.receive_timeout(timeout))
    }

    /// Handles messages until there is an error, such as [`ReceiveError::Interrupted`].
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn run(&mut self) -> Result<std::convert::Infallible, ReceiveError> {
        loop {
            // Also if messages come so fast that there is never a wait.
            self.subscriber.check_interruption()?;
            self.step(|subscriber| subscriber.receive().map(Some))?;
        }
    }

    /// Returns a descriptor for event loops: when it is readable, call [`Self::poll`]. See
    /// [`Subscriber::fd`].
    ///
    /// # Errors
    /// See [`Subscriber::fd`].
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>, FileError> {
        self.subscriber.fd()
    }

    /// Makes a handle that ends blocking calls, including [`Self::run`]; see [`Subscriber::interrupter`].
    ///
    /// # Errors
    /// See [`Subscriber::interrupter`].
    pub fn interrupter(&mut self) -> Result<Interrupter, FileError> {
        self.subscriber.interrupter()
    }

    /// Returns the router's subscriber.
    #[must_use]
    pub fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Receives one message and calls its handlers. Returns whether there was a message, or a loss was
    /// handled.
    fn step(
        &mut self,
        receive: impl FnOnce(&mut Subscriber) -> Result<Option<Message<'_>>, ReceiveError>,
    ) -> Result<bool, ReceiveError> {
        match receive(&mut self.subscriber) {
            Ok(None) => Ok(false),
            Ok(Some(message)) => {
                for handler in &mut self.handlers {
                    if message.is_for(&mut handler.interest) {
                        (handler.call)(&message);
                    }
                }
                Ok(true)
            }
            Err(ReceiveError::Lapped { lost_messages, lost_bytes }) if self.on_lapped.is_some() => {
                if let Some(handler) = &mut self.on_lapped {
                    handler(lost_messages, lost_bytes);
                }
                Ok(true)
            }
            Err(ReceiveError::Lost(lost)) if self.on_lost.is_some() => {
                if let Some(handler) = &mut self.on_lost {
                    handler(&lost);
                }
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Router {
    /// # Panics
    /// Panics if [`Router::fd`], which makes the descriptor, was not called before.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscriber.as_fd()
    }
}

impl AsRawFd for Router {
    /// # Panics
    /// Panics as [`AsFd::as_fd`] does.
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Router")
            .field("subscriber", &self.subscriber)
            .field("handlers", &self.handlers.len())
            .finish_non_exhaustive()
    }
}
