//! What the `main` of a program does with its command line.

use crate::failure::Failure;
use crate::note;
use crate::output::printable;
use clap::builder::{Resettable, StyledStr};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ColorChoice, Command};
use std::io::Write;
use std::process::ExitCode;

/// The option `--color`. [`choose_color`] reads it before clap parses anything, because clap prints its errors in color, too.
#[derive(Args)]
pub struct Coloring {
    /// When to color errors and losses; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output"
    )]
    color: ColorChoice,
}

/// Sets the choice of `--color` from the command line of this process. A program calls it first, so that each of its errors
/// has the color that the user chose.
pub fn choose_color() {
    note::choose(note::choice_in(std::env::args_os().skip(1)));
}

/// Parses the command line of this process.
///
/// # Errors
/// Returns the exit code after it has printed what the user asked for, such as `--help`, or what is wrong. `otherwise`
/// may say something else about an error than clap does.
pub fn parse(
    definitions: fn() -> Command,
    otherwise: impl FnOnce(&clap::Error) -> Option<Failure>,
) -> Result<ArgMatches, ExitCode> {
    definitions().color(note::choice()).try_get_matches().map_err(|error| {
        if is_command_missing(&error) {
            let _ = write!(std::io::stderr(), "{}", help_for(&error, definitions()));
            return ExitCode::from(2);
        }
        match otherwise(&error) {
            Some(failure) => report(failure),
            None => report_usage(&error),
        }
    })
}

/// With this variable, a program tells one that it starts which version it is.
pub const CALLER: &str = "TORONI_CALLER";

/// Checks that the program that started this one, `toroni`, if any, is of the same version.
///
/// # Errors
/// [`Failure::Usage`] with both versions.
pub fn check_caller(name: &str, own: &str) -> Result<(), Failure> {
    match std::env::var(CALLER) {
        Ok(caller) if caller != own => Err(Failure::Usage(format!(
            "toroni is version {}, and {name} is version {own}: install the same version of both",
            printable(&caller)
        ))),
        _ => Ok(()),
    }
}

/// Returns the exit code of a command, after it has printed why it failed.
#[must_use]
pub fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    outcome.map_or_else(report, |()| ExitCode::SUCCESS)
}

/// Whether `--bus` is on the command line. Its value may also be the default or come from the environment.
#[must_use]
pub fn is_bus_named(matches: &ArgMatches, command: &str) -> bool {
    matches
        .subcommand_matches(command)
        .is_some_and(|matches| matches.value_source("bus") == Some(ValueSource::CommandLine))
}

/// Shows `--bus` and `--dir` only in the help of the commands that use them. `shown` are commands below others, which
/// use both all the same.
#[must_use]
pub fn hide_location(
    mut program: Command,
    without_bus: &[&str],
    without_dir: &[&str],
    shown: &[(&str, &str)],
) -> Command {
    for (option, variable) in [("bus", "TORONI_BUS"), ("dir", "TORONI_DIR")] {
        // As in the library, an empty variable counts as not set.
        if std::env::var_os(variable).is_some_and(|value| value.is_empty()) {
            program = program.mut_arg(option, |known| known.env(Resettable::Reset));
        }
    }
    for (option, commands) in [("bus", without_bus), ("dir", without_dir)] {
        let Some(global) = program.get_arguments().find(|known| known.get_id() == option) else {
            continue;
        };
        // The definition in a command takes precedence over the global one.
        let (global, hidden) = (global.clone(), global.clone().hide(true));
        // Not `mut_subcommand`, which moves the command to the end of the list.
        program = program.mut_subcommands(|command| {
            if !commands.contains(&command.get_name()) {
                return command;
            }
            let above = command.get_name().to_owned();
            command.arg(&hidden).mut_subcommands(|below| {
                let uses = shown.contains(&(above.as_str(), below.get_name()));
                if uses { below.arg(&global) } else { below }
            })
        });
    }
    program
}

/// Whether a command was given that needs another one after it. Clap tells by two errors: a variable of the environment
/// counts as an argument.
fn is_command_missing(error: &clap::Error) -> bool {
    use ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    matches!(error.kind(), MissingSubcommand | DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Returns the help of the command that needs another one after it: the program, or one such as `net`.
fn help_for(error: &clap::Error, mut program: Command) -> StyledStr {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return error.render();
    }
    // The error of clap would also list the hidden commands.
    program.build();
    // As in `toroni net`.
    let name = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(words)) => words.rsplit(' ').next().unwrap_or_default(),
        _ => "",
    };
    match program.find_subcommand_mut(name) {
        Some(command) => command.render_help(),
        None => program.render_help(),
    }
}

/// Prints why a command failed, and returns its exit code.
#[must_use]
pub fn report(failure: Failure) -> ExitCode {
    let (code, text) = failure.report();
    if let Some(text) = text {
        note::failure(&text);
    }
    ExitCode::from(code)
}

/// Prints help and version as clap does, and errors of usage with the prefix of all other errors.
#[must_use]
pub fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.render().to_string();
    note::failure(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    ExitCode::from(2)
}
