//! The header, which begins every datagram.
//!
//! ```text
//!  byte 0         2       3      4      5      6         8         12       14       16
//!       +---------+-------+------+------+------+---------+---------+--------+--------+
//!       | "TN"    |version| type | flags| ttl  | length  | realm   | stream | 0      |
//!       |         | u8, 2 | u8   | u8   | u8   | u16     | u32     | u16    | u16    |
//!       +---------+-------+------+------+------+---------+---------+--------+--------+
//!  byte 16        20        24                  32
//!       +---------+---------+-------------------+
//!       | source  | session | sequence          |  body, then the MAC if flag MAC is set
//!       | u32     | u32     | u64               |
//!       +---------+---------+-------------------+
//! ```
//!
//! All numbers are little-endian. `length` counts the whole datagram, the MAC included.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::cursor::{NoRoom, Reader, Writer};
use super::mac::{Keys, MAC_BYTES};
use super::reject::Reject;
use super::{MAX_DATAGRAM_BYTES, Rules};
use crate::id::{Realm, Sequence, Session, Source, Stream};

/// The length of a header, in bytes.
pub const HEADER_BYTES: usize = 32;

/// The version of the protocol that this crate speaks.
pub const VERSION: u8 = 2;

const MAGIC: [u8; 2] = *b"TN";
const TYPE_AT: usize = 3;
const FLAGS_AT: usize = 4;
const LENGTH_AT: usize = 6;

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// New messages, or the same again.
    Data = 1,
    /// The state of a stream.
    Session = 2,
    /// A receiver asks for what it misses.
    Nak = 3,
    /// The sender confirms a NAK, or says why it does not repair.
    Ncf = 4,
    /// The state of a receiver.
    Status = 5,
    /// Names of topics.
    Topics = 6,
    /// A receiver asks for names of topics.
    TopicsWanted = 7,
    /// Tests which hosts reach each other.
    Probe = 8,
    /// The sender repeats what receivers have drawn, to show that it lives.
    Echo = 9,
}

impl Kind {
    /// All types, by their number.
    pub const ALL: [Self; 9] = [
        Self::Data,
        Self::Session,
        Self::Nak,
        Self::Ncf,
        Self::Status,
        Self::Topics,
        Self::TopicsWanted,
        Self::Probe,
        Self::Echo,
    ];

    /// Whether a receiver asks a sender for something, or tells it about itself.
    #[must_use]
    pub const fn is_for_sender(self) -> bool {
        matches!(self, Self::Nak | Self::Status | Self::TopicsWanted)
    }

    /// Returns the type that a datagram states, to find out whom it concerns. Nothing else of it is checked.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Self> {
        datagram.get(TYPE_AT).copied().and_then(Self::from_number)
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The flags that a datagram of this type may have, besides MAC.
    const fn flags(self) -> Flags {
        match self {
            Self::Data => Flags::RETRANSMISSION.with(Flags::FEED),
            Self::Session => Flags::END.with(Flags::SEALED).with(Flags::FEED),
            Self::Probe => Flags::NONE,
            _ => Flags::FEED,
        }
    }
}

/// A set of flags of a header. MAC is not among them: it is set if there is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// DATA that was sent before.
    pub const RETRANSMISSION: Self = Self(1);
    /// SESSION: no new message follows. NAKs are answered for the generation interval.
    pub const END: Self = Self(2);
    /// SESSION with END: no message of this series ever follows.
    pub const SEALED: Self = Self(16);
    /// `source` is the hash of a feed's name. In NAK, STATUS and TOPICS_WANTED: that of the feed
    /// that is asked.
    pub const FEED: Self = Self(8);
    const MAC: Self = Self(0x80);

    /// Returns the flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Who sends a datagram, in which stream, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Without MAC.
    pub flags: Flags,
    /// The TTL with which the datagram was sent. Less the TTL with which it arrives, it is the
    /// number of hops.
    pub ttl: u8,
    /// The realm of sender and receiver.
    pub realm: Realm,
    /// The stream. In NAK, STATUS and TOPICS_WANTED: the stream that is asked.
    pub stream: Stream,
    /// The source of the stream.
    pub source: Source,
    /// The session of the source.
    pub session: Session,
    /// DATA: the number of this datagram. SESSION, ECHO, NCF, TOPICS: the next new one. NAK, STATUS,
    /// TOPICS_WANTED: the first that the receiver still expects. PROBE: the number of the probe.
    pub sequence: Sequence,
}

impl Header {
    /// Writes a datagram with this header into `buffer`, signs it if there are keys, and returns
    /// its length.
    pub(super) fn datagram(
        &self,
        kind: Kind,
        keys: Option<&Keys>,
        buffer: &mut [u8],
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<usize, NoRoom> {
        let room = buffer.len().min(MAX_DATAGRAM_BYTES).checked_sub(mac_bytes(keys));
        let mut writer = Writer::new(room.and_then(|room| buffer.get_mut(..room)).ok_or(NoRoom)?);
        writer.bytes(&self.to_bytes(kind))?;
        body(&mut writer)?;
        let end = writer.written();
        seal(buffer, end, keys)
    }

    /// Returns the bytes of the header, without the flag MAC and with a length of 0: see [`seal`].
    pub(super) fn to_bytes(self, kind: Kind) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..6].copy_from_slice(&[VERSION, kind as u8, self.flags.0, self.ttl]);
        bytes[8..12].copy_from_slice(&self.realm.0.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.stream.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.source.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.session.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.sequence.get().to_le_bytes());
        bytes
    }

    /// Checks the header up to the flags, in the order of [`Reject`]. The last result is the body,
    /// and the field that must be 0 and the sequence, both of which are checked later.
    pub(super) fn open<'a>(
        bytes: &'a [u8],
        rules: &Rules<'_>,
    ) -> Result<(Kind, Unchecked, &'a [u8]), Reject> {
        let (fields, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(Reject::Short)?;
        let mut reader = Reader::new(fields);
        let magic: [u8; 2] = reader.array()?;
        let (version, kind, flags, ttl) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
        if usize::from(reader.u16()?) != bytes.len() {
            return Err(Reject::Length);
        }
        if magic != MAGIC {
            return Err(Reject::Magic);
        }
        if version != VERSION {
            return Err(Reject::Version);
        }
        let flags = Flags(flags);
        let body = authenticated(bytes, body, flags, rules.keys)?;
        let realm = Realm(reader.u32()?);
        if realm != rules.realm {
            return Err(Reject::Realm);
        }
        let kind = Kind::from_number(kind).ok_or(Reject::Type)?;
        let flags = flags.without(Flags::MAC);
        let known = kind.flags().has(flags);
        if !known || (flags.has(Flags::SEALED) && !flags.has(Flags::END)) {
            return Err(Reject::Flags);
        }
        let stream = Stream(reader.u16()?);
        let reserved = reader.u16()?;
        let source = Source(reader.u32()?);
        let session = Session(reader.u32()?);
        let sequence = reader.u64()?;
        let header = Self { flags, ttl, realm, stream, source, session, sequence: Sequence::ZERO };
        Ok((kind, Unchecked { header, reserved, sequence }, body))
    }
}

/// A header whose last fields are checked after its caller has decided whether source and session
/// are believed.
#[derive(Debug)]
pub(super) struct Unchecked {
    /// The sequence is not set yet.
    pub(super) header: Header,
    reserved: u16,
    sequence: u64,
}

impl Unchecked {
    pub(super) fn check(self) -> Result<Header, Reject> {
        let sequence = Sequence::new(self.sequence).ok_or(Reject::Sequence)?;
        if self.reserved != 0 {
            return Err(Reject::Reserved);
        }
        Ok(Header { sequence, ..self.header })
    }
}

/// Returns the body without the MAC, if the MAC is as it must be.
fn authenticated<'a>(
    bytes: &'a [u8],
    body: &'a [u8],
    flags: Flags,
    keys: Option<&Keys>,
) -> Result<&'a [u8], Reject> {
    match (keys, flags.has(Flags::MAC)) {
        (None, false) => Ok(body),
        (None, true) => Err(Reject::MacUnexpected),
        (Some(_), false) => Err(Reject::MacMissing),
        (Some(keys), true) => {
            let (body, code) = body.split_last_chunk::<MAC_BYTES>().ok_or(Reject::MacWrong)?;
            let signed = bytes.split_last_chunk::<MAC_BYTES>().ok_or(Reject::MacWrong)?.0;
            if keys.verify(signed, *code) { Ok(body) } else { Err(Reject::MacWrong) }
        }
    }
}

/// The length of the MAC, which only datagrams of a realm with keys have.
pub(super) const fn mac_bytes(keys: Option<&Keys>) -> usize {
    if keys.is_some() { MAC_BYTES } else { 0 }
}

/// Completes the datagram whose header and body are in the first `end` bytes: sets the length and,
/// with keys, the flag and the MAC. Returns its whole length.
pub(super) fn seal(buffer: &mut [u8], end: usize, keys: Option<&Keys>) -> Result<usize, NoRoom> {
    let whole = end.checked_add(mac_bytes(keys)).ok_or(NoRoom)?;
    let length = u16::try_from(whole).map_err(|_| NoRoom)?.to_le_bytes();
    let (signed, rest) = buffer.split_at_mut_checked(end).ok_or(NoRoom)?;
    signed.get_mut(LENGTH_AT..LENGTH_AT + 2).ok_or(NoRoom)?.copy_from_slice(&length);
    if let Some(keys) = keys {
        *signed.get_mut(FLAGS_AT).ok_or(NoRoom)? |= Flags::MAC.0;
        rest.get_mut(..MAC_BYTES).ok_or(NoRoom)?.copy_from_slice(&keys.sign(signed));
    }
    Ok(whole)
}

/// Reads from a datagram that was checked before whether it belongs to a feed, its sequence, and its
/// body.
pub(super) fn reopen(datagram: &[u8]) -> Option<(bool, Sequence, &[u8])> {
    let (fields, body) = datagram.split_first_chunk::<HEADER_BYTES>()?;
    let flags = Flags(fields[FLAGS_AT]);
    let (_, sequence) = fields.split_last_chunk::<8>()?;
    Some((flags.has(Flags::FEED), Sequence::new(u64::from_le_bytes(*sequence))?, body))
}

/// Reads whose stream a datagram says it belongs to. It may have been refused, so nothing of that need be true.
pub(crate) fn claimed_stream(datagram: &[u8]) -> Option<(Source, Stream)> {
    let stream = u16::from_le_bytes(*datagram.get(12..)?.first_chunk()?);
    let source = u32::from_le_bytes(*datagram.get(16..)?.first_chunk()?);
    Some((Source(source), Stream(stream)))
}

/// Reads the flags of a datagram.
pub(super) fn flags(datagram: &[u8]) -> Option<Flags> {
    datagram.get(FLAGS_AT).map(|flags| Flags(*flags))
}

/// Sets flags in a datagram that this crate made. It must be sealed again if it has a MAC.
pub(super) fn set_flags(datagram: &mut [u8], flags: Flags) {
    if let Some(byte) = datagram.get_mut(FLAGS_AT) {
        *byte |= flags.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn each_type_has_a_number_of_its_own_and_unknown_ones_are_refused() {
        for number in 0..=u8::MAX {
            let found = Kind::from_number(number);
            assert_eq!(found.map(|kind| kind as u8), (1..=9).contains(&number).then_some(number));
        }
    }

    #[test]
    fn flags_are_refused_where_they_mean_nothing() {
        for sample in samples::all() {
            for bit in 0..7 {
                let flag = 1 << bit;
                let mut bytes = sample.bytes.clone();
                bytes[FLAGS_AT] |= flag;
                let allowed = match sample.kind {
                    Kind::Data => flag == 1 || flag == 8,
                    // The sample is an END, with which SEALED is allowed.
                    Kind::Session => matches!(flag, 2 | 8 | 16),
                    Kind::Probe => false,
                    _ => flag == 8,
                };
                let found = samples::parse(&bytes).map(|_| ());
                let wanted = if allowed { Ok(()) } else { Err(Reject::Flags) };
                assert_eq!(found, wanted, "{:?} with flag {flag}", sample.kind);
            }
        }
    }

    #[test]
    fn sealed_is_a_kind_of_end() {
        let sample = samples::of(Kind::Session);
        let with = |flags: u8| {
            let mut bytes = sample.bytes.clone();
            bytes[FLAGS_AT] = flags;
            samples::parse(&bytes).map(|datagram| datagram.header.flags)
        };
        assert_eq!(with(18), Ok(Flags::END.with(Flags::SEALED)));
        assert_eq!(with(16), Err(Reject::Flags));
    }

    #[test]
    fn the_reserved_field_must_be_zero() {
        let mut bytes = samples::of(Kind::Nak).bytes;
        bytes[15] = 1;
        assert_eq!(samples::parse(&bytes).map(|_| ()), Err(Reject::Reserved));
    }

    #[test]
    fn a_buffer_that_is_one_byte_too_short_gets_no_datagram() {
        for sample in samples::all() {
            for keys in [None, Some(&samples::KEYS)] {
                let length = sample.encode(keys).len();
                let mut buffer = vec![0; length];
                assert_eq!(sample.encode_into(keys, &mut buffer), Ok(length));
                assert_eq!(sample.encode_into(keys, &mut buffer[..length - 1]), Err(NoRoom));
            }
        }
    }
}
