//! The test of the proactor paper (section 13, where a connection is a *session*): connections over TCP in one process,
//! clients and servers on one pool of threads, and the number of bytes that they move in a given time.
//!
//! A client writes blocks. With a window, a read is always under way, and the client writes while less than the window
//! is under way; without one, it writes a block, reads it back, and writes the next. A server writes back what it reads.
//! Each completed read and write is followed by a delay, which stands for the work of a callback. What moves the bytes is
//! a *column* of the table; all columns run the same [`end::End`]s.

mod columns;
pub mod deal;
pub mod end;
mod engines;
pub mod ledger;
mod outcome;
mod perform;
mod reactor;
pub mod sockets;

pub use columns::{Column, Kind, own_columns};
pub use perform::{Moved, perform_with};

use crate::Failure;
use crate::experiment::{self, Steps};
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::{self, Begin, Launch};
use crate::report::Report;
use clap::Args;
use outcome::{Outcome, Runs};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The sizes of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of connections; both ends of each are in this process.
    pub connections: u16,
    /// Number of threads in the pool.
    pub threads: u16,
    /// Bytes that a client writes at once.
    pub block_bytes: usize,
    /// Bytes of a connection that may be under way before its client stops writing; 0 for half-duplex.
    pub window_bytes: u64,
    /// How a callback spends its delay.
    pub delay: Delay,
    /// Delay of each callback, in microseconds.
    pub delay_us: u32,
    /// Duration of the run.
    pub milliseconds: u32,
}

/// How a callback spends its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    /// It sleeps: at least as long as asked for, and longer if the kernel wakes it late.
    Sleep,
    /// It spins.
    Spin,
}

/// The work of one run: a column and its sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What moves the bytes.
    pub column: String,
    /// The sizes.
    pub plan: Plan,
}

/// A row of the paper's table: connections, threads, bytes of a block and of the window, microseconds of a delay, seconds
/// of the test; and the bytes a second that the paper's thread-pool reactor moved.
type Row = (u16, u16, usize, u64, u32, u32, f64);

const ROWS: [Row; 12] = [
    (1, 1, 512, 1024, 0, 2, 25_955_584.0),
    (1, 1, 512, 1024, 10, 2, 1_574_912.0),
    (1, 1, 8192, 8192, 0, 2, 206_524_416.0),
    (1, 5, 8192, 8192, 0, 1, 99_426_304.0),
    (1, 5, 8192, 8192, 10, 1, 16_801_792.0),
    (40, 5, 8192, 8192, 10, 5, 68_858_675.2),
    (40, 5, 8192, 0, 10, 2, 79_896_576.0),
    (100, 4, 1024, 1024, 10, 5, 7_290_880.0),
    (100, 5, 8192, 8192, 10, 5, 69_946_572.8),
    (100, 5, 8192, 8192, 0, 5, 91_511_193.6),
    (100, 5, 8192, 0, 10, 5, 61_944_627.2),
    (100, 5, 8192, 0, 0, 5, 85_606_400.0),
];

/// The options of the experiment.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:
  toroni-bench proactor --rows 1,9 --plot proactor.svg

The test of the proactor paper (section 13): clients write blocks, and servers write back what they read. All run in one \
process on one pool of threads. The handler of each completed read and write takes a delay; a row with a delay is \
measured twice, with handlers that sleep and with handlers that spin.")]
pub struct Proactor {
    #[command(flatten)]
    run: RunOptions,
    /// Rows of the paper's table, counting from 1 [default: all 12; five with --quick]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    rows: Vec<usize>,
    /// Columns, by their titles in the table [default: all]. An engine may have settings, as in a processor's
    /// configuration: "auto max-operations=64 pairs"
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    columns: Vec<String>,
    /// Also print what an operation costs: user time, system time, and how often a thread goes to sleep
    #[arg(long)]
    costs: bool,
    /// Milliseconds per run [default: 300; 100 with --quick, 1 to 5 s as in the paper with --full]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    milliseconds: Option<u32>,
}

impl Proactor {
    /// Returns the columns that the command line asks for; none for all.
    #[must_use]
    pub fn asked_for(&self) -> &[String] {
        &self.columns
    }

    /// Returns whether the command line asks for this column.
    #[must_use]
    pub fn wants(&self, column: &str) -> bool {
        self.columns.is_empty() || self.columns.iter().any(|wanted| wanted == column)
    }

    /// Measures the columns that the command line asks for, in all rows, in turn. If a run of a column fails, or other bytes
    /// arrive than were sent, the column is missing in that row.
    ///
    /// # Errors
    /// If a row or column does not exist, or nothing could be measured.
    pub fn compare(&self, launch: &Launch<'_>, columns: &[Column]) -> Result<Report, Failure> {
        let mut options = Options::of(self.run.length());
        options.repetitions = self.run.repetitions.unwrap_or(options.repetitions);
        options.milliseconds = self.milliseconds.or(options.milliseconds);
        replace(&mut options.rows, &self.rows);
        run(launch, &options, self.chosen(columns)?, self.costs)
    }

    fn chosen(&self, columns: &[Column]) -> Result<Vec<Column>, Failure> {
        if let Some(unknown) =
            self.columns.iter().find(|name| columns.iter().all(|column| column.name != **name))
        {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            return Err(Failure::new(format!(
                "there is no column {unknown:?}: use some of {}",
                names.join(", ")
            )));
        }
        Ok(columns.iter().filter(|column| self.wants(&column.name)).cloned().collect())
    }
}

/// What to measure, and how often.
struct Options {
    /// Rows of the paper's table, counted from 1.
    rows: Vec<usize>,
    /// Milliseconds of a run; `None` for what the paper's rows took, 1 to 5 s.
    milliseconds: Option<u32>,
    /// How often each row is measured with each column, in turn.
    repetitions: u32,
}

impl Options {
    fn of(length: RunLength) -> Self {
        let rows = (1..=ROWS.len()).collect();
        match length {
            RunLength::Quick => {
                Self { rows: vec![1, 3, 7, 8, 10], milliseconds: Some(100), repetitions: 1 }
            }
            RunLength::Usual => Self { rows, milliseconds: Some(300), repetitions: 5 },
            RunLength::Full => Self { rows, milliseconds: None, repetitions: 5 },
        }
    }

    /// Returns the plans of the rows, each with the paper's rate. A row with a delay makes two plans.
    fn plans(&self) -> Result<Vec<(Plan, f64)>, Failure> {
        let mut plans = Vec::new();
        for number in &self.rows {
            let row = number.checked_sub(1).and_then(|index| ROWS.get(index));
            let Some(&(
                connections,
                threads,
                block_bytes,
                window_bytes,
                delay_us,
                seconds,
                published,
            )) = row
            else {
                return Err(Failure::new(format!(
                    "there is no row {number}: use some of 1 to {}",
                    ROWS.len()
                )));
            };
            let milliseconds = self.milliseconds.unwrap_or(seconds * 1000);
            let delays = if delay_us == 0 { &DELAYS[1..] } else { &DELAYS[..] };
            plans.extend(delays.iter().map(|delay| {
                let delay = *delay;
                let plan = Plan {
                    connections,
                    threads,
                    block_bytes,
                    window_bytes,
                    delay,
                    delay_us,
                    milliseconds,
                };
                (plan, published)
            }));
        }
        Ok(plans)
    }
}

const DELAYS: [Delay; 2] = [Delay::Sleep, Delay::Spin];

impl Plan {
    /// Returns the label of its row.
    fn label(&self) -> String {
        let Self { connections, threads, block_bytes, window_bytes, delay, delay_us, .. } = self;
        let text = format!("{connections} × {threads}, {block_bytes} B, w {window_bytes}");
        match (delay_us, delay) {
            (0, _) => text,
            (_, Delay::Sleep) => format!("{text}, sleep {delay_us} µs"),
            (_, Delay::Spin) => format!("{text}, spin {delay_us} µs"),
        }
    }

    fn seconds(&self) -> f64 {
        f64::from(self.milliseconds) / 1e3
    }
}

/// Returns how TCP decides how much may be under way; on loopback, that decides how often it sends.
fn congestion_control() -> String {
    let file = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    file.map_or_else(|error| format!("unknown: {error}"), |name| name.trim().to_owned())
}

/// Measures all columns in all rows, in turn.
fn run(
    launch: &Launch<'_>,
    options: &Options,
    columns: Vec<Column>,
    costs: bool,
) -> Result<Report, Failure> {
    let plans = options.plans()?;
    let runs = measure(launch, options, &plans, &columns)?;
    let mut report = Report {
        name: "proactor".to_owned(),
        title: "Connections over TCP on the loopback interface, in one process".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    let seconds = plans.iter().map(|(plan, _)| plan.seconds());
    let (least, most) = seconds.fold((f64::MAX, 0.0_f64), |(least, most), seconds| {
        (least.min(seconds), most.max(seconds))
    });
    report.condition("time", format!("{least} to {most} s for each cell, in a process of its own"));
    report.condition(
        "work",
        "clients and servers on one pool of threads; TCP_NODELAY; both ends of each read are checked",
    );
    report.condition("pinning", "none");
    report.condition("congestion control", congestion_control());
    let outcome = Outcome { plans, columns, runs };
    let missing = outcome.missing();
    if !outcome.is_measured() && !missing.is_empty() {
        return Err(Failure::new(missing.join("\n")));
    }
    report.tables.push(outcome.rates());
    if costs {
        report.tables.extend(outcome.costs());
    }
    report.tables.extend(outcome.comparison());
    report.goals = outcome.goals();
    report.notes = missing;
    report.charts.push(outcome.chart());
    Ok(report)
}

fn measure(
    launch: &Launch<'_>,
    options: &Options,
    plans: &[(Plan, f64)],
    columns: &[Column],
) -> Result<Runs, Failure> {
    let mut runs: Runs = vec![vec![Ok(Vec::new()); columns.len()]; plans.len()];
    let mut steps = Steps::new(launch, options.repetitions, plans.len() * columns.len());
    for _ in 0..options.repetitions {
        for (row, (plan, _)) in plans.iter().enumerate() {
            for (index, column) in columns.iter().enumerate() {
                steps.next();
                let (Ok(program), Ok(done)) = (&column.program, &mut runs[row][index]) else {
                    continue;
                };
                let launch = Launch { program: program.clone(), ..launch.clone() };
                match run_once(&launch, &column.name, plan) {
                    Ok(moved) => done.push(moved),
                    Err(Failure::Interrupted) => return Err(Failure::Interrupted),
                    Err(failure) => runs[row][index] = Err(failure.to_string()),
                }
            }
        }
    }
    Ok(runs)
}

/// Returns what one run moved.
fn run_once(launch: &Launch<'_>, column: &str, plan: &Plan) -> Result<Moved, Failure> {
    let setup = experiment::setup(1, 0, plan.block_bytes, 0);
    let work = Task { column: column.to_owned(), plan: plan.clone() };
    let outcome = process_group::run(launch, &setup, &work, Begin::AtTheGate)?;
    let moved = outcome.senders.into_iter().next();
    moved.ok_or_else(|| Failure::new("it sent no result"))
}

/// Locks a mutex. A thread that panicked with the lock has already made the run fail.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Plan {
    /// Returns a short plan without a delay.
    fn short(connections: u16, threads: u16, block_bytes: usize, window_bytes: u64) -> Self {
        let (delay, delay_us, milliseconds) = (Delay::Spin, 0, 60);
        Self { connections, threads, block_bytes, window_bytes, delay, delay_us, milliseconds }
    }
}
