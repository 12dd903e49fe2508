//! Cells, rows and notes that the reports have in common.

use toroni_bench_harness::machine;
use toroni_bench_harness::report::{Cell, Report, Series, figure};
use toroni_bench_harness::summary::Summary;

use super::contender::Contender;
use super::field::{Failed, Field};
use super::{CAPACITY_BYTES, Plan};

/// The results of one contender in one cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    pub(super) values: Vec<f64>,
    /// Messages or values that were lost, doubled, out of order or outdated, in all runs.
    pub(super) wrong: u64,
    pub(super) failed: Option<Failed>,
}

impl Samples {
    pub(super) fn median(&self) -> Option<f64> {
        if self.failed.is_some() || self.wrong > 0 {
            return None;
        }
        Summary::of(&self.values).map(|summary| summary.median)
    }

    /// Returns the median and the extremes, or what went wrong.
    pub(super) fn cell(&self) -> Cell {
        if self.failed.is_some() {
            return Cell::text("failed");
        }
        let Some(summary) = Summary::of(&self.values) else { return Cell::none() };
        let mut text = format!(
            "{} ({}–{})",
            figure(summary.median),
            figure(summary.low),
            figure(summary.high)
        );
        if self.wrong > 0 {
            text.push_str(&format!(" WRONG: {}", self.wrong));
        }
        Cell { text, ..Cell::median(summary) }
    }
}

/// Starts a report on messages that are on the way from senders to receivers.
pub(super) fn begin(name: &str, title: &str, plan: &Plan) -> Report {
    let mut report = begin_without_waits(name, title, plan);
    report.condition(
        "waiting",
        "busy: ends poll; between two checks they spin, for 2 µs, if there is a core for each process, \
         and then yield; blocking: each transport's own blocking call",
    );
    report
        .condition("on the way", format!("ring, term, queue or buffer of {CAPACITY_BYTES} bytes"));
    report
}

/// Starts a report with the conditions that all reports share.
pub(super) fn begin_without_waits(name: &str, title: &str, plan: &Plan) -> Report {
    let mut report = Report {
        name: name.to_owned(),
        title: title.to_owned(),
        conditions: machine::describe(),
        ..Report::default()
    };
    report
        .condition("processes", "one for each sender and receiver, and one for a host; not pinned");
    report.condition(
        "repetitions",
        format!(
            "{}, all contenders in turn (A B A B …); a cell is the median (lowest–highest)",
            plan.repetitions
        ),
    );
    if plan.quick {
        report
            .condition("quick", "few and short runs: good for an impression, not for a comparison");
    }
    report
}

/// Ends a report with what all reports share.
pub(super) fn end(report: &mut Report, field: &Field, failures: Vec<String>) {
    report.tables.push(field.table());
    report.notes.extend(field.notes());
    report.notes.extend(failures);
}

/// Contenders, each with a cell for every column of a table.
pub(super) type Rows = Vec<(Contender, Vec<Samples>)>;

/// Returns the rows of a table.
pub(super) fn table_rows(rows: &Rows) -> Vec<(String, Vec<Cell>)> {
    let row = |(contender, cells): &(Contender, Vec<Samples>)| {
        (contender.label(), cells.iter().map(Samples::cell).collect())
    };
    rows.iter().map(row).collect()
}

/// Returns the medians of a column.
pub(super) fn column(
    rows: &Rows,
    column: usize,
) -> impl Iterator<Item = (&Contender, Option<f64>)> {
    rows.iter().map(move |(contender, cells)| (contender, cells[column].median()))
}

/// Returns the lines of a chart, of all contenders that have a result. `xs` are the places of the columns.
pub(super) fn series(rows: &Rows, xs: &[f64]) -> Vec<Series> {
    let line = |(contender, cells): &(Contender, Vec<Samples>)| {
        let points = xs.iter().zip(cells).filter_map(|(x, cell)| Some((*x, cell.median()?)));
        Series::line(contender.label(), points.collect())
    };
    rows.iter().map(line).filter(|series| !series.points.is_empty()).collect()
}

/// Describes what went wrong in all cells. `titles` are those of the columns.
pub(super) fn complaints(rows: &Rows, titles: &[String]) -> Vec<String> {
    let of_row = |(contender, cells): &(Contender, Vec<Samples>)| {
        let cells = titles.iter().zip(cells);
        cells.filter_map(|(title, cell)| complaint(contender, title, cell)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}

/// Describes what went wrong in a cell.
pub(super) fn complaint(contender: &Contender, cell: &str, samples: &Samples) -> Option<String> {
    let label = contender.label();
    if let Some(Failed(reason)) = &samples.failed {
        return Some(format!("FAILED: {label}, {cell}: {reason}"));
    }
    (samples.wrong > 0).then(|| {
        format!(
            "WRONG: {label}, {cell}: {} messages or values lost, doubled, out of order or outdated",
            samples.wrong
        )
    })
}

pub(super) fn ratio(a: Option<f64>, b: Option<f64>) -> Cell {
    match (a, b) {
        (Some(a), Some(b)) if b > 0.0 => {
            Cell { text: format!("{} ×", figure(a / b)), ..Cell::number(a / b) }
        }
        _ => Cell::none(),
    }
}

/// Returns the best value, and the contender that reached it. `better` compares two values.
pub(super) fn best<'a>(
    candidates: impl Iterator<Item = (&'a Contender, Option<f64>)>,
    better: fn(f64, f64) -> bool,
) -> Option<(f64, &'a Contender)> {
    let mut best: Option<(f64, &Contender)> = None;
    for (contender, value) in candidates {
        if let Some(value) = value
            && best.is_none_or(|(known, _)| better(value, known))
        {
            best = Some((value, contender));
        }
    }
    best
}

pub(super) fn size_name(bytes: usize) -> String {
    if bytes >= 65_536 && bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{bytes} B")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::contender::singles;

    #[test]
    fn what_went_wrong_is_no_result() {
        let sound = Samples { values: vec![1.0, 3.0, 2.0], ..Samples::default() };
        assert_eq!(sound.median(), Some(2.0));
        assert_eq!(sound.cell().text, "2.00 (1.00–3.00)");
        let lossy = Samples { wrong: 7, ..sound.clone() };
        assert_eq!(lossy.median(), None);
        assert!(lossy.cell().text.contains("WRONG: 7"));
        let dead = Samples { failed: Some(Failed("no".to_owned())), ..sound };
        assert_eq!((dead.median(), dead.cell().text.as_str()), (None, "failed"));
        let contender = &singles()[1];
        assert_eq!(
            complaint(contender, "8 B", &lossy).unwrap(),
            "WRONG: aeron, 8 B: 7 messages or values lost, doubled, out of order or outdated"
        );
        assert!(complaint(contender, "8 B", &dead).unwrap().starts_with("FAILED: aeron, 8 B: no"));
    }

    #[test]
    fn the_best_is_the_highest_or_the_lowest_as_asked() {
        let all = singles();
        let values = [Some(3.0), None, Some(9.0), Some(1.0)];
        let pairs = || all.iter().zip(values);
        assert_eq!(best(pairs(), |a, b| a > b).map(|(value, _)| value), Some(9.0));
        assert_eq!(best(pairs(), |a, b| a < b).map(|(value, _)| value), Some(1.0));
        assert!(best(pairs().take(0), |a, b| a < b).is_none());
    }
}
