//! Writers that die at every step, within one process: a thread stops by unwinding, and what it
//! wrote stays. `Fixture` compares everything with the model after each death.

use super::super::memory::RecordStart;
use super::fixture::{Fixture, Reading, Work, at_step, never};
use crate::hook::CrashPoint;
use crate::sync::Ordering;

/// Blocks are 8 and 16 bytes long, so most records need an index entry, and some need several.
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

/// Rings in which the next record lies at the start, across the end of memory, or over old
/// messages.
fn rings() -> Vec<fn() -> Fixture> {
    fn filled(capacity: u64, bytes: u64) -> Fixture {
        let mut fixture = Fixture::new(capacity);
        fixture.fill(8, bytes);
        fixture
    }
    vec![|| filled(512, 0), || filled(512, 480), || filled(1024, 1008), || {
        filled(1024, 3 * 1024 + 48)
    }]
}

fn steps_of(fixture: &fn() -> Fixture, work: &Work, before: impl Fn(&mut Fixture)) -> usize {
    let mut fixture = fixture();
    before(&mut fixture);
    fixture.perform(work, true, never).len()
}

/// Checks everything that a reader can find after a death, and that the stream continues.
fn survives(fixture: &mut Fixture, reader: &mut super::fixture::Reader, owner_died: bool) {
    fixture.join_oldest();
    fixture.join_end();
    for position in (fixture.model.end().saturating_sub(64)..=fixture.model.end() + 8).step_by(8) {
        fixture.join_at(position);
    }
    // What was committed is visible before any recovery.
    let committed = fixture.model.count() as u64;
    while fixture.read(reader, 0) != Reading::Nothing {}
    assert_eq!(reader.cursor.sequence, committed);
    for (number, work) in
        [Work::One(17), Work::Batch(vec![8, 8]), Work::One(200)].iter().enumerate()
    {
        fixture.perform(work, owner_died && number == 0, never);
        assert_eq!(fixture.read(reader, 0), Reading::Message);
        fixture.drain(&mut fixture.join_oldest());
    }
    while fixture.read(reader, 0) != Reading::Nothing {}
    assert_eq!(reader.cursor.sequence, committed + 4);
}

#[test]
fn a_writer_may_die_at_any_step() {
    for build in rings() {
        for work in works() {
            for die_at in 1..=steps_of(&build, &work, |_| ()) {
                for owner_died in [false, true] {
                    let mut fixture = build();
                    let mut reader = fixture.join_end();
                    let reached = fixture.perform(&work, false, at_step(die_at));
                    let visible = reached.contains(&CrashPoint::AfterCommit);
                    assert_eq!(fixture.read(&mut reader, 0) == Reading::Message, visible);
                    survives(&mut fixture, &mut reader, owner_died);
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
    for build in rings().into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        for (first, second) in &pairs {
            for first_death in 1..=steps_of(&build, first, |_| ()) {
                let before = |fixture: &mut Fixture| {
                    fixture.perform(first, false, at_step(first_death));
                };
                for second_death in 1..=steps_of(&build, second, before) {
                    for owner_died in [false, true] {
                        let mut fixture = build();
                        let mut reader = fixture.join_end();
                        before(&mut fixture);
                        fixture.perform(second, owner_died, at_step(second_death));
                        survives(&mut fixture, &mut reader, owner_died);
                    }
                }
            }
        }
    }
}

/// Starts recovery several times, each time with a process that dies in it.
#[test]
fn recovery_itself_may_die() {
    for build in rings() {
        let mut fixture = build();
        let mut reader = fixture.join_end();
        fixture.die_at(&Work::Batch(vec![24, 8]), false, CrashPoint::AfterCommit);
        for owner_died in [true, true, true, false] {
            // The last time, the lock does not report the death, and `next` reveals it.
            fixture.die_at(&Work::One(8), owner_died, CrashPoint::MidRecovery);
        }
        survives(&mut fixture, &mut reader, false);
    }
}

/// Tears the pair of sequence and tail in both possible ways: by a writer and by a recovery.
/// Neither half may be trusted.
#[test]
fn a_torn_pair_of_sequence_and_tail_is_counted_again() {
    for build in rings() {
        let mut fixture = build();
        fixture.die_at(&Work::Batch(vec![8, 8, 8]), false, CrashPoint::BetweenSequenceAndTail);
        let commit = &fixture.memory.control.commit.0;
        let count = fixture.model.count() as u64;
        assert_eq!(commit.sequence.load(Ordering::Relaxed), count, "ahead of the tail");
        assert_eq!(commit.tail.load(Ordering::Relaxed), fixture.model.end() - 48);
        fixture.die_at(&Work::One(8), true, CrashPoint::MidRecovery);
        fixture.perform(&Work::One(8), true, never);
        assert_eq!(
            fixture.memory.control.commit.0.sequence.load(Ordering::Relaxed),
            count + 1,
            "each message is counted once"
        );
    }
}

/// A writer dies after it has stored an index entry for a record that it never commits. A small
/// record does not reach the entry's block, and a later record spans it. If the later writer left
/// the entry as it is, a reader would start in the middle of that record.
#[test]
fn an_entry_that_a_dead_writer_left_is_overwritten_by_the_record_that_spans_its_block() {
    let mut fixture = Fixture::new(1024);
    fixture.write(&Work::One(40));
    assert_eq!(fixture.model.end(), 48);
    fixture.die_at(&Work::One(40), false, CrashPoint::AfterIndex);
    let stale = RecordStart { position: 96, sequence: 2 };
    for block in 4..=6 {
        assert_eq!(fixture.ring().read_entry(block), Some(stale));
    }
    fixture.write(&Work::One(0));
    assert_eq!(fixture.model.end(), 56, "still in block 3");
    assert_eq!(fixture.ring().read_entry(6), Some(stale));
    fixture.write(&Work::One(100));
    for block in 4..=10 {
        assert_eq!(
            fixture.ring().read_entry(block),
            Some(RecordStart { position: 168, sequence: 3 })
        );
    }
    fixture.fill(24, 1024 - 168 + 32);
    // Now the oldest start is in or after the record that the stale entry pointed into.
    let mut reader = fixture.join_oldest();
    fixture.drain(&mut reader);
}

/// The same with an entry that has a sequence but no position.
#[test]
fn a_half_written_entry_of_a_dead_writer_is_ignored() {
    let mut fixture = Fixture::new(1024);
    let mut reader = fixture.join_end();
    fixture.write(&Work::One(40));
    fixture.write(&Work::One(40));
    fixture.die_at(&Work::One(100), false, CrashPoint::MidIndex);
    assert_eq!(fixture.ring().read_entry(7), None);
    survives(&mut fixture, &mut reader, false);
}

/// The entries of a long record's blocks all point to its end. They are still in use one lap later,
/// when a writer replaces the first of them. Between the two stores of the replacement, no reader
/// may combine the old position with the new sequence.
#[test]
fn an_entry_in_use_is_not_half_replaced() {
    let mut fixture = Fixture::new(512);
    fixture.write(&Work::One(0));
    fixture.write(&Work::One(40));
    assert_eq!(fixture.model.end(), 56);
    for block in 2..=7 {
        assert_eq!(
            fixture.ring().read_entry(block),
            Some(RecordStart { position: 56, sequence: 2 })
        );
    }
    fixture.fill(8, 512 - 56);
    assert_eq!(fixture.model.end(), 520);
    // The next record replaces the entries of blocks 2 and 3, first that of 2.
    fixture.die_at(&Work::One(8), false, CrashPoint::MidIndex);
    assert!(fixture.model.oldest() <= 56, "the old position is intact");
    fixture.join_oldest();
    let mut reader = fixture.join_at(56).unwrap();
    assert_eq!(reader.cursor.sequence, 2);
    fixture.drain(&mut reader);
}
