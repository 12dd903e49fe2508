//! Mutants: known mistakes, which tests must notice.
//!
//! `if mutant("name")` stands where the mistake would be made. It is compiled only with `--cfg toroni_mutants`, and made if
//! the environment has `TORONI_MUTANT=name`. `cargo xtask mutants` demands that tests fail then.

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
