//! Reads values without a subscriber, and so without a slot.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::super::message::timestamp_of;
use super::invalid;
use crate::bus::Bus;
use crate::bus::views::{RING_TRUNCATED, number_of, ring_of, table_of, values_of};
use crate::error::{Corrupt, FileError, RetainedError};
use crate::ring::copy::Scratch;
use crate::ring::reader::Seen;
use crate::ring::values::Value;
use crate::shm::segment::RingSegment;
use crate::topic::frame::{Tag, TopicId, decode};
use crate::topic::table::TopicCache;
use crate::topic::{Origin, Pattern, Topic};
use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

/// The value of a topic: a copy of its newest message.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-value-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// bus.publisher("plant/setpoint")?.retained()?.publish(b"350")?;
/// let value = bus.retained("plant/setpoint")?.ok_or("no value")?;
/// assert_eq!((value.topic(), value.payload()), ("plant/setpoint", &b"350"[..]));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RetainedMessage {
    topic: Topic,
    body: Vec<u8>,
    /// Where the payload begins.
    offset: usize,
    position: u64,
    sequence: u64,
    to_descendants: bool,
    timestamp_ns: Option<u64>,
    origin: Option<Origin>,
    number: Option<u64>,
}

impl RetainedMessage {
    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.topic.as_str()
    }

    /// Returns its bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.body.get(self.offset..).unwrap_or_default()
    }

    /// Returns its bytes as text; see [`Message::text`](crate::Message::text).
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.payload())
    }

    /// Returns its position; see [`Message::position`](crate::Message::position).
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns its number among all messages of the bus; see [`Message::sequence`](crate::Message::sequence).
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether it was published to its topic and everything below it.
    #[must_use]
    pub fn to_descendants(&self) -> bool {
        self.to_descendants
    }

    /// Returns when it was published; see [`Message::timestamp`](crate::Message::timestamp).
    #[must_use]
    pub fn timestamp(&self) -> Option<SystemTime> {
        timestamp_of(self.timestamp_ns)
    }

    /// Returns where it was first published, if it came from elsewhere.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Returns its place in an order over several buses; see [`Message::number`](crate::Message::number).
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.number
    }
}

impl fmt::Debug for RetainedMessage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RetainedMessage")
            .field("topic", &self.topic())
            .field("sequence", &self.sequence)
            .field("length", &self.payload().len())
            .finish_non_exhaustive()
    }
}

/// Reads values without a slot.
#[derive(Default)]
pub(in crate::bus) struct ValueReader {
    topic_cache: TopicCache,
    scratch: Scratch,
}

impl ValueReader {
    fn read(
        &mut self,
        segment: &RingSegment,
        id: TopicId,
    ) -> Result<Option<RetainedMessage>, RetainedError> {
        let ring = ring_of(segment);
        let values = values_of(segment);
        let read = values.and_then(|values| values.read(ring, number_of(id), &mut self.scratch));
        let Some(name) = self.topic_cache.name(id) else { return Ok(None) };
        let seen = match read {
            None | Some(Value::None) => return Ok(None),
            Some(Value::Present(seen) | Value::Missing(seen))
                if Tag::from_raw(seen.tag).is_cleared() =>
            {
                return Ok(None);
            }
            Some(Value::Present(seen)) => seen,
            Some(Value::Missing(Seen { sequence, length, .. })) => {
                let topic = name.as_str().to_owned();
                return Err(RetainedError::Missing { topic, sequence, length: length.into() });
            }
            Some(Value::Unstable) => {
                return Err(RetainedError::Unstable { topic: name.as_str().to_owned() });
            }
            Some(Value::Invalid(seen)) => return Err(invalid(&seen).into()),
        };
        let body = self.scratch.bytes(seen.length as usize).to_vec();
        let at = |corrupt: Corrupt| Corrupt { position: seen.position, ..corrupt };
        let (extensions, offset) =
            decode(Tag::from_raw(seen.tag), &body).map_err(|error| at(error.into()))?;
        Ok(Some(RetainedMessage {
            topic: name.clone(),
            offset,
            position: seen.position,
            sequence: seen.sequence,
            to_descendants: Tag::from_raw(seen.tag).is_to_descendants(),
            timestamp_ns: extensions.timestamp_ns,
            origin: extensions.origin,
            number: extensions.number,
            body,
        }))
    }
}

impl Bus {
    /// Returns the value of a topic: its newest message since it was declared
    /// ([`Publisher::retained`](crate::Publisher::retained)). `None` if it is not retained, has none yet, or was cleared.
    ///
    /// It takes no slot and no lock of the bus, and waits for no publisher. After this thread has received a message of the
    /// topic, it returns that one or a newer one.
    ///
    /// # Errors
    /// Returns [`RetainedError::Missing`] if there is a value, but the bus had no room for it; see [`RetainedError`].
    pub fn retained(&self, topic: &str) -> Result<Option<RetainedMessage>, RetainedError> {
        let topic = Topic::new(topic)?;
        self.with_values(|reader, segment| match reader.topic_cache.lookup(topic.as_str()) {
            Some(id) => reader.read(segment, id),
            None => Ok(None),
        })
    }

    /// Returns the values of all topics that match a pattern, in the order of the bus. One that cannot be read is an error in its
    /// place, or at the end if its place is not known. See [`Self::retained`].
    ///
    /// # Errors
    /// See [`RetainedError`].
    pub fn retained_matching(
        &self,
        pattern: &str,
    ) -> Result<Vec<Result<RetainedMessage, RetainedError>>, RetainedError> {
        let pattern = Pattern::new(pattern)?;
        self.with_values(|reader, segment| {
            let Some(values) = values_of(segment) else { return Ok(Vec::new()) };
            let mut all = Vec::new();
            for id in values.topics().filter_map(TopicId::new) {
                let matches = reader.topic_cache.name(id);
                if matches.is_some_and(|name| pattern.matches(name.as_str())) {
                    all.extend(reader.read(segment, id).transpose());
                }
            }
            all.sort_by_key(|value| match value {
                Ok(value) => value.sequence,
                Err(RetainedError::Missing { sequence, .. }) => *sequence,
                Err(_) => u64::MAX,
            });
            Ok(all)
        })
    }

    fn with_values<R>(
        &self,
        read: impl FnOnce(&mut ValueReader, &RingSegment) -> Result<R, RetainedError>,
    ) -> Result<R, RetainedError> {
        let subscribing = self.subscribing()?;
        let segment = &subscribing.ring;
        if segment.header().settings.retained_topics == 0 {
            return Err(RetainedError::NoValues);
        }
        let mut reader = subscribing.value_reader();
        reader.topic_cache.sync(table_of(segment)).map_err(Corrupt::from)?;
        let result = read(&mut reader, segment);
        // If the file was truncated, this process reads zeros, which are no values.
        if segment.was_damaged() {
            let corrupt = Corrupt { what: RING_TRUNCATED, value: 0, position: 0 };
            return Err(FileError::from(corrupt).into());
        }
        result
    }
}
