//! Receiving: one reader of the bus's stream, which passes on what matches its patterns.

use crate::bus::local::LocalReader;
use crate::bus::subscribe::backoff::{Backoff, WaitStrategy};
use crate::bus::subscribe::builder::{ReaderClaim, Subscribing};
use crate::bus::subscribe::descriptor::Descriptor;
use crate::bus::subscribe::interrupter::Request;
use crate::bus::subscribe::message::{Message, Received};
use crate::bus::subscribe::receive::Body;
use crate::crash::{self, CrashPoint};
use crate::error::{OpenError, ReceiveError};
use crate::notify::{FutexWaiter, Waiter};
use crate::ring::reader::Cursor;
use crate::settings::{NotifyKind, Policy};
use crate::shm::fork::ForkStamp;
use crate::sync::Ordering;
use crate::topic::Pattern;
use crate::topic::interest::Interest;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receives the messages of a bus that match its patterns, in the one order of the bus.
///
/// It holds a slot of the bus until dropped. If it gates (the default), publishers wait for it as the
/// bus's [`Policy`] says; what it misses nevertheless it is told exactly
/// ([`ReceiveError::Lapped`]).
///
/// It belongs to one thread at a time. After `fork`, the child's handle answers
/// [`ReceiveError::Forked`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-subscriber-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// let mut subscriber = bus.subscribe("plant/**")?;
/// bus.publisher("plant/boiler/temperature")?.publish(b"351.2")?;
/// let message = subscriber.receive()?;
/// assert_eq!(message.topic(), "plant/boiler/temperature");
/// assert_eq!(message.payload(), b"351.2");
/// # drop((subscriber, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
pub struct Subscriber {
    pub(in crate::bus) subscribing: Arc<Subscribing>,
    pub(in crate::bus) claim: ReaderClaim,
    pub(in crate::bus) local: Option<LocalReader>,
    pub(in crate::bus) stamp: ForkStamp,
    /// Behind what has left the ring, for the caller or into the read-ahead.
    pub(in crate::bus) cursor: Cursor,
    /// The position in the slot, and the one at which to write it again.
    pub(in crate::bus) published: u64,
    pub(in crate::bus) publish_at: u64,
    /// The count of `waits` up to which this reader has done its part.
    pub(in crate::bus) served_waits: u64,
    pub(in crate::bus) interest: Interest,
    pub(in crate::bus) received: Received,
    pub(in crate::bus) backoff: Backoff,
    pub(in crate::bus) strategy: WaitStrategy,
    pub(in crate::bus) futex: FutexWaiter,
    pub(in crate::bus) descriptor: Option<Descriptor>,
    /// `None` until somebody has an interrupter.
    pub(in crate::bus) interruption: Option<Arc<Request>>,
    /// Bytes from the writers' `reserved` that a lapped reader keeps when it resumes.
    pub(in crate::bus) margin: u64,
    pub(in crate::bus) counts: SubscriberStats,
    #[cfg(feature = "tokio")]
    pub(in crate::bus) readiness: Option<crate::bus::subscribe::stream::Readiness>,
}

/// What a subscriber has seen since it subscribed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberStats {
    /// Messages passed on to the caller.
    pub received: u64,
    /// Messages of the whole bus that were overwritten before this subscriber read them.
    pub lost_messages: u64,
    /// How often that happened.
    pub lapses: u64,
}

impl Subscriber {
    pub(in crate::bus) fn new(
        subscribing: Arc<Subscribing>,
        claim: ReaderClaim,
        cursor: Cursor,
        interest: Interest,
        strategy: WaitStrategy,
    ) -> Result<Self, OpenError> {
        let header = subscribing.ring.header();
        let capacity = header.settings.capacity;
        // Right behind a writer, a reader is lapped again at once: by one that waits for nobody, and also by
        // one that has not yet seen that it has to wait for this reader again.
        let overwrites = header.settings.policy == Policy::Overwrite;
        let margin = if overwrites { capacity / 4 } else { capacity / 8 };
        let local = claim.gates().then(|| {
            let (slot, generation) = (claim.number(), claim.generation());
            LocalReader::register(header.bus_id, slot, generation, cursor.position)
        });
        let notify = header.settings.notify;
        let mut subscriber = Self {
            claim,
            local,
            stamp: ForkStamp::now(),
            cursor,
            published: cursor.position,
            // The first call tells which thread reads.
            publish_at: cursor.position,
            served_waits: 0,
            interest,
            received: Received::default(),
            backoff: Backoff::default(),
            strategy,
            futex: FutexWaiter::default(),
            descriptor: None,
            interruption: None,
            margin,
            counts: SubscriberStats::default(),
            #[cfg(feature = "tokio")]
            readiness: None,
            subscribing,
        };
        if notify != NotifyKind::Futex {
            subscriber.enable_fd()?;
        }
        subscriber.warm_up();
        Ok(subscriber)
    }

    /// Receives the next message, and waits for it. A signal does not end the wait; an
    /// [`Interrupter`](crate::Interrupter) does, also out of a signal handler. A program that looks at a flag
    /// now and then uses [`Self::receive_timeout`] or a descriptor ([`Self::fd`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-receive-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # use toroni::ReceiveError;
    /// # let mut subscriber = bus.subscribe("**")?;
    /// # bus.publisher("a")?.publish(b"")?;
    /// loop {
    ///     match subscriber.receive() {
    ///         Ok(message) => println!("{} {}", message.topic(), message.text()),
    ///         // Told, not hidden: go on behind the loss, or ask somebody for the whole state.
    ///         Err(ReceiveError::Lapped { lost_messages, .. }) => eprintln!("missed {lost_messages}"),
    ///         Err(error) => return Err(error.into()),
    ///     }
    /// #     break;
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`ReceiveError`]. After [`ReceiveError::Lapped`] the next call goes on behind the loss.
    #[inline]
    pub fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        if self.next_wanted() { Ok(self.last()) } else { self.receive_slowly() }
    }

    #[inline(never)]
    fn receive_slowly(&mut self) -> Result<Message<'_>, ReceiveError> {
        while !self.next(Body::Whole)? {
            self.wait(None)?;
        }
        Ok(self.last())
    }

    /// Receives the next message, if there is one.
    ///
    /// `None` means that all has been read. If this subscriber has a descriptor, it also means that the
    /// descriptor will become readable with the next message: receive until `None`, then poll.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Message<'_>>, ReceiveError> {
        if self.next_wanted() { Ok(Some(self.last())) } else { self.try_receive_slowly() }
    }

    #[inline(never)]
    fn try_receive_slowly(&mut self) -> Result<Option<Message<'_>>, ReceiveError> {
        Ok(if self.try_next(Body::Whole)? { Some(self.last()) } else { None })
    }

    /// Receives the next message, and waits for it no longer than `timeout`; then `None`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-timeout-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # use std::time::Duration;
    /// # let stop = AtomicBool::new(false);
    /// # let mut subscriber = bus.subscribe("**")?;
    /// # bus.publisher("a")?.publish(b"")?;
    /// while !stop.load(Ordering::Relaxed) {
    ///     if let Some(message) = subscriber.receive_timeout(Duration::from_millis(200))? {
    ///         println!("{} {}", message.topic(), message.text());
    ///     }
    /// #     stop.store(true, Ordering::Relaxed);
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Message<'_>>, ReceiveError> {
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return self.receive().map(Some);
        };
        while !self.next(Body::Whole)? {
            if Instant::now() >= deadline {
                return Ok(None);
            }
            self.wait(Some(deadline))?;
        }
        Ok(Some(self.last()))
    }

    /// Adds a pattern. A message that matches several is received once.
    ///
    /// # Errors
    /// [`OpenError::Pattern`] if it is malformed.
    pub fn add_pattern(&mut self, pattern: &str) -> Result<(), OpenError> {
        self.stamp.check()?;
        self.interest.add(Pattern::new(pattern)?);
        self.claim.show_patterns(self.interest.patterns());
        Ok(())
    }

    /// A descriptor that is readable when there may be messages, for `poll`, `epoll`, or any event
    /// loop; made at the first call.
    ///
    /// The contract: call [`Self::try_receive`] until it answers `None`, then wait for the descriptor
    /// to be readable, and so on. It stays readable until then; do not read from it. If a publisher is
    /// killed between publishing and waking, the descriptor becomes readable with the next message.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-fd-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # let mut subscriber = bus.subscribe("**")?;
    /// # bus.publisher("a")?.publish(b"")?;
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// loop {
    ///     while let Some(message) = subscriber.try_receive()? {
    ///         println!("{} {}", message.topic(), message.text());
    ///     }
    /// #     break;
    ///     poll(&mut [PollFd::from_borrowed_fd(subscriber.fd()?, PollFlags::IN)], None)?;
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpenError::Os`] if there are no descriptors left.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>, OpenError> {
        self.enable_fd()?;
        Ok((*self).as_fd())
    }

    /// Makes the descriptor, so that [`AsFd`] and [`AsRawFd`] have one to return.
    ///
    /// # Errors
    /// As [`Self::fd`].
    pub fn enable_fd(&mut self) -> Result<(), OpenError> {
        self.stamp.check()?;
        if self.descriptor.is_none() {
            self.descriptor = Some(self.subscribing.open_descriptor(&self.claim)?);
            self.arm_descriptor();
            // A loop that polls first would not hear of what came before.
            if let Some(descriptor) = &self.descriptor
                && !self.is_drained()
            {
                descriptor.nudge();
            }
        }
        Ok(())
    }

    /// Position of the next message that this subscriber looks at, in bytes since the bus was created:
    /// a start for another subscriber ([`Start::Position`](crate::Start::Position)).
    #[must_use]
    pub fn position(&self) -> u64 {
        self.received.read_ahead.next_cursor().unwrap_or(self.cursor).position
    }

    /// Bytes of the stream that it has not read yet.
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        let tail = self.subscribing.ring.control().commit.0.tail.load(Ordering::Acquire);
        tail.saturating_sub(self.position())
    }

    /// What it has seen so far.
    #[must_use]
    pub fn stats(&self) -> SubscriberStats {
        self.counts
    }

    /// Number of its slot, as `toroni info` shows it.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.claim.number()
    }
}

impl AsFd for Subscriber {
    /// # Panics
    /// If the descriptor was not made yet, by [`Subscriber::fd`] or [`Subscriber::enable_fd`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        let descriptor = self.descriptor.as_ref().and_then(Waiter::fd);
        descriptor.expect("the subscriber has no descriptor: call enable_fd() first")
    }
}

impl AsRawFd for Subscriber {
    /// # Panics
    /// As [`AsFd::as_fd`] does.
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Subscriber")
            .field("slot", &self.claim.number())
            .field("position", &self.position())
            .field("patterns", self.interest.patterns())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if self.stamp.check().is_ok() && !crash::is_dead() {
            // The socket before the slot, whose next owner makes its own.
            self.descriptor = None;
            crash::point(CrashPoint::ReaderLeaving);
            self.claim.leave(self.subscribing.readers.control());
        } else if let Some(descriptor) = &mut self.descriptor {
            descriptor.abandon();
        }
    }
}
