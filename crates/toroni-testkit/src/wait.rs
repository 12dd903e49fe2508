//! Waiting up to a limit.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Longer than any step of a test takes, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Polls until the condition holds.
///
/// # Panics
/// If it does not hold within [`LIMIT`]: `never: {what}`.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(within(LIMIT, condition), "never: {what}");
}

/// Polls until the condition holds; `false` if it does not within `limit`.
pub fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(100);
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
    true
}

/// Aborts this process if it is not dropped in time, so that a test that hangs fails with its name. Children
/// die with the process, and its [directories](crate::Directory) are removed.
#[derive(Debug)]
pub struct Watchdog(#[expect(dead_code, reason = "its drop is the message")] Sender<()>);

impl Watchdog {
    /// Aborts after `limit`, with a message that begins with `what`.
    #[must_use]
    pub fn start(what: &'static str, limit: Duration) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            if receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: still running after {limit:?}");
                crate::directory::remove_all();
                std::process::abort();
            }
        });
        Self(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_checked_until_it_holds_or_the_time_is_over() {
        let mut checks = 0;
        until("the third check", || {
            checks += 1;
            checks == 3
        });
        assert!(!within(Duration::from_millis(2), || false));
        assert!(within(Duration::ZERO, || true), "it is checked once at least");
    }
}
