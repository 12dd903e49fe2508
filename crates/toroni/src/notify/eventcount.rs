//! The eventcount: the counters by which publishers find sleepers, and the decision whether to wake them. No system
//! calls.
//!
//! # Why no wake-up is lost
//!
//! The two sides do this, unless an exclusive publisher leaves out its fence (`adaptive_fence.rs`):
//!
//! - The subscriber reads its token `w` from `wake`, raises `sleeps` to `n`, fences, rechecks the ring, and sleeps
//!   while `wake` is `w`.
//! - The publisher commits, fences, and loads a count `s` from `sleeps`.
//!
//! Suppose that the subscriber's recheck misses the commit. Then the subscriber's fence precedes the publisher's in
//! the single order of all such fences, so `s ≥ n`. There are two cases:
//!
//! - `s` differs from the count at this publisher's last notification. Then the publisher raises `wake` and wakes.
//! - `s` equals that count. Then some thread of the publisher had loaded `s` *before* it raised `wake`. That load
//!   comes after the subscriber raised `sleeps` to `n`, and so after the subscriber read its token. So `wake` is
//!   past `w`, and the sleep has ended or does not begin.
//!
//! Hence a publisher must note the count that it loaded before the wake, never a newer one. With datagrams the same
//! argument holds: "raise `wake`" becomes "send", and the token is the empty queue.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::ArmingSlot;
use super::adaptive_fence::fence_for_publisher;
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The words that subscribers and publishers share for waking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCount<'a> {
    /// The futex word, raised before each wake. Subscribers can only read it.
    pub(crate) wake: &'a AtomicU32,
    /// The mark of an exclusive publisher that leaves out its fence, or 0; see `adaptive_fence.rs`. Subscribers can
    /// only read it.
    pub(crate) asymmetric: &'a AtomicU32,
    /// How often subscribers armed to sleep on `wake`. Publishers can only read it.
    pub(crate) sleeps: &'a AtomicU64,
    /// How often subscribers armed their descriptors. Publishers can only read it.
    pub(crate) arms: &'a AtomicU64,
}

impl EventCount<'_> {
    /// Announces a sleep on `wake`. Returns the token: the caller may sleep while `wake` has this value.
    #[inline]
    pub(super) fn arm_sleeper(self, slot: ArmingSlot<'_>) -> u32 {
        // The token must be read first. Read after the raise, it could be the value that the wake for this very
        // sleep has left.
        let token = self.wake.load(Ordering::Acquire);
        self.arm(self.sleeps, slot);
        if mutant("token_after_arming") {
            return self.wake.load(Ordering::Acquire);
        }
        token
    }

    /// Announces that the caller will poll its descriptor. It has just emptied the descriptor's queue.
    #[inline]
    pub(super) fn arm_descriptor(self, slot: ArmingSlot<'_>) {
        self.arm(self.arms, slot);
    }

    #[inline]
    fn arm(self, counter: &AtomicU64, slot: ArmingSlot<'_>) {
        arm(counter);
        fence_for_publisher(self, counter, slot);
    }

    /// If a subscriber went to sleep that `last_notified` does not count, raises `wake` and calls `wake_all`.
    /// Returns how many wake-ups were sent.
    pub(super) fn wake_sleepers(
        &self,
        last_notified: &LastNotified,
        wake_all: impl FnOnce(&AtomicU32),
    ) -> usize {
        let Some(count) = last_notified.not_yet_notified(self.sleeps) else { return 0 };
        if !mutant("wake_without_raise") {
            self.wake.fetch_add(1, Ordering::Release);
        }
        hook::point(CrashPoint::MidWake);
        wake_all(self.wake);
        if mutant("notified_up_to_a_newer_count") {
            last_notified.note(count.max(self.sleeps.load(Ordering::Acquire)));
            return 1;
        }
        last_notified.note(count);
        1
    }
}

/// Raises a counter of sleepers, and fences. What the caller checks afterwards includes every commit whose
/// publisher did not see the raise.
#[inline]
fn arm(counter: &AtomicU64) {
    // Release: a publisher that sees the count also sees that the token was taken or the queue emptied, and that
    // the slot's word was raised. Acquire: later raises carry the earlier ones along.
    counter.fetch_add(1, Ordering::AcqRel);
    hook::point(CrashPoint::ReaderMidArm);
    #[cfg(all(test, not(loom)))]
    interlude::play();
    if !mutant("armed_without_fence") {
        fence(Ordering::SeqCst); // SLEEP
    }
}

/// The count up to which the threads of one publisher have woken all sleepers.
///
/// It starts at 0, because a new publisher has woken none, although many may already be asleep.
#[derive(Debug)]
pub(crate) struct LastNotified(AtomicU64);

impl LastNotified {
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the count to notify up to, if a subscriber went to sleep since the last notification. Call this
    /// after the fence that follows the commit (SLEEP).
    ///
    /// Any difference counts, not only growth. Otherwise a damaged counter could silence this publisher until it
    /// has caught up again.
    #[inline]
    pub(crate) fn not_yet_notified(&self, counter: &AtomicU64) -> Option<u64> {
        let count = counter.load(Ordering::Acquire);
        (count != self.0.load(Ordering::Acquire)).then_some(count)
    }

    /// Notes that the sleepers up to `count` were notified. Call this after the wake-ups were sent. Threads that
    /// overtake one another may set the count back; that costs one wake-up too many.
    pub(crate) fn note(&self, count: u64) {
        self.0.store(count, Ordering::Release);
    }
}

/// Runs a test's action right after an announcement, before the subscriber's next step.
#[cfg(test)]
#[cfg(not(loom))]
pub(super) mod interlude {
    use std::cell::RefCell;

    type Action = Box<dyn FnOnce()>;

    thread_local! {
        static NEXT: RefCell<Option<Action>> = const { RefCell::new(None) };
    }

    /// Sets the action for this thread's next announcement.
    pub(in crate::notify) fn set(action: impl FnOnce() + 'static) {
        NEXT.set(Some(Box::new(action)));
    }

    pub(super) fn play() {
        if let Some(action) = NEXT.take() {
            action();
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn every_sleep_is_notified_once() {
        let counter = AtomicU64::new(0);
        let last_notified = LastNotified::none();
        assert_eq!(last_notified.not_yet_notified(&counter), None);
        arm(&counter);
        arm(&counter);
        assert_eq!(last_notified.not_yet_notified(&counter), Some(2));
        last_notified.note(2);
        assert_eq!(last_notified.not_yet_notified(&counter), None);
        arm(&counter);
        assert_eq!(last_notified.not_yet_notified(&counter), Some(3));
    }

    #[test]
    fn a_new_publisher_wakes_those_who_sleep_already() {
        let counter = AtomicU64::new(7);
        assert_eq!(LastNotified::none().not_yet_notified(&counter), Some(7));
    }

    #[test]
    fn a_counter_set_back_still_counts() {
        let counter = AtomicU64::new(7);
        let last_notified = LastNotified::none();
        last_notified.note(7);
        counter.store(1, Ordering::Relaxed);
        assert_eq!(last_notified.not_yet_notified(&counter), Some(1));
    }
}

/// Run with `cargo xtask loom loom_no_lost_wake_up`. A lost wake-up is a thread that sleeps for ever; loom reports
/// a deadlock.
#[cfg(test)]
#[cfg(loom)]
pub(super) mod model {
    use super::super::{Waiter, sleep_unless};
    use super::*;
    use crate::sync::fence_after_unlock;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    /// The kernel's part of a futex. Compare and sleep are one step, as under the kernel's lock of the hash bucket.
    /// The publisher raises the word outside of that lock.
    struct Kernel {
        bucket: Mutex<u64>,
        woken: Condvar,
    }

    impl Kernel {
        fn wait(&self, word: &AtomicU32, token: u32) {
            let mut wakes = self.bucket.lock().unwrap();
            if word.load(Ordering::Relaxed) != token {
                return;
            }
            let before = *wakes;
            while *wakes == before {
                wakes = self.woken.wait(wakes).unwrap();
            }
        }

        fn wake_all(&self) {
            *self.bucket.lock().unwrap() += 1;
            self.woken.notify_all();
        }
    }

    pub(in crate::notify) struct Bus {
        pub(in crate::notify) records: [AtomicU32; 3],
        wake: AtomicU32,
        pub(in crate::notify) asymmetric: AtomicU32,
        pub(in crate::notify) sleeps: AtomicU64,
        arms: AtomicU64,
        kernel: Kernel,
    }

    /// The futex waiter, without a timeout.
    struct Sleeper<'b> {
        kernel: &'b Kernel,
        token: u32,
    }

    impl Waiter for Sleeper<'_> {
        fn arm(&mut self, eventcount: EventCount<'_>, slot: ArmingSlot<'_>) {
            self.token = eventcount.arm_sleeper(slot);
        }

        fn wait(&self, eventcount: EventCount<'_>, _timeout: Option<Duration>) -> io::Result<()> {
            self.kernel.wait(eventcount.wake, self.token);
            Ok(())
        }

        fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    impl Bus {
        pub(in crate::notify) fn new() -> Arc<Self> {
            Arc::new(Self {
                records: std::array::from_fn(|_| AtomicU32::new(0)),
                wake: AtomicU32::new(0),
                asymmetric: AtomicU32::new(0),
                sleeps: AtomicU64::new(0),
                arms: AtomicU64::new(0),
                kernel: Kernel { bucket: Mutex::new(0), woken: Condvar::new() },
            })
        }

        pub(in crate::notify) fn receive(&self, record: usize) {
            let word = AtomicU32::new(0);
            let slot = ArmingSlot { arms: &word, flags: &word, needs_fence: 1 };
            let is_empty = || self.records[record].load(Ordering::Acquire) == 0;
            let mut sleeper = Sleeper { kernel: &self.kernel, token: 0 };
            while is_empty() {
                let recheck = || is_empty().then_some(Duration::MAX);
                sleep_unless(&mut sleeper, self.eventcount(), slot, recheck).unwrap();
            }
        }

        fn publish(&self, record: usize, last_notified: &LastNotified) {
            self.records[record].store(1, Ordering::Release); // COMMIT
            fence_after_unlock(); // SLEEP
            self.wake_sleepers(last_notified);
        }

        pub(in crate::notify) fn wake_sleepers(&self, last_notified: &LastNotified) {
            self.eventcount().wake_sleepers(last_notified, |_| self.kernel.wake_all());
        }

        fn eventcount(&self) -> EventCount<'_> {
            let Self { wake, asymmetric, sleeps, arms, .. } = self;
            EventCount { wake, asymmetric, sleeps, arms }
        }
    }

    /// One publisher commits two records; one subscriber sleeps before each.
    #[test]
    fn loom_no_lost_wake_up() {
        loom::model(|| {
            let bus = Bus::new();
            let publisher = thread::spawn({
                let bus = Arc::clone(&bus);
                move || {
                    let last_notified = LastNotified::none();
                    bus.publish(0, &last_notified);
                    bus.publish(1, &last_notified);
                }
            });
            bus.receive(0);
            bus.receive(1);
            publisher.join().unwrap();
        });
    }

    /// Two threads of one publisher share the count of the last notification.
    #[test]
    fn loom_no_lost_wake_up_between_threads() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let bus = Bus::new();
            let last_notified = Arc::new(LastNotified::none());
            let publishers: Vec<_> = [0, 1]
                .map(|record| {
                    let (bus, last_notified) = (Arc::clone(&bus), Arc::clone(&last_notified));
                    thread::spawn(move || bus.publish(record, &last_notified))
                })
                .into();
            bus.receive(1);
            bus.receive(0);
            for publisher in publishers {
                publisher.join().unwrap();
            }
        });
    }

    /// Two subscribers, one publisher: that one subscriber was notified must not hide the other's sleep.
    #[test]
    fn loom_no_lost_wake_up_of_two_sleepers() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let bus = Bus::new();
            let subscribers: Vec<_> = [0, 1]
                .map(|record| {
                    let bus = Arc::clone(&bus);
                    thread::spawn(move || bus.receive(record))
                })
                .into();
            let last_notified = LastNotified::none();
            bus.publish(0, &last_notified);
            bus.publish(1, &last_notified);
            for subscriber in subscribers {
                subscriber.join().unwrap();
            }
        });
    }
}
