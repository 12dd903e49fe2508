//! The publishing participant: what all publishers of one opened bus share.
//!
//! It joins the layers for a writer: takes the lock, begins a session on the ring, makes room by the
//! policy, and wakes subscribers.

use super::claim::PublisherClaim;
use super::held;
use super::ring_of;
use crate::crash::{self, CrashPoint};
use crate::error::{Corrupt, PublishError};
use crate::notify::{ArmedSlot, Bell, Wakers, futex};
use crate::ring::backpressure::{Horizon, Patience, Verdict};
use crate::ring::layout::{READER_HAS_SOCKET, SLOT_ACTIVE};
use crate::ring::memory::Ring;
use crate::ring::slots::{SlotView, slowest};
use crate::ring::writer::{Record, Session};
use crate::settings::Policy;
use crate::shm::fork::ForkStamp;
use crate::shm::lease::LeaseTester;
use crate::shm::lock::{Acquired, Denied, Effort, Obituary, Owner, WriterLock};
use crate::shm::participants::ReadersSegment;
use crate::shm::segment::RingSegment;
use crate::shm::snapshot::ReaderSnapshot;
use crate::sync::{AtomicU64, Ordering, fence, fence_after_unlock_swap};
use crate::topic::table::{Appended, Mirror, TableMemory};
use crate::topic::{Topic, frame::TopicId};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Looks at the `space` word before a publisher that waits for room lets others run, and before it
/// sleeps: a reader that is at work frees a block within microseconds.
const SPACE_SPINS: u32 = 100;
const SPACE_YIELDS: u32 = 8;

/// How long a publisher that closes waits for the lock, to leave a bus on a disk in order.
const LONGEST_CLOSE: Duration = Duration::from_secs(1);

/// One publishing participant: a slot, its lease, and read-write access to the ring.
pub(super) struct Publishing {
    stamp: ForkStamp,
    ring: RingSegment,
    readers: ReadersSegment,
    reader_leases: LeaseTester,
    claim: PublisherClaim,
    lock: WriterLock,
    policy: Policy,
    horizon: Horizon,
    wakers: Wakers,
    mirror: Mutex<Mirror>,
    scratch: Mutex<Scan>,
    bus_id: [u8; 16],
}

/// What a look at the reader slots needs and remembers.
#[derive(Default)]
struct Scan {
    slots: Vec<ReaderSnapshot>,
    /// Slots whose owner died without giving them up, with the generation that died. This
    /// participant cannot write `readers`, so it remembers.
    dead: Vec<(u32, u32)>,
}

/// How far one call goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) policy: Policy,
    /// `Try` neither waits for the lock nor for room; a deadline holds for both together.
    pub(super) effort: Effort,
}

impl Terms {
    fn patience(&self) -> Patience {
        let give_up_after = match self.effort {
            Effort::Try => Some(Duration::ZERO),
            Effort::Until(None) => None,
            Effort::Until(Some(deadline)) => {
                Some(deadline.saturating_duration_since(Instant::now()))
            }
        };
        Patience::new(self.policy, give_up_after)
    }

    /// The error when the caller's patience is over.
    fn given_up(&self, at_once: PublishError) -> PublishError {
        if self.effort == Effort::Try { at_once } else { PublishError::Timeout }
    }
}

/// The writer lock in this thread's hands, with the end of the stream. Dropped, it unlocks.
pub(super) struct Held<'a> {
    publishing: &'a Publishing,
    session: Session<'a>,
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        crash::point(CrashPoint::BeforeUnlock);
        self.publishing.lock.release(self.publishing.ring.control());
    }
}

impl Publishing {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { ring, readers, reader_leases, claim, wakers } = parts;
        let header = ring.header();
        let (bus_id, settings) = (header.bus_id, header.settings);
        let publishing = Self {
            stamp: ForkStamp::now(),
            lock: WriterLock::new(settings.lock, claim.owner()),
            policy: settings.policy,
            horizon: Horizon::default(),
            mirror: Mutex::default(),
            scratch: Mutex::default(),
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
        publishing
    }

    /// Takes away the mark of a clean close, if the bus is on a disk. Before the first message.
    pub(super) fn mark_in_use(&self) -> Result<(), PublishError> {
        if !self.ring.file().is_on_disk() {
            return Ok(());
        }
        let terms = Terms { policy: self.policy, effort: Effort::Until(None) };
        let _held = self.hold(&terms)?;
        self.ring
            .mark_in_use()
            .map_err(|source| PublishError::Os { action: "write the bus back to the disk", source })
    }

    /// Sets that mark when the last publisher leaves. Without it, a bus starts empty after a reboot, so
    /// nothing is done about a failure.
    fn mark_clean_close(&self) {
        let deadline = Instant::now().checked_add(LONGEST_CLOSE);
        let terms = Terms { policy: self.policy, effort: Effort::Until(deadline) };
        if self.ring.file().is_on_disk()
            && let Ok(held) = self.hold(&terms)
            && self.claim.is_alone()
        {
            let _ = self.ring.mark_clean_close(held.session.tail(), held.session.sequence());
        }
    }

    pub(super) fn bus_policy(&self) -> Policy {
        self.policy
    }

    pub(super) fn largest_record(&self) -> u64 {
        self.ring.shape().largest_record()
    }

    /// Refuses a handle of the parent process.
    #[inline]
    pub(super) fn check_fork(&self) -> Result<(), PublishError> {
        Ok(self.stamp.check()?)
    }

    /// Publishes one record, which is not too long.
    #[inline]
    pub(super) fn publish(&self, record: Record<'_>, terms: &Terms) -> Result<(), PublishError> {
        self.check_fork()?;
        let acquired = self.lock.try_acquire(self.ring.control());
        if acquired == Some(Acquired { owner_died: false })
            && let Some(mut session) = Session::resume(self.ring())
            && session.fits(record.bytes())
        {
            session.write(record);
            self.count(1, record.bytes());
            crash::point(CrashPoint::BeforeUnlock);
            self.lock.release(self.ring.control());
            self.wake();
            return Ok(());
        }
        self.publish_slowly(acquired, record, terms)
    }

    /// As [`Self::publish`], when the lock has to be waited for, the ring repaired, or room made.
    #[cold]
    fn publish_slowly(
        &self,
        acquired: Option<Acquired>,
        record: Record<'_>,
        terms: &Terms,
    ) -> Result<(), PublishError> {
        let mut held = match acquired {
            Some(acquired) => self.begin(acquired)?,
            None => self.hold_contended(terms)?,
        };
        if !held.session.fits(record.bytes()) {
            held = self.make_room(held, record.bytes(), terms)?;
        }
        held.session.write(record);
        self.count(1, record.bytes());
        drop(held);
        self.wake();
        Ok(())
    }

    /// Publishes records under one commit. `bytes` is their sum, which is not too long.
    pub(super) fn publish_batch<'r>(
        &self,
        records: impl Iterator<Item = Record<'r>>,
        count: u64,
        bytes: u64,
        terms: &Terms,
    ) -> Result<(), PublishError> {
        self.check_fork()?;
        let mut held = self.hold(terms)?;
        if !held.session.fits(bytes) {
            held = self.make_room(held, bytes, terms)?;
        }
        held.session.write_batch(records, bytes);
        self.count(count, bytes);
        drop(held);
        self.wake();
        Ok(())
    }

    /// Publishes records with a commit each, and the lock held as long as there is room. On an error,
    /// says how many are published.
    #[inline]
    pub(super) fn burst<'r>(
        &self,
        records: impl Iterator<Item = Record<'r>>,
        terms: &Terms,
    ) -> Result<(), (usize, PublishError)> {
        self.check_fork().map_err(|error| (0, error))?;
        let mut held = self.hold(terms).map_err(|error| (0, error))?;
        let begin = (held.session.sequence(), held.session.tail());
        let mut counted = begin;
        for (published, record) in records.enumerate() {
            let bytes = record.bytes();
            if !held.session.fits(bytes) {
                let now = (held.session.sequence(), held.session.tail());
                self.count(now.0 - counted.0, now.1 - counted.1);
                held = match self.make_room(held, bytes, terms) {
                    Ok(held) => held,
                    Err(error) => {
                        self.wake();
                        return Err((published, error));
                    }
                };
                counted = (held.session.sequence(), held.session.tail());
            }
            held.session.write(record);
            crash::point(CrashPoint::MidBurst);
        }
        let now = (held.session.sequence(), held.session.tail());
        self.count(now.0 - counted.0, now.1 - counted.1);
        drop(held);
        self.wake();
        Ok(())
    }

    /// Publishes a record whose payload `fill` writes in place. `bytes` is its size in the stream.
    pub(super) fn publish_with<R>(
        &self,
        tag: u32,
        extensions: &[u8],
        length: u32,
        bytes: u64,
        terms: &Terms,
        fill: impl FnOnce(&[AtomicU64]) -> R,
    ) -> Result<R, PublishError> {
        self.check_fork()?;
        let mut held = self.hold(terms)?;
        if !held.session.fits(bytes) {
            held = self.make_room(held, bytes, terms)?;
        }
        let result = {
            let _mark = held::mark(self.bus_id);
            // Should `fill` unwind, `held` unlocks, and nothing is visible.
            held.session.write_with(tag, extensions, length, fill)
        };
        self.count(1, bytes);
        drop(held);
        self.wake();
        Ok(result)
    }

    /// The id of a topic, which is appended to the table if it is new; `None` if the table is full,
    /// and the name has to travel with each message.
    pub(super) fn intern(&self, topic: &Topic) -> Result<Option<TopicId>, PublishError> {
        self.check_fork()?;
        let mut mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
        mirror.sync(self.table()).map_err(Corrupt::from)?;
        if let Some(id) = mirror.lookup(topic.as_str()) {
            return Ok(Some(id));
        }
        let terms = Terms { policy: self.policy, effort: Effort::Until(None) };
        let held = self.hold(&terms)?;
        let appended = mirror.append(self.table(), topic);
        drop(held);
        match appended.map_err(Corrupt::from)? {
            Appended::Added(id) | Appended::Existing(id) => Ok(Some(id)),
            Appended::Full => Ok(None),
        }
    }

    fn table(&self) -> TableMemory<'_> {
        TableMemory { count: &self.ring.control().topics.0, words: self.ring.table() }
    }

    #[inline]
    fn ring(&self) -> Ring<'_> {
        ring_of(&self.ring)
    }

    #[inline]
    fn hold(&self, terms: &Terms) -> Result<Held<'_>, PublishError> {
        match self.lock.try_acquire(self.ring.control()) {
            Some(acquired) => self.begin(acquired),
            None => self.hold_contended(terms),
        }
    }

    #[cold]
    fn hold_contended(&self, terms: &Terms) -> Result<Held<'_>, PublishError> {
        if held::by_this_thread(&self.bus_id) {
            return Err(PublishError::Reentrant);
        }
        match self.lock.acquire(self.ring.control(), terms.effort, self) {
            Ok(acquired) => {
                if acquired.owner_died {
                    crash::point(CrashPoint::Takeover);
                }
                self.begin(acquired)
            }
            Err(Denied::Busy) => Err(terms.given_up(PublishError::Busy)),
            Err(Denied::Os(source)) => {
                Err(PublishError::Os { action: "take the writer lock", source })
            }
        }
    }

    #[inline]
    fn begin(&self, acquired: Acquired) -> Result<Held<'_>, PublishError> {
        match Session::begin(self.ring(), acquired.owner_died) {
            Ok(session) => Ok(Held { publishing: self, session }),
            Err(corrupt) => {
                self.lock.release(self.ring.control());
                Err(corrupt.into())
            }
        }
    }

    /// Raises `reserved` for `bytes` more, after waiting for slow readers as the policy says. While it
    /// waits it does not hold the lock.
    #[cold]
    fn make_room<'a>(
        &'a self,
        mut held: Held<'a>,
        bytes: u64,
        terms: &Terms,
    ) -> Result<Held<'a>, PublishError> {
        let mut patience = terms.patience();
        let outcome = loop {
            if held.session.fits(bytes) {
                // Another publisher made room meanwhile.
                break Ok(held);
            }
            let wanted = held.session.wanted(bytes);
            if let Err(error) = self.check_slowly(&held, wanted) {
                break Err(error);
            }
            let Some(slowest) = self.slowest(&held, wanted, terms.policy) else {
                held.session.reserve(wanted);
                break Ok(held);
            };
            if super::local::is_read_here(&self.bus_id, slowest.number, slowest.generation) {
                break Err(PublishError::WouldWaitForItself);
            }
            let control = self.ring.control();
            let now_ns = super::clock::monotonic_ns();
            match patience.judge(now_ns, &control.budget.0) {
                Verdict::Overwrite => {
                    add(&self.claim.slot().overwrites, 1);
                    held.session.reserve(wanted);
                    break Ok(held);
                }
                Verdict::GiveUp => break Err(terms.given_up(PublishError::Full)),
                Verdict::Wait(slice_ns) => {
                    let space = &self.readers.control().space.0;
                    let token = space.load(Ordering::Acquire);
                    // SPACE
                    control.waits.0.fetch_add(1, Ordering::Release);
                    fence(Ordering::SeqCst);
                    if self.slowest(&held, wanted, terms.policy).is_none() {
                        continue;
                    }
                    drop(held);
                    // Those for whom this publisher waits may sleep, and not know of its messages.
                    self.wake();
                    crash::point(CrashPoint::WaitingForSpace);
                    wait_for_space(space, token, slice_ns);
                    held = self.hold(terms)?;
                }
            }
        };
        if let Some(started_ns) = patience.started_ns() {
            let waited = super::clock::monotonic_ns().saturating_sub(started_ns);
            // Without the lock, two threads may count at once and lose a count: it is for people.
            let slot = self.claim.slot();
            add(&slot.waits, 1);
            add(&slot.waited_ns, waited);
        }
        outcome
    }

    /// What is asked now and then: once a lap, and for each slice of a wait.
    fn check_slowly(&self, held: &Held<'_>, wanted: u64) -> Result<(), PublishError> {
        for (damaged, what) in [
            (self.ring.was_damaged(), "the file ring was truncated"),
            (self.claim.was_damaged(), "the file publishers was truncated"),
        ] {
            if damaged {
                return Err(Corrupt { what, value: 0, position: held.session.tail() }.into());
            }
        }
        let shape = self.ring.shape();
        let lap = |position: u64| position / shape.capacity();
        let reserved = self.ring.control().reserved.0.load(Ordering::Relaxed);
        let once_a_lap = lap(reserved) != lap(wanted);
        let waiting = !self.horizon.covers(
            wanted,
            shape.capacity(),
            self.readers.control().joins.0.load(Ordering::Acquire),
        );
        if !once_a_lap && !waiting {
            return Ok(());
        }
        if held.session.tail() > reserved {
            let what = "tail beyond reserved";
            let value = held.session.tail();
            return Err(Corrupt { what, value, position: reserved }.into());
        }
        if self.ring.is_unlinked() {
            return Err(PublishError::Unlinked);
        }
        if !self.claim.is_alive() {
            return Err(PublishError::LeaseLost);
        }
        Ok(())
    }

    /// The reader to wait for before `reserved` may become `wanted`; `None` if there is none.
    fn slowest(&self, held: &Held<'_>, wanted: u64, policy: Policy) -> Option<SlotView> {
        if policy == Policy::Overwrite {
            return None;
        }
        let control = self.readers.control();
        let capacity = self.ring.shape().capacity();
        let joins = control.joins.0.load(Ordering::Acquire);
        // JOIN
        fence(Ordering::SeqCst);
        if self.horizon.covers(wanted, capacity, joins) {
            return None;
        }
        let tail = held.session.tail();
        let reserved = self.ring.control().reserved.0.load(Ordering::Relaxed);
        let mut scan = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let Scan { slots, dead } = &mut *scan;
        self.read_slots(slots);
        let is_there = |(number, generation): &(u32, u32)| {
            views(slots).any(|view| (view.number, view.generation) == (*number, *generation))
        };
        dead.retain(is_there);
        loop {
            let living =
                views(slots).filter(|view| !dead.contains(&(view.number, view.generation)));
            let slowest = slowest(living, tail, reserved, capacity);
            let minimum = slowest.map_or(tail, |view| view.position);
            if wanted <= minimum.saturating_add(capacity) {
                self.horizon.learn(minimum, joins);
                return None;
            }
            let slowest = slowest?;
            if !matches!(self.reader_leases.is_held(slowest.number), Ok(false)) {
                return Some(slowest);
            }
            // Nobody holds its lease: dead, unless a new owner came between the two looks; that one is
            // seen at the next look.
            self.read_slots(slots);
            let now = views(slots).nth(slowest.number as usize);
            if now.is_none_or(|now| {
                (now.generation, now.state) != (slowest.generation, slowest.state)
            }) {
                return Some(slowest);
            }
            dead.push((slowest.number, slowest.generation));
        }
    }

    /// Reads the slots that were ever used. If they cannot be read there is nobody to wait for: whoever
    /// took the file away is at worst lapped, and told.
    fn read_slots(&self, slots: &mut Vec<ReaderSnapshot>) {
        let used = self.readers.control().slots_used.0.load(Ordering::Acquire);
        if self.readers.scan(used, slots).is_err() {
            slots.clear();
        }
    }

    #[inline]
    fn count(&self, messages: u64, bytes: u64) {
        let slot = self.claim.slot();
        add(&slot.messages, messages);
        add(&slot.bytes, bytes);
    }

    /// Wakes whoever sleeps. Behind the unlock.
    #[inline]
    fn wake(&self) {
        crash::point(CrashPoint::BeforeWake);
        // SLEEP
        match self.lock.kind() {
            crate::settings::LockKind::Lease => fence_after_unlock_swap(),
            crate::settings::LockKind::Robust => fence(Ordering::SeqCst),
        }
        let readers = self.readers.control();
        let bell = Bell {
            wake: &self.ring.control().wake.0,
            sleeps: &readers.sleeps.0,
            arms: &readers.arms.0,
        };
        let sent = self.wakers.notify(bell, |armed| self.armed(armed));
        if sent > 0 {
            add(&self.claim.slot().wakes, sent as u64);
        }
    }

    /// The slots whose readers wait at a socket, or may.
    #[cold]
    fn armed(&self, armed: &mut Vec<ArmedSlot>) -> std::io::Result<()> {
        let mut scan = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_slots(&mut scan.slots);
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

fn views(slots: &[ReaderSnapshot]) -> impl Iterator<Item = SlotView> {
    (0..).zip(slots).map(|(number, slot)| SlotView {
        number,
        generation: slot.generation,
        state: slot.state,
        flags: slot.flags,
        position: slot.position,
        arms: slot.arms,
    })
}

impl Obituary for Publishing {
    fn is_dead(&self, owner: Owner) -> bool {
        self.claim.is_dead(owner)
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        if self.stamp.check().is_ok() {
            self.mark_clean_close();
            self.claim.leave();
        }
    }
}

/// What a publishing participant is made of.
pub(super) struct Parts {
    pub(super) ring: RingSegment,
    pub(super) readers: ReadersSegment,
    pub(super) reader_leases: LeaseTester,
    pub(super) claim: PublisherClaim,
    pub(super) wakers: Wakers,
}

/// Waits until `space` is no longer `token`, at most `slice_ns`.
fn wait_for_space(space: &crate::sync::AtomicU32, token: u32, slice_ns: u64) {
    for look in 0..SPACE_SPINS + SPACE_YIELDS {
        if space.load(Ordering::Relaxed) != token {
            return;
        }
        if look < SPACE_SPINS {
            crate::sync::pause();
        } else {
            std::thread::yield_now();
        }
    }
    // Whatever the answer, the caller looks again.
    let _ = futex::wait_while(space, token, Some(Duration::from_nanos(slice_ns)));
}

/// Adds to a counter that only this participant changes.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
