//! Where tests make a process die, keep it asleep, or have it make a mistake. In an ordinary build all of this compiles
//! to nothing.
//!
//! - `point` names a step at which a process can die, a [`CrashPoint`]. It is compiled in unit tests and models,
//!   where a test lets a thread die at a step (`rehearsal.rs`), and with the feature `crash-points`, where the
//!   environment can also have the process killed or delayed (`environment.rs`). A fast path that passes no points is
//!   taken only if `can_die` returns false. Code asks `is_dead` before it gives anything back.
//!
//! - `recheck_interval` is a safety net's interval. With the feature `crash-points` the environment can switch the
//!   net off, so that a lost wake-up is a hang and not a delay.
//!
//! - `quiet_looks` is a threshold that a test lowers, so that what happens beyond it happens often.
//!
//! - `mutant` is a known mistake beside the right code, and `weakened` is such a mistake in a memory ordering. The mistake
//!   is compiled only with `--cfg toroni_mutants`, and made if the environment has `TORONI_MUTANT=name`.
//!   `cargo xtask mutants` demands that a test notices each.
//!
//! CONTRIBUTING.md describes how to add a crash point or a mutant.

mod crash_point;
#[cfg(feature = "crash-points")]
mod environment;
#[cfg(any(test, all(feature = "crash-points", not(loom))))]
pub mod rehearsal;

use std::time::Duration;

use crate::sync::Ordering;

pub use crash_point::CrashPoint;

/// Kills the process here, if the environment asks for it, or lets the thread of a rehearsal die.
#[inline(always)]
pub(crate) fn point(here: CrashPoint) {
    let _ = here;
    #[cfg(any(test, all(feature = "crash-points", not(loom))))]
    rehearsal::point(here);
    #[cfg(feature = "crash-points")]
    environment::point(here);
}

/// Returns whether the caller can die at a [`point`]. If so, paths that pass points take no short cut.
#[inline(always)]
pub(crate) fn can_die() -> bool {
    // In models, the threads that do not die take it.
    #[cfg(all(test, loom))]
    return rehearsal::is_on_stage();
    #[cfg(not(all(test, loom)))]
    return cfg!(any(feature = "crash-points", test));
}

/// Returns whether this thread belongs to a dead participant. Its handles must then give nothing back:
/// only what the kernel takes from a dead process is released, its leases.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn is_dead() -> bool {
    #[cfg(any(test, feature = "crash-points"))]
    return rehearsal::is_dead();
    #[cfg(not(any(test, feature = "crash-points")))]
    return false;
}

/// Returns after how long a sleeping subscriber checks for what no wake-up reported.
#[inline(always)]
pub(crate) fn recheck_interval(usual: Duration) -> Duration {
    #[cfg(feature = "crash-points")]
    return environment::recheck_interval(usual);
    #[cfg(not(feature = "crash-points"))]
    usual
}

/// Returns after how many messages without a sleeper an exclusive publisher leaves out the fence.
#[inline(always)]
pub(crate) fn quiet_looks(usual: u32) -> u32 {
    #[cfg(feature = "crash-points")]
    return environment::quiet_looks(usual);
    #[cfg(not(feature = "crash-points"))]
    usual
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
    static WANTED: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    WANTED.get_or_init(|| std::env::var_os("TORONI_MUTANT")).as_deref() == Some(name.as_ref())
}

/// Returns `ordering`, or `Relaxed` if the mistake of this name is to be made.
#[inline(always)]
pub(crate) fn weakened(name: &'static str, ordering: Ordering) -> Ordering {
    if mutant(name) { Ordering::Relaxed } else { ordering }
}
