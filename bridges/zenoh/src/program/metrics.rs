//! The counters of the bridge in the OpenMetrics text format.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use std::fmt;
use toroni_zenoh::Counters;

/// The name of a counter in the library becomes that of its metric: this before it, and `_total` after it.
pub(crate) const PREFIX: &str = "toroni_zenoh_";

/// Returns all counters as OpenMetrics text.
pub(crate) fn text(counters: Counters) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(counters)));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => text,
        // Writing to a string cannot fail.
        Err(fmt::Error) => String::new(),
    }
}

#[derive(Debug)]
struct Snapshot(Counters);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for (name, help, value) in self.0.all() {
            let counter = ConstCounter::new(value);
            let name = format!("{PREFIX}{name}");
            let metric = encoder.encode_descriptor(
                &name,
                help,
                None,
                EncodeMetric::metric_type(&counter),
            )?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table in the guide begins with the name of a metric.
    #[test]
    fn the_guide_lists_every_metric() {
        let rows: Vec<String> = Counters::default()
            .all()
            .iter()
            .map(|(name, help, _)| format!("| `{PREFIX}{name}_total` | {help} |"))
            .collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/zenoh.md");
        let guide = std::fs::read_to_string(path).unwrap();
        let found: Vec<&str> =
            guide.lines().filter(|line| line.starts_with("| `toroni_zenoh_")).collect();
        assert!(
            found == rows,
            "the table of metrics in docs/zenoh.md must be:\n\n{}\n",
            rows.join("\n")
        );
    }

    #[test]
    fn the_text_is_openmetrics() {
        let text = text(Counters::default());
        assert!(text.contains("# TYPE toroni_zenoh_duplicates counter\n"), "{text}");
        assert!(text.contains("\ntoroni_zenoh_duplicates_total 0\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
