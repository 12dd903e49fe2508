//! The patterns of subscribers, which `readers` holds beside the slots: how a subscriber writes its own, and how an
//! observer reads them.
//!
//! An observer copies bytes that any subscriber can change at any time. It accepts a copy only if the version was
//! the same, and even, before and after. Unless the bytes were forged, the copy is then what one owner wrote at one
//! time. The caller parses it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::snapshot::{PatternsSnapshot, ReaderSnapshot};
use crate::hook::{self, CrashPoint, mutant};
use crate::ring::layout::{
    PATTERN_SEPARATOR, PATTERNS_TEXT_WORDS, PATTERNS_TRUNCATED, ReaderPatterns, SLOT_ACTIVE,
};
use crate::sync::{Ordering, fence};
use std::io;

/// Writes the patterns of a slot that the caller has claimed. The caller does so before it activates the slot, and
/// again when it adds a pattern. If a pattern does not fit, it and all patterns after it are left out, and a flag
/// says so.
pub(crate) fn show<'p>(
    area: &ReaderPatterns,
    generation: u32,
    patterns: impl Iterator<Item = &'p str>,
) {
    let mut text = [0; 8 * PATTERNS_TEXT_WORDS];
    let (mut length, mut flags) = (0, 0);
    for pattern in patterns {
        let start = usize::saturating_add(length, usize::from(length > 0));
        let end = start.saturating_add(pattern.len());
        let Some(place) = text.get_mut(start..end) else {
            flags = PATTERNS_TRUNCATED;
            break;
        };
        place.copy_from_slice(pattern.as_bytes());
        text[length..start].fill(PATTERN_SEPARATOR);
        length = end;
    }
    // It is already odd if the last owner died while writing.
    let odd = area.version.load(Ordering::Relaxed).wrapping_add(1) | 1;
    area.version.store(odd, Ordering::Relaxed);
    // PATTERNS
    fence(Ordering::Release);
    area.generation.store(generation, Ordering::Relaxed);
    area.flags.store(flags, Ordering::Relaxed);
    let length = u32::try_from(length).expect("at most as long as the text");
    area.length.store(length, Ordering::Relaxed);
    let (words, _) = text.as_chunks::<8>();
    for (number, (place, word)) in area.text.iter().zip(words).enumerate() {
        if number == PATTERNS_TEXT_WORDS / 2 {
            hook::point(CrashPoint::ReaderMidPatterns);
        }
        place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    // PATTERNS
    area.version.store(odd.wrapping_add(1), Ordering::Release);
}

/// How often an observer tries to read patterns that change. A subscriber needs less than a microsecond to write
/// its own. If it is stopped while writing, or writes all the time, they count as unreadable.
const ATTEMPTS: u32 = 16;

/// Returns the slot, read again if its owner changed, and the patterns of the same owner. `None` if the slot is
/// free.
pub(super) fn with_patterns(
    mut slot: ReaderSnapshot,
    slot_now: impl Fn() -> io::Result<ReaderSnapshot>,
    patterns_now: impl Fn() -> io::Result<PatternsSnapshot>,
) -> io::Result<Option<(ReaderSnapshot, Option<PatternsSnapshot>)>> {
    for _ in 0..ATTEMPTS {
        if slot.state != SLOT_ACTIVE {
            return Ok(None);
        }
        // PATTERNS: one system call copies in no particular order. The text is consistent if its version was the
        // same before and after.
        let before = patterns_now()?.version;
        fence(Ordering::Acquire);
        let patterns = patterns_now()?;
        fence(Ordering::Acquire);
        let after = patterns_now()?.version;
        let is_whole = before == after && before.is_multiple_of(2);
        let is_whole = is_whole || mutant("patterns_without_version");
        let is_its_own =
            patterns.generation == slot.generation || mutant("patterns_without_generation");
        if is_whole && is_its_own {
            return Ok(Some((slot, Some(patterns))));
        }
        let now = slot_now()?;
        if is_whole && now.generation == slot.generation {
            // An owner writes its patterns before it activates its slot, so these are not its own.
            return Ok((now.state == SLOT_ACTIVE).then_some((now, None)));
        }
        slot = now;
        std::thread::yield_now();
    }
    Ok((slot.state == SLOT_ACTIVE).then_some((slot, None)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::layout::SLOT_FREE;
    use crate::ring::position::to_index;
    use crate::shm::directory::{BusDirectory, BusFile};
    use crate::shm::header::Header;
    use crate::shm::mapping::Protection;
    use crate::shm::participants::{
        ReadersSegment, offset_of_patterns, offset_of_slot, open_slots, read_one, read_readers,
    };
    use crate::shm::regions::Part;
    use crate::shm::ring_file::RingFile;
    use crate::shm::testing::TempDir;
    use crate::sync::Ordering::Relaxed;
    use std::cell::Cell;

    fn header(bus: &BusDirectory) -> Header {
        RingFile::open(bus, Protection::Read).unwrap().header().clone()
    }

    /// Claims a slot and writes patterns as a joining subscriber does.
    fn claim(segment: &ReadersSegment, number: u32, generation: u32, patterns: &[&str]) {
        let slot = segment.slot(number);
        slot.state.store(SLOT_FREE, Relaxed);
        slot.generation.store(generation, Relaxed);
        let area = segment.patterns(number);
        show(area, generation, patterns.iter().copied());
        slot.state.store(SLOT_ACTIVE, Relaxed);
    }

    /// Number, generation and text of a slot.
    type Shown = (u32, u32, Option<(String, bool)>);

    /// Returns what an observer sees of every active slot.
    fn shown(bus: &BusDirectory, header: &Header) -> Vec<Shown> {
        let views = read_readers(bus, header).unwrap().into_iter();
        views
            .map(|view| {
                let text = view.patterns.and_then(|patterns| patterns.text());
                (view.number, view.slot.generation, text)
            })
            .collect()
    }

    #[test]
    fn patterns_are_those_of_their_slot() {
        let root = TempDir::new();
        let bus = root.bus();
        let header = header(&bus);
        let segment = ReadersSegment::open(&bus, &header, Protection::Write).unwrap();
        assert_eq!(shown(&bus, &header), []);
        claim(&segment, 3, 5, &["a/*", "**"]);
        claim(&segment, 1, 7, &[]);
        let text = |text: &str| Some((text.to_owned(), false));
        assert_eq!(shown(&bus, &header), [(1, 7, text("")), (3, 5, text("a/*\n**"))]);
        // Nothing remains of a longer text, nor of the slot's last owner.
        claim(&segment, 3, 6, &["b"]);
        assert_eq!(shown(&bus, &header)[1], (3, 6, text("b")));
        segment.slot(3).generation.store(7, Relaxed);
        assert_eq!(shown(&bus, &header)[1], (3, 7, None), "another owner wrote these patterns");
    }

    #[test]
    fn patterns_that_do_not_fit_are_left_out_whole() {
        let root = TempDir::new();
        let bus = root.bus();
        let header = header(&bus);
        let segment = ReadersSegment::open(&bus, &header, Protection::Write).unwrap();
        let text_of = |patterns: &[&str]| {
            claim(&segment, 0, 1, patterns);
            shown(&bus, &header).remove(0).2.unwrap()
        };
        let [long, rest] = [255, 496 - 256].map(|length| "x".repeat(length));
        assert_eq!(text_of(&[&long, &rest]), (format!("{long}\n{rest}"), false));
        assert_eq!(text_of(&[&long, &rest, "y"]), (format!("{long}\n{rest}"), true));
        assert_eq!(text_of(&[&long, &format!("{rest}y"), "y"]), (long, true));
    }

    /// An owner that died while writing leaves an odd version, and an attacker can write one.
    #[test]
    fn patterns_that_are_being_written_do_not_show() {
        let root = TempDir::new();
        let bus = root.bus();
        let header = header(&bus);
        let segment = ReadersSegment::open(&bus, &header, Protection::Write).unwrap();
        for version in [1, 77, u32::MAX] {
            claim(&segment, 0, 1, &["a"]);
            segment.patterns(0).version.store(version, Relaxed);
            assert_eq!(shown(&bus, &header), [(0, 1, None)]);
            claim(&segment, 0, 2, &["b"]);
            assert_eq!(shown(&bus, &header), [(0, 2, Some(("b".to_owned(), false)))]);
        }
    }

    /// Changes the patterns between any two of the reads.
    #[test]
    fn patterns_that_change_while_they_are_read_are_read_again() {
        let root = TempDir::new();
        let bus = root.bus();
        let header = header(&bus);
        let segment = ReadersSegment::open(&bus, &header, Protection::Write).unwrap();
        let fd = open_slots(&bus, &header, BusFile::Readers).unwrap();
        let area = segment.patterns(2);
        let [first, of_patterns] =
            [Part::ReaderSlots, Part::Patterns].map(|part| to_index(header.offset(part)));
        let rewrite = || show(area, 1, ["new/1", "new/2"].into_iter());
        let take_over = || claim(&segment, 2, 2, &["of/another"]);
        let begin = || {
            area.version.fetch_add(1, Relaxed);
            area.text[0].store(u64::from_ne_bytes(*b"new/1\nof"), Relaxed);
        };
        let leave = || segment.slot(2).state.store(SLOT_FREE, Relaxed);
        for at in 0..3 {
            let read_while = |change: &dyn Fn()| {
                claim(&segment, 2, 1, &["old/1", "old/2"]);
                let slot = read_one::<ReaderSnapshot>(&fd, offset_of_slot(first, 2)).unwrap();
                let reads = Cell::new(0);
                let patterns_now = || {
                    if reads.replace(reads.get() + 1) == at {
                        change();
                    }
                    read_one::<PatternsSnapshot>(&fd, offset_of_patterns(of_patterns, 2))
                };
                let slot_now = || read_one(&fd, offset_of_slot(first, 2));
                let view = with_patterns(slot, slot_now, patterns_now).unwrap();
                view.map(|(slot, patterns)| {
                    (slot.generation, patterns.map(|p| p.text().unwrap().0))
                })
            };
            let text = |text: &str| Some(text.to_owned());
            assert_eq!(read_while(&rewrite), Some((1, text("new/1\nnew/2"))), "at {at}");
            assert_eq!(read_while(&take_over), Some((2, text("of/another"))), "at {at}");
            assert_eq!(read_while(&begin), Some((1, None)), "at {at}");
            assert_eq!(read_while(&|| (take_over(), leave()).0), None, "at {at}");
        }
    }
}
