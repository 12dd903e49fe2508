//! How a subscriber that has caught up waits for the next message: how fast it looks, and when it
//! gives up looking and sleeps.
//!
//! A reader that polls without pause takes the line that the writer is about to write away from it
//! at every look, and slows it several times. A reader that pauses lets the writer get ahead, and
//! then reads many messages from lines that it fetches once. But a pause is latency. So it grows only
//! while each look finds a single message almost at once, which is what a stream of messages at full
//! speed looks like to a reader that is faster than its writer; it shrinks as soon as that is over.

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
/// Empty looks before `Backoff` yields, and before it sleeps.
const SPINS: u32 = 200;
const YIELDS: u32 = 10;
/// Empty looks between two questions whether the bus is still there, which are system calls.
const LOOKS_UNTIL_CHECK: u32 = 256;
/// A message that comes within so many empty looks belongs to a stream.
const AT_ONCE: u32 = 2;

/// The looks of one subscriber.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Empty looks since the last message.
    looks: u32,
    /// Pauses before the next look.
    pause: u32,
    /// Sleeps since the last message.
    sleeps: u32,
}

impl Pace {
    /// Whether the last look was empty.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.looks != 0
    }

    /// A message was found after empty looks.
    pub(super) fn found(&mut self) {
        self.pause = if self.looks <= AT_ONCE {
            (self.pause * 2 + 1).min(LONGEST_PAUSE)
        } else {
            self.pause / 4
        };
        self.looks = 0;
        self.sleeps = 0;
    }

    /// A look was empty.
    pub(super) fn empty(&mut self, strategy: WaitStrategy) -> Step {
        self.looks = self.looks.saturating_add(1);
        match strategy {
            WaitStrategy::Block => Step::Sleep,
            WaitStrategy::Backoff if self.looks > SPINS + YIELDS => Step::Sleep,
            WaitStrategy::Backoff | WaitStrategy::Yield if self.looks > SPINS => Step::Yield,
            _ if self.looks == 1 => Step::Pause(self.pause),
            _ => Step::Pause(1),
        }
    }

    /// Whether it is time to ask if the bus is still there: for those who never sleep.
    pub(super) fn is_check_due(&self) -> bool {
        self.looks.is_multiple_of(LOOKS_UNTIL_CHECK)
    }

    /// The subscriber slept, or was about to: what it knew of its messages' rate is over, and polling
    /// before the next sleep would find nothing.
    pub(super) fn start_over(&mut self) {
        *self = Self { looks: SPINS + YIELDS, pause: 0, sleeps: self.sleeps.saturating_add(1) };
    }

    /// How often it has slept since the last message.
    pub(super) fn sleeps(&self) -> u32 {
        self.sleeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_with_growing_pauses_and_a_quiet_bus_with_none() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.empty(WaitStrategy::Spin);
            pace.found();
        }
        assert_eq!(pace.empty(WaitStrategy::Spin), Step::Pause(LONGEST_PAUSE));
        for _ in 0..4 {
            for _ in 0..100 {
                pace.empty(WaitStrategy::Spin);
            }
            pace.found();
        }
        assert_eq!(pace.empty(WaitStrategy::Spin), Step::Pause(0));
    }

    #[test]
    fn each_strategy_ends_where_it_says() {
        let last = |strategy| {
            let mut pace = Pace::default();
            (0..1000).map(|_| pace.empty(strategy)).last().unwrap()
        };
        assert_eq!(last(WaitStrategy::Spin), Step::Pause(1));
        assert_eq!(last(WaitStrategy::Yield), Step::Yield);
        assert_eq!(last(WaitStrategy::Backoff), Step::Sleep);
        assert_eq!(Pace::default().empty(WaitStrategy::Block), Step::Sleep);
        assert_eq!(Pace::default().empty(WaitStrategy::Backoff), Step::Pause(0));
    }
}
