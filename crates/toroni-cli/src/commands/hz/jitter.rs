//! Measures how regularly messages arrive. Does no I/O.

use std::time::{Duration, Instant};

/// Statistics of the gaps, the times between one message and the next. Computed with Welford's method, because a sum
/// of squares loses precision.
#[derive(Default)]
pub(super) struct Jitter {
    last: Option<Instant>,
    gaps: u32,
    mean_seconds: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
    longest: Duration,
}

impl Jitter {
    /// Counts a message that arrived at `now`.
    pub(super) fn arrival(&mut self, now: Instant) {
        let Some(last) = self.last.replace(now) else { return };
        let gap = now.saturating_duration_since(last);
        self.longest = self.longest.max(gap);
        self.gaps = self.gaps.saturating_add(1);
        let distance = gap.as_secs_f64() - self.mean_seconds;
        self.mean_seconds += distance / f64::from(self.gaps);
        self.squares += distance * (gap.as_secs_f64() - self.mean_seconds);
    }

    /// Call this when messages were missed: the time until the next message is no gap.
    pub(super) fn interrupt(&mut self) {
        self.last = None;
    }

    /// Starts the next interval. A gap counts in the interval in which it ends.
    pub(super) fn next_interval(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    /// Returns the standard deviation of the gaps, or `None` if there are fewer than two.
    pub(super) fn deviation(&self) -> Option<Duration> {
        let variance = self.squares / f64::from(self.gaps);
        (self.gaps >= 2).then(|| Duration::try_from_secs_f64(variance.sqrt()).unwrap_or_default())
    }

    /// Returns the longest gap, if there was any.
    pub(super) fn longest(&self) -> Option<Duration> {
        (self.gaps > 0).then_some(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, jitter: &mut Jitter, milliseconds: &[u64]) {
        for at in milliseconds {
            jitter.arrival(start + Duration::from_millis(*at));
        }
    }

    #[test]
    fn gaps_have_a_deviation_and_a_maximum() {
        let start = Instant::now();
        let mut jitter = Jitter::default();
        assert_eq!((jitter.deviation(), jitter.longest()), (None, None));
        after(start, &mut jitter, &[0]);
        assert_eq!((jitter.deviation(), jitter.longest()), (None, None));
        after(start, &mut jitter, &[10]);
        assert_eq!(jitter.longest(), Some(Duration::from_millis(10)));
        assert_eq!(jitter.deviation(), None);
        // Gaps of 10, 20, 30 and 40 ms: the variance is 125 ms².
        after(start, &mut jitter, &[30, 60, 100]);
        assert_eq!(jitter.longest(), Some(Duration::from_millis(40)));
        let deviation = jitter.deviation().unwrap().as_secs_f64();
        assert!((deviation - 0.000_125_f64.sqrt()).abs() < 1e-9, "{deviation}");
    }

    #[test]
    fn a_gap_counts_where_it_ends_and_not_across_a_loss() {
        let start = Instant::now();
        let mut jitter = Jitter::default();
        after(start, &mut jitter, &[0, 10]);
        jitter.next_interval();
        assert_eq!(jitter.longest(), None);
        after(start, &mut jitter, &[35]);
        assert_eq!(jitter.longest(), Some(Duration::from_millis(25)));
        jitter.interrupt();
        after(start, &mut jitter, &[1000, 1010]);
        assert_eq!(jitter.longest(), Some(Duration::from_millis(25)));
    }
}
