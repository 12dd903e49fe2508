//! Blocking calls that Python can interrupt.
//!
//! The interpreter's handler of a signal only notes it; handlers in Python run when the main thread asks
//! (`check_signals`). So a blocking call asks as often as the library looks at a bus on which nothing happens:
//! that costs an idle process nothing more, and Ctrl-C is answered within a quarter of a second.
//!
//! What may block when it ends is [`Detached`].

use pyo3::prelude::*;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// As the longest sleep of a subscriber of the library.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// The moment at which a time-out ends; `None` is never.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// How long to wait until signals are looked for; `None` if the deadline has passed.
pub(crate) fn slice_until(deadline: Option<Instant>) -> Option<Duration> {
    let Some(deadline) = deadline else { return Some(SLICE) };
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then(|| left.min(SLICE))
}

/// Something that other threads of Python do not wait for when it is dropped, as by whoever collects garbage:
/// the last publisher of a bus on a disk waits for the writer lock, and for the disk.
pub(crate) struct Detached<T: Send>(
    /// `Some` until the drop.
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
        self.0.as_ref().expect("there until the drop")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(thing) = self.0.take() else { return };
        let mut thing = Some(thing);
        // An interpreter that ends does not let itself be attached; what is left then is dropped as it is.
        Python::try_attach(|py| {
            let thing = thing.take();
            py.detach(|| drop(thing));
        });
    }
}
