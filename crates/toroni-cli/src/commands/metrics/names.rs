//! Every metric: its name, labels, text, and where its value comes from. `docs/monitoring.md` has the same table, and a
//! test compares the two.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::SystemTime;
use toroni::{BusStats, LockKind, PublisherStats, SubscriberSlotStats};
use toroni_shell::openmetrics::{Family, Kind, Value};

/// A metric family.
pub(super) struct Metric {
    /// The name without the suffix `_total`, which the samples of counters have in addition.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// In the order in which samples carry them.
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    pub(super) source: Source,
}

impl Metric {
    pub(super) fn family(&self) -> Family {
        let Self { name, kind, labels, help, .. } = *self;
        Family { name, kind, labels, help }
    }
}

/// Where the values of a metric come from. A function that returns `None` leaves the sample out.
pub(super) enum Source {
    /// Whether the parts of a bus can be read.
    Readable,
    /// One value for each bus.
    Bus(fn(&BusStats) -> Option<Value>),
    /// The participants of each bus, counted by role and state.
    Participants,
    /// One value for each publishing participant.
    Publisher(fn(&PublisherStats) -> Value),
    /// One value for each subscriber.
    Subscriber(fn(&SubscriberSlotStats) -> Value),
}

const BUS: &[&str] = &["bus"];
const SLOT: &[&str] = &["bus", "name", "slot"];

/// Every metric, in the order of the answer.
pub(super) const ALL: &[Metric] = &[
    Metric {
        name: "toroni_bus_readable",
        kind: Kind::Gauge,
        labels: &["bus", "part"],
        help: "1 if this part of the bus could be read (ring, publishers, subscribers), else 0",
        source: Source::Readable,
    },
    bus(
        "toroni_messages",
        Kind::Counter,
        "Messages published since the bus was created, and losses from elsewhere",
        |stats| Some(Value::Whole(stats.sequence)),
    ),
    bus(
        "toroni_bytes",
        Kind::Counter,
        "Bytes of the stream published since the bus was created",
        |stats| Some(Value::Whole(stats.tail)),
    ),
    bus("toroni_ring_bytes", Kind::Gauge, "Capacity of the ring", |stats| {
        Some(Value::Whole(stats.capacity))
    }),
    bus(
        "toroni_history_seconds",
        Kind::Gauge,
        "Age of the oldest message in the ring, if it has a timestamp",
        history,
    ),
    bus("toroni_topics", Kind::Gauge, "Names in the topic table", |stats| {
        Some(Value::Whole(stats.topics.into()))
    }),
    bus("toroni_retained_topics", Kind::Gauge, "Retained topics", |stats| {
        Some(Value::Whole(stats.retained.topics.into()))
    }),
    bus("toroni_retained_max_topics", Kind::Gauge, "How many topics can be retained", |stats| {
        Some(Value::Whole(stats.retained.max_topics.into()))
    }),
    bus(
        "toroni_retained_used_bytes",
        Kind::Gauge,
        "Bytes in use for the values of retained topics, which only grow",
        |stats| Some(Value::Whole(stats.retained.used_bytes)),
    ),
    bus("toroni_retained_bytes", Kind::Gauge, "Bytes for the values of retained topics", |stats| {
        Some(Value::Whole(stats.retained.bytes))
    }),
    bus(
        "toroni_retained_missing",
        Kind::Gauge,
        "Retained topics whose value is missing, because the bus had no room for it",
        |stats| Some(Value::Whole(stats.retained.missing.into())),
    ),
    Metric {
        name: "toroni_participants",
        kind: Kind::Gauge,
        labels: &["bus", "role", "state"],
        help: "Publishers and subscribers by state: alive, stopped, dumping (writes a core dump), dead",
        source: Source::Participants,
    },
    bus(
        "toroni_lock_stopped",
        Kind::Gauge,
        "1 while the owner of the writer lock is stopped, so that no process can publish, else 0",
        lock_stopped,
    ),
    publisher("toroni_publisher_messages", "Messages that the publisher published", |one| {
        Value::Whole(one.messages)
    }),
    publisher("toroni_publisher_bytes", "Bytes of the stream that these messages took", |one| {
        Value::Whole(one.bytes)
    }),
    publisher(
        "toroni_publisher_waits",
        "How often the publisher waited for slow subscribers",
        |one| Value::Whole(one.waits),
    ),
    publisher(
        "toroni_publisher_waited_seconds",
        "How long the publisher waited for slow subscribers",
        |one| Value::Real(one.waited.as_secs_f64()),
    ),
    publisher(
        "toroni_publisher_overwrites",
        "How often the publisher, after it had waited, overwrote messages that a gating subscriber had not read",
        |one| Value::Whole(one.overwrites),
    ),
    publisher("toroni_publisher_wakes", "Wake-ups that the publisher sent", |one| {
        Value::Whole(one.wakes)
    }),
    subscriber(
        "toroni_subscriber_lag_bytes",
        Kind::Gauge,
        "Bytes between the subscriber's position and the end of the stream",
        |one| Value::Whole(one.lag_bytes),
    ),
    subscriber(
        "toroni_subscriber_received",
        Kind::Counter,
        "Messages that the subscriber received",
        |one| Value::Whole(one.received),
    ),
    subscriber(
        "toroni_subscriber_lost_messages",
        Kind::Counter,
        "Messages of the bus, on any topic, that were overwritten before the subscriber read them",
        |one| Value::Whole(one.lost_messages),
    ),
    subscriber(
        "toroni_subscriber_lost_on_the_way",
        Kind::Counter,
        "Messages that were lost on their way to the bus, as far as the subscriber was told",
        |one| Value::Whole(one.lost_on_the_way),
    ),
    subscriber(
        "toroni_subscriber_losses_on_the_way",
        Kind::Counter,
        "How often the subscriber was told of such a loss, of a known number of messages or not",
        |one| Value::Whole(one.losses),
    ),
    subscriber(
        "toroni_subscriber_lapses",
        Kind::Counter,
        "How often publishers overtook the subscriber",
        |one| Value::Whole(one.lapses),
    ),
    subscriber(
        "toroni_subscriber_gating",
        Kind::Gauge,
        "1 if publishers wait for the subscriber, else 0",
        |one| Value::Whole(one.gating.into()),
    ),
    subscriber(
        "toroni_subscriber_alive",
        Kind::Gauge,
        "1 if the subscriber's process lives, else 0",
        |one| Value::Whole(one.alive.into()),
    ),
];

const fn bus(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&BusStats) -> Option<Value>,
) -> Metric {
    Metric { name, kind, labels: BUS, help, source: Source::Bus(read) }
}

const fn publisher(
    name: &'static str,
    help: &'static str,
    read: fn(&PublisherStats) -> Value,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels: SLOT, help, source: Source::Publisher(read) }
}

const fn subscriber(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&SubscriberSlotStats) -> Value,
) -> Metric {
    Metric { name, kind, labels: SLOT, help, source: Source::Subscriber(read) }
}

fn history(stats: &BusStats) -> Option<Value> {
    let age = SystemTime::now().duration_since(stats.oldest_timestamp?);
    // A publisher states the time, which may be in the future.
    Some(Value::Real(age.unwrap_or_default().as_secs_f64()))
}

/// Leaves the sample out if the owner is not known: the slots of the publishers say which process it is.
fn lock_stopped(stats: &BusStats) -> Option<Value> {
    let is_unknown = stats.lock == LockKind::Lease && stats.publishers.is_none();
    let stopped = match &stats.lock_owner {
        Some(_) if is_unknown => return None,
        owner => owner.as_ref().is_some_and(|owner| owner.stopped),
    };
    Some(Value::Whole(stopped.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Returns the text of a file of the repository, or `None` in a crate that was unpacked elsewhere.
    fn text(path: &str) -> Option<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if !root.join("xtask").exists() {
            return None;
        }
        let path = root.join(path);
        let text = std::fs::read_to_string(&path);
        Some(text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
        table.extend(ALL.iter().map(|metric| metric.family().row()));
        let Some(documented) = text("docs/monitoring.md") else { return };
        assert!(documented.contains(&table), "docs/monitoring.md needs this table:\n{table}");
    }

    #[test]
    fn names_are_used_once_and_end_as_openmetrics_wants_it() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.name.starts_with("toroni"), "{}", metric.name);
            for reserved in ["_total", "_count", "_sum", "_bucket", "_created", "_info"] {
                assert!(!metric.name.ends_with(reserved), "{}", metric.name);
            }
        }
    }

    /// The dashboard and the rules use no name that does not exist.
    #[test]
    fn the_dashboard_and_the_rules_use_these_names() {
        let names: BTreeSet<String> =
            ALL.iter().map(|metric| metric.family().sample_name()).collect();
        for path in [
            "packaging/grafana/toroni.json",
            "packaging/prometheus/alerts.yml",
            "packaging/prometheus/alerts_test.yml",
        ] {
            let Some(text) = text(path) else { return };
            let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
            let used: BTreeSet<&str> =
                text.split(|c| !is_part(c)).filter(|word| word.starts_with("toroni_")).collect();
            assert!(used.len() > 3, "{path}: {used:?}");
            for name in used {
                assert!(names.contains(name), "{path} uses {name}, which does not exist");
            }
        }
    }
}
