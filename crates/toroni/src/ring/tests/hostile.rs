//! Control words and bytes that no correct process writes: the result is an error or a harmless
//! mistake. Nothing panics, and everything terminates.

use super::super::copy::Scratch;
use super::super::reader::{Cursor, Interrupted, NoSuchStart};
use super::super::testing::{Memory, tag};
use super::super::writer::{Appender, Record, header};
use super::fixture::{scaled, word_count};
use super::resume::SplitMix;
use crate::sync::{AtomicU64, Ordering};

/// Returns a number that is likely to reach a special case.
fn odd_number(random: &mut SplitMix, near: u64) -> u64 {
    match random.below(12) {
        0 => u64::MAX,
        1 => u64::MAX - 7,
        2 => 0,
        3 => 1 << 62,
        4 => random.next(),
        5 => near.wrapping_add(random.below(8)),
        6 => near.wrapping_sub(8 * random.below(128)),
        7 => 8 * random.below(256),
        _ => near.wrapping_add(8 * random.below(128)),
    }
}

fn set(random: &mut SplitMix, word: &AtomicU64, near: u64) {
    word.store(odd_number(random, near), Ordering::Relaxed);
}

/// Returns a valid ring in which some words were changed.
fn disturbed(random: &mut SplitMix) -> Memory {
    let lengths: Vec<u32> = (0..random.below(30)).map(|_| random.length(120)).collect();
    let memory = Memory::laid(512 << random.below(2), 1024 * random.below(3), &lengths);
    let commit = &memory.control.commit.0;
    let near = commit.tail.load(Ordering::Relaxed);
    for _ in 0..random.below(3) {
        match random.below(5) {
            0 => set(random, &commit.tail, near),
            1 => set(random, &commit.sequence, near),
            2 => set(random, &memory.control.reserved.0, near + 512),
            3 => {
                for entry in &memory.control.index {
                    set(random, &entry.position, near);
                    set(random, &entry.sequence, near);
                }
            }
            _ => {
                for word in &memory.words {
                    let length = u32::try_from(random.below(300)).unwrap();
                    let header = header(length, u32::try_from(random.below(3)).unwrap());
                    let value = if random.below(4) == 0 { random.next() } else { header };
                    word.store(value, Ordering::Relaxed);
                }
            }
        }
    }
    memory
}

#[test]
fn readers_survive_any_words() {
    let mut random = SplitMix(0xBAD);
    let mut scratch = Scratch::default();
    for _ in 0..scaled(400) {
        let memory = disturbed(&mut random);
        let ring = memory.ring();
        let position =
            odd_number(&mut random, memory.control.commit.0.tail.load(Ordering::Relaxed));
        let starts = [Cursor::at_end(ring), Cursor::at_oldest(ring)];
        let at = Cursor::at(ring, position).ok();
        let sequence =
            odd_number(&mut random, memory.control.commit.0.sequence.load(Ordering::Relaxed));
        let at_sequence = Cursor::at_sequence(ring, sequence).ok();
        assert!(at_sequence.is_none_or(|cursor| cursor.sequence == sequence));
        for mut cursor in starts.into_iter().flatten().chain(at).chain(at_sequence) {
            for _ in 0..100 {
                match cursor.peek(ring) {
                    Ok(Some(seen)) => {
                        let _ = cursor.copy(ring, &seen, &mut scratch);
                        cursor.advance(&seen);
                    }
                    Ok(None) | Err(Interrupted::Corrupt(_)) => break,
                    Err(Interrupted::Lapped) => {
                        if cursor.resume(ring, 8 * random.below(200)).is_err() {
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// Entries with wrong sequences, and headers that never end, lead to an error or to a start that is
/// called by the sequence that was asked for.
#[test]
fn a_search_for_a_sequence_ends_whatever_the_index_says() {
    let memory = Memory::laid(1024, 0, &[8; 40]);
    let ring = memory.ring();
    for entry in &memory.control.index {
        entry.sequence.store(u64::MAX, Ordering::Relaxed);
    }
    for sequence in [0, 7, 40, u64::MAX - 1] {
        let oldest = u64::MAX;
        assert_eq!(Cursor::at_sequence(ring, sequence), Err(NoSuchStart::Lost { oldest }));
    }
    let found = Cursor::at_sequence(ring, u64::MAX);
    assert_eq!(found.map(|cursor| cursor.sequence), Ok(u64::MAX));
    // No entry, and a tail that no stream reaches.
    for entry in &memory.control.index {
        entry.position.store(u64::MAX, Ordering::Relaxed);
    }
    assert!(matches!(Cursor::at_sequence(ring, 7), Err(NoSuchStart::Corrupt(_))));
    memory.control.commit.0.tail.store(u64::MAX - 7, Ordering::Relaxed);
    assert!(matches!(Cursor::at_sequence(ring, 7), Err(NoSuchStart::Corrupt(_))));
    // Messages without an end.
    let memory = Memory::laid(1024, 0, &[8; 40]);
    for word in 0..word_count(memory.shape()) {
        memory.words[word].store(header(0, 1), Ordering::Relaxed);
    }
    for reserved in [8, 1024, u64::MAX] {
        memory.control.reserved.0.store(reserved, Ordering::Relaxed);
        let found = Cursor::at_sequence(memory.ring(), 1 << 40);
        assert!(matches!(found, Err(NoSuchStart::Corrupt(_))), "{found:?}");
    }
}

#[test]
fn writers_survive_any_words() {
    let mut random = SplitMix(0xBADBAD);
    let (mut refused, mut wrote) = (0, 0);
    for _ in 0..scaled(10_000) {
        let memory = disturbed(&mut random);
        let Ok(mut appender) = Appender::begin(memory.ring(), || None, random.below(2) == 0) else {
            refused += 1;
            continue;
        };
        for _ in 0..4 {
            let payload = vec![1; usize::try_from(random.below(240)).unwrap()];
            let record = Record { tag: tag(1), extensions: &[], payload: &payload };
            if !appender.fits(record.bytes()) {
                appender.reserve(appender.wanted(record.bytes()));
            }
            appender.write(record);
            wrote += 1;
        }
    }
    assert!(cfg!(miri) || (refused > 100 && wrote > 1000), "{refused} refused, {wrote} written");
}

/// A tail at which no record can start is refused, whatever the word there.
#[test]
fn a_misplaced_tail_is_refused() {
    for tail in [1, 4, 1028, (1 << 62) + 8, u64::MAX, u64::MAX - 7] {
        for owner_died in [false, true] {
            let memory = Memory::new(1024);
            memory.control.commit.0.tail.store(tail, Ordering::Relaxed);
            let refused = Appender::begin(memory.ring(), || None, owner_died).err().unwrap();
            assert_eq!((refused.what, refused.value), ("tail", tail));
        }
    }
}

/// With an endless chain of records, recovery stops at `reserved`.
#[test]
fn recovery_does_not_run_in_circles() {
    let memory = Memory::new(1024);
    for word in 0..word_count(memory.shape()) {
        memory.words[word].store(header(0, 1), Ordering::Relaxed);
    }
    for reserved in [8, 16, 1024, u64::MAX] {
        memory.control.reserved.0.store(reserved, Ordering::Relaxed);
        let refused = Appender::begin(memory.ring(), || None, true).err().unwrap();
        assert!(!refused.what.is_empty(), "{refused}");
    }
}
