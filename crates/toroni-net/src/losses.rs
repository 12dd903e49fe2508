//! Losses: what an inlet has reported as lost, by stream and reason. What is new waits here for those who log it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use toroni::{LostBound, LostReason};
use toroni_proto::id::{Source, Stream};

/// How many reasons there are.
const REASONS: usize = LostReason::ALL.len();
/// Of how many streams losses are counted. Those of further streams are in the counters of the inlet only.
const MAX_STREAMS: usize = 4_096;
/// How many kinds of new losses wait.
const MAX_PENDING: usize = 64;

/// How often messages of a stream were lost for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Reports.
    pub reports: u64,
    /// Messages, as far as their number is known.
    pub messages: u64,
}

/// Messages of one stream that were lost for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Who sent them.
    pub source: Source,
    /// On which stream.
    pub stream: Stream,
    /// Why.
    pub reason: LostReason,
    /// How many reports these are.
    pub reports: u64,
    /// How many messages.
    pub messages: u64,
    /// How exact that is.
    pub bound: LostBound,
}

/// What was lost of all streams.
#[derive(Debug, Default)]
pub struct Losses {
    streams: BTreeMap<(Source, Stream), [Count; REASONS]>,
    pending: BTreeMap<(Source, Stream, usize), Lost>,
}

impl Losses {
    /// Counts a loss that the bus took.
    pub(crate) fn note(&mut self, lost: &toroni::Lost) {
        let (source, stream) = (Source(lost.from.source), Stream(lost.from.stream));
        let Some(at) = LostReason::ALL.iter().position(|reason| *reason == lost.reason) else {
            return;
        };
        if self.streams.len() < MAX_STREAMS || self.streams.contains_key(&(source, stream)) {
            let count = &mut self.streams.entry((source, stream)).or_default()[at];
            count.reports = count.reports.saturating_add(1);
            count.messages = count.messages.saturating_add(lost.messages);
        }
        let key = (source, stream, at);
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.reports = pending.reports.saturating_add(1);
            pending.messages = pending.messages.saturating_add(lost.messages);
            pending.bound = joined(pending.bound, lost.bound);
        } else if self.pending.len() < MAX_PENDING {
            let &toroni::Lost { messages, bound, reason, .. } = lost;
            let new = Lost { source, stream, reason, reports: 1, messages, bound };
            self.pending.insert(key, new);
        }
    }

    /// Returns what was lost of each stream, for each reason for which something was.
    pub fn counts(&self) -> impl Iterator<Item = (Source, Stream, LostReason, Count)> {
        self.streams.iter().flat_map(|((source, stream), counts)| {
            let found = LostReason::ALL.iter().zip(counts).filter(|(_, count)| count.reports > 0);
            found.map(|(reason, count)| (*source, *stream, *reason, *count))
        })
    }

    pub(crate) fn has_new(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes what was lost since the last call.
    pub(crate) fn take(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.pending).into_values().collect()
    }
}

/// How exact the sum of two counts is. A sum of what may be more and what may be less says nothing of the upper end.
fn joined(one: LostBound, other: LostBound) -> LostBound {
    match (one, other) {
        (LostBound::Exact, other) => other,
        (one, LostBound::Exact) => one,
        (LostBound::AtMost, LostBound::AtMost) => LostBound::AtMost,
        _ => LostBound::AtLeast,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni::Origin;

    fn lost(source: u32, messages: u64, bound: LostBound, reason: LostReason) -> toroni::Lost {
        let from = Origin { source, series: 1, stream: 2, number: 5 };
        toroni::Lost { from, until: 9, messages, bound, reason, scope: Vec::new() }
    }

    #[test]
    fn losses_are_counted_by_stream_and_reason_and_new_ones_are_handed_out_once() {
        let mut losses = Losses::default();
        assert!(!losses.has_new());
        losses.note(&lost(1, 4, LostBound::Exact, LostReason::Gone));
        losses.note(&lost(1, 6, LostBound::AtMost, LostReason::Gone));
        losses.note(&lost(1, 1, LostBound::Exact, LostReason::Budget));
        losses.note(&lost(7, u64::MAX, LostBound::AtLeast, LostReason::Gone));
        let new = losses.take();
        let shown: Vec<_> = new
            .iter()
            .map(|it| (it.source.0, it.reason, it.reports, it.messages, it.bound))
            .collect();
        assert_eq!(
            shown,
            [
                (1, LostReason::Gone, 2, 10, LostBound::AtMost),
                (1, LostReason::Budget, 1, 1, LostBound::Exact),
                (7, LostReason::Gone, 1, u64::MAX, LostBound::AtLeast),
            ]
        );
        assert!(!losses.has_new());
        losses.note(&lost(1, 1, LostBound::Exact, LostReason::Gone));
        assert_eq!(losses.take().len(), 1);
        let counts: Vec<_> =
            losses.counts().map(|(source, _, reason, it)| (source.0, reason, it)).collect();
        let count = |reports, messages| Count { reports, messages };
        assert_eq!(
            counts,
            [
                (1, LostReason::Gone, count(3, 11)),
                (1, LostReason::Budget, count(1, 1)),
                (7, LostReason::Gone, count(1, u64::MAX)),
            ]
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut losses = Losses::default();
        for source in 0..2 * u32::try_from(MAX_STREAMS).unwrap() {
            losses.note(&lost(source, 1, LostBound::Exact, LostReason::Silent));
        }
        assert_eq!((losses.counts().count(), losses.take().len()), (MAX_STREAMS, MAX_PENDING));
    }
}
