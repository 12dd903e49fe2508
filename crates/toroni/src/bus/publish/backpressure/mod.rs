//! Room for the next record: the pass over slow readers, and the wait for them.
//!
//! A publisher cannot write the readers' slots, and does not trust them. With the writer lock it makes passes:
//! each reads the slots with one system call, and costs the same whatever stands in them. It makes one a block,
//! and a second one before a wait. Without the lock it waits, and asks the kernel whether those in the way live:
//! any subscriber can make the kernel's answer slow, and have it asked again and again. That costs the time of
//! this call, which its limits end, and of nobody else. The publisher remembers by itself who is dead.

#[cfg(all(test, not(loom)))]
mod attacks;

use crate::bus::publish::participant::{Held, Publishing, Terms};
use crate::bus::subscribe::backoff::adapted;
use crate::bus::views::{PUBLISHERS_TRUNCATED, RING_REWRITTEN, RING_TRUNCATED, check_whole};
use crate::bus::{clock, local};
use crate::crash::{self, CrashPoint};
use crate::error::{Corrupt, PublishError};
use crate::notify::futex;
use crate::ring::gate::{self, Dead, Readers, Stretch, Suspect, Unowned};
use crate::ring::position::to_index;
use crate::ring::slots::SlotView;
use crate::ring::wait_budget::{SLICE_NS, Verdict, charge_overslept};
use crate::ring::waits;
use crate::settings::Policy;
use crate::shm::dumping;
use crate::shm::snapshot::ReaderSnapshot;
use crate::sync::{AtomicU32, Ordering};
use std::io;
use std::sync::PoisonError;
use std::time::Duration;

/// Looks at the `space` word before a publisher that waits for room lets others run, at the most, and then
/// before it sleeps. A reader on another core frees room within microseconds; where there are more processes
/// than cores, it can only run when the publisher does not.
const MOST_SPINS: u32 = 500;
const YIELDS: u32 = 20;

/// How long publishers of one participant poll for room: as long as it has been of use.
#[derive(Debug)]
pub(in crate::bus) struct SpaceBackoff {
    spins: AtomicU32,
}

impl Default for SpaceBackoff {
    fn default() -> Self {
        Self { spins: AtomicU32::new(MOST_SPINS) }
    }
}

impl SpaceBackoff {
    /// Waits until `space` is no longer `token`, at most `slice_ns`.
    fn wait(&self, space: &AtomicU32, token: u32, slice_ns: u64) {
        if self.poll(space, token, slice_ns, clock::monotonic_ns, std::thread::yield_now) {
            return;
        }
        // Whatever the answer, the caller checks again.
        let _ = futex::wait_while(space, token, Some(Duration::from_nanos(slice_ns)));
    }

    /// Polls until `space` is no longer `token`, or the slice is over; false if that may still come.
    /// Whoever lets others run comes back when they have run: where there are many, after more than a
    /// slice each time.
    fn poll(
        &self,
        space: &AtomicU32,
        token: u32,
        slice_ns: u64,
        now_ns: impl Fn() -> u64,
        let_others_run: impl Fn(),
    ) -> bool {
        let spins = self.spins.load(Ordering::Relaxed);
        let learn = |was_of_use| {
            self.spins.store(adapted(spins, MOST_SPINS, was_of_use), Ordering::Relaxed);
        };
        let mut began_ns = None;
        for check in 0..spins + YIELDS {
            if space.load(Ordering::Relaxed) != token {
                learn(check < spins);
                return true;
            }
            if check < spins {
                crate::sync::pause();
                continue;
            }
            let began_ns = *began_ns.get_or_insert_with(&now_ns);
            let_others_run();
            if now_ns().saturating_sub(began_ns) >= slice_ns {
                learn(false);
                return true;
            }
        }
        learn(false);
        false
    }
}

/// What a look at the reader slots needs and remembers.
#[derive(Default)]
pub(in crate::bus) struct Scan {
    pub(in crate::bus) slots: Vec<ReaderSnapshot>,
    dead: Dead,
}

impl Publishing {
    /// Raises `reserved` for `bytes` more, after waiting for slow readers as the policy says. While it
    /// waits it does not hold the lock.
    #[cold]
    pub(in crate::bus) fn make_space<'a>(
        &'a self,
        mut held: Held<'a>,
        bytes: u64,
        terms: &Terms,
    ) -> Result<Held<'a>, PublishError> {
        let mut wait_budget = terms.wait_budget();
        let mut unowned = Unowned::default();
        let counts = self.claim.slot();
        let (mut waited, mut asked, mut gives_up) = (false, false, false);
        held.waited = false;
        let to_reserve = loop {
            if held.appender.fits(bytes) {
                // Another publisher made room meanwhile.
                break None;
            }
            let wanted = held.appender.wanted(bytes);
            self.check_lap(&held, wanted)?;
            let mut suspects = self.in_the_way(&held, wanted, terms.policy, &unowned)?;
            if suspects.is_empty() {
                break Some(wanted);
            }
            let control = self.ring.control();
            let now_ns = clock::monotonic_ns();
            // A call that has no time left does not overwrite because the question took some.
            let verdict = if gives_up {
                Verdict::GiveUp
            } else {
                wait_budget.judge(now_ns, &control.budget.0)
            };
            // How long to wait, and the value of `space` during which to sleep.
            let wait = match verdict {
                Verdict::Overwrite => {
                    counts.overwrites.fetch_add(1, Ordering::Relaxed);
                    break Some(wanted);
                }
                Verdict::GiveUp if asked => return Err(terms.given_up(PublishError::Full)),
                // Perhaps those in the way are dead.
                Verdict::GiveUp => {
                    gives_up = true;
                    None
                }
                Verdict::Wait(slice_ns) => {
                    let space = &self.readers.control().space.0;
                    let until = self.worth_waking_at(&held, wanted);
                    let mut failure = None;
                    let has_space = || {
                        match self.in_the_way(&held, wanted, terms.policy, &unowned) {
                            Ok(found) => suspects = found,
                            Err(error) => failure = Some(error),
                        }
                        suspects.is_empty()
                    };
                    let Some(token) =
                        waits::register_waiter(&control.waits.0, space, until, has_space)
                    else {
                        break Some(wanted);
                    };
                    if let Some(failure) = failure {
                        return Err(failure);
                    }
                    self.check_bus(&held)?;
                    Some((slice_ns, token))
                }
            };
            drop(held);
            if wait.is_some() {
                if self.would_wait_for_itself(&suspects, now_ns) {
                    return Err(PublishError::WouldWaitForItself);
                }
                // Those for whom this publisher waits may sleep, and not know of its messages.
                self.wake();
                crash::point(CrashPoint::WaitingForSpace);
            }
            // Counted from here: whoever was woken above may have had the processor meanwhile.
            let slice_ns = wait.map_or(SLICE_NS, |(slice_ns, _)| slice_ns);
            let deadline_ns = clock::monotonic_ns().saturating_add(slice_ns);
            let is_anybody_alive = self.ask(&suspects, &mut unowned, deadline_ns);
            asked = true;
            if let Some((_, token)) = wait.filter(|_| is_anybody_alive) {
                if !waited {
                    waited = true;
                    counts.waits.fetch_add(1, Ordering::Relaxed);
                }
                let left_ns = deadline_ns.saturating_sub(clock::monotonic_ns());
                self.space_backoff.wait(&self.readers.control().space.0, token, left_ns);
                crash::point(CrashPoint::WokenForSpace);
                let waited_ns = clock::monotonic_ns().saturating_sub(now_ns);
                counts.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
            }
            let took_ns = clock::monotonic_ns().saturating_sub(now_ns);
            held = self.hold(terms)?;
            if let Some((slice_ns, _)) = wait {
                charge_overslept(terms.policy, &control.budget.0, slice_ns, took_ns);
            }
        };
        if let Some(wanted) = to_reserve {
            held.appender.reserve(wanted);
        }
        held.waited = waited;
        Ok(held)
    }

    /// Asks whether those in the way live, until `deadline_ns`, without the writer lock. Remembers who is dead.
    /// Returns whether somebody is alive, as far as is known.
    fn ask(&self, suspects: &[Suspect], unowned: &mut Unowned, deadline_ns: u64) -> bool {
        let numbers: Vec<u32> = suspects.iter().map(|suspect| suspect.number).collect();
        let go_on = || clock::monotonic_ns() < deadline_ns;
        let ask = |numbers: &[u32]| self.reader_leases.census(numbers, go_on);
        // If the kernel does not answer, nobody is dead.
        let Ok(mut census) = ask(&numbers) else { return true };
        if !census.is_any_held && !numbers.iter().all(|number| census.is_free(*number)) {
            // The time was over before all were asked about. One more question, about another one each time, so
            // that the next round has fewer to ask about, however slow the answers are.
            let one = numbers[to_index(clock::monotonic_ns()) % numbers.len()];
            let Ok(more) = ask(&[one]) else { return true };
            census.free.extend(more.free);
            census.is_any_held = more.is_any_held;
        }
        let is_free = |number: u32| census.is_free(number);
        let are_all_dead = suspects.iter().all(|suspect| is_free(suspect.number));
        if census.is_any_held {
            unowned.note_alive();
        } else if are_all_dead {
            unowned.note(suspects, is_free);
        }
        let dumping =
            if census.is_any_held { self.dumping(suspects, deadline_ns) } else { Vec::new() };
        let mut scan = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        scan.dead.learn(suspects, is_free);
        scan.dead.learn(&dumping, |_| true);
        #[cfg(all(test, not(loom)))]
        attacks::ROUNDS.set(attacks::ROUNDS.get() + 1);
        !are_all_dead
    }

    /// Whether the calling thread would have to serve one of the subscribers in the way itself.
    fn would_wait_for_itself(&self, suspects: &[Suspect], now_ns: u64) -> bool {
        suspects.iter().any(|Suspect { number, generation }| {
            local::would_wait_for_itself(&self.bus_id, *number, *generation, now_ns)
        })
    }

    /// The position that all readers should have reached before this publisher is woken: what it needs,
    /// or half of the ring, which costs both sides fewer wakes. It looks by itself before that, too.
    fn worth_waking_at(&self, held: &Held<'_>, wanted: u64) -> u64 {
        let capacity = self.ring.shape().capacity();
        let needed = wanted.saturating_sub(capacity);
        needed.max(held.appender.tail().saturating_sub(capacity / 2))
    }

    /// Whether the files are whole, and once a lap what [`Self::check_bus`] asks.
    fn check_lap(&self, held: &Held<'_>, wanted: u64) -> Result<(), PublishError> {
        let files = [
            (self.ring.was_damaged(), RING_TRUNCATED),
            (self.claim.was_damaged(), PUBLISHERS_TRUNCATED),
        ];
        check_whole(files, held.appender.tail())?;
        let capacity = self.ring.shape().capacity();
        let reserved = self.ring.control().reserved.0.load(Ordering::Relaxed);
        if reserved / capacity == wanted / capacity { Ok(()) } else { self.check_bus(held) }
    }

    /// What takes system calls to know: once a lap, and once a wait.
    fn check_bus(&self, held: &Held<'_>) -> Result<(), PublishError> {
        let reserved = self.ring.control().reserved.0.load(Ordering::Relaxed);
        if held.appender.tail() > reserved {
            let what = "tail beyond reserved";
            let value = held.appender.tail();
            return Err(Corrupt { what, value, position: reserved }.into());
        }
        check_whole([(self.ring.is_foreign(), RING_REWRITTEN)], held.appender.tail())?;
        // Also if it can no longer ask who of the readers lives. Before what follows, which asks descriptors.
        if !self.claim.is_alive() || self.reader_leases.is_blind() {
            return Err(PublishError::LeaseLost);
        }
        if self.ring.is_unlinked() {
            return Err(PublishError::Unlinked);
        }
        Ok(())
    }

    /// The readers that are in the way of `reserved` becoming `wanted`, dead or alive: one pass.
    fn in_the_way(
        &self,
        held: &Held<'_>,
        wanted: u64,
        policy: Policy,
        unowned: &Unowned,
    ) -> Result<Vec<Suspect>, PublishError> {
        if policy == Policy::Overwrite {
            return Ok(Vec::new());
        }
        let capacity = self.ring.shape().capacity();
        let waits = &self.ring.control().waits.0;
        let joins = gate::propose(waits, self.readers.control(), wanted);
        if self.gating_cache.covers(wanted, capacity, joins) {
            return Ok(Vec::new());
        }
        let stretch = Stretch {
            tail: held.appender.tail(),
            reserved: self.ring.control().reserved.0.load(Ordering::Relaxed),
            wanted,
            capacity,
        };
        let mut scan = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let Scan { slots, dead } = &mut *scan;
        let mut readers = Pass { publishing: self, slots };
        gate::in_the_way(&mut readers, dead, unowned, &self.gating_cache, joins, waits, stretch)
    }

    /// Returns those of the suspects whose process dumps core: they will never read again, but their leases are
    /// held until the dump is written. Asked now and then, until `deadline_ns`, beginning with another suspect each
    /// time. A subscriber can write another process's number into any slot, and so have publishers not wait for
    /// it; it could as well free that slot.
    fn dumping(&self, suspects: &[Suspect], deadline_ns: u64) -> Vec<Suspect> {
        let now_ns = clock::monotonic_ns();
        if !self.dump_tests.take(now_ns) {
            return Vec::new();
        }
        let first = to_index(now_ns) % suspects.len();
        let mut found = Vec::new();
        for suspect in suspects[first..].iter().chain(&suspects[..first]) {
            let Ok(slot) = self.readers.read(suspect.number) else { break };
            let most_threads = dumping::MOST_THREADS_OF_READER;
            if slot.generation == suspect.generation
                && dumping::has_stopped_for_good(slot.pid, slot.pid_namespace, most_threads)
            {
                found.push(*suspect);
            }
            if clock::monotonic_ns() >= deadline_ns {
                break;
            }
        }
        found
    }

    /// Reads the slots that were ever used.
    pub(in crate::bus) fn read_slots(&self, slots: &mut Vec<ReaderSnapshot>) -> io::Result<()> {
        let used = self.readers.control().slots_used.0.load(Ordering::Acquire);
        self.readers.scan(used, slots)
    }
}

/// The reader slots, as a publisher reads them.
struct Pass<'a> {
    publishing: &'a Publishing,
    slots: &'a mut Vec<ReaderSnapshot>,
}

impl Readers for Pass<'_> {
    type Failure = PublishError;

    fn read(&mut self) -> Result<(), PublishError> {
        self.publishing.read_slots(self.slots).map_err(|source| {
            if self.publishing.readers.is_blind() {
                PublishError::LeaseLost
            } else {
                PublishError::Os { action: "read the slots of the subscribers", source }
            }
        })?;
        // Of its own readers this process need not believe what any subscriber may have written.
        for (number, generation, position) in local::positions(&self.publishing.bus_id) {
            let slot = self.slots.get_mut(number as usize);
            if let Some(slot) = slot.filter(|slot| slot.generation == generation) {
                slot.position = position;
            }
        }
        #[cfg(all(test, not(loom)))]
        attacks::PASSES.set(attacks::PASSES.get() + 1);
        Ok(())
    }

    fn views(&self) -> impl Iterator<Item = SlotView> {
        views(self.slots)
    }
}

pub(in crate::bus) fn views(slots: &[ReaderSnapshot]) -> impl Iterator<Item = SlotView> {
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
    use super::*;
    use crate::bus::subscribe::backoff::FEWEST_SPINS;
    use std::cell::Cell;

    #[test]
    fn whoever_lets_others_run_for_a_slice_has_waited_for_a_slice() {
        let (backoff, space) = (SpaceBackoff::default(), AtomicU32::new(7));
        let (now_ns, turns) = (Cell::new(5), Cell::new(0));
        let poll = |turn_ns: u64| {
            turns.set(0);
            backoff.poll(
                &space,
                7,
                1_000_000,
                || now_ns.get(),
                || {
                    turns.set(turns.get() + 1);
                    now_ns.set(now_ns.get() + turn_ns);
                },
            )
        };
        // The others take ten slices: the wait is over, and its limit must be looked at.
        assert!(poll(10_000_000));
        assert_eq!(turns.get(), 1);
        // Nobody else is there.
        assert!(!poll(100));
        assert_eq!(turns.get(), YIELDS);
    }

    #[test]
    fn polling_for_space_is_given_up_where_it_is_of_no_use() {
        let backoff = SpaceBackoff::default();
        let space = AtomicU32::new(7);
        for _ in 0..20 {
            backoff.wait(&space, 7, 1);
        }
        assert_eq!(backoff.spins.load(Ordering::Relaxed), FEWEST_SPINS);
        for _ in 0..20 {
            backoff.wait(&space, 6, 1);
        }
        assert_eq!(backoff.spins.load(Ordering::Relaxed), MOST_SPINS);
    }
}
