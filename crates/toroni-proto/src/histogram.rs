//! Histogram: how often each time occurred, to three significant digits, in fixed memory.
//!
//! ```text
//!  counters    0 … 1,023    1,024 … 2,047    2,048 … 4,095    4,096 … 8,191    …    up to 137 s
//!  each for    1 ns         1 ns             2 ns             4 ns
//!              each group after the first has 1,024 counters, twice as wide as those before
//! ```
//!
//! The idea is that of HdrHistogram (Gil Tene): a counter is never wider than a thousandth of the times it counts.

use core::fmt;

/// Counters in each group, as a power of two: 1,024, so that a counter is less than 0.1 % of its times wide.
const GROUP_BITS: u32 = 10;
/// Times are below 2 to this power, in nanoseconds. Longer ones are counted as the longest.
const TIME_BITS: u32 = 37;
const COUNTERS: usize = ((TIME_BITS - GROUP_BITS) as usize + 1) << GROUP_BITS;

/// Counts times. It takes 224 KiB, of which only the pages with times that occurred are in memory.
#[derive(Clone)]
pub struct Histogram {
    counters: Box<[u64]>,
    count: u64,
    sum_ns: u64,
    longest_ns: u64,
}

impl Histogram {
    /// The longest time that is distinguished from longer ones, in nanoseconds: 137 s.
    pub const MAX_NS: u64 = (1 << TIME_BITS) - 1;

    /// Allocates a histogram. Afterwards it never allocates.
    #[must_use]
    pub fn new() -> Self {
        Self { counters: vec![0; COUNTERS].into(), count: 0, sum_ns: 0, longest_ns: 0 }
    }

    /// Counts a time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let counter = &mut self.counters[place(ns)];
        *counter = counter.saturating_add(1);
        self.count = self.count.saturating_add(1);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Returns how many times were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all times, in nanoseconds.
    #[must_use]
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns for each time that occurred, to three digits and in ascending order, how often it did.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let counted = (0..).zip(&self.counters).filter(|(_, count)| **count > 0);
        counted.map(|(place, count)| (last_of(place).min(self.longest_ns), *count))
    }

    /// Returns the longest time exactly, in nanoseconds, or 0 if there is none.
    #[must_use]
    pub const fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// Returns a time that `per_million` of a million times do not exceed, in nanoseconds: 500,000 gives the median,
    /// and 999,990 the p99.999. It is that of the counted times, or longer by less than 0.1 %. If nothing was counted,
    /// it is 0.
    #[must_use]
    pub fn at(&self, per_million: u32) -> u64 {
        let of = u128::from(self.count) * u128::from(per_million.min(1_000_000));
        let rank = u64::try_from(of.div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1);
        let mut counted: u64 = 0;
        for (place, counter) in (0..).zip(&self.counters) {
            counted = counted.saturating_add(*counter);
            if counted >= rank {
                return last_of(place).min(self.longest_ns);
            }
        }
        self.longest_ns
    }

    /// Forgets all times.
    pub fn clear(&mut self) {
        // Pages in which nothing was counted are not written: they take no memory.
        self.counters.iter_mut().filter(|counter| **counter != 0).for_each(|counter| *counter = 0);
        self.count = 0;
        self.sum_ns = 0;
        self.longest_ns = 0;
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most] = [500_000, 990_000].map(|share| self.at(share));
        let Self { count, longest_ns, .. } = self;
        write!(formatter, "Histogram({count}, p50 {half}, p99 {most}, longest {longest_ns} ns)")
    }
}

/// The counter of a time.
#[inline]
fn place(ns: u64) -> usize {
    let ns = ns.min(Histogram::MAX_NS);
    let bits = u64::BITS - ns.leading_zeros();
    // How many low bits do not count.
    let shift = bits.saturating_sub(GROUP_BITS + 1);
    #[expect(clippy::cast_possible_truncation, reason = "it is below COUNTERS")]
    let place = ((u64::from(shift) << GROUP_BITS) + (ns >> shift)) as usize;
    place
}

/// The longest time of a counter.
fn last_of(place: u64) -> u64 {
    // The first two groups have the same width.
    let shift = (place >> GROUP_BITS).saturating_sub(1);
    let first = place - (shift << GROUP_BITS);
    ((first + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_counter_has_times_of_its_own_and_none_is_wider_than_a_thousandth() {
        let mut next = 0;
        for at in 0..COUNTERS {
            let last = last_of(at as u64);
            assert_eq!([place(next), place(last)], [at, at], "{next} to {last} ns");
            assert!((last - next) * 1_000 <= next, "{next} to {last} ns");
            next = last + 1;
        }
        assert_eq!(next - 1, Histogram::MAX_NS);
        assert_eq!([Histogram::MAX_NS + 1, u64::MAX].map(place), [COUNTERS - 1; 2]);
    }

    #[test]
    fn a_histogram_without_times_answers_0() {
        let mut histogram = Histogram::new();
        histogram.record(7);
        histogram.clear();
        assert_eq!((histogram.count(), histogram.longest_ns(), histogram.at(500_000)), (0, 0, 0));
    }

    #[test]
    fn the_longest_time_is_exact_also_beyond_the_last_counter() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        assert_eq!(histogram.longest_ns(), u64::MAX);
        assert_eq!(histogram.at(1_000_000), Histogram::MAX_NS);
    }

    fn times() -> impl Strategy<Value = Vec<u64>> {
        let time = (0..TIME_BITS, any::<u64>()).prop_map(|(bits, any)| any & ((2 << bits) - 1));
        prop::collection::vec(time, 1..500)
    }

    proptest! {
        /// Compares with the sorted times themselves.
        #[test]
        fn percentiles_are_those_of_the_times(mut times in times(), share in 0..=1_000_000_u32) {
            let mut histogram = Histogram::new();
            times.iter().for_each(|time| histogram.record(*time));
            times.sort_unstable();
            let rank = (times.len() * share as usize).div_ceil(1_000_000).max(1);
            let exact = times[rank - 1];
            let found = histogram.at(share);
            prop_assert!(found >= exact && found - exact <= exact / 1_000, "{found} for {exact}");
            prop_assert_eq!(histogram.longest_ns(), *times.last().unwrap());
            prop_assert_eq!(histogram.count(), times.len() as u64);
            let sum = times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
            prop_assert_eq!(histogram.sum_ns(), sum);
            let counts: Vec<(u64, u64)> = histogram.counts().collect();
            prop_assert!(counts.is_sorted_by(|one, next| one.0 < next.0));
            prop_assert_eq!(counts.iter().map(|one| one.1).sum::<u64>(), times.len() as u64);
            prop_assert_eq!(counts.last().unwrap().0, histogram.at(1_000_000));
        }
    }
}
