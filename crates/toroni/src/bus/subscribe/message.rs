//! A received message, in memory of this process; `in_place` has those that are not.

use crate::ring::read_ahead::ReadAhead;
use crate::ring::reader::Seen;
use crate::topic::frame::{Extensions, Tag, TopicId, decode};
use crate::topic::interest::Interest;
use crate::topic::table::TopicCache;
use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

/// What a subscriber received last, in memory of this process.
#[derive(Default)]
pub(super) struct Received {
    /// The names of topics; it has those of all messages that the interest has accepted.
    pub(super) topic_cache: TopicCache,
    /// Extensions and payload, or, of a message in place, its extensions where its tag does not tell them.
    pub(super) read_ahead: ReadAhead,
    /// Whether the message was left where it is, in the ring.
    pub(super) in_place: bool,
}

/// A message, in memory of this process; it lives until the subscriber's next call.
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

    /// The topic it was published on.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        topic_of(self.tag(), self.parts().0.inline_topic, &self.0.topic_cache)
    }

    /// Its bytes.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        if self.tag().is_plain() {
            return self.body();
        }
        &self.body()[self.parts().1..]
    }

    /// Its bytes as text; what is not UTF-8 becomes `\u{FFFD}`.
    #[must_use]
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.payload())
    }

    /// Its position in the stream of the bus, in bytes. [`Start::Position`](crate::Start::Position)
    /// takes it.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.0.read_ahead.last().position
    }

    /// Position of the message behind it.
    #[inline]
    #[must_use]
    pub fn next_position(&self) -> u64 {
        self.0.read_ahead.last().next_position()
    }

    /// Its number among all messages of the bus, from 0. A subscriber that wants all topics and loses
    /// nothing sees them without a gap.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.0.read_ahead.last().sequence
    }

    /// When it was published, if its publisher stamps messages
    /// ([`BusConfig::timestamps`](crate::BusConfig::timestamps)).
    #[must_use]
    pub fn timestamp(&self) -> Option<SystemTime> {
        timestamp_of(self.parts().0.timestamp_ns)
    }

    /// Whether it was posted to everything below its topic, too.
    #[must_use]
    pub fn to_descendants(&self) -> bool {
        self.tag().is_to_descendants()
    }

    /// Whether an interest, with answers cached for this message's bus, wants it. The message was
    /// validated when it was received.
    pub(super) fn is_for(&self, interest: &mut Interest) -> bool {
        let (tag, to_descendants) = (self.tag(), self.to_descendants());
        if tag.topic() == TopicId::INLINE {
            return interest.answer_inline(self.topic(), to_descendants);
        }
        interest
            .answer(tag.topic(), to_descendants)
            .or_else(|| interest.fill(tag.topic(), to_descendants, &self.0.topic_cache))
            .unwrap_or(false)
    }

    #[inline]
    fn tag(&self) -> Tag {
        Tag::from_raw(self.0.read_ahead.tag())
    }

    /// The extensions, and the offset of the payload. A record that cannot be decoded has none: the
    /// bytes of a message that was received may be whatever a broken publisher wrote.
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

/// The topic of a message that its subscriber's interest has accepted, so that the topic cache has it.
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

/// Whether the tag of a record tells where its payload begins, and it is long enough for that. Of others the
/// front is copied, to be decoded.
#[inline]
pub(super) fn is_told_by_tag(seen: &Seen) -> bool {
    let extensions = Tag::from_raw(seen.tag).extensions_bytes();
    extensions.is_some_and(|extensions| extensions <= seen.length as usize)
}
