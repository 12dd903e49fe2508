//! `toroni node …`: the process that connects the bus of a host with those of other hosts.

mod check;
mod descriptors;
mod lines;
mod log;
mod metrics;
mod multicast;
mod notices;
mod run;
mod sequencer;
mod silence;
mod waiting;
mod wishes;

pub(crate) use check::configuration;
pub(crate) use check::{keys, read, shown, user, users_of_new_bus};
pub(crate) use log::Format;
pub(crate) use run::{Way, serve};

use crate::doctor::{self, Doctor};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  toroni node check /etc/toroni/node.toml     would a node start with this file?
  toroni node doctor /etc/toroni/node.toml    does this host suit it?
  toroni node --config /etc/toroni/node.toml  runs until SIGINT or SIGTERM

The buses are in the directory that the file names, and otherwise in that of --dir.

It writes to standard error what happens: which streams it follows, what was lost, who asks for too many retransmissions. \
Repeated lines of one kind are written once in 10 s, with their number. If an interface, an address, its source id or a \
place on the bus is not there yet, it says so, waits, and tries again each second. SIGTERM ends its streams in order: other nodes \
still get what they miss. SIGUSR1 writes all counters to the log. SIGHUP does not read the file again: restart the node.")]
pub(crate) struct Node {
    /// The configuration file; `toroni node check` explains what is wrong with one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    config: Option<PathBuf>,
    /// How the log is written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    log: Format,
    /// Write a line to descriptor N when the node works
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Check a configuration file, and print all values in force
    Check(check::Check),
    /// Check what this host needs for messages between hosts, and for the node of a file
    Doctor(Doctor),
}

/// Runs a node, or one of the commands below `node`.
pub(crate) fn run(
    location: &BusLocation,
    arguments: &Node,
    is_bus_named: bool,
) -> Result<(), Failure> {
    if is_bus_named {
        return Err(Failure::Usage(
            "--bus has no effect on a node: name the bus in its file, as `bus` below [node]"
                .to_owned(),
        ));
    }
    match (&arguments.command, &arguments.config) {
        (Some(Command::Check(arguments)), _) => check::run(arguments),
        (Some(Command::Doctor(arguments)), _) => doctor::run(arguments),
        (None, Some(path)) => run::run(location, path, arguments.log, arguments.ready_fd),
        (None, None) => Err(Failure::Usage("name a configuration file with --config".to_owned())),
    }
}
