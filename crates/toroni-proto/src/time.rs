//! Times in nanoseconds. The protocol never reads a clock: its caller hands the times in.
//!
//! Durations are `u64` nanoseconds too, in names that end in `_ns`.

/// One microsecond in nanoseconds.
pub const MICROSECOND: u64 = 1_000;
/// One millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000 * MICROSECOND;
/// One second in nanoseconds.
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// A time of a clock that never goes back, such as `CLOCK_MONOTONIC`. Deadlines use it. It means
/// nothing to another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(u64);

impl Monotonic {
    /// Wraps nanoseconds since any fixed instant.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Returns the time this much later. The last time that can be expressed is 584 years after
    /// the first; there it stays.
    #[must_use]
    pub const fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Returns the nanoseconds since `earlier`, or 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Returns the earliest of these times, if there is any. The iterator's `flatten().min()` compiles to thousands of
/// instructions, and timers are asked for after every turn.
pub(crate) fn earliest<const N: usize>(times: [Option<Monotonic>; N]) -> Option<Monotonic> {
    times.into_iter().fold(None, |least, time| match (least, time) {
        (Some(least), Some(time)) => Some(least.min(time)),
        (least, time) => least.or(time),
    })
}

/// A time of the calendar: nanoseconds since 1970, as `CLOCK_REALTIME` gives them. It can jump, and
/// the clocks of two hosts differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(u64);

impl Wall {
    /// Wraps nanoseconds since 1970.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since 1970.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Returns the nanoseconds since `earlier`, or 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the whole seconds since 1970.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_at_the_ends_stay_there_instead_of_wrapping() {
        let last = Monotonic::from_ns(u64::MAX);
        assert_eq!(last.after(1), last);
        assert_eq!(Monotonic::from_ns(5).since(Monotonic::from_ns(7)), 0);
        assert_eq!(Monotonic::from_ns(7).since(Monotonic::from_ns(5)), 2);
        assert_eq!(Wall::from_ns(2 * SECOND - 1).seconds(), 1);
    }

    #[test]
    fn the_earliest_of_some_times_is_the_least_that_is_there() {
        let at = |ns| Some(Monotonic::from_ns(ns));
        assert_eq!(earliest([]), None);
        assert_eq!(earliest([None, None]), None);
        assert_eq!(earliest([None, at(7), None, at(5), at(6)]), at(5));
        assert_eq!(earliest([at(u64::MAX), None]), at(u64::MAX));
    }
}
