//! `cargo xtask simulate`: lists of operations from seeds, with deaths, done to a bus and to the model.
//!
//! The library is built with its crash points, and with the checks of a debug build, into a folder of its
//! own.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::command::{Failure, cargo, run as run_command};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// For so many minutes; with 0, one list
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The seed of the first list; the others follow [default: another each time]
    #[arg(long, env = "TORONI_SEED")]
    seed: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory.join("simulate");
    let seed = options.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Seconds, and room for a million lists before the next one.
        now.as_secs() * 1_000_000
    });
    let seconds = (options.minutes * 60.0).max(0.0);
    let mut command =
        cargo(["run", "--locked", "-p", "toroni-fuzz-harness", "--no-default-features"]);
    command
        .args(["--features", "deaths"])
        .args(["--bin", "simulate", "--", &seconds.to_string(), &seed.to_string()])
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    run_command(&mut command)
}
