//! Gating: a writer scans the readers' slots before it overwrites, and a joining reader makes sure
//! that writers will wait for it.
//!
//! # Why a joined reader is not overtaken
//!
//! 1. A writer stores how far it proposes to reserve (`proposed`), executes a fence, and scans the
//!    slots.
//! 2. A joining reader writes its slot, executes a fence, and loads `proposed` (JOIN).
//! 3. At least one of the two sees the other. If the writer sees the reader, it waits for it. If
//!    the reader sees a proposal that would overwrite its start, it does not know yet whether the
//!    writer has seen its slot. So it waits until the writer has decided.
//! 4. If the writer withdraws the proposal, or a later proposal finds the slot, the start is valid.
//!    The policy may still let the writer overwrite it: the reader then reports the loss like any
//!    other.
//! 5. If the writer raises `reserved`, the start will be overwritten, and the reader looks for
//!    another one.
//!
//! Checking only `reserved` is not enough. The writer raises it after its scan, so neither side
//! would see the other if the reader joined in between. Assuming the worst is not right either:
//! where readers protect the history, most proposals are withdrawn, and the reader would be refused
//! a start that remains valid.
//!
//! If a writer dies between proposal and decision, its proposal remains until the next writer takes
//! the lock. A reader has no access to `publishers` and cannot distinguish a dead writer from a
//! slow one. So it waits for a limited time, then accepts the start. That is correct if the writer
//! is dead. If the writer was stopped for that long while it held the lock, it may still overtake
//! the reader, which then reports the loss.
//!
//! # Why a living reader is not taken for dead
//!
//! 1. A subscriber takes its lease before it writes the generation of its slot, and releases the
//!    lease after it has freed the slot.
//! 2. So if a writer reads a generation and then finds the lease free, the owner of that generation
//!    is gone for good (LEASE).
//! 3. Nothing has to be read again, and the writer may check the lease without holding the lock.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{READER_GATES, ReaderSlot, ReadersControl, Waits};
use super::memory::Ring;
use super::reader::Cursor;
use super::slots::{self, SlotView, gating};
use super::wait_budget::CachedGatingPosition;
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{Ordering, fence};

/// Reads slots for a writer.
pub(crate) trait Readers {
    /// Why the slots cannot be read.
    type Failure;
    /// Reads all slots that have ever been used.
    fn read(&mut self) -> Result<(), Self::Failure>;
    /// Returns what was read last, in the order of the slot numbers from 0 on.
    fn views(&self) -> impl Iterator<Item = SlotView>;
}

/// What the owner of the writer lock proposes to overwrite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposal {
    pub(crate) tail: u64,
    pub(crate) reserved: u64,
    /// The proposed value of `reserved`.
    pub(crate) proposed: u64,
    pub(crate) capacity: u64,
}

/// A slot that is in the way, and the generation of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) number: u32,
    pub(crate) generation: u32,
}

/// Proposes to raise `reserved` to `proposed`. Returns the number of joins so far. A reader that
/// joins from now on is counted later, or sees the proposal.
pub(crate) fn propose(waits: &Waits, control: &ReadersControl, proposed: u64) -> u64 {
    if !mutant("join_sees_only_reserved") {
        // Release: a reader that sees the proposal also sees a tail close to it.
        waits.proposed.store(proposed, Ordering::Release);
    }
    // JOIN
    if !mutant("scan_without_fence") {
        fence(Ordering::SeqCst);
    }
    hook::point(CrashPoint::Proposing);
    control.joins.0.load(Ordering::Acquire)
}

/// Slots whose owner died without freeing them, with the generation that died. Publishers cannot
/// write `readers`, so each keeps its own list.
#[derive(Debug, Default)]
pub(crate) struct Dead(Vec<Option<u32>>);

impl Dead {
    fn has(&self, view: &SlotView) -> bool {
        let known = self.0.get(view.number as usize).copied().flatten();
        known.is_some_and(|generation| {
            generation == view.generation || mutant("dead_slots_without_generation")
        })
    }

    /// Remembers the suspects whose leases were found free after their slots were read.
    pub(crate) fn learn(&mut self, suspects: &[Suspect], is_free: impl Fn(u32) -> bool) {
        for suspect in suspects {
            if !is_free(suspect.number) && !mutant("living_reader_taken_for_dead") {
                continue;
            }
            let number = suspect.number as usize;
            if self.0.len() <= number {
                self.0.resize(number.saturating_add(1), None);
            }
            self.0[number] = Some(suspect.generation);
        }
    }

    /// Returns whether a suspect is remembered as dead.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn knows(&self, suspect: Suspect) -> bool {
        self.0.get(suspect.number as usize) == Some(&Some(suspect.generation))
    }

    /// Returns whether no slot is remembered as dead.
    #[cfg(all(test, loom))]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn forget_others(&mut self, readers: &impl Readers) {
        let mut known = 0;
        for (known_generation, view) in self.0.iter_mut().zip(readers.views()) {
            known = usize::saturating_add(known, 1);
            if *known_generation != Some(view.generation) {
                *known_generation = None;
            }
        }
        self.0.truncate(known);
    }
}

/// Slots whose leases a publish found free, but which came back with another generation. With
/// correct subscribers, this happens if one dies and another takes its slot. A hostile process can
/// raise the generation of a slot again and again without holding a lease. After [`Self::MOST`]
/// consecutive rounds in which every reader in the way was dead, the publish no longer waits for
/// slots that it has found free.
#[derive(Debug, Default)]
pub(crate) struct Unowned {
    rounds: u32,
    /// By slot number: whether it was found free since a reader in the way was last found alive.
    free: Vec<bool>,
}

impl Unowned {
    /// A correct subscriber is overlooked only if, this many times in a row, a new owner takes the
    /// slot between the check of the leases and the next scan, and is gone at the next check.
    pub(crate) const MOST: u32 = 16;

    fn has(&self, view: &SlotView) -> bool {
        self.rounds >= Self::MOST && self.free.get(view.number as usize).is_some_and(|free| *free)
    }

    /// Records a round of lease checks.
    pub(crate) fn note(&mut self, suspects: &[Suspect], is_free: impl Fn(u32) -> bool) {
        self.rounds = self.rounds.saturating_add(1);
        for suspect in suspects.iter().filter(|suspect| is_free(suspect.number)) {
            let number = suspect.number as usize;
            if self.free.len() <= number {
                self.free.resize(number.saturating_add(1), false);
            }
            self.free[number] = true;
        }
    }

    /// Records that a reader in the way is alive.
    pub(crate) fn note_alive(&mut self) {
        *self = Self::default();
    }
}

/// Returns the readers that the writer must wait for, unless they are dead, before it may reserve what
/// it proposed, in the order of their slots. If there is none, the writer may reserve it, and the
/// cached gating position remembers that, together with `joins`, which [`propose`] returned. If there
/// is one, the proposal is withdrawn.
///
/// Scans the slots once and checks no lease. The caller holds the writer lock.
///
/// # Errors
///
/// If the slots cannot be read, nothing is known about the readers in the way. The proposal is
/// withdrawn.
pub(crate) fn in_the_way<R: Readers>(
    readers: &mut R,
    dead: &mut Dead,
    unowned: &Unowned,
    gating_cache: &CachedGatingPosition,
    joins: u64,
    waits: &Waits,
    proposal: Proposal,
) -> Result<Vec<Suspect>, R::Failure> {
    let Proposal { tail, reserved, proposed, capacity } = proposal;
    read(readers).inspect_err(|_| withdraw(waits, reserved))?;
    if !mutant("dead_slots_without_generation") {
        dead.forget_others(readers);
    }
    let counts = readers.views().filter(|view| !dead.has(view) && !unowned.has(view));
    let mut minimum = tail;
    let mut suspects = Vec::new();
    for view in gating(counts, tail, reserved, capacity) {
        minimum = minimum.min(view.position);
        if proposed > view.position.saturating_add(capacity) {
            suspects.push(Suspect { number: view.number, generation: view.generation });
        }
    }
    if suspects.is_empty() {
        gating_cache.learn(minimum, joins);
    } else {
        hook::point(CrashPoint::BeforeWithdrawing);
        withdraw(waits, reserved);
    }
    Ok(suspects)
}

/// Withdraws a proposal: no writer proposes more than `reserved` any more.
pub(crate) fn withdraw(waits: &Waits, reserved: u64) {
    waits.proposed.store(reserved, Ordering::Release);
}

/// LEASE: orders the scan before the check of the leases. If the scan sees a slot that was written
/// after its lease was taken, the check sees the lease too.
fn read<R: Readers>(readers: &mut R) -> Result<(), R::Failure> {
    readers.read()?;
    if !mutant("lease_asked_without_fence") {
        fence(Ordering::Acquire);
    }
    Ok(())
}

/// A start is overwritten only if a writer fills the ring while the reader searches for it. This
/// many times in a row, that does not happen with correct publishers.
const ATTEMPTS: u32 = 10_000;

/// A slot that a joining reader has claimed.
#[derive(Clone, Copy)]
pub(crate) struct ClaimedSlot<'a> {
    pub(crate) number: u32,
    pub(crate) slot: &'a ReaderSlot,
    /// The flags that the slot will have.
    pub(crate) flags: u32,
}

/// Activates a claimed slot at a start that `find` returns. Retries if a writer has overwritten
/// that start in the meantime, or if `is_safe` rejects it. Returns `None` if no start holds, which
/// correct publishers do not cause.
///
/// A reader that gates waits while a writer decides about its start. `wait` lets some time pass and
/// returns whether there is time for more.
pub(crate) fn join<E>(
    ring: Ring<'_>,
    control: &ReadersControl,
    claimed: ClaimedSlot<'_>,
    mut find: impl FnMut() -> Result<Cursor, E>,
    is_safe: impl Fn(&Cursor) -> bool,
    mut wait: impl FnMut() -> bool,
) -> Result<Option<Cursor>, E> {
    for _ in 0..ATTEMPTS {
        let cursor = find()?;
        slots::activate(control, claimed.number, claimed.slot, cursor.position, claimed.flags);
        if claimed.flags & READER_GATES != 0 {
            while would_be_overwritten(ring, cursor.position)
                && ring.is_intact(cursor.position)
                && wait()
            {
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

/// Returns whether a writer proposes to overwrite `position`.
fn would_be_overwritten(ring: Ring<'_>, position: u64) -> bool {
    // JOIN
    let proposed = ring.control.waits.0.proposed.load(Ordering::Acquire);
    let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
    let floor = proposed.saturating_sub(ring.shape().capacity());
    // No writer proposes to overwrite what is not written yet.
    position < floor && floor <= tail
}
