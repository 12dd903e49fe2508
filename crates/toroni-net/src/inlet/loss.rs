//! Losses: what subscribers of the bus learn of them.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::Inlet;
use super::stage::{Item, Staged};
use toroni::{Lost, LostBound, Origin, Pattern};
use toroni_proto::arrivals::Flow;
use toroni_proto::reassembly::{Bound, Loss};
use toroni_proto::wire::LostReason;

impl Inlet {
    /// Returns the loss of one message.
    pub(super) fn one_lost(
        &mut self,
        stream: usize,
        origin: Origin,
        open_from: Option<u64>,
        reason: toroni::LostReason,
    ) -> Option<Staged> {
        let (messages, bound, until) = (1, LostBound::Exact, origin.number.saturating_add(1));
        let scope = self.scope_of(Some(stream));
        let lost = Lost { from: origin, until, messages, bound, reason, scope };
        self.loss_of(stream, lost, open_from)
    }

    /// Returns a loss to stage, unless `accept` leaves out everything that it may be about.
    pub(super) fn loss_of(
        &mut self,
        stream: usize,
        lost: Lost,
        open_from: Option<u64>,
    ) -> Option<Staged> {
        if lost.scope.is_empty() {
            self.counters.filtered = self.counters.filtered.saturating_add(lost.messages);
            return None;
        }
        let origin = lost.from;
        let item = Item::Loss(Box::new(lost));
        Some(Staged { stream, origin, open_from, since: self.delivered(), began: None, item })
    }

    /// Returns patterns of all topics that may be missing: the first segments of the stream's patterns, because a post to
    /// descendants may be among them, as far as they are accepted.
    pub(super) fn scope_of(&self, stream: Option<usize>) -> Vec<Pattern> {
        if let Some(scope) = &self.lost_scope {
            return scope.clone();
        }
        let known = stream.and_then(|at| self.known.get(at));
        let patterns: Option<Vec<Pattern>> = known
            .filter(|known| known.patterns > 0)
            .and_then(|known| known.scope.iter().cloned().collect());
        let everything = || vec![Pattern::everything()];
        let mut scope: Vec<Pattern> = Vec::new();
        for pattern in patterns.unwrap_or_else(everything) {
            let wide = self.widened(&pattern);
            let is_new = scope.iter().all(|other| other.as_str() != wide.as_str());
            let below = Pattern::new(&format!("{pattern}/**")).unwrap_or_else(|_| pattern.clone());
            let is_accepted = self.selection.accept.iter().any(|it| it.intersects(&below));
            if is_new && is_accepted {
                scope.push(wide);
            }
        }
        scope
    }

    fn widened(&self, pattern: &Pattern) -> Pattern {
        let prefix = &self.selection.prefix;
        let first = if prefix.is_empty() { pattern.as_str() } else { prefix };
        let first = first.split('/').next().unwrap_or_default();
        let wide = if first.contains('*') { "**".to_owned() } else { format!("{first}/**") };
        Pattern::new(&wide).unwrap_or_else(|_| Pattern::everything())
    }
}

/// Returns a loss of a stream in the words of the bus.
#[must_use]
pub fn lost_of(flow: Flow, loss: &Loss, scope: Vec<Pattern>) -> Lost {
    // Without numbers it stands where the stream is.
    let number = loss.after.map_or_else(
        || loss.until.map_or(0, |until| until.get().saturating_sub(loss.count)),
        |after| after.get().saturating_add(1),
    );
    let until = loss.until.map_or(number, |until| until.get().max(number));
    let (source, series, stream) = (flow.source.0, flow.series.0, flow.stream.0);
    let from = Origin { source, series, stream, number };
    let bound = match loss.bound_for_subscribers() {
        Bound::Exact => LostBound::Exact,
        Bound::AtMost => LostBound::AtMost,
        Bound::AtLeast => LostBound::AtLeast,
    };
    Lost { from, until, messages: loss.count, bound, reason: reason_of(loss.reason), scope }
}

/// Returns the same reason in the words of the bus.
fn reason_of(reason: LostReason) -> toroni::LostReason {
    match reason {
        LostReason::Gone => toroni::LostReason::Gone,
        LostReason::Budget => toroni::LostReason::Budget,
        LostReason::Memory => toroni::LostReason::Memory,
        LostReason::Burst => toroni::LostReason::Burst,
        LostReason::Jump => toroni::LostReason::Jump,
        LostReason::Restart => toroni::LostReason::Restart,
        LostReason::Silent => toroni::LostReason::Silent,
        LostReason::Topic => toroni::LostReason::Topic,
        LostReason::TooLong => toroni::LostReason::TooLong,
        LostReason::Overtaken => toroni::LostReason::Overtaken,
        LostReason::Diverged => toroni::LostReason::Diverged,
    }
}
