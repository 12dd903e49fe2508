//! Drain: the end of what a node sends. What was published before is still sent, for a limited time.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::hook::mutant;
use toroni::Bus;
use toroni_proto::time::Monotonic;

/// What is still sent before a stream, or a server, ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// The messages of the bus below this sequence.
    goal: u64,
    /// But not after this time. `None` once that has come.
    until: Option<Monotonic>,
}

impl Drain {
    /// Begins: what is on the bus now is sent, if that takes no longer than `longest_ns`. The messages below `taken` were taken from
    /// the bus already.
    pub(crate) fn begin(bus: &Bus, taken: u64, now: Monotonic, longest_ns: u64) -> Self {
        let head = bus.stats().map_or(0, |stats| stats.sequence);
        let goal = if mutant("end_without_drain") { 0 } else { head };
        Self { goal: goal.max(taken), until: Some(now.after(longest_ns)) }
    }

    /// Returns the sequence before which everything is sent.
    pub(crate) const fn goal(&self) -> u64 {
        self.goal
    }

    /// Returns whether everything that is to be sent was taken from the bus, if the messages below this sequence were.
    pub(crate) const fn is_taken(&self, taken: u64) -> bool {
        taken >= self.goal
    }

    /// Ends the time.
    pub(crate) fn hurry(&mut self, now: Monotonic) {
        self.until = self.until.map(|until| until.min(now));
    }

    /// Returns whether the time has ended, once.
    pub(crate) fn take_end(&mut self, now: Monotonic) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Returns when the time ends, if it has not.
    pub(crate) const fn until(&self) -> Option<Monotonic> {
        self.until
    }
}
