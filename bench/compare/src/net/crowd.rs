//! One sender and several receivers, some of which lose.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::summary::{Latencies, Summary};
use toroni_bench_harness::{Failure, machine};
use toroni_net::direct::{Direct, Received};
use toroni_proto::config::{Config, Order};
use toroni_proto::time::{MILLISECOND, SECOND};
use toroni_testkit::network::switch::{Direction, Faults, Loss};
use toroni_testkit::network::{Host, Network};

use super::Length;
use super::repairs::Repairs;
use super::rig::{self, TOPIC, thread_ns};

/// Bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 1_000;
/// The part of `data_rate` that is offered.
pub(super) const LOAD: f64 = 0.7;
/// What a datagram of one such message takes on the wire, with its headers.
const WIRE_BYTES: f64 = 1_150.0;
/// How hosts are joined that lose.
pub(super) const SWITCHED: &str = "network namespaces behind a software switch";
/// How long the last messages may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Repairs must end within this time, or are losses.
pub(super) const GENERATION_NS: u64 = 2 * SECOND;

/// What one receiver heard.
pub(super) struct Heard {
    messages: u64,
    pub(super) lost: u64,
    /// From the first message to the last one, in seconds.
    seconds: f64,
    latencies: Latencies,
    /// What was repaired, if it delivers each message when it arrives.
    pub(super) repairs: Repairs,
}

impl Heard {
    fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds.max(1e-9)
    }
}

/// What a run came to.
pub(super) struct Run {
    pub(super) sent: u64,
    /// CPU time of the sender's thread, in nanoseconds.
    sender_ns: u64,
    /// How often the sender's thread woke.
    turns: u64,
    naks: u64,
    repairs: u64,
    pub(super) heard: Vec<Heard>,
}

pub(super) fn config(length: &Length) -> Config {
    Config { generation_ns: GENERATION_NS, ..Config::with_rate(length.data_rate) }
}

/// Sends at the offered rate for the length of a run to the first hosts after the sender's, each of which delivers in the
/// given order. `halfway` is called in its middle.
pub(super) fn run(
    network: &Network,
    receivers: &[Order],
    length: &Length,
    halfway: &dyn Fn(),
) -> Result<Run, Failure> {
    let config = config(length);
    let [from, to @ ..] = &network.hosts[..] else { return Err(Failure::new("no hosts")) };
    let mut sender = rig::open(from, 0, Some(&config), None)?;
    let open = |(at, (host, order)): (usize, (&Host, &Order))| {
        let config = Config { order: *order, ..config.clone() };
        rig::open(host, u8::try_from(at + 1).unwrap_or(u8::MAX), None, Some(&config))
    };
    let mut all: Vec<Direct> =
        to.iter().zip(receivers).enumerate().map(open).collect::<Result<_, _>>()?;
    let begin = Instant::now();
    while all.iter().any(|receiver| receiver.streams() == 0) {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("the receivers hear nothing"));
        }
        sender.turn().map_err(Failure::of("send"))?;
        for receiver in &mut all {
            receiver.turn().map_err(Failure::of("receive"))?;
        }
    }
    let (total, is_over) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
    let (barrier, base) = (Barrier::new(all.len() + 1), Instant::now());
    std::thread::scope(|scope| {
        let (total, is_over, barrier) = (&total, &is_over, &barrier);
        let threads: Vec<_> = all
            .into_iter()
            .map(|receiver| {
                scope.spawn(move || {
                    barrier.wait();
                    receive(receiver, base, total, is_over)
                })
            })
            .collect();
        barrier.wait();
        let sent = send(&mut sender, base, length, halfway);
        if let Ok((sent, ..)) = &sent {
            total.store(*sent, Ordering::Relaxed);
        }
        // What the last receivers miss is repaired now.
        let end = Instant::now();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished)
            && end.elapsed() < PATIENCE
        {
            sender.turn().map_err(Failure::of("send"))?;
            sender.sleep(Some(Duration::from_millis(5))).map_err(Failure::of("wait"))?;
        }
        is_over.store(true, Ordering::Relaxed);
        let heard = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Failure::new("a receiver panicked"))?)
            .collect::<Result<_, _>>()?;
        let (sent, sender_ns, turns) = sent?;
        let counters = sender.sender_counters().unwrap_or_default();
        Ok(Run { sent, sender_ns, turns, naks: counters.naks, repairs: counters.repairs, heard })
    })
}

/// Sends for the length of a run: how many messages, the CPU time, and how often it woke.
fn send(
    sender: &mut Direct,
    base: Instant,
    length: &Length,
    halfway: &dyn Fn(),
) -> Result<(u64, u64, u64), Failure> {
    let rate = length.data_rate as f64 * LOAD / (WIRE_BYTES * 8.0);
    let (begin, cpu, mut sent, mut turns) = (Instant::now(), thread_ns(), 0_u64, 0_u64);
    let (mut payload, mut is_halfway) = ([0; MESSAGE_BYTES], false);
    while begin.elapsed() < length.each {
        turns += 1;
        if !is_halfway && begin.elapsed() > length.each / 2 {
            is_halfway = true;
            halfway();
        }
        while (sent as f64) < begin.elapsed().as_secs_f64() * rate {
            payload[..8].copy_from_slice(&ns_since(base).to_le_bytes());
            sender.send(TOPIC, &payload).map_err(Failure::of("send"))?;
            sent += 1;
        }
        sender.turn().map_err(Failure::of("send"))?;
        sender.sleep(Some(Duration::from_millis(1))).map_err(Failure::of("wait"))?;
    }
    Ok((sent, thread_ns() - cpu, turns))
}

/// Receives until all messages have come or were reported as lost.
fn receive(
    mut receiver: Direct,
    base: Instant,
    total: &AtomicU64,
    is_over: &AtomicBool,
) -> Result<Heard, Failure> {
    let (latencies, repairs) = (Latencies::new()?, Repairs::new()?);
    let mut heard = Heard { messages: 0, lost: 0, seconds: 0.0, latencies, repairs };
    let mut first = None;
    while heard.messages + heard.lost < total.load(Ordering::Relaxed)
        && !is_over.load(Ordering::Relaxed)
    {
        match receiver.receive(Duration::from_millis(20)).map_err(Failure::of("receive"))? {
            None => {}
            Some(Received::Lost { loss, .. }) => heard.lost += loss.count,
            Some(Received::Message { payload, number, .. }) => {
                let now = ns_since(base);
                let sent = payload.first_chunk().map_or(now, |bytes| u64::from_le_bytes(*bytes));
                heard.latencies.record(now.saturating_sub(sent));
                heard.repairs.arrived(number.get(), sent, now);
                heard.messages += 1;
                let first = *first.get_or_insert(now);
                heard.seconds = (now - first) as f64 / 1e9;
            }
        }
    }
    Ok(heard)
}

fn ns_since(base: Instant) -> u64 {
    u64::try_from(base.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The figures of one row, one value for each repetition.
#[derive(Default)]
pub(super) struct Row {
    pub(super) rate: Vec<f64>,
    pub(super) p50: Vec<f64>,
    p99: Vec<f64>,
    sender: Vec<f64>,
    turns: Vec<f64>,
    naks: Vec<f64>,
    repairs: Vec<f64>,
    pub(super) lost: u64,
}

impl Row {
    /// Adds a run, of whose receivers the first `good` count.
    pub(super) fn add(&mut self, run: &Run, good: usize) {
        let of = |value: &dyn Fn(&Heard) -> f64| {
            let values: Vec<f64> = run.heard.iter().take(good).map(value).collect();
            Summary::of(&values).map_or(0.0, |summary| summary.median)
        };
        self.rate.push(of(&Heard::rate));
        self.p50.push(of(&|heard| heard.latencies.quantile_ns(0.5) as f64 / 1e3));
        self.p99.push(of(&|heard| heard.latencies.quantile_ns(0.99) as f64 / 1e3));
        let sent = run.sent.max(1) as f64;
        self.sender.push(run.sender_ns as f64 / sent);
        self.turns.push(run.turns as f64 * 1e3 / sent);
        self.naks.push(run.naks as f64 * 1e3 / sent);
        self.repairs.push(run.repairs as f64 * 1e3 / sent);
        self.lost += run.heard.iter().take(good).map(|heard| heard.lost).sum::<u64>();
    }

    fn cells(&self) -> Vec<Cell> {
        let columns = [
            &self.rate,
            &self.p50,
            &self.p99,
            &self.sender,
            &self.turns,
            &self.naks,
            &self.repairs,
        ];
        let median = |values: &Vec<f64>| Summary::of(values).map_or_else(Cell::none, Cell::median);
        let lost = Cell::number(self.lost as f64);
        columns.into_iter().map(median).chain([lost]).collect()
    }

    pub(super) fn median(values: &[f64]) -> f64 {
        Summary::of(values).map_or(0.0, |summary| summary.median)
    }

    /// The median, over the repetitions, of the ratio to another row that ran in turn.
    pub(super) fn ratio(values: &[f64], base: &[f64]) -> f64 {
        let ratios: Vec<f64> = values.iter().zip(base).map(|(one, other)| one / other).collect();
        Self::median(&ratios)
    }
}

/// Makes the report of rows that were measured in turn.
pub(super) fn report(
    name: &str,
    title: &str,
    hosts: &str,
    length: &Length,
    rows: Vec<(String, Row)>,
) -> Report {
    let table = Table {
        name: name.to_owned(),
        title: "medians of the repetitions; of the good receivers, the one in the middle"
            .to_owned(),
        corner: "row".to_owned(),
        columns: [
            "msg/s",
            "p50 µs",
            "p99 µs",
            "sender ns/msg",
            "its turns/1000 msg",
            "NAKs/1000 msg",
            "sent again/1000 msg",
            "lost",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.iter().map(|(label, row)| (label.clone(), row.cells())).collect(),
        ..Table::default()
    };
    let mut report = Report {
        name: format!("net-{name}"),
        title: title.to_owned(),
        conditions: machine::describe(),
        tables: vec![table],
        ..Report::default()
    };
    report.condition("hosts", hosts);
    report.condition(
        "messages",
        format!(
            "{MESSAGE_BYTES} bytes, at {:.0} % of a data_rate of {} Mbit/s, generation {} ms",
            LOAD * 100.0,
            length.data_rate / 1_000_000,
            GENERATION_NS / MILLISECOND
        ),
    );
    report.condition("repetitions", format!("{}, all rows in turn in each", length.repetitions));
    report
}

pub(super) fn goal(what: &str, bound: Bound, measured: f64) -> Goal {
    Goal { what: what.to_owned(), unit: "×".to_owned(), reference: None, bound, measured }
}

/// Four good receivers, with and without one that loses much.
pub(super) fn crybaby(length: &Length) -> Result<Report, Failure> {
    const GOOD: usize = 4;
    let network = rig::switched(6, 7)?;
    let faults = Faults { loss: Loss::Bernoulli(0.3), ..Faults::default() };
    network.switch().set_faults(5, Direction::Out, &faults);
    let [mut without, mut with] = [Row::default(), Row::default()];
    for _ in 0..length.repetitions {
        without.add(&run(&network, &[Order::Source; GOOD], length, &|| ())?, GOOD);
        with.add(&run(&network, &[Order::Source; GOOD + 1], length, &|| ())?, GOOD);
    }
    let goals = vec![
        goal(
            "throughput of the good ones, beside without",
            Bound::AtLeast(0.95),
            Row::ratio(&with.rate, &without.rate),
        ),
        goal(
            "p99 of the good ones, beside without",
            Bound::AtMost(1.5),
            Row::ratio(&with.p99, &without.p99),
        ),
    ];
    let rows = vec![
        ("4 good receivers".to_owned(), without),
        ("4 good receivers and a crybaby".to_owned(), with),
    ];
    let title = "Four good receivers, with and without one that loses 30 %";
    let mut report = report("crybaby", title, SWITCHED, length, rows);
    report.goals = goals;
    Ok(report)
}

/// What more receivers cost the sender.
pub(super) fn many(length: &Length) -> Result<Report, Failure> {
    let counts = [1_usize, 3, 10, 30];
    let network = rig::switched(31, 7)?;
    // All receivers miss the same datagrams.
    let faults = Faults { loss: Loss::Bernoulli(0.01), ..Faults::default() };
    network.switch().set_faults(0, Direction::In, &faults);
    let mut rows: Vec<(String, Row)> =
        counts.iter().map(|count| (format!("{count} receivers"), Row::default())).collect();
    for _ in 0..length.repetitions {
        for ((_, row), count) in rows.iter_mut().zip(counts) {
            let orders = vec![Order::Source; count];
            row.add(&run(&network, &orders, length, &|| ())?, count);
        }
    }
    let most =
        rows.iter().map(|(_, row)| Row::ratio(&row.sender, &rows[0].1.sender)).fold(0.0, f64::max);
    let goals =
        vec![goal("the sender's time for a message, beside 1 receiver", Bound::AtMost(1.1), most)];
    let mut report =
        report("many", "1 to 30 receivers, of which all miss 1 %", SWITCHED, length, rows);
    report.goals = goals;
    Ok(report)
}
