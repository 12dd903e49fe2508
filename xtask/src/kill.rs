//! `cargo xtask kill`: runs the test of random kills at its full length, with optimised processes.

use clap::Args;

use crate::command::{Failure, cargo, run as run_command};

#[derive(Args)]
pub(crate) struct Options {
    /// How many processes to kill for each kind of lock
    #[arg(default_value_t = 1000)]
    kills: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut test =
        cargo(["test", "--locked", "--release", "-p", "system-tests", "--test", "processes"]);
    // One test at a time, so that each has the whole machine.
    test.args(["--", "kill::", "--nocapture", "--test-threads", "1"]);
    run_command(test.env("TORONI_KILLS", options.kills.to_string()))
}
