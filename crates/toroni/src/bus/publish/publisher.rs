//! Publishing on a topic.

use super::commit::{Batch, Filled};
use super::participant::of_publisher;
use super::publishing::Publishing;
use super::reentrancy;
use super::terms::{Limit, Terms, at_most};
use super::topics::TableShare;
use crate::bus::Bus;
use crate::bus::clock;
use crate::error::{BurstError, PublishError, PublisherError, RetainError};
use crate::ring::layout::ALIGNMENT;
use crate::ring::position::record_bytes;
use crate::ring::racy::RacyBytesMut;
use crate::ring::writer::Record;
use crate::settings::{InvalidSetting, Policy};
use crate::sync::AtomicU64;
use crate::topic::Topic;
use crate::topic::frame::{Extensions, MAX_EXTENSIONS_BYTES, Tag, TopicId};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Publishes messages on one topic of a bus.
///
/// It is cheap to clone and can be shared among threads. All publishers of one [`Bus`] are one
/// participant.
///
/// If a subscriber is slow, [`Self::publish`] does what the bus's [`Policy`] says. Calls that take a [`Limit`] can wait
/// less. A call that was successful returns the sequence of its message in the bus: what
/// [`Message::sequence`](crate::Message::sequence) returns to each subscriber that receives it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-publisher-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// use toroni::Limit;
///
/// let publisher = bus.publisher("plant/boiler/temperature")?;
/// publisher.publish(b"351.2")?;
/// publisher.publish_batch(&["351.3", "351.4"], Limit::Policy)?;
/// # drop((publisher, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Publisher {
    bus: Bus,
    publishing: Arc<Publishing>,
    topic: Topic,
    /// `None` where the table of topics is full: the name travels with each message.
    id: Option<TopicId>,
    /// The same, if messages need no extensions, and the handle has not declared its topic.
    plain: Option<TopicId>,
    to_descendants: bool,
    timestamps: bool,
    is_declared: bool,
    policy: Policy,
    largest_record: u64,
}

impl Publisher {
    pub(in crate::bus) fn shared(
        bus: Bus,
        publishing: Arc<Publishing>,
        topic: Topic,
    ) -> Result<Self, PublisherError> {
        let terms = publishing.participant.terms_without_deadline();
        Self::new(bus, publishing, topic, &terms)
    }

    /// Makes a publisher that enters its topic on these terms.
    pub(super) fn new(
        bus: Bus,
        publishing: Arc<Publishing>,
        topic: Topic,
        terms: &Terms,
    ) -> Result<Self, PublisherError> {
        let id = publishing
            .intern(&topic, TableShare::All, terms)
            .map_err(|error| of_publisher(error, "enter the topic in", bus.path()))?;
        let timestamps = bus.has_timestamps();
        let policy = publishing.bus_policy();
        let largest_record = publishing.largest_record();
        Ok(Self {
            bus,
            publishing,
            topic,
            id,
            plain: id.filter(|_| !timestamps),
            to_descendants: false,
            timestamps,
            is_declared: false,
            policy,
            largest_record,
        })
    }

    #[inline(always)]
    pub(super) fn is_of(&self, publishing: &Arc<Publishing>) -> bool {
        Arc::ptr_eq(&self.publishing, publishing)
    }

    #[inline(always)]
    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Returns the bus.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Returns how many bytes the largest message has that fits into the ring. What a publisher that has declared its topic
    /// ([`Self::retained`]) publishes must also fit where the bus keeps values
    /// ([`BusConfig::retained_bytes`](crate::BusConfig::retained_bytes)).
    #[must_use]
    pub fn largest_message(&self) -> u64 {
        let mut buffer = None;
        let (_, extensions) = self.frame(&mut buffer);
        self.largest_record - ALIGNMENT - extensions.len() as u64
    }

    /// Makes every call of this handle publish to the topic and to everything below it. If the topic is
    /// `plant`, subscribers of `plant/boiler` receive the messages, too.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-descendants-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// let mut subscriber = bus.subscribe("plant/boiler/*")?;
    /// bus.publisher("plant")?.to_descendants(true).publish(b"stop")?;
    /// let message = subscriber.receive()?;
    /// assert_eq!((message.topic(), message.payload()), ("plant", &b"stop"[..]));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn to_descendants(mut self, to_descendants: bool) -> Self {
        self.to_descendants = to_descendants;
        self
    }

    /// Makes this handle wait less for slow subscribers than the bus's policy says.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-policy-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # use toroni::Policy;
    /// // Only the newest reading counts: this publisher never waits, the others as the bus says.
    /// let readings = bus.publisher("plant/boiler/temperature")?.with_policy(Policy::Overwrite)?;
    /// readings.publish(b"351.2")?;
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if `policy` could wait longer than the bus's policy, or if it is neither of the
    /// same kind nor `Overwrite`.
    pub fn with_policy(mut self, policy: Policy) -> Result<Self, InvalidSetting> {
        self.policy = at_most(self.publishing.bus_policy(), policy)?;
        Ok(self)
    }

    /// Publishes one message, and returns its sequence. It may have any bytes, from none to
    /// [`Self::largest_message`]. The call waits for other publishers, and for slow subscribers as the policy says.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-sequence-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// let mut subscriber = bus.subscribe("orders/*")?;
    /// let sequence = bus.publisher("orders/new")?.publish(b"42")?;
    /// assert_eq!(subscriber.receive()?.sequence(), sequence);
    /// # drop((subscriber, bus));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`PublishError`]. On an error nothing is published.
    #[inline]
    pub fn publish(&self, payload: impl AsRef<[u8]>) -> Result<u64, PublishError> {
        self.publish_on(payload.as_ref(), &self.terms(Limit::Policy))
    }

    /// Publishes one message without waiting, and returns its sequence. Use it in threads that must not block, such as
    /// those of an event loop or an async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-try-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # use toroni::PublishError;
    /// # let publisher = bus.publisher("plant/boiler/temperature")?;
    /// match publisher.try_publish(b"351.2") {
    ///     Ok(_) => {}
    ///     Err(PublishError::Full | PublishError::Busy) => {} // leave it out, or keep it for later
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`PublishError::Full`] if `publish` would wait for a subscriber, and [`PublishError::Busy`]
    /// if it would wait for another publisher; see [`PublishError`].
    #[inline]
    pub fn try_publish(&self, payload: impl AsRef<[u8]>) -> Result<u64, PublishError> {
        self.publish_on(payload.as_ref(), &self.terms(Limit::Try))
    }

    /// Publishes one message as [`Self::publish`] does, and waits no longer than the limit says.
    ///
    /// # Errors
    /// Returns [`PublishError::Timeout`] after the time of [`Limit::Within`]; see [`Limit`] and [`PublishError`]. On an
    /// error nothing is published.
    #[inline]
    pub fn publish_within(
        &self,
        payload: impl AsRef<[u8]>,
        limit: impl Into<Limit>,
    ) -> Result<u64, PublishError> {
        self.publish_on(payload.as_ref(), &self.terms(limit.into()))
    }

    /// Publishes several messages that become visible together: all or none, one after the other, with no
    /// other message in between. Returns their sequences; without messages, an empty range. This is the fastest way to
    /// publish many small messages.
    ///
    /// # Errors
    /// Returns [`PublishError::TooLong`] if their records are together larger than the largest record; see [`Limit`]
    /// and [`PublishError`]. On an error nothing is published.
    #[inline]
    pub fn publish_batch<T: AsRef<[u8]>>(
        &self,
        payloads: &[T],
        limit: impl Into<Limit>,
    ) -> Result<Range<u64>, PublishError> {
        self.publish_batch_with(payloads, &self.terms(limit.into()))
    }

    #[inline(always)]
    pub(super) fn publish_batch_with<T: AsRef<[u8]>>(
        &self,
        payloads: &[T],
        terms: &Terms,
    ) -> Result<Range<u64>, PublishError> {
        if payloads.is_empty() {
            return Ok(0..0);
        }
        with_bytes_of(payloads, |payloads| self.publish_batch_of_bytes(payloads, terms))
    }

    #[inline(always)]
    fn publish_batch_of_bytes(
        &self,
        payloads: &[&[u8]],
        terms: &Terms,
    ) -> Result<Range<u64>, PublishError> {
        let mut buffer = None;
        let (tag, extensions) = self.frame(&mut buffer);
        let overhead = ALIGNMENT + extensions.len() as u64;
        let record = |length: u64| (length + overhead).next_multiple_of(ALIGNMENT);
        let (bits, bytes) = payloads.iter().fold((0, 0), |(bits, bytes): (u64, u64), payload| {
            let length = payload.len() as u64;
            (bits | length, bytes.wrapping_add(record(length)))
        });
        // A sum of lengths that all fit u32 has not wrapped.
        if bits > u32::MAX.into() || bytes > self.largest_record {
            return Err(self.batch_too_long(extensions, payloads));
        }
        let records = payloads.iter().map(|payload| Record { tag, extensions, payload });
        let count = payloads.len() as u64;
        let newest = payloads.last().map_or(0, |payload| record(payload.len() as u64));
        let terms = Terms { needs_room: self.is_declared, ..*terms };
        self.publishing.publish(Batch { records, tag, count, bytes, newest }, &terms)
    }

    /// Publishes messages one by one; each is visible at once. The call takes the writer lock once for all
    /// messages that fit without waiting, and wakes sleeping subscribers at the end. Other publishers wait
    /// meanwhile. If the call has to wait for subscribers, messages of other publishers may come in
    /// between, so it returns no sequences. The limit is for all messages together.
    ///
    /// # Errors
    /// [`BurstError`] says how many messages were published before the error. If one of them is too long,
    /// none is published. See [`Limit`].
    #[inline]
    pub fn burst<T: AsRef<[u8]>>(
        &self,
        payloads: &[T],
        limit: impl Into<Limit>,
    ) -> Result<(), BurstError> {
        self.burst_with(payloads, &self.terms(limit.into()))
    }

    #[inline]
    pub(super) fn burst_with<T: AsRef<[u8]>>(
        &self,
        payloads: &[T],
        terms: &Terms,
    ) -> Result<(), BurstError> {
        if payloads.is_empty() {
            return Ok(());
        }
        with_bytes_of(payloads, |payloads| self.burst_of_bytes(payloads, terms))
    }

    fn burst_of_bytes(&self, payloads: &[&[u8]], terms: &Terms) -> Result<(), BurstError> {
        let mut buffer = None;
        let (tag, extensions) = self.frame(&mut buffer);
        let longest = payloads.iter().map(|payload| payload.len()).max().unwrap_or_default();
        self.check_length(extensions.len(), longest)
            .map_err(|source| BurstError { published: 0, source })?;
        self.publishing
            .burst(tag, extensions, payloads, &Terms { needs_room: self.is_declared, ..*terms })
            .map_err(|(published, source)| BurstError { published, source })
    }

    /// Publishes one message of `length` bytes, which `fill` writes directly to the shared memory from
    /// which subscribers read it. Returns its sequence, and what `fill` returned.
    ///
    /// `fill` runs while this publisher holds the writer lock, so it should be short. It must not use the
    /// bus: a call in it returns [`PublishError::Reentrant`]. If it panics, nothing is published. If it
    /// forks, `publish_with` returns [`PublishError::Forked`] in the child. It must not end its thread
    /// without unwinding: a lock of the kind `lease` would stay taken until the process ends.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-with-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # use toroni::Limit;
    /// # let publisher = bus.publisher("camera/frame")?;
    /// publisher.publish_with(1920 * 1080, Limit::Policy, |frame| frame.fill(128))?;
    /// # drop((publisher, bus));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Limit`] and [`PublishError`]. On an error nothing is published.
    #[inline]
    pub fn publish_with<R>(
        &self,
        length: usize,
        limit: impl Into<Limit>,
        fill: impl FnOnce(&mut RacyBytesMut<'_>) -> R,
    ) -> Result<(u64, R), PublishError> {
        self.publish_with_terms(length, &self.terms(limit.into()), fill)
    }

    #[inline(always)]
    pub(super) fn publish_with_terms<R>(
        &self,
        length: usize,
        terms: &Terms,
        fill: impl FnOnce(&mut RacyBytesMut<'_>) -> R,
    ) -> Result<(u64, R), PublishError> {
        let mut buffer = None;
        let (tag, extensions) = self.frame(&mut buffer);
        let bytes = self.check_length(extensions.len(), length)?;
        let permit = reentrancy::permit().ok_or(PublishError::Reentrant)?;
        let payload_length = u32::try_from(length).unwrap_or(u32::MAX);
        let fill = |words: &[AtomicU64]| {
            let mut view =
                RacyBytesMut::new(words, length).expect("the double mapping holds any record");
            fill(&mut view)
        };
        let filled = Filled { permit, tag, extensions, length: payload_length, bytes, fill };
        let terms = Terms { needs_room: self.is_declared, ..*terms };
        self.publishing.publish(filled, &terms)
    }

    #[inline(always)]
    pub(super) fn terms(&self, limit: Limit) -> Terms {
        Terms::shared(self.policy, limit)
    }

    #[inline(always)]
    pub(super) fn publish_on(&self, payload: &[u8], terms: &Terms) -> Result<u64, PublishError> {
        if let Some(id) = self.plain {
            self.check_length(0, payload.len())?;
            let tag = Tag::message(id, self.to_descendants, &Extensions::default()).raw();
            return self.publishing.publish(Record { tag, extensions: &[], payload }, terms);
        }
        self.publish_extended(payload, terms)
    }

    /// Publishes one message that has extensions, or is a value.
    #[cold]
    fn publish_extended(&self, payload: &[u8], terms: &Terms) -> Result<u64, PublishError> {
        self.publish_framed(payload, terms)
    }

    /// Apart, because the compiler makes what is cold small, and not fast.
    #[inline(never)]
    fn publish_framed(&self, payload: &[u8], terms: &Terms) -> Result<u64, PublishError> {
        let mut buffer = None;
        let (tag, extensions) = self.frame(&mut buffer);
        self.check_length(extensions.len(), payload.len())?;
        let record = Record { tag, extensions, payload };
        if self.is_declared {
            return self.publishing.publish_declared(record, terms);
        }
        self.publishing.publish(record, terms)
    }

    /// Makes it a publisher that has declared its topic.
    pub(super) fn declare(&mut self, terms: &Terms) -> Result<(), RetainError> {
        let Self { publishing, topic, id, .. } = self;
        publishing.declare(topic, id, TableShare::All, terms)?;
        (self.is_declared, self.plain) = (true, None);
        Ok(())
    }

    pub(super) fn is_declared(&self) -> bool {
        self.is_declared
    }

    pub(super) fn publishing(&self) -> &Publishing {
        &self.publishing
    }

    /// Returns tag and extensions of a message that is published now. `buffer` is filled only if there are
    /// extensions.
    #[inline]
    pub(super) fn frame<'b>(
        &self,
        buffer: &'b mut Option<[u8; MAX_EXTENSIONS_BYTES]>,
    ) -> (u32, &'b [u8]) {
        match self.id {
            Some(id) if !self.timestamps => {
                (Tag::message(id, self.to_descendants, &Extensions::default()).raw(), &[])
            }
            _ => self.frame_extended(buffer),
        }
    }

    #[cold]
    fn frame_extended<'b>(
        &self,
        buffer: &'b mut Option<[u8; MAX_EXTENSIONS_BYTES]>,
    ) -> (u32, &'b [u8]) {
        let extensions = Extensions {
            timestamp_ns: self.timestamps.then(clock::realtime_ns),
            origin: None,
            number: None,
            inline_topic: self.id.is_none().then(|| self.topic.as_str()),
        };
        encode(self.id, self.to_descendants, &extensions, buffer.insert([0; MAX_EXTENSIONS_BYTES]))
    }

    /// Returns how many bytes the record takes in the stream, if it is not too long.
    #[inline]
    fn check_length(&self, extensions: usize, payload: usize) -> Result<u64, PublishError> {
        let bytes = stream_bytes((extensions as u64).saturating_add(payload as u64));
        if bytes > self.largest_record {
            return Err(self.too_long(extensions, payload));
        }
        Ok(bytes)
    }

    #[cold]
    fn batch_too_long(&self, extensions: &[u8], payloads: &[&[u8]]) -> PublishError {
        let length = payloads
            .iter()
            .map(|payload| stream_bytes((extensions.len() + payload.len()) as u64))
            .fold(0, u64::saturating_add);
        PublishError::TooLong { length, limit: self.largest_record }
    }

    #[cold]
    fn too_long(&self, extensions: usize, payload: usize) -> PublishError {
        let limit = self.largest_record - ALIGNMENT - extensions as u64;
        PublishError::TooLong { length: payload as u64, limit }
    }
}

/// The most payloads of one call whose slices are kept on the stack. For more payloads they are allocated.
const ON_STACK: usize = 16;

/// Calls `as_ref` once for each payload, and `publish` with the slices.
///
/// `as_ref` is the caller's code. Under the writer lock it could publish, and would wait for itself.
/// Called twice, it could return another length than the one that space was reserved for.
#[inline]
fn with_bytes_of<T: AsRef<[u8]>, R>(payloads: &[T], publish: impl FnOnce(&[&[u8]]) -> R) -> R {
    let mut few: [&[u8]; ON_STACK] = [&[]; ON_STACK];
    let many: Vec<&[u8]>;
    let slices = match few.get_mut(..payloads.len()) {
        Some(few) => {
            for (slice, payload) in few.iter_mut().zip(payloads) {
                *slice = payload.as_ref();
            }
            few
        }
        None => {
            many = payloads.iter().map(AsRef::as_ref).collect();
            &many[..]
        }
    };
    publish(slices)
}

/// Returns tag and encoded extensions of a message. Without an id, the extensions have the topic.
pub(super) fn encode<'b>(
    id: Option<TopicId>,
    to_descendants: bool,
    extensions: &Extensions<'_>,
    buffer: &'b mut [u8; MAX_EXTENSIONS_BYTES],
) -> (u32, &'b [u8]) {
    let tag = Tag::message(id.unwrap_or(TopicId::INLINE), to_descendants, extensions);
    let length = extensions.encode(buffer);
    (tag.raw(), &buffer[..length])
}

/// As [`record_bytes`], for lengths that may be beyond any record's.
#[inline]
pub(super) fn stream_bytes(length: u64) -> u64 {
    u32::try_from(length).map_or(u64::MAX / 4, record_bytes)
}

impl fmt::Debug for Publisher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Publisher")
            .field("bus", &self.bus.name())
            .field("topic", &self.topic.as_str())
            .field("to_descendants", &self.to_descendants)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
