//! The ring as its writers and readers see it: the shared words, borrowed, and how a position finds
//! its word.

use super::copy;
use super::layout::{BLOCKS, BlockEntry, Control, NO_ENTRY};
use super::position::{Shape, to_index};
use crate::mutant::mutant;
use crate::sync::{AtomicU64, Ordering, fence};

/// A borrowed ring. Cheap to copy; it decides nothing by itself.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    pub(crate) control: &'a Control,
    words: &'a [AtomicU64],
    shape: Shape,
}

/// A block's entry, read consistently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
}

impl<'a> Ring<'a> {
    /// `words` are the stream's bytes, once (plain memory), or twice in a row (a double mapping, in
    /// which no record wraps). `None` if their number fits neither.
    #[cfg(test)]
    pub(crate) fn new(control: &'a Control, words: &'a [AtomicU64], shape: Shape) -> Option<Self> {
        let once = to_index(shape.capacity() / 8);
        (words.len() == once || words.len() == 2 * once).then_some(Self { control, words, shape })
    }

    /// As `new`, for the words of a double mapping.
    #[inline]
    pub(crate) fn mapped_twice(control: &'a Control, words: &'a [AtomicU64], shape: Shape) -> Self {
        debug_assert!(words.len() == 2 * to_index(shape.capacity() / 8));
        Self { control, words, shape }
    }

    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The word at `position`, which is where a record's header stands.
    #[inline]
    pub(crate) fn word(&self, position: u64) -> &'a AtomicU64 {
        &self.words[self.index(position)]
    }

    /// Copies words out of the stream; torn if a writer overtakes, see [`Self::is_intact`].
    #[inline]
    pub(crate) fn load(&self, position: u64, into: &mut [u64]) {
        copy::load(self.words, self.index(position), into);
    }

    /// Copies bytes into the stream and pads them to a word. Only the writer lock's owner, and only
    /// below `reserved`.
    #[inline]
    pub(crate) fn store(&self, position: u64, from: &[u8]) {
        copy::store(self.words, self.index(position), from);
    }

    /// `count` words from `position` on, if they lie in a row, as all of a record does if mapped twice.
    #[inline]
    pub(crate) fn run(&self, position: u64, count: usize) -> Option<&'a [AtomicU64]> {
        let first = self.index(position);
        self.words.get(first..first + count)
    }

    /// The words from `position` on, as far as they lie in a row; all of a record if mapped twice.
    pub(crate) fn words_from(&self, position: u64) -> &'a [AtomicU64] {
        &self.words[self.index(position)..]
    }

    #[inline]
    fn index(&self, position: u64) -> usize {
        // At most capacity / 8 - 1, and `words` has at least capacity / 8.
        to_index((position & (self.shape.capacity() - 1)) / 8)
    }

    /// Whether what was read at `position` before this call is what a writer committed there
    /// (invariant I3), to be asked after the read and before anything read is believed.
    ///
    /// RESERVE: pairs with the writer's release fence. If a byte that was read came from an
    /// overwriting record, then that record's writer raised `reserved` before its fence, and this
    /// load, behind its own fence, sees it.
    #[inline]
    pub(crate) fn is_intact(&self, position: u64) -> bool {
        self.reserved_if_intact(position).is_some()
    }

    /// As [`Self::is_intact`]: `reserved`, if it is.
    #[inline]
    pub(crate) fn reserved_if_intact(&self, position: u64) -> Option<u64> {
        if !mutant("no_fence_before_validation") {
            fence(Ordering::Acquire);
        }
        // What the paper's prototype did: believes bytes that are being overwritten.
        if mutant("tail_for_reserved") {
            let tail = self.control.commit.0.tail.load(Ordering::Relaxed);
            return (tail <= position.saturating_add(self.shape.capacity())).then_some(u64::MAX);
        }
        let reserved = self.control.reserved.0.load(Ordering::Relaxed);
        (reserved <= position.saturating_add(self.shape.capacity())).then_some(reserved)
    }

    /// The entry of block `number` modulo [`BLOCKS`], or `None` while it changes or if it was never
    /// set. The caller decides whether its position is of use.
    ///
    /// An old entry can still be in use when its successor replaces it: a record longer than a block
    /// puts the entry of the block behind it at the far end of what it covers. So the two words are
    /// read like a seqlock: the writer first takes the position away.
    pub(crate) fn mark(&self, number: u64) -> Option<Mark> {
        let entry = self.entry(number);
        // INDEX
        let position = entry.position.load(Ordering::Acquire);
        let sequence = entry.sequence.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // Else it believes a sequence that belongs to another position.
        let unchanged =
            mutant("index_read_once") || entry.position.load(Ordering::Relaxed) == position;
        (unchanged && position != NO_ENTRY && position.is_multiple_of(8))
            .then_some(Mark { position, sequence })
    }

    pub(crate) fn entry(&self, number: u64) -> &'a BlockEntry {
        &self.control.index[to_index(number % BLOCKS)]
    }
}
