//! `cargo xtask loom`: the models in the library whose names begin with `loom_`.

use std::process::Command;

use clap::Args;

use crate::command::{Failure, cargo, run as run_command};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the models whose names contain this
    #[arg(default_value = "loom_")]
    filter: String,
}

/// What selects loom's atomics in `crates/toroni/src/sync/mod.rs`.
pub(crate) const RUSTFLAGS: &str = "--cfg loom";

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let arguments = ["test", "-p", "toroni", "--lib", "--release", "--locked", &options.filter];
    let mut command = cargo(arguments);
    prepare(&mut command)?;
    run_command(&mut command)
}

/// Other flags make other artefacts of every crate: they get a folder of their own, else each
/// change between a model and an ordinary test would build everything anew.
pub(crate) fn prepare(command: &mut Command) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory.join("loom");
    command.env("RUSTFLAGS", RUSTFLAGS).env("CARGO_TARGET_DIR", target);
    // Models want optimised code, and no more of it than that: what a release spends on its last
    // few percent takes longer here than the models do.
    for (setting, value) in [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "none")] {
        command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    Ok(())
}
