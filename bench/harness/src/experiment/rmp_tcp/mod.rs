//! Figure 8 of the Toroni paper: one writer and one reader, messages of one size; the ratio of the time over TCP on the
//! loopback interface to the time over Toroni.
//!
//! The clock runs from before the first message is written until the reader has checked both ends of the last one. The
//! fair pairs are one write per message against one publish per message, and a writer that collects messages in a buffer
//! against bursts. A reader of Toroni copies each message, as `receive` does, or reads it in place, as `borrow` does; a
//! reader of TCP gets a copy in any case.

mod message;
mod perform;
mod ways;

use crate::Failure;
use crate::experiment::{self, Steps, count, ratios, sized};
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::{self, Begin, Launch};
use crate::registry::Workload;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::summary::Summary;
use clap::Args;
use message::SMALLEST;
use serde::{Deserialize, Serialize};
use toroni_process::units::parse_bytes;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench rmp-tcp --sizes 8,256,4KiB --plot figure8.svg

One writer process and one reader process. One TCP write per message is compared with one publish per message; a TCP \
writer that collects messages in a buffer is compared with bursts.")]
pub(crate) struct RmpTcp {
    #[command(flatten)]
    run: RunOptions,
    /// Messages per run [default: 100000; fewer large messages with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    messages: Option<u64>,
    /// Sizes of a message, at least 8 bytes; one row for each [default: 8 to 64KiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = message_bytes)]
    sizes: Vec<usize>,
    /// Size of Toroni's ring, a power of two [default: 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    capacity: Option<u64>,
}

/// Parses the size of a message that contains its number.
pub(super) fn message_bytes(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_bytes(text)?) {
        Ok(bytes) if bytes >= SMALLEST => Ok(bytes),
        _ => Err(format!("a message contains its number: use {SMALLEST} bytes or more")),
    }
}

impl Workload for RmpTcp {
    const NAME: &'static str = "rmp-tcp";
    const SUMMARY: &'static str =
        "One writer and one reader, compared with TCP: Figure 8 of the Toroni paper";
    type Work = Plan;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let mut options = Options::of(self.run.length());
        options.repetitions = self.run.repetitions.unwrap_or(options.repetitions);
        options.messages = self.messages.unwrap_or(options.messages);
        options.capacity_bytes = self.capacity.unwrap_or(options.capacity_bytes);
        replace(&mut options.sizes, &self.sizes);
        run(launch, &options)
    }
}

/// What to measure, and how often.
struct Options {
    /// Messages of a run.
    messages: u64,
    /// Bytes of all messages of a run, at most: if they are large, there are fewer messages.
    most_bytes: u64,
    /// Bytes of a message, one size for each row.
    sizes: Vec<usize>,
    /// Bytes of Toroni's ring.
    capacity_bytes: u64,
    /// How often each way is measured, in turn.
    repetitions: u32,
}

impl Options {
    fn of(length: RunLength) -> Self {
        let usual = Self {
            messages: 100_000,
            most_bytes: u64::MAX,
            sizes: (3..=16).map(|power| 1 << power).collect(),
            capacity_bytes: 4 << 20,
            repetitions: 5,
        };
        match length {
            RunLength::Quick => Self {
                sizes: [3, 6, 8, 10, 12, 14, 16].map(|power| 1 << power).to_vec(),
                most_bytes: 1 << 30,
                repetitions: 2,
                ..usual
            },
            RunLength::Usual => usual,
            RunLength::Full => Self { repetitions: 20, ..usual },
        }
    }

    /// Returns the number of messages of a run with messages of this size.
    fn messages_of(&self, bytes: usize) -> u64 {
        self.messages.min(self.most_bytes / bytes as u64).max(1)
    }
}

/// A way from the writer to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// A write for each message.
    Tcp,
    /// Messages are collected in a buffer, and written when it is full.
    TcpBuffered,
    /// A publish for each message; the reader copies.
    Toroni,
    /// A publish for each message; the reader reads it in place.
    ToroniInPlace,
    /// Bursts; the reader copies small messages and reads large ones in place.
    ToroniBurst,
}

const WAYS: [Way; 5] =
    [Way::Tcp, Way::Toroni, Way::ToroniInPlace, Way::TcpBuffered, Way::ToroniBurst];

impl Way {
    fn label(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::TcpBuffered => "TCP, buffered",
            Self::Toroni => "Toroni",
            Self::ToroniInPlace => "in place",
            Self::ToroniBurst => "bursts",
        }
    }
}

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    way: Way,
    messages: u64,
    message_bytes: usize,
    capacity_bytes: u64,
}

/// Up to this size the higher goal applies.
const SMALL: usize = 256;
const GOAL_SMALL: f64 = 25.0;
const GOAL_LARGE: f64 = 10.0;

/// Ratios that the paper's prototype reached on a machine with 2 cores, by size.
const PROTOTYPE: [(usize, f64); 6] =
    [(8, 22.0), (64, 12.7), (256, 10.0), (1024, 2.7), (4096, 1.2), (8192, 1.05)];

/// Measures all ways for all sizes in turn.
fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    check(options)?;
    let times = measure(launch, options)?;
    let mut report = Report {
        name: RmpTcp::NAME.to_owned(),
        title: "One writer, one reader: TCP on the loopback interface and Toroni".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    report.condition(
        "work",
        match options.sizes.iter().map(|bytes| options.messages_of(*bytes)).min() {
            Some(fewest) if fewest < options.messages => format!(
                "{} messages of each size, fewer of large sizes, at least {}",
                count(options.messages),
                count(fewest)
            ),
            _ => format!("{} messages of each size", count(options.messages)),
        },
    );
    report.condition("pinning", "none; 2 processes at work");
    report.condition(
        "TCP",
        "TCP_NODELAY, each message after its length; the reader has a buffer of 256 KiB and blocks in read",
    );
    report.condition(
        "Toroni",
        format!(
            "ring of {}, policy wait:forever, prefaulted; the reader waits with the default strategy: it polls \
             briefly, then yields, then sleeps",
            sized(options.capacity_bytes)
        ),
    );
    report.tables.push(ratio_table(options, &times));
    report.tables.push(time_table(options, &times));
    report.goals = goals(options, &times);
    report.notes.push(format!(
        "lost = 0, doubled = 0, out of order = 0 in every run. The writer makes each message as a whole; \
         the reader checks its length and the number at both of its ends. Toroni's ring holds {} \
         messages of the largest size: runs with more messages than fit the ring are sustained.",
        options.capacity_bytes / options.sizes.iter().copied().max().unwrap_or(1) as u64
    ));
    report.charts.push(chart(options, &times));
    Ok(report)
}

fn check(options: &Options) -> Result<(), Failure> {
    if let Some(size) = options.sizes.iter().find(|size| **size < SMALLEST) {
        return Err(Failure::new(format!("a message of {size} bytes: use {SMALLEST} or more")));
    }
    options.sizes.iter().try_for_each(|size| experiment::check_fits(*size, options.capacity_bytes))
}

/// The seconds of each repetition, for each way and size.
type Times = [Vec<Vec<f64>>; WAYS.len()];

fn measure(launch: &Launch<'_>, options: &Options) -> Result<Times, Failure> {
    let mut times = WAYS.map(|_| vec![Vec::new(); options.sizes.len()]);
    let mut steps = Steps::new(launch, options.repetitions, options.sizes.len() * WAYS.len());
    for _ in 0..options.repetitions {
        for (row, bytes) in options.sizes.iter().enumerate() {
            for (index, way) in WAYS.into_iter().enumerate() {
                steps.next();
                let plan = Plan {
                    way,
                    messages: options.messages_of(*bytes),
                    message_bytes: *bytes,
                    capacity_bytes: options.capacity_bytes,
                };
                times[index][row].push(run_once(launch, &plan)?);
            }
        }
    }
    Ok(times)
}

/// Returns the seconds of one run.
fn run_once(launch: &Launch<'_>, plan: &Plan) -> Result<f64, Failure> {
    let setup = experiment::setup(1, 1, plan.message_bytes, plan.capacity_bytes);
    let outcome = process_group::run(launch, &setup, plan, Begin::AtTheGate)?;
    let (Some(wrote), Some(read)) = (outcome.senders.first(), outcome.receivers.first()) else {
        return Err(Failure::new("a run without a writer or a reader measures nothing"));
    };
    let expected = message::Seen { messages: plan.messages, wrong: 0 };
    if read.seen != expected {
        return Err(Failure::new(format!("the reader saw {:?} in {plan:?}", read.seen)));
    }
    Ok(experiment::seconds(read.ended_ns.saturating_sub(wrote.began_ns)))
}

fn of(times: &Times, way: Way, row: usize) -> &[f64] {
    let index = WAYS.iter().position(|other| *other == way);
    index.and_then(|index| times[index].get(row)).map_or(&[], Vec::as_slice)
}

/// The pairs that are compared, with the titles of their columns.
const PAIRS: [(&str, Way, Way); 4] = [
    ("TCP / Toroni", Way::Tcp, Way::Toroni),
    ("TCP / in place", Way::Tcp, Way::ToroniInPlace),
    ("buffered / bursts", Way::TcpBuffered, Way::ToroniBurst),
    ("buffered / in place", Way::TcpBuffered, Way::ToroniInPlace),
];

fn ratio(times: &Times, row: usize, (_, over, under): (&str, Way, Way)) -> Option<Summary> {
    Summary::of(&ratios(of(times, over, row), of(times, under, row)))
}

fn ratio_table(options: &Options, times: &Times) -> Table {
    let rows = options.sizes.iter().enumerate().map(|(row, bytes)| {
        let cell = |pair| ratio(times, row, pair).map_or_else(Cell::none, Cell::median);
        (sized(*bytes as u64), PAIRS.map(cell).to_vec())
    });
    let definitions = [
        ("TCP", "one write per message"),
        ("Toroni", "one publish and one receive, which copies, per message"),
        ("in place", "one publish and one borrow, which does not copy, per message"),
        ("buffered", "TCP, one write per 256 KiB that the writer has collected"),
        (
            "bursts",
            "bursts of up to 256 messages and 64 KiB; one receive per message, from 1 KiB on one borrow",
        ),
    ];
    Table {
        name: "ratio".to_owned(),
        title: "Time over TCP / time over Toroni (medians of the ratios of each repetition)"
            .to_owned(),
        unit: "times".to_owned(),
        corner: "message".to_owned(),
        columns: PAIRS.map(|(label, ..)| label.to_owned()).to_vec(),
        rows: rows.collect(),
        definitions: definitions.map(|(term, text)| (term.to_owned(), text.to_owned())).to_vec(),
    }
}

fn time_table(options: &Options, times: &Times) -> Table {
    let rows = options.sizes.iter().enumerate().map(|(row, bytes)| {
        let cell = |way| {
            let per_message = of(times, way, row)
                .iter()
                .map(|seconds| seconds * 1e9 / experiment::float(options.messages_of(*bytes)))
                .collect::<Vec<_>>();
            Summary::of(&per_message).map_or_else(Cell::none, Cell::median)
        };
        (sized(*bytes as u64), WAYS.map(cell).to_vec())
    });
    Table {
        name: "time".to_owned(),
        title: "Nanoseconds for a message (medians)".to_owned(),
        unit: "ns".to_owned(),
        corner: "message".to_owned(),
        columns: WAYS.map(|way| way.label().to_owned()).to_vec(),
        rows: rows.collect(),
        ..Table::default()
    }
}

/// Returns a goal for each size, with the better of the two ways to read.
fn goals(options: &Options, times: &Times) -> Vec<Goal> {
    let goal = |(row, bytes): (usize, &usize)| {
        let copied = ratio(times, row, PAIRS[0])?.median;
        let in_place = ratio(times, row, PAIRS[1])?.median;
        let how = if in_place > copied { "in place" } else { "copied" };
        let bound = if *bytes <= SMALL { GOAL_SMALL } else { GOAL_LARGE };
        let reference = PROTOTYPE.iter().find(|(size, _)| size == bytes);
        Some(Goal {
            what: format!("TCP / Toroni, {}, read {how}", sized(*bytes as u64)),
            unit: "times".to_owned(),
            reference: reference.map(|(_, ratio)| (*ratio, "the prototype".to_owned())),
            bound: Bound::AtLeast(bound),
            measured: copied.max(in_place),
        })
    };
    options.sizes.iter().enumerate().filter_map(goal).collect()
}

fn chart(options: &Options, times: &Times) -> Chart {
    let line = |pair: (&str, Way, Way)| {
        let points = options.sizes.iter().enumerate().filter_map(|(row, bytes)| {
            Some((experiment::float(*bytes as u64), ratio(times, row, pair)?.median))
        });
        Series::line(pair.0, points.collect())
    };
    let mut series: Vec<Series> = PAIRS[..3].iter().map(|pair| line(*pair)).collect();
    let goal = |bytes: &usize| {
        let bound = if *bytes <= SMALL { GOAL_SMALL } else { GOAL_LARGE };
        (experiment::float(*bytes as u64), bound)
    };
    series.push(Series::dashed("goal", options.sizes.iter().map(goal).collect()));
    let prototype = PROTOTYPE.map(|(bytes, ratio)| (experiment::float(bytes as u64), ratio));
    series.push(Series::dashed("TCP / prototype", prototype.to_vec()));
    Chart {
        title: "Time over TCP / time over Toroni".to_owned(),
        x_label: "bytes of a message".to_owned(),
        y_label: "times".to_owned(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series,
    }
}
