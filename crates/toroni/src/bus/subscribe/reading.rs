//! Where a subscriber stands in the stream, and how it gets the next message that is for it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::freshness::Freshness;
use super::message::{Received, tag_locates_payload};
use super::retained::DueValues;
use crate::bus::views::{ring_of, table_of};
use crate::error::Corrupt;
use crate::hook::mutant;
use crate::ring::reader::{Cursor, Interrupted, Seen};
use crate::ring::writer::{length_of, tag_of};
use crate::settings::{Policy, Settings};
use crate::shm::segment::RingSegment;
use crate::sync::Ordering;
use crate::topic::Lost;
use crate::topic::frame::{FrameError, MAX_EXTENSIONS_BYTES, Tag, TopicId, decode};
use crate::topic::interest::Interest;
use crate::topic::table::TableError;
use std::hint::black_box;

/// The reading end of a subscriber. The ring is handed in with each call.
pub(super) struct Reading {
    /// After the records that have left the ring, for the caller or into the read-ahead.
    pub(super) cursor: Cursor,
    pub(super) interest: Interest,
    pub(super) received: Received,
    pub(super) freshness: Freshness,
    /// How many bytes away from being overwritten a lapped reader resumes.
    pub(super) margin: u64,
    /// Records of a kind of a later release that it passed over.
    pub(super) unknown: u64,
    /// Before the stream.
    pub(super) values: DueValues,
}

/// Why a subscriber receives no message at its place in the stream, although there is a record.
pub(super) enum Halted {
    Interrupted(Interrupted),
    /// The record is a loss, and the subscriber has to be told of it.
    Lost(Box<Lost>),
}

impl From<Interrupted> for Halted {
    #[inline]
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

/// How much of a message is copied.
#[derive(Clone, Copy)]
pub(in crate::bus) enum Body {
    Whole,
    /// Nothing; or, if the tag does not say how many bytes the extensions have, as many as they can have.
    InPlace,
}

impl Reading {
    pub(super) fn new(
        cursor: Cursor,
        interest: Interest,
        freshness: Freshness,
        settings: &Settings,
        values: DueValues,
    ) -> Self {
        // Without a margin, the reader would be lapped again at once: by a writer that never waits, and also by one
        // that has not yet seen that it has to wait for this reader again.
        let overwrites = settings.policy == Policy::Overwrite;
        let margin = if overwrites { settings.capacity / 4 } else { settings.capacity / 8 };
        let interest = interest.undecided(freshness.has_max_age());
        let mut received = Received::default();
        if freshness.takes_each_alone() {
            received.read_ahead.turn_off();
        }
        Self { cursor, interest, received, freshness, margin, unknown: 0, values }
    }

    /// Returns where the next message is that is handed out.
    pub(super) fn next(&self) -> Cursor {
        self.received.read_ahead.next_cursor().unwrap_or(self.cursor)
    }

    /// Returns whether there is nothing to receive.
    pub(super) fn is_drained(&self, segment: &RingSegment) -> bool {
        self.values.is_empty()
            && self.received.read_ahead.is_empty()
            && matches!(self.cursor.peek(ring_of(segment)), Ok(None))
    }

    /// Touches what the first message would wait for: the names of topics, memory for messages, and the
    /// page that it comes from.
    #[cold]
    pub(super) fn warm_up(&mut self, segment: &RingSegment) {
        // If the table is damaged, the first message of an unknown topic reports it.
        let _ = self.received.topic_cache.sync(table_of(segment));
        self.received.topic_cache.reserve();
        self.received.read_ahead.reserve();
        black_box(self.is_drained(segment));
    }

    /// Learns the names of the topics that are new.
    pub(super) fn sync_topics(&mut self, segment: &RingSegment) -> Result<(), TableError> {
        self.received.topic_cache.sync(table_of(segment))
    }

    /// Returns how many topics it knows.
    pub(super) fn topics(&self) -> u32 {
        self.received.topic_cache.count()
    }

    /// Returns whether a message on the topic of this number may be for this subscriber, and whether one to its descendants,
    /// too. A topic that is not known may be.
    pub(super) fn wants(&mut self, topic: u32) -> (bool, bool) {
        let wants =
            TopicId::new(topic).and_then(|id| self.interest.wants(id, &self.received.topic_cache));
        wants.unwrap_or((true, true))
    }

    /// Hands out the next message of the read-ahead that is for this subscriber. Returns false if the
    /// read-ahead has none.
    #[inline(always)]
    pub(super) fn next_of_read_ahead(&mut self, segment: &RingSegment) -> Result<bool, Halted> {
        while let Some(tag) = self.received.read_ahead.next() {
            if self.is_mine(segment, tag, None)? {
                if Tag::from_raw(tag).is_plain() {
                    self.received.read_ahead.want_more();
                } else if self.passes_over_kind(tag) {
                    continue;
                }
                self.received.in_place = false;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a record is no message for this subscriber. Those of a kind that this release does not know are counted, and
    /// passed over: what an earlier release must not miss, a later one writes only on a bus that the earlier one cannot open.
    #[inline]
    pub(super) fn passes_over_kind(&mut self, tag: u32) -> bool {
        let tag = Tag::from_raw(tag);
        !tag.is_message() && self.passes_over_no_message(tag)
    }

    #[cold]
    fn passes_over_no_message(&mut self, tag: Tag) -> bool {
        if tag.is_cleared() {
            return !self.values.are_wanted;
        }
        self.unknown = self.unknown.saturating_add(1);
        true
    }

    /// Fills the read-ahead, which has no more messages. Returns false if messages are wanted in place, or
    /// the next record is not a small one, or there is none.
    #[inline(always)]
    pub(super) fn fill_read_ahead(
        &mut self,
        segment: &RingSegment,
        body: Body,
    ) -> Result<bool, Halted> {
        if mutant("cache_before_validation")
            && let Some(seen) = self.unvalidated(segment)
        {
            self.is_mine(segment, seen.tag, Some(&seen))?;
        }
        if let Some(next) = self.received.read_ahead.give_up() {
            // Another process has rewritten a header that was committed; the ring says what it is now.
            self.cursor = next;
            return Ok(false);
        }
        match body {
            Body::Whole => Ok(self.received.read_ahead.fill(&mut self.cursor, ring_of(segment))?),
            Body::InPlace => Ok(false),
        }
    }

    /// Copies a record out of the ring and validates it, or leaves it there.
    #[inline(always)]
    pub(super) fn copy(
        &mut self,
        segment: &RingSegment,
        seen: &Seen,
        body: Body,
    ) -> Result<(), Interrupted> {
        let ring = ring_of(segment);
        let scratch = self.received.read_ahead.set(seen);
        self.received.in_place = matches!(body, Body::InPlace);
        match body {
            Body::Whole => self.cursor.copy(ring, seen, scratch),
            Body::InPlace if tag_locates_payload(seen) => Ok(()),
            Body::InPlace => self.cursor.copy_front(ring, seen, MAX_EXTENSIONS_BYTES, scratch),
        }
    }

    /// Returns whether a message with this tag is for this subscriber: the one that the read-ahead has
    /// handed out last, or the one `in_ring`, at the cursor.
    ///
    /// Call it only after the validation: bytes of a payload, taken for a topic id, must not get into the
    /// cache.
    #[inline(always)]
    pub(super) fn is_mine(
        &mut self,
        segment: &RingSegment,
        tag: u32,
        in_ring: Option<&Seen>,
    ) -> Result<bool, Halted> {
        match self.interest.answer(Tag::from_raw(tag)) {
            Some(mine) => Ok(mine),
            None => self.decide(segment, in_ring),
        }
    }

    /// Like [`Self::is_mine`], if the cache has no answer. If a record in the ring is not valid, or is a loss that
    /// concerns the subscriber, this passes over the record and returns the error or the loss.
    #[cold]
    fn decide(&mut self, segment: &RingSegment, in_ring: Option<&Seen>) -> Result<bool, Halted> {
        let seen = in_ring.copied().unwrap_or_else(|| self.received.read_ahead.last());
        let decided = match self.matches(segment, &seen, in_ring.is_some()) {
            // What clears a value has no age.
            Ok(true) if in_ring.is_some() && !Tag::from_raw(seen.tag).is_cleared() => {
                match self.is_stale(segment, &seen) {
                    Ok(is_stale) => Ok(!is_stale),
                    Err(interrupted) => Err(interrupted.into()),
                }
            }
            decided => decided,
        };
        if matches!(decided, Err(Halted::Interrupted(Interrupted::Corrupt(_)) | Halted::Lost(_)))
            && in_ring.is_some()
        {
            self.cursor.advance(&seen);
        }
        decided
    }

    /// Returns whether a record matches the patterns, whatever the cache says, or the loss that it is.
    pub(super) fn matches(
        &mut self,
        segment: &RingSegment,
        seen: &Seen,
        in_ring: bool,
    ) -> Result<bool, Halted> {
        let tag = Tag::from_raw(seen.tag);
        if tag.is_loss() {
            self.decide_loss(segment, seen, in_ring)
        } else if tag.topic() == TopicId::INLINE && !tag.is_message() {
            // For all, as far as this release knows.
            Ok(true)
        } else if tag.topic() == TopicId::INLINE {
            self.decide_inline(segment, seen, in_ring).map_err(Halted::from)
        } else {
            self.decide_interned(segment, tag, seen).map_err(Halted::from)
        }
    }

    /// Returns a loss that concerns this subscriber as an error, and false for any other one.
    fn decide_loss(
        &mut self,
        segment: &RingSegment,
        seen: &Seen,
        in_ring: bool,
    ) -> Result<bool, Halted> {
        if self.interest.is_local_only() && !mutant("loss_for_local_only") {
            return Ok(false);
        }
        let length = seen.length as usize;
        if length > Lost::MOST_BYTES {
            let value = length as u64;
            let invalid = FrameError::InvalidLoss { what: "length of a loss", value };
            return Err(corrupt_in(invalid.into(), seen).into());
        }
        let read_ahead = &mut self.received.read_ahead;
        if in_ring {
            let scratch = read_ahead.set(seen);
            self.cursor.copy(ring_of(segment), seen, scratch)?;
        }
        let lost = Lost::decode(read_ahead.body(length))
            .map_err(|error| corrupt_in(error.into(), seen))?;
        if lost.concerns(self.interest.patterns()) || mutant("loss_told_to_all") {
            return Err(Halted::Lost(Box::new(lost)));
        }
        Ok(false)
    }

    fn decide_interned(
        &mut self,
        segment: &RingSegment,
        tag: Tag,
        seen: &Seen,
    ) -> Result<bool, Interrupted> {
        let topic_cache = &mut self.received.topic_cache;
        topic_cache.sync(table_of(segment)).map_err(|error| corrupt_in(error.into(), seen))?;
        self.interest.fill(tag, topic_cache).ok_or_else(|| {
            corrupt_in(Corrupt { what: "topic id", value: seen.tag.into(), position: 0 }, seen)
        })
    }

    fn decide_inline(
        &mut self,
        segment: &RingSegment,
        seen: &Seen,
        in_ring: bool,
    ) -> Result<bool, Interrupted> {
        let read_ahead = &mut self.received.read_ahead;
        if in_ring {
            let scratch = read_ahead.set(seen);
            self.cursor.copy_front(ring_of(segment), seen, MAX_EXTENSIONS_BYTES, scratch)?;
        }
        let tag = Tag::from_raw(seen.tag);
        let front = read_ahead.body((seen.length as usize).min(MAX_EXTENSIONS_BYTES));
        let (extensions, _) = decode(tag, front).map_err(|error| corrupt_in(error.into(), seen))?;
        let topic = extensions.inline_topic.unwrap_or_default();
        Ok(self.interest.answer_inline(topic, tag))
    }

    /// Returns the record at the cursor without a validation, for a mutant.
    pub(super) fn unvalidated(&self, segment: &RingSegment) -> Option<Seen> {
        let Cursor { position, sequence } = self.cursor;
        let word = ring_of(segment).word(position).load(Ordering::Relaxed);
        (word != 0).then(|| Seen { position, sequence, tag: tag_of(word), length: length_of(word) })
    }
}

fn corrupt_in(corrupt: Corrupt, seen: &Seen) -> Interrupted {
    Interrupted::Corrupt(Corrupt { position: seen.position, ..corrupt })
}
