//! One file or directory for each command: its options, and `run`, which returns when it has closed the bus.

pub(crate) mod clean;
pub(crate) mod clear;
pub(crate) mod completions;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod get;
pub(crate) mod hz;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod man;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod publish;
#[cfg(feature = "record")]
pub(crate) mod record;
pub(crate) mod remove;
#[cfg(feature = "record")]
pub(crate) mod replay;
pub(crate) mod subscribe;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod topics;

use crate::cli::{Cli, Command};
use crate::external;
use clap::ArgMatches;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::program::is_bus_named;

/// Runs the command of the command line.
pub(crate) fn run(cli: Cli, matches: &ArgMatches) -> Result<(), Failure> {
    let location = cli.location;
    match cli.command {
        Command::Demo(arguments) => demo::run(&location, &arguments),
        Command::DemoPublisher(arguments) => demo::publisher::run(&location, &arguments),
        Command::DemoSubscriber(arguments) => demo::subscriber::run(&location, &arguments),
        Command::Publish(arguments) => publish::run(&location, arguments),
        Command::Subscribe(arguments) => subscribe::run(&location, arguments),
        Command::Get(arguments) => get::run(&location, &arguments),
        Command::Clear(arguments) => clear::run(&location, &arguments),
        Command::Hz(arguments) => hz::run(&location, &arguments),
        #[cfg(feature = "record")]
        Command::Record(arguments) => record::run(&location, &arguments),
        #[cfg(feature = "record")]
        Command::Replay(arguments) => replay::run(&location, &arguments),
        Command::Create(arguments) => create::run(&location, arguments),
        Command::List(arguments) => list::run(&location, &arguments),
        Command::Info(arguments) => {
            one_bus(&location, arguments.name.as_deref(), is_bus_named(matches, "info"))?;
            info::run(&location, &arguments)
        }
        Command::Topics(arguments) => topics::run(&location, &arguments),
        #[cfg(feature = "top")]
        Command::Top(arguments) => {
            let named = is_bus_named(matches, "top");
            one_bus(&location, arguments.name.as_deref(), named)?;
            // Without a name on the command line, it lists all buses.
            let name = arguments.name.as_deref().or(named.then_some(location.bus.as_str()));
            top::run(&location, &arguments, name)
        }
        Command::Doctor(arguments) => doctor::run(&location, &arguments),
        Command::Remove(arguments) => remove::run(&location, &arguments),
        Command::Clean(arguments) => {
            let named = is_bus_named(matches, "clean");
            one_bus(&location, arguments.name.as_deref(), named)?;
            clean::run(&location, &arguments, named)
        }
        #[cfg(feature = "metrics")]
        Command::ServeMetrics(arguments) => {
            metrics::run(&location, &arguments, metrics::named_buses(matches))
        }
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::External(words) => Err(external::run(&words, &location, matches)),
    }
}

/// Fails if the command line names two different buses.
fn one_bus(location: &BusLocation, name: Option<&str>, bus_named: bool) -> Result<(), Failure> {
    match name {
        Some(name) if bus_named && name != location.bus => Err(Failure::Usage(format!(
            "--bus {} and {name} are two buses: name only one",
            location.bus
        ))),
        _ => Ok(()),
    }
}
