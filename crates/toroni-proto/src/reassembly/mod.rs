//! Makes messages of datagrams again: order, parts, duplicates, and exact counts of what was lost.
//!
//! ```text
//!  datagrams arrive     97     98 ✗    99     100     98 (again)
//!                        │              │      │       │
//!  held in slots         ·      ?      ■99    ■100     ▼
//!                        │                            98, 99, 100 in turn
//!  delivered          messages of 97                  messages of 98, 99, 100
//! ```
//!
//! A datagram that is next is delivered from the buffer into which it was received. One that is behind
//! a gap keeps its buffer until the gap is closed or given up. The parts of a long message stay in
//! their buffers too, and are handed out from there.
//!
//! **Counting losses.** Every datagram states how many messages started before it. When the datagrams
//! in between are given up, the difference to what was delivered is the number of lost messages,
//! including those of which only some parts arrived. If no later datagram comes, SESSION states the
//! same number.

mod by_arrival;
mod either;
mod in_order;
mod pool;
mod slots;
#[cfg(test)]
mod tests;

pub use self::by_arrival::ByArrival;
pub(crate) use self::either::Reassembly;
pub use self::in_order::InOrder;
pub use self::pool::{Buffer, Pool};
pub use self::slots::AHEAD;
pub use crate::wire::Bound;

use self::slots::Slots;
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Sequence};
use crate::time::{Monotonic, Wall};
use crate::wire::{Chunk, Data, LostReason, Start, TableName, TopicNumber};

/// Receives what was put together: by [`InOrder`] in the order of the source, by [`ByArrival`] as soon
/// as it is complete.
pub trait Deliver {
    /// A message.
    fn message(&mut self, message: Message<'_>);

    /// The name of a topic, before the first message that uses it.
    fn topic(&mut self, number: TopicNumber, name: TableName<'_>);

    /// Messages that were lost. In the order of the source, they were at this place.
    fn loss(&mut self, loss: Loss);

    /// The turn of a datagram has come that was received then, and had to wait for it.
    fn waited(&mut self, sequence: Sequence, since: Monotonic) {
        let _ = (sequence, since);
    }

    /// Returns whether more can be delivered now. If not, what is complete waits in its buffers, until the caller has room
    /// and delivers again.
    fn has_room(&mut self) -> bool {
        true
    }

    /// Returns whether the names of all topics in a datagram are known, so that it can be delivered. If not,
    /// it waits until [`InOrder::retry`] or [`ByArrival::retry`] is called.
    fn is_ready(&mut self, sequence: Sequence, data: &Data<'_>) -> bool {
        let _ = (sequence, data);
        true
    }
}

/// A message as it is delivered. Its bytes lie in receive buffers, and stay there during the call
/// only.
#[derive(Debug)]
pub struct Message<'a> {
    /// Its place among the messages of the session.
    pub message: MessageNumber,
    /// Topic, number, and what else is known of it.
    pub start: Start,
    /// When the datagram with its last byte was sent first, by the clock of the sender. TCP does not say it.
    pub sent: Option<Wall>,
    /// Its bytes.
    pub parts: Parts<'a>,
}

/// What a sender states of a place in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// How many messages have started before, lost ones included.
    pub message: MessageNumber,
    /// How many losses of unknown size were reported before, modulo 2¹⁶.
    pub unsure: u16,
}

/// Lost messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The first that is missing.
    pub message: MessageNumber,
    /// How many.
    pub count: u64,
    /// How exact that is. Within a session, it is exact, unless what is missing may have said that the sender does not know how much
    /// it missed, or is so much that a count of that has come round.
    pub bound: Bound,
    /// Why.
    pub reason: LostReason,
    /// The greatest number of what was delivered or reported before them, if anything was. Theirs are
    /// greater.
    pub after: Option<Number>,
    /// Theirs are below this one, if that is known: of what a silent source sent last it is not.
    pub until: Option<Number>,
}

impl Loss {
    /// Returns how exact the count is for those who wait for messages of the stream. A source whose bus has overwritten
    /// messages counts all of them: also those of topics that it does not send, and those of other hosts.
    #[must_use]
    pub fn bound_for_subscribers(&self) -> Bound {
        match (self.reason, self.bound) {
            (LostReason::Overtaken, Bound::Exact) => Bound::AtMost,
            (_, bound) => bound,
        }
    }
}

/// The bytes of a message, part by part.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    /// The parts before the last, if there are several.
    earlier: Option<Earlier<'a>>,
    last: Option<&'a [u8]>,
    length: usize,
}

/// Parts that are still in their datagrams.
#[derive(Debug, Clone)]
struct Earlier<'a> {
    slots: &'a Slots,
    pool: &'a Pool,
    first: Sequence,
    next: Sequence,
    end: Sequence,
}

impl<'a> Parts<'a> {
    /// A message that lies in one piece.
    #[must_use]
    pub const fn one(message: &'a [u8]) -> Self {
        Self { earlier: None, last: Some(message), length: message.len() }
    }

    /// A message of this length, of which all but the last part lie in these datagrams.
    const fn collected(
        slots: &'a Slots,
        pool: &'a Pool,
        datagrams: core::ops::Range<Sequence>,
        last: &'a [u8],
        length: usize,
    ) -> Self {
        let (first, end) = (datagrams.start, datagrams.end);
        let earlier = Earlier { slots, pool, first, next: first, end };
        Self { earlier: Some(earlier), last: Some(last), length }
    }

    /// Returns the length of the whole message, in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Returns the message, if it lies in one piece.
    #[must_use]
    #[inline]
    pub fn whole(&self) -> Option<&'a [u8]> {
        self.last.filter(|last| last.len() == self.length)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(earlier) = &mut self.earlier
            && earlier.next < earlier.end
        {
            let part = earlier.part();
            earlier.next = earlier.next.plus(1);
            return part;
        }
        self.last.take()
    }
}

impl<'a> Earlier<'a> {
    /// The part in the datagram whose turn it is.
    fn part(&self) -> Option<&'a [u8]> {
        let data = self.slots.data(self.pool, self.next)?;
        let mut chunks = data.chunks();
        // The first part is the last chunk of its datagram, and a further part is the first one.
        let chunk = if self.next == self.first { chunks.last() } else { chunks.next() };
        match chunk?.chunk {
            Chunk::First { payload, .. } | Chunk::Rest { payload, .. } => Some(payload),
            _ => None,
        }
    }
}

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// What is complete with it was delivered.
    Delivered,
    /// It waits behind a gap, or for a name.
    Held,
    /// It was there before. Nothing happened.
    Duplicate,
}

/// A datagram could not be taken. Its buffer comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many buffers are held as may be. If the oldest gap is given up, there will be room.
    Full(Buffer),
    /// It is [`AHEAD`] or more datagrams ahead.
    TooFar(Buffer),
}

/// A message of which some parts have arrived.
#[derive(Debug, Clone, Copy)]
struct Collected {
    start: Start,
    total: u32,
    received: u32,
}

/// What was delivered, and what is due.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// The next message that was neither delivered nor reported as lost. `None` until the first
    /// datagram of a stream that is joined in the middle.
    message: Option<MessageNumber>,
    /// The greatest number of what was delivered or reported as lost.
    number: Option<Number>,
    /// The message of which parts have arrived. It has the message number `message`.
    collected: Option<Collected>,
    /// How many losses of unknown size the sender has reported in the datagrams whose turn has come, modulo 2¹⁶.
    unsure: u16,
    /// Datagrams were given up for this reason, and what was in them was not reported yet.
    lost: Option<LostReason>,
}

impl Turn {
    const fn at(counted: Option<Counted>) -> Self {
        let (message, unsure) = match counted {
            Some(Counted { message, unsure }) => (Some(message), unsure),
            None => (None, 0),
        };
        Self { message, number: None, collected: None, unsure, lost: None }
    }

    fn counted(&self) -> Option<Counted> {
        self.message.map(|message| Counted { message, unsure: self.unsure })
    }

    /// Reports the messages below that of `counted` that were not delivered. All of them have numbers below
    /// `until`.
    fn catch_up(&mut self, counted: Counted, until: Number, out: &mut impl Deliver) {
        let Counted { message, unsure } = counted;
        let due = *self.message.get_or_insert(message);
        if message > due {
            let reason = self.lost.unwrap_or(LostReason::Gone);
            let count = if mutant("loss_counts_datagrams") { 1 } else { message.since(due) };
            // After a jump, the count of unsure losses may have come round.
            let is_sure = unsure == self.unsure && reason != LostReason::Jump;
            let is_sure = is_sure || mutant("unsure_not_compared");
            let bound = if is_sure { Bound::Exact } else { Bound::AtMost };
            self.report(count, bound, reason, until, out);
            self.message = Some(message);
            self.collected = None;
        }
        self.unsure = unsure;
    }

    fn report(
        &mut self,
        count: u64,
        bound: Bound,
        reason: LostReason,
        until: Number,
        out: &mut impl Deliver,
    ) {
        let message = self.message.unwrap_or_default();
        // A sender that contradicts itself gets an empty range of numbers, and not a reversed one.
        let least = self.number.map_or(Number::ZERO, |number| number.plus(1));
        let until = until.max(least);
        let after = self.number;
        out.loss(Loss { message, count, bound, reason, after, until: Some(until) });
        self.all_below(until);
    }

    /// Notes that all numbers below this one were delivered or reported as lost.
    fn all_below(&mut self, number: Number) {
        self.number = self.number.max(number.before());
    }

    /// The source has missed messages, and says so.
    fn missed(&mut self, reason: LostReason) {
        if reason == LostReason::Overtaken {
            self.unsure = self.unsure.wrapping_add(1);
        }
    }

    fn is_due(&self, message: MessageNumber) -> bool {
        self.message.is_none_or(|due| message >= due)
    }

    /// Whether a part is the next one of the message that is being collected.
    fn continues(&self, message: MessageNumber, chunk: &Chunk<'_>) -> bool {
        let (Some(collected), Chunk::Rest { topic, offset, last, payload }) =
            (&self.collected, chunk)
        else {
            return false;
        };
        let end = u64::from(collected.received) + payload.len() as u64;
        self.message == Some(message)
            && collected.start.topic == *topic
            && collected.received == *offset
            && (end == u64::from(collected.total)) == *last
            && end <= u64::from(collected.total)
    }

    fn delivered(&mut self, message: MessageNumber, number: Number) {
        self.message = Some(message.plus(1));
        self.number = self.number.max(Some(number));
        self.collected = None;
    }
}
