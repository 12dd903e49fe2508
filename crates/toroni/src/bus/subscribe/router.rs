//! One subscriber with many handlers: what the Toroni paper calls a channel manager's reading side.

use super::interrupter::Interrupter;
use super::message::Message;
use super::subscriber::Subscriber;
use crate::error::{OpenError, ReceiveError};
use crate::topic::Pattern;
use crate::topic::PatternSet;
use crate::topic::interest::Interest;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Receives once and calls each handler whose pattern matches, in the order in which they were added.
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
}

struct Handler {
    interest: Interest,
    call: Box<dyn FnMut(&Message<'_>) + Send>,
}

impl Router {
    pub(in crate::bus) fn new(subscriber: Subscriber) -> Self {
        Self { subscriber, handlers: Vec::new(), on_lapped: None }
    }

    /// Adds a handler for a pattern. It is called for messages that are received from now on.
    ///
    /// # Errors
    /// [`OpenError::Pattern`] if the pattern is malformed.
    pub fn on(
        &mut self,
        pattern: &str,
        handler: impl FnMut(&Message<'_>) + Send + 'static,
    ) -> Result<(), OpenError> {
        let mut patterns = PatternSet::default();
        patterns.push(Pattern::new(pattern)?);
        self.subscriber.add_pattern(pattern)?;
        self.handlers.push(Handler { interest: Interest::new(patterns), call: Box::new(handler) });
        Ok(())
    }

    /// Sets what is called with the messages and bytes that were lost, in place of the error
    /// [`ReceiveError::Lapped`].
    pub fn on_lapped(&mut self, handler: impl FnMut(u64, u64) + Send + 'static) {
        self.on_lapped = Some(Box::new(handler));
    }

    /// Handles all messages that are there, and returns how many.
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

    /// Waits for the next message, no longer than `timeout`, and handles it. Whether there was one.
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
            // Also where messages come so fast that there is never a wait.
            self.subscriber.check_interruption()?;
            self.step(|subscriber| subscriber.receive().map(Some))?;
        }
    }

    /// A descriptor for event loops: when it is readable, call [`Self::poll`]. See
    /// [`Subscriber::fd`].
    ///
    /// # Errors
    /// As [`Subscriber::fd`].
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>, OpenError> {
        self.subscriber.fd()
    }

    /// As [`Subscriber::interrupter`]; it ends [`Self::run`], too.
    ///
    /// # Errors
    /// As [`Subscriber::interrupter`].
    pub fn interrupter(&mut self) -> Result<Interrupter, OpenError> {
        self.subscriber.interrupter()
    }

    /// The subscriber behind it.
    #[must_use]
    pub fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Receives one message and calls its handlers. Whether there was one, or a loss was handled.
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
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Router {
    /// # Panics
    /// If [`Router::fd`] was never called, which makes the descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscriber.as_fd()
    }
}

impl AsRawFd for Router {
    /// # Panics
    /// As [`AsFd::as_fd`] does.
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
