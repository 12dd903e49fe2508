//! How the cost of a message grows with the number of subscribers, topics and patterns, with its size and the size of the
//! ring; and the cost of a message that no subscriber wants.
//!
//! One publisher publishes one message at a time, on its topics in turn. In each table one of these dimensions changes
//! and the others stay.

mod perform;

use super::rmp_tcp::message_bytes;
use crate::Failure;
use crate::experiment::{self, Steps, count, sized};
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::{self, Begin, Launch};
use crate::registry::Workload;
use crate::report::{Cell, Chart, Report, Scale, Series, Table};
use crate::summary::Summary;
use clap::Args;
use serde::{Deserialize, Serialize};
use toroni_process::units::parse_bytes;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench scale --subscribers 1,2,4 --topics 1,1000 --plot scale.svg

One process publishes. Each list results in a table and a chart; all charts are in one file.")]
pub(crate) struct Scaling {
    #[command(flatten)]
    run: RunOptions,
    /// Messages per run; more with many topics, fewer if they are large [default: 1 million; 100000 with --quick, 10 million with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    messages: Option<u64>,
    /// Numbers of subscribing processes [default: 1 to 64]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=100))]
    subscribers: Vec<u16>,
    /// Numbers of topics; messages are published on each in turn [default: 1 to 100000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    topics: Vec<u32>,
    /// Numbers of patterns of the subscriber [default: 1 to 1000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    patterns: Vec<u32>,
    /// Sizes of a message, at least 8 bytes [default: 8 to 64KiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = message_bytes)]
    sizes: Vec<usize>,
    /// Sizes of the ring, powers of two [default: 64KiB to 64MiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = parse_bytes)]
    capacities: Vec<u64>,
}

impl Workload for Scaling {
    const NAME: &'static str = "scale";
    const SUMMARY: &'static str =
        "How the cost of a message grows with subscribers, topics, patterns and sizes";
    type Work = Plan;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let mut options = Options::of(self.run.length());
        options.repetitions = self.run.repetitions.unwrap_or(options.repetitions);
        options.messages = self.messages.unwrap_or(options.messages);
        replace(&mut options.subscribers, &self.subscribers);
        replace(&mut options.topics, &self.topics);
        replace(&mut options.patterns, &self.patterns);
        replace(&mut options.sizes, &self.sizes);
        replace(&mut options.capacities, &self.capacities);
        run(launch, &options)
    }
}

/// What to measure, and how often. Each list is one table.
struct Options {
    /// Messages of a run; more if there are many topics, fewer if they are large.
    messages: u64,
    /// Bytes of all messages of a run, at most.
    most_bytes: u64,
    subscribers: Vec<u16>,
    topics: Vec<u32>,
    patterns: Vec<u32>,
    /// Bytes of a message.
    sizes: Vec<usize>,
    /// Bytes of the ring.
    capacities: Vec<u64>,
    /// How often each row is measured, in turn.
    repetitions: u32,
}

impl Options {
    fn of(length: RunLength) -> Self {
        let usual = Self {
            messages: 1_000_000,
            most_bytes: 2 << 30,
            subscribers: vec![1, 2, 4, 8, 16, 32, 64],
            topics: vec![1, 10, 100, 1_000, 10_000, 100_000],
            patterns: vec![1, 10, 100, 1_000],
            sizes: vec![8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10],
            capacities: vec![64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20],
            repetitions: 5,
        };
        match length {
            RunLength::Quick => Self {
                messages: 100_000,
                most_bytes: 128 << 20,
                subscribers: vec![1, 4, 16],
                topics: vec![1, 100, 10_000],
                patterns: vec![1, 100, 1_000],
                sizes: vec![8, 256, 4 << 10, 64 << 10],
                capacities: vec![64 << 10, 1 << 20, 16 << 20],
                repetitions: 2,
            },
            RunLength::Usual => usual,
            RunLength::Full => Self { messages: 10_000_000, most_bytes: 8 << 30, ..usual },
        }
    }
}

/// Whether the subscribers want the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Audience {
    Wanting,
    NotWanting,
}

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    subscribers: u16,
    topics: u32,
    patterns: u32,
    message_bytes: usize,
    capacity_bytes: u64,
    messages: u64,
    audience: Audience,
}

/// The values in all tables but the one in which they change.
const SUBSCRIBERS: u16 = 1;
const MESSAGE: usize = 16;
const CAPACITY: u64 = 4 << 20;
/// Messages on each topic, at least: the first one costs more.
const MESSAGES_PER_TOPIC: u64 = 5;

/// Measures all rows of all tables in turn.
fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    options.sizes.iter().try_for_each(|size| experiment::check_fits(*size, CAPACITY))?;
    options.capacities.iter().try_for_each(|ring| experiment::check_fits(MESSAGE, *ring))?;
    let dimensions = dimensions(options);
    let costs = measure(launch, options, &dimensions)?;
    let mut report = Report {
        name: Scaling::NAME.to_owned(),
        title: "How the cost of a message grows".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    report.condition(
        "work",
        format!(
            "1 publisher, one message at a time, {} in a run (at least {MESSAGES_PER_TOPIC} on each topic, \
             at most {} together)",
            count(options.messages),
            sized(options.most_bytes)
        ),
    );
    report.condition(
        "unless varied",
        format!(
            "{SUBSCRIBERS} subscriber, 1 topic, 1 pattern, {MESSAGE} bytes, ring of {}",
            sized(CAPACITY)
        ),
    );
    report.condition(
        "Toroni",
        "policy wait:forever, prefaulted; subscribers wait with the default strategy",
    );
    report.condition("pinning", "none; more processes than cores where there are many subscribers");
    for (dimension, costs) in dimensions.iter().zip(&costs) {
        report.tables.push(dimension.table(costs));
        report.charts.extend(dimension.chart(costs));
    }
    report.notes.push("lost = 0, doubled = 0, out of order = 0 in every run.".to_owned());
    Ok(report)
}

/// One table: what changes, and its rows.
struct Dimension {
    name: &'static str,
    title: &'static str,
    /// Above the row labels, and below the chart; empty if the rows are not numbers.
    corner: &'static str,
    rows: Vec<Row>,
}

struct Row {
    label: String,
    x: f64,
    plan: Plan,
}

/// The cost of one run, in nanoseconds per message.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Time from the first message published until the last subscriber has the last one.
    all: f64,
    /// CPU time of the publisher.
    publisher: f64,
    /// Mean CPU time of the subscribers.
    subscriber: Option<f64>,
}

fn dimensions(options: &Options) -> Vec<Dimension> {
    let base = Plan {
        subscribers: SUBSCRIBERS,
        topics: 1,
        patterns: 1,
        message_bytes: MESSAGE,
        capacity_bytes: CAPACITY,
        messages: options.messages,
        audience: Audience::Wanting,
    };
    let row = |label: String, x: u64, plan: Plan| {
        let plan = limited(options, plan);
        Row { label, x: experiment::float(x), plan }
    };
    let subscribers = options.subscribers.iter().map(|&subscribers| {
        row(subscribers.to_string(), subscribers.into(), Plan { subscribers, ..base.clone() })
    });
    let topics = options
        .topics
        .iter()
        .map(|&topics| row(count(topics.into()), topics.into(), Plan { topics, ..base.clone() }));
    let patterns = options.patterns.iter().map(|&patterns| {
        row(count(patterns.into()), patterns.into(), Plan { patterns, ..base.clone() })
    });
    let sizes = options.sizes.iter().map(|&message_bytes| {
        let bytes = message_bytes as u64;
        row(sized(bytes), bytes, Plan { message_bytes, ..base.clone() })
    });
    let capacities = options.capacities.iter().map(|&capacity_bytes| {
        row(sized(capacity_bytes), capacity_bytes, Plan { capacity_bytes, ..base.clone() })
    });
    let audiences = [
        ("no subscriber", 0, Audience::NotWanting),
        ("1 that does not want it", 1, Audience::NotWanting),
        ("4 that do not want it", 4, Audience::NotWanting),
        ("1 that wants it", 1, Audience::Wanting),
        ("4 that want it", 4, Audience::Wanting),
    ];
    let audiences = (0..).zip(audiences).map(|(index, (label, subscribers, audience))| {
        row(label.to_owned(), index, Plan { subscribers, audience, ..base.clone() })
    });
    let dimension = |name, title, corner, rows: Vec<Row>| Dimension { name, title, corner, rows };
    let all = vec![
        dimension("subscribers", "Subscribing processes", "subscribers", subscribers.collect()),
        dimension("topics", "Topics, published on in turn", "topics", topics.collect()),
        dimension("patterns", "Patterns of the subscriber", "patterns", patterns.collect()),
        dimension("size", "Size of a message", "bytes", sizes.collect()),
        dimension("ring", "Size of the ring", "bytes", capacities.collect()),
        dimension("wanted", "A message that no subscriber wants", "", audiences.collect()),
    ];
    all.into_iter().filter(|dimension| !dimension.rows.is_empty()).collect()
}

/// Limits the number of messages to what makes sense for a run.
fn limited(options: &Options, plan: Plan) -> Plan {
    let most = (options.most_bytes / plan.message_bytes as u64).max(1);
    let least = u64::from(plan.topics) * MESSAGES_PER_TOPIC;
    Plan { messages: plan.messages.min(most).max(least), ..plan }
}

/// Returns the costs of each repetition, for each table and row.
fn measure(
    launch: &Launch<'_>,
    options: &Options,
    dimensions: &[Dimension],
) -> Result<Vec<Vec<Vec<Cost>>>, Failure> {
    let rows: usize = dimensions.iter().map(|dimension| dimension.rows.len()).sum();
    let mut steps = Steps::new(launch, options.repetitions, rows);
    let mut costs: Vec<Vec<Vec<Cost>>> =
        dimensions.iter().map(|dimension| vec![Vec::new(); dimension.rows.len()]).collect();
    for _ in 0..options.repetitions {
        for (dimension, costs) in dimensions.iter().zip(&mut costs) {
            for (row, costs) in dimension.rows.iter().zip(costs) {
                steps.next();
                costs.push(run_once(launch, &row.plan)?);
            }
        }
    }
    Ok(costs)
}

fn run_once(launch: &Launch<'_>, plan: &Plan) -> Result<Cost, Failure> {
    let setup = experiment::setup(1, plan.subscribers, plan.message_bytes, plan.capacity_bytes);
    let outcome = process_group::run(launch, &setup, plan, Begin::AtTheGate)?;
    let Some(sent) = outcome.senders.first() else {
        return Err(Failure::new("a run without a publisher measures nothing"));
    };
    let expected = if plan.audience == Audience::Wanting { plan.messages } else { 0 };
    for received in &outcome.receivers {
        if (received.messages, received.wrong) != (expected, 0) {
            return Err(Failure::new(format!("a subscriber saw {received:?} in {plan:?}")));
        }
    }
    let ends = outcome.receivers.iter().map(|received| received.ended_ns);
    let ended_ns = ends.max().unwrap_or(sent.ended_ns);
    let each = |nanoseconds: u64| experiment::float(nanoseconds) / experiment::float(plan.messages);
    let cpu: Vec<f64> = outcome.receivers.iter().map(|received| each(received.cpu_ns)).collect();
    Ok(Cost {
        all: each(ended_ns.saturating_sub(sent.began_ns)),
        publisher: each(sent.cpu_ns),
        subscriber: Summary::of(&cpu).map(|summary| summary.mean),
    })
}

/// Picks a figure of a cost.
type Pick = fn(&Cost) -> Option<f64>;

const SHOWN: [(&str, Pick); 3] = [
    ("all of it", |cost| Some(cost.all)),
    ("publisher, CPU", |cost| Some(cost.publisher)),
    ("subscriber, CPU", |cost| cost.subscriber),
];

fn median(costs: &[Cost], pick: Pick) -> Option<Summary> {
    let values: Option<Vec<f64>> = costs.iter().map(pick).collect();
    Summary::of(&values?)
}

impl Dimension {
    fn table(&self, costs: &[Vec<Cost>]) -> Table {
        let rows = self.rows.iter().zip(costs).map(|(row, costs)| {
            let mut cells: Vec<Cell> = SHOWN
                .iter()
                .map(|(_, pick)| median(costs, *pick).map_or_else(Cell::none, Cell::median))
                .collect();
            let all = median(costs, SHOWN[0].1);
            cells.push(all.map_or_else(Cell::none, |all| Cell::number(1e3 / all.median)));
            cells.push(all.map_or_else(Cell::none, |all| {
                let bytes = experiment::float(row.plan.message_bytes as u64);
                Cell::number(bytes / all.median)
            }));
            (row.label.clone(), cells)
        });
        let mut columns: Vec<String> = SHOWN.map(|(label, _)| format!("{label}, ns")).to_vec();
        columns.extend(["M msg/s", "GB/s"].map(str::to_owned));
        Table {
            name: self.name.to_owned(),
            title: format!("{}: cost of a message (medians)", self.title),
            corner: self.corner.to_owned(),
            columns,
            rows: rows.collect(),
            definitions: vec![
                (
                    "all of it".to_owned(),
                    "from the first message published until the last subscriber has the last one"
                        .to_owned(),
                ),
                (
                    "CPU".to_owned(),
                    "CPU time of that process, including its waits; mean of all such processes"
                        .to_owned(),
                ),
            ],
            ..Table::default()
        }
    }

    /// Makes a chart, or `None` for a single row.
    fn chart(&self, costs: &[Vec<Cost>]) -> Option<Chart> {
        let series = SHOWN.map(|(label, pick)| {
            let points = self.rows.iter().zip(costs);
            let points = points
                .filter_map(|(row, costs)| Some((row.x, median(costs, pick)?.median)))
                .collect();
            Series::line(label, points)
        });
        let is_number = !self.corner.is_empty();
        let labels = self.rows.iter().map(|row| row.label.clone());
        (self.rows.len() > 1).then(|| Chart {
            title: format!("{}: cost of a message", self.title),
            x_label: self.corner.to_owned(),
            y_label: "ns".to_owned(),
            x_scale: Scale::Logarithmic,
            // Bars are compared by their length.
            y_scale: if is_number { Scale::Logarithmic } else { Scale::Linear },
            categories: if is_number { Vec::new() } else { labels.collect() },
            series: series.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_long_enough_for_topics_and_short_enough_for_large_messages() {
        let options =
            Options { messages: 1000, most_bytes: 1 << 20, ..Options::of(RunLength::Usual) };
        for dimension in dimensions(&options) {
            for row in dimension.rows {
                let plan = row.plan;
                assert!(plan.messages >= u64::from(plan.topics) * MESSAGES_PER_TOPIC);
                assert!(plan.messages * plan.message_bytes as u64 <= 8 << 20, "{plan:?}");
                assert!(plan.messages > 0);
            }
        }
    }

    #[test]
    fn an_empty_list_is_no_table() {
        let options = Options { topics: Vec::new(), ..Options::of(RunLength::Usual) };
        assert!(dimensions(&options).iter().all(|dimension| dimension.name != "topics"));
    }
}
