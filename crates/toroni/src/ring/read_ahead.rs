//! Read-ahead: small records that a reader copies out of the ring together and hands out one by
//! one.
//!
//! Each access to the ring costs a reader a fence, a load of `reserved`, and a copy whose setup
//! takes longer than a small message. So a reader takes all small records that are there, up to
//! [`MOST_BYTES`], in three steps:
//!
//! 1. It loads the header words one after another, with acquire (COMMIT), to find the end of the
//!    last small record. It does not trust them yet: they only say how much to copy, within bounds.
//! 2. It copies all records.
//! 3. It checks `reserved` once for all of them (RESERVE). `reserved` covers the oldest record, so
//!    it covers the others too.
//!
//! What is in a read-ahead no longer depends on the ring. It is delivered even if a writer laps the
//! reader in the meantime.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::copy::Scratch;
use super::layout::ALIGNMENT;
use super::memory::Ring;
use super::position::{record_bytes, to_index};
use super::reader::{Cursor, Interrupted, Seen};
use super::writer::{header, length_of, tag_of};
use crate::hook::{self, CrashPoint, mutant, weakened};
use crate::sync::Ordering;

/// The maximum number of bytes copied at once, headers included: a small part of a first-level
/// cache. A longer read-ahead would save nothing more, and would delay its first message.
pub(crate) const MOST_BYTES: u64 = 4096;

/// The size of the longest record that goes through a read-ahead. A longer record is copied by
/// itself, and only if it is wanted.
pub(crate) const LONGEST_RECORD: u64 = 256 + ALIGNMENT;

/// Private copies of consecutive records.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// The size of the longest record that goes through it: [`LONGEST_RECORD`], or 0 if it is turned off.
    longest: u64,
    scratch: Scratch,
    /// The position of the first byte of `scratch`.
    base: u64,
    /// The start of the next record, and the end of the last one, in words of `scratch`.
    next: usize,
    end: usize,
    /// The sequence of the next record.
    sequence: u64,
    /// The header of the record that was handed out last, and the offset of its body in `scratch`,
    /// in bytes.
    header: u64,
    body: usize,
    /// Tag and size in words of the records that [`Self::next_wanted`] hands out.
    wanted_tag: u32,
    wanted_words: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self {
            longest: LONGEST_RECORD,
            scratch: Scratch::default(),
            base: 0,
            next: 0,
            end: 0,
            sequence: 0,
            header: 0,
            body: 0,
            wanted_tag: 0,
            wanted_words: 0,
        }
    }
}

impl ReadAhead {
    /// Makes [`Self::fill`] take no records, so that each is copied by itself when it is wanted.
    pub(crate) fn turn_off(&mut self) {
        self.longest = 0;
    }

    /// Allocates the memory for the first records and touches it, so that [`Self::fill`] need not.
    #[cold]
    pub(crate) fn reserve(&mut self) {
        self.scratch.words(to_index(MOST_BYTES / ALIGNMENT)).fill(1);
    }

    /// Returns whether all records were handed out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Returns the position of the next record, if there is one.
    pub(crate) fn next_cursor(&self) -> Option<Cursor> {
        (!self.is_empty()).then(|| Cursor {
            position: self.base.wrapping_add((self.next as u64).wrapping_mul(ALIGNMENT)),
            sequence: self.sequence,
        })
    }

    /// Copies as many small records from `cursor` on as are there and fit, validates them together,
    /// and moves the cursor past them. Requires that the read-ahead is empty.
    ///
    /// Returns false if there is no record, if the next one is not small, or if the records end
    /// where none can end. [`Cursor::peek`] then finds out which.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        cursor: &mut Cursor,
        ring: Ring<'_>,
    ) -> Result<bool, Interrupted> {
        debug_assert!(self.is_empty());
        let end = end_of_read_ahead(*cursor, ring, self.longest);
        if end == *cursor {
            return Ok(false);
        }
        let words = to_index(end.position.wrapping_sub(cursor.position) / ALIGNMENT);
        ring.load(cursor.position, self.scratch.words(words));
        hook::point(CrashPoint::ReaderMidCopy);
        let unvalidated = || mutant("read_ahead_before_validation").then_some(u64::MAX);
        let Some(reserved) = ring.reserved_if_intact(cursor.position).or_else(unvalidated) else {
            return Err(Interrupted::Lapped);
        };
        // As in `Cursor::peek`: no record ends there.
        if end.position.wrapping_add(ALIGNMENT) > reserved {
            return Ok(false);
        }
        (self.base, self.sequence) = (cursor.position, cursor.sequence);
        (self.next, self.end) = (0, words);
        *cursor = end;
        Ok(true)
    }

    /// Hands out the next record, if it has the wanted tag and size.
    ///
    /// Streams of messages with one topic and size are common. The end of a record is then known
    /// before its header has been loaded, so the processor need not wait for one header to find the
    /// next.
    #[inline(always)]
    pub(crate) fn next_wanted(&mut self) -> bool {
        if self.is_empty() {
            return false;
        }
        let header = self.scratch.word(self.next);
        let end = self.next.wrapping_add(self.wanted_words);
        if tag_of(header) != self.wanted_tag
            || words_of(header) != self.wanted_words
            || end > self.end
        {
            return false;
        }
        self.hand_out(header, end);
        true
    }

    /// Hands out the next record and returns its tag. Returns `None` at the end, and where the copy
    /// is invalid, as when a process rewrites headers. [`Self::give_up`] then returns where to
    /// check again.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let header = self.scratch.word(self.next);
        let end = self.next.wrapping_add(words_of(header));
        if end > self.end || tag_of(header) == 0 {
            return None;
        }
        self.hand_out(header, end);
        Some(tag_of(header))
    }

    #[inline(always)]
    fn hand_out(&mut self, header: u64, end: usize) {
        self.header = header;
        self.body = self.next.wrapping_add(1).wrapping_mul(8);
        self.next = end;
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Makes [`Self::next_wanted`] hand out records with the tag and size of the last one.
    #[inline]
    pub(crate) fn want_more(&mut self) {
        self.wanted_tag = self.tag();
        self.wanted_words = words_of(self.header);
    }

    /// Drops the remaining records and returns the position of the first of them.
    pub(crate) fn give_up(&mut self) -> Option<Cursor> {
        let next = self.next_cursor();
        self.next = self.end;
        next
    }

    /// Hands out a record that does not come from [`Self::fill`]. Returns the memory for its body.
    pub(crate) fn set(&mut self, seen: &Seen) -> &mut Scratch {
        debug_assert!(self.is_empty());
        self.base = seen.body();
        self.sequence = seen.sequence.wrapping_add(1);
        self.header = header(seen.length, seen.tag);
        self.body = 0;
        &mut self.scratch
    }

    #[inline]
    pub(crate) fn last(&self) -> Seen {
        Seen {
            position: self.base.wrapping_add(self.body as u64).wrapping_sub(ALIGNMENT),
            sequence: self.sequence.wrapping_sub(1),
            tag: self.tag(),
            length: self.length(),
        }
    }

    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        tag_of(self.header)
    }

    #[inline]
    pub(crate) fn length(&self) -> u32 {
        length_of(self.header)
    }

    /// Returns the first `length` bytes of its body, as far as they were copied.
    #[inline]
    pub(crate) fn body(&self, length: usize) -> &[u8] {
        self.scratch.bytes_from(self.body, length)
    }
}

#[inline]
fn words_of(header: u64) -> usize {
    to_index(record_bytes(length_of(header)) / ALIGNMENT)
}

/// Returns the end of the last small record from `start` on that fits into a read-ahead.
#[inline]
fn end_of_read_ahead(start: Cursor, ring: Ring<'_>, longest: u64) -> Cursor {
    // A cursor begins below `LARGEST_POSITION`, and moves only within what was reserved.
    let limit = start.position.wrapping_add(MOST_BYTES);
    let mut end = start;
    loop {
        // COMMIT
        let acquire = weakened("read_ahead_headers_relaxed", Ordering::Acquire);
        let header = ring.word(end.position).load(acquire);
        let bytes = record_bytes(length_of(header));
        // A length is trusted only as far as it stays within the bounds of the copy.
        if header == 0 || bytes > longest {
            return end;
        }
        // The processor predicts that consecutive records have one size, and does not wait for each
        // header to find the next.
        loop {
            let position = end.position.wrapping_add(bytes);
            if position > limit {
                return end;
            }
            end = Cursor { position, sequence: end.sequence.wrapping_add(1) };
            // COMMIT
            let next = ring.word(end.position).load(acquire);
            if next == 0 || record_bytes(length_of(next)) != bytes {
                break;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::testing::{Memory, body, tag};
    use super::*;

    const START: u64 = 64 << 10;

    fn at(position: u64, sequence: u64) -> Cursor {
        Cursor { position, sequence }
    }

    #[test]
    fn small_records_come_together_and_long_ones_do_not() {
        let lengths = [8, 8, 0, 256, 17, 257, 8];
        let memory = Memory::laid(64 << 10, START, &lengths);
        let mut cursor = at(START, 0);
        let mut read_ahead = ReadAhead::default();
        assert_eq!(read_ahead.fill(&mut cursor, memory.ring()), Ok(true));
        assert_eq!(cursor.sequence, 5, "up to the long one");
        for (sequence, length) in (0..5).zip(lengths) {
            let expected = read_ahead.next_cursor().unwrap();
            assert_eq!(read_ahead.next(), Some(tag(sequence)));
            let last = read_ahead.last();
            assert_eq!((last.position, last.sequence), (expected.position, expected.sequence));
            assert_eq!((last.sequence, last.length), (sequence, length));
            assert_eq!(read_ahead.body(length as usize), body(sequence, length));
        }
        assert_eq!(
            (read_ahead.next(), read_ahead.is_empty(), read_ahead.next_cursor()),
            (None, true, None)
        );
        assert_eq!(read_ahead.fill(&mut cursor, memory.ring()), Ok(false), "a long record");
        assert_eq!(cursor.sequence, 5, "the cursor stays");
    }

    #[test]
    fn a_read_ahead_is_limited_in_bytes() {
        let lengths = vec![8; 1000];
        let memory = Memory::laid(64 << 10, START, &lengths);
        let mut cursor = at(START, 0);
        let mut read_ahead = ReadAhead::default();
        let mut count = 0;
        while read_ahead.fill(&mut cursor, memory.ring()) == Ok(true) {
            let filled = cursor.sequence - count;
            assert!(filled == MOST_BYTES / 16 || cursor.sequence == 1000, "{filled}");
            while read_ahead.next().is_some() {
                assert_eq!(read_ahead.last().sequence, count);
                assert_eq!(read_ahead.tag(), tag(count));
                count += 1;
            }
        }
        assert_eq!(count, 1000);
    }

    #[test]
    fn wanted_records_are_handed_out_directly() {
        let memory = Memory::laid(64 << 10, START, &[8; 6]);
        // Two sequences of equal headers.
        let header = header(8, tag(7));
        for sequence in [0, 1, 3, 4] {
            memory.ring().word(START + 16 * sequence).store(header, Ordering::Relaxed);
        }
        let mut read_ahead = ReadAhead::default();
        read_ahead.fill(&mut at(START, 0), memory.ring()).unwrap();
        assert!(!read_ahead.next_wanted(), "nothing is wanted yet");
        assert_eq!(read_ahead.next(), Some(tag(7)));
        read_ahead.want_more();
        assert!(read_ahead.next_wanted());
        assert_eq!((read_ahead.last().sequence, read_ahead.body(8)), (1, &body(1, 8)[..]));
        assert!(!read_ahead.next_wanted(), "another topic");
        assert_eq!(read_ahead.next(), Some(tag(2)));
        assert!(read_ahead.next_wanted() && read_ahead.next_wanted() && !read_ahead.next_wanted());
        assert_eq!(read_ahead.next(), Some(tag(5)));
        assert!(!read_ahead.next_wanted(), "the end");
    }

    #[test]
    fn a_read_ahead_is_delivered_after_a_writer_lapped_the_reader() {
        let memory = Memory::laid(64 << 10, START, &[8; 4]);
        let mut cursor = at(START, 0);
        let mut read_ahead = ReadAhead::default();
        read_ahead.fill(&mut cursor, memory.ring()).unwrap();
        memory.control.reserved.0.store(START + (64 << 10) + 1024, Ordering::Relaxed);
        for word in &memory.words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        for sequence in 0..4 {
            assert_eq!(read_ahead.next(), Some(tag(sequence)));
            assert_eq!(read_ahead.body(8), body(sequence, 8));
        }
        // The bytes of a small record's header, at a position where there is no record any more.
        memory.ring().word(cursor.position).store(header(8, tag(9)), Ordering::Relaxed);
        assert_eq!(read_ahead.fill(&mut cursor, memory.ring()), Err(Interrupted::Lapped));
    }

    #[test]
    fn a_record_beyond_reserved_is_left_to_peek() {
        let memory = Memory::laid(64 << 10, START, &[8; 4]);
        memory.control.reserved.0.store(START + 64, Ordering::Relaxed);
        let mut cursor = at(START, 0);
        assert_eq!(ReadAhead::default().fill(&mut cursor, memory.ring()), Ok(false));
        assert_eq!(cursor, at(START, 0));
    }

    #[test]
    fn headers_that_change_between_two_checks_are_checked_again() {
        for rewritten in [header(8000, tag(1)), header(u32::MAX, tag(1)), header(8, 0), 0] {
            let memory = Memory::laid(64 << 10, START, &[8; 4]);
            let mut cursor = at(START, 0);
            let mut read_ahead = ReadAhead::default();
            read_ahead.fill(&mut cursor, memory.ring()).unwrap();
            read_ahead.scratch.words(8)[2] = rewritten;
            assert_eq!(read_ahead.next(), Some(tag(0)));
            assert_eq!(read_ahead.next(), None);
            assert_eq!(read_ahead.give_up(), Some(at(START + 16, 1)));
            assert!(read_ahead.is_empty());
        }
    }

    #[test]
    fn a_record_copied_by_itself_is_the_last_one() {
        let memory = Memory::laid(64 << 10, START, &[8, 1000]);
        let cursor = at(START + 16, 1);
        let seen = cursor.peek(memory.ring()).unwrap().unwrap();
        let mut read_ahead = ReadAhead::default();
        cursor.copy(memory.ring(), &seen, read_ahead.set(&seen)).unwrap();
        assert_eq!(read_ahead.last(), seen);
        assert_eq!(read_ahead.body(1000), body(1, 1000));
        assert!(read_ahead.is_empty());
    }
}
