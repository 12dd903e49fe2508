//! `cargo xtask crash`: kills real processes at every crash point, and tests wake-ups, which needs the same build.
//!
//! The programs are built with the feature `crash-points`, into a folder of their own: a `toroni` that can be told
//! to kill itself must never lie where an ordinary one is expected.

use clap::Args;

use crate::command::{Failure, cargo, run as run_command, run_tests};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Test only the combinations of lock and notifier whose names contain this, for example lease_datagram
    filter: Option<String>,
    /// Test only this crash point, for example after-commit
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// Test every policy with each point, lock and notifier; test more wake-ups, also on a busy machine
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
        // One test at a time, because some keep the machine busy.
        test.args(["--include-ignored", "--test-threads", "1"]);
        test.env("TORONI_FULL", "1").env("TORONI_ROUNDS", "20000");
    }
    run_tests(&mut test)
}
