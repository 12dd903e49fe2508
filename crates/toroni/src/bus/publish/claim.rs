//! The slot of a publishing participant, and how it finds out which others are dead.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::bus::clock;
use crate::error::PublisherError;
use crate::hook::{self, CrashPoint};
use crate::ring::arrivals::Bringer;
use crate::ring::layout::{PublisherSlot, SLOT_FREE};
use crate::ring::slots::{self, Identity};
use crate::shm::directory::{BusDirectory, BusFile};
use crate::shm::dumping::{self, Turns};
use crate::shm::header::Header;
use crate::shm::lease::{Lease, LeaseTester};
use crate::shm::lock::{Blind, Owner};
use crate::shm::participants::PublishersSegment;
use crate::shm::snapshot::publisher_name;
use crate::sync::Ordering;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// A slot of `publishers` that this process owns, by its lease.
pub(super) struct PublisherClaim {
    segment: PublishersSegment,
    /// `None` once it was given up.
    lease: Option<Lease>,
    number: u32,
    leases: LeaseTester,
    /// When to ask again whether an owner of the lock dumps core.
    dump_tests: Turns,
    generation: u32,
    slots: u32,
}

impl PublisherClaim {
    /// Takes a free slot, or that of a dead participant. It takes the lease first, then the new
    /// generation: from then on a lock word with the old generation is a dead owner's.
    pub(super) fn new(
        directory: &BusDirectory,
        header: &Header,
        identity: &Identity,
    ) -> Result<Self, PublisherError> {
        let segment = PublishersSegment::open(directory, header)?;
        let leases = LeaseTester::open(directory, BusFile::Publishers)?;
        let limit = header.settings.max_publishers;
        let lease = Lease::claim_any(directory, BusFile::Publishers, limit, &leases)?
            .ok_or(PublisherError::TooManyPublishers { limit })?;
        let number = lease.slot();
        let generation = slots::claim_publisher(segment.slot(number), identity);
        let dump_tests = Turns::default();
        Ok(Self {
            segment,
            lease: Some(lease),
            number,
            leases,
            dump_tests,
            generation,
            slots: limit,
        })
    }

    pub(super) fn owner(&self) -> Owner {
        Owner::new(self.number, self.generation)
    }

    #[inline]
    pub(super) fn slot(&self) -> &PublisherSlot {
        self.segment.slot(self.number)
    }

    /// Returns whether the file of the slots was truncated.
    pub(super) fn was_damaged(&self) -> bool {
        self.segment.was_damaged()
    }

    /// Returns whether other processes see that this one lives.
    pub(super) fn is_alive(&self) -> bool {
        // If the kernel does not answer, the lease counts as held.
        self.lease.as_ref().is_some_and(|lease| lease.is_held_by_us(&self.leases).unwrap_or(true))
    }

    /// Returns whether no other participant publishes. While the caller holds the writer lock, none begins
    /// to: a participant claims its slot before it first takes the lock.
    pub(super) fn is_alone(&self) -> bool {
        let others: Vec<u32> = (0..self.slots).filter(|slot| *slot != self.number).collect();
        self.leases.census(&others, || true).is_ok_and(|census| !census.is_any_held)
    }

    /// Returns this participant as one that brings messages from elsewhere.
    pub(super) fn bringer(&self) -> Bringer {
        Bringer { slot: self.number, generation: self.generation }
    }

    /// Returns whether a participant that has brought messages from elsewhere is gone, or dead.
    pub(super) fn has_left(&self, bringer: Bringer) -> Result<bool, Blind> {
        if bringer.slot >= self.slots {
            return Ok(true);
        }
        let slot = self.segment.slot(bringer.slot);
        if slot.generation.load(Ordering::Acquire) != bringer.generation {
            return Ok(true);
        }
        self.is_abandoned(bringer.slot, slot)
    }

    /// Returns what a participant that brings messages from elsewhere calls itself, and its process id.
    pub(super) fn name_and_pid_of(&self, bringer: Bringer) -> (String, u32) {
        self.name_and_pid(Owner::new(bringer.slot, bringer.generation))
    }

    /// Returns whether the owner that a lock word names is dead, never existed, or dumps core.
    pub(super) fn is_dead(&self, owner: Owner) -> Result<bool, Blind> {
        let Some((number, slot)) = self.slot_of(owner) else { return Ok(true) };
        if !owner.has_generation(slot.generation.load(Ordering::Acquire)) {
            return Ok(true);
        }
        self.is_abandoned(number, slot)
    }

    /// Returns whether no process holds the lease of a slot, or its owner dumps core.
    fn is_abandoned(&self, number: u32, slot: &PublisherSlot) -> Result<bool, Blind> {
        match self.leases.is_held(number) {
            Ok(false) => Ok(true),
            // It wrote its number before its first lock.
            Ok(true) => Ok(self.dump_tests.take(clock::monotonic_ns())
                && dumping::has_stopped_for_good(
                    slot.pid.load(Ordering::Relaxed),
                    slot.pid_namespace.load(Ordering::Relaxed),
                    dumping::MOST_THREADS_OF_PUBLISHER,
                )),
            Err(_) if self.leases.is_blind() => Err(Blind),
            // If the kernel does not answer, nothing is known.
            Err(_) => Ok(false),
        }
    }

    /// Returns whether the process of the owner that a lock word names has certainly ended. One that has not been
    /// waited for by its parent still exists.
    pub(super) fn has_ended(&self, owner: Owner) -> bool {
        let Some((_, slot)) = self.slot_of(owner) else { return true };
        let namespace = slot.pid_namespace.load(Ordering::Relaxed);
        let is_near =
            namespace != 0 && namespace == self.slot().pid_namespace.load(Ordering::Relaxed);
        let pid = i32::try_from(slot.pid.load(Ordering::Relaxed)).ok().and_then(Pid::from_raw);
        is_near && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }

    /// Returns what the owner that a lock word names calls itself, and its process id.
    pub(super) fn name_and_pid(&self, owner: Owner) -> (String, u32) {
        self.slot_of(owner).map_or_else(Default::default, |(_, slot)| {
            (publisher_name(slot), slot.pid.load(Ordering::Relaxed))
        })
    }

    /// Returns the slot that a lock word names, and its number; `None` if the bus has no such slot.
    fn slot_of(&self, owner: Owner) -> Option<(u32, &PublisherSlot)> {
        let number = owner.slot().filter(|number| *number < self.slots)?;
        Some((number, self.segment.slot(number)))
    }

    /// Frees the slot, and then gives up its lease. If the lease was lost, the slot may be another
    /// participant's by now, and is left alone.
    pub(super) fn leave(&mut self) {
        if self.is_alive() {
            self.slot().state.store(SLOT_FREE, Ordering::Release);
        }
        hook::point(CrashPoint::PublisherMidLeave);
        self.lease = None;
    }
}
