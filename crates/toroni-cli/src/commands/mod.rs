//! One file for each command. Each takes its arguments and returns when it has let go of the bus.

#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod clean;
pub(crate) mod completions;
pub(crate) mod create;
pub(crate) mod demo;
mod doctor;
pub(crate) mod hz;
pub(crate) mod info;
mod list;
pub(crate) mod man;
mod opening;
pub(crate) mod publish;
pub(crate) mod remove;
pub(crate) mod subscribe;
pub(crate) mod topics;

use crate::cli::{BusLocation, Cli, Command};
use crate::failure::Failure;
use clap::ArgMatches;
use clap::parser::ValueSource;
use std::time::Duration;
use toroni::{Bus, BusConfig, OpenError, Pattern};

/// How long a command sleeps at a time before it looks at the signals and at its output again. A
/// silent subscriber looks at the ring every 250 ms by itself, so this wakes it little more often.
const LOOK_UP_EVERY: Duration = Duration::from_millis(200);

/// Does what the command line says.
pub(crate) fn run(cli: Cli, matches: &ArgMatches) -> Result<(), Failure> {
    let location = cli.location;
    match cli.command {
        Command::Demo(arguments) => demo::run(&location, &arguments),
        Command::DemoPublisher(arguments) => demo::publisher::run(&location, &arguments),
        Command::DemoSubscriber(arguments) => demo::subscriber::run(&location, &arguments),
        Command::Publish(arguments) => publish::run(&location, arguments),
        Command::Subscribe(arguments) => subscribe::run(&location, arguments),
        Command::Hz(arguments) => hz::run(&location, &arguments),
        Command::Create(arguments) => create::run(&location, arguments),
        Command::List(arguments) => list::run(&location, &arguments),
        Command::Info(arguments) => {
            one_bus(&location, arguments.name.as_deref(), is_bus_named(matches, "info"))?;
            info::run(&location, &arguments)
        }
        Command::Topics(arguments) => topics::run(&location, &arguments),
        Command::Doctor(arguments) => doctor::run(&location, &arguments),
        Command::Remove(arguments) => remove::run(&location, &arguments),
        Command::Clean(arguments) => {
            let named = is_bus_named(matches, "clean");
            one_bus(&location, arguments.name.as_deref(), named)?;
            clean::run(&location, &arguments, named)
        }
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => bench::run(&location, &arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    }
}

/// Whether `--bus` stands on the command line. It has a default, and the environment may name a bus.
fn is_bus_named(matches: &ArgMatches, command: &str) -> bool {
    matches
        .subcommand_matches(command)
        .is_some_and(|matches| matches.value_source("bus") == Some(ValueSource::CommandLine))
}

/// Refuses to choose between two buses.
fn one_bus(location: &BusLocation, name: Option<&str>, bus_named: bool) -> Result<(), Failure> {
    match name {
        Some(name) if bus_named && name != location.bus => Err(Failure::Usage(format!(
            "--bus {} and {name} are two buses: name one",
            location.bus
        ))),
        _ => Ok(()),
    }
}

/// The configuration to open a bus with, in the directory of the command line.
pub(crate) fn config(location: &BusLocation) -> BusConfig {
    match &location.dir {
        Some(directory) => BusConfig::new().directory(directory),
        None => BusConfig::new(),
    }
}

/// Patterns of the command line. Checked before a command waits for its bus, or makes it.
fn patterns(texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    let patterns: Result<Vec<Pattern>, _> = texts.iter().map(|text| Pattern::new(text)).collect();
    Ok(patterns.map_err(OpenError::Pattern)?)
}

/// The bus a looking command names: it must exist.
fn open_existing(location: &BusLocation, name: Option<&str>) -> Result<Bus, Failure> {
    Ok(config(location).open_existing(name.unwrap_or(&location.bus))?)
}
