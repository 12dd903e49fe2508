//! The patterns of a subscriber, with the answer for each topic id cached.

use super::PatternSet;
use super::frame::TopicId;
use super::pattern::Pattern;
use super::table::TopicCache;

/// The patterns of a subscriber or handler, and two cached answers for each topic id: does a
/// message posted to the topic match, and does one posted to the topic and its descendants?
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
    /// [`KNOWN`], [`MINE`] and [`MINE_TO_DESCENDANTS`], by topic id. 0 means not known.
    answers: Vec<u8>,
}

impl Interest {
    pub(crate) fn new(patterns: PatternSet) -> Self {
        Self { patterns, answers: Vec::new() }
    }

    /// Adds a pattern and clears the cache, whose answers may have changed.
    pub(crate) fn add(&mut self, pattern: Pattern) {
        self.patterns.push(pattern);
        self.answers.clear();
    }

    pub(crate) fn patterns(&self) -> &PatternSet {
        &self.patterns
    }

    /// Returns whether a message on this topic matches, if the answer is cached.
    #[inline]
    pub(crate) fn answer(&self, id: TopicId, to_descendants: bool) -> Option<bool> {
        match self.answers.get(id.index()) {
            Some(&answers) if answers & KNOWN != 0 => Some(is_mine(answers, to_descendants)),
            _ => None,
        }
    }

    /// Computes the answer from the patterns and caches it. Returns `None` if `topic_cache` does
    /// not know the id: sync it and ask again. If it still does not know the id, the id is invalid.
    #[cold]
    pub(crate) fn fill(
        &mut self,
        id: TopicId,
        to_descendants: bool,
        topic_cache: &TopicCache,
    ) -> Option<bool> {
        let topic = topic_cache.name(id)?.as_str();
        let mut answers = KNOWN;
        if self.patterns.matches(topic) {
            answers |= MINE;
        }
        if self.patterns.matches_descendants(topic) {
            answers |= MINE_TO_DESCENDANTS;
        }
        if self.answers.len() <= id.index() {
            self.answers.resize(id.index() + 1, 0);
        }
        self.answers[id.index()] = answers;
        Some(is_mine(answers, to_descendants))
    }

    /// Computes the answer for a topic without an id. It is not cached.
    pub(crate) fn answer_inline(&self, topic: &str, to_descendants: bool) -> bool {
        if to_descendants {
            self.patterns.matches_descendants(topic)
        } else {
            self.patterns.matches(topic)
        }
    }
}

const KNOWN: u8 = 1;
const MINE: u8 = 1 << 1;
const MINE_TO_DESCENDANTS: u8 = 1 << 2;

#[inline]
fn is_mine(answers: u8, to_descendants: bool) -> bool {
    answers & (if to_descendants { MINE_TO_DESCENDANTS } else { MINE }) != 0
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, AtomicU64};
    use crate::topic::Topic;
    use crate::topic::table::{Appended, TableMemory};

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
            assert_eq!(interest.answer(id, false), None);
            assert_eq!(interest.answer(id, true), None);
            assert_eq!(interest.fill(id, false, &topic_cache), Some(mine), "{name}");
            assert_eq!(interest.answer(id, false), Some(mine), "{name}");
            assert_eq!(interest.answer(id, true), Some(to_descendants), "{name}");
            assert_eq!(interest.fill(id, true, &topic_cache), Some(to_descendants), "{name}");
            assert_eq!(interest.answer_inline(name, false), mine, "{name}");
            assert_eq!(interest.answer_inline(name, true), to_descendants, "{name}");
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
        for id in [next, TopicId::new(0xFF_FFFE).unwrap(), TopicId::INLINE] {
            assert_eq!(interest.fill(id, false, &topic_cache), None);
            assert_eq!(interest.answer(id, false), None);
        }
        assert_eq!(interest.answers.len(), 0);
        assert_eq!(interest.fill(first, false, &topic_cache), Some(false));

        assert_eq!(table.add("b"), next);
        assert_eq!(interest.fill(next, false, &topic_cache), None, "this cache has not caught up");
        topic_cache.sync(table.memory()).unwrap();
        assert_eq!(interest.answer(next, false), None);
        assert_eq!(interest.fill(next, false, &topic_cache), Some(true));
        assert_eq!(interest.answers.len(), 2);
    }

    #[test]
    fn a_new_pattern_clears_the_cache() {
        let table = Table::new();
        let id = table.add("a/b");
        let mut topic_cache = TopicCache::default();
        topic_cache.sync(table.memory()).unwrap();
        let mut interest = Interest::default();
        assert_eq!(interest.fill(id, false, &topic_cache), Some(false));
        interest.add(Pattern::new("a/*").unwrap());
        assert_eq!(interest.answer(id, false), None);
        assert_eq!(interest.fill(id, false, &topic_cache), Some(true));
    }
}
