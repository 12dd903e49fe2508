//! Ending a blocked call from another thread or a signal handler.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::claim::Subscribing;
use crate::notify::futex;
use crate::sync::{AtomicU32, Ordering};
use rustix::net::{SendFlags, send};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Ends a blocking call of a subscriber or router from another thread or from a signal handler.
/// [`Subscriber::interrupter`](crate::Subscriber::interrupter) makes it.
///
/// It keeps the memory of the bus mapped as long as it lives.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-interrupt-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// use toroni::ReceiveError;
///
/// let mut subscriber = bus.subscribe("**")?;
/// let interrupter = subscriber.interrupter()?;
/// let receiver = std::thread::spawn(move || {
///     loop {
///         match subscriber.receive() {
///             Ok(message) => println!("{}", message.text()),
///             Err(ReceiveError::Interrupted) => break,
///             Err(error) => eprintln!("{error}"),
///         }
///     }
/// });
/// interrupter.interrupt();
/// receiver.join().expect("it ends by itself");
/// # drop((interrupter, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Interrupter {
    request: Arc<Request>,
    subscribing: Arc<Subscribing>,
    /// The slot of the subscriber.
    slot: u32,
    /// If the subscriber sleeps on its descriptor: a socket that sends to it.
    sender: Option<Arc<OwnedFd>>,
}

/// What an interrupter asks its subscriber for: nothing (0), or the end of its blocking call (1).
#[derive(Debug, Default)]
pub(super) struct Request(AtomicU32);

impl Request {
    /// Returns whether there was a request, and clears it.
    #[inline]
    pub(super) fn take(&self) -> bool {
        // No order is needed: nothing but the request itself is handed over.
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Relaxed) != 0
    }
}

impl Interrupter {
    pub(super) fn new(
        request: Arc<Request>,
        subscribing: Arc<Subscribing>,
        slot: u32,
        sender: Option<OwnedFd>,
    ) -> Self {
        Self { request, subscribing, slot, sender: sender.map(Arc::new) }
    }

    /// Ends the blocking call that the subscriber is in: the call returns
    /// [`ReceiveError::Interrupted`](crate::ReceiveError::Interrupted). If the subscriber is in none, this
    /// ends its next call that would wait, which is neither `try_receive` nor a call with a time limit of
    /// 0. Several requests before that count as one.
    ///
    /// Usually the call ends at once. In a rare interleaving the call has checked for a request just
    /// before this one and begins to sleep just after it. Then it ends with its next check, 250 ms later
    /// at the most.
    ///
    /// It is async-signal-safe: a store and a system call.
    pub fn interrupt(&self) {
        self.request.0.store(1, Ordering::Relaxed);
        match &self.sender {
            // A full queue is readable already.
            Some(sender) => {
                let _ = send(sender, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
            // The word belongs to the publishers and is not changed: hence the interleaving above.
            None => futex::wake_all(self.subscribing.wake_word(self.slot)),
        }
    }
}

impl fmt::Debug for Interrupter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Interrupter")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
