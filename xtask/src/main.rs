//! The developer's commands. `cargo xtask --help` lists them. CONTRIBUTING.md says how long each takes and when to
//! run it.

mod bindings;
mod book;
mod bridge;
mod busy;
mod check;
mod command;
mod counts;
mod crash;
mod deny;
mod directions;
mod evidence;
mod fuzz;
mod gate;
mod hooked;
mod kill;
mod loom;
mod man;
mod metadata;
mod miri;
mod model;
mod msrv;
mod mutants;
mod package;
mod packages;
mod peers;
mod sanitize;
mod simulate;
mod soak;
mod words;

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
    /// Run what every change must pass: format, lints, MSRV, documentation, licences, tests
    Check(check::Options),
    /// Run what a commit must pass besides `check` and `cargo test`: some parts always, a sample of the others
    Gate(gate::Options),
    /// Run tests while other work keeps all cores busy
    Busy(busy::Options),
    /// Check which crates and modules use which others (rules: xtask/src/directions/rules.rs)
    Directions,
    /// Check that neither a dependency nor our code needs a newer Rust than Cargo.toml states
    Msrv,
    /// Check the licences, sources and duplicates of all dependencies (cargo-deny with deny.toml)
    Deny(deny::Options),
    /// Kill real processes at every crash point and check the survivors; check that no wake-up is lost
    Crash(crash::Options),
    /// Kill a thousand publishers and subscribers at random moments, for each kind of lock
    Kill(kill::Options),
    /// Run publishers and subscribers that are killed, stopped and restarted, and check every message
    Soak(soak::Options),
    /// Run the fuzz targets under libFuzzer: topics, hostile files, input, lists of operations
    Fuzz(fuzz::Options),
    /// Run the loom models: every interleaving that the memory model allows, within bounds
    Loom(loom::Options),
    /// Visit every reachable state of a model of the protocol, with every death
    Model(model::Options),
    /// Build and test the bindings for other languages
    Bindings(bindings::Options),
    /// Build and test the bridge to Zenoh, a workspace of its own
    Bridge(bridge::Options),
    /// Count the instructions of the hot paths and compare them with the committed baseline
    Counts(counts::Options),
    /// Package what is released: the crates for the registry, and the program with separate symbols
    Package(package::Options),
    /// Build the Debian packages of the program and of its symbols
    Packages(packages::Options),
    /// Write the manual pages of all commands, and check that man shows them without a warning
    Man(man::Options),
    /// Check the pages of the guide and all links, and build the guide as a book, if mdBook is installed
    Book,
    /// Build the foreign peers of the comparisons, and run the suite of all transports on each
    Peers(peers::Options),
    /// Apply random lists of operations, with deaths, to a bus and to a model of it, and compare
    Simulate(simulate::Options),
    /// Break the protocol and the proactor in each known way, and check that a test notices
    Mutants(mutants::Options),
    /// Run tests of the library and of the proactor under AddressSanitizer or Valgrind's memcheck
    Sanitize(sanitize::Options),
    /// Run the tests that need no system call under Miri, if it is installed
    Miri(miri::Options),
}

fn main() -> ExitCode {
    let outcome: Result<(), Failure> = match Arguments::parse().task {
        Task::Check(options) => check::run(&options),
        Task::Gate(options) => gate::run(&options),
        Task::Busy(options) => busy::run(&options),
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
        Task::Bridge(options) => bridge::run(&options),
        Task::Counts(options) => counts::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Packages(options) => packages::run(&options),
        Task::Man(options) => man::run(&options),
        Task::Book => book::run(),
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

    /// The table in CONTRIBUTING.md has each command, and how long it takes.
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
            let is_stated =
                time.contains("not measured") || time.chars().any(|c| c.is_ascii_digit());
            assert!(is_stated, "{name}` has no time: {row}");
        }
    }
}
