//! Publishers that wait for room, and the reader that wakes one of them: the order of steps, without the
//! sleep.
//!
//! # Why no publisher waits in vain
//!
//! A publisher takes its token from `space`, announces itself, fences, looks at the readers once more,
//! and only then sleeps while `space` is the token. A reader stores its position, fences, and looks for
//! announcements. Of the two, one sees the other. The reader that sees the announcement when the others
//! have come as far as it asks for, as they see each other in the same way, raises `space`, which ends
//! the sleep, or keeps it from beginning.
//!
//! The readers wake one publisher at a time; whoever was woken passes the wake on when it has written.
//! What remains, a reader that dies or leaves in between, costs the publisher its slice of the wait.

use super::layout::{ReaderSlot, ReadersControl, Waits};
use super::memory::Ring;
use super::slots;
use crate::crash::{self, CrashPoint};
use crate::mutant::mutant;
use crate::sync::{AtomicU32, Ordering, fence};

/// Announces that the caller, the owner of the writer lock, waits until all readers have reached
/// `until`. Returns the value of `space` during which to sleep; `None` if there is `room` by now.
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
    crash::point(CrashPoint::AnnouncingWait);
    if !mutant("wait_without_a_recheck") && has_space() {
        return None;
    }
    Some(token)
}

/// Passes a wake on, behind the unlock, if the caller was woken itself: readers wake one publisher at a
/// time.
#[inline(always)]
pub(crate) fn pass_on(waited: bool, wake_one: impl FnOnce()) {
    if waited && !mutant("wake_is_not_passed_on") {
        crash::point(CrashPoint::BeforePassingOn);
        wake_one();
    }
}

/// Shows how far a reader has come, and whether a publisher waits for just that, whom the caller then
/// wakes. `served` is the announcement that it looked at last.
#[inline]
pub(crate) fn show(
    slot: &ReaderSlot,
    position: u64,
    waits: &Waits,
    served: u64,
) -> Option<Registered> {
    slot.position.store(position, Ordering::Release);
    crash::point(CrashPoint::ReaderMidPosition);
    // SPACE
    if !mutant("position_without_fence") {
        fence(Ordering::SeqCst);
    }
    let count = waits.count.load(Ordering::Acquire);
    (count != served && position >= waits.until.load(Ordering::Relaxed))
        .then_some(Registered { count })
}

/// An announcement that a reader has not answered yet, though it is as far as was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    /// Its number: this reader need not look at it again.
    pub(crate) count: u64,
}

impl Registered {
    /// Raises `space` if this reader is the last one that is waited for: those before would wake in vain.
    /// Then the caller wakes one who sleeps on it.
    #[must_use]
    pub(crate) fn raise_space<'s>(
        self,
        control: &ReadersControl,
        ring: Ring<'_>,
        readers: impl Iterator<Item = &'s ReaderSlot>,
    ) -> bool {
        let until = ring.control.waits.0.until.load(Ordering::Relaxed);
        let reserved = ring.control.reserved.0.load(Ordering::Relaxed);
        if slots::is_anybody_before(readers, until, reserved, ring.shape().capacity()) {
            return false;
        }
        if !mutant("space_not_raised") {
            control.space.0.fetch_add(1, Ordering::Release);
        }
        true
    }
}
