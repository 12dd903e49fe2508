//! The public handle of a subscriber. What its calls do is in `receive.rs`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::backoff::WaitStrategy;
use super::claim::ReaderClaim;
use super::column::Column;
use super::freshness::Freshness;
use super::in_place::{Borrowed, InPlace};
use super::interrupter::Interrupter;
use super::message::Message;
use super::passing::Passing;
use super::progress::{Progress, SubscriberStats};
use super::reading::{Body, Reading};
use super::retained::DueValues;
#[cfg(feature = "tokio")]
use super::stream::Readiness;
use super::waiting::Waiting;
use crate::bus::views::ring_of;
use crate::error::{FileError, HoldError, ReceiveError, SubscriberError};
use crate::hook::{self, CrashPoint};
use crate::ring::reader::Cursor;
use crate::settings::NotifyKind;
#[cfg(doc)]
use crate::settings::Policy;
use crate::shm::fork::ForkStamp;
use crate::sync::Ordering;
use crate::topic::Pattern;
use crate::topic::interest::Interest;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// Receives the messages of a bus that match its patterns, in the one order of the bus.
///
/// It holds a slot of the bus until it is dropped. If it gates (the default), publishers wait for it as
/// the bus's [`Policy`] says. If it misses messages nevertheless, [`ReceiveError::Lapped`] says exactly
/// how many. [`ReceiveError::Lost`] reports messages that were lost on their way from elsewhere to this bus.
///
/// It belongs to one thread at a time. After a `fork`, its calls return [`ReceiveError::Forked`] in the
/// child.
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
    pub(in crate::bus) claim: ReaderClaim,
    pub(in crate::bus) stamp: ForkStamp,
    pub(super) reading: Reading,
    pub(super) progress: Progress,
    pub(super) waiting: Waiting,
    pub(super) column: Column,
    pub(super) passing: Passing,
}

impl Subscriber {
    pub(super) fn new(
        claim: ReaderClaim,
        cursor: Cursor,
        interest: Interest,
        freshness: Freshness,
        strategy: WaitStrategy,
        wants_values: bool,
    ) -> Result<Self, FileError> {
        let subscribing = claim.subscribing.clone();
        let settings = &subscribing.ring.header().settings;
        let values = DueValues::new(wants_values);
        let mut subscriber = Self {
            stamp: ForkStamp::now(),
            reading: Reading::new(cursor, interest, freshness, settings, values),
            progress: Progress::new(&claim, cursor),
            waiting: Waiting::new(strategy, settings.notify),
            column: Column::default(),
            passing: Passing::default(),
            claim,
        };
        subscriber.reading.gather_values(&subscribing.ring, None);
        if settings.notify != NotifyKind::Futex {
            subscriber.enable_fd()?;
        }
        subscriber.reading.warm_up(&subscribing.ring);
        Ok(subscriber)
    }

    /// Receives the next message, and waits until there is one. A signal does not end the wait; an
    /// [`Interrupter`](crate::Interrupter) does, also from a signal handler. A program that has to check a
    /// flag now and then uses [`Self::receive_timeout`] or a descriptor ([`Self::fd`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-receive-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # let mut subscriber = bus.subscribe("**")?;
    /// # bus.publisher("a")?.publish(b"")?;
    /// loop {
    ///     match subscriber.receive() {
    ///         Ok(message) => println!("{} {}", message.topic(), message.text()),
    ///         // The next call continues after the loss.
    ///         Err(loss) if loss.is_loss() => eprintln!("{loss}"),
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
    /// See [`ReceiveError`]. After a loss ([`ReceiveError::is_loss`]), the next call continues after it.
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

    /// Receives the next message, or returns `None` if there is none.
    ///
    /// If this subscriber has a descriptor, `None` also means that the descriptor becomes readable with
    /// the next message: receive until `None`, then poll.
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

    /// Receives the next message. Returns `None` if there is none within `timeout`.
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

    /// Receives the messages that are there, in place, without a copy. Waits until there is one.
    ///
    /// A publisher may overwrite a message while it is read. So what was read counts only if
    /// [`Borrowed::validate`] succeeds afterwards, or [`InPlace::validate`] for all messages together.
    /// Publishers that wait for this subscriber, as the bus's [`Policy`](crate::Policy) says, wait for
    /// these messages until the next call on the subscriber.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-in-place-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # let mut subscriber = bus.subscribe("**")?;
    /// # bus.publisher("trades")?.publish_batch(&[[7; 1024]; 3], toroni::Limit::Policy)?;
    /// # let mut total = 0;
    /// for trade in subscriber.receive_in_place()? {
    ///     let amount = trade.payload().array(16).map(u32::from_le_bytes);
    ///     trade.validate()?; // before anything is done with it
    ///     total += u64::from(amount.ok_or("too short")?);
    /// }
    /// # assert_eq!(total, 3 * 0x0707_0707);
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`ReceiveError`]. After a loss ([`ReceiveError::is_loss`]), the next call continues after it.
    #[inline]
    pub fn receive_in_place(&mut self) -> Result<InPlace<'_>, ReceiveError> {
        self.wait_for_next_in_place()?;
        self.in_place()
    }

    fn wait_for_next_in_place(&mut self) -> Result<(), ReceiveError> {
        // What the previous call returned may have been in place; now it is no longer needed.
        self.publish_position_if_due();
        while !self.next(Body::InPlace)? {
            self.wait(None)?;
        }
        Ok(())
    }

    /// Receives the messages that are there, in place, without waiting. `None` means what it means for
    /// [`Self::try_receive`]; for the rest see [`Self::receive_in_place`].
    ///
    /// # Errors
    /// See [`ReceiveError`].
    #[inline]
    pub fn try_receive_in_place(&mut self) -> Result<Option<InPlace<'_>>, ReceiveError> {
        self.publish_position_if_due();
        if !self.try_next(Body::InPlace)? {
            return Ok(None);
        }
        self.in_place().map(Some)
    }

    /// Receives messages in place as [`Self::receive_in_place`] does. Returns `None` if there is none
    /// within `timeout`.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn receive_in_place_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<InPlace<'_>>, ReceiveError> {
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return self.receive_in_place().map(Some);
        };
        self.publish_position_if_due();
        while !self.next(Body::InPlace)? {
            if Instant::now() >= deadline {
                return Ok(None);
            }
            self.wait(Some(deadline))?;
        }
        self.in_place().map(Some)
    }

    /// Receives the next message in place, without a copy, or returns `None` if there is none. It is the
    /// first of those that [`Self::try_receive_in_place`] would return; the next call continues after it.
    ///
    /// A publisher may overwrite the bytes while they are read. So what was read counts only if
    /// [`Borrowed::validate`] succeeds afterwards.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-borrow-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # let mut subscriber = bus.subscribe("**")?;
    /// # bus.publisher("camera/frame")?.publish(&[7; 4096])?;
    /// if let Some(frame) = subscriber.borrow()? {
    ///     // Only a part of a large message is needed: nothing else is copied.
    ///     let mut header = [0; 16];
    ///     frame.payload().copy_to(0, &mut header);
    ///     frame.validate()?; // before anything is done with it
    ///     println!("a frame that begins with {header:?}");
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`ReceiveError`].
    #[inline]
    pub fn borrow(&mut self) -> Result<Option<Borrowed<'_>>, ReceiveError> {
        self.publish_position_if_due();
        if !self.try_next(Body::InPlace)? {
            return Ok(None);
        }
        let ring = ring_of(&self.claim.subscribing.ring);
        Ok(Some(Borrowed::received(ring, &self.reading.received)?))
    }

    /// Returns the run that begins with the message that was received last.
    ///
    /// It is inlined into the caller with all that it calls, so that the run is made where it is used. Copies of what was
    /// just written wait for the stores, and would cost a run of one message more than everything else.
    #[inline(always)]
    fn in_place(&mut self) -> Result<InPlace<'_>, ReceiveError> {
        let Reading { cursor, interest, received, .. } = &mut self.reading;
        let ring = ring_of(&self.claim.subscribing.ring);
        let count = &mut self.progress.counts.received;
        let messages = InPlace::new(ring, received, interest, cursor, count)?;
        hook::point(CrashPoint::ReaderHasRun);
        Ok(messages)
    }

    #[cfg(feature = "tokio")]
    /// Receives the next message without blocking the thread, on a tokio runtime.
    ///
    /// ```
    /// # async fn serve(mut subscriber: toroni::Subscriber) -> Result<(), toroni::ReceiveError> {
    /// let mut second = tokio::time::interval(std::time::Duration::from_secs(1));
    /// loop {
    ///     tokio::select! {
    ///         message = subscriber.receive_async() => println!("{}", message?.text()),
    ///         _ = second.tick() => println!("tick"),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// The call is cancel-safe: only a call that returns takes a message. If messages come without end, it
    /// lets other tasks run now and then.
    ///
    /// It wakes as a descriptor does ([`Subscriber::fd`]): if a publisher is killed between publishing and
    /// waking, its last message arrives with the next one. While nothing is published, the call does not
    /// notice that the bus was removed. If that matters, call it repeatedly with a time-out: each call
    /// checks the bus.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    ///
    /// # Panics
    /// The first call panics outside a tokio runtime with I/O enabled.
    pub async fn receive_async(&mut self) -> Result<Message<'_>, ReceiveError> {
        let failed = |source| ReceiveError::Os { action: "wait for a message", source };
        if self.waiting.readiness.is_none() {
            let duplicate = self.fd().map_err(|error| failed(std::io::Error::other(error)))?;
            let duplicate = duplicate.try_clone_to_owned().map_err(failed)?;
            if let Some(descriptor) = &self.waiting.descriptor {
                let readiness = Readiness::register(descriptor, duplicate).map_err(failed)?;
                self.waiting.readiness = Some(readiness);
            }
        }
        loop {
            // A subscriber with much to read is always ready, and would never give its thread to other
            // tasks.
            tokio::task::coop::consume_budget().await;
            if self.try_next(Body::Whole)? {
                return Ok(self.last());
            }
            if let Some(readiness) = &self.waiting.readiness {
                readiness.wait().await.map_err(failed)?;
            }
        }
    }

    /// Adds a pattern. A message that matches several patterns is received once. The topics of this pattern begin with the
    /// stream, also if the subscriber asked for values
    /// ([`SubscriberBuilder::retained`](crate::SubscriberBuilder::retained)).
    ///
    /// # Errors
    /// Returns [`SubscriberError::Pattern`] if the pattern is malformed, and [`FileError::Forked`] in the
    /// child of a `fork`.
    pub fn add_pattern(&mut self, pattern: &str) -> Result<(), SubscriberError> {
        self.stamp.check().map_err(FileError::from)?;
        self.reading.interest.add(Pattern::new(pattern)?);
        self.column.look_again(&self.claim, &mut self.reading);
        // A message on a topic that it has just begun to want may be there, and has woken nothing.
        let Self { claim, reading, waiting, .. } = self;
        waiting.rearm(claim, || reading.is_drained(&claim.subscribing.ring));
        self.claim.show_patterns(self.reading.interest.patterns());
        Ok(())
    }

    /// Returns a descriptor that is readable when there may be messages, for `poll`, `epoll`, or any event
    /// loop. The first call makes it.
    ///
    /// Call [`Self::try_receive`] until it returns `None`, then wait until the descriptor is readable, and
    /// so on. Do not read from it: it stays readable until `try_receive` returns `None`. If a publisher is
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
    /// Returns [`FileError::Os`] if there are no descriptors left.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>, FileError> {
        self.enable_fd()?;
        Ok((*self).as_fd())
    }

    /// Makes the descriptor that [`AsFd`] and [`AsRawFd`] return.
    ///
    /// # Errors
    /// See [`Self::fd`].
    pub fn enable_fd(&mut self) -> Result<(), FileError> {
        self.stamp.check()?;
        let Self { claim, reading, waiting, .. } = self;
        waiting.enable_descriptor(claim, || reading.is_drained(&claim.subscribing.ring))
    }

    /// Makes a handle that ends blocking calls of this subscriber, such as [`Self::receive`], from another
    /// thread or from a signal handler.
    ///
    /// # Errors
    /// Returns [`FileError::Os`] if there are no descriptors left, and [`FileError::Forked`] in the child
    /// of a `fork`.
    pub fn interrupter(&mut self) -> Result<Interrupter, FileError> {
        self.stamp.check()?;
        self.waiting.interrupter(&self.claim)
    }

    /// Makes publishers keep the messages from `sequence` on, although this subscriber reads on. Another
    /// subscriber can then still read them ([`Start::Sequence`](crate::Start::Sequence)). Use it if you must
    /// be able to send or read messages again until somebody has acknowledged them.
    ///
    /// Publishers wait for what is held as for messages that the subscriber has not read: as the bus's
    /// [`Policy`] says. So a limit of the policy limits the hold too, and the policy `Overwrite` ignores
    /// it. If the policy lets publishers overwrite a held message, the hold ends, [`Self::held`] returns
    /// `None`, and publishers wait only for what the subscriber has not read. Reading is not affected:
    /// [`Self::position`] and [`Self::stats`] count only what the subscriber reads or misses itself.
    ///
    /// If the call succeeds, message `sequence` and all later ones are in the ring, or not published yet.
    /// A later call moves the hold. A greater sequence lets waiting publishers continue. A smaller one is
    /// possible as long as its message is in the ring. [`Self::release_hold`] ends the hold, as does the end
    /// of the subscriber. Space is freed by blocks of 1/64 of the ring.
    ///
    /// A thread that publishes on a bus that is full because of its own hold gets
    /// [`PublishError::WouldWaitForItself`](crate::PublishError::WouldWaitForItself) where it would wait.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-hold-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # use toroni::{Limit, Start};
    /// let mut subscriber = bus.subscribe("orders/*")?;
    /// let orders = bus.publisher("orders/new")?;
    /// orders.publish_batch(&["1", "2", "3"], Limit::Policy)?;
    /// let first = subscriber.receive()?.sequence();
    /// subscriber.hold(first)?;
    /// // Send the orders elsewhere. If one is lost there, read it again.
    /// let mut again = bus.subscriber().pattern("orders/*").start(Start::Sequence(first)).build()?;
    /// assert_eq!(again.receive()?.text(), "1");
    /// // The first order was acknowledged.
    /// subscriber.hold(first + 1)?;
    /// # drop((subscriber, again, bus));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`HoldError::SequenceLost`] if the message is no longer in the ring, and
    /// [`HoldError::NotGating`] if publishers do not wait for this subscriber; see [`HoldError`]. On an error
    /// the previous hold stays.
    pub fn hold(&mut self, sequence: u64) -> Result<(), HoldError> {
        self.stamp.check()?;
        self.check_whole()?;
        self.progress.hold_from(&self.claim, self.reading.cursor, sequence)
    }

    /// Ends the hold of [`Self::hold`]: publishers again wait only for what this subscriber has not read.
    /// Without a hold, this does nothing.
    pub fn release_hold(&mut self) {
        if self.stamp.check().is_ok() {
            self.progress.release_hold(&self.claim, self.reading.cursor);
        }
    }

    /// Returns the sequence from which publishers keep messages for this subscriber after it has read them.
    /// Returns `None` if there is no hold, or no longer, because a message of it was overwritten.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.progress.held(&self.claim, self.reading.cursor)
    }

    /// Returns the position of the next message that this subscriber will read, in bytes since the bus was
    /// created. Another subscriber can start there ([`Start::Position`](crate::Start::Position)).
    #[must_use]
    pub fn position(&self) -> u64 {
        self.reading.next().position
    }

    /// Returns the sequence of the next message that it reads, whatever its topic. All messages of the bus with a lower
    /// one were received, passed over, missed before it began, or reported by [`ReceiveError::Lapped`].
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.reading.next().sequence
    }

    /// Returns how many bytes of the stream it has not read yet.
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        let tail = self.claim.subscribing.ring.control().commit.0.tail.load(Ordering::Acquire);
        tail.saturating_sub(self.position())
    }

    /// Returns what it has seen so far.
    #[must_use]
    pub fn stats(&self) -> SubscriberStats {
        let (stale, unknown) = (self.reading.freshness.stale, self.reading.unknown);
        SubscriberStats { stale, unknown, ..self.progress.counts }
    }

    /// Returns the number of its slot, as `toroni info` shows it.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.claim.number()
    }
}

impl AsFd for Subscriber {
    /// # Panics
    /// Panics if [`Subscriber::fd`] or [`Subscriber::enable_fd`] was not called before.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.fd().expect("the subscriber has no descriptor: call enable_fd() first")
    }
}

impl AsRawFd for Subscriber {
    /// # Panics
    /// Panics as [`AsFd::as_fd`] does.
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
            .field("patterns", self.reading.interest.patterns())
            .field("counts", &self.progress.counts)
            .finish_non_exhaustive()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if self.stamp.check().is_ok() && !hook::is_dead() {
            // The socket before the slot, whose next owner makes its own.
            self.waiting.descriptor = None;
            hook::point(CrashPoint::ReaderLeaving);
            self.claim.leave();
        } else if let Some(descriptor) = &mut self.waiting.descriptor {
            descriptor.abandon();
        }
    }
}
