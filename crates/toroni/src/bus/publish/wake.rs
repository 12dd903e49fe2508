//! Who wakes a sleeper: the publisher, after each publish.
//!
//! 1. A subscriber that finds nothing arms the bus's eventcount (it raises a counter), checks the ring once
//!    more, and sleeps (`subscribe/waiting.rs`).
//! 2. A publisher commits, unlocks, fences, and compares the counters with those that it notified last
//!    ([`Wakers::is_any_new`]). If they are equal, no subscriber went to sleep since, and it makes no system call.
//!    An exclusive publisher leaves out the fence while no subscriber sleeps (`notify/adaptive_fence.rs`).
//! 3. If they differ, it wakes: all that sleep at the futex with one call, and each armed descriptor with a
//!    datagram. Then it remembers the counters.
//!
//! `notify/eventcount.rs` says why no wake-up is lost. If a publisher dies between its commit and its wake, a
//! blocking call finds the message by itself after 50 ms
//! ([`SLEEP`](crate::bus::subscribe::waiting::SLEEP)), or after 250 ms if nothing came for a second. A
//! descriptor becomes readable with the next message.
//!
//! A publisher that waits for free space is woken by a subscriber: `subscribe/progress.rs`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::participant::Participant;
use super::reader_slots::views;
use crate::bus::views::eventcount_of;
use crate::error::FileError;
use crate::hook::{self, CrashPoint};
use crate::notify::{ArmedSlot, DatagramWaker, EventCount, MulticastWaker, Sleepers, Wakers};
use crate::ring::layout::{READER_HAS_SOCKET, READER_NEEDS_FENCE, SLOT_ACTIVE};
use crate::settings::LockKind;
use crate::shm::directory::BusDirectory;
use crate::shm::header::Header;
use crate::sync::{Ordering, fence_after_unlock, full_fence};
use std::io;
use std::os::fd::AsFd;
use std::sync::PoisonError;

/// Wakes the subscribers of a bus that sleep.
pub(super) struct Wake {
    wakers: Wakers,
    lock: LockKind,
}

impl Wake {
    pub(super) fn open(directory: &BusDirectory, header: &Header) -> Result<Self, FileError> {
        let failed =
            |action, source| FileError::Os { action, path: directory.path().to_owned(), source };
        let settings = &header.settings;
        let wakers = match settings.notify.multicast_group(&header.bus_id) {
            Some(group) => Wakers::with_multicast(
                MulticastWaker::connect(group)
                    .map_err(|error| failed("reach the multicast group of", error))?,
            ),
            None => {
                let sockets = directory.open_sockets()?;
                let waker = DatagramWaker::new(sockets.as_fd(), settings.max_subscribers)
                    .map_err(|error| failed("open the sockets of", error))?;
                Wakers::with_datagrams(waker)
            }
        };
        Ok(Self { wakers, lock: settings.lock })
    }

    /// Wakes the subscribers that sleep. Call it after the unlock, or after the commit if the publisher keeps the
    /// lock.
    #[inline]
    pub(super) fn sleepers(&self, participant: &Participant, keeps_lock: bool) {
        hook::point(CrashPoint::BeforeWake);
        if hook::is_dead() {
            return;
        }
        let sleepers = SleepersOf { wake: self, participant };
        if keeps_lock {
            // SLEEP
            participant.adaptive_fence.look(sleepers.eventcount().asymmetric, &sleepers);
            return;
        }
        // SLEEP
        match self.lock {
            LockKind::Lease => fence_after_unlock(),
            LockKind::Robust => full_fence(),
        }
        if sleepers.is_any_new() {
            sleepers.wake();
        }
    }

    /// Makes an exclusive publisher, which may have left the fence out, wake the subscribers that sleep. The next
    /// look is fenced.
    #[cold]
    pub(super) fn sleepers_with_fence(&self, participant: &Participant) {
        let sleepers = SleepersOf { wake: self, participant };
        participant.adaptive_fence.stop(sleepers.eventcount().asymmetric, &sleepers);
    }
}

/// The subscribers, as a publisher sees them.
struct SleepersOf<'a> {
    wake: &'a Wake,
    participant: &'a Participant,
}

impl<'a> SleepersOf<'a> {
    #[inline(always)]
    fn eventcount(&self) -> EventCount<'a> {
        eventcount_of(&self.participant.ring, &self.participant.readers)
    }
}

impl Sleepers for SleepersOf<'_> {
    #[inline(always)]
    fn is_any_new(&self) -> bool {
        self.wake.wakers.is_any_new(self.eventcount())
    }

    #[cold]
    fn wake(&self) {
        let armed = |armed: &mut Vec<ArmedSlot>| list_armed(self.participant, armed);
        let sent = self.wake.wakers.wake(self.eventcount(), armed);
        if sent > 0 {
            self.participant.count_wakes(sent as u64);
        }
    }

    fn is_any_refused(&self) -> bool {
        let participant = self.participant;
        let mut readers = participant.reader_slots.lock().unwrap_or_else(PoisonError::into_inner);
        if participant.read_slots(&mut readers.slots).is_err() {
            // The next attempt may tell.
            return true;
        }
        // The owner of a slot may have died without a word. If the kernel does not answer, it counts as alive.
        views(&readers.slots).any(|view| {
            view.state == SLOT_ACTIVE
                && view.flags & READER_NEEDS_FENCE != 0
                && !matches!(participant.reader_leases.is_held(view.number), Ok(false))
        })
    }

    fn published(&self) -> u64 {
        self.participant.claim.slot().messages.load(Ordering::Relaxed)
    }
}

/// Lists the slots whose subscribers may wait at a socket.
#[cold]
fn list_armed(participant: &Participant, armed: &mut Vec<ArmedSlot>) -> io::Result<()> {
    let mut readers = participant.reader_slots.lock().unwrap_or_else(PoisonError::into_inner);
    participant.read_slots(&mut readers.slots)?;
    armed.extend(
        views(&readers.slots)
            .filter(|view| view.state == SLOT_ACTIVE && view.flags & READER_HAS_SOCKET != 0)
            .map(|view| ArmedSlot {
                slot: view.number,
                generation: view.generation,
                arms: view.arms,
            }),
    );
    Ok(())
}
