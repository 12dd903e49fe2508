//! Where a reader can start.

use super::super::reader::{Cursor, NoSuchStart};
use super::fixture::{Work, World, telling_lengths};
use crate::crash::CrashPoint;
use crate::sync::Ordering;

#[test]
fn a_new_bus_has_one_place_to_start() {
    let world = World::new(512);
    for reader in [world.join_end(), world.join_oldest(), world.join_at(0).unwrap()] {
        assert_eq!(reader.cursor, Cursor { position: 0, sequence: 0 });
    }
    assert_eq!(Cursor::at(world.ring(), 8), Err(NoSuchStart::Ahead { end: 0 }));
    assert_eq!(Cursor::at(world.ring(), 3), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(world.ring(), u64::MAX - 7), Err(NoSuchStart::Ahead { end: 0 }));
}

/// A bus on a disk that starts empty after a reboot: what a writer wanted before is nobody's wish any more.
#[test]
fn nothing_is_wanted_of_an_empty_bus() {
    let world = World::new(512);
    let control = world.ring().control;
    control.waits.0.wanted.store(4096, Ordering::Relaxed);
    control.reset();
    assert_eq!(control.waits.0.wanted.load(Ordering::Relaxed), 0);
}

/// `World::join_at` compares with the model: a reader, or the reason why there is none.
#[test]
fn every_position_is_a_start_or_says_why_not() {
    let rings: [(u64, &[u32]); 3] =
        [(512, &[0, 30, 7, 100, 248]), (1024, &[1, 1, 0, 504, 16, 90]), (2048, &[3, 1016, 24])];
    for (capacity, lengths) in rings {
        let mut world = World::new(capacity);
        for round in 0..if cfg!(miri) { 4 } else { 40 } {
            world.write(&Work::One(lengths[round % lengths.len()]));
            let end = world.model.end();
            let first = end.saturating_sub(capacity + 64);
            let mut found = 0;
            for position in (first..end + 64).step_by(if round % 8 == 7 { 1 } else { 8 }) {
                if let Some(mut reader) = world.join_at(position) {
                    found += 1;
                    assert_eq!(
                        world.drain(&mut reader),
                        world.model.count() as u64 - world.model.first_from(position).sequence
                    );
                }
            }
            let oldest = world.model.first_from(world.model.oldest()).sequence;
            assert_eq!(found, world.model.count() as u64 - oldest + 1, "each message, and the end");
        }
    }
}

/// A writer that has looked at the slots before a reader was there raises `reserved` afterwards.
#[test]
fn at_the_end_a_reader_is_out_of_reach_of_those_who_have_not_seen_it() {
    let mut world = World::new(1024);
    let old = world.join_end().cursor;
    for _ in 0..40 {
        let reader = world.join_end().cursor;
        assert!(reader.is_out_of_reach(world.ring()));
        let longest = Work::One(world.longest());
        world.write(&longest);
        assert!(world.ring().is_intact(reader.position), "however long the record");
    }
    let mut world = World::new(1024);
    while old.is_out_of_reach(world.ring()) {
        assert!(world.model.end() < 1024);
        world.write(&Work::One(24));
        world.write(&Work::Reserve(world.shape().largest_record()));
        assert!(world.ring().is_intact(old.position) || !old.is_out_of_reach(world.ring()));
    }
}

#[test]
fn the_three_ways_to_have_no_start_are_told_apart() {
    let mut world = World::new(1024);
    world.fill(24, 2048);
    let oldest = world.model.oldest();
    assert_eq!(oldest, 1040, "a block behind the end");
    let ring = world.ring();
    assert_eq!(Cursor::at(ring, 0), Err(NoSuchStart::Lost { oldest: 1056 }));
    assert_eq!(Cursor::at(ring, 1040), Err(NoSuchStart::Lost { oldest: 1056 }));
    assert_eq!(Cursor::at(ring, 1064), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(ring, 1057), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(ring, 2048 + 8), Err(NoSuchStart::Ahead { end: 2048 }));
    assert_eq!(Cursor::at(ring, 1056), Ok(Cursor { position: 1056, sequence: 33 }));
    assert_eq!(Cursor::at(ring, 2048), Ok(Cursor { position: 2048, sequence: 64 }));
}

#[test]
fn joining_works_at_every_size_of_record() {
    for capacity in [512, 4096] {
        let mut world = World::new(capacity);
        for length in telling_lengths(world.shape(), world.longest()) {
            world.write(&Work::One(length));
            let mut reader = world.join_oldest();
            let oldest = world.model.first_from(world.model.oldest()).sequence;
            assert_eq!(world.drain(&mut reader), world.model.count() as u64 - oldest);
            assert_eq!(world.drain(&mut world.join_end()), 0);
        }
    }
}

/// A reader saw a message whose writer died before it moved the stored end. The position behind it
/// is one, and neither "beyond the end" nor from another bus.
#[test]
fn a_position_behind_a_message_that_the_stored_end_does_not_cover() {
    let mut world = World::new(1024);
    world.fill(24, 512);
    let mut reader = world.join_end();
    world.die_at(&Work::Batch(vec![8, 8]), false, CrashPoint::MidCopy);
    world.die_at(&Work::Batch(vec![8, 8]), true, CrashPoint::AfterCommit);
    assert!(world.model.stored_end().position < world.model.end());
    assert_eq!(world.drain(&mut reader), 2);
    let (end, ring) = (world.model.end(), world.ring());
    assert_eq!(reader.cursor.position, end);
    world.join_at(end).unwrap();
    world.join_at(end - 16).unwrap();
    assert_eq!(Cursor::at(ring, end - 8), Err(NoSuchStart::NotAPosition));
    assert_eq!(Cursor::at(ring, end + 8), Err(NoSuchStart::Ahead { end }));
}
