//! Writers that die at every step, within one process: the thread leaves its work by unwinding, and
//! what it wrote stays. `World` compares everything with the model after each death.

use super::super::memory::Mark;
use super::fixture::{Reading, Work, World, at_step, never};
use crate::crash::CrashPoint;
use crate::sync::Ordering;

/// Blocks are 8 and 16 bytes, so that most records are entries of the index, and several.
fn works() -> Vec<Work> {
    let mut works = vec![
        Work::Nothing,
        Work::Reserve(200),
        Work::One(0),
        Work::One(40),
        Work::One(248),
        Work::InPlace(61, 16),
        Work::Unwind(33),
        Work::Batch(vec![24, 0, 33]),
        Work::Batch(vec![100, 120]),
    ];
    if cfg!(miri) {
        works.truncate(4);
    }
    works
}

/// Rings in which the next record falls at the start, over the seam, and over old messages.
fn worlds() -> Vec<fn() -> World> {
    fn filled(capacity: u64, bytes: u64) -> World {
        let mut world = World::new(capacity);
        world.fill(8, bytes);
        world
    }
    vec![|| filled(512, 0), || filled(512, 480), || filled(1024, 1008), || {
        filled(1024, 3 * 1024 + 48)
    }]
}

fn steps_of(world: &fn() -> World, work: &Work, before: impl Fn(&mut World)) -> usize {
    let mut world = world();
    before(&mut world);
    world.perform(work, true, never).len()
}

/// Everything a reader can ask after a death, and that the stream goes on.
fn survives(world: &mut World, reader: &mut super::fixture::Reader, owner_died: bool) {
    world.join_oldest();
    world.join_end();
    for position in (world.model.end().saturating_sub(64)..=world.model.end() + 8).step_by(8) {
        world.join_at(position);
    }
    // What was committed is there before anybody recovers.
    let committed = world.model.count() as u64;
    while world.read(reader, 0) != Reading::Nothing {}
    assert_eq!(reader.cursor.sequence, committed);
    for (number, work) in
        [Work::One(17), Work::Batch(vec![8, 8]), Work::One(200)].iter().enumerate()
    {
        world.perform(work, owner_died && number == 0, never);
        assert_eq!(world.read(reader, 0), Reading::Message);
        world.drain(&mut world.join_oldest());
    }
    while world.read(reader, 0) != Reading::Nothing {}
    assert_eq!(reader.cursor.sequence, committed + 4);
}

#[test]
fn a_writer_may_die_at_any_step() {
    for build in worlds() {
        for work in works() {
            for die_at in 1..=steps_of(&build, &work, |_| ()) {
                for owner_died in [false, true] {
                    let mut world = build();
                    let mut reader = world.join_end();
                    let reached = world.perform(&work, false, at_step(die_at));
                    let visible = reached.contains(&CrashPoint::AfterCommit);
                    assert_eq!(world.read(&mut reader, 0) == Reading::Message, visible);
                    survives(&mut world, &mut reader, owner_died);
                }
            }
        }
    }
}

#[test]
fn the_next_writer_may_die_too() {
    let pairs = [
        (Work::One(40), Work::One(8)),
        (Work::Batch(vec![24, 0, 33]), Work::One(61)),
        (Work::Reserve(200), Work::Batch(vec![0, 0])),
        (Work::One(248), Work::One(0)),
    ];
    for build in worlds().into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        for (first, second) in &pairs {
            for first_death in 1..=steps_of(&build, first, |_| ()) {
                let before = |world: &mut World| {
                    world.perform(first, false, at_step(first_death));
                };
                for second_death in 1..=steps_of(&build, second, before) {
                    for owner_died in [false, true] {
                        let mut world = build();
                        let mut reader = world.join_end();
                        before(&mut world);
                        world.perform(second, owner_died, at_step(second_death));
                        survives(&mut world, &mut reader, owner_died);
                    }
                }
            }
        }
    }
}

/// Recovery is begun again and again, each time by a process that dies in it.
#[test]
fn recovery_itself_may_die() {
    for build in worlds() {
        let mut world = build();
        let mut reader = world.join_end();
        world.die_at(&Work::Batch(vec![24, 8]), false, CrashPoint::AfterCommit);
        for owner_died in [true, true, true, false] {
            // Without a word from the lock, by the word at the tail.
            world.die_at(&Work::One(8), owner_died, CrashPoint::MidRecovery);
        }
        survives(&mut world, &mut reader, false);
    }
}

/// The pair of sequence and tail is torn in both ways in which it can be: by a writer, and by a
/// recovery. Neither half is believed.
#[test]
fn a_torn_pair_of_sequence_and_tail_is_counted_anew() {
    for build in worlds() {
        let mut world = build();
        world.die_at(&Work::Batch(vec![8, 8, 8]), false, CrashPoint::BetweenSequenceAndTail);
        let commit = &world.memory.control.commit.0;
        let count = world.model.count() as u64;
        assert_eq!(commit.sequence.load(Ordering::Relaxed), count, "ahead of the tail");
        assert_eq!(commit.tail.load(Ordering::Relaxed), world.model.end() - 48);
        world.die_at(&Work::One(8), true, CrashPoint::MidRecovery);
        world.perform(&Work::One(8), true, never);
        assert_eq!(
            world.memory.control.commit.0.sequence.load(Ordering::Relaxed),
            count + 1,
            "each message is counted once"
        );
    }
}

/// A writer dies with an index entry in place for a record that never came; a small record does not
/// reach the entry's block; then one spans it. If it left the entry as it is, a reader would start
/// in the middle of that record.
#[test]
fn an_entry_that_a_dead_writer_left_is_overwritten_by_the_record_that_spans_its_block() {
    let mut world = World::new(1024);
    world.write(&Work::One(40));
    assert_eq!(world.model.end(), 48);
    world.die_at(&Work::One(40), false, CrashPoint::AfterIndex);
    let stale = Mark { position: 96, sequence: 2 };
    for block in 4..=6 {
        assert_eq!(world.ring().mark(block), Some(stale));
    }
    world.write(&Work::One(0));
    assert_eq!(world.model.end(), 56, "still in block 3");
    assert_eq!(world.ring().mark(6), Some(stale));
    world.write(&Work::One(100));
    for block in 4..=10 {
        assert_eq!(world.ring().mark(block), Some(Mark { position: 168, sequence: 3 }));
    }
    world.fill(24, 1024 - 168 + 32);
    // Now the oldest start is within, or behind, what the stale entry pointed into.
    let mut reader = world.join_oldest();
    world.drain(&mut reader);
}

/// The same with an entry that has a sequence and no position.
#[test]
fn an_entry_that_a_dead_writer_left_half_is_no_entry() {
    let mut world = World::new(1024);
    let mut reader = world.join_end();
    world.write(&Work::One(40));
    world.write(&Work::One(40));
    world.die_at(&Work::One(100), false, CrashPoint::MidIndex);
    assert_eq!(world.ring().mark(7), None);
    survives(&mut world, &mut reader, false);
}

/// An entry at the far end of a long record still leads a reader when the writer, a lap later,
/// replaces the first of the blocks that it stood for. Between the two stores of the replacement
/// nobody may take the old position for one with the new sequence.
#[test]
fn an_entry_in_use_is_not_half_replaced() {
    let mut world = World::new(512);
    world.write(&Work::One(0));
    world.write(&Work::One(40));
    assert_eq!(world.model.end(), 56);
    for block in 2..=7 {
        assert_eq!(world.ring().mark(block), Some(Mark { position: 56, sequence: 2 }));
    }
    world.fill(8, 512 - 56);
    assert_eq!(world.model.end(), 520);
    // The next record replaces the entries of blocks 2 and 3, first that of 2.
    world.die_at(&Work::One(8), false, CrashPoint::MidIndex);
    assert!(world.model.oldest() <= 56, "the old position is intact");
    world.join_oldest();
    let mut reader = world.join_at(56).unwrap();
    assert_eq!(reader.cursor.sequence, 2);
    world.drain(&mut reader);
}
