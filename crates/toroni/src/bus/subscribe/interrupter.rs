//! Ending a blocked call from elsewhere: another thread, or a signal handler.

use super::claim::Subscribing;
use crate::notify::futex;
use crate::sync::{AtomicU32, Ordering};
use rustix::net::{SendFlags, send};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Ends a blocking call of a subscriber or router, from another thread or from a signal handler; made by
/// [`Subscriber::interrupter`](crate::Subscriber::interrupter).
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
    /// Where the subscriber sleeps on its descriptor: what sends to that.
    sender: Option<Arc<OwnedFd>>,
}

/// What an interrupter asks its subscriber for: nothing, or (1) the end of its blocking call.
#[derive(Debug, Default)]
pub(super) struct Request(AtomicU32);

impl Request {
    /// Whether there was one; it is answered with this.
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
        sender: Option<OwnedFd>,
    ) -> Self {
        Self { request, subscribing, sender: sender.map(Arc::new) }
    }

    /// Ends the blocking call that the subscriber is in with [`ReceiveError::Interrupted`](crate::ReceiveError::Interrupted); if it is in none,
    /// the next one that would wait: not `try_receive`, nor a time limit of 0. Requests are not counted: several
    /// before that are one.
    ///
    /// As a rule the call ends at once. In a rare interleaving it has looked for a request just before this
    /// one, and begins to sleep just behind it: then it ends with its next look, a quarter of a second later
    /// at the most.
    ///
    /// Async-signal-safe: a store and a system call. It also wakes the other subscribers that sleep, for a
    /// look.
    pub fn interrupt(&self) {
        self.request.0.store(1, Ordering::Relaxed);
        match &self.sender {
            // A full queue is readable already.
            Some(sender) => {
                let _ = send(sender, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
            // Not by a change of the word, which is the publishers': hence the interleaving above.
            None => futex::wake_all(self.subscribing.eventcount().wake),
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
