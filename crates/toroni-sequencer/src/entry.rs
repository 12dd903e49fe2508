//! What the replicated log and the messages between members are made of: places in the log, votes, members, entries.
//!
//! ```text
//!  place    term u64 · leader u64 · index u64
//!  entry    place · kind u8 · 0 × 7 · contents          kinds: 0 BLANK  1 BATCH  2 MEMBERS
//!  members  sets u8 · members u8 · each set: count u8, ids u64 · each member: id u64 · log 16 · name, address: u8 and bytes
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::batch::{Batch, BatchError, MAX_COMMAND_BYTES};
use crate::bytes::{Fields, TooShort};

/// The greatest length of an encoded entry, in bytes: one command of the greatest length.
pub const MAX_ENTRY_BYTES: usize = ENTRY_HEADER_BYTES + 4 + MAX_COMMAND_BYTES;
/// Members have the ids 0 to 7.
pub const MAX_MEMBERS: usize = 8;

const ENTRY_HEADER_BYTES: usize = 32;
/// The greatest length of a member's name, and of its address, in bytes.
pub const MAX_TEXT_BYTES: usize = 255;

/// No log has more entries, or states: what says so is not believed, and counting cannot overflow.
pub(crate) const MOST_ENTRIES: u64 = 1 << 60;

/// A place in the log: where an entry is, and which leader put it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// The term of the leader.
    pub term: u64,
    /// The leader.
    pub leader: u64,
    /// The index in the log, from 0.
    pub index: u64,
}

/// How far a log has come. A later one is greater: the generation of the state grows with each cut, and between two of them
/// the log only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Reach {
    /// The generation of the log's state.
    pub generation: u64,
    /// The last entry that may have been answered.
    pub last: Option<Place>,
}

/// What a member has promised: to follow this candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// The candidate.
    pub candidate: u64,
    /// Whether a majority has elected the candidate.
    pub committed: bool,
}

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The address and port of its messages.
    pub address: String,
    /// The random id of its log.
    pub log: [u8; 16],
}

/// The members of the group, and which of them vote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// The sets of voters, of each of which a majority is needed: one, or two during a change.
    pub voters: Vec<BTreeSet<u64>>,
    /// All members, by id.
    pub members: BTreeMap<u64, Member>,
}

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: the first entry of a leader.
    Blank,
    /// The bytes of a [`Batch`].
    Batch(Arc<[u8]>),
    /// A change of the members.
    Members(Members),
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub place: Place,
    /// What it holds.
    pub payload: Payload,
}

/// Why bytes are no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The bytes end too early.
    #[error("the entry is too short")]
    TooShort,
    /// Bytes follow the entry, or one of its fields has another value than the encoder writes.
    #[error("the entry has impossible contents")]
    Impossible,
    /// The batch in it is none.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl From<TooShort> for EntryError {
    fn from(TooShort: TooShort) -> Self {
        Self::TooShort
    }
}

impl Place {
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        [self.term, self.leader, self.index].iter().for_each(|word| to.extend(word.to_le_bytes()));
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let place = Self { term: fields.u64()?, leader: fields.u64()?, index: fields.u64()? };
        // So that adding to indices cannot overflow.
        if place.index > MOST_ENTRIES { Err(EntryError::Impossible) } else { Ok(place) }
    }

    /// Writes whether there is a place, and the place.
    pub(crate) fn encode_option(place: Option<Self>, to: &mut Vec<u8>) {
        to.push(u8::from(place.is_some()));
        place.unwrap_or_default().encode(to);
    }

    pub(crate) fn decode_option(fields: &mut Fields<'_>) -> Result<Option<Self>, EntryError> {
        let there_is = fields.u8()?;
        let place = Self::decode(fields)?;
        match there_is {
            0 if place == Self::default() => Ok(None),
            1 => Ok(Some(place)),
            _ => Err(EntryError::Impossible),
        }
    }
}

impl Vote {
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        to.push(u8::from(self.committed));
        to.extend(self.term.to_le_bytes());
        to.extend(self.candidate.to_le_bytes());
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let committed = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(EntryError::Impossible),
        };
        Ok(Self { committed, term: fields.u64()?, candidate: fields.u64()? })
    }
}

/// Writes a name or an address: its length, and as much of it as a length can say.
pub(crate) fn encode_text(text: &str, to: &mut Vec<u8>) {
    to.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    to.extend(text.as_bytes().iter().take(MAX_TEXT_BYTES));
}

pub(crate) fn decode_text(fields: &mut Fields<'_>) -> Result<String, EntryError> {
    let length = fields.u8()?;
    let text = str::from_utf8(fields.take(usize::from(length))?);
    text.map(str::to_owned).map_err(|_| EntryError::Impossible)
}

impl Members {
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        // At most eight of each: `u8::MAX` is refused by the decoder.
        let count = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        to.extend([count(self.voters.len()), count(self.members.len())]);
        for set in &self.voters {
            to.push(count(set.len()));
            set.iter().for_each(|id| to.extend(id.to_le_bytes()));
        }
        for (id, member) in &self.members {
            to.extend(id.to_le_bytes());
            to.extend(member.log);
            encode_text(&member.name, to);
            encode_text(&member.address, to);
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let (sets, count) = (fields.u8()?, fields.u8()?);
        if sets > 2 || usize::from(count) > MAX_MEMBERS {
            return Err(EntryError::Impossible);
        }
        let mut members = Self::default();
        for _ in 0..sets {
            let mut set = BTreeSet::new();
            for _ in 0..fields.u8()? {
                let id = fields.u64()?;
                if set.last().is_some_and(|last| *last >= id) || set.len() == MAX_MEMBERS {
                    return Err(EntryError::Impossible);
                }
                set.insert(id);
            }
            members.voters.push(set);
        }
        for _ in 0..count {
            let (id, log) = (fields.u64()?, fields.array()?);
            if members.members.last_key_value().is_some_and(|(last, _)| *last >= id) {
                return Err(EntryError::Impossible);
            }
            let (name, address) = (decode_text(fields)?, decode_text(fields)?);
            members.members.insert(id, Member { name, address, log });
        }
        Ok(members)
    }
}

impl Entry {
    /// Appends the encoding.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        self.place.encode(to);
        let kind = match self.payload {
            Payload::Blank => 0,
            Payload::Batch(_) => 1,
            Payload::Members(_) => 2,
        };
        to.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        match &self.payload {
            Payload::Blank => {}
            Payload::Batch(bytes) => to.extend(&**bytes),
            Payload::Members(members) => members.encode(to),
        }
    }

    /// Returns the entry that exactly these bytes are.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let mut fields = Fields::of(bytes);
        let place = Place::decode(&mut fields)?;
        let [kind, zeros @ ..] = fields.array::<8>()?;
        if zeros != [0; 7] {
            return Err(EntryError::Impossible);
        }
        let payload = match kind {
            0 => Payload::Blank,
            1 => {
                let bytes = fields.take(fields.rest().len())?;
                Batch::check(bytes)?;
                Payload::Batch(bytes.into())
            }
            2 => Payload::Members(Members::decode(&mut fields)?),
            _ => return Err(EntryError::Impossible),
        };
        if fields.rest().is_empty() {
            Ok(Self { place, payload })
        } else {
            Err(EntryError::Impossible)
        }
    }

    /// Returns about how many bytes the entry has when it is encoded.
    pub(crate) fn weight(&self) -> usize {
        let payload = match &self.payload {
            Payload::Blank => 0,
            Payload::Batch(bytes) => bytes.len(),
            Payload::Members(members) => {
                members.members.len().saturating_mul(128).saturating_add(64)
            }
        };
        payload.saturating_add(ENTRY_HEADER_BYTES)
    }
}
