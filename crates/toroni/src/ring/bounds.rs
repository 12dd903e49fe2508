//! Bounds: for each topic a position at or after the end of its newest record. By them a subscriber passes over what it does
//! not want in one step, without reading it.
//!
//! 1. The owner of the writer lock stores the end of a record in the bound of its topic before it commits the record (PASSED).
//!    If it dies before the commit, the bound is too high until the stream has got there, which costs a subscriber some reading.
//! 2. A subscriber loads `tail`, and then the bounds of all topics that it wants. If none is beyond its position, no record
//!    before `tail` is for it.
//! 3. Topics whose numbers differ by a multiple of [`BOUNDS`] share a bound, which may then be too high. Records without a
//!    topic's number (losses, and messages that carry the names of their topics) have the number 0xFF_FFFF, and share a bound
//!    likewise. Every subscriber looks at that one.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{BOUNDS, Control, TAG_TOPIC_SHIFT};
use super::position::MISPLACED;
use super::reader::Cursor;
use crate::hook::{mutant, weakened};
use crate::sync::{AtomicU64, Ordering};

/// The bit of a bound that says: one of its topics is retained (`values.rs`). Positions are multiples of 8.
const RETAINED: u64 = 1;

/// Sets the bound of the topic of a record with this tag, which ends at `end`, and which may be retained or not. Only the owner
/// of the writer lock may call this, before the commit. It may lower what an owner has left that died before its commit, but
/// never below the end of a committed record.
#[inline(always)]
pub(super) fn set(control: &Control, tag: u32, end: u64, may_be_retained: bool) {
    let word = if may_be_retained { end | RETAINED } else { end };
    word_of(control, topic_of(tag)).store(word, Ordering::Relaxed);
}

/// Returns whether the topic of a record with this tag may be retained: it, or one that shares its bound. Only the owner of the
/// writer lock may rely on the answer.
#[inline(always)]
pub(crate) fn may_be_retained(control: &Control, tag: u32) -> bool {
    word_of(control, topic_of(tag)).load(Ordering::Relaxed) & RETAINED != 0
}

/// Says that a topic is retained. Only the owner of the writer lock may call this.
pub(crate) fn set_retained(control: &Control, topic: u32) {
    let word = word_of(control, topic);
    word.store(word.load(Ordering::Relaxed) | RETAINED, Ordering::Relaxed);
}

/// Returns the bound of the topic with this number.
pub(crate) fn bound(control: &Control, topic: u32) -> u64 {
    word_of(control, topic).load(Ordering::Relaxed) & !RETAINED
}

#[inline(always)]
fn word_of(control: &Control, topic: u32) -> &AtomicU64 {
    &control.bounds[topic as usize % BOUNDS]
}

/// Returns the number of the topic of a record with this tag. A record without one has a number that no topic has.
#[inline(always)]
pub(crate) const fn topic_of(tag: u32) -> u32 {
    tag >> TAG_TOPIC_SHIFT
}

/// Returns the end of the stream. `None` while a commit is under way, or after its writer died: then `tail` and `sequence` may
/// belong to different records.
pub(crate) fn settled_end(control: &Control) -> Option<Cursor> {
    let commit = &control.commit.0;
    // PASSED
    let position = commit.tail.load(Ordering::Acquire);
    // END: a sequence that is later than the tail was stored after a `next` that is, too.
    let sequence = commit.sequence.load(weakened("end_without_acquire", Ordering::Acquire));
    let next = commit.next.load(Ordering::Relaxed);
    let reserved = control.reserved.0.load(Ordering::Relaxed);
    // I1
    let is_possible = position & MISPLACED == 0 && position < reserved;
    let is_settled = next == position || mutant("next_not_compared");
    (is_possible && is_settled).then_some(Cursor { position, sequence })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ring::testing::Memory;

    #[test]
    fn an_end_that_cannot_be_is_none() {
        let memory = Memory::laid(64 << 10, 3 << 16, &[8, 8]);
        let commit = &memory.control.commit.0;
        let end = commit.tail.load(Ordering::Relaxed);
        assert_eq!(settled_end(&memory.control), Some(Cursor { position: end, sequence: 2 }));
        for position in [end + 1, 1 << 40, 1 << 62, u64::MAX - 7] {
            commit.tail.store(position, Ordering::Relaxed);
            commit.next.store(position, Ordering::Relaxed);
            assert_eq!(settled_end(&memory.control), None, "{position}");
        }
        commit.tail.store(end, Ordering::Relaxed);
        assert_eq!(settled_end(&memory.control), None, "a commit is under way");
    }
}
