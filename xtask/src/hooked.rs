//! The build of everything that runs for real and is killed on purpose: `cargo xtask crash`, `soak` and `simulate`.
//!
//! It has the steps at which a process can be told to kill itself, is optimised, and checks the project's own asserts. It
//! has a folder of its own: a `toroni` that can kill itself must never lie where an ordinary one is expected. One list of
//! packages and features for all tasks, because cargo compiles a crate again for each other selection of features.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{Failure, cargo, run};
use crate::metadata;

const SELECTION: &[&str] = &[
    "--locked",
    "--profile",
    "soak",
    "-p",
    "toroni-cli",
    "-p",
    "system-tests",
    "-p",
    "toroni-fuzz-harness",
    "--no-default-features",
    "--features",
    "toroni-cli/crash-points,system-tests/crash-points,toroni-fuzz-harness/deaths",
];

/// The folder that the build has for itself.
fn target() -> Result<PathBuf, Failure> {
    Ok(metadata::members()?.target_directory.join("hooked"))
}

/// Builds all programs, and the tests of `cargo xtask crash`: with tests among them, cargo selects the same features of
/// dependencies as for [`test()`].
pub(crate) fn build() -> Result<(), Failure> {
    run(command("build")?.args(["--bins", "--test", "crash", "--test", "wake"]))
}

/// `cargo test` of one of the tests that [`build`] has built.
pub(crate) fn test(name: &str) -> Result<Command, Failure> {
    let mut command = command("test")?;
    command.args(["--test", name]);
    Ok(command)
}

fn command(what: &str) -> Result<Command, Failure> {
    let mut command = cargo([what]);
    command.args(SELECTION).env("CARGO_TARGET_DIR", target()?);
    Ok(command)
}

/// Where the build puts this program.
pub(crate) fn program(name: &str) -> Result<PathBuf, Failure> {
    Ok(target()?.join("soak").join(name))
}
