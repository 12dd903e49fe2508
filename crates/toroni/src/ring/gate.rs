//! The pass over the readers' slots before a writer overwrites: is somebody in the way? And the other side of
//! it: how a reader joins that writers shall wait for.
//!
//! # Why nobody is overtaken who has joined
//!
//! A writer announces how far it is about to reserve (`wanted`), fences, and reads the slots. A reader
//! that joins writes its slot, fences, and reads `wanted` (JOIN). Of the two, one sees the other. A writer that
//! sees the reader waits for it. A reader that sees an announcement beyond its start does not know yet whether
//! the writer has seen it, so it waits until the writer has decided:
//!
//! - The writer takes the announcement back, or a later one finds the slot. Then the start holds, unless the
//!   policy lets the writer overwrite those in its way: whoever joined meanwhile reports the loss as they do.
//! - The writer raises `reserved`. Then the start is overwritten, and the reader seeks another one.
//!
//! `reserved` alone would not do: it is raised only after the pass, and a reader that joins between the two
//! would be seen by nobody. Nor would a guess: most announcements are taken back where a reader protects the
//! history, and a start that is refused for such a one is refused although it is there.
//!
//! A writer that dies between the two leaves its announcement behind, and nobody decides any more until the next
//! writer takes the lock. A reader cannot tell a dead writer from a slow one (it has no access to `publishers`),
//! so it waits for a limited time. Then it takes the start as it is. If the writer is dead, that is right. If it
//! was stopped for that long while it held the lock, it may still overtake the reader, which reports the loss.
//!
//! # Why nobody is taken for dead who lives
//!
//! A subscriber takes its lease before it writes the generation of its slot, and gives it up after it has freed
//! the slot. So if a writer reads a generation and then finds the lease free, the owner of that generation is
//! gone, and stays gone (LEASE). Nothing has to be read again, and the question may be asked without the lock.

use super::layout::{READER_GATES, ReaderSlot, ReadersControl, Waits};
use super::memory::Ring;
use super::reader::Cursor;
use super::slots::{self, SlotView, gating};
use super::wait_budget::CachedGatingPosition;
use crate::crash::{self, CrashPoint};
use crate::mutant::mutant;
use crate::sync::{Ordering, fence};

/// How a writer reads the slots.
pub(crate) trait Readers {
    /// Why the slots cannot be read.
    type Failure;
    /// Reads all slots that were ever used.
    fn read(&mut self) -> Result<(), Self::Failure>;
    /// What was read last, by number from 0 on.
    fn views(&self) -> impl Iterator<Item = SlotView>;
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

/// A slot that is in the way, and the generation of whoever is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) number: u32,
    pub(crate) generation: u32,
}

/// Announces what the caller wants. Returns the number of joins so far: whoever joins from here on is
/// counted later, or sees the announcement.
pub(crate) fn propose(waits: &Waits, control: &ReadersControl, wanted: u64) -> u64 {
    if !mutant("join_sees_only_reserved") {
        // Release: whoever sees it sees a tail that is not far before it.
        waits.wanted.store(wanted, Ordering::Release);
    }
    // JOIN
    if !mutant("scan_without_fence") {
        fence(Ordering::SeqCst);
    }
    crash::point(CrashPoint::AnnouncingRoom);
    control.joins.0.load(Ordering::Acquire)
}

/// Slots whose owner died without giving them up, with the generation that died. A publisher cannot
/// write `readers`, so each remembers by itself.
#[derive(Debug, Default)]
pub(crate) struct Dead(Vec<Option<u32>>);

impl Dead {
    fn has(&self, view: &SlotView) -> bool {
        let known = self.0.get(view.number as usize).copied().flatten();
        known.is_some_and(|generation| {
            generation == view.generation || mutant("dead_slots_without_generation")
        })
    }

    /// Remembers those of the suspects whose leases were found free after they were seen.
    pub(crate) fn learn(&mut self, suspects: &[Suspect], is_free: impl Fn(u32) -> bool) {
        for suspect in suspects {
            if !is_free(suspect.number) && !mutant("living_reader_taken_for_dead") {
                continue;
            }
            let number = suspect.number as usize;
            if self.0.len() <= number {
                self.0.resize(number + 1, None);
            }
            self.0[number] = Some(suspect.generation);
        }
    }

    /// Whether a suspect is remembered.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn knows(&self, suspect: Suspect) -> bool {
        self.0.get(suspect.number as usize) == Some(&Some(suspect.generation))
    }

    /// Whether none is remembered.
    #[cfg(all(test, loom))]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn forget_others(&mut self, readers: &impl Readers) {
        let mut known = 0;
        for (known_generation, view) in self.0.iter_mut().zip(readers.views()) {
            known += 1;
            if *known_generation != Some(view.generation) {
                *known_generation = None;
            }
        }
        self.0.truncate(known);
    }
}

/// Slots whose leases one call found free although they came back under another generation. Correct subscribers
/// do that when one dies and another one takes its slot. A hostile one can raise the generation of a slot for ever,
/// and needs no lease for it: after [`Self::MOST`] rounds in a row in which everybody in the way was
/// dead, the call no longer waits for slots that it has found free.
#[derive(Debug, Default)]
pub(crate) struct Unowned {
    rounds: u32,
    /// By slot: found free since somebody in the way was last found alive.
    free: Vec<bool>,
}

impl Unowned {
    /// So many times in a row a new owner would have to come between the question for the leases and the next
    /// pass, and be gone at the next question, before a correct subscriber could be overlooked.
    pub(crate) const MOST: u32 = 16;

    fn has(&self, view: &SlotView) -> bool {
        self.rounds >= Self::MOST && self.free.get(view.number as usize).is_some_and(|free| *free)
    }

    /// Notes a round of questions about those in the way.
    pub(crate) fn note(&mut self, suspects: &[Suspect], is_free: impl Fn(u32) -> bool) {
        self.rounds = self.rounds.saturating_add(1);
        for suspect in suspects.iter().filter(|suspect| is_free(suspect.number)) {
            let number = suspect.number as usize;
            if self.free.len() <= number {
                self.free.resize(number + 1, false);
            }
            self.free[number] = true;
        }
    }

    /// Notes that somebody in the way is alive.
    pub(crate) fn note_alive(&mut self) {
        *self = Self::default();
    }
}

/// Those for whom a writer has to wait before the stretch may be overwritten, unless they are dead, by number;
/// none if it may, which the cached gating position remembers together with `joins`, the answer of [`propose`]. If there is
/// one, the announcement is taken back.
///
/// One pass: the slots are read once, and no lease is asked for. The caller holds the writer lock.
///
/// # Errors
/// The slots cannot be read: then nothing is known of those in the way, and the announcement is taken back.
pub(crate) fn in_the_way<R: Readers>(
    readers: &mut R,
    dead: &mut Dead,
    unowned: &Unowned,
    gating_cache: &CachedGatingPosition,
    joins: u64,
    waits: &Waits,
    stretch: Stretch,
) -> Result<Vec<Suspect>, R::Failure> {
    let Stretch { tail, reserved, wanted, capacity } = stretch;
    read(readers).inspect_err(|_| take_back(waits, reserved))?;
    if !mutant("dead_slots_without_generation") {
        dead.forget_others(readers);
    }
    let counts = readers.views().filter(|view| !dead.has(view) && !unowned.has(view));
    let mut minimum = tail;
    let mut suspects = Vec::new();
    for view in gating(counts, tail, reserved, capacity) {
        minimum = minimum.min(view.position);
        if wanted > view.position.saturating_add(capacity) {
            suspects.push(Suspect { number: view.number, generation: view.generation });
        }
    }
    if suspects.is_empty() {
        gating_cache.learn(minimum, joins);
    } else {
        crash::point(CrashPoint::BeforeTakingBack);
        take_back(waits, reserved);
    }
    Ok(suspects)
}

/// Takes an announcement back: nothing beyond `reserved` is wanted any more.
pub(crate) fn take_back(waits: &Waits, reserved: u64) {
    waits.wanted.store(reserved, Ordering::Release);
}

/// LEASE: a slot that was written behind its lease is followed by a question for that lease which is no older.
fn read<R: Readers>(readers: &mut R) -> Result<(), R::Failure> {
    readers.read()?;
    if !mutant("lease_asked_without_fence") {
        fence(Ordering::Acquire);
    }
    Ok(())
}

/// To be lapped at the start needs a writer that fills the ring in the time of a look. So many times in a
/// row it does not happen to who reads what correct publishers write.
const ATTEMPTS: u32 = 10_000;

/// A slot that whoever joins has claimed.
#[derive(Clone, Copy)]
pub(crate) struct Seat<'a> {
    pub(crate) number: u32,
    pub(crate) slot: &'a ReaderSlot,
    /// What its flags are to be.
    pub(crate) flags: u32,
}

/// Makes a claimed slot count from a start that `find` finds. It starts over as long as a writer has
/// overwritten that very start meanwhile, or the start is not safe. Returns `None` if that never ends, which
/// correct publishers do not cause.
///
/// A reader that gates waits while a writer decides about its start: `wait` passes some time, and returns whether
/// there is time for more.
pub(crate) fn join<E>(
    ring: Ring<'_>,
    control: &ReadersControl,
    seat: Seat<'_>,
    mut find: impl FnMut() -> Result<Cursor, E>,
    is_safe: impl Fn(&Cursor) -> bool,
    mut wait: impl FnMut() -> bool,
) -> Result<Option<Cursor>, E> {
    for _ in 0..ATTEMPTS {
        let cursor = find()?;
        slots::activate(control, seat.number, seat.slot, cursor.position, seat.flags);
        if seat.flags & READER_GATES != 0 {
            while is_wanted(ring, cursor.position) && ring.is_intact(cursor.position) && wait() {
                if mutant("proposal_taken_for_a_fact") {
                    return Ok(None);
                }
            }
        }
        if ring.is_intact(cursor.position) && is_safe(&cursor) {
            return Ok(Some(cursor));
        }
    }
    Ok(None)
}

/// Whether a writer has announced that it will overwrite `position`, and has not taken that back.
fn is_wanted(ring: Ring<'_>, position: u64) -> bool {
    // JOIN
    let wanted = ring.control.waits.0.wanted.load(Ordering::Acquire);
    let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
    let floor = wanted.saturating_sub(ring.shape().capacity());
    // No writer wants so much that it would overwrite what it has not written yet.
    position < floor && floor <= tail
}
