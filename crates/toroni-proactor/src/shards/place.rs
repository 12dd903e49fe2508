//! Where threads work, and where descriptors are at home.

use super::{Shard, Shards};
use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

thread_local! {
    /// The proactor that this thread has served last, as the address of its shards, and the thread's shard there.
    static PLACE: Cell<(usize, Shard)> = const { Cell::new((0, 0)) };
}

/// Counts a thread in its shard while it handles events.
pub(crate) struct Present<'a> {
    shards: &'a Shards,
    pub(super) shard: Shard,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.shards.present[usize::from(self.shard)].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shards {
    /// Returns this thread's shard: the same each time, and at first the one with the fewest threads. A handler that
    /// handles events stays in its shard.
    pub(super) fn arrive(&self) -> Present<'_> {
        let present = |shard: Shard| &self.present[usize::from(shard)];
        if let Some(shard) = self.calling().or_else(|| self.place()) {
            present(shard).fetch_add(1, Ordering::Relaxed);
            return Present { shards: self, shard };
        }
        // So that threads that come at the same time do not all see the same numbers.
        let _one_at_a_time = self.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        let fewest = self.numbers().min_by_key(|shard| present(*shard).load(Ordering::Relaxed));
        let shard = fewest.unwrap_or(0);
        present(shard).fetch_add(1, Ordering::Relaxed);
        self.settle(shard);
        Present { shards: self, shard }
    }

    /// Makes this the shard of this thread.
    pub(crate) fn settle(&self, shard: Shard) {
        PLACE.set((std::ptr::from_ref(self).addr(), shard));
    }

    /// Returns the number of threads in each shard.
    #[cfg(test)]
    pub(crate) fn present_in(&self) -> Vec<usize> {
        self.present.iter().map(|threads| threads.load(Ordering::Relaxed)).collect()
    }

    /// Returns the shard of this thread, if it has served this proactor last.
    fn place(&self) -> Option<Shard> {
        let (shards, shard) = PLACE.get();
        let is_known = shards == std::ptr::from_ref(self).addr();
        (is_known && usize::from(shard) < self.locks.len()).then_some(shard)
    }

    /// Returns the shard for what this thread creates: its own one. If the thread serves no shard, those in which
    /// threads are take turns.
    pub(crate) fn here(&self) -> Shard {
        if self.is_only() {
            return 0;
        }
        self.place().unwrap_or_else(|| {
            let first = self.turns.fetch_add(1, Ordering::Relaxed) % self.locks.len();
            let mut order = self.numbers().cycle().skip(first).take(self.locks.len());
            let is_served =
                |shard: &Shard| self.present[usize::from(*shard)].load(Ordering::Relaxed) > 0;
            order.find(is_served).unwrap_or(0)
        })
    }
}
