//! How long tests may take: a test that repeats something repeats it more often with `TORONI_LONG_TESTS=1`.

use std::time::{Duration, Instant};

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

/// Runs a simulation with the seeds from `TORONI_SEED` on, up to the first that fails: `TORONI_SIMULATE_SEEDS` many, or else for
/// `TORONI_SIMULATE_SECONDS`. `what` is said with what it prints, since several run side by side. Returns how many seeds ran, and how the
/// last one ended.
///
/// # Panics
///
/// If a variable of the environment is no number.
pub fn seeds(
    what: &str,
    mut run: impl FnMut(u64) -> Result<(), String>,
) -> (u64, Result<(), String>) {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let first = number("TORONI_SEED").unwrap_or(1_000_000);
    let most = number("TORONI_SIMULATE_SEEDS");
    let limit = Duration::from_secs(number("TORONI_SIMULATE_SECONDS").unwrap_or(60));
    let start = Instant::now();
    println!("{what}, from seed {first}");
    for count in 1.. {
        let ended = run(first.wrapping_add(count - 1));
        if count.is_multiple_of(1_000) {
            println!("{what}, {count} seeds, {} s", start.elapsed().as_secs());
        }
        let is_last = most.map_or_else(|| start.elapsed() >= limit, |most| count >= most);
        if is_last || ended.is_err() {
            return (count, ended);
        }
    }
    unreachable!("there are more seeds than time")
}
