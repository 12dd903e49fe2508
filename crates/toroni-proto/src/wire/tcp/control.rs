//! The frames without messages.
//!
//! ```text
//!  TOPICS, from the server: names that the frames behind it use
//!  byte 16      18      20
//!       +-------+-------+------------------------------------------------+
//!       | count | 0     | entries: number (u32), length (u8), name       |
//!       | u16 ≥ 1 u16   |                                                |
//!       +-------+-------+------------------------------------------------+
//!
//!  GAP, from the server: messages that it left out
//!  byte 16           24           32           40       41      42        48
//!       +------------+------------+------------+--------+-------+---------+
//!       | first (u64)| until (u64)| count (u64)| reason | bound | 0       |
//!       |            |            |            | u8     | u8    | 6 bytes |
//!       +------------+------------+------------+--------+-------+---------+
//!
//!  HEARTBEAT, from the server: what comes has these numbers or greater ones, and continues with these message
//!  numbers. With END, nothing comes: the server ends, and has sent everything that it had taken
//!  byte 16      18      24
//!       +-------+-------+----------------------------------------------------+
//!       | count | 0     | for each stream of WELCOME in order: number (u64), |
//!       | u16   | 6 b.  | message (u64)                                      |
//!       +-------+-------+----------------------------------------------------+
//!
//!  REPLAY, both                           BYE, both                     CHALLENGE, from the server
//!  byte 16           24           32      byte 16      17      24       byte 16        32
//!       +------------+------------+            +-------+-------+             +---------+
//!       | first (u64)| until (u64)|            | reason| 0     |             | nonce   |
//!       +------------+------------+            | u8    | 7 b.  |             +---------+
//!                                              +-------+-------+
//!  REPLAY of a client   send again from `first` on. With END, to `until` or the present, and then nothing more;
//!                       without, up to the present, and then what is new; `until` is 0
//!  REPLAY of a server   with the flag REPLAY: a replay begins at `first`. Without: it has ended, and what comes
//!                       has the number `first` or a greater one, and the message number of the header. With
//!                       END, nothing comes. `until` is 0
//! ```
//!
//! In GAP, `first` is a number above which, and `until` one below which, all messages lie that were left
//! out. A bound is 1 exact, 2 at least, 3 at most.

use super::super::chunk::{Bound, LostReason, TopicNumber};
use super::super::cursor::{NoRoom, Reader};
use super::super::name::TableName;
use super::super::topics::{next_name, write_name};
use super::{Flags, Header, Kind, MAX_STREAMS, NONCE_BYTES, Reject, Seal, frame};
use crate::id::{MessageNumber, Number};
use core::fmt;

/// Names of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Names<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let count = reader.u16()?;
        reader.zeros::<2>()?;
        if count == 0 {
            return Err(Reject::Count);
        }
        let bytes = reader.rest();
        for _ in 0..count {
            Self::entry(&mut reader)?;
        }
        reader.end()?;
        Ok(Self { count, bytes })
    }

    fn entry(reader: &mut Reader<'a>) -> Result<(TopicNumber, TableName<'a>), Reject> {
        let number = TopicNumber::new(reader.u32()?).ok_or(Reject::Name)?;
        Ok((number, next_name(reader)?))
    }

    /// Returns the names with their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (TopicNumber, TableName<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // `parse` has read all of them.
        (0..self.count).map_while(move |_| Self::entry(&mut reader).ok())
    }

    /// Encodes as many of the names as fit, at least one. Returns the length of the frame and how many
    /// names are in it.
    ///
    /// # Errors
    ///
    /// If not even one fits, or there is none.
    pub fn encode<'n>(
        stream: u16,
        names: impl IntoIterator<Item = (TopicNumber, TableName<'n>)>,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<(usize, u16), NoRoom> {
        let mut count: u16 = 0;
        let header = Header { stream, ..Header::of(Kind::Topics) };
        let length = frame(&header, seal, buffer, |writer| {
            let count_at = writer.written();
            writer.u32(0)?;
            for (number, name) in names {
                // A number and the length of the name come before the name.
                let needed = name.as_str().len().saturating_add(5);
                if count == u16::MAX || writer.room() < needed {
                    break;
                }
                writer.u32(number.get())?;
                write_name(name, writer)?;
                count = u16::saturating_add(count, 1);
            }
            if count == 0 {
                return Err(NoRoom);
            }
            writer.overwrite(count_at, &count.to_le_bytes())
        })?;
        Ok((length, count))
    }
}

/// Messages that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Their numbers are not below this one.
    pub first: Number,
    /// Their numbers are below this one, and that of the next message is not.
    pub until: Number,
    /// How many there are.
    pub count: u64,
    /// How exact that is.
    pub bound: Bound,
    /// Why.
    pub reason: LostReason,
}

const BOUNDS: [Bound; 3] = [Bound::Exact, Bound::AtLeast, Bound::AtMost];

impl Gap {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let first = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let until = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let count = reader.u64()?;
        let (reason, bound) = (reader.u8()?, reader.u8()?);
        reader.zeros::<6>()?;
        reader.end()?;
        if until < first {
            return Err(Reject::Number);
        }
        // More messages than numbers cannot have been left out.
        if MessageNumber::new(count).is_none() || (count > until.since(first) && bound != 2) {
            return Err(Reject::Count);
        }
        let reason = LostReason::ALL.into_iter().find(|one| *one as u8 == reason);
        let bound = bound.checked_sub(1).and_then(|bound| BOUNDS.get(usize::from(bound)));
        let (reason, bound) = (reason.ok_or(Reject::Code)?, *bound.ok_or(Reject::Code)?);
        Ok(Self { first, until, count, bound, reason })
    }

    /// Encodes a GAP. `message` is the message number of what comes next.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub fn encode(
        &self,
        stream: u16,
        flags: Flags,
        message: MessageNumber,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        frame(&Header { kind: Kind::Gap, flags, stream, message }, seal, buffer, |writer| {
            writer.u64(self.first.get())?;
            writer.u64(self.until.get())?;
            writer.u64(self.count)?;
            let bound = match self.bound {
                Bound::Exact => 1,
                Bound::AtLeast => 2,
                Bound::AtMost => 3,
            };
            writer.bytes(&[self.reason as u8, bound])?;
            writer.bytes(&[0; 6])
        })
    }
}

/// How far a stream of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Everything below this number was sent, or left out and told.
    pub number: Number,
    /// The message number of what comes next. So the receiver notices that a frame is missing, even if none follows.
    pub message: MessageNumber,
}

impl Reached {
    /// Nothing was sent.
    pub(crate) const ZERO: Self = Self { number: Number::ZERO, message: MessageNumber::ZERO };

    fn parse(reader: &mut Reader<'_>) -> Result<Self, Reject> {
        let number = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let message = MessageNumber::new(reader.u64()?).ok_or(Reject::Number)?;
        Ok(Self { number, message })
    }
}

/// Where the streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    streams: &'a [[u8; 16]],
}

impl<'a> Heartbeat<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let count = usize::from(reader.u16()?);
        reader.zeros::<6>()?;
        if count > MAX_STREAMS {
            return Err(Reject::Count);
        }
        let streams = reader.arrays(count)?;
        reader.end()?;
        for bytes in streams {
            Reached::parse(&mut Reader::new(bytes))?;
        }
        Ok(Self { streams })
    }

    /// Returns how far each stream of WELCOME is, in order.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = Reached> + use<'a> {
        // `parse` has read all of them.
        let reached = |bytes| Reached::parse(&mut Reader::new(bytes)).unwrap_or(Reached::ZERO);
        self.streams.iter().map(move |bytes| reached(bytes))
    }

    /// Encodes a HEARTBEAT. With [`Flags::END`], nothing comes after it.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub fn encode(
        streams: impl ExactSizeIterator<Item = Reached>,
        flags: Flags,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        frame(&Header { flags, ..Header::of(Kind::Heartbeat) }, seal, buffer, |writer| {
            writer.u16(u16::try_from(streams.len()).map_err(|_| NoRoom)?)?;
            writer.bytes(&[0; 6])?;
            for Reached { number, message } in streams {
                writer.u64(number.get())?;
                writer.u64(message.get())?;
            }
            Ok(())
        })
    }
}

/// A request for history, or where a replay begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// The first number.
    pub first: Number,
    /// Numbers below this one are wanted, if the flag END is set.
    pub until: Number,
}

impl Replay {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let first = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let until = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        reader.end()?;
        Ok(Self { first, until })
    }

    /// Encodes a REPLAY.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub fn encode(
        &self,
        stream: u16,
        flags: Flags,
        message: MessageNumber,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        frame(&Header { kind: Kind::Replay, flags, stream, message }, seal, buffer, |writer| {
            writer.u64(self.first.get())?;
            writer.u64(self.until.get())
        })
    }
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Bye {
    /// The server has as many clients as it may have.
    Full = 1,
    /// This end stops.
    Ended = 2,
    /// The client held a stream with `pace = "receiver"` for longer than `hold_limit`.
    Slow = 3,
    /// HELLO or WELCOME did not come in time.
    Late = 4,
    /// A frame was refused.
    Refused = 5,
    /// The server has no room for these patterns.
    Patterns = 6,
    /// The server was silent.
    Silent = 7,
    /// The client took nothing for `stall`. No BYE says so, since nothing can be written.
    Stalled = 8,
    /// The connection was lost. No BYE says so.
    Lost = 9,
}

impl Bye {
    /// All reasons, by their number.
    pub const ALL: [Self; 9] = [
        Self::Full,
        Self::Ended,
        Self::Slow,
        Self::Late,
        Self::Refused,
        Self::Patterns,
        Self::Silent,
        Self::Stalled,
        Self::Lost,
    ];

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let reason = reader.u8()?;
        reader.zeros::<7>()?;
        reader.end()?;
        Self::ALL.into_iter().find(|one| *one as u8 == reason).ok_or(Reject::Code)
    }

    /// Encodes a BYE.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub fn encode(self, seal: &Seal<'_>, buffer: &mut [u8]) -> Result<usize, NoRoom> {
        frame(&Header::of(Kind::Bye), seal, buffer, |writer| {
            writer.bytes(&[self as u8, 0, 0, 0, 0, 0, 0, 0])
        })
    }
}

impl fmt::Display for Bye {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Full => "the server has as many clients as it may have",
            Self::Ended => "the other end stops",
            Self::Slow => "it held the server for longer than hold_limit",
            Self::Late => "HELLO or WELCOME did not come in time",
            Self::Refused => {
                "a frame was refused: another realm, another key, or not this protocol"
            }
            Self::Patterns => "the server has no room for these patterns",
            Self::Silent => "the server was silent",
            Self::Stalled => "the client took nothing for the time `stall`",
            Self::Lost => "the connection was lost",
        })
    }
}

/// The server's nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge(pub [u8; NONCE_BYTES]);

impl Challenge {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let nonce = reader.array()?;
        reader.end()?;
        Ok(Self(nonce))
    }

    /// Encodes a CHALLENGE.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub fn encode(self, seal: &Seal<'_>, buffer: &mut [u8]) -> Result<usize, NoRoom> {
        frame(&Header::of(Kind::Challenge), seal, buffer, |writer| writer.bytes(&self.0))
    }
}
