//! Events by number: what is asked for, and what a member has.
//!
//! ```text
//!  FETCH   from u64 · greatest length u32 · wait in ms u32 · known u8 · [series u32]
//!  EVENTS  first u64 · now (chain) · departs · there u8 · [events]
//!  departs what u8 (0 nowhere, 1 at, 2 foreign, 3 unknown) · [series u32 · begun u64]
//!  events  before (chain) · commands, one after another
//!  chain   series u32 · begun u64 · next u64 · digest 32
//! ```
//!
//! The feed's multicast messages are events in the same encoding.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{BatchError, Command, check_commands, commands_in};
use crate::bytes::Fields;
use crate::entry::EntryError;
use crate::machine::{Chain, Departs, Digest};

/// No member answers with more bytes of events than this, unless one event is longer.
pub(crate) const ANSWER_BYTES: usize = 512 << 10;

/// A question for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// The number of the first event that is wanted.
    pub from: u64,
    /// About how many bytes of events are wanted at most. A member has a limit of its own.
    pub max_bytes: u32,
    /// If that event is the next one, the member waits for it, up to this time.
    pub wait: Duration,
    /// The series of the feed that the asking side follows, if it knows.
    pub series: Option<u32>,
}

/// What a member has of the events that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The number of the first event that the member has.
    pub first: u64,
    /// How far the order has come, as the member knows it.
    pub now: Chain,
    /// Where the order departs from the series that the asking side follows.
    pub departs: Departs,
    /// Events from the wanted number on. None if the member no longer has that number, or does not have it yet.
    pub events: Option<Events>,
}

/// Events without a gap. Every byte was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events {
    before: Chain,
    count: u64,
    commands: Arc<[u8]>,
}

impl Events {
    /// Returns these commands as events after `before`.
    ///
    /// # Errors
    ///
    /// If the bytes are no commands.
    pub fn check(before: Chain, commands: impl Into<Arc<[u8]>>) -> Result<Self, BatchError> {
        let commands = commands.into();
        let count = check_commands(&commands)?;
        // So that adding to numbers cannot overflow.
        if before.next.checked_add(count).is_none() {
            return Err(BatchError::Number);
        }
        Ok(Self { before, count, commands })
    }

    /// Returns the events that these bytes of any origin are.
    ///
    /// # Errors
    ///
    /// If [`Self::encode`] would not have written them.
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let mut fields = Fields::of(bytes);
        let before = decode_chain(&mut fields)?;
        Ok(Self::check(before, fields.rest())?)
    }

    /// Appends the encoding.
    pub fn encode(&self, to: &mut Vec<u8>) {
        encode_chain(&self.before, to);
        to.extend(&*self.commands);
    }

    /// Returns the length of the encoding, in bytes.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        self.commands.len().saturating_add(CHAIN_BYTES)
    }

    /// Returns how many there are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number after that of the last one.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.before.next.saturating_add(self.count)
    }

    /// Returns the events after `own`; none of them if it is where they end. `None` if these events do not pass through it.
    #[must_use]
    pub fn after(&self, own: &Chain) -> Option<Self> {
        let mut before = self.before;
        let (mut skipped, mut bytes) = (0_u64, 0_usize);
        for (command, encoded) in self.commands() {
            if before.next >= own.next {
                break;
            }
            before.append(command, encoded);
            (skipped, bytes) = (skipped.saturating_add(1), bytes.saturating_add(encoded.len()));
        }
        (before == *own).then(|| match skipped {
            0 => self.clone(),
            _ => Self {
                before,
                count: self.count.saturating_sub(skipped),
                commands: self.commands[bytes..].into(),
            },
        })
    }

    /// Returns the events before the one of this number.
    #[must_use]
    pub fn until(&self, number: u64) -> Self {
        if number >= self.end() {
            return self.clone();
        }
        let count = number.saturating_sub(self.before.next);
        let kept = self.commands().take(usize::try_from(count).unwrap_or(usize::MAX));
        let bytes: usize = kept.map(|(_, encoded)| encoded.len()).sum();
        Self { before: self.before, count, commands: self.commands[..bytes].into() }
    }

    /// Returns how far the order had come before the first of them.
    #[must_use]
    pub const fn before(&self) -> Chain {
        self.before
    }

    /// Returns whether there are none yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the command of each, and its bytes.
    pub fn commands(&self) -> impl Iterator<Item = (Command<'_>, &[u8])> {
        commands_in(&self.commands)
    }
}

/// The length of an encoded chain.
const CHAIN_BYTES: usize = 4 + 8 + 8 + 32;

fn encode_chain(chain: &Chain, to: &mut Vec<u8>) {
    to.extend(chain.series.to_le_bytes());
    to.extend(chain.begun.to_le_bytes());
    to.extend(chain.next.to_le_bytes());
    to.extend(chain.digest.as_bytes());
}

fn decode_chain(fields: &mut Fields<'_>) -> Result<Chain, EntryError> {
    let (series, begun, next) = (fields.u32()?, fields.u64()?, fields.u64()?);
    let digest = Digest::from_bytes(fields.array()?);
    if begun > next {
        return Err(EntryError::Impossible);
    }
    Ok(Chain { series, begun, next, digest })
}

fn encode_departs(departs: Departs, to: &mut Vec<u8>) {
    let (what, place) = match departs {
        Departs::Nowhere => (0, None),
        Departs::At { series, begun } => (1, Some((series, begun))),
        Departs::Foreign { series, begun } => (2, Some((series, begun))),
        Departs::Unknown => (3, None),
    };
    to.push(what);
    if let Some((series, begun)) = place {
        to.extend(series.to_le_bytes());
        to.extend(begun.to_le_bytes());
    }
}

fn decode_departs(fields: &mut Fields<'_>) -> Result<Departs, EntryError> {
    Ok(match fields.u8()? {
        0 => Departs::Nowhere,
        1 => Departs::At { series: fields.u32()?, begun: fields.u64()? },
        2 => Departs::Foreign { series: fields.u32()?, begun: fields.u64()? },
        3 => Departs::Unknown,
        _ => return Err(EntryError::Impossible),
    })
}

impl Fetch {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.from.to_le_bytes());
        to.extend(self.max_bytes.to_le_bytes());
        to.extend(u32::try_from(self.wait.as_millis()).unwrap_or(u32::MAX).to_le_bytes());
        to.push(u8::from(self.series.is_some()));
        to.extend(self.series.into_iter().flat_map(u32::to_le_bytes));
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let (from, max_bytes) = (fields.u64()?, fields.u32()?);
        let wait = Duration::from_millis(fields.u32()?.into());
        let series = match fields.u8()? {
            0 => None,
            1 => Some(fields.u32()?),
            _ => return Err(EntryError::Impossible),
        };
        Ok(Self { from, max_bytes, wait, series })
    }
}

impl Fetched {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.first.to_le_bytes());
        encode_chain(&self.now, to);
        encode_departs(self.departs, to);
        to.push(u8::from(self.events.is_some()));
        if let Some(events) = &self.events {
            events.encode(to);
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let (first, now) = (fields.u64()?, decode_chain(fields)?);
        let departs = decode_departs(fields)?;
        let events = match fields.u8()? {
            0 => None,
            1 => Some(Events::decode(fields.take(fields.rest().len())?)?),
            _ => return Err(EntryError::Impossible),
        };
        Ok(Self { first, now, departs, events })
    }
}
