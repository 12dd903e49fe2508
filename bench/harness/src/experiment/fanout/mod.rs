//! Fan-out in one thread, after Coral Blocks' article on multicast and shared memory in CoralSequencer: one publisher,
//! and several subscribers that one thread serves in turn. How does the latency of the first and of the last subscriber
//! grow with their number?
//!
//! Messages of 16 bytes are published one at a time at equal intervals, so that no message waits for another. Publisher
//! and subscribers poll; none of them sleeps. The latency of a subscriber runs from just before the message is handed
//! over until that subscriber has it, in its turn.

mod line;
mod node;
mod perform;
mod profile;
mod ways;

use crate::Failure;
use crate::experiment::{self, Steps, count};
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::{self, Begin, Launch};
use crate::registry::Workload;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use clap::Args;
pub use line::Line;
use perform::{Sent, Served};
pub use profile::{Profile, micros, profile_table};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use toroni_process::units::parse_duration;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench fanout --subscribers 1,10,20 --interval 100us --plot fanout.svg

One process publishes; the only thread of another process serves all subscribers in turn. Both processes poll. Measured \
in turn: Toroni with a subscriber each, Toroni with one router, UDP multicast with a socket each.")]
pub(crate) struct Fanout {
    #[command(flatten)]
    run: RunOptions,
    /// Messages per run [default: 40000; 3000 with --quick, 200000 with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    messages: Option<u64>,
    /// Numbers of subscribers; one row for each [default: 1,2,3,4,5,10,15,20]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=100))]
    subscribers: Vec<u16>,
    /// Time from one message to the next; must be longer than the slowest way needs for a message
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if (Duration::from_micros(1)..=Duration::from_secs(1)).contains(&interval) {
        Ok(interval)
    } else {
        Err("an interval is from 1us to 1s".to_owned())
    }
}

impl Workload for Fanout {
    const NAME: &'static str = "fanout";
    const SUMMARY: &'static str =
        "Latency of subscribers that share a thread, compared with UDP multicast";
    type Work = Plan;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let mut options = Options::of(self.run.length());
        options.repetitions = self.run.repetitions.unwrap_or(options.repetitions);
        options.messages = self.messages.unwrap_or(options.messages);
        options.interval_ns = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        replace(&mut options.subscribers, &self.subscribers);
        run(launch, &options)
    }
}

/// What to measure, and how often.
struct Options {
    /// Messages of a run.
    messages: u64,
    /// Numbers of subscribers, one for each row.
    subscribers: Vec<u16>,
    /// Nanoseconds between two messages: more than the slowest way needs for one.
    interval_ns: u64,
    /// How often each way is measured, in turn.
    repetitions: u32,
}

impl Options {
    fn of(length: RunLength) -> Self {
        let usual = Self {
            messages: 40_000,
            subscribers: PUBLISHED.map(|(subscribers, ..)| subscribers).to_vec(),
            interval_ns: 50_000,
            repetitions: 5,
        };
        match length {
            RunLength::Quick => Self {
                messages: 3_000,
                subscribers: vec![1, 2, 5, 10, 20],
                repetitions: 2,
                ..usual
            },
            RunLength::Usual => usual,
            RunLength::Full => Self { messages: 200_000, ..usual },
        }
    }
}

/// Number of subscribers, and the mean latency of the fastest 90 % of the messages in the published experiment, in
/// microseconds: over multicast, and over its shared memory. The mean of all messages is about 0.2 more.
pub const PUBLISHED: [(u16, f64, f64); 8] = [
    (1, 4.35, 4.954),
    (2, 4.38, 5.239),
    (3, 5.355, 5.457),
    (4, 6.587, 5.577),
    (5, 7.795, 6.068),
    (10, 13.201, 6.455),
    (15, 16.205, 7.202),
    (20, 21.237, 9.213),
];

/// Goals in microseconds: for each additional subscriber, and for a single one.
const GOAL_EACH: f64 = 0.03;
const GOAL_ONE: f64 = 0.3;

/// A way from the publisher to the subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    /// Each subscriber reads the ring by itself.
    Toroni,
    /// One router reads the ring and calls each subscriber.
    ToroniRouter,
    /// Each subscriber has a socket.
    Multicast,
}

const WAYS: [Way; 3] = [Way::Toroni, Way::ToroniRouter, Way::Multicast];

impl Way {
    fn label(self) -> &'static str {
        match self {
            Self::Toroni => "Toroni, a subscriber each",
            Self::ToroniRouter => "Toroni, one router",
            Self::Multicast => "UDP multicast, a socket each",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Toroni => "toroni",
            Self::ToroniRouter => "router",
            Self::Multicast => "multicast",
        }
    }
}

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    way: Way,
    messages: u64,
    subscribers: u16,
    interval_ns: u64,
}

/// The result for one way and one number of subscribers.
#[derive(Clone, Debug)]
struct Measured {
    first: Profile,
    last: Profile,
    /// Number of messages that were handed over at least an interval late.
    late: u64,
}

/// Picks the first or the last subscriber.
type Pick = fn(&Measured) -> &Profile;

/// Measures all ways and numbers of subscribers in turn.
fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    let (measured, lost) = measure(launch, options)?;
    let mut report = Report {
        name: Fanout::NAME.to_owned(),
        title: "Fan-out: subscribers that one thread serves in turn".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    report.condition(
        "work",
        format!(
            "{} messages of {} bytes in each run, one every {} µs",
            count(options.messages),
            node::MESSAGE,
            experiment::float(options.interval_ns) / 1e3
        ),
    );
    report.condition("pinning", "none; 2 processes at work");
    report.condition("waits", "publisher and subscribers poll all the time");
    report.condition(
        "figures",
        "medians of the repetitions; min and max are those of all repetitions",
    );
    for (name, title, figure) in [
        ("fastest", "Mean latency of the fastest 90 % of the messages, µs", judged as fn(&_) -> _),
        ("mean", "Mean latency of all messages, µs", mean),
    ] {
        report.tables.push(summary_table(options, &measured, name, title, figure));
    }
    for (way, rows) in WAYS.iter().zip(&measured) {
        report.tables.push(detail_table(options, *way, "first", rows, |row| &row.first));
        report.tables.push(detail_table(options, *way, "last", rows, |row| &row.last));
    }
    report.goals = goals(options, &measured);
    let late: u64 = measured.iter().flatten().map(|row| row.late).sum();
    let sent = options.messages
        * u64::from(options.repetitions)
        * (options.subscribers.len() * WAYS.len()) as u64;
    report.notes.push(format!(
        "lost or out of order: {} over Toroni, {} over multicast. Handed over late, because another \
         process ran: {} of {} messages.",
        count(lost[0] + lost[1]),
        count(lost[2]),
        count(late),
        count(sent)
    ));
    report.charts.push(chart(options, &measured));
    Ok(report)
}

/// Returns a row for each number of subscribers, for each way; and the number of lost messages of each way.
fn measure(
    launch: &Launch<'_>,
    options: &Options,
) -> Result<([Vec<Measured>; WAYS.len()], [u64; WAYS.len()]), Failure> {
    let mut runs = WAYS.map(|_| vec![Vec::new(); options.subscribers.len()]);
    let mut lost = [0; WAYS.len()];
    let mut steps = Steps::new(launch, options.repetitions, options.subscribers.len() * WAYS.len());
    for _ in 0..options.repetitions {
        for (row, subscribers) in options.subscribers.iter().enumerate() {
            for (index, way) in WAYS.into_iter().enumerate() {
                steps.next();
                let plan = Plan {
                    way,
                    messages: options.messages,
                    subscribers: *subscribers,
                    interval_ns: options.interval_ns,
                };
                let (sent, served) = run_once(launch, &plan)?;
                lost[index] = u64::saturating_add(lost[index], served.wrong);
                runs[index][row].push((sent, served));
            }
        }
    }
    let mut measured = WAYS.map(|_| Vec::new());
    for (index, rows) in runs.into_iter().enumerate() {
        for runs in rows {
            let of = |pick: fn(&Served) -> &Profile| {
                let profiles: Vec<_> =
                    runs.iter().map(|(_, served)| pick(served).clone()).collect();
                Profile::median(&profiles).ok_or_else(|| Failure::new("nothing was measured"))
            };
            measured[index].push(Measured {
                first: of(|served| &served.first)?,
                last: of(|served| &served.last)?,
                late: runs.iter().map(|(sent, _)| sent.late).sum(),
            });
        }
    }
    Ok((measured, lost))
}

fn run_once(launch: &Launch<'_>, plan: &Plan) -> Result<(Sent, Served), Failure> {
    let setup = experiment::setup(1, 1, node::MESSAGE, 0);
    let outcome = process_group::run(launch, &setup, plan, Begin::AtTheGate)?;
    let (Some(sent), Some(served)) =
        (outcome.senders.into_iter().next(), outcome.receivers.into_iter().next())
    else {
        return Err(Failure::new("a run without a publisher or subscribers measures nothing"));
    };
    if plan.way != Way::Multicast && served.wrong > 0 {
        return Err(Failure::new(format!(
            "{} messages were lost, doubled or out of order in {plan:?}",
            served.wrong
        )));
    }
    Ok((sent, served))
}

/// Returns the figure that the goals judge, in microseconds.
fn judged(profile: &Profile) -> f64 {
    profile.judged_us()
}

/// Returns the mean of all messages, in microseconds.
fn mean(profile: &Profile) -> f64 {
    profile.average / 1e3
}

fn line_of(
    options: &Options,
    rows: &[Measured],
    pick: Pick,
    figure: fn(&Profile) -> f64,
) -> Option<Line> {
    let points: Vec<(f64, f64)> = options
        .subscribers
        .iter()
        .zip(rows)
        .map(|(subscribers, row)| (f64::from(*subscribers), figure(pick(row))))
        .collect();
    Line::through(&points)
}

const FIRST_AND_LAST: [(&str, Pick); 2] = [("first", |row| &row.first), ("last", |row| &row.last)];

/// Makes a table of all ways side by side, with the cost of each additional subscriber.
fn summary_table(
    options: &Options,
    measured: &[Vec<Measured>; WAYS.len()],
    name: &str,
    title: &str,
    figure: fn(&Profile) -> f64,
) -> Table {
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    for (row, subscribers) in options.subscribers.iter().enumerate() {
        let cells = measured.iter().flat_map(|rows| {
            FIRST_AND_LAST.map(|(_, pick)| micros(figure(pick(&rows[row])) * 1e3))
        });
        rows.push((subscribers.to_string(), cells.collect()));
    }
    let cells = measured.iter().flat_map(|rows| {
        FIRST_AND_LAST.map(|(_, pick)| {
            let line = line_of(options, rows, pick, figure);
            line.map_or_else(Cell::none, |line| micros(line.each * 1e3))
        })
    });
    rows.push(("each more".to_owned(), cells.collect()));
    let columns = WAYS
        .iter()
        .flat_map(|way| FIRST_AND_LAST.map(|(which, _)| format!("{} {which}", way.name())));
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: "µs".to_owned(),
        corner: "subscribers".to_owned(),
        columns: columns.collect(),
        rows,
        definitions: WAYS
            .iter()
            .map(|way| (way.name().to_owned(), way.label().to_owned()))
            .chain([(
                "each more".to_owned(),
                "the slope of a straight line through the column, by least squares".to_owned(),
            )])
            .collect(),
    }
}

/// Makes a table with the figures of the published experiment for one subscriber.
fn detail_table(options: &Options, way: Way, which: &str, rows: &[Measured], pick: Pick) -> Table {
    let title = format!("{}: latency of the {which} subscriber", way.label());
    let rows =
        options.subscribers.iter().zip(rows).map(|(subscribers, row)| (*subscribers, pick(row)));
    profile_table(&format!("{}-{which}", way.name()), &title, rows)
}

fn goals(options: &Options, measured: &[Vec<Measured>; WAYS.len()]) -> Vec<Goal> {
    let points = PUBLISHED.map(|(nodes, _, memory)| (f64::from(nodes), memory));
    let published = Line::through(&points).map(|line| line.each);
    let mut goals = Vec::new();
    for (which, pick) in FIRST_AND_LAST {
        if let Some(line) = line_of(options, &measured[0], pick, judged) {
            goals.push(Goal {
                what: format!("fastest 90 %, {which} subscriber: latency for each one more"),
                unit: "µs".to_owned(),
                reference: published.map(|each| (each, "the published shared memory".to_owned())),
                bound: Bound::AtMost(GOAL_EACH),
                measured: line.each,
            });
        }
    }
    let one =
        options.subscribers.iter().zip(&measured[0]).find(|(subscribers, _)| **subscribers == 1);
    if let Some((_, row)) = one {
        goals.push(Goal {
            what: "fastest 90 %, a single subscriber: mean latency".to_owned(),
            unit: "µs".to_owned(),
            reference: Some((PUBLISHED[0].2, "the published shared memory".to_owned())),
            bound: Bound::AtMost(GOAL_ONE),
            measured: judged(&row.first),
        });
    }
    goals
}

fn chart(options: &Options, measured: &[Vec<Measured>; WAYS.len()]) -> Chart {
    let mut series: Vec<Series> = WAYS
        .iter()
        .zip(measured)
        .map(|(way, rows)| {
            let points = options.subscribers.iter().zip(rows);
            let points = points
                .map(|(subscribers, row)| (f64::from(*subscribers), judged(&row.last)))
                .collect();
            Series::line(way.name(), points)
        })
        .collect();
    let published = |pick: fn(&(u16, f64, f64)) -> f64| {
        PUBLISHED.iter().map(|row| (f64::from(row.0), pick(row))).collect()
    };
    series.push(Series::dashed("published multicast", published(|row| row.1)).like(2));
    series.push(Series::dashed("published memory", published(|row| row.2)).like(0));
    Chart {
        title: "Mean latency of the fastest 90 %, at the last subscriber".to_owned(),
        x_label: "subscribers in the thread".to_owned(),
        y_label: "µs".to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series,
    }
}
