//! A flow, repeated for each number of senders and receivers, in the shape of the Toroni paper's tables: a column for
//! each number of writers, a row for each number of readers.

use super::flow::{Flow, Received, Sent};
use crate::Failure;
use crate::options::replace;
use crate::process_group::{self, Begin, Launch, Outcome};
use crate::report::{Cell, Report, Table};
use crate::sequence::Faults;
use crate::summary::mean;
use crate::transport::{Setup, Wait};
use clap::Args;

/// The numbers of writers and readers of a table.
#[derive(Args, Debug)]
pub(super) struct Cells {
    /// Numbers of writers [default: 1,2,4,7; 1 to 7 with --full]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=16))]
    writers: Vec<u16>,
    /// Numbers of readers [default: 1,4,8,16]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    readers: Vec<u16>,
}

impl Cells {
    /// Replaces the defaults by what the command line says.
    pub(super) fn choose(&self, writers: &mut Vec<u16>, readers: &mut Vec<u16>) {
        replace(writers, &self.writers);
        replace(readers, &self.readers);
    }
}

/// A flow and the cells to repeat it for.
pub(super) struct Grid {
    pub(super) writers: Vec<u16>,
    pub(super) readers: Vec<u16>,
    pub(super) repetitions: u32,
    pub(super) capacity: u64,
    pub(super) flow: Flow,
    pub(super) begin: Begin,
}

/// All runs with one number of senders and receivers.
pub(super) struct Runs {
    pub(super) writers: u16,
    pub(super) readers: u16,
    pub(super) outcomes: Vec<Outcome<Sent, Received>>,
}

impl Grid {
    /// Returns the number of runs.
    pub(super) fn steps(&self) -> u64 {
        (self.writers.len() * self.readers.len()) as u64 * u64::from(self.repetitions)
    }

    /// Runs all cells once, then all again, so that a change of the machine meets all of them. Calls `step` after each
    /// run. Fails if a receiver missed anything.
    pub(super) fn run(
        &self,
        launch: &Launch<'_>,
        mut step: impl FnMut(),
    ) -> Result<Vec<Runs>, Failure> {
        let mut cells = Vec::new();
        for readers in &self.readers {
            for writers in &self.writers {
                cells.push(Runs { writers: *writers, readers: *readers, outcomes: Vec::new() });
            }
        }
        for _ in 0..self.repetitions {
            for cell in &mut cells {
                let outcome = self.run_once(launch, cell.writers, cell.readers)?;
                cell.outcomes.push(outcome);
                step();
            }
        }
        Ok(cells)
    }

    fn run_once(
        &self,
        launch: &Launch<'_>,
        writers: u16,
        readers: u16,
    ) -> Result<Outcome<Sent, Received>, Failure> {
        let setup = Setup {
            senders: writers,
            receivers: readers,
            message_bytes: self.flow.lengths.longest(),
            capacity_bytes: self.capacity,
            wait: Wait::Blocking,
            in_place: false,
        };
        let outcome = process_group::run(launch, &setup, &self.flow, self.begin)?;
        check(&outcome, self.flow.messages * u64::from(writers))?;
        Ok(outcome)
    }
}

/// Fails unless every receiver got all messages, in order.
fn check(outcome: &Outcome<Sent, Received>, expected: u64) -> Result<(), Failure> {
    for (number, receiver) in outcome.receivers.iter().enumerate() {
        let Faults { lost, misordered, alien } = receiver.faults;
        let lapses = receiver.counts.lapses.unwrap_or(0);
        if receiver.received != expected || !receiver.faults.is_none() || lapses > 0 {
            return Err(Failure::new(format!(
                "receiver {number} got {} of {expected} messages: {lost} lost, {misordered} out of \
                 order, {alien} foreign, {lapses} lapses: this transport must not lose any message",
                receiver.received
            )));
        }
    }
    Ok(())
}

/// Makes a table with a column for each number of writers; `cell` makes a cell of its runs.
pub(super) fn table(
    name: &str,
    title: &str,
    unit: &str,
    runs: &[Runs],
    cell: impl Fn(&Runs) -> Cell,
) -> Table {
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    for runs in runs {
        let (column, row) = (runs.writers.to_string(), runs.readers.to_string());
        if !columns.contains(&column) {
            columns.push(column);
        }
        match rows.iter_mut().find(|(label, _)| *label == row) {
            Some((_, cells)) => cells.push(cell(runs)),
            None => rows.push((row, vec![cell(runs)])),
        }
    }
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        corner: "R \\ W".to_owned(),
        columns,
        rows,
        definitions: Vec::new(),
    }
}

/// Returns millions of messages a second for each run, the mean over readers. The throughput of a reader is the number
/// of its messages divided by the time between the first and the last.
pub(super) fn rates(runs: &Runs) -> Vec<f64> {
    let rate = |reader: &Received| {
        let ns = reader.last_ns.saturating_sub(reader.first_ns).max(1);
        reader.received as f64 * 1e3 / ns as f64
    };
    let of_run = |outcome: &Outcome<Sent, Received>| {
        mean(&outcome.receivers.iter().map(rate).collect::<Vec<_>>())
    };
    runs.outcomes.iter().map(of_run).collect()
}

/// Adds to the report what the host of the first run described.
pub(super) fn describe_library(report: &mut Report, runs: Option<&Runs>) {
    if let Some(outcome) = runs.and_then(|runs| runs.outcomes.first()) {
        let about = &outcome.about;
        report.condition("library", format!("toroni {}: {}", about.version, about.settings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{About, Guarantees, ReceiverCounts};

    fn received(received: u64, faults: Faults) -> Received {
        Received {
            received,
            first_ns: 1,
            last_ns: 2,
            sleeps: 0,
            cpu_ns: 0,
            busy_ns: 0,
            busy_cpu_ns: 0,
            faults,
            counts: ReceiverCounts::default(),
            latencies: None,
            order: None,
        }
    }

    fn about() -> About {
        let guarantees = Guarantees { lossless: true, total_order: true, in_place: true };
        About { version: String::new(), settings: String::new(), guarantees }
    }

    fn runs(writers: u16, readers: u16, ends_ns: &[u64]) -> Runs {
        let receivers = ends_ns
            .iter()
            .map(|end| Received { last_ns: *end, ..received(1000, Faults::default()) })
            .collect();
        let outcomes = vec![Outcome { about: about(), senders: Vec::new(), receivers }];
        Runs { writers, readers, outcomes }
    }

    #[test]
    fn a_rate_is_the_mean_of_what_readers_saw() {
        // 1000 messages in 10 µs, and in 40 µs: 100 and 25 million a second.
        assert_eq!(rates(&runs(1, 2, &[10_001, 40_001])), [62.5]);
    }

    #[test]
    fn a_grid_has_writers_across_and_readers_down() {
        let all = [runs(1, 4, &[]), runs(7, 4, &[]), runs(1, 16, &[]), runs(7, 16, &[])];
        let table = table("t", "T", "", &all, |runs| {
            Cell::number(f64::from(runs.writers * 100 + runs.readers))
        });
        assert_eq!(table.columns, ["1", "7"]);
        let rows: Vec<(&str, Vec<&str>)> = table
            .rows
            .iter()
            .map(|(row, cells)| (row.as_str(), cells.iter().map(|c| c.text.as_str()).collect()))
            .collect();
        assert_eq!(rows, [("4", vec!["104", "704"]), ("16", vec!["116", "716"])]);
    }

    #[test]
    fn a_run_that_lost_something_is_a_failure() {
        let sound = received(10, Faults::default());
        let outcome = |receiver| Outcome {
            about: about(),
            senders: Vec::new(),
            receivers: vec![sound.clone(), receiver],
        };
        assert!(check(&outcome(sound.clone()), 10).is_ok());
        assert!(check(&outcome(received(9, Faults::default())), 10).is_err());
        let lost = Faults { lost: 1, ..Faults::default() };
        let failure = check(&outcome(received(10, lost)), 10).unwrap_err().to_string();
        assert!(failure.contains("receiver 1 got 10 of 10") && failure.contains("1 lost"));
    }
}
