//! The lock of a shard, and the three points at which it is released.
//!
//! Every entry (start, cancel, post, handle events) holds the lock for its whole length. It releases the lock
//! only through the methods of [`Locked`], at the paper's three *unlock points*.

use crate::core::Core;
use crate::hook::{Point, point};
use crate::operation::Descriptor;
use crate::shards::{Shard, Shards};
use crate::wait::WaitStrategy;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    /// The shard whose handler this thread is in: the address of its lock, or 0.
    static CALLING: Cell<usize> = const { Cell::new(0) };
}

/// A shard's state behind its lock. No two share a cache line, of which processors fetch two at a time.
#[repr(align(128))]
pub(crate) struct Lock {
    core: Mutex<Core>,
    followers: Condvar,
}

impl Lock {
    pub(crate) fn new(core: Core) -> Self {
        Self { core: Mutex::new(core), followers: Condvar::new() }
    }

    /// Returns whether this thread is in a handler of this shard. The operation of that handler lives
    /// until it returns.
    pub(crate) fn is_in_handler(&self) -> bool {
        CALLING.get() == std::ptr::from_ref(self).addr()
    }

    /// Takes the lock. Only a broken invariant of the proactor poisons it, and that has panicked already;
    /// other threads may still clean up.
    fn guard(&self) -> MutexGuard<'_, Core> {
        point(Point::BeforeLock);
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state, locked.
pub(crate) struct Locked<'a> {
    shards: &'a Shards,
    number: Shard,
    lock: &'a Lock,
    /// `None` only at an unlock point.
    core: Option<MutexGuard<'a, Core>>,
    /// Held until the lock is released: closing a descriptor may take long.
    closing: Option<Arc<Descriptor>>,
}

impl<'a> Locked<'a> {
    /// Locks one of these shards.
    pub(crate) fn new(shards: &'a Shards, number: Shard, lock: &'a Lock) -> Self {
        Self { shards, number, lock, core: Some(lock.guard()), closing: None }
    }

    /// Unlock point 1: calls the handler of a result that has been taken from the completed list.
    ///
    /// If the handler panics, the proactor's state is the same as if it had returned; the panic then continues.
    pub(crate) fn dispatch(&mut self, handler: impl FnOnce()) -> Result<(), Panic> {
        self.open();
        let before = CALLING.replace(std::ptr::from_ref(self.lock).addr());
        let panic = catch_unwind(AssertUnwindSafe(handler));
        CALLING.set(before);
        self.core = Some(self.lock.guard());
        panic.map_err(Panic)
    }

    /// The same unlock point: does work that needs no lock, such as an attempt before the handler, or that takes the locks
    /// of other shards.
    pub(crate) fn unlocked<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.open();
        let done = work();
        point(Point::AfterAttempt);
        self.core = Some(self.lock.guard());
        done
    }

    /// Takes the descriptor out of an operation that is over, and drops it when the lock is released.
    pub(crate) fn close_later(&mut self, index: u32) {
        self.closing = self.pool[index].request.descriptor.take();
    }

    pub(crate) fn is_in_handler(&self) -> bool {
        self.lock.is_in_handler()
    }

    pub(crate) fn shards(&self) -> &'a Shards {
        self.shards
    }

    pub(crate) fn number(&self) -> Shard {
        self.number
    }

    /// Completes a graceful stop if everything is over, here and in the other shards.
    pub(crate) fn stop_if_finished(&mut self) {
        if self.may_have_finished() {
            let shards = self.shards;
            self.unlocked(|| shards.stop_if_finished());
        }
    }

    /// Unlock point 2: sleeps as a follower until woken, or until the timeout.
    pub(crate) fn follow(&mut self, timeout: Option<Duration>) {
        self.send_wakes();
        // Slots are given back when this thread looks around.
        debug_assert!(!self.dispatcher.calls.has_call(), "a call would wait for this thread");
        let core = self.core.take().expect("locked");
        let condition = &self.lock.followers;
        self.core = Some(match timeout {
            None => condition.wait(core).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                condition.wait_timeout(core, limit).unwrap_or_else(PoisonError::into_inner).0
            }
        });
    }

    /// Unlock point 3: waits as the leader for the operations of a processor.
    pub(crate) fn lead(&mut self, wait: &dyn WaitStrategy, timeout: Option<Duration>) {
        self.open();
        point(Point::BeforeWait);
        wait.wait(timeout);
        self.core = Some(self.lock.guard());
    }

    /// Releases the lock, and then wakes the followers that were chosen under it: earlier, they would only
    /// wait for the lock. The same goes for errands to other shards.
    fn open(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        let wakes = core.dispatcher.take_wakes();
        let errands = core.take_errands();
        drop(core);
        self.closing = None;
        (0..wakes).for_each(|_| self.lock.followers.notify_one());
        self.shards.run(errands);
    }

    fn send_wakes(&mut self) {
        let wakes = self.dispatcher.take_wakes();
        (0..wakes).for_each(|_| self.lock.followers.notify_one());
    }
}

/// The payload of a handler's panic.
pub(crate) struct Panic(Box<dyn std::any::Any + Send>);

impl Panic {
    /// Continues the panic.
    pub(crate) fn resume(self) -> ! {
        resume_unwind(self.0)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.open();
    }
}

impl Deref for Locked<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core.as_ref().expect("locked")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("locked")
    }
}
