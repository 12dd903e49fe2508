//! One file for each command. Each takes its arguments and returns when it has let go of the bus.

pub(crate) mod bench;
mod clean;
mod completions;
mod create;
mod demo;
mod doctor;
mod hz;
mod info;
mod list;
mod man;
mod opening;
pub(crate) mod publish;
mod remove;
pub(crate) mod subscribe;
mod topics;

use crate::cli::{Cli, Command, Place};
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
    let place = cli.place;
    match cli.command {
        Command::Demo(arguments) => demo::run(&place, &arguments),
        Command::DemoPublisher(arguments) => demo::publisher::run(&place, &arguments),
        Command::DemoSubscriber(arguments) => demo::subscriber::run(&place, &arguments),
        Command::Publish(arguments) => publish::run(&place, arguments),
        Command::Subscribe(arguments) => subscribe::run(&place, arguments),
        Command::Hz(arguments) => hz::run(&place, &arguments),
        Command::Create(arguments) => create::run(&place, arguments),
        Command::List(arguments) => list::run(&place, &arguments),
        Command::Info(arguments) => {
            one_bus(&place, arguments.name.as_deref(), is_bus_named(matches, "info"))?;
            info::run(&place, &arguments)
        }
        Command::Topics(arguments) => topics::run(&place, &arguments),
        Command::Doctor(arguments) => doctor::run(&place, &arguments),
        Command::Remove(arguments) => remove::run(&place, &arguments),
        Command::Clean(arguments) => {
            let named = is_bus_named(matches, "clean");
            one_bus(&place, arguments.name.as_deref(), named)?;
            clean::run(&place, &arguments, named)
        }
        Command::Bench(arguments) => bench::run(&place, &arguments),
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
fn one_bus(place: &Place, name: Option<&str>, bus_named: bool) -> Result<(), Failure> {
    match name {
        Some(name) if bus_named && name != place.bus => {
            Err(Failure::Usage(format!("--bus {} and {name} are two buses: name one", place.bus)))
        }
        _ => Ok(()),
    }
}

/// The configuration to open a bus with, in the directory of the command line.
fn config(place: &Place) -> BusConfig {
    match &place.dir {
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
fn open_existing(place: &Place, name: Option<&str>) -> Result<Bus, Failure> {
    Ok(config(place).open_existing(name.unwrap_or(&place.bus))?)
}
