//! A call over two topics while other subscribers sleep: a question on one topic, its answer on another one, and bystanders of
//! topics on which nothing is published, all on one bus.
//!
//! Calls are made back to back, so that both ends poll between them, and after a pause, so that both sleep.

use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::experiment::{self, Steps, ratios};
use crate::job::Role;
use crate::options::RunLength;
use crate::process_group::{self, Begin, Launch};
use crate::registry::Work;
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table, figure};
use crate::run_directory::RunDirectory;
use crate::summary::{Latencies, Summary};
use crate::transport::{About, Guarantees, Transport};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use toroni::{Bus, BusConfig, Policy, Publisher, Subscriber};

/// The work of one run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Number of calls that are measured. A tenth of that come before as a warm-up.
    calls: u64,
    /// Time before each call.
    pause_us: u64,
}

const BUS: &str = "calls";
const QUESTION: &str = "call/question";
const ANSWER: &str = "call/answer";
/// Ends the run. All subscribers but the caller want it.
const END: &str = "end";
const MESSAGE_BYTES: usize = 64;
/// Until all sleep.
const CALM: Duration = Duration::from_millis(300);
/// How long to wait for a message that must come.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

impl Work for Call {
    const NAME: &'static str = "call";
    type Sent = Latencies;
    type Received = ();

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _bus = host(&job.directory, job.setup.receivers)?;
                child.host(About {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    settings: "policy wait:forever, wait strategy backoff".to_owned(),
                    guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
                })
            }
            Role::Sender(_) => {
                let bus = open(&job.directory)?;
                let (questions, ends) = (publisher(&bus, QUESTION)?, publisher(&bus, END)?);
                let mut answers = subscriber(&bus, &[ANSWER])?;
                child.ready()?;
                child.wait_at_gate()?;
                std::thread::sleep(CALM);
                let latencies = self.call(&questions, &mut answers)?;
                publish(&ends, &[])?;
                child.finish()?;
                child.result(&latencies)
            }
            Role::Receiver(index) => {
                let bus = open(&job.directory)?;
                let wanted = if index == 0 { QUESTION.to_owned() } else { other(index) };
                let mut questions = subscriber(&bus, &[&wanted, END])?;
                let answers = publisher(&bus, ANSWER)?;
                child.ready()?;
                child.wait_at_gate()?;
                while let Some(question) = next(&mut questions)? {
                    publish(&answers, &question)?;
                }
                child.finish()?;
                child.result(&())
            }
        }
    }
}

impl Call {
    fn call(&self, questions: &Publisher, answers: &mut Subscriber) -> Result<Latencies, Failure> {
        let warm_up = self.calls / 10;
        let mut latencies = Latencies::new()?;
        for number in 0..warm_up + self.calls {
            if self.pause_us > 0 {
                std::thread::sleep(Duration::from_micros(self.pause_us));
            }
            let mut question = [0; MESSAGE_BYTES];
            question[..8].copy_from_slice(&number.to_le_bytes());
            let start = now_ns();
            publish(questions, &question)?;
            let answer = next(answers)?;
            let end = now_ns();
            if answer != Some(question) {
                return Err(Failure::new("an answer is not that of its question"));
            }
            if number >= warm_up {
                latencies.record(end - start);
            }
        }
        Ok(latencies)
    }
}

fn config(directory: &RunDirectory) -> BusConfig {
    BusConfig::new().directory(&directory.path).prefault(true)
}

fn open(directory: &RunDirectory) -> Result<Bus, Failure> {
    config(directory).open_existing(BUS).map_err(Failure::of("open the bus"))
}

fn other(index: u16) -> String {
    format!("other/{index}")
}

/// Creates the bus and makes all topics, as programs do when they start.
fn host(directory: &RunDirectory, receivers: u16) -> Result<Bus, Failure> {
    let bus = config(directory)
        .policy(Policy::Wait { limit: None })
        .max_subscribers(u32::from(receivers) + 1)
        .create(BUS)
        .map_err(Failure::of("create the bus"))?;
    let others = (1..receivers).map(other);
    for topic in [QUESTION, ANSWER, END].map(str::to_owned).into_iter().chain(others) {
        publisher(&bus, &topic)?;
    }
    Ok(bus)
}

fn publisher(bus: &Bus, topic: &str) -> Result<Publisher, Failure> {
    bus.publisher(topic).map_err(Failure::of("make a publisher"))
}

fn subscriber(bus: &Bus, topics: &[&str]) -> Result<Subscriber, Failure> {
    let builder = topics.iter().fold(bus.subscriber(), |builder, topic| builder.pattern(*topic));
    builder.build().map_err(Failure::of("subscribe"))
}

fn publish(publisher: &Publisher, payload: &[u8]) -> Result<(), Failure> {
    publisher.publish(payload).map(drop).map_err(Failure::of("publish"))
}

/// Waits for the next message. Returns `None` at the end of the run.
fn next(subscriber: &mut Subscriber) -> Result<Option<[u8; MESSAGE_BYTES]>, Failure> {
    let message = subscriber.receive_timeout(LONGEST_SILENCE);
    let message = message.map_err(Failure::of("receive"))?;
    let message = message.ok_or_else(|| Failure::new("nothing came for a minute"))?;
    Ok(message.payload().first_chunk().copied())
}

/// How calls follow one another.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    title: &'static str,
    work: Call,
}

fn ways(length: RunLength) -> [Way; 2] {
    let times = match length {
        RunLength::Quick => 1,
        RunLength::Usual => 5,
        RunLength::Full => 20,
    };
    [
        Way {
            name: "back to back",
            title: "a call at once after the other: both ends poll",
            work: Call { calls: 2_000 * times, pause_us: 0 },
        },
        Way {
            name: "asleep",
            title: "2 ms after the last call: both ends sleep",
            work: Call { calls: 200 * times, pause_us: 2_000 },
        },
    ]
}

/// The calls of one way with one number of bystanders.
#[derive(Default)]
struct Calls {
    /// Of each run, in µs.
    p50: Vec<f64>,
    all: Option<Latencies>,
}

impl Calls {
    fn add(&mut self, latencies: &Latencies) -> Result<(), Failure> {
        self.p50.push(latencies.quantile_ns(0.5) as f64 / 1e3);
        match &mut self.all {
            Some(all) => all.add(latencies),
            none => {
                *none = Some(latencies.clone());
                Ok(())
            }
        }
    }

    fn cells(&self) -> [Cell; 2] {
        let p99 = self.all.as_ref().map(|all| all.quantile_ns(0.99) as f64 / 1e3);
        [
            Summary::of(&self.p50).map_or_else(Cell::none, Cell::median),
            p99.map_or_else(Cell::none, Cell::number),
        ]
    }
}

/// The highest p50 with bystanders, beside that with none.
const GOAL: f64 = 1.2;

/// Measures calls with none and with that many bystanders, in turn.
pub(super) fn report(
    launch: &Launch<'_>,
    name: &str,
    (length, repetitions): (RunLength, Option<u32>),
    bystanders: u16,
) -> Result<Report, Failure> {
    let repetitions = repetitions.unwrap_or(if length == RunLength::Quick { 3 } else { 7 });
    let ways = ways(length);
    let counts = [0, bystanders];
    let mut calls = ways.map(|_| counts.map(|_| Calls::default()));
    let mut steps = Steps::new(launch, repetitions, ways.len() * counts.len());
    for _ in 0..repetitions {
        for (way, calls) in ways.iter().zip(&mut calls) {
            for (count, calls) in counts.iter().zip(calls) {
                steps.next();
                let setup = experiment::setup(1, count.saturating_add(1), MESSAGE_BYTES, 4 << 20);
                let outcome = process_group::run(launch, &setup, &way.work, Begin::AtTheGate)?;
                outcome.senders.iter().try_for_each(|latencies| calls.add(latencies))?;
            }
        }
    }

    let mut report = Report {
        name: name.to_owned(),
        title: format!(
            "Latency of a call over two topics while {bystanders} subscribers of other topics sleep"
        ),
        conditions: experiment::conditions(repetitions),
        ..Report::default()
    };
    report.condition(
        "call",
        format!("a question of {MESSAGE_BYTES} bytes on one topic until its answer on another one: a round trip"),
    );
    report
        .condition("processes", "a caller, an answerer and the bystanders on one bus, not pinned");
    for way in &ways {
        report.condition(way.name, format!("{}; {} calls in a run", way.title, way.work.calls));
    }
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    for (row, count) in counts.iter().enumerate() {
        let cells = calls.iter().flat_map(|calls| calls[row].cells()).collect();
        rows.push((count.to_string(), cells));
    }
    let mut last = Vec::new();
    for (way, [none, many]) in ways.iter().zip(&calls) {
        let Some(ratio) = Summary::of(&ratios(&many.p50, &none.p50)) else { continue };
        let text = format!("{} ×", figure(ratio.median));
        last.extend([Cell { text, ..Cell::number(ratio.median) }, Cell::none()]);
        report.goals.push(Goal {
            what: format!("{}: p50 with {bystanders} bystanders, beside none", way.name),
            unit: "x".to_owned(),
            reference: None,
            bound: Bound::AtMost(GOAL),
            measured: ratio.median,
        });
    }
    rows.push(("ratio, of each repetition".to_owned(), last));
    let columns =
        ways.iter().flat_map(|way| ["p50", "p99"].map(|part| format!("{}, {part}", way.name)));
    report.tables.push(Table {
        name: "call".to_owned(),
        title: "Round trip: p50 is the median of the runs, p99 that of all calls together"
            .to_owned(),
        unit: "µs".to_owned(),
        corner: "bystanders".to_owned(),
        columns: columns.collect(),
        rows,
        definitions: Vec::new(),
    });
    let series = ways.iter().zip(&calls).map(|(way, calls)| {
        let points = counts.iter().zip(calls).filter_map(|(count, calls)| {
            Some((f64::from(*count), Summary::of(&calls.p50)?.median))
        });
        Series::line(way.name, points.collect())
    });
    report.charts.push(Chart {
        title: "Round trip of a call".to_owned(),
        x_label: "bystanders".to_owned(),
        y_label: "µs, p50".to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series: series.collect(),
    });
    Ok(report)
}
