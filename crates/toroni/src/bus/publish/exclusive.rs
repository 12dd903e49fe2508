//! Publishing on a bus that has one publisher.
//!
//! An exclusive publisher takes the writer lock once and keeps it until it is dropped (`shm/lock.rs`, EXCLUSIVE). Each
//! message takes the same steps as that of a shared publisher (`publishing.rs`), except that it neither takes nor
//! releases the lock. That saves two locked instructions. One fence between the commit and the check for sleeping
//! subscribers replaces them, and even that is left out while no subscriber goes to sleep
//! (`notify/adaptive_fence.rs`).

use super::participant::of_publisher;
use super::publisher::Publisher;
use super::publishing::Publishing;
use super::terms::{Limit, Terms};
use crate::bus::Bus;
use crate::error::{BurstError, ExclusiveError, PublishError, PublisherError, RetainError};
use crate::ring::racy::RacyBytesMut;
use crate::settings::{InvalidSetting, LockKind, Policy};
use crate::shm::lock::LockAttempt;
use crate::topic::Topic;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The only publisher of a bus, for as long as it exists.
///
/// A bus often has one publisher by nature: a feed handler, a replay. An exclusive publisher keeps the writer lock, so
/// each message costs less than that of a [`Publisher`]. It publishes on any number of topics. You can send it to another
/// thread, but only one thread at a time can use it.
///
/// Every other call that publishes on the bus, in this process or another one, fails at once with
/// [`PublishError::Exclusive`], which names this publisher. Once it is dropped, or its process has ended, however it
/// ends, others can publish again; while the kernel still takes a killed process down, their calls fail. A publisher that
/// is made meanwhile cannot add its topic to the table of the bus: once it may publish, each of its messages carries the
/// topic's name.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-exclusive-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// use toroni::Limit;
///
/// let feed = bus.exclusive()?;
/// let (bids, asks) = (feed.topic("market/bid")?, feed.topic("market/ask")?);
/// feed.publish(&bids, b"99.5", Limit::Policy)?;
/// feed.publish(&asks, b"100.5", Limit::Policy)?;
/// # drop(feed);
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
pub struct Exclusive {
    bus: Bus,
    publishing: Arc<Publishing>,
    /// Whether a function of the caller writes a message in place. This also keeps the type from being shared among
    /// threads.
    writes: Cell<bool>,
    /// Whether there is a topic to publish on.
    has_topic: Cell<bool>,
    always_fenced: Cell<bool>,
}

/// A topic of an [`Exclusive`] publisher.
#[derive(Clone, Debug)]
pub struct ExclusiveTopic(Publisher);

impl ExclusiveTopic {
    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &Topic {
        self.0.topic()
    }

    /// Returns how many bytes the largest message has that can be published on this topic.
    #[must_use]
    pub fn largest_message(&self) -> u64 {
        self.0.largest_message()
    }

    /// See [`Publisher::to_descendants`].
    #[must_use]
    pub fn to_descendants(self, to_descendants: bool) -> Self {
        Self(self.0.to_descendants(to_descendants))
    }

    /// See [`Publisher::with_policy`].
    ///
    /// # Errors
    /// See [`Publisher::with_policy`].
    pub fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting> {
        self.0.with_policy(policy).map(Self)
    }
}

impl Exclusive {
    pub(in crate::bus) fn new(
        bus: Bus,
        publishing: Arc<Publishing>,
        attempt: LockAttempt,
    ) -> Result<Self, ExclusiveError> {
        if publishing.lock_kind() == LockKind::Robust {
            return Err(ExclusiveError::RobustLock { path: bus.path().to_owned() });
        }
        publishing.participant.keep_lock(attempt).map_err(|error| match error {
            PublishError::Exclusive { name, pid } => ExclusiveError::Taken { name, pid },
            PublishError::Busy => ExclusiveError::Busy,
            PublishError::Timeout => ExclusiveError::Timeout,
            other => of_publisher(other, "publish exclusively on", bus.path()).into(),
        })?;
        let (has_topic, always_fenced) = (Cell::new(false), Cell::new(false));
        Ok(Self { bus, publishing, writes: Cell::new(false), has_topic, always_fenced })
    }

    /// Says whether each message executes a memory fence, also while no subscriber sleeps. By default it does not: after
    /// some thousand messages during which no subscriber went to sleep, the publisher leaves the fence out, which saves
    /// about 5 ns a message. A subscriber that goes to sleep then interrupts the processors on which this process
    /// runs, by the system call membarrier(2).
    ///
    /// Choose `true` if the threads of this process must not be interrupted, for example on isolated cores. Do so before
    /// [`Self::topic`] is called for the first time. That call registers the process for such interrupts, from any
    /// process of the machine, until it ends; it may take tens of milliseconds in a process with several threads.
    pub fn set_always_fenced(&self, always_fenced: bool) {
        self.always_fenced.set(always_fenced);
        if self.has_topic.get() {
            self.publishing.allow_no_fence(!always_fenced);
        }
    }

    /// Returns the bus.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Makes a topic to publish on, which is a path such as `plant/boiler/temperature`.
    ///
    /// # Errors
    /// [`PublisherError::Topic`], or an error of the files, for example if other code closed the descriptors of this
    /// publisher and another one has taken over; see [`PublisherError`].
    pub fn topic(&self, topic: &str) -> Result<ExclusiveTopic, PublisherError> {
        let terms = self.terms(self.publishing.bus_policy(), Limit::Policy);
        let terms =
            terms.map_err(|error| of_publisher(error, "enter the topic in", self.bus.path()))?;
        let topic = Topic::new(topic)?;
        let publishing = self.publishing.clone();
        let topic = Publisher::new(self.bus.clone(), publishing, topic, &terms)?;
        if !self.has_topic.replace(true) && !self.always_fenced.get() {
            self.publishing.allow_no_fence(true);
        }
        Ok(ExclusiveTopic(topic))
    }

    /// Retains a topic; see [`Publisher::retained`].
    ///
    /// # Errors
    /// See [`RetainError`].
    pub fn retained(&self, topic: ExclusiveTopic) -> Result<ExclusiveTopic, RetainError> {
        let terms = self.terms_on(&topic, Limit::Policy)?;
        topic.0.retained_on(&terms).map(ExclusiveTopic)
    }

    /// Ends the value of a topic; see [`Publisher::clear`].
    ///
    /// # Errors
    /// See [`Publisher::clear`] and [`Self::publish`].
    pub fn clear(
        &self,
        topic: &ExclusiveTopic,
        limit: impl Into<Limit>,
    ) -> Result<u64, PublishError> {
        let terms = self.terms_on(topic, limit.into())?;
        topic.0.clear_on(&terms)
    }

    /// Publishes one message, and returns its sequence; see [`Publisher::publish`]. It waits only for slow subscribers,
    /// and keeps the lock meanwhile.
    ///
    /// # Errors
    /// See [`Limit`] and [`PublishError`]. On an error nothing is published. [`PublishError::LeaseLost`] also says that
    /// another publisher has taken over, because other code closed the descriptors of this one.
    #[inline]
    pub fn publish(
        &self,
        topic: &ExclusiveTopic,
        payload: impl AsRef<[u8]>,
        limit: impl Into<Limit>,
    ) -> Result<u64, PublishError> {
        let terms = self.terms_on(topic, limit.into())?;
        topic.0.publish_on(payload.as_ref(), &terms)
    }

    /// Publishes several messages that become visible together, and returns their sequences; see
    /// [`Publisher::publish_batch`].
    ///
    /// # Errors
    /// See [`Publisher::publish_batch`] and [`Self::publish`].
    #[inline]
    pub fn publish_batch<T: AsRef<[u8]>>(
        &self,
        topic: &ExclusiveTopic,
        payloads: &[T],
        limit: impl Into<Limit>,
    ) -> Result<Range<u64>, PublishError> {
        let terms = self.terms_on(topic, limit.into())?;
        topic.0.publish_batch_with(payloads, &terms)
    }

    /// Publishes messages one by one; see [`Publisher::burst`]. No message of another publisher comes in between.
    ///
    /// # Errors
    /// See [`Publisher::burst`] and [`Self::publish`].
    pub fn burst<T: AsRef<[u8]>>(
        &self,
        topic: &ExclusiveTopic,
        payloads: &[T],
        limit: impl Into<Limit>,
    ) -> Result<(), BurstError> {
        let terms = self.terms_on(topic, limit.into());
        let terms = terms.map_err(|source| BurstError { published: 0, source })?;
        topic.0.burst_with(payloads, &terms)
    }

    /// Publishes one message of `length` bytes, which `fill` writes directly to shared memory; see
    /// [`Publisher::publish_with`].
    ///
    /// # Errors
    /// See [`Publisher::publish_with`] and [`Self::publish`].
    #[inline]
    pub fn publish_with<R>(
        &self,
        topic: &ExclusiveTopic,
        length: usize,
        limit: impl Into<Limit>,
        fill: impl FnOnce(&mut RacyBytesMut<'_>) -> R,
    ) -> Result<(u64, R), PublishError> {
        let terms = self.terms_on(topic, limit.into())?;
        let _writing = Writing::begin(&self.writes);
        topic.0.publish_with_terms(length, &terms, fill)
    }

    #[inline(always)]
    fn terms_on(&self, topic: &ExclusiveTopic, limit: Limit) -> Result<Terms, PublishError> {
        // A topic of another bus would be published there, perhaps while that bus's exclusive publisher publishes, too.
        if !topic.0.is_of(&self.publishing) {
            return Err(PublishError::ForeignTopic);
        }
        self.terms(topic.0.policy(), limit)
    }

    #[inline(always)]
    fn terms(&self, policy: Policy, limit: Limit) -> Result<Terms, PublishError> {
        // In the function of `publish_with`. A shared publisher finds this out because the lock is taken.
        if self.writes.get() {
            return Err(PublishError::Reentrant);
        }
        Ok(Terms::exclusive(policy, limit))
    }
}

/// Marks that a function of the caller writes a message in place. Clears the mark even if the function panics.
struct Writing<'a>(&'a Cell<bool>);

impl<'a> Writing<'a> {
    #[inline]
    fn begin(writes: &'a Cell<bool>) -> Self {
        writes.set(true);
        Self(writes)
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.publishing.end_exclusive();
    }
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Exclusive").field("bus", &self.bus).finish_non_exhaustive()
    }
}
