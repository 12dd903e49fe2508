//! How long a stream waits for repairs, and for its order.

use crate::budget::{Budget, Case, Exceeded, Limits, Part};
use crate::id::{Sequence, Source, Stream};
use crate::time::{self, Monotonic};
use crate::wire::Header;

/// The two parts of the way that only a receiver sees.
#[derive(Debug)]
pub(super) struct Timing {
    source: Source,
    stream: Stream,
    /// The time of the present turn.
    pub(super) now: Monotonic,
    pub(super) repair: Budget,
    pub(super) order: Budget,
}

impl Timing {
    pub(super) fn new(header: &Header) -> Self {
        Self {
            source: header.source,
            stream: header.stream,
            now: Monotonic::default(),
            repair: Budget::new(Part::Repair),
            order: Budget::new(Part::Order),
        }
    }

    /// Forgets the times of another stream. Those of another session of the same stream stay.
    pub(super) fn restart(&mut self, header: &Header) {
        if (self.source, self.stream) != (header.source, header.stream) {
            (self.source, self.stream) = (header.source, header.stream);
            self.repair.clear();
            self.order.clear();
        }
    }

    pub(super) const fn set_limits(&mut self, limits: &Limits) {
        self.repair.set_limits(limits);
        self.order.set_limits(limits);
    }

    /// A datagram that was missing since then has arrived.
    pub(super) fn repaired(&mut self, sequence: Sequence, since: Monotonic) {
        let case = self.case(sequence, since);
        self.repair.record(case);
    }

    /// The turn of a datagram has come that arrived then.
    pub(super) fn waited(&mut self, sequence: Sequence, since: Monotonic) {
        let case = self.case(sequence, since);
        self.order.record(case);
    }

    pub(super) fn poll(&mut self, now: Monotonic) -> Option<Exceeded> {
        self.repair.poll(now).or_else(|| self.order.poll(now))
    }

    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        time::earliest([self.repair.poll_timeout(), self.order.poll_timeout()])
    }

    fn case(&self, sequence: Sequence, since: Monotonic) -> Case {
        let Self { source, stream, now, .. } = *self;
        Case { source, stream, number: sequence.get(), took_ns: now.since(since) }
    }
}
