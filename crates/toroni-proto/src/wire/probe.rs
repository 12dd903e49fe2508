//! PROBE: tests which hosts reach each other. Only the tool that tests answers.
//!
//! ```text
//!  byte 32                40        44     45      46      48
//!       +-----------------+---------+------+-------+-------+-----------+
//!       | sent_ns (u64)   | asker   | kind | name  | 0     | host name |
//!       |                 | u32     | u8   | length| u16   |           |
//!       +-----------------+---------+------+-------+-------+-----------+
//!
//!  kind  1 ask: `asker` is 0    2 answer: `asker` is the source of the question
//! ```
//!
//! The header's `sequence` counts the questions of a host. An answer has the `sequence` and `sent_ns`
//! of its question.

use super::cursor::{NoRoom, Reader};
use super::header::{Header, Kind};
use super::mac::Keys;
use super::name::NodeName;
use super::reject::Reject;
use crate::id::Source;
use crate::time::Wall;

const ASK: u8 = 1;
const ANSWER: u8 = 2;

/// A question or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe<'a> {
    /// When the question was sent, by the clock of the host that asked.
    pub sent: Wall,
    /// Which of the two it is.
    pub kind: ProbeKind,
    /// The name of the host that sends this.
    pub name: NodeName<'a>,
}

/// Whether a probe asks or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// All who hear it should answer.
    Ask,
    /// The answer to a question.
    Answer {
        /// Who asked.
        asker: Source,
    },
}

impl<'a> Probe<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let sent = Wall::from_ns(reader.u64()?);
        let asker = reader.u32()?;
        let (kind, length) = (reader.u8()?, reader.u8()?);
        reader.zeros::<2>()?;
        let name = reader.bytes(usize::from(length))?;
        reader.end()?;
        let kind = match (kind, asker) {
            (ASK, 0) => ProbeKind::Ask,
            (ASK, _) => return Err(Reject::Reserved),
            (ANSWER, asker) => ProbeKind::Answer { asker: Source(asker) },
            _ => return Err(Reject::Code),
        };
        Ok(Self { sent, kind, name: NodeName::parse(name)? })
    }

    /// Encodes a PROBE.
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
        let (kind, asker) = match self.kind {
            ProbeKind::Ask => (ASK, 0),
            ProbeKind::Answer { asker } => (ANSWER, asker.0),
        };
        header.datagram(Kind::Probe, keys, buffer, |writer| {
            writer.u64(self.sent.ns())?;
            writer.u32(asker)?;
            writer.bytes(&[kind, self.name.length(), 0, 0])?;
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
            Kind::Probe,
            &[
                "544e 01 08 00 10 3600 44332211 0700 0000 04030201 08070605 e803000000000000",
                "1817161514131211", // sent_ns
                "d4c3b2a1",         // asker
                "02",               // answer
                "06 0000",          // name length
                "6c696e652d34",     // line-4
            ],
        );
    }

    #[test]
    fn a_question_names_no_asker_and_other_kinds_do_not_exist() {
        let bytes = samples::of(Kind::Probe).bytes;
        for (at, value, wanted) in [
            (44, 0, Reject::Code),
            (44, 3, Reject::Code),
            (44, 1, Reject::Reserved),
            (46, 1, Reject::Reserved),
            (45, 5, Reject::Trailing),
            (45, 7, Reject::Truncated),
            (48, 7, Reject::Name),
        ] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(samples::parse(&wrong).map(|_| ()), Err(wanted), "byte {at} = {value}");
        }
        let mut question = bytes;
        question[40..45].copy_from_slice(&[0, 0, 0, 0, 1]);
        assert!(samples::parse(&question).is_ok());
    }
}
