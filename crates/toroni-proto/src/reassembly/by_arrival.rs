//! Delivers each message as soon as it is complete.
//!
//! ```text
//!  datagrams     97 ■    98 ?    99 ■    100 ■
//!  delivered     a, b            d, e    f           at once
//!  accounted     a, b │                              waits for 98; then: c lost, d, e and f delivered
//! ```
//!
//! Losses are counted in the order of the source, when all datagrams before them have arrived or were
//! given up. So each count is exact, although the messages after it were delivered before.

use super::slots::{self, AHEAD, Slots, Turned, place};
use super::{Arrival, Bound, Buffer, Counted, Deliver, Loss, Message, Parts, Pool, Refused, Turn};
use crate::id::{MessageNumber, Number, Sequence};
use crate::time::Monotonic;
use crate::wire::{Chunk, Data, LostReason, Range};

/// Puts the messages of one stream and session together, in the order of their arrival.
#[derive(Debug)]
pub struct ByArrival {
    /// The datagrams that are held because of their parts, and those that were given up.
    slots: Slots,
    /// What must be known of each datagram that has arrived, from `base` on.
    seen: Box<[Option<Seen>]>,
    /// How many of the held ones wait for a name, so that nothing is known of them yet.
    waiting: usize,
    /// Whether the datagram before `next` ends with a part of the message that is due.
    open: bool,
    turn: Turn,
}

/// What must be known of a datagram after its messages were delivered.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The number of the first message that starts in it, or of the next.
    message: MessageNumber,
    /// The number of the next message after it.
    after: MessageNumber,
    /// How many losses of unknown size the source has reported before it, and in it.
    unsure: [u16; 2],
    /// The numbers of all messages before it are below this one.
    until: Number,
    /// The greatest number of the whole messages in it, and of what the source missed.
    last: Option<Number>,
    /// What its first chunk continues.
    rest: Rest,
    /// Whether its last chunk is the first part of a message.
    first: bool,
    /// The number of the message whose last part it has, once that was delivered.
    completed: Option<Number>,
    /// Whether there was memory for its parts.
    kept: bool,
}

const _: () = assert!(size_of::<Option<Seen>>() <= 64, "there are 65,536 of them for each stream");

/// Whether a datagram begins with a part of an earlier message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    None,
    Further,
    Last,
}

impl ByArrival {
    /// Allocates what one stream needs. It holds at most `held_max` buffers, all of them parts of
    /// messages that are not complete. The other arguments are those of
    /// [`InOrder::new`](super::InOrder::new).
    #[must_use]
    pub fn new(first: Sequence, counted: Option<Counted>, held_max: usize) -> Self {
        Self {
            slots: Slots::new(first, held_max),
            seen: vec![None; AHEAD].into(),
            waiting: 0,
            open: false,
            turn: Turn::at(counted),
        }
    }

    /// Begins another session in the same memory; see [`Self::new`].
    pub fn restart(&mut self, pool: &mut Pool, first: Sequence, counted: Option<Counted>) {
        self.clear(pool);
        self.slots.jump(first);
        self.turn = Turn::at(counted);
    }

    /// Returns the first sequence that was not accounted yet: all before it have arrived or were
    /// given up.
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

    /// Returns the greatest number before which nothing is open.
    #[must_use]
    pub const fn number(&self) -> Option<Number> {
        self.turn.number
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
        let is_seen = self.seen[place(sequence)].is_some();
        if sequence < self.next() || is_seen || self.slots.is_held(sequence) {
            pool.give(buffer);
            return Ok(Arrival::Duplicate);
        }
        let Some(data) = slots::open(pool, &buffer, length) else {
            pool.give(buffer);
            return Ok(Arrival::Duplicate);
        };
        let has_room = self.slots.has_room();
        if !out.is_ready(sequence, &data) {
            if !has_room {
                return Err(Refused::Full(buffer));
            }
            self.slots.hold(sequence, buffer, length);
            self.waiting += 1;
            return Ok(Arrival::Held);
        }
        let is_part = |chunk: Chunk<'_>| matches!(chunk, Chunk::First { .. } | Chunk::Rest { .. });
        if !has_room && sequence != self.next() && data.chunks().any(|one| is_part(one.chunk)) {
            return Err(Refused::Full(buffer));
        }
        self.take_in(pool, sequence, buffer, length, out);
        self.advance(pool, out);
        Ok(Arrival::Delivered)
    }

    /// Returns whether a datagram is here and waits for a name.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.waiting > 0
    }

    /// Delivers what waited for names that are known now. With `force`, it does not wait for them any more.
    pub fn retry(&mut self, pool: &mut Pool, force: bool, out: &mut impl Deliver) {
        let mut at = self.next();
        let end = self.end();
        while self.waiting > 0 && at < end {
            let waits = self.seen[place(at)].is_none() && self.slots.is_held(at);
            if waits
                && (force || self.slots.data(pool, at).is_none_or(|data| out.is_ready(at, &data)))
                && let Turned::Held(buffer, length) = self.slots.take(at)
            {
                self.waiting -= 1;
                self.take_in(pool, at, buffer, length, out);
            }
            at = at.plus(1);
        }
        self.advance(pool, out);
    }

    /// Delivers the whole messages of a datagram, and keeps it if it has parts of others.
    fn take_in(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        buffer: Buffer,
        length: u16,
        out: &mut impl Deliver,
    ) {
        let has_room = self.slots.has_room();
        let Some(data) = slots::open(pool, &buffer, length) else { return pool.give(buffer) };
        let delivered = Self::deliver(&data, out);
        let seen = Seen { kept: has_room, ..delivered };
        let has_parts = seen.first || seen.rest != Rest::None;
        self.seen[place(sequence)] = Some(seen);
        if has_parts && has_room {
            self.slots.hold(sequence, buffer, length);
            if seen.rest != Rest::None {
                self.complete_around(pool, sequence, out);
            }
            if seen.first {
                self.complete_from(pool, sequence, out);
            }
        } else {
            if has_parts {
                // Nothing before it is missing, so giving something up makes no room for it.
                self.turn.lost.get_or_insert(LostReason::Memory);
            }
            // It may have been given up while it was on its way.
            self.slots.take(sequence);
            pool.give(buffer);
        }
    }

    /// Stops waiting for the datagrams of a range that have not arrived. Their messages are reported
    /// in their turn. What is beyond [`Self::end`] is left out.
    pub fn give_up(
        &mut self,
        pool: &mut Pool,
        range: Range,
        reason: LostReason,
        out: &mut impl Deliver,
    ) {
        self.mark(range.first(), range.end(), reason);
        self.advance(pool, out);
    }

    /// Gives up everything before `sequence` that has not arrived, however far away that is.
    pub fn skip_to(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        reason: LostReason,
        out: &mut impl Deliver,
    ) {
        self.retry(pool, true, out);
        self.mark(self.next(), sequence, reason);
        self.advance(pool, out);
        if self.next() < sequence {
            self.turn.lost.get_or_insert(reason);
            self.open = false;
            self.free(pool, self.next());
            self.slots.jump(sequence);
        }
    }

    /// Takes what SESSION states, as [`InOrder::session`](super::InOrder::session) does.
    pub fn session(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        counted: Counted,
        number: Number,
        out: &mut impl Deliver,
    ) {
        let Some(due) = self.turn.message.filter(|_| self.next() == sequence) else { return };
        // The message that is open has started. Its other parts are still to be sent.
        let message = counted.message.minus(u64::from(self.open));
        if message > due {
            self.turn.catch_up(Counted { message, ..counted }, number, out);
            self.open = false;
            self.free(pool, self.next());
        }
        self.turn.lost = None;
    }

    /// Gives all buffers back, when the stream has ended.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.slots.clear(pool);
        self.seen.fill(None);
        self.waiting = 0;
        self.open = false;
    }

    /// Hands out the whole messages of a datagram.
    fn deliver(data: &Data<'_>, out: &mut impl Deliver) -> Seen {
        let mut seen = Seen {
            message: data.message,
            after: data.message,
            unsure: [data.unsure, 0],
            until: data.number,
            last: None,
            rest: Rest::None,
            first: false,
            completed: None,
            kept: true,
        };
        for placed in data.chunks() {
            let message = placed.message;
            match placed.chunk {
                Chunk::Message { start, payload } => {
                    let parts = Parts::one(payload);
                    out.message(Message { message, start, sent: Some(data.sent), parts });
                    seen.last = Some(start.number);
                    seen.after = message.plus(1);
                }
                Chunk::First { .. } => {
                    seen.first = true;
                    seen.after = message.plus(1);
                }
                Chunk::Rest { last, .. } => {
                    seen.rest = if last { Rest::Last } else { Rest::Further };
                }
                Chunk::Topic { number, name } => out.topic(number, name),
                Chunk::Lost { count, until, reason } => {
                    let after = seen.last;
                    let bound = Bound::Exact;
                    out.loss(Loss { message, count, bound, reason, after, until: Some(until) });
                    let is_unsure = reason == LostReason::Overtaken;
                    seen.unsure[1] = seen.unsure[1].wrapping_add(u16::from(is_unsure));
                    seen.last = until.before().or(after);
                    seen.after = message.plus(count);
                }
            }
        }
        seen
    }

    /// What is known of a datagram whose parts are held.
    fn held_at(&self, sequence: Sequence) -> Option<Seen> {
        self.seen[place(sequence)].filter(|_| self.slots.is_held(sequence))
    }

    /// Looks for the first part of the message that a datagram continues, and then for the others.
    fn complete_around(&mut self, pool: &mut Pool, sequence: Sequence, out: &mut impl Deliver) {
        // To the end first: while a long message arrives in order, that is one step.
        if self.end_of(sequence).is_none() {
            return;
        }
        let mut at = sequence;
        while at > self.slots.base {
            at = at.minus(1);
            match self.held_at(at) {
                Some(seen) if seen.first => return self.complete_from(pool, at, out),
                Some(seen) if seen.rest == Rest::Further => {}
                _ => return,
            }
        }
    }

    /// The datagram with the last part of the message that continues at `sequence`, if nothing
    /// before it is missing.
    fn end_of(&self, sequence: Sequence) -> Option<Sequence> {
        let mut at = sequence;
        loop {
            match self.held_at(at)?.rest {
                Rest::Last => return Some(at),
                Rest::Further if at.plus(1) < self.end() => at = at.plus(1),
                _ => return None,
            }
        }
    }

    /// Delivers the message whose first part is in a datagram, if all others have arrived.
    fn complete_from(&mut self, pool: &mut Pool, first: Sequence, out: &mut impl Deliver) {
        if first.plus(1) >= self.end() {
            return;
        }
        let Some(end) = self.end_of(first.plus(1)) else { return };
        if let Some(number) = self.hand_out(pool, first, end, out)
            && let Some(seen) = &mut self.seen[place(end)]
        {
            seen.completed = Some(number);
        }
        // What is in the buffers is delivered, or will never be. The first may still have the end of
        // an earlier message, and the last the start of a later one.
        let mut at = first;
        while at <= end {
            if !self.is_needed(at, first, end) {
                self.slots.release(pool, at);
            }
            at = at.plus(1);
        }
    }

    fn is_needed(&self, at: Sequence, first: Sequence, end: Sequence) -> bool {
        let Some(seen) = self.seen[place(at)] else { return false };
        (at == first && seen.rest != Rest::None && seen.completed.is_none())
            || (at == end && seen.first)
    }

    /// Checks that the parts from `first` to `end` belong together, and delivers the message. Returns
    /// its number.
    fn hand_out(
        &self,
        pool: &Pool,
        first: Sequence,
        end: Sequence,
        out: &mut impl Deliver,
    ) -> Option<Number> {
        let data = |at: Sequence| self.slots.data(pool, at);
        let opening = data(first)?.chunks().last()?;
        let Chunk::First { start, total, payload } = opening.chunk else { return None };
        let mut received = u32::try_from(payload.len()).ok()?;
        let mut at = first;
        let (payload, sent) = loop {
            at = at.plus(1);
            let datagram = data(at)?;
            let placed = datagram.chunks().next()?;
            let Chunk::Rest { topic, offset, last, payload } = placed.chunk else { return None };
            let belongs =
                placed.message == opening.message && topic == start.topic && offset == received;
            received = received.checked_add(u32::try_from(payload.len()).ok()?)?;
            if !belongs || received > total {
                return None;
            }
            if last {
                break (payload, datagram.sent);
            }
        };
        if received != total {
            return None;
        }
        let (slots, length) = (&self.slots, total as usize);
        let parts = Parts::collected(slots, pool, first..end, payload, length);
        out.message(Message { message: opening.message, start, sent: Some(sent), parts });
        Some(start.number)
    }

    /// Accounts what has arrived or was given up, up to the next datagram that is missing.
    fn advance(&mut self, pool: &mut Pool, out: &mut impl Deliver) {
        loop {
            let at = self.next();
            if let Some(seen) = self.seen[place(at)] {
                self.slots.next = at.plus(1);
                self.account(pool, at, &seen, out);
                continue;
            }
            if self.slots.is_held(at) {
                // It waits for a name.
                return;
            }
            let Turned::Lost(reason) = self.slots.take(at) else { return };
            self.slots.next = at.plus(1);
            self.turn.lost.get_or_insert(reason);
            self.open = false;
            self.free(pool, self.next());
        }
    }

    fn account(&mut self, pool: &mut Pool, at: Sequence, seen: &Seen, out: &mut impl Deliver) {
        let continues = self.open && seen.rest == Rest::Further;
        if let Some(number) = seen.completed {
            let message = seen.message.minus(1);
            self.turn.catch_up(Counted { message, unsure: seen.unsure[0] }, seen.until, out);
            if self.turn.is_due(message) {
                self.turn.delivered(message, number);
            }
        } else if !continues {
            let counted = Counted { message: seen.message, unsure: seen.unsure[0] };
            self.turn.catch_up(counted, seen.until, out);
        }
        self.turn.unsure = seen.unsure[0].wrapping_add(seen.unsure[1]);
        if !continues {
            self.turn.lost = None;
            // The message that starts at the end is due until its last part is accounted.
            let due = if seen.first { seen.after.minus(1) } else { seen.after };
            self.turn.message = self.turn.message.max(Some(due));
        }
        self.turn.number = self.turn.number.max(seen.last);
        let has_part = seen.first || continues;
        self.open = has_part && seen.kept;
        if has_part && !seen.kept {
            self.turn.lost.get_or_insert(LostReason::Memory);
        }
        self.free(pool, if seen.first { at } else { self.slots.base });
        if !self.open {
            self.free(pool, self.next());
        }
    }

    /// Marks what has not arrived in a part of the slots.
    fn mark(&mut self, first: Sequence, end: Sequence, reason: LostReason) {
        let end = end.min(self.end());
        let mut sequence = first.max(self.next());
        while sequence < end {
            if self.seen[place(sequence)].is_none() {
                self.slots.lose(sequence, reason);
            }
            sequence = sequence.plus(1);
        }
    }

    /// Gives the buffers before `end` back.
    fn free(&mut self, pool: &mut Pool, end: Sequence) {
        let mut at = self.slots.base;
        while at < end {
            self.seen[place(at)] = None;
            at = at.plus(1);
        }
        self.slots.release_before(pool, end);
    }
}
