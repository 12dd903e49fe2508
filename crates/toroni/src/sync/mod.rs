//! Atomics and fences, chosen here only: those of the standard library, or loom's when a model runs.
//!
//! Every release/acquire pair of the crate carries a label (`COMMIT`, `RESERVE`, …) at both ends;
//! `ring/layout.rs` lists them.

mod fences;
pub(crate) mod membarrier;

pub(crate) use fences::{fence_after_unlock, full_fence};

#[cfg(not(loom))]
use core::sync::atomic::compiler_fence;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;

/// Tells the processor that this thread polls, which leaves more of the core to its sibling thread.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(all(test, not(loom)))]
mod tso;
