//! The messages between the demo and its processes: JSON lines over standard input and output.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use toroni_shell::failure::Failure;

/// Sent by the demo to a publisher. At the end of the stream the publisher ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Instruction {
    /// Publish as fast as possible.
    Flood {
        messages: u64,
        /// Report progress once per this many messages.
        report_every: u64,
        /// After this many messages, wait for [`Instruction::Proceed`].
        hold_at: Option<u64>,
    },
    /// Continue: the victim is dead.
    Proceed,
    /// Publish at a steady rate, with the time in each message.
    Steady {
        messages: u64,
        /// Time between two messages.
        interval_ns: u64,
        /// Time before the first message, so that the publishers take turns.
        offset_ns: u64,
    },
}

/// Sent by a process to the demo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The publisher can publish, or the subscriber is subscribed.
    Ready,
    /// The publisher has published this many messages of the flood.
    Sent {
        messages: u64,
        /// Whether the publisher waits for [`Instruction::Proceed`].
        holding: bool,
    },
    /// The publisher has published its part of the flood.
    FloodDone {
        /// When it started, by CLOCK_MONOTONIC.
        started_ns: u64,
    },
    /// The publisher has published its part of the steady phase.
    SteadyDone,
    /// The subscriber has received the end of a phase.
    Phase(Box<Phase>),
}

/// What a subscriber received. Counts and hash run from the start of the demo, times from the start of the phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Phase {
    /// Messages of all publishers, without the marks that end a phase.
    pub(super) messages: u64,
    /// Hash over topic, payload and sequence number of every message, in order.
    pub(super) hash: u64,
    /// Messages that the bus reported as lost.
    pub(super) lost_messages: u64,
    /// Messages whose sequence number does not follow that of the message before.
    pub(super) sequence_errors: u64,
    /// Messages that were not published by the demo, or whose bytes do not belong together.
    pub(super) torn: u64,
    /// Messages of each publisher.
    pub(super) counts: Vec<u64>,
    /// Messages of each publisher whose number does not follow that of the message before.
    pub(super) disorders: Vec<u64>,
    /// When the mark of the phase arrived, by CLOCK_MONOTONIC.
    pub(super) ended_ns: u64,
    /// Longest wait for a message in this phase.
    pub(super) longest_wait_ns: u64,
    /// Latencies of this phase, in nanoseconds, each with the number of messages that had it.
    pub(super) latencies: Vec<(u64, u64)>,
}

/// Published on [`CONTROL_TOPIC`] at the end of the flood.
pub(super) const FLOOD_MARK: &[u8] = b"end of the flood";
/// Published on [`CONTROL_TOPIC`] at the end of the steady phase.
pub(super) const STEADY_MARK: &[u8] = b"end of the steady phase";
/// The topic of the demo itself.
pub(super) const CONTROL_TOPIC: &str = "demo/control";

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// The connection of a child process to the demo.
pub(super) struct Parent {
    input: io::StdinLock<'static>,
    line: String,
}

impl Parent {
    /// Connects to the demo, which has this process killed when it ends.
    pub(super) fn connect() -> Self {
        Self { input: io::stdin().lock(), line: String::new() }
    }

    /// Waits for the next instruction. Returns `None` at the end of the stream.
    pub(super) fn instruction(&mut self) -> Result<Option<Instruction>, Failure> {
        self.line.clear();
        let length = self
            .input
            .read_line(&mut self.line)
            .map_err(|error| Failure::Failed(format!("cannot read an instruction: {error}")))?;
        if length == 0 {
            return Ok(None);
        }
        serde_json::from_str(&self.line).map(Some).map_err(|error| {
            Failure::Failed(format!("{:?} is not an instruction: {error}", self.line))
        })
    }

    /// Sends a report to the demo.
    pub(super) fn report(&self, report: &Report) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::of_output(&error);
        let mut line = serde_json::to_vec(report).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let mut output = io::stdout().lock();
        output.write_all(&line).and_then(|()| output.flush()).map_err(failed)
    }
}
