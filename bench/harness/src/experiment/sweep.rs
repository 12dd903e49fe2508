//! The test of batch sizes in *Point to Multi-point IPC Comparison*: Toroni and the published queue, in turn.

use super::p2mp::{self, Carrier, Plan, Sizes, Task, batch_bytes};
use crate::Failure;
use crate::experiment::{self, Steps, count};
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::Launch;
use crate::registry::Workload;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::summary::Summary;
use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench sweep --batches 100000,10000,1000 --plot sweep.svg

The same as p2mp with batches of several sizes. Measured in turn: Toroni and the queue of the published experiment.")]
pub(crate) struct Sweep {
    #[command(flatten)]
    run: RunOptions,
    /// Objects that each receiver receives [default: 20 million; 2 million with --quick, 1000 million with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    objects: Option<u64>,
    #[command(flatten)]
    sizes: Sizes,
    /// Sizes of a batch; one row for each [default: 100000 to 1000, as published]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = batch_bytes)]
    batches: Vec<usize>,
}

impl Workload for Sweep {
    const NAME: &'static str = "sweep";
    const SUMMARY: &'static str = "The effect of the size of a batch on p2mp: Toroni and the published queue, in batches of several sizes";
    type Work = Task;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let (objects, repetitions) = match self.run.length() {
            RunLength::Quick => (2_000_000, 3),
            RunLength::Usual => (20_000_000, 5),
            RunLength::Full => (1_000_000_000, 5),
        };
        let mut batches = PUBLISHED.map(|(bytes, _)| bytes).to_vec();
        replace(&mut batches, &self.batches);
        let objects = self.objects.unwrap_or(objects);
        let plans: Vec<Plan> =
            batches.iter().map(|bytes| self.sizes.plan(objects, *bytes)).collect();
        run(launch, &plans, self.run.repetitions.unwrap_or(repetitions))
    }
}

/// Bytes of a batch in the published experiment, and its average seconds per 10⁹ objects.
const PUBLISHED: [(usize, f64); 8] = [
    (100_000, 10.614),
    (80_000, 10.997),
    (60_000, 11.039),
    (40_000, 11.437),
    (20_000, 12.544),
    (10_000, 12.837),
    (5_000, 18.548),
    (1_000, 63.971),
];

/// Goal: how much more the smallest batches may cost than the largest.
const GOAL: f64 = 1.5;

const CARRIERS: [Carrier; 2] = [Carrier::Toroni, Carrier::Queue { adaptive: false }];

/// Measures all plans in turn; they differ in the size of a batch.
fn run(launch: &Launch<'_>, plans: &[Plan], repetitions: u32) -> Result<Report, Failure> {
    plans.iter().try_for_each(p2mp::check)?;
    let by_size = |plan: &&Plan| plan.batch_bytes;
    let largest = plans.iter().max_by_key(by_size).ok_or_else(|| Failure::new("no batches"))?;
    let times = measure(launch, plans, repetitions)?;
    let mut report = Report {
        name: Sweep::NAME.to_owned(),
        title: "Point to multipoint: the effect of the size of a batch".to_owned(),
        conditions: experiment::conditions(repetitions),
        ..Report::default()
    };
    p2mp::conditions(&mut report, largest);

    let mut curves = Vec::new();
    for (carrier, times) in CARRIERS.iter().zip(&times) {
        let rows: Vec<(String, &[f64])> =
            plans.iter().zip(times).map(|(plan, times)| (label(plan), &times[..])).collect();
        let table = p2mp::seconds_table(largest, &rows);
        report.tables.push(Table {
            name: name(*carrier).to_owned(),
            title: format!("{carrier}: {}", table.title),
            corner: "batch, bytes".to_owned(),
            ..table
        });
        let points = plans.iter().zip(times).filter_map(|(plan, times)| {
            Some((experiment::float(plan.batch_bytes as u64), Summary::of(times)?.median))
        });
        curves.push(Series::line(name(*carrier), points.collect()));
    }
    report.tables.push(ratio_table(plans, &times));
    if let Some(measured) = steepness(plans, &times[0]) {
        report.goals.push(Goal {
            what: "time with the smallest batches / time with the largest".to_owned(),
            unit: "times".to_owned(),
            reference: Some((63.971 / 10.614, "the published queue".to_owned())),
            bound: Bound::AtMost(GOAL),
            measured,
        });
    }
    report.notes.push("lost = 0, doubled = 0, out of order = 0 in every run.".to_owned());
    let scale = experiment::float(largest.objects) / 1e9;
    let published =
        PUBLISHED.map(|(bytes, seconds)| (experiment::float(bytes as u64), seconds * scale));
    curves.push(Series::dashed("queue, published", published.to_vec()).like(1));
    report.charts.push(Chart {
        title: format!("Seconds for {} objects", count(largest.objects)),
        x_label: "bytes of a batch".to_owned(),
        y_label: "seconds".to_owned(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series: curves,
    });
    Ok(report)
}

/// The seconds of each repetition, for each carrier and plan.
type Times = [Vec<Vec<f64>>; CARRIERS.len()];

fn measure(launch: &Launch<'_>, plans: &[Plan], repetitions: u32) -> Result<Times, Failure> {
    let mut times = CARRIERS.map(|_| vec![Vec::new(); plans.len()]);
    let mut steps = Steps::new(launch, repetitions, plans.len() * CARRIERS.len());
    for _ in 0..repetitions {
        for (batch, plan) in plans.iter().enumerate() {
            for (index, carrier) in CARRIERS.into_iter().enumerate() {
                steps.next();
                let run = p2mp::run_once(launch, carrier, plan)?;
                times[index][batch].push(run.seconds);
            }
        }
    }
    Ok(times)
}

fn label(plan: &Plan) -> String {
    count(plan.batch_bytes as u64)
}

fn name(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Toroni => "toroni",
        Carrier::Tcp => "tcp",
        Carrier::Queue { .. } => "queue",
    }
}

/// How many times slower the queue is, for each batch.
fn ratio_table(plans: &[Plan], times: &Times) -> Table {
    let rows = plans.iter().enumerate().map(|(batch, plan)| {
        let ratios = experiment::ratios(&times[1][batch], &times[0][batch]);
        let cell = Summary::of(&ratios).map_or_else(Cell::none, Cell::median);
        (label(plan), vec![cell])
    });
    Table {
        name: "ratio".to_owned(),
        title: "Time over the queue / time over Toroni in the same repetition".to_owned(),
        unit: "times".to_owned(),
        corner: "batch, bytes".to_owned(),
        columns: vec!["median".to_owned()],
        rows: rows.collect(),
        ..Table::default()
    }
}

/// Returns the median ratio of the time with the smallest batches to the time with the largest.
fn steepness(plans: &[Plan], times: &[Vec<f64>]) -> Option<f64> {
    let sizes = || plans.iter().enumerate();
    let (smallest, _) = sizes().min_by_key(|(_, plan)| plan.batch_bytes)?;
    let (largest, _) = sizes().max_by_key(|(_, plan)| plan.batch_bytes)?;
    let ratios = experiment::ratios(times.get(smallest)?, times.get(largest)?);
    Summary::of(&ratios).map(|summary| summary.median)
}
