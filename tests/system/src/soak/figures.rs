//! The result of a soak: counts, times and violations, as a table and as JSON.

use super::order::Counts;
use super::stalls::{Cause, LONG_NS, Stall, Times};
use super::verifier::{Kind, Violation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use toroni_testkit::units::count as grouped;

/// All of it. Stalls of processes that were stopped or told to pause do not count.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// How long it ran.
    pub duration: Duration,
    /// Messages that the bus has seen.
    pub published: u64,
    /// Bytes of the stream that they took.
    pub bytes: u64,
    /// How often a worker became the exclusive publisher, and how many calls of others failed because of it.
    pub reigns: u64,
    /// See `reigns`.
    pub kept_out: u64,
    /// Messages that subscribers received, each of which was checked by itself.
    pub delivered: u64,
    /// Values of retained topics that subscribers compared with the newest messages that they had received, and that the
    /// supervisor read after kills.
    pub values: [u64; 2],
    /// What was compared among subscribers.
    pub order: Counts,
    /// Publishers and subscribers that were killed (SIGKILL).
    pub kills: [u64; 2],
    /// Publishers and subscribers that were stopped for a while (SIGSTOP).
    pub stops: [u64; 2],
    /// Pauses of all publishers, in which subscribers fall asleep.
    pub pauses: u64,
    /// How often somebody joined the bus, and left it in order.
    pub joins: u64,
    /// See `joins`.
    pub leaves: u64,
    /// How often the bus reported a loss to a subscriber, and how many messages were lost.
    pub lapses: u64,
    /// See `lapses`.
    pub lost: u64,
    /// Topics in the table, and whether it was full, so that others travelled inline.
    pub topics: u64,
    /// Calls of publishers, and the times between the messages of subscribers of everything.
    pub times: [Times; 2],
    /// Of the long stalls: how many, and the longest in nanoseconds, by cause.
    pub causes: [BTreeMap<Cause, (u64, u64)>; 2],
    /// Slots whose owners had died at the end, and that `clean` freed.
    pub freed_by_clean: u64,
    /// Slots, leases and sockets that were left when everybody had gone and `clean` had run.
    pub leaked_slots: u64,
    /// Files that were left then.
    pub leaked_files: u64,
    /// Descriptors that were left in a process that had left the bus.
    pub leaked_descriptors: u64,
    /// The most descriptors, and the most KiB of memory, of one process that lived from beginning to end:
    /// soon after the beginning, and at the end.
    pub sizes: [(u64, u64); 2],
    pub violations: Vec<Violation>,
}

/// The two roles, as the arrays above have them.
pub const ROLES: [&str; 2] = ["publisher", "subscriber"];

impl Figures {
    /// Counts a long stall.
    pub fn add_stall(&mut self, role: usize, cause: Cause, stall: &Stall) {
        let (count, longest) = self.causes[role].entry(cause).or_default();
        *count += 1;
        *longest = stall.length_ns.max(*longest);
    }

    /// How many violations there are of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.violations.iter().filter(|violation| violation.kind == kind).count()
    }

    /// The table, for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::new();
        let mut row = |name: &str, value: String| {
            let _ = writeln!(table, "{name:<72} {value:>24}");
        };
        let seconds = self.duration.as_secs_f64();
        let rate =
            |count: u64| format!("{} ({:.0}/s)", grouped(count), count as f64 / seconds.max(1e-9));
        let pair = |[one, two]: [u64; 2]| format!("{} / {}", grouped(one), grouped(two));
        row("duration", format!("{seconds:.1} s"));
        row("messages published", rate(self.published));
        row("  bytes of the stream", grouped(self.bytes));
        row("exclusive publishers / calls that they kept out", pair([self.reigns, self.kept_out]));
        row("messages delivered, each checked by itself", rate(self.delivered));
        row("  and found as another subscriber saw them", grouped(self.order.compared));
        row("values compared with what was received / read after a kill", pair(self.values));
        row("stretches of 256 messages that two or more compared", grouped(self.order.stretches));
        row("  that no subscriber saw completely", grouped(self.order.unseen));
        row("kills of publishers / subscribers", pair(self.kills));
        row("  ends of publishers found where they were told", grouped(self.order.ends));
        row("  ends that no subscriber saw", grouped(self.order.ends_unseen));
        row("stops of publishers / subscribers", pair(self.stops));
        row("pauses of all publishers", grouped(self.pauses));
        row("joins / leaves in order", pair([self.joins, self.leaves]));
        row("topics in the full table; others travelled inline", grouped(self.topics));
        row("losses reported", grouped(self.lapses));
        row("messages lost, as reported", grouped(self.lost));
        row("messages lost WITHOUT report", self.count(Kind::Missing).to_string());
        for kind in Kind::ALL {
            if kind != Kind::Missing {
                row(&format!("violations: {}", kind.word()), self.count(kind).to_string());
            }
        }
        for (role, name) in ROLES.iter().enumerate() {
            let times = &self.times[role];
            let what = ["one call of a publisher", "nothing for a subscriber of everything"][role];
            row(&format!("{what}: longest"), shown(times.longest_ns()));
            row("  p99.9 / p50", {
                let (high, half) = (times.quantile_ns(999, 1000), times.quantile_ns(1, 2));
                format!("{} / {}", shown(high), shown(half))
            });
            for (cause, (count, longest)) in &self.causes[role] {
                let what = format!("  {name} held up > {}: {}", shown(LONG_NS), cause.words());
                row(&what, format!("{} times, <= {}", grouped(*count), shown(*longest)));
            }
        }
        row("slots of the killed that `clean` freed at the end", grouped(self.freed_by_clean));
        row("slots, leases and sockets leaked", grouped(self.leaked_slots));
        row("files left over", grouped(self.leaked_files));
        row("descriptors leaked", grouped(self.leaked_descriptors));
        let [(few, small), (many, large)] = self.sizes;
        row("most descriptors of a process, at first / at the end", pair([few, many]));
        row("most memory of a process (KiB), at first / at the end", pair([small, large]));
        table
    }

    /// The same, for programs; times in nanoseconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let stalls = |role: usize| {
            let causes = self.causes[role].iter().map(|(cause, (count, longest_ns))| {
                let value = json!({ "count": count, "longest_ns": longest_ns });
                (cause.words().to_owned(), value)
            });
            let times = &self.times[role];
            json!({
                "count": times.count(),
                "longest_ns": times.longest_ns(),
                "p999_ns": times.quantile_ns(999, 1000),
                "p50_ns": times.quantile_ns(1, 2),
                "long_by_cause": causes.collect::<serde_json::Map<_, _>>(),
            })
        };
        let kinds = Kind::ALL.map(|kind| (kind.word().to_owned(), json!(self.count(kind))));
        let violations: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        json!({
            "seconds": self.duration.as_secs_f64(),
            "published": self.published,
            "bytes": self.bytes,
            "reigns": self.reigns,
            "kept_out": self.kept_out,
            "delivered": self.delivered,
            "compared": self.order.compared,
            "values_compared": self.values[0],
            "values_after_kills": self.values[1],
            "stretches_compared": self.order.stretches,
            "stretches_unseen": self.order.unseen,
            "stretches_late": self.order.late,
            "ends_found": self.order.ends,
            "ends_unseen": self.order.ends_unseen,
            "kills": { "publishers": self.kills[0], "subscribers": self.kills[1] },
            "stops": { "publishers": self.stops[0], "subscribers": self.stops[1] },
            "pauses": self.pauses,
            "joins": self.joins,
            "leaves": self.leaves,
            "topics": self.topics,
            "lapses": self.lapses,
            "lost_with_report": self.lost,
            "violation_counts": kinds.into_iter().collect::<serde_json::Map<_, _>>(),
            "violations": violations,
            "stalls": { "publisher": stalls(0), "subscriber": stalls(1) },
            "freed_by_clean": self.freed_by_clean,
            "leaked_slots": self.leaked_slots,
            "leaked_files": self.leaked_files,
            "leaked_descriptors": self.leaked_descriptors,
            "descriptors": [self.sizes[0].0, self.sizes[1].0],
            "memory_kib": [self.sizes[0].1, self.sizes[1].1],
        })
    }
}

fn shown(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_in_the_table_and_in_the_json() {
        let mut figures = Figures { published: 1_234_567, ..Figures::default() };
        let violation = Violation { kind: Kind::Missing, evidence: "where".to_owned() };
        figures.violations.push(violation);
        figures.add_stall(1, Cause::Policy, &Stall { length_ns: 200_000_000, ..Stall::default() });
        let table = figures.table();
        let line = table.lines().find(|line| line.contains("WITHOUT")).unwrap();
        assert!(line.ends_with(" 1") && table.contains("1,234,567") && table.contains("200 ms"));
        let json = figures.json();
        assert_eq!(json["violation_counts"]["lost-without-report"], 1);
        assert_eq!(json["violations"][0], "lost-without-report: where");
    }
}
