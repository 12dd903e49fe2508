//! Tests of writing: every size, batches, writing in place, and the index after each.

use super::super::position::record_bytes;
use super::super::reader::Cursor;
use super::super::testing::{Memory, body, tag};
use super::super::writer::{Appender, Record};
use super::fixture::{Fixture, Reading, Work, boundary_lengths, never, scaled};
use crate::hook::CrashPoint;
use crate::sync::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[test]
fn every_size_comes_back() {
    for capacity in [512, 1024, 4096] {
        let mut fixture = Fixture::new(capacity);
        let mut reader = fixture.join_end();
        let step = if cfg!(miri) { 29 } else { 1 };
        for length in (0..=fixture.longest()).step_by(step) {
            fixture.write(&Work::One(length));
            assert_eq!(fixture.read(&mut reader, 0), Reading::Message);
            fixture.write(&Work::InPlace(length, 16));
            assert_eq!(fixture.read(&mut reader, 0), Reading::Message);
            assert_eq!(fixture.read(&mut reader, 0), Reading::Nothing);
        }
    }
}

#[test]
fn sizes_around_blocks_come_back_from_a_larger_ring() {
    let mut fixture = Fixture::new(64 << 10);
    let mut reader = fixture.join_end();
    for length in boundary_lengths(fixture.shape(), fixture.longest()) {
        if cfg!(miri) && length % 16 != 1 {
            continue;
        }
        fixture.write(&Work::One(length));
        assert_eq!(fixture.read(&mut reader, 0), Reading::Message);
    }
}

/// Records that are written in one call have the same bytes as records that are written one by one.
#[test]
fn records_in_a_block_are_as_if_written_alone() {
    let lengths = [8, 8, 8, 0, 1, 17, 64, 8, 120, 128, 200, 3, 511, 8, 16, 256, 257, 9];
    let payloads: Vec<Vec<u8>> =
        (0..).zip(lengths.iter().cycle()).take(400).map(|(at, length)| body(at, *length)).collect();
    let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let (together, alone) = (Memory::new(64 << 10), Memory::new(64 << 10));
    let with_space = |memory: &Memory, payload: &[u8]| {
        let mut appender = Appender::begin(memory.ring(), || None, false).unwrap();
        let bytes = record_bytes(u32::try_from(payload.len()).unwrap());
        if !appender.fits(bytes) {
            appender.reserve(appender.wanted(bytes));
        }
        appender.write(Record { tag: tag(1), extensions: &[], payload });
    };
    for payload in &payloads {
        with_space(&alone, payload);
    }
    let (mut written, mut alone_count) = (0, 0);
    while written < payloads.len() {
        let mut appender = Appender::begin(together.ring(), || None, false).unwrap();
        let count = appender.write_in_block(tag(1), &slices[written..]);
        let block = together.shape().block(appender.tail());
        written += count;
        if let Some(payload) = payloads.get(written) {
            // It stopped no earlier than necessary.
            let end = appender.tail() + record_bytes(u32::try_from(payload.len()).unwrap());
            let crosses_block = together.shape().block(end) != block;
            assert!(crosses_block || !appender.fits(end - appender.tail()));
            with_space(&together, payload);
            written += 1;
            alone_count += 1;
        }
    }
    assert!(alone_count * 4 < payloads.len(), "most are written in one go");
    let words = |memory: &Memory| -> Vec<u64> {
        memory.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    };
    assert!(words(&together) == words(&alone), "the same bytes");
    for block in 0..64 {
        assert_eq!(
            together.ring().read_entry(block),
            alone.ring().read_entry(block),
            "block {block}"
        );
    }
    let end = |memory: &Memory| {
        let commit = &memory.control.commit.0;
        (commit.tail.load(Ordering::Relaxed), commit.sequence.load(Ordering::Relaxed))
    };
    assert_eq!(end(&together), end(&alone));
}

#[test]
fn a_batch_comes_back_in_order() {
    let mut fixture = Fixture::new(1024);
    let mut reader = fixture.join_end();
    let batches: [&[u32]; 6] =
        [&[], &[0], &[5, 0, 17], &[240, 240, 8], &[0; 64], &[1, 2, 3, 100, 200]];
    for round in 0..scaled(40) {
        let lengths = batches[round % batches.len()];
        fixture.write(&Work::Batch(lengths.to_vec()));
        assert_eq!(fixture.drain(&mut reader), lengths.len() as u64);
        // Otherwise every batch would start at the same index.
        fixture.write(&Work::One(u32::try_from(round).unwrap()));
        assert_eq!(fixture.drain(&mut reader), 1);
    }
}

#[test]
fn a_batch_may_be_as_large_as_a_record() {
    let mut fixture = Fixture::new(512);
    let mut reader = fixture.join_end();
    let lengths = vec![0, 24, 100, fixture.longest() - 8 - 32 - 112];
    let bytes: u64 = lengths.iter().copied().map(record_bytes).sum();
    assert_eq!(bytes, fixture.shape().largest_record());
    for _ in 0..5 {
        fixture.write(&Work::Batch(lengths.clone()));
        assert_eq!(fixture.drain(&mut reader), 4);
    }
}

/// With blocks of 8 bytes, every record crosses a boundary; with 16 bytes, half of them do.
/// `Fixture` compares every entry with the model after each step.
#[test]
fn the_index_leads_to_the_first_record_of_each_block() {
    for capacity in [512, 1024, 8192] {
        let mut fixture = Fixture::new(capacity);
        let mut state = 1_u32;
        for _ in 0..scaled(3000) {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let longest = if state & 0x70_0000 == 0 { fixture.longest() } else { 40 };
            fixture.write(&Work::One((state >> 8) % (longest + 1)));
        }
        fixture.join_oldest();
        fixture.join_end();
    }
}

#[test]
fn a_record_over_many_blocks_is_the_entry_of_all_of_them() {
    let mut fixture = Fixture::new(1024);
    fixture.write(&Work::One(5));
    fixture.write(&Work::One(fixture.longest()));
    let end = fixture.model.end();
    assert_eq!(end, 16 + 512);
    for block in 2..=end / 16 {
        let entry = fixture.ring().read_entry(block).unwrap();
        assert_eq!((entry.position, entry.sequence), (end, 2), "block {block}");
    }
    assert_eq!(fixture.ring().read_entry(1).unwrap().position, 16);
    assert_eq!(fixture.ring().read_entry(end / 16 + 1), None);
}

#[test]
fn each_message_of_a_batch_may_be_an_entry() {
    let mut fixture = Fixture::new(1024);
    fixture.write(&Work::Batch(vec![8, 9, 16, 0, 40, 1]));
    let starts = [0, 16, 40, 64, 72, 120, 136];
    let entries = [0, 1, 2, 3, 3, 5, 5, 5, 6];
    for (block, number) in (0..).zip(entries) {
        let entry = fixture.ring().read_entry(block).unwrap();
        assert_eq!((entry.position, entry.sequence), (starts[number], number as u64));
    }
}

#[test]
fn space_is_reserved_by_whole_blocks() {
    let mut fixture = Fixture::new(4096);
    let reserves = |fixture: &mut Fixture, length| {
        fixture.perform(&Work::One(length), false, never).contains(&CrashPoint::AfterReserve)
    };
    assert!(reserves(&mut fixture, 0), "a new bus has space for its end word only");
    // Of a block of 64 bytes, 8 are used and 8 belong to the end word.
    assert!(!reserves(&mut fixture, 0));
    assert!(!reserves(&mut fixture, 32));
    assert_eq!(fixture.model.end(), 56, "the end's word is the last of the block");
    assert_eq!(fixture.model.reserved, 64);
    assert!(reserves(&mut fixture, 0));
    assert_eq!(fixture.model.reserved, 128);
    let longest = fixture.longest();
    assert!(reserves(&mut fixture, longest));
    assert_eq!(fixture.model.reserved, 64 + 2048 + 64);
}

#[test]
fn unused_space_stays_reserved() {
    let mut fixture = Fixture::new(1024);
    let mut reader = fixture.join_end();
    fixture.fill(24, 512);
    fixture.write(&Work::Reserve(512));
    assert_eq!(fixture.model.reserved, 512 + 512 + 16);
    for _ in 0..8 {
        fixture.write(&Work::One(24));
    }
    // 16 bytes at the start of the stream may be overwritten, although no writer did so.
    assert_eq!(fixture.read(&mut reader, 0), Reading::Lapped(1, 32));
    assert_eq!(fixture.drain(&mut reader), 23);
}

#[test]
fn a_closure_that_unwinds_leaves_nothing() {
    for capacity in [512, 4096] {
        let mut fixture = Fixture::new(capacity);
        let mut reader = fixture.join_end();
        for round in 0..scaled(200) {
            let length = u32::try_from(round * 31 % 248).unwrap();
            let before = fixture.model.end();
            fixture.write(&Work::Unwind(length));
            assert_eq!(fixture.model.end(), before);
            assert_eq!(fixture.read(&mut reader, 0), Reading::Nothing);
            fixture.write(&Work::InPlace(length / 2, 8));
            assert_eq!(fixture.drain(&mut reader), 1);
        }
    }
}

/// Writes two messages with one appender, as `burst` does.
#[test]
fn a_writer_continues_after_a_closure_unwound() {
    let memory = Memory::new(512);
    let ring = memory.ring();
    let mut appender = Appender::begin(ring, || None, false).unwrap();
    appender.reserve(appender.wanted(200));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        appender
            .write_with(tag(7), &[1; 8], 40, |_| -> Result<(), ()> { resume_unwind(Box::new(())) })
    }));
    assert!(unwound.is_err());
    appender.write(Record { tag: tag(8), extensions: &[], payload: b"still here" });
    assert_eq!((appender.tail(), appender.sequence()), (24, 1));
    let seen = Cursor { position: 0, sequence: 0 }.peek(ring).unwrap().unwrap();
    assert_eq!((seen.tag, seen.length), (tag(8), 10));
}

/// This happens in the child of a `fork` within the closure: its copy of the appender ends, and
/// nothing becomes visible.
#[test]
fn a_closure_that_fails_commits_nothing() {
    let memory = Memory::new(512);
    let ring = memory.ring();
    let mut appender = Appender::begin(ring, || None, false).unwrap();
    appender.reserve(appender.wanted(200));
    let failed = appender.write_with(tag(7), &[1; 8], 40, |_| Err::<(), _>("refused"));
    assert_eq!(failed, Err("refused"));
    assert_eq!((appender.tail(), appender.sequence()), (0, 0));
    assert!(Cursor { position: 0, sequence: 0 }.peek(ring).unwrap().is_none());
}

/// Padding bytes are 0, whatever an older message left there, or a closure that does not fill all
/// bytes.
#[test]
fn padding_is_zero() {
    let memory = Memory::new(512);
    let ring = memory.ring();
    memory.words[1..].iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    let mut appender = Appender::begin(ring, || None, false).unwrap();
    appender.reserve(appender.wanted(24));
    appender.write_with(1, &[], 9, |_| Ok::<_, ()>(())).unwrap();
    assert_eq!(ring.word(8).load(Ordering::Relaxed), u64::MAX, "left to the closure");
    assert_eq!(ring.word(16).load(Ordering::Relaxed), 0);
    assert_eq!(ring.word(24).load(Ordering::Relaxed), 0);
    assert_eq!(ring.word(32).load(Ordering::Relaxed), u64::MAX, "after the end");
}
