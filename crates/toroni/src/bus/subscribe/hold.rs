//! Holding messages: a subscriber keeps publishers from overwriting what it has already read.
//!
//! Publishers wait for the position in a subscriber's slot. A subscriber that holds messages writes the
//! position of the first of them to its slot, and not how far it has read. To publishers it looks like one
//! that reads no further.
//!
//! 1. The position comes from the blocks index: the newest entry that is not after the message. It may be
//!    before the message, but is in the same block ([`Cursor::near`]). Publishers reserve whole blocks, so
//!    they wait for both alike, and no records need be counted.
//! 2. A message that the subscriber has not read yet needs no position. The slot follows the reading until
//!    that is past the message; the position is looked up then ([`Progress::gating_at`]). Until then, the slot
//!    is at or before the message.
//! 3. If the slot is at or before the message and was not lapped, publishers respect it all the time while it
//!    moves forward. Otherwise the hold begins as a subscriber does that joins in the history: it writes the
//!    position, and then checks whether a publisher that has not seen it overwrites it (`ring/gate.rs`).
//! 4. The policy may let publishers overwrite what is held. Publishers ignore a slot that was lapped, so the
//!    hold ends as soon as the subscriber notices, and the slot follows the reading again.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::claim::ReaderClaim;
use super::decision::{Decision, never_still};
use super::progress::Progress;
use crate::bus::views::ring_of;
use crate::error::HoldError;
use crate::ring::gate::{self, ClaimedSlot};
use crate::ring::layout::READER_HOLDS;
use crate::ring::memory::Ring;
use crate::ring::reader::Cursor;
use crate::ring::slots;
use crate::sync::Ordering;

/// What a subscriber holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// The first message that is held.
    sequence: u64,
    /// The record at which the slot gates, at or before that message. `None` until the subscriber has read
    /// that message, because its slot is not past it.
    start: Option<Cursor>,
}

impl Progress {
    /// Holds all messages from `sequence` on. `cursor` is how far the subscriber has read.
    pub(super) fn hold_from(
        &mut self,
        claim: &ReaderClaim,
        cursor: Cursor,
        sequence: u64,
    ) -> Result<(), HoldError> {
        if !claim.is_ours() {
            return Err(HoldError::LeaseLost);
        }
        if !claim.gates() {
            return Err(HoldError::NotGating);
        }
        let ring = ring_of(&claim.subscribing.ring);
        self.find_start(ring, cursor);
        let is_read = sequence < cursor.sequence;
        let is_respected = ring.is_intact(self.published.position);
        let start = if !is_read && ring.is_intact(cursor.position) {
            None
        } else if self.published.sequence <= sequence && is_respected {
            Some(self.start_of(ring, sequence).ok_or_else(|| lost(ring, sequence))?)
        } else {
            Some(self.go_back(claim, cursor, sequence)?)
        };
        self.hold = Some(Hold { sequence, start: start.filter(|_| is_read) });
        claim.slot().flags.fetch_or(READER_HOLDS, Ordering::Relaxed);
        self.publish(claim, cursor);
        // The policy may have let a publisher overwrite the message meanwhile.
        if self.hold.is_some() { Ok(()) } else { Err(lost(ring, sequence)) }
    }

    /// Ends the hold.
    pub(super) fn release_hold(&mut self, claim: &ReaderClaim, cursor: Cursor) {
        if self.hold.is_some() {
            self.end_hold(claim);
            self.publish(claim, cursor);
        }
    }

    /// Returns the first message that is held and was not overwritten.
    pub(super) fn held(&self, claim: &ReaderClaim, cursor: Cursor) -> Option<u64> {
        let Hold { sequence, start } = self.hold?;
        let not_after = match start {
            Some(start) => start,
            None if sequence < cursor.sequence => self.published,
            None => cursor,
        };
        ring_of(&claim.subscribing.ring).is_intact(not_after.position).then_some(sequence)
    }

    /// Returns the record at which the slot gates if the subscriber has read as far as `cursor`. Ends a hold
    /// that was overwritten.
    #[inline]
    pub(super) fn gating_at(&mut self, claim: &ReaderClaim, cursor: Cursor) -> Cursor {
        if self.hold.is_none() { cursor } else { self.gating_at_hold(claim, cursor) }
    }

    fn gating_at_hold(&mut self, claim: &ReaderClaim, cursor: Cursor) -> Cursor {
        let ring = ring_of(&claim.subscribing.ring);
        self.find_start(ring, cursor);
        match self.hold {
            Some(Hold { sequence, start: None }) if sequence >= cursor.sequence => {
                // A subscriber that was lapped, and has not noticed, may already gate further on.
                let is_lapped = !ring.is_intact(cursor.position);
                if is_lapped && self.published.sequence <= sequence {
                    self.published
                } else {
                    cursor
                }
            }
            Some(Hold { start: Some(start), .. }) if ring.is_intact(start.position) => {
                // A reader that finds a record rewritten moves back.
                if start.position <= cursor.position { start } else { cursor }
            }
            _ => {
                self.end_hold(claim);
                cursor
            }
        }
    }

    /// Looks up the position of the hold if the subscriber has read the first message that is held.
    fn find_start(&mut self, ring: Ring<'_>, cursor: Cursor) {
        if let Some(Hold { sequence, start: None }) = self.hold
            && sequence < cursor.sequence
        {
            self.hold = Some(Hold { sequence, start: self.start_of(ring, sequence) });
        }
    }

    /// Returns a record at or before the message `sequence`: the one that the slot is at, or a later one. If
    /// the slot was lapped or is past the message, it is one from the index. `None` if the message is no
    /// longer in the ring.
    fn start_of(&self, ring: Ring<'_>, sequence: u64) -> Option<Cursor> {
        let is_before =
            |cursor: &Cursor| cursor.sequence <= sequence && ring.is_intact(cursor.position);
        let published = Some(self.published).filter(is_before);
        from_index(ring, sequence).into_iter().chain(published).max_by_key(|start| start.position)
    }

    /// Makes the slot gate at the message `sequence`, which the slot is past, or before which it was lapped.
    fn go_back(
        &mut self,
        claim: &ReaderClaim,
        cursor: Cursor,
        sequence: u64,
    ) -> Result<Cursor, HoldError> {
        let ring = ring_of(&claim.subscribing.ring);
        let find = || {
            let start = from_index(ring, sequence).ok_or_else(|| lost(ring, sequence))?;
            self.note_position(start.position);
            Ok(start)
        };
        let slot = claim.slot();
        let flags = slot.flags.load(Ordering::Relaxed);
        let claimed = ClaimedSlot { number: claim.number(), slot, flags };
        let mut decision = Decision::default();
        let control = claim.subscribing.readers.control();
        let joined = gate::join(ring, control, claimed, find, |_| true, || decision.wait());
        let joined = joined.and_then(|start| start.ok_or_else(|| never_still(ring).into()));
        match joined {
            Ok(start) => self.published = start,
            Err(_) => {
                // The previous hold stays. Publishers may have seen the slot where it was lapped.
                self.publish(claim, cursor);
                slots::count_join(control);
            }
        }
        joined
    }

    fn end_hold(&mut self, claim: &ReaderClaim) {
        self.hold = None;
        if claim.is_ours() {
            claim.slot().flags.fetch_and(!READER_HOLDS, Ordering::Relaxed);
        }
    }
}

/// Returns the newest entry of the blocks index that is not after a message.
fn from_index(ring: Ring<'_>, sequence: u64) -> Option<Cursor> {
    // TAIL
    let tail = ring.control.commit.0.tail.load(Ordering::Acquire);
    Cursor::near(ring, sequence, tail)
}

#[cold]
fn lost(ring: Ring<'_>, sequence: u64) -> HoldError {
    match Cursor::at_oldest(ring) {
        Ok(oldest) => HoldError::SequenceLost { sequence, oldest: oldest.sequence },
        Err(corrupt) => HoldError::Corrupt(corrupt),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;
    use crate::bus::subscribe::decision::LONGEST_DECISION;
    use crate::bus::{Bus, BusConfig, Start, Subscriber};
    use crate::hook::{CrashPoint, rehearsal};
    use crate::settings::{LockKind, Policy};
    use crate::shm::testing::{TempDir, in_fork, in_own_process};
    use std::time::Instant;

    /// Each message takes a block.
    const PAYLOAD: [u8; 1016] = [7; 1016];

    fn open(root: &TempDir) -> Bus {
        let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
        config.lock(LockKind::Lease).policy(Policy::Wait { limit: None }).open("b").unwrap()
    }

    fn subscribe(bus: &Bus) -> Subscriber {
        bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap()
    }

    fn drain(subscriber: &mut Subscriber) {
        while subscriber.try_receive().unwrap().is_some() {}
    }

    /// The publisher says what it needs, and not that half of the ring should be free: a hold is raised
    /// little by little. The call that raises it enough wakes the publisher.
    #[test]
    fn a_hold_that_is_raised_by_a_block_wakes_the_publisher_that_needs_it() {
        let root = TempDir::new();
        let bus = open(&root);
        let publisher = bus.publisher("t").unwrap();
        let mut subscriber = subscribe(&bus);
        subscriber.hold(0).unwrap();
        while publisher.try_publish(PAYLOAD).is_ok() {
            drain(&mut subscriber);
        }
        let subscribing = subscriber.claim.subscribing.clone();
        let waits = &subscribing.ring.control().waits.0;
        let space = &subscribing.readers.control().space.0;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| publisher.publish(PAYLOAD));
            while waits.count.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let before = space.load(Ordering::Relaxed);
            assert_eq!(waits.until.load(Ordering::Relaxed), 1024);
            subscriber.hold(1).unwrap();
            assert_ne!(space.load(Ordering::Relaxed), before, "it is woken");
            waiting.join().unwrap().unwrap();
        });
        subscriber.release_hold();
        let flags = subscriber.claim.slot().flags.load(Ordering::Relaxed);
        assert_eq!(flags & READER_HOLDS, 0);
    }

    /// A hold that goes back waits for the decision of a publisher, as a subscriber does that joins. If that
    /// publisher is dead, the messages are there.
    #[test]
    fn a_hold_goes_back_although_the_writer_that_wanted_the_space_died() {
        for fatal in [CrashPoint::Proposing, CrashPoint::BeforeWithdrawing] {
            let root = TempDir::new();
            let (bus, doomed) = (open(&root), open(&root));
            let keeper = bus.subscriber().start(Start::Oldest).build().unwrap();
            let mut subscriber = subscribe(&bus);
            let publisher = bus.publisher("t").unwrap();
            while publisher.try_publish(PAYLOAD).is_ok() {
                drain(&mut subscriber);
            }
            let victim = doomed.publisher("t").unwrap();
            let dies = move |reached: &[CrashPoint]| reached.last() == Some(&fatal);
            let (_, lived) = rehearsal::act(dies, || victim.try_publish(PAYLOAD));
            assert!(lived.is_none(), "{fatal:?} is not on its way");
            rehearsal::bury((victim, doomed));
            let began = Instant::now();
            subscriber.hold(0).unwrap();
            assert!(began.elapsed() >= LONGEST_DECISION, "it waits for a decision");
            drop(keeper);
            assert!(publisher.try_publish(PAYLOAD).is_err());
            assert_eq!(subscriber.held(), Some(0));
        }
    }

    /// What a publisher has learned from the slots is out of date when a hold goes back.
    #[test]
    fn a_publisher_scans_again_after_a_hold_went_back() {
        let root = TempDir::new();
        let bus = open(&root);
        let publisher = bus.publisher("t").unwrap();
        let mut subscriber = subscribe(&bus);
        for _ in 0..100 {
            publisher.try_publish(PAYLOAD).unwrap();
            drain(&mut subscriber);
        }
        // Somewhere in here the publisher has seen the slot further on, and remembers that.
        for last in 100..200 {
            publisher.try_publish(PAYLOAD).unwrap();
            drain(&mut subscriber);
            subscriber.hold(last - 40).unwrap();
            for _ in 0..30 {
                let _ = publisher.try_publish(PAYLOAD);
            }
            assert_eq!(subscriber.held(), Some(last - 40));
            subscriber.release_hold();
            drain(&mut subscriber);
        }
    }

    #[test]
    fn a_slot_that_was_lost_holds_nothing() {
        let root = TempDir::new();
        let bus = open(&root);
        let mut subscriber = subscribe(&bus);
        subscriber.claim.slot().generation.fetch_add(1, Ordering::Relaxed);
        let error = subscriber.hold(0).unwrap_err();
        assert!(matches!(error, HoldError::LeaseLost), "{error}");
    }

    #[test]
    fn a_hold_belongs_to_the_process_that_made_the_subscriber() {
        let name = concat!(
            "bus::subscribe::hold::tests::",
            "a_hold_belongs_to_the_process_that_made_the_subscriber"
        );
        in_own_process(name, || {
            let root = TempDir::new();
            let bus = open(&root);
            let mut subscriber = subscribe(&bus);
            subscriber.hold(0).unwrap();
            in_fork(|| {
                let error = subscriber.hold(5).unwrap_err();
                assert!(matches!(error, HoldError::Forked(_)), "{error}");
                subscriber.release_hold();
            });
            assert_eq!(subscriber.held(), Some(0));
            let flags = subscriber.claim.slot().flags.load(Ordering::Relaxed);
            assert_ne!(flags & READER_HOLDS, 0);
        });
    }
}
