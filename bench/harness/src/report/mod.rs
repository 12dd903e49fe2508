//! Reports: conditions, tables, goals, notes and charts, shown as text, as JSON lines or as a picture.

mod human;
mod json;

pub use human::figure;
pub use toroni_chart::{Chart, Scale, Series};

use crate::Failure;
use crate::summary::Summary;

/// The result of a workload.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Name of the workload: `throughput`.
    pub name: String,
    /// Title, one line.
    pub title: String,
    /// Labels and values: the machine, and how it was measured.
    pub conditions: Vec<(String, String)>,
    /// Tables, in the order in which they are printed.
    pub tables: Vec<Table>,
    /// Goals, and whether they were met.
    pub goals: Vec<Goal>,
    /// Notes, in sentences.
    pub notes: Vec<String>,
    /// Charts, drawn one below the other.
    pub charts: Vec<Chart>,
}

/// A table of cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Name for programs, one word: `burst`.
    pub name: String,
    /// Title for people, with the unit of the cells.
    pub title: String,
    /// Unit of the values, for programs; empty if columns have different units.
    pub unit: String,
    /// Text above the row labels.
    pub corner: String,
    /// Column labels.
    pub columns: Vec<String>,
    /// Row labels, each with a cell for every column.
    pub rows: Vec<(String, Vec<Cell>)>,
    /// Terms and their meanings, shown below the table.
    pub definitions: Vec<(String, String)>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Text for people.
    pub text: String,
    /// Value in the unit of the table.
    pub value: Option<f64>,
    /// Summary of the repetitions, if there were several.
    pub summary: Option<Summary>,
}

impl Cell {
    /// Makes a cell of a number.
    #[must_use]
    pub fn number(value: f64) -> Self {
        Self { text: figure(value), value: Some(value), summary: None }
    }

    /// Makes a cell with the mean of repetitions.
    #[must_use]
    pub fn mean(summary: Summary) -> Self {
        Self { summary: Some(summary), ..Self::number(summary.mean) }
    }

    /// Makes a cell with the median of repetitions.
    #[must_use]
    pub fn median(summary: Summary) -> Self {
        Self { summary: Some(summary), ..Self::number(summary.median) }
    }

    /// Makes a cell of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None, summary: None }
    }

    /// Makes the cell of something that was not measured.
    #[must_use]
    pub fn none() -> Self {
        Self::text("–")
    }
}

/// A figure to be reached.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What was measured: `1 writer, 1 reader`.
    pub what: String,
    /// Unit of the figures.
    pub unit: String,
    /// A figure to compare with, and where it comes from.
    pub reference: Option<(f64, String)>,
    /// The bound to be reached.
    pub bound: Bound,
    /// The figure that was measured.
    pub measured: f64,
}

/// A bound to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This value or more.
    AtLeast(f64),
    /// This value or less.
    AtMost(f64),
}

impl Goal {
    /// Returns whether the goal was met. Noise meets none.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => self.measured >= bound,
            Bound::AtMost(bound) => !self.is_noise() && self.measured <= bound,
        }
    }

    /// Returns whether the figure is a cost and less than nothing, as the slope through scattered latencies may be: then it
    /// shows how much the measurement scatters, and not what something costs.
    #[must_use]
    pub fn is_noise(&self) -> bool {
        matches!(self.bound, Bound::AtMost(_)) && self.measured < 0.0
    }
}

impl Report {
    /// Adds a condition.
    pub fn condition(&mut self, label: &str, value: impl Into<String>) {
        self.conditions.push((label.to_owned(), value.into()));
    }

    /// Returns the report as text for people.
    #[must_use]
    pub fn human(&self) -> String {
        human::render(self)
    }

    /// Returns the report as JSON objects, one for each line: a `report`, then all `cell`s, `goal`s and `note`s.
    #[must_use]
    pub fn json(&self) -> Vec<serde_json::Value> {
        json::lines(self)
    }

    /// Returns the charts as an SVG picture.
    ///
    /// # Errors
    /// If the report has no chart, or it cannot be drawn.
    pub fn svg(&self) -> Result<String, Failure> {
        Ok(toroni_chart::draw(&self.title, &self.charts)?)
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

    /// A cost below 0 comes from latencies that scatter.
    #[test]
    fn a_negative_cost_meets_no_goal() {
        let goal = |measured| Goal { measured, ..example().goals.remove(1) };
        assert!(goal(0.0).is_met() && goal(50.0).is_met() && !goal(50.1).is_met());
        assert!(!goal(-0.1).is_met() && goal(-0.1).is_noise() && !goal(0.0).is_noise());
        // A gain below 0 is one that was missed.
        let gain = Goal { measured: -0.1, ..example().goals.remove(0) };
        assert!(!gain.is_noise() && !gain.is_met());
        let report = Report { goals: vec![goal(-0.1)], ..example() };
        assert!(report.human().contains("  NOISE\n"), "{}", report.human());
    }
}
