//! Four senders, four receivers: messages per second, and whether all receivers saw the same order.

use toroni_bench_harness::Failure;
use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::sequence::Lengths;
use toroni_bench_harness::transport::{Setup, Wait};
use toroni_bench_harness::workload::flow::{Flow, Received};

use super::contender::{self, Contender, Manner, SEVERAL};
use super::field::Field;
use super::presenting::{self, Samples, best, complaint, ratio, size_name};
use super::rate::LearnedRate;
use super::throughput::{rate, wrong};
use super::{CAPACITY_BYTES, Plan, wait_name};
use crate::cli::Workload;

const SENDERS: u16 = 4;
const RECEIVERS: u16 = 4;

struct Row {
    contender: Contender,
    samples: Samples,
    order: Order,
}

/// Whether receivers saw a common order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Order {
    promised: bool,
    runs: u32,
    /// Number of runs in which all receivers saw the same order.
    common: u32,
}

/// Measures and compares. Fails only if Toroni itself cannot be measured.
pub(super) fn run(field: &mut Field, plan: &Plan) -> Result<Report, Failure> {
    let title = "Four senders and four receivers: Toroni and its peers";
    let mut report = presenting::begin(Workload::Many.report(), title, plan);
    report.condition(
        "runs",
        format!(
            "as many messages as take about {} s; rates are those of all senders together, at each receiver; \
             every receiver remembers the order of all messages",
            plan.seconds
        ),
    );
    let mut failures = Vec::new();
    for wait in &plan.waits {
        for size in plan.sizes_up_to(65_536, &[8, 64, 1024]) {
            eprintln!("many: {}, {}", wait_name(*wait), size_name(size));
            let cell = format!("4 → 4, {}, {}", wait_name(*wait), size_name(size));
            let rows = measure(field, plan, *wait, size)?;
            for row in &rows {
                failures.extend(complaint(&row.contender, &cell, &row.samples));
                if row.order.is_broken() {
                    failures.push(format!(
                        "ORDER: {}, {cell}: receivers saw different orders, although the transport promises one",
                        row.contender.label()
                    ));
                }
            }
            report.goals.extend(goals(&cell, &rows));
            let name = format!("many_{}_{size}", wait_name(*wait));
            report.tables.push(table(&name, &cell, &rows));
        }
    }
    if failures.is_empty() {
        report.notes.push(
            "lost = 0: every receiver got every message, and those of each sender in order. Transports that \
             promise one order for all receivers kept it."
                .to_owned(),
        );
    }
    presenting::end(&mut report, field, failures);
    Ok(report)
}

fn measure(field: &mut Field, plan: &Plan, wait: Wait, size: usize) -> Result<Vec<Row>, Failure> {
    let contenders = contender::all(wait).into_iter().filter(|contender| field.has(contender));
    let contenders = contenders.filter(|contender| contender.manner != Manner::InPlace);
    let row = |contender| Row { contender, samples: Samples::default(), order: Order::default() };
    let mut rows: Vec<Row> = contenders.map(row).collect();
    let mut rates = vec![LearnedRate::new(plan.seconds, size); rows.len()];
    let setup = Setup {
        senders: SENDERS,
        receivers: RECEIVERS,
        message_bytes: size,
        capacity_bytes: CAPACITY_BYTES,
        wait,
        in_place: false,
    };
    for repetition in 0..=plan.repetitions {
        for (row, learned) in rows.iter_mut().zip(&mut rates) {
            if row.samples.failed.is_some() || !field.is_present(&row.contender) {
                continue;
            }
            let flow = Flow {
                messages: learned.messages() / u64::from(SENDERS),
                lengths: Lengths::Fixed(size),
                bundle: if row.contender.manner == Manner::Several { SEVERAL } else { 1 },
                stamped: false,
                ordered: true,
            };
            match field.run(&row.contender, &setup, &flow) {
                Err(failed) if row.contender.is_toroni() => return Err(Failure::new(failed.0)),
                Err(failed) => row.samples.failed = Some(failed),
                Ok(outcome) => {
                    let rate = rate(&flow, &outcome.senders, &outcome.receivers);
                    learned.learn(rate);
                    row.samples.wrong += wrong(&outcome.receivers);
                    row.order.learn(outcome.about.guarantees.total_order, &outcome.receivers);
                    if repetition > 0 {
                        row.samples.values.push(rate / 1e6);
                    }
                }
            }
        }
    }
    Ok(rows)
}

impl Order {
    fn learn(&mut self, promised: bool, receivers: &[Received]) {
        self.promised = promised;
        self.runs += 1;
        let first = receivers.first().and_then(|receiver| receiver.order);
        let common = first.is_some() && receivers.iter().all(|receiver| receiver.order == first);
        self.common += u32::from(common);
    }

    fn is_broken(self) -> bool {
        self.promised && self.common < self.runs
    }

    fn text(self) -> String {
        let Order { promised, runs, common } = self;
        match (promised, runs) {
            (_, 0) => "–".to_owned(),
            (true, _) if common == runs => format!("one order for all, checked in {runs} runs"),
            (true, _) => format!("PROMISED, AND BROKEN in {} of {runs} runs", runs - common),
            (false, _) => format!("no common order ({common} of {runs} runs had one)"),
        }
    }
}

fn table(name: &str, title: &str, rows: &[Row]) -> Table {
    let mut lines: Vec<_> = rows
        .iter()
        .map(|row| (row.contender.label(), vec![row.samples.cell(), Cell::text(row.order.text())]))
        .collect();
    let (toroni, peer) = (toroni(rows), best_peer(rows).map(|(value, _)| value));
    lines.push(("toroni / best peer".to_owned(), vec![ratio(toroni, peer), Cell::none()]));
    Table {
        name: name.to_owned(),
        title: format!("{title}: M msg/s at each receiver"),
        unit: "M msg/s".to_owned(),
        corner: "contender".to_owned(),
        columns: ["M msg/s", "order of all messages"].map(str::to_owned).to_vec(),
        rows: lines,
        definitions: Vec::new(),
    }
}

fn goals(cell: &str, rows: &[Row]) -> Vec<Goal> {
    let Some((measured, (reference, whose))) = toroni(rows).zip(best_peer(rows)) else {
        return Vec::new();
    };
    vec![Goal {
        what: format!("{cell}, each its best: ≥ 2 ×"),
        unit: "M msg/s".to_owned(),
        reference: Some((reference, whose.label())),
        bound: Bound::AtLeast(2.0 * reference),
        measured,
    }]
}

fn toroni(rows: &[Row]) -> Option<f64> {
    let own = rows.iter().filter(|row| row.contender.is_toroni());
    best(own.map(|row| (&row.contender, row.samples.median())), |a, b| a > b)
        .map(|(value, _)| value)
}

fn best_peer(rows: &[Row]) -> Option<(f64, &Contender)> {
    let others = rows.iter().filter(|row| !row.contender.is_toroni());
    best(others.map(|row| (&row.contender, row.samples.median())), |a, b| a > b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_differs_from_no_promise() {
        let order = |promised, runs, common| Order { promised, runs, common };
        assert!(order(true, 5, 4).is_broken());
        assert!(order(true, 5, 4).text().contains("BROKEN in 1 of 5"));
        assert!(!order(true, 5, 5).is_broken());
        assert!(!order(false, 5, 0).is_broken());
        assert!(order(false, 5, 0).text().starts_with("no common order"));
    }
}
