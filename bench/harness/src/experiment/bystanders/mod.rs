//! What a message costs while other subscribers sleep: does it wake those that do not want it?
//!
//! One process publishes small messages at equal intervals, another one receives them, and bystanders sleep: subscribers of other
//! topics, or of the same one. Each process measures its own processor time and how often it goes to sleep, first while
//! nothing is published, then while messages are. What sleepers cost in silence, because they recheck, is taken off. A broker, if
//! the channel has one, counts as well.

mod measured;
mod over_toroni;
mod perform;
mod report;

pub use over_toroni::TopicSubscriber;

use crate::Failure;
use crate::child::Child;
use crate::experiment::Steps;
use crate::options::{RunLength, RunOptions, replace};
use crate::process_group::{Launch, Program};
use crate::registry::Work;
use crate::report::Report;
use crate::topics::Topics;
use crate::transport::Transport;
use crate::transports::Toroni;
use clap::Args;
use measured::Lane;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The options of the experiment.
#[derive(Args, Debug)]
pub struct Bystanders {
    #[command(flatten)]
    run: RunOptions,
    /// Numbers of bystanders; one row for each [default: 0,4,16,64,256; 0,4,16 with --quick]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(0..=1000))]
    bystanders: Vec<u16>,
    /// Measure only bystanders that subscribe to the topic of the messages
    #[arg(long, conflicts_with = "others")]
    same: bool,
    /// Measure only bystanders that subscribe to other topics
    #[arg(long)]
    others: bool,
    /// Messages per second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
}

/// A channel that takes part.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Names its column, and the channel in jobs.
    pub name: String,
    /// The program of its processes, or the reason why it is missing.
    pub program: Result<Program, String>,
}

impl Contender {
    /// Returns Toroni, over the program of this launch.
    #[must_use]
    pub fn toroni(launch: &Launch<'_>) -> Self {
        Self { name: TORONI.to_owned(), program: Ok(launch.program.clone()) }
    }

    fn is_toroni(&self) -> bool {
        self.name == TORONI
    }
}

const TORONI: &str = <Toroni as Transport>::NAME;
/// Names the work and the report.
const NAME: &str = "bystanders";

impl Bystanders {
    /// Measures all contenders in turn. One that is missing, or a run of which fails, is named in the report.
    ///
    /// # Errors
    /// If Toroni cannot be measured, or the observer cancels.
    pub fn compare(
        &self,
        launch: &Launch<'_>,
        contenders: &[Contender],
    ) -> Result<Report, Failure> {
        let mut options = Options::of(self.run.length(), self.rate);
        options.repetitions = self.run.repetitions.unwrap_or(options.repetitions);
        replace(&mut options.counts, &self.bystanders);
        if self.same || self.others {
            options.kinds = vec![if self.same { Kind::Same } else { Kind::Others }];
        }
        run(launch, &options, contenders)
    }
}

/// What to measure, and how often.
struct Options {
    counts: Vec<u16>,
    kinds: Vec<Kind>,
    /// How long each run is silent, and then publishes.
    length: Duration,
    rate: u32,
    repetitions: u32,
}

impl Options {
    fn of(length: RunLength, rate: u32) -> Self {
        let usual = Self {
            counts: vec![0, 4, 16, 64, 256],
            kinds: vec![Kind::Others, Kind::Same],
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

    fn plan(&self, kind: Kind) -> Plan {
        Plan {
            same: kind == Kind::Same,
            length_ns: u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX),
            interval_ns: 1_000_000_000 / u64::from(self.rate),
        }
    }
}

/// What bystanders wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A topic of each its own, on which nothing is published.
    Others,
    /// The topic of the messages.
    Same,
}

impl Kind {
    /// Names tables.
    fn name(self) -> &'static str {
        match self {
            Self::Others => "others",
            Self::Same => "same",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Others => "bystanders of other topics",
            Self::Same => "bystanders of the same topic",
        }
    }
}

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    same: bool,
    length_ns: u64,
    interval_ns: u64,
}

/// What a process has used in silence, and then while messages were published.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Used {
    silent_ns: u64,
    busy_ns: u64,
    /// How long that was.
    silent_length_ns: u64,
    busy_length_ns: u64,
    /// How often it went to sleep.
    silent_sleeps: u64,
    busy_sleeps: u64,
    /// How many messages were published, or received.
    messages: u64,
    /// How long the publisher took for them.
    publishing_ns: u64,
}

impl Work for Plan {
    const NAME: &'static str = NAME;
    type Sent = Used;
    type Received = Used;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        perform::perform::<Toroni>(child, self)
    }
}

/// Returns whether the job of a child belongs to this experiment.
#[must_use]
pub fn is_wanted(child: &Child) -> bool {
    child.job().work == NAME
}

/// Does the work of a child of this experiment, over `C`.
///
/// # Errors
/// If the child has other work, or the work fails.
pub fn perform<C: Topics>(child: &mut Child) -> Result<(), Failure> {
    let plan = child.work::<Plan>()?.ok_or_else(|| {
        Failure::new(format!("{} has topics only in the experiment {NAME}", C::NAME))
    })?;
    perform::perform::<C>(child, &plan)
}

fn run(
    launch: &Launch<'_>,
    options: &Options,
    contenders: &[Contender],
) -> Result<Report, Failure> {
    let mut lanes: Vec<_> = contenders.iter().map(|one| Lane::new(one, options)).collect();
    let runs = options.counts.len() * options.kinds.len() * lanes.len();
    let mut steps = Steps::new(launch, options.repetitions, runs);
    for _ in 0..options.repetitions {
        for row in 0..options.counts.len() {
            for kind in 0..options.kinds.len() {
                for lane in &mut lanes {
                    steps.next();
                    lane.measure(launch, options, (kind, row))?;
                }
            }
        }
    }
    Ok(report::report(options, &lanes))
}
