//! Table, goals and chart.

use super::deal::Deal;
use super::{Column, Kind, Plan, Rates};
use crate::experiment::float;
use crate::report::{Bound, Cell, Chart, Goal, Scale, Series, Table};
use crate::summary::Summary;

pub(super) fn table(plans: &[(Plan, f64)], columns: &[Column], rates: &Rates) -> Table {
    let rows = plans.iter().zip(rates).map(|((plan, published), rates)| {
        let cells = rates.iter().zip(columns).map(|(rates, column)| {
            let megabytes: Vec<f64> = rates.iter().map(|rate| rate / 1e6).collect();
            match Summary::of(&megabytes) {
                Some(summary) => Cell::median(summary),
                None if column.program.is_err() => Cell::text("MISSING"),
                None => Cell::none(),
            }
        });
        (plan.label(), cells.chain([Cell::number(published / 1e6)]).collect())
    });
    let names = columns.iter().map(|column| column.name.clone());
    Table {
        name: "rates".to_owned(),
        title: "Bytes sent and received by clients and servers, MB/s (medians)".to_owned(),
        unit: "MB/s".to_owned(),
        corner: "connections × threads, block, window, delay".to_owned(),
        columns: names.chain(["paper's reactor".to_owned()]).collect(),
        rows: rows.collect(),
        definitions: definitions(columns),
    }
}

fn definitions(columns: &[Column]) -> Vec<(String, String)> {
    let dealt = Deal::BOTH.into_iter().map(|deal| {
        let meaning = match deal {
            Deal::Pairs => "each thread has its own, and both ends of its connections",
            Deal::Apart => "each thread has its own, and one end of its connections",
        };
        (deal, meaning)
    });
    let shown = |deal| {
        let mut deals = columns.iter().filter_map(|column| Deal::of_column(&column.name));
        deals.any(|(_, of_column)| of_column == deal)
    };
    let published =
        ("paper's reactor", "the thread-pool reactor of the proactor paper, on its machine");
    dealt
        .filter(|(deal, _)| shown(*deal))
        .map(|(deal, meaning)| (deal.name(), meaning))
        .chain([published])
        .map(|(name, meaning)| (name.to_owned(), meaning.to_owned()))
        .collect()
}

/// Compares in each row `auto` with the best of all others, and the slowest shared engine with the reactor.
pub(super) fn goals(plans: &[(Plan, f64)], columns: &[Column], rates: &Rates) -> Vec<Goal> {
    let mut goals = Vec::new();
    for ((plan, _), rates) in plans.iter().zip(rates) {
        let cells: Vec<Median<'_>> = columns
            .iter()
            .zip(rates)
            .filter_map(|(column, rates)| {
                Some(Median { column, rate: Summary::of(rates)?.median / 1e6 })
            })
            .collect();
        let mut goal = |what: &str, measured: &Median<'_>, other: &Median<'_>| {
            goals.push(Goal {
                what: format!("{what}, {}", plan.label()),
                unit: "MB/s".to_owned(),
                reference: Some((other.rate, other.column.name.clone())),
                bound: Bound::AtLeast(other.rate),
                measured: measured.rate,
            });
        };
        let auto = of(&cells, &[Kind::Auto]).next();
        let others = of(&cells, &OTHERS);
        if let (Some(auto), Some(best)) = (auto, others.max_by(Median::compare)) {
            goal("auto", auto, best);
        }
        let slowest = of(&cells, &[Kind::Shared]).min_by(Median::compare);
        if let (Some(shared), Some(reactor)) = (slowest, of(&cells, &[Kind::Reactor]).next()) {
            goal(&shared.column.name, shared, reactor);
        }
    }
    goals
}

/// What `auto` is compared with.
const OTHERS: [Kind; 5] =
    [Kind::Shared, Kind::Engine, Kind::Reactor, Kind::ForEachThread, Kind::Peer];

/// A column in one row.
struct Median<'a> {
    column: &'a Column,
    /// MB/s.
    rate: f64,
}

impl Median<'_> {
    fn compare(first: &&Self, second: &&Self) -> std::cmp::Ordering {
        first.rate.total_cmp(&second.rate)
    }
}

fn of<'a>(cells: &'a [Median<'a>], kinds: &[Kind]) -> impl Iterator<Item = &'a Median<'a>> {
    cells.iter().filter(|cell| kinds.contains(&cell.column.kind))
}

pub(super) fn chart(plans: &[(Plan, f64)], columns: &[Column], rates: &Rates) -> Chart {
    let series = columns.iter().enumerate().map(|(index, column)| {
        let points = rates.iter().enumerate().filter_map(|(row, rates)| {
            let median = Summary::of(&rates[index])?.median;
            Some((float(row as u64), median / 1e6))
        });
        Series::line(column.name.clone(), points.collect())
    });
    Chart {
        title: "Bytes sent and received, MB/s".to_owned(),
        x_label: "connections × threads, block, window, delay".to_owned(),
        y_label: "MB/s".to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Logarithmic,
        categories: plans.iter().map(|(plan, _)| plan.label()).collect(),
        series: series.collect(),
    }
}
