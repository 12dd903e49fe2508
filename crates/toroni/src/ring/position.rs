//! Arithmetic on positions, without side effects.
//!
//! A *position* is a byte count since the bus was created. It only grows and never wraps: 2^64
//! bytes are 11 years at 50 GB/s. A *block number* is a position divided by the block size. It does
//! not wrap either.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{ALIGNMENT, BLOCKS};

/// The sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    capacity: u64,
    block_shift: u32,
}

impl Shape {
    /// Returns the shape of a ring of `capacity` bytes, or `None` unless that is a power of two
    /// that holds at least one word per block.
    pub(crate) const fn new(capacity: u64) -> Option<Self> {
        if !capacity.is_power_of_two() || capacity < BLOCKS * ALIGNMENT {
            return None;
        }
        Some(Self { capacity, block_shift: (capacity / BLOCKS).trailing_zeros() })
    }

    #[inline]
    pub(crate) const fn capacity(self) -> u64 {
        self.capacity
    }

    #[inline]
    pub(crate) const fn block_bytes(self) -> u64 {
        1 << self.block_shift
    }

    /// Returns the number of the block that contains `position`. The block's index entry is at this
    /// number modulo [`BLOCKS`].
    #[inline]
    pub(crate) const fn block(self, position: u64) -> u64 {
        position >> self.block_shift
    }

    /// Rounds `position` up to the start of a block.
    #[inline]
    pub(crate) const fn round_up_to_block(self, position: u64) -> u64 {
        let mask = self.block_bytes().wrapping_sub(1);
        position.saturating_add(mask) & !mask
    }

    /// Returns the oldest position that is not being overwritten, given `reserved`.
    #[inline]
    pub(crate) const fn oldest(self, reserved: u64) -> u64 {
        reserved.saturating_sub(self.capacity)
    }

    /// Returns the maximum size in bytes of a record (header word, extensions, payload and
    /// padding), and of a batch.
    #[inline]
    pub(crate) const fn largest_record(self) -> u64 {
        let half = self.capacity / 2;
        let limit = u32::MAX as u64 & !(ALIGNMENT - 1);
        if half < limit { half } else { limit }
    }
}

/// An upper bound of positions, which no stream reaches (see above). A larger value is corrupt.
/// Arithmetic on smaller values cannot overflow.
pub(crate) const LARGEST_POSITION: u64 = 1 << 62;

/// The bits that are 0 in every valid position.
pub(crate) const MISPLACED: u64 = !(LARGEST_POSITION - 1) | (ALIGNMENT - 1);

/// Converts a count of bytes or words to `usize`. The conversion is exact, because only 64-bit
/// targets are supported.
#[inline]
pub(crate) const fn to_index(count: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, see lib.rs")]
    let index = count as usize;
    index
}

/// Returns the number of bytes in the stream that a record occupies. `length` is the length of
/// extensions and payload.
#[inline]
pub(crate) const fn record_bytes(length: u32) -> u64 {
    (length as u64).wrapping_add(2 * ALIGNMENT - 1) & !(ALIGNMENT - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_powers_of_two() {
        assert_eq!(Shape::new(0), None);
        assert_eq!(Shape::new(4095), None);
        assert_eq!(Shape::new(256), None);
        let shape = Shape::new(1 << 22).unwrap();
        assert_eq!(shape.block_bytes(), 65536);
        assert_eq!(shape.block(65535), 0);
        assert_eq!(shape.block(65536), 1);
        assert_eq!(shape.round_up_to_block(1), 65536);
        assert_eq!(shape.round_up_to_block(65536), 65536);
        assert_eq!(shape.largest_record(), 1 << 21);
        assert_eq!(Shape::new(1 << 40).unwrap().largest_record(), 0xFFFF_FFF8);
    }

    #[test]
    fn records_are_padded_to_words() {
        assert_eq!(record_bytes(0), 8);
        assert_eq!(record_bytes(1), 16);
        assert_eq!(record_bytes(8), 16);
        assert_eq!(record_bytes(9), 24);
        assert_eq!(record_bytes(u32::MAX), 8 + (1 << 32));
    }
}
