//! `toroni completions`: made from the definitions behind `--help`.

use crate::cli::{self, Completions, Place};
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Command};

/// Prints the completions for a shell.
pub(crate) fn run(arguments: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut offered(), "toroni", &mut script);
    let mut output = Output::new()?;
    output.bytes(&script)?;
    output.flush()
}

/// The program without its hidden commands, which shells would offer as well.
fn offered() -> Command {
    let program = cli::definitions();
    let commands: Vec<Command> = super::man::visible(&program).cloned().collect();
    let bare = Command::new("toroni").version(env!("CARGO_PKG_VERSION"));
    Place::augment_args(bare).subcommands(commands)
}
