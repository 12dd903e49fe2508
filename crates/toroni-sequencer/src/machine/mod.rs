//! The state machine: gives commands their place in the one order. It computes and does nothing else, so every member
//! and every node that applies the same batches comes to the same state.
//!
//! ```text
//!  source ─► bus, session, series, next number        next event number ─► digest ─► kept each 4,096 events
//!        └─► buses that were closed for ever
//! ```
//!
//! Of each source it accepts only the number after the last one. A lower number is a duplicate and dropped; a higher
//! one is refused, and the refusal names the number that is wanted. So each command becomes an event exactly once,
//! however often it was sent.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod chain;
mod digest;
mod snapshot;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use crate::batch::{Batch, Command, Lost, Open, Publish};

pub use chain::Chain;
pub use digest::{DIGEST_EVERY, DIGESTS_KEPT, Digest};
#[cfg(feature = "member")]
pub(crate) use snapshot::MAX_SNAPSHOT_BYTES;
pub use snapshot::SnapshotError;

/// The greatest number of sources. More are refused.
pub const MAX_SOURCES: usize = 1024;
/// How many closed buses of a source are remembered. An older one would count as new.
pub const CLOSED_KEPT: usize = 64;

/// The state: some kilobytes, whatever the number of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    chain: Chain,
    sources: BTreeMap<u32, Source>,
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
    closed: VecDeque<[u8; 16]>,
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
        Ok(true)
    }

    fn open(&mut self, Open { source, series, session, bus }: Open) -> Result<bool, Refusal> {
        let Some(known) = self.sources.get_mut(&source) else {
            if self.sources.len() == MAX_SOURCES {
                return Err(Refusal::TooManySources);
            }
            self.sources
                .insert(source, Source { bus, session, series, next: 0, closed: VecDeque::new() });
            return Ok(true);
        };
        if known.closed.contains(&bus) {
            return Err(Refusal::Closed);
        }
        if known.bus == bus && known.series == series {
            return match session.cmp(&known.session) {
                Ordering::Less => Err(Refusal::Session(known.session)),
                Ordering::Equal => Ok(false),
                Ordering::Greater => {
                    known.session = session;
                    Ok(true)
                }
            };
        }
        // Two buses of one source cannot have one series: numbers of the one would count for the other.
        if known.bus == bus || known.series == series {
            return Err(Refusal::NotOpen);
        }
        if session <= known.session {
            return Err(Refusal::Session(known.session));
        }
        if known.closed.len() == CLOSED_KEPT {
            known.closed.pop_front();
        }
        known.closed.push_back(known.bus);
        (known.bus, known.session, known.series, known.next) = (bus, session, series, 0);
        Ok(true)
    }

    fn append<'a>(&mut self, command: Command<'a>, bytes: &[u8]) -> Event<'a> {
        let event = self.chain.append(command, bytes);
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
