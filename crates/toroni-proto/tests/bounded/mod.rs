//! Simulates latency-bounded TCP: a server and its clients, with links that are slow, stop, break and are
//! listened to, in virtual time. Each run follows from its seed.
//!
//! `cargo xtask simulate --net` runs it for longer; see `CONTRIBUTING.md`.

mod link;
mod oracle;
mod scenario;
mod world;

use self::scenario::Scenario;
use toroni_testkit::long;

/// Returns how many seeds an ordinary run of the tests tries.
fn most_seeds() -> u64 {
    long::repetitions(200, 500).into()
}

/// Runs one seed. A failure is made smaller, and returned as text.
fn check(seed: u64) -> Result<world::Summary, String> {
    let mut scenario = Scenario::from_seed(seed);
    let mut failure = match world::run(&scenario) {
        Ok(summary) => return Ok(summary),
        Err(failure) => failure,
    };
    let mut runs = 0;
    while let Some((smaller, why)) = scenario.smaller().into_iter().find_map(|one| {
        runs += 1;
        (runs < 300).then(|| world::run(&one).err().map(|why| (one, why)))?
    }) {
        (scenario, failure) = (smaller, why);
    }
    let least = scenario.describe();
    Err(format!("seed {seed}: {failure}\n\nThe least scenario that fails:\n{least}"))
}

#[test]
fn over_tcp_every_message_is_delivered_or_reported() {
    let wanted: Option<u64> = std::env::var("TORONI_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = wanted.map_or_else(|| 0..most_seeds(), |seed| seed..seed + 1);
    let mut total = world::Summary::default();
    for seed in seeds.clone() {
        total.add(&check(seed).unwrap_or_else(|text| panic!("{text}")));
    }
    println!("{seeds:?}: {total:#?}");
    if wanted.is_none() {
        // A simulation in which nothing happens would prove nothing.
        assert!(total.delivered > 200 * (seeds.end - seeds.start), "{total:?}");
        assert!(total.lost > 1_000, "{total:?}");
        assert!(total.ended > 10, "{total:?}");
        assert!(total.slow > 5 && total.replayed > 10 && total.refused > 10, "{total:?}");
        assert!(total.taken_out > 30, "{total:?}");
    }
}

#[test]
#[ignore = "runs for as long as the environment says"]
fn for_long() {
    let mut total = world::Summary::default();
    let (count, ended) = long::seeds("TCP", |seed| check(seed).map(|summary| total.add(&summary)));
    let world::Summary { delivered, lost, connections, taken_out, .. } = total;
    println!("TCP, {count} seeds, {connections} connections, {taken_out} frames taken out:");
    println!("{delivered} messages delivered, {lost} reported as lost");
    if let Err(text) = ended {
        panic!("{text}");
    }
}
