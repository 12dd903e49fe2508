//! Room for the next record: the look at slow readers, and the wait for them.
//!
//! Nobody holds the writer lock while it waits here. A publisher cannot write the readers' slots, and
//! does not trust them: it reads them with one system call, once a block, and twice for each wait, and
//! remembers by itself which of their owners are dead.

use super::pace::adapted;
use super::publishing::{Held, Publishing, Terms};
use super::views::{PUBLISHERS_TRUNCATED, RING_REWRITTEN, RING_TRUNCATED, check_whole};
use super::{clock, local};
use crate::crash::{self, CrashPoint};
use crate::error::{Corrupt, PublishError};
use crate::notify::futex;
use crate::ring::backpressure::{Verdict, charge_overslept};
use crate::ring::slots::{SlotView, slowest};
use crate::settings::Policy;
use crate::shm::snapshot::ReaderSnapshot;
use crate::sync::{AtomicU32, Ordering, fence};
use std::sync::PoisonError;
use std::time::Duration;

/// Looks at the `space` word before a publisher that waits for room lets others run, at the most, and then
/// before it sleeps. A reader on another core frees room within microseconds; where there are more processes
/// than cores, it can only run when the publisher does not.
const MOST_SPINS: u32 = 500;
const YIELDS: u32 = 20;

/// How long publishers of one participant poll for room: as long as it has been of use.
#[derive(Debug)]
pub(super) struct SpacePace {
    spins: AtomicU32,
}

impl Default for SpacePace {
    fn default() -> Self {
        Self { spins: AtomicU32::new(MOST_SPINS) }
    }
}

impl SpacePace {
    /// Waits until `space` is no longer `token`, at most `slice_ns`.
    fn wait(&self, space: &AtomicU32, token: u32, slice_ns: u64) {
        let spins = self.spins.load(Ordering::Relaxed);
        let learn = |was_of_use| {
            self.spins.store(adapted(spins, MOST_SPINS, was_of_use), Ordering::Relaxed);
        };
        for look in 0..spins + YIELDS {
            if space.load(Ordering::Relaxed) != token {
                return learn(look < spins);
            }
            if look < spins {
                crate::sync::pause();
            } else {
                std::thread::yield_now();
            }
        }
        learn(false);
        // Whatever the answer, the caller looks again.
        let _ = futex::wait_while(space, token, Some(Duration::from_nanos(slice_ns)));
    }
}

/// What a look at the reader slots needs and remembers.
#[derive(Default)]
pub(super) struct Scan {
    pub(super) slots: Vec<ReaderSnapshot>,
    /// Slots whose owner died without giving them up, with the generation that died. This
    /// participant cannot write `readers`, so it remembers.
    dead: Vec<(u32, u32)>,
}

impl Publishing {
    /// Raises `reserved` for `bytes` more, after waiting for slow readers as the policy says. While it
    /// waits it does not hold the lock.
    #[cold]
    pub(super) fn make_room<'a>(
        &'a self,
        mut held: Held<'a>,
        bytes: u64,
        terms: &Terms,
    ) -> Result<Held<'a>, PublishError> {
        let mut patience = terms.patience();
        let counts = self.claim.slot();
        let mut waited = false;
        held.waited = false;
        loop {
            if held.session.fits(bytes) {
                // Another publisher made room meanwhile.
                held.waited = waited;
                return Ok(held);
            }
            let wanted = held.session.wanted(bytes);
            self.check_lap(&held, wanted)?;
            let Some(slowest) = self.slowest(&held, wanted, terms.policy) else {
                held.session.reserve(wanted);
                held.waited = waited;
                return Ok(held);
            };
            let control = self.ring.control();
            let now_ns = clock::monotonic_ns();
            match patience.judge(now_ns, &control.budget.0) {
                Verdict::Overwrite => {
                    counts.overwrites.fetch_add(1, Ordering::Relaxed);
                    held.session.reserve(wanted);
                    held.waited = waited;
                    return Ok(held);
                }
                Verdict::GiveUp => return Err(terms.given_up(PublishError::Full)),
                Verdict::Wait(_)
                    if local::is_read_here(&self.bus_id, slowest.number, slowest.generation) =>
                {
                    return Err(PublishError::WouldWaitForItself);
                }
                Verdict::Wait(slice_ns) => {
                    let space = &self.readers.control().space.0;
                    let token = space.load(Ordering::Acquire);
                    let until = self.worth_waking_at(&held, wanted);
                    control.waits.0.until.store(until, Ordering::Relaxed);
                    // SPACE
                    control.waits.0.count.fetch_add(1, Ordering::Release);
                    fence(Ordering::SeqCst);
                    crash::point(CrashPoint::AnnouncingWait);
                    if self.slowest(&held, wanted, terms.policy).is_none() {
                        continue;
                    }
                    self.check_bus(&held)?;
                    if !waited {
                        waited = true;
                        counts.waits.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(held);
                    // Those for whom this publisher waits may sleep, and not know of its messages.
                    self.wake();
                    crash::point(CrashPoint::WaitingForSpace);
                    self.space_pace.wait(space, token, slice_ns);
                    crash::point(CrashPoint::WokenForSpace);
                    let slept_ns = clock::monotonic_ns().saturating_sub(now_ns);
                    counts.waited_ns.fetch_add(slept_ns, Ordering::Relaxed);
                    held = self.hold(terms)?;
                    charge_overslept(terms.policy, &control.budget.0, slice_ns, slept_ns);
                }
            }
        }
    }

    /// The position that all readers should have reached before this publisher is woken: what it needs,
    /// or half of the ring, which costs both sides fewer wakes. It looks by itself before that, too.
    fn worth_waking_at(&self, held: &Held<'_>, wanted: u64) -> u64 {
        let capacity = self.ring.shape().capacity();
        let needed = wanted.saturating_sub(capacity);
        needed.max(held.session.tail().saturating_sub(capacity / 2))
    }

    /// Whether the files are whole, and once a lap what [`Self::check_bus`] asks.
    fn check_lap(&self, held: &Held<'_>, wanted: u64) -> Result<(), PublishError> {
        let files = [
            (self.ring.was_damaged(), RING_TRUNCATED),
            (self.claim.was_damaged(), PUBLISHERS_TRUNCATED),
        ];
        check_whole(files, held.session.tail())?;
        let capacity = self.ring.shape().capacity();
        let reserved = self.ring.control().reserved.0.load(Ordering::Relaxed);
        if reserved / capacity == wanted / capacity { Ok(()) } else { self.check_bus(held) }
    }

    /// What takes system calls to know: once a lap, and once a wait.
    fn check_bus(&self, held: &Held<'_>) -> Result<(), PublishError> {
        let reserved = self.ring.control().reserved.0.load(Ordering::Relaxed);
        if held.session.tail() > reserved {
            let what = "tail beyond reserved";
            let value = held.session.tail();
            return Err(Corrupt { what, value, position: reserved }.into());
        }
        check_whole([(self.ring.is_foreign(), RING_REWRITTEN)], held.session.tail())?;
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
        // JOIN. A reader that neither this count nor the look behind it shows has its own fence behind
        // this one, and sees how far the stream has come: see `Cursor::is_out_of_reach`.
        fence(Ordering::SeqCst);
        let joins = control.joins.0.load(Ordering::Acquire);
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
        // Of its own readers this process need not believe what any subscriber may have written.
        let ours = local::positions(&self.bus_id);
        let corrected = |mut view: SlotView| {
            let is_it = |one: &&(u32, u32, u64)| (one.0, one.1) == (view.number, view.generation);
            if let Some((_, _, position)) = ours.iter().find(is_it) {
                view.position = *position;
            }
            view
        };
        loop {
            let living = views(slots)
                .filter(|view| !dead.contains(&(view.number, view.generation)))
                .map(corrected);
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
    pub(super) fn read_slots(&self, slots: &mut Vec<ReaderSnapshot>) {
        let used = self.readers.control().slots_used.0.load(Ordering::Acquire);
        if self.readers.scan(used, slots).is_err() {
            slots.clear();
        }
    }
}

pub(super) fn views(slots: &[ReaderSnapshot]) -> impl Iterator<Item = SlotView> {
    (0..).zip(slots).map(|(number, slot)| SlotView {
        number,
        generation: slot.generation,
        state: slot.state,
        flags: slot.flags,
        position: slot.position,
        arms: slot.arms,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::pace::FEWEST_SPINS;
    use super::*;

    #[test]
    fn polling_for_room_is_given_up_where_it_is_of_no_use() {
        let pace = SpacePace::default();
        let space = AtomicU32::new(7);
        for _ in 0..20 {
            pace.wait(&space, 7, 1);
        }
        assert_eq!(pace.spins.load(Ordering::Relaxed), FEWEST_SPINS);
        for _ in 0..20 {
            pace.wait(&space, 6, 1);
        }
        assert_eq!(pace.spins.load(Ordering::Relaxed), MOST_SPINS);
    }
}
