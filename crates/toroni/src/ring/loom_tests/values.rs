//! Values: a reader gets the newest message that it may have received, whole, whatever becomes of the writers.

use super::*;
use crate::ring::position::to_index;
use crate::ring::values::{Value, Values};
use crate::ring::writer::header;

/// A message of the retained topic 0, and one of topic 1.
const KEPT: u32 = 0x001;
const OTHER: u32 = 0x101;

/// Returns a stream of one message of another topic, with room for more. Topic 0 is retained.
fn retaining() -> Memory {
    let mut memory = Memory::laid(CAPACITY, START, &[LENGTH]).with_values(2, 8);
    memory.control.reserved.0 = AtomicU64::new(START + CAPACITY);
    memory.values().unwrap().declare(&memory.control, 0).unwrap();
    memory
}

fn publish(memory: &Memory, owner_died: bool, tag: u32) {
    let mut appender = Appender::begin(memory.ring(), || memory.values(), owner_died).unwrap();
    let stamp = appender.sequence();
    let payload = body(stamp, LENGTH);
    let record = Record { tag, extensions: &[], payload: &payload };
    appender.append_with_values(memory.values(), |appender| appender.write(record));
}

/// Reads the value of topic 0 and returns its sequence. It must be whole.
fn read(memory: &Memory) -> Option<u64> {
    let mut scratch = Scratch::default();
    let value = memory.values().unwrap().read(memory.ring(), 0, &mut scratch);
    match value.unwrap() {
        Value::None | Value::Unstable => None,
        Value::Present(seen) => {
            assert_eq!(seen.tag, KEPT);
            let bytes = scratch.bytes(to_index(seen.length.into()));
            assert!(bytes == body(seen.sequence, seen.length), "torn: {seen:?}");
            Some(seen.sequence)
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the sequence of what the entry keeps.
fn kept(memory: &Memory) -> Option<u64> {
    let entry = memory.values().unwrap().entry(0).unwrap();
    Values::kept(entry).map(|kept| kept.0)
}

/// Receives what there is, and returns the sequence of the newest message of topic 0 (R2).
fn received(memory: &Memory) -> Option<u64> {
    let mut cursor = Cursor { position: START + BYTES, sequence: 1 };
    let mut newest = None;
    while let Some(seen) = cursor.peek(memory.ring()).unwrap() {
        newest = (seen.tag == KEPT).then_some(seen.sequence).or(newest);
        cursor.advance(&seen);
    }
    newest
}

fn reading(memory: &Arc<Memory>, read: impl FnOnce(&Memory) + 'static) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || read(&memory))
}

/// The header of a message of topic 0 that has one word.
const SHORT: u64 = header(8, KEPT);

/// Returns a stream of three messages of topic 0, one word each, with this much room for values. Topic 0 is retained, but
/// has no value yet.
fn three_short(units: usize) -> Memory {
    let mut memory = Memory::laid(CAPACITY, START, &[8; 3]).with_values(1, units);
    for sequence in 0..3 {
        let place = to_index(short(sequence).position % CAPACITY / 8);
        memory.words[place] = AtomicU64::new(SHORT);
    }
    memory.values().unwrap().declare(&memory.control, 0).unwrap();
    memory
}

/// Returns where one of the three short messages starts.
fn short(sequence: u64) -> RecordStart {
    RecordStart { position: START + sequence * 16, sequence }
}

fn announce(memory: &Memory, sequence: u64) {
    let record = short(sequence);
    memory.values().unwrap().announce(0, record, record.position, 16);
}

fn retain(memory: &Memory, sequence: u64) {
    memory.values().unwrap().retain(memory.ring(), short(sequence), SHORT);
}

fn announce_and_retain(memory: &Memory, sequence: u64) {
    announce(memory, sequence);
    retain(memory, sequence);
}

/// The buffer that a reader copies is reused by the second of two messages. All three are committed.
#[test]
fn loom_a_value_is_read_whole() {
    model(2, || {
        let memory = Arc::new(three_short(8));
        announce_and_retain(&memory, 0);
        let reader = reading(&memory, |memory| _ = read(memory));
        announce_and_retain(&memory, 1);
        announce_and_retain(&memory, 2);
        reader.join().unwrap();
        assert_eq!(read(&memory), Some(2));
    });
}

#[test]
fn loom_a_value_is_no_older_than_what_was_received() {
    model(2, || {
        let memory = Arc::new(retaining());
        let reader = reading(&memory, |memory| {
            let newest = received(memory);
            assert!(read(memory) >= newest, "it had received {newest:?}");
        });
        publish(&memory, false, KEPT);
        reader.join().unwrap();
    });
}

/// R1: a reader that sees the end of the stream finds the newest value before that end in the entry alone.
#[test]
fn loom_a_value_is_visible_with_the_end_of_the_stream() {
    model(2, || {
        let memory = Arc::new(retaining());
        let reader = reading(&memory, |memory| {
            let tail = memory.control.commit.0.tail.load(Ordering::Acquire);
            let kept = kept(memory);
            assert!(tail < START + 2 * BYTES || kept == Some(1), "at {tail} it is {kept:?}");
        });
        publish(&memory, false, KEPT);
        reader.join().unwrap();
    });
}

/// A writer dies at each step of a message, while a reader reads. Another one repairs the stream and writes.
#[test]
fn loom_a_value_survives_its_writer() {
    for_each_step(1, 8, |step| {
        let memory = Arc::new(retaining());
        let reader = reading(&memory, |memory| {
            let newest = received(memory);
            assert!(read(memory) >= newest, "it had received {newest:?}");
        });
        let died = dies_at(step, || publish(&memory, false, KEPT));
        let successor = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || publish(&memory, true, OTHER))
        };
        successor.join().unwrap();
        reader.join().unwrap();
        let newest = received(&memory);
        assert_eq!(kept(&memory), newest, "R1");
        assert_eq!(read(&memory), newest);
        died
    });
}

/// A publisher that has declared its topic makes room before it writes anything.
#[test]
fn loom_a_place_is_given_to_a_buffer_that_is_not_read() {
    model(2, || {
        let memory = Arc::new(three_short(12));
        announce_and_retain(&memory, 0);
        let reader = reading(&memory, |memory| _ = read(memory));
        announce_and_retain(&memory, 1);
        let values = memory.values().unwrap();
        values.make_room(values.entry(0).unwrap(), 128).unwrap();
        reader.join().unwrap();
    });
}

/// The announcement has a fence, but the dead owner executed that, and not the successor.
#[test]
fn loom_a_successor_reuses_a_buffer() {
    model(2, || {
        let memory = Arc::new(three_short(8));
        announce_and_retain(&memory, 0);
        let reader = reading(&memory, |memory| _ = read(memory));
        announce_and_retain(&memory, 1);
        announce(&memory, 2);
        let successor = reading(&memory, |memory| retain(memory, 2));
        successor.join().unwrap();
        reader.join().unwrap();
    });
}

/// A dead owner has announced a record that would have had another number.
#[test]
fn loom_a_value_has_the_number_that_was_committed() {
    model(3, || {
        let memory = Arc::new(retaining());
        let end = START + BYTES;
        let dead = RecordStart { position: end + BYTES, sequence: 3 };
        memory.values().unwrap().announce(0, dead, end, BYTES);
        let reader = reading(&memory, |memory| _ = read(memory));
        publish(&memory, true, OTHER);
        publish(&memory, false, KEPT);
        reader.join().unwrap();
    });
}
