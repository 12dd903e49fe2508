//! The result of a soak of the sequencer, as a table and as JSON.

use super::nemesis::Kind;
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;
use toroni_testkit::history::{History, Sent};
use toroni_testkit::units::count as grouped;

/// How the leader was killed, if nothing else happened and a majority was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    Alone,
    WithAnother,
    /// While a host held connections to all members.
    AmongHostile,
}

/// A fault that was ended.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub what: String,
    pub begin: Duration,
    /// From its end until commands of all hosts became events again that were sent after it.
    pub recovery: Duration,
    /// When the leader was killed, and how.
    pub kill: Option<(Duration, Killed)>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// How long there were faults.
    pub duration: Duration,
    pub faults: Vec<Fault>,
    pub leader_kills: u64,
    /// How many members said that their disks were full.
    pub full_members: u64,
    /// How many disks have reported an error.
    pub failed_disks: u64,
    /// How many writes and renames were lost, or a part of each.
    pub lost_writes: u64,
    /// How many logs were replaced by earlier copies.
    pub restored: u64,
    /// From each kill of a leader until a command had its event that was sent after the kill, for each [`Killed`].
    pub failovers: [Vec<Duration>; 3],
    /// How long elections on demand took, or why they failed.
    pub elects: Vec<Result<Duration, String>>,
    pub commands: u64,
    /// Commands whose events came to their hosts.
    pub answered: u64,
    pub events: u64,
    pub confirms: u64,
    /// How many violations of H1 to H6 and H9 there are.
    pub by_rule: [u64; RULES.len()],
    /// The most memory that a node had.
    pub memory_kib: u64,
    /// The most that a log took on its disk.
    pub log_bytes: u64,
    /// From the end of the last fault until all commands had their events.
    pub calm: Range<Duration>,
    pub violations: Vec<String>,
}

/// What violations of the history begin with, and what they mean.
const RULES: [(&str, &str); 7] = [
    ("H3", "commands lost (H3)"),
    ("H2", "commands doubled (H2)"),
    ("H1", "events that differ (H1)"),
    ("H4", "commands out of their source's order (H4)"),
    ("H5", "commands out of the order in time (H5)"),
    ("H6", "terms confirmed too late (H6)"),
    ("H9", "commands answered too late (H9)"),
];

impl Figures {
    /// Takes what was recorded, and what is wrong with it.
    pub(super) fn take(&mut self, history: &History, violations: &[String]) {
        self.commands = history.sent.len() as u64;
        self.answered = history.sent.iter().filter(|sent| sent.answered.is_some()).count() as u64;
        self.events = history.traces.iter().map(|trace| trace.numbers.end).max().unwrap_or(0);
        self.confirms = history.confirms.len() as u64;
        for (count, (rule, _)) in self.by_rule.iter_mut().zip(RULES) {
            *count = violations.iter().filter(|text| text.starts_with(rule)).count() as u64;
        }
        let kills: Vec<_> = self.faults.iter().filter_map(|fault| fault.kill).collect();
        let how = [Killed::Alone, Killed::WithAnother, Killed::AmongHostile];
        for (failovers, how) in self.failovers.iter_mut().zip(how) {
            let at = kills.iter().filter(|(_, killed)| *killed == how).map(|(at, _)| *at);
            *failovers = after(&history.sent, at.collect());
        }
    }

    fn recoveries(&self) -> Vec<Duration> {
        self.faults.iter().map(|fault| fault.recovery).collect()
    }

    fn elections(&self) -> Vec<Duration> {
        self.elects.iter().flatten().copied().collect()
    }

    /// The table, for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::new();
        let mut row = |name: &str, value: String| {
            let _ = writeln!(table, "{name:<52} {value}");
        };
        row("duration", format!("{:.1} s", self.duration.as_secs_f64()));
        let [commands, answered, events] = [self.commands, self.answered, self.events].map(grouped);
        row("commands, of which events came back", format!("{commands}, {answered}"));
        row("events", events);
        for kind in Kind::ALL {
            let count = self.count_of(kind);
            if count > 0 {
                row(&format!("faults: {}", kind.name()), count.to_string());
            }
        }
        row("leaders killed", self.leader_kills.to_string());
        for (name, count) in [
            ("members whose disks were full", self.full_members),
            ("disks that reported an error", self.failed_disks),
            ("writes that were lost with the power", self.lost_writes),
            ("logs that were replaced by earlier copies", self.restored),
        ] {
            if count > 0 {
                row(name, count.to_string());
            }
        }
        let elections = self.elections();
        let failed = self.elects.len() - elections.len();
        for (name, times) in [
            ("from the kill of a leader to the next event", &self.failovers[0]),
            ("  if another member was killed with it", &self.failovers[1]),
            ("  among hostile connections", &self.failovers[2]),
            ("elections on demand", &elections),
            ("from the end of a fault to events of all hosts", &self.recoveries()),
        ] {
            if !times.is_empty() {
                row(name, words(times));
            }
        }
        if failed > 0 {
            row("elections on demand that failed", failed.to_string());
        }
        row("terms confirmed", grouped(self.confirms));
        row("most memory of a node", format!("{} MiB", self.memory_kib >> 10));
        row("longest log on a disk", format!("{} MiB", self.log_bytes >> 20));
        for (count, (_, name)) in self.by_rule.iter().zip(RULES) {
            row(name, count.to_string());
        }
        table
    }

    fn count_of(&self, kind: Kind) -> usize {
        self.faults.iter().filter(|fault| fault.kind == kind).count()
    }

    /// The same, for programs; times in seconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let faults: serde_json::Map<_, _> = Kind::ALL
            .into_iter()
            .map(|kind| (kind.name().to_owned(), json!(self.count_of(kind))))
            .collect();
        let rules: serde_json::Map<_, _> = RULES
            .iter()
            .zip(self.by_rule)
            .map(|((rule, _), count)| ((*rule).to_owned(), json!(count)))
            .collect();
        let elections = self.elections();
        json!({
            "seconds": self.duration.as_secs_f64(),
            "commands": self.commands,
            "answered": self.answered,
            "events": self.events,
            "faults": faults,
            "order_of_faults": self.faults.iter().map(|fault| fault.what.as_str()).collect::<Vec<_>>(),
            "leader_kills": self.leader_kills,
            "full_members": self.full_members,
            "failed_disks": self.failed_disks,
            "lost_writes": self.lost_writes,
            "restored": self.restored,
            "failover_seconds": quantiles(&self.failovers[0]),
            "failover_of_two_seconds": quantiles(&self.failovers[1]),
            "failover_among_hostile_seconds": quantiles(&self.failovers[2]),
            "elect_seconds": quantiles(&elections),
            "elect_failures": self.elects.iter().filter_map(|it| it.as_ref().err()).collect::<Vec<_>>(),
            "recovery_seconds": quantiles(&self.recoveries()),
            "confirms": self.confirms,
            "memory_kib": self.memory_kib,
            "log_bytes": self.log_bytes,
            "violation_counts": rules,
            "violations": self.violations,
        })
    }
}

/// Returns for each of these times how long it took until a command had its event that was sent later.
fn after(sent: &[Sent], mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort();
    let mut answered: Vec<_> =
        sent.iter().filter_map(|sent| Some((sent.sent, sent.answered?))).collect();
    answered.sort();
    let mut found = vec![];
    // From the last one on: the earliest answer of all that were sent later.
    let mut earliest = None;
    for time in times.into_iter().rev() {
        while let Some((_, at)) = answered.pop_if(|(sent, _)| *sent >= time) {
            earliest = earliest.into_iter().chain([at]).min();
        }
        found.extend(earliest.map(|at: Duration| at.saturating_sub(time)));
    }
    found
}

/// The time that half of them do not exceed, that 99 % do not exceed, and the longest.
fn three(times: &[Duration]) -> Option<[Duration; 3]> {
    let mut sorted = times.to_vec();
    sorted.sort();
    let last = sorted.len().checked_sub(1)?;
    let of = |hundredths: usize| sorted[(sorted.len() * hundredths).div_ceil(100).max(1) - 1];
    Some([of(50), of(99), sorted[last]])
}

fn words(times: &[Duration]) -> String {
    three(times).map_or_else(String::new, |three| {
        let [median, most, longest] = three.map(|time| time.as_secs_f64());
        let count = times.len();
        format!("{count}: median {median:.2} s, 99 % {most:.2} s, longest {longest:.2} s")
    })
}

fn quantiles(times: &[Duration]) -> Value {
    three(times).map_or(Value::Null, |three| {
        let [median, most, longest] = three.map(|time| time.as_secs_f64());
        json!({ "count": times.len(), "p50": median, "p99": most, "longest": longest })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::history::Id;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_failover_ends_with_the_first_answer_of_what_was_sent_after_the_kill() {
        let sent = |number, at, answered: Option<u64>| {
            let id = Id { source: 1, series: 1, number };
            let sent = Sent::new(id, "t", b"x", ms(at));
            Sent { answered: answered.map(ms), ..sent }
        };
        let all = [
            sent(0, 90, Some(101)),
            sent(1, 100, Some(700)),
            sent(2, 110, None),
            sent(3, 150, Some(600)),
            sent(4, 1_010, Some(1_020)),
        ];
        assert_eq!(after(&all, vec![ms(95), ms(1_000)]), [ms(20), ms(505)]);
        assert_eq!(after(&all, vec![ms(2_000)]), [Duration::ZERO; 0]);
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times: Vec<_> = (1..=200).rev().map(ms).collect();
        assert_eq!(three(&times), Some([ms(100), ms(198), ms(200)]));
        assert_eq!(three(&times[..1]), Some([ms(200); 3]));
        assert_eq!(three(&[]), None);
    }
}
