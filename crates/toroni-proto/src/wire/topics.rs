//! TOPICS and TOPICS_WANTED: a part of a stream's table of names, and the request for it.
//!
//! ```text
//!  TOPICS, to all receivers
//!  byte 32        36      38      40
//!       +---------+-------+-------+---------------------------------------+
//!       | first   | count | 0     | entries: length (u8), name            |
//!       | u32     | u16 ≥ 1 u16   |                                       |
//!       +---------+-------+-------+---------------------------------------+
//!
//!  TOPICS_WANTED, to the sender
//!  byte 32        36        40        44        48                56
//!       +---------+---------+---------+---------+-----------------+
//!       | receiver| receiver| first   | count   | echo_ns (u64)   |
//!       |         | session | u32     | u32 ≥ 1 |                 |
//!       +---------+---------+---------+---------+-----------------+
//! ```
//!
//! The table of a session only grows. Its first names are the patterns of the stream, as many as
//! SESSION states; all later ones are topics.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::cursor::{NoRoom, Reader, Writer};
use super::header::{Header, Kind};
use super::mac::Keys;
use super::name::TableName;
use super::reject::Reject;
use super::{Receiver, TopicNumber};
use crate::time::Wall;

/// The greatest number of names in the table of a stream.
pub const MAX_TABLE_NAMES: u32 = 1 << 20;

/// A part of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topics<'a> {
    /// The place of the first name.
    pub first: TopicNumber,
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Topics<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let first = reader.u32()?;
        let count = reader.u16()?;
        reader.zeros::<2>()?;
        let bytes = reader.rest();
        let first = in_table(first, u32::from(count))?;
        for _ in 0..count {
            next_name(&mut reader)?;
        }
        reader.end()?;
        Ok(Self { first, count, bytes })
    }

    /// Returns the names in order.
    pub fn names(&self) -> impl Iterator<Item = TableName<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // `parse` has read all of them.
        (0..self.count).map_while(move |_| next_name(&mut reader).ok())
    }

    /// Encodes as many of the names as fit, at least one. Returns the length of the datagram and how
    /// many names are in it.
    ///
    /// # Errors
    ///
    /// If not even one fits, or there is none.
    pub fn encode<'n>(
        header: &Header,
        first: TopicNumber,
        names: impl IntoIterator<Item = TableName<'n>>,
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<(usize, u16), NoRoom> {
        let mut count: u16 = 0;
        let length = header.datagram(Kind::Topics, keys, buffer, |writer| {
            writer.u32(first.get())?;
            let count_at = writer.written();
            writer.u32(0)?;
            for name in names {
                if count == u16::MAX || write_name(name, writer).is_err() {
                    break;
                }
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

pub(super) fn next_name<'a>(reader: &mut Reader<'a>) -> Result<TableName<'a>, Reject> {
    let length = reader.u8()?;
    TableName::parse(reader.bytes(usize::from(length))?)
}

/// Writes all of the name or nothing.
pub(super) fn write_name(name: TableName<'_>, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
    let text = name.as_str().as_bytes();
    if writer.room() <= text.len() {
        return Err(NoRoom);
    }
    writer.u8(name.length())?;
    writer.bytes(text)
}

/// Checks that `count` names, at least one, from `first` on are within a table.
fn in_table(first: u32, count: u32) -> Result<TopicNumber, Reject> {
    if count == 0 || first.checked_add(count).is_none_or(|end| end > MAX_TABLE_NAMES) {
        return Err(Reject::Count);
    }
    TopicNumber::new(first).ok_or(Reject::Count)
}

/// Which names a receiver misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicsWanted {
    /// Who asks.
    pub receiver: Receiver,
    /// The first name that it misses.
    pub first: TopicNumber,
    /// How many it asks for, at least one.
    pub count: u32,
    /// The `sent` of the last SESSION that it received, by the clock of the sender.
    pub echo: Wall,
}

impl TopicsWanted {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let receiver = Receiver::parse(&mut reader)?;
        let (first, count) = (reader.u32()?, reader.u32()?);
        let echo = Wall::from_ns(reader.u64()?);
        reader.end()?;
        Ok(Self { receiver, first: in_table(first, count)?, count, echo })
    }

    /// Encodes a TOPICS_WANTED.
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
        header.datagram(Kind::TopicsWanted, keys, buffer, |writer| {
            self.receiver.write(writer)?;
            writer.u32(self.first.get())?;
            writer.u32(self.count)?;
            writer.u64(self.echo.ns())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, golden};
    use super::super::{Body, HEADER_BYTES};
    use super::*;

    #[test]
    fn the_bytes_of_topics_are_as_drawn() {
        golden(
            Kind::Topics,
            &[
                "544e 02 06 00 10 3500 44332211 0700 0000 04030201 08070605 e803000000000000",
                "02000000",            // first
                "0200 0000",           // count
                "03 612f62",           // a/b
                "08 706c616e742f2a2a", // plant/**
            ],
        );
    }

    #[test]
    fn the_bytes_of_topics_wanted_are_as_drawn() {
        golden(
            Kind::TopicsWanted,
            &[
                "544e 02 07 00 10 3800 44332211 0700 0000 04030201 08070605 e803000000000000",
                "d4c3b2a1",         // receiver
                "0d0c0b0a",         // receiver's session
                "02000000",         // first
                "40000000",         // count
                "1817161514131211", // echo_ns
            ],
        );
    }

    #[test]
    fn names_lie_within_the_table() {
        let bytes = samples::of(Kind::TopicsWanted).bytes;
        let with = |first: u32, count: u32| {
            let mut changed = bytes.clone();
            changed[40..44].copy_from_slice(&first.to_le_bytes());
            changed[44..48].copy_from_slice(&count.to_le_bytes());
            samples::parse(&changed).map(|_| ())
        };
        assert_eq!(with(MAX_TABLE_NAMES - 1, 1), Ok(()));
        assert_eq!(with(0, MAX_TABLE_NAMES), Ok(()));
        for (first, count) in [(MAX_TABLE_NAMES - 1, 2), (0, 0), (MAX_TABLE_NAMES, 0), (1, !0)] {
            assert_eq!(with(first, count), Err(Reject::Count), "{count} from {first}");
        }
    }

    #[test]
    fn names_are_valid_and_as_many_as_counted() {
        let bytes = samples::of(Kind::Topics).bytes;
        for (at, value, wanted) in [
            (36, 0, Reject::Count),
            (36, 1, Reject::Trailing),
            (36, 3, Reject::Truncated),
            (38, 1, Reject::Reserved),
            (40, 0, Reject::Name),
            (40, 200, Reject::Truncated),
            (41, b'+', Reject::Name),
        ] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(samples::parse(&wrong).map(|_| ()), Err(wanted), "byte {at} = {value}");
        }
    }

    #[test]
    fn a_datagram_takes_the_names_that_fit() {
        let names = ["a", "bc", "def"].map(|name| TableName::new(name).unwrap());
        let first = TopicNumber::new(0).unwrap();
        let header = samples::header(5);
        let encode = |room: usize| {
            let mut buffer = vec![0; HEADER_BYTES + 8 + room];
            let (length, count) = Topics::encode(&header, first, names, None, &mut buffer)?;
            let Body::Topics(topics) = samples::parse(&buffer[..length]).unwrap().body else {
                panic!()
            };
            assert_eq!(topics.names().count(), usize::from(count));
            Ok(count)
        };
        assert_eq!(
            [1, 2, 4, 5, 8, 9, 99].map(encode),
            [Err(NoRoom), Ok(1), Ok(1), Ok(2), Ok(2), Ok(3), Ok(3)]
        );
    }
}
