//! Where threads work, and where descriptors are at home.

use super::{Shard, Shards};
use crate::hook::mutant;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

/// A shard has clearly more descriptors than another one if it has this part more.
const MORE: usize = 8;

/// Descriptors for each thread are counted in these parts of one.
const SCALE: usize = 64;

thread_local! {
    /// The proactor that this thread has served last, as the address of its counts, and the thread's shard there. `SETTLED`
    /// keeps them alive, so no other proactor has that address.
    static PLACE: Cell<(usize, Shard)> = const { Cell::new((0, 0)) };
    /// Counts this thread in that shard.
    static SETTLED: RefCell<Option<Settled>> = const { RefCell::new(None) };
}

/// Counts a thread in the shard that it has served last, until it serves another one or ends.
struct Settled {
    threads: Arc<[AtomicUsize]>,
    shard: Shard,
}

impl Settled {
    fn new(threads: &Arc<[AtomicUsize]>, shard: Shard) -> Self {
        threads[usize::from(shard)].fetch_add(1, Ordering::Relaxed);
        Self { threads: Arc::clone(threads), shard }
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        self.threads[usize::from(self.shard)].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a thread in its shard while it handles events.
pub(crate) struct Present<'a> {
    shards: &'a Shards,
    pub(super) shard: Shard,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        if !self.shards.is_only() {
            self.shards.present[usize::from(self.shard)].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shards {
    /// Returns this thread's shard: the same each time, until the thread moves, and at first the one with the fewest threads that handle events,
    /// and of those the one that the fewest threads have served. A handler that handles events stays in its shard.
    pub(super) fn arrive(&self) -> Present<'_> {
        if self.is_only() {
            return Present { shards: self, shard: 0 };
        }
        let present = |shard: Shard| &self.present[usize::from(shard)];
        if let Some(shard) = self.calling().or_else(|| self.place()) {
            present(shard).fetch_add(1, Ordering::Relaxed);
            return Present { shards: self, shard };
        }
        // So that threads that come at the same time do not all see the same numbers.
        let _one_at_a_time = self.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = |shard: &Shard| {
            let settled = &self.settled[usize::from(*shard)];
            (present(*shard).load(Ordering::Relaxed), settled.load(Ordering::Relaxed))
        };
        let fewest = self.numbers().min_by_key(threads);
        let shard = fewest.unwrap_or(0);
        present(shard).fetch_add(1, Ordering::Relaxed);
        self.settle(shard);
        Present { shards: self, shard }
    }

    /// Makes this the shard of this thread.
    pub(crate) fn settle(&self, shard: Shard) {
        PLACE.set((self.settled.as_ptr().addr(), shard));
        // While the thread ends, it is counted nowhere.
        let _ =
            SETTLED.try_with(|settled| settled.replace(Some(Settled::new(&self.settled, shard))));
    }

    /// Returns the number of threads that have served this proactor last.
    #[cfg(test)]
    pub(crate) fn settled_threads(&self) -> usize {
        sum(&self.settled)
    }

    /// Returns the number of threads in each shard.
    #[cfg(test)]
    pub(crate) fn present_in(&self) -> Vec<usize> {
        self.present.iter().map(|threads| threads.load(Ordering::Relaxed)).collect()
    }

    /// Returns the shard of this thread, if it has served this proactor last.
    fn place(&self) -> Option<Shard> {
        let (counts, shard) = PLACE.get();
        (counts == self.settled.as_ptr().addr()).then_some(shard)
    }

    /// Returns the shard for a descriptor that this thread takes over, and a guard to keep until its handle is counted. As
    /// long as there are fewer descriptors than threads, all go where the first one went: sessions that may work on each
    /// other, and that one thread can serve, need no messages between threads.
    pub(crate) fn home(&self) -> (Shard, Option<MutexGuard<'_, ()>>) {
        let are_few = |descriptors: usize| {
            descriptors < sum(&self.settled).max(self.announced)
                && !mutant("few_descriptors_are_dealt_out")
        };
        if self.is_only() || !are_few(sum(&self.handles)) {
            return (self.here(), None);
        }
        let one_at_a_time = self.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        let descriptors = sum(&self.handles);
        if !are_few(descriptors) {
            return (self.here(), None);
        }
        if descriptors == 0 {
            self.first_home.store(self.here(), Ordering::Relaxed);
        }
        (self.first_home.load(Ordering::Relaxed), Some(one_at_a_time))
    }

    /// Returns the shard for a socket that a handler of this thread has accepted, as [`Shards::home`] does. If many are
    /// accepted one after another, the same thread accepts them all. So a socket goes to the shard with the fewest
    /// descriptors for each thread, if this thread's own one has clearly more.
    pub(crate) fn home_of_accepted(&self) -> (Shard, Option<MutexGuard<'_, ()>>) {
        let (home, guard) = self.home();
        if self.is_only() || guard.is_some() || mutant("accepted_sockets_stay") {
            return (home, guard);
        }
        let [threads, handles] = [&*self.settled, &*self.handles]
            .map(|counts| move |shard: Shard| counts[usize::from(shard)].load(Ordering::Relaxed));
        // Its threads may have ended. Then the others do its work.
        let for_each_thread = |shard: Shard| handles(shard) * SCALE / threads(shard).max(1);
        let served = self.numbers().filter(|shard| threads(*shard) > 0);
        let Some(fewest) = served.min_by_key(|shard| for_each_thread(*shard)) else {
            return (home, None);
        };
        let (own, least) = (for_each_thread(home), for_each_thread(fewest));
        (if own > least + least / MORE + SCALE { fewest } else { home }, None)
    }

    /// Counts a handle of a descriptor that is at home here.
    pub(crate) fn add_handle(&self, home: Shard) {
        self.handles[usize::from(home)].fetch_add(1, Ordering::Relaxed);
    }

    /// Ends [`Shards::add_handle`].
    pub(crate) fn remove_handle(&self, home: Shard) {
        self.handles[usize::from(home)].fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the shard for what this thread creates: its own one. If the thread serves no shard, those in which
    /// threads are take turns; if there are none yet, those to which the announced threads will come.
    pub(crate) fn here(&self) -> Shard {
        if self.is_only() {
            return 0;
        }
        self.place().unwrap_or_else(|| {
            let first = self.turns.fetch_add(1, Ordering::Relaxed) % self.locks.len();
            let mut order = self.numbers().cycle().skip(first).take(self.locks.len());
            let is_served =
                |shard: &Shard| self.present[usize::from(*shard)].load(Ordering::Relaxed) > 0;
            let is_announced = |shard: &Shard| {
                usize::from(*shard) < self.announced && !mutant("announced_threads_are_forgotten")
            };
            order.clone().find(is_served).or_else(|| order.find(is_announced)).unwrap_or(0)
        })
    }
}

fn sum(counts: &[AtomicUsize]) -> usize {
    counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
}
