//! A proactor belongs to the process that made it: the child of a `fork` has its memory, but neither its
//! threads nor a share in what the kernel does for it, and perhaps a lock that nobody will open.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many forks lie between this process and the first one that asked.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The generation of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Of this process.
    pub(crate) fn current() -> Self {
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Ordering::Relaxed);
            crate::sys::ThreadId::forget_current();
        }
        // Not a `Once`, which a child could meet closed for ever. Threads that come at the same time each
        // register the handler, which may run several times for a fork.
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.load(Ordering::Acquire) {
            // SAFETY: the handler may run between fork and exec: it adds to an atomic, and clears a cell
            // of the one thread that there is.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            REGISTERED.store(true, Ordering::Release);
        }
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether it is this process's.
    pub(crate) fn is_current(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}
