//! `cargo xtask simulate`: applies lists of operations, with deaths, to a bus and to a model of it, and compares them.
//! The lists come from seeds. With `--net`, it simulates senders, receivers and a bad network instead, and an oracle
//! compares what was published with what was delivered and reported.
//!
//! The library is built with its crash points and its asserts, into a folder of its own.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::command::{Failure, cargo, run as run_command, run_tests};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// How many minutes; 0 runs one list
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The seed of the first list; the following lists have the following numbers [default: from the clock]
    #[arg(long, env = "TORONI_SEED")]
    seed: Option<u64>,
    /// Simulates the protocol between hosts
    #[arg(long)]
    net: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let seed = options.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A run that starts a second later has other seeds, for up to a million lists.
        now.as_secs() * 1_000_000
    });
    let seconds = (options.minutes * 60.0).max(0.0);
    if options.net {
        return net(seconds, seed);
    }
    let mut command = cargo(["run", "--locked", "--profile", "soak", "-p", "toroni-fuzz-harness"]);
    command.args(["--no-default-features", "--features", "deaths", "--bin", "simulate"]).args([
        "--",
        &seconds.to_string(),
        &seed.to_string(),
    ]);
    // The dependencies are those of `cargo xtask soak`, shared by cargo from 1.91 on.
    let target = metadata::members()?.target_directory;
    command.env("CARGO_TARGET_DIR", target.join("simulate")).env("CARGO_BUILD_BUILD_DIR", target);
    run_command(&mut command)
}

/// Runs the simulator of the protocol, which is a test: at least one seed.
fn net(seconds: f64, seed: u64) -> Result<(), Failure> {
    let mut command = cargo(["test", "--locked", "-p", "toroni-proto", "--lib", "--"]);
    command.args(["--ignored", "--nocapture", "simulator::for_long"]);
    command.env("TORONI_SIMULATE_SECONDS", format!("{seconds:.0}"));
    command.env("TORONI_SEED", seed.to_string());
    run_tests(&mut command)
}
