//! `cargo xtask model`: the state-space model of the protocol, optimised.

use clap::Args;

use crate::command::{Failure, cargo, run as run_command};

#[derive(Args)]
pub(crate) struct Options {
    /// What the model's own command line takes; `cargo xtask model -- --help` shows it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut command = cargo(["run", "--locked", "--release", "-p", "toroni-protocol-model", "--"]);
    run_command(command.args(&options.arguments))
}
