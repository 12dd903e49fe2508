//! Eight clients over TCP, of which one is stopped and one slow: what the others notice.
//!
//! ```text
//!   nodes   Toroni: latency-bounded TCP, from bus to bus
//!   plain   a fan-out by hand: a queue for each client, and writes that do not block
//!   nats    NATS: its server, and clients that speak its protocol
//! ```

mod nats;
mod nodes;
mod plain;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use toroni_bench_harness::clock::now_ns;
use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::summary::{Latencies, Summary};
use toroni_bench_harness::{Failure, machine};
use toroni_testkit::network::Host;

use super::{Length, rig};

const CLIENTS: u8 = 8;
/// The first clients are disturbed, in runs with disturbance.
const DISTURBED: usize = 2;
const MESSAGE_BYTES: usize = 1_000;
const PORT: u16 = 4_480;
/// A frame does not wait for longer.
const BOUND: Duration = Duration::from_millis(100);
/// What may be added to it on the way and at the receiver.
const ALLOWANCE: Duration = Duration::from_millis(10);
/// How often a slow client reads, about a mebibyte each time.
const SLOW: Duration = Duration::from_millis(500);
const SLOW_READS: usize = 16;
const READ_BYTES: usize = 64 << 10;

/// The end that sends to all clients.
trait Server {
    /// Hands a message over.
    fn publish(&mut self, payload: &[u8]) -> Result<(), Failure>;
    /// Hands over what it still has, as far as that can be done now.
    fn turn(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A client.
trait Client: Send {
    /// Receives what has come, or waits for some milliseconds if nothing has.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), Failure>;
}

type Ends = (Box<dyn Server>, Vec<Box<dyn Client>>);

/// A row: its name, and what opens both ends, the server on the first host.
type Way = (&'static str, fn(&[Host]) -> Result<Ends, Failure>);

const WAYS: [Way; 3] =
    [("Toroni", nodes::open), ("plain fan-out", plain::open), ("NATS", nats::open)];

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Good,
    /// It reads nothing after its first message.
    Stopped,
    Slow,
}

/// What a client has received.
struct Heard {
    messages: u64,
    ages: Latencies,
}

/// Sends at the offered rate for the length of a run. Returns what each client has received.
fn run(way: &Way, hosts: &[Host], disturbed: bool, length: &Length) -> Result<Vec<Heard>, Failure> {
    let (mut server, clients) = way.1(hosts)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let threads: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(at, client)| {
                let manner = match at {
                    0 if disturbed => Manner::Stopped,
                    1 if disturbed => Manner::Slow,
                    _ => Manner::Good,
                };
                scope.spawn(move || receive(client, manner, is_over))
            })
            .collect();
        let sent = send(server.as_mut(), length);
        // The last messages may wait that long.
        std::thread::sleep(BOUND + ALLOWANCE);
        is_over.store(true, Ordering::Relaxed);
        let heard = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Failure::new("a client panicked"))?)
            .collect();
        sent.and(heard)
    })
}

fn send(server: &mut dyn Server, length: &Length) -> Result<(), Failure> {
    let rate = length.data_rate as f64 * super::crowd::LOAD / (MESSAGE_BYTES as f64 * 8.0);
    let (begin, mut sent) = (Instant::now(), 0_u64);
    let mut payload = [7; MESSAGE_BYTES];
    while begin.elapsed() < length.each {
        while (sent as f64) < begin.elapsed().as_secs_f64() * rate {
            payload[..8].copy_from_slice(&now_ns().to_le_bytes());
            server.publish(&payload)?;
            sent += 1;
        }
        server.turn()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn receive(
    mut client: Box<dyn Client>,
    manner: Manner,
    is_over: &AtomicBool,
) -> Result<Heard, Failure> {
    let mut heard = Heard { messages: 0, ages: Latencies::new()? };
    while !is_over.load(Ordering::Relaxed) {
        match manner {
            Manner::Stopped if heard.messages > 0 => {
                std::thread::sleep(ALLOWANCE);
                continue;
            }
            Manner::Slow if heard.messages > 0 => std::thread::sleep(SLOW),
            _ => {}
        }
        client.receive(&mut |payload| {
            let sent = payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            heard.ages.record(now_ns().saturating_sub(sent));
            heard.messages += 1;
        })?;
    }
    Ok(heard)
}

/// The figures of one row: without and with disturbance.
#[derive(Default)]
struct Row {
    /// Messages a second at the good clients, the one in the middle.
    rate: [Vec<f64>; 2],
    p99: [Vec<f64>; 2],
    /// The oldest message of all good clients, in ms.
    oldest: [f64; 2],
    /// The same of the slow one.
    slow: Vec<f64>,
    missing: Option<String>,
}

impl Row {
    fn add(&mut self, heard: &[Heard], disturbed: bool, length: &Length) {
        let (at, good) = (usize::from(disturbed), &heard[DISTURBED..]);
        let middle = |value: fn(&Heard) -> f64| {
            let values: Vec<f64> = good.iter().map(value).collect();
            Summary::of(&values).map_or(0.0, |summary| summary.median)
        };
        self.rate[at].push(middle(|one| one.messages as f64) / length.each.as_secs_f64());
        self.p99[at].push(middle(|one| one.ages.quantile_ns(0.99) as f64 / 1e6));
        let oldest = good.iter().map(|one| one.ages.max_ns() as f64 / 1e6).fold(0.0, f64::max);
        self.oldest[at] = self.oldest[at].max(oldest);
        if disturbed {
            self.slow.push(heard[1].ages.max_ns() as f64 / 1e6);
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let median = |values: &[f64]| Summary::of(values).map_or_else(Cell::none, Cell::median);
        if self.missing.is_some() {
            return vec![Cell::none(); 7];
        }
        vec![
            median(&self.rate[0]),
            median(&self.rate[1]),
            median(&self.p99[0]),
            median(&self.p99[1]),
            Cell::number(self.oldest[0]),
            Cell::number(self.oldest[1]),
            median(&self.slow),
        ]
    }

    fn ratio(&self) -> f64 {
        let ratios = self.rate[1].iter().zip(&self.rate[0]).map(|(with, without)| with / without);
        let ratios: Vec<f64> = ratios.collect();
        Summary::of(&ratios).map_or(0.0, |summary| summary.median)
    }
}

/// Measures all ways in turn.
pub(super) fn report(length: &Length) -> Result<Report, Failure> {
    let network = rig::bridged(CLIENTS + 1)?;
    let mut rows = WAYS.map(|_| Row::default());
    for _ in 0..length.repetitions {
        for (way, row) in WAYS.iter().zip(&mut rows) {
            for disturbed in [false, true] {
                if row.missing.is_some() {
                    continue;
                }
                match run(way, &network.hosts, disturbed, length) {
                    Ok(heard) => row.add(&heard, disturbed, length),
                    Err(failure) => row.missing = Some(failure.to_string()),
                }
            }
        }
    }
    let longest = (BOUND + ALLOWANCE).as_secs_f64() * 1e3;
    let [ours, ..] = &rows;
    let goals = if ours.missing.is_some() {
        Vec::new()
    } else {
        vec![
            super::crowd::goal(
                "throughput of the others, beside eight good clients",
                Bound::AtLeast(0.95),
                ours.ratio(),
            ),
            Goal {
                unit: "ms".to_owned(),
                ..super::crowd::goal(
                    "the oldest message at the others",
                    Bound::AtMost(longest),
                    ours.oldest[1],
                )
            },
        ]
    };
    let table = Table {
        name: "tcp".to_owned(),
        title: "of the six clients that are good in both cases: with two more good ones / with one stopped and one slow"
            .to_owned(),
        corner: "way".to_owned(),
        columns: [
            "msg/s",
            "disturbed",
            "age p99 ms",
            "disturbed",
            "oldest ms",
            "disturbed",
            "the slow one's oldest ms",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: WAYS.iter().zip(&rows).map(|(way, row)| (way.0.to_owned(), row.cells())).collect(),
        ..Table::default()
    };
    let mut report = Report {
        name: "net-tcp".to_owned(),
        title: "Eight clients over TCP, with and without one that is stopped and one that is slow"
            .to_owned(),
        conditions: machine::describe(),
        tables: vec![table],
        goals,
        ..Report::default()
    };
    report.condition("hosts", "network namespaces, joined by a bridge of the kernel");
    let rate = length.data_rate as f64 * super::crowd::LOAD / 1e6;
    report.condition(
        "messages",
        format!(
            "{MESSAGE_BYTES} bytes, {rate} Mbit/s to each client; latency_bound {} ms",
            BOUND.as_millis()
        ),
    );
    report.condition("slow", format!("reads at most 1 MiB once in {} ms", SLOW.as_millis()));
    report.condition("repetitions", format!("{}, all in turn in each", length.repetitions));
    for (way, row) in WAYS.iter().zip(&rows) {
        report.notes.extend(row.missing.iter().map(|why| format!("MISSING: {}: {why}", way.0)));
    }
    Ok(report)
}
