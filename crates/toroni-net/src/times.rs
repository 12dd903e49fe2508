//! Times: how long the parts of the way take that a node sees, and the protocol does not.
//!
//! ```text
//!   publisher ──bus──► outlet …… kernel ──socket──► node …… delivered ──ring──► committed
//!                        sent ──network──► kernel
//!       └─────────────────────────────── total ───────────────────────────────┘
//! ```
//!
//! The calendar clocks of two hosts differ, so `network` and `total` are as exact as these.

use toroni_proto::budget::{Budget, Case, Exceeded, Limits, Part};
use toroni_proto::id::{Source, Stream};
use toroni_proto::time::{Monotonic, Wall};
use toroni_proto::wire::FirstSent;

/// From the publisher's time stamp until the outlet has the message.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bus: Budget,
    source: Source,
    stream: Stream,
}

impl Taken {
    pub(crate) fn new(source: Source, stream: Stream) -> Self {
        Self { bus: Budget::new(Part::Bus), source, stream }
    }

    /// A message with this number was taken from the bus.
    #[inline]
    pub(crate) fn record(&mut self, now: Wall, published: Wall, number: u64) {
        let Self { source, stream, .. } = *self;
        self.bus.record(Case { source, stream, number, took_ns: now.since(published) });
    }
}

/// Before and in the node that receives.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) network: Budget,
    pub(crate) socket: Budget,
}

impl Default for Received {
    fn default() -> Self {
        Self { network: Budget::new(Part::Network), socket: Budget::new(Part::Socket) }
    }
}

impl Received {
    /// A DATA datagram was accepted, which the kernel received at `at`.
    #[inline]
    pub(crate) fn record(&mut self, now: Wall, at: Wall, first: &FirstSent) {
        let &FirstSent { source, stream, sequence, sent } = first;
        let number = sequence.get();
        let case = |took_ns| Case { source, stream, number, took_ns };
        self.network.record(case(at.since(sent)));
        self.socket.record(case(now.since(at)));
    }

    pub(crate) fn budgets_mut(&mut self) -> [&mut Budget; 2] {
        [&mut self.network, &mut self.socket]
    }
}

/// From the delivery, and from the beginning, until a message is in the ring.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) ring: Budget,
    pub(crate) total: Budget,
}

impl Default for Committed {
    fn default() -> Self {
        Self { ring: Budget::new(Part::Ring), total: Budget::new(Part::Total) }
    }
}

impl Committed {
    /// Records a message that is in the ring now, `waited_ns` after it was delivered to the inlet. `began` is the
    /// publisher's time stamp, or else when its datagram was sent first.
    #[inline]
    pub(crate) fn record(
        &mut self,
        (source, stream, number): (Source, Stream, u64),
        waited_ns: u64,
        now: Wall,
        began: Option<Wall>,
    ) {
        self.ring.record(Case { source, stream, number, took_ns: waited_ns });
        if let Some(began) = began {
            self.total.record(Case { source, stream, number, took_ns: now.since(began) });
        }
    }

    pub(crate) fn budgets_mut(&mut self) -> [&mut Budget; 2] {
        [&mut self.ring, &mut self.total]
    }
}

/// Sets the limits of budgets.
pub(crate) fn set_limits<'a>(budgets: impl IntoIterator<Item = &'a mut Budget>, limits: &Limits) {
    budgets.into_iter().for_each(|budget| budget.set_limits(limits));
}

/// Returns what took longer than it may, at most once in 10 s for each part.
pub(crate) fn exceeded<'a>(
    budgets: impl IntoIterator<Item = &'a mut Budget>,
    now: Monotonic,
) -> Option<Exceeded> {
    budgets.into_iter().find_map(|budget| budget.poll(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::id::Sequence;

    #[test]
    fn each_part_begins_where_the_one_before_ends() {
        let at = |ms: u64| Wall::from_ns(1_000_000_000 + ms * 1_000_000);
        let (source, stream) = (Source(1), Stream(2));
        let mut taken = Taken::new(source, stream);
        taken.record(at(5), at(2), 7);
        let mut received = Received::default();
        let first = FirstSent { source, stream, sequence: Sequence::ZERO, sent: at(10) };
        received.record(at(17), at(13), &first);
        let mut committed = Committed::default();
        committed.record((source, stream, 7), 1_000_000, at(19), Some(at(2)));
        committed.record((source, stream, 8), 1_000_000, at(19), None);
        let found =
            [&taken.bus, &received.network, &received.socket, &committed.ring, &committed.total];
        let found =
            found.map(|it| (it.histogram().count(), it.histogram().longest_ns() / 1_000_000));
        assert_eq!(found, [(1, 3), (1, 3), (1, 4), (2, 1), (1, 17)]);
    }

    #[test]
    fn limits_reach_the_budgets_and_what_exceeds_them_is_reported() {
        let mut limits = Limits::default();
        limits.set(Part::Total, Some(5));
        let mut committed = Committed::default();
        set_limits(committed.budgets_mut(), &limits);
        committed.record((Source(1), Stream(2), 3), 0, Wall::from_ns(9), Some(Wall::from_ns(2)));
        let found = exceeded(committed.budgets_mut(), Monotonic::default()).unwrap();
        assert_eq!((found.part, found.worst.took_ns, found.worst.number), (Part::Total, 7, 3));
        assert_eq!(exceeded(committed.budgets_mut(), Monotonic::default()), None);
    }
}
