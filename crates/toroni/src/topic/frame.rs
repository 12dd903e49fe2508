//! The layout of a record in the ring.
//!
//! ```text
//!  byte 0               4          5               8                          8 + length
//!       +---------------+----------+---------------+------------+---------+-------+
//!       | length (u32)  | flags    | topic id      | extensions | payload | zero  |
//!       |               | (u8)     | (u24)         | 0 … 288    |         | 0 … 7 |
//!       +---------------+----------+---------------+------------+---------+-------+
//!       |<-------- header word, one u64 ---------->|<----- length ------->|
//!  bits 0             31 32      39 40           63
//! ```
//!
//! The header is one word, and storing it commits the record. A header of 0 means "the stream ends
//! here", so the flags of a record are never 0. The bit numbers are those of the word. The byte
//! numbers hold on a little-endian machine. `length` counts the extensions and the payload. A
//! record starts and its padding ends at a multiple of 8.
//!
//! ```text
//!  flag bits   7          6          5          4          3           2 … 0
//!            +----------+----------+----------+----------+-----------+-------+
//!            | NUMBER   | INLINE_  | ORIGIN   | TIME-    | TO_DES-   | KIND  |
//!            |          | TOPIC    |          | STAMP    | CENDANTS  |       |
//!            +----------+----------+----------+----------+-----------+-------+
//! ```
//!
//! KIND is 1 for a message, 3 for a loss, whose layout is in `loss.rs`, and 6 for the end of the value of a topic, which has a
//! message's layout and no payload. It is never 0, so no header word is
//! 0. The other values are free. A subscriber passes over kinds that it does not know. A record of such a kind has the
//! topic id of a topic in the table, or 0xFF_FFFF if it concerns all subscribers.
//!
//! The extensions of a message have this order. Each is present if its flag is set, and is a multiple of 8 bytes
//! long, so the payload is as aligned as the record:
//!
//! ```text
//!  TIMESTAMP     | CLOCK_REALTIME, ns (u64, little-endian)      |           8 bytes
//!  ORIGIN        | where it was first published, see `origin.rs`          | 16 bytes
//!  NUMBER        | place in an order over several buses (u64, little-endian)    |  8 bytes
//!  INLINE_TOPIC  | length 1 … 255 (u8) | name | zeros to a multiple of 8  | 8 … 256 bytes
//! ```
//!
//! A message has the topic id 0xFF_FFFF if and only if it has an inline topic. A loss has that id and no other
//! flags. A subscriber has no cached answer for this id, so it looks at the record before it decides whether the
//! record is for it.

use super::name::{self, TopicError};
use super::origin::{ORIGIN_BYTES, Origin};
use crate::error::Corrupt;

/// The maximum total length of the extensions, in bytes.
pub(crate) const MAX_EXTENSIONS_BYTES: usize =
    TIMESTAMP_BYTES + ORIGIN_BYTES + NUMBER_BYTES + MAX_INLINE_TOPIC_BYTES;

/// The index of a name in the topic table: 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TopicId(u32);

impl TopicId {
    /// The id in the header of a record that carries its topic inline. Never in the table.
    pub(crate) const INLINE: Self = Self(0xFF_FFFF);

    /// Returns the id of entry `index` of the table, or `None` if the table cannot have such an
    /// entry.
    #[inline]
    pub(crate) const fn new(index: u32) -> Option<Self> {
        if index < Self::INLINE.0 { Some(Self(index)) } else { None }
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The upper half of the header word: flags and topic id. To the ring it is a number other than 0.
///
/// A tag that was read from memory may hold any bits until [`decode`] has accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    /// Returns the tag of a message.
    ///
    /// # Panics
    ///
    /// If `topic` is [`TopicId::INLINE`] and there is no inline topic, or the other way round.
    #[inline]
    pub(crate) const fn message(
        topic: TopicId,
        to_descendants: bool,
        extensions: &Extensions<'_>,
    ) -> Self {
        assert!((topic.0 == TopicId::INLINE.0) == extensions.inline_topic.is_some());
        let descendants = if to_descendants { TO_DESCENDANTS } else { 0 };
        let flags = KIND_MESSAGE | descendants | extensions.flags();
        Self(flags as u32 | topic.0 << TOPIC_ID_SHIFT)
    }

    /// Returns the tag of a loss.
    pub(crate) const fn loss() -> Self {
        Self(KIND_LOSS as u32 | TopicId::INLINE.0 << TOPIC_ID_SHIFT)
    }

    /// Returns whether this is a loss.
    #[inline]
    pub(crate) const fn is_loss(self) -> bool {
        self.0 == Self::loss().0
    }

    /// Returns the tag of a record that ends the value of the topic of this one.
    pub(crate) const fn cleared(self) -> Self {
        Self(self.0 & !(KIND as u32) | KIND_CLEARED as u32)
    }

    /// Returns the tag of a record without extensions.
    pub(crate) const fn without_extensions(self) -> Self {
        Self(self.0 & !(TIMESTAMP as u32 | ORIGIN as u32 | NUMBER as u32))
    }

    /// Returns whether this ends a value.
    #[inline]
    pub(crate) const fn is_cleared(self) -> bool {
        self.flags() & KIND == KIND_CLEARED && self.topic().0 != TopicId::INLINE.0
    }

    /// Returns whether this is a message.
    #[inline]
    pub(crate) const fn is_message(self) -> bool {
        self.flags() & KIND == KIND_MESSAGE
    }

    /// Makes a tag of the upper half of a header word.
    #[inline]
    pub(crate) const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Returns the number that the ring stores. It is not 0 if [`Tag::message`] made the tag.
    #[inline]
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn topic(self) -> TopicId {
        TopicId(self.0 >> TOPIC_ID_SHIFT)
    }

    /// Returns whether the message was posted to the topic's descendants too.
    #[inline]
    pub(crate) const fn is_to_descendants(self) -> bool {
        self.flags() & TO_DESCENDANTS != 0
    }

    /// Returns whether this is a message without extensions, as most are.
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        self.flags() & !TO_DESCENDANTS == KIND_MESSAGE && self.topic().0 != TopicId::INLINE.0
    }

    /// Returns the length of the extensions in bytes, if the tag alone determines it. Returns
    /// `None` if the record has an inline topic or the tag is invalid. Then [`decode`] has the
    /// answer.
    #[inline]
    pub(crate) const fn extensions_bytes(self) -> Option<usize> {
        if self.is_plain() {
            return Some(0);
        }
        let flags = self.flags();
        if flags & !(TO_DESCENDANTS | TIMESTAMP | ORIGIN | NUMBER) != KIND_MESSAGE
            || self.topic().0 == TopicId::INLINE.0
        {
            return None;
        }
        Some(self.number_offset() + if flags & NUMBER != 0 { NUMBER_BYTES } else { 0 })
    }

    /// Returns whether the extensions start with a timestamp.
    #[inline]
    pub(crate) const fn has_timestamp(self) -> bool {
        self.flags() & TIMESTAMP != 0
    }

    /// Returns whether the extensions have an origin.
    #[inline]
    pub(crate) const fn has_origin(self) -> bool {
        self.flags() & ORIGIN != 0
    }

    /// Returns whether the extensions have a number.
    #[inline]
    pub(crate) const fn has_number(self) -> bool {
        self.flags() & NUMBER != 0
    }

    /// Returns where the origin is, if there is one, in bytes after the header.
    #[inline]
    pub(crate) const fn origin_offset(self) -> usize {
        if self.has_timestamp() { TIMESTAMP_BYTES } else { 0 }
    }

    /// Returns where the number is, if there is one, in bytes after the header.
    #[inline]
    pub(crate) const fn number_offset(self) -> usize {
        self.origin_offset() + if self.has_origin() { ORIGIN_BYTES } else { 0 }
    }

    /// Returns which messages on its topic this one is like for a subscriber: the number of a bit in a byte of answers
    /// ([`super::interest`]). 1 is added if it was posted to descendants, and 4 if it has an origin.
    #[inline]
    pub(crate) const fn answer_bit(self) -> u8 {
        (self.flags() & (TO_DESCENDANTS | ORIGIN)) >> ANSWER_SHIFT
    }

    #[inline]
    const fn flags(self) -> u8 {
        self.0.to_le_bytes()[0]
    }
}

/// The optional parts of a record between its header and its payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extensions<'a> {
    /// When the message was published: CLOCK_REALTIME in nanoseconds.
    pub(crate) timestamp_ns: Option<u64>,
    /// Where a message that came from elsewhere was first published.
    pub(crate) origin: Option<Origin>,
    /// Its place in an order over several buses.
    pub(crate) number: Option<u64>,
    /// The topic, if the topic table has no space for it. Always a valid topic.
    pub(crate) inline_topic: Option<&'a str>,
}

impl Extensions<'_> {
    /// Returns the number of bytes that [`Extensions::encode`] writes: a multiple of 8.
    #[cfg(test)]
    pub(crate) const fn encoded_length(&self) -> usize {
        let timestamp = if self.timestamp_ns.is_some() { TIMESTAMP_BYTES } else { 0 };
        let origin = if self.origin.is_some() { ORIGIN_BYTES } else { 0 };
        let number = if self.number.is_some() { NUMBER_BYTES } else { 0 };
        let topic = match self.inline_topic {
            Some(name) => inline_topic_bytes(name.len()),
            None => 0,
        };
        timestamp + origin + number + topic
    }

    /// Writes the extensions to the front of `buffer` and returns their length in bytes.
    ///
    /// # Panics
    ///
    /// If the inline topic is empty or longer than a topic may be.
    pub(crate) fn encode(&self, buffer: &mut [u8; MAX_EXTENSIONS_BYTES]) -> usize {
        let mut offset = 0;
        if let Some(timestamp_ns) = self.timestamp_ns {
            buffer[..TIMESTAMP_BYTES].copy_from_slice(&timestamp_ns.to_le_bytes());
            offset = TIMESTAMP_BYTES;
        }
        if let Some(origin) = &self.origin {
            buffer[offset..][..ORIGIN_BYTES].copy_from_slice(&origin.to_bytes());
            offset += ORIGIN_BYTES;
        }
        if let Some(number) = self.number {
            buffer[offset..][..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
            offset += NUMBER_BYTES;
        }
        if let Some(name) = self.inline_topic {
            let length = u8::try_from(name.len()).expect("topics are at most 255 bytes long");
            assert!(length > 0, "topics are not empty");
            let field = &mut buffer[offset..][..inline_topic_bytes(name.len())];
            field[0] = length;
            field[1..][..name.len()].copy_from_slice(name.as_bytes());
            field[1 + name.len()..].fill(0);
            offset += field.len();
        }
        offset
    }

    #[inline]
    const fn flags(&self) -> u8 {
        let timestamp = if self.timestamp_ns.is_some() { TIMESTAMP } else { 0 };
        let origin = if self.origin.is_some() { ORIGIN } else { 0 };
        let number = if self.number.is_some() { NUMBER } else { 0 };
        let topic = if self.inline_topic.is_some() { INLINE_TOPIC } else { 0 };
        timestamp | origin | number | topic
    }
}

/// Decodes the extensions of a record from `bytes`, a private copy of what follows the header.
/// `bytes` holds all `length` bytes, or at least the first [`MAX_EXTENSIONS_BYTES`] of them.
///
/// Returns the extensions and the offset of the payload in `bytes`. If the tag has no extensions,
/// `bytes` is not read. The topic id is not looked up, because the topic cache may not have it yet.
#[inline]
pub(crate) fn decode(tag: Tag, bytes: &[u8]) -> Result<(Extensions<'_>, usize), FrameError> {
    if tag.is_plain() {
        const NONE: Extensions<'_> =
            Extensions { timestamp_ns: None, origin: None, number: None, inline_topic: None };
        return Ok((NONE, 0));
    }
    decode_extensions(tag, bytes)
}

/// Why a record is invalid: memory is corrupt, or was not written by this library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a record has the unknown kind {kind}: the bus is corrupt, recreate it")]
    UnknownKind { kind: u8 },

    #[error("a loss has the invalid {what} {value}: the bus is corrupt, recreate it")]
    InvalidLoss { what: &'static str, value: u64 },

    #[error(
        "a record's extensions take {wanted} bytes, but it has only {available}: the bus is \
         corrupt, recreate it"
    )]
    Truncated { wanted: usize, available: usize },

    #[error(
        "a record has the topic id {topic:#08x} and {}: the bus is corrupt, recreate it",
        if *.has_name { "also an inline topic" } else { "no inline topic" }
    )]
    InlineMismatch { topic: u32, has_name: bool },

    #[error("a record's inline topic is invalid: {0}; the bus is corrupt, recreate it")]
    InlineTopic(#[source] TopicError),
}

/// The caller, which knows where the record starts, sets the position.
impl From<FrameError> for Corrupt {
    fn from(error: FrameError) -> Self {
        let (what, value) = match error {
            FrameError::UnknownKind { kind } => ("kind of a record", kind.into()),
            FrameError::InvalidLoss { what, value } => (what, value),
            FrameError::Truncated { wanted, .. } => {
                ("length of a record's extensions", wanted as u64)
            }
            FrameError::InlineMismatch { topic, .. } => ("id of an inline topic", topic.into()),
            FrameError::InlineTopic(_) => ("inline topic of a record", 0),
        };
        Self { what, value, position: 0 }
    }
}

const KIND: u8 = 0b0000_0111;
const KIND_MESSAGE: u8 = 1;
const KIND_LOSS: u8 = 3;
const KIND_CLEARED: u8 = 6;
const TO_DESCENDANTS: u8 = 1 << 3;
const TIMESTAMP: u8 = 1 << 4;
const ORIGIN: u8 = 1 << 5;
const INLINE_TOPIC: u8 = 1 << 6;
const NUMBER: u8 = 1 << 7;

/// See [`Tag::answer_bit`].
const ANSWER_SHIFT: u32 = 3;

const TAG_SHIFT: u32 = 32;
const TOPIC_ID_SHIFT: u32 = 8;

const TIMESTAMP_BYTES: usize = 8;
const NUMBER_BYTES: usize = 8;
const MAX_INLINE_TOPIC_BYTES: usize = inline_topic_bytes(super::Topic::MAX_BYTES);

/// Returns the length of an inline topic: length byte, name and padding.
const fn inline_topic_bytes(name_length: usize) -> usize {
    (1 + name_length).next_multiple_of(8)
}

const _: () = {
    assert!(KIND | TO_DESCENDANTS | TIMESTAMP | ORIGIN | INLINE_TOPIC | NUMBER == 0xFF);
    assert!(KIND & KIND_MESSAGE == KIND_MESSAGE && KIND_MESSAGE != 0);
    assert!(
        KIND.count_ones()
            + (TO_DESCENDANTS | TIMESTAMP | ORIGIN | INLINE_TOPIC | NUMBER).count_ones()
            == u8::BITS
    );
    assert!(TopicId::INLINE.0 == u32::MAX >> TOPIC_ID_SHIFT);
    assert!(TAG_SHIFT + TOPIC_ID_SHIFT == 40);
    assert!(TO_DESCENDANTS >> ANSWER_SHIFT == 1 && ORIGIN >> ANSWER_SHIFT == 4);
    assert!(KIND & KIND_LOSS == KIND_LOSS && KIND_LOSS != KIND_MESSAGE);
    assert!(TIMESTAMP_BYTES.is_multiple_of(8) && ORIGIN_BYTES.is_multiple_of(8));
    assert!(NUMBER_BYTES.is_multiple_of(8));
    assert!(MAX_INLINE_TOPIC_BYTES == 256);
    assert!(MAX_EXTENSIONS_BYTES == 288);
    assert!(super::Topic::MAX_BYTES == u8::MAX as usize);
};

#[inline(never)]
fn decode_extensions(tag: Tag, bytes: &[u8]) -> Result<(Extensions<'_>, usize), FrameError> {
    let flags = tag.flags();
    if !tag.is_message() && !tag.is_cleared() {
        return Err(FrameError::UnknownKind { kind: flags & KIND });
    }
    let has_name = flags & INLINE_TOPIC != 0;
    if has_name != (tag.topic() == TopicId::INLINE) {
        return Err(FrameError::InlineMismatch { topic: tag.topic().0, has_name });
    }

    let mut extensions = Extensions::default();
    let mut offset = 0;
    if flags & TIMESTAMP != 0 {
        extensions.timestamp_ns = Some(u64::from_le_bytes(*take(bytes, &mut offset)?));
    }
    if flags & ORIGIN != 0 {
        extensions.origin = Some(Origin::from_bytes(*take(bytes, &mut offset)?));
    }
    if flags & NUMBER != 0 {
        extensions.number = Some(u64::from_le_bytes(*take(bytes, &mut offset)?));
    }
    if has_name {
        let truncated = |wanted| FrameError::Truncated { wanted, available: bytes.len() };
        let length = usize::from(*bytes.get(offset).ok_or_else(|| truncated(offset + 1))?);
        let end = offset + inline_topic_bytes(length);
        let field = bytes.get(offset..end).ok_or_else(|| truncated(end))?;
        let topic = name::check_bytes(&field[1..=length]).map_err(FrameError::InlineTopic)?;
        extensions.inline_topic = Some(topic);
        offset = end;
    }
    Ok((extensions, offset))
}

/// Returns the `N` bytes at `offset`, and advances `offset` past them.
fn take<'a, const N: usize>(
    bytes: &'a [u8],
    offset: &mut usize,
) -> Result<&'a [u8; N], FrameError> {
    let rest = bytes.get(*offset..).and_then(<[u8]>::first_chunk);
    *offset += N;
    rest.ok_or(FrameError::Truncated { wanted: *offset, available: bytes.len() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topic::Topic;

    fn id(index: u32) -> TopicId {
        TopicId::new(index).unwrap()
    }

    #[test]
    fn tags_have_the_documented_bits() {
        let extensions = Extensions::default();
        assert_eq!(Tag::message(id(0x12_3456), false, &extensions).raw(), 0x1234_5601);
        assert_eq!(Tag::message(id(0), true, &extensions).raw(), 0x0000_0009);
        let all = Extensions {
            timestamp_ns: Some(1),
            origin: Some(Origin::from_bytes([7; 16])),
            number: Some(2),
            inline_topic: Some("plant/boiler"),
        };
        assert_eq!(Tag::message(TopicId::INLINE, true, &all).raw(), 0xFFFF_FFF9);
        assert_eq!(Tag::message(id(5), true, &extensions).cleared().raw(), 0x0000_050E);
        let cleared =
            Tag::message(id(5), true, &Extensions { timestamp_ns: Some(1), ..extensions });
        assert_eq!(cleared.cleared().without_extensions().raw(), 0x0000_050E);
        assert_eq!(Tag::loss().raw(), 0xFFFF_FF03);
        assert!(Tag::loss().is_loss() && !Tag::from_raw(3).is_loss());
        assert!(!Tag::loss().is_plain() && Tag::loss().extensions_bytes().is_none());
    }

    #[test]
    fn extensions_have_the_documented_bytes() {
        let all = Extensions {
            timestamp_ns: Some(0x0102_0304_0506_0708),
            origin: Some(Origin::from_bytes([7; 16])),
            number: Some(0x1122_3344_5566_7788),
            inline_topic: Some("plant/boiler"),
        };
        let mut buffer = [0xEE; MAX_EXTENSIONS_BYTES];
        assert_eq!(all.encode(&mut buffer), 48);
        assert_eq!(buffer[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(buffer[8..24], [7; 16]);
        assert_eq!(buffer[24..32], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(&buffer[32..48], b"\x0cplant/boiler\0\0\0");
        assert_eq!(buffer[48], 0xEE);
    }

    #[test]
    fn topic_ids_leave_the_inline_id_out() {
        assert_eq!(TopicId::new(0xFF_FFFE).map(TopicId::index), Some(0xFF_FFFE));
        assert_eq!(TopicId::new(0xFF_FFFF), None);
        assert_eq!(TopicId::new(u32::MAX), None);
    }

    #[test]
    fn refuses_unknown_kinds() {
        for kind in [0, 2, 3, 4, 5, 7] {
            assert_eq!(
                decode(Tag::from_raw(u32::from(kind)), &[0; 288]),
                Err(FrameError::UnknownKind { kind })
            );
        }
        // No value has a topic without a number.
        let inline = Tag::from_raw(0xFFFF_FF46);
        assert_eq!(decode(inline, &[0; 288]), Err(FrameError::UnknownKind { kind: 6 }));
    }

    #[test]
    fn the_inline_id_and_the_inline_name_go_together() {
        assert_eq!(
            decode(Tag::from_raw(0xFFFF_FF01), b"\x01a\0\0\0\0\0\0"),
            Err(FrameError::InlineMismatch { topic: 0xFF_FFFF, has_name: false })
        );
        assert_eq!(
            decode(Tag::from_raw(0x0000_0541), b"\x01a\0\0\0\0\0\0"),
            Err(FrameError::InlineMismatch { topic: 5, has_name: true })
        );
    }

    #[test]
    fn checks_inline_topics() {
        let tag = Tag::from_raw(0xFFFF_FF41);
        let (extensions, offset) = decode(tag, b"\x01a\0\0\0\0\0\0payload").unwrap();
        assert_eq!((extensions.inline_topic, offset), (Some("a"), 8));
        assert_eq!(
            decode(tag, b"\0a\0\0\0\0\0\0"),
            Err(FrameError::InlineTopic(TopicError::Empty))
        );
        assert_eq!(
            decode(tag, b"\x02a*\0\0\0\0\0").unwrap_err(),
            FrameError::InlineTopic(TopicError::ReservedCharacter {
                name: "a*".into(),
                character: '*',
                offset: 1
            })
        );
        assert_eq!(
            decode(tag, b"\xffa\0\0\0\0\0\0"),
            Err(FrameError::Truncated { wanted: 256, available: 8 })
        );
        assert_eq!(decode(tag, b""), Err(FrameError::Truncated { wanted: 1, available: 0 }));
    }

    fn topics() -> impl Strategy<Value = String> {
        "[a-z]{1,8}(/[a-z]{1,8}){0,3}|[x]{240,255}"
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            index in 0..0xFF_FFFFu32,
            length: u32,
            to_descendants: bool,
            timestamp_ns: Option<u64>,
            origin: Option<[u8; 16]>,
            number: Option<u64>,
            topic in proptest::option::of(topics()),
        ) {
            let origin = origin.map(Origin::from_bytes);
            let extensions =
                Extensions { timestamp_ns, origin, number, inline_topic: topic.as_deref() };
            let topic_id = if topic.is_some() { TopicId::INLINE } else { id(index) };
            let tag = Tag::message(topic_id, to_descendants, &extensions);
            prop_assert_ne!(tag.raw(), 0);
            prop_assert_eq!(Tag::from_raw(tag.raw()), tag);
            prop_assert_eq!(tag.topic(), topic_id);
            prop_assert_eq!(tag.is_to_descendants(), to_descendants);

            let mut buffer = [0xEE; MAX_EXTENSIONS_BYTES];
            let size = extensions.encode(&mut buffer);
            prop_assert_eq!(size, extensions.encoded_length());
            prop_assert_eq!(size % 8, 0);
            if topic.is_none() {
                prop_assert_eq!(tag.extensions_bytes(), Some(size));
            }
            if let Some(origin) = origin {
                prop_assert_eq!(&buffer[tag.origin_offset()..][..16], &origin.to_bytes());
            }
            if let Some(number) = number {
                prop_assert_eq!(&buffer[tag.number_offset()..][..8], &number.to_le_bytes());
            }
            prop_assert!(buffer[size..].iter().all(|byte| *byte == 0xEE));
            prop_assert_eq!(decode(tag, &buffer), Ok((extensions, size)));
            prop_assert_eq!(decode(tag, &buffer[..size]), Ok((extensions, size)));
            for cut in 0..size {
                let is_truncated =
                    matches!(decode(tag, &buffer[..cut]), Err(FrameError::Truncated { .. }));
                prop_assert!(is_truncated);
            }
        }

        /// Whatever the header word and the bytes, decoding stays within bounds.
        #[test]
        fn never_panics_on_what_memory_holds(
            raw: u32,
            plausible: bool,
            first: u8,
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            // Half of the cases pass the checks of the tag, and have letters for a name.
            let raw = if plausible { 0xFFFF_FF41 | (raw & 0xB8) } else { raw };
            if plausible {
                bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
                if let Some(byte) = bytes.first_mut() {
                    *byte = first;
                }
            }
            let tag = Tag::from_raw(raw);
            if let Ok((extensions, offset)) = decode(tag, &bytes) {
                prop_assert_eq!(offset, extensions.encoded_length());
                prop_assert!(offset <= bytes.len());
                prop_assert!(extensions.inline_topic.is_none_or(|name| Topic::new(name).is_ok()));
                let message = Tag::message(tag.topic(), tag.is_to_descendants(), &extensions);
                if tag.is_cleared() {
                    prop_assert_eq!(message.cleared(), tag);
                } else {
                    prop_assert_eq!(message, tag);
                }
            }
        }
    }
}
