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

    /// Notes what had to be let go of a stream while the bus could not be asked how far that has arrived.
    pub(super) fn miss(&mut self, stream: usize, lost: Option<Staged>) {
        let Some(Staged { item: Item::Loss(lost), .. }) = lost else { return };
        if let Some(known) = self.known.get_mut(stream) {
            match &mut known.missed {
                Some(before) => join(before, &lost),
                none => *none = Some(*lost),
            }
        }
    }

    /// Returns patterns of all topics that may be missing: the first segments of the stream's patterns, because a post to
    /// descendants may be among them, as far as they are accepted.
    pub(super) fn scope_of(&self, stream: Option<usize>) -> Vec<Pattern> {
        if let Some(scope) = &self.lost_scope {
            return scope.clone();
        }
        let known = stream.and_then(|at| self.known.get(at));
        if let Some(known) = known.filter(|known| !known.carried.is_empty()) {
            let scope = self.selection.scope_of(&known.carried);
            return if scope.is_empty() { self.selection.scope() } else { scope };
        }
        let patterns: Option<Vec<Pattern>> = known
            .filter(|known| known.patterns > 0)
            .and_then(|known| known.scope.iter().cloned().collect());
        patterns.map_or_else(|| self.selection.scope(), |all| self.selection.scope_of(&all))
    }

    /// Stages the loss of at most all numbers between these two.
    pub(super) fn stage_gone(&mut self, at: usize, number: u64, until: u64) {
        let from = origin_of(self.known[at].flow(), number);
        let (messages, bound) = (until.saturating_sub(number), LostBound::AtMost);
        let (reason, scope) = (toroni::LostReason::Gone, self.scope_of(Some(at)));
        let lost = Lost { from, until, messages, bound, reason, scope };
        let (lane, lost) = (self.known[at].lane, self.loss_of(at, lost, None));
        self.stage(lane, lost);
    }

    /// Stages a loss that says that more may be missing of a series, from this number on.
    pub(super) fn stage_open_end(&mut self, at: usize, origin: Origin, reason: toroni::LostReason) {
        let lost = open_end(origin, reason, self.scope_of(Some(at)));
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
            self.count(&lost);
        }
    }

    /// Counts a loss that the bus took beside the stage.
    pub(super) fn count(&mut self, lost: &Lost) {
        self.counters.losses = self.counters.losses.saturating_add(1);
        self.counters.lost = self.counters.lost.saturating_add(lost.messages);
        self.losses.note(lost);
    }

    /// Stages that a series does not come any more.
    pub(super) fn stage_release(&mut self, at: usize, origin: Origin, is_over: bool) {
        self.stage_item(at, origin, Item::Release { is_over });
    }

    /// Stages something that is neither a message nor a loss.
    pub(super) fn stage_item(&mut self, at: usize, origin: Origin, item: Item) {
        let (lane, since) = (self.known[at].lane, self.delivered());
        self.stage(
            lane,
            Some(Staged { stream: at, origin, open_from: None, since, began: None, item }),
        );
    }
}

impl Selection {
    /// Returns patterns of all topics that may be missing of a stream whose patterns are not known: all that is accepted.
    pub(crate) fn scope(&self) -> Vec<Pattern> {
        self.scope_of(&self.accept)
    }

    /// Returns patterns of all topics that may be missing of a stream with these patterns, as far as they are accepted. Of a
    /// pattern of the stream and an accepted one, the narrower one counts.
    fn scope_of(&self, patterns: &[Pattern]) -> Vec<Pattern> {
        let mut scope: Vec<Pattern> = Vec::new();
        for pattern in patterns {
            let below = Pattern::new(&format!("{pattern}/**")).unwrap_or_else(|_| pattern.clone());
            for accepted in self.accept.iter().filter(|it| it.intersects(&below)) {
                let mut wide = self.widened(pattern);
                if wide.as_str() == "**" {
                    wide = self.widened(accepted);
                }
                if scope.iter().all(|other| other.as_str() != wide.as_str()) {
                    scope.push(wide);
                }
            }
        }
        if scope.len() > Lost::MOST_PATTERNS { vec![Pattern::everything()] } else { scope }
    }

    /// Returns a pattern of all topics of the bus that have the first segment of this pattern of the stream.
    fn widened(&self, pattern: &Pattern) -> Pattern {
        let prefix = &self.prefix;
        let first = if prefix.is_empty() { pattern.as_str() } else { prefix };
        let first = first.split('/').next().unwrap_or_default();
        let wide = if first.contains('*') { "**".to_owned() } else { format!("{first}/**") };
        Pattern::new(&wide).unwrap_or_else(|_| Pattern::everything())
    }
}

/// Adds a loss to one before it of the same series.
pub(super) fn join(lost: &mut Lost, more: &Lost) {
    let (one, other) = (lost.bound, more.bound);
    let (messages, bound) = match (one, other) {
        (LostBound::AtLeast, LostBound::AtMost) => (lost.messages, LostBound::AtLeast),
        (LostBound::AtMost, LostBound::AtLeast) => (more.messages, LostBound::AtLeast),
        _ => {
            let bound = if one == LostBound::Exact { other } else { one };
            (lost.messages.saturating_add(more.messages), bound)
        }
    };
    (lost.messages, lost.bound) = (messages, bound);
    lost.until = lost.until.max(more.until);
}

/// Returns the loss that says that more may be missing from this number on.
pub(super) const fn open_end(
    from: Origin,
    reason: toroni::LostReason,
    scope: Vec<Pattern>,
) -> Lost {
    let (until, bound) = (from.number, LostBound::AtLeast);
    Lost { from, until, messages: 0, bound, reason, scope }
}

/// Returns a number of a flow in the words of the bus.
pub(super) const fn origin_of(flow: Flow, number: u64) -> Origin {
    Origin { source: flow.source.0, series: flow.series.0, stream: flow.stream.0, number }
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
    let from = origin_of(flow, number);
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
