//! `toroni net …`: what several hosts need to know before they talk to one another.

mod address;
mod buffer;

use crate::failure::Failure;
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net buffer --rate 200Mbit/s          how large must the receive buffer be?
  toroni net address 239.192.84.79 239.0.0.7  which groups are safe to use?")]
pub(crate) struct Net {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Calculate the receive buffer for a rate, or how long a buffer lasts
    Buffer(buffer::Buffer),
    /// Check multicast groups: scope, Ethernet address, what overlaps, what floods
    Address(address::Address),
}

/// Runs one of the commands below `net`.
pub(crate) fn run(arguments: &Net) -> Result<(), Failure> {
    match &arguments.command {
        Command::Buffer(arguments) => buffer::run(arguments),
        Command::Address(arguments) => address::run(arguments),
    }
}
