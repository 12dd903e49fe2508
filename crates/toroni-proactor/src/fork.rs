//! A proactor belongs to the process that created it. The child of a `fork` has a copy of its memory, but
//! neither its threads nor its share of the kernel's objects, and perhaps a lock that no thread will release.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of forks between this process and the first one that asked.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Identifies a process among its forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Returns the generation of this process.
    pub(crate) fn current() -> Self {
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Ordering::Relaxed);
            crate::sys::ThreadId::forget_current();
        }
        // Not a `Once`, which a child could find locked for ever. If several threads come at the same time, each
        // registers the handler, which may then run several times for one fork.
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.load(Ordering::Acquire) {
            // SAFETY: the handler may run between fork and exec: it adds to an atomic, and clears a cell
            // of the one thread that there is.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            REGISTERED.store(true, Ordering::Release);
        }
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Returns whether it is the generation of this process.
    pub(crate) fn is_current(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}
