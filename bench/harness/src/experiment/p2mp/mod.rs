//! *Point to Multi-point IPC Comparison*: one sender, some receivers, and a hundred million small objects in batches;
//! over Toroni, over TCP, and over the queue of the published experiment, in turn.
//!
//! All do the same work: the sender makes every object, every receiver checks the number of every object, and the clock
//! runs from the first object made until the last receiver has checked the last one.

mod carrier;
mod objects;
mod over_queue;
mod over_tcp;
mod over_toroni;
mod perform;
mod queue;

pub(super) use carrier::{Carrier, Plan};
pub(crate) use perform::Task;

use crate::Failure;
use crate::experiment::{self, Steps, deviation, sized};
use crate::options::{RunLength, RunOptions};
use crate::process_group::{self, Begin, Launch};
use crate::registry::Workload;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table, figure};
use crate::summary::Summary;
use clap::Args;
use toroni_process::units::parse_bytes;

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench p2mp --quick --receivers 2 --plot p2mp.svg

One sender process and several receiver processes, objects of 50 bytes. Measured in turn: Toroni, TCP, and the queue of \
the published experiment with each of its two mutexes.")]
pub(crate) struct P2mp {
    #[command(flatten)]
    run: RunOptions,
    /// Objects that each receiver receives [default: 100 million; 20 million with --quick, 1000 million with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    objects: Option<u64>,
    #[command(flatten)]
    sizes: Sizes,
    /// Size of a batch [default: 100000]
    #[arg(long, value_name = "BYTES", value_parser = batch_bytes)]
    batch: Option<usize>,
}

/// The options of this experiment and of the test of batch sizes.
#[derive(Args, Debug)]
pub(super) struct Sizes {
    /// Number of receiving processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=15))]
    pub(super) receivers: u16,
    /// Packets in the queue; a batch is two packets
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(2..))]
    pub(super) packets: u16,
    /// Size of Toroni's ring, a power of two
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = parse_bytes)]
    pub(super) capacity: u64,
}

/// Parses the size of a batch: two packets of the queue, each with a header and at least one object.
pub(super) fn batch_bytes(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_bytes(text)?) {
        Ok(bytes) if (200..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("a batch has 200 bytes to 1 GiB".to_owned()),
    }
}

impl Workload for P2mp {
    const NAME: &'static str = "p2mp";
    const SUMMARY: &'static str = "One sender and several receivers of small objects in batches, compared with TCP and the queue of the paper Point to Multi-point IPC Comparison";
    type Work = Task;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let (objects, repetitions) = match self.run.length() {
            RunLength::Quick => (20_000_000, 3),
            RunLength::Usual => (100_000_000, 5),
            RunLength::Full => (1_000_000_000, 5),
        };
        let objects = self.objects.unwrap_or(objects);
        let plan = self.sizes.plan(objects, self.batch.unwrap_or(100_000));
        run(launch, &plan, self.run.repetitions.unwrap_or(repetitions))
    }
}

impl Sizes {
    pub(super) fn plan(&self, objects: u64, batch_bytes: usize) -> Plan {
        Plan {
            objects,
            receivers: usize::from(self.receivers),
            batch_bytes,
            packets: usize::from(self.packets),
            packets_per_batch: PACKETS_PER_BATCH,
            capacity_bytes: self.capacity,
        }
    }
}

/// As in the published experiment.
const PACKETS_PER_BATCH: usize = 2;

const CARRIERS: [Carrier; 4] = [
    Carrier::Toroni,
    Carrier::Queue { adaptive: false },
    Carrier::Queue { adaptive: true },
    Carrier::Tcp,
];

/// Seconds per 10⁹ objects in the published experiment, in the order of [`CARRIERS`].
const PUBLISHED: [Option<f64>; 4] = [None, Some(10.614), Some(10.509), Some(25.456)];

/// Goals: how many times slower than Toroni the others are.
const GOAL_TCP: f64 = 8.0;
const GOAL_QUEUE: f64 = 3.0;

/// Measures all carriers in turn.
fn run(launch: &Launch<'_>, plan: &Plan, repetitions: u32) -> Result<Report, Failure> {
    check(plan)?;
    let mut times = CARRIERS.map(|_| Vec::new());
    let mut cpu_times = CARRIERS.map(|_| Vec::new());
    let mut steps = Steps::new(launch, repetitions, CARRIERS.len());
    for _ in 0..repetitions {
        for (index, carrier) in CARRIERS.into_iter().enumerate() {
            steps.next();
            let run = run_once(launch, carrier, plan)?;
            times[index].push(run.seconds);
            cpu_times[index].push(run.cpu_seconds);
        }
    }

    let mut report = Report {
        name: P2mp::NAME.to_owned(),
        title: "Point to multipoint: one sender, several receivers, small objects".to_owned(),
        conditions: experiment::conditions(repetitions),
        ..Report::default()
    };
    conditions(&mut report, plan);
    let rows: Vec<(String, &[f64])> = CARRIERS
        .iter()
        .zip(&times)
        .map(|(carrier, times)| (carrier.to_string(), &times[..]))
        .collect();
    report.tables.push(seconds_table(plan, &rows));
    report.tables.push(comparison(plan, &times, &cpu_times));
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
    report
        .notes
        .push("In the published experiment, TCP took 2.4 times as long as the queue.".to_owned());
    report.notes.push(format!(
        "lost = 0, doubled = 0, out of order = 0: each of {} receivers checked the number of each of {} \
         objects in every run.",
        plan.receivers,
        experiment::count(plan.objects)
    ));
    report.charts.push(chart(plan, &times));
    Ok(report)
}

/// Checks that each carrier can carry batches of this size.
pub(super) fn check(plan: &Plan) -> Result<(), Failure> {
    experiment::check_fits(plan.batch_bytes, plan.capacity_bytes)?;
    let least = PACKETS_PER_BATCH * (over_queue::HEADER + objects::OBJECT);
    if plan.batch_bytes < least || plan.packets < PACKETS_PER_BATCH {
        return Err(Failure::new(format!(
            "batches of {} bytes in a queue of {} packets: use {least} bytes and {PACKETS_PER_BATCH} packets \
             or more",
            plan.batch_bytes, plan.packets
        )));
    }
    Ok(())
}

/// The result of one run over one carrier.
pub(super) struct Run {
    /// From the first object made until the last receiver has checked the last one.
    pub(super) seconds: f64,
    /// CPU time of all processes.
    pub(super) cpu_seconds: f64,
}

pub(super) fn run_once(launch: &Launch<'_>, carrier: Carrier, plan: &Plan) -> Result<Run, Failure> {
    let receivers = u16::try_from(plan.receivers).map_err(Failure::of("count the receivers"))?;
    let setup = experiment::setup(1, receivers, plan.batch_bytes, plan.capacity_bytes);
    let work = Task { carrier, plan: plan.clone() };
    let outcome = process_group::run(launch, &setup, &work, Begin::AtTheGate)?;
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

/// Adds the conditions that this experiment and the test of batch sizes report.
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
            "ring of {}, policy wait:forever; a batch is a message that is made and read in place; a receiver \
             without work blocks",
            sized(plan.capacity_bytes)
        ),
    );
    report.condition(
        "queue",
        format!(
            "{} packets in shared memory, {} to a batch, made and read in place; process-shared mutex; one \
             byte on a Unix socket for each batch in both directions; a process without work blocks",
            plan.packets, plan.packets_per_batch
        ),
    );
    report.condition("pinning", format!("none; {} processes at work", plan.receivers + 1));
}

/// Makes the table of the published experiment.
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

/// Seconds with four decimals, because runs of a test take milliseconds.
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
        title: "Compared with Toroni in the same repetition (medians)".to_owned(),
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
