//! `cargo xtask loom`: runs the loom models, which are the tests of the library and of the proactor whose names begin
//! with `loom_`.

use std::process::Command;

use clap::Args;

use crate::command::{Failure, cargo, run_tests};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Run only the models whose names contain this
    #[arg(default_value = "loom_")]
    filter: String,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut command = cargo(["test", "--lib", "--profile", "bench", "--locked"]);
    command.args(["-p", "toroni", "-p", "toroni-proactor"]);
    prepare(&mut command)?;
    run_tests(command.arg(&options.filter))
}

/// Prepares a build of the models, in the profile `bench`. The flag `--cfg loom`, which selects loom's atomics in
/// `crates/toroni/src/sync/mod.rs` and in the proactor's `shards/calls/`, changes what is compiled of every crate, so the build has a folder of its own.
pub(crate) fn prepare(command: &mut Command) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory.join("loom");
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
    hurry(command);
    Ok(())
}

/// Makes a build in the profile `bench` faster: models need optimised code, but the last few percent of a release would
/// take longer to compile than they save.
pub(crate) fn hurry(command: &mut Command) {
    for (setting, value) in [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "none")] {
        command.env(format!("CARGO_PROFILE_BENCH_{setting}"), value);
    }
}
