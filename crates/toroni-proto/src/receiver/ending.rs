//! The end of a session: what is reported when the source is silent, or another session follows.

use super::{End, Phase, Position, Receiver};
use crate::config::Order;
use crate::hook::mutant;
use crate::id::Number;
use crate::reassembly::{Bound, Deliver, Loss, Pool};
use crate::wire::LostReason;

/// Why a session is not followed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The source is silent.
    Silent,
    /// Another session of the same series follows, and brings the numbers from this one on.
    Continued(Number),
    /// A session of another series follows.
    Replaced,
}

impl Receiver {
    /// Ends the session. Reports what is missing, unless the next session brings it again.
    pub fn close(&mut self, why: Over, pool: &mut Pool, out: &mut impl Deliver) {
        match why {
            Over::Silent => self.finish(LostReason::Silent, pool, out),
            Over::Replaced if mutant("held_thrown_away") => {}
            Over::Replaced => self.finish(LostReason::Restart, pool, out),
            Over::Continued(begins) => self.hand_over(begins, pool, out),
        }
        self.release(pool);
    }

    /// Delivers and reports what the next session does not bring again.
    fn hand_over(&mut self, begins: Number, pool: &mut Pool, out: &mut impl Deliver) {
        match self.config.order {
            // What was delivered behind a gap must not come again, so the gap ends here.
            Order::Arrival => {}
            Order::Source if self.delivery.mark < Some(begins) => {
                if !mutant("handed_over_twice") {
                    self.delivery.limit(begins);
                }
            }
            Order::Source => return,
        }
        self.give_up_all(LostReason::Restart, pool, out);
    }

    /// Gives all buffers back, and reports nothing.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        match self.phase {
            Phase::Joining => self.joining.release(pool),
            Phase::Live => self.live.reassembly.clear(pool),
            Phase::Ended(_) => return,
        }
        self.phase = Phase::Ended(End::Silent);
    }

    fn finish(&mut self, reason: LostReason, pool: &mut Pool, out: &mut impl Deliver) {
        if let Some(Position { counted, .. }) = self.give_up_all(reason, pool, out)
            && !mutant("silence_not_told")
        {
            // What was sent last and lost with the host is unknown.
            let after = self.delivery.mark.and_then(Number::before);
            let bound = Bound::AtLeast;
            let message = counted.message;
            out.loss(Loss { message, count: 0, bound, reason, after, until: None });
        }
    }

    /// Reports all that is known to be missing. Returns where the session was left.
    fn give_up_all(
        &mut self,
        reason: LostReason,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) -> Option<Position> {
        if !self.is_live() {
            return None;
        }
        self.resume = Some(self.live.give_up_all(reason, pool, &mut self.delivery.to(out)));
        self.resume
    }
}
