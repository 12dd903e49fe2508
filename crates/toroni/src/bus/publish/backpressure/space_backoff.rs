//! How a publisher that waits for free space polls, before it sleeps.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::bus::clock;
use crate::bus::polling::adapted;
use crate::notify::futex;
use crate::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// The most checks of the `space` word before a publisher yields to other threads, and then before it sleeps.
/// A reader on another core frees space within microseconds. If there are more processes than cores, it can
/// run only while the publisher does not.
const MOST_SPINS: u32 = 500;
const YIELDS: u32 = 20;

/// How long publishers of one participant poll for free space: longer after polling has helped, else shorter.
#[derive(Debug)]
pub(super) struct SpaceBackoff {
    spins: AtomicU32,
}

impl Default for SpaceBackoff {
    fn default() -> Self {
        Self { spins: AtomicU32::new(MOST_SPINS) }
    }
}

impl SpaceBackoff {
    /// Waits until `space` is no longer `token`, for `slice_ns` at most.
    pub(super) fn wait(&self, space: &AtomicU32, token: u32, slice_ns: u64) {
        if self.poll(space, token, slice_ns, clock::monotonic_ns, std::thread::yield_now) {
            return;
        }
        // Whatever the answer, the caller checks again.
        let _ = futex::wait_while(space, token, Some(Duration::from_nanos(slice_ns)));
    }

    /// Polls until `space` is no longer `token` or the slice is over. Returns false if neither has happened
    /// yet. A thread that yields comes back when the others have run: if they are many, that takes more
    /// than a slice each time.
    fn poll(
        &self,
        space: &AtomicU32,
        token: u32,
        slice_ns: u64,
        now_ns: impl Fn() -> u64,
        let_others_run: impl Fn(),
    ) -> bool {
        let spins = self.spins.load(Ordering::Relaxed);
        let learn = |was_of_use| {
            self.spins.store(adapted(spins, MOST_SPINS, was_of_use), Ordering::Relaxed);
        };
        let mut began_ns = None;
        for check in 0..spins.saturating_add(YIELDS) {
            if space.load(Ordering::Relaxed) != token {
                learn(check < spins);
                return true;
            }
            if check < spins {
                crate::sync::pause();
                continue;
            }
            let began_ns = *began_ns.get_or_insert_with(&now_ns);
            let_others_run();
            if now_ns().saturating_sub(began_ns) >= slice_ns {
                learn(false);
                return true;
            }
        }
        learn(false);
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bus::polling::FEWEST_SPINS;
    use std::cell::Cell;

    #[test]
    fn letting_others_run_for_a_slice_counts_as_a_wait_of_a_slice() {
        let (backoff, space) = (SpaceBackoff::default(), AtomicU32::new(7));
        let (now_ns, turns) = (Cell::new(5), Cell::new(0));
        let poll = |turn_ns: u64| {
            turns.set(0);
            backoff.poll(
                &space,
                7,
                1_000_000,
                || now_ns.get(),
                || {
                    turns.set(turns.get() + 1);
                    now_ns.set(now_ns.get() + turn_ns);
                },
            )
        };
        // The others take ten slices: the wait is over, and its limit must be checked.
        assert!(poll(10_000_000));
        assert_eq!(turns.get(), 1);
        // No other thread is there.
        assert!(!poll(100));
        assert_eq!(turns.get(), YIELDS);
    }

    #[test]
    fn polling_for_space_is_given_up_where_it_is_of_no_use() {
        let backoff = SpaceBackoff::default();
        let space = AtomicU32::new(7);
        for _ in 0..20 {
            backoff.wait(&space, 7, 1);
        }
        assert_eq!(backoff.spins.load(Ordering::Relaxed), FEWEST_SPINS);
        for _ in 0..20 {
            backoff.wait(&space, 6, 1);
        }
        assert_eq!(backoff.spins.load(Ordering::Relaxed), MOST_SPINS);
    }
}
