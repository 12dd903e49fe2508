//! `cargo xtask miri`: runs the tests that need no system call under Miri: those of the ring on plain memory, of the
//! topics, and of the counters of sleepers.
//!
//! Miri is a component of nightly toolchains (`rustup toolchain install nightly --component miri,rust-src`). No package
//! registry has it.

use std::process::Command;

use clap::Args;

use crate::command::{Failure, answers, run as run_command};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Run only the tests whose names contain this
    filter: Option<String>,
    /// If Miri is missing, say so and succeed
    #[arg(long)]
    if_possible: bool,
}

/// Modules that work on memory that they are given, and make no system call.
const MODULES: &[&str] = &["ring::", "topic::", "notify::eventcount", "settings::"];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let filters: Vec<&str> =
        options.filter.as_deref().map_or_else(|| MODULES.to_vec(), |filter| vec![filter]);
    if !answers(Command::new("cargo").args(["+nightly", "miri", "--version"])) {
        let missing = "NOT RUN: there is no `cargo +nightly miri`. Where static.rust-lang.org can be \
                       reached, `rustup toolchain install nightly --component miri,rust-src` installs \
                       it; no package registry has it";
        if options.if_possible {
            println!("{missing}");
            return Ok(());
        }
        return Err(Failure(missing.to_owned()));
    }
    let mut command = Command::new("cargo");
    command.args(["+nightly", "miri", "test", "-p", "toroni", "--lib", "--locked", "--"]);
    // Tests read seeds from the environment, and proptest gets them from the system.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation").current_dir(metadata::root());
    run_command(command.args(filters))
}
