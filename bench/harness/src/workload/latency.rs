//! Latency by writers and readers: Table 5 of the Toroni paper (§4.4.1); and the CPU time of readers that have nothing
//! to read.

use super::appendix;
use super::call;
use super::flow::{Flow, Received};
use super::grid::{self, Cells, Grid, Runs};
use crate::Failure;
use crate::machine;
use crate::options::{RunLength, RunOptions};
use crate::process_group::{Begin, Launch};
use crate::registry::Workload;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::sequence::Lengths;
use crate::summary::{Latencies, Summary, mean};
use clap::Args;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench latency --writers 1 --readers 1,16 --repetitions 200 --plot latency.svg
  toroni-bench latency --bystanders 64

With --bystanders, a caller sends a question on one topic and waits for its answer on another one, with no bystanders and with \
that many, in turn.")]
pub(crate) struct Latency {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    cells: Cells,
    /// Messages that each writer publishes [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    messages: Option<u64>,
    /// Also measure writers that do not wait for one another at the start, as in the paper [default: not with --quick]
    #[arg(long)]
    as_started: bool,
    /// Seconds to measure the CPU time of idle readers; 0 to skip that [default: 5; 2 with --quick]
    #[arg(long, value_name = "S")]
    idle: Option<u16>,
    /// Measure instead a call over two topics while this number of subscribers of other topics sleep on the bus
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        conflicts_with_all = ["writers", "readers", "messages", "as_started", "idle"]
    )]
    bystanders: Option<u16>,
}

impl Workload for Latency {
    const NAME: &'static str = "latency";
    const SUMMARY: &'static str = "Time from publish to receive for numbers of writers and readers: Table 5 of the Toroni paper; CPU time of idle readers; a call while others sleep";
    type Work = Flow;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let length = self.run.length();
        if let Some(bystanders) = self.bystanders {
            return call::report(launch, Self::NAME, (length, self.run.repetitions), bystanders);
        }
        let mut options = Options::of(length);
        options.repetitions = self.run.repetitions.unwrap_or(options.repetitions);
        self.cells.choose(&mut options.writers, &mut options.readers);
        options.messages = self.messages.unwrap_or(options.messages);
        options.as_started |= self.as_started;
        if let Some(seconds) = self.idle {
            options.idle = Duration::from_secs(seconds.into());
        }
        run(launch, &options)
    }
}

/// What to measure.
struct Options {
    /// Numbers of writers, and of readers.
    writers: Vec<u16>,
    readers: Vec<u16>,
    /// Messages of each writer.
    messages: u64,
    /// Bytes of the ring.
    capacity: u64,
    /// Runs of each cell.
    repetitions: u32,
    /// Also let each writer begin when it has started, as the paper does.
    as_started: bool,
    /// For how long readers get no message, to measure what that costs; not measured if zero.
    idle: Duration,
}

impl Options {
    fn of(length: RunLength) -> Self {
        let usual = Self {
            writers: vec![1, 2, 4, 7],
            readers: vec![1, 4, 8, 16],
            messages: 10,
            capacity: 4 << 20,
            repetitions: 50,
            as_started: true,
            idle: Duration::from_secs(5),
        };
        match length {
            RunLength::Quick => {
                Self { repetitions: 5, as_started: false, idle: Duration::from_secs(2), ..usual }
            }
            RunLength::Usual => usual,
            RunLength::Full => Self {
                writers: (1..=7).collect(),
                repetitions: 500,
                idle: Duration::from_secs(20),
                ..usual
            },
        }
    }

    fn grid(&self, begin: Begin) -> Grid {
        Grid {
            writers: self.writers.clone(),
            readers: self.readers.clone(),
            repetitions: self.repetitions,
            capacity: self.capacity,
            flow: Flow {
                messages: self.messages,
                lengths: Lengths::Fixed(MESSAGE_BYTES),
                bundle: usize::try_from(self.messages).unwrap_or(usize::MAX),
                stamped: true,
                ordered: false,
            },
            begin,
        }
    }
}

fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    let mut report = Report {
        name: Latency::NAME.to_owned(),
        title: "Latency by writers (W) and readers (R): the Toroni paper's Table 5".to_owned(),
        conditions: machine::describe(),
        ..Report::default()
    };
    let mut kinds = vec![(Kind::Together, options.grid(Begin::AtTheGate))];
    if options.as_started {
        kinds.push((Kind::AsStarted, options.grid(Begin::WhenStarted)));
    }
    let idle = (!options.idle.is_zero()).then(|| Grid {
        writers: vec![1],
        readers: extremes(&options.readers),
        repetitions: 1,
        ..options.grid(Begin::AtTheGate)
    });
    let total: u64 = kinds.iter().map(|(_, grid)| grid).chain(&idle).map(Grid::steps).sum();
    let mut done = 0;
    let mut step = || {
        done += 1;
        launch.observer.progress(done, total);
    };
    let idle = match idle {
        None => Vec::new(),
        Some(grid) => grid.run(&Launch { settle: options.idle, ..launch.clone() }, &mut step)?,
    };
    // Long enough for all readers to be asleep when the first message comes.
    let patient = Launch { settle: Duration::from_millis(20), ..launch.clone() };
    let mut measured = Vec::new();
    for (kind, grid) in &kinds {
        measured.push((*kind, grid.run(&patient, &mut step)?));
    }

    conditions(&mut report, options, &measured);
    for (kind, runs) in &measured {
        let merged = runs.iter().map(merge).collect::<Result<Vec<_>, _>>()?;
        report.tables.extend(tables(*kind, runs, &merged));
        report.goals.extend(goals(*kind, runs));
        report.charts.push(chart(*kind, runs, &merged));
    }
    if !idle.is_empty() {
        report.tables.push(idle_table(&idle));
        report.goals.extend(idle.iter().map(idle_goal));
    }
    report.notes.push(
        "lost = 0: every reader got every message of every writer, in order. A run in which a reader \
         misses a message is an error."
            .to_owned(),
    );
    report.notes.push(
        "The prototype's figures were measured on a 2-core virtual machine (AMD Zen 5, Linux 6.18): \
         on other machines the goals have no meaning. On that one, waking an idle second core takes \
         17 to 27 µs, and with more processes than cores a message also waits for its reader's turn."
            .to_owned(),
    );
    if options.as_started {
        report.notes.push(
            "as_started: with several writers a message also waits while other writers are being \
             started, and that is most of its latency."
                .to_owned(),
        );
    }
    Ok(report)
}

/// Returns the smallest and the largest.
fn extremes(counts: &[u16]) -> Vec<u16> {
    let mut extremes: Vec<u16> =
        counts.iter().min().into_iter().chain(counts.iter().max()).copied().collect();
    extremes.dedup();
    extremes
}

/// Bytes of the number and the time.
const MESSAGE_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Together,
    AsStarted,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::AsStarted => "as_started",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Together => "writers released together, readers leaving together",
            Self::AsStarted => "each writer as soon as it has started, as in the paper",
        }
    }
}

fn conditions(report: &mut Report, options: &Options, measured: &[(Kind, Vec<Runs>)]) {
    grid::describe_library(report, measured.first().and_then(|(_, runs)| runs.first()));
    report.condition("processes", "one for each writer and reader, not pinned");
    report.condition(
        "messages",
        format!("{} from each writer, of {MESSAGE_BYTES} bytes, on one topic", options.messages),
    );
    report.condition(
        "posting",
        "one burst of all messages; the time in each is the time before the call",
    );
    report
        .condition("waiting", "readers block, with the default wait strategy (backoff), and sleep");
    report.condition("repetitions", options.repetitions.to_string());
    report
        .condition("latency", "from the time in a message to the time at which its reader gets it");
}

fn latencies(reader: &Received) -> Result<&Latencies, Failure> {
    let missing = || Failure::new("a reader measured no latencies: is it another version?");
    reader.latencies.as_ref().ok_or_else(missing)
}

/// Returns the latencies of all messages, readers and runs together.
fn merge(runs: &Runs) -> Result<Latencies, Failure> {
    let mut merged = Latencies::new()?;
    for reader in runs.outcomes.iter().flat_map(|outcome| &outcome.receivers) {
        merged.add(latencies(reader)?)?;
    }
    Ok(merged)
}

/// Returns the mean latency over messages and readers for each run, in microseconds.
fn means(runs: &Runs) -> Vec<f64> {
    runs.outcomes
        .iter()
        .map(|outcome| {
            let readers = outcome.receivers.iter().filter_map(|reader| reader.latencies.as_ref());
            mean(&readers.map(|latencies| latencies.mean_ns() / 1e3).collect::<Vec<_>>())
        })
        .collect()
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn tables(kind: Kind, runs: &[Runs], merged: &[Latencies]) -> Vec<Table> {
    let mean_of = |runs: &Runs| Summary::of(&means(runs)).map_or_else(Cell::none, Cell::mean);
    let title = format!("Latency, µs, mean over messages and readers: {}", kind.title());
    let mut tables = vec![grid::table(kind.name(), &title, "µs", runs, mean_of)];
    let find = |wanted: &Runs| {
        let same = |one: &&(&Runs, &Latencies)| std::ptr::eq(one.0, wanted);
        let pairs: Vec<_> = runs.iter().zip(merged).collect();
        pairs.iter().find(same).map(|(_, latencies)| *latencies)
    };
    for (name, of) in [
        ("p50", (|all| all.quantile_ns(0.5)) as fn(&Latencies) -> u64),
        ("p99", |all| all.quantile_ns(0.99)),
        ("max", Latencies::max_ns),
    ] {
        let title = format!(
            "Latency, µs, {name} of all messages, readers and repetitions: {}",
            kind.title()
        );
        let name = format!("{}_{name}", kind.name());
        tables.push(grid::table(&name, &title, "µs", runs, |runs| {
            find(runs).map_or_else(Cell::none, |all| Cell::number(us(of(all))))
        }));
    }
    tables.push(appendix::table(
        &format!("{}_appendix", kind.name()),
        &format!("The mean, with the figures of the paper's appendix: {}", kind.title()),
        runs,
        &["mean µs", "median", "min", "max"],
        |runs| match Summary::of(&means(runs)) {
            None => vec![Cell::none(); 4],
            Some(summary) => {
                [summary.mean, summary.median, summary.low, summary.high].map(Cell::number).to_vec()
            }
        },
    ));
    tables
}

/// µs of the paper's prototype: writers, readers, the latency as it is, and the latency with all writers released
/// together and all readers leaving together.
const PROTOTYPE: [(u16, u16, f64, f64); 16] = [
    (1, 1, 60.0, 115.0),
    (2, 1, 56.0, 157.0),
    (4, 1, 377.0, 130.0),
    (7, 1, 746.0, 160.0),
    (1, 4, 206.0, 174.0),
    (2, 4, 167.0, 138.0),
    (4, 4, 409.0, 155.0),
    (7, 4, 611.0, 191.0),
    (1, 8, 389.0, 161.0),
    (2, 8, 265.0, 150.0),
    (4, 8, 515.0, 139.0),
    (7, 8, 749.0, 194.0),
    (1, 16, 848.0, 219.0),
    (2, 16, 588.0, 174.0),
    (4, 16, 724.0, 157.0),
    (7, 16, 874.0, 189.0),
];

fn prototype(kind: Kind, writers: u16, readers: u16) -> Option<f64> {
    let known = PROTOTYPE.iter().find(|known| (known.0, known.1) == (writers, readers))?;
    Some(match kind {
        Kind::Together => known.3,
        Kind::AsStarted => known.2,
    })
}

fn goals(kind: Kind, runs: &[Runs]) -> Vec<Goal> {
    let divisor = match kind {
        Kind::Together => 3.0,
        Kind::AsStarted => 5.0,
    };
    let goal = |runs: &Runs| {
        let reference = prototype(kind, runs.writers, runs.readers)?;
        Some(Goal {
            what: format!("{}: {} × {}", kind.name(), runs.writers, runs.readers),
            unit: "µs".to_owned(),
            reference: Some((reference, "prototype".to_owned())),
            bound: Bound::AtMost(reference / divisor),
            measured: mean(&means(runs)),
        })
    };
    runs.iter().filter_map(goal).collect()
}

/// Goal for idle readers, in percent of a core.
const IDLE_PERCENT: f64 = 0.1;

/// Returns the CPU time in percent of a core, mean over readers.
fn idle_percent(runs: &Runs) -> f64 {
    let readers = runs.outcomes.iter().flat_map(|outcome| &outcome.receivers);
    let share =
        |reader: &Received| reader.busy_cpu_ns as f64 * 100.0 / reader.busy_ns.max(1) as f64;
    mean(&readers.map(share).collect::<Vec<_>>())
}

fn idle_table(idle: &[Runs]) -> Table {
    let of = |runs: &Runs, of: fn(&Received) -> u64| {
        let readers = runs.outcomes.iter().flat_map(|outcome| &outcome.receivers);
        mean(&readers.map(|reader| of(reader) as f64 / 1e6).collect::<Vec<_>>())
    };
    let rows = idle.iter().map(|runs| {
        let waited = of(runs, |reader| reader.busy_ns);
        let used = of(runs, |reader| reader.busy_cpu_ns);
        let cells = [waited, used, idle_percent(runs)].map(Cell::number).to_vec();
        (runs.readers.to_string(), cells)
    });
    Table {
        name: "idle".to_owned(),
        title: "CPU time of readers that have nothing to read, from ready to the end of the only \
                burst, including the wake-up"
            .to_owned(),
        corner: "R".to_owned(),
        columns: ["waited ms", "CPU ms of a reader", "% of a core"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        ..Table::default()
    }
}

fn idle_goal(runs: &Runs) -> Goal {
    let readers = if runs.readers == 1 {
        "1 reader".to_owned()
    } else {
        format!("each of {} readers", runs.readers)
    };
    Goal {
        what: format!("idle: {readers}"),
        unit: "% of a core".to_owned(),
        reference: None,
        bound: Bound::AtMost(IDLE_PERCENT),
        measured: idle_percent(runs),
    }
}

fn chart(kind: Kind, runs: &[Runs], merged: &[Latencies]) -> Chart {
    let mut writers: Vec<u16> = runs.iter().map(|runs| runs.writers).collect();
    writers.sort_unstable();
    writers.dedup();
    let mut series = Vec::new();
    for count in &writers {
        let points = runs
            .iter()
            .filter(|runs| runs.writers == *count)
            .map(|runs| (f64::from(runs.readers), mean(&means(runs))))
            .collect();
        let name = if *count == 1 { "1 writer".to_owned() } else { format!("{count} writers") };
        series.push(Series::line(name, points));
    }
    if let Some(most) = writers.last() {
        let mine = runs.iter().zip(merged).filter(|(runs, _)| runs.writers == *most);
        let points = mine.map(|(runs, all)| (f64::from(runs.readers), us(all.quantile_ns(0.99))));
        series.push(Series::line(format!("p99, {most}"), points.collect()));
    }
    for (number, count) in writers.iter().enumerate() {
        let mine = runs.iter().filter(|runs| runs.writers == *count);
        let points: Vec<_> = mine
            .filter_map(|runs| {
                Some((f64::from(runs.readers), prototype(kind, *count, runs.readers)?))
            })
            .collect();
        if !points.is_empty() {
            series.push(Series::dashed(format!("prototype, {count}"), points).like(number));
        }
    }
    Chart {
        title: kind.title().to_owned(),
        x_label: "readers".to_owned(),
        y_label: "µs, mean".to_owned(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series,
    }
}
