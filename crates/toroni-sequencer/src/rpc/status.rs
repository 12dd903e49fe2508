//! How a member is, as bytes.
//!
//! ```text
//!  id u64 · term u64 · leader 1 + u64 · last 1 + 24 · applied 1 + 24 · purged 1 + 24 · series u32 · next u64 · digest 32
//!  first u64 · elections u64 · in flight u64 · room u64 · sources u64 · contact ms u32
//!  flags u8 (1 full, 2 uncertain, 4 needs recovery, 8 hands over, 16 out of contact) · hindrance: u8 and bytes
//!  sets of voters u8 · each: u8, a bit for each id
//!  members u8 · each: id u64 · flags u8 (1 answers, 2 full) · behind 1 + u64 · name, address: u8 and bytes
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeSet;
use std::time::Duration;

use super::message::{decode_flags, decode_number, encode_flags, encode_number};
use crate::bytes::Fields;
use crate::entry::{EntryError, MAX_MEMBERS, Place, decode_text, encode_text};

/// How a member is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The member.
    pub id: u64,
    /// Its term.
    pub term: u64,
    /// Whom it follows.
    pub leader: Option<u64>,
    /// The end of its log.
    pub last: Option<Place>,
    /// The last entry that was applied.
    pub applied: Option<Place>,
    /// The last entry that is no longer in the log.
    pub purged: Option<Place>,
    /// The series of the feed.
    pub series: u32,
    /// The number of the next event.
    pub next: u64,
    /// The digest before that event.
    pub digest: [u8; 32],
    /// The number of the first event that the member still has.
    pub first: u64,
    /// How often it has seen a leader come into office since it was started.
    pub elections: u64,
    /// How many commands wait for their answer.
    pub in_flight: u64,
    /// How many bytes are free on the disk of its log.
    pub room: u64,
    /// How many sources the order knows.
    pub sources: u64,
    /// Whether the disk is too full for more entries.
    pub full: bool,
    /// Whether it may lack entries that it had answered for, because its host rebooted before they were synced. It neither
    /// votes nor leads until a leader has brought it what it lacks.
    pub uncertain: bool,
    /// Whether too many members are uncertain for any to be elected. Only a recovery by hand ends that.
    pub needs_recovery: bool,
    /// Whether it is about to hand over, and takes no commands meanwhile.
    pub hands_over: bool,
    /// How long ago a leader heard a majority of the members, or any other member its leader. In whole milliseconds on the way.
    pub contact: Duration,
    /// Whether that is too long ago. A leader takes no commands then, and its term may be over.
    pub is_out_of_contact: bool,
    /// Why it takes no commands although it leads, or belongs to no group although there is one. A part of a sentence about it.
    pub hindrance: Option<String>,
    /// The sets of voters, of each of which a majority is needed. Two while the members change.
    pub voters: Vec<BTreeSet<u64>>,
    /// The members as this one knows them.
    pub members: Vec<MemberStatus>,
}

/// What a member knows of another one, or of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberStatus {
    /// The id.
    pub id: u64,
    /// The name.
    pub name: String,
    /// The address and port of its messages.
    pub address: String,
    /// Whether it has answered this one lately.
    pub answers: bool,
    /// Whether its disk is too full for more entries, as it said when it answered last.
    pub full: bool,
    /// How many entries it lacks. Only the leader knows it, and of a member that has answered it.
    pub behind: Option<u64>,
}

impl Status {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.id.to_le_bytes());
        to.extend(self.term.to_le_bytes());
        encode_number(self.leader, to);
        for place in [self.last, self.applied, self.purged] {
            Place::encode_option(place, to);
        }
        to.extend(self.series.to_le_bytes());
        to.extend(self.next.to_le_bytes());
        to.extend(self.digest);
        to.extend(self.first.to_le_bytes());
        for count in [self.elections, self.in_flight, self.room, self.sources] {
            to.extend(count.to_le_bytes());
        }
        let contact = u32::try_from(self.contact.as_millis()).unwrap_or(u32::MAX);
        to.extend(contact.to_le_bytes());
        let flags = [
            self.full,
            self.uncertain,
            self.needs_recovery,
            self.hands_over,
            self.is_out_of_contact,
        ];
        to.push(encode_flags(flags));
        encode_text(self.hindrance.as_deref().unwrap_or_default(), to);
        to.push(u8::try_from(self.voters.len()).unwrap_or(u8::MAX));
        for set in &self.voters {
            to.push(set.iter().fold(0, |mask, id| mask | bit_of(*id)));
        }
        to.push(u8::try_from(self.members.len()).unwrap_or(u8::MAX));
        for member in &self.members {
            to.extend(member.id.to_le_bytes());
            to.push(encode_flags([member.answers, member.full]));
            encode_number(member.behind, to);
            encode_text(&member.name, to);
            encode_text(&member.address, to);
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let mut status = Self {
            id: fields.u64()?,
            term: fields.u64()?,
            leader: decode_number(fields)?,
            last: Place::decode_option(fields)?,
            applied: Place::decode_option(fields)?,
            purged: Place::decode_option(fields)?,
            series: fields.u32()?,
            next: fields.u64()?,
            digest: fields.array()?,
            first: fields.u64()?,
            elections: fields.u64()?,
            in_flight: fields.u64()?,
            room: fields.u64()?,
            sources: fields.u64()?,
            contact: Duration::from_millis(fields.u32()?.into()),
            ..Self::default()
        };
        let flags = decode_flags(fields.u8()?)?;
        [
            status.full,
            status.uncertain,
            status.needs_recovery,
            status.hands_over,
            status.is_out_of_contact,
        ] = flags;
        let hindrance = decode_text(fields)?;
        status.hindrance = (!hindrance.is_empty()).then_some(hindrance);
        let sets = fields.u8()?;
        if usize::from(sets) > MAX_MEMBERS {
            return Err(EntryError::Impossible);
        }
        for _ in 0..sets {
            let mask = fields.u8()?;
            status.voters.push((0..8).filter(|id| mask & bit_of(*id) != 0).collect());
        }
        let count = fields.u8()?;
        if usize::from(count) > MAX_MEMBERS {
            return Err(EntryError::Impossible);
        }
        for _ in 0..count {
            let (id, [answers, full]) = (fields.u64()?, decode_flags(fields.u8()?)?);
            status.members.push(MemberStatus {
                id,
                answers,
                full,
                behind: decode_number(fields)?,
                name: decode_text(fields)?,
                address: decode_text(fields)?,
            });
        }
        Ok(status)
    }
}

/// Returns the bit of a member in a set; none if no member has this id.
fn bit_of(id: u64) -> u8 {
    u32::try_from(id).ok().and_then(|id| 1_u8.checked_shl(id)).unwrap_or(0)
}
