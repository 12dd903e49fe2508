//! The slot of a subscriber, its lease, and the files that all subscribers of one opened bus share.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::descriptor::Descriptor;
use super::retained::ValueReader;
use crate::bus::views::rows_of;
use crate::error::{FileError, SubscriberError};
use crate::hook::{self, CrashPoint, mutant};
use crate::notify::{ArmingSlot, DatagramWaiter, MulticastWaiter};
use crate::ring::layout::{READER_GATES, READER_HAS_SOCKET, READER_NEEDS_FENCE, ReaderSlot};
use crate::ring::position::to_index;
use crate::ring::slots::{self, Identity};
use crate::shm::directory::{BusDirectory, BusFile};
use crate::shm::lease::{Lease, LeaseTester};
use crate::shm::mapping::{MapOptions, Protection};
use crate::shm::participants::ReadersSegment;
use crate::shm::patterns;
use crate::shm::segment::RingSegment;
use crate::sync::{AtomicU32, Ordering};
use crate::topic::{Pattern, PatternSet};
use rustix::fs::Mode;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Read-only access to the ring, read-write access to the readers' slots.
pub(in crate::bus) struct Subscribing {
    pub(in crate::bus) ring: RingSegment,
    pub(in crate::bus) readers: ReadersSegment,
    directory: BusDirectory,
    leases: LeaseTester,
    value_reader: Mutex<ValueReader>,
}

impl Subscribing {
    pub(in crate::bus) fn open(
        directory: &BusDirectory,
        options: &MapOptions,
    ) -> Result<Self, FileError> {
        let ring = RingSegment::open(directory, Protection::Read, options)?;
        ring.header().check_network(directory.path())?;
        let readers = ReadersSegment::open(directory, ring.header(), Protection::Write)?;
        let leases = LeaseTester::open(directory, BusFile::Readers)?;
        let value_reader = Mutex::default();
        Ok(Self { ring, readers, directory: directory.clone(), leases, value_reader })
    }

    /// Returns what this process reads values with.
    pub(super) fn value_reader(&self) -> MutexGuard<'_, ValueReader> {
        self.value_reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the socket of a slot, or joins the group of the bus.
    pub(in crate::bus) fn open_descriptor(
        &self,
        claim: &ReaderClaim,
    ) -> Result<Descriptor, FileError> {
        let header = self.ring.header();
        let failed = |action, source| self.os_error(action, source);
        if let Some(group) = header.settings.notify.multicast_group(&header.bus_id) {
            return MulticastWaiter::join(group)
                .inspect(|_| hook::point(CrashPoint::ReaderMidSocket))
                .map(Descriptor::Multicast)
                .map_err(|error| failed("join the multicast group of", error));
        }
        let sockets = self.directory.open_sockets()?;
        // For every process that may enter the directory of the sockets.
        let mode = Mode::from_raw_mode(0o666);
        let waiter =
            DatagramWaiter::bind(sockets.as_fd(), claim.number(), claim.generation(), mode)
                .map_err(|error| failed("make a socket in", error))?;
        hook::point(CrashPoint::ReaderMidSocket);
        // After the bind: a publisher that sees the flag finds the socket.
        claim.slot().flags.fetch_or(READER_HAS_SOCKET, Ordering::Release);
        Ok(Descriptor::Datagram(waiter))
    }

    pub(in crate::bus) fn os_error(&self, action: &'static str, source: io::Error) -> FileError {
        FileError::Os { action, path: self.directory.path().to_owned(), source }
    }

    /// Returns the futex word of a slot.
    pub(in crate::bus) fn wake_word(&self, slot: u32) -> &AtomicU32 {
        &self.ring.wake_words()[to_index(slot.into())]
    }

    /// Takes a free slot, or that of a dead subscriber.
    pub(super) fn claim(
        self: &Arc<Self>,
        identity: &Identity,
    ) -> Result<ReaderClaim, SubscriberError> {
        let limit = self.ring.header().settings.max_subscribers;
        let lease = Lease::claim_any(&self.directory, BusFile::Readers, limit, &self.leases)?
            .ok_or(SubscriberError::TooManySubscribers { limit })?;
        let generation = slots::claim(self.readers.slot(lease.slot()), identity);
        // What the last owner of the slot did not want, this one may.
        let rows = rows_of(&self.readers);
        if !mutant("column_of_the_last_owner") {
            (0..rows.topics()).for_each(|topic| rows.set(topic, lease.slot(), false));
        }
        Ok(ReaderClaim { subscribing: self.clone(), lease, generation })
    }
}

/// A slot that this process owns, by its lease.
pub(in crate::bus) struct ReaderClaim {
    pub(in crate::bus) subscribing: Arc<Subscribing>,
    lease: Lease,
    generation: u32,
}

impl ReaderClaim {
    pub(in crate::bus) fn number(&self) -> u32 {
        self.lease.slot()
    }

    pub(in crate::bus) fn generation(&self) -> u32 {
        self.generation
    }

    pub(in crate::bus) fn slot(&self) -> &ReaderSlot {
        self.subscribing.readers.slot(self.lease.slot())
    }

    /// Returns the words of the slot that arming a wait changes.
    pub(in crate::bus) fn arming_slot(&self) -> ArmingSlot<'_> {
        let Subscribing { ring, readers, .. } = &*self.subscribing;
        ArmingSlot {
            word: self.subscribing.wake_word(self.number()),
            asymmetric: &ring.control().asymmetric.0,
            sleeps: &readers.control().sleeps.0,
            arming: &readers.arming()[to_index(self.number().into())],
            flags: &self.slot().flags,
            needs_fence: READER_NEEDS_FENCE,
        }
    }

    /// Returns whether the slot is still this subscriber's. If its lease is lost (code that closes all
    /// descriptors gives it up), the slot may become another subscriber's, for which publishers wait.
    pub(in crate::bus) fn is_ours(&self) -> bool {
        self.slot().generation.load(Ordering::Relaxed) == self.generation
    }

    /// Writes the patterns where observers of the bus read them.
    pub(in crate::bus) fn show_patterns(&self, shown: &PatternSet) {
        if !self.is_ours() {
            return;
        }
        let area = self.subscribing.readers.patterns(self.lease.slot());
        patterns::show(area, self.generation, shown.iter().map(Pattern::as_str));
    }

    /// Returns whether publishers wait for it.
    pub(in crate::bus) fn gates(&self) -> bool {
        self.slot().flags.load(Ordering::Relaxed) & READER_GATES != 0
    }

    /// Frees the slot; the drop gives up the lease afterwards. A slot whose lease was lost may be another
    /// subscriber's by now, and is left alone.
    pub(in crate::bus) fn leave(&self) {
        // If the kernel does not answer, the lease counts as held.
        if self.lease.is_held_by_us(&self.subscribing.leases).unwrap_or(true) {
            slots::free(self.subscribing.readers.control(), self.slot());
        }
    }
}
