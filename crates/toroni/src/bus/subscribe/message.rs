//! A received message in memory of this process; `in_place.rs` has those that stay in the ring.

use crate::ring::read_ahead::ReadAhead;
use crate::ring::reader::Seen;
use crate::topic::Origin;
use crate::topic::frame::{Extensions, Tag, TopicId, decode};
use crate::topic::interest::Interest;
use crate::topic::table::TopicCache;
use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

/// What a subscriber received last.
#[derive(Default)]
pub(super) struct Received {
    /// The names of topics, including those of all messages that the interest has accepted.
    pub(super) topic_cache: TopicCache,
    /// Extensions and payload. Of a message in place only the extensions, if its tag does not say how long
    /// they are.
    pub(super) read_ahead: ReadAhead,
    /// Whether the message was left in the ring.
    pub(super) in_place: bool,
    /// Where the stream began for this subscriber, or after its last loss. What lies before is a value.
    pub(super) values_before: u64,
}

/// A message in memory of this process. It lives until the subscriber's next call.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-message-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// # let mut subscriber = bus.subscribe("**")?;
/// bus.publisher("plant/boiler/temperature")?.publish(b"351.2")?;
///
/// let message = subscriber.receive()?;
/// assert_eq!(message.topic(), "plant/boiler/temperature");
/// assert_eq!(message.payload(), b"351.2");
/// assert_eq!(message.text(), "351.2");
/// // What is kept for longer is copied.
/// let kept = (message.topic().to_owned(), message.payload().to_vec());
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Message<'a>(&'a Received);

impl<'a> Message<'a> {
    #[inline]
    pub(super) fn new(received: &'a Received) -> Self {
        Self(received)
    }

    /// Returns the topic that it was published on.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        topic_of(self.tag(), self.parts().0.inline_topic, &self.0.topic_cache)
    }

    /// Returns its bytes.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        if self.tag().is_plain() {
            return self.body();
        }
        &self.body()[self.parts().1..]
    }

    /// Returns its bytes as text. Bytes that are not UTF-8 become `\u{FFFD}`.
    #[must_use]
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.payload())
    }

    /// Returns its position in the stream of the bus, in bytes. A subscriber can start there:
    /// [`Start::Position`](crate::Start::Position).
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.0.read_ahead.last().position
    }

    /// Returns the position of the message after it. After a value ([`Self::is_retained`]), the subscriber continues elsewhere:
    /// see [`Subscriber::position`](crate::Subscriber::position).
    #[inline]
    #[must_use]
    pub fn next_position(&self) -> u64 {
        self.0.read_ahead.last().next_position()
    }

    /// Returns its number among all messages of the bus, from 0. A subscriber to all topics that loses
    /// nothing sees the numbers without a gap.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.0.read_ahead.last().sequence
    }

    /// Returns when it was published, if its publisher stamps messages
    /// ([`BusConfig::timestamps`](crate::BusConfig::timestamps)).
    #[must_use]
    pub fn timestamp(&self) -> Option<SystemTime> {
        timestamp_of(self.parts().0.timestamp_ns)
    }

    /// Returns whether it was published to everything below its topic, too.
    #[must_use]
    pub fn to_descendants(&self) -> bool {
        self.tag().is_to_descendants()
    }

    /// Returns where it was first published, if it came from elsewhere.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        self.parts().0.origin
    }

    /// Returns its place in an order over several buses, if the process that brought it here knows it.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.parts().0.number
    }

    /// Returns whether it is the value of a topic ([`SubscriberBuilder::retained`](crate::SubscriberBuilder::retained)), and was
    /// published before the messages that the subscriber receives otherwise.
    #[must_use]
    pub fn is_retained(&self) -> bool {
        self.0.is_value(&self.0.read_ahead.last())
    }

    /// Returns whether it is no message, but says that the value of its topic was cleared
    /// ([`Publisher::clear`](crate::Publisher::clear)). Only subscribers that asked for values receive it.
    #[must_use]
    pub fn is_cleared(&self) -> bool {
        self.tag().is_cleared()
    }

    /// Returns whether an interest wants it. The interest must have cached its answers for this message's
    /// bus.
    pub(super) fn is_for(&self, interest: &mut Interest) -> bool {
        let tag = self.tag();
        if tag.topic() == TopicId::INLINE {
            return interest.answer_inline(self.topic(), tag);
        }
        interest.answer(tag).or_else(|| interest.fill(tag, &self.0.topic_cache)).unwrap_or(false)
    }

    #[inline]
    fn tag(&self) -> Tag {
        Tag::from_raw(self.0.read_ahead.tag())
    }

    /// Returns the extensions, and the offset of the payload. A record that cannot be decoded has no
    /// extensions: a broken publisher may have written any bytes.
    #[inline]
    fn parts(&self) -> (Extensions<'a>, usize) {
        decode(self.tag(), self.body()).unwrap_or_default()
    }

    /// Extensions and payload.
    #[inline]
    fn body(&self) -> &'a [u8] {
        self.0.read_ahead.body(self.0.read_ahead.length() as usize)
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Message")
            .field("topic", &self.topic())
            .field("position", &self.position())
            .field("sequence", &self.sequence())
            .field("length", &self.payload().len())
            .finish_non_exhaustive()
    }
}

/// Returns the topic of a message that the subscriber's interest has accepted, so that the topic cache has
/// it.
pub(super) fn topic_of<'a>(
    tag: Tag,
    inline_topic: Option<&'a str>,
    topic_cache: &'a TopicCache,
) -> &'a str {
    if tag.topic() == TopicId::INLINE {
        return inline_topic.unwrap_or_default();
    }
    topic_cache.name(tag.topic()).map_or("", |topic| topic.as_str())
}

pub(super) fn timestamp_of(timestamp_ns: Option<u64>) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(timestamp_ns?))
}

/// Returns whether the tag of a record says where its payload begins, and the record is long enough for
/// that. Of other records the front is copied and decoded.
#[inline]
pub(super) fn tag_locates_payload(seen: &Seen) -> bool {
    let extensions = Tag::from_raw(seen.tag).extensions_bytes();
    extensions.is_some_and(|extensions| extensions <= seen.length as usize)
}
