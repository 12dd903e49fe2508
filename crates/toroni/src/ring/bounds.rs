//! Bounds: where the newest record of each topic ends. By them a subscriber passes over what it does not want in one step,
//! without reading it.
//!
//! 1. The owner of the writer lock raises the bound of a topic to the end of a record before it commits that record (PASSED).
//!    If it dies before the commit, the bound is too high until the stream has got there, which costs a subscriber some reading.
//! 2. A subscriber loads `tail`, and then the bounds of all topics that it wants. If none is beyond its position, no record
//!    before `tail` is for it.
//! 3. Topics with large numbers share their bounds with others, which are then higher than necessary. So do records without a
//!    topic's number, which concern all subscribers: losses, and messages that carry the names of their topics.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{BOUNDS, Control, TAG_TOPIC_SHIFT};
use super::reader::Cursor;
use crate::hook::{mutant, weakened};
use crate::sync::{AtomicU64, Ordering};

/// Raises the bound of the topic of a record with this tag, which ends at `end`. Only the owner of the writer lock may call
/// this, before the commit.
#[inline(always)]
pub(super) fn raise(control: &Control, tag: u32, end: u64) {
    bound_of(control, topic_of(tag)).store(end, Ordering::Relaxed);
}

/// Returns the bound of the topic with this number.
pub(crate) fn newest(control: &Control, topic: u32) -> u64 {
    bound_of(control, topic).load(Ordering::Relaxed)
}

#[inline(always)]
fn bound_of(control: &Control, topic: u32) -> &AtomicU64 {
    &control.bounds[topic as usize % BOUNDS]
}

/// Returns the number of the topic of a record with this tag. A record without one has a number that no topic has.
#[inline(always)]
pub(crate) const fn topic_of(tag: u32) -> u32 {
    tag >> TAG_TOPIC_SHIFT
}

/// Returns the end of the stream, unless a commit is under way. Then `tail` and `sequence` may belong to different records.
pub(crate) fn settled_end(control: &Control) -> Option<Cursor> {
    let commit = &control.commit.0;
    // PASSED
    let position = commit.tail.load(Ordering::Acquire);
    // END: a sequence that is later than the tail was stored after a `next` that is, too.
    let sequence = commit.sequence.load(weakened("end_without_acquire", Ordering::Acquire));
    let next = commit.next.load(Ordering::Relaxed);
    (next == position || mutant("next_not_compared")).then_some(Cursor { position, sequence })
}
