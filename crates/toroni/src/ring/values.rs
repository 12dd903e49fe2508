//! Values: the newest message of each topic that is retained, beside the stream.
//!
//! A topic is retained from the moment that a publisher declares it, which gives it an entry. An entry names two buffers in one
//! area, and `version` says which of them is valid. The owner of the writer lock keeps it up to date, in these steps:
//!
//! 1. **Room.** If the other buffer is too short for the record, it gets a longer place in the area.
//! 2. **Announce.** The owner stores where the record will be, before it commits the record (ANNOUNCE).
//! 3. **Retain.** After COMMIT and before it stores the end of the stream, it copies the record from the ring into the other
//!    buffer, and stores the new `version` (RETAIN). A release fence before the first byte (REUSE) makes sure that a reader that
//!    sees any of it also sees the version before.
//!
//! If the owner dies in between, the next owner finds the record on its way to the end of the stream, and copies it before it
//! stores that end. So these hold after the death of any process at any instruction:
//!
//! - **R1** Whenever `tail` is stored, the entry of each retained topic holds its newest message before `tail`.
//! - **R2** A read that begins after its thread received a message of the topic returns that message or a newer one.
//! - **R3** A read returns only what was committed.
//!
//! R2 is why a record is announced: between COMMIT and RETAIN a subscriber may have received it. A reader that finds an
//! announced record which is newer than the valid buffer walks to it from the word that commits it. The walk is necessary:
//! the announcement may be that of a dead owner, followed by another commit at the same place, and what lies behind that may
//! look like the announced record.
//!
//! A value that found no room is *missing*: its entry names it and its length. It can still be read as long as its record is in
//! the ring. A declaration never makes the publish of another program fail.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::bounds;
use super::copy::{self, Scratch};
use super::layout::{ALIGNMENT, Control, NO_ENTRY, VALUE_UNIT, ValueBuffer, ValueEntry};
use super::memory::{RecordStart, Ring};
use super::position::{record_bytes, to_index};
use super::reader::{Cursor, Seen};
use super::writer::{length_of, tag_of};
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A value may take this part of the area: it is copied under the writer lock.
const LARGEST_PART: u64 = 4;
/// How often a reader tries to get a value that changes meanwhile. Loom models have few changes.
const ATTEMPTS: u32 = if cfg!(loom) { 2 } else { 64 };
/// Words of a unit of the area.
pub(crate) const UNIT_WORDS: usize = to_index(VALUE_UNIT / ALIGNMENT);

/// The values of a bus, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    /// By the number of a topic: its entry plus 1, or 0.
    pub(crate) index: &'a [AtomicU32],
    pub(crate) entries: &'a [ValueEntry],
    /// In units of [`VALUE_UNIT`] bytes, of which the first has the number of those in use.
    pub(crate) area: &'a [AtomicU64],
}

/// Why a record cannot be retained. Sizes are in bytes, and those of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// No topic may have such a long one.
    TooLong { longest: u64 },
    /// All of the area is in use.
    Full,
}

/// Why a topic cannot be retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDeclared {
    /// Only this number of topics, the first of the table, can be retained.
    Untracked { tracked: u32 },
    /// All entries are in use: their number.
    Full { entries: u32 },
}

/// A value that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing was published since the topic was declared.
    None,
    /// The record: its body was copied.
    Present(Seen),
    /// There is one, of which the bytes were not kept.
    Missing(Seen),
    /// It changed at each attempt.
    Unstable,
    /// What is there was written by none that follows the protocol.
    Invalid(Seen),
}

/// A stretch of the area, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    first: u32,
    units: u32,
}

impl Place {
    fn of(word: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
        let (first, units) = ((word >> 32) as u32, word as u32);
        Self { first, units }
    }

    fn word(self) -> u64 {
        u64::from(self.first) << 32 | u64::from(self.units)
    }
}

impl<'a> Values<'a> {
    /// Empties all. Requires that no other process uses the bus.
    pub(crate) fn reset(&self) {
        for word in self.index {
            word.store(0, Ordering::Relaxed);
        }
        for entry in self.entries {
            entry.reset();
        }
        if let Some(used) = self.area.first() {
            used.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the entry of a topic that is retained.
    pub(crate) fn entry(&self, topic: u32) -> Option<&'a ValueEntry> {
        // The entry is complete before it is in the index.
        let number = self.index.get(topic as usize)?.load(Ordering::Acquire);
        let entry = self.entries.get((number as usize).checked_sub(1)?)?;
        // Two topics of a damaged index have one entry.
        (entry.topic.load(Ordering::Relaxed) == topic.wrapping_add(1)).then_some(entry)
    }

    /// Returns the topics that are retained.
    pub(crate) fn topics(&self) -> impl Iterator<Item = u32> + use<'a> {
        let values = *self;
        let named = self.entries.iter().map(|entry| entry.topic.load(Ordering::Relaxed));
        named
            .filter_map(|topic| topic.checked_sub(1))
            .filter(move |topic| values.entry(*topic).is_some())
    }

    /// Says in the bounds which topics are retained. Only the owner of the writer lock may call this.
    pub(crate) fn mark(&self, control: &Control) {
        for topic in self.topics() {
            bounds::set_retained(control, topic);
        }
    }

    /// Retains a topic. Only the owner of the writer lock may call this.
    pub(crate) fn declare(&self, control: &Control, topic: u32) -> Result<(), NotDeclared> {
        // A publisher that has lost its lease, and runs on, may have removed marks.
        self.mark(control);
        #[expect(clippy::cast_possible_truncation, reason = "a header has 32 bits for each")]
        let (tracked, entries) = (self.index.len() as u32, self.entries.len() as u32);
        let Some(index) = self.index.get(topic as usize) else {
            return Err(NotDeclared::Untracked { tracked });
        };
        if self.entry(topic).is_some() {
            return Ok(());
        }
        let name = topic.wrapping_add(1);
        let is_named = |wanted| {
            let named = |entry: &ValueEntry| entry.topic.load(Ordering::Relaxed) == wanted;
            (1_u32..).zip(self.entries).find(|(_, entry)| named(entry))
        };
        // One that died after it had named the entry has left it for this topic.
        let Some((number, entry)) = is_named(name).or_else(|| is_named(0)) else {
            return Err(NotDeclared::Full { entries });
        };
        // First: from then on publishers look whether it is in the index.
        bounds::set_retained(control, topic);
        entry.reset();
        entry.topic.store(name, Ordering::Relaxed);
        hook::point(CrashPoint::MidDeclaration);
        index.store(number, Ordering::Release);
        Ok(())
    }

    /// Makes room for a record in the buffer that is not valid. Only the owner of the writer lock may call this.
    pub(crate) fn make_room(&self, entry: &ValueEntry, bytes: u64) -> Result<(), NoRoom> {
        let version = entry.version.load(Ordering::Relaxed);
        let (valid, idle) = (entry.buffer(version), entry.buffer(version.wrapping_add(1)));
        if self.units_of(idle) >= bytes.div_ceil(VALUE_UNIT) {
            return Ok(());
        }
        self.grow(entry, valid, idle, bytes)
    }

    #[cold]
    fn grow(
        &self,
        entry: &ValueEntry,
        valid: &ValueBuffer,
        idle: &ValueBuffer,
        bytes: u64,
    ) -> Result<(), NoRoom> {
        // A reader that sees the new place of a buffer also sees that the buffer is not valid (RETAIN).
        if !mutant("no_room_fence") {
            fence(Ordering::Release);
        }
        let all = (self.area.len() / UNIT_WORDS) as u64;
        let units = bytes.div_ceil(VALUE_UNIT);
        if units > all / LARGEST_PART {
            let longest = (all / LARGEST_PART).saturating_mul(VALUE_UNIT);
            return Err(NoRoom::TooLong { longest });
        }
        let spare = self.checked(Place::of(entry.spare.load(Ordering::Relaxed)));
        if u64::from(spare.units) >= units {
            // If the owner dies in between, the place is lost, and is never in two buffers.
            entry.spare.store(0, Ordering::Relaxed);
            hook::point(CrashPoint::MidGrow);
            idle.place.store(spare.word(), Ordering::Relaxed);
            return Ok(());
        }
        let (used, free) = self.used(all);
        let longest = self.units_of(valid).max(self.units_of(idle));
        // A place of as much again for the other buffer, which takes it with its next record. Then each later value that is
        // not longer finds room. Doubling wastes at most as much as is in use.
        let wished = units.max(longest.saturating_mul(2)).min(all / LARGEST_PART);
        let has_other = self.units_of(valid) >= units;
        let fits = |each: u64, count: u64| each.saturating_mul(count) <= free;
        let (each, count) = match has_other {
            _ if fits(wished, 2) => (wished, 2),
            false if fits(units, 2) => (units, 2),
            true if fits(units, 1) => (units, 1),
            _ => return Err(NoRoom::Full),
        };
        let place = |number: u64| {
            let first = used.saturating_add(each.saturating_mul(number));
            let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            Place { first: word(first), units: word(each) }.word()
        };
        let taken = used.saturating_add(each.saturating_mul(count));
        self.area[0].store(taken, Ordering::Relaxed);
        hook::point(CrashPoint::MidGrow);
        entry.spare.store(if count == 2 { place(1) } else { 0 }, Ordering::Relaxed);
        idle.place.store(place(0), Ordering::Relaxed);
        Ok(())
    }

    /// Returns how many units are in use, and how many are not.
    fn used(&self, all: u64) -> (u64, u64) {
        let used = self.area.first().map_or(u64::MAX, |used| used.load(Ordering::Relaxed));
        // The first unit is in use from the beginning.
        let used = used.max(1);
        (used, all.saturating_sub(used))
    }

    /// Returns how many bytes of the area are in use, and how many it has.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let all = (self.area.len() / UNIT_WORDS) as u64;
        let (used, _) = self.used(all);
        (used.min(all).saturating_mul(VALUE_UNIT), all.saturating_mul(VALUE_UNIT))
    }

    /// Returns a place, or an empty one if it is not in the area: another process may have written any bits.
    fn checked(&self, place: Place) -> Place {
        let end = (place.first as usize).saturating_add(place.units as usize);
        let is_inside = place.first > 0 && end.saturating_mul(UNIT_WORDS) <= self.area.len();
        if is_inside { place } else { Place::default() }
    }

    fn units_of(&self, buffer: &ValueBuffer) -> u64 {
        self.checked(Place::of(buffer.place.load(Ordering::Relaxed))).units.into()
    }

    /// Returns the words of a buffer that a record of that many bytes takes, if there is room for it.
    fn words_of(&self, buffer: &ValueBuffer, bytes: u64) -> Option<&'a [AtomicU64]> {
        let place = self.checked(Place::of(buffer.place.load(Ordering::Relaxed)));
        let first = (place.first as usize).saturating_mul(UNIT_WORDS);
        let words = (place.units as usize).saturating_mul(UNIT_WORDS);
        self.area.get(first..)?.get(..words)?.get(..to_index(bytes / ALIGNMENT))
    }

    /// Notes the record that will be the value of a topic, if that is retained. `commit` is where the word is that commits it.
    /// Only the owner of the writer lock may call this, before that commit. The record is then to be [kept](Self::keep).
    #[inline]
    pub(crate) fn announce(
        &self,
        topic: u32,
        record: RecordStart,
        commit: u64,
        bytes: u64,
    ) -> Option<&'a ValueEntry> {
        let entry = self.entry(topic)?;
        // Without room, the value will be missing.
        let _ = self.make_room(entry, bytes);
        if mutant("no_announce") {
            return Some(entry);
        }
        entry.announced_position.store(NO_ENTRY, Ordering::Relaxed);
        fence(Ordering::Release);
        entry.announced_sequence.store(record.sequence, Ordering::Relaxed);
        entry.announced_commit.store(commit, Ordering::Relaxed);
        entry.announced_position.store(record.position, Ordering::Release);
        hook::point(CrashPoint::AfterAnnounce);
        Some(entry)
    }

    /// Copies a committed record into the entry of its topic, if it is the one that was announced. Only the owner of the writer
    /// lock may call this.
    pub(crate) fn retain(&self, ring: Ring<'_>, record: RecordStart, word: u64) {
        let Some(entry) = self.entry(bounds::topic_of(tag_of(word))) else { return };
        let is_announced = entry.announced_position.load(Ordering::Relaxed) == record.position
            && entry.announced_sequence.load(Ordering::Relaxed) == record.sequence;
        let version = entry.version.load(Ordering::Relaxed);
        let valid = entry.buffer(version);
        let is_done = version != 0
            && valid.position.load(Ordering::Relaxed) == record.position
            && valid.sequence.load(Ordering::Relaxed) == record.sequence;
        if (is_announced || mutant("no_announce")) && !is_done {
            self.keep(ring, entry, record, word);
        }
    }

    /// Copies a committed record, which begins with this word, into its entry. Only the owner of the writer lock may call this.
    #[inline]
    pub(crate) fn keep(&self, ring: Ring<'_>, entry: &ValueEntry, record: RecordStart, word: u64) {
        let version = entry.version.load(Ordering::Relaxed);
        let idle = entry.buffer(version.wrapping_add(1));
        // REUSE
        if !mutant("no_reuse_fence") {
            fence(Ordering::Release);
        }
        idle.position.store(record.position, Ordering::Relaxed);
        idle.sequence.store(record.sequence, Ordering::Relaxed);
        idle.header.store(word, Ordering::Relaxed);
        let bytes = record_bytes(length_of(word));
        if let Some(words) = self.words_of(idle, bytes) {
            copy_record(ring, record.position, words);
        }
        // RETAIN
        entry.version.store(version.wrapping_add(1), Ordering::Release);
        hook::point(CrashPoint::AfterRetain);
    }

    /// Returns sequence and tag of what the entry of a topic keeps.
    pub(super) fn kept(entry: &ValueEntry) -> Option<(u64, u32)> {
        let version = entry.version.load(Ordering::Acquire);
        let buffer = entry.buffer(version);
        (version != 0).then(|| {
            let tag = tag_of(buffer.header.load(Ordering::Relaxed));
            (buffer.sequence.load(Ordering::Relaxed), tag)
        })
    }

    /// Returns sequence and tag of the value of a topic, if it is retained and has one. `scratch` is written to.
    pub(crate) fn newest(
        &self,
        ring: Ring<'_>,
        topic: u32,
        scratch: &mut Scratch,
    ) -> Option<(u64, u32)> {
        let entry = self.entry(topic)?;
        let kept = Self::kept(entry);
        let is_announced = entry.announced_position.load(Ordering::Relaxed) != NO_ENTRY;
        let announced = entry.announced_sequence.load(Ordering::Relaxed);
        if !is_announced || kept.is_some_and(|(sequence, _)| sequence >= announced) {
            return kept;
        }
        // An owner is about to copy it, or has died before it could.
        match self.read(ring, topic, scratch)? {
            Value::Present(seen) | Value::Missing(seen) => Some((seen.sequence, seen.tag)),
            Value::None | Value::Unstable | Value::Invalid(_) => kept,
        }
    }

    /// Reads the value of a topic, if it is retained. The record's body is copied to `into`.
    pub(crate) fn read(&self, ring: Ring<'_>, topic: u32, into: &mut Scratch) -> Option<Value> {
        let entry = self.entry(topic)?;
        for _ in 0..ATTEMPTS {
            // RETAIN
            let version = entry.version.load(Ordering::Acquire);
            let buffer = entry.buffer(version);
            let kept = Seen {
                position: buffer.position.load(Ordering::Relaxed),
                sequence: buffer.sequence.load(Ordering::Relaxed),
                tag: tag_of(buffer.header.load(Ordering::Relaxed)),
                length: length_of(buffer.header.load(Ordering::Relaxed)),
            };
            let kept = (version != 0).then_some(kept);
            if let Some(seen) = self.announced(ring, entry, topic, kept, into) {
                return Some(Value::Present(seen));
            }
            let value = kept.map_or(Value::None, |kept| {
                let bytes = record_bytes(kept.length);
                match self.words_of(buffer, bytes) {
                    Some(words) => {
                        let body = words.get(1..).unwrap_or_default();
                        copy::load_in_row(body, into.words(body.len()));
                        Value::Present(kept)
                    }
                    None => Value::Missing(kept),
                }
            });
            // REUSE
            fence(Ordering::Acquire);
            let is_same = entry.version.load(Ordering::Relaxed) == version;
            if !is_same && !mutant("version_not_compared") {
                continue;
            }
            return Some(match value {
                Value::Present(seen) | Value::Missing(seen)
                    if bounds::topic_of(seen.tag) != topic
                        || record_bytes(seen.length) > ring.shape().largest_record()
                        || seen.position.checked_add(record_bytes(seen.length)).is_none() =>
                {
                    Value::Invalid(seen)
                }
                Value::Missing(seen) => in_ring(ring, seen, into).map_or(value, Value::Present),
                value => value,
            });
        }
        Some(Value::Unstable)
    }

    /// Copies the announced record, if it is newer than what is `kept`, was committed, and is still in the ring.
    fn announced(
        &self,
        ring: Ring<'_>,
        entry: &ValueEntry,
        topic: u32,
        kept: Option<Seen>,
        into: &mut Scratch,
    ) -> Option<Seen> {
        let announcement = entry.announcement();
        let (position, sequence, commit) = announcement;
        fence(Ordering::Acquire);
        let is_whole = entry.announced_position.load(Ordering::Relaxed) == position;
        // While an owner notes a record, it has not committed it.
        if !is_whole || position == NO_ENTRY || !position.is_multiple_of(ALIGNMENT) {
            return None;
        }
        if kept.is_some_and(|kept| kept.sequence >= sequence) {
            return None;
        }
        // The sequence of the first record of the commit is not known, and not needed.
        let mut at = Cursor { position: commit, sequence: 0 };
        let is_near = position.wrapping_sub(commit) <= ring.shape().largest_record();
        if !is_near || !commit.is_multiple_of(ALIGNMENT) {
            return None;
        }
        while at.position < position && !mutant("no_walk") {
            let seen = at.peek(ring).ok()??;
            at.advance(&seen);
        }
        // Another record may lie across that place.
        if at.position != position && !mutant("no_walk") {
            return None;
        }
        let at = Cursor { position, sequence };
        let seen = at.peek(ring).ok()??;
        if bounds::topic_of(seen.tag) != topic {
            return None;
        }
        at.copy(ring, &seen, into).ok()?;
        // The next owner may have announced another record for that place, with another number, and committed it.
        if entry.announcement() != announcement && !mutant("announced_once") {
            return None;
        }
        // What lies between is what was committed there, too.
        ring.is_intact(commit).then_some(seen)
    }
}

/// Copies a record that is still in the ring.
fn in_ring(ring: Ring<'_>, kept: Seen, into: &mut Scratch) -> Option<Seen> {
    let at = Cursor { position: kept.position, sequence: kept.sequence };
    let seen = at.peek(ring).ok()?.filter(|seen| *seen == kept)?;
    at.copy(ring, &seen, into).ok()?;
    Some(seen)
}

/// Copies words of the ring, of a record that no other process changes.
#[inline]
fn copy_record(ring: Ring<'_>, position: u64, to: &[AtomicU64]) {
    match ring.contiguous_words(position, to.len()) {
        Some(from) if !hook::can_die() => copy::between(from, to),
        _ => copy_by_words(ring, position, to),
    }
}

/// For rings that are mapped once, and for processes that may die halfway.
#[cold]
fn copy_by_words(ring: Ring<'_>, position: u64, to: &[AtomicU64]) {
    let half = to.len() / 2;
    for (number, to) in to.iter().enumerate() {
        if number == half && half > 0 && hook::can_die() {
            hook::point(CrashPoint::MidRetain);
        }
        let at = position.wrapping_add((number as u64).wrapping_mul(ALIGNMENT));
        to.store(ring.word(at).load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl ValueEntry {
    fn buffer(&self, version: u64) -> &ValueBuffer {
        &self.buffers[to_index(version & 1)]
    }

    /// Returns position, sequence and committing word of the record that was announced last.
    fn announcement(&self) -> (u64, u64, u64) {
        let position = self.announced_position.load(Ordering::Acquire);
        let sequence = self.announced_sequence.load(Ordering::Relaxed);
        (position, sequence, self.announced_commit.load(Ordering::Relaxed))
    }

    /// Makes it an entry without a value. Its places are lost.
    fn reset(&self) {
        self.topic.store(0, Ordering::Relaxed);
        self.version.store(0, Ordering::Relaxed);
        self.announced_position.store(NO_ENTRY, Ordering::Relaxed);
        self.announced_sequence.store(0, Ordering::Relaxed);
        self.announced_commit.store(0, Ordering::Relaxed);
        self.spare.store(0, Ordering::Relaxed);
        for buffer in &self.buffers {
            buffer.place.store(0, Ordering::Relaxed);
            buffer.sequence.store(0, Ordering::Relaxed);
            buffer.position.store(0, Ordering::Relaxed);
            buffer.header.store(0, Ordering::Relaxed);
        }
    }
}
