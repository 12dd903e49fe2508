//! CPU scheduling latency: how long something that could run waits until it does. After *Topics in High-Performance
//! Messaging* (Van Valzah, Montgomery, Bowden, 2011), sections 20 and 21, whose authors measured one load in three
//! scheduling classes, and with fewer and with more receivers than processors.
//!
//! A receiver that does not run cannot empty its socket's buffer. So the longest wait decides how large the buffer must
//! be, and how old a message can be when it is read.

mod class;
mod perform;
mod report;
mod track;

use crate::Failure;
use crate::experiment::{self, Steps};
use crate::machine;
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::{self, Begin, Launch};
use crate::registry::Workload;
use crate::report::Report;
use clap::{Args, ValueEnum};
use class::{CLASSES, Class};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use track::{Band, Track};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  toroni-bench jitter --quick
  toroni-bench jitter --only datagram --classes other,fifo --minutes 20 --plot jitter.svg
  toroni-bench jitter --published --minutes 20 --plot published.svg

gaps: a thread reads the clock without pause; timer: a thread sleeps until the next millisecond; datagram and bus: a \
process sleeps until a message of another process comes, over UDP multicast or over a bus; contention: several receivers \
of each datagram. Each is measured in each scheduling class. nice and fifo need root, or CAP_SYS_NICE; what is not \
permitted is left out, and the report says so.")]
pub(crate) struct Jitter {
    #[command(flatten)]
    run: RunOptions,
    /// Minutes of each run: each experiment in each class [default: 0.05; 0.005 with --quick, 1 with --full]
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Option<f64>,
    /// Measure only these [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Part>,
    /// Scheduling classes [default: all]
    #[arg(long, value_name = "CLASS,…", value_delimiter = ',')]
    classes: Vec<Class>,
    /// Numbers of receivers of the contention [default: 1, one for each processor, one more, 10]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=100))]
    receivers: Vec<u16>,
    /// Measure with the published load instead: 5 senders of 10 messages a second, 2,000 bytes each, to 10 receivers,
    /// and to one fewer than there are processors
    #[arg(long, conflicts_with_all = ["only", "receivers"])]
    published: bool,
}

/// Longer runs would keep too many latencies in memory.
const MOST_MINUTES: f64 = 120.0;

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.001..=MOST_MINUTES).contains(&minutes) {
        Ok(minutes)
    } else {
        Err(format!("a run takes from 0.001 to {MOST_MINUTES} minutes"))
    }
}

/// An experiment, or a group of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Gaps,
    Timer,
    Datagram,
    Bus,
    Contention,
}

const PARTS: [Part; 5] = [Part::Gaps, Part::Timer, Part::Datagram, Part::Bus, Part::Contention];

/// What the processes of a run do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Probe {
    /// A thread reads the clock without pause.
    Gaps,
    /// A thread sleeps until points in time.
    Timer,
    /// Receivers sleep until a datagram comes.
    Datagram,
    /// A receiver sleeps until a message comes over a bus, at a futex.
    Bus,
}

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    probe: Probe,
    class: Class,
    run_ns: u64,
    /// Nanoseconds from one message of a sender to the next.
    interval_ns: u64,
    senders: u16,
    receivers: u16,
    /// Bytes of a message.
    bytes: usize,
}

/// What is measured in each class.
#[derive(Clone, Debug)]
struct Experiment {
    name: String,
    /// Whether it shows how receivers differ.
    is_contention: bool,
    /// In the class [`Class::Other`].
    plan: Plan,
}

impl Experiment {
    fn new(name: &str, probe: Probe, run_ns: u64) -> Self {
        let needs_sender = matches!(probe, Probe::Datagram | Probe::Bus);
        let plan = Plan {
            probe,
            class: Class::Other,
            run_ns,
            interval_ns: 1_000_000,
            senders: u16::from(needs_sender),
            receivers: 1,
            bytes: perform::HEAD,
        };
        Self { name: name.to_owned(), is_contention: false, plan }
    }

    fn contention(receivers: u16, run_ns: u64) -> Self {
        let name = match receivers {
            1 => "1 receiver".to_owned(),
            _ => format!("{receivers} receivers"),
        };
        let mut experiment = Self::new(&name, Probe::Datagram, run_ns);
        experiment.is_contention = true;
        experiment.plan.receivers = receivers;
        // Time for all of them to fall asleep again.
        experiment.plan.interval_ns = 10_000_000;
        experiment
    }

    /// The published load: 5 sources, each of 10 messages a second.
    fn published(receivers: u16, run_ns: u64) -> Self {
        let mut experiment = Self::contention(receivers, run_ns);
        experiment.plan.senders = 5;
        experiment.plan.interval_ns = 100_000_000;
        experiment.plan.bytes = 2_000;
        experiment
    }
}

/// What was measured of one experiment in one class.
struct Measured {
    class: Class,
    /// Of all receivers and repetitions.
    track: Track,
    band: Band,
}

impl Workload for Jitter {
    const NAME: &'static str = "jitter";
    const SUMMARY: &'static str =
        "CPU scheduling latency: how long a thread that could run waits for a processor";
    type Work = Plan;

    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        let (minutes, repetitions) = match self.run.length() {
            RunLength::Quick => (0.005, 1),
            RunLength::Usual => (0.05, 3),
            RunLength::Full => (1.0, 3),
        };
        let minutes = self.minutes.unwrap_or(minutes);
        let repetitions = self.run.repetitions.unwrap_or(repetitions);
        let run_ns = u64::try_from(Duration::from_secs_f64(minutes * 60.0).as_nanos());
        let experiments = self.experiments(run_ns.unwrap_or(u64::MAX));
        let mut notes = Vec::new();
        let classes = self.permitted(&mut notes);
        let measured = measure(launch, &experiments, &classes, repetitions)?;
        let mut conditions = experiment::conditions(repetitions);
        conditions.push(("length of a run".to_owned(), format!("{:.1} s", minutes * 60.0)));
        if let Some(share) = class::real_time_share() {
            conditions.push(("real-time processes run".to_owned(), share));
        }
        Ok(report::report(&experiments, &measured, conditions, notes))
    }
}

impl Jitter {
    fn experiments(&self, run_ns: u64) -> Vec<Experiment> {
        let processors = u16::try_from(machine::usable_cores()).unwrap_or(u16::MAX);
        if self.published {
            let mut receivers = vec![processors.saturating_sub(1).clamp(1, 9), 10];
            receivers.dedup();
            return receivers.into_iter().map(|it| Experiment::published(it, run_ns)).collect();
        }
        let mut parts = PARTS.to_vec();
        replace(&mut parts, &self.only);
        let mut receivers = vec![1, processors, processors.saturating_add(1), 10];
        receivers.sort_unstable();
        receivers.dedup();
        replace(&mut receivers, &self.receivers);
        let of = |part: &Part| match part {
            Part::Gaps => vec![Experiment::new("gaps", Probe::Gaps, run_ns)],
            Part::Timer => vec![Experiment::new("timer", Probe::Timer, run_ns)],
            Part::Datagram => vec![Experiment::new("datagram", Probe::Datagram, run_ns)],
            Part::Bus => vec![Experiment::new("bus", Probe::Bus, run_ns)],
            Part::Contention => {
                receivers.iter().map(|it| Experiment::contention(*it, run_ns)).collect()
            }
        };
        parts.iter().flat_map(of).collect()
    }

    /// Returns the classes that this process may enter, and notes the others.
    fn permitted(&self, notes: &mut Vec<String>) -> Vec<Class> {
        let mut classes = CLASSES.to_vec();
        replace(&mut classes, &self.classes);
        classes.retain(|class| match class.check() {
            Ok(()) => true,
            Err(failure) => {
                let label = class.label();
                notes.push(format!(
                    "{label} was not measured: {failure}. Run this as root, or with CAP_SYS_NICE."
                ));
                false
            }
        });
        classes
    }
}

/// Returns what was measured, for each experiment and class. All take turns in each repetition.
fn measure(
    launch: &Launch<'_>,
    experiments: &[Experiment],
    classes: &[Class],
    repetitions: u32,
) -> Result<Vec<Vec<Measured>>, Failure> {
    if classes.is_empty() {
        return Err(Failure::new(
            "this process may use none of these scheduling classes: run it as root, or measure \
             with --classes other",
        ));
    }
    let empty = |class: &Class| -> Result<Measured, Failure> {
        Ok(Measured { class: *class, track: Track::new(0)?, band: Band::new()? })
    };
    let mut measured: Vec<Vec<Measured>> = experiments
        .iter()
        .map(|_| classes.iter().map(empty).collect())
        .collect::<Result<_, _>>()?;
    let mut steps = Steps::new(launch, repetitions, experiments.len() * classes.len());
    for _ in 0..repetitions {
        for (experiment, measured) in experiments.iter().zip(&mut measured) {
            for (class, measured) in classes.iter().zip(measured) {
                steps.next();
                let plan = Plan { class: *class, ..experiment.plan.clone() };
                let tracks = run_once(launch, &plan)?;
                tracks.iter().try_for_each(|track| measured.track.join(track))?;
                measured.band.record(&tracks);
            }
        }
    }
    Ok(measured)
}

fn run_once(launch: &Launch<'_>, plan: &Plan) -> Result<Vec<Track>, Failure> {
    // A run reports nothing before its end.
    let silence_timeout = launch.silence_timeout + Duration::from_nanos(plan.run_ns);
    let launch = Launch { silence_timeout, ..launch.clone() };
    let setup = experiment::setup(plan.senders, plan.receivers, plan.bytes, 0);
    let outcome = process_group::run(&launch, &setup, plan, Begin::AtTheGate)?;
    Ok(outcome.receivers)
}
