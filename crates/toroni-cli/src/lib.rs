//! The `toroni` program: publish, subscribe and look at buses from a shell.
//!
//! `cli` says what can be written and `complete` what a shell offers, `commands` has a file for each command, `output` and `human`
//! shape what is printed, `exchange` is the JSON that `sub` writes and `pub` reads, `note` speaks on standard error, `failure` and `exits` know the exit codes, `stop` the signals.

mod cli;
mod commands;
mod complete;
mod exchange;
mod exits;
mod failure;
#[doc(hidden)]
pub mod fuzz_entry;
mod human;
mod note;
mod output;
mod progress;
mod ready;
mod settings;
mod stop;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use clap_complete::CompleteEnv;
use std::io::Write;
use std::process::ExitCode;

/// What the program does, with the arguments and the environment of this process.
#[must_use]
pub fn main() -> ExitCode {
    #[cfg(feature = "bench")]
    if commands::bench::is_child() {
        return commands::bench::run_child();
    }
    // Ends here if a shell asks what could come next.
    CompleteEnv::with_factory(complete::offered).var(complete::VARIABLE).complete();
    let color = note::choice_in(std::env::args_os().skip(1));
    note::choose(color);
    let matches = match cli::definitions().color(color).try_get_matches() {
        Ok(matches) => matches,
        // The error of clap would list the hidden commands, too.
        Err(error) if error.kind() == ErrorKind::MissingSubcommand => {
            let _ = write!(std::io::stderr(), "{}", cli::definitions().render_help());
            return ExitCode::from(2);
        }
        Err(error) => return refused(&error),
    };
    let cli = match cli::Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let Err(failure) = commands::run(cli, &matches) else { return ExitCode::SUCCESS };
    let (code, text) = failure.report();
    if let Some(text) = text {
        note::failure(&text);
    }
    ExitCode::from(code)
}

/// Prints what clap says: help and the version as they are, an error under the prefix of all others.
fn refused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let said = error.render().to_string();
    note::failure(said.strip_prefix("error: ").unwrap_or(&said).trim_end());
    ExitCode::from(2)
}
