//! How long tests may take: a test that repeats something repeats it more often with `TORONI_LONG_TESTS=1`.

/// The variable of the environment that asks for long tests.
pub const LONG: &str = "TORONI_LONG_TESTS";

/// Returns whether long tests are asked for: `TORONI_LONG_TESTS=1`.
#[must_use]
pub fn is_asked() -> bool {
    std::env::var_os(LONG).is_some_and(|it| it == "1")
}

/// Returns how often to repeat something: `usual` times, or `whole` times if long tests are asked for.
#[must_use]
pub fn repetitions(usual: u32, whole: u32) -> u32 {
    if is_asked() { whole } else { usual }
}

/// Returns whether a test that only runs as a long one is to run. Says on standard error if not.
#[must_use]
pub fn or_skip() -> bool {
    if !is_asked() {
        eprintln!("SKIPPED: set {LONG}=1");
    }
    is_asked()
}
