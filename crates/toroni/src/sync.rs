//! Atomics and fences, chosen here only: those of the standard library, or loom's when a model runs.
//!
//! Every release/acquire pair of the crate carries a label (`COMMIT`, `RESERVE`, …) at both ends;
//! `ring/layout.rs` lists them.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Tells the processor that this thread polls: cheaper for the sibling that it waits for.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// The full fence between a commit and the look for sleepers, after the writer lock was given back
/// with an atomic swap.
///
/// In the C11 model a swap is no sequentially consistent fence: the look for sleepers could move
/// before the commit, and a reader that went to sleep in between would not be woken. On x86-64 the
/// swap is a locked instruction, which the processor orders with every load behind it (AMD64 APM
/// vol. 2 §7.4.2), so there only the compiler has to be held back.
#[inline]
pub(crate) fn fence_after_unlock_swap() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    fence(Ordering::SeqCst);
}
