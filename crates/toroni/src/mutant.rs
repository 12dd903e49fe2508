//! Known mistakes of the protocol, for the tests of the tests.
//!
//! Each stands beside the sound way, behind `mutant("name")` or `weakened("name", …)`. In all builds but those with
//! `--cfg toroni_mutants` that is the constant `false`, and the mistake is not even compiled. There it
//! asks the environment, so that one build runs every mutant: `TORONI_MUTANT=name`.

use crate::sync::Ordering;

/// Whether to make the mistake of this name.
#[cfg(not(toroni_mutants))]
#[inline(always)]
pub(crate) const fn mutant(_name: &'static str) -> bool {
    false
}

/// Whether to make the mistake of this name.
#[cfg(toroni_mutants)]
pub(crate) fn mutant(name: &'static str) -> bool {
    static WANTED: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    WANTED.get_or_init(|| std::env::var_os("TORONI_MUTANT")).as_deref() == Some(name.as_ref())
}

/// An ordering, or none at all if the mistake of this name is to be made.
#[inline(always)]
pub(crate) fn weakened(name: &'static str, ordering: Ordering) -> Ordering {
    if mutant(name) { Ordering::Relaxed } else { ordering }
}
