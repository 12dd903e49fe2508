//! `cargo xtask bindings`: builds and tests the bindings for other languages, each in its own folder below `bindings/`,
//! and then all of them with one another.

mod c;
pub(crate) mod licences;
mod python;

use std::process::Command;

use clap::{Args, ValueEnum};

use crate::command::{Failure, Steps, cargo, of_workspace, run as run_command, run_tests};
use crate::metadata;
use licences::Shipped;

#[derive(Args)]
pub(crate) struct Options {
    /// What to test [default: all]
    #[arg(value_enum)]
    what: Vec<What>,
    /// Only measure what publishing and receiving cost in each language
    #[arg(long)]
    measure: bool,
    /// Only write the licences of the crates that are linked in to the files that are shipped
    #[arg(long)]
    licences: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// C and C++
    C,
    /// C and C++ with sanitizers and under memcheck
    CMemory,
    /// The Python module
    Python,
    /// Each language with each
    Each,
}

struct Language {
    what: What,
    steps: fn(&mut Steps) -> Result<(), Failure>,
    /// Builds the language's programs for the test across languages, and tells it where they are.
    conformance: fn(&mut Command) -> Result<(), Failure>,
    /// Builds the programs that measure.
    measure: fn() -> Result<Vec<Command>, Failure>,
}

const LANGUAGES: [Language; 2] = [
    // C and C++.
    Language { what: What::C, steps: c::steps, conformance: c::conformance, measure: c::measure },
    Language {
        what: What::Python,
        steps: python::steps,
        conformance: python::conformance,
        measure: python::measure,
    },
];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let is_chosen = |what: What| options.what.is_empty() || options.what.contains(&what);
    let chosen = || LANGUAGES.iter().filter(|language| is_chosen(language.what));
    if options.licences {
        return [c::LICENCES, c::LICENCES_OF_NET, python::LICENCES]
            .iter()
            .try_for_each(Shipped::write);
    }
    if options.measure {
        return measure(chosen());
    }
    let mut steps = Steps::default();
    for language in chosen() {
        (language.steps)(&mut steps)?;
    }
    if is_chosen(What::CMemory) {
        c::memory(&mut steps)?;
    }
    if is_chosen(What::Each) {
        steps.step("each language with each", || {
            let tests = ["--test", "languages", "--test", "reasons", "--test", "sequencer"];
            let mut command = of_workspace("test", &tests);
            command.env("TORONI_CONFORMANCE_ALL", "1");
            // A node with a feed, and the examples that read it.
            run_command(&mut of_workspace(
                "build",
                &["--bin", "toroni", "--bin", "toroni-node", "--examples"],
            ))?;
            let built = metadata::members()?.target_directory.join("debug");
            command.env("TORONI_CONFORMANCE_SEQUENCER", built);
            for language in &LANGUAGES {
                (language.conformance)(&mut command)?;
            }
            run_tests(&mut command)?;
            Ok(String::new())
        });
    }
    steps.finish()
}

/// Runs the programs that measure, one after the other. Each prints lines with the language, what it measured, the size
/// of a message in bytes, and messages per second.
fn measure<'a>(languages: impl Iterator<Item = &'a Language>) -> Result<(), Failure> {
    let rust =
        ["run", "--release", "--locked", "-p", "toroni-conformance", "--bin", "measure-rust"];
    let mut commands = vec![cargo(rust)];
    for language in languages {
        commands.extend((language.measure)()?);
    }
    let folder =
        std::path::PathBuf::from(format!("/dev/shm/toroni-measure-{}", std::process::id()));
    let cannot = |error| Failure(format!("cannot make {}: {error}", folder.display()));
    std::fs::create_dir(&folder).map_err(cannot)?;
    let outcome =
        commands.iter_mut().try_for_each(|command| run_command(command.env("TORONI_DIR", &folder)));
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}
