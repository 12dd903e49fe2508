//! The datagrams of a session that are held, by sequence, and where its turn is.
//!
//! ```text
//!    base                next                                    end
//!     │ parts of the      │ waits behind a gap, or for a name     │ too far ahead
//!  ───┴───────────────────┴───────────────────────────────────────┴───►  sequences
//!       message that is     ■  held     ?  missing     ✗  given up
//!       being collected
//! ```

use super::pool::{Buffer, Pool};
use crate::id::Sequence;
use crate::time::Monotonic;
use crate::wire::{Data, LostReason};

/// How far ahead of the oldest datagram in use another one may be, in datagrams.
pub const AHEAD: usize = 1 << 16;

/// The place of one sequence.
#[derive(Debug, Default)]
enum Slot {
    /// It did not arrive, and still may.
    #[default]
    Missing,
    /// It arrived: it waits for its turn, or has a part of the message that is being collected.
    Held { buffer: Buffer, length: u16 },
    /// It was given up.
    Lost(LostReason),
}

const _: () = assert!(size_of::<Slot>() <= 8, "there are 65,536 of them for each stream");

/// What became of the datagram whose turn it is.
pub(super) enum Turned {
    /// It did not arrive, and still may.
    Missing,
    /// It is here.
    Held(Buffer, u16),
    /// It was given up.
    Lost(LostReason),
}

/// The place of a sequence in a table with [`AHEAD`] places.
pub(super) fn place(sequence: Sequence) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "it is below AHEAD")]
    let place = (sequence.get() % AHEAD as u64) as usize;
    place
}

/// What is held of one session.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    /// The oldest sequence whose slot is in use: the first part of the message that is being collected, or
    /// `next`.
    pub(super) base: Sequence,
    /// The sequence whose turn it is: all before it were delivered or given up.
    pub(super) next: Sequence,
    held: usize,
    held_max: usize,
}

impl Slots {
    /// Allocates the slots. At most `held_max` buffers are held.
    pub(super) fn new(first: Sequence, held_max: usize) -> Self {
        let slots = (0..AHEAD).map(|_| Slot::Missing).collect();
        Self { slots, base: first, next: first, held: 0, held_max }
    }

    /// The first sequence that is too far ahead.
    pub(super) const fn end(&self) -> Sequence {
        self.base.plus(AHEAD as u64)
    }

    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// When the oldest of the datagrams that are held arrived.
    pub(super) fn held_since(&self, pool: &Pool) -> Option<Monotonic> {
        let arrival = |slot: &Slot| match slot {
            Slot::Held { buffer, .. } => Some(pool.arrival(buffer)),
            _ => None,
        };
        // Nothing else is held, so the rest of the table need not be read.
        self.slots.iter().filter_map(arrival).take(self.held).min()
    }

    pub(super) const fn has_room(&self) -> bool {
        self.held < self.held_max
    }

    pub(super) fn is_held(&self, sequence: Sequence) -> bool {
        matches!(self.slots[place(sequence)], Slot::Held { .. })
    }

    /// The datagram at a place, if it is held.
    pub(super) fn data<'a>(&self, pool: &'a Pool, sequence: Sequence) -> Option<Data<'a>> {
        let Slot::Held { buffer, length } = &self.slots[place(sequence)] else { return None };
        open(pool, buffer, *length)
    }

    /// Holds a datagram. What was given up there is not lost after all.
    pub(super) fn hold(&mut self, sequence: Sequence, buffer: Buffer, length: u16) {
        self.slots[place(sequence)] = Slot::Held { buffer, length };
        self.held += 1;
    }

    /// Takes what is at a place, which is empty then.
    pub(super) fn take(&mut self, sequence: Sequence) -> Turned {
        match core::mem::take(&mut self.slots[place(sequence)]) {
            Slot::Missing => Turned::Missing,
            Slot::Held { buffer, length } => {
                self.held -= 1;
                Turned::Held(buffer, length)
            }
            Slot::Lost(reason) => Turned::Lost(reason),
        }
    }

    /// Notes that a datagram was given up, if it is not held.
    pub(super) fn lose(&mut self, sequence: Sequence, reason: LostReason) {
        if let slot @ Slot::Missing = &mut self.slots[place(sequence)] {
            *slot = Slot::Lost(reason);
        }
    }

    /// Gives the buffer at a place back, if there is one.
    pub(super) fn release(&mut self, pool: &mut Pool, sequence: Sequence) {
        if self.is_held(sequence)
            && let Turned::Held(buffer, _) = self.take(sequence)
        {
            pool.give(buffer);
        }
    }

    /// Gives the buffers before `end` back, and moves the base there.
    pub(super) fn release_before(&mut self, pool: &mut Pool, end: Sequence) {
        while self.base < end {
            self.release(pool, self.base);
            self.base = self.base.plus(1);
        }
    }

    /// Goes to a sequence for which nothing is held.
    pub(super) const fn jump(&mut self, sequence: Sequence) {
        self.next = sequence;
        self.base = sequence;
    }

    /// Gives all buffers back.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        for slot in &mut self.slots {
            if let Slot::Held { buffer, .. } = core::mem::take(slot) {
                pool.give(buffer);
            }
        }
        self.held = 0;
        self.base = self.next;
    }
}

/// The datagram in a buffer. It was checked when it arrived, so there is one.
pub(super) fn open<'a>(pool: &'a Pool, buffer: &Buffer, length: u16) -> Option<Data<'a>> {
    Data::reopen(pool.get(buffer).get(..usize::from(length))?)
}
