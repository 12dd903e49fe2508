//! A ring and its model, side by side: every step is applied to both, and the results are compared.

use super::super::copy::Scratch;
use super::super::layout::BLOCKS;
use super::super::memory::{self, Ring};
use super::super::position::{Shape, record_bytes, to_index};
use super::super::reader::{Cursor, Interrupted, NoSuchStart};
use super::super::testing::{Memory, body, tag};
use super::super::writer::{Appender, Record};
use crate::hook::{self, CrashPoint, rehearsal};
use crate::sync::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use toroni_oracle::{Model, RecordStart};

pub(super) struct Fixture {
    pub(super) memory: Memory,
    pub(super) model: Model,
    stamp: u64,
}

/// What a writer does under the lock. Lengths are those of extensions and payload together, in
/// bytes.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Nothing,
    /// Reserves space, then writes nothing.
    Reserve(u64),
    One(u32),
    /// Writes the payload in place, after extensions of the given length.
    InPlace(u32, usize),
    /// The closure that writes in place panics half-way.
    Unwind(u32),
    Batch(Vec<u32>),
    /// Writes one by one, and reserves space for each separately.
    Burst(Vec<u32>),
}

impl Work {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Reserve(bytes) => *bytes,
            Self::One(length) | Self::InPlace(length, _) | Self::Unwind(length) => {
                record_bytes(*length)
            }
            Self::Batch(lengths) => lengths.iter().copied().map(record_bytes).sum(),
            // Space is reserved for each message separately.
            Self::Burst(_) => 0,
        }
    }

    fn lengths(&self) -> &[u32] {
        match self {
            Self::Nothing | Self::Reserve(_) => &[],
            Self::One(length) | Self::InPlace(length, _) | Self::Unwind(length) => {
                std::slice::from_ref(length)
            }
            Self::Batch(lengths) | Self::Burst(lengths) => lengths,
        }
    }
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) cursor: Cursor,
    scratch: Scratch,
}

/// The result of a reader's step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Message,
    Nothing,
    /// The numbers of messages and bytes that were skipped.
    Lapped(u64, u64),
}

impl Fixture {
    pub(super) fn new(capacity: u64) -> Self {
        let memory = Memory::new(capacity);
        let model = Model::new(capacity);
        Self { memory, model, stamp: 0 }
    }

    pub(super) fn ring(&self) -> Ring<'_> {
        self.memory.ring()
    }

    pub(super) fn shape(&self) -> Shape {
        self.memory.shape()
    }

    /// Returns the maximum length of extensions and payload of one record, in bytes.
    pub(super) fn longest(&self) -> u32 {
        u32::try_from(self.shape().largest_record() - 8).unwrap()
    }

    pub(super) fn write(&mut self, work: &Work) {
        self.perform(work, false, never);
    }

    /// Runs writers of messages of one length until they have written at least `bytes` bytes.
    pub(super) fn fill(&mut self, length: u32, bytes: u64) {
        let until = self.model.end() + bytes;
        while self.model.end() < until {
            self.perform_unchecked(&Work::One(length), false, never);
        }
        self.check();
    }

    /// Runs a writer that dies at the first step of this name, which it must reach.
    pub(super) fn die_at(&mut self, work: &Work, owner_died: bool, step: CrashPoint) {
        let reached = self.perform(work, owner_died, move |steps| steps.last() == Some(&step));
        assert_eq!(reached.last(), Some(&step), "{reached:?}");
    }

    /// Runs a writer that dies when `dies` returns true for the steps that it has reached, and
    /// returns these steps. `owner_died` is what the lock reports about the previous owner.
    pub(super) fn perform(
        &mut self,
        work: &Work,
        owner_died: bool,
        dies: impl Fn(&[CrashPoint]) -> bool + 'static,
    ) -> Vec<CrashPoint> {
        let reached = self.perform_unchecked(work, owner_died, dies);
        self.check();
        reached
    }

    fn perform_unchecked(
        &mut self,
        work: &Work,
        owner_died: bool,
        dies: impl Fn(&[CrashPoint]) -> bool + 'static,
    ) -> Vec<CrashPoint> {
        let first_stamp = self.stamp;
        self.stamp += work.lengths().len() as u64;
        let memory = &self.memory;
        let model = &self.model;
        let (reached, lived) = rehearsal::act(dies, || {
            // The fast path, if there is nothing to recover.
            let resumed = if owner_died { None } else { Appender::resume(memory.ring()) };
            let begin = || Appender::begin(memory.ring(), || None, owner_died).unwrap();
            let mut appender = resumed.unwrap_or_else(begin);
            assert_eq!(appender.tail(), model.end(), "the next writer starts at the end");
            assert_eq!(appender.sequence(), model.count() as u64, "and continues the count");
            if !appender.fits(work.bytes()) {
                appender.reserve(appender.wanted(work.bytes()));
            }
            carry_out(&mut appender, memory.ring(), work, first_stamp);
        });
        self.follow(work, first_stamp, &reached);
        if lived.is_some() {
            self.model.stored = self.model.count();
            let commit = &self.memory.control.commit.0;
            let (tail, next) = (&commit.tail, &commit.next);
            assert_eq!(tail.load(Ordering::Relaxed), next.load(Ordering::Relaxed), "I4");
        }
        reached
    }

    /// Applies to the model what a writer did that passed these steps.
    fn follow(&mut self, work: &Work, first_stamp: u64, reached: &[CrashPoint]) {
        let mut left = (first_stamp..).zip(work.lengths().iter().copied()).peekable();
        let mut before = None;
        for point in reached {
            // The tail is stored after the sequence, before any other step.
            if before == Some(CrashPoint::BetweenSequenceAndTail) {
                self.model.stored = self.model.count();
            }
            before = Some(*point);
            match (point, work) {
                (CrashPoint::AfterLock, _) => self.model.stored = self.model.count(),
                (CrashPoint::AfterReserve, Work::Burst(_)) => {
                    let (_, length) = left.peek().unwrap();
                    self.model.reserve(record_bytes(*length));
                }
                (CrashPoint::AfterReserve, _) => self.model.reserve(work.bytes()),
                (CrashPoint::AfterCommit, Work::Batch(_)) => {
                    for (stamp, length) in left.by_ref() {
                        self.model.commit(length, stamp);
                    }
                }
                (CrashPoint::AfterCommit, _) => {
                    let (stamp, length) = left.next().unwrap();
                    self.model.commit(length, stamp);
                }
                _ => {}
            }
        }
    }

    /// Compares the words that any process may read with the model.
    pub(super) fn check(&self) {
        let ring = self.ring();
        let control = ring.control;
        assert_eq!(control.reserved.0.load(Ordering::Relaxed), self.model.reserved, "reserved");
        assert_eq!(control.commit.0.tail.load(Ordering::Relaxed), self.model.stored_end().position);
        assert_eq!(ring.word(self.model.end()).load(Ordering::Relaxed), 0, "the end of the stream");
        if self.model.stored < self.model.count() {
            let next = control.commit.0.next.load(Ordering::Relaxed);
            assert_ne!(next, self.model.stored_end().position, "the next owner recovers (I4)");
        }
        for (block, expected) in self.model.entries() {
            assert_eq!(ring.read_entry(block).map(of), Some(expected), "entry of block {block}");
        }
        // The other entries are out of reach or correct.
        for entry in (0..BLOCKS).filter_map(|block| ring.read_entry(block)).map(of) {
            if (self.model.oldest()..=self.model.end()).contains(&entry.position) {
                assert_eq!(entry, self.model.first_from(entry.position));
            }
        }
    }

    /// Runs a step of a reader. If it was lapped, it continues `margin` bytes after the oldest
    /// message.
    pub(super) fn read(&self, reader: &mut Reader, margin: u64) -> Reading {
        let ring = self.ring();
        let cursor = reader.cursor;
        let peeked = cursor.peek(ring);
        if self.model.is_lapped(cursor.position) {
            assert_eq!(peeked, Err(Interrupted::Lapped), "at {cursor:?}");
            let lost = reader.cursor.resume(ring, margin).unwrap();
            let to = self.model.resumption(margin);
            assert_eq!(
                (reader.cursor.position, reader.cursor.sequence),
                (to.position, to.sequence)
            );
            assert_eq!(lost, (to.sequence - cursor.sequence, to.position - cursor.position));
            return Reading::Lapped(lost.0, lost.1);
        }
        let Some(expected) = self.model.message(cursor.sequence) else {
            assert_eq!(peeked, Ok(None), "at {cursor:?}");
            return Reading::Nothing;
        };
        let seen = peeked.unwrap().unwrap();
        assert_eq!((seen.position, seen.sequence), (expected.start, cursor.sequence));
        assert_eq!((seen.tag, seen.length), (tag(expected.stamp), expected.length));
        cursor.copy(ring, &seen, &mut reader.scratch).unwrap();
        let mut body = body(expected.stamp, expected.length);
        body.resize(body.len().next_multiple_of(8), 0);
        assert_eq!(reader.scratch.bytes(body.len()), body, "message {}", cursor.sequence);
        reader.cursor.advance(&seen);
        Reading::Message
    }

    /// Reads until nothing is left, and returns the number of messages.
    pub(super) fn drain(&self, reader: &mut Reader) -> u64 {
        (0..).find(|_| self.read(reader, 0) != Reading::Message).unwrap()
    }

    pub(super) fn join_oldest(&self) -> Reader {
        let expected = self.model.first_from(self.model.oldest());
        let cursor = Cursor::at_oldest(self.ring()).unwrap();
        assert_eq!((cursor.position, cursor.sequence), (expected.position, expected.sequence));
        Reader { cursor, scratch: Scratch::default() }
    }

    pub(super) fn join_end(&self) -> Reader {
        let expected = self.model.stored_end();
        let cursor = Cursor::at_end(self.ring()).unwrap();
        assert_eq!((cursor.position, cursor.sequence), (expected.position, expected.sequence));
        Reader { cursor, scratch: Scratch::default() }
    }

    pub(super) fn join_at(&self, position: u64) -> Option<Reader> {
        let found = Cursor::at(self.ring(), position);
        assert_eq!(found, expected(self.model.start_at(position)), "position {position}");
        Some(Reader { cursor: found.ok()?, scratch: Scratch::default() })
    }

    pub(super) fn join_at_sequence(&self, sequence: u64) -> Option<Reader> {
        let found = Cursor::at_sequence(self.ring(), sequence);
        assert_eq!(found, expected(self.model.start_at_sequence(sequence)), "sequence {sequence}");
        Some(Reader { cursor: found.ok()?, scratch: Scratch::default() })
    }
}

fn expected(start: Result<RecordStart, toroni_oracle::NoSuchStart>) -> Result<Cursor, NoSuchStart> {
    match start {
        Ok(RecordStart { position, sequence }) => Ok(Cursor { position, sequence }),
        Err(toroni_oracle::NoSuchStart::NotAPosition) => Err(NoSuchStart::NotAPosition),
        Err(toroni_oracle::NoSuchStart::Ahead { end }) => Err(NoSuchStart::Ahead { end }),
        Err(toroni_oracle::NoSuchStart::Lost { oldest }) => Err(NoSuchStart::Lost { oldest }),
    }
}

fn of(memory::RecordStart { position, sequence }: memory::RecordStart) -> RecordStart {
    RecordStart { position, sequence }
}

pub(super) fn never(_: &[CrashPoint]) -> bool {
    false
}

/// The writer dies at the step with this number, counted from 1, if it takes that many.
pub(super) fn at_step(number: usize) -> impl Fn(&[CrashPoint]) -> bool + 'static {
    move |steps| steps.len() == number
}

/// Writes what one writer writes, once space is reserved.
fn carry_out(appender: &mut Appender<'_>, ring: Ring<'_>, work: &Work, stamp: u64) {
    match work {
        Work::Nothing | Work::Reserve(_) => {}
        Work::One(length) => {
            let body = body(stamp, *length);
            appender.write(Record { tag: tag(stamp), extensions: &[], payload: &body });
        }
        Work::InPlace(length, extensions) => {
            write_in_place(appender, ring, &body(stamp, *length), *extensions, stamp, false);
        }
        Work::Unwind(length) => {
            write_in_place(appender, ring, &body(stamp, *length), 0, stamp, true);
        }
        Work::Batch(lengths) => {
            let messages = stamped(stamp, lengths);
            let records = messages.iter().map(|(tag, body)| {
                let (extensions, payload) = body.split_at(body.len().min(8) / 8 * 8);
                Record { tag: *tag, extensions, payload }
            });
            appender.write_batch(records, work.bytes());
        }
        Work::Burst(lengths) => burst(appender, &stamped(stamp, lengths)),
    }
}

fn stamped(first: u64, lengths: &[u32]) -> Vec<(u32, Vec<u8>)> {
    let messages = (first..).zip(lengths);
    messages.map(|(stamp, length)| (tag(stamp), body(stamp, *length))).collect()
}

/// Writes a burst as a publisher does: on the fast path within a block, as far as that goes. Each
/// message has its own tag here, so the fast path writes one message per call.
fn burst(appender: &mut Appender<'_>, messages: &[(u32, Vec<u8>)]) {
    for (tag, payload) in messages {
        if appender.write_in_block(*tag, &[payload]) == 1 {
            continue;
        }
        let record = Record { tag: *tag, extensions: &[], payload };
        if !appender.fits(record.bytes()) {
            appender.reserve(appender.wanted(record.bytes()));
        }
        appender.write(record);
        hook::point(CrashPoint::MidBurst);
    }
}

fn write_in_place(
    appender: &mut Appender<'_>,
    ring: Ring<'_>,
    body: &[u8],
    extensions: usize,
    stamp: u64,
    unwinds: bool,
) {
    struct Unwound;

    let (extensions, payload) = body.split_at(extensions.min(body.len()) / 8 * 8);
    let length = u32::try_from(payload.len()).unwrap();
    let start = appender.tail() + 8 + extensions.len() as u64;
    let fill = || {
        appender.write_with(tag(stamp), extensions, length, |words| {
            if !payload.is_empty() {
                assert!(std::ptr::eq(&raw const words[0], ring.word(start)), "its position");
            }
            // Stored by position, because a record may wrap in memory that is not mapped twice.
            let half = payload.len() / 16 * 8;
            ring.store(start, &payload[..half]);
            hook::point(CrashPoint::MidCopy);
            if unwinds {
                resume_unwind(Box::new(Unwound));
            }
            ring.store(start + half as u64, &payload[half..]);
            Ok::<_, std::convert::Infallible>(())
        })
    };
    match catch_unwind(AssertUnwindSafe(fill)) {
        Ok(Ok(())) => assert!(!unwinds),
        Err(cause) if cause.is::<Unwound>() => {}
        Err(cause) => resume_unwind(cause),
    }
}

/// Returns lengths around every boundary up to `longest`.
pub(super) fn boundary_lengths(shape: Shape, longest: u32) -> Vec<u32> {
    let block = u32::try_from(shape.block_bytes()).unwrap();
    let mut lengths: Vec<u32> = (0..40).collect();
    for unit in [block, 2 * block, 5 * block, longest / 2, longest] {
        lengths.extend(unit.saturating_sub(17)..=unit + 17);
    }
    lengths.retain(|length| *length <= longest);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Reduces a count under Miri, which is hundreds of times slower.
pub(super) fn scaled(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(100) } else { count }
}

pub(super) fn word_count(shape: Shape) -> usize {
    to_index(shape.capacity() / 8)
}
