//! The fence between the commit of an exclusive publisher and its look for sleepers, which it leaves out while no
//! subscriber goes to sleep.
//!
//! A shared publisher gets this fence with its unlock. An exclusive one would execute a locked instruction for each
//! message just for it. So the costs are moved to the subscriber that goes to sleep, which is rare while messages come
//! fast: it executes a membarrier(2) instead, which interrupts the publisher's processor (about 20 µs).
//!
//! ```text
//!  subscriber                                   publisher
//!  arm: token, counts + 1, fence  (SLEEP)       fenced:    COMMIT, fence (SLEEP), none to wake?
//!  `asymmetric` not 0: membarrier                          after many of these: `asymmetric` := me, fence (SLEEP),
//!  recheck: nothing there?                                 none to wake? yes: unfenced, no: as below
//!  wait                                         unfenced:  COMMIT, light fence (SLEEP), none to wake?
//!                                                          no: fence, wake all, `asymmetric` := 0, fenced
//! ```
//!
//! # Why no wake-up is lost
//!
//! The argument of `eventcount.rs` needs one thing: if the subscriber's recheck misses a commit, then the publisher's
//! look after that commit sees the announcement. For a fenced commit, the two fences ensure it. Take an unfenced commit,
//! and the value of `asymmetric` that the subscriber reads after its announcement and its fence:
//!
//! - It is not 0. Then the subscriber executes a membarrier, which together with the light fence of the publisher acts as
//!   a pair of fences: the recheck sees the commit, or the publisher's look sees the announcement.
//! - It is 0, from before the publisher stored its mark. Then the subscriber's fence precedes the one that follows the
//!   store of the mark, or else the subscriber would have read the mark. So the look after that fence sees the
//!   announcement, before there is any unfenced commit. The publisher wakes, and stays fenced.
//! - It is 0, from when the publisher removed its mark. Before that, it fenced and looked once more. If that fence
//!   precedes the subscriber's, the recheck sees all unfenced commits; otherwise that look sees the announcement. It wakes
//!   all that sleep, because the commit that the recheck missed may be one of another topic than the last.
//! - It is 0, from a takeover. The unfenced publisher is dead, or has lost its lease and stops at its next message. It
//!   may not wake a subscriber for its last message: for that, a blocking call rechecks by itself. After each earlier
//!   message it has looked, so the cases above cover those.
//!
//! So the mark may stand longer than needed, for example when its publisher is stopped, waits for space, or was killed:
//! that costs a subscriber a membarrier, and no more. It must never be absent while a publisher with the lock is unfenced. Therefore it
//! names its publisher, and only that one removes it, or one that has taken over the lock.
//!
//! # If membarrier is refused
//!
//! Old kernels do not have it, and a filter of system calls may refuse it. If the publisher cannot register, it stays
//! fenced. If a subscriber is refused, it sets a flag in its slot, announces its sleep again, and waits for
//! [`STORES_ARE_VISIBLE`] before it rechecks. As long as there is such a slot, no publisher begins to leave the fence
//! out:
//!
//! - If a publisher is unfenced already, it looks at the counters after each commit. A look that took place before the
//!   announcement belongs to a commit that is visible after the wait, because no processor holds a store back that long.
//!   Any later look sees the announcement, and makes the publisher fenced.
//! - If a publisher looks for such slots and misses the flag, then its look after the store of its mark sees the
//!   announcement, or the subscriber sees the mark, and waits.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::ArmingSlot;
use crate::hook::{self, mutant};
use crate::sync::membarrier::light_fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, full_fence};

/// This many looks for sleepers in a row must have found none before the fence is left out. A membarrier costs the
/// publisher as much as 1,000 to 2,000 fences.
const QUIET_LOOKS: u32 = if cfg!(loom) { 1 } else { 4096 };
/// The most that [`QUIET_LOOKS`] grows to.
const MOST_QUIET_LOOKS: u32 = if cfg!(loom) { 1 } else { 1 << 20 };
/// Fewer than this many times [`QUIET_LOOKS`] messages without a fence were not worth a membarrier: then it takes twice as
/// many looks until the next attempt.
const WORTH_IT: u64 = 4;

/// The count of quiet looks of a publisher that leaves the fence out.
const UNFENCED: u32 = u32::MAX;

/// After this time every store that a processor has executed is visible to all others. They take nanoseconds.
#[cfg(not(loom))]
const STORES_ARE_VISIBLE: std::time::Duration = std::time::Duration::from_millis(1);

/// What the fence is for: the sleepers, as the publisher sees them.
pub(crate) trait Sleepers {
    /// Returns whether a subscriber has announced a sleep since the last look for sleepers, or one is to be woken. Also a
    /// subscriber that wants none of the messages counts when it announces its sleep: the publisher then goes back to fences,
    /// on which a subscriber that is refused a membarrier relies.
    fn is_any_new(&self) -> bool;

    /// Wakes those that want the message that was committed last.
    fn wake(&self);

    /// Wakes all that sleep: they may want one of the messages before.
    fn wake_all(&self);

    /// Returns whether there is a subscriber that cannot execute a membarrier.
    fn is_any_refused(&self) -> bool;

    /// Returns how many messages this publisher has published.
    fn published(&self) -> u64;
}

/// Whether an exclusive publisher leaves out the fence. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct AdaptiveFence {
    /// The publisher's mark in `asymmetric`, not 0.
    mark: u32,
    /// How many looks in a row found no sleeper, or [`UNFENCED`].
    quiet: AtomicU32,
    /// How many are needed.
    needed: AtomicU32,
    /// How many messages had been published when it last began to leave the fence out.
    began: AtomicU64,
    /// 1 if the process is registered for membarriers, and the fence may be left out.
    allowed: AtomicU32,
}

impl AdaptiveFence {
    /// Returns one that always fences, until [`Self::allow`].
    pub(crate) fn new(mark: u32) -> Self {
        Self {
            mark,
            quiet: AtomicU32::new(0),
            needed: AtomicU32::new(Self::first_needed()),
            began: AtomicU64::new(0),
            allowed: AtomicU32::new(0),
        }
    }

    fn first_needed() -> u32 {
        hook::quiet_looks(QUIET_LOOKS)
    }

    /// Prepares for a new exclusive publisher, which always fences, until [`Self::allow`].
    pub(crate) fn start_over(&self) {
        self.allow(false);
        self.quiet.store(0, Ordering::Relaxed);
        self.needed.store(Self::first_needed(), Ordering::Relaxed);
    }

    /// Says whether the fence may be left out. The caller has registered the process for membarriers.
    pub(crate) fn allow(&self, allowed: bool) {
        self.allowed.store(allowed.into(), Ordering::Relaxed);
    }

    /// Fences if necessary, and wakes the subscribers that sleep. Call this after each commit.
    #[inline(always)]
    pub(crate) fn look(&self, asymmetric: &AtomicU32, sleepers: &impl Sleepers) {
        let quiet = self.quiet.load(Ordering::Relaxed);
        if quiet == UNFENCED {
            light_fence(); // SLEEP
            if sleepers.is_any_new() {
                self.interrupted(asymmetric, sleepers);
            }
            return;
        }
        full_fence(); // SLEEP
        if sleepers.is_any_new() {
            self.quiet.store(0, Ordering::Relaxed);
            sleepers.wake();
        } else if quiet.saturating_add(1) < self.needed.load(Ordering::Relaxed) {
            self.quiet.store(quiet.saturating_add(1), Ordering::Relaxed);
        } else {
            self.start(asymmetric, sleepers);
        }
    }

    /// Begins to leave the fence out, unless a subscriber objects.
    #[cold]
    #[inline(never)]
    fn start(&self, asymmetric: &AtomicU32, sleepers: &impl Sleepers) {
        self.quiet.store(0, Ordering::Relaxed);
        if self.allowed.load(Ordering::Relaxed) == 0 && !mutant("unfenced_without_permission") {
            return;
        }
        if sleepers.is_any_refused() && !mutant("refused_subscribers_ignored") {
            self.need_more();
            return;
        }
        // Not over the mark of another publisher, which may have taken over from this one, and then would lose its own
        // when this one removes it.
        let relaxed = Ordering::Relaxed;
        if mutant("mark_over_mark") {
            asymmetric.store(self.mark, relaxed);
        } else if asymmetric.compare_exchange(0, self.mark, relaxed, relaxed).is_err() {
            return;
        }
        if mutant("unfenced_without_mark") {
            asymmetric.store(0, relaxed);
        }
        self.began.store(sleepers.published(), Ordering::Relaxed);
        self.quiet.store(UNFENCED, Ordering::Relaxed);
        if mutant("unfenced_without_a_look") {
            return;
        }
        full_fence(); // SLEEP
        if sleepers.is_any_new() {
            self.interrupted(asymmetric, sleepers);
        }
    }

    /// A subscriber has announced its sleep, and most probably has executed a membarrier.
    #[cold]
    #[inline(never)]
    fn interrupted(&self, asymmetric: &AtomicU32, sleepers: &impl Sleepers) {
        self.stop(asymmetric, sleepers);
        let unfenced = sleepers.published().wrapping_sub(self.began.load(Ordering::Relaxed));
        if unfenced < WORTH_IT * u64::from(Self::first_needed()) {
            self.need_more();
        } else {
            self.needed.store(Self::first_needed(), Ordering::Relaxed);
        }
    }

    /// Goes back to fences, if it leaves them out, and wakes the subscribers that sleep.
    pub(crate) fn stop(&self, asymmetric: &AtomicU32, sleepers: &impl Sleepers) {
        if self.quiet.load(Ordering::Relaxed) != UNFENCED {
            return;
        }
        if !mutant("refenced_without_fence") {
            full_fence(); // SLEEP
        }
        if mutant("refenced_for_the_last_topic_only") {
            sleepers.wake();
        } else {
            sleepers.wake_all();
        }
        // Not the mark of a publisher that has taken over from this one. Nothing depends on when it disappears.
        let relaxed = Ordering::Relaxed;
        let _ = asymmetric.compare_exchange(self.mark, 0, relaxed, relaxed);
        self.quiet.store(0, Ordering::Relaxed);
    }

    fn need_more(&self) {
        // A test that lowers the threshold wants the fence left out as often as possible.
        let most = match Self::first_needed() {
            QUIET_LOOKS => MOST_QUIET_LOOKS,
            lowered => lowered,
        };
        let needed = self.needed.load(Ordering::Relaxed).saturating_mul(2).min(most);
        self.needed.store(needed, Ordering::Relaxed);
    }
}

/// Removes the mark of a publisher that has died. The caller has taken over its lock, and has not committed yet.
pub(crate) fn remove_mark(asymmetric: &AtomicU32) {
    if asymmetric.load(Ordering::Relaxed) != 0 && !mutant("mark_survives_takeover") {
        asymmetric.store(0, Ordering::Relaxed);
    }
}

/// Completes an announcement that raised the counts and fenced: if a publisher leaves its fence out, executes one on
/// its behalf.
#[inline]
pub(super) fn fence_for_publisher(slot: ArmingSlot<'_>) {
    if slot.asymmetric.load(Ordering::Relaxed) != 0 && !mutant("no_membarrier") {
        interrupt_publisher(slot);
    }
}

#[cold]
fn interrupt_publisher(slot: ArmingSlot<'_>) {
    // Once refused, always refused: this also keeps the publisher fenced if the answer changes.
    if slot.flags.load(Ordering::Relaxed) & slot.needs_fence != 0
        || crate::sync::membarrier::membarrier().is_ok()
    {
        return;
    }
    if mutant("refusal_ignored") {
        return;
    }
    slot.flags.fetch_or(slot.needs_fence, Ordering::Release);
    // Release: a publisher that sees the count sees the flag. The slot's own count stays: if the subscriber was woken for it,
    // its token is outdated.
    slot.sleeps.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::SeqCst); // SLEEP
    if slot.asymmetric.load(Ordering::Relaxed) != 0 {
        // A model's membarrier is never refused.
        #[cfg(not(loom))]
        std::thread::sleep(STORES_ARE_VISIBLE);
    }
}

/// Run with `cargo xtask loom loom_no_lost_wake_up_without_a_fence`.
#[cfg(test)]
#[cfg(loom)]
mod model {
    use super::super::Sleeping;
    use super::super::eventcount::model::Bus;
    use super::*;
    use crate::sync::membarrier::model::Running;
    use loom::sync::Arc;
    use loom::thread;
    use std::cell::Cell;

    /// An exclusive publisher. After one look without a sleeper it leaves the fence out.
    struct Exclusive<'b> {
        bus: &'b Bus,
        fence: AdaptiveFence,
        sleeping: Sleeping,
        /// The record that was published last.
        record: Cell<usize>,
    }

    impl<'b> Exclusive<'b> {
        fn new(bus: &'b Bus) -> Self {
            let fence = AdaptiveFence::new(1);
            fence.allow(true);
            Self { bus, fence, sleeping: Sleeping::new(2), record: Cell::new(0) }
        }

        fn publish(&self, record: usize) {
            light_fence(); // A moment at which the interrupt may come.
            self.bus.records[record].store(1, Ordering::Release); // COMMIT
            self.record.set(record);
            self.fence.look(&self.bus.asymmetric, self);
        }
    }

    impl Sleepers for Exclusive<'_> {
        fn is_any_new(&self) -> bool {
            self.bus.is_any(&self.sleeping, self.record.get())
        }

        fn wake(&self) {
            self.bus.wake(&self.sleeping, Some(self.record.get()));
        }

        fn wake_all(&self) {
            self.bus.wake(&self.sleeping, None);
        }

        fn is_any_refused(&self) -> bool {
            false
        }

        fn published(&self) -> u64 {
            0
        }
    }

    fn check(preemptions: usize, publishes: fn(&Exclusive<'_>), receives: &'static [usize]) {
        check_refusing(preemptions, None, publishes, receives);
    }

    /// As [`check`], with a topic that the subscriber does not want.
    fn check_refusing(
        preemptions: usize,
        refuses: Option<usize>,
        publishes: fn(&Exclusive<'_>),
        receives: &'static [usize],
    ) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let bus = Bus::new();
            if let Some(topic) = refuses {
                bus.refuse(0, topic);
            }
            let running = Running::begin();
            let publisher = thread::spawn({
                let bus = Arc::clone(&bus);
                move || {
                    publishes(&Exclusive::new(&bus));
                    drop(running);
                }
            });
            for record in receives {
                bus.receive(*record);
            }
            publisher.join().unwrap();
        });
    }

    /// The publisher begins to leave the fence out, and commits without it.
    #[test]
    fn loom_no_lost_wake_up_without_a_fence() {
        check(
            3,
            |exclusive| {
                exclusive.publish(0);
                exclusive.publish(1);
            },
            &[0, 1],
        );
    }

    /// It removes its mark, and publishes no more.
    #[test]
    fn loom_no_lost_wake_up_when_the_fence_comes_back() {
        check(
            3,
            |exclusive| {
                exclusive.publish(0);
                exclusive.publish(1);
                exclusive.fence.stop(&exclusive.bus.asymmetric, exclusive);
            },
            &[1],
        );
    }

    /// The record that the subscriber waits for was committed without a fence, and it does not want the last one.
    #[test]
    fn loom_no_lost_wake_up_when_the_fence_comes_back_for_another_topic() {
        check_refusing(
            3,
            Some(2),
            |exclusive| {
                exclusive.publish(0);
                exclusive.publish(1);
                exclusive.publish(2);
                exclusive.fence.stop(&exclusive.bus.asymmetric, exclusive);
            },
            &[1],
        );
    }

    /// It goes back to fences, perhaps because a subscriber sleeps, and leaves them out again.
    #[test]
    fn loom_no_lost_wake_up_when_the_fence_comes_and_goes() {
        check(
            2,
            |exclusive| {
                exclusive.publish(0);
                exclusive.fence.stop(&exclusive.bus.asymmetric, exclusive);
                exclusive.publish(1);
                exclusive.publish(2);
            },
            &[1, 2],
        );
    }
}
