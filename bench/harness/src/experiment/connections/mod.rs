//! The proactor paper's test (section 13): sessions over TCP in one process, clients and servers on one
//! pool of threads, and the bytes that they move in a time.
//!
//! A client writes blocks. With a window it always has a read under way, and writes again while less than
//! the window is under way; without, it writes a block, reads it back, and writes the next. A server
//! writes back what it reads. Each completed read and write is followed by the delay that stands for a
//! callback's work. What moves the bytes is a *column*; all columns run the same [`end::End`]s.

pub mod end;
mod engines;
pub mod ledger;
mod outcome;
mod perform;
mod reactor;
pub mod sockets;

pub(crate) use perform::perform;
pub use perform::perform_with;

use crate::Failure;
use crate::experiment::{self, Steps, float};
use crate::process_group::{self, Begin, Launch, Program};
use crate::report::Report;
use crate::workload::{RunLength, Work};
use perform::{Moved, REACTOR};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use toroni_proactor::Proactor;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Connections; each has two ends in this process.
    pub sessions: u16,
    /// Of the pool.
    pub threads: u16,
    /// What a client writes at once.
    pub block_bytes: usize,
    /// How much of a session may be under way before its client stops to write; 0 for half-duplex.
    pub window_bytes: u64,
    /// What a delay is made of.
    pub delay: Delay,
    /// Of each callback, in microseconds.
    pub delay_us: u32,
    /// How long the run counts.
    pub milliseconds: u32,
}

/// How a callback passes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    /// Off the processor: at least as long as asked for, and as long as the kernel makes of it.
    Sleep,
    /// On the processor.
    Spin,
}

/// One run of one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What moves the bytes.
    pub column: String,
    /// What is to be done.
    pub plan: Plan,
}

/// A row of the paper's table: sessions, threads, bytes of a block and of the window, microseconds of a
/// delay, seconds of the test; and the bytes a second of the thread-pool reactor there.
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

/// What is measured, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which rows of the paper's table, counted from 1.
    pub rows: Vec<usize>,
    /// Which columns, by their names; none for all.
    pub columns: Vec<String>,
    /// Milliseconds of a run; `None` for what the paper's rows took, 1 to 5 s.
    pub milliseconds: Option<u32>,
    /// How often each row is measured with each column, in turn.
    pub repetitions: u32,
}

impl Options {
    /// For this length.
    #[must_use]
    pub fn of(length: RunLength) -> Self {
        let rows = (1..=ROWS.len()).collect();
        let columns = Vec::new();
        match length {
            RunLength::Quick => {
                let rows = vec![1, 3, 7, 8, 10];
                Self { rows, columns, milliseconds: Some(100), repetitions: 1 }
            }
            RunLength::Usual => Self { rows, columns, milliseconds: Some(300), repetitions: 3 },
            RunLength::Full => Self { rows, columns, milliseconds: None, repetitions: 5 },
        }
    }

    /// Those that are asked for.
    fn chosen(&self, columns: &[Column]) -> Result<Vec<Column>, Failure> {
        if let Some(unknown) =
            self.columns.iter().find(|name| columns.iter().all(|column| column.name != **name))
        {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            return Err(Failure::new(format!(
                "there is no column {unknown:?}: take some of {}",
                names.join(", ")
            )));
        }
        let is_chosen = |name| self.columns.is_empty() || self.columns.contains(name);
        Ok(columns.iter().filter(|column| is_chosen(&column.name)).cloned().collect())
    }

    /// The plans of the rows, each with what the paper measured; a row with a delay is two.
    fn plans(&self) -> Result<Vec<(Plan, f64)>, Failure> {
        let mut plans = Vec::new();
        for number in &self.rows {
            let row = number.checked_sub(1).and_then(|index| ROWS.get(index));
            let Some(&(sessions, threads, block_bytes, window_bytes, delay_us, seconds, published)) =
                row
            else {
                return Err(Failure::new(format!(
                    "there is no row {number}: take some of 1 to {}",
                    ROWS.len()
                )));
            };
            let milliseconds = self.milliseconds.unwrap_or(seconds * 1000);
            let delays = if delay_us == 0 { &DELAYS[1..] } else { &DELAYS[..] };
            plans.extend(delays.iter().map(|delay| {
                let delay = *delay;
                let plan = Plan {
                    sessions,
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
    /// For people.
    fn label(&self) -> String {
        let Self { sessions, threads, block_bytes, window_bytes, delay, delay_us, .. } = self;
        let text = format!("{sessions} × {threads}, {block_bytes} B, w {window_bytes}");
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

/// What moves the bytes.
#[derive(Clone, Debug)]
pub struct Column {
    /// Above the column, and by which its program knows it.
    pub name: String,
    /// What it is compared with.
    pub kind: Kind,
    /// The program that has it, as a child; why there is none, for a column that is missing.
    pub program: Result<Program, String>,
}

/// In which goals a column takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The engine that is chosen where nobody chooses: to be at least as fast as all others.
    Auto,
    /// An engine in the threads of the pool: not to be slower than the reactor.
    Shared,
    /// Another engine.
    Engine,
    /// The thread-pool reactor.
    Reactor,
    /// Somebody else's.
    Peer,
}

/// The columns that this crate has itself. An engine that cannot be had here, as io_uring in most
/// containers, is missing.
#[must_use]
pub fn own_columns(program: &Program) -> Vec<Column> {
    let engines = engines::engines().into_iter().map(|(name, kind, config)| Column {
        name: name.to_owned(),
        kind,
        program: match Proactor::new(&config) {
            Ok(_) => Ok(program.clone()),
            Err(error) => Err(error.to_string()),
        },
    });
    let reactor =
        Column { name: REACTOR.to_owned(), kind: Kind::Reactor, program: Ok(program.clone()) };
    engines.chain([reactor]).collect()
}

/// Measures all columns in all rows, in turn.
///
/// # Errors
/// If there is no such row or column, a run fails, or other bytes arrive than were sent.
pub fn run(launch: &Launch<'_>, options: &Options, columns: &[Column]) -> Result<Report, Failure> {
    let plans = options.plans()?;
    let columns = &options.chosen(columns)?[..];
    let rates = measure(launch, options, &plans, columns)?;
    let mut report = Report {
        name: "proactor".to_owned(),
        title: "Sessions over TCP on the loopback interface, in one process".to_owned(),
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
    report.tables.push(outcome::table(&plans, columns, &rates));
    report.goals = outcome::goals(&plans, columns, &rates);
    for column in columns {
        if let Err(why) = &column.program {
            report.notes.push(format!("{} is MISSING: {why}", column.name));
        }
    }
    report.charts.push(outcome::chart(&plans, columns, &rates));
    Ok(report)
}

/// For each row and column, the bytes a second of each repetition.
type Rates = Vec<Vec<Vec<f64>>>;

fn measure(
    launch: &Launch<'_>,
    options: &Options,
    plans: &[(Plan, f64)],
    columns: &[Column],
) -> Result<Rates, Failure> {
    let mut rates = vec![vec![Vec::new(); columns.len()]; plans.len()];
    let mut steps = Steps::new(launch, options.repetitions, plans.len() * columns.len());
    for _ in 0..options.repetitions {
        for (row, (plan, _)) in plans.iter().enumerate() {
            for (index, column) in columns.iter().enumerate() {
                steps.next();
                if let Ok(program) = &column.program {
                    let launch = Launch { program: program.clone(), ..launch.clone() };
                    let bytes = run_once(&launch, &column.name, plan)?;
                    rates[row][index].push(float(bytes) / plan.seconds());
                }
            }
        }
    }
    Ok(rates)
}

/// Bytes of one run.
fn run_once(launch: &Launch<'_>, column: &str, plan: &Plan) -> Result<u64, Failure> {
    let setup = experiment::setup(1, 0, plan.block_bytes, 0);
    let work = Work::Sessions(Task { column: column.to_owned(), plan: plan.clone() });
    let outcome = process_group::run::<Moved, ()>(launch, &setup, &work, Begin::AtTheGate)
        .map_err(|failure| match failure {
            Failure::Failed(text) => Failure::new(format!("{column}, {}: {text}", plan.label())),
            Failure::Interrupted => Failure::Interrupted,
        })?;
    let moved = outcome.senders.first();
    moved.map(|moved| moved.bytes).ok_or_else(|| Failure::new(format!("{column} says nothing")))
}

/// Whoever panicked with the lock has failed the run already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Plan {
    /// For a moment, without a delay.
    fn short(sessions: u16, threads: u16, block_bytes: usize, window_bytes: u64) -> Self {
        let (delay, delay_us, milliseconds) = (Delay::Spin, 0, 60);
        Self { sessions, threads, block_bytes, window_bytes, delay, delay_us, milliseconds }
    }
}
