//! The numbers of messages from elsewhere, where some come again, and some never.

use crate::arrivals::NUMBER_LIMIT;

/// Which numbers an inlet brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub first: First,
    pub then: Then,
}

/// Where the numbers begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// With the lowest that has not arrived.
    Missing,
    /// This far before it: those have arrived.
    Before(u8),
    /// This far after it: those between never come.
    After(u8),
    /// With the last number that there can be.
    Last,
}

/// How the numbers continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// One after the other.
    InOrder,
    /// Each twice.
    Twice,
    /// Every third.
    WithGaps,
    /// Downwards, as no program should.
    Backwards,
    /// Downwards, and the inlet says that they come in any order.
    AnyOrder,
}

impl Numbers {
    pub(crate) fn from_byte(byte: u8) -> Self {
        let first = match byte % 16 {
            _ if byte == 255 => First::Last,
            0..9 => First::Missing,
            9 => First::Before(1),
            10 => First::Before(2),
            11 | 12 => First::Before(byte / 16),
            13 => First::After(1),
            _ => First::After(byte / 8),
        };
        let then = match byte / 16 {
            0..10 => Then::InOrder,
            10 | 11 => Then::Twice,
            12 | 13 => Then::WithGaps,
            14 => Then::Backwards,
            _ => Then::AnyOrder,
        };
        Self { first, then }
    }

    /// The first number, where `missing` is the lowest that has not arrived.
    #[must_use]
    pub fn first(self, missing: u64) -> u64 {
        let first = match self.first {
            First::Missing => missing,
            First::Before(count) => missing.saturating_sub(count.into()),
            First::After(count) => missing + u64::from(count),
            First::Last => u64::MAX,
        };
        first.min(NUMBER_LIMIT - 1)
    }

    /// Returns `count` numbers.
    #[must_use]
    pub fn list(self, missing: u64, count: u8) -> Vec<u64> {
        let first = self.first(missing);
        let number = |index: u64| match self.then {
            Then::InOrder => first + index,
            Then::Twice => first + index / 2,
            Then::WithGaps => first + index * 3,
            Then::Backwards | Then::AnyOrder => first + u64::from(count) - 1 - index,
        };
        (0..count.into()).map(|index| number(index).min(NUMBER_LIMIT - 1)).collect()
    }

    /// The lowest number that is missing, which inlets say where messages come in any order.
    #[must_use]
    pub fn open_from(self, missing: u64) -> Option<u64> {
        (self.then == Then::AnyOrder).then(|| self.first(missing))
    }
}
