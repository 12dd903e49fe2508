//! The network protocol alone, without sockets: what a message, a NAK, a gap and a STATUS take of one core.
//!
//! The clock is that of this thread, so other processes of the machine count only by what they take of the caches. All
//! machines are measured in turn in each repetition, so what disturbs one repetition disturbs all of them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use toroni_bench_harness::Failure;
use toroni_bench_harness::machine;
use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::summary::Summary;
use toroni_machines::{MESSAGE_BYTES, Machine, ROWS};

/// How long the measurement takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLength {
    pub(crate) repetitions: u32,
    /// Of one machine in one repetition, without what is prepared.
    pub(crate) each: Duration,
}

impl RunLength {
    pub(crate) const FULL: Self = Self { repetitions: 15, each: Duration::from_millis(200) };
    pub(crate) const QUICK: Self = Self { repetitions: 5, each: Duration::from_millis(20) };
}

/// Measures all machines.
///
/// # Errors
/// If a machine took no time at all.
pub(crate) fn report(length: RunLength) -> Result<Report, Failure> {
    let mut machines: Vec<Box<dyn Machine>> = ROWS.iter().map(|row| (row.make)()).collect();
    let mut samples = vec![Vec::new(); ROWS.len()];
    for machine in &mut machines {
        // Until its memory is mapped and its branches are known.
        nanoseconds_each(machine.as_mut(), length.each);
    }
    for _ in 0..length.repetitions {
        for (machine, samples) in machines.iter_mut().zip(&mut samples) {
            samples.push(nanoseconds_each(machine.as_mut(), length.each));
        }
    }
    let mut table = Table {
        name: "machines".to_owned(),
        title: "CPU time of each unit, in nanoseconds".to_owned(),
        corner: "machine".to_owned(),
        columns: ["unit", "median", "lowest", "highest"].map(str::to_owned).to_vec(),
        ..Table::default()
    };
    let mut goals = Vec::new();
    for (row, samples) in ROWS.iter().zip(&samples) {
        let summary =
            Summary::of(samples).filter(|summary| summary.low > 0.0).ok_or_else(|| {
                Failure::new(format!("{} took no time: is the clock right?", row.name))
            })?;
        let (low, high) = (Cell::number(summary.low), Cell::number(summary.high));
        table.rows.push((
            row.name.to_owned(),
            vec![Cell::text(row.unit), Cell::median(summary), low, high],
        ));
        goals.extend(row.goal_ns.map(|most| Goal {
            what: format!("{}, {MESSAGE_BYTES} B", row.name),
            unit: "ns".to_owned(),
            reference: None,
            bound: Bound::AtMost(most),
            measured: summary.median,
        }));
    }
    let mut report = Report {
        name: "machines".to_owned(),
        title: "The network protocol alone, without sockets".to_owned(),
        conditions: machine::describe(),
        tables: vec![table],
        goals,
        ..Report::default()
    };
    report
        .condition("repetitions", format!("{}, all machines in turn in each", length.repetitions));
    Ok(report)
}

/// Runs rounds for `at_least`, and returns how long a unit took.
fn nanoseconds_each(machine: &mut dyn Machine, at_least: Duration) -> f64 {
    let (mut time, mut units) = (Duration::ZERO, 0);
    while time < at_least {
        machine.prepare();
        let start = thread_time();
        units += machine.run();
        time += thread_time().saturating_sub(start);
    }
    time.as_nanos() as f64 / units as f64
}

/// How long this thread has run.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}
