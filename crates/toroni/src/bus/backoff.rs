//! How a subscriber that has caught up waits for the next message: how fast it looks, and when it
//! gives up looking and sleeps.
//!
//! A reader that polls without pause takes the line that the writer is about to write away from it
//! at every look, and slows it several times. A reader that pauses lets the writer get ahead, and
//! then reads many messages from lines that it fetches once. But a pause is latency, where the next
//! message is the answer to what this reader has just sent. So a pause has to pay: one in which more
//! than one message came is doubled, one that collected nothing is halved, and a reader that does
//! without one tries a short one now and then.

use std::fmt;

/// How a subscriber waits in its blocking calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Polls all the time: lowest latency, a whole core. Only with a core for each that spins.
    Spin,
    /// Polls, and lets others run in between.
    Yield,
    /// Polls briefly, then yields, then sleeps. The default.
    #[default]
    Backoff,
    /// Sleeps at once: least CPU time, and a wake-up for each message.
    Block,
}

/// As the program `toroni` writes it: `spin`, `yield`, `backoff`, `block`.
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

/// What to do at an empty look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Look again after so many pauses of the processor.
    Pause(u32),
    /// Let another thread run, then look again.
    Yield,
    /// Sleep until woken.
    Sleep,
}

const LONGEST_PAUSE: u32 = 64;
/// The pause that is tried: long enough for several messages of a stream.
const TRIED_PAUSE: u32 = 32;
/// Messages that come one by one, each within so many looks, until a pause is tried. Each try in vain
/// doubles their number, up to the most.
const SINGLES_UNTIL_TRY: u32 = 16;
const MOST_SINGLES_UNTIL_TRY: u32 = 1024;
const LOOKS_OF_A_STREAM: u32 = 32;
/// Empty looks before `Backoff` and `Yield` yield, at the most, and then before `Backoff` sleeps.
const SPINS: u32 = 200;
const YIELDS: u32 = 10;
/// Whoever polls, whatever for, looks so often at the least; see [`adapted`].
pub(super) const FEWEST_SPINS: u32 = 4;
/// Empty looks between two questions whether the bus is still there, which are system calls.
const LOOKS_UNTIL_CHECK: u32 = 256;

/// The looks of one subscriber.
#[derive(Debug)]
pub(super) struct Pace {
    /// Empty looks since the last message.
    looks: u32,
    /// Empty looks before the last messages.
    looks_before: u32,
    /// Empty looks before the next yield.
    spins: u32,
    /// Pauses of the processor at the first empty look.
    pause: u32,
    /// Messages that came one by one since the last try, and how many are to come until the next.
    singles: u32,
    singles_until_try: u32,
    /// The bus's sequence at the last first empty look.
    sequence: u64,
    /// Sleeps since the last message.
    sleeps: u32,
    /// All empty looks, modulo 2^32.
    empty_looks: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            looks: 0,
            looks_before: 0,
            spins: SPINS,
            pause: 0,
            singles: 0,
            singles_until_try: SINGLES_UNTIL_TRY,
            sequence: 0,
            sleeps: 0,
            empty_looks: 0,
        }
    }
}

impl Pace {
    /// Whether the last look was empty.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.looks != 0
    }

    /// A message was found after empty looks.
    pub(super) fn found(&mut self) {
        let was_of_use = self.looks <= self.spins;
        if was_of_use || self.sleeps == 0 {
            self.spins = adapted(self.spins, SPINS, was_of_use);
        }
        self.looks_before = self.looks;
        self.looks = 0;
        self.sleeps = 0;
    }

    /// A look was empty, at this sequence of the bus.
    pub(super) fn empty(&mut self, strategy: WaitStrategy, sequence: u64) -> Step {
        if self.looks == 0 {
            self.learn(sequence.wrapping_sub(self.sequence));
            self.sequence = sequence;
        }
        self.looks = self.looks.saturating_add(1);
        self.empty_looks = self.empty_looks.wrapping_add(1);
        match strategy {
            WaitStrategy::Block => Step::Sleep,
            WaitStrategy::Backoff if self.looks > self.spins + YIELDS => Step::Sleep,
            WaitStrategy::Backoff | WaitStrategy::Yield if self.looks > self.spins => Step::Yield,
            _ if self.looks == 1 => Step::Pause(self.pause),
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
        if self.looks_before > LOOKS_OF_A_STREAM {
            self.singles = 0;
        }
        if self.singles >= self.singles_until_try {
            self.pause = TRIED_PAUSE;
            self.singles = 0;
            self.singles_until_try = (self.singles_until_try * 2).min(MOST_SINGLES_UNTIL_TRY);
        }
    }

    /// Whether it is time to ask if the bus is still there: for those who never sleep.
    pub(super) fn is_check_due(&self) -> bool {
        self.empty_looks.is_multiple_of(LOOKS_UNTIL_CHECK)
    }

    /// The subscriber slept, or was about to: what it knew of its messages' rate is over, and polling
    /// before the next sleep would find nothing.
    pub(super) fn start_over(&mut self) {
        if self.sleeps == 0 {
            self.spins = adapted(self.spins, SPINS, false);
        }
        self.looks = self.spins + YIELDS;
        self.pause = 0;
        self.sleeps = self.sleeps.saturating_add(1);
    }

    /// How often it has slept since the last message.
    pub(super) fn sleeps(&self) -> u32 {
        self.sleeps
    }
}

/// How often to look the next time, at the most `most`, after `spins` looks were of use or not. Where what is
/// looked for comes only after others have run, as with more processes than cores, polling is given up
/// sooner; where it finds something, later.
pub(super) fn adapted(spins: u32, most: u32, was_of_use: bool) -> u32 {
    if was_of_use { (spins * 2).min(most) } else { (spins / 2).max(FEWEST_SPINS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `times` rounds of so many empty looks and then messages; the first pause of the next round.
    fn pause_after(pace: &mut Pace, times: u32, looks: u32, messages: u64) -> Step {
        let mut sequence = pace.sequence;
        for _ in 0..times {
            for _ in 0..looks {
                pace.empty(WaitStrategy::Spin, sequence);
            }
            pace.found();
            sequence += messages;
        }
        pace.empty(WaitStrategy::Spin, sequence)
    }

    #[test]
    fn pauses_that_pay_grow_and_those_that_do_not_vanish() {
        let mut pace = Pace::default();
        assert_eq!(pause_after(&mut pace, 10, 2, 5), Step::Pause(LONGEST_PAUSE));
        pace.found();
        assert_eq!(pause_after(&mut pace, 8, 10, 1), Step::Pause(0));
    }

    #[test]
    fn single_messages_are_tried_ever_less_and_slow_ones_never() {
        let tries = |looks: u32, messages: u64| {
            let mut pace = Pace::default();
            let mut count = 0;
            for sequence in 1..=messages {
                for _ in 0..looks {
                    count += u32::from(
                        pace.empty(WaitStrategy::Spin, sequence) == Step::Pause(TRIED_PAUSE),
                    );
                }
                pace.found();
            }
            count
        };
        assert!((2..6).contains(&tries(3, 200)), "{}", tries(3, 200));
        assert!((8..20).contains(&tries(3, 10_000)), "{}", tries(3, 10_000));
        assert_eq!(tries(100, 10_000), 0);
    }

    #[test]
    fn whoever_polls_for_hours_still_asks_whether_the_bus_is_there() {
        let mut pace =
            Pace { looks: u32::MAX - 300, empty_looks: u32::MAX - 300, ..Pace::default() };
        let due = (0..2048).filter(|_| {
            pace.empty(WaitStrategy::Spin, 0);
            pace.is_check_due()
        });
        assert_eq!(due.count(), 8);
    }

    #[test]
    fn polling_that_ends_in_sleep_is_given_up_sooner() {
        let mut pace = Pace::default();
        let looks = |pace: &mut Pace| {
            let ends = |pace: &mut Pace| pace.empty(WaitStrategy::Backoff, 0) == Step::Sleep;
            (1..).find(|_| ends(pace)).unwrap()
        };
        let first = looks(&mut pace);
        assert_eq!(first, SPINS + YIELDS + 1);
        for _ in 0..20 {
            pace.start_over();
            pace.found();
            looks(&mut pace);
        }
        pace.start_over();
        pace.found();
        assert_eq!(looks(&mut pace), FEWEST_SPINS + YIELDS + 1);
        // Messages that are found by polling bring it back.
        pace.start_over();
        pace.found();
        for _ in 0..20 {
            pace.empty(WaitStrategy::Backoff, 0);
            pace.found();
        }
        assert_eq!(looks(&mut pace), first);
    }

    #[test]
    fn each_strategy_ends_where_it_says() {
        let last = |strategy| {
            let mut pace = Pace::default();
            (0..1000).map(|_| pace.empty(strategy, 0)).last().unwrap()
        };
        assert_eq!(last(WaitStrategy::Spin), Step::Pause(1));
        assert_eq!(last(WaitStrategy::Yield), Step::Yield);
        assert_eq!(last(WaitStrategy::Backoff), Step::Sleep);
        assert_eq!(Pace::default().empty(WaitStrategy::Block, 0), Step::Sleep);
        assert_eq!(Pace::default().empty(WaitStrategy::Backoff, 0), Step::Pause(0));
    }
}
