//! An end to tests that hang.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends the whole process, with its children, if it is not dropped in time: a hang is a failure with
/// a name, and nothing stays in `/dev/shm`.
#[derive(Debug)]
pub struct Watchdog(#[expect(dead_code, reason = "its drop is the message")] Sender<()>);

impl Watchdog {
    /// Barks after `limit`.
    #[must_use]
    pub fn start(what: &'static str, limit: Duration) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            if receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: still running after {limit:?}");
                // Children die with the threads that started them.
                crate::root::remove_all();
                std::process::abort();
            }
        });
        Self(sender)
    }
}
