//! The state machine: gives commands their place in the one order. It computes and does nothing else, so every member
//! and every node that applies the same batches comes to the same state.
//!
//! ```text
//!  source ─► bus, session, series, next number        next event number ─► digest ─► kept each 4,096 events
//!  buses that were closed for ever                     series of the feed, and where they began
//! ```
//!
//! Of each source it accepts only the number after the last one. A lower number is a duplicate and dropped; a higher
//! one is refused, and the refusal names the number that is wanted. So each command becomes an event exactly once,
//! however often it was sent.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod chain;
mod digest;
mod lineage;
mod snapshot;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use crate::batch::{Batch, Command, Lost, Open, Publish};
use crate::hook::mutant;

pub use chain::Chain;
pub use digest::{DIGEST_EVERY, DIGESTS_KEPT, Digest};
pub use lineage::{Departs, Lineage, SERIES_KEPT};
#[cfg(feature = "member")]
pub(crate) use snapshot::MAX_SNAPSHOT_BYTES;
pub use snapshot::SnapshotError;

/// The greatest number of sources. More are refused.
pub const MAX_SOURCES: usize = 4096;
/// How many closed buses of all sources are remembered. An older one would count as new.
pub const CLOSED_KEPT: usize = 16_384;
/// What the machine of version 1 kept: of each source, this many closed buses, and this many sources. It has answered by these
/// limits, and its log is applied again.
const CLOSED_KEPT_1: usize = 64;
const MAX_SOURCES_1: usize = 1024;

/// The state: some kilobytes, whatever the number of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    chain: Chain,
    sources: BTreeMap<u32, Source>,
    /// The buses of sources that were closed, the oldest first.
    closed: VecDeque<(u32, [u8; 16])>,
    lineage: Lineage,
    /// The digest after each 4,096th event, with the number of that event.
    kept: VecDeque<(u64, Digest)>,
}

/// What is known of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The command bus whose series is open.
    pub bus: [u8; 16],
    /// The life of the node that opened it.
    pub session: u32,
    /// The series.
    pub series: u32,
    /// The number that is wanted next.
    pub next: u64,
    /// The last event of the source, if that is known.
    pub last: Option<u64>,
    /// Whether the next OPEN may bring any bus.
    pub is_released: bool,
}

/// An event: a command with its place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The series of the feed.
    pub series: u32,
    /// The place in the order, from 0 without a gap. It continues over the series of the feed.
    pub number: u64,
    /// What happened.
    pub command: Command<'a>,
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is the event of this number.
    Sequenced(u64),
    /// It had become an event before, and was dropped.
    Duplicate,
    /// It is not part of the order.
    Refused(Refusal),
}

/// Why a command is not part of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A number, or a range of lost ones, does not start where the series continues.
    #[error("the series continues at {0}")]
    Wanted(u64),
    /// The source has not opened the series, or another bus has taken its place.
    #[error("the series is not open")]
    NotOpen,
    /// This bus's series was closed by that of another bus.
    #[error("the series was closed for ever")]
    Closed,
    /// A later life of the node has opened a series.
    #[error("session {0} of the source has opened a series")]
    Session(u32),
    /// The order knows another bus of the source, and the OPEN does not name it.
    #[error("another host has opened this source")]
    OtherHost,
    /// Too many sources.
    #[error("there are {MAX_SOURCES} sources already")]
    TooManySources,
    /// The feed is at this series already.
    #[error("the feed is at series {0}")]
    FeedSeries(u32),
}

impl Machine {
    /// Returns the machine of a feed that has no events yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the commands of a batch, in their order. `event` sees those that became events, and `outcome` what became
    /// of each.
    pub fn apply<'a>(
        &mut self,
        batch: Batch<'a>,
        mut event: impl FnMut(Event<'a>),
        mut outcome: impl FnMut(Command<'a>, Outcome),
    ) {
        for (command, bytes) in batch.commands() {
            outcome(
                command,
                match self.admit(command) {
                    Ok(true) => {
                        let sequenced = self.append(command, bytes);
                        event(sequenced);
                        Outcome::Sequenced(sequenced.number)
                    }
                    Ok(false) => Outcome::Duplicate,
                    Err(refusal) => Outcome::Refused(refusal),
                },
            );
        }
    }

    /// Returns whether the command becomes an event now. If so, the state of its source says so already.
    fn admit(&mut self, command: Command<'_>) -> Result<bool, Refusal> {
        match command {
            Command::Publish(Publish { id, .. }) => {
                self.advance(id.source, id.series, id.number, id.number)
            }
            Command::Lost(Lost { source, series, first, last }) => {
                self.advance(source, series, first, last)
            }
            Command::Open(open) => self.open(open),
            Command::Release { source } => Ok(self
                .sources
                .get_mut(&source)
                .is_some_and(|known| !std::mem::replace(&mut known.is_released, true))),
            Command::Remove { source } => Ok(self.sources.remove(&source).is_some_and(|known| {
                self.close(source, known.bus);
                true
            })),
            Command::Begin { series } => match series.cmp(&self.chain.series) {
                Ordering::Greater => Ok(true),
                Ordering::Equal => Ok(false),
                Ordering::Less => Err(Refusal::FeedSeries(self.chain.series)),
            },
        }
    }

    fn advance(
        &mut self,
        source: u32,
        series: u32,
        first: u64,
        last: u64,
    ) -> Result<bool, Refusal> {
        let source = self.sources.get_mut(&source).ok_or(Refusal::NotOpen)?;
        if source.series != series {
            return Err(Refusal::NotOpen);
        }
        if last < source.next {
            return Ok(false);
        }
        if first != source.next {
            return Err(Refusal::Wanted(source.next));
        }
        source.next = last.saturating_add(1);
        source.last = Some(self.chain.next);
        Ok(true)
    }

    fn open(&mut self, open: Open<'_>) -> Result<bool, Refusal> {
        let Open { source, series, session, bus, earlier } = open;
        let is_closed = self.closed.contains(&(source, bus));
        let last = Some(self.chain.next);
        let new = Source { bus, session, series, next: 0, last, is_released: false };
        let Some(known) = self.sources.get_mut(&source) else {
            if is_closed {
                return Err(Refusal::Closed);
            }
            let most = if earlier.is_some() { MAX_SOURCES } else { MAX_SOURCES_1 };
            if self.sources.len() >= most {
                return Err(Refusal::TooManySources);
            }
            self.sources.insert(source, new);
            return Ok(true);
        };
        if is_closed {
            return Err(Refusal::Closed);
        }
        if known.bus == bus && known.series == series {
            return match session.cmp(&known.session) {
                Ordering::Less => Err(Refusal::Session(known.session)),
                Ordering::Equal => Ok(false),
                Ordering::Greater => {
                    *known = Source { next: known.next, ..new };
                    Ok(true)
                }
            };
        }
        // Two buses of one source cannot have one series: numbers of the one would count for the other.
        if known.bus == bus || known.series == series {
            return Err(Refusal::NotOpen);
        }
        // Before the session, since that of another host says nothing.
        let is_known = earlier.is_none_or(|earlier| earlier.contains(&known.bus));
        if !is_known && !known.is_released && !mutant("any_bus_of_a_source") {
            return Err(Refusal::OtherHost);
        }
        if session <= known.session {
            return Err(Refusal::Session(known.session));
        }
        let before = std::mem::replace(known, new);
        if earlier.is_none() {
            self.forget_closed_of(source);
        }
        self.close(source, before.bus);
        Ok(true)
    }

    /// Makes room for one more closed bus of a source, as version 1 did.
    fn forget_closed_of(&mut self, source: u32) {
        let of = || self.closed.iter().filter(|(of, _)| *of == source);
        if of().count() >= CLOSED_KEPT_1
            && let Some(oldest) = self.closed.iter().position(|(of, _)| *of == source)
        {
            self.closed.remove(oldest);
        }
    }

    fn close(&mut self, source: u32, bus: [u8; 16]) {
        if mutant("removed_bus_not_closed") {
            return;
        }
        if self.closed.len() >= CLOSED_KEPT {
            self.closed.pop_front();
        }
        self.closed.push_back((source, bus));
    }

    fn append<'a>(&mut self, command: Command<'a>, bytes: &[u8]) -> Event<'a> {
        let event = self.chain.append(command, bytes);
        if let Command::Begin { series } = command {
            self.lineage.begin(series, event.number);
        }
        if self.chain.next.is_multiple_of(DIGEST_EVERY) {
            if self.kept.len() == DIGESTS_KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back((event.number, self.chain.digest));
        }
        event
    }

    /// Returns how far the order has come.
    #[must_use]
    pub const fn chain(&self) -> Chain {
        self.chain
    }

    /// Returns the series of the feed.
    #[must_use]
    pub const fn series(&self) -> u32 {
        self.chain.series
    }

    /// Returns the last series of the feed, each with its first event.
    #[must_use]
    pub const fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Returns the number of the next event.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.chain.next
    }

    /// Returns what is known of a source.
    #[must_use]
    pub fn source(&self, source: u32) -> Option<&Source> {
        self.sources.get(&source)
    }

    /// Returns the sources from this one on, by their numbers.
    pub fn sources_from(&self, first: u32) -> impl Iterator<Item = (u32, &Source)> {
        self.sources.range(first..).map(|(number, source)| (*number, source))
    }

    /// Returns the digest of all events so far.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.chain.digest
    }

    /// Returns the digest after this event, if it is kept: of the last event, and of the last 1,024 of each 4,096th.
    #[must_use]
    pub fn digest_after(&self, number: u64) -> Option<Digest> {
        if number.checked_add(1) == Some(self.chain.next) {
            return Some(self.chain.digest);
        }
        let place = self.kept.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.kept.get(place).map(|(_, digest)| *digest)
    }
}
