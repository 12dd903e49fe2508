//! Missing: a part of a stream that was not received, and what of it has been brought since.

use toroni_proto::id::{MessageNumber, Number};
use toroni_proto::reassembly::{Bound, Loss};
use toroni_proto::wire::LostReason;

/// Numbers of a stream that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Everything below was brought or reported.
    pub(super) next: Number,
    /// Where the stream continues. `None`: that is not known yet.
    pub(super) until: Option<Number>,
    /// How many messages are missing, as the bound says.
    count: u64,
    bound: Bound,
    reason: LostReason,
    /// What was overwritten before the first message is no loss.
    joins: bool,
}

impl Missing {
    /// Returns what a loss is about, if its numbers are known and the source may still have them.
    pub(super) fn of(loss: &Loss) -> Option<Self> {
        let is_known_to_source =
            matches!(loss.reason, LostReason::Topic | LostReason::TooLong | LostReason::Overtaken);
        if is_known_to_source || loss.bound == Bound::AtLeast {
            return None;
        }
        let next = loss.after.map_or(Number::ZERO, |after| after.plus(1));
        let until = loss.until.filter(|until| *until > next)?;
        let Loss { count, bound, reason, .. } = *loss;
        Some(Self { next, until: Some(until), count, bound, reason, joins: false })
    }

    /// The history before the first message that is received, from this number on. `None`: as much as there is.
    pub(super) fn history(from: Option<Number>) -> Self {
        let (next, joins) = (from.unwrap_or_default(), from.is_none());
        let (bound, reason) = (Bound::AtMost, LostReason::Gone);
        Self { next, until: None, count: 0, bound, reason, joins }
    }

    /// Notes where the stream continues.
    pub(super) fn ends_at(&mut self, until: Number) {
        if self.until.is_none_or(|known| known < until) {
            self.count = until.since(self.next);
            self.until = Some(until);
        }
    }

    /// Adds a message that was received and not kept.
    pub(super) fn add_message(&mut self, number: Number) {
        self.count = self.count.saturating_add(1);
        self.until = self.until.max(Some(number.plus(1)));
    }

    /// Adds what a later loss is about.
    pub(super) fn add(&mut self, later: &Self) {
        self.count = self.count.saturating_add(later.count);
        self.until = self.until.max(later.until);
        if later.bound != Bound::Exact {
            self.bound = later.bound;
        }
    }

    /// Notes a message that was brought. Returns whether it is one of those that are missing.
    pub(super) fn brought(&mut self, number: Number) -> bool {
        let is_missing = number >= self.next && self.until.is_none_or(|until| number < until);
        if is_missing {
            self.joins = false;
            self.next = number.plus(1);
            self.count = self.count.saturating_sub(1);
        }
        is_missing
    }

    /// Notes that everything below this number was brought, as far as it is there.
    pub(super) fn passed(&mut self, number: Number) {
        self.next = self.next.max(self.until.map_or(number, |until| number.min(until)));
    }

    /// Returns whether everything was brought or reported.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| self.next >= until)
    }

    /// The source does not bring what this loss is about. Returns the loss of what is missing of it.
    pub(super) fn gone(&mut self, lost: &Loss) -> Option<Loss> {
        let Loss { bound, reason, .. } = *lost;
        let below = lost.until?;
        let until = self.until.map_or(below, |until| below.min(until));
        if until <= self.next {
            return None;
        }
        let after = self.next.before();
        let most = if bound == Bound::AtLeast { u64::MAX } else { lost.count };
        let is_missing = lost.after >= after && until == below;
        let is_rest = Some(until) == self.until;
        let (count, bound) = match (self.bound, is_rest) {
            // The source knows how many these are, and all of them are missing.
            _ if bound == Bound::Exact && is_missing => (most, bound),
            (Bound::Exact, true) => (self.count, Bound::Exact),
            (Bound::Exact, false) => (most.min(self.count), Bound::AtMost),
            _ => (most.min(until.since(self.next)), Bound::AtMost),
        };
        let joins = self.joins;
        // If some of these were not of the stream, more of the rest is missing.
        self.count = self.count.saturating_sub(count);
        self.next = until;
        (!joins && count > 0).then_some(Loss {
            message: MessageNumber::ZERO,
            count,
            bound,
            reason,
            after,
            until: Some(until),
        })
    }

    /// Nothing more is brought. Returns the loss of the rest.
    pub(super) fn rest(mut self) -> Option<Loss> {
        let (reason, until, count) = (self.reason, self.until, u64::MAX);
        let (message, bound, after) = (MessageNumber::ZERO, Bound::AtMost, None);
        self.gone(&Loss { message, count, bound, reason, after, until })
    }

    /// All of it was brought, as the source says. Returns the loss of what it has not brought although it was counted.
    pub(super) fn shortfall(&self) -> Option<Loss> {
        let is_short = self.bound == Bound::Exact && self.count > 0;
        is_short.then(|| Loss {
            message: MessageNumber::ZERO,
            count: self.count,
            bound: Bound::Exact,
            reason: self.reason,
            after: self.next.before(),
            until: Some(self.next),
        })
    }
}
