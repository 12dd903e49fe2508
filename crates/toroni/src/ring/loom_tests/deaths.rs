//! Writers that die at every step: the thread stops by unwinding, and what it wrote stays. Spawning
//! a thread stands for the kernel, which makes what a dead process wrote visible.

use super::*;
use crate::hook::{CrashPoint, rehearsal};
use crate::ring::position::to_index;

/// Stamps of the messages of the first writer that dies, of a second one that dies, and of their
/// successor.
const DOOMED: u64 = 100;
const SECOND: u64 = 150;
const SUCCESSOR: u64 = 200;

fn write_stamped(appender: &mut Appender<'_>, stamp: u64) {
    appender.write(Record { tag: tag(stamp), extensions: &[], payload: &body(stamp, LENGTH) });
}

fn write_one_stamped(ring: Ring<'_>, owner_died: bool, stamp: u64) {
    let mut appender = Appender::begin(ring, || None, owner_died).unwrap();
    if !appender.fits(BYTES) {
        appender.reserve(appender.wanted(BYTES));
    }
    write_stamped(&mut appender, stamp);
}

/// Reads the messages after the first three, which end at `end`. Each must be whole and must have
/// been written by the model. Returns their stamps.
fn follow_survivors(ring: Ring<'_>, end: u64) -> Vec<u64> {
    let mut cursor = Cursor { position: end, sequence: 3 };
    let mut scratch = Scratch::default();
    let mut stamps = Vec::new();
    while let Some(seen) = cursor.peek(ring).unwrap() {
        let known = [DOOMED, SECOND, SUCCESSOR].into_iter().find(|stamp| tag(*stamp) == seen.tag);
        let stamp = known.unwrap_or_else(|| panic!("{seen:?} was not written by this model"));
        assert_eq!(seen.length, LENGTH);
        cursor.copy(ring, &seen, &mut scratch).unwrap();
        assert!(scratch.bytes(16) == body(stamp, LENGTH), "torn: {stamp}");
        stamps.push(stamp);
        cursor.advance(&seen);
    }
    stamps
}

/// Checks the final state: the messages of writers that died, if any, then the successor's.
fn check_end(memory: &Memory, end: u64) {
    let stamps = follow_survivors(memory.ring(), end);
    let (last, before) = stamps.split_last().expect("the successor lived");
    assert_eq!(*last, SUCCESSOR, "{stamps:?}");
    assert!([&[][..], &[DOOMED], &[DOOMED; 2], &[DOOMED, SECOND]].contains(&before), "{stamps:?}");
    let commit = &memory.control.commit.0;
    let end = end + stamps.len() as u64 * BYTES;
    assert_eq!(commit.tail.load(Ordering::Relaxed), end, "{stamps:?}");
    assert_eq!(commit.sequence.load(Ordering::Relaxed), 3 + stamps.len() as u64);
    let joined = Cursor::at_end(memory.ring()).unwrap();
    assert_eq!((joined.position, joined.sequence), (end, 3 + stamps.len() as u64));
}

/// Runs a model in which a writer dies, once for each step of its `work`.
fn at_each_step(preemptions: usize, lay: fn() -> Memory, work: fn(Ring<'_>)) {
    for owner_died in [true, false] {
        for_each_step(preemptions, 5, move |step| {
            let memory = Arc::new(lay());
            let end = tail(&memory);
            let reader = reader(&memory, move |ring| {
                follow_survivors(ring, end);
            });
            let died = dies_at(step, || work(memory.ring()));
            let successor = {
                let memory = Arc::clone(&memory);
                // The lock may not know that the owner died.
                thread::spawn(move || write_one_stamped(memory.ring(), owner_died, SUCCESSOR))
            };
            successor.join().unwrap();
            reader.join().unwrap();
            check_end(&memory, end);
            died
        });
    }
}

/// The first of two writers dies at each step of a message while a reader follows.
#[test]
fn loom_a_writer_dies_at_any_step() {
    at_each_step(3, laid, |ring| write_one_stamped(ring, false, DOOMED));
}

/// The same with a burst, whose messages are committed one by one under one lock.
#[test]
fn loom_a_burst_dies_at_any_step() {
    // The stream ends at the start of a block that holds both messages and is already reserved.
    // After the end are remains of an older lap.
    let lay = || {
        let mut memory = Memory::laid(1024, 3 * 1024, &[LENGTH, 440, 480]);
        let end = to_index(tail(&memory) % 1024 / 8);
        for word in &mut memory.words[end + 1..end + 8] {
            *word = AtomicU64::new(u64::MAX);
        }
        memory
    };
    at_each_step(3, lay, |ring| {
        let mut appender = Appender::begin(ring, || None, false).unwrap();
        let payloads = [DOOMED, DOOMED].map(|stamp| body(stamp, LENGTH));
        let payloads = payloads.each_ref().map(Vec::as_slice);
        assert_eq!(appender.write_in_block(tag(DOOMED), &payloads), 2);
    });
}

/// A writer dies while it recovers from the death of another. A third writer continues.
#[test]
fn loom_recovery_dies_at_any_step() {
    for step in 1..=3 {
        model(2, move || {
            let memory = Arc::new(laid());
            let end = tail(&memory);
            let reader = reader(&memory, move |ring| {
                follow_survivors(ring, end);
            });
            // Dies between COMMIT and TAIL.
            let commit = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::AfterCommit);
            let write = || write_one_stamped(memory.ring(), false, DOOMED);
            assert!(rehearsal::act(commit, write).1.is_none());
            for (died_at, stamp) in [(step, SECOND), (0, SUCCESSOR)] {
                let memory = Arc::clone(&memory);
                let successor = thread::spawn(move || {
                    dies_at(died_at, || write_one_stamped(memory.ring(), true, stamp));
                });
                successor.join().unwrap();
            }
            reader.join().unwrap();
            check_end(&memory, end);
        });
    }
}
