//! A list that signal handlers and fork handlers can walk: it has no locks, does not allocate while it is walked,
//! and never frees.

// Not from `crate::sync`: these are not part of a model, and statics need `const fn new`.
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Entries are taken and given back. The memory grows to the largest number of entries that were ever taken at
/// once, in chunks of 32.
pub(crate) struct Registry<T: 'static> {
    newest: AtomicPtr<Chunk<T>>,
}

/// One entry. `value` keeps what its last owner left there.
pub(crate) struct Entry<T> {
    taken: AtomicBool,
    pub(crate) value: T,
}

struct Chunk<T: 'static> {
    entries: [Entry<T>; 32],
    older: Option<&'static Chunk<T>>,
}

impl<T: Default + Sync> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self { newest: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns an entry that no other owner has.
    pub(crate) fn take(&self) -> &'static Entry<T> {
        loop {
            let newest = self.newest();
            if let Some(entry) = Self::walk(newest).find(|entry| entry.try_take()) {
                return entry;
            }
            let chunk: &'static mut Chunk<T> = Box::leak(Box::new(Chunk {
                entries: std::array::from_fn(|_| Entry {
                    taken: AtomicBool::new(false),
                    value: T::default(),
                }),
                older: newest,
            }));
            let expected =
                newest.map_or(std::ptr::null_mut(), |chunk| std::ptr::from_ref(chunk).cast_mut());
            // Release: walkers see the content of the chunk. A thread that loses the race frees its chunk again.
            let chunk = std::ptr::from_mut(chunk);
            if self
                .newest
                .compare_exchange(expected, chunk, Ordering::Release, Ordering::Relaxed)
                .is_err()
            {
                // SAFETY: made by Box::new above, and never made visible to another thread.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }

    /// Returns all entries, taken or not. Async-signal-safe.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Entry<T>> {
        Self::walk(self.newest())
    }

    fn newest(&self) -> Option<&'static Chunk<T>> {
        // SAFETY: null, or a chunk that `take` leaked, and that is never freed once it is here. Acquire pairs with
        // the Release that put it here.
        unsafe { self.newest.load(Ordering::Acquire).as_ref() }
    }

    fn walk(newest: Option<&'static Chunk<T>>) -> impl Iterator<Item = &'static Entry<T>> {
        std::iter::successors(newest, |chunk| chunk.older).flat_map(|chunk| &chunk.entries)
    }
}

impl<T> Entry<T> {
    /// Makes the entry free for another owner. The caller has made `value` harmless before.
    pub(crate) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    fn try_take(&self) -> bool {
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn entries_are_unique_and_come_back() {
        static REGISTRY: Registry<AtomicU32> = Registry::new();
        let takers: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    (0..50)
                        .map(|_| {
                            let entry = REGISTRY.take();
                            entry.value.fetch_add(1, Ordering::Relaxed);
                            entry
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let entries: Vec<_> = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
        assert_eq!(entries.len(), 200);
        assert!(entries.iter().all(|entry| entry.value.load(Ordering::Relaxed) == 1));
        let before = REGISTRY.iter().count();
        entries.iter().for_each(|entry| entry.give_back());
        for _ in 0..200 {
            REGISTRY.take();
        }
        assert_eq!(REGISTRY.iter().count(), before);
    }
}
