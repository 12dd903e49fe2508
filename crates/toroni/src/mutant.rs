//! Known mistakes of the protocol, to check that the tests notice them.
//!
//! Each mistake stands beside the correct code, selected by `mutant("name")` or `weakened("name", …)`. Only a build
//! with `--cfg toroni_mutants` compiles the mistakes; elsewhere `mutant` is the constant `false`. In that build the
//! environment variable `TORONI_MUTANT=<name>` selects one. To add a mistake, write it, and list it with the tests
//! that notice it in `xtask/src/mutants/table.rs`.

use crate::sync::Ordering;

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
