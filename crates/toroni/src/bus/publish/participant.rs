//! The publishing participant: what all publishers of one opened bus share.
//!
//! It joins the layers for a writer: takes the lock, begins an appender to the ring, and wakes subscribers.
//! Where there is no room, `room` goes on.

use crate::bus::publish::backpressure::{Scan, SpaceBackoff, views};
use crate::bus::publish::claim::PublisherClaim;
use crate::bus::publish::reentrancy as held;
use crate::bus::views::{eventcount_of, ring_of, table_of};
use crate::crash::{self, CrashPoint};
use crate::error::{Corrupt, OpenError, PublishError};
use crate::notify::{ArmedSlot, Wakers, futex};
use crate::ring::layout::{READER_HAS_SOCKET, SLOT_ACTIVE};
use crate::ring::memory::Ring;
use crate::ring::wait_budget::{CachedGatingPosition, WaitBudget};
use crate::ring::waits;
use crate::ring::writer::{Appender, Record};
use crate::settings::Policy;
use crate::shm::dumping::Turns;
use crate::shm::fork::ForkStamp;
use crate::shm::lease::LeaseTester;
use crate::shm::lock::{Acquired, Blind, Denied, LivenessCheck, LockAttempt, Owner, WriterLock};
use crate::shm::participants::ReadersSegment;
use crate::shm::segment::RingSegment;
use crate::sync::{AtomicU64, Ordering, fence, fence_after_unlock};
use crate::topic::table::{Appended, TopicCache};
use crate::topic::{Topic, frame::TopicId};
use std::hint::black_box;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a publisher that closes waits for the lock, to leave a bus on a disk in order.
const LONGEST_CLOSE: Duration = Duration::from_secs(1);

/// One publishing participant: a slot, its lease, and read-write access to the ring.
pub(in crate::bus) struct Publishing {
    stamp: ForkStamp,
    pub(in crate::bus) ring: RingSegment,
    pub(in crate::bus) readers: ReadersSegment,
    pub(in crate::bus) reader_leases: LeaseTester,
    pub(in crate::bus) claim: PublisherClaim,
    lock: WriterLock,
    policy: Policy,
    pub(in crate::bus) gating_cache: CachedGatingPosition,
    pub(in crate::bus) space_backoff: SpaceBackoff,
    wakers: Wakers,
    topic_cache: Mutex<TopicCache>,
    pub(in crate::bus) scratch: Mutex<Scan>,
    /// When it is time to ask whether a reader dumps core.
    pub(in crate::bus) dump_tests: Turns,
    pub(in crate::bus) bus_id: [u8; 16],
}

/// How far one call goes.
#[derive(Clone, Copy, Debug)]
pub(in crate::bus) struct Terms {
    pub(in crate::bus) policy: Policy,
    /// `Try` neither waits for the lock nor for room; a deadline holds for both together.
    pub(in crate::bus) attempt: LockAttempt,
}

impl Terms {
    pub(in crate::bus) fn wait_budget(&self) -> WaitBudget {
        let give_up_after = match self.attempt {
            LockAttempt::Try => Some(Duration::ZERO),
            LockAttempt::Until(None) => None,
            LockAttempt::Until(Some(deadline)) => {
                Some(deadline.saturating_duration_since(Instant::now()))
            }
        };
        WaitBudget::new(self.policy, give_up_after)
    }

    /// The error when the caller's wait budget is over.
    pub(in crate::bus) fn given_up(&self, at_once: PublishError) -> PublishError {
        if self.attempt == LockAttempt::Try { at_once } else { PublishError::Timeout }
    }
}

/// The writer lock in this thread's hands, with the end of the stream. Dropped, it unlocks; in the child
/// of a `fork` that happened meanwhile, it is the parent's, and nothing is done.
pub(in crate::bus) struct Held<'a> {
    publishing: &'a Publishing,
    pub(in crate::bus) appender: Appender<'a>,
    /// Whether it comes from a wait for room, for which others may wait, too.
    pub(in crate::bus) waited: bool,
}

impl Held<'_> {
    /// Sequence and position of the end of the stream.
    fn end(&self) -> (u64, u64) {
        (self.appender.sequence(), self.appender.tail())
    }
}

/// The writer lock in this thread's hands. Dropped, it unlocks, unless it is the parent's as with [`Held`].
struct Unlock<'a>(&'a Publishing);

impl Drop for Unlock<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.check_fork().is_err() {
            return;
        }
        crash::point(CrashPoint::BeforeUnlock);
        if crash::is_dead() {
            return;
        }
        self.0.lock.release(self.0.ring.control());
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        drop(Unlock(self.publishing));
        if crash::is_dead() {
            return;
        }
        let space = &self.publishing.readers.control().space.0;
        let waited = self.waited && self.publishing.check_fork().is_ok();
        waits::pass_on(waited, || futex::wake_one(space));
    }
}

/// Wakes whoever sleeps, when dropped.
struct Wakes<'a>(&'a Publishing);

impl Drop for Wakes<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Publishing {
    pub(in crate::bus) fn new(parts: Parts) -> Self {
        let Parts { ring, readers, reader_leases, claim, wakers } = parts;
        let header = ring.header();
        let (bus_id, settings) = (header.bus_id, header.settings);
        let publishing = Self {
            stamp: ForkStamp::now(),
            lock: WriterLock::new(settings.lock, claim.owner()),
            policy: settings.policy,
            gating_cache: CachedGatingPosition::default(),
            space_backoff: SpaceBackoff::default(),
            topic_cache: Mutex::default(),
            scratch: Mutex::default(),
            dump_tests: Turns::default(),
            bus_id,
            ring,
            readers,
            reader_leases,
            claim,
            wakers,
        };
        if let Some(acquired) = publishing.lock.inherit(publishing.ring.control()) {
            // What it left is repaired now, or at the next lock, by whoever sees it.
            drop(publishing.begin(acquired));
        }
        publishing.warm_up();
        publishing
    }

    /// Touches what the first message would wait for: memory of this process and pages of the files that its look
    /// at the readers needs, and the page that it is written to. Changes nothing that others see.
    #[cold]
    fn warm_up(&self) {
        let mut scan = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        // The first message finds out if they cannot be read.
        let _ = self.read_slots(&mut scan.slots);
        let tail = self.ring.control().commit.0.tail.load(Ordering::Relaxed);
        black_box(self.ring().word(tail).load(Ordering::Relaxed));
    }

    /// Takes away the mark of a clean close, if the bus is on a disk. Before the first message.
    pub(in crate::bus) fn mark_in_use(&self) -> Result<(), PublishError> {
        if !self.ring.file().is_on_disk() {
            return Ok(());
        }
        let terms = Terms { policy: self.policy, attempt: LockAttempt::Until(None) };
        let _held = self.hold(&terms)?;
        self.ring
            .mark_in_use()
            .map_err(|source| PublishError::Os { action: "write the bus back to the disk", source })
    }

    /// Sets that mark when the last publisher leaves: whoever, under the writer lock, sees no other lease.
    /// So the lease is given up under that lock, too; else two that leave at once would see each other.
    /// Without the mark a bus starts empty after a reboot, so nothing is done about a failure.
    fn close(&mut self) {
        let deadline = Instant::now().checked_add(LONGEST_CLOSE);
        let terms = Terms { policy: self.policy, attempt: LockAttempt::Until(deadline) };
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

    pub(in crate::bus) fn bus_policy(&self) -> Policy {
        self.policy
    }

    pub(in crate::bus) fn largest_record(&self) -> u64 {
        self.ring.shape().largest_record()
    }

    /// Refuses a handle of the parent process.
    #[inline]
    pub(in crate::bus) fn check_fork(&self) -> Result<(), PublishError> {
        Ok(self.stamp.check()?)
    }

    /// Publishes one record, which is not too long.
    #[inline]
    pub(in crate::bus) fn publish(
        &self,
        record: Record<'_>,
        terms: &Terms,
    ) -> Result<(), PublishError> {
        self.check_fork()?;
        let bytes = record.bytes();
        // Without `Held`, which would be moved through results.
        let acquired = match self.try_appender(bytes) {
            Ok(mut appender) => {
                appender.write(record);
                self.count(1, bytes);
                crash::point(CrashPoint::BeforeUnlock);
                self.lock.release(self.ring.control());
                self.wake();
                return Ok(());
            }
            Err(acquired) => acquired,
        };
        let mut held = self.hold_with_space_slowly(acquired, bytes, terms)?;
        held.appender.write(record);
        self.count(1, bytes);
        drop(held);
        self.wake();
        Ok(())
    }

    /// The lock, with room for `bytes`.
    #[inline(always)]
    fn hold_with_space(&self, bytes: u64, terms: &Terms) -> Result<Held<'_>, PublishError> {
        match self.try_appender(bytes) {
            Ok(appender) => Ok(Held { publishing: self, appender, waited: false }),
            Err(acquired) => self.hold_with_space_slowly(acquired, bytes, terms),
        }
    }

    /// The lock and the end of the stream where nobody is in the way, nothing is to be repaired, and
    /// there is room for `bytes`; else what came of the look at the lock.
    #[inline(always)]
    fn try_appender(&self, bytes: u64) -> Result<Appender<'_>, Option<Acquired>> {
        let acquired = self.lock.try_acquire(self.ring.control());
        if acquired == Some(Acquired { owner_died: false })
            && let Some(appender) = Appender::resume(self.ring())
            && appender.fits(bytes)
        {
            return Ok(appender);
        }
        Err(acquired)
    }

    /// As [`Self::hold_with_space`], when the lock has to be waited for, the ring repaired, or room made.
    #[cold]
    fn hold_with_space_slowly(
        &self,
        acquired: Option<Acquired>,
        bytes: u64,
        terms: &Terms,
    ) -> Result<Held<'_>, PublishError> {
        let held = match acquired {
            Some(acquired) => self.begin(acquired)?,
            None => self.hold_contended(terms)?,
        };
        self.with_space(held, bytes, terms)
    }

    /// Publishes records under one commit. `bytes` is their sum, which is not too long.
    pub(in crate::bus) fn publish_batch<'r>(
        &self,
        records: impl Iterator<Item = Record<'r>>,
        count: u64,
        bytes: u64,
        terms: &Terms,
    ) -> Result<(), PublishError> {
        self.check_fork()?;
        let mut held = self.hold_with_space(bytes, terms)?;
        held.appender.write_batch(records, bytes);
        self.count(count, bytes);
        drop(held);
        self.wake();
        Ok(())
    }

    /// Publishes records with a commit each, and the lock held as long as there is room. On an error,
    /// says how many are published.
    #[inline]
    pub(in crate::bus) fn burst(
        &self,
        tag: u32,
        extensions: &[u8],
        payloads: &[&[u8]],
        terms: &Terms,
    ) -> Result<(), (usize, PublishError)> {
        self.check_fork().map_err(|error| (0, error))?;
        // Dropped after the unlock, also on an error: what is committed by then must not wait for the next
        // message.
        let _wakes = Wakes(self);
        let mut held = self.hold(terms).map_err(|error| (0, error))?;
        let mut counted = held.end();
        let mut published = 0;
        while let Some(&payload) = payloads.get(published) {
            if extensions.is_empty() {
                let count = held.appender.write_in_block(tag, &payloads[published..]);
                if count > 0 {
                    published += count;
                    continue;
                }
            }
            // At the end of a block, or of the room.
            let record = Record { tag, extensions, payload };
            let bytes = record.bytes();
            if !held.appender.fits(bytes) {
                self.count_since(&held, counted);
                held = match self.make_space(held, bytes, terms) {
                    Ok(held) => held,
                    Err(error) => return Err((published, error)),
                };
                counted = held.end();
            }
            held.appender.write(record);
            crash::point(CrashPoint::MidBurst);
            published += 1;
        }
        self.count_since(&held, counted);
        Ok(())
    }

    /// Publishes a record whose payload `fill` writes in place. `bytes` is its size in the stream.
    #[inline]
    pub(in crate::bus) fn publish_with<R>(
        &self,
        tag: u32,
        extensions: &[u8],
        length: u32,
        bytes: u64,
        terms: &Terms,
        fill: impl FnOnce(&[AtomicU64]) -> R,
    ) -> Result<R, PublishError> {
        self.check_fork()?;
        let permit = held::permit().ok_or(PublishError::Reentrant)?;
        // Without `Held`, as in `publish`.
        let acquired = match self.try_appender(bytes) {
            Ok(mut appender) => {
                let unlock = Unlock(self);
                let result = self.fill(permit, &mut appender, tag, extensions, length, fill)?;
                self.count(1, bytes);
                drop(unlock);
                self.wake();
                return Ok(result);
            }
            Err(acquired) => acquired,
        };
        let mut held = self.hold_with_space_slowly(acquired, bytes, terms)?;
        let result = self.fill(permit, &mut held.appender, tag, extensions, length, fill)?;
        self.count(1, bytes);
        drop(held);
        self.wake();
        Ok(result)
    }

    /// Writes a record whose payload `fill` writes. Should that unwind, whoever has the lock gives it back, and
    /// nothing is visible.
    #[inline(always)]
    fn fill<R>(
        &self,
        permit: held::Permit,
        appender: &mut Appender<'_>,
        tag: u32,
        extensions: &[u8],
        length: u32,
        fill: impl FnOnce(&[AtomicU64]) -> R,
    ) -> Result<R, PublishError> {
        let _mark = permit.mark(&self.bus_id);
        Ok(appender.write_with(tag, extensions, length, |words| {
            let result = fill(words);
            // `fill` may have forked: then it returns twice, and the lock is the parent's.
            self.stamp.check().map(|()| result)
        })?)
    }

    /// The id of a topic, which is appended to the table if it is new; `None` if the table is full,
    /// and the name has to travel with each message.
    pub(in crate::bus) fn intern(&self, topic: &Topic) -> Result<Option<TopicId>, PublishError> {
        self.check_fork()?;
        // Before the topic cache's lock: another thread may hold that one, and wait for the writer lock, which
        // this thread would then never give back.
        if held::by_this_thread(&self.bus_id) {
            return Err(PublishError::Reentrant);
        }
        let mut topic_cache = self.topic_cache.lock().unwrap_or_else(PoisonError::into_inner);
        topic_cache.sync(table_of(&self.ring)).map_err(Corrupt::from)?;
        if let Some(id) = topic_cache.lookup(topic.as_str()) {
            return Ok(Some(id));
        }
        let terms = Terms { policy: self.policy, attempt: LockAttempt::Until(None) };
        let held = self.hold(&terms)?;
        let appended = topic_cache.append(table_of(&self.ring), topic);
        drop(held);
        match appended.map_err(Corrupt::from)? {
            Appended::Added(id) | Appended::Existing(id) => Ok(Some(id)),
            Appended::Full => Ok(None),
        }
    }

    #[inline]
    fn ring(&self) -> Ring<'_> {
        ring_of(&self.ring)
    }

    #[inline]
    pub(in crate::bus) fn hold(&self, terms: &Terms) -> Result<Held<'_>, PublishError> {
        match self.lock.try_acquire(self.ring.control()) {
            Some(acquired) => self.begin(acquired),
            None => self.hold_contended(terms),
        }
    }

    /// The lock as it is if `bytes` more fit, else after room was made for them.
    #[inline]
    fn with_space<'a>(
        &'a self,
        held: Held<'a>,
        bytes: u64,
        terms: &Terms,
    ) -> Result<Held<'a>, PublishError> {
        if held.appender.fits(bytes) { Ok(held) } else { self.make_space(held, bytes, terms) }
    }

    #[cold]
    fn hold_contended(&self, terms: &Terms) -> Result<Held<'_>, PublishError> {
        if held::by_this_thread(&self.bus_id) {
            return Err(PublishError::Reentrant);
        }
        match self.lock.acquire(self.ring.control(), terms.attempt, self) {
            Ok(acquired) => self.begin(acquired),
            Err(Denied::Busy) => Err(terms.given_up(PublishError::Busy)),
            Err(Denied::Blind) => Err(PublishError::LeaseLost),
            Err(Denied::Os(source)) => {
                Err(PublishError::Os { action: "take the writer lock", source })
            }
        }
    }

    #[inline]
    fn begin(&self, acquired: Acquired) -> Result<Held<'_>, PublishError> {
        // Also where the lock was free at the first look, as a robust one is whose owner died.
        if acquired.owner_died {
            crash::point(CrashPoint::Takeover);
        }
        match Appender::begin(self.ring(), acquired.owner_died) {
            Ok(appender) => Ok(Held { publishing: self, appender, waited: false }),
            Err(corrupt) => {
                self.lock.release(self.ring.control());
                Err(corrupt.into())
            }
        }
    }

    /// Counts what was published since the end of the stream was there.
    fn count_since(&self, held: &Held<'_>, (sequence, tail): (u64, u64)) {
        let (sequence_now, tail_now) = held.end();
        self.count(sequence_now.wrapping_sub(sequence), tail_now.wrapping_sub(tail));
    }

    #[inline]
    fn count(&self, messages: u64, bytes: u64) {
        let slot = self.claim.slot();
        add(&slot.messages, messages);
        add(&slot.bytes, bytes);
    }

    /// Wakes whoever sleeps. Behind the unlock.
    #[inline]
    pub(in crate::bus) fn wake(&self) {
        crash::point(CrashPoint::BeforeWake);
        if crash::is_dead() {
            return;
        }
        // SLEEP
        match self.lock.kind() {
            crate::settings::LockKind::Lease => fence_after_unlock(),
            crate::settings::LockKind::Robust => fence(Ordering::SeqCst),
        }
        let eventcount = eventcount_of(&self.ring, &self.readers);
        let sent = self.wakers.notify(eventcount, |armed| self.armed(armed));
        if sent > 0 {
            add(&self.claim.slot().wakes, sent as u64);
        }
    }

    /// The slots whose readers wait at a socket, or may.
    #[cold]
    fn armed(&self, armed: &mut Vec<ArmedSlot>) -> std::io::Result<()> {
        let mut scan = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_slots(&mut scan.slots)?;
        armed.extend(
            views(&scan.slots)
                .filter(|view| view.state == SLOT_ACTIVE && view.flags & READER_HAS_SOCKET != 0)
                .map(|view| ArmedSlot {
                    slot: view.number,
                    generation: view.generation,
                    arms: view.arms,
                }),
        );
        Ok(())
    }
}

impl LivenessCheck for Publishing {
    fn is_dead(&self, owner: Owner) -> Result<bool, Blind> {
        self.claim.is_dead(owner)
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        if self.stamp.check().is_ok() && !crash::is_dead() {
            self.close();
        }
    }
}

/// What an error of the lock or the ring means to somebody who opens the bus.
pub(in crate::bus) fn on_open(error: PublishError, action: &'static str, path: &Path) -> OpenError {
    match error {
        PublishError::Reentrant => OpenError::Reentrant,
        PublishError::Forked(forked) => forked.into(),
        PublishError::Corrupt(corrupt) => corrupt.into(),
        PublishError::Unlinked => OpenError::Unlinked { path: path.to_owned() },
        PublishError::Os { source, .. } => OpenError::Os { action, path: path.to_owned(), source },
        other => {
            OpenError::Os { action, path: path.to_owned(), source: std::io::Error::other(other) }
        }
    }
}

/// What a publishing participant is made of.
pub(in crate::bus) struct Parts {
    pub(in crate::bus) ring: RingSegment,
    pub(in crate::bus) readers: ReadersSegment,
    pub(in crate::bus) reader_leases: LeaseTester,
    pub(in crate::bus) claim: PublisherClaim,
    pub(in crate::bus) wakers: Wakers,
}

/// Adds to a counter that only this participant changes.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
