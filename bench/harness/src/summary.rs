//! Medians and spreads of repetitions, percentiles of latencies.

use crate::Failure;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The result of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
    /// Number of values.
    pub count: usize,
}

impl Summary {
    /// Summarises these values. Returns `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        let count = sorted.len();
        Some(Self { mean: mean(&sorted), median, low, high, count })
    }
}

/// Returns the arithmetic mean, or 0 if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Latencies in nanoseconds: three significant digits, up to 1000 s; sum and extremes exact.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Sparse", into = "Sparse")]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u64,
    max_ns: u64,
}

const LONGEST_NS: u64 = 1_000_000_000_000;

/// Latencies as JSON: values, and how often each occurred.
#[derive(Clone, Serialize, Deserialize)]
struct Sparse {
    counts: Vec<(u64, u64)>,
    sum_ns: u64,
    max_ns: u64,
}

impl Latencies {
    /// Makes an empty collection.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new() -> Result<Self, Failure> {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .map_err(Failure::of("make a histogram"))?;
        Ok(Self { histogram, sum_ns: 0, max_ns: 0 })
    }

    /// Adds one latency. 0 is a latency below the resolution of the clock.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Adds the latencies of another collection.
    ///
    /// # Errors
    /// Never, as long as all collections have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), Failure> {
        self.histogram.add(&other.histogram).map_err(Failure::of("join histograms"))?;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        Ok(())
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the mean in nanoseconds, or 0 if there are none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// Returns the latency that the given part of all latencies does not exceed; 0.99 gives the p99.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns)
    }

    /// Returns the number of latencies that are longer than this, as exactly as three significant digits allow.
    #[must_use]
    pub fn count_above(&self, latency_ns: u64) -> u64 {
        self.count().saturating_sub(self.histogram.count_between(0, latency_ns))
    }

    /// Returns the longest latency.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

impl From<Latencies> for Sparse {
    fn from(latencies: Latencies) -> Self {
        let counts = latencies
            .histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        Self { counts, sum_ns: latencies.sum_ns, max_ns: latencies.max_ns }
    }
}

impl TryFrom<Sparse> for Latencies {
    type Error = Failure;

    fn try_from(sparse: Sparse) -> Result<Self, Failure> {
        let mut latencies = Self::new()?;
        for (value, count) in sparse.counts {
            latencies.histogram.saturating_record_n(value, count);
        }
        latencies.sum_ns = sparse.sum_ns;
        latencies.max_ns = sparse.max_ns;
        Ok(latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        let odd = Summary::of(&[3.0, 1.0, 8.0]).unwrap();
        assert_eq!((odd.mean, odd.median, odd.low, odd.high, odd.count), (4.0, 3.0, 1.0, 8.0, 3));
        assert_eq!(Summary::of(&[4.0, 1.0]).unwrap().median, 2.5);
        assert!(Summary::of(&[]).is_none());
    }

    #[test]
    fn latencies_survive_the_pipe_and_add_up() {
        let mut first = Latencies::new().unwrap();
        (1..=100).for_each(|n| first.record(n * 1000));
        let text = serde_json::to_string(&first).unwrap();
        let mut second: Latencies = serde_json::from_str(&text).unwrap();
        second.record(5_000_000);
        second.add(&first).unwrap();
        assert_eq!(second.count(), 201);
        assert_eq!(second.max_ns(), 5_000_000);
        assert!((second.mean_ns() - (2.0 * 5_050_000.0 + 5_000_000.0) / 201.0).abs() < 1e-6);
        let median = second.quantile_ns(0.5);
        assert!((50_000..=51_100).contains(&median), "{median}");
        assert_eq!(second.quantile_ns(1.0), 5_000_000);
        assert_eq!([second.count_above(90_000), second.count_above(4_000_000)], [21, 1]);
        assert_eq!(Latencies::new().unwrap().mean_ns(), 0.0);
    }
}
