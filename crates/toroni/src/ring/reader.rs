//! A reader's cursor: it advances from record to record, detects that a writer overtook it, and
//! resumes.
//!
//! Reading never writes to `ring` and never waits.
//!
//! 1. A writer raises `reserved` before it overwrites bytes, and commits a record by storing its
//!    header word last.
//! 2. The reader loads the header word at its position (COMMIT) and then checks `reserved`
//!    (RESERVE). If `reserved` has passed the position by more than the capacity, the reader was
//!    lapped. Nothing that it loaded may be trusted, not even a 0.
//! 3. If the reader copies the record, it checks again after copying. Only then is the copy what
//!    was committed.
//! 4. A lapped reader continues at an entry of the blocks index. It checks in the same way that the
//!    record there is still intact.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::copy::Scratch;
use super::layout::{ALIGNMENT, BLOCKS};
use super::memory::{RecordStart, Ring};
use super::position::{LARGEST_POSITION, record_bytes, to_index};
use super::writer::{length_of, newest_entry, tag_of};
use crate::error::Corrupt;
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::Ordering;

/// A reader's position: before the record at `position`, which has number `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
}

/// A complete record that was found in the ring, before its bytes are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
    /// Flags and topic.
    pub(crate) tag: u32,
    /// Extensions and payload, in bytes.
    pub(crate) length: u32,
}

impl Seen {
    #[inline]
    pub(crate) fn next_position(&self) -> u64 {
        self.position.wrapping_add(record_bytes(self.length))
    }

    #[inline]
    pub(crate) fn body(&self) -> u64 {
        self.position.wrapping_add(ALIGNMENT)
    }
}

/// Why a reader cannot continue at its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// A writer overtook the reader. [`Cursor::resume`] returns what was lost.
    Lapped,
    Corrupt(Corrupt),
}

impl Cursor {
    /// Returns the record at the cursor, or `None` if there is none yet.
    ///
    /// The result was valid when it was checked. [`Self::copy`] and [`Self::copy_front`] check
    /// again for the bytes that they copy.
    #[inline]
    pub(crate) fn peek(&self, ring: Ring<'_>) -> Result<Option<Seen>, Interrupted> {
        // COMMIT
        let word = ring.word(self.position).load(Ordering::Acquire);
        if mutant("zero_before_validation") && word == 0 {
            return Ok(None);
        }
        // Check before trusting anything, even a 0: a lapped reader may be in the middle of a
        // payload whose bytes are 0, and would sleep for ever.
        let Some(reserved) = ring.reserved_if_intact(self.position).or(unvalidated()) else {
            return Err(Interrupted::Lapped);
        };
        if word == 0 {
            return Ok(None);
        }
        let seen = Seen {
            position: self.position,
            sequence: self.sequence,
            tag: tag_of(word),
            length: length_of(word),
        };
        // A record and the 0 after it lie below `reserved`, which the writer raised before it
        // committed. Without this check, a wrong length could lead past the end of the stream, and
        // from there round and round through the remains of older laps.
        if seen.tag == 0
            || record_bytes(seen.length) > ring.shape().largest_record()
            || seen.next_position().saturating_add(ALIGNMENT) > reserved
        {
            return Err(self.corrupt(ring, word));
        }
        Ok(Some(seen))
    }

    #[cold]
    fn corrupt(&self, ring: Ring<'_>, value: u64) -> Interrupted {
        if !ring.is_intact(self.position) {
            return Interrupted::Lapped;
        }
        Interrupted::Corrupt(Corrupt { what: "record header", value, position: self.position })
    }

    /// Copies the record's extensions and payload to `into`, and checks that they are what was
    /// committed.
    #[inline(always)]
    pub(crate) fn copy(
        &self,
        ring: Ring<'_>,
        seen: &Seen,
        into: &mut Scratch,
    ) -> Result<(), Interrupted> {
        let words = to_index(record_bytes(seen.length) / 8);
        ring.load(seen.body(), into.words(words.wrapping_sub(1)));
        hook::point(CrashPoint::ReaderMidCopy);
        if ring.is_intact(seen.position) { Ok(()) } else { Err(Interrupted::Lapped) }
    }

    /// Like [`Self::copy`], but copies at most the first `limit` bytes. `limit` is a multiple of 8.
    pub(crate) fn copy_front(
        &self,
        ring: Ring<'_>,
        seen: &Seen,
        limit: usize,
        into: &mut Scratch,
    ) -> Result<(), Interrupted> {
        let words = to_index(record_bytes(seen.length) / 8).wrapping_sub(1).min(limit / 8);
        ring.load(seen.body(), into.words(words));
        if ring.is_intact(seen.position) { Ok(()) } else { Err(Interrupted::Lapped) }
    }

    #[inline]
    pub(crate) fn advance(&mut self, seen: &Seen) {
        self.position = seen.next_position();
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Returns whether writers that do not know of this reader yet cannot overtake it. Requires
    /// that every later scan finds its slot.
    ///
    /// A writer that has scanned the slots but not raised `reserved` yet holds the lock, and can
    /// reserve at most the largest record after the tail. Call this after the fence of
    /// `slots::activate` or `slots::count_join` (JOIN).
    pub(crate) fn is_out_of_reach(&self, ring: Ring<'_>) -> bool {
        let shape = ring.shape();
        let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
        let most = tail.saturating_add(shape.largest_record()).saturating_add(ALIGNMENT);
        shape.round_up_to_block(most) <= self.position.saturating_add(shape.capacity())
    }

    /// Moves a lapped cursor to the oldest intact record, or, with `margin`, to the oldest record
    /// that is at least `margin` bytes away from being overwritten. Returns the number of messages
    /// and bytes that were skipped.
    pub(crate) fn resume(&mut self, ring: Ring<'_>, margin: u64) -> Result<(u64, u64), Corrupt> {
        let to = find(ring, |tail, reserved, haste| {
            first_entry(ring, margin.saturating_add(haste), tail, reserved)
        })?;
        // A cursor never moves back: `find` returns a position at or after what has just been
        // overwritten.
        let lost =
            (to.sequence.saturating_sub(self.sequence), to.position.saturating_sub(self.position));
        *self = Self { position: to.position, sequence: to.sequence };
        Ok(lost)
    }

    pub(crate) fn at_end(ring: Ring<'_>) -> Result<Self, Corrupt> {
        if mutant("end_by_the_stored_pair") {
            let commit = &ring.control.commit.0;
            let sequence = commit.sequence.load(Ordering::Relaxed);
            return Ok(Self { position: commit.tail.load(Ordering::Acquire), sequence });
        }
        let start = find(ring, |tail, reserved, _| {
            let from = Self::of(newest_entry(ring, tail, reserved)?);
            let end = walk(ring, from, |cursor| cursor.position >= tail).ok()?;
            (end.position == tail)
                .then_some(RecordStart { position: end.position, sequence: end.sequence })
        })?;
        Ok(Self { position: start.position, sequence: start.sequence })
    }

    pub(crate) fn at_oldest(ring: Ring<'_>) -> Result<Self, Corrupt> {
        let start = find(ring, |tail, reserved, haste| first_entry(ring, haste, tail, reserved))?;
        Ok(Self { position: start.position, sequence: start.sequence })
    }

    /// Returns a cursor at the record at `position`, or at the end of the stream.
    pub(crate) fn at(ring: Ring<'_>, position: u64) -> Result<Self, NoSuchStart> {
        if !position.is_multiple_of(ALIGNMENT) {
            return Err(NoSuchStart::NotAPosition);
        }
        for _ in 0..ATTEMPTS {
            // TAIL
            let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
            let reserved = ring.control.reserved.0.load(Ordering::Relaxed);
            if tail > LARGEST_POSITION {
                break;
            }
            if position > tail.saturating_add(ring.shape().capacity()) {
                return Err(NoSuchStart::Ahead { end: tail });
            }
            // The stream may continue past `tail`. A message can be read before its writer has
            // moved `tail`, and a writer that dies in between never does.
            let Some(entry) = newest_entry(ring, position.min(tail), reserved) else {
                // Before the oldest entry, there may be whole records, but they cannot be found.
                let oldest = Self::at_oldest(ring).map_err(NoSuchStart::Corrupt)?;
                if oldest.position <= position {
                    continue;
                }
                return Err(NoSuchStart::Lost { oldest: oldest.position });
            };
            match walk(ring, Self::of(entry), |cursor| cursor.position >= position) {
                Ok(at) if at.position == position => return Ok(at),
                Ok(_) => return Err(NoSuchStart::NotAPosition),
                Err(Astray::Lapped) => {}
                Err(Astray::Ended(end)) if end.position >= tail => {
                    return Err(NoSuchStart::Ahead { end: end.position });
                }
                Err(Astray::Ended(end)) => {
                    return Err(NoSuchStart::Corrupt(ends_before(tail, end.position)));
                }
                Err(Astray::Corrupt(corrupt)) => return Err(NoSuchStart::Corrupt(corrupt)),
            }
        }
        Err(NoSuchStart::Corrupt(unstable(ring)))
    }

    /// Returns a cursor at the message `sequence`, or at the end of the stream if that message is the
    /// next one. The numbers in the errors are sequences.
    pub(crate) fn at_sequence(ring: Ring<'_>, sequence: u64) -> Result<Self, NoSuchStart> {
        for _ in 0..ATTEMPTS {
            // TAIL
            let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
            if tail > LARGEST_POSITION {
                break;
            }
            let Some(from) = Self::near(ring, sequence, tail) else {
                let oldest = Self::at_oldest(ring).map_err(NoSuchStart::Corrupt)?;
                if oldest.sequence <= sequence {
                    continue;
                }
                return Err(NoSuchStart::Lost { oldest: oldest.sequence });
            };
            match walk(ring, from, |cursor| cursor.sequence >= sequence) {
                Ok(at) => return Ok(at),
                Err(Astray::Lapped) => {}
                Err(Astray::Ended(end)) if end.position >= tail => {
                    return Err(NoSuchStart::Ahead { end: end.sequence });
                }
                Err(Astray::Ended(end)) => {
                    return Err(NoSuchStart::Corrupt(ends_before(tail, end.position)));
                }
                Err(Astray::Corrupt(corrupt)) => return Err(NoSuchStart::Corrupt(corrupt)),
            }
        }
        Err(NoSuchStart::Corrupt(unstable(ring)))
    }

    /// Returns the newest entry of the index that is neither after the message `sequence` nor after
    /// `tail`. If that message starts before `tail`, it starts in the same block. Returns `None` if
    /// the message is no longer in the ring.
    pub(crate) fn near(ring: Ring<'_>, sequence: u64, tail: u64) -> Option<Self> {
        let reserved = ring.control.reserved.0.load(Ordering::Relaxed);
        let oldest = ring.shape().oldest(reserved);
        (0..BLOCKS)
            .filter_map(|block| ring.read_entry(block))
            .filter(|entry| (oldest..=tail).contains(&entry.position) && entry.sequence <= sequence)
            .max_by_key(|entry| entry.position)
            .map(Self::of)
            .filter(|entry| ring.is_intact(entry.position))
    }

    /// Returns the newest entry of the index before `position`, if there is one.
    pub(crate) fn before(ring: Ring<'_>, position: u64) -> Option<Self> {
        let reserved = ring.control.reserved.0.load(Ordering::Relaxed);
        newest_entry(ring, position.checked_sub(ALIGNMENT)?, reserved).map(Self::of)
    }

    fn of(start: RecordStart) -> Self {
        Self { position: start.position, sequence: start.sequence }
    }
}

/// Makes `peek` trust what it has not validated.
#[inline(always)]
fn unvalidated() -> Option<u64> {
    mutant("peek_without_validation").then_some(u64::MAX)
}

/// Why no reader can start at a position, or at a sequence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoSuchStart {
    NotAPosition,
    Ahead { end: u64 },
    Lost { oldest: u64 },
    Corrupt(Corrupt),
}

/// The number of attempts to find a start. Under full load, a writer can overtake a search of the
/// index. But a lap of the ring takes thousands of times longer than a search. If this many
/// searches in a row fail, the words are wrong.
const ATTEMPTS: u32 = 1000;

/// Repeats `look` until it returns a start that is still intact afterwards. `look` receives a tail,
/// the `reserved` of that time, and haste.
///
/// Haste is a number of bytes to stay away from what is overwritten next. It is 0 at first. In a
/// small ring, a fast writer may overwrite the oldest block during every search. With one more
/// block of haste per attempt, the reader gets ahead of it.
fn find(
    ring: Ring<'_>,
    look: impl Fn(u64, u64, u64) -> Option<RecordStart>,
) -> Result<RecordStart, Corrupt> {
    for attempt in 0..ATTEMPTS {
        // TAIL: the entries up to this tail are visible.
        let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
        let mut reserved = ring.control.reserved.0.load(Ordering::Relaxed);
        if mutant("start_where_overwritten") {
            reserved = 0;
        }
        if tail > LARGEST_POSITION {
            break;
        }
        let haste = u64::from(attempt).saturating_mul(ring.shape().block_bytes());
        if let Some(start) = look(tail, reserved, haste)
            && (ring.is_intact(start.position) || mutant("start_where_overwritten"))
        {
            return Ok(start);
        }
        crate::sync::pause();
    }
    Err(unstable(ring))
}

#[cold]
fn unstable(ring: Ring<'_>) -> Corrupt {
    let position = ring.control.reserved.0.load(Ordering::Relaxed);
    let value = ring.control.commit.0.tail.load(Ordering::Relaxed);
    Corrupt { what: "blocks index or tail", value, position }
}

/// Returns the oldest entry that is at least `margin` bytes away from being overwritten, or the
/// newest entry if the margin is larger than the available history.
fn first_entry(ring: Ring<'_>, margin: u64, tail: u64, reserved: u64) -> Option<RecordStart> {
    let safe = ring.shape().oldest(reserved).saturating_add(margin).min(tail);
    (0..BLOCKS)
        .filter_map(|block| ring.read_entry(block))
        .filter(|entry| (safe..=tail).contains(&entry.position))
        .min_by_key(|entry| entry.position)
        .or_else(|| newest_entry(ring, tail, reserved))
}

/// Why walking from record to record did not reach its target.
enum Astray {
    Lapped,
    /// The stream ends here, before the target.
    Ended(Cursor),
    Corrupt(Corrupt),
}

/// Walks from record to record until `is_there` accepts a record, or the end of the stream.
fn walk(
    ring: Ring<'_>,
    from: Cursor,
    is_there: impl Fn(&Cursor) -> bool,
) -> Result<Cursor, Astray> {
    let mut cursor = from;
    while !is_there(&cursor) {
        // The loop is bounded: each step is at least a word, and two intact records are at most one
        // capacity apart.
        if cursor.position.saturating_sub(from.position) > ring.shape().capacity() {
            return Err(Astray::Lapped);
        }
        match cursor.peek(ring) {
            Ok(Some(seen)) => cursor.advance(&seen),
            Ok(None) => return Err(Astray::Ended(cursor)),
            Err(Interrupted::Lapped) => return Err(Astray::Lapped),
            Err(Interrupted::Corrupt(corrupt)) => return Err(Astray::Corrupt(corrupt)),
        }
    }
    Ok(cursor)
}

/// The stream ends at `position`, although a writer has stored `tail`.
#[cold]
fn ends_before(tail: u64, position: u64) -> Corrupt {
    Corrupt { what: "end of the stream", value: tail, position }
}
