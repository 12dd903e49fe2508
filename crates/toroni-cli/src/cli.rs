//! The command line: the list of commands, and the options that all of them share. Each command defines its own options.

#[cfg(feature = "bench")]
use crate::commands::bench::options::Bench;
use crate::commands::clean::Clean;
use crate::commands::completions::Completions;
use crate::commands::create::Create;
use crate::commands::demo::options::{Demo, DemoChild};
use crate::commands::hz::options::Hz;
use crate::commands::info::Info;
use crate::commands::man::Man;
use crate::commands::publish::options::Publish;
use crate::commands::remove::Remove;
use crate::commands::subscribe::options::Subscribe;
use crate::commands::topics::Topics;
use crate::complete;
use crate::exits;
use clap::builder::Resettable;
use clap::{Args, ColorChoice, CommandFactory, Parser, Subcommand};
use clap_complete::ArgValueCompleter;
use std::path::PathBuf;

/// A message bus for the processes of one Linux machine, without a broker.
#[derive(Parser)]
#[command(name = "toroni", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  toroni demo                                 see it at work
  toroni sub 'plant/**'                       print what is published below plant
  toroni pub plant/boiler/temperature 351.2   publish a message")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) location: BusLocation,
    /// Color failures and losses; auto: on a terminal, unless NO_COLOR is set
    // `note::choice_in` reads it, before anything is parsed.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output"
    )]
    color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which bus.
#[derive(Args, Clone)]
pub(crate) struct BusLocation {
    /// Name of the bus
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        env = "TORONI_BUS",
        default_value = "default",
        help_heading = "Which bus",
        add = ArgValueCompleter::new(complete::buses)
    )]
    pub(crate) bus: String,
    /// Directory of all buses [default: /dev/shm/toroni]
    #[arg(long, global = true, value_name = "DIR", env = "TORONI_DIR", help_heading = "Which bus")]
    pub(crate) dir: Option<PathBuf>,
}

/// The commands without a bus, or with one of their own: `--bus` means nothing there.
const WITHOUT_BUS: [&str; 8] =
    ["bench", "completions", "create", "demo", "doctor", "ls", "man", "rm"];
/// Those that look at no directory either.
const WITHOUT_DIR: [&str; 2] = ["completions", "man"];

/// The definitions of all commands, with their exit codes. `--bus` and `--dir` are shown only where they mean
/// something.
pub(crate) fn definitions() -> clap::Command {
    let mut program =
        with_exit_codes(Cli::command(), &exits::overview()).mut_subcommands(|command| {
            match exits::of(command.get_name()) {
                Some(codes) => with_exit_codes(command, &codes),
                None => command,
            }
        });
    for (option, variable) in [("bus", "TORONI_BUS"), ("dir", "TORONI_DIR")] {
        // As in the library, a variable that is set to nothing is not set.
        if std::env::var_os(variable).is_some_and(|value| value.is_empty()) {
            program = program.mut_arg(option, |known| known.env(Resettable::Reset));
        }
    }
    for (option, commands) in [("bus", &WITHOUT_BUS[..]), ("dir", &WITHOUT_DIR[..])] {
        let Some(shown) = program.get_arguments().find(|known| known.get_id() == option) else {
            continue;
        };
        // A command's own definition goes before the global one.
        let hidden = shown.clone().hide(true);
        // Not `mut_subcommand`, which puts the command behind all others.
        program = program.mut_subcommands(|command| {
            if commands.contains(&command.get_name()) { command.arg(&hidden) } else { command }
        });
    }
    program
}

fn with_exit_codes(command: clap::Command, codes: &str) -> clap::Command {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.after_help(format!("{notes}\n\nExit codes:\n{codes}"))
}

/// Whether a command looks at no directory of buses.
pub(crate) fn is_without_directory(command: &str) -> bool {
    WITHOUT_DIR.contains(&command)
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start publishers and subscribers, kill one, and check what arrived
    Demo(Demo),
    /// Publish a message, or each line of standard input
    #[command(name = "pub")]
    Publish(Publish),
    /// Print messages as they arrive
    #[command(name = "sub", visible_alias = "echo")]
    Subscribe(Subscribe),
    /// Show rate, jitter, bandwidth and size per topic, live
    Hz(Hz),
    /// Create a bus with settings of your own
    Create(Create),
    /// List the buses
    #[command(
        name = "ls",
        after_help = "Example:
  toroni --dir /mnt/buses ls --json | jq -r .name"
    )]
    List(List),
    /// Show one bus: its header, its participants, who lags, who lost what
    #[command(after_help = "Example:
  toroni info plant --json | jq '.subscribers[] | {name, pid, lag_bytes, lost_messages}'")]
    Info(Info),
    /// Show the topics of a bus, with counts within the retained ring, and who subscribes to each
    Topics(Topics),
    /// Check this machine, and say how to mend each finding
    #[command(after_help = "Example:
  toroni doctor --json | jq 'select(.status != \"ok\")'")]
    Doctor(List),
    /// Remove buses that nobody has open
    #[command(name = "rm")]
    Remove(Remove),
    /// Free what the dead left behind; remove buses that nobody made on purpose and nobody has open
    Clean(Clean),
    /// Measure this machine: throughput, latency, stress, fan-out, scale, the proactor, and beside TCP and others
    #[cfg(feature = "bench")]
    Bench(Bench),
    /// Print the completions for a shell
    Completions(Completions),
    /// Print a manual page
    Man(Man),
    /// A publishing process of the demo
    #[command(hide = true)]
    DemoPublisher(DemoChild),
    /// A subscribing process of the demo
    #[command(hide = true)]
    DemoSubscriber(DemoChild),
}

/// Options of the commands that only list something.
#[derive(Args)]
pub(crate) struct List {
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_fit_together() {
        definitions().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in definitions().get_subcommands().filter(|c| !c.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let wanted = format!("toroni {}", command.get_name());
            assert!(
                help.starts_with("Example") && help.contains(command.get_name()),
                "{wanted} has no example"
            );
        }
    }
}
