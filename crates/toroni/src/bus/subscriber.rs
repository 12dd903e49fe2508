//! Receiving: one reader of the bus's stream, which passes on what matches its patterns.

use super::descriptor::Descriptor;
use super::local::LocalReader;
use super::message::{Borrowed, Message, Received};
use super::pace::{Pace, Step, WaitStrategy};
use super::subscribing::{ReaderClaim, Subscribing};
use super::views::{READERS_TRUNCATED, RING_TRUNCATED, bell_of, check_whole, ring_of, table_of};
use crate::crash::{self, CrashPoint};
use crate::error::{Corrupt, OpenError, ReceiveError};
use crate::notify::{FutexWaiter, Waiter, futex};
use crate::ring::reader::{Cursor, Interrupted, Seen};
use crate::ring::slots;
use crate::settings::{NotifyKind, Policy};
use crate::shm::fork::ForkStamp;
use crate::sync::{Ordering, fence};
use crate::topic::Pattern;
use crate::topic::frame::{MAX_EXTENSIONS_BYTES, Tag, TopicId, decode};
use crate::topic::interest::Interest;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whoever should wake a subscriber may have died before it did so: it looks again after this.
const SLEEP: Duration = Duration::from_millis(50);
/// After some time without any message it looks half as often: a sleep of 50 ms can cost more than
/// 0.1 % of a core by itself, on a virtual machine.
const LONG_SLEEP: Duration = Duration::from_millis(100);
const SLEEPS_UNTIL_LONG: u32 = 20;
/// Sleeps between two looks whether the bus still exists: the look is several system calls, which
/// would double the cost of a sleep, and would come with each message to one that sleeps in between.
const SLEEPS_UNTIL_CHECK: u32 = 8;

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
    subscribing: Arc<Subscribing>,
    claim: ReaderClaim,
    local: Option<Arc<LocalReader>>,
    stamp: ForkStamp,
    cursor: Cursor,
    /// The position in the slot, and the one at which to write it again.
    published: u64,
    publish_at: u64,
    /// The count of `waits` up to which this reader has woken publishers that wait for room.
    answered_waits: u64,
    /// Where it was when it saw that some wait, if it has not woken them yet.
    asked_at: Option<u64>,
    interest: Interest,
    received: Received,
    pace: Pace,
    strategy: WaitStrategy,
    futex: FutexWaiter,
    descriptor: Option<Descriptor>,
    /// Bytes from the writers' `reserved` that a lapped reader keeps when it resumes.
    margin: u64,
    counts: SubscriberStats,
    #[cfg(feature = "tokio")]
    pub(super) readiness: Option<super::stream::Readiness>,
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
    pub(super) fn new(
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
        let local = claim
            .gates()
            .then(|| LocalReader::register(header.bus_id, claim.number(), claim.generation()));
        let notify = header.settings.notify;
        let mut subscriber = Self {
            claim,
            local,
            stamp: ForkStamp::now(),
            cursor,
            published: cursor.position,
            publish_at: cursor.position.saturating_add(subscribing.ring.shape().block_bytes()),
            answered_waits: 0,
            asked_at: None,
            interest,
            received: Received::default(),
            pace: Pace::default(),
            strategy,
            futex: FutexWaiter::default(),
            descriptor: None,
            margin,
            counts: SubscriberStats::default(),
            #[cfg(feature = "tokio")]
            readiness: None,
            subscribing,
        };
        if notify != NotifyKind::Futex {
            subscriber.enable_fd()?;
        }
        Ok(subscriber)
    }

    /// Receives the next message, and waits for it. A signal does not end the wait: a program that looks
    /// at a flag set by a signal handler uses [`Self::receive_timeout`] or a descriptor ([`Self::fd`]).
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

    /// Looks at the next message in place, without a copy, if there is one. The next call goes on
    /// behind it.
    ///
    /// A publisher may overwrite the bytes while they are read: nothing read counts unless
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
    pub fn borrow(&mut self) -> Result<Option<Borrowed<'_>>, ReceiveError> {
        // What the previous call returned may have been in place; it is done with now.
        self.count_position();
        if !self.try_next(Body::Extensions)? {
            return Ok(None);
        }
        Ok(Some(Borrowed::new(ring_of(&self.subscribing.ring), &self.received)?))
    }

    /// Adds a pattern. A message that matches several is received once.
    ///
    /// # Errors
    /// [`OpenError::Pattern`] if it is malformed.
    pub fn add_pattern(&mut self, pattern: &str) -> Result<(), OpenError> {
        self.stamp.check()?;
        self.interest.add(Pattern::new(pattern)?);
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
                && !matches!(self.cursor.look(ring_of(&self.subscribing.ring)), Ok(None))
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
        self.cursor.position
    }

    /// Bytes of the stream that it has not read yet.
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        let tail = self.subscribing.ring.control().commit.0.tail.load(Ordering::Acquire);
        tail.saturating_sub(self.cursor.position)
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

    /// Puts the next message that is for this subscriber into `received`; false if there is none yet.
    #[inline(always)]
    fn next(&mut self, body: Body) -> Result<bool, ReceiveError> {
        self.stamp.check()?;
        self.next_mine(body)
    }

    /// As [`Self::next`]; if there is none, arms the descriptor, if there is one, and looks once more.
    #[inline(always)]
    pub(super) fn try_next(&mut self, body: Body) -> Result<bool, ReceiveError> {
        if self.next(body)? {
            return Ok(true);
        }
        self.drained(body)
    }

    #[cold]
    fn drained(&mut self, body: Body) -> Result<bool, ReceiveError> {
        if self.descriptor.is_none() {
            // Where the file was, there is nothing but zeros: the end of the stream, for ever.
            self.check_files()?;
            if let Step::Pause(count) = self.pace.empty(WaitStrategy::Spin) {
                pause(count);
            }
            if self.pace.is_check_due() {
                self.check_slowly()?;
            }
            return Ok(false);
        }
        self.publish_position(true);
        self.arm_descriptor();
        crash::point(CrashPoint::ReaderBeforeSleep);
        self.pace.start_over();
        let found = self.next(body)?;
        if !found {
            self.check_slowly()?;
        }
        Ok(found)
    }

    /// The message that was received last.
    #[inline]
    pub(super) fn last(&self) -> Message<'_> {
        Message::new(&self.received)
    }

    /// Tells publishers, once a block, how far this subscriber has come.
    #[inline]
    fn count_position(&mut self) {
        if self.cursor.position >= self.publish_at {
            self.publish_position(false);
        }
    }

    #[inline(always)]
    fn next_mine(&mut self, body: Body) -> Result<bool, ReceiveError> {
        loop {
            let ring = ring_of(&self.subscribing.ring);
            let seen = match self.cursor.look(ring) {
                Ok(Some(seen)) => seen,
                Ok(None) => {
                    self.caught_up();
                    return Ok(false);
                }
                Err(interrupted) => return Err(self.interrupted(interrupted)),
            };
            if self.pace.is_idle() {
                self.pace.found();
            }
            // Only now, behind the validation in `look`: bytes of a payload, taken for a topic id,
            // must not get into the cache.
            let tag = Tag::from_raw(seen.tag);
            let mine = match self.interest.answer(tag.topic(), tag.is_to_descendants()) {
                Some(mine) => mine,
                None => self.decide(seen)?,
            };
            if mine {
                let ring = ring_of(&self.subscribing.ring);
                let scratch = &mut self.received.scratch;
                let copied = match body {
                    Body::Whole => self.cursor.copy(ring, &seen, scratch),
                    Body::Extensions => {
                        self.cursor.copy_front(ring, &seen, MAX_EXTENSIONS_BYTES, scratch)
                    }
                };
                if let Err(interrupted) = copied {
                    return Err(self.interrupted(interrupted));
                }
                self.received.seen = seen;
                self.cursor.advance(&seen);
                self.counts.received += 1;
                // A copy no longer needs the ring; what is read in place is counted with the next call.
                if matches!(body, Body::Whole) {
                    self.count_position();
                }
                return Ok(true);
            }
            self.cursor.advance(&seen);
            self.count_position();
        }
    }

    /// All has been read.
    fn caught_up(&mut self) {
        if let Some(local) = &self.local {
            local.note_thread();
        }
        if self.cursor.position != self.published || self.asked_at.is_some() {
            self.publish_position(true);
        }
    }

    /// Whether a message is for this subscriber, where the cache does not tell. One that makes no sense
    /// is passed over with the error.
    #[cold]
    fn decide(&mut self, seen: Seen) -> Result<bool, ReceiveError> {
        let answer = match Tag::from_raw(seen.tag).topic() {
            TopicId::INLINE => self.decide_inline(&seen),
            topic => self.decide_interned(topic, &seen),
        };
        answer.map_err(|interrupted| {
            if matches!(interrupted, Interrupted::Corrupt(_)) {
                self.cursor.advance(&seen);
            }
            self.interrupted(interrupted)
        })
    }

    fn decide_interned(&mut self, topic: TopicId, seen: &Seen) -> Result<bool, Interrupted> {
        let mirror = &mut self.received.mirror;
        mirror
            .sync(table_of(&self.subscribing.ring))
            .map_err(|error| corrupt_in(error.into(), seen))?;
        let to_descendants = Tag::from_raw(seen.tag).is_to_descendants();
        self.interest.fill(topic, to_descendants, mirror).ok_or_else(|| {
            corrupt_in(Corrupt { what: "topic id", value: seen.tag.into(), position: 0 }, seen)
        })
    }

    fn decide_inline(&mut self, seen: &Seen) -> Result<bool, Interrupted> {
        let ring = ring_of(&self.subscribing.ring);
        let scratch = &mut self.received.scratch;
        self.cursor.copy_front(ring, seen, MAX_EXTENSIONS_BYTES, scratch)?;
        let tag = Tag::from_raw(seen.tag);
        let front = scratch.bytes((seen.length as usize).min(MAX_EXTENSIONS_BYTES));
        let (extensions, _) = decode(tag, front).map_err(|error| corrupt_in(error.into(), seen))?;
        let topic = extensions.inline_topic.unwrap_or_default();
        Ok(self.interest.answer_inline(topic, tag.is_to_descendants()))
    }

    #[cold]
    fn interrupted(&mut self, interrupted: Interrupted) -> ReceiveError {
        match interrupted {
            Interrupted::Corrupt(corrupt) => corrupt.into(),
            Interrupted::Lapped => {
                match self.cursor.resume(ring_of(&self.subscribing.ring), self.margin) {
                    Err(corrupt) => corrupt.into(),
                    Ok((lost_messages, lost_bytes)) => {
                        self.counts.lapses += 1;
                        self.counts.lost_messages += lost_messages;
                        self.publish_position(true);
                        slots::announce(self.subscribing.readers.control());
                        ReceiveError::Lapped { lost_messages, lost_bytes }
                    }
                }
            }
        }
    }

    /// Writes position and counts to the slot, and wakes publishers that wait for room: now, if this
    /// reader is pausing, else when it is worth it.
    #[cold]
    fn publish_position(&mut self, pausing: bool) {
        if let Some(local) = &self.local {
            local.note_thread();
        }
        let slot = self.claim.slot();
        self.published = self.cursor.position;
        self.publish_at =
            self.cursor.position.saturating_add(self.subscribing.ring.shape().block_bytes());
        slot.received.store(self.counts.received, Ordering::Relaxed);
        slot.lost_messages.store(self.counts.lost_messages, Ordering::Relaxed);
        slot.lapses.store(self.counts.lapses, Ordering::Relaxed);
        slot.position.store(self.cursor.position, Ordering::Release);
        // SPACE
        fence(Ordering::SeqCst);
        let waits = self.subscribing.ring.control().waits.0.load(Ordering::Acquire);
        if waits == self.answered_waits {
            return;
        }
        // Those that still poll see each block that is read. Those that sleep are woken when an eighth
        // of the ring is free: for each block it would cost both sides more than reading or writing it.
        // They look again by themselves after 1 ms.
        let space = &self.subscribing.readers.control().space.0;
        space.fetch_add(1, Ordering::Release);
        let since = *self.asked_at.get_or_insert(self.cursor.position);
        let enough = self.subscribing.ring.shape().capacity() / 8;
        if pausing || self.cursor.position.wrapping_sub(since) >= enough {
            self.answered_waits = waits;
            self.asked_at = None;
            futex::wake_all(space);
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_ref()
    }

    fn arm_descriptor(&mut self) {
        let bell = bell_of(&self.subscribing.ring, &self.subscribing.readers);
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.arm(bell, &self.claim.slot().arms);
        }
    }

    /// Does what the strategy says after an empty look.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        match self.pace.empty(self.strategy) {
            Step::Pause(count) => pause(count),
            Step::Yield => std::thread::yield_now(),
            Step::Sleep => return self.sleep(deadline),
        }
        if self.pace.is_check_due() { self.check_slowly() } else { Ok(()) }
    }

    #[cold]
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        self.publish_position(true);
        let by_descriptor = self.subscribing.ring.header().settings.notify != NotifyKind::Futex;
        let bell = bell_of(&self.subscribing.ring, &self.subscribing.readers);
        let arms = &self.claim.slot().arms;
        match &mut self.descriptor {
            Some(descriptor) if by_descriptor => descriptor.arm(bell, arms),
            _ => self.futex.arm(bell, arms),
        }
        crash::point(CrashPoint::ReaderBeforeSleep);
        if matches!(self.cursor.look(ring_of(&self.subscribing.ring)), Ok(None)) {
            let slice = if self.pace.sleeps() < SLEEPS_UNTIL_LONG { SLEEP } else { LONG_SLEEP };
            let slice = match deadline {
                None => slice,
                Some(deadline) => slice.min(deadline.saturating_duration_since(Instant::now())),
            };
            let waited = match &self.descriptor {
                Some(descriptor) if by_descriptor => descriptor.wait(bell, Some(slice)),
                _ => self.futex.wait(bell, Some(slice)),
            };
            if let Err(source) = waited {
                // The kernel does not wait at a word that has lost its file.
                self.check_files()?;
                return Err(ReceiveError::Os { action: "wait for a message", source });
            }
            crash::point(CrashPoint::ReaderAsleep);
            if self.pace.sleeps() % SLEEPS_UNTIL_CHECK == SLEEPS_UNTIL_CHECK - 1 {
                self.check_slowly()?;
            }
        }
        self.pace.start_over();
        Ok(())
    }

    /// What is asked now and then: after a sleep, or when drained.
    fn check_slowly(&self) -> Result<(), ReceiveError> {
        self.stamp.check()?;
        self.check_files()?;
        if self.subscribing.ring.is_unlinked()
            && matches!(self.cursor.look(ring_of(&self.subscribing.ring)), Ok(None))
        {
            return Err(ReceiveError::Unlinked);
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), ReceiveError> {
        let files = [
            (self.subscribing.ring.was_damaged(), RING_TRUNCATED),
            (self.subscribing.readers.was_damaged(), READERS_TRUNCATED),
        ];
        Ok(check_whole(files, self.cursor.position)?)
    }
}

/// How much of a message is copied.
#[derive(Clone, Copy)]
pub(super) enum Body {
    Whole,
    /// As many bytes as extensions can have.
    Extensions,
}

#[inline]
fn pause(count: u32) {
    for _ in 0..count {
        crate::sync::pause();
    }
}

fn corrupt_in(corrupt: Corrupt, seen: &Seen) -> Interrupted {
    Interrupted::Corrupt(Corrupt { position: seen.position, ..corrupt })
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
            .field("position", &self.cursor.position)
            .field("patterns", self.interest.patterns())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if self.stamp.check().is_ok() {
            // The socket before the slot, whose next owner makes its own.
            self.descriptor = None;
            self.claim.leave(self.subscribing.readers.control());
        } else if let Some(descriptor) = &mut self.descriptor {
            descriptor.abandon();
        }
    }
}
