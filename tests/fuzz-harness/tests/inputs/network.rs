//! Random datagrams and frames, and random lists of what happens between a sender and a receiver, or a server and its
//! clients: what the fuzz targets do, with a seed and without a fuzzer. `TORONI_SEED=S` repeats one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use toroni_fuzz_harness::network::{connections, datagrams, frames, streams};
use toroni_testkit::Random;

#[test]
fn random_datagrams() {
    repeat(5_000, 200, datagrams::fuzz);
}

#[test]
fn random_streams() {
    repeat(1_000, 400, streams::fuzz);
}

#[test]
fn random_frames() {
    repeat(5_000, 400, frames::fuzz);
}

#[test]
fn random_connections() {
    repeat(200, 400, connections::fuzz);
}

/// Runs `count` inputs of fewer than `longest` bytes, each made of its seed.
fn repeat(count: u64, longest: u64, fuzz: impl Fn(&[u8])) {
    let one = std::env::var("TORONI_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        let mut random = Random::new(seed);
        let bytes: Vec<u8> =
            (0..random.below(longest)).map(|_| random.number().to_le_bytes()[0]).collect();
        if catch_unwind(AssertUnwindSafe(|| fuzz(&bytes))).is_err() {
            panic!("TORONI_SEED={seed} repeats this failure");
        }
    }
}
