//! Where a message that came from elsewhere was first published.
//!
//! ```text
//!  byte 0            4            8            10                  16
//!       +------------+------------+------------+-------------------+
//!       | source u32 | series u32 | stream u16 | number u48        |   little-endian
//!       +------------+------------+------------+-------------------+
//! ```

use std::fmt;

/// Size of an [`Origin`] in a record, in bytes.
pub(crate) const ORIGIN_BYTES: usize = 16;

/// Names a message that was first published elsewhere, on another host or at another time. The name is the same
/// wherever the message arrives, so a program that meets it twice can tell.
///
/// Messages of one stream and series have growing numbers. The numbers need not be consecutive: what lies in between
/// may have belonged to other streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The host or program that published it first.
    pub source: u32,
    /// The series of numbers to which `number` belongs. A source begins a new series when it counts from 0 again.
    pub series: u32,
    /// The stream of the source.
    pub stream: u16,
    /// The message's number in its series, less than [`Self::NUMBER_LIMIT`].
    pub number: u64,
}

impl Origin {
    /// The numbers of messages are less than this: they have 48 bits.
    pub const NUMBER_LIMIT: u64 = 1 << 48;

    /// Returns the bytes of a record's extension. Requires that the number is below the limit.
    pub(crate) fn to_bytes(self) -> [u8; ORIGIN_BYTES] {
        let mut bytes = [0; ORIGIN_BYTES];
        bytes[..4].copy_from_slice(&self.source.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.series.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.stream.to_le_bytes());
        bytes[10..].copy_from_slice(&self.number.to_le_bytes()[..6]);
        bytes
    }

    /// Any bytes are an origin.
    pub(crate) fn from_bytes(bytes: [u8; ORIGIN_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, number @ ..] = bytes;
        let [k, l, m, n, o, p] = number;
        Self {
            source: u32::from_le_bytes([a, b, c, d]),
            series: u32::from_le_bytes([e, f, g, h]),
            stream: u16::from_le_bytes([i, j]),
            number: u64::from_le_bytes([k, l, m, n, o, p, 0, 0]),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, series, stream, number } = self;
        write!(formatter, "{source:08x}.{series:08x}/{stream}#{number}")
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_origin_has_the_documented_bytes() {
        let origin = Origin {
            source: 0x0403_0201,
            series: 0x0807_0605,
            stream: 0x0A09,
            number: 0x100F_0E0D_0C0B,
        };
        assert_eq!(origin.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(origin.to_string(), "04030201.08070605/2569#17656846289931");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_origin_with_a_number_within_its_limit(bytes: [u8; 16]) {
            let origin = Origin::from_bytes(bytes);
            prop_assert!(origin.number < Origin::NUMBER_LIMIT);
            prop_assert_eq!(origin.to_bytes(), bytes);
        }
    }
}
