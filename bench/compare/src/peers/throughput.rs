//! Messages per second, sustained: 1 → 1 and 1 → 4, small and large, polling and blocking.

use toroni_bench_harness::Failure;
use toroni_bench_harness::report::{Bound, Chart, Goal, Report, Scale, Table};
use toroni_bench_harness::sequence::Lengths;
use toroni_bench_harness::transport::{Setup, Wait};
use toroni_bench_harness::workload::flow::{Flow, Received, Sent};

use super::contender::{self, Contender, Manner, SEVERAL};
use super::field::Field;
use super::presenting::{self, Rows, Samples, best, ratio, size_name};
use super::rate::LearnedRate;
use super::{CAPACITY_BYTES, Plan, wait_name};
use crate::cli::Workload;

/// Millions of messages per second, by contender and size.
struct Grid {
    receivers: u16,
    wait: Wait,
    rows: Rows,
}

/// Measures and compares. Fails only if Toroni itself cannot be measured.
pub(super) fn run(field: &mut Field, plan: &Plan) -> Result<Report, Failure> {
    let title = "Throughput of Toroni and its peers: messages per second that each receiver gets";
    let mut report = presenting::begin(Workload::Throughput.report(), title, plan);
    report.condition(
        "runs",
        format!(
            "one sender; as many messages as take about {} s, at least twice what may be in flight; rate = \
             number of messages / time from the gate to the last message at the last receiver",
            plan.seconds
        ),
    );
    let mut grids = Vec::new();
    let mut failures = Vec::new();
    for receivers in [1, 4] {
        for wait in &plan.waits {
            let grid = measure(field, plan, receivers, *wait)?;
            report.tables.push(grid.table(plan));
            report.charts.push(grid.chart(plan));
            failures.extend(grid.complaints(plan));
            grids.push(grid);
        }
    }
    report.goals = grids.iter().flat_map(|grid| grid.goals(plan)).collect();
    if failures.is_empty() {
        report.notes.push("lost = 0: every receiver got every message, in order.".to_owned());
    }
    presenting::end(&mut report, field, failures);
    Ok(report)
}

fn measure(field: &mut Field, plan: &Plan, receivers: u16, wait: Wait) -> Result<Grid, Failure> {
    let contenders: Vec<_> =
        contender::all(wait).into_iter().filter(|contender| field.has(contender)).collect();
    let mut rows: Vec<_> =
        contenders.into_iter().map(|contender| (contender, Vec::new())).collect();
    for size in &plan.sizes {
        eprintln!("throughput: 1 → {receivers}, {}, {}", wait_name(wait), size_name(*size));
        let mut rates = vec![LearnedRate::new(plan.seconds, *size); rows.len()];
        let mut cells = vec![Samples::default(); rows.len()];
        // The first round only shows how long runs must be, and does not count.
        for repetition in 0..=plan.repetitions {
            for ((contender, _), (learned, cell)) in
                rows.iter().zip(rates.iter_mut().zip(&mut cells))
            {
                if cell.failed.is_some() || !field.is_present(contender) {
                    continue;
                }
                let setup = Setup {
                    senders: 1,
                    receivers,
                    message_bytes: *size,
                    capacity_bytes: CAPACITY_BYTES,
                    wait,
                    in_place: contender.manner == Manner::InPlace,
                };
                let flow = Flow {
                    messages: learned.messages(),
                    lengths: Lengths::Fixed(*size),
                    bundle: if contender.manner == Manner::Several { SEVERAL } else { 1 },
                    stamped: false,
                    ordered: false,
                };
                match field.run(contender, &setup, &flow) {
                    Err(failed) if contender.is_toroni() => return Err(Failure::new(failed.0)),
                    Err(failed) => cell.failed = Some(failed),
                    Ok(outcome) => {
                        let rate = rate(&flow, &outcome.senders, &outcome.receivers);
                        learned.learn(rate);
                        cell.wrong += wrong(&outcome.receivers);
                        if repetition > 0 {
                            cell.values.push(rate / 1e6);
                        }
                    }
                }
            }
        }
        for ((_, row), cell) in rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }
    Ok(Grid { receivers, wait, rows })
}

/// Returns messages per second at each receiver, from the first sender's start to the last receiver's end.
pub(crate) fn rate(flow: &Flow, senders: &[Sent], receivers: &[Received]) -> f64 {
    let start = senders.iter().map(|sender| sender.started_ns).min().unwrap_or(0);
    let end = receivers.iter().map(|receiver| receiver.last_ns).max().unwrap_or(0);
    let messages = flow.messages as f64 * senders.len() as f64;
    messages * 1e9 / end.saturating_sub(start).max(1) as f64
}

pub(crate) fn wrong(receivers: &[Received]) -> u64 {
    receivers
        .iter()
        .map(|receiver| receiver.faults)
        .map(|faults| faults.lost + faults.misordered + faults.alien)
        .sum()
}

impl Grid {
    fn name(&self) -> String {
        format!("throughput_1_{}_{}", self.receivers, wait_name(self.wait))
    }

    fn title(&self) -> String {
        format!("1 → {}, {}", self.receivers, wait_name(self.wait))
    }

    fn table(&self, plan: &Plan) -> Table {
        let mut rows = presenting::table_rows(&self.rows);
        let columns = || 0..plan.sizes.len();
        rows.push((
            "toroni / best peer, one call per message".to_owned(),
            columns()
                .map(|column| {
                    ratio(self.toroni(column, is_single), self.peer(column, is_single).map(|b| b.0))
                })
                .collect(),
        ));
        rows.push((
            "toroni / best peer, each its best".to_owned(),
            columns()
                .map(|column| ratio(self.toroni(column, any), self.peer(column, any).map(|b| b.0)))
                .collect(),
        ));
        Table {
            name: self.name(),
            title: format!("{}: M msg/s at each receiver", self.title()),
            unit: "M msg/s".to_owned(),
            corner: "contender".to_owned(),
            columns: plan.sizes.iter().map(|size| size_name(*size)).collect(),
            rows,
            definitions: vec![
                (format!("{SEVERAL} a call"), "the transport's own call for several messages".to_owned()),
                (
                    "batches".to_owned(),
                    "publish_batch: all messages of a call become visible together".to_owned(),
                ),
                (
                    "read in place".to_owned(),
                    "receive_in_place: receivers copy nothing; those of Aeron and iceoryx2 never copy".to_owned(),
                ),
                (
                    "exclusive".to_owned(),
                    "the sender is an exclusive publisher, as Aeron's is".to_owned(),
                ),
                (
                    "in place".to_owned(),
                    "one call per message; the message is made where the transport keeps it, and only \
                     its number is written; read in place"
                        .to_owned(),
                ),
            ],
        }
    }

    fn toroni(&self, column: usize, fits: fn(&Contender) -> bool) -> Option<f64> {
        let column = presenting::column(&self.rows, column);
        let own = column.filter(|(contender, _)| contender.is_toroni() && fits(contender));
        best(own, |a, b| a > b).map(|(value, _)| value)
    }

    fn peer(&self, column: usize, fits: fn(&Contender) -> bool) -> Option<(f64, &Contender)> {
        let column = presenting::column(&self.rows, column);
        let others = column.filter(|(contender, _)| !contender.is_toroni() && fits(contender));
        best(others, |a, b| a > b)
    }

    fn goals(&self, plan: &Plan) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (column, size) in plan.sizes.iter().enumerate() {
            let cell = format!("{}, {}", self.title(), size_name(*size));
            for (how, fits) in
                [("one call per message", is_single as fn(&_) -> _), ("each its best", any)]
            {
                if let (Some(measured), Some((reference, whose))) =
                    (self.toroni(column, fits), self.peer(column, fits))
                {
                    goals.push(goal(format!("{cell}, {how}"), 2.0, reference, whose, measured));
                }
            }
            for peer in ["zeromq", "nng", "iceoryx2"] {
                let of_peer = presenting::column(&self.rows, column)
                    .filter(|(contender, _)| contender.peer == peer);
                if let (Some(measured), Some((reference, whose))) =
                    (self.toroni(column, any), best(of_peer, |a, b| a > b))
                {
                    goals.push(goal(
                        format!("{cell}, each its best"),
                        10.0,
                        reference,
                        whose,
                        measured,
                    ));
                }
            }
        }
        goals
    }

    fn chart(&self, plan: &Plan) -> Chart {
        let sizes: Vec<f64> = plan.sizes.iter().map(|size| *size as f64).collect();
        Chart {
            title: self.title(),
            x_label: "bytes of a message".to_owned(),
            y_label: "M msg/s".to_owned(),
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            categories: Vec::new(),
            series: presenting::series(&self.rows, &sizes),
        }
    }

    fn complaints(&self, plan: &Plan) -> Vec<String> {
        let title = |size: &usize| format!("{}, {}", self.title(), size_name(*size));
        let titles: Vec<String> = plan.sizes.iter().map(title).collect();
        presenting::complaints(&self.rows, &titles)
    }
}

fn goal(what: String, times: f64, reference: f64, whose: &Contender, measured: f64) -> Goal {
    Goal {
        what: format!("{what}: ≥ {times} ×"),
        unit: "M msg/s".to_owned(),
        reference: Some((reference, whose.label())),
        bound: Bound::AtLeast(times * reference),
        measured,
    }
}

fn is_single(contender: &Contender) -> bool {
    contender.manner == Manner::Single
}

fn any(_: &Contender) -> bool {
    true
}
