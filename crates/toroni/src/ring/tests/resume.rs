//! Tests of lapped readers: the loss that they report, and where they continue.

use super::fixture::{Fixture, Reading, Work, scaled};
use crate::ring::testing::body;

/// A small generator of random numbers, the same on every run (Steele, Lea, Flood: "Fast splittable
/// pseudorandom number generators", OOPSLA 2014).
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn length(&mut self, longest: u32) -> u32 {
        let longest = if self.below(8) == 0 { longest } else { longest.min(100) };
        u32::try_from(self.below(u64::from(longest) + 1)).unwrap()
    }
}

#[test]
fn a_lapped_reader_reports_its_losses_exactly() {
    for (seed, capacity) in [(1, 512), (2, 1024), (3, 4096)] {
        let mut random = SplitMix(seed);
        let mut fixture = Fixture::new(capacity);
        let mut reader = fixture.join_end();
        let (mut read, mut lost) = (0, 0);
        for _ in 0..scaled(300) {
            // Sometimes far more than fits, sometimes less.
            let mut left = random.below(4 * capacity);
            while left > 0 {
                let length = random.length(fixture.longest());
                fixture.fill(length, 1);
                left = left.saturating_sub(u64::from(length) + 8);
            }
            let margin = random.below(2) * capacity / 4;
            for _ in 0..random.below(capacity / 8) {
                match fixture.read(&mut reader, margin) {
                    Reading::Message => read += 1,
                    Reading::Lapped(messages, _) => lost += messages,
                    Reading::Nothing => break,
                }
            }
            assert_eq!(
                read + lost,
                reader.cursor.sequence,
                "every message was read or reported lost"
            );
        }
        assert!(cfg!(miri) || (read > 1000 && lost > 1000), "{read} read, {lost} lost");
    }
}

#[test]
fn without_a_margin_nothing_intact_is_skipped() {
    let mut fixture = Fixture::new(1024);
    let mut reader = fixture.join_end();
    fixture.fill(8, 1024);
    // `reserved` is a block of 16 bytes beyond the end.
    assert_eq!(fixture.read(&mut reader, 0), Reading::Lapped(1, 16));
    assert_eq!(fixture.drain(&mut reader), 63);
}

#[test]
fn a_margin_keeps_a_reader_from_being_lapped_at_once() {
    let mut fixture = Fixture::new(1024);
    let mut hasty = fixture.join_end();
    let mut wise = fixture.join_end();
    fixture.fill(8, 5000);
    assert!(matches!(fixture.read(&mut hasty, 0), Reading::Lapped(..)));
    assert!(matches!(fixture.read(&mut wise, 256), Reading::Lapped(..)));
    fixture.fill(8, 256);
    assert!(matches!(fixture.read(&mut hasty, 0), Reading::Lapped(..)));
    assert_eq!(fixture.read(&mut wise, 256), Reading::Message);
    fixture.write(&Work::One(8));
    fixture.write(&Work::One(8));
    assert!(matches!(fixture.read(&mut wise, 256), Reading::Lapped(..)), "a quarter, and no more");
}

/// A record may be half of the ring, so the oldest entry beyond the margin may be far beyond it.
#[test]
fn a_margin_works_with_the_largest_records() {
    for capacity in [512, 1024] {
        let mut fixture = Fixture::new(capacity);
        let longest = fixture.longest();
        let mut reader = fixture.join_end();
        for round in 0..scaled(400) {
            let small = u32::try_from(round % 64).unwrap();
            for length in [longest, small, longest, longest - 8 * small.min(20)] {
                fixture.write(&Work::One(length));
            }
            assert!(matches!(fixture.read(&mut reader, capacity / 4), Reading::Lapped(..)));
        }
    }
}

/// No record is further away than a whole ring. The newest known entry is used then, and nothing is
/// reported as corrupt.
#[test]
fn a_margin_larger_than_the_history_leads_to_the_newest_entry() {
    let mut fixture = Fixture::new(1024);
    let mut reader = fixture.join_end();
    fixture.fill(24, 1024);
    fixture.write(&Work::Batch(vec![0, 0, 0]));
    assert!(matches!(fixture.read(&mut reader, 4096), Reading::Lapped(..)));
    assert!(fixture.model.end() - reader.cursor.position <= fixture.shape().block_bytes());
}

/// Checks that a message cannot be mistaken for the one that it overwrote.
#[test]
fn the_words_of_a_message_are_its_own() {
    assert_ne!(body(1, 16), body(2, 16));
    assert_ne!(body(1, 16)[..8], body(1, 16)[8..]);
}
