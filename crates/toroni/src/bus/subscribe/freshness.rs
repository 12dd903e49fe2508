//! What a subscriber does with old messages: where it continues after a loss, and which are too old for it.
//!
//! Most subscribers use neither, and execute nothing for it. One that does takes each message by itself
//! ([`ReadAhead::turn_off`](crate::ring::read_ahead::ReadAhead::turn_off)), so that no message waits in the read-ahead while newer ones come. One with a largest age also has an
//! interest that never has an answer ([`Interest::undecided`](crate::topic::interest::Interest::undecided)), so each of its
//! messages takes the way of an unknown topic, where its age is checked.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::builder::Continue;
use super::reading::{Halted, Reading};
use crate::bus::clock;
use crate::bus::views::ring_of;
use crate::error::Corrupt;
use crate::ring::reader::{Cursor, Interrupted, Seen};
use crate::shm::segment::RingSegment;
use crate::topic::frame::{Extensions, MAX_EXTENSIONS_BYTES, Tag, decode};
use std::time::Duration;

/// How often a subscriber that looks for the newest message may be overtaken. It then continues at the end of the stream.
const MOST_SEARCHES: u32 = 8;

/// How fresh messages have to be.
pub(super) struct Freshness {
    after_loss: Continue,
    /// `None` if any age will do.
    max_age_ns: Option<u64>,
    /// Messages that were too old.
    pub(super) stale: u64,
}

impl Freshness {
    pub(super) fn new(after_loss: Continue, max_age: Option<Duration>) -> Self {
        let nanoseconds = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        Self { after_loss, max_age_ns: max_age.map(nanoseconds), stale: 0 }
    }

    /// Returns whether no message may be taken out of the ring before it is wanted.
    pub(super) fn takes_each_alone(&self) -> bool {
        self.after_loss == Continue::Newest || self.has_max_age()
    }

    pub(super) fn has_max_age(&self) -> bool {
        self.max_age_ns.is_some()
    }
}

impl Reading {
    /// Moves a lapped reader to where it continues. Returns the messages and bytes that it has lost.
    pub(super) fn resume(&mut self, segment: &RingSegment) -> Result<(u64, u64), Corrupt> {
        let began = self.cursor;
        self.cursor.resume(ring_of(segment), self.margin)?;
        if self.freshness.after_loss == Continue::Newest {
            self.pass_to_newest(segment)?;
        }
        let Cursor { position, sequence } = self.cursor;
        Ok((sequence.saturating_sub(began.sequence), position.saturating_sub(began.position)))
    }

    /// Moves the cursor to the newest message that is for this subscriber, or to the end of the stream.
    fn pass_to_newest(&mut self, segment: &RingSegment) -> Result<(), Corrupt> {
        let ring = ring_of(segment);
        for _ in 0..MOST_SEARCHES {
            match self.newest(segment) {
                Ok(newest) => {
                    self.cursor = newest;
                    return Ok(());
                }
                Err(Interrupted::Lapped) => _ = self.cursor.resume(ring, self.margin)?,
                Err(Interrupted::Corrupt(corrupt)) => return Err(corrupt),
            }
        }
        self.cursor = Cursor::at_end(ring)?;
        Ok(())
    }

    /// Returns the newest message from the cursor on that is for this subscriber, or the end of the stream. It searches backward, a
    /// block at a time: most often, one block is enough.
    fn newest(&mut self, segment: &RingSegment) -> Result<Cursor, Interrupted> {
        let (ring, oldest) = (ring_of(segment), self.cursor);
        let end = Cursor::at_end(ring).map_err(Interrupted::Corrupt)?;
        let mut until = end;
        while until.position > oldest.position {
            let start = Cursor::before(ring, until.position)
                .filter(|start| start.position > oldest.position)
                .unwrap_or(oldest);
            let mut newest = None;
            let mut at = start;
            while at.position < until.position {
                let Some(seen) = at.peek(ring)? else { return Err(Interrupted::Lapped) };
                let cached = self.interest.answer(Tag::from_raw(seen.tag));
                match cached.map_or_else(|| self.matches(segment, &seen, true), Ok) {
                    Ok(true) if Tag::from_raw(seen.tag).is_message() => newest = Some(at),
                    Err(Halted::Interrupted(Interrupted::Lapped)) => {
                        return Err(Interrupted::Lapped);
                    }
                    // A loss, a record of an unknown kind, or what cannot be decoded, is passed over with all the others.
                    Ok(_) | Err(_) => {}
                }
                at.advance(&seen);
            }
            if let Some(newest) = newest {
                return Ok(newest);
            }
            until = start;
        }
        Ok(end)
    }

    /// Returns whether a message in the ring, which matches, is too old. Counts it then.
    pub(super) fn is_stale(
        &mut self,
        segment: &RingSegment,
        seen: &Seen,
    ) -> Result<bool, Interrupted> {
        let Some(max_age_ns) = self.freshness.max_age_ns else { return Ok(false) };
        let tag = Tag::from_raw(seen.tag);
        if !tag.has_timestamp() {
            return Ok(false);
        }
        let scratch = self.received.read_ahead.set(seen);
        self.cursor.copy_front(ring_of(segment), seen, MAX_EXTENSIONS_BYTES, scratch)?;
        let front = self.received.read_ahead.body((seen.length as usize).min(MAX_EXTENSIONS_BYTES));
        // What cannot be decoded is reported when it is received.
        let (Extensions { timestamp_ns, .. }, _) = decode(tag, front).unwrap_or_default();
        let age_ns = timestamp_ns.and_then(|stamp| clock::realtime_ns().checked_sub(stamp));
        let is_stale = age_ns.is_some_and(|age_ns| age_ns > max_age_ns);
        self.freshness.stale = self.freshness.stale.saturating_add(u64::from(is_stale));
        Ok(is_stale)
    }
}
