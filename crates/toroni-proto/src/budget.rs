//! Budgets: what each part of the way takes of the time between publisher and subscriber, and whether it takes too
//! long.
//!
//! ```text
//!  publisher ─bus─► outlet ─batching─► datagram ─pacing─► kernel ─network─► kernel ─socket─► node ─order─► ─ring─► subscriber
//!                                                                              repair ↺
//!  └──────────────────────────────────────────── total ────────────────────────────────────────────────┘
//! ```
//!
//! Each part has a [`Budget`]: a histogram, and a limit if one is configured. What exceeds the limit is counted, and
//! reported at most once in 10 s, with the worst case. This crate measures batching and pacing in the
//! [sender](crate::sender), and repair and order in [arrivals](crate::arrivals), because it alone knows these times. A node
//! measures the other parts with budgets of its own.

use crate::histogram::Histogram;
use crate::id::{Source, Stream};
use crate::time::{Monotonic, SECOND};

/// The shortest time between two reports of one part.
pub const REPORT_NS: u64 = 10 * SECOND;

/// A part of the way of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// From the publisher's time stamp until the outlet has the message.
    Bus,
    /// From there until its datagram is closed.
    Batching,
    /// From there until the datagram is given to the kernel: the rate limit.
    Pacing,
    /// From the first sending until the receiving kernel has the datagram. Two clocks.
    Network,
    /// From there until the node reads it.
    Socket,
    /// From a gap until its repair has arrived.
    Repair,
    /// From the arrival of a datagram that is not next until its messages are delivered.
    Order,
    /// From the delivery until the message is in the ring.
    Ring,
    /// From a frame for TCP until its last byte is written.
    TcpQueue,
    /// From the sending, or the publisher's time stamp, until the message is in the ring. Two clocks.
    Total,
}

impl Part {
    /// All parts, in the order of the way.
    pub const ALL: [Self; 10] = [
        Self::Bus,
        Self::Batching,
        Self::Pacing,
        Self::Network,
        Self::Socket,
        Self::Repair,
        Self::Order,
        Self::Ring,
        Self::TcpQueue,
        Self::Total,
    ];

    /// Returns its name in configurations, metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bus => "bus",
            Self::Batching => "batching",
            Self::Pacing => "pacing",
            Self::Network => "network",
            Self::Socket => "socket",
            Self::Repair => "repair",
            Self::Order => "order",
            Self::Ring => "ring",
            Self::TcpQueue => "tcp_queue",
            Self::Total => "total",
        }
    }
}

/// How long each part may take. By default nothing is limited, only measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    each: [Option<u64>; Part::ALL.len()],
}

impl Limits {
    /// Sets the limit of a part, in nanoseconds.
    pub const fn set(&mut self, part: Part, limit_ns: Option<u64>) {
        self.each[part as usize] = limit_ns;
    }

    /// Returns the limit of a part, in nanoseconds.
    #[must_use]
    pub const fn get(&self, part: Part) -> Option<u64> {
        self.each[part as usize]
    }
}

/// One measured time, and where it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Who sends the stream.
    pub source: Source,
    /// Which of its streams.
    pub stream: Stream,
    /// The sequence of the datagram in the parts that this crate measures; in others, the number of the message.
    pub number: u64,
    /// How long it took.
    pub took_ns: u64,
}

/// A part took longer than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Which.
    pub part: Part,
    /// How long it may take.
    pub limit_ns: u64,
    /// How often it took longer since the last report.
    pub times: u64,
    /// The longest of these.
    pub worst: Case,
}

/// The times of one part, and its limit.
#[derive(Debug, Clone)]
pub struct Budget {
    part: Part,
    limit_ns: Option<u64>,
    histogram: Histogram,
    exceeded: u64,
    /// What was not reported yet.
    pending: Option<Exceeded>,
    reported: Option<Monotonic>,
}

impl Budget {
    /// Allocates the budget of a part, without a limit.
    #[must_use]
    pub fn new(part: Part) -> Self {
        Self {
            part,
            limit_ns: None,
            histogram: Histogram::new(),
            exceeded: 0,
            pending: None,
            reported: None,
        }
    }

    /// Sets the limit.
    pub const fn set_limits(&mut self, limits: &Limits) {
        self.limit_ns = limits.get(self.part);
    }

    /// Returns the times so far.
    #[must_use]
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// Returns the limit, in nanoseconds.
    #[must_use]
    pub const fn limit_ns(&self) -> Option<u64> {
        self.limit_ns
    }

    /// Returns how often the part took longer than its limit.
    #[must_use]
    pub const fn exceeded(&self) -> u64 {
        self.exceeded
    }

    /// Counts a time.
    #[inline]
    pub fn record(&mut self, case: Case) {
        self.histogram.record(case.took_ns);
        if let Some(limit_ns) = self.limit_ns
            && case.took_ns > limit_ns
        {
            self.exceed(limit_ns, case);
        }
    }

    #[cold]
    fn exceed(&mut self, limit_ns: u64, case: Case) {
        self.exceeded += 1;
        let part = self.part;
        let pending =
            self.pending.get_or_insert(Exceeded { part, limit_ns, times: 0, worst: case });
        pending.times += 1;
        if case.took_ns > pending.worst.took_ns {
            pending.worst = case;
        }
    }

    /// Forgets the times, and what exceeded the limit. The limit stays.
    pub fn clear(&mut self) {
        self.histogram.clear();
        self.exceeded = 0;
        self.pending = None;
    }

    /// Returns what exceeded the limit, at most once in 10 s.
    pub fn poll(&mut self, now: Monotonic) -> Option<Exceeded> {
        if self.poll_timeout()? > now {
            return None;
        }
        self.reported = Some(now);
        self.pending.take()
    }

    /// Returns when [`Self::poll`] has something.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.pending?;
        Some(self.reported.map_or(Monotonic::default(), |last| last.after(REPORT_NS)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::time::MILLISECOND;

    fn case(number: u64, took_ns: u64) -> Case {
        Case { source: Source(7), stream: Stream(1), number, took_ns }
    }

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(ms * MILLISECOND)
    }

    fn limited(limit_ns: u64) -> Budget {
        let mut limits = Limits::default();
        limits.set(Part::Order, Some(limit_ns));
        let mut budget = Budget::new(Part::Order);
        budget.set_limits(&limits);
        budget
    }

    #[test]
    fn each_part_has_a_place_and_a_name_of_its_own() {
        for (at, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, at);
        }
        let names: BTreeSet<&str> = Part::ALL.into_iter().map(Part::name).collect();
        assert_eq!(names.len(), Part::ALL.len());
    }

    #[test]
    fn without_a_limit_everything_is_measured_and_nothing_reported() {
        let mut budget = Budget::new(Part::Repair);
        budget.set_limits(&Limits::default());
        budget.record(case(1, u64::MAX));
        assert_eq!((budget.histogram().count(), budget.exceeded()), (1, 0));
        assert_eq!((budget.poll_timeout(), budget.poll(at(0))), (None, None));
    }

    #[test]
    fn the_limit_itself_is_not_too_long() {
        let mut budget = limited(5);
        budget.record(case(1, 5));
        assert_eq!((budget.exceeded(), budget.poll(at(0))), (0, None));
        budget.record(case(2, 6));
        let worst = case(2, 6);
        let exceeded = Exceeded { part: Part::Order, limit_ns: 5, times: 1, worst };
        assert_eq!((budget.exceeded(), budget.poll(at(0))), (1, Some(exceeded)));
    }

    #[test]
    fn what_comes_within_10_s_is_reported_together_with_the_worst_case() {
        let mut budget = limited(5);
        budget.record(case(1, 9));
        assert_eq!(budget.poll(at(1_000)).map(|one| one.times), Some(1), "the first one at once");
        for (number, took) in [(2, 6), (3, 8), (4, 8), (5, 7)] {
            budget.record(case(number, took));
            assert_eq!(budget.poll(at(10_999)), None);
        }
        assert_eq!(budget.poll_timeout(), Some(at(11_000)));
        let found = budget.poll(at(11_000)).unwrap();
        assert_eq!((found.times, found.worst), (4, case(3, 8)));
        assert_eq!((budget.poll(at(30_000)), budget.exceeded()), (None, 5));
    }
}
