//! The program `toroni-node`: the commands `node`, `net` and `sequencer` of `toroni`, which connect the buses of several hosts.
//!
//! | modules | contents |
//! |---|---|
//! | `node` | `toroni node`: the process that connects the bus of a host with those of others |
//! | `net` | `toroni net`: without a file, and what hosts need to know before they talk |
//! | `sequencer` | `toroni sequencer`: one order over several hosts |
//! | `doctor` | `toroni node doctor`: whether this host is set up for it |
//! | `cli`, `exits` | the list of commands, exit codes |
//!
//! The commands of one bus are in `toroni-cli`; what both programs share is in `toroni-shell`.

mod cli;
mod doctor;
mod exits;
mod net;
mod node;
mod sequencer;

use clap::FromArgMatches;
use clap_complete::CompleteEnv;
use std::process::ExitCode;
use toroni_shell::{complete, program};

fn main() -> ExitCode {
    program::choose_color();
    // If a shell asks for completions, prints them and exits.
    CompleteEnv::with_factory(cli::definitions).var(complete::VARIABLE).complete();
    if let Err(failure) = program::check_caller("toroni-node", env!("CARGO_PKG_VERSION")) {
        return program::report(failure);
    }
    let matches = match program::parse(cli::definitions, |_| None) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    match cli::Cli::from_arg_matches(&matches) {
        Ok(cli) => program::exit_code(cli.run(&matches)),
        Err(error) => program::report_usage(&error),
    }
}
