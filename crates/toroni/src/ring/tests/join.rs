//! Tests of the positions at which a reader can start.

use super::super::reader::{Cursor, NoSuchStart};
use super::super::testing::{Memory, body, tag};
use super::super::writer::{Appender, Record};
use super::fixture::{Fixture, Work, boundary_lengths};
use super::resume::SplitMix;
use crate::hook::CrashPoint;
use crate::sync::{AtomicU64, Ordering};
use std::sync::atomic::AtomicBool;

#[test]
fn a_new_bus_has_one_start() {
    let fixture = Fixture::new(512);
    for reader in [fixture.join_end(), fixture.join_oldest(), fixture.join_at(0).unwrap()] {
        assert_eq!(reader.cursor, Cursor { position: 0, sequence: 0 });
    }
    assert_eq!(Cursor::at(fixture.ring(), 8), Err(NoSuchStart::Ahead { end: 0 }));
    assert_eq!(Cursor::at(fixture.ring(), 3), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(fixture.ring(), u64::MAX - 7), Err(NoSuchStart::Ahead { end: 0 }));
    let first = fixture.join_at_sequence(0).unwrap();
    assert_eq!(first.cursor, Cursor { position: 0, sequence: 0 });
    for sequence in [1, u64::MAX] {
        let ahead = Cursor::at_sequence(fixture.ring(), sequence);
        assert_eq!(ahead, Err(NoSuchStart::Ahead { end: 0 }));
    }
}

/// A bus on a disk that starts empty after a reboot must not keep an old proposal.
#[test]
fn an_empty_bus_has_no_proposal() {
    let fixture = Fixture::new(512);
    let control = fixture.ring().control;
    control.waits.0.proposed.store(4096, Ordering::Relaxed);
    control.reset();
    assert_eq!(control.waits.0.proposed.load(Ordering::Relaxed), 0);
}

/// `Fixture::join_at` compares the result with the model: a reader, or the reason why there is
/// none.
#[test]
fn every_position_is_a_start_or_says_why_not() {
    let rings: [(u64, &[u32]); 3] =
        [(512, &[0, 30, 7, 100, 248]), (1024, &[1, 1, 0, 504, 16, 90]), (2048, &[3, 1016, 24])];
    for (capacity, lengths) in rings {
        let mut fixture = Fixture::new(capacity);
        for round in 0..if cfg!(miri) { 4 } else { 40 } {
            fixture.write(&Work::One(lengths[round % lengths.len()]));
            let end = fixture.model.end();
            let first = end.saturating_sub(capacity + 64);
            let mut found = 0;
            for position in (first..end + 64).step_by(if round % 8 == 7 { 1 } else { 8 }) {
                if let Some(mut reader) = fixture.join_at(position) {
                    found += 1;
                    assert_eq!(
                        fixture.drain(&mut reader),
                        fixture.model.count() as u64 - fixture.model.first_from(position).sequence
                    );
                }
            }
            let oldest = fixture.model.first_from(fixture.model.oldest()).sequence;
            assert_eq!(
                found,
                fixture.model.count() as u64 - oldest + 1,
                "each message, and the end"
            );
        }
    }
}

/// `Fixture::join_at_sequence` compares the result with the model, which counts messages.
#[test]
fn every_sequence_is_a_start_or_says_why_not() {
    let rings: [(u64, &[u32]); 3] =
        [(512, &[0, 30, 7, 100, 248]), (1024, &[1, 1, 0, 504, 16, 90]), (2048, &[3, 1016, 24])];
    for (capacity, lengths) in rings {
        let mut fixture = Fixture::new(capacity);
        for round in 0..if cfg!(miri) { 4 } else { 60 } {
            fixture.write(&Work::One(lengths[round % lengths.len()]));
            let count = fixture.model.count() as u64;
            let oldest = fixture.model.first_from(fixture.model.oldest()).sequence;
            let mut found = 0;
            for sequence in 0..count + 3 {
                if let Some(mut reader) = fixture.join_at_sequence(sequence) {
                    found += 1;
                    assert_eq!(fixture.drain(&mut reader), count - sequence);
                }
            }
            assert_eq!(found, count - oldest + 1, "each message, and the next one");
            assert!(fixture.join_at_sequence(u64::MAX).is_none());
        }
    }
}

/// The walk to a sequence begins at the last entry before it, not at the oldest one.
#[test]
fn the_walk_to_a_sequence_is_at_most_a_block_long() {
    let mut fixture = Fixture::new(4096);
    fixture.fill(8, 10_000);
    let (ring, tail) = (fixture.ring(), fixture.model.stored_end().position);
    let oldest = fixture.model.first_from(fixture.model.oldest()).sequence;
    for sequence in oldest..=fixture.model.count() as u64 {
        let near = Cursor::near(ring, sequence, tail).unwrap();
        let start = fixture.model.start(sequence);
        assert_eq!(
            fixture.shape().block(near.position),
            fixture.shape().block(start),
            "of message {sequence}"
        );
        assert!(near.position <= start && near.sequence <= sequence);
    }
    assert_eq!(Cursor::near(ring, oldest - 1, tail), None);
}

/// A writer laps the ring while readers look for messages by their sequences. Whatever they find has
/// the sequence that they asked for, and what they do not find was overwritten.
#[test]
fn sequences_are_found_under_a_fast_writer() {
    let memory = Memory::new(8192);
    let laps = if cfg!(miri) { 3 } else { 300 };
    let done = AtomicBool::new(false);
    let committed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in 0..laps * 8192 / 24 {
                let mut appender = Appender::resume(memory.ring()).unwrap();
                let payload = body(sequence, 16);
                let record = Record { tag: tag(sequence), extensions: &[], payload: &payload };
                if !appender.fits(record.bytes()) {
                    appender.reserve(appender.wanted(record.bytes()));
                }
                appender.write(record);
                committed.store(sequence + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        let mut random = SplitMix(7);
        let (mut found, mut lost) = (0, 0);
        loop {
            let was_done = done.load(Ordering::Acquire);
            let end = committed.load(Ordering::Acquire);
            let sequence = end.saturating_sub(random.below(500));
            match Cursor::at_sequence(memory.ring(), sequence) {
                Ok(cursor) => {
                    let is_there = (cursor.position, cursor.sequence) == (sequence * 24, sequence);
                    assert!(is_there, "{cursor:?} for {sequence}");
                    found += 1;
                }
                Err(NoSuchStart::Lost { oldest }) => {
                    assert!(oldest > sequence && !memory.ring().is_intact(sequence * 24));
                    lost += 1;
                }
                Err(other) => panic!("{other:?} for {sequence}, when {end} were committed"),
            }
            if was_done {
                break;
            }
        }
        assert!(cfg!(miri) || (found > 0 && found + lost > 10), "{found} found, {lost} lost");
    });
}

/// A writer may scan the slots before a reader joins, and raise `reserved` afterwards.
#[test]
fn a_reader_at_the_end_is_out_of_reach_of_writers_that_have_not_seen_it() {
    let mut fixture = Fixture::new(1024);
    let old = fixture.join_end().cursor;
    for _ in 0..40 {
        let reader = fixture.join_end().cursor;
        assert!(reader.is_out_of_reach(fixture.ring()));
        let longest = Work::One(fixture.longest());
        fixture.write(&longest);
        assert!(fixture.ring().is_intact(reader.position), "however long the record");
    }
    let mut fixture = Fixture::new(1024);
    while old.is_out_of_reach(fixture.ring()) {
        assert!(fixture.model.end() < 1024);
        fixture.write(&Work::One(24));
        fixture.write(&Work::Reserve(fixture.shape().largest_record()));
        assert!(fixture.ring().is_intact(old.position) || !old.is_out_of_reach(fixture.ring()));
    }
}

#[test]
fn the_three_reasons_for_no_start_are_distinct() {
    let mut fixture = Fixture::new(1024);
    fixture.fill(24, 2048);
    let oldest = fixture.model.oldest();
    assert_eq!(oldest, 1040, "`reserved` is a block beyond the end");
    let ring = fixture.ring();
    assert_eq!(Cursor::at(ring, 0), Err(NoSuchStart::Lost { oldest: 1056 }));
    assert_eq!(Cursor::at(ring, 1040), Err(NoSuchStart::Lost { oldest: 1056 }));
    assert_eq!(Cursor::at(ring, 1064), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(ring, 1057), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(ring, 2048 + 8), Err(NoSuchStart::Ahead { end: 2048 }));
    assert_eq!(Cursor::at(ring, 1056), Ok(Cursor { position: 1056, sequence: 33 }));
    assert_eq!(Cursor::at(ring, 2048), Ok(Cursor { position: 2048, sequence: 64 }));
    assert_eq!(Cursor::at_sequence(ring, 32), Err(NoSuchStart::Lost { oldest: 33 }));
    assert_eq!(Cursor::at_sequence(ring, 33), Ok(Cursor { position: 1056, sequence: 33 }));
    assert_eq!(Cursor::at_sequence(ring, 64), Ok(Cursor { position: 2048, sequence: 64 }));
    assert_eq!(Cursor::at_sequence(ring, 65), Err(NoSuchStart::Ahead { end: 64 }));
}

#[test]
fn joining_works_at_every_size_of_record() {
    for capacity in [512, 4096] {
        let mut fixture = Fixture::new(capacity);
        for length in boundary_lengths(fixture.shape(), fixture.longest()) {
            fixture.write(&Work::One(length));
            let mut reader = fixture.join_oldest();
            let oldest = fixture.model.first_from(fixture.model.oldest()).sequence;
            assert_eq!(fixture.drain(&mut reader), fixture.model.count() as u64 - oldest);
            assert_eq!(fixture.drain(&mut fixture.join_end()), 0);
        }
    }
}

/// A reader has read a message whose writer died before it stored the new tail. The position after
/// that message is a valid start, neither "beyond the end" nor from another bus.
#[test]
fn a_position_after_a_message_that_the_stored_end_does_not_cover() {
    let mut fixture = Fixture::new(1024);
    fixture.fill(24, 512);
    let mut reader = fixture.join_end();
    fixture.die_at(&Work::Batch(vec![8, 8]), false, CrashPoint::MidCopy);
    fixture.die_at(&Work::Batch(vec![8, 8]), true, CrashPoint::AfterCommit);
    assert!(fixture.model.stored_end().position < fixture.model.end());
    assert_eq!(fixture.drain(&mut reader), 2);
    let (end, ring) = (fixture.model.end(), fixture.ring());
    assert_eq!(reader.cursor.position, end);
    fixture.join_at(end).unwrap();
    fixture.join_at(end - 16).unwrap();
    assert_eq!(Cursor::at(ring, end - 8), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(ring, end + 8), Err(NoSuchStart::Ahead { end }));
    let next = reader.cursor.sequence;
    fixture.join_at_sequence(next).unwrap();
    fixture.join_at_sequence(next - 1).unwrap();
    assert_eq!(Cursor::at_sequence(ring, next + 1), Err(NoSuchStart::Ahead { end: next }));
}
