//! Writes metrics as text in the format of OpenMetrics.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// A metric family.
#[derive(Clone, Copy)]
pub struct Family {
    /// The name without the suffix `_total`, which the samples of counters have in addition.
    pub name: &'static str,
    /// What its values mean.
    pub kind: Kind,
    /// In the order in which samples carry them.
    pub labels: &'static [&'static str],
    /// What it counts, in a sentence.
    pub help: &'static str,
}

/// The type of a family.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Times, by how many were not longer than some bounds.
    Histogram,
}

impl Kind {
    /// Returns the type as the format names it.
    pub fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
        }
    }
}

/// A value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Real(f64),
    /// Sum and number of times, and how many were not longer than each of some bounds. In seconds.
    Times {
        /// In seconds.
        sum: f64,
        /// Number of times.
        count: u64,
        /// Bounds in seconds, each with how many times were not longer.
        within: Vec<(f64, u64)>,
    },
}

/// A value, and those of the labels of its family.
pub type Sample = (Vec<String>, Value);

impl Family {
    /// Returns the name as samples carry it.
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            _ => self.name.to_owned(),
        }
    }

    /// Returns the row of this family in a table of the documents.
    pub fn row(&self) -> String {
        let (name, kind) = (self.sample_name(), self.kind.metric_type());
        format!("| `{name}` | {} | {} | {} |\n", kind.as_str(), self.labels.join(", "), self.help)
    }

    /// Splits the unit off the name, if it ends with one.
    fn name_and_unit(&self) -> (&'static str, Option<Unit>) {
        for (suffix, unit) in [("_bytes", Unit::Bytes), ("_seconds", Unit::Seconds)] {
            if let Some(name) = self.name.strip_suffix(suffix) {
                return (name, Some(unit));
            }
        }
        (self.name, None)
    }
}

/// Writes families with their samples. A family without samples is left out.
pub fn text(families: Vec<(Family, Vec<Sample>)>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    match text::encode(&mut text, &registry) {
        Ok(()) => text,
        // Writing to a string fails only if a value cannot be formatted, and ours can.
        Err(fmt::Error) => unreachable!("numbers and strings can be written to a string"),
    }
}

struct Families(Vec<(Family, Vec<Sample>)>);

impl fmt::Debug for Families {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(family, _)| family.name)).finish()
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (family, samples) in self.0.iter().filter(|(_, samples)| !samples.is_empty()) {
            let (name, unit) = family.name_and_unit();
            let kind = family.kind.metric_type();
            let mut encoder = encoder.encode_descriptor(name, family.help, unit.as_ref(), kind)?;
            for (labels, value) in samples {
                let labels: Vec<(&str, &str)> =
                    family.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
                sample(family.kind, value, encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn sample(kind: Kind, value: &Value, encoder: MetricEncoder<'_>) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Whole(value)) => ConstCounter::new(*value).encode(encoder),
        (_, Value::Whole(value)) => ConstGauge::new(*value).encode(encoder),
        (Kind::Counter, Value::Real(value)) => ConstCounter::new(*value).encode(encoder),
        (_, Value::Real(value)) => ConstGauge::new(*value).encode(encoder),
        (_, Value::Times { sum, count, within }) => {
            let mut encoder = encoder;
            // The library wants each bucket for itself, and adds them up.
            let mut before = 0;
            let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(within.len() + 1);
            for (bound, counted) in within {
                buckets.push((*bound, counted - before));
                before = *counted;
            }
            buckets.push((f64::INFINITY, count - before));
            encoder.encode_histogram::<[(&str, &str); 0]>(*sum, *count, &buckets, None)
        }
    }
}
