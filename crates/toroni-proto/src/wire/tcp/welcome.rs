//! WELCOME: the streams of a server, in answer to HELLO.
//!
//! ```text
//!  byte 16      18        19         20      24        28         32            48      50        52
//!       +-------+---------+----------+-------+---------+----------+-------------+-------+---------+
//!       | "TN"  | version | streams  | realm | source  | session  | instance    | set   | beat_ms |
//!       |       | u8, 2   | u8       | u32   | u32     | u32      | 16 bytes    | u16   | u16     |
//!       +-------+---------+----------+-------+---------+----------+-------------+-------+---------+
//!       each stream:
//!       +---------+----------+---------+---------+----------+----+--------------+--------------+---------------+
//!       | source  | session  | series  | stream  | patterns | 0  | number (u64) | message      | head (u64)    |
//!       | u32     | u32      | u32     | u16     | u8 ≤ 16  | u8 |              | (u64)        |               |
//!       +---------+----------+---------+---------+----------+----+--------------+--------------+---------------+
//!       +-------------+---------------+
//!       | prior (u32) | patterns:     |
//!       |             | length, text  |
//!       +-------------+---------------+
//!
//!  beat_ms  a HEARTBEAT comes within this time, in milliseconds
//!  number   what is sent from now on has this number or a greater one
//!  message  the message number of the first that is sent
//!  head     the number of the next message of the bus when the session began
//!  prior    the session before
//! ```
//!
//! A stream has its place in this list as its number in the other frames of the connection.

use super::super::cursor::{NoRoom, Reader};
use super::super::header::VERSION;
use super::super::name::TableName;
use super::super::session::MAX_PATTERNS;
use super::super::topics::write_name;
use super::hello::{Listed, MAGIC, preamble};
use super::{Header, Kind, MAX_STREAMS, Reject, Seal, frame};
use crate::id::{MessageNumber, Number, Realm, Series, Session, Source, Stream};
use crate::past::Past;

/// The first frame of a server, unless there is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The server's source id.
    pub source: Source,
    /// The server's session.
    pub session: Session,
    /// Drawn by the server's process when it started.
    pub instance: [u8; 16],
    /// The number that the server gave to the client's set of patterns.
    pub set: u16,
    /// A HEARTBEAT comes within this time, in milliseconds.
    pub beat_ms: u16,
    count: u8,
    bytes: &'a [u8],
}

/// A stream of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WelcomeStream<'a> {
    /// Who sends the stream.
    pub source: Source,
    /// In which life.
    pub session: Session,
    /// The series of its numbers.
    pub series: Series,
    /// The stream.
    pub stream: Stream,
    /// What is sent from now on has this number or a greater one.
    pub number: Number,
    /// The message number of the first that is sent.
    pub message: MessageNumber,
    /// What the server remembers of earlier sessions.
    pub past: Past,
    patterns: Listed<'a>,
}

impl<'a> WelcomeStream<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Reject> {
        let (source, session) = (Source(reader.u32()?), Session(reader.u32()?));
        let (series, stream) = (Series(reader.u32()?), Stream(reader.u16()?));
        let patterns = reader.u8()?;
        reader.zeros::<1>()?;
        let number = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let message = MessageNumber::new(reader.u64()?).ok_or(Reject::Number)?;
        let past = Past::parse(reader)?;
        if patterns > MAX_PATTERNS {
            return Err(Reject::Count);
        }
        let patterns = Listed::parse(reader, patterns.into())?;
        Ok(Self { source, session, series, stream, number, message, past, patterns })
    }

    /// Returns the stream's patterns.
    pub fn patterns(&self) -> impl Iterator<Item = TableName<'a>> + use<'a> {
        self.patterns.names()
    }
}

/// What a server says about a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer<'a> {
    pub(crate) source: Source,
    pub(crate) session: Session,
    pub(crate) series: Series,
    pub(crate) stream: Stream,
    pub(crate) number: Number,
    pub(crate) message: MessageNumber,
    pub(crate) past: Past,
    pub(crate) patterns: &'a [Box<str>],
}

/// What a server says about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) realm: Realm,
    pub(crate) source: Source,
    pub(crate) session: Session,
    pub(crate) instance: [u8; 16],
    pub(crate) set: u16,
    pub(crate) beat_ms: u16,
}

impl<'a> Welcome<'a> {
    pub(super) fn parse(bytes: &'a [u8], realm: Realm) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let count = preamble(&mut reader, realm)?;
        let (source, session) = (Source(reader.u32()?), Session(reader.u32()?));
        let (instance, set, beat_ms) = (reader.array()?, reader.u16()?, reader.u16()?);
        if usize::from(count) > MAX_STREAMS || beat_ms == 0 {
            return Err(Reject::Count);
        }
        let bytes = reader.rest();
        for _ in 0..count {
            WelcomeStream::read(&mut reader)?;
        }
        reader.end()?;
        Ok(Self { source, session, instance, set, beat_ms, count, bytes })
    }

    /// Returns the streams in order.
    pub fn streams(&self) -> impl Iterator<Item = WelcomeStream<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // `parse` has read all of them.
        (0..self.count).map_while(move |_| WelcomeStream::read(&mut reader).ok())
    }

    /// Encodes a WELCOME.
    ///
    /// # Errors
    ///
    /// If it does not fit, or has too many streams.
    pub(crate) fn encode<'n>(
        about: &About,
        streams: impl ExactSizeIterator<Item = Offer<'n>>,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        frame(&Header::of(Kind::Welcome), seal, buffer, |writer| {
            writer.bytes(&MAGIC)?;
            writer.bytes(&[VERSION, u8::try_from(streams.len()).map_err(|_| NoRoom)?])?;
            writer.u32(about.realm.0)?;
            writer.u32(about.source.0)?;
            writer.u32(about.session.0)?;
            writer.bytes(&about.instance)?;
            writer.u16(about.set)?;
            writer.u16(about.beat_ms)?;
            for one in streams {
                writer.u32(one.source.0)?;
                writer.u32(one.session.0)?;
                writer.u32(one.series.0)?;
                writer.u16(one.stream.0)?;
                writer.u8(u8::try_from(one.patterns.len()).map_err(|_| NoRoom)?)?;
                writer.u8(0)?;
                writer.u64(one.number.get())?;
                writer.u64(one.message.get())?;
                one.past.write(writer)?;
                for pattern in one.patterns {
                    write_name(TableName::new(pattern).ok_or(NoRoom)?, writer)?;
                }
            }
            Ok(())
        })
    }
}
