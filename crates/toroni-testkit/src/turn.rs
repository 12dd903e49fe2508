//! Limits how many tests of a process run at the same time: one by one, or a few.
//!
//! `cargo test` runs one executable after another, but many tests of each at the same time. Tests that measure stand in
//! an executable of their own, `tests/measured`, and each takes its [`turn`]. So nothing else of `cargo test` runs beside
//! them. Tests that need much of a machine for a while, for example groups of processes that elect a leader, share
//! [`Places`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The turn of a test, until this is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn(
    #[expect(dead_code, reason = "its drop is what it is for")] MutexGuard<'static, ()>,
);

/// Waits until no other test of this process has its turn. A test that panics ends its turn, too.
pub fn turn() -> Turn {
    static TURNS: Mutex<()> = Mutex::new(());
    Turn(TURNS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Places for work of which only a few may happen at the same time: a semaphore.
///
/// Take at most one place in a thread: tests that each hold one and wait for another wait for ever.
#[derive(Debug)]
pub struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    /// Makes places, all of them free. To share them among tests, make them a `static`.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits until a place is free, and takes it.
    pub fn take(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Place(self)
    }
}

/// One of the [`Places`], until this is dropped.
#[derive(Debug)]
#[must_use = "the place is free again when this is dropped"]
pub struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Runs 8 threads, of which each enters 100 times, and returns how many were inside at the same time at most.
    fn most_inside<G>(enter: impl Fn() -> G + Sync) -> usize {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let visit = || {
            for _ in 0..100 {
                let _guard = enter();
                most.fetch_max(inside.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(visit))));
        most.into_inner()
    }

    #[test]
    fn one_test_has_its_turn_also_after_another_one_panicked() {
        let panicked = std::thread::spawn(|| {
            let _turn = turn();
            panic!("a test that fails");
        });
        assert!(panicked.join().is_err());
        assert_eq!(most_inside(turn), 1);
    }

    #[test]
    fn there_are_no_more_inside_than_places() {
        let places = Places::new(3);
        let taken = [places.take(), places.take()];
        assert_eq!(most_inside(|| places.take()), 1);
        drop(taken);
        assert!((1..=3).contains(&most_inside(|| places.take())));
    }
}
