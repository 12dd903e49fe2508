//! Simulates senders and receivers with a network that loses, doubles, delays, reorders, changes and invents
//! datagrams, in virtual time. Each run follows from its seed.
//!
//! `cargo xtask simulate --net` runs it for longer; see `CONTRIBUTING.md`.

mod group;
mod minimise;
mod network;
mod oracle;
mod scenario;
mod world;

use std::time::{Duration, Instant};

use self::scenario::Scenario;

/// The seeds of an ordinary run of the tests.
const SEEDS: u64 = 1_000;

/// Runs one seed. A failure is made smaller, and printed.
fn check(seed: u64) -> world::Summary {
    let scenario = Scenario::from_seed(seed);
    match world::run(&scenario) {
        Ok(summary) => summary,
        Err(failure) => {
            let (least, failure) = minimise::minimise(scenario, failure);
            panic!(
                "seed {seed}: {failure}\n\nThe least scenario that fails:\n{}",
                least.describe()
            );
        }
    }
}

#[test]
fn seeds_deliver_every_message_or_report_it() {
    let first: u64 = std::env::var("TORONI_SEED").map_or(0, |seed| seed.parse().unwrap());
    let seeds = if std::env::var("TORONI_SEED").is_ok() { 1 } else { SEEDS };
    let start = Instant::now();
    let mut total = world::Summary::default();
    for seed in first..first + seeds {
        total.add(&check(seed));
    }
    println!("{seeds} seeds in {:?}: {total:#?}", start.elapsed());
    if seeds > 1 {
        // A simulation in which nothing happens would prove nothing.
        assert!(
            total.delivered > 100_000 && total.lost > 100 && total.repairs > 1_000,
            "{total:?}"
        );
    }
}

/// Runs for `TORONI_SIMULATE_SECONDS`, from `TORONI_SEED` on.
#[test]
#[ignore = "runs as long as it is told to"]
fn for_long() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first: u64 = number("TORONI_SEED", 1_000_000);
    let limit = Duration::from_secs(number("TORONI_SIMULATE_SECONDS", 60));
    let start = Instant::now();
    let mut total = world::Summary::default();
    let mut seed = first;
    while seed == first || start.elapsed() < limit {
        total.add(&check(seed));
        seed += 1;
        if (seed - first).is_multiple_of(1_000) {
            println!("{} seeds, {} s", seed - first, start.elapsed().as_secs());
        }
    }
    println!("{} seeds from {first}: {total:#?}", seed - first);
    println!("0 losses unreported, 0 counts wrong, 0 order violations");
}
