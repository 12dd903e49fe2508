//! The values of retained topics: for a subscriber, before the stream and after a loss; and for a program that reads them
//! without subscribing.
//!
//! A subscriber that asked for values joins the stream at a place T, and then hands out each value that is older than T, in the
//! order of the bus. A topic that has a newer message by then is left out: that message is in the stream after T. So each topic
//! has its newest message, without a gap and without a duplicate. After a loss from a to b it hands out those from a to b.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod read;

pub use read::RetainedMessage;
pub(in crate::bus) use read::ValueReader;

use super::message::{Message, Received};
use super::reading::{Body, Reading};
use super::subscriber::Subscriber;
use crate::bus::views::{ring_of, values_of};
use crate::error::{Corrupt, ReceiveError};
use crate::ring::copy::Scratch;
use crate::ring::position::{record_bytes, to_index};
use crate::ring::reader::{Cursor, Seen};
use crate::ring::values::Value;
use crate::shm::segment::RingSegment;
use crate::topic::frame::Tag;

/// The values that are due to a subscriber.
#[derive(Debug, Default)]
pub(super) struct DueValues {
    /// Whether it asked for them.
    pub(super) are_wanted: bool,
    /// Sequence and topic of those that are due, the next one last.
    due: Vec<(u64, u32)>,
    /// Newer ones are in the stream.
    before: u64,
    /// They are due after a loss, so one that was cleared counts, too.
    heals: bool,
    scratch: Scratch,
}

impl DueValues {
    pub(super) fn new(are_wanted: bool) -> Self {
        Self { are_wanted, ..Self::default() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

impl Reading {
    /// Makes the values due that changed from this sequence on, or all, up to where the subscriber is now.
    #[cold]
    pub(super) fn gather_values(&mut self, segment: &RingSegment, from: Option<u64>) {
        let Some(values) = values_of(segment).filter(|_| self.values.are_wanted) else {
            return;
        };
        let Cursor { sequence: before, position } = self.cursor;
        // A damaged table reports the first message of an unknown topic.
        let _ = self.sync_topics(segment);
        let (ring, mut scratch) = (ring_of(segment), std::mem::take(&mut self.values.scratch));
        let due = values.topics().filter_map(|topic| {
            let (itself, below) = self.wants(topic);
            let newest = (itself || below).then(|| values.newest(ring, topic, &mut scratch));
            let (sequence, tag) = newest.flatten()?;
            let tag = Tag::from_raw(tag);
            // What is not handed out anyway is not due: a program may wait until nothing is.
            let is_due = sequence < before
                && from.map_or(!tag.is_cleared(), |from| sequence >= from)
                && self.interest.answer(tag) != Some(false);
            is_due.then_some((sequence, topic))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        let (are_wanted, heals) = (true, from.is_some());
        self.values = DueValues { are_wanted, due, before, heals, scratch };
        self.received.values_before = position;
    }
}

impl Subscriber {
    /// Returns whether all values that it asked for ([`SubscriberBuilder::retained`](crate::SubscriberBuilder::retained)) were
    /// handed out: what it receives next is new.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.reading.values.is_empty()
    }

    /// Receives the next value that is due, or what the stream has if there is none.
    #[cold]
    pub(super) fn next_value_or(&mut self, body: Body) -> Result<bool, ReceiveError> {
        // Without values, the call ends with the stream.
        if self.next_value()? { Ok(true) } else { self.next(body) }
    }

    /// Receives the next value that is due, for [`Self::last`]. Returns false if there is none.
    fn next_value(&mut self) -> Result<bool, ReceiveError> {
        while let Some((_, topic)) = self.reading.values.due.pop() {
            let segment = &self.claim.subscribing.ring;
            let ring = ring_of(segment);
            let Some(values) = values_of(segment) else { return Ok(false) };
            let Reading { values: due, received, interest, .. } = &mut self.reading;
            let (seen, is_missing) = match values.read(ring, topic, &mut due.scratch) {
                Some(Value::Present(seen)) => (seen, false),
                Some(Value::Missing(seen)) => (seen, true),
                // One that changes all the time has a newer message in the stream.
                None | Some(Value::None | Value::Unstable) => continue,
                Some(Value::Invalid(seen)) => return Err(invalid(&seen).into()),
            };
            let is_cleared = Tag::from_raw(seen.tag).is_cleared();
            if seen.sequence >= due.before || is_cleared && !due.heals {
                continue;
            }
            // Of a clear that found no room, nothing is known that it has besides.
            let seen = match is_missing && is_cleared {
                true => Seen {
                    tag: Tag::from_raw(seen.tag).without_extensions().raw(),
                    length: 0,
                    ..seen
                },
                false => seen,
            };
            let words = to_index(record_bytes(seen.length) / 8).saturating_sub(1);
            let body = received.read_ahead.set(&seen);
            if is_missing {
                body.words(words).fill(0);
            } else {
                body.words(words).copy_from_slice(due.scratch.words(words));
            }
            received.in_place = false;
            if !Message::new(received).is_for(interest) {
                continue;
            }
            if is_missing && !is_cleared {
                let topic = Message::new(received).topic().to_owned();
                let Seen { sequence, length, .. } = seen;
                return Err(ReceiveError::ValueMissing { topic, sequence, length: length.into() });
            }
            self.progress.counts.add_received(1);
            return Ok(true);
        }
        Ok(false)
    }
}

fn invalid(seen: &Seen) -> Corrupt {
    Corrupt { what: "value of a topic", value: seen.tag.into(), position: seen.position }
}

impl Received {
    /// Returns whether a record that was received is a value, and not from the stream.
    pub(super) fn is_value(&self, seen: &Seen) -> bool {
        seen.position < self.values_before
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
