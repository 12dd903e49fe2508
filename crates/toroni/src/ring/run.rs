//! Runs: consecutive records that a reader reads in place.
//!
//! 1. Nothing is copied, so the payload of a record is not validated when the record is returned.
//!    Only its header is: [`Cursor::peek`] or [`Run::next_wanted`] has checked it.
//! 2. After reading a payload, the caller checks again, for one record ([`Ring::is_intact`]) or for
//!    all records of the run ([`Run::is_intact`]). Only then is what it read valid.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::ALIGNMENT;
use super::memory::Ring;
use super::position::record_bytes;
use super::reader::{Cursor, Seen};
use super::writer::{length_of, tag_of};
use crate::hook::mutant;
use crate::sync::Ordering;

/// A run. It starts at a record and ends with the stream, or about one block after its start. If a
/// reader held on to more of the ring at once, its writers would wait longer than necessary.
pub(crate) struct Run<'a> {
    ring: Ring<'a>,
    start: Cursor,
    /// Before the next record.
    cursor: Cursor,
    /// Every record of the run starts before this position.
    end: u64,
    /// Tag and size in bytes of the records that [`Self::next_wanted`] returns. Initially 0, which
    /// matches no record.
    wanted_tag: u32,
    wanted_bytes: u64,
}

impl<'a> Run<'a> {
    /// Starts a run after `first`, its first record, which the caller already has.
    #[inline]
    pub(crate) fn after(ring: Ring<'a>, first: &Seen) -> Self {
        let start = Cursor { position: first.position, sequence: first.sequence };
        let end = start.position.saturating_add(ring.shape().block_bytes());
        let mut cursor = start;
        cursor.advance(first);
        Self { ring, start, cursor, end, wanted_tag: 0, wanted_bytes: 0 }
    }

    /// Returns an empty run of a reader at `cursor`.
    pub(crate) fn ended(ring: Ring<'a>, cursor: Cursor) -> Self {
        Self { ring, start: cursor, cursor, end: 0, wanted_tag: 0, wanted_bytes: 0 }
    }

    /// Advances past the next record and returns it, if it has the wanted tag and size.
    ///
    /// Streams of messages with one topic and size are common. Everything about their headers was
    /// checked for the first of them, except that they are intact. The end of a record is also
    /// known before its header has been loaded, so the processor can request the next cache line of
    /// the ring without waiting for this one.
    #[inline(always)]
    pub(crate) fn next_wanted(&mut self) -> Option<Seen> {
        let Cursor { position, sequence } = self.cursor;
        // COMMIT
        let word = self.ring.word(position).load(Ordering::Acquire);
        let reserved = self.ring.reserved_if_intact(position)?;
        let end_of_record = position.wrapping_add(self.wanted_bytes);
        let (tag, length) = (tag_of(word), length_of(word));
        if tag != self.wanted_tag
            || record_bytes(length) != self.wanted_bytes
            || position >= self.end
            || end_of_record.wrapping_add(ALIGNMENT) > reserved
        {
            return None;
        }
        self.cursor = Cursor { position: end_of_record, sequence: sequence.wrapping_add(1) };
        Some(Seen { position, sequence, tag, length })
    }

    /// Makes [`Self::next_wanted`] return records with the tag and the size of `seen`.
    #[inline]
    pub(crate) fn want_more(&mut self, seen: &Seen) {
        self.wanted_tag = seen.tag;
        self.wanted_bytes = record_bytes(seen.length);
    }

    /// Returns the next record, or `None` if the run has ended. If it ended because the reader was
    /// lapped or a header is invalid, the reader's own `peek` returns the error.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Seen> {
        if self.cursor.position >= self.end {
            return None;
        }
        self.cursor.peek(self.ring).ok().flatten()
    }

    /// Moves past `seen`, which [`Self::peek`] has just returned.
    #[inline]
    pub(crate) fn pass(&mut self, seen: &Seen) {
        self.cursor.advance(seen);
    }

    #[inline]
    pub(crate) fn ring(&self) -> Ring<'a> {
        self.ring
    }

    /// Returns the position after the last record that was passed.
    #[inline]
    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Checks whether everything read so far is what was published. If not, returns the number of
    /// messages and bytes of it.
    pub(crate) fn is_intact(&self) -> Result<(), (u64, u64)> {
        // The oldest is overwritten first.
        let oldest = if mutant("run_validated_by_its_last") { self.cursor } else { self.start };
        if self.ring.is_intact(oldest.position) {
            return Ok(());
        }
        let messages = self.cursor.sequence.wrapping_sub(self.start.sequence);
        Err((messages, self.cursor.position.wrapping_sub(self.start.position)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::testing::{Memory, body, tag};
    use super::super::writer::header;
    use super::*;

    const CAPACITY: u64 = 64 << 10;
    const START: u64 = 3 * CAPACITY;

    /// Returns the run from the first record on, and that record.
    fn run(memory: &Memory) -> (Run<'_>, Seen) {
        let cursor = Cursor { position: START, sequence: 0 };
        let first = cursor.peek(memory.ring()).expect("intact").expect("there");
        (Run::after(memory.ring(), &first), first)
    }

    fn words(memory: &Memory, seen: &Seen) -> Vec<u8> {
        let mut words = vec![0; (seen.length as usize).div_ceil(8)];
        memory.ring().load(seen.body(), &mut words);
        words.into_iter().flat_map(u64::to_ne_bytes).take(seen.length as usize).collect()
    }

    #[test]
    fn records_of_all_sizes_come_in_a_row() {
        let lengths = [8, 8, 8, 100, 8, 0, 500, 8];
        let memory = Memory::laid(CAPACITY, START, &lengths);
        let (mut run, first) = run(&memory);
        assert_eq!((first.tag, first.length), (tag(0), 8));
        for (sequence, length) in (1..).zip(&lengths[1..]) {
            let seen = run.peek().unwrap();
            assert_eq!((seen.sequence, seen.tag, seen.length), (sequence, tag(sequence), *length));
            assert_eq!(words(&memory, &seen), body(sequence, *length));
            run.pass(&seen);
            assert_eq!(run.cursor().position, seen.next_position());
        }
        assert_eq!(run.peek(), None);
        assert_eq!((run.cursor().sequence, run.is_intact()), (8, Ok(())));
    }

    #[test]
    fn it_ends_about_a_block_after_its_start() {
        let memory = Memory::laid(CAPACITY, START, &[8; 1000]);
        let (mut run, _) = run(&memory);
        let mut count = 1;
        while let Some(seen) = run.peek() {
            run.pass(&seen);
            count += 1;
        }
        assert_eq!(count * 16, memory.shape().block_bytes());
    }

    #[test]
    fn an_empty_run_stays_at_its_reader() {
        let memory = Memory::laid(CAPACITY, START, &[8; 3]);
        let cursor = Cursor { position: START, sequence: 0 };
        let run = Run::ended(memory.ring(), cursor);
        assert_eq!((run.peek(), run.cursor()), (None, cursor));
    }

    #[test]
    fn it_continues_past_the_end_of_the_ring() {
        let start = START - 64;
        let lengths = [8, 100, 8, 30, 8];
        let memory = Memory::laid(CAPACITY, start, &lengths);
        let first = Cursor { position: start, sequence: 0 }.peek(memory.ring()).unwrap().unwrap();
        let mut run = Run::after(memory.ring(), &first);
        let mut sequence = 1;
        while let Some(seen) = run.peek() {
            assert_eq!(words(&memory, &seen), body(sequence, seen.length));
            run.pass(&seen);
            sequence += 1;
        }
        assert_eq!(sequence, 5);
    }

    #[test]
    fn a_lapped_run_ends_and_is_not_intact() {
        let memory = Memory::laid(CAPACITY, START, &[8; 6]);
        let (mut run, _) = run(&memory);
        for _ in 0..2 {
            run.pass(&run.peek().unwrap());
        }
        // A writer is about to overwrite the first record, and no more.
        memory.control.reserved.0.store(START + CAPACITY + ALIGNMENT, Ordering::Relaxed);
        assert_eq!(run.is_intact(), Err((3, 48)), "from the oldest on");
        assert!(run.peek().is_some(), "which is intact");
        memory.control.reserved.0.store(START + CAPACITY + 48 + ALIGNMENT, Ordering::Relaxed);
        assert_eq!(run.peek(), None);
        assert_eq!(run.cursor(), Cursor { position: START + 48, sequence: 3 });
    }

    /// Records of one tag, except for the last but one.
    fn stream(lengths: &[u32]) -> Memory {
        let memory = Memory::laid(CAPACITY, START, lengths);
        let mut position = START;
        for (number, length) in lengths.iter().enumerate() {
            let tag = if number + 2 == lengths.len() { tag(8) } else { tag(7) };
            memory.ring().word(position).store(header(*length, tag), Ordering::Relaxed);
            position += record_bytes(*length);
        }
        memory
    }

    #[test]
    fn wanted_records_are_returned_directly() {
        let memory = stream(&[8, 5, 1, 16, 8, 8, 8]);
        let (mut run, first) = run(&memory);
        assert_eq!(run.next_wanted(), None, "nothing is wanted yet");
        run.want_more(&first);
        for (sequence, length) in [(1, 5), (2, 1)] {
            let seen = run.next_wanted().unwrap();
            assert_eq!((seen.sequence, seen.tag, seen.length), (sequence, tag(7), length));
            assert_eq!(seen.position, START + sequence * 16);
        }
        assert_eq!(run.next_wanted(), None, "a larger one");
        run.pass(&run.peek().unwrap());
        assert_eq!(run.next_wanted().map(|seen| seen.sequence), Some(4));
        assert_eq!(run.next_wanted(), None, "another topic");
        run.pass(&run.peek().unwrap());
        assert_eq!(run.next_wanted().map(|seen| seen.sequence), Some(6));
        assert_eq!(run.next_wanted(), None, "the end");
    }

    #[test]
    fn wanted_records_end_with_the_run() {
        let memory = stream(&[8; 1000]);
        let (mut run, first) = run(&memory);
        run.want_more(&first);
        let mut count = 1;
        while run.next_wanted().is_some() {
            count += 1;
        }
        assert_eq!(count * 16, memory.shape().block_bytes());

        // No record ends at or after `reserved`.
        let reserved = &memory.control.reserved.0;
        let (mut run, first) = self::run(&memory);
        run.want_more(&first);
        reserved.store(START + 32 + ALIGNMENT, Ordering::Relaxed);
        assert!(run.next_wanted().is_some() && run.next_wanted().is_none());
        // A writer is about to overwrite the next one.
        reserved.store(START + CAPACITY + 32 + ALIGNMENT, Ordering::Relaxed);
        assert_eq!(run.next_wanted(), None);
    }

    #[test]
    fn invalid_headers_end_a_run() {
        for wrong in [header(u32::MAX, tag(1)), header(1 << 20, tag(1)), header(8, 0), 0] {
            let memory = Memory::laid(CAPACITY, START, &[8; 4]);
            memory.ring().word(START + 16).store(wrong, Ordering::Relaxed);
            let (mut run, first) = run(&memory);
            run.want_more(&Seen { tag: tag(1), ..first });
            assert_eq!((run.peek(), run.next_wanted()), (None, None), "{wrong:#x}");
            assert_eq!(run.cursor().sequence, 1);
        }
    }
}
