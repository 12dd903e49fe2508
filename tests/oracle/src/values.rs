//! Retained topics: the newest message of each, and whether the bus must have kept it.

use std::collections::{BTreeMap, BTreeSet};

/// What room is given out in.
const UNIT: u64 = 64;
/// A value takes this part of the room at most.
const LARGEST_PART: u64 = 4;

/// Whether there is room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The bus must keep it.
    Certain,
    /// That depends on how the bus gives out what is left.
    Perhaps,
    /// No topic may have such a long one.
    TooLong,
}

/// The newest message of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    pub sequence: u64,
    /// It is no message, but says that there is no value any more.
    pub is_cleared: bool,
    pub room: Room,
}

/// All topics of a bus have their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

#[derive(Clone, Copy, Debug, Default)]
struct Value {
    newest: Option<Newest>,
    /// Bytes of the longest record that the bus has kept: any of at most as many is kept.
    longest: u64,
    /// A publisher died while it made room, and may have lost what there was.
    has_leaked: bool,
}

/// The values of a bus.
#[derive(Clone, Debug)]
pub struct Values {
    most: usize,
    bytes: u64,
    values: BTreeMap<usize, Value>,
    /// Topics whose declaration died halfway: no other one takes their places.
    named: BTreeSet<usize>,
}

impl Values {
    /// Has room for at most `most` topics and `bytes` bytes.
    #[must_use]
    pub fn new(most: usize, bytes: u64) -> Self {
        Self { most, bytes, values: BTreeMap::new(), named: BTreeSet::new() }
    }

    /// Bytes of the longest record that can be kept.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.bytes / UNIT / LARGEST_PART * UNIT
    }

    #[must_use]
    pub fn is_retained(&self, topic: usize) -> bool {
        self.values.contains_key(&topic)
    }

    /// The retained topics.
    pub fn topics(&self) -> impl Iterator<Item = usize> {
        self.values.keys().copied()
    }

    /// The newest message of a topic since that was declared.
    #[must_use]
    pub fn newest(&self, topic: usize) -> Option<Newest> {
        self.values.get(&topic)?.newest
    }

    /// Whether a topic can be declared, if it is not.
    fn has_place(&self, topic: usize) -> bool {
        self.named.contains(&topic) || self.values.len() + self.named.len() < self.most
    }

    /// Retains a topic.
    ///
    /// # Errors
    /// See [`TooMany`].
    pub fn declare(&mut self, topic: usize) -> Result<(), TooMany> {
        if self.is_retained(topic) {
            return Ok(());
        }
        if !self.has_place(topic) {
            return Err(TooMany);
        }
        self.named.remove(&topic);
        self.values.insert(topic, Value::default());
        Ok(())
    }

    /// Its publisher has died between the steps of the declaration.
    pub fn declare_halfway(&mut self, topic: usize) {
        self.named.insert(topic);
    }

    /// Whether there is room for a record of `bytes` bytes, where `free` bytes are in no use.
    #[must_use]
    pub fn room(&self, topic: usize, bytes: u64, free: u64) -> Room {
        let whole = bytes.next_multiple_of(UNIT);
        let fits_again =
            self.values.get(&topic).is_some_and(|it| !it.has_leaked && bytes <= it.longest);
        if whole > self.longest() {
            Room::TooLong
        } else if fits_again || 2 * whole <= free {
            Room::Certain
        } else {
            Room::Perhaps
        }
    }

    /// A record of `bytes` bytes has become the newest of its topic, if that is retained.
    pub fn publish(&mut self, topic: usize, newest: Newest, bytes: u64) {
        if let Some(value) = self.values.get_mut(&topic) {
            value.newest = Some(newest);
            if newest.room == Room::Certain {
                value.longest = value.longest.max(bytes);
            }
        }
    }

    /// A publisher has died while it made room for a record of the topic.
    pub fn leak(&mut self, topic: usize) {
        if let Some(value) = self.values.get_mut(&topic) {
            value.has_leaked = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_newest_since_its_topic_was_declared() {
        let mut values = Values::new(1, 4096);
        let one = Newest { sequence: 3, is_cleared: false, room: Room::Certain };
        values.publish(7, one, 64);
        assert_eq!((values.newest(7), values.declare(7)), (None, Ok(())));
        assert_eq!(values.newest(7), None);
        values.publish(7, one, 64);
        assert_eq!((values.newest(7), values.declare(8)), (Some(one), Err(TooMany)));
        let mut values = Values::new(1, 4096);
        values.declare_halfway(7);
        assert!(values.has_place(7) && !values.has_place(8) && !values.is_retained(7));
    }

    #[test]
    fn what_fitted_once_fits_again() {
        let mut values = Values::new(1, 4096);
        values.declare(7).unwrap();
        assert_eq!(values.room(7, 1025, 4096), Room::TooLong);
        assert_eq!(values.room(7, 1024, 2048), Room::Certain);
        assert_eq!(values.room(7, 1024, 2047), Room::Perhaps);
        let newest = Newest { sequence: 3, is_cleared: false, room: Room::Certain };
        values.publish(7, newest, 1024);
        assert_eq!(values.room(7, 1024, 0), Room::Certain);
        values.leak(7);
        assert_eq!(values.room(7, 1024, 0), Room::Perhaps);
    }
}
