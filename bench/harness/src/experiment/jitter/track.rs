//! Latencies of a run: their distribution, and how they went over time.

use crate::Failure;
use crate::summary::Latencies;
use serde::{Deserialize, Serialize};

/// Into how many parts the time of a run is divided.
pub(super) const PARTS: usize = 250;

/// The shortest and the longest latency in each part of the time of a run, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Course {
    parts: Vec<Option<(u64, u64)>>,
}

impl Course {
    /// Adds a latency that was measured this long after the start of a run of this length.
    pub(super) fn record(&mut self, at_ns: u64, run_ns: u64, latency_ns: u64) {
        let part = u128::from(at_ns) * PARTS as u128 / u128::from(run_ns.max(1));
        let part = usize::try_from(part).unwrap_or(usize::MAX).min(PARTS - 1);
        if self.parts.len() <= part {
            self.parts.resize(part + 1, None);
        }
        let (shortest, longest) = self.parts[part].unwrap_or((u64::MAX, 0));
        self.parts[part] = Some((shortest.min(latency_ns), longest.max(latency_ns)));
    }

    /// Adds what another process saw in the same run.
    fn join(&mut self, other: &Self) {
        if self.parts.len() < other.parts.len() {
            self.parts.resize(other.parts.len(), None);
        }
        for (mine, theirs) in self.parts.iter_mut().zip(&other.parts) {
            *mine = match (*mine, *theirs) {
                (Some((low, high)), Some((less, more))) => Some((low.min(less), high.max(more))),
                (known, other) => known.or(other),
            };
        }
    }

    /// Returns the parts with latencies: number of the part, shortest and longest.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let numbered = self.parts.iter().enumerate();
        numbered.filter_map(|(part, span)| span.map(|(low, high)| (part, low, high)))
    }
}

/// What one process measured in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Track {
    pub(super) latencies: Latencies,
    pub(super) course: Course,
    /// Of each message, by its number: its latency in nanoseconds, or 0 if it did not come. Empty unless receivers are
    /// compared.
    pub(super) arrivals: Vec<u64>,
    /// Messages that did not come.
    pub(super) missing: u64,
}

impl Track {
    pub(super) fn new(arrivals: usize) -> Result<Self, Failure> {
        let latencies = Latencies::new()?;
        // Touched now: the first touch of a page costs microseconds.
        let arrivals = (0..arrivals).map(|_| std::hint::black_box(0)).collect();
        Ok(Self { latencies, course: Course::default(), arrivals, missing: 0 })
    }

    /// Adds a latency that was measured this long after the start of a run of this length.
    pub(super) fn record(&mut self, at_ns: u64, run_ns: u64, latency_ns: u64) {
        self.latencies.record(latency_ns);
        self.course.record(at_ns, run_ns, latency_ns);
    }

    /// Adds what another process saw, of the same run or of a repetition of it.
    pub(super) fn join(&mut self, other: &Self) -> Result<(), Failure> {
        self.latencies.add(&other.latencies)?;
        self.course.join(&other.course);
        self.missing += other.missing;
        Ok(())
    }
}

/// How the receivers of a run differ: of each message, the latency at the first receiver and at the last one, and the
/// time between them.
#[derive(Clone, Debug)]
pub(super) struct Band {
    pub(super) first: Latencies,
    pub(super) last: Latencies,
    pub(super) width: Latencies,
}

impl Band {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { first: Latencies::new()?, last: Latencies::new()?, width: Latencies::new()? })
    }

    /// Adds the messages of a run that came to all of its receivers.
    pub(super) fn record(&mut self, receivers: &[Track]) {
        let messages = receivers.iter().map(|track| track.arrivals.len()).min().unwrap_or(0);
        for message in 0..messages {
            let latencies = || receivers.iter().map(|track| track.arrivals[message]);
            let (Some(first), Some(last)) = (latencies().min(), latencies().max()) else { return };
            if first > 0 {
                self.first.record(first);
                self.last.record(last);
                self.width.record(last - first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_keeps_the_extremes_of_each_part() {
        let mut course = Course::default();
        let run_ns = 1_000 * PARTS as u64;
        for (at_ns, latency_ns) in [(0, 5), (999, 7), (1_000, 3), (run_ns * 3, 9)] {
            course.record(at_ns, run_ns, latency_ns);
        }
        let mut other = Course::default();
        other.record(1_500, run_ns, 1);
        other.record(2_500, run_ns, 8);
        course.join(&other);
        let parts: Vec<_> = course.parts().collect();
        assert_eq!(parts, [(0, 5, 7), (1, 1, 3), (2, 8, 8), (PARTS - 1, 9, 9)]);
    }

    #[test]
    fn a_band_compares_receivers_message_by_message() {
        let track = |arrivals: &[u64]| {
            let mut track = Track::new(0).unwrap();
            track.arrivals = arrivals.to_vec();
            track
        };
        let mut band = Band::new().unwrap();
        // The second message did not come to the first receiver, and tells nothing.
        band.record(&[track(&[10, 0, 30]), track(&[15, 20, 90]), track(&[12, 25, 60])]);
        assert_eq!(band.width.count(), 2);
        assert_eq!([band.first.max_ns(), band.last.max_ns(), band.width.max_ns()], [30, 90, 60]);
        assert_eq!(band.width.quantile_ns(0.5), 5);
    }
}
