//! NAK: a receiver asks the sender, or a repairer, for datagrams that it misses.
//!
//! ```text
//!  byte 32        36        40                48      50      52
//!       +---------+---------+-----------------+-------+-------+---------------------+
//!       | receiver| receiver| echo_ns (u64)   | count | 0     | ranges              |
//!       |         | session |                 | u16   | u16   | 12 bytes each       |
//!       +---------+---------+-----------------+-------+-------+---------------------+
//! ```
//!
//! The header names the stream and session that are asked. Its `sequence` is the first that the
//! receiver still expects. `echo_ns` is the `sent_ns` of the last SESSION that it received.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::Receiver;
use super::cursor::{NoRoom, Reader};
use super::header::{Header, Kind};
use super::mac::Keys;
use super::ranges::{self, Range, Ranges};
use super::reject::Reject;
use crate::time::Wall;

/// What a receiver misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nak<'a> {
    /// Who asks.
    pub receiver: Receiver,
    /// The `sent` of the last SESSION that it received, by the clock of the sender.
    pub echo: Wall,
    /// What it misses.
    pub ranges: Ranges<'a>,
}

impl<'a> Nak<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let (receiver, echo) = (Receiver::parse(&mut reader)?, Wall::from_ns(reader.u64()?));
        let count = reader.u16()?;
        reader.zeros::<2>()?;
        let ranges = Ranges::parse(&mut reader, count, None)?;
        reader.end()?;
        Ok(Self { receiver, echo, ranges })
    }

    /// Encodes a NAK for these ranges, which must be sorted and at least one apart.
    ///
    /// # Errors
    ///
    /// If it does not fit, or there are more than [`MAX_RANGES`](super::MAX_RANGES).
    pub fn encode(
        header: &Header,
        receiver: Receiver,
        echo: Wall,
        missing: &[Range],
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        header.datagram(Kind::Nak, keys, buffer, |writer| {
            receiver.write(writer)?;
            writer.u64(echo.ns())?;
            ranges::write(missing, writer, &[0; 2])
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
            Kind::Nak,
            &[
                "544e 02 03 00 10 4c00 44332211 0700 0000 04030201 08070605 e803000000000000",
                "d4c3b2a1",                  // receiver
                "0d0c0b0a",                  // receiver's session
                "1817161514131211",          // echo_ns
                "0200 0000",                 // count
                "e803000000000000 05000000", // 1000 to 1004
                "0004000000000000 01000000", // 1024
            ],
        );
    }

    #[test]
    fn the_sender_refuses_a_nak_for_what_it_has_not_sent() {
        let bytes = samples::of(Kind::Nak).bytes;
        let super::super::Body::Nak(nak) = samples::parse(&bytes).unwrap().body else { panic!() };
        let lead = |sequence| nak.ranges.check_lead(samples::sequence(sequence));
        assert_eq!(lead(1024), Err(Reject::Ranges));
        assert_eq!(lead(1025), Ok(()));
    }
}
