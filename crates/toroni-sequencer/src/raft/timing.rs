//! How long members wait for a leader before they elect another one.

use std::ops::Range;
use std::time::Duration;

/// When members elect a leader, and how a leader shows that it lives. Everything else about elections follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// A voter holds to the leader that it has heard from until the end of this range. Its beginning must be longer than a
    /// heartbeat [150 to 300 ms].
    pub election: Range<Duration>,
    /// How often a leader shows that it lives [50 ms].
    pub heartbeat: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { election: ms(150)..ms(300), heartbeat: ms(50) }
    }
}

impl Timing {
    /// A voter holds to the leader for this long after it has heard from it. openraft takes its longest election
    /// timeout.
    pub(super) const fn lease(&self) -> Duration {
        self.election.end
    }

    /// How long after a sign of a leader another member can be elected. A heartbeat may reach another member later than
    /// this one, and so may the end of the lease there.
    pub(super) fn silence(&self) -> Duration {
        self.lease() * 19 / 15
    }

    /// How long after the member before it a member has its turn.
    pub(super) fn turn(&self) -> Duration {
        self.lease() / 5
    }

    /// A leader that no majority has acknowledged for this long does not say any more that it leads.
    pub(super) fn isolated(&self) -> Duration {
        self.lease() * 2
    }

    /// A member that saw a longer log than its own leaves so much time to the one that has it.
    pub(super) fn gives_way(&self) -> Duration {
        self.lease() * 5 / 3
    }

    /// An election without a winner is repeated after this time, and up to as much again; later ones after twice as
    /// long. A repetition gives up the votes that are on their way, so it must leave slow disks the time to keep them.
    pub(super) const fn again(&self) -> Duration {
        self.lease()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_follows_the_lease() {
        let ms = Duration::from_millis;
        let timing = Timing::default();
        assert_eq!(
            (timing.silence(), timing.turn(), timing.gives_way()),
            (ms(380), ms(60), ms(500))
        );
        let slow = Timing { election: ms(600)..ms(1_200), ..timing };
        assert_eq!(
            (slow.silence(), slow.turn(), slow.gives_way()),
            (ms(1_520), ms(240), ms(2_000))
        );
    }
}
