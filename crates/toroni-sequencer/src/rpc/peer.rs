//! How members are, as they show each other all the time: as bytes.
//!
//! ```text
//!  state  log 16 · life 16 · reach · last 1 + 24 · term u64 · leader 1 + u64
//!         flags u8 (1 full, 2 uncertain, 4 leads, 8 without a majority)
//!  reach  generation u64 · last 1 + 24
//!  PEER   state                    the answer to it: state · what an earlier life has shown: [reach], to the end
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::message::{decode_flags, decode_number, encode_flags, encode_number};
use crate::bytes::Fields;
use crate::entry::{EntryError, MOST_ENTRIES, Place, Reach};

/// How a member is. It is shown without a wait for the disk, so it may be somewhat old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerState {
    /// The id of its log.
    pub log: [u8; 16],
    /// Random bytes of the opening of its log.
    pub life: [u8; 16],
    /// How far the log has come.
    pub reach: Reach,
    /// The end of the log. None if it has never had an entry.
    pub last: Option<Place>,
    /// Its term.
    pub term: u64,
    /// Whom it follows.
    pub leader: Option<u64>,
    /// Whether its disk is too full for more entries.
    pub is_full: bool,
    /// Whether it may lack entries that it had answered for.
    pub is_uncertain: bool,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it leads, and a majority of the members has not answered it for long.
    pub lacks_majority: bool,
}

impl PeerState {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.log);
        to.extend(self.life);
        encode_reach(&self.reach, to);
        Place::encode_option(self.last, to);
        to.extend(self.term.to_le_bytes());
        encode_number(self.leader, to);
        let flags = [self.is_full, self.is_uncertain, self.leads, self.lacks_majority];
        to.push(encode_flags(flags));
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let (log, life, reach) = (fields.array()?, fields.array()?, decode_reach(fields)?);
        let (last, term) = (Place::decode_option(fields)?, fields.u64()?);
        let leader = decode_number(fields)?;
        let [is_full, is_uncertain, leads, lacks_majority] = decode_flags(fields.u8()?)?;
        Ok(Self {
            log,
            life,
            reach,
            last,
            term,
            leader,
            is_full,
            is_uncertain,
            leads,
            lacks_majority,
        })
    }
}

fn encode_reach(reach: &Reach, to: &mut Vec<u8>) {
    to.extend(reach.generation.to_le_bytes());
    Place::encode_option(reach.last, to);
}

fn decode_reach(fields: &mut Fields<'_>) -> Result<Reach, EntryError> {
    let reach = Reach { generation: fields.u64()?, last: Place::decode_option(fields)? };
    // As a log's state itself is read.
    if reach.generation > MOST_ENTRIES { Err(EntryError::Impossible) } else { Ok(reach) }
}

pub(super) fn encode_shown(shown: Option<Reach>, to: &mut Vec<u8>) {
    if let Some(reach) = shown {
        encode_reach(&reach, to);
    }
}

pub(super) fn decode_shown(fields: &mut Fields<'_>) -> Result<Option<Reach>, EntryError> {
    if fields.rest().is_empty() { Ok(None) } else { decode_reach(fields).map(Some) }
}
