//! Simulates senders and receivers with a network that loses, doubles, delays, reorders, changes and invents
//! datagrams, in virtual time. Each run follows from its seed.
//!
//! `cargo xtask simulate --net` runs it for longer; see `CONTRIBUTING.md`.

mod cases;
mod fault;
mod group;
mod minimise;
mod network;
mod oracle;
mod scenario;
mod world;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use self::oracle::{Broken, Failure};
use self::scenario::Scenario;
use toroni_testkit::long;

/// Returns the seeds of an ordinary run of the tests. Of the first 1,000, ten put receivers out, and one of these takes them
/// back; six of the ten are among the 300 that run by default.
fn ordinary_seeds() -> Range<u64> {
    if long::is_asked() { 0..1_000 } else { 400..700 }
}

/// What many seeds have shown.
#[derive(Default)]
struct Report {
    seeds: u64,
    total: world::Summary,
    /// How often each promise was broken.
    broken: BTreeMap<Broken, u64>,
}

impl Report {
    /// Runs one seed. A failure is counted, made smaller, and returned as text.
    fn run(&mut self, seed: u64) -> Result<(), String> {
        let scenario = Scenario::from_seed(seed);
        self.seeds += 1;
        match world::run(&scenario) {
            Ok(summary) => {
                self.total.add(&summary);
                Ok(())
            }
            Err(failure) => {
                *self.broken.entry(failure.broken).or_default() += 1;
                let (least, Failure { text, .. }) = minimise::minimise(scenario, failure);
                let least = least.describe();
                Err(format!("seed {seed}: {text}\n\nThe least scenario that fails:\n{least}"))
            }
        }
    }

    fn print(&self) {
        let count = |promise| self.broken.get(&promise).copied().unwrap_or(0);
        let world::Summary { published, delivered, lost, repairs, naks, datagrams, .. } =
            &self.total;
        println!(
            "{} seeds, {datagrams} datagrams, {repairs} repairs, {naks} NAKs, {} receivers put out \
             and {} back, {} collisions noticed",
            self.seeds, self.total.put_out, self.total.back, self.total.collisions,
        );
        println!(
            "{published} messages published, {delivered} delivered, {lost} reported as lost exactly"
        );
        println!(
            "{} losses unreported, {} counts wrong, {} doubled, {} order violations, {} others",
            count(Broken::Unreported),
            count(Broken::Count),
            count(Broken::Doubled),
            count(Broken::Order),
            count(Broken::Content) + count(Broken::Unexplained) + count(Broken::Machine),
        );
    }
}

#[test]
fn seeds_deliver_every_message_or_report_it() {
    let wanted: Option<u64> = std::env::var("TORONI_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = wanted.map_or_else(ordinary_seeds, |seed| seed..seed + 1);
    let start = Instant::now();
    let mut report = Report::default();
    for seed in seeds {
        if let Err(text) = report.run(seed) {
            panic!("{text}");
        }
    }
    println!("in {:?}", start.elapsed());
    report.print();
    if wanted.is_none() {
        // A simulation in which nothing happens would prove nothing.
        let total = report.total;
        assert!(
            total.delivered > 100_000 && total.lost > 100 && total.repairs > 1_000,
            "{total:?}"
        );
        // That one who was put out comes back is rare, and has a case of its own.
        assert!(total.put_out > 0 && total.collisions > 0, "{total:?}");
    }
}

#[test]
#[ignore = "runs for as long as the environment says"]
fn for_long() {
    let mut report = Report::default();
    let (_, ended) = long::seeds("multicast", |seed| report.run(seed));
    report.print();
    if let Err(text) = ended {
        panic!("{text}");
    }
}
