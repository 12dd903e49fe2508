//! A message there and a message back: half of a round trip, polling and blocking, beside the floors of the machine.

use toroni_bench_harness::Failure;
use toroni_bench_harness::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use toroni_bench_harness::summary::Latencies;
use toroni_bench_harness::transport::{Setup, Wait};
use toroni_bench_harness::workload::ping_pong::PingPong;

use super::contender::{self, Contender};
use super::field::Field;
use super::presenting::{self, Samples, best, complaint, ratio, size_name};
use super::{CAPACITY_BYTES, Plan, wait_name};
use crate::cli::Workload;
use crate::floors::{self, Floor, RunLength};

/// Nanoseconds one way by contender, for one size and one way to wait.
struct Grid {
    size: usize,
    wait: Wait,
    rows: Vec<Row>,
}

struct Row {
    contender: Contender,
    /// The p50 of each run.
    p50: Samples,
    /// The latencies of all runs together.
    all: Option<Latencies>,
}

/// Measures and compares. Fails only if Toroni itself, or a floor, cannot be measured.
pub(super) fn run(field: &mut Field, plan: &Plan) -> Result<Report, Failure> {
    let title = "Latency of Toroni and its peers: half of a round trip between two processes";
    let mut report = presenting::begin(Workload::Latency.report(), title, plan);
    report.condition(
        "runs",
        format!(
            "{} round trips polling, {} blocking, after a tenth of that as a warm-up; one call per message",
            plan.rounds.0, plan.rounds.1
        ),
    );
    let (mut grids, mut failures) = (Vec::new(), Vec::new());
    let mut floors = Vec::new();
    for wait in &plan.waits {
        for size in plan.sizes_up_to(65_536, &[8, 64, 1024]) {
            eprintln!("latency: {}, {}", wait_name(*wait), size_name(size));
            let grid = measure(field, plan, *wait, size, &mut floors)?;
            failures.extend(grid.complaints());
            grids.push(grid);
        }
    }
    let floors = floors::merge(floors);
    for grid in &grids {
        report.tables.push(grid.table());
        report.goals.extend(grid.goals(&floors));
    }
    report.tables.push(floors::table(&floors));
    report.charts.extend(plan.waits.iter().map(|wait| chart(*wait, &grids)));
    report.notes.push(
        "The floors were measured between the runs: their spread is that of the machine. \"not pinned\" \
         means that the scheduler chooses the cores, as it does for all contenders."
            .to_owned(),
    );
    presenting::end(&mut report, field, failures);
    Ok(report)
}

fn measure(
    field: &mut Field,
    plan: &Plan,
    wait: Wait,
    size: usize,
    floors: &mut Vec<Floor>,
) -> Result<Grid, Failure> {
    let contenders = contender::singles().into_iter().filter(|contender| field.has(contender));
    let row = |contender| Row { contender, p50: Samples::default(), all: None };
    let mut rows: Vec<Row> = contenders.map(row).collect();
    let rounds = if wait == Wait::Busy { plan.rounds.0 } else { plan.rounds.1 };
    let setup = Setup {
        senders: 1,
        receivers: 1,
        message_bytes: size,
        capacity_bytes: CAPACITY_BYTES,
        wait,
        in_place: false,
    };
    for _ in 0..plan.repetitions {
        floors.extend(
            floors::between_cores(RunLength::MOMENT)
                .map_err(|error| Failure::new(error.to_string()))?,
        );
        for row in &mut rows {
            if row.p50.failed.is_some() || !field.is_present(&row.contender) {
                continue;
            }
            match field.run(&row.contender, &setup, &PingPong { rounds }) {
                Err(failed) if row.contender.is_toroni() => return Err(Failure::new(failed.0)),
                Err(failed) => row.p50.failed = Some(failed),
                Ok(outcome) => {
                    for trips in &outcome.senders {
                        row.p50.values.push(trips.one_way.quantile_ns(0.5) as f64);
                        match &mut row.all {
                            Some(all) => all.add(&trips.one_way)?,
                            none => *none = Some(trips.one_way.clone()),
                        }
                    }
                    let ends = outcome.senders.iter().chain(&outcome.receivers);
                    row.p50.wrong += ends.map(|trips| trips.wrong).sum::<u64>();
                }
            }
        }
    }
    Ok(Grid { size, wait, rows })
}

impl Grid {
    fn title(&self) -> String {
        format!("{}, {}", wait_name(self.wait), size_name(self.size))
    }

    fn table(&self) -> Table {
        let best_peer = self.best_peer().map(|(value, _)| value);
        let row = |row: &Row| {
            let mut cells = vec![row.p50.cell()];
            let usable = row.all.as_ref().filter(|_| row.p50.median().is_some());
            for quantile in [0.99, 0.999, 1.0] {
                cells.push(usable.map_or_else(Cell::none, |all| {
                    let value =
                        if quantile < 1.0 { all.quantile_ns(quantile) } else { all.max_ns() };
                    Cell::number(value as f64)
                }));
            }
            cells.push(ratio(row.p50.median(), best_peer));
            (row.contender.label(), cells)
        };
        Table {
            name: format!("latency_{}_{}", wait_name(self.wait), self.size),
            title: format!("{}: ns one way", self.title()),
            unit: String::new(),
            corner: "contender".to_owned(),
            columns: ["p50 (lowest–highest run)", "p99", "p99.9", "max", "p50 / best peer"]
                .map(str::to_owned)
                .to_vec(),
            rows: self.rows.iter().map(row).collect(),
            definitions: Vec::new(),
        }
    }

    fn toroni(&self) -> Option<f64> {
        self.rows.iter().find(|row| row.contender.is_toroni())?.p50.median()
    }

    fn best_peer(&self) -> Option<(f64, &Contender)> {
        let peers = self.rows.iter().filter(|row| !row.contender.is_toroni());
        best(peers.map(|row| (&row.contender, row.p50.median())), |a, b| a < b)
    }

    fn goals(&self, floors: &[Floor]) -> Vec<Goal> {
        let Some(measured) = self.toroni() else { return Vec::new() };
        let goal = |what: &str, times: f64, reference: f64, whose: String| Goal {
            what: format!("{}: {what}", self.title()),
            unit: "ns".to_owned(),
            reference: Some((reference, whose)),
            bound: Bound::AtMost(times * reference),
            measured,
        };
        let mut goals = Vec::new();
        if let Some((reference, whose)) = self.best_peer() {
            goals.push(goal("not above the best peer", 1.0, reference, whose.label()));
        }
        let median = |name| floors::find(floors, name).map(|floor| floor.median);
        match self.wait {
            Wait::Busy => {
                if let (Some(lines), Some(rate)) = (median(floors::TWO_LINES), median(floors::COPY))
                {
                    // Gigabytes per second are bytes per nanosecond.
                    let floor = lines + 2.0 * self.size as f64 / rate;
                    goals.push(goal(
                        "≤ 1.5 ×",
                        1.5,
                        floor,
                        "two cache lines and two copies".to_owned(),
                    ));
                }
            }
            Wait::Blocking => {
                if let Some(floor) = median(floors::FUTEX_NOT_PINNED) {
                    goals.push(goal("≤ 1.3 ×", 1.3, floor, "bare futex, not pinned".to_owned()));
                }
            }
        }
        goals
    }

    fn complaints(&self) -> Vec<String> {
        self.rows
            .iter()
            .filter_map(|row| complaint(&row.contender, &self.title(), &row.p50))
            .collect()
    }
}

fn chart(wait: Wait, grids: &[Grid]) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for grid in grids.iter().filter(|grid| grid.wait == wait) {
        for row in &grid.rows {
            let Some(p50) = row.p50.median() else { continue };
            let point = (grid.size as f64, p50);
            match series.iter_mut().find(|series| series.name == row.contender.label()) {
                Some(known) => known.points.push(point),
                None => series.push(Series::line(row.contender.label(), vec![point])),
            }
        }
    }
    Chart {
        title: format!("{}: one way", wait_name(wait)),
        x_label: "bytes of a message".to_owned(),
        y_label: "ns, p50".to_owned(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series,
    }
}
