//! Known mistakes, for the tests of the tests.
//!
//! Each stands beside the sound way, behind `mutant("name")`: the constant `false` in all builds but those with
//! `--cfg toroni_mutants`, which ask the environment, `TORONI_MUTANT=name`. The crate `toroni` has the same.

/// Whether to make the mistake of this name.
#[cfg(not(toroni_mutants))]
#[inline(always)]
pub(crate) const fn mutant(_name: &'static str) -> bool {
    false
}

/// Whether to make the mistake of this name.
#[cfg(toroni_mutants)]
pub(crate) fn mutant(name: &'static str) -> bool {
    static WANTED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("TORONI_MUTANT").ok());
    WANTED.as_deref() == Some(name)
}
