//! SESSION: the state of a stream, from the sender to all receivers.
//!
//! ```text
//!  byte 32                40                48                56                64
//!       +-----------------+-----------------+-----------------+-----------------+
//!       | sent_ns (u64)   | message (u64)   | number (u64)    | first (u64)     |
//!       +-----------------+-----------------+-----------------+-----------------+
//!  byte 64                72       76       80        82      84       88       92
//!       +-----------------+--------+--------+---------+-------+--------+--------+
//!       | begins (u64)    | series | rtt_us |receivers| listen| behind | topics |
//!       |                 | u32    | u32    | u16     | u16   | u32    | u32    |
//!       +-----------------+--------+--------+---------+-------+--------+--------+
//!  byte 92       96               100      104      106        108                124
//!       +--------+----------------+--------+---------+---------+------------------+
//!       | data_  | retransmit_    | window_| next_ms | datagram| instance         |
//!       | kbit   | kbit           | ms     | u16     | u16     | 16 bytes         |
//!       | u32    | u32            | u32    |         |         |                  |
//!       +--------+----------------+--------+---------+---------+------------------+
//!  byte 124     125      126       127         128       130     131    132                140
//!       +-------+--------+---------+-----------+---------+-------+------+------------------+-------------------+
//!       | policy|patterns|repairers|name length| unsure  | legs  | 0    | head (u64)       | prior (u32)       |
//!       | u8    | u8     | u8      | u8        | u16     | u8    | u8   |                  |                   |
//!       +-------+--------+---------+-----------+---------+-------+------+------------------+-------------------+
//!  byte 144
//!       +---------------------------+-----------+------+
//!       | legs, 18 bytes each:      | repairers,| name |
//!       | IPv6 address 16, port u16 | the same  |      |
//!       +---------------------------+-----------+------+
//! ```
//!
//! `sent_ns` grows with each SESSION and ECHO of a session: the sender's calendar at its first SESSION, plus the time since
//! then. `legs` are the addresses at which the sender takes NAK, STATUS and TOPICS_WANTED. Without any, it does not know
//! them, and receivers answer to where its datagrams come from. `head` and `prior` say what the sender remembers of earlier
//! sessions, see [`Past`].
//!
//! An IPv4 address is sent as the IPv6 address ::ffff:a.b.c.d. The bytes of an address have the order
//! of the network, and the port is little-endian like every other number.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::cursor::{NoRoom, Reader, Writer};
use super::data::behind;
use super::header::{Header, Kind};
use super::mac::Keys;
use super::name::NodeName;
use super::reject::Reject;
use super::topics::MAX_TABLE_NAMES;
use crate::id::{MessageNumber, Number, Sequence, Series, Session};
use crate::past::Past;
use crate::time::Wall;

/// What the sender does about receivers that are slower than it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Policy {
    /// The data rate and the retransmission rate are limited, and receivers never hold the sender.
    Bounded = 1,
    /// Only the retransmission rate is limited.
    Uncontrolled = 2,
    /// As bounded, and the sender waits for the slowest of the required receivers.
    Slowest = 3,
}

impl Policy {
    /// All policies, by their number.
    pub const ALL: [Self; 3] = [Self::Bounded, Self::Uncontrolled, Self::Slowest];
}

/// Where a participant receives datagrams of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address {
    /// An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d, in the order of the network.
    pub ip: [u8; 16],
    /// The UDP port.
    pub port: u16,
}

impl Address {
    fn decode(bytes: &[u8; ADDRESS_BYTES]) -> Self {
        let (ip, port) = bytes.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let port = port.first_chunk().copied().unwrap_or_default();
        Self { ip: *ip, port: u16::from_le_bytes(port) }
    }

    /// Whether it is an IPv4 address.
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.ip.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
    }
}

/// Up to `MAX` addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses<const MAX: usize> {
    count: u8,
    addresses: [Address; MAX],
}

/// Who repairs a stream, besides its sender.
pub type Repairers = Addresses<4>;

/// Where a sender takes what receivers answer: one address for each interface.
pub type LegAddresses = Addresses<8>;

impl<const MAX: usize> Default for Addresses<MAX> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<const MAX: usize> Addresses<MAX> {
    /// The greatest number.
    pub const MAX: usize = MAX;
    /// No address.
    pub const NONE: Self = Self { count: 0, addresses: [Address { ip: [0; 16], port: 0 }; MAX] };

    /// Returns `None` if there are too many.
    #[must_use]
    pub fn new(addresses: &[Address]) -> Option<Self> {
        let mut all = Self::NONE;
        all.addresses.get_mut(..addresses.len())?.copy_from_slice(addresses);
        all.count = u8::try_from(addresses.len()).ok()?;
        Some(all)
    }

    /// Returns the addresses.
    #[must_use]
    pub fn as_slice(&self) -> &[Address] {
        self.addresses.get(..usize::from(self.count)).unwrap_or_default()
    }
}

/// The length of an address, in bytes.
const ADDRESS_BYTES: usize = 18;

/// Addresses as a SESSION states them. They are read from its bytes when they are asked for: most datagrams are no SESSION, and
/// should not be moved with room for one.
#[derive(Debug, Clone, Copy)]
pub struct AddressList<'a>(Listed<'a>);

#[derive(Debug, Clone, Copy)]
enum Listed<'a> {
    Encoded(&'a [[u8; ADDRESS_BYTES]]),
    Known(&'a [Address]),
}

impl<'a> AddressList<'a> {
    /// No address.
    pub const NONE: Self = Self(Listed::Known(&[]));

    fn parse(reader: &mut Reader<'a>, count: u8, most: usize) -> Result<Self, Reject> {
        let count = usize::from(count);
        let bytes = count.checked_mul(ADDRESS_BYTES).filter(|_| count <= most);
        let (addresses, _) = reader.bytes(bytes.ok_or(Reject::Count)?)?.as_chunks();
        Ok(Self(Listed::Encoded(addresses)))
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.iter().try_for_each(|address| {
            writer.bytes(&address.ip)?;
            writer.u16(address.port)
        })
    }

    fn count(&self) -> u8 {
        let count = match self.0 {
            Listed::Encoded(all) => all.len(),
            Listed::Known(all) => all.len(),
        };
        u8::try_from(count).unwrap_or(u8::MAX)
    }

    /// Returns the addresses.
    pub fn iter(&self) -> impl Iterator<Item = Address> + use<'a> {
        let (encoded, known): (&[_], &[_]) = match self.0 {
            Listed::Encoded(all) => (all, &[]),
            Listed::Known(all) => (&[], all),
        };
        encoded.iter().map(Address::decode).chain(known.iter().copied())
    }
}

#[cfg(test)]
impl AddressList<'static> {
    /// A list for a test, which is never given back.
    pub(crate) fn of(addresses: &[Address]) -> Self {
        Self(Listed::Known(addresses.to_vec().leak()))
    }
}

impl PartialEq for AddressList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for AddressList<'_> {}

impl<'a, const MAX: usize> From<&'a Addresses<MAX>> for AddressList<'a> {
    fn from(all: &'a Addresses<MAX>) -> Self {
        Self(Listed::Known(all.as_slice()))
    }
}

impl<const MAX: usize> From<AddressList<'_>> for Addresses<MAX> {
    /// Takes as many as there may be.
    fn from(list: AddressList<'_>) -> Self {
        let mut all = Self::NONE;
        for (place, address) in all.addresses.iter_mut().zip(list.iter()) {
            *place = address;
            all.count = all.count.saturating_add(1);
        }
        all
    }
}

/// The state of a stream. The header's `sequence` is the next that will be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionInfo<'a> {
    /// When this was sent. Grows with each SESSION and ECHO of a session.
    pub sent: Wall,
    /// The number of the next message.
    pub message: MessageNumber,
    /// The sender has taken all messages of the stream below this number from its bus.
    pub number: Number,
    /// The first sequence of the session.
    pub first: Sequence,
    /// The session brings no message below this number.
    pub begins: Number,
    /// The series of the numbers.
    pub series: Series,
    /// The greatest round trip to a receiver that is known, in microseconds.
    pub rtt_us: u32,
    /// How many receivers the sender knows.
    pub receivers: u16,
    /// The TCP port for replay, or 0.
    pub listen: u16,
    /// The first sequence that can be sent again.
    pub trail: Sequence,
    /// How many names the stream's table has.
    pub topics: u32,
    /// The limit for new data, in kbit/s, or 0.
    pub data_kbit: u32,
    /// The limit for retransmissions, in kbit/s.
    pub retransmit_kbit: u32,
    /// For how long the window lasts at the data rate, in milliseconds.
    pub window_ms: u32,
    /// The next SESSION comes within this time, in milliseconds.
    pub next_ms: u16,
    /// The greatest length of the stream's datagrams, in bytes.
    pub datagram: u16,
    /// Drawn by each process when it starts, to tell two nodes with one id apart.
    pub instance: [u8; 16],
    /// What the sender does about slow receivers.
    pub policy: Policy,
    /// How many names at the start of the table are the stream's patterns.
    pub patterns: u8,
    /// How many losses of unknown size the sender has reported in the datagrams before, modulo 2¹⁶.
    pub unsure: u16,
    /// What the sender remembers of earlier sessions.
    pub past: Past,
    /// Where the sender takes answers, if it knows that.
    pub legs: AddressList<'a>,
    /// Who repairs, besides the sender.
    pub repairers: AddressList<'a>,
    /// The name of the node.
    pub name: NodeName<'a>,
}

impl Past {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, Reject> {
        let head = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        Ok(Self { head, prior: Session(reader.u32()?) })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.head.get())?;
        writer.u32(self.prior.0)
    }
}

/// The greatest number of patterns of a stream.
pub const MAX_PATTERNS: u8 = 16;

impl<'a> SessionInfo<'a> {
    pub(super) fn parse(bytes: &'a [u8], header: &Header) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let sent = Wall::from_ns(reader.u64()?);
        let message = MessageNumber::new(reader.u64()?).ok_or(Reject::Number)?;
        let number = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let first = Sequence::new(reader.u64()?).ok_or(Reject::Sequence)?;
        let begins = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let (series, rtt_us) = (Series(reader.u32()?), reader.u32()?);
        let (receivers, listen) = (reader.u16()?, reader.u16()?);
        let (behind, topics) = (u64::from(reader.u32()?), reader.u32()?);
        let (data_kbit, retransmit_kbit) = (reader.u32()?, reader.u32()?);
        let (window_ms, next_ms, datagram) = (reader.u32()?, reader.u16()?, reader.u16()?);
        let instance = reader.array()?;
        let policy = reader.u8()?;
        let (patterns, repairers, name) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let (unsure, legs) = (reader.u16()?, reader.u8()?);
        reader.zeros::<1>()?;
        let past = Past::parse(&mut reader)?;
        let legs = AddressList::parse(&mut reader, legs, LegAddresses::MAX)?;
        let repairers = AddressList::parse(&mut reader, repairers, Repairers::MAX)?;
        let name = reader.bytes(usize::from(name))?;
        reader.end()?;
        // Nothing was sent before the first, and nothing that was not sent can be sent again.
        if header.sequence < first || behind > header.sequence.since(first) {
            return Err(Reject::Sequence);
        }
        if number < begins {
            return Err(Reject::Number);
        }
        if patterns > MAX_PATTERNS || u32::from(patterns) > topics || topics > MAX_TABLE_NAMES {
            return Err(Reject::Count);
        }
        let policy = Policy::ALL.into_iter().find(|one| *one as u8 == policy);
        Ok(Self {
            sent,
            message,
            number,
            first,
            begins,
            series,
            rtt_us,
            receivers,
            listen,
            trail: header.sequence.minus(behind),
            topics,
            data_kbit,
            retransmit_kbit,
            window_ms,
            next_ms,
            datagram,
            instance,
            policy: policy.ok_or(Reject::Code)?,
            patterns,
            unsure,
            past,
            legs,
            repairers,
            name: NodeName::parse(name)?,
        })
    }

    /// Encodes a SESSION.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub fn encode(
        &self,
        header: &Header,
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        header.datagram(Kind::Session, keys, buffer, |writer| {
            writer.u64(self.sent.ns())?;
            writer.u64(self.message.get())?;
            writer.u64(self.number.get())?;
            writer.u64(self.first.get())?;
            writer.u64(self.begins.get())?;
            writer.u32(self.series.0)?;
            writer.u32(self.rtt_us)?;
            writer.u16(self.receivers)?;
            writer.u16(self.listen)?;
            writer.u32(behind(header.sequence, self.trail))?;
            writer.u32(self.topics)?;
            writer.u32(self.data_kbit)?;
            writer.u32(self.retransmit_kbit)?;
            writer.u32(self.window_ms)?;
            writer.u16(self.next_ms)?;
            writer.u16(self.datagram)?;
            writer.bytes(&self.instance)?;
            writer.bytes(&[self.policy as u8, self.patterns])?;
            writer.bytes(&[self.repairers.count(), self.name.length()])?;
            writer.u16(self.unsure)?;
            writer.bytes(&[self.legs.count(), 0])?;
            self.past.write(writer)?;
            self.legs.write(writer)?;
            self.repairers.write(writer)?;
            writer.bytes(self.name.as_str().as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, golden};
    use super::*;

    #[test]
    fn its_bytes_are_as_drawn() {
        golden(
            Kind::Session,
            &[
                "544e 02 02 02 10 cc00 44332211 0700 0000 04030201 08070605 e803000000000000",
                "1817161514131211",                      // sent_ns
                "0a00000000000000",                      // message
                "6700000000000000",                      // number
                "6400000000000000",                      // first
                "3200000000000000",                      // begins
                "04034050",                              // series
                "c8000000",                              // rtt_us
                "0300",                                  // receivers
                "8011",                                  // listen
                "64000000",                              // behind
                "05000000",                              // topics
                "400d0300",                              // data_kbit
                "50c30000",                              // retransmit_kbit
                "780a0000",                              // window_ms
                "c800",                                  // next_ms
                "8005",                                  // datagram
                "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",      // instance
                "01",                                    // policy
                "02",                                    // patterns
                "02",                                    // repairers
                "06",                                    // name length
                "0900",                                  // unsure
                "01 00",                                 // legs
                "4600000000000000",                      // head
                "05060708",                              // prior
                "00000000000000000000ffff0a000001 7f11", // [::ffff:10.0.0.1]:4479
                "00000000000000000000ffff0a000002 7f11", // [::ffff:10.0.0.2]:4479
                "fd000000000000000000000000000001 8011", // [fd00::1]:4480
                "6c696e652d33",                          // line-3
            ],
        );
    }

    #[test]
    fn numbers_that_contradict_one_another_are_refused() {
        let bytes = samples::of(Kind::Session).bytes;
        let with = |at: usize, value: &[u8]| {
            let mut wrong = bytes.clone();
            wrong[at..at + value.len()].copy_from_slice(value);
            samples::parse(&wrong).map(|_| ())
        };
        let u64s = |at, value: u64| with(at, &value.to_le_bytes());
        assert_eq!(u64s(40, 1 << 63), Err(Reject::Number));
        assert_eq!(u64s(48, 1 << 48), Err(Reject::Number));
        assert_eq!(u64s(48, 0x31), Err(Reject::Number), "taken less than it begins with");
        assert_eq!(u64s(48, 0x32), Ok(()));
        assert_eq!(u64s(56, 1 << 63), Err(Reject::Sequence));
        assert_eq!(u64s(56, 1_001), Err(Reject::Sequence), "first is after the next");
        assert_eq!(u64s(56, 901), Err(Reject::Sequence), "the trail is before the first");
        assert_eq!(u64s(56, 900), Ok(()));
        assert_eq!(u64s(64, 1 << 48), Err(Reject::Number));
        assert_eq!(u64s(132, 1 << 48), Err(Reject::Number));
        assert_eq!(with(88, &[1, 0, 0, 0]), Err(Reject::Count), "more patterns than names");
        assert_eq!(with(88, &[1, 0, 16, 0]), Err(Reject::Count), "more names than a table has");
        assert_eq!(with(88, &[0, 0, 16, 0]), Ok(()));
        assert_eq!(with(124, &[0]), Err(Reject::Code));
        assert_eq!(with(124, &[4]), Err(Reject::Code));
        assert_eq!(with(125, &[17]), Err(Reject::Count));
        assert_eq!(with(126, &[5]), Err(Reject::Count));
        assert_eq!(with(126, &[3]), Err(Reject::Truncated));
        assert_eq!(with(126, &[1]), Err(Reject::Trailing));
        assert_eq!(with(130, &[9]), Err(Reject::Count));
        assert_eq!(with(131, &[1]), Err(Reject::Reserved));
        assert_eq!(with(127, &[5]), Err(Reject::Trailing));
        assert_eq!(with(127, &[7]), Err(Reject::Truncated));
        assert_eq!(with(199, b"\n"), Err(Reject::Name));
    }

    #[test]
    fn there_are_at_most_four_repairers() {
        let addresses = [Address { ip: [1; 16], port: 2 }; 5];
        assert_eq!(Repairers::new(&addresses), None);
        let four = Repairers::new(&addresses[..4]).unwrap();
        assert_eq!(four.as_slice(), &addresses[..4]);
    }
}
