//! Which subscribers want a message: a bit for each slot in a row for each topic, set by those that want none of it.
//!
//! A row begins as zeros, so a new topic is for all until each subscriber has seen it. What has no row is for all: topics from
//! a certain number on, topics that have no id, messages to descendants, losses.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::sync::{AtomicU64, Ordering};

/// The rows of the topics of a bus. Subscribers write them, each its own bit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    words: &'a [AtomicU64],
    /// The words of a row.
    each: usize,
}

impl<'a> Rows<'a> {
    /// Returns the rows in `words`. `each` is the number of words of a row, which has a bit for each slot.
    pub(crate) fn new(words: &'a [AtomicU64], each: usize) -> Self {
        Self { words, each }
    }

    /// Returns how many topics have a row.
    pub(crate) fn topics(self) -> usize {
        self.words.len().checked_div(self.each).unwrap_or(0)
    }

    /// Says whether the subscriber of a slot wants no message of a topic. A topic without a row is left alone.
    pub(crate) fn set(self, topic: usize, slot: u32, is_unwanted: bool) {
        let Some((word, bit)) = self.place(topic, slot) else { return };
        // Changed only if necessary: other subscribers write the same line. The count that the subscriber raises when it arms
        // makes this visible (WANT).
        if (word.load(Ordering::Relaxed) & bit != 0) == is_unwanted {
            return;
        }
        if is_unwanted {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn place(self, topic: usize, slot: u32) -> Option<(&'a AtomicU64, u64)> {
        let (index, bit) = place(slot);
        if index >= self.each {
            return None;
        }
        let word = topic.checked_mul(self.each)?.checked_add(index)?;
        Some((self.words.get(word)?, bit))
    }

    /// Returns a word of a topic's row, or 0 if it has none.
    fn word(self, topic: u32, index: usize) -> u64 {
        let word =
            (topic as usize).checked_mul(self.each).and_then(|first| first.checked_add(index));
        let word = word.and_then(|word| self.words.get(word));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// Returns the word and the bit of a slot.
pub(super) fn place(slot: u32) -> (usize, u64) {
    ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS))
}

/// Whom messages are for that one call has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Nothing was published.
    None,
    /// Those that want a message of one of these topics, the first of a list.
    Topics {
        /// The numbers of the topics.
        ids: [u32; Self::MOST],
        /// How many there are.
        count: u8,
    },
    /// All.
    All,
}

impl Audience {
    const MOST: usize = 8;

    /// Those that want messages of one topic.
    #[inline]
    pub(crate) fn of(topic: u32) -> Self {
        Self::Topics { ids: [topic; Self::MOST], count: 1 }
    }

    /// Returns those and others. More topics than fit are for all.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Topics { mut ids, mut count }, Self::Topics { ids: more, count: many }) => {
                for id in &more[..usize::from(many).min(Self::MOST)] {
                    if ids[..usize::from(count)].contains(id) {
                        continue;
                    }
                    let Some(place) = ids.get_mut(usize::from(count)) else { return Self::All };
                    *place = *id;
                    count = count.saturating_add(1);
                }
                Self::Topics { ids, count }
            }
        }
    }

    /// Returns the bits of the slots of one word that want none of it.
    pub(super) fn unwanted(self, rows: Rows<'_>, index: usize) -> u64 {
        match self {
            Self::None => u64::MAX,
            Self::All => 0,
            Self::Topics { ids, count } => ids[..usize::from(count).min(Self::MOST)]
                .iter()
                .fold(u64::MAX, |all, topic| all & rows.word(*topic, index)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn each_slot_has_a_bit_in_each_row() {
        let words = words(6);
        let rows = Rows::new(&words, 2);
        assert_eq!(rows.topics(), 3);
        rows.set(1, 64, true);
        rows.set(1, 3, true);
        rows.set(2, 3, true);
        rows.set(1, 3, false);
        let found: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(found, [0, 0, 0, 1, 8, 0]);
        // Neither a topic nor a slot that has no place.
        rows.set(3, 0, true);
        rows.set(0, 128, true);
        rows.set(usize::MAX, 0, true);
        assert_eq!(words.iter().map(|word| word.load(Ordering::Relaxed)).sum::<u64>(), 9);
    }

    #[test]
    fn who_wants_one_of_several_topics_is_woken() {
        let words = words(3);
        let rows = Rows::new(&words, 1);
        for (topic, slot) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)] {
            rows.set(topic, slot, true);
        }
        let unwanted = |audience: Audience| audience.unwanted(rows, 0);
        assert_eq!(unwanted(Audience::of(0)), 1);
        assert_eq!(unwanted(Audience::of(1).and(Audience::of(2))), 3);
        assert_eq!(unwanted(Audience::of(1).and(Audience::of(0)).and(Audience::None)), 1);
        assert_eq!(unwanted(Audience::of(0).and(Audience::All)), 0);
        assert_eq!(unwanted(Audience::None), u64::MAX);
        assert_eq!(unwanted(Audience::of(3)), 0, "a topic without a row");
        assert_eq!(unwanted(Audience::of(u32::MAX)), 0);
    }

    #[test]
    fn more_topics_than_a_list_takes_are_for_all() {
        let all = (0..8).fold(Audience::None, |all, topic| all.and(Audience::of(topic)));
        assert!(matches!(all, Audience::Topics { count: 8, .. }));
        assert_eq!(all.and(Audience::of(7)), all);
        assert_eq!(all.and(Audience::of(8)), Audience::All);
    }
}
