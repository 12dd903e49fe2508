//! Floors: the costs of the machine itself, without any transport. A goal that is a ratio to a floor means the same on
//! another machine, so floors are measured in the same run as the peers.
//!
//! ```text
//!   copy          one core copies payloads from its cache into a ring, as every sender must
//!   copy through  the same, while the other core copies them out again, as every receiver must
//!   cache line    two cores pass a number back and forth, on one line (the probe of the harness) and on two lines
//!   futex         the same, but each process sleeps in the kernel until the other wakes it; on two cores, on
//!                 one core, and where the scheduler puts them
//! ```
//!
//! Copying through, two lines and futexes need a second process: [`pair`] starts it, pins both and ends it.

mod copying;
mod handing_over;
mod pair;

pub(crate) use pair::{PairError, partner_main};

use toroni_bench_harness::machine;
use toroni_bench_harness::report::{Cell, Report, Table};
use toroni_bench_harness::summary::Summary;

/// One floor.
#[derive(Clone, Debug)]
pub(crate) struct Floor {
    /// What was measured, with its size or cores.
    pub(crate) name: String,
    /// Unit: `ns` for one way, or `GB/s` (10⁹ bytes per second).
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    pub(crate) samples: Vec<f64>,
}

pub(crate) const COPY: &str = "copy of 1024 B into a ring of 4 MiB";
/// A request and its answer, each on a line of its own.
pub(crate) const TWO_LINES: &str = "two cache lines, across cores, one way";
pub(crate) const FUTEX_ACROSS_CORES: &str = "futex, across cores, one way";
pub(crate) const FUTEX_NOT_PINNED: &str = "futex, not pinned, one way";

/// How long the measurement of a floor takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLength {
    pub(crate) repetitions: usize,
    /// Bytes that one repetition of a copy moves.
    pub(crate) bytes: usize,
    /// Round trips of one repetition, if the ends poll; if they sleep, a twentieth of that.
    pub(crate) rounds: u32,
}

impl RunLength {
    pub(crate) const FULL: RunLength =
        RunLength { repetitions: 9, bytes: 1 << 30, rounds: 200_000 };
    pub(crate) const QUICK: RunLength =
        RunLength { repetitions: 5, bytes: 1 << 28, rounds: 50_000 };
    /// Between two runs of something else.
    pub(crate) const MOMENT: RunLength =
        RunLength { repetitions: 1, bytes: 1 << 26, rounds: 20_000 };
}

/// Measures all floors of this machine.
///
/// # Errors
/// If the partner process cannot be started, or a process cannot be pinned to a core.
pub(crate) fn report(length: RunLength) -> Result<Report, PairError> {
    let mut floors: Vec<Floor> = [64, 256, 1024, 65_536]
        .into_iter()
        .map(|bytes| copying::into_ring(length, bytes))
        .collect();
    floors.push(copying::main_memory(length));
    floors.push(handing_over::copy_through(length)?);
    floors.extend(handing_over::cache_lines(length)?);
    floors.extend(handing_over::futexes(length)?);
    Ok(Report {
        name: "floors".to_owned(),
        title: "Floors: the costs of the machine itself".to_owned(),
        conditions: machine::describe(),
        tables: vec![table(&floors)],
        ..Report::default()
    })
}

/// Measures the floors that latencies are compared with.
///
/// # Errors
/// As [`report`].
pub(crate) fn between_cores(length: RunLength) -> Result<Vec<Floor>, PairError> {
    let mut floors = vec![copying::into_ring(length, 1024)];
    floors.extend(handing_over::cache_lines(length)?);
    floors.extend(handing_over::futexes(length)?);
    Ok(floors)
}

/// Measures what waking a process takes, one way.
///
/// # Errors
/// As [`report`].
pub(crate) fn wake_ups(length: RunLength) -> Result<Vec<Floor>, PairError> {
    handing_over::futexes(length)
}

/// Joins floors with the same name, with the samples of all.
pub(crate) fn merge(floors: Vec<Floor>) -> Vec<Floor> {
    let mut merged: Vec<Floor> = Vec::new();
    for floor in floors {
        match merged.iter_mut().find(|known| known.name == floor.name) {
            Some(known) => {
                known.samples.extend(floor.samples);
                *known =
                    Floor::of(known.name.clone(), known.unit, std::mem::take(&mut known.samples));
            }
            None => merged.push(floor),
        }
    }
    merged
}

pub(crate) fn find<'a>(floors: &'a [Floor], name: &str) -> Option<&'a Floor> {
    floors.iter().find(|floor| floor.name == name)
}

pub(crate) fn table(floors: &[Floor]) -> Table {
    let row = |floor: &Floor| {
        let summary = Summary::of(&floor.samples);
        let number = |value: fn(&Summary) -> f64| {
            summary.as_ref().map_or_else(Cell::none, |summary| Cell::number(value(summary)))
        };
        let cells = vec![
            summary.map_or_else(Cell::none, Cell::median),
            number(|summary| summary.low),
            number(|summary| summary.high),
            Cell::text(floor.unit),
        ];
        (floor.name.clone(), cells)
    };
    Table {
        name: "floors".to_owned(),
        title: "Floors: the costs of the machine itself".to_owned(),
        corner: "floor".to_owned(),
        columns: ["median", "lowest", "highest", "unit"].map(str::to_owned).to_vec(),
        rows: floors.iter().map(row).collect(),
        ..Table::default()
    }
}

impl Floor {
    fn of(name: impl Into<String>, unit: &'static str, samples: Vec<f64>) -> Floor {
        let median = Summary::of(&samples).map_or(f64::NAN, |summary| summary.median);
        Floor { name: name.into(), unit, median, samples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_of_one_name_are_merged() {
        let floors = merge(vec![
            Floor::of("x", "ns", vec![3.0, 1.0]),
            Floor::of("y", "ns", vec![7.0]),
            Floor::of("x", "ns", vec![2.0]),
        ]);
        assert_eq!(floors.len(), 2);
        assert_eq!(find(&floors, "x").map(|floor| floor.median), Some(2.0));
        assert_eq!(table(&floors).rows.len(), 2);
    }
}
