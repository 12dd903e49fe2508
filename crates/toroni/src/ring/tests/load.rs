//! One writer that never waits, and readers on other threads. Whatever the timing, validated
//! messages are whole, and losses are counted.

use super::super::copy::Scratch;
use super::super::position::record_bytes;
use super::super::read_ahead::ReadAhead;
use super::super::reader::{Cursor, Interrupted, Seen};
use super::super::testing::{Memory, body, tag};
use super::super::writer::{Appender, Record};
use crate::sync::Ordering;
use std::sync::atomic::AtomicBool;
use std::thread;

/// Returns the length of a message, which a reader can compute from its number.
fn length(sequence: u64, longest: u32) -> u32 {
    let part = u32::try_from(sequence * 7 % 64).unwrap();
    if part == 63 { longest } else { part * (longest / 256) }
}

/// Writes `messages` messages, then sets `done`.
fn write_all(memory: &Memory, messages: u64, longest: u32, done: &AtomicBool) {
    // Prepared in advance, so that making the payloads does not slow the writer down.
    let bytes: Vec<Vec<u8>> = (0..64).map(|sequence| body(sequence, longest)).collect();
    for sequence in 0..messages {
        let mut appender = Appender::begin(memory.ring(), || None, false).unwrap();
        let payload = &bytes[usize::try_from(sequence % 64).unwrap()];
        let payload = &payload[..usize::try_from(length(sequence, longest)).unwrap()];
        let record = Record { tag: tag(sequence), extensions: &[], payload };
        if !appender.fits(record.bytes()) {
            appender.reserve(appender.wanted(record.bytes()));
        }
        appender.write(record);
    }
    done.store(true, Ordering::Release);
}

/// Reads `messages` messages one by one to the end, and counts.
fn read_all(memory: &Memory, messages: u64, longest: u32, margin: u64, done: &AtomicBool) {
    let ring = memory.ring();
    let mut cursor = Cursor { position: 0, sequence: 0 };
    let mut scratch = Scratch::default();
    let (mut read, mut lost) = (0, 0);
    while cursor.sequence < messages {
        let over = done.load(Ordering::Acquire);
        let step = cursor.peek(ring).and_then(|seen| {
            seen.map(|seen| cursor.copy(ring, &seen, &mut scratch).map(|()| seen)).transpose()
        });
        match step {
            Ok(None) if over => panic!("nothing at {cursor:?}, before the end of the stream"),
            Ok(None) => crate::sync::pause(),
            Ok(Some(seen)) => {
                assert_eq!(seen.tag, tag(cursor.sequence));
                assert_eq!(seen.length, length(cursor.sequence, longest));
                let bytes = scratch.bytes(usize::try_from(seen.length).unwrap());
                assert!(bytes == body(cursor.sequence % 64, seen.length), "torn: {cursor:?}");
                cursor.advance(&seen);
                read += 1;
            }
            Err(Interrupted::Lapped) => {
                let (more, bytes) = cursor.resume(ring, margin).unwrap();
                assert!(more > 0 && bytes >= more * 8);
                lost += more;
            }
            Err(Interrupted::Corrupt(corrupt)) => panic!("{corrupt}"),
        }
    }
    assert_eq!(read + lost, messages);
}

/// Like [`read_all`], but uses a read-ahead for small records.
fn read_all_ahead(memory: &Memory, messages: u64, longest: u32, done: &AtomicBool) {
    let ring = memory.ring();
    let mut cursor = Cursor { position: 0, sequence: 0 };
    let mut read_ahead = ReadAhead::default();
    let (mut read, mut lost) = (0, 0);
    while read + lost < messages {
        while read_ahead.next().is_some() {
            let Seen { sequence, tag: found, length: long, .. } = read_ahead.last();
            assert_eq!((sequence, found), (read + lost, tag(sequence)));
            assert_eq!(long, length(sequence, longest));
            let bytes = read_ahead.body(usize::try_from(long).unwrap());
            assert!(bytes == body(sequence % 64, long), "torn: {:?}", read_ahead.last());
            read += 1;
        }
        assert_eq!(read_ahead.give_up(), None, "every validated record is valid");
        let over = done.load(Ordering::Acquire);
        let step = read_ahead
            .fill(&mut cursor, ring)
            .and_then(|filled| if filled { Ok(None) } else { cursor.peek(ring) });
        match step {
            Ok(None) if over && read_ahead.is_empty() && read + lost < messages => {
                panic!("nothing at {cursor:?}, before the end of the stream")
            }
            Ok(None) => crate::sync::pause(),
            Ok(Some(seen)) => {
                if cursor.copy(ring, &seen, read_ahead.set(&seen)).is_ok() {
                    let bytes = read_ahead.body(usize::try_from(seen.length).unwrap());
                    assert!(bytes == body(seen.sequence % 64, seen.length), "torn: {seen:?}");
                    cursor.advance(&seen);
                    read += 1;
                }
            }
            Err(Interrupted::Lapped) => {
                lost += cursor.resume(ring, 0).unwrap().0;
            }
            Err(Interrupted::Corrupt(corrupt)) => panic!("{corrupt}"),
        }
    }
    assert_eq!(read + lost, messages);
}

#[test]
fn torn_messages_are_not_trusted_and_losses_are_counted() {
    let messages = if cfg!(miri) { 200 } else { 30_000 };
    for (capacity, longest) in [(512, 248), (4096, 1000), (64 << 10, 4000)] {
        let (memory, done) = (Memory::new(capacity), AtomicBool::new(false));
        thread::scope(|scope| {
            for margin in [0, capacity / 4] {
                let (memory, done) = (&memory, &done);
                scope.spawn(move || read_all(memory, messages, longest, margin, done));
            }
            scope.spawn(|| read_all_ahead(&memory, messages, longest, &done));
            write_all(&memory, messages, longest, &done);
        });
    }
}

/// However fast the oldest messages are overwritten, a reader finds a start, and nothing is
/// reported as corrupt.
#[test]
fn joining_works_while_a_writer_laps_the_ring() {
    let messages = if cfg!(miri) { 200 } else { 100_000 };
    for (capacity, longest) in [(512, 248), (4096, 1000), (64 << 10, 16_000)] {
        let (memory, done) = (Memory::new(capacity), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let ring = memory.ring();
                while !done.load(Ordering::Relaxed) {
                    for joined in [Cursor::at_oldest(ring), Cursor::at_end(ring)] {
                        let mut cursor = joined.unwrap_or_else(|corrupt| panic!("{corrupt}"));
                        if let Ok(Some(seen)) = cursor.peek(ring) {
                            assert_eq!(seen.tag, tag(seen.sequence), "the number is correct");
                            assert_eq!(
                                seen.next_position() - seen.position,
                                record_bytes(length(seen.sequence, longest))
                            );
                            cursor.advance(&seen);
                        }
                    }
                }
            });
            write_all(&memory, messages, longest, &done);
        });
    }
}
