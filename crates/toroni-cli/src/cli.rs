//! The command line: the list of commands, and the options that all of them share. Each command defines its own options.

use crate::commands::clean::Clean;
use crate::commands::clear::Clear;
use crate::commands::completions::Completions;
use crate::commands::create::Create;
use crate::commands::demo::options::{Demo, DemoChild};
use crate::commands::doctor::Doctor;
use crate::commands::get::Get;
use crate::commands::hz::options::Hz;
use crate::commands::info::Info;
use crate::commands::list::List;
use crate::commands::man::Man;
#[cfg(feature = "metrics")]
use crate::commands::metrics::ServeMetrics;
use crate::commands::publish::options::Publish;
#[cfg(feature = "record")]
use crate::commands::record::options::Record;
use crate::commands::remove::Remove;
#[cfg(feature = "record")]
use crate::commands::replay::options::Replay;
use crate::commands::subscribe::options::Subscribe;
#[cfg(feature = "top")]
use crate::commands::top::options::Top;
use crate::commands::topics::Topics;
use crate::{exits, parts};
use clap::builder::Resettable;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use clap_complete::CompletionCandidate;
use std::ffi::{OsStr, OsString};
use toroni_shell::location::BusLocation;
use toroni_shell::{complete, program};

/// A message bus for the processes of one Linux machine, without a broker.
#[derive(Parser)]
#[command(name = "toroni", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  toroni demo                                 see how it works
  toroni sub 'plant/**'                       print the messages of all topics below plant
  toroni pub plant/boiler/temperature 351.2   publish a message

With any other name, toroni NAME runs the program toroni-NAME, which lies beside it or in PATH, with the arguments after the name, and toroni \
help NAME runs toroni-NAME --help. For example, toroni zenoh runs toroni-zenoh, the bridge to other machines.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) location: BusLocation,
    #[command(flatten)]
    coloring: program::Coloring,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands that do not use `--bus`.
const WITHOUT_BUS: &[&str] = &["completions", "create", "demo", "doctor", "ls", "man", "rm"];
/// Commands that do not use `--dir`.
const WITHOUT_DIR: &[&str] = &["completions", "man"];

/// Returns the definitions of all commands, with their exit codes. The help of a command shows `--bus` and `--dir`
/// only if the command uses them.
pub(crate) fn definitions() -> clap::Command {
    let program = toroni_shell::exits::add(Cli::command(), exits::TABLE);
    let program = program::hide_location(program, WITHOUT_BUS, WITHOUT_DIR, &[]);
    let Some(bus) = program.get_arguments().find(|known| known.get_id() == "bus") else {
        return program;
    };
    // These read only the command line: without a name, they are about all buses.
    let given = bus.clone().hide_default_value(true).hide_env(true);
    let cleaned = given.clone().help("Clean only this bus; the same as NAME");
    let shown = given.clone().help("Show this bus; the same as NAME");
    // `serve-metrics` takes any number.
    let several = given.action(ArgAction::Append);
    let several = several.help("Serve only this bus; may be given several times [default: all]");
    program.mut_subcommands(|command| match command.get_name() {
        "clean" => command.arg(&cleaned),
        "top" => command.arg(&shown),
        "serve-metrics" => command.arg(&several),
        _ => command,
    })
}

/// Returns the definitions of all commands, and a line for each that another program has.
pub(crate) fn shown() -> clap::Command {
    definitions().subcommands(parts::PARTS.iter().map(parts::Part::line))
}

/// Returns the definitions of all commands. The alias of `sub` is hidden, because the completion engine would offer
/// only the alias and not the command.
pub(crate) fn offered() -> clap::Command {
    // A program of its own completes its own words.
    shown().allow_external_subcommands(false).mut_subcommands(|command| match command.get_name() {
        "sub" => command.visible_alias(Resettable::Reset).alias("echo"),
        _ => command,
    })
}

/// Returns the commands that begin with `current`.
pub(crate) fn complete_commands(current: &OsStr) -> Vec<CompletionCandidate> {
    let program = shown();
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    complete::candidates(current, shown.map(|command| command.get_name().to_owned()))
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start publishers and subscribers, kill one publisher, and check what arrived
    Demo(Demo),
    /// Publish a message, or each line of standard input
    #[command(name = "pub")]
    Publish(Publish),
    /// Print messages as they arrive
    #[command(name = "sub", visible_alias = "echo")]
    Subscribe(Subscribe),
    /// Print the values of retained topics
    Get(Get),
    /// Clear the value of a retained topic
    Clear(Clear),
    /// Show rate, jitter, bandwidth and size per topic, live
    Hz(Hz),
    /// Write the messages of a bus to a file (MCAP), or repair such a file
    #[cfg(feature = "record")]
    Record(Record),
    /// Play recordings back into a bus, or show what is in them
    #[cfg(feature = "record")]
    Replay(Replay),
    /// Create a bus with the settings you choose
    Create(Create),
    /// List the buses
    #[command(
        name = "ls",
        after_help = "Example:
  toroni --dir /mnt/buses ls --json | jq -r .name"
    )]
    List(List),
    /// Show one bus: its settings, publishers and subscribers, their lag and losses
    #[command(after_help = "Example:
  toroni info plant --json | jq '.subscribers[] | {name, pid, lag_bytes, lost_messages}'

Columns of publishers:
  WAITS       how often it waited for slow subscribers
  WAITED      how long it waited in total
  OVERWRITES  how often it overwrote messages that a gating subscriber had not read, after it had waited

Columns of subscribers:
  GATING  whether publishers wait for it
  LAG     bytes between its position and the end of the stream
  LOST    messages of the bus, on any topic, that were overwritten before it read them
  LAPSES  how often publishers overtook it

STATE is alive, stopped, dead, dumping (it writes a core dump), or lapped (overtaken, and not yet caught up).")]
    Info(Info),
    /// Show the topics in the ring of a bus, with message counts and subscribers
    Topics(Topics),
    /// Show a bus live: rates, lag, losses, and which subscriber slows the publishers
    #[cfg(feature = "top")]
    Top(Top),
    /// Check this machine and suggest a fix for each problem
    Doctor(Doctor),
    /// Remove buses that no process has open
    #[command(name = "rm")]
    Remove(Remove),
    /// Clean up after dead processes, and remove unused buses that are not persistent
    Clean(Clean),
    /// Serve the metrics of buses over HTTP, for Prometheus
    #[cfg(feature = "metrics")]
    ServeMetrics(ServeMetrics),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Print a manual page, or write all of them
    Man(Man),
    /// A publishing process of the demo
    #[command(hide = true)]
    DemoPublisher(DemoChild),
    /// A subscribing process of the demo
    #[command(hide = true)]
    DemoSubscriber(DemoChild),
    /// Any other name: a program of its own (`external`)
    #[command(external_subcommand)]
    External(Vec<OsString>),
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
