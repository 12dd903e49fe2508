//! Blocking calls that Python can interrupt.
//!
//! The interpreter's handler of a signal only notes it; handlers in Python run when the main thread asks
//! (`check_signals`). So a blocking call asks as often as the library looks at a bus on which nothing happens:
//! that costs an idle process nothing more, and Ctrl-C is answered within a quarter of a second.

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
