//! How publishers wait for space, and how a reader wakes one of them: the order of steps, without
//! the sleep itself.
//!
//! # Why no publisher waits in vain
//!
//! 1. A publisher loads its token from `space`, registers itself, executes a fence, rechecks the
//!    readers, and only then sleeps, as long as `space` has the token's value.
//! 2. A reader stores its position, executes a fence, and checks whether a publisher is registered.
//! 3. At least one of the two sees the other. If the publisher sees the position, it does not
//!    sleep. If the reader sees the registration, it checks whether the other readers have also
//!    come as far as the publisher needs. Readers see one another's positions in the same way, so
//!    the last of them notices that it is the last.
//! 4. That reader raises `space`, which ends the publisher's sleep or prevents it.
//!
//! Readers wake one publisher at a time. A publisher that was woken wakes the next one after it has
//! written. If a reader dies or leaves in between, the publisher loses at most one slice of its
//! wait.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{ReaderSlot, ReadersControl, Waits};
use super::memory::Ring;
use super::slots;
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{AtomicU32, Ordering, fence};

/// Registers the caller, which owns the writer lock, as waiting until all readers have reached
/// `until`. Returns the value of `space` during which to sleep, or `None` if there is space by now.
pub(crate) fn register_waiter(
    waits: &Waits,
    space: &AtomicU32,
    until: u64,
    has_space: impl FnOnce() -> bool,
) -> Option<u32> {
    let token = space.load(Ordering::Acquire);
    waits.until.store(until, Ordering::Relaxed);
    // SPACE
    waits.count.fetch_add(1, Ordering::Release);
    fence(Ordering::SeqCst);
    hook::point(CrashPoint::RegisteringWait);
    if !mutant("wait_without_a_recheck") && has_space() {
        return None;
    }
    Some(token)
}

/// Wakes the next publisher if the caller was woken itself, because readers wake one publisher at a
/// time. To be called after the unlock.
#[inline(always)]
pub(crate) fn pass_on(waited: bool, wake_one: impl FnOnce()) {
    if waited && !mutant("wake_is_not_passed_on") {
        hook::point(CrashPoint::BeforePassingOn);
        wake_one();
    }
}

/// Publishes a reader's position. Returns a registration if a publisher waits for just that
/// position: the caller then wakes it. `served` is the number of the last registration that the
/// caller handled.
#[inline]
pub(crate) fn publish_position(
    slot: &ReaderSlot,
    position: u64,
    waits: &Waits,
    served: u64,
) -> Option<Registered> {
    slot.position.store(position, Ordering::Release);
    hook::point(CrashPoint::ReaderMidPosition);
    // SPACE
    if !mutant("position_without_fence") {
        fence(Ordering::SeqCst);
    }
    let count = waits.count.load(Ordering::Acquire);
    (count != served && position >= waits.until.load(Ordering::Relaxed))
        .then_some(Registered { count })
}

/// A registration that a reader has not handled yet, although the reader is as far as requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    /// The registration's number. The reader need not handle it again.
    pub(crate) count: u64,
}

impl Registered {
    /// Raises `space` if this reader is the last one that the publisher waits for. The caller then
    /// wakes one sleeper on `space`. If other readers are missing, waking would be in vain.
    #[must_use]
    pub(crate) fn raise_space<'s>(
        self,
        control: &ReadersControl,
        ring: Ring<'_>,
        readers: impl Iterator<Item = &'s ReaderSlot>,
    ) -> bool {
        let until = ring.control.waits.0.until.load(Ordering::Relaxed);
        let reserved = ring.control.reserved.0.load(Ordering::Relaxed);
        if slots::is_any_reader_before(readers, until, reserved, ring.shape().capacity()) {
            return false;
        }
        if !mutant("space_not_raised") {
            control.space.0.fetch_add(1, Ordering::Release);
        }
        true
    }
}
