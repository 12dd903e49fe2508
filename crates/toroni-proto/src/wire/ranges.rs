//! Ranges of sequences, in NAK and NCF.
//!
//! ```text
//!  byte 0                 8         12
//!       +-----------------+---------+
//!       | first (u64)     | count   |   once for each range, without gaps
//!       |                 | u32 ≥ 1 |
//!       +-----------------+---------+
//! ```
//!
//! Ranges are sorted, and between two of them lies at least one sequence: otherwise they would be one
//! range.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::cursor::{NoRoom, Reader, Writer};
use super::reject::Reject;
use crate::id::Sequence;

/// The greatest number of ranges in a datagram.
pub const MAX_RANGES: usize = 64;

const RANGE_BYTES: usize = 12;

/// Consecutive sequences, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: Sequence,
    count: u32,
}

impl Range {
    /// Returns `None` if `count` is 0 or the end is beyond [`Sequence::MAX`].
    #[must_use]
    pub const fn new(first: Sequence, count: u32) -> Option<Self> {
        // Both are below 2⁶³.
        if count == 0 || first.get().saturating_add(count as u64) > Sequence::MAX.get() {
            return None;
        }
        Some(Self { first, count })
    }

    /// Returns the first sequence.
    #[must_use]
    pub const fn first(self) -> Sequence {
        self.first
    }

    /// Returns the sequence after the last.
    #[must_use]
    pub const fn end(self) -> Sequence {
        self.first.plus(self.count as u64)
    }

    /// Returns the number of sequences.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    fn to_bytes(self) -> [u8; RANGE_BYTES] {
        let [a, b, c, d, e, f, g, h] = self.first.get().to_le_bytes();
        let [i, j, k, l] = self.count.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    fn from_bytes(bytes: [u8; RANGE_BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        let first = Sequence::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]))?;
        Self::new(first, u32::from_le_bytes([i, j, k, l]))
    }
}

/// The ranges of a datagram that was checked: 1 to [`MAX_RANGES`], sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges<'a>(&'a [[u8; RANGE_BYTES]]);

impl<'a> Ranges<'a> {
    /// Reads `count` ranges, of which the last must not reach beyond `lead`, if that is known.
    pub(super) fn parse(
        reader: &mut Reader<'a>,
        count: u16,
        lead: Option<Sequence>,
    ) -> Result<Self, Reject> {
        let count = usize::from(count);
        let encoded = reader.arrays(count)?;
        if count == 0 || count > MAX_RANGES {
            return Err(Reject::Count);
        }
        let mut previous: Option<Range> = None;
        for bytes in encoded {
            let range = Range::from_bytes(*bytes).ok_or(Reject::Ranges)?;
            if previous.is_some_and(|previous| range.first <= previous.end()) {
                return Err(Reject::Ranges);
            }
            previous = Some(range);
        }
        let ranges = Self(encoded);
        match lead {
            Some(lead) => ranges.check_lead(lead).map(|()| ranges),
            None => Ok(ranges),
        }
    }

    /// Checks that all ranges are before `lead`, the next sequence that the sender will use. Only
    /// the sender knows it.
    ///
    /// # Errors
    ///
    /// [`Reject::Ranges`] if one is not.
    pub fn check_lead(&self, lead: Sequence) -> Result<(), Reject> {
        match self.iter().next_back() {
            Some(last) if last.end() > lead => Err(Reject::Ranges),
            _ => Ok(()),
        }
    }

    /// Returns the ranges, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + ExactSizeIterator + use<'a> {
        // `parse` refused what is not a range, so none becomes this empty one.
        let never = Range { first: Sequence::ZERO, count: 0 };
        self.0.iter().map(move |bytes| Range::from_bytes(*bytes).unwrap_or(never))
    }
}

/// Writes at most [`MAX_RANGES`] ranges after their count and `fill` bytes of 0.
pub(super) fn write(ranges: &[Range], writer: &mut Writer<'_>, fill: &[u8]) -> Result<(), NoRoom> {
    if ranges.len() > MAX_RANGES {
        return Err(NoRoom);
    }
    writer.u16(u16::try_from(ranges.len()).map_err(|_| NoRoom)?)?;
    writer.bytes(fill)?;
    ranges.iter().try_for_each(|range| writer.bytes(&range.to_bytes()))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn range(first: u64, count: u32) -> Range {
        Range::new(Sequence::new(first).unwrap(), count).unwrap()
    }

    /// Parses ranges that were written one after another.
    fn parsed(ranges: &[(u64, u32)], lead: Option<u64>) -> Result<Vec<Range>, Reject> {
        let mut bytes = Vec::new();
        for (first, count) in ranges {
            bytes.extend(first.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        let count = u16::try_from(ranges.len()).unwrap();
        let lead = lead.map(|lead| Sequence::new(lead).unwrap());
        let ranges = Ranges::parse(&mut Reader::new(&bytes), count, lead)?;
        Ok(ranges.iter().collect())
    }

    #[test]
    fn a_range_is_not_empty_and_ends_where_sequences_end() {
        let last = Sequence::MAX.get() - 1;
        assert!(parsed(&[(last, 1)], None).is_ok());
        for wrong in [(5, 0), (last, 2), (1 << 63, 1), (u64::MAX, u32::MAX)] {
            assert_eq!(parsed(&[wrong], None), Err(Reject::Ranges), "{wrong:?}");
        }
    }

    #[test]
    fn ranges_are_sorted_and_do_not_touch() {
        assert!(parsed(&[(1, 2), (4, 1)], None).is_ok());
        for wrong in [[(4, 1), (1, 2)], [(1, 2), (3, 1)], [(1, 2), (2, 1)], [(1, 1), (1, 1)]] {
            assert_eq!(parsed(&wrong, None), Err(Reject::Ranges), "{wrong:?}");
        }
    }

    #[test]
    fn ranges_end_before_what_was_not_sent() {
        assert!(parsed(&[(1, 2), (4, 6)], Some(10)).is_ok());
        assert_eq!(parsed(&[(1, 2), (4, 7)], Some(10)), Err(Reject::Ranges));
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let many: Vec<(u64, u32)> = (0..65).map(|place| (place * 2, 1)).collect();
        assert_eq!(parsed(&many[..64], None).map(|ranges| ranges.len()), Ok(64));
        assert_eq!(parsed(&many, None), Err(Reject::Count));
        assert_eq!(parsed(&[], None), Err(Reject::Count));
        let ranges = [range(0, 1); 65];
        assert_eq!(write(&ranges, &mut Writer::new(&mut [0; 2000]), &[]), Err(NoRoom));
    }

    prop_compose! {
        /// Valid ranges, of which many are near the end of what is possible.
        pub(in super::super) fn ranges()(
            start in prop_oneof![0..100_u64, Just((1 << 63) - 1_000_000)],
            steps in prop::collection::vec((1..1_000_u64, 1..1_000_u32), 1..MAX_RANGES),
        ) -> Vec<Range> {
            let mut at = start;
            steps.into_iter().map(|(gap, count)| {
                let range = range(at, count);
                at = range.end().get() + gap;
                range
            }).collect()
        }
    }
}
