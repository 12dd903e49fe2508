//! Delivers in the order of the source: what is behind a gap waits.

use super::slots::{self, Slots, Turned};
use super::{
    Arrival, Bound, Buffer, Collected, Counted, Deliver, Message, Parts, Pool, Refused, Turn,
};
use crate::id::{MessageNumber, Number, Sequence};
use crate::time::Monotonic;
use crate::wire::{Chunk, Data, LostReason, Range};

/// Puts the messages of one stream and session together, in the order of their source.
#[derive(Debug)]
pub struct InOrder {
    slots: Slots,
    turn: Turn,
}

impl InOrder {
    /// Allocates what one stream needs. It holds at most `held_max` buffers.
    ///
    /// `first` is the first sequence that it delivers. `counted` is what was counted at that place,
    /// before which nothing is reported as lost. If the stream is joined in the middle, it is `None`:
    /// then the first message is the first that starts in the first datagram.
    #[must_use]
    pub fn new(first: Sequence, counted: Option<Counted>, held_max: usize) -> Self {
        Self { slots: Slots::new(first, held_max), turn: Turn::at(counted) }
    }

    /// Begins another session in the same memory; see [`Self::new`].
    pub fn restart(&mut self, pool: &mut Pool, first: Sequence, counted: Option<Counted>) {
        self.clear(pool);
        self.slots.jump(first);
        self.turn = Turn::at(counted);
    }

    /// Returns the sequence whose turn it is: all before it was delivered or given up.
    #[must_use]
    pub const fn next(&self) -> Sequence {
        self.slots.next
    }

    /// Returns what was counted there, if anything was received.
    #[must_use]
    pub fn counted(&self) -> Option<Counted> {
        self.turn.counted()
    }

    /// Returns the first message that was neither delivered nor reported as lost, if anything was received.
    #[must_use]
    pub const fn next_message(&self) -> Option<MessageNumber> {
        self.turn.message
    }

    /// Returns the first sequence that is too far ahead.
    #[must_use]
    pub const fn end(&self) -> Sequence {
        self.slots.end()
    }

    /// Returns when the oldest datagram that is held arrived.
    #[must_use]
    pub fn held_since(&self, pool: &Pool) -> Option<Monotonic> {
        self.slots.held_since(pool)
    }

    /// Returns how many buffers are held.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.slots.held()
    }

    /// Takes a DATA datagram that was checked, and delivers what is complete now. The buffer has the
    /// datagram in its first `length` bytes, without the MAC.
    ///
    /// # Errors
    ///
    /// If it cannot be taken now. The state is as before.
    pub fn datagram(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        buffer: Buffer,
        length: u16,
        out: &mut impl Deliver,
    ) -> Result<Arrival, Refused> {
        if sequence >= self.end() {
            return Err(Refused::TooFar(buffer));
        }
        if sequence < self.next() || self.slots.is_held(sequence) {
            pool.give(buffer);
            return Ok(Arrival::Duplicate);
        }
        let mut buffer = buffer;
        if sequence == self.next() {
            match self.process(pool, buffer, length, false, out) {
                Ok(()) => {
                    self.advance(pool, out, false);
                    return Ok(Arrival::Delivered);
                }
                Err(waits) => buffer = waits,
            }
        }
        if !self.slots.has_room() {
            return Err(Refused::Full(buffer));
        }
        self.slots.hold(sequence, buffer, length);
        Ok(Arrival::Held)
    }

    /// Stops waiting for the datagrams of a range that have not arrived, and delivers what waited for
    /// them. Their messages are reported in their turn. What is beyond [`Self::end`] is left out.
    pub fn give_up(
        &mut self,
        pool: &mut Pool,
        range: Range,
        reason: LostReason,
        out: &mut impl Deliver,
    ) {
        self.mark(range.first(), range.end(), reason);
        self.advance(pool, out, false);
    }

    /// Returns whether the next datagram is here and waits for a name.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.slots.is_held(self.next())
    }

    /// Delivers what waited for names that are known now. With `force`, it does not wait for them any more.
    pub fn retry(&mut self, pool: &mut Pool, force: bool, out: &mut impl Deliver) {
        self.advance(pool, out, force);
    }

    /// Gives up everything before `sequence` that has not arrived, however far away that is.
    pub fn skip_to(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        reason: LostReason,
        out: &mut impl Deliver,
    ) {
        self.mark(self.next(), sequence, reason);
        self.advance(pool, out, true);
        if self.next() < sequence {
            // All that was held has had its turn.
            self.turn.lost.get_or_insert(reason);
            self.release(pool);
            self.slots.jump(sequence);
        }
    }

    /// Takes what SESSION states: `sequence` is the next datagram, before which that many messages
    /// have started as `counted` says, with numbers below `number`. If all datagrams before it had their turn, the messages that are missing are
    /// lost.
    pub fn session(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        counted: Counted,
        number: Number,
        out: &mut impl Deliver,
    ) {
        if self.next() != sequence || self.turn.message.is_none() {
            return;
        }
        // The message that is being collected has started. Its other parts are still to be sent.
        let open = u64::from(self.turn.collected.is_some());
        let started = Counted { message: counted.message.minus(open), ..counted };
        self.turn.catch_up(started, number, out);
        self.turn.lost = None;
        if self.turn.collected.is_none() {
            self.slots.release_before(pool, self.next());
        }
    }

    /// Gives all buffers back, when the stream has ended.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.slots.clear(pool);
        self.turn.collected = None;
    }

    /// Delivers what waits, up to the next datagram that is missing or, without `force`, waits for a name.
    fn advance(&mut self, pool: &mut Pool, out: &mut impl Deliver, force: bool) {
        loop {
            let next = self.next();
            match self.slots.take(next) {
                Turned::Missing => return,
                Turned::Held(buffer, length) => {
                    let arrival = pool.arrival(&buffer);
                    match self.process(pool, buffer, length, force, out) {
                        Ok(()) => out.waited(next, arrival),
                        Err(waits) => return self.slots.hold(next, waits, length),
                    }
                }
                Turned::Lost(reason) => {
                    self.turn.lost.get_or_insert(reason);
                    // A message whose next part is lost is lost.
                    self.release(pool);
                    self.slots.jump(next.plus(1));
                }
            }
        }
    }

    /// Delivers the datagram whose turn it is. Its slot is empty: nothing waits there, and what was given up had its
    /// turn. Without `force`, a datagram that waits for a name comes back.
    fn process(
        &mut self,
        pool: &mut Pool,
        buffer: Buffer,
        length: u16,
        force: bool,
        out: &mut impl Deliver,
    ) -> Result<(), Buffer> {
        let sequence = self.next();
        let part = match slots::open(pool, &buffer, length) {
            Some(data) if !force && !out.is_ready(sequence, &data) => return Err(buffer),
            Some(data) => self.deliver(pool, &data, out),
            None => Part::None,
        };
        self.slots.next = sequence.plus(1);
        if part != Part::Further {
            // The message that was being collected was delivered or is lost.
            self.slots.release_before(pool, sequence);
        }
        if part == Part::None {
            pool.give(buffer);
            self.slots.base = self.next();
        } else if self.slots.has_room() {
            self.slots.hold(sequence, buffer, length);
        } else {
            pool.give(buffer);
            self.slots.release_before(pool, sequence);
            self.slots.base = self.next();
            self.turn.collected = None;
            self.turn.lost.get_or_insert(LostReason::Memory);
        }
        Ok(())
    }

    /// Hands out what a datagram has. Returns which part of an incomplete message is in it.
    fn deliver(&mut self, pool: &Pool, data: &Data<'_>, out: &mut impl Deliver) -> Part {
        let turn = &mut self.turn;
        let (slots, base, end) = (&self.slots, self.slots.base, self.slots.next);
        let mut part = Part::None;
        // Only the first chunk can continue a message.
        let continues = turn.collected.is_some()
            && data
                .chunks()
                .next()
                .is_some_and(|placed| turn.continues(placed.message, &placed.chunk));
        if !continues {
            let counted = Counted { message: data.message, unsure: data.unsure };
            turn.catch_up(counted, data.number, out);
            turn.collected = None;
        }
        turn.lost = None;
        let mut chunks = data.chunks();
        let sent = Some(data.sent);
        loop {
            while let Some((message, start, payload)) = chunks.message() {
                if turn.is_due(message) {
                    let parts = Parts::one(payload);
                    out.message(Message { message, start, sent, parts });
                    turn.delivered(message, start.number);
                }
            }
            let Some(placed) = chunks.next() else { break };
            let message = placed.message;
            match placed.chunk {
                Chunk::First { start, total, payload } if turn.is_due(message) => {
                    let received = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                    turn.message = Some(message);
                    turn.collected = Some(Collected { start, total, received });
                    part = Part::First;
                }
                Chunk::Rest { last, payload, .. } if continues => {
                    let Some(collected) = &mut turn.collected else { continue };
                    if !last {
                        collected.received += u32::try_from(payload.len()).unwrap_or(0);
                        part = Part::Further;
                        continue;
                    }
                    let (start, length) = (collected.start, collected.total as usize);
                    let parts = Parts::collected(slots, pool, base..end, payload, length);
                    out.message(Message { message, start, sent, parts });
                    turn.delivered(message, start.number);
                }
                Chunk::Topic { number, name } => out.topic(number, name),
                Chunk::Lost { count, until, reason } => {
                    turn.missed(reason);
                    let after = message.plus(count);
                    let due = turn.message.unwrap_or(message).max(message);
                    if after > due {
                        turn.message = Some(due);
                        turn.report(after.since(due), Bound::Exact, reason, until, out);
                        turn.message = Some(after);
                    }
                }
                _ => {}
            }
        }
        part
    }

    /// Marks what has not arrived in a part of the slots.
    fn mark(&mut self, first: Sequence, end: Sequence, reason: LostReason) {
        let end = end.min(self.end());
        let mut sequence = first.max(self.next());
        while sequence < end {
            self.slots.lose(sequence, reason);
            sequence = sequence.plus(1);
        }
    }

    /// Forgets the message that is being collected. It stays due, so that it is counted as lost.
    fn release(&mut self, pool: &mut Pool) {
        self.turn.collected = None;
        self.slots.release_before(pool, self.next());
    }
}

/// Which part of an incomplete message a datagram has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    First,
    Further,
}
