//! Checks what the sequencer promises: senders record what they sent and what they were answered, and hosts, logs and
//! archives record which events they have. Afterwards, all of it is checked together.
//!
//! The checker knows no Raft. These rules hold whatever happened to the processes:
//!
//! | rule | what holds |
//! |---|---|
//! | H1 | An event has the same command, topic and payload everywhere, and those that were sent. Each trace has its events in order. |
//! | H2 | A command is at most one event. |
//! | H3 | An answered command is the event that the answer names. Each trace has all commands, or a loss that purging explains. |
//! | H4 | In each series of a source, the commands become events in the order of their numbers. None is skipped, and no series comes back after another one. |
//! | H5 | If a command was answered before another one was sent, it is the earlier event. |
//! | H6 | If a term was confirmed before an earlier term was asked to be, the earlier one is not confirmed. |
//! | H9 | After the last fault, every command is answered within a limit. |
//!
//! What needs no history, tests check by themselves: that digests are equal (H7), that no process ended unasked (H8), and
//! that resources have bounds (H10).

mod rules;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// At most this many violations are shown by [`History::check`].
const SHOWN: usize = 10;

/// Which command of which source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The host that sent it.
    pub source: u32,
    /// The numbers of the source that began at 0 together.
    pub series: u32,
    /// The number in the series.
    pub number: u64,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {} of source {} in series {}", self.number, self.source, self.series)
    }
}

/// A command as its sender knows it. If it was sent several times, the history has each: it counts as sent when it was
/// first sent, and as answered when it was first answered.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Which command.
    pub id: Id,
    /// A hash of its topic and payload.
    pub content: u64,
    /// The time before it was sent.
    pub sent: Duration,
    /// The time after its sender learned that it is an event. Without an answer, it may become an event at any later time.
    pub answered: Option<Duration>,
    /// The number of the event. The answer to a duplicate does not name it.
    pub event: Option<u64>,
}

impl Sent {
    /// Returns a command without an answer.
    #[must_use]
    pub fn new(id: Id, topic: &str, payload: &[u8], sent: Duration) -> Self {
        Self { id, content: content(topic, payload), sent, answered: None, event: None }
    }
}

/// An event as a host, log or archive has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the order.
    pub number: u64,
    /// The command that became this event. Events without a command may be on logs alone.
    pub command: Option<Id>,
    /// A hash of its topic and payload.
    pub content: u64,
}

impl Event {
    /// Returns an event as it was read.
    #[must_use]
    pub fn new(number: u64, command: Option<Id>, topic: &str, payload: &[u8]) -> Self {
        Self { number, command, content: content(topic, payload) }
    }
}

/// What one host, log or archive has of the order.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The host, log or archive, as violations name it.
    pub name: String,
    /// The numbers of the events that it should have: from its first one to before its next one.
    pub numbers: Range<u64>,
    /// The events as they were read.
    pub events: Vec<Event>,
    /// The numbers that it reports as lost because no log or archive has the events any more.
    pub losses: Vec<Range<u64>>,
}

impl Trace {
    /// Returns the trace of a host, log or archive that has lost nothing.
    #[must_use]
    pub fn new(name: impl Into<String>, numbers: Range<u64>, events: Vec<Event>) -> Self {
        Self { name: name.into(), numbers, events, losses: vec![] }
    }
}

/// A successful request to a leader to confirm that it leads.
#[derive(Clone, Copy, Debug)]
pub struct Confirm {
    /// The term that was confirmed.
    pub term: u64,
    /// The time before it was asked.
    pub asked: Duration,
    /// The time after it was answered.
    pub answered: Duration,
}

/// All that was recorded. The times are those of one clock, such as [`now`].
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The commands.
    pub sent: Vec<Sent>,
    /// The hosts, logs and archives.
    pub traces: Vec<Trace>,
    /// The confirmed terms.
    pub confirms: Vec<Confirm>,
    /// Commands that the order itself reports as lost: the first one, and the number after the last one.
    pub overwritten: Vec<(Id, u64)>,
    /// Every event from this number on is still in some log or archive, so only earlier ones may be lost.
    pub purged: u64,
    /// From the last fault to the end of the recording. If it is empty, H9 is not checked.
    pub calm: Range<Duration>,
    /// How long a command may wait after it was sent and after the last fault. Leave out unanswered commands of senders
    /// that were killed.
    pub limit: Duration,
}

impl History {
    /// Returns a sentence for each violation. It begins with the number of the rule.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        rules::violations(self)
    }

    /// Checks all rules.
    ///
    /// # Panics
    /// If one is violated, with the first violations.
    #[track_caller]
    pub fn check(&self) {
        let found = self.violations();
        let shown = &found[..found.len().min(SHOWN)];
        assert!(found.is_empty(), "{} violations:\n{}", found.len(), shown.join("\n"));
    }
}

fn content(topic: &str, payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, payload).hash(&mut hasher);
    hasher.finish()
}

/// Returns the time of the machine's monotonic clock, which processes share.
#[must_use]
pub fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().expect("not negative")
}
