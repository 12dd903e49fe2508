//! The effect of the batch's size on point to multipoint: Toroni and the queue, in turn.

use super::p2mp::{self, Carrier, PACKETS_PER_BATCH, Plan};
use crate::Failure;
use crate::experiment::{self, Steps, count};
use crate::process_group::Launch;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::summary::Summary;
use crate::workload::RunLength;

/// What is measured, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Objects that each receiver gets, of 50 bytes each.
    pub objects: u64,
    /// Receiving processes.
    pub receivers: u16,
    /// Bytes of a batch, the largest first.
    pub batches: Vec<usize>,
    /// Packets of the queue; a batch is two of them.
    pub packets: usize,
    /// Bytes of Toroni's ring.
    pub capacity_bytes: u64,
    /// How often each of them is measured, in turn.
    pub repetitions: u32,
}

/// Bytes of a batch in the experiment, and the average seconds per 10⁹ objects there.
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

impl Options {
    /// For this length.
    #[must_use]
    pub fn of(length: RunLength) -> Self {
        let usual = Self {
            objects: 20_000_000,
            receivers: 3,
            batches: PUBLISHED.map(|(bytes, _)| bytes).to_vec(),
            packets: 256,
            capacity_bytes: 8 << 20,
            repetitions: 5,
        };
        match length {
            RunLength::Quick => Self { objects: 2_000_000, repetitions: 3, ..usual },
            RunLength::Usual => usual,
            RunLength::Full => Self { objects: 1_000_000_000, ..usual },
        }
    }
}

/// How much more the smallest batches may cost than the largest.
const GOAL: f64 = 1.5;

const CARRIERS: [Carrier; 2] = [Carrier::Toroni, Carrier::Queue { adaptive: false }];

/// Measures all sizes in turn.
///
/// # Errors
/// If a run fails, or an object was lost, doubled or out of order.
pub fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    options.batches.iter().try_for_each(|bytes| p2mp::check(&plan(options, *bytes)))?;
    let times = measure(launch, options)?;
    let mut report = Report {
        name: "sweep".to_owned(),
        title: "Point to multipoint: the effect of the size of a batch".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    let largest = options.batches.iter().copied().max().unwrap_or(0);
    p2mp::conditions(&mut report, &plan(options, largest));
    report.condition("pinning", format!("none; {} processes at work", options.receivers + 1));

    let mut curves = Vec::new();
    for (carrier, times) in CARRIERS.iter().zip(&times) {
        let rows: Vec<(String, &[f64])> = options
            .batches
            .iter()
            .zip(times)
            .map(|(bytes, times)| (count(*bytes as u64), &times[..]))
            .collect();
        let table = p2mp::seconds_table(&plan(options, largest), &rows);
        report.tables.push(Table {
            name: name(*carrier).to_owned(),
            title: format!("{carrier}: {}", table.title),
            corner: "batch, bytes".to_owned(),
            ..table
        });
        let points = options.batches.iter().zip(times).filter_map(|(bytes, times)| {
            Some((experiment::float(*bytes as u64), Summary::of(times)?.median))
        });
        curves.push(Series::line(name(*carrier), points.collect()));
    }
    report.tables.push(ratio_table(options, &times));
    if let Some(measured) = steepness(options, &times[0]) {
        report.goals.push(Goal {
            what: "time with the smallest batches / time with the largest".to_owned(),
            unit: "times".to_owned(),
            reference: Some((63.971 / 10.614, "the published queue".to_owned())),
            bound: Bound::AtMost(GOAL),
            measured,
        });
    }
    report.notes.push("lost = 0, doubled = 0, out of order = 0 in every run.".to_owned());
    let scale = experiment::float(options.objects) / 1e9;
    let published =
        PUBLISHED.map(|(bytes, seconds)| (experiment::float(bytes as u64), seconds * scale));
    curves.push(Series::dashed("queue, published", published.to_vec()).like(1));
    report.charts.push(Chart {
        title: format!("Seconds for {} objects", count(options.objects)),
        x_label: "bytes of a batch".to_owned(),
        y_label: "seconds".to_owned(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series: curves,
    });
    Ok(report)
}

/// For each carrier and batch, the seconds of each repetition.
fn measure(launch: &Launch<'_>, options: &Options) -> Result<[Vec<Vec<f64>>; 2], Failure> {
    let mut times = CARRIERS.map(|_| vec![Vec::new(); options.batches.len()]);
    let mut steps = Steps::new(launch, options.repetitions, options.batches.len() * CARRIERS.len());
    for _ in 0..options.repetitions {
        for (batch, bytes) in options.batches.iter().enumerate() {
            for (index, carrier) in CARRIERS.into_iter().enumerate() {
                steps.next();
                let run = p2mp::run_once(launch, carrier, &plan(options, *bytes))?;
                times[index][batch].push(run.seconds);
            }
        }
    }
    Ok(times)
}

fn plan(options: &Options, batch_bytes: usize) -> Plan {
    Plan {
        objects: options.objects,
        receivers: usize::from(options.receivers),
        batch_bytes,
        packets: options.packets,
        packets_per_batch: PACKETS_PER_BATCH,
        capacity_bytes: options.capacity_bytes,
    }
}

fn name(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Toroni => "toroni",
        Carrier::Tcp => "tcp",
        Carrier::Queue { .. } => "queue",
    }
}

/// How many times slower the queue is, for each batch.
fn ratio_table(options: &Options, times: &[Vec<Vec<f64>>; 2]) -> Table {
    let rows = options.batches.iter().enumerate().map(|(batch, bytes)| {
        let ratios = experiment::ratios(&times[1][batch], &times[0][batch]);
        let cell = Summary::of(&ratios).map_or_else(Cell::none, Cell::median);
        (count(*bytes as u64), vec![cell])
    });
    Table {
        name: "ratio".to_owned(),
        title: "Time over the queue / time over Toroni, run for run".to_owned(),
        unit: "times".to_owned(),
        corner: "batch, bytes".to_owned(),
        columns: vec!["median".to_owned()],
        rows: rows.collect(),
        ..Table::default()
    }
}

/// The time with the smallest batches over that with the largest, run for run.
fn steepness(options: &Options, times: &[Vec<f64>]) -> Option<f64> {
    let sizes = || options.batches.iter().enumerate();
    let (smallest, _) = sizes().min_by_key(|(_, bytes)| **bytes)?;
    let (largest, _) = sizes().max_by_key(|(_, bytes)| **bytes)?;
    let ratios = experiment::ratios(times.get(smallest)?, times.get(largest)?);
    Summary::of(&ratios).map(|summary| summary.median)
}
