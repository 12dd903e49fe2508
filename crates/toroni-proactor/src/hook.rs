//! The only places at which tests reach into production code. In an ordinary build all of them compile to
//! nothing.
//!
//! - [`point`] names a step at which another thread may come in between. Unit tests hold a thread up there, or
//!   do something at that moment: `tests/mod.rs` decides what.
//! - [`recheck_interval`] is a safety net's interval. Unit tests switch the net off, so that they see a lost
//!   wake-up.
//! - [`handler_took`] is what the wake policy learns about handlers. Unit tests that count what it decides say so
//!   themselves: a sanitizer and a busy machine make every handler slow.
//! - [`mutant`] is a known mistake beside the right code. The mistake is compiled only with `--cfg
//!   toroni_mutants`, and made if the environment has `TORONI_MUTANT=name`. `cargo xtask mutants` demands that
//!   a test notices each.

use std::time::Duration;

/// A step at which another thread may come in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A thread is about to take the proactor's lock.
    BeforeLock,
    /// A start has attempted its operation, and has not taken the lock yet.
    BeforeStart,
    /// Work has been done without the lock, such as the attempt of an operation, and the lock is about to be taken again.
    AfterAttempt,
    /// A leader has opened the lock, and has not entered its system call yet.
    BeforeWait,
    /// A thread has looked at the other shards, and does not wait yet.
    AfterLook,
    /// An attempt has found its descriptor not ready, and has not recorded that yet.
    BeforeBlocked,
}

/// Marks a [`Point`].
#[inline(always)]
pub(crate) fn point(here: Point) {
    #[cfg(test)]
    crate::tests::reached(here);
    #[cfg(not(test))]
    let _ = here;
}

/// Returns how often a leader checks for completions that nothing reported.
#[inline(always)]
pub(crate) fn recheck_interval(usual: Duration) -> Duration {
    if cfg!(test) { crate::wait::FOR_EVER } else { usual }
}

/// Returns how long a handler took that was measured.
#[inline(always)]
pub(crate) fn handler_took(measured: Duration) -> Duration {
    #[cfg(test)]
    let measured = crate::tests::handlers_take().unwrap_or(measured);
    measured
}

/// Returns whether to make the mistake of this name.
#[cfg(not(toroni_mutants))]
#[inline(always)]
pub(crate) const fn mutant(_name: &'static str) -> bool {
    false
}

/// Returns whether to make the mistake of this name.
#[cfg(toroni_mutants)]
pub(crate) fn mutant(name: &'static str) -> bool {
    static WANTED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("TORONI_MUTANT").ok());
    WANTED.as_deref() == Some(name)
}
