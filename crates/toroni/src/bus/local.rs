//! The gating subscribers of this process, and which thread reads each. A thread that publishes would wait
//! for itself if it waited for a subscriber that only it reads.
//!
//! A subscriber can move from one thread to another unseen. What is known is the thread that made it, and
//! the thread that took messages out of the ring last:
//!
//! - While the thread that took messages last lives, it is the one that reads.
//! - If no thread has read yet, or the last reader has ended, the maker may read, or may have handed the
//!   subscriber to a thread that has not begun. The maker waits for that thread, but not for ever:
//!   [`READER_TIMEOUT`].
//!
//! The list is walked under the writer lock, and in the child of a `fork` of a busy process, so it has no
//! lock that the child could find locked. A child ignores the entries of its parent, whose positions no
//! longer change.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::shm::fork::ForkStamp;
use crate::shm::registry::{Entry, Registry};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// How long the maker of a subscriber without a reader waits for another thread to begin to read it.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

static READERS: Registry<Reader> = Registry::new();

/// No thread, or no incarnation.
const NONE: u64 = 0;

/// What is known of a gating subscriber. Its first fields, up to `maker`, do not change while
/// `incarnation` does not.
#[derive(Default)]
struct Reader {
    /// A number that no other subscriber of this process has had, or [`NONE`] if the entry is free.
    incarnation: AtomicU64,
    /// The process that entered it.
    process: AtomicU32,
    bus_id: [AtomicU64; 2],
    slot: AtomicU32,
    generation: AtomicU32,
    /// The thread that made it.
    maker: AtomicU64,
    /// The position that it published last. This is not the word in its slot, which every subscriber of the
    /// bus may write.
    position: AtomicU64,
    /// The living thread that took messages out of the ring last, or [`NONE`].
    thread: AtomicU64,
    /// Since when its maker has waited for another thread to begin to read, or 0.
    awaiting_reader_since_ns: AtomicU64,
}

/// The entry of a subscriber, until dropped.
pub(super) struct LocalReader(&'static Entry<Reader>);

impl LocalReader {
    pub(super) fn register(bus_id: [u8; 16], slot: u32, generation: u32, position: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);
        let entry = READERS.take();
        let reader = &entry.value;
        // Pairs with the fence in `read`: a thread that sees one of the new values sees that the entry was
        // free.
        fence(Ordering::Release);
        reader.process.store(ForkStamp::now().number(), Ordering::Relaxed);
        for (word, half) in reader.bus_id.iter().zip(halves(&bus_id)) {
            word.store(half, Ordering::Relaxed);
        }
        reader.slot.store(slot, Ordering::Relaxed);
        reader.generation.store(generation, Ordering::Relaxed);
        reader.maker.store(this_thread(), Ordering::Relaxed);
        reader.position.store(position, Ordering::Relaxed);
        reader.thread.store(NONE, Ordering::Relaxed);
        reader.awaiting_reader_since_ns.store(0, Ordering::Relaxed);
        reader.incarnation.store(NEXT.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        Self(entry)
    }

    /// Notes that the calling thread reads.
    pub(super) fn note_thread(&self) {
        self.0.value.take_over(this_thread());
    }

    /// Notes how far it has come, before it writes that to its slot.
    pub(super) fn note_position(&self, position: u64) {
        self.0.value.position.store(position, Ordering::Release);
    }
}

impl Drop for LocalReader {
    fn drop(&mut self) {
        self.0.value.incarnation.store(NONE, Ordering::Release);
        self.0.give_back();
    }
}

impl Reader {
    /// Returns what `ask` answers, if the entry is a subscriber of this process to this bus, and stayed
    /// the same one while `ask` ran.
    fn read<T>(&self, bus_id: &[u8; 16], ask: impl FnOnce(&Self) -> T) -> Option<T> {
        let incarnation = self.incarnation.load(Ordering::Acquire);
        if incarnation == NONE {
            return None;
        }
        let is_ours = self.process.load(Ordering::Relaxed) == ForkStamp::now().number()
            && self.bus_id.each_ref().map(|word| word.load(Ordering::Relaxed)) == halves(bus_id);
        // `ask` may note something, which must not be in the entry of another bus.
        let answer = is_ours.then(|| ask(self))?;
        fence(Ordering::Acquire);
        (self.incarnation.load(Ordering::Relaxed) == incarnation).then_some(answer)
    }

    fn is(&self, slot: u32, generation: u32) -> bool {
        self.slot.load(Ordering::Relaxed) == slot
            && self.generation.load(Ordering::Relaxed) == generation
    }

    /// Returns whether its maker has waited for another thread for [`READER_TIMEOUT`]. A wait may consist of
    /// many calls with a limit each.
    fn has_timed_out(&self, now_ns: u64) -> bool {
        let since_ns = &self.awaiting_reader_since_ns;
        let since_ns = since_ns
            .compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed)
            .unwrap_or_else(|ns| ns);
        since_ns != 0 && u128::from(now_ns.saturating_sub(since_ns)) >= READER_TIMEOUT.as_nanos()
    }

    /// Notes that this thread reads from now on, until another one does or it ends.
    fn take_over(&self, thread: u64) {
        if self.thread.load(Ordering::Relaxed) != thread {
            self.awaiting_reader_since_ns.store(0, Ordering::Relaxed);
            self.thread.store(thread, Ordering::Relaxed);
            // A thread that has already run its destructors does not note its end, and is waited for.
            let _ = ENDING.try_with(|_| ());
        }
    }
}

/// Returns slot, generation and position of each gating subscriber that this process has on a bus.
pub(super) fn positions(bus_id: &[u8; 16]) -> Vec<(u32, u32, u64)> {
    let ours = READERS.iter().filter_map(|entry| {
        entry.value.read(bus_id, |reader| {
            let slot = reader.slot.load(Ordering::Relaxed);
            let generation = reader.generation.load(Ordering::Relaxed);
            (slot, generation, reader.position.load(Ordering::Acquire))
        })
    });
    ours.collect()
}

/// Returns whether the calling thread would wait for itself if it waited for the subscriber in this slot.
/// It would if it reads the subscriber; or if it has made the subscriber and no other thread has begun to
/// read it within [`READER_TIMEOUT`]. From then on it counts as the thread that reads.
pub(super) fn would_wait_for_itself(
    bus_id: &[u8; 16],
    slot: u32,
    generation: u32,
    now_ns: u64,
) -> bool {
    let me = this_thread();
    let ask = |reader: &Reader| {
        if !reader.is(slot, generation) {
            return None;
        }
        match reader.thread.load(Ordering::Relaxed) {
            NONE if reader.maker.load(Ordering::Relaxed) == me => {
                let has_timed_out = reader.has_timed_out(now_ns);
                if has_timed_out {
                    reader.take_over(me);
                }
                Some(has_timed_out)
            }
            thread => Some(thread == me),
        }
    };
    READERS.iter().find_map(|entry| entry.value.read(bus_id, ask).flatten()).unwrap_or(false)
}

fn halves(bus_id: &[u8; 16]) -> [u64; 2] {
    let number = u128::from_ne_bytes(*bus_id);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    [number as u64, (number >> 64) as u64]
}

/// Returns a number of the calling thread, which is never [`NONE`] and no other thread's.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

thread_local! {
    static ENDING: Ending = const { Ending };
}

/// Dropped when a thread that has read ends.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        let me = this_thread();
        for entry in READERS.iter() {
            let thread = &entry.value.thread;
            let _ = thread.compare_exchange(me, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::testing::{in_fork, in_own_process};

    const READER_TIMEOUT_NS: u64 = 1_000_000_000;

    /// Returns whether a publisher of this thread that waits from 5 ns on would wait for itself, at the start of its
    /// wait and a second later.
    fn would_wait(bus_id: &[u8; 16]) -> [bool; 2] {
        [5, 5 + READER_TIMEOUT_NS].map(|now_ns| would_wait_for_itself(bus_id, 3, 7, now_ns))
    }

    fn in_another_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().expect("it passes"))
    }

    #[test]
    fn only_its_reader_would_wait_for_itself() {
        let bus_id = [1; 16];
        let reader = LocalReader::register(bus_id, 3, 7, 0);
        reader.note_thread();
        assert_eq!(would_wait(&bus_id), [true, true]);
        assert_eq!(would_wait(&[9; 16]), [false, false], "another bus");
        assert_eq!(in_another_thread(|| would_wait(&bus_id)), [false, false]);
        drop(reader);
        assert_eq!(would_wait(&bus_id), [false, false]);
    }

    #[test]
    fn its_maker_waits_for_another_thread_for_a_while() {
        let bus_id = [2; 16];
        // Slots of other buses have the same numbers.
        let elsewhere = [8; 16];
        let _elsewhere = LocalReader::register(elsewhere, 3, 7, 0);
        let reader = LocalReader::register(bus_id, 3, 7, 0);
        assert_eq!(in_another_thread(|| would_wait(&bus_id)), [false, false], "it has not made it");
        assert!(!would_wait_for_itself(&bus_id, 3, 7, 5));
        assert!(!would_wait_for_itself(&bus_id, 3, 7, 4 + READER_TIMEOUT_NS));
        assert_eq!(would_wait(&bus_id), [false, true]);
        assert_eq!(would_wait(&bus_id), [true, true], "it has learned");
        assert_eq!(would_wait(&elsewhere), [false, true], "of this bus alone");
        drop(reader);
    }

    #[test]
    fn a_wait_for_a_thread_that_begins_to_read_continues() {
        let bus_id = [3; 16];
        let reader = LocalReader::register(bus_id, 3, 7, 0);
        let (read, has_read) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        assert!(!would_wait_for_itself(&bus_id, 3, 7, 5));
        std::thread::scope(|scope| {
            let reader = &reader;
            let thread = scope.spawn(move || {
                reader.note_thread();
                read.send(()).unwrap();
                let _ = ended.recv();
            });
            has_read.recv().unwrap();
            assert_eq!(would_wait(&bus_id), [false, false]);
            drop(end);
            // Not by the end of the scope, which does not wait for destructors.
            thread.join().unwrap();
        });
        // The maker may have the subscriber back, and its wait begins again.
        assert_eq!(would_wait(&bus_id), [false, true]);
    }

    #[test]
    fn positions_are_those_of_the_bus() {
        let bus_id = [4; 16];
        let one = LocalReader::register(bus_id, 3, 7, 80);
        let other = LocalReader::register(bus_id, 4, 1, 0);
        let _elsewhere = LocalReader::register([5; 16], 3, 7, 8);
        one.note_position(96);
        let mut ours = positions(&bus_id);
        ours.sort_unstable();
        assert_eq!(ours, [(3, 7, 96), (4, 1, 0)]);
        drop(one);
        assert_eq!(positions(&bus_id), [(4, 1, 0)]);
        drop(other);
        assert_eq!(positions(&bus_id), []);
    }

    #[test]
    fn a_child_does_not_believe_what_its_parent_has_entered() {
        let name = "bus::local::tests::a_child_does_not_believe_what_its_parent_has_entered";
        in_own_process(name, || {
            let bus_id = [7; 16];
            let reader = LocalReader::register(bus_id, 3, 7, 80);
            reader.note_thread();
            in_fork(|| {
                assert_eq!(positions(&bus_id), []);
                assert_eq!(would_wait(&bus_id), [false, false]);
                let _ours = LocalReader::register(bus_id, 3, 8, 96);
                assert_eq!(positions(&bus_id), [(3, 8, 96)]);
            });
            assert_eq!(positions(&bus_id), [(3, 7, 80)]);
        });
    }

    /// Entries are taken and given back all the time: no reader sees half of one with half of another.
    #[test]
    fn entries_that_change_hands_are_never_mixed_up() {
        let bus_id = [6; 16];
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            let takers: Vec<_> = (0..2)
                .map(|taker| {
                    scope.spawn(move || {
                        for round in 0..rounds {
                            let number = 2 * round + taker;
                            drop(LocalReader::register(bus_id, number, number, number.into()));
                        }
                    })
                })
                .collect();
            while takers.iter().any(|taker| !taker.is_finished()) {
                for (slot, generation, position) in positions(&bus_id) {
                    assert_eq!((slot, u64::from(slot)), (generation, position));
                }
            }
        });
    }
}
