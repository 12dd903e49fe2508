//! The result of a soak between hosts, as a table and as JSON.

use super::checker::{Checker, Kind};
use super::site::Disturbance;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use toroni_testkit::units::count as grouped;

/// What must have come to the hosts that lose no more than the others, while nodes died.
const LEAST_MEANWHILE: f64 = 0.9;
/// In less time, a single node that starts slowly decides.
const JUDGED_FROM: Duration = Duration::from_secs(60);

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// How long nodes were disturbed.
    pub duration: Duration,
    /// Messages that all hosts published.
    pub published: u64,
    /// How often each [`Disturbance`] happened.
    pub disturbances: [u64; Disturbance::ALL.len()],
    /// The most memory that a node had.
    pub memory_kib: u64,
    /// Whether all nodes ended in order at last.
    pub is_orderly: bool,
    /// What each host received; the last one is the crybaby.
    pub receivers: Vec<Received>,
}

/// What one host received from the others.
#[derive(Clone, Debug)]
pub struct Received {
    messages: u64,
    /// Of what had been published before the disturbances ended, the part that had come by then.
    meanwhile: f64,
    missing: u64,
    overwritten: u64,
    reports: [u64; 3],
    /// The times within which half, 99 % and all of the messages came.
    latency_ns: [u64; 3],
    counts: [u64; Kind::ALL.len()],
    violations: Vec<String>,
}

impl Received {
    pub(super) fn new(checker: &Checker, meanwhile: f64) -> Self {
        let latency = &checker.latency;
        let latency_ns =
            [latency.quantile_ns(1, 2), latency.quantile_ns(99, 100), latency.longest_ns()];
        Self {
            messages: checker.received,
            meanwhile,
            missing: checker.missing(),
            overwritten: checker.overwritten(),
            reports: checker.reports,
            latency_ns,
            counts: Kind::ALL.map(|kind| checker.count(kind)),
            violations: checker.violations.clone(),
        }
    }
}

impl Figures {
    /// What is wrong, one line each.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut violations: Vec<String> =
            self.receivers.iter().flat_map(|receiver| receiver.violations.clone()).collect();
        if !self.is_orderly {
            violations.push("a node did not end in order after SIGTERM".to_owned());
        }
        if self.duration >= JUDGED_FROM {
            let good = self.receivers.split_last().map_or(&[][..], |(_crybaby, good)| good);
            let few = good.iter().enumerate().filter(|(_, one)| one.meanwhile < LEAST_MEANWHILE);
            violations.extend(few.map(|(host, one)| {
                format!(
                    "only {:.2} % came to host {host} while nodes died, and {:.0} % should",
                    100.0 * one.meanwhile,
                    100.0 * LEAST_MEANWHILE
                )
            }));
        }
        violations
    }

    /// The table, for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::new();
        let seconds = self.duration.as_secs_f64();
        let rate = self.published as f64 / seconds.max(1e-9);
        for (name, value) in [
            ("duration", format!("{seconds:.1} s")),
            ("messages published", format!("{} ({rate:.0}/s)", grouped(self.published))),
            ("most memory of a node", format!("{} KiB", grouped(self.memory_kib))),
        ] {
            let _ = writeln!(table, "{name:<44} {value}");
        }
        for (what, count) in Disturbance::ALL.into_iter().zip(self.disturbances) {
            let _ = writeln!(table, "{:<44} {count}", what.words());
        }
        let crybaby = self.receivers.len().saturating_sub(1);
        let head = |at| if at == crybaby { "crybaby".to_owned() } else { format!("host {at}") };
        self.row(&mut table, "", |at, _| head(at));
        self.row(&mut table, "messages of other hosts", |_, one| grouped(one.messages));
        self.row(&mut table, "  come while nodes died", |_, one| {
            format!("{:.2} %", 100.0 * one.meanwhile)
        });
        for (at, what) in ["p50", "p99", "longest"].into_iter().enumerate() {
            self.row(&mut table, &format!("  from publisher to subscriber, {what}"), |_, one| {
                format!("{:.1} ms", one.latency_ns[at] as f64 / 1e6)
            });
        }
        self.row(&mut table, "messages lost, as reported", |_, one| grouped(one.missing));
        for (at, what) in ["exact", "at least", "at most"].into_iter().enumerate() {
            self.row(&mut table, &format!("  reports: {what}"), |_, one| grouped(one.reports[at]));
        }
        self.row(&mut table, "messages overwritten in the bus, as reported", |_, one| {
            grouped(one.overwritten)
        });
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            self.row(&mut table, &format!("messages {}", kind.words()), |_, one| {
                grouped(one.counts[at])
            });
        }
        table
    }

    fn row(&self, table: &mut String, name: &str, value: impl Fn(usize, &Received) -> String) {
        let values =
            self.receivers.iter().enumerate().map(|(at, one)| format!("{:>14}", value(at, one)));
        let _ = writeln!(table, "{name:<44}{}", values.collect::<String>());
    }

    /// The same, for programs; times in nanoseconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let receiver = |one: &Received| {
            let counts = Kind::ALL.iter().zip(one.counts);
            let counts = counts.map(|(kind, count)| (kind.words().to_owned(), json!(count)));
            json!({
                "messages": one.messages,
                "meanwhile": one.meanwhile,
                "lost_with_report": one.missing,
                "overwritten": one.overwritten,
                "reports": { "exact": one.reports[0], "at_least": one.reports[1], "at_most": one.reports[2] },
                "latency_ns": { "p50": one.latency_ns[0], "p99": one.latency_ns[1], "longest": one.latency_ns[2] },
                "violation_counts": counts.collect::<serde_json::Map<_, _>>(),
            })
        };
        let disturbances = Disturbance::ALL.into_iter().zip(self.disturbances);
        let disturbances =
            disturbances.map(|(what, count)| (what.words().to_owned(), json!(count)));
        json!({
            "seconds": self.duration.as_secs_f64(),
            "published": self.published,
            "disturbances": disturbances.collect::<serde_json::Map<_, _>>(),
            "memory_kib": self.memory_kib,
            "receivers": self.receivers.iter().map(receiver).collect::<Vec<_>>(),
            "violations": self.violations(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(meanwhile: f64) -> Received {
        Received {
            messages: 0,
            meanwhile,
            missing: 0,
            overwritten: 0,
            reports: [0; 3],
            latency_ns: [0; 3],
            counts: [0; Kind::ALL.len()],
            violations: Vec::new(),
        }
    }

    #[test]
    fn a_good_host_that_got_little_is_a_violation_unless_the_soak_was_short() {
        let mut figures = Figures { is_orderly: true, duration: JUDGED_FROM, ..Figures::default() };
        figures.receivers = [0.95, 0.9, 0.5].map(received).to_vec();
        assert_eq!(figures.violations(), [""; 0], "the last one is the crybaby");
        figures.receivers[1].meanwhile = 0.89;
        let wanted = "only 89.00 % came to host 1 while nodes died, and 90 % should";
        assert_eq!(figures.violations(), [wanted]);
        figures.duration = Duration::from_secs(59);
        assert_eq!(figures.violations(), [""; 0]);
    }
}
