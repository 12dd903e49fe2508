//! `cargo xtask crash`: the walk of crash points with real processes, and the tests of wake-ups, which
//! need the same switches.
//!
//! The programs are built with the feature `crash-points`, into a folder of their own: a `toroni` that can be told
//! to kill itself must never lie where an ordinary one is expected.

use clap::Args;

use crate::command::{Failure, cargo, run as run_command};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the combinations of lock and notifier whose names contain this, as in lease_datagram
    filter: Option<String>,
    /// Only the crash point of this name, as in after-commit
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// Every policy for each point, lock and notifier; more wake-ups, also on a machine that is kept busy
    #[arg(long)]
    full: bool,
}

const PACKAGES: [&str; 6] = [
    "-p",
    "toroni-cli",
    "-p",
    "system-tests",
    "--features",
    "toroni-cli/crash-points,system-tests/crash-points,system-tests/proactor",
];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory.join("crash");
    let mut build = cargo(["build", "--locked"]);
    run_command(build.args(PACKAGES).env("CARGO_TARGET_DIR", &target))?;

    let mut test = cargo(["test", "--locked"]);
    test.args(PACKAGES).args(["--test", "crash"]);
    if options.point.is_none() {
        test.args(["--test", "wake"]);
    }
    test.arg("--").args(&options.filter).arg("--nocapture");
    test.env("CARGO_TARGET_DIR", &target).env("TORONI_BIN", target.join("debug/toroni"));
    if let Some(point) = &options.point {
        test.env("TORONI_POINT", point);
    }
    if options.full {
        // One after the other: hogs, and those who are to be woken, have the machine for themselves.
        test.args(["--include-ignored", "--test-threads", "1"]);
        test.env("TORONI_FULL", "1").env("TORONI_ROUNDS", "20000");
    }
    run_command(&mut test)
}
