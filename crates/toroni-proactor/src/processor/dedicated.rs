//! Dedicated processors. Each has a thread of its own, which leads it from the start of the proactor to its
//! end. The thread never calls a handler, and never drops anything that belongs to a user.

use crate::core::Phase;
use crate::lock::Locked;
use crate::shards::{Shard, Shards};
use crate::sys::ThreadId;
use std::time::{Duration, Instant};

/// Leads a dedicated processor of a shard until the proactor is closed and the engine has nothing left to do.
pub(crate) fn run_dedicated(shards: &Shards, shard: Shard, which: usize) {
    let mut locked = shards.lock(shard);
    locked.processors[which].acquire_leadership(ThreadId::current());
    while locked.phase != Phase::Closing {
        locked.handle_aio_events(which, None);
    }
    let until = locked.drain_until();
    locked.drain(which, until);
    locked.processors[which].release_leadership();
}

impl Locked<'_> {
    /// Cancels all operations that a processor's engine holds, and waits until it has released them, or the
    /// time has come. This thread leads, and the proactor is closing.
    pub(crate) fn drain(&mut self, which: usize, until: Instant) {
        loop {
            self.cancel_everything_of(which);
            // An engine that cannot cancel that read completes it when there is something to read.
            self.processors[which].end_internal_read();
            if self.processors[which].is_idle() || until <= Instant::now() {
                return;
            }
            self.handle_aio_events(which, Some(Duration::from_millis(100)));
        }
    }
}
