//! The `toroni` program: publish, subscribe and inspect buses from a shell.
//!
//! | modules | contents |
//! |---|---|
//! | `commands` | each command with its options |
//! | `cli` | the list of commands, and what all of them share |
//! | `opening`, `audience`, `participants` | what several commands do: wait for a bus, wait for subscribers, show participants |
//! | `exits` | exit codes |
//! | `settings` | settings of a bus as text |
//! | `external` | `toroni NAME` runs the program `toroni-NAME` |
//! | `parts` | the commands that the program `toroni-node` has |
//!
//! What it shares with other programs is in `toroni-shell`: output, errors, signals, completion, messages as text. What
//! `record` writes, and `replay` and `sub --file` read, is in `toroni-recording`.

mod audience;
mod cli;
mod commands;
mod exits;
mod external;
#[doc(hidden)]
pub mod fuzz_entry;
mod opening;
mod participants;
mod parts;
mod settings;

use clap::FromArgMatches;
use clap_complete::CompleteEnv;
use std::ffi::OsString;
use std::process::ExitCode;
use toroni_shell::{complete, program};

/// Runs the program with the arguments and the environment of this process.
#[must_use]
pub fn main() -> ExitCode {
    program::choose_color();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(failure) = parts::run(&words) {
        return program::report(failure);
    }
    // If a shell asks for completions, prints them and exits.
    CompleteEnv::with_factory(cli::offered).var(complete::VARIABLE).complete();
    let matches = match program::parse(cli::shown, |error| external::help(error, &words)) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    match cli::Cli::from_arg_matches(&matches) {
        Ok(cli) => program::exit_code(commands::run(cli, &matches)),
        Err(error) => program::report_usage(&error),
    }
}
