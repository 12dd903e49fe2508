//! Waking by futex: a word for each slot, and no descriptors. It works on a read-only mapping.

use super::{ArmingSlot, Waiter};
use crate::sync::AtomicU32;
use rustix::io::Errno;
use rustix::thread::futex;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Sleeps on [`ArmingSlot::word`].
#[derive(Debug, Default)]
pub(crate) struct FutexWaiter {
    /// The value of the word when the sleep was announced.
    token: u32,
}

#[cfg(feature = "proactor")]
impl FutexWaiter {
    /// Returns the token: the subscriber may sleep while the word has this value.
    pub(crate) fn token(&self) -> u32 {
        self.token
    }
}

impl Waiter for FutexWaiter {
    fn arm(&mut self, slot: ArmingSlot<'_>) {
        self.token = slot.arm_sleeper();
    }

    fn wait(&self, slot: ArmingSlot<'_>, timeout: Option<Duration>) -> io::Result<()> {
        wait_while(slot.word, self.token, timeout)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Sleeps while `word` is `value`, until a wake-up, the timeout, a signal, or spuriously. The word may lie in a
/// read-only mapping.
pub(crate) fn wait_while(
    word: &AtomicU32,
    value: u32,
    timeout: Option<Duration>,
) -> io::Result<()> {
    // A timeout that the kernel cannot represent counts as none.
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    // Not PRIVATE: the sleepers are in other processes.
    match futex::wait(word, futex::Flags::empty(), value, timeout.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Wakes all threads that sleep on `word`. The caller has changed the word before.
pub(crate) fn wake_all(word: &AtomicU32) {
    // This can only fail if the word is not mapped, and then no thread sleeps on it.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
}

/// Wakes the thread that has slept on `word` longest. The word may lie in a read-only mapping.
pub(crate) fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_changed_word_does_not_sleep() {
        let started = Instant::now();
        wait_while(&AtomicU32::new(1), 0, Some(Duration::from_secs(60))).unwrap();
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_time_out_ends_the_sleep() {
        let started = Instant::now();
        wait_while(&AtomicU32::new(0), 0, Some(Duration::from_millis(20))).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_time_out_without_end_is_accepted() {
        wait_while(&AtomicU32::new(1), 0, Some(Duration::MAX)).unwrap();
    }
}
