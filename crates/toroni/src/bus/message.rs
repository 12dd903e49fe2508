//! A received message, copied or in place.

use crate::error::{Corrupt, ReceiveError};
use crate::ring::memory::Ring;
use crate::ring::racy::RacyBytes;
use crate::ring::reader::Seen;
use crate::ring::window::Window;
use crate::topic::frame::{Extensions, MAX_EXTENSIONS_BYTES, Tag, TopicId, decode};
use crate::topic::interest::Interest;
use crate::topic::table::Mirror;
use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

/// What a subscriber received last, in memory of this process.
#[derive(Default)]
pub(super) struct Received {
    /// The names of topics; it has those of all messages that the interest has accepted.
    pub(super) mirror: Mirror,
    /// Extensions and payload, or, of a message in place, what can be extensions.
    pub(super) window: Window,
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
        topic_of(self.tag(), &self.parts().0, &self.0.mirror)
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
        self.0.window.last().position
    }

    /// Position of the message behind it.
    #[inline]
    #[must_use]
    pub fn next_position(&self) -> u64 {
        self.0.window.last().next_position()
    }

    /// Its number among all messages of the bus, from 0. A subscriber that wants all topics and loses
    /// nothing sees them without a gap.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.0.window.last().sequence
    }

    /// When it was published, if its publisher stamps messages
    /// ([`BusConfig::timestamps`](crate::BusConfig::timestamps)).
    #[must_use]
    pub fn timestamp(&self) -> Option<SystemTime> {
        timestamp_of(&self.parts().0)
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
            .or_else(|| interest.fill(tag.topic(), to_descendants, &self.0.mirror))
            .unwrap_or(false)
    }

    #[inline]
    fn tag(&self) -> Tag {
        Tag::from_raw(self.0.window.tag())
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
        self.0.window.body(self.0.window.length() as usize)
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

/// A message where it lies in shared memory.
///
/// What is read of it counts only if [`Self::validate`] succeeds afterwards; see
/// [`Subscriber::borrow`](crate::Subscriber::borrow) for an example.
pub struct Borrowed<'a> {
    ring: Ring<'a>,
    mirror: &'a Mirror,
    seen: Seen,
    extensions: Extensions<'a>,
    payload: RacyBytes<'a>,
}

impl<'a> Borrowed<'a> {
    pub(super) fn new(ring: Ring<'a>, received: &'a Received) -> Result<Self, Corrupt> {
        let Received { mirror, window, in_place } = received;
        let seen = window.last();
        let length = seen.length as usize;
        let front = window.body(if *in_place { length.min(MAX_EXTENSIONS_BYTES) } else { length });
        let at = |corrupt| Corrupt { position: seen.position, ..corrupt };
        let (extensions, offset) =
            decode(Tag::from_raw(seen.tag), front).map_err(|error| at(error.into()))?;
        let payload = if *in_place {
            let words = ring.words_from(seen.body() + offset as u64);
            length.checked_sub(offset).and_then(|length| RacyBytes::new(words, length))
        } else {
            front.get(offset..).map(RacyBytes::private)
        };
        let payload = payload.ok_or_else(|| {
            at(Corrupt { what: "length", value: seen.length.into(), position: 0 })
        })?;
        Ok(Self { ring, mirror, seen, extensions, payload })
    }

    /// The topic it was published on.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        topic_of(Tag::from_raw(self.seen.tag), &self.extensions, self.mirror)
    }

    /// Its bytes, in place.
    #[must_use]
    pub fn payload(&self) -> RacyBytes<'a> {
        self.payload
    }

    /// As [`Message::position`].
    #[must_use]
    pub fn position(&self) -> u64 {
        self.seen.position
    }

    /// As [`Message::sequence`].
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.seen.sequence
    }

    /// As [`Message::timestamp`].
    #[must_use]
    pub fn timestamp(&self) -> Option<SystemTime> {
        timestamp_of(&self.extensions)
    }

    /// Whether all that was read so far is what was published. To be asked after the last read, and
    /// before anything is done with it.
    ///
    /// # Errors
    /// [`ReceiveError::Lapped`] with this one message as lost: a publisher may have begun to overwrite
    /// it. The subscriber's next call tells what else was lost.
    pub fn validate(&self) -> Result<(), ReceiveError> {
        if self.payload.is_private() || self.ring.is_intact(self.seen.position) {
            return Ok(());
        }
        let lost_bytes = self.seen.next_position() - self.seen.position;
        Err(ReceiveError::Lapped { lost_messages: 1, lost_bytes })
    }
}

impl fmt::Debug for Borrowed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Borrowed")
            .field("topic", &self.topic())
            .field("position", &self.position())
            .field("sequence", &self.sequence())
            .field("length", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// The topic of a message that its subscriber's interest has accepted, so that the mirror has it.
fn topic_of<'a>(tag: Tag, extensions: &Extensions<'a>, mirror: &'a Mirror) -> &'a str {
    if tag.topic() == TopicId::INLINE {
        return extensions.inline_topic.unwrap_or_default();
    }
    mirror.name(tag.topic()).map_or("", |topic| topic.as_str())
}

fn timestamp_of(extensions: &Extensions<'_>) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(extensions.timestamp_ns?))
}
