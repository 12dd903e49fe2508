//! The limit of operations in progress.
//!
//! One shard counts its operations. Several share the limit: each holds as many *slots* as it has operations in
//! progress, and gives those that it does not need back when it releases its lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The slots that no shard holds.
pub(crate) struct Slots {
    free: AtomicUsize,
    /// A shard has found none.
    are_wanted: AtomicBool,
}

impl Slots {
    pub(crate) fn new(free: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(free), are_wanted: AtomicBool::new(false) })
    }

    fn take(&self) -> bool {
        let one_less = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

/// A processor's share of the limit.
pub(crate) struct Limit {
    /// The maximum of this processor alone.
    most: usize,
    /// The slots for all shards' processors of this number, if there are several shards, and how many this
    /// processor holds.
    shared: Option<(Arc<Slots>, usize)>,
}

impl Limit {
    pub(crate) fn new(most: usize, shared: Option<Arc<Slots>>) -> Self {
        Self { most, shared: shared.map(|slots| (slots, 0)) }
    }

    /// Returns whether no operation may be added to this many in progress.
    pub(super) fn is_reached(&mut self, in_progress: usize) -> bool {
        if in_progress >= self.most {
            return true;
        }
        let Some((slots, held)) = &mut self.shared else { return false };
        if in_progress >= *held {
            if !slots.take() {
                // A shard that frees one from here on sees this; one that was freed before is taken now.
                slots.are_wanted.store(true, Ordering::SeqCst);
                if !slots.take() {
                    return true;
                }
            }
            *held += 1;
        }
        false
    }

    /// Gives back what this many operations in progress do not need. Returns whether other shards want it.
    pub(super) fn give_back(&mut self, in_progress: usize) -> bool {
        let Some((slots, held)) = &mut self.shared else { return false };
        let surplus = held.saturating_sub(in_progress);
        if surplus == 0 {
            return false;
        }
        *held = in_progress;
        slots.free.fetch_add(surplus, Ordering::SeqCst);
        slots.are_wanted.swap(false, Ordering::SeqCst)
    }
}
