//! Values that are kept: what it takes to publish one, to read one without a subscription, and to join and get all of them.
//!
//! Each is the time of one repetition, of many that follow one another. What is published counts when it can be read: peers that
//! acknowledge, or pass on several at a time, may do so.

use toroni_bench_harness::Failure;
use toroni_bench_harness::report::{Bound, Cell, Chart, Goal, Report, Scale, Table};
use toroni_bench_harness::transport::{Setup, Transport as _, Wait};
use toroni_bench_harness::transports::Toroni;
use toroni_bench_harness::workload::values::{Keeping, MOST_WARM_UPS, Part};

use super::contender::{self, PLAIN};
use super::field::Field;
use super::presenting::{self, Rows, Samples, best, ratio, size_name};
use super::rate::LearnedRate;
use super::{CAPACITY_BYTES, Plan};
use crate::cli::Workload;

/// Topics of a bus, each with a value.
const TOPICS: u16 = 500;
/// Bytes of a value in the columns that have only one length.
const SMALL: usize = 64;
/// Bounds of an update, as multiples of the same publish on a topic that is not retained.
const TIMES_PLAIN: [(usize, f64); 2] = [(SMALL, 1.15), (1024, 1.8)];
const LONGEST_GET_NS: f64 = 150.0;
const LONGEST_JOIN_NS: f64 = 200_000.0;
/// Bound of a read, as a multiple of the blackboard's.
const TIMES_BLACKBOARD: f64 = 2.0;
const BLACKBOARD: &str = "iceoryx2";
/// Toroni takes at most this part of the time of these peers.
const PART_OF_OTHERS: f64 = 0.1;
const OTHERS: [&str; 3] = ["nats", "mosquitto", "zenoh"];

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    part: Part,
    size: usize,
}

/// Nanoseconds of one repetition, by contender and column.
struct Grid {
    columns: Vec<Column>,
    rows: Rows,
}

/// Measures and compares. Fails only if Toroni itself cannot be measured.
pub(super) fn run(field: &mut Field, plan: &Plan) -> Result<Report, Failure> {
    let title = "Values of Toroni and its peers: publish one, read one, join and get 500";
    let mut report = presenting::begin_without_waits(Workload::Values.report(), title, plan);
    report.condition("topics", format!("{TOPICS}, each with a value"));
    report.condition(
        "runs",
        format!(
            "as many repetitions as take about {} s, one after the other; a warm-up comes before: a tenth of the \
             updates or reads, at most {MOST_WARM_UPS}, or one join; update: from the first publish until the last \
             value can be read; join: without what comes before and after it",
            plan.seconds
        ),
    );
    let grid = measure(field, plan)?;
    report.tables.push(grid.table());
    report.charts.push(grid.chart());
    report.goals = grid.goals();
    let failures = grid.complaints();
    if failures.is_empty() {
        report.notes.push("wrong = 0: every value that was read was the newest one.".to_owned());
    }
    presenting::end(&mut report, field, failures);
    Ok(report)
}

fn measure(field: &mut Field, plan: &Plan) -> Result<Grid, Failure> {
    let contenders = contender::keepers().into_iter().filter(|contender| field.has(contender));
    let mut rows: Rows = contenders.map(|contender| (contender, Vec::new())).collect();
    let columns = columns(plan);
    for column in &columns {
        eprintln!("values: {}", column.title());
        let fewest = if column.part == Part::Join { 10 } else { 1_000 };
        let mut rates = vec![LearnedRate::of_at_least(plan.seconds, fewest); rows.len()];
        let mut cells = vec![Samples::default(); rows.len()];
        // The first round only shows how long runs must be, and does not count.
        for repetition in 0..=plan.repetitions {
            for ((contender, _), (learned, cell)) in
                rows.iter().zip(rates.iter_mut().zip(&mut cells))
            {
                let can = column.part == Part::Update || contender.transport != PLAIN;
                if !can || cell.failed.is_some() || !field.is_present(contender) {
                    continue;
                }
                let setup = Setup {
                    senders: 1,
                    receivers: 1,
                    message_bytes: column.size,
                    capacity_bytes: CAPACITY_BYTES,
                    wait: Wait::Blocking,
                    in_place: false,
                };
                let work = Keeping { part: column.part, times: learned.messages(), topics: TOPICS };
                match field.run(contender, &setup, &work) {
                    Err(failed) if contender.is_toroni() => return Err(Failure::new(failed.0)),
                    Err(failed) => cell.failed = Some(failed),
                    Ok(outcome) => {
                        let ends = outcome.senders.iter().chain(&outcome.receivers);
                        let elapsed_ns: u64 = ends.clone().map(|end| end.elapsed_ns).sum();
                        cell.wrong += ends.map(|end| end.wrong).sum::<u64>();
                        let each_ns = elapsed_ns as f64 / work.times as f64;
                        learned.learn(1e9 / each_ns);
                        if repetition > 0 {
                            cell.values.push(each_ns);
                        }
                    }
                }
            }
        }
        for ((_, row), cell) in rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }
    Ok(Grid { columns, rows })
}

/// Returns the columns of a run. Updates have 64 and 1024 bytes, or those of the two that the command line chose.
fn columns(plan: &Plan) -> Vec<Column> {
    let is_chosen = |size: &usize| !plan.sizes_are_chosen || plan.sizes.contains(size);
    let sizes = TIMES_PLAIN.iter().map(|(size, _)| *size).filter(is_chosen);
    let updates = sizes.map(|size| Column { part: Part::Update, size });
    updates.chain([Part::Get, Part::Join].map(|part| Column { part, size: SMALL })).collect()
}

impl Column {
    fn title(self) -> String {
        let size = size_name(self.size);
        match self.part {
            Part::Update => format!("update, {size}"),
            Part::Get => format!("get, {size}"),
            Part::Join => format!("join of {TOPICS}, {size}"),
        }
    }
}

impl Grid {
    fn table(&self) -> Table {
        let mut rows = presenting::table_rows(&self.rows);
        let all = |of: &dyn Fn(usize) -> Cell| (0..self.columns.len()).map(of).collect();
        rows.push((
            "toroni / not retained".to_owned(),
            all(&|column| ratio(self.toroni(column), self.of(column, PLAIN))),
        ));
        rows.push((
            "best peer / toroni".to_owned(),
            all(&|column| ratio(self.best_peer(column), self.toroni(column))),
        ));
        Table {
            name: "values".to_owned(),
            title: "Time of one update, of one get, and of one join: ns".to_owned(),
            unit: "ns".to_owned(),
            corner: "contender".to_owned(),
            columns: self.titles(),
            rows,
            definitions: vec![
                ("update".to_owned(), "one publish of a value that is kept".to_owned()),
                (
                    "get".to_owned(),
                    "the value of one topic, by a program that is not subscribed".to_owned(),
                ),
                (
                    "join".to_owned(),
                    format!("a new subscriber, until it has the values of all {TOPICS} topics"),
                ),
                (
                    "not retained".to_owned(),
                    "the same publisher and bus; the topics are not retained".to_owned(),
                ),
            ],
        }
    }

    fn titles(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.title()).collect()
    }

    /// Returns the median of a contender in a column.
    fn of(&self, column: usize, transport: &str) -> Option<f64> {
        let mut column = presenting::column(&self.rows, column);
        column.find(|(contender, _)| contender.transport == transport)?.1
    }

    fn toroni(&self, column: usize) -> Option<f64> {
        self.of(column, Toroni::NAME)
    }

    fn best_peer(&self, column: usize) -> Option<f64> {
        let column = presenting::column(&self.rows, column);
        let peers = column.filter(|(contender, _)| !contender.is_toroni());
        best(peers, |a, b| a < b).map(|(value, _)| value)
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let Some(measured) = self.toroni(index) else { continue };
            let mut goal = |what: String, bound: f64, reference: Option<(f64, String)>| {
                goals.push(Goal {
                    what: column.title() + &what,
                    unit: "ns".to_owned(),
                    reference,
                    bound: Bound::AtMost(bound),
                    measured,
                });
            };
            let mut times = |times: f64, transport: &str, label: &str| {
                if let Some(reference) = self.of(index, transport) {
                    goal(
                        format!(": ≤ {times} ×"),
                        times * reference,
                        Some((reference, label.to_owned())),
                    );
                }
            };
            match column.part {
                Part::Update => {
                    let bound = TIMES_PLAIN.iter().find(|(size, _)| *size == column.size);
                    if let Some((_, bound)) = bound {
                        times(*bound, PLAIN, "toroni, not retained");
                    }
                }
                Part::Get => times(TIMES_BLACKBOARD, BLACKBOARD, BLACKBOARD),
                Part::Join => {}
            }
            for peer in OTHERS {
                times(PART_OF_OTHERS, peer, peer);
            }
            match column.part {
                Part::Update => {}
                Part::Get => goal(String::new(), LONGEST_GET_NS, None),
                Part::Join => goal(String::new(), LONGEST_JOIN_NS, None),
            }
        }
        goals
    }

    fn chart(&self) -> Chart {
        let places: Vec<f64> = (0..self.columns.len()).map(|column| column as f64).collect();
        Chart {
            title: "Time of one update, of one get, and of one join".to_owned(),
            x_label: "what is measured, and the bytes of a value".to_owned(),
            y_label: "ns".to_owned(),
            x_scale: Scale::Linear,
            y_scale: Scale::Logarithmic,
            categories: self.titles(),
            series: presenting::series(&self.rows, &places),
        }
    }

    fn complaints(&self) -> Vec<String> {
        presenting::complaints(&self.rows, &self.titles())
    }
}
