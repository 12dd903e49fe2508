//! The frames of latency-bounded TCP: one type a file or two, with a drawing of its bytes.
//!
//! ```text
//!  byte 0         4      5      6         8                  16              length - 16      length
//!       +---------+------+------+---------+------------------+---------------+----------------+
//!       | length  | type | flags| stream  | message (u64)    | body          | MAC, if there  |
//!       | u32     | u8   | u8   | u16     |                  |               | is a key       |
//!       +---------+------+------+---------+------------------+---------------+----------------+
//!
//!  length   of the whole frame: at most 1 MiB from a server, and 64 KiB from a client
//!  flags    1 REPLAY  2 END  8 FEED  0x80 MAC
//!  stream   the stream's place in WELCOME; 0 in frames that belong to no stream
//!  message  DATA: the number of the first message that starts here; GAP and REPLAY: of the next one
//! ```
//!
//! The bytes of a connection are cut into frames by [`Incoming`], whatever pieces they arrive in.
//! [`parse`] checks a frame once and returns a view of it, as [`wire::parse`](super::parse) does with a
//! datagram.
//!
//! **The MAC** covers a [`Context`] besides the frame, which both ends know. A frame of one connection
//! has the nonces of both ends in it, the direction, and how many such frames went before. So a recorded
//! frame is of no use in another connection, or a second time. DATA that many clients share cannot have the
//! nonces of one of them. Its context is the server's instance and the set of patterns, which WELCOME
//! states; the message number protects its place.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod control;
mod data;
mod hello;
mod incoming;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
mod welcome;

pub use self::control::{Bye, Challenge, Gap, Heartbeat, Names, Reached, Replay};
pub use self::data::{CHUNKS_AT, FrameData, FrameWriter};
pub use self::hello::{Hello, Resume};
pub use self::incoming::Incoming;
pub(crate) use self::welcome::{About, Offer};
pub use self::welcome::{Welcome, WelcomeStream};

use super::cursor::{NoRoom, Reader, Writer};
use super::header::mac_bytes;
use super::mac::{Keys, MAC_BYTES};
use super::{Reject, Rules};
use crate::id::MessageNumber;

/// The length of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 16;
/// The greatest length of a frame, in bytes.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// The greatest length of a frame from a client, HELLO above all, in bytes.
pub const MAX_CLIENT_FRAME_BYTES: usize = 64 << 10;
/// The greatest number of streams of a connection.
pub const MAX_STREAMS: usize = 64;
/// The length of a nonce, in bytes.
pub const NONCE_BYTES: usize = 16;

const FLAGS_AT: usize = 5;
const MAC: u8 = 0x80;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The client says who it is, which patterns it wants, and where it continues.
    Hello = 1,
    /// The server lists its streams.
    Welcome = 2,
    /// Messages.
    Data = 3,
    /// Names of topics.
    Topics = 4,
    /// Messages that the server left out.
    Gap = 5,
    /// The connection lives, and so far everything was sent.
    Heartbeat = 6,
    /// The client asks for history. The server says where a replay begins or ends.
    Replay = 7,
    /// The connection ends.
    Bye = 8,
    /// With a key, the server speaks first.
    Challenge = 9,
}

impl Kind {
    /// All types, by their number.
    pub const ALL: [Self; 9] = [
        Self::Hello,
        Self::Welcome,
        Self::Data,
        Self::Topics,
        Self::Gap,
        Self::Heartbeat,
        Self::Replay,
        Self::Bye,
        Self::Challenge,
    ];

    /// The flags that a frame of this type may have, besides MAC.
    const fn flags(self) -> u8 {
        match self {
            Self::Data => Flags::REPLAY.0 | Flags::FEED.0,
            Self::Gap | Self::Hello => Flags::REPLAY.0,
            Self::Replay => Flags::REPLAY.0 | Flags::END.0,
            Self::Heartbeat => Flags::END.0,
            _ => 0,
        }
    }

    const fn has_stream(self) -> bool {
        matches!(self, Self::Data | Self::Topics | Self::Gap | Self::Replay)
    }

    const fn has_message(self) -> bool {
        matches!(self, Self::Data | Self::Gap | Self::Replay)
    }
}

/// A set of flags of a frame. MAC is not among them: it is set if there is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// HELLO: the client wants only the history that it asks for. DATA and GAP: part of a replay. REPLAY from a server: the
    /// replay begins.
    pub const REPLAY: Self = Self(1);
    /// REPLAY: after the replay, nothing more of the stream is sent. HEARTBEAT: the server ends, and has sent everything that it
    /// had taken.
    pub const END: Self = Self(2);
    /// DATA of a feed: messages have origins.
    pub const FEED: Self = Self(8);

    /// Returns the flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What stands before the body of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Without MAC.
    pub flags: Flags,
    /// The stream's place in WELCOME, or 0.
    pub stream: u16,
    /// The message number of what comes, or 0.
    pub message: MessageNumber,
}

impl Header {
    /// Makes the header of a frame that belongs to no stream.
    #[must_use]
    pub const fn of(kind: Kind) -> Self {
        Self { kind, flags: Flags::NONE, stream: 0, message: MessageNumber::ZERO }
    }
}

/// Random bytes of both ends of a connection; 0 where they are not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Nonces {
    /// From CHALLENGE.
    pub server: [u8; NONCE_BYTES],
    /// From HELLO. In frames of the server it counts from WELCOME on.
    pub client: [u8; NONCE_BYTES],
}

/// Which end sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// The client sends.
    ToServer = 2,
    /// The server sends.
    ToClient = 3,
}

/// What a MAC covers besides the frame.
///
/// ```text
///  byte 0       1                 17                33          41
///       +-------+-----------------+-----------------+-----------+
///       | 1     | instance        | set (u16), 0    | 0         |  DATA that clients share
///       | 2, 3  | server's nonce  | client's nonce  | count     |  other frames, by direction
///       +-------+-----------------+-----------------+-----------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context([u8; 41]);

impl Context {
    /// The context of DATA that all clients of a set share.
    #[must_use]
    pub fn of_set(instance: [u8; 16], set: u16) -> Self {
        let mut client = [0; NONCE_BYTES];
        client[..2].copy_from_slice(&set.to_le_bytes());
        Self::new(1, instance, client, 0)
    }

    /// The context of a frame of one connection. `count` is how many of them this end has sent before.
    #[must_use]
    pub fn of_connection(nonces: &Nonces, direction: Direction, count: u64) -> Self {
        Self::new(direction as u8, nonces.server, nonces.client, count)
    }

    fn new(domain: u8, first: [u8; 16], second: [u8; 16], count: u64) -> Self {
        let mut bytes = [0; 41];
        bytes[0] = domain;
        bytes[1..17].copy_from_slice(&first);
        bytes[17..33].copy_from_slice(&second);
        bytes[33..].copy_from_slice(&count.to_le_bytes());
        Self(bytes)
    }
}

/// How a frame is signed.
#[derive(Debug, Clone, Copy)]
pub struct Seal<'a> {
    /// The keys of the realm, if it has any.
    pub keys: Option<&'a Keys>,
    /// What else the MAC covers.
    pub context: Context,
}

/// A frame that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Type, flags, stream and message number.
    pub header: Header,
    /// Its contents.
    pub body: Body<'a>,
}

/// The contents of a frame, by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// Who the client is and what it wants.
    Hello(Hello<'a>),
    /// What the server has.
    Welcome(Welcome<'a>),
    /// Messages.
    Data(FrameData<'a>),
    /// Names of topics.
    Topics(Names<'a>),
    /// Messages that were left out.
    Gap(Gap),
    /// Everything was sent up to here.
    Heartbeat(Heartbeat<'a>),
    /// A request for history, or where a replay begins or ends.
    Replay(Replay),
    /// The end.
    Bye(Bye),
    /// The server's nonce.
    Challenge(Challenge),
}

/// Checks a frame, whose length is that of `bytes`. `context` returns what its MAC must cover.
///
/// # Errors
///
/// The first reason that is met: length, type, MAC, flags, fields of the header, body.
pub fn parse<'a>(
    bytes: &'a [u8],
    rules: &Rules<'_>,
    context: impl FnOnce(Kind, Flags) -> Context,
) -> Result<Frame<'a>, Reject> {
    let mut reader = Reader::new(bytes);
    let length = reader.u32().map_err(|_| Reject::Short)?;
    if bytes.len() < HEADER_BYTES {
        return Err(Reject::Short);
    }
    if length as usize != bytes.len() || bytes.len() > MAX_FRAME_BYTES {
        return Err(Reject::Length);
    }
    let (kind, flags) = (reader.u8()?, reader.u8()?);
    let kind = Kind::ALL.into_iter().find(|one| *one as u8 == kind).ok_or(Reject::Type)?;
    let signed = flags & MAC != 0;
    let flags = Flags(flags & !MAC);
    let (stream, message) = (reader.u16()?, reader.u64()?);
    let body = match (rules.keys, signed) {
        (None, false) => reader.rest(),
        (None, true) => return Err(Reject::MacUnexpected),
        (Some(_), false) => return Err(Reject::MacMissing),
        (Some(keys), true) => {
            let (body, code) = reader.rest().split_last_chunk().ok_or(Reject::MacWrong)?;
            let covered =
                bytes.split_last_chunk::<MAC_BYTES>().map_or(&[][..], |(covered, _)| covered);
            if !keys.verify_within(&context(kind, flags).0, covered, *code) {
                return Err(Reject::MacWrong);
            }
            body
        }
    };
    if flags.0 & !kind.flags() != 0 {
        return Err(Reject::Flags);
    }
    if (stream != 0 && !kind.has_stream()) || (message != 0 && !kind.has_message()) {
        return Err(Reject::Reserved);
    }
    let message = MessageNumber::new(message).ok_or(Reject::Number)?;
    let header = Header { kind, flags, stream, message };
    let body = match kind {
        Kind::Hello => Body::Hello(Hello::parse(body, rules.realm)?),
        Kind::Welcome => Body::Welcome(Welcome::parse(body, rules.realm)?),
        Kind::Data => Body::Data(FrameData::parse(body, &header, rules.message_max)?),
        Kind::Topics => Body::Topics(Names::parse(body)?),
        Kind::Gap => Body::Gap(Gap::parse(body)?),
        Kind::Heartbeat => Body::Heartbeat(Heartbeat::parse(body)?),
        Kind::Replay => Body::Replay(Replay::parse(body)?),
        Kind::Bye => Body::Bye(Bye::parse(body)?),
        Kind::Challenge => Body::Challenge(Challenge::parse(body)?),
    };
    Ok(Frame { header, body })
}

/// Writes a frame into `buffer`, signs it if there are keys, and returns its length.
fn frame(
    header: &Header,
    seal: &Seal<'_>,
    buffer: &mut [u8],
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Result<usize, NoRoom> {
    let room = buffer.len().min(MAX_FRAME_BYTES).checked_sub(mac_bytes(seal.keys));
    let mut writer = Writer::new(room.and_then(|room| buffer.get_mut(..room)).ok_or(NoRoom)?);
    writer.bytes(&[0; HEADER_BYTES])?;
    body(&mut writer)?;
    let end = writer.written();
    close(header, seal, buffer, end)
}

/// Writes the header of a frame whose body is there up to `end`, and signs it if there are keys. Returns
/// its whole length.
fn close(header: &Header, seal: &Seal<'_>, buffer: &mut [u8], end: usize) -> Result<usize, NoRoom> {
    let whole = end.checked_add(mac_bytes(seal.keys)).ok_or(NoRoom)?;
    let (covered, rest) = buffer.split_at_mut_checked(end).ok_or(NoRoom)?;
    let mut writer = Writer::new(covered);
    writer.u32(u32::try_from(whole).map_err(|_| NoRoom)?)?;
    writer.bytes(&[header.kind as u8, header.flags.0])?;
    writer.u16(header.stream)?;
    writer.u64(header.message.get())?;
    if let Some(keys) = seal.keys {
        *covered.get_mut(FLAGS_AT).ok_or(NoRoom)? |= MAC;
        let code = keys.sign_within(&seal.context.0, covered);
        rest.get_mut(..MAC_BYTES).ok_or(NoRoom)?.copy_from_slice(&code);
    }
    Ok(whole)
}
