//! Blocking calls that Python can interrupt.
//!
//! When a signal arrives, the interpreter only records it. It runs the handler in Python when the main thread calls
//! `check_signals`. So a blocking call does that after each [`SLICE`], which is as often as the library polls an idle
//! bus: this adds no wake-ups to an idle process, and Ctrl-C takes effect within a quarter of a second.
//!
//! [`Detached`] is for values whose drop may block.

use pyo3::prelude::*;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// The longest sleep of a subscriber of the library.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// Returns the time at which a timeout ends, or `None` if it never does.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Returns how long to wait until the next check for signals, or `None` if the deadline has passed.
pub(crate) fn slice_until(deadline: Option<Instant>) -> Option<Duration> {
    let Some(deadline) = deadline else { return Some(SLICE) };
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then(|| left.min(SLICE))
}

/// A value that is dropped while other threads of Python run. Python's garbage collector may drop any object, and
/// dropping the last publisher of a bus on a disk waits for the writer lock and for the disk.
pub(crate) struct Detached<T: Send>(
    /// `Some` until it is dropped.
    Option<T>,
);

impl<T: Send> Detached<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self(Some(thing))
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("set until it is dropped")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(thing) = self.0.take() else { return };
        let mut thing = Some(thing);
        // A thread cannot attach to an interpreter that is ending. The value is then dropped without it.
        Python::try_attach(|py| {
            let thing = thing.take();
            py.detach(|| drop(thing));
        });
    }
}
