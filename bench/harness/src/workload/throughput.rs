//! Throughput by writers and readers: Table 4 of the Toroni paper (§4.4.1).

use super::appendix;
use super::flow::Flow;
use super::grid::{self, Cells, Grid, Runs, rates};
use crate::Failure;
use crate::machine;
use crate::options::{RunLength, RunOptions};
use crate::process_group::{Begin, Launch};
use crate::registry::Workload;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::sequence::Lengths;
use crate::summary::{Summary, mean};
use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench throughput --writers 1,7 --readers 1,16 --repetitions 20 --plot throughput.svg")]
pub(crate) struct Throughput {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    cells: Cells,
    /// Messages that each writer publishes in a burst [default: 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    messages: Option<u64>,
    /// Also measure writers that publish one message per call
    #[arg(long)]
    one_by_one: bool,
    /// Also measure writers that do not wait for one another at the start, as in the paper [default: not with --quick]
    #[arg(long)]
    as_started: bool,
    /// Volume of each writer in the table of sustained throughput, in sizes of the ring; 0 for no table [default: 100; 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    sustained: Option<u64>,
}

impl Workload for Throughput {
    const NAME: &'static str = "throughput";
    const SUMMARY: &'static str =
        "Messages per second for numbers of writers and readers: Table 4 of the Toroni paper";
    type Work = Flow;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let mut options = Options::of(self.run.length());
        if let Some(repetitions) = self.run.repetitions {
            options.repetitions = repetitions;
            options.sustained.2 = repetitions;
        }
        self.cells.choose(&mut options.writers, &mut options.readers);
        let (writers, readers, _) = &mut options.sustained;
        self.cells.choose(writers, readers);
        options.messages = self.messages.unwrap_or(options.messages);
        options.one_by_one |= self.one_by_one;
        options.as_started |= self.as_started;
        options.sustained_rings = self.sustained.unwrap_or(options.sustained_rings);
        run(launch, &options)
    }
}

/// What to measure.
struct Options {
    /// Numbers of writers, and of readers.
    writers: Vec<u16>,
    readers: Vec<u16>,
    /// Messages of each writer in a burst.
    messages: u64,
    /// Bytes of the ring.
    capacity: u64,
    /// Runs of each cell.
    repetitions: u32,
    /// Also let each writer begin when it has started, as the paper does.
    as_started: bool,
    /// Also post one message a call.
    one_by_one: bool,
    /// Also send this many times the size of the ring from each writer, unless it is 0.
    sustained_rings: u64,
    /// Numbers of writers and of readers for that, and runs of each cell.
    sustained: (Vec<u16>, Vec<u16>, u32),
}

impl Options {
    fn of(length: RunLength) -> Self {
        let usual = Self {
            writers: vec![1, 2, 4, 7],
            readers: vec![1, 4, 8, 16],
            messages: 20_000,
            capacity: 4 << 20,
            repetitions: 5,
            as_started: true,
            one_by_one: false,
            sustained_rings: 100,
            sustained: (vec![1, 7], vec![1, 16], 5),
        };
        match length {
            RunLength::Quick => Self {
                as_started: false,
                sustained_rings: 2,
                sustained: (vec![1, 7], vec![1, 16], 3),
                ..usual
            },
            RunLength::Usual => usual,
            RunLength::Full => Self {
                writers: (1..=7).collect(),
                one_by_one: true,
                sustained: (vec![1, 2, 4, 7], vec![1, 4, 8, 16], 5),
                ..usual
            },
        }
    }

    fn grids(&self) -> Vec<(Kind, Grid)> {
        let flow = Flow {
            messages: self.messages,
            lengths: Lengths::OneToEight,
            bundle: usize::try_from(self.messages).unwrap_or(usize::MAX),
            stamped: false,
            ordered: false,
        };
        let grid = |flow: Flow, begin| Grid {
            writers: self.writers.clone(),
            readers: self.readers.clone(),
            repetitions: self.repetitions,
            capacity: self.capacity,
            flow,
            begin,
        };
        let mut grids = vec![(Kind::Burst, grid(flow.clone(), Begin::AtTheGate))];
        if self.as_started {
            grids.push((Kind::AsStarted, grid(flow.clone(), Begin::WhenStarted)));
        }
        if self.one_by_one {
            let flow = Flow { bundle: 1, ..flow.clone() };
            grids.push((Kind::OneByOne, grid(flow, Begin::AtTheGate)));
        }
        if self.sustained_rings > 0 {
            let messages = self.sustained_rings * self.capacity / RECORD_BYTES;
            let flow = Flow { messages, bundle: SUSTAINED_BUNDLE, ..flow };
            let (writers, readers, repetitions) = self.sustained.clone();
            let grid = grid(flow, Begin::AtTheGate);
            grids.push((Kind::Sustained, Grid { writers, readers, repetitions, ..grid }));
        }
        grids
    }
}

fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    let mut report = Report {
        name: Throughput::NAME.to_owned(),
        title: "Throughput by writers (W) and readers (R): the Toroni paper's Table 4".to_owned(),
        conditions: machine::describe(),
        ..Report::default()
    };
    let grids = options.grids();
    let total = grids.iter().map(|(_, grid)| grid.steps()).sum();
    let mut done = 0;
    let mut measured = Vec::new();
    for (kind, grid) in &grids {
        let runs = grid.run(launch, || {
            done += 1;
            launch.observer.progress(done, total);
        })?;
        measured.push((*kind, runs));
    }
    conditions(&mut report, options, &measured);
    for (kind, runs) in &measured {
        report.tables.extend(tables(*kind, runs));
        report.goals.extend(goals(*kind, runs));
        report.charts.push(chart(*kind, runs));
    }
    report.notes.push(
        "lost = 0: every reader got every message of every writer, in order. A run in which a reader \
         misses a message is an error."
            .to_owned(),
    );
    report.notes.push(
        "The prototype's figures were measured on a 2-core virtual machine (AMD Zen 5, Linux 6.18): \
         on other machines the goals have no meaning. The cells 1 × 1 and 7 × 16 are compared with a \
         variant of it that releases its writers together, which is faster in these cells."
            .to_owned(),
    );
    if options.as_started {
        report.notes.push(
            "as_started: with four writers or more, most of the time between a reader's first and last \
             message is the time in which the other writers are being started."
                .to_owned(),
        );
    }
    Ok(report)
}

/// Bytes of a header word and of a payload of up to 8 bytes.
const RECORD_BYTES: u64 = 16;
/// Messages that a writer hands over with one call in the sustained table.
const SUSTAINED_BUNDLE: usize = 1024;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Burst,
    AsStarted,
    OneByOne,
    Sustained,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::AsStarted => "as_started",
            Self::OneByOne => "one_by_one",
            Self::Sustained => "sustained",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Burst => "one burst from each writer, all released together",
            Self::AsStarted => {
                "one burst from each writer as soon as it has started, as in the paper"
            }
            Self::OneByOne => "one message a call, all writers released together",
            Self::Sustained => "sustained: many times the size of the ring from each writer",
        }
    }
}

fn conditions(report: &mut Report, options: &Options, measured: &[(Kind, Vec<Runs>)]) {
    grid::describe_library(report, measured.first().and_then(|(_, runs)| runs.first()));
    report.condition("processes", "one for each writer and reader, not pinned");
    report.condition(
        "messages",
        format!("{} from each writer, of 1 to 8 bytes in turn, on one topic", options.messages),
    );
    report.condition(
        "posting",
        "one burst of all messages: each has its own commit; one lock covers as many as there is space for",
    );
    report.condition("waiting", "readers block, with the default wait strategy (backoff)");
    report.condition("repetitions", options.repetitions.to_string());
    if options.sustained_rings > 0 {
        let (_, _, repetitions) = &options.sustained;
        report.condition(
            "sustained",
            format!(
                "{} times the size of the ring from each writer, {SUSTAINED_BUNDLE} messages a call; {repetitions} \
                 repetitions",
                options.sustained_rings
            ),
        );
    }
    report.condition(
        "throughput",
        "of a reader: number of messages / time between the first and the last",
    );
}

fn tables(kind: Kind, runs: &[Runs]) -> [Table; 2] {
    let title = format!("Throughput, M msg/s, mean over readers and repetitions: {}", kind.title());
    let main = grid::table(kind.name(), &title, "M msg/s", runs, |runs| {
        Summary::of(&rates(runs)).map_or_else(Cell::none, Cell::mean)
    });
    let second = appendix::table(
        &format!("{}_appendix", kind.name()),
        &format!("The same, with the figures of the paper's appendix: {}", kind.title()),
        runs,
        &["mean M/s", "median", "min", "max"],
        |runs| match Summary::of(&rates(runs)) {
            None => vec![Cell::none(); 4],
            Some(summary) => {
                [summary.mean, summary.median, summary.low, summary.high].map(Cell::number).to_vec()
            }
        },
    );
    [main, second]
}

/// M msg/s of the paper's prototype: writers, readers, the rate as it is, and, where it was measured, the rate with all
/// writers released together.
const PROTOTYPE: [(u16, u16, f64, Option<f64>); 16] = [
    (1, 1, 48.6, Some(53.0)),
    (2, 1, 35.3, None),
    (4, 1, 14.2, None),
    (7, 1, 15.0, None),
    (1, 4, 48.3, None),
    (2, 4, 29.0, None),
    (4, 4, 9.65, None),
    (7, 4, 10.0, None),
    (1, 8, 41.5, None),
    (2, 8, 13.7, None),
    (4, 8, 8.1, None),
    (7, 8, 6.75, None),
    (1, 16, 44.3, None),
    (2, 16, 9.76, None),
    (4, 16, 5.68, None),
    (7, 16, 4.7, Some(6.1)),
];
const TIMES_FASTER: f64 = 5.0;

fn goals(kind: Kind, runs: &[Runs]) -> Vec<Goal> {
    let goal = |runs: &Runs| {
        let cell = |known: &&(u16, u16, f64, Option<f64>)| {
            (known.0, known.1) == (runs.writers, runs.readers)
        };
        let (_, _, plain, together) = PROTOTYPE.iter().find(cell)?;
        let reference = match kind {
            Kind::AsStarted => *plain,
            Kind::Burst => together.unwrap_or(*plain),
            Kind::OneByOne | Kind::Sustained => return None,
        };
        Some(Goal {
            what: format!("{}: {} × {}", kind.name(), runs.writers, runs.readers),
            unit: "M msg/s".to_owned(),
            reference: Some((reference, "prototype".to_owned())),
            bound: Bound::AtLeast(TIMES_FASTER * reference),
            measured: mean(&rates(runs)),
        })
    };
    runs.iter().filter_map(goal).collect()
}

fn chart(kind: Kind, runs: &[Runs]) -> Chart {
    let mut writers: Vec<u16> = runs.iter().map(|runs| runs.writers).collect();
    writers.sort_unstable();
    writers.dedup();
    let of = |count: u16| runs.iter().filter(move |runs| runs.writers == count);
    let mut series = Vec::new();
    for count in &writers {
        let points = of(*count).map(|runs| (f64::from(runs.readers), mean(&rates(runs)))).collect();
        let name = if *count == 1 { "1 writer".to_owned() } else { format!("{count} writers") };
        series.push(Series::line(name, points));
    }
    if matches!(kind, Kind::Burst | Kind::AsStarted) {
        for (number, count) in writers.iter().enumerate() {
            let known = PROTOTYPE.iter().filter(|known| known.0 == *count);
            let points: Vec<_> = known.map(|known| (f64::from(known.1), known.2)).collect();
            if !points.is_empty() {
                series.push(Series::dashed(format!("prototype, {count}"), points).like(number));
            }
        }
    }
    Chart {
        title: kind.title().to_owned(),
        x_label: "readers".to_owned(),
        y_label: "M msg/s of a reader".to_owned(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series,
    }
}
