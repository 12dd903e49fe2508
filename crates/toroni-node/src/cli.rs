//! The command line: the list of commands, and the options that all of them share. Each command defines its own options.
//!
//! Users type `toroni node …`, so the help calls the program so.

use crate::exits;
use crate::net::Net;
use crate::node::Node;
use crate::sequencer::Sequencer;
use clap::{ArgMatches, Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;
use toroni_shell::{man, program};

/// What the program `toroni` can do between hosts.
#[derive(Parser)]
#[command(
    name = "toroni",
    bin_name = "toroni",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  toroni net send 'plant/**' --rate 100Mbit/s  send messages of a bus to other hosts
  toroni node --config /etc/toroni/node.toml   connect the bus with those of other hosts
  toroni sequencer status --config node.toml   who leads, and who is behind?")]
pub(crate) struct Cli {
    #[command(flatten)]
    location: BusLocation,
    #[command(flatten)]
    coloring: program::Coloring,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send and receive without a file, and calculate what hosts need
    Net(Net),
    /// Connect the bus with those of other hosts, or check the configuration for that
    Node(Node),
    /// One order over several hosts: begin it, observe it, send commands, read its log
    Sequencer(Sequencer),
    /// Print a manual page, or write all of them; `toroni man` calls it
    #[command(hide = true)]
    Man(Man),
}

#[derive(Args)]
struct Man {
    #[arg(conflicts_with = "to", required_unless_present = "to")]
    command: Option<String>,
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

/// Commands that do not use `--bus`.
const WITHOUT_BUS: &[&str] = &["man", "net", "node", "sequencer"];
/// Commands that do not use `--dir`.
const WITHOUT_DIR: &[&str] = &["man", "net"];
/// Commands that use both all the same.
const WITH_BOTH: &[(&str, &str)] = &[("net", "receive"), ("net", "send")];

/// Returns the definitions of all commands, with their exit codes.
pub(crate) fn definitions() -> clap::Command {
    let program = toroni_shell::exits::add(Cli::command(), exits::TABLE);
    // The name before the version is that of this program, and the names of the pages begin with `toroni`.
    let program = program.display_name("toroni-node").mut_subcommands(|command| {
        let name = format!("toroni-{}", command.get_name());
        command.display_name(name)
    });
    program::hide_location(program, WITHOUT_BUS, WITHOUT_DIR, WITH_BOTH)
}

impl Cli {
    /// Runs the command of the command line.
    pub(crate) fn run(self, matches: &ArgMatches) -> Result<(), Failure> {
        match self.command {
            Command::Net(arguments) => crate::net::run(&self.location, &arguments),
            Command::Node(arguments) => {
                crate::node::run(&self.location, &arguments, program::is_bus_named(matches, "node"))
            }
            Command::Sequencer(arguments) => crate::sequencer::run(&self.location, &arguments),
            Command::Man(arguments) => write_pages(&arguments),
        }
    }
}

fn write_pages(arguments: &Man) -> Result<(), Failure> {
    let mut program = definitions();
    program.build();
    let Some(directory) = &arguments.to else {
        let name = arguments.command.as_deref().unwrap_or_default();
        let command = man::find(&program, name)?;
        let mut output = Output::new()?;
        output.bytes(&man::page(command)?)?;
        return output.flush();
    };
    // The page of the program itself is that of `toroni`, whose `man --to` calls this.
    man::visible(&program).try_for_each(|command| man::write_all(command, directory, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent_and_every_command_has_exit_codes_and_an_example() {
        let faults = toroni_shell::exits::faults(exits::TABLE, definitions());
        assert!(faults.is_empty(), "{faults:?}");
    }
}
