//! The one lock of a proactor, and the three points at which it is opened.
//!
//! Every entry (start, cancel, post, handle events) takes the lock for its whole length. While it holds
//! it, it opens it only through the methods of [`Locked`], at the paper's three *unlock points*.

use crate::core::Core;
use crate::hook::{Point, point};
use crate::wait::WaitStrategy;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    /// Whose handler this thread is in: the address of the proactor's lock, or 0.
    static CALLING: Cell<usize> = const { Cell::new(0) };
}

/// A proactor's state behind its lock.
pub(crate) struct Lock {
    core: Mutex<Core>,
    /// Where followers sleep.
    followers: Condvar,
}

impl Lock {
    /// Around this state.
    pub(crate) fn new(core: Core) -> Self {
        Self { core: Mutex::new(core), followers: Condvar::new() }
    }

    /// Takes the lock.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { lock: self, core: Some(self.guard()) }
    }

    /// Whether this thread is in a handler of this proactor, whose operation lives until it returns.
    pub(crate) fn is_in_handler(&self) -> bool {
        CALLING.get() == std::ptr::from_ref(self).addr()
    }

    /// It is poisoned only by a broken invariant of ours, which panicked then; whoever comes later still
    /// may want to clean up.
    fn guard(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state, locked.
pub(crate) struct Locked<'a> {
    lock: &'a Lock,
    /// None only inside of an unlock point.
    core: Option<MutexGuard<'a, Core>>,
}

impl Locked<'_> {
    /// Unlock point 1: a result has been taken from the completed list, and its handler is called.
    ///
    /// A handler that panics leaves the proactor as one that returns does; then the panic goes on.
    pub(crate) fn dispatch(&mut self, handler: impl FnOnce()) -> Result<(), Panic> {
        self.open();
        let before = CALLING.replace(std::ptr::from_ref(self.lock).addr());
        let panic = catch_unwind(AssertUnwindSafe(handler));
        CALLING.set(before);
        self.core = Some(self.lock.guard());
        panic.map_err(Panic)
    }

    /// The same unlock point, before that: what a result needs of this thread, without the lock.
    pub(crate) fn unlocked<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.open();
        let done = work();
        point(Point::AfterAttempt);
        self.core = Some(self.lock.guard());
        done
    }

    /// Whether this thread is in a handler of this proactor.
    pub(crate) fn is_in_handler(&self) -> bool {
        self.lock.is_in_handler()
    }

    /// Unlock point 2: a follower sleeps until it is woken, or the time is over.
    pub(crate) fn follow(&mut self, timeout: Option<Duration>) {
        self.send_wakes();
        let core = self.core.take().expect("locked");
        let condition = &self.lock.followers;
        self.core = Some(match timeout {
            None => condition.wait(core).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                condition.wait_timeout(core, limit).unwrap_or_else(PoisonError::into_inner).0
            }
        });
    }

    /// Unlock point 3: the leader waits for the operations of its processor.
    pub(crate) fn lead(&mut self, wait: &dyn WaitStrategy, timeout: Option<Duration>) {
        self.open();
        point(Point::BeforeWait);
        wait.wait(timeout);
        self.core = Some(self.lock.guard());
    }

    /// Opens the lock, and then wakes the followers whose wake-ups were decided under it: they would
    /// only wait for the lock.
    fn open(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        let wakes = core.dispatcher.take_wakes();
        drop(core);
        (0..wakes).for_each(|_| self.lock.followers.notify_one());
    }

    fn send_wakes(&mut self) {
        let wakes = self.dispatcher.take_wakes();
        (0..wakes).for_each(|_| self.lock.followers.notify_one());
    }
}

/// What a handler panicked with.
pub(crate) struct Panic(Box<dyn std::any::Any + Send>);

impl Panic {
    /// Goes on with it.
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
