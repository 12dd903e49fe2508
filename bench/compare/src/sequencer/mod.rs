//! The sequencer beside a raw TCP connection and NATS JetStream: how long a command takes until it is part of the order, how
//! many commands of 64 bytes are ordered in a second, and how long nothing is ordered after the leader was killed. Also how long a
//! command takes until its event is on the bus of another host.
//!
//! | file | what it measures |
//! |---|---|
//! | `tcp.rs` | 64 bytes there and back |
//! | `group.rs` | members of the sequencer, each a process |
//! | `nats.rs` | servers of NATS, each a process, with a stream in files |
//! | `events.rs` | nodes, each a process on a host that is a network namespace |
//!
//! All processes are on this host, so latency is that of the software and of the disk, and not that of a network.

mod events;
mod group;
mod nats;
mod tcp;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::{Failure, machine};

pub(crate) use group::{SequencerMember, member};

const PAYLOAD_BYTES: usize = 64;
const KILLS: usize = 5;

#[derive(Args)]
pub(crate) struct Sequencer {
    /// Seconds of each measurement
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Measure only the rows whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Keep the logs below this directory, which decides which disk is measured [default: in memory]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Print JSON, one object per line: the report, each cell, each goal
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is measured of one contender.
struct Figures {
    /// Microseconds, sorted.
    latency: Vec<f64>,
    per_second: Option<f64>,
    /// Milliseconds without a commit after each kill of the leader.
    stalls: Vec<f64>,
    note: Option<String>,
}

/// What takes commands, one by one and many at a time.
trait Contender {
    /// Sends one command, and waits until it is part of the order.
    fn one(&mut self) -> Result<(), Failure>;
    /// Sends commands for this time, and returns how many became part of the order.
    fn many(&mut self, time: Duration) -> Result<u64, Failure>;
    /// Kills the leader, starts it again, and returns for how long no command was ordered. None if there is no other.
    fn kill_leader(&mut self) -> Result<Option<Duration>, Failure>;
    /// Returns what a reader of the figures must know about this measurement.
    fn note(&mut self) -> Result<Option<String>, Failure> {
        Ok(None)
    }
}

fn measure(contender: &mut dyn Contender, time: Duration) -> Result<Figures, Failure> {
    for _ in 0..100 {
        contender.one()?;
    }
    let begun = Instant::now();
    let mut latency = vec![];
    while begun.elapsed() < time {
        let start = Instant::now();
        contender.one()?;
        latency.push(start.elapsed().as_secs_f64() * 1e6);
    }
    latency.sort_by(f64::total_cmp);
    let note = contender.note()?;
    contender.many(time / 5)?;
    let begun = Instant::now();
    let count = contender.many(time)?;
    let per_second = (count > 0).then(|| count as f64 / begun.elapsed().as_secs_f64());
    let mut stalls = vec![];
    for _ in 0..KILLS {
        let Some(stall) = contender.kill_leader()? else { break };
        stalls.push(stall.as_secs_f64() * 1e3);
    }
    Ok(Figures { latency, per_second, stalls, note })
}

type Start = fn(&std::path::Path) -> Result<Box<dyn Contender>, Failure>;

const ROWS: &[(&str, Start)] = &[
    ("TCP", tcp::start),
    ("1 member, interval", |at| group::start(at, 1, group::Interval::Yes)),
    ("1 member, always", |at| group::start(at, 1, group::Interval::No)),
    ("3 members, interval", |at| group::start(at, 3, group::Interval::Yes)),
    ("3 members, always", |at| group::start(at, 3, group::Interval::No)),
    ("5 members, interval", |at| group::start(at, 5, group::Interval::Yes)),
    ("events by multicast", |at| events::start(at, events::Way::Multicast)),
    ("events over TCP", |at| events::start(at, events::Way::Tcp)),
    ("NATS R1", |at| nats::start(at, 1)),
    ("NATS R3", |at| nats::start(at, 3)),
];

/// Measures all rows.
///
/// # Errors
/// If a member or a server does not start, or loses a command.
pub(crate) fn report(options: &Sequencer) -> Result<Report, Failure> {
    let time = Duration::from_secs(options.seconds);
    let mut table = Table {
        name: "sequencer".to_owned(),
        title: format!("Commands of {PAYLOAD_BYTES} B until they are part of the order"),
        corner: "contender".to_owned(),
        columns: ["median µs", "p99 µs", "commands/s", "stall ms, median", "stall ms, longest"]
            .map(str::to_owned)
            .to_vec(),
        definitions: vec![
            (
                "stall".to_owned(),
                format!("how long nothing was ordered after the leader was killed, {KILLS} times"),
            ),
            (
                "events".to_owned(),
                "from a command on the bus of a host to its event on the bus of another one: 3 members, interval, and a host \
                 without a member, in network namespaces"
                    .to_owned(),
            ),
        ],
        ..Table::default()
    };
    let mut report = Report {
        name: "sequencer".to_owned(),
        title: "The sequencer beside TCP and NATS JetStream".to_owned(),
        conditions: machine::describe(),
        ..Report::default()
    };
    let mut found = std::collections::BTreeMap::new();
    for (name, start) in ROWS {
        if options.only.as_deref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let directory = match &options.directory {
            Some(below) => toroni_testkit::Directory::below(below),
            None => toroni_testkit::Directory::new(),
        };
        let figures = match start(directory.path()) {
            Ok(mut contender) => measure(contender.as_mut(), time)?,
            // What it needs may not be here.
            Err(failure) if name.starts_with("NATS") || name.starts_with("events") => {
                report.notes.push(format!("{name} was not measured: {failure}"));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        report.notes.extend(figures.note.iter().map(|note| format!("{name}: {note}")));
        let at = |percent| figures.latency.get(figures.latency.len() * percent / 100).copied();
        let mut stalls = figures.stalls.clone();
        stalls.sort_by(f64::total_cmp);
        let number = |value: Option<f64>| value.map_or_else(Cell::none, Cell::number);
        let cells = [
            at(50),
            at(99),
            figures.per_second,
            stalls.get(stalls.len() / 2).copied(),
            stalls.last().copied(),
        ];
        table.rows.push(((*name).to_owned(), cells.map(number).to_vec()));
        found.insert(*name, (at(50), figures.per_second, stalls.last().copied()));
    }
    report.goals = goals(&found);
    report.tables.push(table);
    report.condition("each measurement", format!("{} s", options.seconds));
    let logs = options.directory.as_ref().map(|below| below.display().to_string());
    report.condition("logs", logs.as_deref().unwrap_or("in memory, so no disk is waited for"));
    report.notes.push(
        "NATS 2.9 has no setting that syncs before it acknowledges: compare it with `interval`."
            .to_owned(),
    );
    Ok(report)
}

type Found = std::collections::BTreeMap<&'static str, (Option<f64>, Option<f64>, Option<f64>)>;

/// The goals whose rows were measured.
fn goals(found: &Found) -> Vec<Goal> {
    let latency = |name| found.get(name).and_then(|row| row.0);
    let rate = |name| found.get(name).and_then(|row| row.1);
    let ratio = |what: &str, one: Option<f64>, other: Option<f64>, bound| {
        let measured = one? / other?;
        let (what, unit) = (what.to_owned(), "×".to_owned());
        Some(Goal { what, unit, reference: None, bound, measured })
    };
    let (one, three) = ("1 member, interval", "3 members, interval");
    let mut goals: Vec<Goal> = [
        ratio("latency, 1 member / TCP", latency(one), latency("TCP"), Bound::AtMost(4.0)),
        ratio("latency, 3 members / 1", latency(three), latency(one), Bound::AtMost(2.5)),
        ratio("latency, 3 members / R1", latency(three), latency("NATS R1"), Bound::AtMost(3.0)),
        ratio("latency, 3 members / R3", latency(three), latency("NATS R3"), Bound::AtMost(1.0)),
        ratio("rate, 1 member / R1", rate(one), rate("NATS R1"), Bound::AtLeast(1.3)),
        ratio("rate, 3 members / R3", rate(three), rate("NATS R3"), Bound::AtLeast(5.0)),
    ]
    .into_iter()
    .flatten()
    .collect();
    goals.extend(rate(three).map(|measured| Goal {
        what: "commands of 64 B, 3 members".to_owned(),
        unit: "1/s".to_owned(),
        reference: None,
        bound: Bound::AtLeast(500_000.0),
        measured,
    }));
    goals.extend(found.get(three).and_then(|row| row.2).map(|measured| Goal {
        what: "longest stall after a kill of the leader".to_owned(),
        unit: "ms".to_owned(),
        reference: None,
        bound: Bound::AtMost(1500.0),
        measured,
    }));
    goals
}
