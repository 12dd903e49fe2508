//! HELLO: who the client is, which patterns it wants, and where it continues.
//!
//! ```text
//!  byte 16      18        19         20      24        28         32                48            52          54
//!       +-------+---------+----------+-------+---------+----------+-----------------+-------------+-----------+---------+
//!       | "TN"  | version | name     | realm | source  | session  | nonce           | message_max | patterns  | resumes |
//!       |       | u8, 2   | length   | u32   | u32     | u32      | 16 bytes        | u32 ≥ 1     | u16 ≥ 1   | u16     |
//!       +-------+---------+----------+-------+---------+----------+-----------------+-------------+-----------+---------+
//!  byte 56
//!       +--------------------------------------------------------+----------------------------+---------+
//!       | resumes, 20 bytes each: source u32, series u32,        | patterns: length (u8),     | name    |
//!       | number u64, stream u16, 0 u16                          | text                       |         |
//!       +--------------------------------------------------------+----------------------------+---------+
//! ```

use super::super::cursor::{NoRoom, Reader};
use super::super::header::VERSION;
use super::super::name::{NodeName, TableName};
use super::super::topics::{next_name, write_name};
use super::{Flags, Header, Kind, MAX_STREAMS, NONCE_BYTES, Reject, Seal, frame};
use crate::id::{Number, Realm, Series, Session, Source, Stream};

pub(super) const MAGIC: [u8; 2] = *b"TN";
const RESUME_BYTES: usize = 20;

/// Where a client continues in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// Who sends the stream.
    pub source: Source,
    /// The series of its numbers.
    pub series: Series,
    /// The stream.
    pub stream: Stream,
    /// The client has, or was told that it lost, all numbers below.
    pub next: Number,
}

impl Resume {
    fn read(bytes: &[u8; RESUME_BYTES]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let (source, series) = (Source(reader.u32()?), Series(reader.u32()?));
        let next = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let stream = Stream(reader.u16()?);
        reader.zeros::<2>()?;
        Ok(Self { source, series, stream, next })
    }
}

/// The first frame of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The client's own source id.
    pub source: Source,
    /// The client's own session.
    pub session: Session,
    /// Drawn by the client for this connection.
    pub nonce: [u8; NONCE_BYTES],
    /// The longest message that the client takes, in bytes: at least 1.
    pub message_max: u32,
    /// The name of the client's node.
    pub name: NodeName<'a>,
    patterns: Listed<'a>,
    resumes: &'a [[u8; RESUME_BYTES]],
}

/// Names that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Listed<'a> {
    /// Takes this many names, and checks them.
    pub(super) fn parse(reader: &mut Reader<'a>, count: u16) -> Result<Self, Reject> {
        let bytes = reader.rest();
        for _ in 0..count {
            next_name(reader)?;
        }
        Ok(Self { count, bytes })
    }

    pub(super) fn names(self) -> impl Iterator<Item = TableName<'a>> {
        let mut reader = Reader::new(self.bytes);
        // `parse` has read all of them.
        (0..self.count).map_while(move |_| next_name(&mut reader).ok())
    }
}

impl<'a> Hello<'a> {
    pub(super) fn parse(bytes: &'a [u8], realm: Realm) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let name = preamble(&mut reader, realm)?;
        let (source, session) = (Source(reader.u32()?), Session(reader.u32()?));
        let (nonce, message_max) = (reader.array()?, reader.u32()?);
        let (patterns, resumes) = (reader.u16()?, usize::from(reader.u16()?));
        if message_max == 0 || patterns == 0 || resumes > MAX_STREAMS {
            return Err(Reject::Count);
        }
        let resumes = reader.arrays(resumes)?;
        resumes.iter().try_for_each(|bytes| Resume::read(bytes).map(|_| ()))?;
        let patterns = Listed::parse(&mut reader, patterns)?;
        let name = NodeName::parse(reader.bytes(usize::from(name))?)?;
        reader.end()?;
        Ok(Self { source, session, nonce, message_max, name, patterns, resumes })
    }

    /// Returns the patterns, at least one. A client gets what matches any of them.
    pub fn patterns(&self) -> impl Iterator<Item = TableName<'a>> + use<'a> {
        self.patterns.names()
    }

    /// Returns where the client continues.
    pub fn resumes(&self) -> impl Iterator<Item = Resume> + use<'a> {
        // `parse` has read all of them.
        self.resumes.iter().filter_map(|bytes| Resume::read(bytes).ok())
    }

    /// Encodes a HELLO. With [`Flags::REPLAY`], the client gets only the history that it asks for.
    ///
    /// # Errors
    ///
    /// If it does not fit, or has too many patterns.
    #[expect(clippy::too_many_arguments, reason = "the fields of the frame")]
    pub fn encode<'n>(
        realm: Realm,
        (source, session): (Source, Session),
        flags: Flags,
        nonce: [u8; NONCE_BYTES],
        message_max: u32,
        name: NodeName<'_>,
        patterns: impl Iterator<Item = TableName<'n>>,
        resumes: impl Iterator<Item = Resume>,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let header = Header { flags, ..Header::of(Kind::Hello) };
        frame(&header, seal, buffer, |writer| {
            writer.bytes(&MAGIC)?;
            writer.bytes(&[VERSION, name.length()])?;
            writer.u32(realm.0)?;
            writer.u32(source.0)?;
            writer.u32(session.0)?;
            writer.bytes(&nonce)?;
            writer.u32(message_max)?;
            let counts_at = writer.written();
            writer.u32(0)?;
            let mut counts = [0_u16; 2];
            let [pattern_count, resume_count] = &mut counts;
            for resume in resumes {
                writer.u32(resume.source.0)?;
                writer.u32(resume.series.0)?;
                writer.u64(resume.next.get())?;
                writer.u16(resume.stream.0)?;
                writer.u16(0)?;
                *resume_count = resume_count.checked_add(1).ok_or(NoRoom)?;
            }
            for pattern in patterns {
                write_name(pattern, writer)?;
                *pattern_count = pattern_count.checked_add(1).ok_or(NoRoom)?;
            }
            writer.overwrite(counts_at, &pattern_count.to_le_bytes())?;
            writer.overwrite(counts_at.saturating_add(2), &resume_count.to_le_bytes())?;
            writer.bytes(name.as_str().as_bytes())
        })
    }
}

/// Reads magic, version and realm, and returns the byte between them.
pub(super) fn preamble(reader: &mut Reader<'_>, realm: Realm) -> Result<u8, Reject> {
    if reader.array()? != MAGIC {
        return Err(Reject::Magic);
    }
    if reader.u8()? != VERSION {
        return Err(Reject::Version);
    }
    let byte = reader.u8()?;
    if reader.u32()? != realm.0 {
        return Err(Reject::Realm);
    }
    Ok(byte)
}
