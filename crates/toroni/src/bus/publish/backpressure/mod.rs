//! What a publisher does when the ring is full, step by step.
//!
//! 1. It proposes how far it wants to reserve, and reads the slots of the subscribers once
//!    ([`gate::in_the_way`]). If no subscriber is in the way, it reserves.
//! 2. Otherwise the policy decides ([`WaitBudget::judge`](crate::ring::wait_budget::WaitBudget::judge)): wait
//!    for a slice of time, overwrite, or give up. A call that gives up first asks the kernel once, as in
//!    step 4, because those in its way may be dead.
//! 3. To wait, it registers as a waiter, checks the slots again, and gives the writer lock back. An exclusive
//!    publisher keeps the lock: no other publisher waits for it.
//! 4. Without the lock it wakes sleeping subscribers, which may be those in its way, and asks the kernel
//!    whether those in its way live ([`Backpressure::ask`]).
//! 5. If one of them lives, it polls and then sleeps until a subscriber frees space or the slice ends
//!    ([`SpaceBackoff::wait`]). The subscriber that frees the space wakes it (`subscribe/progress.rs`).
//! 6. It takes the lock again, and starts over.
//!
//! While it holds the lock, it only scans the slots. A scan is one system call, and costs the same whatever
//! the slots contain. There is one scan a block, and a second one before a wait. It asks the kernel only
//! without the lock, because any subscriber can make the kernel's answer slow, and can force it to ask
//! again. That costs only time of this call, up to its limits, and delays no other publisher. A publisher
//! cannot write the slots, so each participant remembers which subscribers are dead.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

#[cfg(all(test, not(loom)))]
mod attacks;
mod space_backoff;

use super::participant::{Held, Participant};
use super::reader_slots::{ReaderSlots, views};
use super::terms::Terms;
use super::wake::Wake;
use crate::bus::views::{PUBLISHERS_TRUNCATED, RING_REWRITTEN, RING_TRUNCATED, check_whole};
use crate::bus::{clock, local};
use crate::error::{Corrupt, PublishError};
use crate::hook::{self, CrashPoint, mutant};
use crate::notify::Audience;
use crate::ring::gate::{self, Proposal, Readers, Suspect, Unowned};
use crate::ring::layout::READER_HOLDS;
use crate::ring::position::to_index;
use crate::ring::slots::{SlotView, gating};
use crate::ring::wait_budget::{CachedGatingPosition, SLICE_NS, Verdict, charge_overslept};
use crate::ring::waits;
use crate::settings::Policy;
use crate::shm::dumping::{self, Turns};
use crate::shm::snapshot::ReaderSnapshot;
use crate::sync::Ordering;
use space_backoff::SpaceBackoff;
use std::sync::PoisonError;

/// What one participant remembers from one wait for free space to the next.
#[derive(Default)]
pub(super) struct Backpressure {
    gating_cache: CachedGatingPosition,
    backoff: SpaceBackoff,
    /// When to ask again whether a subscriber dumps core.
    dump_tests: Turns,
}

impl Backpressure {
    /// Raises `reserved` for `bytes` more, after it has waited for slow subscribers as the policy says. While
    /// it waits it does not hold the lock, unless it keeps the lock for good.
    #[cold]
    pub(super) fn make_space<'a>(
        &self,
        participant: &'a Participant,
        wake: &Wake,
        mut held: Held<'a>,
        bytes: u64,
        terms: &Terms,
    ) -> Result<Held<'a>, PublishError> {
        let mut wait_budget = terms.wait_budget();
        let mut unowned = Unowned::default();
        let counts = participant.claim.slot();
        let (mut waited, mut asked, mut gives_up) = (false, false, false);
        held.set_waited(false);
        let to_reserve = loop {
            if held.appender.fits(bytes) {
                // Another publisher has reserved the space meanwhile.
                break None;
            }
            let wanted = held.appender.wanted(bytes);
            check_lap(participant, &held, wanted)?;
            let mut suspects =
                self.in_the_way(participant, &held, wanted, terms.policy, &unowned)?;
            if suspects.is_empty() {
                break Some(wanted);
            }
            let control = participant.ring.control();
            let now_ns = clock::monotonic_ns();
            // A call that has decided to give up does so, even if the policy would overwrite by now because the
            // liveness check took long.
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
                // Perhaps the subscribers in the way are dead.
                Verdict::GiveUp => {
                    gives_up = true;
                    None
                }
                Verdict::Wait(slice_ns) => {
                    let space = &participant.readers.control().space.0;
                    let until = worth_waking_at(participant, &held, wanted);
                    let mut failure = None;
                    let has_space = || {
                        match self.in_the_way(participant, &held, wanted, terms.policy, &unowned) {
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
                    check_bus(participant, &held)?;
                    Some((slice_ns, token))
                }
            };
            drop(held);
            if wait.is_some() {
                if would_wait_for_itself(participant, &suspects, now_ns) {
                    return Err(PublishError::WouldWaitForItself);
                }
                // The subscribers that this publisher waits for may sleep, because nothing was for them, or not know of its
                // messages.
                wake.all_next();
                wake.sleepers(participant, terms.keeps_lock, || Audience::All);
                hook::point(CrashPoint::WaitingForSpace);
            }
            // Counted from here: the subscribers woken above may have had the processor meanwhile.
            let slice_ns = wait.map_or(SLICE_NS, |(slice_ns, _)| slice_ns);
            let deadline_ns = clock::monotonic_ns().saturating_add(slice_ns);
            let is_anybody_alive = self.ask(participant, &suspects, &mut unowned, deadline_ns);
            asked = true;
            if let Some((_, token)) = wait.filter(|_| is_anybody_alive) {
                if !waited {
                    waited = true;
                    counts.waits.fetch_add(1, Ordering::Relaxed);
                }
                let left_ns = deadline_ns.saturating_sub(clock::monotonic_ns());
                self.backoff.wait(&participant.readers.control().space.0, token, left_ns);
                hook::point(CrashPoint::WokenForSpace);
                let waited_ns = clock::monotonic_ns().saturating_sub(now_ns);
                counts.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
            }
            let took_ns = clock::monotonic_ns().saturating_sub(now_ns);
            held = participant.hold(terms)?;
            if let Some((slice_ns, _)) = wait {
                charge_overslept(terms.policy, &control.budget.0, slice_ns, took_ns);
            }
        };
        if let Some(wanted) = to_reserve {
            let reserved = participant.ring.control().reserved.0.load(Ordering::Relaxed);
            held.appender.reserve(wanted);
            // Those that sleep because nothing is for them must not fall behind: then publishers would wait for them.
            let quarter = participant.ring.shape().capacity() / 4;
            if reserved.checked_div(quarter) != wanted.checked_div(quarter)
                && !mutant("bystanders_fall_behind")
            {
                wake.all_next();
            }
        }
        held.set_waited(waited);
        Ok(held)
    }

    /// Asks the kernel until `deadline_ns`, without the writer lock, which subscribers in the way live.
    /// Remembers those that are dead. Returns whether one is alive, or may be.
    fn ask(
        &self,
        participant: &Participant,
        suspects: &[Suspect],
        unowned: &mut Unowned,
        deadline_ns: u64,
    ) -> bool {
        let numbers: Vec<u32> = suspects.iter().map(|suspect| suspect.number).collect();
        let go_on = || clock::monotonic_ns() < deadline_ns;
        let ask = |numbers: &[u32]| participant.reader_leases.census(numbers, go_on);
        // If the kernel does not answer, all count as alive.
        let Ok(mut census) = ask(&numbers) else { return true };
        if !census.is_any_held && !numbers.iter().all(|number| census.is_free(*number)) {
            // The time was over before all were asked about. It asks about one more, another one each
            // time, so that the next round has fewer to ask about, however slow the answers are.
            let one =
                numbers[to_index(clock::monotonic_ns()).checked_rem(numbers.len()).unwrap_or(0)];
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
        let dumping = if census.is_any_held {
            self.dumping(participant, suspects, deadline_ns)
        } else {
            Vec::new()
        };
        let mut known = participant.reader_slots.lock().unwrap_or_else(PoisonError::into_inner);
        known.dead.learn(suspects, is_free);
        known.dead.learn(&dumping, |_| true);
        #[cfg(all(test, not(loom)))]
        attacks::ROUNDS.set(attacks::ROUNDS.get() + 1);
        !are_all_dead
    }

    /// Returns the readers that keep `reserved` from becoming `wanted`, except those known to be dead. Scans the
    /// slots at most once.
    fn in_the_way(
        &self,
        participant: &Participant,
        held: &Held<'_>,
        wanted: u64,
        policy: Policy,
        unowned: &Unowned,
    ) -> Result<Vec<Suspect>, PublishError> {
        if policy == Policy::Overwrite {
            return Ok(Vec::new());
        }
        let capacity = participant.ring.shape().capacity();
        let waits = &participant.ring.control().waits.0;
        let joins = gate::propose(waits, participant.readers.control(), wanted);
        if self.gating_cache.covers(wanted, capacity, joins) {
            return Ok(Vec::new());
        }
        let proposal = Proposal {
            tail: held.appender.tail(),
            reserved: participant.ring.control().reserved.0.load(Ordering::Relaxed),
            proposed: wanted,
            capacity,
        };
        let mut known = participant.reader_slots.lock().unwrap_or_else(PoisonError::into_inner);
        let ReaderSlots { slots, dead } = &mut *known;
        let mut readers = Scan { participant, slots };
        gate::in_the_way(&mut readers, dead, unowned, &self.gating_cache, joins, waits, proposal)
    }

    /// Returns the suspects whose process dumps core: they will never read again, but their leases are held until
    /// the dump is written. Checks only now and then, until `deadline_ns`, and starts with another suspect each
    /// time. A subscriber could write the id of such a process into any slot, so that publishers do not wait for
    /// that slot. It could just as well free the slot.
    fn dumping(
        &self,
        participant: &Participant,
        suspects: &[Suspect],
        deadline_ns: u64,
    ) -> Vec<Suspect> {
        let now_ns = clock::monotonic_ns();
        if !self.dump_tests.take(now_ns) {
            return Vec::new();
        }
        let first = to_index(now_ns).checked_rem(suspects.len()).unwrap_or(0);
        let mut found = Vec::new();
        for suspect in suspects[first..].iter().chain(&suspects[..first]) {
            let Ok(slot) = participant.readers.read(suspect.number) else { break };
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
}

/// Returns the position that all readers should have reached before they wake this publisher: what it
/// needs, or half of the ring, which costs both sides fewer wakes. The publisher also checks by itself
/// before that.
///
/// A reader that holds messages may not come as far as half of the ring for long, so then it is what the
/// publisher needs. To be called after a scan of the slots.
fn worth_waking_at(participant: &Participant, held: &Held<'_>, wanted: u64) -> u64 {
    let capacity = participant.ring.shape().capacity();
    let (needed, tail) = (wanted.saturating_sub(capacity), held.appender.tail());
    let half = tail.saturating_sub(capacity / 2);
    let reserved = participant.ring.control().reserved.0.load(Ordering::Relaxed);
    let known = participant.reader_slots.lock().unwrap_or_else(PoisonError::into_inner);
    let holds = gating(views(&known.slots), tail, reserved, capacity)
        .any(|view| view.flags & READER_HOLDS != 0 && view.position < half);
    if holds { needed } else { needed.max(half) }
}

/// Returns whether the calling thread itself reads one of the subscribers in the way.
fn would_wait_for_itself(participant: &Participant, suspects: &[Suspect], now_ns: u64) -> bool {
    suspects.iter().any(|Suspect { number, generation }| {
        local::would_wait_for_itself(&participant.bus_id, *number, *generation, now_ns)
    })
}

/// Checks that the files are whole. Once a lap, it also calls [`check_bus`].
fn check_lap(participant: &Participant, held: &Held<'_>, wanted: u64) -> Result<(), PublishError> {
    let files = [
        (participant.ring.was_damaged(), RING_TRUNCATED),
        (participant.claim.was_damaged(), PUBLISHERS_TRUNCATED),
    ];
    check_whole(files, held.appender.tail())?;
    let capacity = participant.ring.shape().capacity();
    let reserved = participant.ring.control().reserved.0.load(Ordering::Relaxed);
    if reserved.checked_div(capacity) == wanted.checked_div(capacity) {
        Ok(())
    } else {
        check_bus(participant, held)
    }
}

/// Checks what takes system calls: once a lap, and once a wait.
fn check_bus(participant: &Participant, held: &Held<'_>) -> Result<(), PublishError> {
    let reserved = participant.ring.control().reserved.0.load(Ordering::Relaxed);
    if held.appender.tail() > reserved {
        let what = "tail beyond reserved";
        let value = held.appender.tail();
        return Err(Corrupt { what, value, position: reserved }.into());
    }
    check_whole([(participant.ring.is_foreign(), RING_REWRITTEN)], held.appender.tail())?;
    // Also if it can no longer ask which readers live. This comes before the next check, which uses
    // descriptors.
    if !participant.claim.is_alive() || participant.reader_leases.is_blind() {
        return Err(PublishError::LeaseLost);
    }
    if participant.ring.is_unlinked() {
        return Err(PublishError::Unlinked);
    }
    Ok(())
}

/// One scan of the slots of the subscribers.
struct Scan<'a> {
    participant: &'a Participant,
    slots: &'a mut Vec<ReaderSnapshot>,
}

impl Readers for Scan<'_> {
    type Failure = PublishError;

    fn read(&mut self) -> Result<(), PublishError> {
        self.participant.read_slots(self.slots).map_err(|source| {
            if self.participant.readers.is_blind() {
                PublishError::LeaseLost
            } else {
                PublishError::Os { action: "read the slots of the subscribers", source }
            }
        })?;
        // For the subscribers of its own process it takes the positions from memory that no other process
        // can write.
        for (number, generation, position) in local::positions(&self.participant.bus_id) {
            let slot = self.slots.get_mut(number as usize);
            if let Some(slot) = slot.filter(|slot| slot.generation == generation) {
                slot.position = position;
            }
        }
        #[cfg(all(test, not(loom)))]
        attacks::SCANS.set(attacks::SCANS.get() + 1);
        Ok(())
    }

    fn views(&self) -> impl Iterator<Item = SlotView> {
        views(self.slots)
    }
}
