//! The developer's commands. `cargo xtask --help` lists them; CONTRIBUTING.md says how long each
//! takes and when it is worth its time.

mod bindings;
mod check;
mod command;
mod counts;
mod crash;
mod deny;
mod directions;
mod evidence;
mod fuzz;
mod kill;
mod loom;
mod metadata;
mod miri;
mod model;
mod msrv;
mod mutants;
mod package;
mod peers;
mod sanitize;
mod simulate;
mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command::Failure;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The developer's commands of Toroni")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that each change must pass: format, lints, MSRV, documentation, tests, licences
    Check(check::Options),
    /// Who may use whom: the rules of xtask/src/directions/rules.rs against the sources
    Directions,
    /// No dependency, and no call of ours, needs a newer Rust than Cargo.toml states
    Msrv,
    /// Licences, sources and duplicates of all dependencies (cargo-deny with deny.toml)
    Deny(deny::Options),
    /// Kills real processes with SIGKILL at every crash point, also with subscribers in a proactor, and loses no wake-up
    Crash(crash::Options),
    /// Kills a thousand publishers and subscribers at random moments, for each kind of lock
    Kill(kill::Options),
    /// Publishers and subscribers that are killed, stopped, and come and go; every message is checked
    Soak(soak::Options),
    /// The trials of any bytes under libFuzzer: topics, hostile files, input, lists of operations
    Fuzz(fuzz::Options),
    /// The loom models: every interleaving that the memory model allows, within their bounds
    Loom(loom::Options),
    /// The protocol as a state space: every state that can be reached, with every death
    Model(model::Options),
    /// Builds and tests the bindings for other languages
    Bindings(bindings::Options),
    /// Counts the instructions of the hot paths and compares them with the committed baseline
    Counts(counts::Options),
    /// Packs what is released: the crates for the registry, and the program with its symbols apart
    Package(package::Options),
    /// Builds the foreign peers of the comparisons and runs the suite of all transports on each
    Peers(peers::Options),
    /// Does lists of operations with deaths, from seeds, to a bus and to a model of it
    Simulate(simulate::Options),
    /// Breaks the protocol, and the proactor, in each known way and demands that a test notices
    Mutants(mutants::Options),
    /// The tests of the library and of the proactor under AddressSanitizer, some under Valgrind's memcheck
    Sanitize(sanitize::Options),
    /// The tests of the ring on plain memory under Miri, where it is installed
    Miri(miri::Options),
}

fn main() -> ExitCode {
    let outcome: Result<(), Failure> = match Arguments::parse().task {
        Task::Check(options) => check::run(&options),
        Task::Directions => directions::run(),
        Task::Msrv => msrv::run(),
        Task::Deny(options) => deny::run(&options),
        Task::Crash(options) => crash::run(&options),
        Task::Kill(options) => kill::run(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Loom(options) => loom::run(&options),
        Task::Model(options) => model::run(&options),
        Task::Bindings(options) => bindings::run(&options),
        Task::Counts(options) => counts::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Peers(options) => peers::run(&options),
        Task::Simulate(options) => simulate::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Sanitize(options) => sanitize::run(&options),
        Task::Miri(options) => miri::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Whoever reads the table of commands learns of each, and how long it takes.
    #[test]
    fn contributing_tells_of_every_command() {
        let path = metadata::root().join("CONTRIBUTING.md");
        let text = std::fs::read_to_string(path).unwrap();
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        for command in Arguments::command().get_subcommands() {
            let name = format!("`cargo xtask {}", command.get_name());
            let row = table.iter().find(|row| row.contains(&name));
            let row = row.unwrap_or_else(|| panic!("no row for {name}`"));
            let time = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
            let is_told = time.contains("not measured") || time.chars().any(|c| c.is_ascii_digit());
            assert!(is_told, "{name}` has no time: {row}");
        }
    }
}
