//! What a workload found out: conditions, tables, goals, notes and charts; printed as text, as JSON
//! lines, or drawn.

mod chart;
mod human;
mod json;

pub use chart::{Chart, Scale, Series};
pub use human::figure;

use crate::Failure;
use crate::summary::Summary;

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Name of the workload: `throughput`.
    pub name: String,
    /// One line.
    pub title: String,
    /// Label and value: the machine, and how it was measured.
    pub conditions: Vec<(String, String)>,
    /// In the order in which they are printed.
    pub tables: Vec<Table>,
    /// What was to be reached.
    pub goals: Vec<Goal>,
    /// Sentences.
    pub notes: Vec<String>,
    /// Drawn one below the other.
    pub charts: Vec<Chart>,
}

/// A table of cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// A word, by which programs find it: `burst`.
    pub name: String,
    /// What a person reads, with the unit of the cells.
    pub title: String,
    /// Unit of the cells' values, for programs; empty if each column has one of its own.
    pub unit: String,
    /// Above the row labels.
    pub corner: String,
    /// Column labels.
    pub columns: Vec<String>,
    /// Row labels, and as many cells as there are columns.
    pub rows: Vec<(String, Vec<Cell>)>,
    /// Below the table: a term, and what it means.
    pub definitions: Vec<(String, String)>,
}

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// What a person reads.
    pub text: String,
    /// The value, in the table's unit.
    pub value: Option<f64>,
    /// Of the repetitions, where there were some.
    pub summary: Option<Summary>,
}

impl Cell {
    /// A number.
    #[must_use]
    pub fn number(value: f64) -> Self {
        Self { text: figure(value), value: Some(value), summary: None }
    }

    /// The mean of repetitions.
    #[must_use]
    pub fn mean(summary: Summary) -> Self {
        Self { summary: Some(summary), ..Self::number(summary.mean) }
    }

    /// The median of repetitions.
    #[must_use]
    pub fn median(summary: Summary) -> Self {
        Self { summary: Some(summary), ..Self::number(summary.median) }
    }

    /// Words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None, summary: None }
    }

    /// Nothing was measured.
    #[must_use]
    pub fn none() -> Self {
        Self::text("–")
    }
}

/// Something that was to be reached.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What: `1 writer, 1 reader`.
    pub what: String,
    /// Unit of the figures.
    pub unit: String,
    /// What it is compared with: a figure, and whose it is.
    pub reference: Option<(f64, String)>,
    /// What was to be reached.
    pub bound: Bound,
    /// What was reached.
    pub measured: f64,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
}

impl Goal {
    /// Whether it was reached.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => self.measured >= bound,
            Bound::AtMost(bound) => self.measured <= bound,
        }
    }
}

impl Report {
    /// One more condition.
    pub fn condition(&mut self, label: &str, value: impl Into<String>) {
        self.conditions.push((label.to_owned(), value.into()));
    }

    /// As text for people.
    #[must_use]
    pub fn human(&self) -> String {
        human::render(self)
    }

    /// As JSON objects, one a line: `report`, then a `cell` for each cell, `goal`s and `note`s.
    #[must_use]
    pub fn json(&self) -> Vec<serde_json::Value> {
        json::lines(self)
    }

    /// As an SVG picture.
    ///
    /// # Errors
    /// If there is no chart in it, or it cannot be drawn.
    pub fn svg(&self) -> Result<String, Failure> {
        chart::draw(&self.title, &self.charts)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Report {
        let summary = Summary::of(&[10.0, 20.0, 60.0]).unwrap();
        Report {
            name: "example".to_owned(),
            title: "An example".to_owned(),
            conditions: vec![("machine".to_owned(), "this one".to_owned())],
            tables: vec![Table {
                name: "rates".to_owned(),
                title: "Rates, Kmsg/s".to_owned(),
                unit: "Kmsg/s".to_owned(),
                corner: "R \\ W".to_owned(),
                columns: vec!["1".to_owned(), "2".to_owned()],
                rows: vec![
                    ("1".to_owned(), vec![Cell::mean(summary), Cell::number(123_456.7)]),
                    ("16".to_owned(), vec![Cell::none(), Cell::text("many")]),
                ],
                definitions: vec![("R".to_owned(), "readers".to_owned())],
            }],
            goals: vec![
                Goal {
                    what: "one".to_owned(),
                    unit: "Kmsg/s".to_owned(),
                    reference: Some((10.0, "the prototype".to_owned())),
                    bound: Bound::AtLeast(50.0),
                    measured: 30.0,
                },
                Goal {
                    what: "two".to_owned(),
                    unit: "µs".to_owned(),
                    reference: None,
                    bound: Bound::AtMost(50.0),
                    measured: 30.0,
                },
            ],
            notes: vec!["lost = 0".to_owned()],
            charts: vec![Chart {
                title: "Rates <by> readers & writers".to_owned(),
                x_label: "readers".to_owned(),
                y_label: "Kmsg/s".to_owned(),
                x_scale: Scale::Logarithmic,
                y_scale: Scale::Logarithmic,
                categories: Vec::new(),
                series: vec![
                    Series::line("1 writer", vec![(1.0, 30.0), (16.0, 12.0)]),
                    Series::dashed("goal", vec![(1.0, 40.0), (16.0, 40.0)]),
                ],
            }],
        }
    }

    #[test]
    fn goals_are_met_on_the_right_side() {
        let goals = example().goals;
        assert_eq!([goals[0].is_met(), goals[1].is_met()], [false, true]);
    }
}
