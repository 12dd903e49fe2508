//! `toroni node …`: the process that connects the bus of a host with those of other hosts.

mod check;

use crate::failure::Failure;
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = "Example:
  toroni node check /etc/toroni/node.toml     would a node start with this file?")]
pub(crate) struct Node {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a configuration file, and print all values in force
    Check(check::Check),
}

/// Runs one of the commands below `node`.
pub(crate) fn run(arguments: &Node) -> Result<(), Failure> {
    match &arguments.command {
        Command::Check(arguments) => check::run(arguments),
    }
}
