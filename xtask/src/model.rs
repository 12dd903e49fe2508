//! `cargo xtask model`: runs the state-space model of the protocol, optimised.

use clap::Args;

use crate::command::{Failure, cargo, run as run_command};

#[derive(Args)]
pub(crate) struct Options {
    /// Arguments for the model; `cargo xtask model -- --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut command = cargo(["run", "--locked", "--release", "-p", "toroni-protocol-model", "--"]);
    run_command(command.args(&options.arguments))
}
