//! How long repairs take, as a receiver sees it that delivers each message when it arrives.
//!
//! There, a message that comes after one with a higher number was repaired. The last messages of a stream may be repaired
//! without being noticed: nothing comes after them.

use toroni_bench_harness::Failure;
use toroni_bench_harness::summary::Latencies;

/// What is known of the repairs of one stream.
pub(super) struct Repairs {
    /// From sending to arrival, of each message that was repaired.
    pub(super) latencies: Latencies,
    /// The largest gap that was closed; of several, the one that took longest.
    pub(super) largest: Option<Closed>,
    next: u64,
    open: Vec<Gap>,
}

/// A gap whose last message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) messages: u64,
    /// From the message that showed the gap to the last one that was missing.
    pub(super) took_ns: u64,
}

/// Messages in a row that are missing.
struct Gap {
    first: u64,
    end: u64,
    missing: u64,
    noticed_ns: u64,
}

impl Repairs {
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { latencies: Latencies::new()?, largest: None, next: 0, open: Vec::new() })
    }

    /// Notes the arrival of a message. Numbers begin at 0.
    pub(super) fn arrived(&mut self, number: u64, sent_ns: u64, now_ns: u64) {
        if number >= self.next {
            if number > self.next {
                let (first, end) = (self.next, number);
                self.open.push(Gap { first, end, missing: end - first, noticed_ns: now_ns });
            }
            self.next = number + 1;
            return;
        }
        self.latencies.record(now_ns.saturating_sub(sent_ns));
        let Some(at) = self.open.iter().position(|gap| (gap.first..gap.end).contains(&number))
        else {
            return;
        };
        let gap = &mut self.open[at];
        gap.missing -= 1;
        if gap.missing == 0 {
            let messages = gap.end - gap.first;
            let took_ns = now_ns.saturating_sub(gap.noticed_ns);
            let size = |closed: Closed| (closed.messages, closed.took_ns);
            let closed = Closed { messages, took_ns };
            if self.largest.is_none_or(|largest| size(closed) > size(largest)) {
                self.largest = Some(closed);
            }
            self.open.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_after_a_higher_number_was_repaired() {
        let mut repairs = Repairs::new().unwrap();
        for (number, now_ns) in [(0, 10), (1, 20), (3, 40), (4, 50), (2, 530), (5, 540)] {
            repairs.arrived(number, number * 10, now_ns);
        }
        assert_eq!((repairs.latencies.count(), repairs.latencies.max_ns()), (1, 510));
        assert_eq!(repairs.largest, Some(Closed { messages: 1, took_ns: 490 }));
    }

    #[test]
    fn a_gap_is_closed_by_the_last_of_its_messages_in_any_order() {
        let mut repairs = Repairs::new().unwrap();
        repairs.arrived(0, 0, 0);
        repairs.arrived(4, 0, 100);
        // A smaller gap behind it, which takes longer, does not replace it.
        repairs.arrived(6, 0, 110);
        for (number, now_ns) in [(3, 200), (1, 300)] {
            repairs.arrived(number, 0, now_ns);
        }
        assert_eq!(repairs.largest, None);
        repairs.arrived(2, 0, 400);
        repairs.arrived(5, 0, 900);
        assert_eq!(repairs.largest, Some(Closed { messages: 3, took_ns: 300 }));
        assert_eq!(repairs.latencies.count(), 4);
    }

    #[test]
    fn the_first_messages_of_a_stream_may_be_missing() {
        let mut repairs = Repairs::new().unwrap();
        repairs.arrived(1, 0, 100);
        repairs.arrived(0, 0, 150);
        assert_eq!(repairs.largest, Some(Closed { messages: 1, took_ns: 50 }));
    }
}
