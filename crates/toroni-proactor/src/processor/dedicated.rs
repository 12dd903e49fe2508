//! Dedicated processors: each has a thread of its own, the leader from the start of the proactor to its
//! end. It never calls a handler, and never drops what belongs to a user.

use crate::core::Phase;
use crate::lock::{Lock, Locked};
use crate::sys::ThreadId;
use std::time::{Duration, Instant};

/// How long the end of a proactor waits for the kernel to let go of its operations. Then they are leaked:
/// what the kernel may still write to is never freed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Leads a dedicated processor until the proactor is closed and the engine has nothing left to do.
pub(crate) fn run_dedicated(lock: &Lock, which: usize) {
    let mut locked = lock.lock();
    locked.processors[which].acquire_leadership(ThreadId::current());
    while locked.phase != Phase::Closing {
        locked.handle_aio_events(which, None);
    }
    locked.drain(which);
    locked.processors[which].release_leadership();
}

impl Locked<'_> {
    /// Cancels everything in the hands of a processor's engine, and waits until it is out of them. This
    /// thread leads, and the proactor is closing.
    pub(crate) fn drain(&mut self, which: usize) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.cancel_everything_of(which);
            if self.processors[which].is_idle() || until <= Instant::now() {
                return;
            }
            self.handle_aio_events(which, Some(Duration::from_millis(100)));
        }
    }
}
