//! Reassembly in the order that the configuration asks for.

use super::{Arrival, Buffer, ByArrival, Counted, Deliver, InOrder, Pool, Refused};
use crate::config::Order;
use crate::id::{MessageNumber, Number, Sequence};
use crate::time::Monotonic;
use crate::wire::{LostReason, Range};

/// [`InOrder`] or [`ByArrival`].
#[derive(Debug)]
pub(crate) enum Reassembly {
    InOrder(InOrder),
    ByArrival(ByArrival),
}

macro_rules! either {
    ($self:expr, $one:ident => $call:expr) => {
        match $self {
            Self::InOrder($one) => $call,
            Self::ByArrival($one) => $call,
        }
    };
}

impl Reassembly {
    /// Allocates what one stream needs.
    pub(crate) fn new(order: Order, held_max: usize) -> Self {
        let first = Sequence::ZERO;
        match order {
            Order::Source => Self::InOrder(InOrder::new(first, None, held_max)),
            Order::Arrival => Self::ByArrival(ByArrival::new(first, None, held_max)),
        }
    }

    /// Begins a session at `first`; see [`InOrder::new`].
    pub(crate) fn restart(&mut self, pool: &mut Pool, first: Sequence, counted: Option<Counted>) {
        either!(self, one => one.restart(pool, first, counted));
    }

    /// The first sequence whose turn has not come.
    pub(crate) const fn next(&self) -> Sequence {
        either!(self, one => one.next())
    }

    /// The first message that was neither delivered nor reported as lost, if anything was received.
    pub(crate) const fn next_message(&self) -> Option<MessageNumber> {
        either!(self, one => one.next_message())
    }

    /// What was counted there.
    pub(crate) fn counted(&self) -> Option<Counted> {
        either!(self, one => one.counted())
    }

    /// By arrival, the greatest number before which nothing is open.
    pub(crate) const fn settled(&self) -> Option<Number> {
        match self {
            Self::InOrder(_) => None,
            Self::ByArrival(one) => one.number(),
        }
    }

    /// When the oldest datagram that is held arrived.
    pub(crate) fn held_since(&self, pool: &Pool) -> Option<Monotonic> {
        either!(self, one => one.held_since(pool))
    }

    /// How many buffers are held.
    pub(crate) const fn held(&self) -> usize {
        either!(self, one => one.held())
    }

    /// Whether a datagram is here and waits for a name.
    pub(crate) fn is_blocked(&self) -> bool {
        either!(self, one => one.is_blocked())
    }

    pub(crate) fn datagram(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        buffer: Buffer,
        length: u16,
        out: &mut impl Deliver,
    ) -> Result<Arrival, Refused> {
        either!(self, one => one.datagram(pool, sequence, buffer, length, out))
    }

    pub(crate) fn give_up(
        &mut self,
        pool: &mut Pool,
        range: Range,
        reason: LostReason,
        out: &mut impl Deliver,
    ) {
        either!(self, one => one.give_up(pool, range, reason, out));
    }

    pub(crate) fn retry(&mut self, pool: &mut Pool, force: bool, out: &mut impl Deliver) {
        either!(self, one => one.retry(pool, force, out));
    }

    pub(crate) fn skip_to(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        reason: LostReason,
        out: &mut impl Deliver,
    ) {
        either!(self, one => one.skip_to(pool, sequence, reason, out));
    }

    pub(crate) fn session(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        counted: Counted,
        number: Number,
        out: &mut impl Deliver,
    ) {
        either!(self, one => one.session(pool, sequence, counted, number, out));
    }

    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        either!(self, one => one.clear(pool));
    }
}
