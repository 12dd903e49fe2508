//! The `toroni` program: publish, subscribe and inspect buses from a shell.
//!
//! | modules | contents |
//! |---|---|
//! | `commands` | each command with its options |
//! | `cli` | the list of commands, and what all of them share |
//! | `exits` | exit codes |
//! | `external` | `toroni NAME` runs the program `toroni-NAME` |
//!
//! What it shares with other programs is in `toroni-shell`: output, errors, signals, completion, messages as text. What
//! `record` writes, and `replay` and `sub --file` read, is in `toroni-recording`.

mod cli;
mod commands;
mod exits;
mod external;
#[doc(hidden)]
pub mod fuzz_entry;

use clap::FromArgMatches;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap_complete::CompleteEnv;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use toroni_shell::failure::Failure;
use toroni_shell::{complete, note};

/// Runs the program with the arguments and the environment of this process.
#[must_use]
pub fn main() -> ExitCode {
    #[cfg(feature = "bench")]
    if commands::bench::is_child() {
        return commands::bench::run_child();
    }
    // If a shell asks for completions, prints them and exits.
    CompleteEnv::with_factory(cli::offered).var(complete::VARIABLE).complete();
    let color = note::choice_in(std::env::args_os().skip(1));
    note::choose(color);
    let matches = match cli::definitions().color(color).try_get_matches() {
        Ok(matches) => matches,
        Err(error) if is_command_missing(&error) => {
            let _ = write!(std::io::stderr(), "{}", help_for(&error));
            return ExitCode::from(2);
        }
        Err(error) => {
            let words: Vec<OsString> = std::env::args_os().skip(1).collect();
            return match external::help(&error, &words) {
                Some(failure) => report(failure),
                None => report_usage(&error),
            };
        }
    };
    let cli = match cli::Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let Err(failure) = commands::run(cli, &matches) else { return ExitCode::SUCCESS };
    report(failure)
}

/// Whether a command was given that needs another one after it. Clap tells by two errors: a variable of the environment
/// counts as an argument.
fn is_command_missing(error: &clap::Error) -> bool {
    use ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    matches!(error.kind(), MissingSubcommand | DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Returns the help of the command that needs another one after it: the program, or one such as `net`.
fn help_for(error: &clap::Error) -> StyledStr {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return error.render();
    }
    // The error of clap would also list the hidden commands.
    let mut program = cli::definitions();
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

fn report(failure: Failure) -> ExitCode {
    let (code, text) = failure.report();
    if let Some(text) = text {
        note::failure(&text);
    }
    ExitCode::from(code)
}

/// Prints help and version as clap does, and errors of usage with the prefix of all other errors.
fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.render().to_string();
    note::failure(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    ExitCode::from(2)
}
