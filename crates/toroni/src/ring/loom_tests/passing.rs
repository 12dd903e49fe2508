//! Passing over: a reader that continues at the end of the stream has missed nothing that a bound would have told it of.

use super::*;
use crate::ring::bounds::{bound, settled_end};

/// Returns a stream of one message with room for more, and a bound for all topics.
fn bounded(length: u32) -> Memory {
    let mut memory = Memory::laid(CAPACITY, START, &[length]);
    memory.control.reserved.0 = AtomicU64::new(START + CAPACITY);
    memory
}

/// Checks what a reader finds that has read message 0.
fn look(memory: &Memory) {
    let Some(end) = settled_end(&memory.control) else { return };
    assert_eq!(end.position, START + end.sequence * BYTES, "{end:?}");
    if end.position > START + BYTES {
        let told = bound(&memory.control, 0);
        assert!(told >= end.position, "it would pass over a message: {told}, {end:?}");
        follow(memory.ring(), end);
    }
}

/// Starts a reader thread, as [`reader`] does.
fn looking(memory: &Arc<Memory>, look: impl FnOnce(&Memory) + 'static) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || look(&memory))
}

#[test]
fn loom_a_bound_is_visible_with_the_end_of_the_stream() {
    model(3, || {
        let memory = Arc::new(bounded(LENGTH));
        let reader = looking(&memory, look);
        write_one(memory.ring(), false);
        write_one(memory.ring(), false);
        reader.join().unwrap();
    });
}

#[test]
fn loom_the_bound_of_a_burst_is_visible_with_the_end_of_the_stream() {
    model(3, || {
        // Message 0 fills a block.
        let memory = Arc::new(bounded(24));
        let (start, tag) = (START + 32, tag(1));
        let reader = looking(&memory, move |memory| {
            if let Some(end) = settled_end(&memory.control) {
                assert_eq!(end.position, start + (end.sequence - 1) * 8, "{end:?}");
                assert!(end.sequence == 1 || bound(&memory.control, 0) >= end.position);
            }
        });
        let mut appender = Appender::begin(memory.ring(), || None, false).unwrap();
        assert_eq!(appender.write_in_block(tag, &[&[], &[]]), 2);
        reader.join().unwrap();
    });
}

/// The first owner died between COMMIT and TAIL. The second recovers, and writes.
#[test]
fn loom_passing_over_during_a_recovery() {
    model(2, || {
        let mut memory = Memory::laid(CAPACITY, START, &[LENGTH, LENGTH]);
        memory.control.commit.0.tail = AtomicU64::new(START + BYTES);
        memory.control.reserved.0 = AtomicU64::new(START + CAPACITY);
        memory.control.bounds[0] = AtomicU64::new(START + 2 * BYTES);
        let memory = Arc::new(memory);
        let reader = looking(&memory, look);
        write_one(memory.ring(), true);
        reader.join().unwrap();
    });
}
