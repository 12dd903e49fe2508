//! Records in a row that a reader looks at where they lie.
//!
//! Nothing is copied, so nothing is known to be whole when it is handed out, but for its header:
//! [`Cursor::look`] has asked for that. Whoever reads further asks again afterwards, for one record
//! ([`Ring::is_intact`]) or for all of them ([`Run::is_intact`]).

use super::layout::ALIGNMENT;
use super::memory::Ring;
use super::position::record_bytes;
use super::reader::{Cursor, Seen};
use super::writer::{length_of, tag_of};
use crate::mutant::mutant;
use crate::sync::Ordering;

/// A run: it begins at a record and ends with the stream, or about a block further on. A reader that holds on to
/// more of the ring at once would let its writers wait longer than they need to.
pub(crate) struct Run<'a> {
    ring: Ring<'a>,
    start: Cursor,
    /// Before the record that is looked at next.
    cursor: Cursor,
    /// Where the last record of the run has to begin before.
    end: u64,
    /// Tag and bytes of records that the caller wants without being asked; no record takes 0 bytes.
    wanted_tag: u32,
    wanted_bytes: u64,
}

impl<'a> Run<'a> {
    /// A run whose first record, `first`, the caller has already.
    #[inline]
    pub(crate) fn behind(ring: Ring<'a>, first: &Seen) -> Self {
        let start = Cursor { position: first.position, sequence: first.sequence };
        let end = start.position.saturating_add(ring.shape().block_bytes());
        let mut cursor = start;
        cursor.advance(first);
        Self { ring, start, cursor, end, wanted_tag: 0, wanted_bytes: 0 }
    }

    /// A run that is over; its reader stands at `cursor`.
    pub(crate) fn ended(ring: Ring<'a>, cursor: Cursor) -> Self {
        Self { ring, start: cursor, cursor, end: 0, wanted_tag: 0, wanted_bytes: 0 }
    }

    /// Passes the next record and returns it, if the run goes on with one of those that the caller wants without
    /// being asked.
    ///
    /// Streams of messages of one topic and size are common. All that is to be known of their headers, but that they
    /// are intact, was asked for the first of them. And where a record ends is known before its header has been loaded:
    /// the processor need not wait for one line of the ring to ask for the next.
    #[inline(always)]
    pub(crate) fn next_wanted(&mut self) -> Option<Seen> {
        let Cursor { position, sequence } = self.cursor;
        // COMMIT
        let word = self.ring.word(position).load(Ordering::Acquire);
        let reserved = self.ring.reserved_if_intact(position)?;
        let behind = position + self.wanted_bytes;
        let (tag, length) = (tag_of(word), length_of(word));
        if tag != self.wanted_tag
            || record_bytes(length) != self.wanted_bytes
            || position >= self.end
            || behind + ALIGNMENT > reserved
        {
            return None;
        }
        self.cursor = Cursor { position: behind, sequence: sequence.wrapping_add(1) };
        Some(Seen { position, sequence, tag, length })
    }

    /// The caller wants all records with the tag and the size of `seen`.
    #[inline]
    pub(crate) fn want_more(&mut self, seen: &Seen) {
        self.wanted_tag = seen.tag;
        self.wanted_bytes = record_bytes(seen.length);
    }

    /// The next record, if the run goes on. What is wrong where it does not, a lap or a header that makes no sense,
    /// the reader's own look tells.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Seen> {
        if self.cursor.position >= self.end {
            return None;
        }
        self.cursor.peek(self.ring).ok().flatten()
    }

    /// Goes behind `seen`, at which the run has just looked.
    #[inline]
    pub(crate) fn pass(&mut self, seen: &Seen) {
        self.cursor.advance(seen);
    }

    /// The ring that it lies in.
    #[inline]
    pub(crate) fn ring(&self) -> Ring<'a> {
        self.ring
    }

    /// Behind the last record that was passed.
    #[inline]
    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Whether all that was read so far is what was published; else how many messages and bytes that was.
    pub(crate) fn is_intact(&self) -> Result<(), (u64, u64)> {
        // The oldest is overwritten first.
        let oldest = if mutant("run_validated_by_its_last") { self.cursor } else { self.start };
        if self.ring.is_intact(oldest.position) {
            return Ok(());
        }
        let messages = self.cursor.sequence.wrapping_sub(self.start.sequence);
        Err((messages, self.cursor.position - self.start.position))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::testing::{Memory, body, tag};
    use super::super::writer::header;
    use super::*;

    const CAPACITY: u64 = 64 << 10;
    const START: u64 = 3 * CAPACITY;

    /// The run from the first of some records on, and that record.
    fn run(memory: &Memory) -> (Run<'_>, Seen) {
        let cursor = Cursor { position: START, sequence: 0 };
        let first = cursor.peek(memory.ring()).expect("intact").expect("there");
        (Run::behind(memory.ring(), &first), first)
    }

    /// Reads a record where it lies.
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
    fn it_ends_about_a_block_behind_its_start() {
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
    fn one_that_is_over_stays_where_its_reader_is() {
        let memory = Memory::laid(CAPACITY, START, &[8; 3]);
        let cursor = Cursor { position: START, sequence: 0 };
        let run = Run::ended(memory.ring(), cursor);
        assert_eq!((run.peek(), run.cursor()), (None, cursor));
    }

    #[test]
    fn it_goes_through_the_end_of_the_ring() {
        let start = START - 64;
        let lengths = [8, 100, 8, 30, 8];
        let memory = Memory::laid(CAPACITY, start, &lengths);
        let first = Cursor { position: start, sequence: 0 }.peek(memory.ring()).unwrap().unwrap();
        let mut run = Run::behind(memory.ring(), &first);
        let mut sequence = 1;
        while let Some(seen) = run.peek() {
            assert_eq!(words(&memory, &seen), body(sequence, seen.length));
            run.pass(&seen);
            sequence += 1;
        }
        assert_eq!(sequence, 5);
    }

    #[test]
    fn one_that_is_lapped_ends_and_does_not_count() {
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

    /// Records of one tag, but for the last but one.
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
    fn records_that_are_wanted_come_without_being_asked() {
        let memory = stream(&[8, 5, 1, 16, 8, 8, 8]);
        let (mut run, first) = run(&memory);
        assert_eq!(run.next_wanted(), None, "nobody said so");
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
    fn wanted_records_end_where_any_do() {
        let memory = stream(&[8; 1000]);
        let (mut run, first) = run(&memory);
        run.want_more(&first);
        let mut count = 1;
        while run.next_wanted().is_some() {
            count += 1;
        }
        assert_eq!(count * 16, memory.shape().block_bytes());

        // No record ends at or behind what is reserved.
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
    fn headers_that_make_no_sense_end_it() {
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
