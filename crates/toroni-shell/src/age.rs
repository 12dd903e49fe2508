//! How old messages are: the ages of an interval, and the times that describe them.
//!
//! An age is the time from the stamp of a message to the moment at which a program looks at it. The clock of the publisher may
//! be another one, or one that was set: then an age may be negative, and is shown so.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::human;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// Counts ages. A figure is at most 3 % above that of a message that was counted, and the longest age is exact.
#[derive(Clone, Debug, Default)]
pub struct Ages {
    /// How many ages are in each range. Few ranges of all possible ones occur.
    ranges: BTreeMap<i32, u64>,
    count: u64,
    longest: Option<i64>,
}

/// What describes the ages of an interval, in seconds. A negative one is that of a stamp in the future.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Half of the messages were at most as old.
    #[serde(rename = "p50_seconds")]
    pub p50: f64,
    /// 99 % of the messages were at most as old.
    #[serde(rename = "p99_seconds")]
    pub p99: f64,
    /// The oldest message.
    #[serde(rename = "longest_seconds")]
    pub longest: f64,
}

impl Ages {
    /// Counts a message that was published at one time and looked at at another.
    pub fn add(&mut self, published: SystemTime, now: SystemTime) {
        let age = nanoseconds(published, now);
        let range = self.ranges.entry(range_of(age)).or_default();
        *range = range.saturating_add(1);
        self.count = self.count.saturating_add(1);
        self.longest = Some(self.longest.map_or(age, |longest| longest.max(age)));
    }

    /// Describes what was counted, if anything was.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let longest = self.longest?;
        let at = |percent: u64| {
            // With few messages, the ninety-ninth percent is the last one.
            let wanted = u128::from(self.count).saturating_mul(percent.into()).div_ceil(100);
            let mut seen = 0_u128;
            let reached = |(range, count): (&i32, &u64)| {
                seen = seen.saturating_add((*count).into());
                (seen >= wanted).then(|| last_of(*range))
            };
            self.ranges.iter().find_map(reached).unwrap_or(longest).min(longest)
        };
        let [p50, p99, longest] = [at(50), at(99), longest].map(seconds);
        Some(Summary { p50, p99, longest })
    }

    /// Forgets everything: an interval begins.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Returns how long ago a message was published, in nanoseconds: less than 0 if its stamp is in the future.
#[must_use]
pub fn nanoseconds(published: SystemTime, now: SystemTime) -> i64 {
    let to_i64 = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    match now.duration_since(published) {
        Ok(age) => to_i64(age),
        Err(ahead) => to_i64(ahead.duration()).saturating_neg(),
    }
}

/// Shows an age: `1.2 ms`, or `-3 s` for a stamp in the future.
#[must_use]
pub fn shown(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "" };
    let time = Duration::try_from_secs_f64(seconds.abs()).unwrap_or(Duration::MAX);
    format!("{sign}{}", human::duration(time))
}

/// Each doubling has this many ranges, as a power of 2.
const BITS: u32 = 5;

/// Returns the range of an age. Ranges have the order of ages.
fn range_of(age: i64) -> i32 {
    let length = age.unsigned_abs();
    let shift = length.checked_ilog2().unwrap_or(0).saturating_sub(BITS);
    // Below 2^BITS, each length has a range of its own.
    let index = u64::from(shift).saturating_mul(1 << BITS).saturating_add(length >> shift);
    // At most 59 doublings of 32 ranges, and 32 more.
    let index = i32::try_from(index).unwrap_or(i32::MAX);
    if age < 0 { index.saturating_neg().saturating_sub(1) } else { index }
}

/// Returns the greatest age of a range.
fn last_of(range: i32) -> i64 {
    let is_negative = range < 0;
    let index = if is_negative { range.saturating_add(1).saturating_neg() } else { range };
    let index = u64::try_from(index).unwrap_or(0);
    let shift = (index >> BITS).saturating_sub(1);
    let first = u128::from(index.saturating_sub(shift.saturating_mul(1 << BITS))) << shift.min(64);
    let last = first.saturating_add((1_u128 << shift.min(64)).saturating_sub(1));
    let to_i64 = |length: u128| i64::try_from(length).unwrap_or(i64::MAX);
    if is_negative { to_i64(first).saturating_neg() } else { to_i64(last) }
}

fn seconds(nanoseconds: i64) -> f64 {
    let length = Duration::from_nanos(nanoseconds.unsigned_abs()).as_secs_f64();
    if nanoseconds < 0 { -length } else { length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn at(nanoseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(nanoseconds)
    }

    #[test]
    fn the_range_of_an_age_ends_little_above_it() {
        let mut ages =
            vec![0, 1, 31, 32, 33, 63, 64, 65, 1_000, 123_456_789, i64::MAX - 1, i64::MAX];
        ages.extend(ages.clone().into_iter().map(|age: i64| -age));
        ages.push(i64::MIN);
        ages.sort_unstable();
        for age in &ages {
            let last = last_of(range_of(*age));
            let most = i128::from(*age) + i128::from(age.unsigned_abs()) / 31;
            assert!(last >= (*age).max(-i64::MAX) && i128::from(last) <= most, "{age}: {last}");
        }
        let ranges: Vec<i32> = ages.iter().map(|age| range_of(*age)).collect();
        assert!(ranges.is_sorted(), "{ranges:?}");
    }

    #[test]
    fn ages_are_described_by_half_by_nearly_all_and_by_the_longest() {
        let mut ages = Ages::default();
        assert_eq!(ages.summary(), None);
        for number in 1..=1_000 {
            ages.add(at(5_000_000), at(5_000_000 + number * 1_000));
        }
        let Summary { p50, p99, longest } = ages.summary().unwrap();
        assert!((500e-6..=516e-6).contains(&p50), "{p50}");
        assert!((990e-6..=1_000e-6).contains(&p99), "{p99}");
        assert_eq!(longest, 1e-3);
        ages.clear();
        ages.add(at(1), at(8));
        let all = Summary { p50: 7e-9, p99: 7e-9, longest: 7e-9 };
        assert_eq!(ages.summary(), Some(all), "none is longer than the longest");
    }

    /// Another host, or a clock that was set back.
    #[test]
    fn a_stamp_in_the_future_has_a_negative_age() {
        let mut ages = Ages::default();
        for ahead in [u64::MAX / 2, 1_000_000_000, 0] {
            ages.add(at(7 + ahead), at(7));
        }
        let Summary { p50, p99, longest } = ages.summary().unwrap();
        assert!((-1.0..=-0.96).contains(&p50) && p99 == 0.0 && longest == 0.0, "{p50} {p99}");
        assert_eq!(nanoseconds(at(u64::MAX), UNIX_EPOCH - Duration::from_secs(1 << 40)), -i64::MAX);
        assert_eq!(shown(-0.0015), "-1.5 ms");
        assert_eq!(shown(0.25), "250 ms");
        assert_eq!(shown(f64::NAN), shown(f64::INFINITY));
    }
}
