//! `cargo xtask simulate`: applies lists of operations, with deaths, to a bus and to a model of it, and compares them.
//! The lists come from seeds. With `--net`, it simulates senders, receivers and a bad network instead, and a server
//! over TCP with its clients. An oracle compares what was published with what was delivered and reported.
//!
//! The library is built with its crash points and its asserts (`hooked.rs`).

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::command::{Failure, cargo, run as run_command, run_tests};
use crate::hooked;

#[derive(Args)]
pub(crate) struct Options {
    /// How many minutes; 0 runs one list
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// How many lists, or seeds of the network, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    runs: Option<u64>,
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
        return net(options.runs, seconds, seed);
    }
    hooked::build()?;
    let length = match options.runs {
        Some(runs) => format!("lists={runs}"),
        None => format!("seconds={seconds}"),
    };
    run_command(Command::new(hooked::program("simulate")?).args([length, seed.to_string()]))
}

/// Runs the simulators of the protocol and of its TCP, which are tests: each at least one seed.
fn net(runs: Option<u64>, seconds: f64, seed: u64) -> Result<(), Failure> {
    let mut command = cargo(["test", "--locked", "-p", "toroni-proto", "--lib", "--"]);
    command.args(["--ignored", "--nocapture", "simulator::for_long", "tcp_runs::for_long"]);
    match runs {
        Some(runs) => command.env("TORONI_SIMULATE_SEEDS", runs.to_string()),
        None => command.env("TORONI_SIMULATE_SECONDS", format!("{seconds:.0}")),
    };
    command.env("TORONI_SEED", seed.to_string());
    run_tests(&mut command)
}
