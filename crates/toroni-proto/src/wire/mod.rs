//! The wire format: one file for each type of datagram, with a drawing of its bytes.
//!
//! [`parse`] checks a datagram once and returns a view of it whose accessors cannot fail. Each
//! datagram that it refuses has one reason, [`Reject`]. Each type has a function that encodes it into
//! a buffer of the caller.
//!
//! Every datagram begins with the same [header], and ends with a [MAC](mac) if its realm has a key.
//! Over TCP, the same chunks travel in [frames](tcp).
//!
//! A number from the network is compared with its limit before anything is computed from it, so no
//! arithmetic on hostile values can overflow.

pub mod chunk;
mod cursor;
pub mod data;
pub mod echo;
pub mod header;
pub mod mac;
pub mod nak;
mod name;
pub mod ncf;
pub mod probe;
mod ranges;
mod reject;
pub mod session;
pub mod status;
pub mod tcp;
pub mod topics;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

pub use self::chunk::{Bound, Chunk, LostReason, Start, TopicNumber};
pub use self::cursor::NoRoom;
pub use self::data::{Chunks, Data, DataWriter, FirstSent, Placed};
pub use self::echo::Echo;
pub(crate) use self::header::claimed_stream;
pub use self::header::{Flags, HEADER_BYTES, Header, Kind, VERSION};
pub use self::mac::{Key, Keys, MAC_BYTES};
pub use self::nak::Nak;
pub use self::name::{NodeName, TableName};
pub use self::ncf::{Ncf, NcfReason};
pub use self::probe::{Probe, ProbeKind};
pub use self::ranges::{MAX_RANGES, Range, Ranges};
pub use self::reject::Reject;
pub use self::session::{
    Address, AddressList, Addresses, LegAddresses, MAX_PATTERNS, Policy, Repairers, SessionInfo,
};
pub use self::status::Status;
pub use self::topics::{MAX_TABLE_NAMES, Topics, TopicsWanted};

use self::cursor::{Reader, Writer};
use crate::id::{Realm, Session, Source};

/// The greatest length of a datagram, in bytes: what UDP can carry over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;

/// What a datagram must agree with, to be believed.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Our realm.
    pub realm: Realm,
    /// The keys of the realm, if it has any.
    pub keys: Option<&'a Keys>,
    /// The length of the longest message that is accepted, in bytes.
    pub message_max: u32,
}

/// A datagram that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it, or whom it asks.
    pub header: Header,
    /// Its contents.
    pub body: Body<'a>,
}

/// The contents of a datagram, by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// Messages.
    Data(Data<'a>),
    /// The state of a stream.
    Session(SessionInfo<'a>),
    /// What a receiver misses.
    Nak(Nak<'a>),
    /// What the sender does about it.
    Ncf(Ncf<'a>),
    /// The state of a receiver.
    Status(Status<'a>),
    /// Names of topics.
    Topics(Topics<'a>),
    /// Which names a receiver misses.
    TopicsWanted(TopicsWanted),
    /// A test of reachability.
    Probe(Probe<'a>),
    /// What receivers have drawn.
    Echo(Echo<'a>),
}

/// A receiver, as it names itself in what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receiver {
    /// The receiver's own source id.
    pub source: Source,
    /// The receiver's own session.
    pub session: Session,
}

impl Receiver {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Reject> {
        Ok(Self { source: Source(reader.u32()?), session: Session(reader.u32()?) })
    }

    fn write(self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.source.0)?;
        writer.u32(self.session.0)
    }
}

/// Checks a DATA datagram, as [`parse`] does. Nearly all datagrams are DATA, and need not be moved with room for the others.
/// `None` if it is of another type.
///
/// # Errors
///
/// As [`parse`].
#[inline]
pub fn parse_data<'a>(
    bytes: &'a [u8],
    rules: &Rules<'_>,
    believe: impl FnOnce(&Header) -> Result<(), Reject>,
) -> Option<Result<(Header, Data<'a>), Reject>> {
    if Kind::of(bytes) != Some(Kind::Data) {
        return None;
    }
    let parse = || {
        let (_, unchecked, bytes) = Header::open(bytes, rules)?;
        believe(&unchecked.header)?;
        let header = unchecked.check()?;
        Ok((header, Data::parse(bytes, &header, rules.message_max)?))
    };
    Some(parse())
}

/// Checks a datagram.
///
/// `believe` decides what depends on state: whether the datagram is our own, and whether its session
/// is the one that we follow or send. It sees a header whose type and flags are known and whose
/// signature is right, but whose sequence is not set. It answers with one of [`Reject::Echo`],
/// [`Reject::Collision`], [`Reject::Session`] and [`Reject::Stream`].
///
/// # Errors
///
/// The first reason in the order of [`Reject`] up to [`Reject::Stream`]; after it, the first that
/// is met.
#[inline]
pub fn parse<'a>(
    bytes: &'a [u8],
    rules: &Rules<'_>,
    believe: impl FnOnce(Kind, &Header) -> Result<(), Reject>,
) -> Result<Datagram<'a>, Reject> {
    let (kind, unchecked, bytes) = Header::open(bytes, rules)?;
    believe(kind, &unchecked.header)?;
    let header = unchecked.check()?;
    let body = match kind {
        Kind::Data => Body::Data(Data::parse(bytes, &header, rules.message_max)?),
        Kind::Session => Body::Session(SessionInfo::parse(bytes, &header)?),
        Kind::Nak => Body::Nak(Nak::parse(bytes)?),
        Kind::Ncf => Body::Ncf(Ncf::parse(bytes, &header)?),
        Kind::Status => Body::Status(Status::parse(bytes)?),
        Kind::Topics => Body::Topics(Topics::parse(bytes)?),
        Kind::TopicsWanted => Body::TopicsWanted(TopicsWanted::parse(bytes)?),
        Kind::Probe => Body::Probe(Probe::parse(bytes)?),
        Kind::Echo => Body::Echo(Echo::parse(bytes)?),
    };
    Ok(Datagram { header, body })
}
