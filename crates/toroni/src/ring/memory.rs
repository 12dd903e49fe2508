//! The ring as writers and readers see it: the shared words, borrowed, and the mapping from
//! positions to words. [`Ring::is_intact`] is the check that every reader makes after reading.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::copy;
use super::layout::{BLOCKS, BlockEntry, Control, NO_ENTRY};
use super::position::{Shape, to_index};
use crate::hook::mutant;
use crate::sync::{AtomicU64, Ordering, fence};

/// A borrowed ring, cheap to copy. It makes no decisions.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    pub(crate) control: &'a Control,
    words: &'a [AtomicU64],
    shape: Shape,
}

/// A place in the stream: where the record with this sequence starts, or will start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordStart {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
}

impl<'a> Ring<'a> {
    /// Makes a ring of the stream's words, either once (plain memory) or twice in a row (a double
    /// mapping, in which no record wraps). Returns `None` if their number fits neither.
    #[cfg(test)]
    pub(crate) fn new(control: &'a Control, words: &'a [AtomicU64], shape: Shape) -> Option<Self> {
        let once = to_index(shape.capacity() / 8);
        (words.len() == once || words.len() == once.saturating_mul(2)).then_some(Self {
            control,
            words,
            shape,
        })
    }

    /// Makes a ring of the words of a double mapping.
    #[inline]
    pub(crate) fn mapped_twice(control: &'a Control, words: &'a [AtomicU64], shape: Shape) -> Self {
        debug_assert!(words.len() / 2 == to_index(shape.capacity() / 8));
        Self { control, words, shape }
    }

    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the word at `position`. At the start of a record, this is its header.
    #[inline]
    pub(crate) fn word(&self, position: u64) -> &'a AtomicU64 {
        &self.words[self.index(position)]
    }

    /// Copies words out of the stream. The copy is torn if a writer overtakes: see
    /// [`Self::is_intact`].
    #[inline]
    pub(crate) fn load(&self, position: u64, into: &mut [u64]) {
        copy::load(self.words, self.index(position), into);
    }

    /// Copies bytes into the stream and pads them to a word. Only the owner of the writer lock may
    /// call this, and only for bytes below `reserved`.
    #[inline]
    pub(crate) fn store(&self, position: u64, from: &[u8]) {
        copy::store(self.words, self.index(position), from);
    }

    /// Returns `count` words from `position` on, if they are contiguous. In a double mapping, all
    /// words of a record are.
    #[inline]
    pub(crate) fn contiguous_words(&self, position: u64, count: usize) -> Option<&'a [AtomicU64]> {
        let first = self.index(position);
        self.words.get(first..first.wrapping_add(count))
    }

    /// Returns the contiguous words from `position` on. In a double mapping, they include the whole
    /// record.
    pub(crate) fn words_from(&self, position: u64) -> &'a [AtomicU64] {
        &self.words[self.index(position)..]
    }

    #[inline]
    fn index(&self, position: u64) -> usize {
        // At most capacity / 8 - 1, and `words` has at least capacity / 8.
        to_index((position & self.shape.capacity().wrapping_sub(1)) / 8)
    }

    /// Returns whether what was read at `position` before this call is what a writer committed
    /// there (invariant I2). Call it after reading, and before trusting anything that was read.
    ///
    /// RESERVE pairs this with the writer's release fence:
    ///
    /// 1. A writer raises `reserved`, then executes the release fence, and only then overwrites
    ///    bytes.
    /// 2. The reader reads bytes, then executes the acquire fence, and only then loads `reserved`.
    /// 3. If a byte that was read belongs to the overwriting record, the fences synchronise, and
    ///    the load sees the raised `reserved`.
    #[inline]
    pub(crate) fn is_intact(&self, position: u64) -> bool {
        self.reserved_if_intact(position).is_some()
    }

    /// Like [`Self::is_intact`], but returns `reserved` if the bytes are intact.
    #[inline]
    pub(crate) fn reserved_if_intact(&self, position: u64) -> Option<u64> {
        if !mutant("no_fence_before_validation") {
            fence(Ordering::Acquire);
        }
        // The paper's prototype did this: it trusts bytes that are being overwritten.
        if mutant("tail_for_reserved") {
            let tail = self.control.commit.0.tail.load(Ordering::Relaxed);
            return (tail <= position.saturating_add(self.shape.capacity())).then_some(u64::MAX);
        }
        let reserved = self.control.reserved.0.load(Ordering::Relaxed);
        (reserved <= position.saturating_add(self.shape.capacity())).then_some(reserved)
    }

    /// Returns a consistent copy of the entry of block `number` modulo [`BLOCKS`], or `None` if it is being changed or
    /// was never set. The caller decides whether its position is useful.
    ///
    /// An old entry may still be in use when it is replaced: if a record is longer than a block,
    /// the entry of the next block points to the far end of the record. The two words are therefore
    /// read like a seqlock. The writer first replaces `position` with [`NO_ENTRY`].
    pub(crate) fn read_entry(&self, number: u64) -> Option<RecordStart> {
        let entry = self.entry(number);
        // INDEX
        let position = entry.position.load(Ordering::Acquire);
        let sequence = entry.sequence.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // Without this check, the sequence might belong to another position.
        let unchanged =
            mutant("index_read_once") || entry.position.load(Ordering::Relaxed) == position;
        (unchanged && position != NO_ENTRY && position.is_multiple_of(8))
            .then_some(RecordStart { position, sequence })
    }

    pub(crate) fn entry(&self, number: u64) -> &'a BlockEntry {
        &self.control.index[to_index(number % BLOCKS)]
    }
}
