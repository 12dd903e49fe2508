//! A chunk: a message, a part of one, the declaration of a name, or what the source itself missed.
//!
//! ```text
//!  byte 0         2      3      4          8                     8 + length
//!       +---------+------+------+----------+---------------------+
//!       | length  | kind | flags| topic    | body                |
//!       | u16     | u8   | u8   | u32      |                     |
//!       +---------+------+------+----------+---------------------+
//!
//!  kind        flags                                    topic            body
//!  1 MESSAGE   4 TO_DESCENDANTS, 8, 16, 64              of the message   [extensions] payload
//!  2 FRAGMENT  1 FIRST, 4 TO_DESCENDANTS, 8, 16, 64     of the message   [extensions] total (u32) payload
//!              2 LAST, or none                          of the message   offset (u32) payload
//!  3 TOPIC     none                                     of this name     the name
//!  4 LOST      none                                     0                count (u64) until (u64) reason (u8)
//!
//!  extensions, in this order, each if its flag is set:
//!  64 NUMBER     the number of the message (u64)
//!   8 TIMESTAMP  when it was published, CLOCK_REALTIME in ns (u64)
//!  16 ORIGIN     who published it (16 bytes), only in datagrams with the flag FEED
//! ```
//!
//! `length` does not count the first 8 bytes. Chunks follow one another without padding.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::cursor::{NoRoom, Reader, Writer};
use super::name::TableName;
use super::reject::Reject;
use super::topics::MAX_TABLE_NAMES;
use crate::id::{Number, Origin};
use crate::time::Wall;

/// The length of what stands before the body of a chunk, in bytes.
pub(crate) const CHUNK_HEADER_BYTES: usize = 8;
/// The length of a fragment's total or offset, in bytes.
pub(crate) const FRAGMENT_BYTES: usize = 4;
/// The length of the body of LOST, in bytes.
const LOST_BYTES: usize = 17;

const MESSAGE: u8 = 1;
const FRAGMENT: u8 = 2;
const TOPIC: u8 = 3;
const LOST: u8 = 4;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const TO_DESCENDANTS: u8 = 4;
const TIMESTAMP: u8 = 8;
const ORIGIN: u8 = 16;
const NUMBER: u8 = 64;

/// The place of a name in a stream's table of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicNumber(u32);

impl TopicNumber {
    /// Returns `None` if the table cannot have that many names.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number < MAX_TABLE_NAMES { Some(Self(number)) } else { None }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Why messages are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LostReason {
    /// The sender's window no longer had them.
    Gone = 1,
    /// They were not repaired within the generation interval, or waited longer than the bound for a TCP
    /// client.
    Budget = 2,
    /// The receiver had no memory to wait for them, or the queue of a TCP client was full.
    Memory = 3,
    /// There were too many gaps at once.
    Burst = 4,
    /// The stream jumped far ahead.
    Jump = 5,
    /// The source came back with another series.
    Restart = 6,
    /// The source fell silent.
    Silent = 7,
    /// The name of the topic is not known, or has no place in the table.
    Topic = 8,
    /// The message is longer than `message_max`.
    TooLong = 9,
    /// The sender was overtaken on its own bus.
    Overtaken = 10,
    /// A feed continues with other messages than those received.
    Diverged = 11,
}

impl LostReason {
    /// All reasons, by their number.
    pub const ALL: [Self; 11] = [
        Self::Gone,
        Self::Budget,
        Self::Memory,
        Self::Burst,
        Self::Jump,
        Self::Restart,
        Self::Silent,
        Self::Topic,
        Self::TooLong,
        Self::Overtaken,
        Self::Diverged,
    ];
}

/// How exact the count of a loss is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Exactly this many were lost.
    Exact,
    /// This many were lost, and perhaps more.
    AtLeast,
    /// Not all of the numbers in between belonged to this stream.
    AtMost,
}

/// What is known of a message from its first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The topic.
    pub topic: TopicNumber,
    /// The number of the message. It is sent only if it is not that of the message before plus 1.
    pub number: Number,
    /// Whether the message was posted to the topic's descendants too.
    pub to_descendants: bool,
    /// When the message was published, if its bus stamps messages.
    pub published: Option<Wall>,
    /// Who published the message, on a feed.
    pub origin: Option<Origin>,
}

impl Start {
    /// Returns the length of the extensions, in bytes, if the number is sent or not.
    pub(crate) const fn extension_bytes(&self, with_number: bool) -> usize {
        let number = if with_number { 8 } else { 0 };
        let published = if self.published.is_some() { 8 } else { 0 };
        let origin = if self.origin.is_some() { Origin::BYTES } else { 0 };
        usize::saturating_add(number, published).saturating_add(origin)
    }
}

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// A whole message.
    Message {
        /// What is known of the message.
        start: Start,
        /// The message.
        payload: &'a [u8],
    },
    /// The first part of a message. It is the last chunk of its datagram.
    First {
        /// What is known of the message.
        start: Start,
        /// The length of the whole message, which is greater than that of this part.
        total: u32,
        /// The first bytes of the message, at least one.
        payload: &'a [u8],
    },
    /// A further part. It is the first chunk of its datagram, and the only one unless it is the last
    /// part.
    Rest {
        /// The topic of the message.
        topic: TopicNumber,
        /// The place of these bytes in the message.
        offset: u32,
        /// Whether the message ends here.
        last: bool,
        /// At least one byte.
        payload: &'a [u8],
    },
    /// Declares the name that belongs to a number, before the first message that uses it.
    Topic {
        /// The number.
        number: TopicNumber,
        /// The name.
        name: TableName<'a>,
    },
    /// Messages that the source itself missed. They count as messages of the stream.
    Lost {
        /// How many, at least one.
        count: u64,
        /// Their numbers are below this one, and that of the next message is not.
        until: Number,
        /// Why.
        reason: LostReason,
    },
}

/// What the place of a chunk says about its contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The number of the next message, unless the chunk states another.
    pub(super) implied: u64,
    /// Whether a message has started in this datagram, or LOST has come, so that a chunk may state a number.
    pub(super) may_state_number: bool,
    /// Whether the datagram belongs to a feed, so that messages may have origins.
    pub(super) feed: bool,
    /// The longest message that is accepted.
    pub(super) message_max: u32,
}

impl<'a> Chunk<'a> {
    /// Takes the next chunk if it is a message, and nothing otherwise. Nearly all chunks are messages, so this path takes
    /// no detour through the memory of a chunk.
    #[inline(always)]
    pub(super) fn parse_message(
        reader: &mut Reader<'a>,
        place: &Place,
    ) -> Option<Result<(Start, &'a [u8]), Reject>> {
        let (head, rest) = reader.rest().split_first_chunk::<CHUNK_HEADER_BYTES>()?;
        let [low, high, MESSAGE, flags, topic @ ..] = *head else { return None };
        let length = usize::from(u16::from_le_bytes([low, high]));
        let Some((body, rest)) = rest.split_at_checked(length) else {
            return Some(Err(Reject::Truncated));
        };
        *reader = Reader::new(rest);
        let mut body = Reader::new(body);
        Some(parse_start(&mut body, u32::from_le_bytes(topic), flags, place).and_then(|start| {
            let payload = body.rest();
            if payload.len() > place.message_max as usize {
                return Err(Reject::TooLong);
            }
            Ok((start, payload))
        }))
    }

    pub(super) fn parse(reader: &mut Reader<'a>, place: &Place) -> Result<Self, Reject> {
        if let Some(message) = Self::parse_message(reader, place) {
            return message.map(|(start, payload)| Self::Message { start, payload });
        }
        let [length, length_high, kind, flags, topic @ ..] =
            reader.array::<CHUNK_HEADER_BYTES>()?;
        let length = usize::from(u16::from_le_bytes([length, length_high]));
        let topic = u32::from_le_bytes(topic);
        let mut body = Reader::new(reader.bytes(length)?);
        match kind {
            FRAGMENT if flags & FIRST != 0 => {
                let start = parse_start(&mut body, topic, flags & !FIRST, place)?;
                let total = body.u32()?;
                let payload = body.rest();
                if total > place.message_max {
                    return Err(Reject::TooLong);
                }
                if payload.is_empty() || payload.len() >= total as usize {
                    return Err(Reject::Fragment);
                }
                Ok(Self::First { start, total, payload })
            }
            FRAGMENT => {
                if flags & !LAST != 0 {
                    return Err(Reject::ChunkFlags);
                }
                let topic = TopicNumber::new(topic).ok_or(Reject::Name)?;
                let offset = body.u32()?;
                let payload = body.rest();
                let end = (offset as usize).saturating_add(payload.len());
                if offset == 0 || payload.is_empty() {
                    return Err(Reject::Fragment);
                }
                if end > place.message_max as usize {
                    return Err(Reject::TooLong);
                }
                Ok(Self::Rest { topic, offset, last: flags == LAST, payload })
            }
            TOPIC => parse_topic(body, topic, flags),
            LOST => parse_lost(body, topic, flags, place),
            _ => Err(Reject::Code),
        }
    }

    /// Writes the chunk. `implied` is the number that the message has without stating it.
    #[inline]
    pub(super) fn write(&self, implied: u64, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Message { start, payload } => write_message(start, implied, payload, writer),
            Self::First { start, total, payload } => {
                let length = payload.len().saturating_add(FRAGMENT_BYTES);
                write_start(FRAGMENT, FIRST, start, implied, length, writer)?;
                writer.u32(*total)?;
                writer.bytes(payload)
            }
            Self::Rest { topic, offset, last, payload } => {
                let flags = if *last { LAST } else { 0 };
                let length = payload.len().saturating_add(FRAGMENT_BYTES);
                write_header(FRAGMENT, flags, topic.0, length, writer)?;
                writer.u32(*offset)?;
                writer.bytes(payload)
            }
            Self::Topic { number, name } => {
                let text = name.as_str().as_bytes();
                write_header(TOPIC, 0, number.0, text.len(), writer)?;
                writer.bytes(text)
            }
            Self::Lost { count, until, reason } => {
                write_header(LOST, 0, 0, LOST_BYTES, writer)?;
                writer.u64(*count)?;
                writer.u64(until.get())?;
                writer.u8(*reason as u8)
            }
        }
    }
}

#[inline(always)]
fn parse_start(
    body: &mut Reader<'_>,
    topic: u32,
    flags: u8,
    place: &Place,
) -> Result<Start, Reject> {
    let known = if place.feed { TO_DESCENDANTS | TIMESTAMP | NUMBER | ORIGIN } else { PLAIN };
    if flags & !known != 0 {
        return Err(Reject::ChunkFlags);
    }
    let topic = TopicNumber::new(topic).ok_or(Reject::Name)?;
    let number = if flags & NUMBER == 0 {
        place.implied
    } else {
        let stated = body.u64()?;
        // The first message of a datagram has the datagram's number.
        if !place.may_state_number || stated < place.implied {
            return Err(Reject::Number);
        }
        stated
    };
    let number = Number::new(number).ok_or(Reject::Number)?;
    let published = if flags & TIMESTAMP == 0 { None } else { Some(Wall::from_ns(body.u64()?)) };
    let origin = if flags & ORIGIN == 0 { None } else { Some(Origin::from_bytes(body.array()?)) };
    let to_descendants = flags & TO_DESCENDANTS != 0;
    Ok(Start { topic, number, to_descendants, published, origin })
}

/// The flags of a message outside of feeds.
const PLAIN: u8 = TO_DESCENDANTS | TIMESTAMP | NUMBER;

fn parse_topic(body: Reader<'_>, number: u32, flags: u8) -> Result<Chunk<'_>, Reject> {
    if flags != 0 {
        return Err(Reject::ChunkFlags);
    }
    let number = TopicNumber::new(number).ok_or(Reject::Name)?;
    Ok(Chunk::Topic { number, name: TableName::parse(body.rest())? })
}

fn parse_lost<'a>(
    mut body: Reader<'a>,
    topic: u32,
    flags: u8,
    place: &Place,
) -> Result<Chunk<'a>, Reject> {
    if flags != 0 {
        return Err(Reject::ChunkFlags);
    }
    let (count, until, number) = (body.u64()?, body.u64()?, body.u8()?);
    body.end()?;
    if topic != 0 {
        return Err(Reject::Reserved);
    }
    if count == 0 {
        return Err(Reject::Count);
    }
    if until < place.implied {
        return Err(Reject::Number);
    }
    let until = Number::new(until).ok_or(Reject::Number)?;
    let reason = LostReason::ALL.into_iter().find(|reason| *reason as u8 == number);
    Ok(Chunk::Lost { count, until, reason: reason.ok_or(Reject::Code)? })
}

/// Writes a [`Chunk::Message`].
#[inline(always)]
pub(super) fn write_message(
    start: &Start,
    implied: u64,
    payload: &[u8],
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    write_start(MESSAGE, 0, start, implied, payload.len(), writer)?;
    writer.bytes(payload)
}

#[inline(always)]
fn write_start(
    kind: u8,
    flags: u8,
    start: &Start,
    implied: u64,
    length: usize,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    let states_number = start.number.get() != implied;
    let set = |flag, wanted| if wanted { flag } else { 0 };
    let flags = flags
        | set(TO_DESCENDANTS, start.to_descendants)
        | set(NUMBER, states_number)
        | set(TIMESTAMP, start.published.is_some())
        | set(ORIGIN, start.origin.is_some());
    let length = length.saturating_add(start.extension_bytes(states_number));
    write_header(kind, flags, start.topic.0, length, writer)?;
    if states_number {
        writer.u64(start.number.get())?;
    }
    if let Some(published) = start.published {
        writer.u64(published.ns())?;
    }
    if let Some(origin) = start.origin {
        writer.bytes(&origin.to_bytes())?;
    }
    Ok(())
}

#[inline(always)]
fn write_header(
    kind: u8,
    flags: u8,
    topic: u32,
    length: usize,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    // One word, because a message's header is the first thing that each message costs.
    let length = u64::from(u16::try_from(length).map_err(|_| NoRoom)?);
    let (kind, flags) = (u64::from(kind) << 16, u64::from(flags) << 24);
    writer.u64(length | kind | flags | u64::from(topic) << 32)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::{Series, Source, Stream};

    pub(crate) fn topic(number: u32) -> TopicNumber {
        TopicNumber::new(number).unwrap()
    }

    pub(crate) fn start(number: u64) -> Start {
        Start {
            topic: topic(3),
            number: Number::new(number).unwrap(),
            to_descendants: false,
            published: None,
            origin: None,
        }
    }

    fn place() -> Place {
        Place { implied: 100, may_state_number: true, feed: true, message_max: 1_000 }
    }

    fn parse(bytes: &[u8], place: &Place) -> Result<(), Reject> {
        let mut reader = Reader::new(bytes);
        Chunk::parse(&mut reader, place)?;
        reader.end()
    }

    fn bytes_of(chunk: &Chunk<'_>) -> Vec<u8> {
        let mut buffer = vec![0; 2_000];
        let mut writer = Writer::new(&mut buffer);
        chunk.write(100, &mut writer).unwrap();
        let written = writer.written();
        buffer.truncate(written);
        buffer
    }

    /// Each kind once, with all extensions where there are some.
    fn each() -> Vec<Chunk<'static>> {
        let origin = Origin {
            source: Source(1),
            series: Series(2),
            stream: Stream(3),
            number: Number::new(4).unwrap(),
        };
        let full = Start {
            to_descendants: true,
            published: Some(Wall::from_ns(5)),
            origin: Some(origin),
            ..start(107)
        };
        vec![
            Chunk::Message { start: start(100), payload: b"" },
            Chunk::Message { start: full, payload: b"payload" },
            Chunk::First { start: full, total: 1_000, payload: b"payload" },
            Chunk::Rest { topic: topic(3), offset: 7, last: false, payload: b"more" },
            Chunk::Rest { topic: topic(3), offset: 11, last: true, payload: b"end" },
            Chunk::Topic { number: topic(3), name: TableName::new("plant/boiler").unwrap() },
            Chunk::Lost { count: 9, until: start(110).number, reason: LostReason::Overtaken },
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        for chunk in each() {
            let bytes = bytes_of(&chunk);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Chunk::parse(&mut reader, &place()), Ok(chunk));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn a_chunk_that_ends_too_early_is_refused() {
        for chunk in each() {
            let bytes = bytes_of(&chunk);
            for length in 0..bytes.len() {
                let wanted = Err(Reject::Truncated);
                assert_eq!(parse(&bytes[..length], &place()), wanted, "{chunk:?} at {length}");
            }
        }
    }

    #[test]
    fn a_body_that_is_too_short_for_its_fields_is_refused() {
        // The lengths below which fields are missing, kind by kind.
        let needed = [0, 32, 36, 4, 4, 1, 17];
        for (chunk, needed) in each().iter().zip(needed) {
            let bytes = bytes_of(chunk);
            for length in 0..needed {
                let mut short = bytes[..8 + length].to_vec();
                short[0] = u8::try_from(length).unwrap();
                let wanted = match chunk {
                    Chunk::Topic { .. } => Reject::Name,
                    _ => Reject::Truncated,
                };
                assert_eq!(parse(&short, &place()), Err(wanted), "{chunk:?} with {length} bytes");
            }
        }
    }

    #[test]
    fn flags_are_refused_where_they_mean_nothing() {
        let allowed: [&[u8]; 7] = [
            &[TO_DESCENDANTS],
            &[TO_DESCENDANTS],
            &[TO_DESCENDANTS, FIRST],
            &[LAST],
            &[LAST],
            &[],
            &[],
        ];
        for (chunk, allowed) in each().iter().zip(allowed) {
            for flag in [LAST, TO_DESCENDANTS, 32, 128] {
                let mut bytes = bytes_of(chunk);
                bytes[3] |= flag;
                let refused = parse(&bytes, &place()) == Err(Reject::ChunkFlags);
                assert_eq!(refused, !allowed.contains(&flag), "{chunk:?} with flag {flag}");
            }
        }
    }

    #[test]
    fn an_origin_is_allowed_on_a_feed_only() {
        let bytes = bytes_of(&each()[1]);
        assert_eq!(parse(&bytes, &place()), Ok(()));
        assert_eq!(parse(&bytes, &Place { feed: false, ..place() }), Err(Reject::ChunkFlags));
    }

    #[test]
    fn numbers_grow_and_only_a_later_message_states_its_own() {
        let stated = |number| bytes_of(&Chunk::Message { start: start(number), payload: b"" });
        assert_eq!(parse(&stated(101), &place()), Ok(()));
        assert_eq!(parse(&stated(99), &place()), Err(Reject::Number));
        let first = Place { may_state_number: false, ..place() };
        assert_eq!(parse(&stated(101), &first), Err(Reject::Number));
        let mut beyond = stated(101);
        beyond[8 + 6] = 1; // 2⁴⁸ + 101
        assert_eq!(parse(&beyond, &place()), Err(Reject::Number));
        let full = Place { implied: 1 << 48, ..place() };
        assert_eq!(parse(&stated(100), &full), Err(Reject::Number));
    }

    #[test]
    fn parts_of_messages_have_bytes_that_lie_within_the_message() {
        let first = |total, payload| bytes_of(&Chunk::First { start: start(100), total, payload });
        assert_eq!(parse(&first(3, b"ab"), &place()), Ok(()));
        assert_eq!(parse(&first(2, b"ab"), &place()), Err(Reject::Fragment));
        assert_eq!(parse(&first(2, b""), &place()), Err(Reject::Fragment));
        assert_eq!(parse(&first(1_001, b"ab"), &place()), Err(Reject::TooLong));
        let part = |offset, payload: &'static [u8]| {
            bytes_of(&Chunk::Rest { topic: topic(3), offset, last: true, payload })
        };
        assert_eq!(parse(&part(998, b"ab"), &place()), Ok(()));
        assert_eq!(parse(&part(999, b"ab"), &place()), Err(Reject::TooLong));
        assert_eq!(parse(&part(u32::MAX, b"ab"), &place()), Err(Reject::TooLong));
        assert_eq!(parse(&part(0, b"ab"), &place()), Err(Reject::Fragment));
        assert_eq!(parse(&part(5, b""), &place()), Err(Reject::Fragment));
        let long = vec![0; 1_001];
        let message = bytes_of(&Chunk::Message { start: start(100), payload: &long });
        assert_eq!(parse(&message, &place()), Err(Reject::TooLong));
    }

    #[test]
    fn other_fields_that_make_no_sense_are_refused() {
        let lost = bytes_of(&each()[6]);
        for (at, value, wanted) in [
            (2, 0, Reject::Code),
            (2, 5, Reject::Code),
            (4, 1, Reject::Reserved),
            (8, 0, Reject::Count),
            (16, 99, Reject::Number),
            (22, 1, Reject::Number),
            (24, 0, Reject::Code),
            (24, 12, Reject::Code),
        ] {
            let mut wrong = lost.clone();
            wrong[at] = value;
            assert_eq!(parse(&wrong, &place()), Err(wanted), "byte {at} = {value}");
        }
        for chunk in &each()[1..6] {
            let mut wrong = bytes_of(chunk);
            wrong[6] = 16; // topic 2²⁰ + 3
            assert_eq!(parse(&wrong, &place()), Err(Reject::Name), "{chunk:?}");
        }
        let mut long = lost;
        long.push(0);
        long[0] += 1;
        assert_eq!(parse(&long, &place()), Err(Reject::Trailing));
    }

    prop_compose! {
        pub(crate) fn starts()(
            number in 0..1_u64 << 48,
            topic in 0..MAX_TABLE_NAMES,
            to_descendants: bool,
            published: Option<u64>,
            origin: Option<[u8; 16]>,
        ) -> Start {
            Start {
                topic: TopicNumber::new(topic).unwrap(),
                number: Number::new(number).unwrap(),
                to_descendants,
                published: published.map(Wall::from_ns),
                origin: origin.map(Origin::from_bytes),
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_chunk_or_refused_and_a_chunk_is_written_as_it_was(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            kind in 0..6_u8,
        ) {
            let mut bytes = bytes;
            if bytes.len() > 8 {
                bytes[0] = u8::try_from(bytes.len() - 8).unwrap();
                bytes[1] = 0;
                bytes[2] = kind;
                bytes[3] &= 0x5f;
                bytes[6] &= 0x0f;
                bytes[7] = 0;
            }
            let mut reader = Reader::new(&bytes);
            if let Ok(chunk) = Chunk::parse(&mut reader, &place()) {
                let stated = bytes[3] & NUMBER != 0;
                let mut again = vec![0; 200];
                let mut writer = Writer::new(&mut again);
                // A number may be stated although it is the implied one.
                let implied = if stated { u64::MAX } else { 100 };
                chunk.write(implied, &mut writer).unwrap();
                let written = writer.written();
                prop_assert_eq!(&again[..written], &bytes[..written]);
            }
        }
    }
}
