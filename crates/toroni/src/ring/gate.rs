//! The look at the readers before a writer overwrites: is there one to wait for?
//!
//! # Why nobody is overtaken who has joined
//!
//! A writer announces how far it is about to reserve (`wanted`), fences, and reads the slots. A reader
//! that joins writes its slot, fences, and reads `wanted` (JOIN). Of the two, one sees the other: the
//! writer waits for the reader, or the reader begins where nothing is about to be overwritten. `reserved`
//! would not do in its place: it is raised only behind the look, and a reader that joins between the two
//! would be seen by nobody.

use super::backpressure::Horizon;
use super::layout::{READER_GATES, ReaderSlot, ReadersControl, Waits};
use super::memory::Ring;
use super::reader::Cursor;
use super::slots::{self, SlotView, slowest};
use crate::mutant::mutant;
use crate::sync::{Ordering, fence};

/// How a writer reads the slots, and asks who lives.
pub(crate) trait Readers {
    /// Reads all slots that were ever used anew.
    fn read(&mut self);
    /// What was read last, by number from 0 on.
    fn views(&self) -> impl Iterator<Item = SlotView>;
    /// Whether somebody holds the lease of a slot; true if that cannot be known.
    fn is_held(&self, number: u32) -> bool;
}

/// What a writer, the owner of the writer lock, wants to overwrite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) tail: u64,
    pub(crate) reserved: u64,
    /// What `reserved` is to become.
    pub(crate) wanted: u64,
    pub(crate) capacity: u64,
}

/// Announces what the caller wants. Returns the number of joins so far: whoever joins from here on is
/// counted later, or sees the announcement.
pub(crate) fn announce(waits: &Waits, control: &ReadersControl, wanted: u64) -> u64 {
    if !mutant("join_sees_only_reserved") {
        // Release: whoever sees it sees a tail that is not far before it.
        waits.wanted.store(wanted, Ordering::Release);
    }
    // JOIN
    if !mutant("scan_without_fence") {
        fence(Ordering::SeqCst);
    }
    control.joins.0.load(Ordering::Acquire)
}

/// Slots whose owner died without giving them up, with the generation that died. A publisher cannot
/// write `readers`, so each remembers by itself.
#[derive(Debug, Default)]
pub(crate) struct Dead(Vec<(u32, u32)>);

impl Dead {
    fn has(&self, view: &SlotView) -> bool {
        let is_same_owner =
            |generation| generation == view.generation || mutant("dead_slots_without_generation");
        self.0
            .iter()
            .any(|(number, generation)| *number == view.number && is_same_owner(*generation))
    }

    /// Remembers a reader that is dead although its lease is held.
    pub(crate) fn remember(&mut self, view: &SlotView) {
        if !self.has(view) {
            self.0.push((view.number, view.generation));
        }
    }

    /// Whether none is remembered.
    #[cfg(all(test, loom))]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn forget_others(&mut self, readers: &impl Readers) {
        self.0.retain(|(number, generation)| {
            readers.views().any(|view| (view.number, view.generation) == (*number, *generation))
        });
    }
}

/// The reader to wait for before the stretch may be overwritten; `None` if there is none, which the
/// horizon remembers together with `joins`, the answer of [`announce`]. If there is one, the announcement
/// is taken back.
pub(crate) fn in_the_way(
    readers: &mut impl Readers,
    dead: &mut Dead,
    horizon: &Horizon,
    joins: u64,
    waits: &Waits,
    stretch: Stretch,
) -> Option<SlotView> {
    let slowest = look(readers, dead, horizon, joins, stretch)?;
    waits.wanted.store(stretch.reserved, Ordering::Release);
    Some(slowest)
}

fn look(
    readers: &mut impl Readers,
    dead: &mut Dead,
    horizon: &Horizon,
    joins: u64,
    stretch: Stretch,
) -> Option<SlotView> {
    let Stretch { tail, reserved, wanted, capacity } = stretch;
    read(readers);
    if !mutant("dead_slots_without_generation") {
        dead.forget_others(readers);
    }
    loop {
        let living = readers.views().filter(|view| !dead.has(view));
        let slowest = slowest(living, tail, reserved, capacity);
        let minimum = slowest.map_or(tail, |view| view.position);
        if wanted <= minimum.saturating_add(capacity) {
            horizon.learn(minimum, joins);
            return None;
        }
        let slowest = slowest?;
        if !mutant("living_reader_taken_for_dead") && readers.is_held(slowest.number) {
            return Some(slowest);
        }
        // Nobody holds its lease: dead, unless a new owner came between the two looks; that one is
        // seen at the next look.
        read(readers);
        let now = readers.views().nth(slowest.number as usize);
        if now.is_none_or(|now| (now.generation, now.state) != (slowest.generation, slowest.state))
        {
            return Some(slowest);
        }
        dead.0.push((slowest.number, slowest.generation));
    }
}

/// LEASE: a slot that was written behind its lease is followed by a look at that lease which is no older.
fn read(readers: &mut impl Readers) {
    readers.read();
    if !mutant("lease_asked_without_fence") {
        fence(Ordering::Acquire);
    }
}

/// To be lapped at the start needs a writer that fills the ring in the time of a look. So many times in a
/// row it does not happen to who reads what correct publishers write; and each attempt finds a start behind
/// what was about to be overwritten at the last one.
const ATTEMPTS: u32 = 10_000;

/// Makes a claimed slot count from a start on that `find` finds, at `floor` or later. It starts over as
/// long as a writer is about to overwrite that very start, and, for readers that gate, as long as one has
/// announced that, or `is_safe` finds something. `None` if that never ends, as correct publishers see to.
pub(crate) fn join<E>(
    ring: Ring<'_>,
    control: &ReadersControl,
    number: u32,
    slot: &ReaderSlot,
    flags: u32,
    mut find: impl FnMut(u64) -> Result<Cursor, E>,
    is_safe: impl Fn(&Cursor) -> bool,
) -> Result<Option<Cursor>, E> {
    let mut floor = 0;
    for _ in 0..ATTEMPTS {
        let cursor = find(floor)?;
        slots::activate(control, number, slot, cursor.position, flags);
        if !ring.is_intact(cursor.position) {
            continue;
        }
        floor = if flags & READER_GATES == 0 { 0 } else { announced_floor(ring) };
        if floor <= cursor.position && is_safe(&cursor) {
            return Ok(Some(cursor));
        }
    }
    Ok(None)
}

/// Everything before it is overwritten, or a writer was about to when this was asked.
fn announced_floor(ring: Ring<'_>) -> u64 {
    // JOIN
    let wanted = ring.control.waits.0.wanted.load(Ordering::Acquire);
    let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
    let floor = wanted.saturating_sub(ring.shape().capacity());
    // No writer wants so much that it would overwrite what it has not written yet.
    if floor > tail { 0 } else { floor }
}
