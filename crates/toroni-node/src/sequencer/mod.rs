//! `toroni sequencer …`: begins, observes and reads a feed, one order over several hosts.

mod digest;
pub(crate) mod feed;
mod init;
mod log;
mod members;
mod recover;
mod rewind;
mod send;
mod sources;
mod status;

use clap::{Args, Subcommand};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sequencer init --config node.toml      begin the feed, once, when all members run
  toroni sequencer status --config node.toml    who leads, and who is behind?
  toroni sequencer send new/order '7 boxes' --config node.toml
  toroni sequencer digest --config node.toml    do all members have the same order?
  toroni sequencer rewind again --config node.toml
  toroni sequencer elect --member b --config node.toml
  toroni sequencer members add d=10.0.0.4:4481 --config node.toml
  toroni sequencer sources --config node.toml
  toroni sequencer log /var/lib/toroni/orders/log

`toroni node` runs the members: see the section [sequencer] of its file. The commands reach members over TCP, with the key \
of the realm if it has one.")]
pub(crate) struct Sequencer {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Begin the group of a feed, once
    Init(init::Init),
    /// Show who leads, and how far each member is
    Status(status::StatusOf),
    /// Send a command, and wait until it is part of the order
    Send(send::Send),
    /// Compare the digests of all members at one event
    Digest(digest::DigestOf),
    /// Write the events of a feed to a new bus
    Rewind(rewind::Rewind),
    /// Let a member lead
    Elect(members::Elect),
    /// Add a member to the group, or remove one
    Members(members::Members),
    /// Show from which hosts the order takes commands, and look after them
    Sources(sources::Sources),
    /// Make a new group from one log, when a majority of the members is gone for ever
    Recover(recover::Recover),
    /// Print and check the log of a member, or export its events
    Log(log::Log),
}

/// Runs one of the commands below `sequencer`.
pub(crate) fn run(location: &BusLocation, arguments: &Sequencer) -> Result<(), Failure> {
    match &arguments.command {
        Command::Init(arguments) => init::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Send(arguments) => send::run(location, arguments),
        Command::Digest(arguments) => digest::run(arguments),
        Command::Rewind(arguments) => rewind::run(location, arguments),
        Command::Elect(arguments) => members::elect(arguments),
        Command::Members(arguments) => members::run(arguments),
        Command::Sources(arguments) => sources::run(arguments),
        Command::Recover(arguments) => recover::run(arguments),
        Command::Log(arguments) => log::run(arguments),
    }
}
