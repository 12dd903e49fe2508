//! The eventcount: the words by which publishers find those that sleep, and the decision whom to wake. No system calls.
//!
//! Each subscriber has a futex word of its own, and a count of how often it armed. A publisher remembers which slots have
//! armed and were not woken since, and wakes those of them that want what it has published (`rows.rs`).
//!
//! # Why no wake-up is lost
//!
//! The two sides do this, unless an exclusive publisher leaves out its fence (`adaptive_fence.rs`):
//!
//! - The subscriber of slot k brings its bits in the rows up to date, reads its token `w` from its futex word, raises its own
//!   count to `n` and then the common count `sleeps` to `c`, fences, rechecks the ring, and sleeps while its word is `w`.
//! - The publisher commits, fences, and loads `s` from `sleeps`. If it differs from what it has noted, or a slot that sleeps
//!   wants the message, it makes a round: (a) it loads `s` again, and after that how many slots there are; (b) it compares the
//!   count of each slot with the one for which that slot was woken last, and remembers those that differ as asleep; (c) it
//!   notes `s`; (d) it raises and wakes the words of those that are asleep and want the message, remembers for them the counts
//!   of (b), and forgets that they sleep.
//!
//! Suppose that the subscriber's recheck misses the commit of a message that it wants. Then its fence precedes the
//! publisher's in the single order of all such fences, so `s ≥ c` (SLEEP). With the count, the publisher sees what the
//! subscriber wrote before: its bits and its own count (WANT). There are two cases:
//!
//! - `s` differs from the noted count. Then the publisher makes a round. It finds the count `n`, and either k is not yet woken
//!   for it, and is woken now, because it wants the message; or k was woken for `n`. Then its word was raised after a thread
//!   of the publisher had loaded `n`, which is after the subscriber read its token.
//! - `s` equals it. When a count is noted, every slot that it counts is remembered as asleep, or was raised since it armed. If
//!   it is remembered, the publisher makes a round, as above. Otherwise it was forgotten, which also follows a raise.
//!
//! A word that is past the token ends the sleep, or does not let it begin. Hence a round notes `s` after it has remembered who
//! sleeps, and before it wakes; and it remembers the counts of (b), never newer ones. With datagrams the same argument holds:
//! "raise the word" becomes "send", and the token is the empty queue.
//!
//! The threads of a publisher make their rounds one after the other. A slot whose owner died costs each publisher one vain
//! wake-up. Counts only grow, over all owners of a slot, so a new owner is never taken for one that was woken.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::ArmingSlot;
use super::adaptive_fence::fence_for_publisher;
use super::rows::{Audience, Rows, place};
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};
use std::sync::PoisonError;

/// The count of a slot's futex among its two counts.
pub(super) const FUTEX: usize = 0;
/// That of its descriptor. There are two, because a program may poll the descriptor and also block on the futex: with one
/// count, the later arming would hide the earlier one.
pub(super) const DESCRIPTOR: usize = 1;

/// What a publisher sees of the subscribers, besides the common count. It can write only the futex words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCount<'a> {
    /// The futex words, by slot. Each is raised before it is woken.
    pub(crate) wake: &'a [AtomicU32],
    /// How often subscribers armed, all together.
    pub(crate) sleeps: &'a AtomicU64,
    /// How often each slot armed its futex and its descriptor.
    pub(crate) arming: &'a [[AtomicU32; 2]],
    /// How many slots were ever used. The others need no look.
    pub(crate) slots_used: &'a AtomicU32,
    /// Who wants nothing of a topic.
    pub(crate) rows: Rows<'a>,
}

impl ArmingSlot<'_> {
    /// Announces a sleep on the futex word. Returns the token: the caller may sleep while the word has this value.
    #[inline]
    pub(super) fn arm_sleeper(self) -> u32 {
        // The token must be read first. Read after the raise, it could be the value that the wake for this very
        // sleep has left.
        let token = self.word.load(Ordering::Acquire);
        self.arm(FUTEX);
        if mutant("token_after_arming") {
            return self.word.load(Ordering::Acquire);
        }
        token
    }

    /// Announces that the caller will poll its descriptor. It has just emptied the descriptor's queue.
    #[inline]
    pub(super) fn arm_descriptor(self) {
        self.arm(DESCRIPTOR);
    }

    #[inline]
    fn arm(self, which: usize) {
        let own = &self.arming[which];
        if mutant("common_count_first") {
            self.sleeps.fetch_add(1, Ordering::AcqRel);
            own.fetch_add(1, Ordering::Relaxed);
        } else {
            own.fetch_add(1, Ordering::Relaxed);
            // Release: a publisher that sees the count also sees that the token was taken or the queue emptied, and the
            // slot's own count and bits (WANT). Acquire: later raises carry the earlier ones along.
            self.sleeps.fetch_add(1, Ordering::AcqRel);
        }
        hook::point(CrashPoint::ReaderMidArm);
        #[cfg(all(test, not(loom)))]
        interlude::play();
        // What the caller checks afterwards includes every commit whose publisher did not see the raise.
        if !mutant("armed_without_fence") {
            fence(Ordering::SeqCst); // SLEEP
        }
        fence_for_publisher(self);
    }
}

/// What the threads of one publisher know of those that sleep.
///
/// It begins with nothing noted, because a new publisher has woken no one, although many may already be asleep.
#[derive(Debug)]
pub(crate) struct Sleeping {
    /// The value of `sleeps` up to which all that armed are remembered, or were woken.
    noted: AtomicU64,
    /// 1 while a slot is remembered.
    is_any: AtomicU32,
    /// 1 if all that sleep are to be woken, whatever they want.
    all_due: AtomicU32,
    /// A bit for each slot that has armed and was not woken since. Changed in a round only.
    asleep: Vec<AtomicU64>,
    round: Mutex<Round>,
}

/// What a round uses. One thread at a time makes one.
#[derive(Debug)]
struct Round {
    /// By slot: the counts that were loaded last, and those for which it was woken last.
    seen: Vec<[u32; 2]>,
    notified: Vec<[u32; 2]>,
    /// Kept to reuse its memory.
    due: Vec<u32>,
}

/// What became of the datagrams of a round.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// How many were sent.
    pub(crate) sent: usize,
    /// The slots for which the next message has to try again.
    pub(crate) postponed: Vec<u32>,
}

impl Sleeping {
    /// Returns what a publisher knows at first, for this many slots.
    pub(crate) fn new(slots: u32) -> Self {
        let count = slots as usize;
        let words = count.div_ceil(u64::BITS as usize);
        let none = vec![[0; 2]; count];
        Self {
            noted: AtomicU64::new(0),
            is_any: AtomicU32::new(0),
            all_due: AtomicU32::new(0),
            asleep: (0..words).map(|_| AtomicU64::new(0)).collect(),
            round: Mutex::new(Round { seen: none.clone(), notified: none, due: Vec::new() }),
        }
    }

    /// Returns whether there may be a subscriber to wake: one has armed that is not noted, or is remembered as
    /// asleep. Call this after the commit, the unlock, and the fence that follows (SLEEP).
    ///
    /// Any difference counts, not only growth. Otherwise a damaged counter could silence this publisher until it
    /// has caught up again.
    #[inline(always)]
    pub(crate) fn may_be_any(&self, sleeps: &AtomicU64) -> bool {
        sleeps.load(Ordering::Acquire) != self.noted.load(Ordering::Acquire)
            || self.is_any.load(Ordering::Acquire) != 0
    }

    /// Returns whether a round is needed for messages to these: more exactly than [`Self::may_be_any`], which the caller has
    /// asked before. An arming that is not noted needs one, also if nothing that sleeps wants the messages.
    pub(crate) fn concerns(&self, eventcount: EventCount<'_>, audience: Audience) -> bool {
        if eventcount.sleeps.load(Ordering::Acquire) != self.noted.load(Ordering::Acquire)
            || self.all_due.load(Ordering::Relaxed) != 0
        {
            return true;
        }
        let mut asleep = self.asleep.iter().enumerate();
        asleep.any(|(index, word)| {
            let asleep = word.load(Ordering::Acquire);
            asleep != 0 && asleep & !audience.unwanted(eventcount.rows, index) != 0
        })
    }

    /// Makes the next round wake all that sleep, whatever they want: they must not fall behind, or a publisher waits for them.
    pub(crate) fn wake_all_next(&self) {
        self.all_due.store(1, Ordering::Relaxed);
    }

    /// Makes a round: wakes those that sleep and want the messages. `wake_one` wakes a thread that sleeps on the word,
    /// `deliver` sends datagrams to slots. Returns how many wake-ups were sent.
    #[cold]
    pub(crate) fn wake(
        &self,
        eventcount: EventCount<'_>,
        audience: Audience,
        wake_one: impl Fn(&AtomicU32),
        deliver: impl FnOnce(&[u32]) -> Delivery,
    ) -> usize {
        if mutant("busy_publisher_returns") && self.round.try_lock().is_err() {
            return 0;
        }
        // A thread that has panicked here has left a round at most half done, which the next one completes.
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let Round { seen, notified, due } = &mut *round;
        let audience =
            if self.all_due.swap(0, Ordering::Relaxed) == 0 { audience } else { Audience::All };
        self.look(eventcount, seen, notified);
        due.clear();
        let mut sent: usize = 0;
        for (index, asleep) in self.asleep.iter().enumerate() {
            let mut wanted =
                asleep.load(Ordering::Relaxed) & !audience.unwanted(eventcount.rows, index);
            while wanted != 0 {
                let bit = wanted & wanted.wrapping_neg();
                wanted &= !bit;
                let slot = index.saturating_mul(u64::BITS as usize);
                let slot = slot.saturating_add(bit.trailing_zeros() as usize);
                let (Some(word), Some(seen), Some(notified)) =
                    (eventcount.wake.get(slot), seen.get(slot), notified.get_mut(slot))
                else {
                    continue;
                };
                if seen[FUTEX] != notified[FUTEX] {
                    if !mutant("wake_without_raise") {
                        word.fetch_add(1, Ordering::Release);
                    }
                    hook::point(CrashPoint::MidWake);
                    wake_one(word);
                    sent = sent.saturating_add(1);
                    notified[FUTEX] = if mutant("notified_up_to_a_newer_count") {
                        eventcount.arming[slot][FUTEX].load(Ordering::Acquire)
                    } else {
                        seen[FUTEX]
                    };
                }
                if seen[DESCRIPTOR] == notified[DESCRIPTOR] {
                    // After the raise: another thread that does not see the bit need not wake it.
                    asleep.fetch_and(!bit, Ordering::Release);
                } else {
                    due.push(u32::try_from(slot).unwrap_or(u32::MAX));
                }
            }
        }
        if !due.is_empty() {
            let delivery = deliver(due);
            sent = sent.saturating_add(delivery.sent);
            if !delivery.postponed.is_empty() {
                // The next message tries again, whatever it is.
                self.all_due.store(1, Ordering::Relaxed);
            }
            for slot in due.iter().filter(|slot| !delivery.postponed.contains(slot)) {
                let index = *slot as usize;
                notified[index][DESCRIPTOR] = seen[index][DESCRIPTOR];
                let (word, bit) = place(*slot);
                self.asleep[word].fetch_and(!bit, Ordering::Release);
            }
        }
        if mutant("bystanders_forgotten") {
            self.asleep.iter().for_each(|word| word.store(0, Ordering::Release));
        }
        let is_any = self.asleep.iter().any(|word| word.load(Ordering::Relaxed) != 0);
        self.is_any.store(is_any.into(), Ordering::Release); // ROUND
        sent
    }

    /// Remembers who has armed since the last look.
    fn look(&self, eventcount: EventCount<'_>, seen: &mut [[u32; 2]], notified: &[[u32; 2]]) {
        let used_before = if mutant("slots_counted_before_the_sleepers") {
            eventcount.slots_used.load(Ordering::Acquire)
        } else {
            u32::MAX
        };
        // Before the slots, and before their number: a later arming changes it again, also that of a slot that is new.
        let sleeps = eventcount.sleeps.load(Ordering::Acquire);
        if sleeps == self.noted.load(Ordering::Relaxed) {
            return;
        }
        if mutant("noted_before_the_look") {
            self.noted.store(sleeps, Ordering::Release);
        }
        let used = eventcount.slots_used.load(Ordering::Acquire).min(used_before);
        let mut is_any = false;
        for (slot, ((arming, seen), notified)) in
            (0..used).zip(eventcount.arming.iter().zip(seen).zip(notified))
        {
            *seen = [FUTEX, DESCRIPTOR].map(|which| arming[which].load(Ordering::Acquire));
            if seen != notified {
                let (word, bit) = place(slot);
                self.asleep[word].fetch_or(bit, Ordering::Release);
                is_any = true;
                if mutant("one_sleeper_remembered") {
                    break;
                }
            }
        }
        if is_any {
            self.is_any.store(1, Ordering::Release);
        }
        hook::point(CrashPoint::MidRound);
        self.noted.store(sleeps, Ordering::Release); // ROUND
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
    use std::cell::RefCell;

    /// The words of a bus with 70 slots and rows for three topics.
    struct Words {
        wake: Vec<AtomicU32>,
        asymmetric: AtomicU32,
        sleeps: AtomicU64,
        arming: Vec<[AtomicU32; 2]>,
        slots_used: AtomicU32,
        rows: Vec<AtomicU64>,
    }

    const SLOTS: u32 = 70;

    impl Words {
        fn new() -> Self {
            Self {
                wake: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
                asymmetric: AtomicU32::new(0),
                sleeps: AtomicU64::new(0),
                arming: (0..SLOTS).map(|_| Default::default()).collect(),
                slots_used: AtomicU32::new(SLOTS),
                rows: (0..6).map(|_| AtomicU64::new(0)).collect(),
            }
        }

        fn eventcount(&self) -> EventCount<'_> {
            let Self { wake, sleeps, arming, slots_used, .. } = self;
            EventCount { wake, sleeps, arming, slots_used, rows: Rows::new(&self.rows, 2) }
        }

        fn arm(&self, slot: usize, which: usize) {
            let flags = AtomicU32::new(0);
            let (word, arming) = (&self.wake[slot], &self.arming[slot]);
            let Self { asymmetric, sleeps, .. } = self;
            ArmingSlot { word, asymmetric, sleeps, arming, flags: &flags, needs_fence: 1 }
                .arm(which);
        }

        fn unwanted(&self, topic: usize, slot: u32) {
            self.eventcount().rows.set(topic, slot, true);
        }

        /// Makes a round if one is needed. Returns the slots that were woken, by futex and by datagram.
        fn publish(&self, sleeping: &Sleeping, audience: Audience) -> (Vec<usize>, Vec<u32>) {
            self.publish_postponing(sleeping, audience, &[])
        }

        fn publish_postponing(
            &self,
            sleeping: &Sleeping,
            audience: Audience,
            postponed: &[u32],
        ) -> (Vec<usize>, Vec<u32>) {
            let (futexes, datagrams) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
            if !sleeping.may_be_any(&self.sleeps) || !sleeping.concerns(self.eventcount(), audience)
            {
                return Default::default();
            }
            let wake_one = |word: &AtomicU32| {
                let slot = self.wake.iter().position(|one| std::ptr::eq(one, word)).unwrap();
                futexes.borrow_mut().push(slot);
            };
            let deliver = |due: &[u32]| {
                datagrams.borrow_mut().extend_from_slice(due);
                Delivery { sent: due.len(), postponed: postponed.to_vec() }
            };
            let sent = sleeping.wake(self.eventcount(), audience, wake_one, deliver);
            let woken = (futexes.into_inner(), datagrams.into_inner());
            assert_eq!(sent, woken.0.len() + woken.1.len());
            woken
        }
    }

    fn futexes(slots: &[usize]) -> (Vec<usize>, Vec<u32>) {
        (slots.to_vec(), Vec::new())
    }

    #[test]
    fn every_sleep_is_ended_once() {
        let (words, sleeping) = (Words::new(), Sleeping::new(SLOTS));
        assert!(!sleeping.may_be_any(&words.sleeps));
        words.arm(1, FUTEX);
        words.arm(69, FUTEX);
        assert_eq!(words.publish(&sleeping, Audience::of(0)), futexes(&[1, 69]));
        assert_eq!(words.publish(&sleeping, Audience::of(0)), futexes(&[]));
        assert!(!sleeping.may_be_any(&words.sleeps));
        words.arm(1, FUTEX);
        assert_eq!(words.publish(&sleeping, Audience::of(0)), futexes(&[1]));
        let raised: u32 = words.wake.iter().map(|word| word.load(Ordering::Relaxed)).sum();
        assert_eq!(raised, 3);
    }

    #[test]
    fn a_new_publisher_wakes_those_who_sleep_already() {
        let words = Words::new();
        words.arm(3, FUTEX);
        for _ in 0..2 {
            assert_eq!(words.publish(&Sleeping::new(SLOTS), Audience::of(0)), futexes(&[3]));
        }
    }

    #[test]
    fn who_wants_nothing_of_it_sleeps_on_until_it_is_for_him() {
        let (words, sleeping) = (Words::new(), Sleeping::new(SLOTS));
        words.unwanted(0, 2);
        words.unwanted(0, 66);
        [2, 5, 66].into_iter().for_each(|slot| words.arm(slot, FUTEX));
        assert_eq!(words.publish(&sleeping, Audience::of(0)), futexes(&[5]));
        for _ in 0..3 {
            assert_eq!(words.publish(&sleeping, Audience::of(0)), futexes(&[]));
            assert!(
                sleeping.may_be_any(&words.sleeps)
                    && !sleeping.concerns(words.eventcount(), Audience::of(0))
            );
        }
        // One that arms again is found; the others are not woken for that.
        words.arm(5, FUTEX);
        assert_eq!(words.publish(&sleeping, Audience::of(0)), futexes(&[5]));
        assert_eq!(words.publish(&sleeping, Audience::None), futexes(&[]));
        assert_eq!(
            words.publish(&sleeping, Audience::of(0).and(Audience::of(1))),
            futexes(&[2, 66])
        );
        assert!(!sleeping.may_be_any(&words.sleeps));
    }

    #[test]
    fn all_that_sleep_are_woken_if_a_publisher_waits_for_them() {
        let (words, sleeping) = (Words::new(), Sleeping::new(SLOTS));
        words.unwanted(1, 7);
        words.arm(7, FUTEX);
        assert_eq!(words.publish(&sleeping, Audience::of(1)), futexes(&[]));
        sleeping.wake_all_next();
        assert_eq!(words.publish(&sleeping, Audience::of(1)), futexes(&[7]));
        assert_eq!(words.publish(&sleeping, Audience::of(1)), futexes(&[]));
    }

    #[test]
    fn the_futex_and_the_descriptor_of_a_slot_hide_each_other_from_no_one() {
        let (words, sleeping) = (Words::new(), Sleeping::new(SLOTS));
        words.arm(4, DESCRIPTOR);
        words.arm(4, FUTEX);
        assert_eq!(words.publish(&sleeping, Audience::All), (vec![4], vec![4]));
        words.arm(4, DESCRIPTOR);
        assert_eq!(words.publish(&sleeping, Audience::All), (vec![], vec![4]));
    }

    #[test]
    fn a_datagram_that_could_not_be_sent_is_tried_again() {
        let (words, sleeping) = (Words::new(), Sleeping::new(SLOTS));
        words.arm(4, DESCRIPTOR);
        words.arm(9, DESCRIPTOR);
        words.arm(9, FUTEX);
        let all = Audience::All;
        assert_eq!(words.publish_postponing(&sleeping, all, &[9]), (vec![9], vec![4, 9]));
        // With the next message, also if the slot does not want that one.
        words.unwanted(1, 9);
        assert_eq!(words.publish(&sleeping, Audience::of(1)), (vec![], vec![9]));
        assert_eq!(words.publish(&sleeping, all), futexes(&[]));
    }

    #[test]
    fn a_counter_set_back_still_counts() {
        let (words, sleeping) = (Words::new(), Sleeping::new(SLOTS));
        words.arm(0, FUTEX);
        assert_eq!(words.publish(&sleeping, Audience::All), futexes(&[0]));
        words.arm(0, FUTEX);
        words.sleeps.store(7, Ordering::Relaxed);
        assert_eq!(words.publish(&sleeping, Audience::All), futexes(&[0]));
        words.arming[0][FUTEX].store(0, Ordering::Relaxed);
        words.sleeps.store(1, Ordering::Relaxed);
        assert_eq!(words.publish(&sleeping, Audience::All), futexes(&[0]));
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
    use loom::sync::{Arc, Condvar};
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
        /// Each on a topic of its own number.
        pub(in crate::notify) records: [AtomicU32; 3],
        wake: [AtomicU32; 2],
        pub(in crate::notify) asymmetric: AtomicU32,
        pub(in crate::notify) sleeps: AtomicU64,
        arming: [[AtomicU32; 2]; 2],
        slots_used: AtomicU32,
        rows: [AtomicU64; 3],
        kernels: [Kernel; 2],
    }

    /// The futex waiter, without a timeout.
    struct Sleeper<'b> {
        kernel: &'b Kernel,
        token: u32,
    }

    impl Waiter for Sleeper<'_> {
        fn arm(&mut self, slot: ArmingSlot<'_>) {
            self.token = slot.arm_sleeper();
        }

        fn wait(&self, slot: ArmingSlot<'_>, _timeout: Option<Duration>) -> io::Result<()> {
            self.kernel.wait(slot.word, self.token);
            Ok(())
        }

        fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    impl Bus {
        pub(in crate::notify) fn new() -> Arc<Self> {
            let kernel = || Kernel { bucket: Mutex::new(0), woken: Condvar::new() };
            let zero = || AtomicU32::new(0);
            Arc::new(Self {
                records: std::array::from_fn(|_| zero()),
                wake: [zero(), zero()],
                asymmetric: zero(),
                sleeps: AtomicU64::new(0),
                arming: [[zero(), zero()], [zero(), zero()]],
                slots_used: AtomicU32::new(1),
                rows: std::array::from_fn(|_| AtomicU64::new(0)),
                kernels: [kernel(), kernel()],
            })
        }

        /// Says that the subscriber of a slot wants nothing of a topic.
        pub(in crate::notify) fn refuse(&self, slot: u32, topic: usize) {
            self.eventcount().rows.set(topic, slot, true);
        }

        pub(in crate::notify) fn receive(&self, record: usize) {
            self.receive_in(0, record);
        }

        fn receive_in(&self, number: usize, record: usize) {
            // The first slot was used before; it takes the second one meanwhile.
            if number > 0 {
                self.slots_used.fetch_max(2, Ordering::Release);
            }
            let flags = AtomicU32::new(0);
            let (word, arming) = (&self.wake[number], &self.arming[number]);
            let Self { asymmetric, sleeps, .. } = self;
            let slot =
                ArmingSlot { word, asymmetric, sleeps, arming, flags: &flags, needs_fence: 1 };
            let is_empty = || self.records[record].load(Ordering::Acquire) == 0;
            let mut sleeper = Sleeper { kernel: &self.kernels[number], token: 0 };
            while is_empty() {
                let recheck = || is_empty().then_some(Duration::MAX);
                sleep_unless(&mut sleeper, slot, recheck).unwrap();
            }
        }

        fn publish(&self, record: usize, sleeping: &Sleeping) {
            self.records[record].store(1, Ordering::Release); // COMMIT
            fence_after_unlock(); // SLEEP
            if self.is_any(sleeping, record) {
                self.wake(sleeping, Some(record));
            }
        }

        pub(in crate::notify) fn is_any(&self, sleeping: &Sleeping, record: usize) -> bool {
            sleeping.may_be_any(&self.sleeps)
                && sleeping.concerns(self.eventcount(), audience(record))
        }

        /// Wakes those that want a record, or all.
        pub(in crate::notify) fn wake(&self, sleeping: &Sleeping, record: Option<usize>) {
            let wake_one = |word: &AtomicU32| {
                let woken = self.wake.iter().position(|one| std::ptr::eq(one, word)).unwrap();
                self.kernels[woken].wake_all();
            };
            let audience = record.map_or(Audience::All, audience);
            sleeping.wake(self.eventcount(), audience, wake_one, |_| Delivery::default());
        }

        fn eventcount(&self) -> EventCount<'_> {
            let Self { wake, sleeps, arming, slots_used, .. } = self;
            EventCount { wake, sleeps, arming, slots_used, rows: Rows::new(&self.rows, 1) }
        }
    }

    fn audience(record: usize) -> Audience {
        Audience::of(record.try_into().unwrap())
    }

    fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    /// One publisher commits two records; one subscriber sleeps before each.
    #[test]
    fn loom_no_lost_wake_up() {
        check(4, || {
            let bus = Bus::new();
            let publisher = thread::spawn({
                let bus = Arc::clone(&bus);
                move || {
                    let sleeping = Sleeping::new(2);
                    bus.publish(0, &sleeping);
                    bus.publish(1, &sleeping);
                }
            });
            bus.receive(0);
            bus.receive(1);
            publisher.join().unwrap();
        });
    }

    /// The subscriber does not want the first record, and the publisher remembers that it sleeps.
    #[test]
    fn loom_no_lost_wake_up_of_a_bystander() {
        check(4, || {
            let bus = Bus::new();
            bus.refuse(0, 0);
            let publisher = thread::spawn({
                let bus = Arc::clone(&bus);
                move || {
                    let sleeping = Sleeping::new(2);
                    bus.publish(0, &sleeping);
                    bus.publish(1, &sleeping);
                }
            });
            bus.receive(1);
            publisher.join().unwrap();
        });
    }

    /// Two threads of one publisher share what it knows of sleepers. The subscriber wants one of the records.
    #[test]
    fn loom_no_lost_wake_up_between_threads() {
        for refuses in [false, true] {
            check(2, move || {
                let bus = Bus::new();
                if refuses {
                    bus.refuse(0, 0);
                }
                let sleeping = Arc::new(Sleeping::new(2));
                let publishers: Vec<_> = [0, 1]
                    .map(|record| {
                        let (bus, sleeping) = (Arc::clone(&bus), Arc::clone(&sleeping));
                        thread::spawn(move || bus.publish(record, &sleeping))
                    })
                    .into();
                bus.receive(1);
                if !refuses {
                    bus.receive(0);
                }
                for publisher in publishers {
                    publisher.join().unwrap();
                }
            });
        }
    }

    /// Two subscribers, one publisher: that one subscriber was woken must not hide the other's sleep, nor that it does not
    /// want what is published first.
    #[test]
    fn loom_no_lost_wake_up_of_two_sleepers() {
        for refuses in [false, true] {
            check(3, move || {
                let bus = Bus::new();
                if refuses {
                    bus.refuse(1, 0);
                    bus.refuse(0, 1);
                }
                let subscribers: Vec<_> = [0, 1]
                    .map(|number| {
                        let bus = Arc::clone(&bus);
                        thread::spawn(move || bus.receive_in(number, number))
                    })
                    .into();
                let sleeping = Sleeping::new(2);
                bus.publish(0, &sleeping);
                bus.publish(1, &sleeping);
                for subscriber in subscribers {
                    subscriber.join().unwrap();
                }
            });
        }
    }
}
