//! `cargo xtask crash`: the walk of crash points with real processes.
//!
//! The program is built a second time with the feature `crash-points`, into a folder of its own: a
//! `toroni` that can be told to kill itself must never lie where an ordinary one is expected.

use clap::Args;

use crate::command::{Failure, cargo, run as run_command};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the tests whose names contain this
    filter: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory.join("crash");
    let arguments =
        ["build", "-p", "toroni-cli", "--features", "crash-points", "--release", "--locked"];
    run_command(cargo(arguments).env("CARGO_TARGET_DIR", &target))?;

    let mut test = cargo(["test", "-p", "system-tests", "--features", "crash-points"]);
    test.args(["--locked", "--test", "crash", "--"]).args(&options.filter).arg("--include-ignored");
    test.env("TORONI_BIN", target.join("release/toroni"));
    run_command(&mut test)
}
