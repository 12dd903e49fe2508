//! Messages that are read where they lie in the ring, one by one or in runs.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::message::{Received, tag_locates_payload, timestamp_of, topic_of};
use crate::error::{Corrupt, ReceiveError};
use crate::hook::mutant;
use crate::ring::memory::Ring;
use crate::ring::racy::RacyBytes;
use crate::ring::reader::{Cursor, Seen};
use crate::ring::run::Run;
use crate::sync::Ordering;
use crate::topic::Origin;
use crate::topic::frame::{Extensions, MAX_EXTENSIONS_BYTES, Tag, decode};
use crate::topic::interest::Interest;
use crate::topic::origin::ORIGIN_BYTES;
use std::fmt;
use std::time::SystemTime;

/// Messages in a row where they lie in shared memory: those that were there when they were received, and
/// those that come while this is used, up to about a 64th of the ring.
///
/// It is an iterator. The call that returned it has received the first message; each other one is received
/// when the iterator returns it. The subscriber's next call continues after the last one. The messages
/// outlive the iterator: all of them stay until the subscriber's next call.
///
/// It also ends before a loss ([`ReceiveError::Lost`]), if a publisher has overtaken the subscriber, or if
/// something is wrong; the subscriber's next call returns the error.
pub struct InPlace<'a> {
    run: Run<'a>,
    source: &'a Received,
    interest: &'a Interest,
    first: Option<Borrowed<'a>>,
    /// Whether the first message is a copy that an earlier call has made. Then it is the only one.
    is_private: bool,
    /// Messages that were handed out after the first.
    count: u64,
    /// The subscriber's, to which this is added when dropped.
    cursor: &'a mut Cursor,
    received: &'a mut u64,
}

impl InPlace<'_> {
    /// Checks that everything read so far, of all messages that the iterator has returned, is what was
    /// published. It is one check for many messages, in place of [`Borrowed::validate`] for each. Call it
    /// after the last read, and before you use what was read.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-run-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// # let mut subscriber = bus.subscribe("**")?;
    /// # bus.publisher("trades")?.publish_batch(&[[7; 1024]; 3], toroni::Limit::Policy)?;
    /// let mut trades = subscriber.receive_in_place()?;
    /// let mut sum = 0;
    /// for trade in trades.by_ref().take(1000) {
    ///     sum += trade.payload().array(16).map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes)));
    /// }
    /// trades.validate()?;
    /// println!("{sum}");
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`ReceiveError::Lapped`] if a publisher may have begun to overwrite the oldest of them. All
    /// messages so far then count as lost, including those of other topics in between. The subscriber's
    /// next call reports what else was lost.
    #[inline]
    pub fn validate(&self) -> Result<(), ReceiveError> {
        if self.is_private {
            return Ok(());
        }
        self.run.is_intact().map_err(|(lost_messages, lost_bytes)| ReceiveError::Lapped {
            lost_messages,
            lost_bytes,
        })
    }
}

impl<'a> InPlace<'a> {
    /// Returns the message that was received last, and those that follow it. `count` is the subscriber's
    /// count of received messages, to which this adds.
    #[inline(always)]
    pub(super) fn new(
        ring: Ring<'a>,
        received: &'a Received,
        interest: &'a Interest,
        cursor: &'a mut Cursor,
        count: &'a mut u64,
    ) -> Result<Self, ReceiveError> {
        let first = Borrowed::received(ring, received)?;
        let is_private = !received.in_place;
        let run = if is_private {
            // The cursor is at the end of the read-ahead, which may have more to hand out.
            Run::ended(ring, *cursor)
        } else {
            Run::after(ring, &first.seen)
        };
        Ok(Self {
            first: Some(first),
            is_private,
            run,
            source: received,
            interest,
            count: 0,
            cursor,
            received: count,
        })
    }

    /// Returns the next message if the fast path does not find one.
    #[cold]
    fn next_slowly(&mut self) -> Option<Borrowed<'a>> {
        if let Some(first) = self.first.take() {
            self.want_more(&first.seen);
            return Some(first);
        }
        loop {
            let seen = self.run.peek()?;
            let tag = Tag::from_raw(seen.tag);
            if mutant("loss_passed_by_a_run") && tag.is_loss() {
                self.run.pass(&seen);
                continue;
            }
            // If the interest does not know the topic yet, the run ends: the next call asks. So it does before a
            // loss, which that call returns.
            let is_mine = self.interest.answer(tag)?;
            let message = Borrowed::in_ring(self.run.ring(), self.source, seen)?;
            self.run.pass(&seen);
            if is_mine {
                self.want_more(&seen);
                self.count = self.count.wrapping_add(1);
                return Some(message);
            }
        }
    }

    fn want_more(&mut self, seen: &Seen) {
        if Tag::from_raw(seen.tag).is_plain() {
            self.run.want_more(seen);
        }
    }
}

impl<'a> Iterator for InPlace<'a> {
    type Item = Borrowed<'a>;

    #[inline]
    fn next(&mut self) -> Option<Borrowed<'a>> {
        if let Some(seen) = self.run.next_wanted() {
            self.count = self.count.wrapping_add(1);
            return Borrowed::plain(self.run.ring(), self.source, seen);
        }
        self.next_slowly()
    }
}

impl Drop for InPlace<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.cursor = self.run.cursor();
        *self.received = self.received.wrapping_add(self.count);
    }
}

impl fmt::Debug for InPlace<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor { position, sequence } = self.run.cursor();
        formatter
            .debug_struct("InPlace")
            .field("first", &self.first)
            .field("position", &position)
            .field("sequence", &sequence)
            .finish_non_exhaustive()
    }
}

/// A message where it lies in shared memory.
///
/// What is read of it counts only if [`Self::validate`] succeeds afterwards. See
/// [`Subscriber::borrow`](crate::Subscriber::borrow) for an example.
pub struct Borrowed<'a> {
    ring: Ring<'a>,
    /// Has the name of its topic, and says where the stream began for its subscriber.
    source: &'a Received,
    seen: Seen,
    /// What follows the header, if the front of the record, with all extensions, was copied.
    front: Option<&'a [u8]>,
    payload: RacyBytes<'a>,
}

impl<'a> Borrowed<'a> {
    /// Returns a message in the ring that has no extensions.
    #[inline(always)]
    fn plain(ring: Ring<'a>, source: &'a Received, seen: Seen) -> Option<Self> {
        let length = seen.length as usize;
        let words = ring.contiguous_words(seen.body(), length.div_ceil(8))?;
        let payload = RacyBytes::new(words, length)?;
        Some(Self { ring, source, seen, front: None, payload })
    }

    /// Returns a message in the ring whose tag says which extensions it has, if its length is enough for
    /// them.
    #[inline]
    fn in_ring(ring: Ring<'a>, source: &'a Received, seen: Seen) -> Option<Self> {
        let tag = Tag::from_raw(seen.tag);
        let extensions = tag.extensions_bytes()?;
        let length = (seen.length as usize).checked_sub(extensions)?;
        let words =
            ring.contiguous_words(seen.body().wrapping_add(extensions as u64), length.div_ceil(8))?;
        let payload = RacyBytes::new(words, length)?;
        Some(Self { ring, source, seen, front: None, payload })
    }

    /// Returns the message that was received last.
    #[inline]
    pub(super) fn received(ring: Ring<'a>, received: &'a Received) -> Result<Self, Corrupt> {
        let seen = received.read_ahead.last();
        if received.in_place && tag_locates_payload(&seen) {
            let length =
                Corrupt { what: "length", value: seen.length.into(), position: seen.position };
            return Self::in_ring(ring, received, seen).ok_or(length);
        }
        Self::copied(ring, received)
    }

    /// Returns a message of which at least the extensions were copied.
    #[cold]
    fn copied(ring: Ring<'a>, received: &'a Received) -> Result<Self, Corrupt> {
        let Received { read_ahead, in_place, .. } = received;
        let seen = read_ahead.last();
        let length = seen.length as usize;
        let front =
            read_ahead.body(if *in_place { length.min(MAX_EXTENSIONS_BYTES) } else { length });
        let at = |corrupt| Corrupt { position: seen.position, ..corrupt };
        let (_, offset) =
            decode(Tag::from_raw(seen.tag), front).map_err(|error| at(error.into()))?;
        let payload = if *in_place {
            let words = ring.words_from(seen.body().wrapping_add(offset as u64));
            length.checked_sub(offset).and_then(|length| RacyBytes::new(words, length))
        } else {
            front.get(offset..).map(RacyBytes::private)
        };
        let payload = payload.ok_or_else(|| {
            at(Corrupt { what: "length", value: seen.length.into(), position: 0 })
        })?;
        Ok(Self { ring, source: received, seen, front: Some(front), payload })
    }

    fn tag(&self) -> Tag {
        Tag::from_raw(self.seen.tag)
    }

    /// Returns the extensions. As the payload, they count only after the validation, unless they were copied.
    fn extensions(&self) -> Extensions<'a> {
        let tag = self.tag();
        if let Some(front) = self.front {
            return decode(tag, front).unwrap_or_default().0;
        }
        let word = |offset: usize| {
            self.ring
                .word(self.seen.body().wrapping_add(offset as u64))
                .load(Ordering::Relaxed)
                .to_ne_bytes()
        };
        let origin = || {
            let mut bytes = [0; ORIGIN_BYTES];
            bytes[..8].copy_from_slice(&word(tag.origin_offset()));
            bytes[8..].copy_from_slice(&word(tag.origin_offset().wrapping_add(8)));
            Origin::from_bytes(bytes)
        };
        Extensions {
            timestamp_ns: tag.has_timestamp().then(|| u64::from_le_bytes(word(0))),
            origin: tag.has_origin().then(origin),
            number: tag.has_number().then(|| u64::from_le_bytes(word(tag.number_offset()))),
            inline_topic: None,
        }
    }

    /// Returns the topic that it was published on.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        let inline_topic = if self.front.is_some() { self.extensions().inline_topic } else { None };
        topic_of(self.tag(), inline_topic, &self.source.topic_cache)
    }

    /// Returns its bytes, in place.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> RacyBytes<'a> {
        self.payload
    }

    /// Returns its position; see [`Message::position`](crate::Message::position).
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.seen.position
    }

    /// Returns the position of the next message; see
    /// [`Message::next_position`](crate::Message::next_position).
    #[inline]
    #[must_use]
    pub fn next_position(&self) -> u64 {
        self.seen.next_position()
    }

    /// Returns its number; see [`Message::sequence`](crate::Message::sequence).
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.seen.sequence
    }

    /// Returns the time when it was published; see [`Message::timestamp`](crate::Message::timestamp). As
    /// the payload, it counts only after [`Self::validate`].
    #[must_use]
    pub fn timestamp(&self) -> Option<SystemTime> {
        timestamp_of(self.extensions().timestamp_ns)
    }

    /// Returns where it was first published; see [`Message::origin`](crate::Message::origin). As the payload, it counts
    /// only after [`Self::validate`].
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        self.extensions().origin
    }

    /// Returns its place in an order over several buses; see [`Message::number`](crate::Message::number). As the
    /// payload, it counts only after [`Self::validate`].
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.extensions().number
    }

    /// Returns whether it was published to the descendants of its topic, too.
    #[must_use]
    pub fn to_descendants(&self) -> bool {
        self.tag().is_to_descendants()
    }

    /// Returns whether it is the value of a topic; see [`Message::is_retained`](crate::Message::is_retained).
    #[must_use]
    pub fn is_retained(&self) -> bool {
        self.source.is_value(&self.seen)
    }

    /// Returns whether it says that the value of its topic was cleared; see
    /// [`Message::is_cleared`](crate::Message::is_cleared).
    #[must_use]
    pub fn is_cleared(&self) -> bool {
        self.tag().is_cleared()
    }

    /// Checks that everything read so far is what was published. Call it after the last read, and before
    /// you use what was read.
    ///
    /// # Errors
    /// Returns [`ReceiveError::Lapped`], with this one message as lost, if a publisher may have begun to
    /// overwrite it. The subscriber's next call reports what else was lost.
    #[inline]
    pub fn validate(&self) -> Result<(), ReceiveError> {
        if self.payload.is_private() || self.ring.is_intact(self.seen.position) {
            return Ok(());
        }
        let lost_bytes = self.seen.next_position().wrapping_sub(self.seen.position);
        Err(ReceiveError::Lapped { lost_messages: 1, lost_bytes })
    }
}

impl fmt::Debug for Borrowed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Borrowed")
            .field("topic", &self.topic())
            .field("position", &self.position())
            .field("sequence", &self.sequence())
            .field("length", &self.payload.len())
            .finish_non_exhaustive()
    }
}
