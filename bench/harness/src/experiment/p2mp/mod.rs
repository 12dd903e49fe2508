//! Point to multipoint: one sender, some receivers, and a hundred million small objects in batches;
//! over Toroni, over TCP, and over the queue of the published experiment, in turn.
//!
//! What counts is the same for all: the sender makes every object, every receiver looks at the number of
//! every object and checks it, and the clock runs from the first object made to the last one seen by
//! the last receiver.

mod carrier;
mod objects;
mod over_queue;
mod over_tcp;
mod over_toroni;
mod perform;
mod queue;

pub(super) use carrier::{Carrier, Plan};
pub use perform::Task;
pub(crate) use perform::perform;

use crate::Failure;
use crate::experiment::{self, Steps, deviation, sized};
use crate::process_group::{self, Begin, Launch};
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table, figure};
use crate::summary::Summary;
use crate::workload::{RunLength, Work};
use perform::{Received, Sent};

/// What is measured, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Objects that each receiver gets, of 50 bytes each.
    pub objects: u64,
    /// Receiving processes.
    pub receivers: u16,
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// Packets of the queue; a batch is two of them.
    pub packets: usize,
    /// Bytes of Toroni's ring.
    pub capacity_bytes: u64,
    /// How often each of them is measured, in turn.
    pub repetitions: u32,
}

impl Options {
    /// For this length.
    #[must_use]
    pub fn of(length: RunLength) -> Self {
        let usual = Self {
            objects: 100_000_000,
            receivers: 3,
            batch_bytes: 100_000,
            packets: 256,
            capacity_bytes: 8 << 20,
            repetitions: 5,
        };
        match length {
            RunLength::Quick => Self { objects: 20_000_000, repetitions: 3, ..usual },
            RunLength::Usual => usual,
            RunLength::Full => Self { objects: 1_000_000_000, ..usual },
        }
    }
}

impl Options {
    fn plan(&self) -> Plan {
        Plan {
            objects: self.objects,
            receivers: usize::from(self.receivers),
            batch_bytes: self.batch_bytes,
            packets: self.packets,
            packets_per_batch: PACKETS_PER_BATCH,
            capacity_bytes: self.capacity_bytes,
        }
    }
}

/// As in the experiment.
pub(super) const PACKETS_PER_BATCH: usize = 2;

const CARRIERS: [Carrier; 4] = [
    Carrier::Toroni,
    Carrier::Queue { adaptive: false },
    Carrier::Queue { adaptive: true },
    Carrier::Tcp,
];

/// Seconds per 10⁹ objects in the experiment, in the order of [`CARRIERS`].
const PUBLISHED: [Option<f64>; 4] = [None, Some(10.614), Some(10.509), Some(25.456)];

/// How many times slower than Toroni the others are to be.
const GOAL_TCP: f64 = 8.0;
const GOAL_QUEUE: f64 = 3.0;

/// Measures all of them in turn.
///
/// # Errors
/// If a run fails, or an object was lost, doubled or out of order.
pub fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    let plan = options.plan();
    check(&plan)?;
    let mut times = CARRIERS.map(|_| Vec::new());
    let mut cpu_times = CARRIERS.map(|_| Vec::new());
    let mut steps = Steps::new(launch, options.repetitions, CARRIERS.len());
    for _ in 0..options.repetitions {
        for (index, carrier) in CARRIERS.into_iter().enumerate() {
            steps.next();
            let run = run_once(launch, carrier, &plan)?;
            times[index].push(run.seconds);
            cpu_times[index].push(run.cpu_seconds);
        }
    }

    let mut report = Report {
        name: "p2mp".to_owned(),
        title: "Point to multipoint: one sender, several receivers, small objects".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    conditions(&mut report, &plan);
    report.condition("pinning", format!("none; {} processes at work", options.receivers + 1));
    let rows: Vec<(String, &[f64])> = CARRIERS
        .iter()
        .zip(&times)
        .map(|(carrier, times)| (carrier.to_string(), &times[..]))
        .collect();
    report.tables.push(seconds_table(&plan, &rows));
    report.tables.push(comparison(&plan, &times, &cpu_times));
    let tcp = experiment::ratios(&times[3], &times[0]);
    let queue: Vec<f64> = times[1].iter().zip(&times[2]).map(|(a, b)| a.min(*b)).collect();
    let queue = experiment::ratios(&queue, &times[0]);
    for (what, ratios, bound) in [
        ("time over TCP / time over Toroni", tcp, GOAL_TCP),
        ("time over the queue (the better mutex) / time over Toroni", queue, GOAL_QUEUE),
    ] {
        if let Some(summary) = Summary::of(&ratios) {
            report.goals.push(Goal {
                what: what.to_owned(),
                unit: "times".to_owned(),
                reference: None,
                bound: Bound::AtLeast(bound),
                measured: summary.median,
            });
        }
    }
    report.notes.push("In the experiment TCP took 2.4 times as long as the queue.".to_owned());
    report.notes.push(format!(
        "lost = 0, doubled = 0, out of order = 0: each of {} receivers checked the number of each of {} \
         objects in every run.",
        plan.receivers,
        experiment::count(plan.objects)
    ));
    report.charts.push(chart(&plan, &times));
    Ok(report)
}

/// Whether each carrier can carry batches of this size.
pub(super) fn check(plan: &Plan) -> Result<(), Failure> {
    experiment::check_fits(plan.batch_bytes, plan.capacity_bytes)?;
    let least = PACKETS_PER_BATCH * (over_queue::HEADER + objects::OBJECT);
    if plan.batch_bytes < least || plan.packets < PACKETS_PER_BATCH {
        return Err(Failure::new(format!(
            "batches of {} bytes in a queue of {} packets: take {least} bytes and {PACKETS_PER_BATCH} packets \
             or more",
            plan.batch_bytes, plan.packets
        )));
    }
    Ok(())
}

/// One run over one carrier.
pub(super) struct Run {
    /// From the first object made to the last one seen by the last receiver.
    pub(super) seconds: f64,
    /// CPU time of all processes.
    pub(super) cpu_seconds: f64,
}

pub(super) fn run_once(launch: &Launch<'_>, carrier: Carrier, plan: &Plan) -> Result<Run, Failure> {
    let receivers = u16::try_from(plan.receivers).map_err(Failure::of("count the receivers"))?;
    let setup = experiment::setup(1, receivers, plan.batch_bytes, plan.capacity_bytes);
    let work = Work::P2mp(Task { carrier, plan: plan.clone() });
    let outcome = process_group::run::<Sent, Received>(launch, &setup, &work, Begin::AtTheGate)?;
    for received in &outcome.receivers {
        let seen = received.seen;
        if !seen.is_right(plan.objects) {
            return Err(Failure::new(format!(
                "over {carrier} a receiver saw {} of {} objects, and {} of them out of turn",
                seen.objects, plan.objects, seen.wrong
            )));
        }
    }
    let began = outcome.senders.iter().map(|sent| sent.began_ns).min();
    let ended = outcome.receivers.iter().map(|received| received.ended_ns).max();
    let (Some(began), Some(ended)) = (began, ended) else {
        return Err(Failure::new("a run without a sender or without receivers measures nothing"));
    };
    let cpu_ns: u64 = outcome.senders.iter().map(|sent| sent.cpu_ns).sum::<u64>()
        + outcome.receivers.iter().map(|received| received.cpu_ns).sum::<u64>();
    Ok(Run {
        seconds: experiment::seconds(ended.saturating_sub(began)),
        cpu_seconds: experiment::seconds(cpu_ns),
    })
}

/// What the reports of this and of the sweep say of their runs.
pub(super) fn conditions(report: &mut Report, plan: &Plan) {
    report.condition(
        "work",
        format!(
            "1 sender, {} receivers, {} objects of {} bytes to each",
            plan.receivers,
            experiment::count(plan.objects),
            objects::OBJECT
        ),
    );
    report.condition(
        "Toroni",
        format!(
            "ring of {}, policy wait:forever, a batch is a message made in place and read in place; \
             a receiver without work blocks",
            sized(plan.capacity_bytes)
        ),
    );
    report.condition(
        "queue",
        format!(
            "{} packets in shared memory, {} to a batch, made and read in place; process-shared mutex, \
             a byte on a Unix socket for each batch in both directions; who has no work blocks",
            plan.packets, plan.packets_per_batch
        ),
    );
}

/// The experiment's own table.
pub(super) fn seconds_table(plan: &Plan, rows: &[(String, &[f64])]) -> Table {
    let repetitions = rows.first().map_or(0, |(_, times)| times.len());
    let mut columns: Vec<String> = (1..=repetitions).map(|n| format!("rep. {n}")).collect();
    columns.extend(["average", "stdev", "min", "max"].map(str::to_owned));
    let row = |(label, times): &(String, &[f64])| {
        let mut cells: Vec<Cell> = times.iter().map(|time| precise(*time)).collect();
        match Summary::of(times) {
            Some(summary) => cells.extend([
                Cell { summary: Some(summary), ..precise(summary.mean) },
                precise(deviation(times)),
                precise(summary.low),
                precise(summary.high),
            ]),
            None => cells
                .extend([const { Cell { text: String::new(), value: None, summary: None } }; 4]),
        }
        (label.clone(), cells)
    };
    Table {
        name: "seconds".to_owned(),
        title: format!(
            "Time in seconds to reliably transfer {} objects each of size {} bytes to all receivers",
            experiment::count(plan.objects),
            objects::OBJECT
        ),
        unit: "s".to_owned(),
        columns,
        rows: rows.iter().map(row).collect(),
        ..Table::default()
    }
}

/// Seconds with four decimals: runs of a test take milliseconds.
fn precise(seconds: f64) -> Cell {
    Cell { text: format!("{seconds:.4}"), value: Some(seconds), summary: None }
}

fn comparison(plan: &Plan, times: &[Vec<f64>; 4], cpu_times: &[Vec<f64>; 4]) -> Table {
    let gigabytes = experiment::float(plan.objects * objects::OBJECT as u64) / 1e9;
    let rows = CARRIERS.iter().enumerate().map(|(index, carrier)| {
        let ratios = Summary::of(&experiment::ratios(&times[index], &times[0]));
        let median = Summary::of(&times[index]).map(|summary| summary.median);
        let cpu = Summary::of(&cpu_times[index]).map_or_else(Cell::none, Cell::median);
        let cells = vec![
            ratios.map_or_else(Cell::none, Cell::median),
            ratios.map_or_else(Cell::none, |ratios| {
                Cell::text(format!("{}–{}", figure(ratios.low), figure(ratios.high)))
            }),
            cpu,
            median.map_or_else(Cell::none, |seconds| Cell::number(gigabytes / seconds)),
            PUBLISHED[index].map_or_else(Cell::none, Cell::number),
        ];
        (carrier.to_string(), cells)
    });
    Table {
        name: "comparison".to_owned(),
        title: "Compared with Toroni, run for run (medians)".to_owned(),
        columns: ["times slower", "from–to", "CPU s", "GB/s to each", "published, s per 10⁹"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        ..Table::default()
    }
}

fn chart(plan: &Plan, times: &[Vec<f64>; 4]) -> Chart {
    let points = |pick: fn(&Summary) -> f64| {
        let summaries = times.iter().map(|times| Summary::of(times));
        (0_u32..)
            .zip(summaries)
            .filter_map(|(index, summary)| Some((f64::from(index), pick(&summary?))))
            .collect()
    };
    Chart {
        title: format!("Seconds for {} objects", experiment::count(plan.objects)),
        x_label: String::new(),
        y_label: "seconds".to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        categories: CARRIERS.iter().map(Carrier::to_string).collect(),
        series: vec![
            Series::line("fastest", points(|summary| summary.low)),
            Series::line("median", points(|summary| summary.median)),
            Series::line("slowest", points(|summary| summary.high)),
        ],
    }
}
