//! What a message costs while other subscribers sleep: does it wake those that do not want it?
//!
//! One process publishes small messages at equal intervals, another one receives them, and bystanders sleep: subscribers of other
//! topics, or of the same one. Each process measures its own processor time and how often it goes to sleep, first while
//! nothing is published, then while messages are. What sleepers cost in silence, because they recheck, is taken off.

use crate::Failure;
use crate::child::Child;
use crate::clock::{Usage, cpu_ns};
use crate::experiment::{self, Steps, count, float};
use crate::job::Role;
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::{self, Begin, Launch};
use crate::registry::{Work, Workload};
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::run_directory::RunDirectory;
use crate::summary::Summary;
use crate::transport::{About, Guarantees, Transport};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, Policy, Publisher, Subscriber};

#[derive(Args, Debug)]
#[command(after_help = "Example:
  toroni-bench bystanders --counts 0,16,64 --plot bystanders.svg

Each subscriber is a process. The figures are those of all processes together, for each message, less what the same processes \
use while nothing is published.")]
pub(crate) struct Bystanders {
    #[command(flatten)]
    run: RunOptions,
    /// Numbers of bystanders; one row for each [default: 0,4,16,64,256; 0,4,16 with --quick]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(0..=1000))]
    counts: Vec<u16>,
    /// Messages per second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
}

impl Workload for Bystanders {
    const NAME: &'static str = "bystanders";
    const SUMMARY: &'static str = "Processor time of a message while other subscribers sleep";
    type Work = Plan;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let mut options = Options::of(self.run.length(), self.rate);
        options.repetitions = self.run.repetitions.unwrap_or(options.repetitions);
        replace(&mut options.counts, &self.counts);
        run(launch, &options)
    }
}

/// What to measure, and how often.
struct Options {
    counts: Vec<u16>,
    /// How long each run is silent, and then publishes.
    length: Duration,
    rate: u32,
    repetitions: u32,
}

impl Options {
    fn of(length: RunLength, rate: u32) -> Self {
        let usual = Self {
            counts: vec![0, 4, 16, 64, 256],
            length: Duration::from_secs(2),
            rate,
            repetitions: 3,
        };
        match length {
            RunLength::Quick => Self {
                counts: vec![0, 4, 16],
                length: Duration::from_millis(500),
                repetitions: 2,
                ..usual
            },
            RunLength::Usual => usual,
            RunLength::Full => Self { length: Duration::from_secs(5), repetitions: 5, ..usual },
        }
    }
}

/// What bystanders wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    /// A topic of each its own, on which nothing is published.
    Others,
    /// The topic of the messages.
    TheSame,
}

const ALL: [Wanted; 2] = [Wanted::Others, Wanted::TheSame];

impl Wanted {
    fn name(self) -> &'static str {
        match self {
            Self::Others => "others",
            Self::TheSame => "the same",
        }
    }
}

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    wanted: Wanted,
    length_ns: u64,
    interval_ns: u64,
}

/// What a process has used in silence, and then while messages were published.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    silent_ns: u64,
    busy_ns: u64,
    /// How often it went to sleep.
    silent_sleeps: u64,
    busy_sleeps: u64,
    /// How many messages were published.
    messages: u64,
}

const BUS: &str = "bystanders";
const TOPIC: &str = "wanted";
/// Ends each part of a run. All subscribers want it.
const PART: &str = "part";
const PARTS: u64 = 3;
/// A subscriber that hears nothing for this long gives up.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

impl Work for Plan {
    const NAME: &'static str = "bystanders";
    type Sent = Used;
    type Received = Used;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _bus = host(&job.directory, job.setup.receivers)?;
                child.host(About {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    settings: format!("{self:?}"),
                    guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
                })
            }
            Role::Sender(_) => {
                let bus = config(&job.directory).open(BUS).map_err(Failure::of("open the bus"))?;
                child.ready()?;
                child.wait_at_gate()?;
                let used = publish(&bus, self)?;
                child.finish()?;
                child.result(&used)
            }
            Role::Receiver(number) => {
                let topic = match self.wanted {
                    Wanted::Others if number > 0 => other(number),
                    _ => TOPIC.to_owned(),
                };
                let bus = config(&job.directory).open(BUS).map_err(Failure::of("open the bus"))?;
                let builder = bus.subscriber().pattern(topic).pattern(PART);
                let mut subscriber = builder.build().map_err(Failure::of("subscribe"))?;
                child.ready()?;
                child.wait_at_gate()?;
                let used = receive(&mut subscriber)?;
                child.finish()?;
                child.result(&used)
            }
        }
    }
}

fn config(directory: &RunDirectory) -> BusConfig {
    BusConfig::new().directory(&directory.path)
}

fn other(number: u16) -> String {
    format!("other/{number}")
}

/// Creates the bus and makes all topics, as programs do when they start.
fn host(directory: &RunDirectory, receivers: u16) -> Result<Bus, Failure> {
    let bus = config(directory)
        .policy(Policy::Wait { limit: None })
        .max_subscribers(u32::from(receivers).max(1))
        .create(BUS)
        .map_err(Failure::of("create the bus"))?;
    let others = (0..receivers).map(other);
    for topic in [TOPIC.to_owned(), PART.to_owned()].into_iter().chain(others) {
        bus.publisher(&topic).map_err(Failure::of("make a topic"))?;
    }
    Ok(bus)
}

fn publish(bus: &Bus, plan: &Plan) -> Result<Used, Failure> {
    let make = |topic| bus.publisher(topic).map_err(Failure::of("make a publisher"));
    let (messages, parts) = (make(TOPIC)?, make(PART)?);
    let say = |publisher: &Publisher| {
        publisher.publish([7; 64]).map(drop).map_err(Failure::of("publish"))
    };
    let mut meter = Meter::default();
    // Until all sleep.
    std::thread::sleep(Duration::from_millis(300));
    say(&parts)?;
    meter.part();
    std::thread::sleep(Duration::from_nanos(plan.length_ns));
    say(&parts)?;
    meter.part();
    let (began, mut published) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_nanos(plan.length_ns) {
        say(&messages)?;
        published += 1;
        let due = Duration::from_nanos(plan.interval_ns.saturating_mul(published));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    say(&parts)?;
    meter.part();
    Ok(Used { messages: published, ..meter.used() })
}

fn receive(subscriber: &mut Subscriber) -> Result<Used, Failure> {
    let mut meter = Meter::default();
    while meter.parts() < PARTS {
        let message = subscriber.receive_timeout(LONGEST_SILENCE);
        match message.map_err(Failure::of("receive"))? {
            Some(message) if message.topic() == PART => meter.part(),
            Some(_) => {}
            None => return Err(Failure::new("nothing came for a minute")),
        }
    }
    Ok(meter.used())
}

/// What this process has used at the beginning of each part.
#[derive(Default)]
struct Meter(Vec<(u64, u64)>);

impl Meter {
    fn part(&mut self) {
        self.0.push((cpu_ns(), Usage::of_process().sleeps));
    }

    fn parts(&self) -> u64 {
        self.0.len() as u64
    }

    fn used(&self) -> Used {
        let [(cpu, sleeps), (cpu_then, sleeps_then), (cpu_last, sleeps_last)] = self.0[..] else {
            return Used::default();
        };
        Used {
            silent_ns: cpu_then.saturating_sub(cpu),
            busy_ns: cpu_last.saturating_sub(cpu_then),
            silent_sleeps: sleeps_then.saturating_sub(sleeps),
            busy_sleeps: sleeps_last.saturating_sub(sleeps_then),
            messages: 0,
        }
    }
}

/// What one run shows.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Processor time of all processes for each message, less that in silence, in nanoseconds.
    each_ns: f64,
    /// How often a bystander went to sleep for each 1,000 messages, more than in silence.
    sleeps: f64,
}

impl Measured {
    fn of(sent: Used, received: &[Used]) -> Self {
        let messages = float(sent.messages.max(1));
        let all = || received.iter().chain([&sent]);
        let busy: f64 = all().map(|used| float(used.busy_ns)).sum();
        let silent: f64 = all().map(|used| float(used.silent_ns)).sum();
        let bystanders = received.get(1..).unwrap_or_default();
        let more = |used: &Used| float(used.busy_sleeps) - float(used.silent_sleeps);
        let sleeps: f64 = bystanders.iter().map(more).sum();
        Self {
            each_ns: (busy - silent) / messages,
            sleeps: sleeps * 1e3 / messages / float(bystanders.len().max(1) as u64),
        }
    }
}

fn run(launch: &Launch<'_>, options: &Options) -> Result<Report, Failure> {
    let mut runs = ALL.map(|_| vec![Vec::new(); options.counts.len()]);
    let mut steps = Steps::new(launch, options.repetitions, options.counts.len() * ALL.len());
    for _ in 0..options.repetitions {
        for (row, bystanders) in options.counts.iter().enumerate() {
            for (index, wanted) in ALL.into_iter().enumerate() {
                steps.next();
                let plan = Plan {
                    wanted,
                    length_ns: u64::try_from(options.length.as_nanos()).unwrap_or(u64::MAX),
                    interval_ns: 1_000_000_000 / u64::from(options.rate),
                };
                let setup = experiment::setup(1, bystanders.saturating_add(1), 64, 4 << 20);
                let outcome = process_group::run(launch, &setup, &plan, Begin::AtTheGate)?;
                let sent = outcome.senders.first().copied().unwrap_or_default();
                runs[index][row].push(Measured::of(sent, &outcome.receivers));
            }
        }
    }
    Ok(report(options, &runs))
}

fn report(options: &Options, runs: &[Vec<Vec<Measured>>; ALL.len()]) -> Report {
    let mut report = Report {
        name: Bystanders::NAME.to_owned(),
        title: "Bystanders: what a message costs while other subscribers sleep".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    let text = format!(
        "{} messages of 64 bytes a second for {:?}, after as long a silence",
        count(options.rate.into()),
        options.length
    );
    report.condition("work", text);
    report.condition("processes", "a publisher, a subscriber of its topic, and the bystanders");
    type Figure = fn(&Measured) -> f64;
    let tables: [(&str, &str, &str, Figure); 2] = [
        (
            "processor",
            "Processor time of all processes for each message, less that in silence",
            "µs",
            |run| run.each_ns / 1e3,
        ),
        (
            "sleeps",
            "How often a bystander goes to sleep for 1,000 messages, more than in silence",
            "",
            |run| run.sleeps,
        ),
    ];
    let cell = |runs: &[Measured], figure: Figure| {
        let values: Vec<f64> = runs.iter().map(figure).collect();
        Summary::of(&values).map_or_else(Cell::none, Cell::median)
    };
    for (name, title, unit, figure) in tables {
        let rows = options.counts.iter().enumerate().map(|(row, bystanders)| {
            let cells = runs.iter().map(|rows| cell(&rows[row], figure)).collect();
            (bystanders.to_string(), cells)
        });
        report.tables.push(Table {
            name: name.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            corner: "bystanders".to_owned(),
            columns: ALL.map(|wanted| wanted.name().to_owned()).to_vec(),
            rows: rows.collect(),
            definitions: vec![
                ("others".to_owned(), "bystanders of other topics".to_owned()),
                ("the same".to_owned(), "of the topic of the messages".to_owned()),
            ],
        });
    }
    let each = |index: usize, bystanders: u16| {
        let row = options.counts.iter().position(|count| *count == bystanders)?;
        let values: Vec<f64> = runs[index][row].iter().map(|run| run.each_ns / 1e3).collect();
        Summary::of(&values).map(|summary| summary.median)
    };
    if let (Some(none), Some(many)) = (each(0, 0), each(0, 64)) {
        report.goals.push(Goal {
            what: "64 bystanders of other topics, beside none".to_owned(),
            unit: "x".to_owned(),
            reference: None,
            bound: Bound::AtMost(1.2),
            measured: many / none,
        });
    }
    report.charts.push(Chart {
        title: "Processor time of a message".to_owned(),
        x_label: "bystanders".to_owned(),
        y_label: "µs".to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series: ALL
            .iter()
            .enumerate()
            .map(|(index, wanted)| {
                let points = options.counts.iter().filter_map(|bystanders| {
                    Some((f64::from(*bystanders), each(index, *bystanders)?))
                });
                Series::line(wanted.name(), points.collect())
            })
            .collect(),
    });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sleepers_cost_in_silence_is_taken_off() {
        let used = |silent_ns, busy_ns, silent_sleeps, busy_sleeps| Used {
            silent_ns,
            busy_ns,
            silent_sleeps,
            busy_sleeps,
            messages: 0,
        };
        let sent = Used { messages: 500, ..used(0, 1_000_000, 0, 500) };
        let received =
            [used(1_000, 2_001_000, 4, 504), used(5_000, 505_000, 8, 18), used(5_000, 5_000, 8, 8)];
        let measured = Measured::of(sent, &received);
        assert!((measured.each_ns - 7_000.0).abs() < 1e-6, "{measured:?}");
        assert!((measured.sleeps - 10.0).abs() < 1e-6, "{measured:?}");
        assert!(Measured::of(sent, &received[..1]).sleeps.abs() < 1e-9);
    }
}
