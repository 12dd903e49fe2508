//! One way between two hosts: half of a message and its answer.
//!
//! ```text
//!   ends    plain datagrams, and the protocol in a program without a bus
//!   buses   from bus to bus, by a node at each host
//! ```

mod buses;
mod ends;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::summary::{Latencies, Summary};
use toroni_bench_harness::{Failure, machine};
use toroni_proto::config::Config;
use toroni_testkit::network::{Host, Network};

use super::{Length, rig};
use crate::floors::{self, Floor, RunLength};
use ends::End;

const SIZES: [usize; 2] = [16, 1_024];
/// Goal of blocking ends, in wake-ups above plain datagrams: from bus to bus, a message also wakes the node of its own
/// host and the subscriber.
const WAKES: f64 = 2.0;
/// No answer takes this long, unless a plain datagram was lost.
const LOST: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a blocking end waits before it checks whether the run is over.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// How an end waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Busy,
    Blocking,
}

const WAITS: [Wait; 2] = [Wait::Busy, Wait::Blocking];

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Blocking => "blocking",
        }
    }

    /// Returns what is compared, plain datagrams first.
    fn ways(self) -> &'static [Way] {
        match self {
            Self::Busy => &[Way::Plain, Way::Direct],
            Self::Blocking => &[Way::Plain, Way::Direct, Way::Buses],
        }
    }
}

/// How a message gets to the other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Direct,
    Buses,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain datagrams",
            Self::Direct => "Toroni, no bus",
            Self::Buses => "Toroni, from bus to bus",
        }
    }

    fn open(self, network: &Network, wait: Wait) -> Result<[Box<dyn End>; 2], Failure> {
        match self {
            Self::Plain => ends::plain(network, wait),
            Self::Direct => ends::protocol(network, wait),
            Self::Buses => buses::buses(network),
        }
    }
}

fn config() -> Config {
    Config::with_rate(1_000_000_000)
}

fn two_hosts(network: &Network) -> Result<[&Host; 2], Failure> {
    let [near, far] = &network.hosts[..] else { return Err(Failure::new("two hosts are needed")) };
    Ok([near, far])
}

/// Returns half of the time of a message and its answer, in nanoseconds.
fn converse(ends: [Box<dyn End>; 2], bytes: usize, each: Duration) -> Result<Latencies, Failure> {
    let [mut asks, mut answers] = ends;
    let (payload, is_over) = (vec![7; bytes], AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (payload, is_over) = (&payload[..], &is_over);
        let answering = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if answers.receive()? {
                    answers.send(payload)?;
                }
            }
            Ok::<_, Failure>(())
        });
        let outcome = ask(asks.as_mut(), payload, each);
        is_over.store(true, Ordering::Relaxed);
        answering.join().map_err(|_| Failure::new("an end panicked"))??;
        outcome
    })
}

fn ask(asks: &mut dyn End, payload: &[u8], each: Duration) -> Result<Latencies, Failure> {
    let (mut latencies, begin) = (Latencies::new()?, Instant::now());
    while begin.elapsed() < each {
        let sent = Instant::now();
        asks.send(payload)?;
        while !asks.receive()? {
            if sent.elapsed() > LOST {
                return Err(Failure::new("no answer came within a second"));
            }
        }
        // The first tenth is for caches and branches.
        if begin.elapsed() > each / 10 {
            latencies.record(u64::try_from(sent.elapsed().as_nanos() / 2).unwrap_or(u64::MAX));
        }
    }
    Ok(latencies)
}

/// One way to wait and one size: each way in turn, in µs, one value for each repetition.
struct Grid {
    wait: Wait,
    bytes: usize,
    rows: Vec<Row>,
}

struct Row {
    way: Way,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Grid {
    fn new(wait: Wait, bytes: usize) -> Self {
        let row = |way: &Way| Row { way: *way, p50: Vec::new(), p99: Vec::new() };
        Self { wait, bytes, rows: wait.ways().iter().map(row).collect() }
    }

    /// Measures each way once.
    fn measure(&mut self, network: &Network, each: Duration) -> Result<(), Failure> {
        for row in &mut self.rows {
            let failed = || Failure::of(format!("measure {}", row.way.name()));
            let ends = row.way.open(network, self.wait).map_err(failed())?;
            let latencies = converse(ends, self.bytes, each).map_err(failed())?;
            let us = |quantile| latencies.quantile_ns(quantile) as f64 / 1e3;
            row.p50.push(us(0.5));
            row.p99.push(us(0.99));
        }
        Ok(())
    }

    fn plain(&self) -> &[f64] {
        &self.rows[0].p50
    }

    fn table_rows(&self) -> impl Iterator<Item = (String, Vec<Cell>)> {
        self.rows.iter().map(|row| {
            let ratio: Vec<f64> =
                row.p50.iter().zip(self.plain()).map(|(one, plain)| one / plain).collect();
            let median = |values: &[f64]| Summary::of(values).map_or_else(Cell::none, Cell::median);
            let cells = [&row.p50, &row.p99, &ratio].map(|values| median(values));
            (format!("{} B, {}", self.bytes, row.way.name()), cells.to_vec())
        })
    }

    /// Compares each of our ways with plain datagrams and, if the ends block, with what a wake-up takes.
    fn goals(&self, wake_us: f64) -> Vec<Goal> {
        let median = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
        let Some(plain) = median(self.plain()) else { return Vec::new() };
        let ours = self.rows.iter().filter(|row| row.way != Way::Plain);
        let goal = |row: &Row| {
            let most = match self.wait {
                Wait::Busy => 1.5 * plain + 1.0,
                Wait::Blocking => plain + WAKES * wake_us,
            };
            Some(Goal {
                what: format!("{} B, {}, {}", self.bytes, self.wait.name(), row.way.name()),
                unit: "µs".to_owned(),
                reference: Some((plain, "plain datagrams".to_owned())),
                bound: Bound::AtMost(most),
                measured: median(&row.p50)?,
            })
        };
        ours.filter_map(goal).collect()
    }
}

/// Measures all of it.
pub(super) fn report(length: &Length) -> Result<Report, Failure> {
    let network = rig::bridged(2)?;
    let (mut tables, mut grids, mut wakes) = (Vec::new(), Vec::new(), Vec::<Floor>::new());
    for wait in WAITS {
        let mut rows = Vec::new();
        for bytes in SIZES {
            let mut grid = Grid::new(wait, bytes);
            for _ in 0..length.repetitions {
                let floors = floors::wake_ups(RunLength::MOMENT);
                wakes.extend(floors.map_err(|error| Failure::new(error.to_string()))?);
                grid.measure(&network, length.each)?;
            }
            rows.extend(grid.table_rows());
            grids.push(grid);
        }
        tables.push(Table {
            name: wait.name().to_owned(),
            title: format!("one way, {}, in µs: medians of the repetitions", wait.name()),
            corner: "message".to_owned(),
            columns: ["p50", "p99", "p50 / plain"].map(str::to_owned).to_vec(),
            rows,
            ..Table::default()
        });
    }
    let wakes = floors::merge(wakes);
    let wake = floors::find(&wakes, floors::FUTEX_ACROSS_CORES);
    let wake_us = wake.map_or(0.0, |floor| floor.median / 1e3);
    tables.push(floors::table(&wakes));
    let mut report = Report {
        name: "net-latency".to_owned(),
        title: "One way between two hosts".to_owned(),
        conditions: machine::describe(),
        tables,
        goals: grids.iter().flat_map(|grid| grid.goals(wake_us)).collect(),
        ..Report::default()
    };
    report.condition("hosts", "network namespaces, joined by a bridge of the kernel");
    report.condition("buses", "a node at each host; publishers, subscribers and nodes sleep");
    report.condition("repetitions", format!("{}, all ways in turn in each", length.repetitions));
    report.notes.push(
        "Goals: if the ends poll, 1.5 times plain datagrams and 1 µs; if they block, plain datagrams and two wake-ups of a \
         futex across cores, measured before each repetition."
            .to_owned(),
    );
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(wait: Wait, p50: &[f64]) -> Grid {
        let mut grid = Grid::new(wait, 16);
        for (row, value) in grid.rows.iter_mut().zip(p50) {
            (row.p50, row.p99) = (vec![*value; 3], vec![2.0 * value; 3]);
        }
        grid
    }

    #[test]
    fn blocking_ends_may_take_two_measured_wake_ups_more_than_plain_datagrams() {
        let goals = measured(Wait::Blocking, &[20.0, 26.0, 61.0]).goals(20.0);
        let shown: Vec<_> = goals
            .iter()
            .map(|goal| (goal.what.as_str(), goal.bound, goal.measured, goal.is_met()))
            .collect();
        assert_eq!(
            shown,
            [
                ("16 B, blocking, Toroni, no bus", Bound::AtMost(60.0), 26.0, true),
                ("16 B, blocking, Toroni, from bus to bus", Bound::AtMost(60.0), 61.0, false),
            ]
        );
    }

    #[test]
    fn busy_ends_are_measured_without_buses_and_whatever_a_wake_up_takes() {
        let goals = measured(Wait::Busy, &[6.0, 9.0]).goals(1_000.0);
        assert_eq!(goals.len(), 1);
        assert_eq!((goals[0].bound, goals[0].is_met()), (Bound::AtMost(10.0), true));
    }

    #[test]
    fn each_way_is_a_row_beside_plain_datagrams() {
        let rows: Vec<_> = measured(Wait::Blocking, &[20.0, 25.0, 50.0]).table_rows().collect();
        let (label, cells) = &rows[2];
        assert_eq!(label, "16 B, Toroni, from bus to bus");
        let values: Vec<_> = cells.iter().map(|cell| cell.value).collect();
        assert_eq!(values, [Some(50.0), Some(100.0), Some(2.5)]);
    }

    #[test]
    fn every_way_carries_messages_and_answers() {
        let Some(network) = toroni_testkit::network::Setup::new(2).bridged() else { return };
        for wait in WAITS {
            for way in wait.ways() {
                let ends = way.open(&network, wait).unwrap();
                // How many depends on what else the processors do.
                let latencies = converse(ends, 16, Duration::from_millis(500)).unwrap();
                assert!(latencies.count() > 0, "{wait:?}, {way:?}");
            }
        }
    }
}
