//! Losses: what subscribers of the bus learn of them.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::stage::{Item, Staged};
use super::{Inlet, Selection};
use toroni::{Limit, Lost, LostBound, Origin, Pattern};
use toroni_proto::arrivals::Flow;
use toroni_proto::reassembly::{Bound, Loss};
use toroni_proto::time::SECOND;
use toroni_proto::wire::LostReason;

/// See [`Inlet::tell_unlisted`].
const UNLISTED_NS: u64 = 10 * SECOND;
const MOST_UNLISTED: usize = 10;

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
        // Before the stream's patterns are known, all that is accepted may be missing.
        let mut scope: Vec<Pattern> = Vec::new();
        for pattern in patterns.unwrap_or_else(|| self.selection.accept.clone()) {
            let wide = self.selection.widened(&pattern);
            let is_new = scope.iter().all(|other| other.as_str() != wide.as_str());
            let below = Pattern::new(&format!("{pattern}/**")).unwrap_or_else(|_| pattern.clone());
            let is_accepted = self.selection.accept.iter().any(|it| it.intersects(&below));
            if is_new && is_accepted {
                scope.push(wide);
            }
        }
        if scope.len() > Lost::MOST_PATTERNS { vec![Pattern::everything()] } else { scope }
    }

    /// Stages the loss of at most all numbers between these two.
    pub(super) fn stage_gone(&mut self, at: usize, number: u64, until: u64) {
        let Flow { source, series, stream, .. } = self.known[at].flow();
        let from = Origin { source: source.0, series: series.0, stream: stream.0, number };
        let (messages, bound) = (until.saturating_sub(number), LostBound::AtMost);
        let (reason, scope) = (toroni::LostReason::Gone, self.scope_of(Some(at)));
        let lost = Lost { from, until, messages, bound, reason, scope };
        let (lane, lost) = (self.known[at].lane, self.loss_of(at, lost, None));
        self.stage(lane, lost);
    }

    /// Stages a loss that says that more may be missing of a series, from this number on.
    pub(super) fn stage_open_end(&mut self, at: usize, origin: Origin, reason: toroni::LostReason) {
        let lost = Lost {
            from: origin,
            until: origin.number,
            messages: 0,
            bound: LostBound::AtLeast,
            reason,
            scope: self.scope_of(Some(at)),
        };
        let (lane, lost) = (self.known[at].lane, self.loss_of(at, lost, None));
        self.stage(lane, lost);
    }

    /// Tells of a message that was lost because the bus cannot remember its stream: for each stream once in 10 s, and of 10
    /// streams in that time.
    pub(super) fn tell_unlisted(&mut self, at: usize, origin: Origin) {
        let (now, stream) = (self.delivered(), self.known[at].stream);
        if now.since(self.unlisted.0) >= UNLISTED_NS {
            self.unlisted = (now, Vec::new());
        }
        let (_, told) = &mut self.unlisted;
        if told.len() >= MOST_UNLISTED || told.contains(&stream) {
            return;
        }
        let lost = Lost {
            from: origin,
            until: origin.number.saturating_add(1),
            messages: 1,
            bound: LostBound::AtLeast,
            reason: toroni::LostReason::Memory,
            scope: self.scope_of(Some(at)),
        };
        // Without room, the next one tells.
        if !lost.scope.is_empty() && self.bus.publish_lost_unlisted(&lost, Limit::Try).is_ok() {
            self.unlisted.1.push(stream);
            self.counters.losses = self.counters.losses.saturating_add(1);
            self.losses.note(&lost);
        }
    }

    /// Stages that a series does not come any more.
    pub(super) fn stage_release(&mut self, at: usize, origin: Origin, is_over: bool) {
        let (lane, since) = (self.known[at].lane, self.delivered());
        let item = Item::Release { is_over };
        self.stage(
            lane,
            Some(Staged { stream: at, origin, open_from: None, since, began: None, item }),
        );
    }
}

impl Selection {
    /// Returns a pattern of all topics of the bus that have the first segment of this pattern of the stream.
    pub(super) fn widened(&self, pattern: &Pattern) -> Pattern {
        let prefix = &self.prefix;
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
