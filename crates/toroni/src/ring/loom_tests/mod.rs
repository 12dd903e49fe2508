//! Loom models of the ring: every interleaving of a few steps, within a bound of preemptions, and
//! every value that a weakly ordered memory may show.
//!
//! ```text
//!  START          + 24                                       + 488     + 512
//!  +--------------+------------------------------------------+---------+-----
//!  | message 0    | messages 1 and 2, which are never read   | free    | the same bytes as message 0
//!  +--------------+------------------------------------------+---------+-----
//!  ^ the reader                                              ^ the writers
//! ```
//!
//! The writers' first record ends where message 0 begins, so its end word replaces that message's
//! header. The second record covers all of message 0.

mod deaths;
mod passing;
mod space;
mod values;

use super::copy::Scratch;
use super::memory::{RecordStart, Ring};
use super::read_ahead::ReadAhead;
use super::reader::{Cursor, Interrupted};
use super::run::Run;
use super::testing::{Memory, body, tag};
use super::writer::{Appender, Record};
use crate::hook::rehearsal;
use crate::sync::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

const CAPACITY: u64 = 512;
const START: u64 = 3 * CAPACITY;
/// The length of message 0 and of all messages that the models write: two words after a header.
const LENGTH: u32 = 16;
const BYTES: u64 = 24;

fn laid() -> Memory {
    let memory = Memory::laid(CAPACITY, START, &[LENGTH, 216, 232]);
    assert_eq!(tail(&memory), START + CAPACITY - BYTES);
    memory
}

fn tail(memory: &Memory) -> u64 {
    memory.control.commit.0.tail.load(Ordering::Relaxed)
}

fn model(preemptions: usize, steps: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Reading the whole index once takes hundreds of steps.
    builder.max_branches = 20_000;
    builder.check(steps);
}

/// Does `work`, but dies at the step of this number. Returns whether it was reached.
fn dies_at(step: usize, work: impl FnOnce()) -> bool {
    rehearsal::act(move |reached| reached.len() == step, work).1.is_none()
}

/// Runs a model once for each step at which a writer may die. `steps` takes the number of the step, and returns whether the
/// writer reached it. There must be more than `fewest`, so that none is left out.
fn for_each_step(
    preemptions: usize,
    fewest: usize,
    steps: impl Fn(usize) -> bool + Copy + Sync + Send + 'static,
) {
    let mut step = 1;
    loop {
        // Not loom's type, because it reports from one execution to the next.
        let reached = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let report = std::sync::Arc::clone(&reached);
        model(preemptions, move || {
            report.store(steps(step), std::sync::atomic::Ordering::Relaxed);
        });
        if !reached.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        step += 1;
    }
    assert!(step > fewest, "{step} steps are not all of them");
}

/// Writes message number `appender.sequence()`, stamped with this number.
fn write(appender: &mut Appender<'_>) {
    let stamp = appender.sequence();
    appender.write(Record { tag: tag(stamp), extensions: &[], payload: &body(stamp, LENGTH) });
}

/// Reads message 0. If validation succeeds, the copy must be that message.
fn read_first(ring: Ring<'_>) {
    let cursor = Cursor { position: START, sequence: 0 };
    let Ok(seen) = cursor.peek(ring) else { return };
    let seen = seen.expect("message 0 was there from the start");
    assert_eq!((seen.tag, seen.length), (tag(0), LENGTH));
    let mut scratch = Scratch::default();
    if cursor.copy(ring, &seen, &mut scratch).is_ok() {
        assert!(scratch.bytes(16) == body(0, LENGTH), "torn");
    }
}

/// Like [`read_first`], through a read-ahead.
fn read_first_ahead(ring: Ring<'_>) {
    let mut cursor = Cursor { position: START, sequence: 0 };
    let mut read_ahead = ReadAhead::default();
    if read_ahead.fill(&mut cursor, ring) == Ok(true) {
        assert_eq!(read_ahead.next(), Some(tag(0)));
        assert!(read_ahead.body(16) == body(0, LENGTH), "torn");
    }
}

/// Like [`read_first`], in place.
fn read_first_in_place(ring: Ring<'_>) {
    let cursor = Cursor { position: START, sequence: 0 };
    let Ok(Some(seen)) = cursor.peek(ring) else { return };
    let run = Run::after(ring, &seen);
    let mut words = [0; 2];
    ring.load(seen.body(), &mut words);
    if run.is_intact().is_ok() {
        assert!(words.map(u64::to_ne_bytes).as_flattened() == body(0, LENGTH), "torn");
    }
}

/// Starts a reader thread. In the first execution of a model, the reader runs after the writers.
/// This matters for how loom finds the other interleavings: from a load it goes back to the last
/// store, but from a store only to the last load, which may be the writer's own.
fn reader(memory: &Arc<Memory>, read: impl FnOnce(Ring<'_>) + 'static) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || read(memory.ring()))
}

fn write_one(ring: Ring<'_>, owner_died: bool) {
    let mut appender = Appender::begin(ring, || None, owner_died).unwrap();
    if !appender.fits(BYTES) {
        appender.reserve(appender.wanted(BYTES));
    }
    write(&mut appender);
}

#[test]
fn loom_a_torn_message_is_not_trusted() {
    model(3, || {
        let memory = Arc::new(laid());
        let reader = reader(&memory, read_first);
        write_one(memory.ring(), false);
        write_one(memory.ring(), false);
        reader.join().unwrap();
    });
}

#[test]
fn loom_a_torn_message_does_not_enter_a_read_ahead() {
    model(3, || {
        let memory = Arc::new(laid());
        let reader = reader(&memory, read_first_ahead);
        write_one(memory.ring(), false);
        write_one(memory.ring(), false);
        reader.join().unwrap();
    });
}

#[test]
fn loom_a_torn_message_in_place_is_not_trusted() {
    model(3, || {
        let memory = Arc::new(laid());
        let reader = reader(&memory, read_first_in_place);
        write_one(memory.ring(), false);
        write_one(memory.ring(), false);
        reader.join().unwrap();
    });
}

/// A reader fills its read-ahead while a message is committed. Every message in it must be whole.
#[test]
fn loom_a_read_ahead_follows_commits() {
    model(2, || {
        let memory = Arc::new(laid());
        let end = tail(&memory);
        let reader = reader(&memory, move |ring| {
            let mut cursor = Cursor { position: end, sequence: 3 };
            let mut read_ahead = ReadAhead::default();
            if read_ahead.fill(&mut cursor, ring).unwrap() {
                while read_ahead.next().is_some() {
                    let seen = read_ahead.last();
                    assert_eq!((seen.tag, seen.length), (tag(seen.sequence), LENGTH));
                    assert!(read_ahead.body(16) == body(seen.sequence, LENGTH), "torn: {seen:?}");
                }
                assert_eq!(read_ahead.give_up(), None);
            }
        });
        write_one(memory.ring(), false);
        reader.join().unwrap();
    });
}

/// The first of two writers reserves space for both. The second need not reserve, but needs the
/// fence.
#[test]
fn loom_a_second_writer_finds_space_reserved() {
    model(3, || {
        let memory = Arc::new(laid());
        let lock = Arc::new(Mutex::new(()));
        let writers: [_; 2] = core::array::from_fn(|_| {
            let (memory, lock) = (Arc::clone(&memory), Arc::clone(&lock));
            thread::spawn(move || {
                let owned = lock.lock().unwrap();
                let mut appender = Appender::begin(memory.ring(), || None, false).unwrap();
                if !appender.fits(BYTES) {
                    appender.reserve(appender.wanted(2 * BYTES));
                }
                write(&mut appender);
                drop(owned);
            })
        });
        let reader = reader(&memory, read_first);
        for writer in writers {
            writer.join().unwrap();
        }
        reader.join().unwrap();
        assert_eq!(tail(&memory), START + CAPACITY + BYTES);
    });
}

/// A writer copies half of a record over message 0 and dies. The next one recovers and writes a
/// record that needs less space. (Spawning a thread stands for the kernel, which makes what a dead
/// process wrote visible.)
#[test]
fn loom_recovery_keeps_what_was_reserved() {
    model(3, || {
        let memory = Arc::new(laid());
        let reader = reader(&memory, read_first);
        let ring = memory.ring();
        let mut appender = Appender::begin(ring, || None, false).unwrap();
        appender.reserve(appender.wanted(3 * BYTES));
        fence(Ordering::Release); // RESERVE
        ring.store(START + CAPACITY + 8, &[0xEE; 8]);
        let successor = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                write(&mut Appender::begin(memory.ring(), || None, true).unwrap())
            })
        };
        successor.join().unwrap();
        reader.join().unwrap();
    });
}

/// Returns two messages, of which the stored tail and sequence cover the first: the writer died
/// between COMMIT and TAIL.
fn left_behind() -> Memory {
    let mut memory = Memory::laid(CAPACITY, START, &[LENGTH, LENGTH]);
    memory.control.commit.0.tail = AtomicU64::new(START + BYTES);
    memory
}

/// A reader follows the stream while a second writer recovers and continues.
#[test]
fn loom_a_reader_follows_through_a_recovery() {
    model(3, || {
        let memory = Arc::new(left_behind());
        let reader = reader(&memory, |ring| {
            let read = follow(ring, Cursor { position: START, sequence: 0 });
            assert!(read >= 2, "what was committed is visible before recovery");
        });
        write_one(memory.ring(), true);
        reader.join().unwrap();
        assert_eq!(follow(memory.ring(), Cursor { position: START, sequence: 0 }), 3);
    });
}

/// Reads to the end and returns the number of messages. Each must be whole.
fn follow(ring: Ring<'_>, mut cursor: Cursor) -> u64 {
    let mut scratch = Scratch::default();
    let first = cursor.sequence;
    while let Some(seen) = cursor.peek(ring).unwrap() {
        assert_eq!(seen.tag, tag(cursor.sequence));
        cursor.copy(ring, &seen, &mut scratch).unwrap();
        let length = seen.length as usize;
        let expected = body(cursor.sequence, seen.length);
        assert!(scratch.bytes(length) == expected, "message {}", cursor.sequence);
        cursor.advance(&seen);
    }
    cursor.sequence - first
}

/// A reader that joins during a recovery starts at one of the three ends, with the correct
/// sequence.
#[test]
fn loom_joining_at_the_end_during_a_recovery() {
    model(1, || {
        let memory = Arc::new(left_behind());
        let reader = reader(&memory, |ring| {
            let cursor = Cursor::at_end(ring).unwrap();
            assert_eq!(cursor.position, START + cursor.sequence * BYTES, "{cursor:?}");
            assert!((1..=3).contains(&cursor.sequence));
        });
        write_one(memory.ring(), true);
        reader.join().unwrap();
    });
}

/// While an entry is replaced, a reader sees the old pair, the new pair, or none.
#[test]
fn loom_an_index_entry_is_read_consistently() {
    model(3, || {
        let memory = Arc::new(laid());
        // Message 0 starts in the first block; a lap later message 4 does.
        let block = memory.shape().block(START);
        let old = RecordStart { position: START, sequence: 0 };
        let new = RecordStart { position: START + CAPACITY, sequence: 4 };
        assert_eq!(memory.ring().read_entry(block), Some(old));
        let reader = reader(&memory, move |ring| {
            let entry = ring.read_entry(block);
            assert!(entry.is_none_or(|entry| entry == old || entry == new), "{entry:?}");
        });
        write_one(memory.ring(), false);
        assert_eq!(memory.ring().read_entry(block), Some(new));
        reader.join().unwrap();
    });
}

/// A reader that is lapped resumes at a whole message with the correct sequence.
#[test]
fn loom_a_lapped_reader_resumes() {
    model(2, || {
        let memory = Arc::new(laid());
        let reader = reader(&memory, |ring| {
            let mut cursor = Cursor { position: START, sequence: 0 };
            if cursor.peek(ring) == Err(Interrupted::Lapped) {
                // Message 1 also begins in the block that is overwritten.
                assert_eq!(cursor.resume(ring, 0), Ok((2, 224 + BYTES)));
                let read = follow(ring, cursor);
                assert!((1..=2).contains(&read), "{read} messages");
            }
        });
        write_one(memory.ring(), false);
        reader.join().unwrap();
    });
}
