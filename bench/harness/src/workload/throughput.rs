//! Table 4 of the Toroni paper (§4.4.1): throughput and its dependence on writers and readers.

use super::flow::Flow;
use super::grid::{self, Grid, Runs, rates};
use super::{RunLength, appendix};
use crate::Failure;
use crate::machine;
use crate::process_group::{Begin, Launch};
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::sequence::Lengths;
use crate::summary::{Summary, mean};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of writers, and of readers.
    pub writers: Vec<u16>,
    /// See `writers`.
    pub readers: Vec<u16>,
    /// Messages of each writer in a burst.
    pub messages: u64,
    /// Bytes of the ring.
    pub capacity: u64,
    /// Runs of each cell.
    pub repetitions: u32,
    /// Also let each writer begin when it has started, as the paper does.
    pub as_started: bool,
    /// Also post one message a call.
    pub one_by_one: bool,
    /// Also send this many rings' sizes from each writer; 0 does not.
    pub sustained_rings: u64,
    /// Numbers of writers and readers for that, and runs of each cell.
    pub sustained: (Vec<u16>, Vec<u16>, u32),
}

impl Options {
    /// For this length.
    #[must_use]
    pub fn of(length: RunLength) -> Self {
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
            group: usize::try_from(self.messages).unwrap_or(usize::MAX),
            stamped: false,
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
            let flow = Flow { group: 1, ..flow.clone() };
            grids.push((Kind::OneByOne, grid(flow, Begin::AtTheGate)));
        }
        if self.sustained_rings > 0 {
            let messages = self.sustained_rings * self.capacity / RECORD_BYTES;
            let flow = Flow { messages, group: SUSTAINED_GROUP, ..flow };
            let (writers, readers, repetitions) = self.sustained.clone();
            let grid = grid(flow, Begin::AtTheGate);
            grids.push((Kind::Sustained, Grid { writers, readers, repetitions, ..grid }));
        }
        grids
    }
}

/// Runs it.
///
/// # Errors
/// If a run fails, or a reader loses anything.
pub fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    let mut report = Report {
        name: "throughput".to_owned(),
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
        "lost = 0: every reader got every message of every writer, in order (a run in which one \
         does not is an error)."
            .to_owned(),
    );
    report.notes.push(
        "The prototype's figures were measured on a 2-core virtual machine (AMD Zen 5, Linux 6.18): \
         only there a goal means what it says. 1 × 1 and 7 × 16 are compared with a variant of it \
         that releases its writers together, which is faster there."
            .to_owned(),
    );
    if options.as_started {
        report.notes.push(
            "as_started: from four writers on, the time between a reader's first and last message is \
             mostly that in which the other writers are being started."
                .to_owned(),
        );
    }
    Ok(report)
}

/// Header word and 8 bytes.
const RECORD_BYTES: u64 = 16;
/// Messages that a writer hands over at once in the sustained table.
const SUSTAINED_GROUP: usize = 1024;

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
            Self::Burst => "a burst of each writer, all released together",
            Self::AsStarted => "a burst of each writer as soon as it has started, as in the paper",
            Self::OneByOne => "one message a call, all writers released together",
            Self::Sustained => "sustained: many rings' sizes from each writer",
        }
    }
}

fn conditions(report: &mut Report, options: &Options, measured: &[(Kind, Vec<Runs>)]) {
    grid::describe_library(report, measured.first().and_then(|(_, runs)| runs.first()));
    report.condition("processes", "one for each writer and reader, not pinned");
    report.condition(
        "messages",
        format!("{} of each writer, of 1 to 8 bytes in turn, on one topic", options.messages),
    );
    report.condition(
        "posting",
        "one burst of all of them: a commit each, one lock for as many as there is room for",
    );
    report.condition("waiting", "readers block, with the default wait strategy (backoff)");
    report.condition("repetitions", options.repetitions.to_string());
    if options.sustained_rings > 0 {
        let (_, _, repetitions) = &options.sustained;
        report.condition(
            "sustained",
            format!(
                "{} × the ring's size from each writer, {SUSTAINED_GROUP} messages a call; {repetitions} \
                 repetitions",
                options.sustained_rings
            ),
        );
    }
    report.condition(
        "throughput",
        "of a reader: messages received / time between its first and its last",
    );
}

fn tables(kind: Kind, runs: &[Runs]) -> [Table; 2] {
    let title = format!("Throughput, M msg/s, mean over readers and repetitions: {}", kind.title());
    let main = grid::table(kind.name(), &title, "M msg/s", runs, |runs| {
        Summary::of(&rates(runs)).map_or_else(Cell::none, Cell::mean)
    });
    let second = appendix::table(
        &format!("{}_appendix", kind.name()),
        &format!("The same with the appendix's figures: {}", kind.title()),
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

/// M msg/s of the paper's prototype: writers, readers, as it is, and with its writers released together
/// where that was measured.
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
