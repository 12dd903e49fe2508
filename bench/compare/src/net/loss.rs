//! A network that loses, beside one that does not.
//!
//! Two receivers deliver in the order of the source, as by default. A third one, behind the same losses, delivers each
//! message when it arrives: what it measures of repairs does not contain the wait for other gaps.

use std::time::Duration;

use toroni_bench_harness::Failure;
use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::summary::Latencies;
use toroni_proto::config::{Config, Order, WIRE_OVERHEAD_BYTES};
use toroni_proto::time::{MILLISECOND, SECOND};
use toroni_testkit::network::switch::{Direction, Faults, Loss};

use super::crowd::{self, GENERATION_NS, MESSAGE_BYTES, Row, Run, SWITCHED, goal};
use super::repairs::Closed;
use super::{Length, rig};

/// The row in whose middle `BURST_FRAMES` datagrams are lost one after the other.
const BURST: &str = "a burst of 1,000 lost";
const BURST_FRAMES: u64 = 1_000;
/// Receivers whose figures count in the first table. The next one measures repairs.
const IN_ORDER: usize = 2;
const ORDERS: [Order; IN_ORDER + 1] = [Order::Source, Order::Source, Order::Arrival];
/// What a datagram with one message takes of the rate: the fields of DATA, a chunk's header, and what the wire adds.
const DATAGRAM_BYTES: u64 = 64 + 8 + MESSAGE_BYTES as u64 + WIRE_OVERHEAD_BYTES;
/// What the goals allow above what the rate and the protocol's pauses need.
const ALLOWANCE_NS: u64 = 20 * MILLISECOND;

/// The repairs of a row, of all repetitions.
struct Repaired {
    latencies: Latencies,
    /// The largest gap of each repetition, `None` if none was closed.
    gaps: Vec<Option<Closed>>,
    lost: u64,
}

impl Repaired {
    fn new() -> Result<Self, Failure> {
        Ok(Self { latencies: Latencies::new()?, gaps: Vec::new(), lost: 0 })
    }

    fn add(&mut self, run: &Run) -> Result<(), Failure> {
        let heard =
            run.heard.get(IN_ORDER).ok_or_else(|| Failure::new("no receiver of repairs"))?;
        self.latencies.add(&heard.repairs.latencies)?;
        self.gaps.push(heard.repairs.largest);
        self.lost += heard.lost;
        Ok(())
    }

    /// Returns the gap that took the greatest part of the time that it may take, and that time. A gap that was never
    /// closed took as long as receivers try.
    fn slowest(&self, retransmit_rate: u64) -> Option<(Closed, u64)> {
        let never = Closed { messages: BURST_FRAMES, took_ns: GENERATION_NS };
        let gaps = self.gaps.iter().map(|gap| gap.unwrap_or(never));
        let judged = gaps.map(|gap| (gap, burst_limit_ns(gap.messages, retransmit_rate)));
        let part = |(gap, limit): &(Closed, u64)| gap.took_ns as f64 / *limit as f64;
        judged.max_by(|one, other| part(one).total_cmp(&part(other)))
    }

    fn cells(&self) -> Vec<Cell> {
        let ms = |ns: u64| Cell::number(ns as f64 / 1e6);
        let gap = self.gaps.iter().flatten().max_by_key(|gap| (gap.messages, gap.took_ns));
        vec![
            Cell::number(self.latencies.count() as f64),
            ms(self.latencies.quantile_ns(0.5)),
            ms(self.latencies.quantile_ns(0.99)),
            ms(self.latencies.max_ns()),
            gap.map_or_else(Cell::none, |gap| Cell::number(gap.messages as f64)),
            gap.map_or_else(Cell::none, |gap| ms(gap.took_ns)),
        ]
    }
}

/// Returns how long the repair of this many messages in a row may take: a fifth more than the rate needs, and 20 ms.
fn burst_limit_ns(messages: u64, retransmit_rate: u64) -> u64 {
    let bits = messages * DATAGRAM_BYTES * 8;
    bits * (SECOND / 10 * 12) / retransmit_rate.max(1) + ALLOWANCE_NS
}

/// Returns how long 99 % of the repairs may take: the longest pause before the first NAK, three round trips, and 20 ms.
fn repair_limit_ns(config: &Config, round_trip_ns: u64) -> u64 {
    let longest = (4 * round_trip_ns).min(config.nak_backoff_ns).max(config.nak_backoff_first_ns);
    longest + 3 * round_trip_ns + ALLOWANCE_NS
}

fn repair_goals(rows: &[(&str, &Repaired)], config: &Config, round_trip_ns: u64) -> Vec<Goal> {
    let in_ms = |what: String, limit_ns: u64, took_ns: u64| Goal {
        unit: "ms".to_owned(),
        ..goal(&what, Bound::AtMost(limit_ns as f64 / 1e6), took_ns as f64 / 1e6)
    };
    let limit_ns = repair_limit_ns(config, round_trip_ns);
    let of_row = |(name, repaired): &(&str, &Repaired)| {
        if *name != BURST {
            let p99 = repaired.latencies.quantile_ns(0.99);
            return Some(in_ms(format!("p99 of what was repaired, {name}"), limit_ns, p99));
        }
        let (gap, limit_ns) = repaired.slowest(config.retransmit_rate()?)?;
        Some(in_ms(
            format!("{} messages in a row are repaired", gap.messages),
            limit_ns,
            gap.took_ns,
        ))
    };
    rows.iter().filter_map(of_row).collect()
}

fn table(rows: &[(&str, &Repaired)]) -> Table {
    Table {
        name: "repairs".to_owned(),
        title: "what was repaired, in all repetitions, as a receiver sees it that delivers in the order of arrival"
            .to_owned(),
        corner: "row".to_owned(),
        columns: ["messages", "p50 ms", "p99 ms", "longest ms", "largest gap", "closed after ms"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.iter().map(|(name, row)| ((*name).to_owned(), row.cells())).collect(),
        definitions: [
            ("p50, p99, longest", "from sending a message to its arrival, if it had to be sent again"),
            ("largest gap", "messages in a row that were missing; of several, those that took longest"),
            ("closed", "from the first message behind the gap until none of the gap is missing"),
        ]
        .map(|(term, meaning)| (term.to_owned(), meaning.to_owned()))
        .to_vec(),
        ..Table::default()
    }
}

/// Measures all rows in turn.
pub(super) fn report(length: &Length) -> Result<Report, Failure> {
    let faults = [
        ("no loss", Loss::None),
        ("1 % lost", Loss::Bernoulli(0.01)),
        ("5 % lost", Loss::Bernoulli(0.05)),
        (BURST, Loss::None),
    ];
    // The sender and the receivers.
    let network = rig::switched(4, 7)?;
    let row = |(name, _): &(&'static str, Loss)| Ok((*name, Row::default(), Repaired::new()?));
    let mut rows: Vec<_> = faults.iter().map(row).collect::<Result<_, Failure>>()?;
    for _ in 0..length.repetitions {
        for ((name, row, repaired), (_, loss)) in rows.iter_mut().zip(&faults) {
            let faults = Faults { loss: *loss, ..Faults::default() };
            network.switch().set_faults(0, Direction::In, &faults);
            let burst = || network.switch().lose_next(0, Direction::In, BURST_FRAMES);
            let halfway: &dyn Fn() = if *name == BURST { &burst } else { &|| () };
            let run = crowd::run(&network, &ORDERS, length, halfway)?;
            row.add(&run, IN_ORDER);
            repaired.add(&run)?;
        }
    }
    let ratio = |at: usize| Row::ratio(&rows[at].1.rate, &rows[0].1.rate);
    let mut goals = vec![
        goal("throughput at 1 % loss, beside none", Bound::AtLeast(0.95), ratio(1)),
        goal("throughput at 5 % loss, beside none", Bound::AtLeast(0.8), ratio(2)),
    ];
    // A round trip is taken to be twice the usual latency.
    let round_trip = Duration::from_secs_f64(2.0 * Row::median(&rows[0].1.p50) / 1e6);
    let round_trip_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
    let lossy: Vec<_> = rows[1..].iter().map(|(name, _, repaired)| (*name, repaired)).collect();
    let config = crowd::config(length);
    goals.extend(repair_goals(&lossy, &config, round_trip_ns));
    for (name, row, repaired) in &rows {
        let lost = (row.lost + repaired.lost) as f64;
        goals.push(Goal {
            unit: "messages".to_owned(),
            ..goal(&format!("lost with {name}"), Bound::AtMost(0.0), lost)
        });
    }
    let repairs = table(&lossy);
    let rows = rows.into_iter().map(|(name, row, _)| (name.to_owned(), row)).collect();
    let mut report = crowd::report("loss", "A network that loses", SWITCHED, length, rows);
    report.tables.push(repairs);
    report.goals = goals;
    let rate = config.retransmit_rate().unwrap_or(0) as f64 / 1e6;
    report.condition("repairs", format!("at most {rate} Mbit/s, a quarter of the data_rate"));
    report.notes.push(format!(
        "Goals: p99 of what was repaired within nak_backoff_first ({} ms), three round trips (twice the p50 without loss, \
         {:.2} ms) and 20 ms; messages in a row within 1.2 times what the rate of repairs needs, and 20 ms.",
        config.nak_backoff_first_ns / MILLISECOND,
        round_trip_ns as f64 / 1e6
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = MILLISECOND;

    fn repaired(latencies_ns: impl IntoIterator<Item = u64>, gaps: &[Option<Closed>]) -> Repaired {
        let mut repaired = Repaired::new().unwrap();
        latencies_ns.into_iter().for_each(|ns| repaired.latencies.record(ns));
        repaired.gaps = gaps.to_vec();
        repaired
    }

    fn closed(messages: u64, took_ns: u64) -> Option<Closed> {
        Some(Closed { messages, took_ns })
    }

    #[test]
    fn the_limits_follow_from_the_rate_and_the_round_trip() {
        // 1,000 datagrams of 1,138 bytes at 10 Mbit/s take 910.4 ms.
        assert_eq!(burst_limit_ns(1_000, 10_000_000), 1_112_480_000);
        let config = Config::with_rate(40_000_000);
        assert_eq!(repair_limit_ns(&config, MS / 10), 22 * MS + 300_000);
        assert_eq!(repair_limit_ns(&config, MS), 4 * MS + 3 * MS + 20 * MS, "4 round trips");
    }

    #[test]
    fn a_burst_is_judged_by_its_rate_and_single_losses_by_their_p99() {
        let single = repaired((1..=100).map(|ms| ms * MS / 4), &[closed(2, 25 * MS)]);
        let burst = repaired([800 * MS], &[closed(1_000, 800 * MS), closed(500, 600 * MS)]);
        let rows = [("1 % lost", &single), (BURST, &burst)];
        let goals = repair_goals(&rows, &Config::with_rate(40_000_000), MS / 10);
        let shown: Vec<_> = goals.iter().map(|goal| (&goal.what[..], goal.is_met())).collect();
        // The larger gap took longer, but the smaller one took more than it may.
        let wanted = [
            ("p99 of what was repaired, 1 % lost", false),
            ("500 messages in a row are repaired", false),
        ];
        assert_eq!(shown, wanted);
        assert!((24.7..=24.8).contains(&goals[0].measured), "{}", goals[0].measured);
        assert_eq!(goals[1].measured, 600.0);
    }

    #[test]
    fn a_burst_that_was_not_repaired_misses_its_goal() {
        let burst = repaired([], &[closed(1_000, 800 * MS), None]);
        let goals = repair_goals(&[(BURST, &burst)], &Config::with_rate(40_000_000), MS);
        assert_eq!((goals[0].measured, goals[0].is_met()), (2_000.0, false));
    }
}
