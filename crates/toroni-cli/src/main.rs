//! The `toroni` program: publish, subscribe and look at buses from a shell.
//!
//! `cli` says what can be written, `commands` has a file for each command, `output` and `human`
//! shape what is printed, `failure` knows the exit codes, `stop` the signals.

mod cli;
mod commands;
mod failure;
mod human;
mod output;
mod progress;
mod ready;
mod settings;
mod stop;

use clap::{CommandFactory, FromArgMatches};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = cli::Cli::command().get_matches();
    let cli = match cli::Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let Err(failure) = commands::run(cli, &matches) else { return ExitCode::SUCCESS };
    let (code, text) = failure.report();
    if let Some(text) = text {
        // There is nobody to tell if standard error is closed.
        let _ = writeln!(std::io::stderr(), "toroni: {text}");
    }
    ExitCode::from(code)
}
