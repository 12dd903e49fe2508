//! What the demo and its processes tell one another, as JSON lines over their standard streams.

use crate::failure::Failure;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// From the demo to a publisher. The end of the stream means: leave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Publish as fast as possible.
    Flood {
        /// Messages in all.
        messages: u64,
        /// Tell about the progress once for so many.
        report_every: u64,
        /// After so many, wait for [`Order::Proceed`].
        hold_at: Option<u64>,
    },
    /// Go on: the victim is dead.
    Proceed,
    /// Publish at a steady rate, each message with its time.
    Steady {
        /// Messages in all.
        messages: u64,
        /// Nanoseconds from one to the next.
        interval_ns: u64,
        /// Nanoseconds before the first, so that the publishers take turns.
        offset_ns: u64,
    },
}

/// From a process to the demo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The publisher can publish; the subscriber is subscribed.
    Ready,
    /// So many messages of the flood are published.
    Sent {
        /// Messages so far.
        messages: u64,
        /// Whether it waits for [`Order::Proceed`].
        holding: bool,
    },
    /// The flood is over.
    FloodDone {
        /// When it began, CLOCK_MONOTONIC.
        started_ns: u64,
    },
    /// The paced messages are published.
    SteadyDone,
    /// A subscriber came to the end of a phase.
    Phase(Box<Phase>),
}

/// What a subscriber saw from the start to the end of a phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Phase {
    /// Messages of all publishers, without the marks between the phases.
    pub(super) messages: u64,
    /// Over topic, payload and sequence of every message, in order.
    pub(super) hash: u64,
    /// Messages that the bus said were lost.
    pub(super) lost_messages: u64,
    /// Messages whose sequence is not that of the one before plus 1.
    pub(super) sequence_errors: u64,
    /// Messages that are none of the demo's, or whose bytes do not fit together.
    pub(super) torn: u64,
    /// Messages of each publisher.
    pub(super) counts: Vec<u64>,
    /// Messages of each publisher whose number is not that of the one before plus 1.
    pub(super) disorders: Vec<u64>,
    /// When the mark of the phase arrived, CLOCK_MONOTONIC.
    pub(super) ended_ns: u64,
    /// Longest wait for a message in this phase, in nanoseconds.
    pub(super) longest_wait_ns: u64,
    /// Latencies of this phase: nanoseconds, and how many messages had them.
    pub(super) latencies: Vec<(u64, u64)>,
}

/// The mark at the end of the flood, on [`CONTROL_TOPIC`].
pub(super) const FLOOD_MARK: &[u8] = b"end of the flood";
/// The mark at the end of the steady phase.
pub(super) const STEADY_MARK: &[u8] = b"end of the steady phase";
/// Where the demo itself publishes.
pub(super) const CONTROL_TOPIC: &str = "demo/control";

/// CLOCK_MONOTONIC in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// A process's end of the conversation.
pub(super) struct Parent {
    input: io::StdinLock<'static>,
    line: String,
}

impl Parent {
    /// Binds this process to the life of the demo: it dies with it.
    pub(super) fn bind() -> Result<Self, Failure> {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
            Failure::Failed(format!("cannot bind this process to its parent: {error}"))
        })?;
        // The parent may have died before that; then its end of the pipe is closed.
        if crate::stop::is_hung_up(io::stdout()) {
            return Err(Failure::ClosedPipe);
        }
        Ok(Self { input: io::stdin().lock(), line: String::new() })
    }

    /// The next order; `None` at the end.
    pub(super) fn order(&mut self) -> Result<Option<Order>, Failure> {
        self.line.clear();
        let length = self
            .input
            .read_line(&mut self.line)
            .map_err(|error| Failure::Failed(format!("cannot read an order: {error}")))?;
        if length == 0 {
            return Ok(None);
        }
        serde_json::from_str(&self.line)
            .map(Some)
            .map_err(|error| Failure::Failed(format!("{:?} is no order: {error}", self.line)))
    }

    /// Tells the demo something.
    pub(super) fn report(&self, report: &Report) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::of_output(&error);
        let mut line = serde_json::to_vec(report).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let mut output = io::stdout().lock();
        output.write_all(&line).and_then(|()| output.flush()).map_err(failed)
    }
}
