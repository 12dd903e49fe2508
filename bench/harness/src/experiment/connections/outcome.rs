//! Tables, goals and chart.

use super::deal::Deal;
use super::{Column, Kind, Moved, Plan};
use crate::experiment::float;
use crate::report::{Bound, Cell, Chart, Goal, Scale, Series, Table};
use crate::summary::Summary;

/// The repetitions of each row and column, or why one of them failed.
pub(super) type Runs = Vec<Vec<Result<Vec<Moved>, String>>>;

/// What was measured.
pub(super) struct Outcome {
    /// The rows, each with the paper's rate.
    pub(super) plans: Vec<(Plan, f64)>,
    pub(super) columns: Vec<Column>,
    pub(super) runs: Runs,
}

impl Outcome {
    pub(super) fn rates(&self) -> Table {
        let mut table =
            self.table("rates", "Bytes sent and received by clients and servers", "MB/s", rate);
        table.columns.push("paper's reactor".to_owned());
        for ((_, cells), (_, published)) in table.rows.iter_mut().zip(&self.plans) {
            cells.push(Cell::number(published / 1e6));
        }
        let reactor = "the thread-pool reactor of the proactor paper, on its machine";
        table.definitions.push(("paper's reactor".to_owned(), reactor.to_owned()));
        table
    }

    /// Returns what an operation cost, which is a completed read or write.
    pub(super) fn costs(&self) -> [Table; 3] {
        [
            self.table("user", "User time of an operation", "ns", |_, moved| {
                per_operation(moved.usage.user_ns, moved)
            }),
            self.table("system", "System time of an operation", "ns", |_, moved| {
                per_operation(moved.usage.system_ns, moved)
            }),
            self.table(
                "sleeps",
                "Threads going to sleep, for an operation",
                "sleeps",
                |_, moved| per_operation(moved.usage.sleeps, moved),
            ),
        ]
    }

    fn table(
        &self,
        name: &str,
        title: &str,
        unit: &str,
        value: impl Fn(&Plan, &Moved) -> f64,
    ) -> Table {
        let rows = self.plans.iter().zip(&self.runs).map(|((plan, _), runs)| {
            let cells = runs.iter().zip(&self.columns).map(|(runs, column)| {
                let Ok(runs) = runs else { return Cell::text("MISSING") };
                let values: Vec<f64> = runs.iter().map(|moved| value(plan, moved)).collect();
                match Summary::of(&values) {
                    Some(summary) => Cell::median(summary),
                    None if column.program.is_err() => Cell::text("MISSING"),
                    None => Cell::none(),
                }
            });
            (plan.label(), cells.collect())
        });
        Table {
            name: name.to_owned(),
            title: format!("{title}, {unit} (medians)"),
            unit: unit.to_owned(),
            corner: "connections × threads, block, window, delay".to_owned(),
            columns: self.columns.iter().map(|column| column.name.clone()).collect(),
            rows: rows.collect(),
            definitions: self.definitions(),
        }
    }

    fn definitions(&self) -> Vec<(String, String)> {
        let meanings = [
            (Deal::Pairs.name(), "each thread takes both ends of its connections over"),
            (Deal::Apart.name(), "each thread takes one end of its connections over"),
            ("each", "each thread has a proactor of its own"),
            ("reactor", "each thread has a reactor of its own"),
        ];
        let is_shown = |word: &str| {
            self.columns.iter().any(|column| column.name.split(' ').any(|part| part == word))
        };
        let shown = meanings.into_iter().filter(|(word, _)| is_shown(word));
        shown.map(|(word, meaning)| (word.to_owned(), meaning.to_owned())).collect()
    }

    /// Says which columns are missing, in which row, and why.
    pub(super) fn missing(&self) -> Vec<String> {
        let columns = self.columns.iter().filter_map(|column| {
            column.program.as_ref().err().map(|why| format!("{} is MISSING: {why}", column.name))
        });
        let cells = self.plans.iter().zip(&self.runs).flat_map(|((plan, _), runs)| {
            self.columns.iter().zip(runs).filter_map(|(column, runs)| {
                let why = runs.as_ref().err()?;
                Some(format!("{} is MISSING in {}: {why}", column.name, plan.label()))
            })
        });
        columns.chain(cells).collect()
    }

    /// Returns whether a run has succeeded.
    pub(super) fn is_measured(&self) -> bool {
        self.runs.iter().flatten().flatten().any(|runs| !runs.is_empty())
    }

    /// Returns the columns of each row that were measured, or failed: those have moved nothing.
    fn rows(&self) -> impl Iterator<Item = (&Plan, Vec<Median<'_>>)> {
        self.plans.iter().zip(&self.runs).map(|((plan, _), runs)| {
            let medians = self.columns.iter().zip(runs).filter_map(|(column, runs)| {
                let Ok(runs) = runs else { return Some(Median { column, rate: 0.0 }) };
                let rates: Vec<f64> = runs.iter().map(|moved| rate(plan, moved)).collect();
                Some(Median { column, rate: Summary::of(&rates)?.median })
            });
            (plan, medians.collect())
        })
    }

    /// Compares `auto`, however it was dealt and configured, with everything else, over all rows.
    pub(super) fn comparison(&self) -> Option<Table> {
        let autos = self.columns.iter().filter(|column| {
            matches!(column.kind, Kind::Auto | Kind::AutoVariant) && column.program.is_ok()
        });
        let mut subjects: Vec<Subject<'_>> =
            autos.map(|column| Subject::Column(&column.name)).collect();
        let is_dealt = |column: &&Column| column.kind == Kind::Auto && column.program.is_ok();
        if self.columns.iter().filter(is_dealt).count() > 1 {
            subjects.push(Subject::BestAuto);
        }
        let mut rows = Vec::new();
        for yardstick in YARDSTICKS {
            for subject in &subjects {
                let ratios = self.ratios(subject, &yardstick);
                let Some(summary) = Summary::of(&ratios) else { continue };
                let mut cells: Vec<Cell> = [summary.median, summary.low, summary.high]
                    .into_iter()
                    .map(|ratio| Cell { text: format!("{ratio:.2}"), ..Cell::number(ratio) })
                    .collect();
                let reached = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
                cells.extend([reached, ratios.len() - reached].map(|rows| Cell {
                    text: rows.to_string(),
                    ..Cell::number(float(rows as u64))
                }));
                rows.push((format!("{} / {}", subject.name(), yardstick.name), cells));
            }
        }
        let columns = ["median", "least", "most", "rows met", "rows missed"];
        (!rows.is_empty()).then(|| Table {
            name: "comparison".to_owned(),
            title: "auto beside the others: ratios of the medians over all rows".to_owned(),
            unit: String::new(),
            corner: "compared".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows,
            definitions: vec![("met".to_owned(), "the ratio is at least 1".to_owned())],
        })
    }

    /// Returns the ratio of each row in which both were measured. If the subject failed, the ratio is 0.
    fn ratios(&self, subject: &Subject<'_>, yardstick: &Yardstick) -> Vec<f64> {
        let ratio = |(_, medians): (&Plan, Vec<Median<'_>>)| {
            let subject = subject.best_of(&medians)?;
            Some(subject.rate / best_measured(&medians, yardstick.kinds)?.rate)
        };
        self.rows().filter_map(ratio).collect()
    }

    /// Compares in each row `auto` with the best rival, each in its best deal, and the slowest shared engine with the
    /// reactor. Then counts the rows in which `auto` is not slower.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (plan, medians) in self.rows() {
            let mut goal = |measured: &Median<'_>, other: &Median<'_>| {
                goals.push(Goal {
                    what: format!("{}, {}", measured.column.name, plan.label()),
                    unit: "MB/s".to_owned(),
                    reference: Some((other.rate, other.column.name.clone())),
                    bound: Bound::AtLeast(other.rate),
                    measured: measured.rate,
                });
            };
            let auto = Subject::BestAuto.best_of(&medians);
            if let (Some(auto), Some(rival)) = (auto, best_measured(&medians, RIVALS)) {
                goal(auto, rival);
            }
            let slowest = of(&medians, &[Kind::Shared]).min_by(Median::compare);
            let reactor = best_measured(&medians, &[Kind::Reactor]);
            if let (Some(shared), Some(reactor)) = (slowest, reactor) {
                goal(shared, reactor);
            }
        }
        for yardstick in YARDSTICKS.iter().filter(|yardstick| yardstick.is_goal) {
            let ratios = self.ratios(&Subject::BestAuto, yardstick);
            if !ratios.is_empty() {
                let reached = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
                goals.push(Goal {
                    what: format!("auto reaches {}", yardstick.name),
                    unit: "rows".to_owned(),
                    reference: None,
                    bound: Bound::AtLeast(float(ratios.len() as u64)),
                    measured: float(reached as u64),
                });
            }
        }
        goals
    }

    pub(super) fn chart(&self) -> Chart {
        let series = self.columns.iter().enumerate().map(|(index, column)| {
            let rows = self.plans.iter().zip(&self.runs).enumerate();
            let points = rows.filter_map(|(row, ((plan, _), runs))| {
                let runs = runs[index].as_ref().ok()?;
                let rates: Vec<f64> = runs.iter().map(|moved| rate(plan, moved)).collect();
                Some((float(row as u64), Summary::of(&rates)?.median))
            });
            Series::line(column.name.clone(), points.collect())
        });
        Chart {
            title: "Bytes sent and received, MB/s".to_owned(),
            x_label: "connections × threads, block, window, delay".to_owned(),
            y_label: "MB/s".to_owned(),
            x_scale: Scale::Linear,
            y_scale: Scale::Logarithmic,
            categories: self.plans.iter().map(|(plan, _)| plan.label()).collect(),
            series: series.collect(),
        }
    }
}

/// What `auto` is compared with, the best column of these kinds in each row.
struct Yardstick {
    name: &'static str,
    kinds: &'static [Kind],
    /// Whether `auto` should reach it in each row.
    is_goal: bool,
}

const RIVALS: &[Kind] = &[Kind::Reactor, Kind::Rival];

const YARDSTICKS: [Yardstick; 3] = [
    Yardstick { name: "the thread-pool reactor", kinds: &[Kind::Reactor], is_goal: true },
    Yardstick { name: "the best reactor or runtime", kinds: RIVALS, is_goal: true },
    Yardstick {
        name: "the best other engine",
        kinds: &[Kind::Shared, Kind::Engine],
        is_goal: false,
    },
];

/// What is compared.
enum Subject<'a> {
    Column(&'a str),
    /// In each row, `auto` as it was dealt best.
    BestAuto,
}

impl Subject<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Column(name) => name,
            Self::BestAuto => "auto, as dealt best",
        }
    }

    fn best_of<'a>(&self, medians: &'a [Median<'a>]) -> Option<&'a Median<'a>> {
        match self {
            Self::Column(name) => medians.iter().find(|median| median.column.name == *name),
            Self::BestAuto => best(medians, &[Kind::Auto]),
        }
    }
}

/// A column in one row.
struct Median<'a> {
    column: &'a Column,
    /// MB/s; 0 if the column failed.
    rate: f64,
}

impl Median<'_> {
    fn compare(first: &&Self, second: &&Self) -> std::cmp::Ordering {
        first.rate.total_cmp(&second.rate)
    }
}

fn of<'a>(medians: &'a [Median<'a>], kinds: &[Kind]) -> impl Iterator<Item = &'a Median<'a>> {
    medians.iter().filter(|median| kinds.contains(&median.column.kind))
}

fn best<'a>(medians: &'a [Median<'a>], kinds: &[Kind]) -> Option<&'a Median<'a>> {
    of(medians, kinds).max_by(Median::compare)
}

/// Returns the best that did not fail.
fn best_measured<'a>(medians: &'a [Median<'a>], kinds: &[Kind]) -> Option<&'a Median<'a>> {
    best(medians, kinds).filter(|median| median.rate > 0.0)
}

/// Returns MB/s.
fn rate(plan: &Plan, moved: &Moved) -> f64 {
    float(moved.bytes) / plan.seconds() / 1e6
}

fn per_operation(amount: u64, moved: &Moved) -> f64 {
    float(amount) / float(moved.operations.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Usage;
    use crate::process_group::Program;

    fn column(name: &str, kind: Kind) -> Column {
        let program = Program { path: "/program".into(), arguments: Vec::new() };
        Column { name: name.to_owned(), kind, program: Ok(program) }
    }

    fn moved(megabytes: u64) -> Moved {
        let usage =
            Usage { user_ns: megabytes * 500, system_ns: megabytes * 2000, sleeps: megabytes / 4 };
        Moved { bytes: megabytes * 1_000_000, operations: megabytes, usage }
    }

    /// Two rows of one second, with one run of each column.
    fn example() -> Outcome {
        let plan = Plan { milliseconds: 1000, ..Plan::short(1, 2, 512, 0) };
        let plans = vec![(plan.clone(), 5e6), (Plan { connections: 9, ..plan }, 5e6)];
        let columns = [
            ("auto", Kind::Auto),
            ("auto apart", Kind::Auto),
            ("auto each pairs", Kind::AutoVariant),
            ("epoll shared", Kind::Shared),
            ("tp-reactor", Kind::Reactor),
            ("compio pairs", Kind::Rival),
        ]
        .map(|(name, kind)| column(name, kind));
        let runs: Runs = [[90, 120, 300, 80, 100, 60], [200, 100, 300, 240, 100, 400]]
            .map(|row| row.map(|megabytes| Ok(vec![moved(megabytes)])).to_vec())
            .to_vec();
        Outcome { plans, columns: columns.to_vec(), runs }
    }

    #[test]
    fn each_side_counts_as_it_is_dealt_best() {
        let goals = example().goals();
        let shown = goals.iter().map(|goal| {
            let name = goal.what.split(',').next().unwrap().to_owned();
            let reference = goal.reference.as_ref().map_or("", |(_, name)| name);
            (name, reference.to_owned(), goal.measured, goal.is_met())
        });
        let wanted = [
            ("auto apart", "tp-reactor", 120.0, true),
            ("epoll shared", "tp-reactor", 80.0, false),
            ("auto", "compio pairs", 200.0, false),
            ("epoll shared", "tp-reactor", 240.0, true),
            ("auto reaches the thread-pool reactor", "", 2.0, true),
            ("auto reaches the best reactor or runtime", "", 1.0, false),
        ]
        .map(|(name, whose, value, met)| (name.to_owned(), whose.to_owned(), value, met));
        assert_eq!(shown.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn every_kind_of_auto_is_compared_over_all_rows() {
        let table = example().comparison().unwrap();
        let row = |label: &str| {
            let row = table.rows.iter().find(|(name, _)| name == label);
            let (_, cells) = row.unwrap_or_else(|| panic!("no {label} in {:?}", table.rows));
            cells.iter().map(|cell| cell.value.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(row("auto / the thread-pool reactor"), [1.45, 0.9, 2.0, 1.0, 1.0]);
        assert_eq!(
            row("auto, as dealt best / the best reactor or runtime")[1..],
            [0.5, 1.2, 1.0, 1.0]
        );
        assert_eq!(row("auto each pairs / the best other engine")[3..], [2.0, 0.0]);
        assert_eq!(table.rows.len(), 3 * 4);
    }

    #[test]
    fn a_column_that_failed_is_missing_with_its_error_and_the_others_count() {
        let mut outcome = example();
        outcome.runs[1][5] = Err("sender 0 failed: connection reset".to_owned());
        outcome.columns[2].program = Err("no such engine".to_owned());
        outcome.runs.iter_mut().for_each(|row| row[2] = Ok(Vec::new()));
        let label = outcome.plans[1].0.label();
        let expected = [
            "auto each pairs is MISSING: no such engine".to_owned(),
            format!("compio pairs is MISSING in {label}: sender 0 failed: connection reset"),
        ];
        assert_eq!(outcome.missing(), expected);
        assert!(outcome.is_measured());
        let rates = outcome.rates();
        let shown = |row: usize| rates.rows[row].1[5].text.clone();
        assert_eq!([shown(0), shown(1)], ["60.0", "MISSING"]);
        // In the second row, the reactor is now the best rival.
        let goals = outcome.goals();
        let second = goals.iter().find(|goal| goal.what == format!("auto, {label}")).unwrap();
        assert_eq!(second.reference, Some((100.0, "tp-reactor".to_owned())));
        assert_eq!(outcome.chart().series[5].points.len(), 1);
    }

    #[test]
    fn an_engine_that_failed_misses_its_goals() {
        let mut outcome = example();
        for column in [0, 1, 3] {
            outcome.runs[0][column] = Err("stood still".to_owned());
        }
        let goals = outcome.goals();
        assert_eq!((goals[0].measured, goals[0].is_met()), (0.0, false));
        assert_eq!((goals[1].what.starts_with("epoll shared"), goals[1].is_met()), (true, false));
        let of_reactor = goals.iter().find(|goal| goal.what.ends_with("reactor")).unwrap();
        assert_eq!((of_reactor.bound, of_reactor.measured), (Bound::AtLeast(2.0), 1.0));
    }

    #[test]
    fn costs_are_those_of_an_operation() {
        let values = example().costs().map(|table| table.rows[1].1[0].value);
        assert_eq!(values, [Some(500.0), Some(2000.0), Some(0.25)]);
    }
}
