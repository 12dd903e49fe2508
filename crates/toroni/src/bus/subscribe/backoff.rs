//! How a subscriber that has caught up polls for the next message: how fast it checks, and when it stops
//! polling and sleeps.
//!
//! A reader that polls without pause takes the cache line that the writer is about to write away from it
//! at every check, and makes it several times slower. A reader that pauses lets the writer get ahead, and
//! then reads many messages from lines that it fetches once. But a pause adds latency if the next message
//! is the answer to what this reader has just sent. So the reader adapts its pause: a pause in which more
//! than one message came is doubled, one in which at most one came is halved, and a reader without a pause
//! tries a short one now and then.

use crate::bus::polling::adapted;
use std::fmt;

/// How a subscriber waits in its blocking calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Polls all the time. Lowest latency, but it takes a whole core: use it only if there is a core for
    /// each spinning subscriber.
    Spin,
    /// Polls, and yields to other threads in between.
    Yield,
    /// Polls briefly, then yields, then sleeps. The default.
    #[default]
    Backoff,
    /// Sleeps at once. Least CPU time, but a wake-up for each message.
    Block,
}

/// Writes it as the program `toroni` does: `spin`, `yield`, `backoff`, `block`.
impl fmt::Display for WaitStrategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Backoff => "backoff",
            Self::Block => "block",
        })
    }
}

/// What to do at an empty check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bus) enum Step {
    /// Check again after that many pauses of the processor.
    Pause(u32),
    /// Yield to another thread, then check again.
    Yield,
    /// Sleep until woken.
    Sleep,
}

const LONGEST_PAUSE: u32 = 64;
/// The pause that is tried: long enough for several messages of a stream.
const TRIED_PAUSE: u32 = 32;
/// Messages that come one by one before a pause is tried. They count if each comes within
/// `CHECKS_OF_A_STREAM` checks. Each try in vain doubles the number, up to the most.
const SINGLES_UNTIL_TRY: u32 = 16;
const MOST_SINGLES_UNTIL_TRY: u32 = 1024;
const CHECKS_OF_A_STREAM: u32 = 32;
/// Empty checks before `Backoff` and `Yield` yield, at the most, and then before `Backoff` sleeps.
const SPINS: u32 = 200;
const YIELDS: u32 = 10;
/// The interval between two checks whether the bus still exists, in ns. Such a check takes system calls, about a
/// microsecond, which a message that comes at that moment waits for.
const BUS_CHECK_INTERVAL_NS: u64 = 10_000_000;
/// Empty checks between two readings of the clock.
const CHECKS_UNTIL_CLOCK: u32 = 256;

/// The checks of one subscriber.
#[derive(Debug)]
pub(in crate::bus) struct Backoff {
    /// Empty checks since the last message.
    checks: u32,
    /// Empty checks before the last messages.
    checks_before: u32,
    /// Empty checks before the next yield.
    spins: u32,
    /// Pauses of the processor at the first empty check.
    pause: u32,
    /// Messages that came one by one since the last try, and how many are to come until the next.
    singles: u32,
    singles_until_try: u32,
    /// The bus's sequence at the last first empty check.
    sequence: u64,
    /// Sleeps since the last message.
    sleeps: u32,
    /// All empty checks, modulo 2^32.
    empty_checks: u32,
    /// CLOCK_MONOTONIC of the last check whether the bus still exists, in ns.
    bus_checked_ns: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            checks: 0,
            checks_before: 0,
            spins: SPINS,
            pause: 0,
            singles: 0,
            singles_until_try: SINGLES_UNTIL_TRY,
            sequence: 0,
            sleeps: 0,
            empty_checks: 0,
            bus_checked_ns: 0,
        }
    }
}

impl Backoff {
    /// Returns whether the last check was empty.
    #[inline]
    pub(in crate::bus) fn is_idle(&self) -> bool {
        self.checks != 0
    }

    /// Notes that a message was found after empty checks.
    pub(in crate::bus) fn found(&mut self) {
        let was_of_use = self.checks <= self.spins;
        if was_of_use || self.sleeps == 0 {
            self.spins = adapted(self.spins, SPINS, was_of_use);
        }
        self.checks_before = self.checks;
        self.checks = 0;
        self.sleeps = 0;
    }

    /// Notes an empty check, at this sequence of the bus. Returns what to do before the next one.
    pub(in crate::bus) fn empty(&mut self, strategy: WaitStrategy, sequence: u64) -> Step {
        if self.checks == 0 {
            self.learn(sequence.wrapping_sub(self.sequence));
            self.sequence = sequence;
        }
        self.checks = self.checks.saturating_add(1);
        self.empty_checks = self.empty_checks.wrapping_add(1);
        match strategy {
            WaitStrategy::Block => Step::Sleep,
            WaitStrategy::Backoff if self.checks > self.spins + YIELDS => Step::Sleep,
            WaitStrategy::Backoff | WaitStrategy::Yield if self.checks > self.spins => Step::Yield,
            _ if self.checks == 1 => Step::Pause(self.pause),
            _ => Step::Pause(1),
        }
    }

    /// Adapts the pause to the messages that came since the last one.
    fn learn(&mut self, messages: u64) {
        if messages > 1 {
            self.pause = (self.pause * 2 + 1).min(LONGEST_PAUSE);
            self.singles = 0;
            self.singles_until_try = SINGLES_UNTIL_TRY;
            return;
        }
        self.pause /= 2;
        self.singles += 1;
        if self.checks_before > CHECKS_OF_A_STREAM {
            self.singles = 0;
        }
        if self.singles >= self.singles_until_try {
            self.pause = TRIED_PAUSE;
            self.singles = 0;
            self.singles_until_try = (self.singles_until_try * 2).min(MOST_SINGLES_UNTIL_TRY);
        }
    }

    /// Returns whether it is time to check that the bus still exists, for subscribers that never sleep.
    /// `now` returns CLOCK_MONOTONIC in ns. If it is time, returns that, for [`Self::checked_bus`].
    #[inline]
    pub(in crate::bus) fn due_bus_check(&self, now: impl FnOnce() -> u64) -> Option<u64> {
        if !self.empty_checks.is_multiple_of(CHECKS_UNTIL_CLOCK) {
            return None;
        }
        let is_due = |now: &u64| now.saturating_sub(self.bus_checked_ns) >= BUS_CHECK_INTERVAL_NS;
        Some(now()).filter(is_due)
    }

    /// Notes that the bus existed at that time. Until then, the check stays due.
    pub(in crate::bus) fn checked_bus(&mut self, at_ns: u64) {
        self.bus_checked_ns = at_ns;
    }

    /// Notes that the subscriber slept, or was about to: what it has learned about the rate of messages no
    /// longer holds, and polling before the next sleep would find nothing.
    pub(in crate::bus) fn start_over(&mut self) {
        if self.sleeps == 0 {
            self.spins = adapted(self.spins, SPINS, false);
        }
        self.checks = self.spins + YIELDS;
        self.pause = 0;
        self.sleeps = self.sleeps.saturating_add(1);
    }

    /// Returns how often it has slept since the last message.
    pub(in crate::bus) fn sleeps(&self) -> u32 {
        self.sleeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::polling::FEWEST_SPINS;

    /// Runs `times` rounds of empty checks and then messages. Returns the first step of the next round.
    fn pause_after(backoff: &mut Backoff, times: u32, checks: u32, messages: u64) -> Step {
        let mut sequence = backoff.sequence;
        for _ in 0..times {
            for _ in 0..checks {
                backoff.empty(WaitStrategy::Spin, sequence);
            }
            backoff.found();
            sequence += messages;
        }
        backoff.empty(WaitStrategy::Spin, sequence)
    }

    #[test]
    fn pauses_that_pay_grow_and_those_that_do_not_vanish() {
        let mut backoff = Backoff::default();
        assert_eq!(pause_after(&mut backoff, 10, 2, 5), Step::Pause(LONGEST_PAUSE));
        backoff.found();
        assert_eq!(pause_after(&mut backoff, 8, 10, 1), Step::Pause(0));
    }

    #[test]
    fn single_messages_are_tried_ever_less_and_slow_ones_never() {
        let tries = |checks: u32, messages: u64| {
            let mut backoff = Backoff::default();
            let mut count = 0;
            for sequence in 1..=messages {
                for _ in 0..checks {
                    count += u32::from(
                        backoff.empty(WaitStrategy::Spin, sequence) == Step::Pause(TRIED_PAUSE),
                    );
                }
                backoff.found();
            }
            count
        };
        assert!((2..6).contains(&tries(3, 200)), "{}", tries(3, 200));
        assert!((8..20).contains(&tries(3, 10_000)), "{}", tries(3, 10_000));
        assert_eq!(tries(100, 10_000), 0);
    }

    /// Returns whether it was time for a check, which found the bus.
    fn check_bus(backoff: &mut Backoff, now: u64) -> bool {
        let due = backoff.due_bus_check(|| now);
        due.inspect(|at_ns| backoff.checked_bus(*at_ns)).is_some()
    }

    #[test]
    fn a_subscriber_that_polls_for_hours_still_checks_whether_the_bus_exists() {
        let mut backoff =
            Backoff { checks: u32::MAX - 300, empty_checks: u32::MAX - 300, ..Backoff::default() };
        // Each check takes a microsecond.
        let seconds_of_polling = 2;
        let due = (0..seconds_of_polling * 1_000_000).filter(|check| {
            backoff.empty(WaitStrategy::Spin, 0);
            check_bus(&mut backoff, BUS_CHECK_INTERVAL_NS + check * 1000)
        });
        // The clock is read every 256 µs, so an interval takes up to that much longer.
        assert_eq!(due.count(), 196);
    }

    #[test]
    fn checks_for_the_bus_depend_on_time_and_not_on_the_rate_of_polling() {
        let mut backoff = Backoff::default();
        let mut due = |ns_per_check: u64| {
            let first = backoff.bus_checked_ns + BUS_CHECK_INTERVAL_NS;
            (0..100_000_u64)
                .filter(|check| {
                    backoff.empty(WaitStrategy::Spin, 0);
                    check_bus(&mut backoff, first + check * ns_per_check)
                })
                .count()
        };
        assert_eq!(due(10), 1, "1 ms");
        assert!((9..=11).contains(&due(1000)), "100 ms");
    }

    #[test]
    fn polling_that_ends_in_sleep_is_given_up_sooner() {
        let mut backoff = Backoff::default();
        let checks = |backoff: &mut Backoff| {
            let ends =
                |backoff: &mut Backoff| backoff.empty(WaitStrategy::Backoff, 0) == Step::Sleep;
            (1..).find(|_| ends(backoff)).unwrap()
        };
        let first = checks(&mut backoff);
        assert_eq!(first, SPINS + YIELDS + 1);
        for _ in 0..20 {
            backoff.start_over();
            backoff.found();
            checks(&mut backoff);
        }
        backoff.start_over();
        backoff.found();
        assert_eq!(checks(&mut backoff), FEWEST_SPINS + YIELDS + 1);
        // Messages that are found by polling bring it back.
        backoff.start_over();
        backoff.found();
        for _ in 0..20 {
            backoff.empty(WaitStrategy::Backoff, 0);
            backoff.found();
        }
        assert_eq!(checks(&mut backoff), first);
    }

    #[test]
    fn each_strategy_ends_where_it_says() {
        let last = |strategy| {
            let mut backoff = Backoff::default();
            (0..1000).map(|_| backoff.empty(strategy, 0)).last().unwrap()
        };
        assert_eq!(last(WaitStrategy::Spin), Step::Pause(1));
        assert_eq!(last(WaitStrategy::Yield), Step::Yield);
        assert_eq!(last(WaitStrategy::Backoff), Step::Sleep);
        assert_eq!(Backoff::default().empty(WaitStrategy::Block, 0), Step::Sleep);
        assert_eq!(Backoff::default().empty(WaitStrategy::Backoff, 0), Step::Pause(0));
    }
}
