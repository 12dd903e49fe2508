//! What the `main` of a program does with its command line.

use crate::failure::Failure;
use crate::note;
use crate::output::{Output, printable};
use clap::builder::{Resettable, StyledStr};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ColorChoice, Command};
use std::ffi::OsString;
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
    definitions().color(note::choice()).try_get_matches().map_err(|mut error| {
        explain(&mut error, definitions(), std::env::args_os().skip(1));
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

/// Makes an error of clap fit what the user wrote. Its usage line would show options as required that the environment sets.
/// And for `--topic`, where the topic is an argument, it would suggest another option.
fn explain(error: &mut clap::Error, mut program: Command, words: impl Iterator<Item = OsString>) {
    program.build();
    let command = command_of(&mut program, words);
    if error.get(ContextKind::Usage).is_some() {
        let usage = command.render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let option = option.clone();
    let wanted = argument_for(&option);
    let names = |argument: &clap::Arg| {
        let name = argument.get_value_names().and_then(|names| names.first())?;
        wanted.contains(&name.as_str()).then(|| name.to_string())
    };
    let takes_group = command.get_arguments().any(|known| known.get_long() == Some("group"));
    let tip = if let Some(name) = command.get_positionals().find_map(names) {
        format!("{name} is no option: write it without '{option}'")
    } else if takes_group && is_address(&option) {
        format!("name the group with '--group {option}'")
    } else {
        return;
    };
    error.remove(ContextKind::SuggestedArg);
    let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tips);
}

/// Returns whether an argument begins as the address of a group, perhaps with a port.
fn is_address(argument: &str) -> bool {
    argument.starts_with(|c: char| c.is_ascii_digit() || c == '[')
        || argument.parse::<std::net::IpAddr>().is_ok()
}

/// Returns the command that the words call.
fn command_of(program: &mut Command, words: impl Iterator<Item = OsString>) -> &mut Command {
    let mut command = program;
    let mut is_value = false;
    for word in words {
        let Some(name) = word.to_str() else { continue };
        if std::mem::replace(&mut is_value, ["-b", "--bus", "--dir", "--color"].contains(&name)) {
            continue;
        }
        if command.find_subcommand(name).is_some() {
            command = command.find_subcommand_mut(name).expect("it was found");
        }
    }
    command
}

/// Returns the arguments that a user may mean with an option of this name.
fn argument_for(option: &str) -> &'static [&'static str] {
    match option.trim_start_matches('-').split('=').next().unwrap_or_default() {
        "topic" | "topics" | "pattern" | "patterns" => &["TOPIC", "PATTERN"],
        "name" | "names" | "bus" => &["NAME", "NAMES", "BUS"],
        "message" | "payload" => &["MESSAGE"],
        "file" | "files" | "input" | "output" => &["FILE", "FILES"],
        "group" | "groups" => &["GROUP"],
        _ => &[],
    }
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
        return exit_code(print_help(error));
    }
    let text = error.render().to_string();
    note::failure(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    ExitCode::from(2)
}

/// Prints help or version. Unlike clap, fails if they cannot be written.
fn print_help(error: &clap::Error) -> Result<(), Failure> {
    let mut output = Output::new()?;
    let text = error.render();
    let text = match note::is_colored(output.is_terminal()) {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    output.bytes(text.as_bytes())?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn program() -> Command {
        let dir = Arg::new("dir").long("dir").value_name("DIR").global(true);
        let topic = Arg::new("topic").value_name("TOPIC").required(true);
        let strict = Arg::new("strict").long("strict").action(clap::ArgAction::SetTrue);
        let sub = Command::new("sub").arg(topic).arg(strict);
        Command::new("toroni").arg(dir).subcommand(sub).subcommand(Command::new("other"))
    }

    fn said(words: &[&str]) -> String {
        let mut error = program().try_get_matches_from(words).unwrap_err();
        explain(&mut error, program(), words[1..].iter().map(OsString::from));
        error.render().to_string()
    }

    #[test]
    fn an_option_for_an_argument_names_the_argument() {
        let text = said(&["toroni", "sub", "--topic", "x"]);
        assert!(text.contains("tip: TOPIC is no option: write it without '--topic'"), "{text}");
        assert!(!text.contains("--strict"), "{text}");
        // A bus may have the name of a command.
        let text = said(&["toroni", "--dir", "other", "sub", "--topic", "x"]);
        assert!(text.contains("TOPIC is no option"), "{text}");
        // A mistyped option still gets its suggestion.
        let text = said(&["toroni", "sub", "--strikt", "x"]);
        assert!(text.contains("'--strict'"), "{text}");
    }

    #[test]
    fn the_usage_is_that_of_the_command() {
        let text = said(&["toroni", "--dir", "/x", "sub", "--nothing"]);
        assert!(text.contains("Usage: toroni sub [OPTIONS] <TOPIC>"), "{text}");
        assert!(!text.contains("--dir <DIR>"), "{text}");
    }
}
