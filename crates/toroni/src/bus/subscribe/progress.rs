//! How a subscriber publishes its position, and wakes a publisher that waits for it.
//!
//! 1. About once a block, and whenever it has read all, the subscriber writes its position and counts to
//!    its slot. If it holds messages (`hold.rs`), it writes the position of the first of them instead.
//! 2. If a publisher has registered as a waiter for a position that this subscriber has reached, and no
//!    other subscriber is still before it, the subscriber raises `space` and wakes one publisher
//!    (`ring/waits.rs`). That one wakes the next when it has written.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::claim::ReaderClaim;
use super::hold::Hold;
use crate::bus::local::LocalReader;
use crate::bus::views::ring_of;
#[cfg(doc)]
use crate::error::ReceiveError;
use crate::hook::{self, CrashPoint};
use crate::notify::futex;
use crate::ring::reader::Cursor;
use crate::ring::slots;
use crate::ring::waits::{self, Registered};
use crate::sync::Ordering;
use crate::topic::Lost;

/// What a subscriber has seen since it subscribed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberStats {
    /// Messages passed on to the caller.
    pub received: u64,
    /// Messages of the whole bus that were overwritten before this subscriber read them.
    pub lost_messages: u64,
    /// How often messages were lost.
    pub lapses: u64,
    /// Losses on the way to this bus that this subscriber was told of ([`ReceiveError::Lost`]).
    pub losses: u64,
    /// Messages that were lost on the way to this bus: the sum of what these losses state
    /// ([`Lost::messages`]), exact or not.
    pub lost_on_the_way: u64,
    /// Messages that were too old when it received them, and that it passed over
    /// ([`SubscriberBuilder::max_age`](crate::SubscriberBuilder::max_age)).
    pub stale: u64,
    /// Records of a kind that only a later release knows, on its topics or on none, and that it passed over.
    pub unknown: u64,
}

impl SubscriberStats {
    /// Counts messages that were passed on.
    #[inline(always)]
    pub(super) const fn add_received(&mut self, messages: u64) {
        // Each was passed on by a call, so they are far fewer than 2^64.
        self.received = self.received.wrapping_add(messages);
    }

    /// Counts a loss on the way to this bus. Its number comes from elsewhere, and may be any.
    pub(super) fn add_loss(&mut self, lost: &Lost) {
        self.losses = self.losses.saturating_add(1);
        self.lost_on_the_way = self.lost_on_the_way.saturating_add(lost.messages);
    }

    /// Counts a lapse. Its number of messages comes from the sequences in the ring, and may be any.
    fn add_lapse(&mut self, lost_messages: u64) {
        self.lapses = self.lapses.saturating_add(1);
        self.lost_messages = self.lost_messages.saturating_add(lost_messages);
    }
}

/// What a subscriber has published of its progress, and its counts.
pub(super) struct Progress {
    local: Option<LocalReader>,
    /// What is in the slot. Without a hold, it is how far the subscriber had read.
    pub(super) published: Cursor,
    /// How far the subscriber had read when it wrote the slot, and where to write it again.
    read: u64,
    publish_at: u64,
    pub(super) hold: Option<Hold>,
    /// The count of `waits` up to which this subscriber has done its part.
    served_waits: u64,
    pub(super) counts: SubscriberStats,
}

impl Progress {
    pub(super) fn new(claim: &ReaderClaim, cursor: Cursor) -> Self {
        let position = cursor.position;
        let bus_id = claim.subscribing.ring.header().bus_id;
        let local = claim
            .gates()
            .then(|| LocalReader::register(bus_id, claim.number(), claim.generation(), position));
        Self {
            local,
            published: cursor,
            read: position,
            // The first call records which thread reads.
            publish_at: position,
            hold: None,
            served_waits: 0,
            counts: SubscriberStats::default(),
        }
    }

    /// Publishes the position, once a block.
    #[inline]
    pub(super) fn publish_if_due(&mut self, claim: &ReaderClaim, cursor: &Cursor) {
        if cursor.position >= self.publish_at {
            self.publish(claim, *cursor);
        }
    }

    /// Publishes the position if it has changed: the subscriber has read all.
    pub(super) fn caught_up(&mut self, claim: &ReaderClaim, cursor: Cursor) {
        if cursor.position != self.read {
            self.publish(claim, cursor);
        } else {
            self.note_thread();
        }
    }

    /// Counts a loss, and publishes the position from which the subscriber continues.
    pub(super) fn lapsed(&mut self, claim: &ReaderClaim, cursor: Cursor, lost_messages: u64) {
        self.counts.add_lapse(lost_messages);
        self.publish(claim, cursor);
    }

    /// Writes position and counts to the slot, for publishers that wait for free space.
    #[cold]
    pub(super) fn publish(&mut self, claim: &ReaderClaim, cursor: Cursor) {
        self.note_thread();
        let subscribing = &claim.subscribing;
        let ring = ring_of(&subscribing.ring);
        let slot = claim.slot();
        self.read = cursor.position;
        self.publish_at = cursor.position.saturating_add(ring.shape().block_bytes());
        let before = self.published.position;
        self.published = self.gating_at(claim, cursor);
        let position = self.published.position;
        if !claim.is_ours() {
            return;
        }
        slot.received.store(self.counts.received, Ordering::Relaxed);
        slot.lost_messages.store(self.counts.lost_messages, Ordering::Relaxed);
        slot.lapses.store(self.counts.lapses, Ordering::Relaxed);
        slot.losses.store(u32::try_from(self.counts.losses).unwrap_or(u32::MAX), Ordering::Relaxed);
        slot.lost_on_the_way.store(self.counts.lost_on_the_way, Ordering::Relaxed);
        self.note_position(position);
        let waits = &ring.control.waits.0;
        let registered = waits::publish_position(slot, position, waits, self.served_waits);
        // A position that was lapped gated no publisher, even if this reader had got further and has lost
        // nothing. Publishers that checked meanwhile do not know that they have to wait for it again, nor that
        // it moved back.
        if position < before || !ring.is_intact(before) {
            slots::count_join(subscribing.readers.control());
        }
        if let Some(registered) = registered {
            self.wake_publisher(claim, registered);
        }
    }

    /// Wakes a publisher that waits for free space, if this reader is the last one that it waits for. Any
    /// earlier reader would wake it in vain.
    #[cold]
    fn wake_publisher(&mut self, claim: &ReaderClaim, registered: Registered) {
        self.served_waits = registered.count;
        let readers = &claim.subscribing.readers;
        let control = readers.control();
        let ring = ring_of(&claim.subscribing.ring);
        if registered.raise_space(control, ring, readers.used_slots()) {
            // One at a time: it passes the wake on when it has written.
            hook::point(CrashPoint::ReaderBeforeSpaceWake);
            futex::wake_one(&control.space.0);
        }
    }

    /// Notes that the calling thread reads, for publishers that would wait for it.
    pub(super) fn note_thread(&self) {
        if let Some(local) = &self.local {
            local.note_thread();
        }
    }

    /// Notes a position before it is written to the slot, for publishers of this process.
    pub(super) fn note_position(&self, position: u64) {
        if let Some(local) = &self.local {
            local.note_position(position);
        }
    }
}
