//! The streams that are served, and which of them a message belongs to.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::super::Send;
use super::super::lineage::Lineage;
use crate::membership::Membership;
use crate::outlet;
use toroni::{Message, Pattern};
use toroni_proto::bounded::server::Served;
use toroni_proto::id::{Number, Stream};
use toroni_proto::wire::{MAX_PATTERNS, TableName};

/// The stream of what a server offers beyond the streams that its node sends to groups.
pub const BEYOND: Stream = Stream(0xFFFE);

/// A stream that is served.
pub(super) struct Offered {
    stream: Stream,
    /// Which messages of the bus it has.
    pub(super) patterns: Vec<Pattern>,
    /// What stands before each topic, or nothing.
    pub(super) prefix: String,
    /// The patterns, as they are on the stream.
    names: Vec<Pattern>,
}

/// All of them. A message belongs to the first one that matches it.
pub(super) struct Streams(Vec<Offered>);

impl Streams {
    /// The streams of these senders, and one for what the patterns match beyond them.
    pub(super) fn new(senders: &[Send], patterns: &[Pattern]) -> Self {
        let mut all: Vec<Offered> = Vec::with_capacity(senders.len().saturating_add(1));
        for sender in senders {
            let outlet::Selection { patterns, prefix, .. } = &sender.selection;
            let names = patterns.iter().filter_map(|pattern| {
                Pattern::new(&outlet::prefixed(prefix, pattern.as_str())).ok()
            });
            all.push(Offered {
                stream: sender.stream,
                patterns: patterns.clone(),
                prefix: prefix.clone(),
                names: names.collect(),
            });
        }
        if !patterns.is_empty() {
            all.push(Offered {
                stream: BEYOND,
                patterns: patterns.to_vec(),
                prefix: String::new(),
                names: patterns.to_vec(),
            });
        }
        Self(all)
    }

    /// Describes them for a server whose streams continue at this number.
    pub(super) fn describe<T>(
        &self,
        member: &Membership,
        lineage: &Lineage,
        next: Number,
        then: impl FnOnce(&[Served<'_>]) -> T,
    ) -> T {
        let tables: Vec<Vec<TableName<'_>>> = self.0.iter().map(table).collect();
        let served = self.0.iter().zip(&tables).map(|(one, patterns)| Served {
            source: member.source,
            session: member.session,
            series: lineage.series,
            stream: one.stream,
            feed: false,
            next,
            past: lineage.past,
            patterns,
        });
        then(&served.collect::<Vec<_>>())
    }

    /// Returns the stream of a message.
    pub(super) fn of(&self, message: &Message<'_>) -> Option<usize> {
        self.0.iter().position(|one| {
            one.patterns.iter().any(|it| has(it, message.topic(), message.to_descendants()))
        })
    }

    /// Returns the name of a topic on its stream, or `None` if it is too long with its prefix.
    pub(super) fn name<'a>(
        &self,
        stream: usize,
        topic: &'a str,
        scratch: &'a mut String,
    ) -> Option<TableName<'a>> {
        outlet::topic_of(&self.0.get(stream)?.prefix, topic, scratch)
    }

    /// Returns whether a stream may have what one of these patterns matches.
    pub(super) fn meets(&self, stream: usize, patterns: &[Pattern]) -> bool {
        let one = self.0.get(stream);
        one.is_some_and(|one| {
            one.names.iter().any(|mine| patterns.iter().any(|it| it.intersects(mine)))
        })
    }

    /// Returns the stream with this place.
    pub(super) fn get(&self, stream: usize) -> Option<&Offered> {
        self.0.get(stream)
    }

    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns all patterns of the bus that they have, each once.
    pub(super) fn patterns(&self) -> Vec<&str> {
        let mut all: Vec<&str> =
            self.0.iter().flat_map(|one| one.patterns.iter().map(Pattern::as_str)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Returns whether a pattern matches a message.
pub(super) fn has(pattern: &Pattern, topic: &str, to_descendants: bool) -> bool {
    pattern.matches(topic) || (to_descendants && pattern.matches_descendants(topic))
}

/// Returns the names that describe a stream. One with more than [`MAX_PATTERNS`] patterns is described as one that may
/// have everything.
fn table(one: &Offered) -> Vec<TableName<'_>> {
    let most = usize::from(MAX_PATTERNS);
    let names: Option<Vec<TableName<'_>>> =
        one.names.iter().map(|pattern| TableName::new(pattern.as_str())).collect();
    names.filter(|names| names.len() <= most).unwrap_or_default()
}
