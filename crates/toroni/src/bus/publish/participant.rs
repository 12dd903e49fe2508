//! The publishing participant: a slot, its lease, and the writer lock of the bus.
//!
//! All publishers of one opened bus share it. What they do with it is in `publishing.rs`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::claim::PublisherClaim;
use super::reader_slots::ReaderSlots;
use super::reentrancy;
use super::terms::{Limit, Terms, given_up};
use crate::bus::views::{arrivals_of, ring_of, values_of};
use crate::error::{FileError, PublishError, PublisherError};
use crate::hook::{self, CrashPoint, mutant};
use crate::notify::{self, AdaptiveFence, futex};
use crate::ring::memory::Ring;
use crate::ring::slots::Identity;
use crate::ring::waits;
use crate::ring::writer::Appender;
use crate::settings::Policy;
use crate::shm::directory::{BusDirectory, BusFile};
use crate::shm::fork::ForkStamp;
use crate::shm::lease::LeaseTester;
use crate::shm::lock::{Acquired, Blind, Denied, LivenessCheck, LockAttempt, Owner, WriterLock};
use crate::shm::mapping::Protection;
use crate::shm::participants::ReadersSegment;
use crate::shm::segment::RingSegment;
use crate::shm::snapshot::ReaderSnapshot;
use crate::sync::{AtomicU64, Ordering};
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a participant that leaves waits for the lock, to mark a bus on a disk as cleanly closed.
const LONGEST_CLOSE: Duration = Duration::from_secs(1);

/// A slot of `publishers`, its lease, and read-write access to the ring.
pub(super) struct Participant {
    stamp: ForkStamp,
    pub(super) ring: RingSegment,
    pub(super) readers: ReadersSegment,
    pub(super) reader_leases: LeaseTester,
    pub(super) reader_slots: Mutex<ReaderSlots>,
    pub(super) claim: PublisherClaim,
    lock: WriterLock,
    /// Of the exclusive publisher, if this participant has one.
    pub(super) adaptive_fence: AdaptiveFence,
    pub(super) policy: Policy,
    pub(super) bus_id: [u8; 16],
}

/// The guard of the writer lock. Dropping it unlocks, but not in the child of a `fork` that happened while
/// the lock was held: there the lock is the parent's.
pub(super) struct Lock<'a> {
    participant: &'a Participant,
    end: CallEnd,
}

/// What the end of a call has to do about the lock.
#[derive(Clone, Copy)]
pub(super) struct CallEnd {
    /// Whether this publisher waited for free space, for which others may wait, too.
    pub(super) waited: bool,
    /// Whether the publisher is exclusive, and keeps the lock.
    pub(super) keeps_lock: bool,
}

/// The writer lock, and the end of the stream.
pub(super) struct Held<'a> {
    pub(super) lock: Lock<'a>,
    pub(super) appender: Appender<'a>,
}

impl Held<'_> {
    /// Returns sequence and position of the end of the stream.
    pub(super) fn end(&self) -> (u64, u64) {
        (self.appender.sequence(), self.appender.tail())
    }

    pub(super) fn set_waited(&mut self, waited: bool) {
        self.lock.end.waited = waited;
    }
}

impl Lock<'_> {
    /// Leaves the end of the call to the caller, see [`Participant::end_call`].
    #[inline]
    pub(super) fn defer(self) -> CallEnd {
        std::mem::ManuallyDrop::new(self).end
    }
}

impl Drop for Lock<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.participant.check_fork().is_ok() {
            self.participant.end_call(self.end);
        }
    }
}

impl Participant {
    pub(super) fn open(
        directory: &BusDirectory,
        ring: RingSegment,
        identity: &Identity,
    ) -> Result<Self, PublisherError> {
        let header = ring.header();
        let (bus_id, settings) = (header.bus_id, header.settings);
        let readers = ReadersSegment::open(directory, header, Protection::Read)?;
        let reader_leases = LeaseTester::open(directory, BusFile::Readers)?;
        let claim = PublisherClaim::new(directory, header, identity)?;
        let participant = Self {
            stamp: ForkStamp::now(),
            lock: WriterLock::new(settings.lock, claim.owner()),
            adaptive_fence: AdaptiveFence::new(claim.owner().mark()),
            policy: settings.policy,
            reader_slots: Mutex::default(),
            bus_id,
            ring,
            readers,
            reader_leases,
            claim,
        };
        if let Some(acquired) = participant.lock.inherit(participant.ring.control()) {
            // What the last owner of this slot left is repaired now; if that fails, the next lock reports it.
            drop(participant.begin(acquired, false));
        }
        participant.warm_up();
        participant
            .mark_in_use()
            .map_err(|error| of_publisher(error, "mark as in use", directory.path()))?;
        Ok(participant)
    }

    /// Touches what the first message would wait for: the memory and the pages that a pass over the
    /// subscribers' slots needs, and the page that the message is written to. Others see no change.
    #[cold]
    fn warm_up(&self) {
        let mut readers = self.reader_slots.lock().unwrap_or_else(PoisonError::into_inner);
        // If they cannot be read, the first message reports it.
        let _ = self.read_slots(&mut readers.slots);
        let tail = self.ring.control().commit.0.tail.load(Ordering::Relaxed);
        black_box(self.ring().word(tail).load(Ordering::Relaxed));
    }

    /// Removes the mark of a clean close from a bus on a disk, before the first message.
    fn mark_in_use(&self) -> Result<(), PublishError> {
        if !self.ring.file().is_on_disk() {
            return Ok(());
        }
        let _held = match self.hold(&self.terms_without_deadline()) {
            // The exclusive publisher marked it when it opened the bus. It does not take that back as long as this
            // participant is there.
            Err(PublishError::Exclusive { .. }) => return Ok(()),
            held => held?,
        };
        self.ring
            .mark_in_use()
            .map_err(|source| PublishError::Os { action: "write the bus back to the disk", source })
    }

    /// Leaves the bus. The last participant, which sees no other lease, marks a bus on a disk as cleanly
    /// closed. It does both under the writer lock. Otherwise two that leave at once would see each other, and
    /// neither would set the mark.
    /// A failure is not reported: without the mark the bus starts empty after a reboot.
    fn close(&mut self) {
        let terms = Terms::shared(self.policy, Limit::Within(LONGEST_CLOSE));
        let held = if self.ring.file().is_on_disk() { self.hold(&terms).ok() } else { None };
        if let Some(held) = &held
            && self.claim.is_alone()
        {
            let _ = self.ring.mark_clean_close(held.appender.tail(), held.appender.sequence());
        }
        let is_locked = held.is_some();
        std::mem::forget(held);
        self.claim.leave();
        if is_locked {
            self.lock.release(self.ring.control());
        }
    }

    /// Returns the terms of a call without a time limit.
    pub(super) fn terms_without_deadline(&self) -> Terms {
        Terms::shared(self.policy, Limit::Policy)
    }

    /// Refuses a handle of the parent process.
    #[inline]
    pub(super) fn check_fork(&self) -> Result<(), PublishError> {
        Ok(self.stamp.check()?)
    }

    #[inline]
    pub(super) fn ring(&self) -> Ring<'_> {
        ring_of(&self.ring)
    }

    /// Takes the lock and keeps it, for an exclusive publisher, until [`Self::give_up_lock`].
    pub(super) fn keep_lock(&self, attempt: LockAttempt) -> Result<(), PublishError> {
        self.check_fork()?;
        if reentrancy::by_this_thread(&self.bus_id) {
            return Err(PublishError::Reentrant);
        }
        let acquired = self
            .lock
            .acquire_exclusive(self.ring.control(), attempt, self)
            .map_err(|denied| self.denied(denied, given_up(attempt, PublishError::Busy)))?;
        // Repairs the stream. If it cannot, this releases the lock.
        let held = self.begin(acquired, true)?;
        self.adaptive_fence.start_over();
        // A publisher whose lease was lost may have stored its mark after the takeover.
        self.remove_mark();
        drop(held);
        Ok(())
    }

    /// Removes the mark of a former exclusive publisher. The caller has the lock and has not committed yet.
    #[cold]
    fn remove_mark(&self) {
        notify::remove_mark(&self.ring.control().asymmetric.0);
    }

    /// Gives back the lock that [`Self::keep_lock`] has kept.
    pub(super) fn give_up_lock(&self) {
        if self.check_fork().is_ok() {
            self.end_call(CallEnd { waited: false, keeps_lock: false });
        }
    }

    /// Tries to take the lock and the end of the stream. It succeeds if the lock is free, or kept by the caller,
    /// nothing has to be repaired, `bytes` fit without a check of slow subscribers, and the topic of the tag is not retained;
    /// [`Self::end_call`] gives the lock back. Otherwise it returns what the try got of the lock, for [`Self::hold_after`].
    #[inline(always)]
    pub(super) fn try_appender(
        &self,
        bytes: u64,
        tag: u32,
        terms: &Terms,
    ) -> Result<Appender<'_>, Option<Acquired>> {
        let acquired = self.try_lock(terms);
        let appender = self.resume(acquired, bytes);
        appender.filter(|appender| !appender.may_retain(tag)).ok_or(acquired)
    }

    /// Returns the end of the stream, if the lock was taken, nothing has to be repaired, and `bytes` fit.
    #[inline(always)]
    pub(super) fn resume(&self, acquired: Option<Acquired>, bytes: u64) -> Option<Appender<'_>> {
        let is_whole = acquired == Some(Acquired { owner_died: false });
        let appender = if is_whole { Appender::resume(self.ring()) } else { None };
        appender.filter(|appender| appender.fits(bytes))
    }

    /// Returns whether the lock is still kept: no other publisher has taken over.
    #[inline(always)]
    pub(super) fn has_kept_lock(&self) -> bool {
        self.lock.is_kept(self.ring.control())
    }

    /// Returns whether no other publisher has taken over the lock that this participant took.
    #[inline]
    pub(super) fn has_lock(&self) -> bool {
        self.lock.is_mine(self.ring.control())
    }

    /// Takes the lock if it is free, or if the caller has kept it.
    #[inline(always)]
    pub(super) fn try_lock(&self, terms: &Terms) -> Option<Acquired> {
        if terms.keeps_lock {
            return self.has_kept_lock().then_some(Acquired { owner_died: false });
        }
        self.lock.try_acquire(self.ring.control())
    }

    /// Returns the guard of a lock that is held.
    #[inline]
    pub(super) fn lock_guard(&self, end: CallEnd) -> Lock<'_> {
        Lock { participant: self, end }
    }

    /// Gives the lock back, unless the publisher keeps it. A publisher that waited for free space wakes the next one
    /// that does.
    #[inline]
    pub(super) fn end_call(&self, end: CallEnd) {
        if end.keeps_lock {
            return;
        }
        hook::point(CrashPoint::BeforeUnlock);
        if hook::is_dead() {
            return;
        }
        self.lock.release(self.ring.control());
        waits::pass_on(end.waited, || futex::wake_one(&self.readers.control().space.0));
    }

    /// Continues after [`Self::try_appender`]: waits for the lock if that did not get it, and repairs the stream
    /// if its owner died.
    #[inline]
    pub(super) fn hold_after(
        &self,
        acquired: Option<Acquired>,
        terms: &Terms,
    ) -> Result<Held<'_>, PublishError> {
        match acquired {
            Some(acquired) => self.begin(acquired, terms.keeps_lock),
            None => self.hold_contended(terms),
        }
    }

    /// Takes the lock and the end of the stream.
    #[inline]
    pub(super) fn hold(&self, terms: &Terms) -> Result<Held<'_>, PublishError> {
        self.hold_after(self.try_lock(terms), terms)
    }

    #[cold]
    fn hold_contended(&self, terms: &Terms) -> Result<Held<'_>, PublishError> {
        if reentrancy::by_this_thread(&self.bus_id) {
            return Err(PublishError::Reentrant);
        }
        if terms.keeps_lock {
            // Another publisher has taken over: it saw that the lease was gone.
            return Err(PublishError::LeaseLost);
        }
        match self.lock.acquire(self.ring.control(), terms.attempt, self) {
            Ok(acquired) => self.begin(acquired, false),
            Err(denied) => Err(self.denied(denied, terms.given_up(PublishError::Busy))),
        }
    }

    /// Returns the error of a call that did not get the lock; `given_up` if its time was over.
    #[cold]
    fn denied(&self, denied: Denied, given_up: PublishError) -> PublishError {
        match denied {
            Denied::Busy => given_up,
            Denied::Exclusive(owner) => {
                let (name, pid) = self.claim.name_and_pid(owner);
                PublishError::Exclusive { name, pid }
            }
            Denied::Blind => PublishError::LeaseLost,
            Denied::Os(source) => PublishError::Os { action: "take the writer lock", source },
        }
    }

    #[inline]
    fn begin(&self, acquired: Acquired, keeps_lock: bool) -> Result<Held<'_>, PublishError> {
        // Also if the lock was free at the first check, as a robust one is whose owner died.
        if acquired.owner_died {
            hook::point(CrashPoint::Takeover);
        }
        let recovers = acquired.owner_died || Appender::has_to_recover(self.ring());
        let begun = Appender::begin(self.ring(), || values_of(&self.ring), acquired.owner_died)
            .and_then(|appender| {
                if recovers && !mutant("note_settled_late") {
                    arrivals_of(&self.ring).settle(appender.tail())?;
                }
                Ok(appender)
            });
        match begun {
            Ok(appender) => {
                if acquired.owner_died {
                    self.remove_mark();
                }
                let end = CallEnd { waited: false, keeps_lock };
                Ok(Held { lock: Lock { participant: self, end }, appender })
            }
            Err(corrupt) => {
                self.lock.release(self.ring.control());
                Err(corrupt.into())
            }
        }
    }

    /// Reads the slots that were ever used.
    pub(super) fn read_slots(&self, slots: &mut Vec<ReaderSnapshot>) -> io::Result<()> {
        let used = self.readers.control().slots_used.0.load(Ordering::Acquire);
        self.readers.scan(used, slots)
    }

    /// Counts what was published since the end of the stream was `(sequence, tail)`.
    pub(super) fn count_since(&self, held: &Held<'_>, (sequence, tail): (u64, u64)) {
        let (sequence_now, tail_now) = held.end();
        self.count(sequence_now.wrapping_sub(sequence), tail_now.wrapping_sub(tail));
    }

    #[inline]
    pub(super) fn count(&self, messages: u64, bytes: u64) {
        let slot = self.claim.slot();
        add(&slot.messages, messages);
        add(&slot.bytes, bytes);
    }

    pub(super) fn count_wakes(&self, wakes: u64) {
        add(&self.claim.slot().wakes, wakes);
    }
}

impl LivenessCheck for Participant {
    fn is_dead(&self, owner: Owner) -> Result<bool, Blind> {
        self.claim.is_dead(owner)
    }

    fn has_ended(&self, owner: Owner) -> bool {
        self.claim.has_ended(owner)
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if self.stamp.check().is_ok() && !hook::is_dead() {
            self.close();
        }
    }
}

/// Turns an error of the lock or the ring into one of making a publisher.
pub(super) fn of_publisher(
    error: PublishError,
    action: &'static str,
    path: &Path,
) -> PublisherError {
    let error = match error {
        PublishError::Reentrant => return PublisherError::Reentrant,
        PublishError::Forked(forked) => forked.into(),
        PublishError::Corrupt(corrupt) => corrupt.into(),
        PublishError::Unlinked => FileError::Unlinked { path: path.to_owned() },
        PublishError::Os { source, .. } => FileError::Os { action, path: path.to_owned(), source },
        other => FileError::Os { action, path: path.to_owned(), source: io::Error::other(other) },
    };
    error.into()
}

/// Adds to a counter that only this participant changes.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
