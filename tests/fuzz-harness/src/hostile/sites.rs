//! The words of a bus, and what to change them to. Offsets are those of
//! `crates/toroni/src/ring/layout.rs`.

use super::template::{
    ARMING_OFFSET, ARRIVALS, ARRIVALS_OFFSET, BOUNDS_OFFSET, CAPACITY, DATA_OFFSET, Kind,
    READER_SLOTS_OFFSET, RING_HEADER_BYTES, ROWS, ROWS_OFFSET, SLOTS, TABLE_BYTES, TABLE_OFFSET,
    Template, VALUE_AREA_OFFSET, VALUE_INDEX_OFFSET, VALUES_OFFSET, WAKE_OFFSET,
};
use super::victim::Manner;
use std::fmt;
use toroni_testkit::Random;

/// A word, or a part of one.
#[derive(Clone, Debug)]
pub struct Site {
    pub file: &'static str,
    /// In bytes from the start of the file.
    pub offset: u64,
    /// In bytes: 1, 4 or 8.
    pub width: usize,
    values: Values,
}

/// How many values are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    All,
    /// For one of many words of the same meaning.
    Few,
    /// For words that mean nothing.
    One,
}

/// A value for a site.
#[derive(Clone, Debug)]
pub struct Change {
    pub site: Site,
    /// As many bytes of it as the site has.
    pub value: u64,
}

/// When the change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before anybody opens the bus.
    Before,
    /// While publishers and subscribers are at work.
    Open,
    /// While a publisher holds the writer lock.
    Locked,
}

const CONTROL: u64 = 4096;
const LOCK: u64 = CONTROL;
const MUTEX: std::ops::Range<u64> = CONTROL + 640..CONTROL + 704;
const INDEX: std::ops::Range<u64> = CONTROL + 1024..CONTROL + 2048;
const PUBLISHER_SLOTS: u64 = 4096;
/// After the slots of a template.
const PATTERNS: u64 = READER_SLOTS_OFFSET + SLOTS * 128;
const HEADERS: u64 = 624;

impl Site {
    /// Whether a change at this moment can be noticed: headers are read when a bus is opened.
    pub fn is_for(&self, moment: Moment) -> bool {
        if self.values == Values::One && moment != Moment::Before {
            return false;
        }
        match moment {
            Moment::Before => true,
            Moment::Open => self.offset >= 64,
            // While it is locked, the C library's mutex is part of a list of the thread that holds
            // it: who changes it then changes that process's memory. That is between publishers, and
            // the reason for the other kind.
            Moment::Locked => self.file == "ring" && self.offset >= CONTROL && !self.is_mutex(),
        }
    }

    /// Whether the operations may wait without a limit. A change of the lock while others are at
    /// work makes it held, and the holder may be a living process. Before that, no process lives.
    pub fn manner(&self, moment: Moment) -> Manner {
        let lock = self.file == "ring" && (LOCK..LOCK + 8).contains(&self.offset);
        let held = lock && moment != Moment::Before;
        if held || self.is_mutex() { Manner::Limited } else { Manner::Blocking }
    }

    /// Whether it belongs to the table of arrivals.
    pub fn is_arrival(&self) -> bool {
        self.file == "ring" && (ARRIVALS_OFFSET..DATA_OFFSET).contains(&self.offset)
    }

    /// Whether it belongs to the C library.
    pub fn is_mutex(&self) -> bool {
        self.file == "ring" && MUTEX.contains(&self.offset)
    }

    /// Whether a header's checksum covers it.
    pub fn is_under_checksum(&self) -> bool {
        let end = if self.file == "ring" { RING_HEADER_BYTES as u64 } else { 64 };
        self.offset < end && !(48..56).contains(&self.offset)
    }
}

/// Whether bytes of `ring` belong to the C library's mutex.
pub(super) fn touches_mutex(offset: u64, length: u64) -> bool {
    offset < MUTEX.end && offset + length > MUTEX.start
}

/// All sites of a bus.
pub fn of(template: &Template) -> Vec<Site> {
    let mut sites = Vec::new();
    let mut add = |file, offset, width, values| sites.push(Site { file, offset, width, values });
    for file in ["ring", "publishers", "readers"] {
        let end = if file == "ring" { HEADERS } else { 64 };
        for offset in (0..end).step_by(8) {
            add(file, offset, 8, Values::One);
            add(file, offset, 4, Values::Few);
            add(file, offset + 4, 4, Values::Few);
        }
    }
    for offset in (CONTROL..CONTROL + 2048).step_by(8) {
        let values = match offset - CONTROL {
            0 | 8 | 16 | 128 | 256 | 384 | 512 | 520 | 528 | 768 | 896 | 904 | 912 => Values::All,
            _ if MUTEX.contains(&offset) => Values::All,
            _ if INDEX.contains(&offset) => {
                if (offset - INDEX.start) / 16 % 21 < 2 {
                    Values::All
                } else {
                    Values::Few
                }
            }
            _ => Values::One,
        };
        add("ring", offset, 8, values);
        // The lock, the mark of a publisher without fences, the count of topics, and the C library's mutex.
        if [0, 256, 768].contains(&(offset - CONTROL)) || MUTEX.contains(&offset) {
            add("ring", offset, 4, Values::All);
            add("ring", offset + 4, 4, Values::Few);
        }
    }
    for word in 0..TABLE_BYTES / 8 {
        let values = match word {
            0..4 => Values::All,
            4..64 => Values::One,
            // Nothing is after the last name, or in the middle of names.
            _ if word % 16 > 0 => continue,
            _ => Values::Few,
        };
        add("ring", TABLE_OFFSET + word * 8, 8, values);
        add("ring", TABLE_OFFSET + word * 8, 1, values);
    }
    for (offset, width) in [(0, 4), (8, 8), (16, 8)] {
        add("ring", ARRIVALS_OFFSET + offset, width, Values::All);
    }
    for entry in 0..u64::from(ARRIVALS) {
        let values = if entry < 2 { Values::All } else { Values::Few };
        let fields = [(0, 4), (4, 4), (8, 4), (12, 4), (16, 8), (24, 4), (28, 4), (32, 8)];
        for (offset, width) in fields {
            add("ring", ARRIVALS_OFFSET + 64 * (1 + entry) + offset, width, values);
        }
    }
    let count = template.positions.len();
    for (number, position) in template.positions.iter().enumerate() {
        let header = Template::offset_of(*position);
        let values = match number {
            _ if number < 2 || number + 2 > count => Values::All,
            _ if number < 4 || number + 6 > count || number % 32 == 0 => Values::Few,
            _ => continue,
        };
        add("ring", header, 8, values);
        add("ring", header, 4, values);
        add("ring", header + 4, 4, values);
        add("ring", header + 4, 1, values);
        for body in 1..4 {
            add("ring", Template::offset_of(position + body * 8), 8, Values::Few);
            add("ring", Template::offset_of(position + body * 8), 1, Values::Few);
        }
    }
    for (position, length) in template.losses {
        let header = Template::offset_of(position);
        add("ring", header, 8, Values::All);
        add("ring", header, 4, Values::All);
        add("ring", header + 4, 4, Values::All);
        add("ring", header + 4, 1, Values::All);
        // Numbers, how exact they are, why, and the first patterns; of a long one, also the last.
        let last = length / 8 - 1;
        for word in (0..length / 8).filter(|word| *word < 9 || *word == last) {
            let body = Template::offset_of(position + 8 + word * 8);
            add("ring", body, 8, Values::Few);
            for byte in 0..4 {
                add("ring", body + byte, 1, Values::Few);
            }
        }
    }
    add("ring", Template::offset_of(template.tail), 8, Values::All);
    for slot in [0, 1, 3] {
        let values = if slot == 0 { Values::All } else { Values::Few };
        for (file, first) in [("publishers", PUBLISHER_SLOTS), ("readers", READER_SLOTS_OFFSET)] {
            let slot = first + slot * 128;
            for offset in (slot..slot + 128).step_by(8) {
                add(file, offset, 8, values);
                if offset % 128 < 32 {
                    add(file, offset, 4, values);
                    add(file, offset + 4, 4, values);
                }
            }
        }
        add("ring", WAKE_OFFSET + slot * 4, 4, values);
        add("readers", ARMING_OFFSET + slot * 8, 4, values);
        add("readers", ARMING_OFFSET + slot * 8 + 4, 4, values);
    }
    for topic in [0, 1, 2, 4095] {
        add("ring", BOUNDS_OFFSET + topic * 8, 8, Values::All);
    }
    for topic in [0, 1, 2, ROWS - 1] {
        add("ring", VALUE_INDEX_OFFSET + topic * 4, 4, Values::Few);
    }
    for entry in [0, 1, 3] {
        let values = if entry == 1 { Values::All } else { Values::Few };
        let entry = VALUES_OFFSET + entry * 128;
        add("ring", entry, 4, Values::Few);
        for word in 1..14 {
            add("ring", entry + word * 8, 8, values);
        }
        // Places, in two halves.
        for word in [5, 9, 13] {
            add("ring", entry + word * 8, 4, values);
            add("ring", entry + word * 8 + 4, 4, values);
        }
    }
    for word in [0, 8, 9] {
        add("ring", VALUE_AREA_OFFSET + word * 8, 8, Values::Few);
    }
    for topic in [0, 1, 2, ROWS - 1] {
        add("readers", ROWS_OFFSET + topic * 8, 8, Values::All);
    }
    for slot in [0, 1] {
        let area = PATTERNS + slot * 512;
        let values = if slot == 0 { Values::All } else { Values::Few };
        for offset in (area..area + 16).step_by(4) {
            add("readers", offset, 4, values);
        }
        for offset in [area + 16, area + 24] {
            add("readers", offset, 8, Values::Few);
            add("readers", offset, 1, Values::Few);
        }
    }
    for offset in (128..128 + 512).step_by(8) {
        let values = if offset % 128 == 0 { Values::All } else { Values::One };
        add("readers", offset, 8, values);
        add("readers", offset, 4, values);
    }
    // The rest is what it is in any bus.
    sites.retain(|site| match template.kind {
        Kind::Lease => true,
        Kind::Robust => site.file == "readers" || site.offset < CONTROL + 1024 || site.is_arrival(),
        Kind::Full => site.file == "ring" && site.offset >= CONTROL + 768,
        Kind::Young => site.file == "ring" && site.offset >= CONTROL,
    });
    sites
}

/// What a site is changed to, in turn.
pub fn changes(template: &Template, site: &Site) -> Vec<Change> {
    let original = template.original(site);
    let bits = 8 * site.width;
    let mask = u64::MAX >> (64 - bits);
    let mut random = Random::new(site.offset << 8 | bits as u64);
    let top = 1 << (bits - 1);
    let thorough = std::env::var_os("TORONI_HOSTILE_THOROUGH").is_some();
    let values = if thorough { Values::All } else { site.values };
    let mut values = match (values, site.width) {
        (Values::One, _) => vec![mask],
        (Values::Few, 8) => vec![0, mask - 7, 1 << 62, original.wrapping_add(8), random.number()],
        (Values::Few, _) => vec![0, mask, top, original.wrapping_add(1), random.number()],
        (Values::All, _) => {
            let mut all = vec![0, 1, mask, mask - 7, top, top / 2 - 8];
            for by in [8, CAPACITY] {
                all.extend([original.wrapping_add(by), original.wrapping_sub(by)]);
            }
            all.extend((0..bits).step_by(13).map(|bit| original ^ 1 << bit));
            all.push(random.number());
            if thorough {
                all.extend([2, 7, 8, mask - 8, top - 8, top / 2]);
                for by in [1, CAPACITY / 64, CAPACITY / 2, CAPACITY + 8] {
                    all.extend([original.wrapping_add(by), original.wrapping_sub(by)]);
                }
                all.extend((0..bits).map(|bit| original ^ 1 << bit));
                all.extend((0..8).map(|_| random.number()));
            }
            all
        }
    };
    if site.file == "ring" && site.offset == LOCK && site.width == 4 {
        // Slots and generations of participants, waiters and starving ones.
        for flags in [0, 1 << 31, 1 << 30, 3 << 30] {
            values.push(flags);
            for slot in [0, 1, 2, 4, 5, 4095] {
                for generation in [0, 1, 2, 3, (1 << 18) - 1] {
                    values.push(flags | (slot << 18 & 0x3FFF_FFFF) | generation);
                }
            }
        }
    }
    for value in &mut values {
        *value &= mask;
    }
    values.sort_unstable();
    values.dedup();
    values.retain(|value| *value != original);
    values.into_iter().map(|value| Change { site: site.clone(), value }).collect()
}

/// Returns the changes after which a publisher has died with the lock and with a note about an arrival. The note is about
/// the first entry and a record that was committed.
pub fn of_death_with_note() -> Vec<Change> {
    let change = |offset, width, value| {
        let site = Site { file: "ring", offset, width, values: Values::All };
        Change { site, value }
    };
    // Slot 0, and a generation that it had.
    vec![
        change(LOCK, 4, 1 << 18 | 1),
        change(ARRIVALS_OFFSET, 4, 1),
        change(ARRIVALS_OFFSET + 8, 8, 0),
        change(ARRIVALS_OFFSET + 16, 8, 2),
    ]
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site: Site { file, offset, width, .. }, value } = self;
        write!(formatter, "{file}+{offset:#x}/{width}={value:#x}")
    }
}
