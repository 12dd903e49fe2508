//! Where the parts of a bus's files are: the table of regions in the header of `ring`.
//!
//! A later release may add a part to a file and keep the layout. A region of a kind that this release does not know is left
//! alone. It must lie in its file, apart from all others.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::directory::BusFile;
use super::encoding::{get_u32, get_u64, put_u32, put_u64};
use super::header::kind as kind_of;
use crate::ring::layout::{
    Arming, MOST_TRACKED_TOPICS, PAGE, PATTERNS_BYTES, REGION_ALIGNMENT, REGIONS, RawRegion,
    SLOT_BYTES, SLOTS_OFFSET, TABLE_OFFSET, VALUE_UNIT, ValueEntry, arrivals_bytes, row_words,
};
use crate::ring::position::to_index;
use crate::settings::Settings;
use crate::sync::{AtomicU32, AtomicU64};
use std::mem::{offset_of, size_of};

/// A part of a file. The number is that of its kind in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The names of topics: words.
    TopicTable = 1,
    /// How far streams from elsewhere have arrived: entries, after one that is pending.
    Arrivals,
    /// The futex words of the subscribers.
    WakeWords,
    /// The slots of the publishers.
    PublisherSlots,
    /// How often each subscriber has armed.
    Arming,
    /// Which subscribers want nothing of a topic: a row for each topic.
    Rows,
    /// The slots of the subscribers.
    ReaderSlots,
    /// The patterns of the subscribers.
    Patterns,
    /// Which entry has the value of a topic. This part and the next two are there on buses with values only.
    ValueIndex,
    /// The values of retained topics: entries.
    Values,
    /// Where the values are: units.
    ValueArea,
}

const PARTS: [Part; 11] = [
    Part::TopicTable,
    Part::Arrivals,
    Part::WakeWords,
    Part::PublisherSlots,
    Part::Arming,
    Part::Rows,
    Part::ReaderSlots,
    Part::Patterns,
    Part::ValueIndex,
    Part::Values,
    Part::ValueArea,
];

/// The parts that a bus has if it has values.
const OF_VALUES: [Part; 3] = [Part::ValueIndex, Part::Values, Part::ValueArea];

impl Part {
    fn of_kind(kind: u32) -> Option<Self> {
        PARTS.into_iter().find(|part| *part as u32 == kind)
    }

    fn file(self) -> BusFile {
        match self {
            Self::TopicTable
            | Self::Arrivals
            | Self::WakeWords
            | Self::ValueIndex
            | Self::Values
            | Self::ValueArea => BusFile::Ring,
            Self::PublisherSlots => BusFile::Publishers,
            Self::Arming | Self::Rows | Self::ReaderSlots | Self::Patterns => BusFile::Readers,
        }
    }

    /// Returns how many entries it has on a bus with these settings, and this many rows.
    fn entries(self, settings: &Settings, tracked_topics: u32) -> u32 {
        match self {
            Self::TopicTable => {
                u32::try_from(settings.topic_table_bytes / WORD).unwrap_or(u32::MAX)
            }
            Self::Arrivals => settings.max_arrivals,
            Self::Rows => tracked_topics,
            Self::ValueIndex if settings.retained_topics == 0 => 0,
            Self::ValueIndex => tracked_topics,
            Self::Values => settings.retained_topics,
            Self::ValueArea if settings.retained_topics == 0 => 0,
            Self::ValueArea => {
                u32::try_from(settings.retained_bytes / VALUE_UNIT).unwrap_or(u32::MAX)
            }
            Self::PublisherSlots => settings.max_publishers,
            Self::WakeWords | Self::Arming | Self::ReaderSlots | Self::Patterns => {
                settings.max_subscribers
            }
        }
    }

    /// Returns how many bytes it takes with this many entries, on a bus with these settings.
    fn bytes(self, settings: &Settings, entries: u32) -> u64 {
        let each = match self {
            Self::Arrivals => return arrivals_bytes(entries),
            Self::TopicTable => size_of::<AtomicU64>(),
            Self::WakeWords | Self::ValueIndex => size_of::<AtomicU32>(),
            Self::Values => size_of::<ValueEntry>(),
            Self::ValueArea => to_index(VALUE_UNIT),
            Self::Arming => size_of::<Arming>(),
            Self::Rows => {
                size_of::<AtomicU64>().saturating_mul(row_words(settings.max_subscribers) as usize)
            }
            Self::PublisherSlots | Self::ReaderSlots => SLOT_BYTES,
            Self::Patterns => PATTERNS_BYTES,
        };
        u64::from(entries).saturating_mul(each as u64)
    }

    /// Returns what its offset is a multiple of. Publishers map what is before the slots of the subscribers.
    fn alignment(self) -> u64 {
        if self == Self::ReaderSlots { PAGE as u64 } else { REGION_ALIGNMENT }
    }
}

const WORD: u64 = size_of::<AtomicU64>() as u64;

/// The parts of the three files. Each is as large as the settings of its bus say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regions {
    /// By [`PARTS`].
    known: [Region; PARTS.len()],
    /// Where the last region ends, by file: also of those of a kind that is not known.
    ends: [u64; 3],
}

/// A stretch of a file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Region {
    entries: u32,
    offset: u64,
    bytes: u64,
}

impl Region {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

impl Regions {
    /// Lays out the files of a new bus.
    pub(crate) fn of_new(settings: &Settings, tracked_topics: u32) -> Self {
        let mut regions = Self { known: Default::default(), ends: BusFile::ALL.map(first_offset) };
        for (part, region) in PARTS.iter().zip(&mut regions.known) {
            let entries = part.entries(settings, tracked_topics);
            if entries == 0 && OF_VALUES.contains(part) {
                continue;
            }
            let end = &mut regions.ends[part.file() as usize];
            let offset = end.checked_next_multiple_of(part.alignment()).unwrap_or(u64::MAX);
            *region = Region { entries, offset, bytes: part.bytes(settings, entries) };
            *end = region.end();
        }
        regions
    }

    /// Writes the table of regions.
    pub(crate) fn encode(&self, table: &mut [u8]) {
        for ((part, region), bytes) in
            PARTS.iter().zip(&self.known).zip(table.chunks_exact_mut(size_of::<RawRegion>()))
        {
            if region.offset == 0 {
                continue;
            }
            put_u32(bytes, offset_of!(RawRegion, kind), *part as u32);
            put_u32(bytes, offset_of!(RawRegion, file), kind_of(part.file()));
            put_u32(bytes, offset_of!(RawRegion, entries), region.entries);
            put_u64(bytes, offset_of!(RawRegion, offset), region.offset);
            put_u64(bytes, offset_of!(RawRegion, bytes), region.bytes);
        }
    }

    /// Reads and checks the table of regions of a bus with these settings. Otherwise says what is wrong. Only the table says
    /// how many values there are.
    pub(crate) fn decode(table: &[u8], settings: &Settings) -> Result<Self, String> {
        let mut found: [Option<Region>; PARTS.len()] = Default::default();
        let mut all: Vec<(BusFile, Region)> = Vec::with_capacity(REGIONS);
        for bytes in table.chunks_exact(size_of::<RawRegion>()) {
            let kind = get_u32(bytes, offset_of!(RawRegion, kind));
            let number = get_u32(bytes, offset_of!(RawRegion, file));
            let file = BusFile::ALL.into_iter().find(|file| kind_of(*file) == number);
            let region = Region {
                entries: get_u32(bytes, offset_of!(RawRegion, entries)),
                offset: get_u64(bytes, offset_of!(RawRegion, offset)),
                bytes: get_u64(bytes, offset_of!(RawRegion, bytes)),
            };
            if kind == 0 {
                continue;
            }
            let part = Part::of_kind(kind);
            let damaged = |what: &str| Err(format!("region {kind} {what}"));
            let Some(file) = file else {
                // A file that this release does not know.
                if part.is_some() {
                    return damaged("is in no file");
                }
                continue;
            };
            let alignment = part.map_or(REGION_ALIGNMENT, Part::alignment);
            if region.offset < first_offset(file) || !region.offset.is_multiple_of(alignment) {
                return damaged("begins where none can");
            }
            let overlaps =
                |other: &Region| region.offset < other.end() && other.offset < region.end();
            if region.offset.checked_add(region.bytes).is_none() {
                return damaged("is longer than a file can be");
            }
            if all.iter().any(|(of, other)| *of == file && overlaps(other)) {
                return damaged("covers another one");
            }
            all.push((file, region));
            let Some(part) = part else { continue };
            if part.file() != file {
                return damaged("is in another file");
            }
            if found[index_of(part)].replace(region).is_some() {
                return damaged("is there twice");
            }
        }
        let mut regions = Self { known: Default::default(), ends: BusFile::ALL.map(first_offset) };
        for (file, region) in &all {
            let end = &mut regions.ends[*file as usize];
            *end = region.end().max(*end);
        }
        let tracked = found[index_of(Part::Rows)].map_or(0, |rows| rows.entries);
        if !(1..=MOST_TRACKED_TOPICS).contains(&tracked) {
            return Err(format!("{tracked} rows of topics"));
        }
        let entries_of = |part| found[index_of(part)].map_or(0, |region: Region| region.entries);
        let settings = &Settings {
            retained_topics: entries_of(Part::Values),
            retained_bytes: u64::from(entries_of(Part::ValueArea)).saturating_mul(VALUE_UNIT),
            ..*settings
        };
        for part in PARTS {
            let kind = part as u32;
            let Some(region) = found[index_of(part)] else {
                if settings.retained_topics == 0 && OF_VALUES.contains(&part) {
                    continue;
                }
                return Err(format!("region {kind} is missing"));
            };
            let entries = part.entries(settings, tracked);
            let bytes = part.bytes(settings, entries);
            if (region.entries, region.bytes) != (entries, bytes) {
                return Err(format!(
                    "region {kind} has {} entries in {} bytes, expected {entries} in {bytes}",
                    region.entries, region.bytes
                ));
            }
            regions.known[index_of(part)] = region;
        }
        for part in [Part::Arming, Part::Rows] {
            if regions.of(part).end() > regions.offset(Part::ReaderSlots) {
                return Err(format!("region {} is after the slots", part as u32));
            }
        }
        Ok(regions)
    }

    fn of(&self, part: Part) -> &Region {
        &self.known[index_of(part)]
    }

    /// Returns the offset of a part in its file.
    pub(crate) fn offset(&self, part: Part) -> u64 {
        self.of(part).offset
    }

    /// Returns how many entries a part has.
    pub(crate) fn entries(&self, part: Part) -> u32 {
        self.of(part).entries
    }

    /// Returns for how many topics there are values, and how many bytes they have.
    pub(crate) fn retained(&self) -> (u32, u64) {
        let units = self.entries(Part::ValueArea);
        (self.entries(Part::Values), u64::from(units).saturating_mul(VALUE_UNIT))
    }

    /// Returns how many bytes a file has at least, without the stream.
    pub(crate) fn end(&self, file: BusFile) -> u64 {
        self.ends[file as usize]
    }
}

fn index_of(part: Part) -> usize {
    (part as usize).wrapping_sub(1)
}

/// Returns where the first region of a file can begin.
fn first_offset(file: BusFile) -> u64 {
    match file {
        BusFile::Ring => TABLE_OFFSET as u64,
        BusFile::Publishers | BusFile::Readers => SLOTS_OFFSET as u64,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;
    use crate::shm::testing::small;

    const TRACKED: u32 = 100;

    fn table() -> Vec<u8> {
        let mut table = vec![0; REGIONS * size_of::<RawRegion>()];
        Regions::of_new(&small(), TRACKED).encode(&mut table);
        table
    }

    fn entry(table: &mut [u8], place: usize) -> &mut [u8] {
        table.chunks_exact_mut(size_of::<RawRegion>()).nth(place).unwrap()
    }

    /// Adds a region that this release does not know.
    fn add(table: &mut [u8], kind: u32, file: u32, offset: u64, bytes: u64) {
        let entry = entry(table, PARTS.len());
        put_u32(entry, offset_of!(RawRegion, kind), kind);
        put_u32(entry, offset_of!(RawRegion, file), file);
        put_u64(entry, offset_of!(RawRegion, offset), offset);
        put_u64(entry, offset_of!(RawRegion, bytes), bytes);
    }

    fn decode(table: &[u8]) -> Result<Regions, String> {
        Regions::decode(table, &small())
    }

    #[test]
    fn what_is_laid_out_is_found_again() {
        let regions = decode(&table()).unwrap();
        assert_eq!(regions, Regions::of_new(&small(), TRACKED));
        assert_eq!(regions.entries(Part::Rows), TRACKED);
        assert_eq!(regions.offset(Part::TopicTable), TABLE_OFFSET as u64);
        assert!(regions.offset(Part::ReaderSlots).is_multiple_of(PAGE as u64));
    }

    #[test]
    fn regions_of_later_releases_are_left_alone() {
        let known = decode(&table()).unwrap();
        for (file, number) in [(BusFile::Ring, 1), (BusFile::Publishers, 2), (BusFile::Readers, 3)]
        {
            let offset = known.end(file).next_multiple_of(REGION_ALIGNMENT);
            let mut table = table();
            add(&mut table, 77, number, offset, 1000);
            let regions = decode(&table).unwrap();
            assert_eq!(regions.known, known.known);
            assert_eq!(regions.end(file), offset + 1000);
        }
        // In a file that only that release has.
        let mut table = table();
        add(&mut table, 77, 4, 0, 1000);
        assert_eq!(decode(&table).unwrap(), known);
    }

    #[test]
    fn regions_that_cannot_be_are_refused() {
        let end = decode(&table()).unwrap().end(BusFile::Ring).next_multiple_of(REGION_ALIGNMENT);
        for (kind, file, offset, bytes, problem) in [
            (77, 1, TABLE_OFFSET as u64, 8, "covers another"),
            (77, 1, 0, 8, "begins where none can"),
            (77, 1, end + 8, 8, "begins where none can"),
            (77, 1, end, u64::MAX, "longer than a file"),
            (1, 1, end, 8, "twice"),
            (1, 2, 1 << 40, 8, "in another file"),
            (1, 4, end, 8, "in no file"),
        ] {
            let mut table = table();
            add(&mut table, kind, file, offset, bytes);
            let found = decode(&table).unwrap_err();
            assert!(found.contains(problem), "{found}: {problem}");
        }
        for part in PARTS {
            let mut missing = table();
            put_u32(entry(&mut missing, index_of(part)), offset_of!(RawRegion, kind), 0);
            assert!(decode(&missing).is_err(), "{part:?}");
            for offset in [offset_of!(RawRegion, entries), offset_of!(RawRegion, bytes)] {
                let mut other = table();
                let entry = entry(&mut other, index_of(part));
                let value = get_u32(entry, offset);
                put_u32(entry, offset, value - 1);
                assert!(decode(&other).is_err(), "{part:?}");
            }
        }
        // Publishers map what is before the slots.
        let mut late = table();
        let end = decode(&late).unwrap().end(BusFile::Readers).next_multiple_of(REGION_ALIGNMENT);
        put_u64(entry(&mut late, index_of(Part::Rows)), offset_of!(RawRegion, offset), end);
        assert!(decode(&late).unwrap_err().contains("after the slots"));
    }
}
