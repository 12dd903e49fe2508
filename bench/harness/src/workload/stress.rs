//! The stress test of the Toroni paper (§4.4.3): a small ring, many writers, more readers, and no reader may lose a
//! message.

use super::appendix;
use super::flow::Flow;
use super::grid::{self, Grid, Runs, rates};
use crate::Failure;
use crate::machine;
use crate::options::{RunLength, RunOptions};
use crate::process_group::{Begin, Launch};
use crate::registry::Workload;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::sequence::Lengths;
use crate::summary::Summary;
use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench stress --quick --json | jq -c 'select(.kind == \"goal\")'")]
pub(crate) struct Stress {
    #[command(flatten)]
    run: RunOptions,
    /// Number of writers
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=16))]
    writers: u16,
    /// Number of readers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    readers: u16,
    /// Messages of 500 bytes that each writer publishes
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
}

impl Workload for Stress {
    const NAME: &'static str = "stress";
    const SUMMARY: &'static str = "Many writers and readers on a ring that is much too small: section 4.4.3 of the Toroni paper";
    type Work = Flow;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let usual = match self.run.length() {
            RunLength::Quick => 3,
            RunLength::Usual => 10,
            RunLength::Full => 50,
        };
        let options = Options {
            writers: self.writers,
            readers: self.readers,
            messages: self.messages,
            message_bytes: 500,
            bundle: 64,
            capacity: 64 << 10,
            repetitions: self.run.repetitions.unwrap_or(usual),
        };
        run(launch, &options)
    }
}

/// What to measure.
struct Options {
    writers: u16,
    readers: u16,
    /// Messages of each writer.
    messages: u64,
    message_bytes: usize,
    /// Messages that a writer hands over with one call.
    bundle: usize,
    /// Bytes of the ring.
    capacity: u64,
    /// Number of runs.
    repetitions: u32,
}

fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    let grid = Grid {
        writers: vec![options.writers],
        readers: vec![options.readers],
        repetitions: options.repetitions,
        capacity: options.capacity,
        flow: Flow {
            messages: options.messages,
            lengths: Lengths::Fixed(options.message_bytes),
            bundle: options.bundle,
            stamped: false,
            ordered: false,
        },
        begin: Begin::AtTheGate,
    };
    let mut done = 0;
    let conditions = machine::describe();
    let runs = grid.run(launch, || {
        done += 1;
        launch.observer.progress(done, grid.steps());
    })?;
    let runs = runs.first().ok_or_else(|| Failure::new("there was no run"))?;

    let mut report = Report {
        name: Stress::NAME.to_owned(),
        title: "Stress: a small ring, many writers and readers: the Toroni paper's §4.4.3"
            .to_owned(),
        conditions,
        ..Report::default()
    };
    describe(&mut report, options, runs);
    let figures = Figures::of(runs);
    report.tables.push(figures.table());
    report.tables.push(appendix::table(
        "appendix",
        "The figures of the paper's appendix",
        std::slice::from_ref(runs),
        &["mean K/s"],
        |_| vec![figures.rate_k.map_or_else(Cell::none, Cell::mean)],
    ));
    if options.is_the_papers() {
        report.goals = figures.goals();
    }
    report.charts = figures.charts();
    report.notes.push(format!(
        "lost = 0: each of {} readers got all of {} messages, in order, in each of {} runs. A run in \
         which a reader misses a message is an error.",
        options.readers,
        options.messages * u64::from(options.writers),
        options.repetitions
    ));
    report.notes.push(
        "The paper: 23.45 Kmsg/s, WT 5,653 ms, WW 5,653 ms, WN 0.153 ms, E 0, N 162, B 1,129, \
         R 1,136, with 16 virtual processors. Its prototype on a 2-core virtual machine (AMD Zen 5, \
         Linux 6.18): 23 Kmsg/s, and 10 of 160 readers lost messages."
            .to_owned(),
    );
    Ok(report)
}

impl Options {
    /// Returns whether the sizes are those of the paper: the goals hold only for them.
    fn is_the_papers(&self) -> bool {
        let Self { writers, readers, messages, message_bytes, capacity, .. } = *self;
        (writers, readers, messages, message_bytes, capacity) == (7, 16, 20_000, 500, 64 << 10)
    }
}

fn describe(report: &mut Report, options: &Options, runs: &Runs) {
    grid::describe_library(report, Some(runs));
    report.condition(
        "processes",
        format!("{} writers, {} readers, not pinned", options.writers, options.readers),
    );
    let megabytes = options.messages * options.message_bytes as u64 * u64::from(options.writers);
    report.condition(
        "messages",
        format!(
            "{} from each writer, of {} bytes, on one topic: {:.1} MB through a ring of {} KiB",
            options.messages,
            options.message_bytes,
            megabytes as f64 / 1e6,
            options.capacity / 1024
        ),
    );
    report.condition("posting", format!("bursts of {} messages a call", options.bundle));
    report.condition("waiting", "readers block, with the default wait strategy (backoff)");
    report.condition("repetitions", options.repetitions.to_string());
    report.condition(
        "throughput",
        "of a reader: number of messages / time between the first and the last; mean over readers",
    );
}

/// The results of all runs.
struct Figures {
    /// Kmsg/s.
    rate_k: Option<Summary>,
    /// Seconds from the first writer's start to the last reader's last message.
    elapsed_s: Option<Summary>,
    /// Seconds of CPU time of all writers and readers since their start.
    cpu_s: Option<Summary>,
    /// Number of readers that lost messages, in all runs.
    losers: usize,
    rates_k: Vec<f64>,
}

impl Figures {
    fn of(runs: &Runs) -> Self {
        let rates_k: Vec<f64> = rates(runs).iter().map(|rate| rate * 1e3).collect();
        let mut elapsed = Vec::new();
        let mut cpu = Vec::new();
        let mut losers = 0;
        for outcome in &runs.outcomes {
            let (senders, receivers) = (&outcome.senders, &outcome.receivers);
            let start = senders.iter().map(|sender| sender.started_ns).min().unwrap_or(0);
            let end = receivers.iter().map(|receiver| receiver.last_ns).max().unwrap_or(0);
            elapsed.push(end.saturating_sub(start) as f64 / 1e9);
            let used: u64 = senders.iter().map(|sender| sender.cpu_ns).sum::<u64>()
                + receivers.iter().map(|receiver| receiver.cpu_ns).sum::<u64>();
            cpu.push(used as f64 / 1e9);
            losers += receivers.iter().filter(|receiver| receiver.faults.lost > 0).count();
        }
        Self {
            rate_k: Summary::of(&rates_k),
            elapsed_s: Summary::of(&elapsed),
            cpu_s: Summary::of(&cpu),
            losers,
            rates_k,
        }
    }

    fn table(&self) -> Table {
        let row = |label: &str, summary: Option<Summary>| {
            let cells = match summary {
                None => vec![Cell::none(); 4],
                Some(summary) => [summary.mean, summary.median, summary.low, summary.high]
                    .map(Cell::number)
                    .to_vec(),
            };
            (label.to_owned(), cells)
        };
        Table {
            name: "stress".to_owned(),
            title: "Under stress".to_owned(),
            columns: ["mean", "median", "min", "max"].map(str::to_owned).to_vec(),
            rows: vec![
                row("throughput of a reader, Kmsg/s", self.rate_k),
                row("elapsed, s", self.elapsed_s),
                row("CPU time of all processes, s", self.cpu_s),
            ],
            ..Table::default()
        }
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |what: &str, unit: &str, reference: f64, bound, measured| Goal {
            what: what.to_owned(),
            unit: unit.to_owned(),
            reference: Some((reference, "prototype".to_owned())),
            bound,
            measured,
        };
        let mut goals = Vec::new();
        if let Some(rate) = self.rate_k {
            goals.push(goal("throughput", "Kmsg/s", 23.0, Bound::AtLeast(1200.0), rate.mean));
        }
        goals.push(goal(
            "readers that lost messages",
            "",
            10.0,
            Bound::AtMost(0.0),
            self.losers as f64,
        ));
        if let Some(cpu) = self.cpu_s {
            let (unit, reference) = ("s".to_owned(), None);
            let what = "CPU time of all processes, of a run".to_owned();
            goals.push(Goal {
                what,
                unit,
                reference,
                bound: Bound::AtMost(30.0),
                measured: cpu.mean,
            });
        }
        goals
    }

    fn charts(&self) -> Vec<Chart> {
        let points: Vec<(f64, f64)> =
            self.rates_k.iter().zip(1_u32..).map(|(rate, run)| (f64::from(run), *rate)).collect();
        let last = points.last().map_or(1.0, |point| point.0).max(2.0);
        let level =
            |name: &str, value: f64| Series::dashed(name, vec![(1.0, value), (last, value)]);
        vec![Chart {
            title: "throughput of a reader, run by run".to_owned(),
            x_label: "run".to_owned(),
            y_label: "Kmsg/s".to_owned(),
            x_scale: Scale::Linear,
            y_scale: Scale::Logarithmic,
            categories: Vec::new(),
            series: vec![
                Series::line("measured", points),
                level("goal", 1200.0),
                level("prototype", 23.0),
            ],
        }]
    }
}
