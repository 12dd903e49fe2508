//! NCF, NAK confirmation: the sender tells all receivers what it does about missing datagrams.
//!
//! ```text
//!  byte 32     33     34      36
//!       +------+------+-------+---------------------+
//!       |reason| 0    | count | ranges              |
//!       | u8   | u8   | u16   | 12 bytes each       |
//!       +------+------+-------+---------------------+
//! ```
//!
//! The header's `sequence` is the next that will be sent, so all ranges are before it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::cursor::{NoRoom, Reader};
use super::header::{Header, Kind};
use super::mac::Keys;
use super::ranges::{self, Range, Ranges};
use super::reject::Reject;

/// What the sender does about a NAK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NcfReason {
    /// The datagrams have left the window: they are lost.
    Gone = 1,
    /// They were sent again just now.
    Ignored = 2,
    /// They are queued, and come when the retransmission rate allows.
    Delayed = 3,
    /// The queue of this receiver has no room: it has to ask again.
    Shed = 4,
}

impl NcfReason {
    /// All reasons, by their number.
    pub const ALL: [Self; 4] = [Self::Gone, Self::Ignored, Self::Delayed, Self::Shed];
}

/// What the sender does about missing datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ncf<'a> {
    /// What it does.
    pub reason: NcfReason,
    /// About which.
    pub ranges: Ranges<'a>,
}

impl<'a> Ncf<'a> {
    pub(super) fn parse(bytes: &'a [u8], header: &Header) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let number = reader.u8()?;
        reader.zeros::<1>()?;
        let count = reader.u16()?;
        let reason = NcfReason::ALL.into_iter().find(|reason| *reason as u8 == number);
        let reason = reason.ok_or(Reject::Code)?;
        let ranges = Ranges::parse(&mut reader, count, Some(header.sequence))?;
        reader.end()?;
        Ok(Self { reason, ranges })
    }

    /// Encodes an NCF for these ranges, which must be sorted and at least one apart.
    ///
    /// # Errors
    ///
    /// If it does not fit, or there are more than [`MAX_RANGES`](super::MAX_RANGES).
    pub fn encode(
        header: &Header,
        reason: NcfReason,
        about: &[Range],
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        header.datagram(Kind::Ncf, keys, buffer, |writer| {
            writer.bytes(&[reason as u8, 0])?;
            ranges::write(about, writer, &[])
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
            Kind::Ncf,
            &[
                "544e 02 04 00 10 3000 44332211 0700 0000 04030201 08070605 e803000000000000",
                "03",                        // reason: delayed
                "00 0100",                   // count
                "e203000000000000 06000000", // 994 to 999
            ],
        );
    }

    #[test]
    fn an_unknown_reason_and_a_range_from_the_future_are_refused() {
        let bytes = samples::of(Kind::Ncf).bytes;
        for (at, value, wanted) in
            [(32, 0, Reject::Code), (32, 5, Reject::Code), (33, 1, Reject::Reserved)]
        {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(samples::parse(&wrong).map(|_| ()), Err(wanted));
        }
        let mut wrong = bytes;
        wrong[44] = 7; // 994 to 1000, and 1000 is the next to be sent
        assert_eq!(samples::parse(&wrong).map(|_| ()), Err(Reject::Ranges));
    }
}
