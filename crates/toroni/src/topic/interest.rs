//! The patterns of a subscriber, with the answer for each topic id cached.

use super::PatternSet;
use super::frame::{Extensions, Tag, TopicId};
use super::pattern::Pattern;
use super::table::TopicCache;

/// The patterns of a subscriber or handler, and cached answers for each topic id: does a message
/// posted to the topic match, and does one posted to the topic and its descendants? Both are cached
/// for messages that were first published here, and for those with an origin.
///
/// **The caller must have validated the record whose topic it asks about**, that is, checked that
/// the record was not overwritten while it was read. A lapped reader could take any bytes for a
/// topic id and get the answer for another topic. For the same reason [`Interest::fill`] caches
/// nothing for an id that is not in the table: such an answer would remain after the mistake, and
/// filter the topic that gets the id later.
///
/// The cache takes one byte per topic id up to the largest one asked about, and therefore at most
/// one byte per entry of the table.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    patterns: PatternSet,
    /// By topic id: [`KNOWN`], and the bit [`Tag::answer_bit`] of each message that matches. 0 means
    /// not known.
    answers: Vec<u8>,
    /// Whether messages with an origin do not match.
    local_only: bool,
    /// If it is to be asked about each message: the answers, which [`Self::answer`] does not find there.
    withheld: Option<Vec<u8>>,
}

impl Interest {
    pub(crate) fn new(patterns: PatternSet) -> Self {
        Self { patterns, answers: Vec::new(), local_only: false, withheld: None }
    }

    /// Sets whether messages with an origin do not match.
    pub(crate) fn local_only(self, local_only: bool) -> Self {
        Self { local_only, answers: Vec::new(), ..self }
    }

    /// Sets whether [`Self::answer`] never has an answer, so that the caller decides about each message.
    pub(crate) fn undecided(self, undecided: bool) -> Self {
        Self { answers: Vec::new(), withheld: undecided.then(Vec::new), ..self }
    }

    pub(crate) fn is_local_only(&self) -> bool {
        self.local_only
    }

    /// Adds a pattern and clears the cache, whose answers may have changed.
    pub(crate) fn add(&mut self, pattern: Pattern) {
        self.patterns.push(pattern);
        self.answers.clear();
        if let Some(withheld) = &mut self.withheld {
            withheld.clear();
        }
    }

    pub(crate) fn patterns(&self) -> &PatternSet {
        &self.patterns
    }

    /// Returns whether a message with this tag matches, if the answer is cached. It never is for an
    /// inline topic, nor for a loss.
    #[inline]
    pub(crate) fn answer(&self, tag: Tag) -> Option<bool> {
        match self.answers.get(tag.topic().index()) {
            Some(&answers) if answers & KNOWN != 0 => Some(is_mine(answers, tag)),
            _ => None,
        }
    }

    /// Computes the answer from the patterns and caches it. Returns `None` if `topic_cache` does
    /// not know the topic's id: sync it and ask again. If it still does not know the id, the id is
    /// invalid.
    #[cold]
    pub(crate) fn fill(&mut self, tag: Tag, topic_cache: &TopicCache) -> Option<bool> {
        let id = tag.topic();
        if let Some(known) = self.withheld.as_ref().and_then(|withheld| withheld.get(id.index()))
            && *known & KNOWN != 0
        {
            return Some(is_mine(*known, tag));
        }
        let topic = topic_cache.name(id)?.as_str();
        let mut answers = KNOWN;
        if self.patterns.matches(topic) {
            answers |= MINE;
        }
        if self.patterns.matches_descendants(topic) {
            answers |= MINE_TO_DESCENDANTS;
        }
        if !self.local_only {
            answers |= (answers & (MINE | MINE_TO_DESCENDANTS)) << WITH_ORIGIN;
        }
        let cache = self.withheld.as_mut().unwrap_or(&mut self.answers);
        if cache.len() <= id.index() {
            cache.resize(id.index() + 1, 0);
        }
        cache[id.index()] = answers;
        Some(is_mine(answers, tag))
    }

    /// Returns whether a message on a topic may match, and whether one to its descendants may, too. One with an origin matches
    /// only if one without does. `None` as [`Self::fill`].
    pub(crate) fn wants(&mut self, id: TopicId, topic_cache: &TopicCache) -> Option<(bool, bool)> {
        let [itself, below] = [false, true].map(|to_descendants| {
            let tag = Tag::message(id, to_descendants, &Extensions::default());
            self.answer(tag).or_else(|| self.fill(tag, topic_cache))
        });
        Some((itself?, below?))
    }

    /// Computes the answer for a message whose topic has no id. It is not cached.
    pub(crate) fn answer_inline(&self, topic: &str, tag: Tag) -> bool {
        if self.local_only && tag.has_origin() {
            false
        } else if tag.is_to_descendants() {
            self.patterns.matches_descendants(topic)
        } else {
            self.patterns.matches(topic)
        }
    }
}

// The bits of `Tag::answer_bit`, for messages without an origin.
const MINE: u8 = 1;
const MINE_TO_DESCENDANTS: u8 = 1 << 1;
/// The distance to the bits for messages with an origin.
const WITH_ORIGIN: u32 = 4;
const KNOWN: u8 = 1 << 7;

#[inline]
fn is_mine(answers: u8, tag: Tag) -> bool {
    answers >> tag.answer_bit() & 1 != 0
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, AtomicU64};
    use crate::topic::table::{Appended, TableMemory};
    use crate::topic::{Origin, Topic};

    struct Table {
        count: AtomicU32,
        words: Vec<AtomicU64>,
    }

    impl Table {
        fn new() -> Self {
            let words = (0..64).map(|_| AtomicU64::new(0)).collect();
            Self { count: AtomicU32::new(0), words }
        }

        fn memory(&self) -> TableMemory<'_> {
            TableMemory { count: &self.count, words: &self.words }
        }

        fn add(&self, name: &str) -> TopicId {
            let topic = Topic::new(name).unwrap();
            match TopicCache::default().append(self.memory(), &topic).unwrap() {
                Appended::Added(id) => id,
                other => panic!("{other:?}"),
            }
        }
    }

    fn interest(patterns: &[&str]) -> Interest {
        Interest::new(patterns.iter().map(|pattern| Pattern::new(pattern).unwrap()).collect())
    }

    fn tag(id: TopicId, to_descendants: bool) -> Tag {
        Tag::message(id, to_descendants, &Extensions::default())
    }

    fn foreign(id: TopicId, to_descendants: bool) -> Tag {
        let origin = Some(Origin { source: 1, series: 2, stream: 3, number: 4 });
        Tag::message(id, to_descendants, &Extensions { origin, ..Extensions::default() })
    }

    #[test]
    fn caches_both_answers() {
        let table = Table::new();
        let names = ["plant", "plant/boiler", "pump"];
        let ids = names.map(|name| table.add(name));
        let mut topic_cache = TopicCache::default();
        topic_cache.sync(table.memory()).unwrap();
        let mut interest = interest(&["plant/boiler"]);
        let expected = [(false, true), (true, true), (false, false)];
        // In reverse order, so that the cache has gaps.
        for ((id, name), (mine, to_descendants)) in ids.into_iter().zip(names).zip(expected).rev() {
            let (one, all) = (tag(id, false), tag(id, true));
            assert_eq!(interest.answer(one), None);
            assert_eq!(interest.answer(all), None);
            assert_eq!(interest.fill(one, &topic_cache), Some(mine), "{name}");
            assert_eq!(interest.answer(one), Some(mine), "{name}");
            assert_eq!(interest.answer(all), Some(to_descendants), "{name}");
            assert_eq!(interest.fill(all, &topic_cache), Some(to_descendants), "{name}");
            assert_eq!(interest.answer_inline(name, one), mine, "{name}");
            assert_eq!(interest.answer_inline(name, all), to_descendants, "{name}");
        }
    }

    #[test]
    fn messages_with_an_origin_match_unless_only_local_ones_are_wanted() {
        let table = Table::new();
        let (id, parent) = (table.add("a/b"), table.add("a"));
        let mut topic_cache = TopicCache::default();
        topic_cache.sync(table.memory()).unwrap();
        for local_only in [false, true] {
            let mut interest = interest(&["a/b"]).local_only(local_only);
            assert_eq!(interest.fill(foreign(id, false), &topic_cache), Some(!local_only));
            assert_eq!(interest.fill(foreign(parent, true), &topic_cache), Some(!local_only));
            for (tag, mine) in [
                (tag(id, false), true),
                (tag(id, true), true),
                (foreign(id, false), !local_only),
                (foreign(id, true), !local_only),
                (tag(parent, false), false),
                (tag(parent, true), true),
                (foreign(parent, false), false),
                (foreign(parent, true), !local_only),
            ] {
                assert_eq!(interest.answer(tag), Some(mine), "{tag:?}, {local_only}");
                let name = if tag.topic() == id { "a/b" } else { "a" };
                assert_eq!(interest.answer_inline(name, tag), mine, "{tag:?}, {local_only}");
            }
        }
    }

    /// If a reader asks about an id before it is in the table, the answer must not be cached: it
    /// would filter the topic that gets the id later.
    #[test]
    fn never_caches_what_the_table_does_not_have() {
        let table = Table::new();
        let first = table.add("a");
        let mut topic_cache = TopicCache::default();
        topic_cache.sync(table.memory()).unwrap();
        let mut interest = interest(&["b"]);
        let next = TopicId::new(1).unwrap();
        let unknown = [tag(next, false), tag(TopicId::new(0xFF_FFFE).unwrap(), false), Tag::loss()];
        for tag in unknown {
            assert_eq!(interest.fill(tag, &topic_cache), None);
            assert_eq!(interest.answer(tag), None);
        }
        assert_eq!(interest.answers.len(), 0);
        assert_eq!(interest.fill(tag(first, false), &topic_cache), Some(false));

        assert_eq!(table.add("b"), next);
        let next = tag(next, false);
        assert_eq!(interest.fill(next, &topic_cache), None, "this cache has not caught up");
        topic_cache.sync(table.memory()).unwrap();
        assert_eq!(interest.answer(next), None);
        assert_eq!(interest.fill(next, &topic_cache), Some(true));
        assert_eq!(interest.answers.len(), 2);
    }

    #[test]
    fn a_new_pattern_clears_the_cache() {
        let table = Table::new();
        let tag = tag(table.add("a/b"), false);
        let mut topic_cache = TopicCache::default();
        topic_cache.sync(table.memory()).unwrap();
        let mut interest = Interest::default();
        assert_eq!(interest.fill(tag, &topic_cache), Some(false));
        interest.add(Pattern::new("a/*").unwrap());
        assert_eq!(interest.answer(tag), None);
        assert_eq!(interest.fill(tag, &topic_cache), Some(true));
    }
}
