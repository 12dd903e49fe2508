//! Who wakes a sleeper: the publisher, after each publish.
//!
//! 1. A subscriber that finds nothing says of which topics it wants nothing, arms the bus's eventcount (it raises two
//!    counters), checks the ring once more, and sleeps (`subscribe/waiting.rs`).
//! 2. A publisher commits, unlocks, fences, and compares the common counter with the one that it has noted
//!    ([`Wakers::may_be_any`]). If they are equal, and it remembers no sleeper, it makes no system call.
//!    An exclusive publisher leaves out the fence while no subscriber sleeps (`notify/adaptive_fence.rs`).
//! 3. Otherwise it looks who has armed since, and wakes those that sleep and want what was published: each at its futex, or
//!    with a datagram. It remembers the others.
//! 4. A publisher that crosses a quarter of the ring wakes all that it remembers: a subscriber that wants nothing of what is
//!    published would otherwise fall behind, and publishers would wait for it.
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
use crate::notify::{ArmedSlot, Audience, DatagramWaker, MulticastWaker, Sleepers, Wakers};
use crate::ring::bounds::topic_of;
use crate::ring::layout::{READER_HAS_SOCKET, READER_NEEDS_FENCE, SLOT_ACTIVE};
use crate::settings::LockKind;
use crate::shm::directory::BusDirectory;
use crate::shm::header::Header;
use crate::sync::{Ordering, fence_after_unlock, full_fence};
use crate::topic::frame::Tag;
use std::io;
use std::os::fd::AsFd;
use std::sync::PoisonError;

/// Wakes the subscribers of a bus that sleep.
pub(super) struct Wake {
    wakers: Wakers,
    lock: LockKind,
}

/// Whom the record with a tag is for. A record without a topic's number has the number 0xFF_FFFF, for which there is no row, so
/// it is for all.
pub(super) fn audience_of(tag: u32) -> Audience {
    if Tag::from_raw(tag).is_to_descendants() { Audience::All } else { Audience::of(topic_of(tag)) }
}

impl Wake {
    pub(super) fn open(directory: &BusDirectory, header: &Header) -> Result<Self, FileError> {
        let failed =
            |action, source| FileError::Os { action, path: directory.path().to_owned(), source };
        let settings = &header.settings;
        let slots = settings.max_subscribers;
        let wakers = match settings.notify.multicast_group(&header.bus_id) {
            Some(group) => {
                let waker = MulticastWaker::connect(group)
                    .map_err(|error| failed("reach the multicast group of", error))?;
                Wakers::with_multicast(waker, slots)
            }
            None => {
                let sockets = directory.open_sockets()?;
                let waker = DatagramWaker::new(sockets.as_fd(), slots)
                    .map_err(|error| failed("open the sockets of", error))?;
                Wakers::with_datagrams(waker, slots)
            }
        };
        Ok(Self { wakers, lock: settings.lock })
    }

    /// Wakes the subscribers that sleep and want what was published. Call it after the unlock, or after the commit if the
    /// publisher keeps the lock.
    #[inline]
    pub(super) fn sleepers(
        &self,
        participant: &Participant,
        keeps_lock: bool,
        audience: impl Fn() -> Audience,
    ) {
        hook::point(CrashPoint::BeforeWake);
        if hook::is_dead() {
            return;
        }
        let sleepers = SleepersOf { wake: self, participant, audience };
        if keeps_lock {
            // SLEEP
            participant.adaptive_fence.look(&participant.ring.control().asymmetric.0, &sleepers);
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
        let sleepers = SleepersOf { wake: self, participant, audience: || Audience::All };
        participant.adaptive_fence.stop(&participant.ring.control().asymmetric.0, &sleepers);
    }

    /// Makes the next look wake all that sleep, also those that want nothing of what is published.
    pub(super) fn all_next(&self) {
        self.wakers.wake_all_next();
    }
}

/// The subscribers, as a publisher sees them.
struct SleepersOf<'a, A> {
    wake: &'a Wake,
    participant: &'a Participant,
    audience: A,
}

impl<A: Fn() -> Audience> SleepersOf<'_, A> {
    fn wake_those(&self, audience: Audience) {
        let participant = self.participant;
        let armed = |armed: &mut Vec<ArmedSlot>| list_armed(participant, armed);
        let eventcount = eventcount_of(&participant.ring, &participant.readers);
        let sent = self.wake.wakers.wake(eventcount, audience, armed);
        if sent > 0 {
            participant.count_wakes(sent as u64);
        }
    }

    #[cold]
    fn concerns_any(&self) -> bool {
        let eventcount = eventcount_of(&self.participant.ring, &self.participant.readers);
        self.wake.wakers.concerns(eventcount, (self.audience)())
    }
}

impl<A: Fn() -> Audience> Sleepers for SleepersOf<'_, A> {
    #[inline(always)]
    fn is_any_new(&self) -> bool {
        self.wake.wakers.may_be_any(&self.participant.readers.control().sleeps.0)
            && self.concerns_any()
    }

    #[cold]
    fn wake(&self) {
        self.wake_those((self.audience)());
    }

    #[cold]
    fn wake_all(&self) {
        self.wake_those(Audience::All);
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
            .map(|view| ArmedSlot { slot: view.number, generation: view.generation }),
    );
    Ok(())
}
