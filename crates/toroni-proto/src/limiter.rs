//! Limits a rate: a token bucket that is filled once in each interval.
//!
//! ```text
//!  credit
//!    quota + one datagram  ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  never more
//!                          ┌┐        ┌┐
//!                          │└┐       │└┐     each step down is a datagram
//!                          │ └┐      │ └┐
//!    what is left over     │  └──────┘  └──  carried into the next interval, up to one datagram
//!                          0        1 interval
//! ```
//!
//! A datagram that needs more than the credit waits for the next interval. What is left over is
//! carried, because otherwise a quota that is no multiple of the datagrams would never be used up. It
//! is carried only up to the length of one datagram, because otherwise a long silence would end in a
//! long burst.

use crate::config::WIRE_OVERHEAD_BYTES;
use crate::hook::mutant;
use crate::time::{Monotonic, SECOND};

/// A limiter counts in units of a bit a second for a nanosecond, so no rounding adds up. This many
/// are a byte.
const UNITS_PER_BYTE: u128 = 8 * SECOND as u128;

/// A token bucket.
#[derive(Debug, Clone)]
pub struct Limiter {
    /// The credit of one interval; 0 if nothing is limited.
    quota: u128,
    credit: u128,
    /// What was charged without credit, and the next intervals pay.
    debt: u128,
    most: u128,
    interval_ns: u64,
    /// The beginning of the interval for which credit was given last.
    begin: Monotonic,
}

impl Limiter {
    /// Makes a limiter that starts with the credit of one interval.
    ///
    /// `rate` is in bit/s, and `None` limits nothing. No datagram is longer than `datagram_max`
    /// bytes. The interval is not 0: the limits of a configuration see to that.
    #[must_use]
    pub fn new(rate: Option<u64>, interval_ns: u64, datagram_max: u64, now: Monotonic) -> Self {
        let interval_ns = interval_ns.max(1);
        // A rate of 0 would let nothing out for ever.
        let rate = rate.map(|rate| rate.max(1));
        let quota = rate.map_or(0, |rate| u128::from(rate) * u128::from(interval_ns));
        let most = quota.saturating_add(on_wire(datagram_max));
        Self { quota, credit: quota, debt: 0, most, interval_ns, begin: now }
    }

    /// Takes the credit for a datagram of this length. Returns `false` if there is not enough: then
    /// [`Self::next`] says when there will be.
    pub fn take(&mut self, now: Monotonic, datagram_bytes: u64) -> bool {
        if self.quota == 0 {
            return true;
        }
        self.fill(now);
        let needed = self.needed(datagram_bytes);
        if needed > self.credit {
            return false;
        }
        self.credit -= needed;
        true
    }

    /// Takes the credit for a datagram that is sent in any case. What is missing is taken from the next
    /// intervals, so a limiter of a lower rate must decide on such datagrams.
    pub fn charge(&mut self, now: Monotonic, datagram_bytes: u64) {
        if self.quota == 0 {
            return;
        }
        self.fill(now);
        let needed = self.needed(datagram_bytes);
        let paid = needed.min(self.credit);
        self.credit -= paid;
        self.debt = self.debt.saturating_add(needed - paid);
    }

    /// Returns whether there is credit for a datagram of this length, without taking it.
    #[must_use]
    pub fn has(&mut self, now: Monotonic, datagram_bytes: u64) -> bool {
        self.fill(now);
        self.quota == 0 || self.needed(datagram_bytes) <= self.credit
    }

    /// Returns the time from which a datagram of this length can be sent, if nothing else is sent
    /// before it. It may be in the past.
    #[must_use]
    pub fn next(&self, datagram_bytes: u64) -> Monotonic {
        let needed = self.needed(datagram_bytes).saturating_add(self.debt);
        let missing = needed.saturating_sub(self.credit);
        if self.quota == 0 || missing == 0 {
            return self.begin;
        }
        let intervals = u64::try_from(missing.div_ceil(self.quota)).unwrap_or(u64::MAX);
        self.begin.after(intervals.saturating_mul(self.interval_ns))
    }

    /// Gives the credit of all intervals that have begun.
    fn fill(&mut self, now: Monotonic) {
        let begun = now.since(self.begin) / self.interval_ns;
        if begun > 0 {
            // Both factors are below 2⁶⁴ and 2⁷⁰: the product saturates far above `most`.
            let given = self.quota.saturating_mul(u128::from(begun));
            let paid = given.min(self.debt);
            self.debt -= paid;
            let given = given - paid;
            let most = if mutant("limiter_carries_over") { u128::MAX } else { self.most };
            self.credit = self.credit.saturating_add(given).min(most);
            self.begin = self.begin.after(begun * self.interval_ns);
        }
    }

    /// The credit that a datagram needs. One that is longer than promised waits until the bucket is
    /// full, and not for ever.
    fn needed(&self, datagram_bytes: u64) -> u128 {
        on_wire(datagram_bytes).min(self.most)
    }
}

fn on_wire(datagram_bytes: u64) -> u128 {
    u128::from(datagram_bytes.saturating_add(WIRE_OVERHEAD_BYTES)) * UNITS_PER_BYTE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::MILLISECOND;

    const MBIT: u64 = 1_000_000;
    const START: Monotonic = Monotonic::from_ns(1_000);

    /// At 8 Mbit/s, an interval gives 1,000 bytes: 2 datagrams of 434 bytes and their overhead.
    fn usual() -> Limiter {
        Limiter::new(Some(8 * MBIT), MILLISECOND, 434, START)
    }

    fn burst(limiter: &mut Limiter, now: Monotonic) -> usize {
        (0..1_000_000).take_while(|_| limiter.take(now, 434)).count()
    }

    #[test]
    fn what_is_charged_without_credit_is_taken_from_the_next_intervals() {
        let mut limiter = usual();
        // 434 bytes and their overhead are half of an interval's quota: five of them are two intervals and a half.
        for _ in 0..5 {
            limiter.charge(START, 434);
        }
        assert!(!limiter.has(START, 434));
        let next = limiter.next(434);
        assert_eq!(next, START.after(2 * MILLISECOND));
        assert!(!limiter.take(START.after(MILLISECOND), 434));
        assert_eq!(burst(&mut limiter, next), 1);
        assert_eq!(burst(&mut limiter, START.after(3 * MILLISECOND)), 2);
    }

    #[test]
    fn an_interval_gives_its_quota_and_no_more() {
        let mut limiter = usual();
        assert_eq!(burst(&mut limiter, START), 2);
        assert_eq!(burst(&mut limiter, START.after(MILLISECOND - 1)), 0);
        assert_eq!(burst(&mut limiter, START.after(MILLISECOND)), 2);
    }

    #[test]
    fn after_a_long_silence_one_datagram_more_leaves_at_once() {
        let mut limiter = usual();
        assert_eq!(burst(&mut limiter, START.after(1_000 * MILLISECOND)), 3);
        assert_eq!(burst(&mut limiter, START.after(1_001 * MILLISECOND)), 2);
    }

    #[test]
    fn it_says_exactly_when_the_next_datagram_fits() {
        let mut limiter = usual();
        burst(&mut limiter, START);
        let next = limiter.next(434);
        assert_eq!(next, START.after(MILLISECOND));
        assert!(!limiter.clone().take(Monotonic::from_ns(next.ns() - 1), 434));
        assert!(limiter.take(next, 434));
        assert!(limiter.next(434) <= next, "the second one of the interval fits at once");
    }

    #[test]
    fn a_rate_below_one_datagram_an_interval_is_reached_too() {
        // 10 kbit/s: 1.25 bytes an interval, and a datagram each 400 ms.
        let mut limiter = Limiter::new(Some(10_000), MILLISECOND, 434, START);
        let mut now = START;
        for _ in 0..20 {
            assert!(!limiter.take(now, 434));
            now = limiter.next(434);
            assert!(limiter.take(now, 434));
        }
        // The first interval's credit was there at the start.
        assert_eq!(now, START.after((20 * 400 - 1) * MILLISECOND));
    }

    #[test]
    fn a_datagram_that_is_too_long_is_sent_when_the_bucket_is_full() {
        let mut limiter = usual();
        assert!(!limiter.take(START, 60_000));
        assert!(limiter.take(limiter.next(60_000), 60_000));
    }

    #[test]
    fn without_a_rate_everything_is_sent_at_once() {
        let mut limiter = Limiter::new(None, MILLISECOND, 434, START);
        assert_eq!(burst(&mut limiter, START), 1_000_000);
        assert!(limiter.next(434) <= START);
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut limiter = Limiter::new(Some(u64::MAX), u64::MAX, u64::MAX, START);
        limiter.take(Monotonic::from_ns(u64::MAX), u64::MAX);
        let mut least = Limiter::new(Some(0), 0, 0, START);
        least.take(START, u64::MAX);
        let _ = least.next(u64::MAX);
        assert!(!least.take(Monotonic::default(), 500), "a time before the start gives nothing");
    }

    proptest! {
        /// A sender with more to send than it may is never above the rate by more than one burst, and
        /// never below it.
        #[test]
        fn the_rate_is_kept_and_reached(
            rate in 10_000..10_000_000_000_u64,
            interval_ns in 100_000..100_000_000_u64,
            lengths in prop::collection::vec(1..1_409_u64, 1..200),
        ) {
            let mut limiter = Limiter::new(Some(rate), interval_ns, 1_408, START);
            let quota = u128::from(rate) * u128::from(interval_ns);
            let mut sent: u128 = 0;
            let mut now = START;
            for length in lengths {
                let next = limiter.next(length);
                now = now.max(next);
                prop_assert!(limiter.take(now, length));
                sent += on_wire(length);
                let intervals = u128::from(now.since(START) / interval_ns);
                let given = (intervals + 1) * quota;
                prop_assert!(sent <= given);
                // What was not used is less than the datagram for which the sender waits.
                prop_assert!(given - sent <= quota + on_wire(1_408));
            }
        }
    }
}
