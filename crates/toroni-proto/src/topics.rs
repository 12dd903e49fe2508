//! Topics: the names of a stream and their numbers, at both ends.
//!
//! ```text
//!  sender                                          receiver
//!    Table   0 plant/**    patterns first            Known   ■ ■ ■ □ ■ □     a bit for each number
//!            1 plant/a     then topics,                            │
//!            2 plant/b     each declared in band                   └── first missing: TOPICS_WANTED
//! ```
//!
//! A table only grows. The sender declares a name before it uses it. A receiver that joined late, or lost
//! a declaration, asks for what it misses. The receiver hands each name to its caller once, and keeps only
//! which numbers it has handed out.

use crate::wire::{MAX_TABLE_NAMES, TableName, TopicNumber};

/// The table has no room for another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream's table of topics is full")]
pub struct TableFull;

/// The names of a sender, in fixed memory.
#[derive(Debug)]
pub struct Table {
    bytes: Box<[u8]>,
    /// The end of each name.
    ends: Vec<u32>,
    most: usize,
    /// Numbers plus 1 by the hash of their names, with linear probing.
    buckets: Box<[u32]>,
}

/// Memory for each name, on average.
const BYTES_PER_NAME: usize = 64;

impl Table {
    /// Allocates a table for this many names, which are 64 bytes long on average.
    #[must_use]
    pub fn new(names: u32) -> Self {
        let most = names.clamp(1, MAX_TABLE_NAMES) as usize;
        Self {
            bytes: vec![0; (most * BYTES_PER_NAME).max(TableName::MAX_BYTES)].into(),
            ends: Vec::with_capacity(most),
            most,
            buckets: vec![0; (most * 2).next_power_of_two()].into(),
        }
    }

    /// Returns how many names there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// Returns whether there is no name.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of a name, if it has one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<TopicNumber> {
        let bucket = self.bucket(name);
        self.buckets[bucket].checked_sub(1).and_then(TopicNumber::new)
    }

    /// Adds a name that is not there yet.
    ///
    /// # Errors
    ///
    /// If there is no room.
    pub fn add(&mut self, name: TableName<'_>) -> Result<TopicNumber, TableFull> {
        let text = name.as_str().as_bytes();
        let from = self.end();
        let place = self.bytes.get_mut(from..from + text.len());
        let place = place.filter(|_| self.ends.len() < self.most).ok_or(TableFull)?;
        place.copy_from_slice(text);
        let number = TopicNumber::new(self.len()).ok_or(TableFull)?;
        let bucket = self.bucket(name.as_str());
        self.buckets[bucket] = number.get() + 1;
        self.ends.push(u32::try_from(from + text.len()).map_err(|_| TableFull)?);
        Ok(number)
    }

    /// Removes the last names, so that `len` are left.
    pub fn truncate(&mut self, len: u32) {
        while self.len() > len {
            let last = self.len() - 1;
            // Each name was put into the first free bucket, so in reverse order they leave no hole that a
            // search would stop at.
            let bucket = self.get(last).map(|name| self.bucket(name.as_str()));
            if let Some(bucket) = bucket {
                self.buckets[bucket] = 0;
            }
            self.ends.pop();
        }
    }

    /// Returns the name with this number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<TableName<'_>> {
        let at = number as usize;
        let end = *self.ends.get(at)? as usize;
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        core::str::from_utf8(self.bytes.get(from..end)?).ok().and_then(TableName::new)
    }

    /// Returns the names from this number on.
    pub fn from(&self, first: u32) -> impl Iterator<Item = TableName<'_>> {
        (first..self.len()).map_while(|number| self.get(number))
    }

    fn end(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// The bucket that has the name, or the first free one.
    fn bucket(&self, name: &str) -> usize {
        let mask = self.buckets.len() - 1;
        let mut at = usize::try_from(hash(name.as_bytes())).unwrap_or(0) & mask;
        // There are at least twice as many buckets as names, so one is free.
        loop {
            match self.buckets[at].checked_sub(1) {
                None => return at,
                Some(number) if self.get(number).is_some_and(|other| other.as_str() == name) => {
                    return at;
                }
                Some(_) => at = (at + 1) & mask,
            }
        }
    }
}

/// FNV-1a, 32 bits. The names are the sender's own, so no attacker chooses them to collide.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Which numbers a receiver knows.
#[derive(Debug)]
pub struct Known {
    bits: Box<[u64]>,
    /// All numbers below are known.
    below: u32,
}

impl Known {
    /// Allocates a bit for each number that a table can have.
    #[must_use]
    pub fn new() -> Self {
        Self::of(MAX_TABLE_NAMES)
    }

    /// Allocates a bit for each number of a table with this many names.
    #[must_use]
    pub fn of(names: u32) -> Self {
        Self { bits: vec![0; names.div_ceil(64) as usize].into(), below: 0 }
    }

    /// Forgets all numbers.
    pub fn clear(&mut self) {
        self.bits.fill(0);
        self.below = 0;
    }

    /// Returns the first number that is not known.
    #[must_use]
    pub const fn below(&self) -> u32 {
        self.below
    }

    /// Returns whether a number is known.
    #[must_use]
    pub fn has(&self, number: TopicNumber) -> bool {
        number.get() < self.below || self.has_bit(number.get())
    }

    fn has_bit(&self, number: u32) -> bool {
        self.bits.get(number as usize / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// Notes a number. Returns whether it is new, which one beyond the table is not.
    pub fn add(&mut self, number: TopicNumber) -> bool {
        if self.has(number) {
            return false;
        }
        let number = number.get();
        let Some(bits) = self.bits.get_mut(number as usize / 64) else { return false };
        *bits |= 1 << (number % 64);
        while self.has_bit(self.below) {
            self.below += 1;
        }
        true
    }
}

impl Default for Known {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> TableName<'_> {
        TableName::new(text).unwrap()
    }

    #[test]
    fn names_get_numbers_in_order_and_are_found_again() {
        let mut table = Table::new(100);
        for number in 0..100 {
            let text = format!("plant/{number}");
            assert_eq!(table.find(&text), None);
            assert_eq!(table.add(name(&text)).unwrap().get(), number);
        }
        assert_eq!(table.add(name("one/more")), Err(TableFull));
        for number in 0..100 {
            let text = format!("plant/{number}");
            assert_eq!(table.find(&text).map(TopicNumber::get), Some(number));
            assert_eq!(table.get(number).map(TableName::as_str), Some(text.as_str()));
        }
        assert_eq!(
            table.from(98).map(TableName::as_str).collect::<Vec<_>>(),
            ["plant/98", "plant/99"]
        );
        assert_eq!(table.get(100), None);
    }

    #[test]
    fn long_names_end_the_table_before_its_count_does() {
        let mut table = Table::new(8);
        let long = "x".repeat(255);
        assert!(table.add(name(&long)).is_ok());
        let other = format!("y{}", &long[1..]);
        assert!(table.add(name(&other)).is_ok());
        assert_eq!(table.add(name("short/name")), Err(TableFull), "512 bytes hold two of 255");
        assert_eq!(table.add(name("a")).map(TopicNumber::get), Ok(2));
    }

    proptest! {
        #[test]
        fn a_table_agrees_with_a_list(steps in prop::collection::vec((0..40_u32, any::<bool>()), 1..200)) {
            let mut table = Table::new(32);
            let mut list: Vec<String> = Vec::new();
            for (value, cut) in steps {
                if cut {
                    let keep = list.len() * value as usize / 40;
                    list.truncate(keep);
                    table.truncate(u32::try_from(keep).unwrap());
                    continue;
                }
                let text = format!("t/{value}");
                let place = list.iter().position(|one| *one == text);
                let found = table.find(&text).map(|number| number.get() as usize);
                prop_assert_eq!(found, place);
                if place.is_none() {
                    prop_assert_eq!(table.add(name(&text)).is_ok(), list.len() < 32);
                    if list.len() < 32 {
                        list.push(text);
                    }
                }
            }
        }

        #[test]
        fn known_numbers_agree_with_a_set(numbers in prop::collection::vec(0..300_u32, 1..300)) {
            let mut known = Known::new();
            let mut set = std::collections::BTreeSet::new();
            for number in numbers {
                let topic = TopicNumber::new(number).unwrap();
                prop_assert_eq!(known.has(topic), set.contains(&number));
                prop_assert_eq!(known.add(topic), set.insert(number));
                let first = (0..).find(|one| !set.contains(one)).unwrap();
                prop_assert_eq!(known.below(), first);
            }
        }
    }

    #[test]
    fn the_last_number_of_a_table_can_be_known() {
        let mut known = Known::new();
        for number in 0..MAX_TABLE_NAMES {
            known.add(TopicNumber::new(number).unwrap());
        }
        assert_eq!(known.below(), MAX_TABLE_NAMES);
    }
}
