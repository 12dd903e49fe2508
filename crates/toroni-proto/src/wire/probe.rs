//! PROBE: tests which hosts reach each other. Only the tool that tests answers.
//!
//! ```text
//!  byte 32            40       44     45      46      48        52        56
//!       +-------------+--------+------+-------+-------+---------+---------+-----------+---------+
//!       | sent_ns     | asker  | kind | name  | 0     | heard   | of      | host name | padding |
//!       | u64         | u32    | u8   | length| u16   | u32     | u32     |           | zeros   |
//!       +-------------+--------+------+-------+-------+---------+---------+-----------+---------+
//!
//!  kind  1 ask: `asker`, `heard` and `of` are 0    2 answer: `asker` is the source of the question, and there is no padding
//! ```
//!
//! The header's `sequence` counts the questions of a host in a stream: each stream of PROBE is one kind of question of the
//! tool. An answer has the `stream`, `sequence` and `sent_ns` of its question. It says how many questions of that stream were
//! `heard`, `of` those from the first that was heard to this one: so the host that asks knows the loss on the way there,
//! however few of its questions are answered.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

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
    Ask {
        /// How many bytes fill the datagram, to test its size.
        padding: u16,
    },
    /// The answer to a question.
    Answer {
        /// Who asked.
        asker: Source,
        /// How many questions of the asker in this stream were heard: at least this one.
        heard: u32,
        /// How many it asked from the first that was heard to this one.
        of: u32,
    },
}

impl<'a> Probe<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let sent = Wall::from_ns(reader.u64()?);
        let asker = reader.u32()?;
        let (kind, length) = (reader.u8()?, reader.u8()?);
        reader.zeros::<2>()?;
        let (heard, of) = (reader.u32()?, reader.u32()?);
        let name = reader.bytes(usize::from(length))?;
        let kind = match kind {
            ASK if (asker, heard, of) != (0, 0, 0) => return Err(Reject::Reserved),
            ASK => {
                let padding = reader.rest();
                if padding.iter().any(|byte| *byte != 0) {
                    return Err(Reject::Trailing);
                }
                // A datagram is shorter than that.
                let padding = u16::try_from(padding.len()).map_err(|_| Reject::Trailing)?;
                ProbeKind::Ask { padding }
            }
            ANSWER => {
                reader.end()?;
                if heard == 0 || heard > of {
                    return Err(Reject::Count);
                }
                ProbeKind::Answer { asker: Source(asker), heard, of }
            }
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
        let (kind, asker, heard, of, padding) = match self.kind {
            ProbeKind::Ask { padding } => (ASK, 0, 0, 0, padding),
            ProbeKind::Answer { asker, heard, of } => (ANSWER, asker.0, heard, of, 0),
        };
        header.datagram(Kind::Probe, keys, buffer, |writer| {
            writer.u64(self.sent.ns())?;
            writer.u32(asker)?;
            writer.bytes(&[kind, self.name.length(), 0, 0])?;
            writer.u32(heard)?;
            writer.u32(of)?;
            writer.bytes(self.name.as_str().as_bytes())?;
            (0..padding).try_for_each(|_| writer.u8(0))
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
                "544e 02 08 00 10 3e00 44332211 0700 0000 04030201 08070605 e803000000000000",
                "1817161514131211", // sent_ns
                "d4c3b2a1",         // asker
                "02",               // answer
                "06 0000",          // name length
                "5f000000",         // heard
                "64000000",         // of
                "6c696e652d34",     // line-4
            ],
        );
    }

    #[test]
    fn what_an_answer_or_a_question_cannot_say_is_refused() {
        let bytes = samples::of(Kind::Probe).bytes;
        for (at, value, wanted) in [
            (44, 0, Reject::Code),
            (44, 3, Reject::Code),
            (44, 1, Reject::Reserved),
            (46, 1, Reject::Reserved),
            (45, 5, Reject::Trailing),
            (45, 7, Reject::Truncated),
            (48, 0, Reject::Count),
            (48, 0x65, Reject::Count),
            (56, 7, Reject::Name),
        ] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(samples::parse(&wrong).map(|_| ()), Err(wanted), "byte {at} = {value}");
        }
        let mut question = bytes;
        question[40..45].copy_from_slice(&[0, 0, 0, 0, 1]);
        for at in [48, 52] {
            let mut wrong = question.clone();
            wrong[100 - at..104 - at].fill(0);
            assert_eq!(samples::parse(&wrong).map(|_| ()), Err(Reject::Reserved), "byte {at}");
        }
        question[48..56].fill(0);
        assert!(samples::parse(&question).is_ok());
    }

    #[test]
    fn the_padding_of_a_question_is_zeros() {
        let name = NodeName::new("line-3").expect("a name");
        let probe = Probe { sent: Wall::from_ns(1), kind: ProbeKind::Ask { padding: 100 }, name };
        let mut buffer = [7; 200];
        let length = probe.encode(&samples::header(1), None, &mut buffer).expect("room");
        assert_eq!(length, 56 + 6 + 100);
        let super::super::Body::Probe(parsed) = samples::parse(&buffer[..length]).unwrap().body
        else {
            panic!("a probe")
        };
        assert_eq!(parsed, probe);
        buffer[length - 1] = 1;
        assert_eq!(samples::parse(&buffer[..length]).map(|_| ()), Err(Reject::Trailing));
    }
}
