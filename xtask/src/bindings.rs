//! `cargo xtask bindings`: builds and tests the bindings for other languages, each in its own folder below `bindings/`,
//! and then all of them with one another.

mod c;
pub(crate) mod licences;
mod python;

use std::process::Command;

use clap::Args;

use crate::command::{Failure, Steps, cargo, run as run_command, run_tests};
use crate::metadata;
use licences::Shipped;

#[derive(Args)]
pub(crate) struct Options {
    /// Which languages [default: all, and then each with each]
    languages: Vec<String>,
    /// Only measure what publishing and receiving cost in each language
    #[arg(long)]
    measure: bool,
    /// Only write the licences of the crates that are linked in to the files that are shipped
    #[arg(long)]
    licences: bool,
}

struct Language {
    name: &'static str,
    steps: fn(&mut Steps) -> Result<(), Failure>,
    /// Tells the test across languages where to find the language's programs.
    conformance: fn(&mut Command) -> Result<(), Failure>,
    /// Builds the programs that measure.
    measure: fn() -> Result<Vec<Command>, Failure>,
}

const LANGUAGES: [Language; 2] = [
    // C and C++.
    Language { name: "c", steps: c::steps, conformance: c::conformance, measure: c::measure },
    Language {
        name: "python",
        steps: python::steps,
        conformance: python::conformance,
        measure: python::measure,
    },
];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let names: Vec<&str> = LANGUAGES.iter().map(|language| language.name).collect();
    if let Some(unknown) = options.languages.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Failure(format!(
            "there is no language `{unknown}`; choose from {}",
            names.join(", ")
        )));
    }
    let is_chosen = |language: &&Language| {
        options.languages.is_empty() || options.languages.iter().any(|one| one == language.name)
    };
    if options.licences {
        return [c::LICENCES, c::LICENCES_OF_NET, python::LICENCES]
            .iter()
            .try_for_each(Shipped::write);
    }
    if options.measure {
        return measure(LANGUAGES.iter().filter(is_chosen));
    }
    let mut steps = Steps::default();
    for language in LANGUAGES.iter().filter(is_chosen) {
        (language.steps)(&mut steps)?;
    }
    if options.languages.is_empty() {
        steps.step("each language with each", || {
            let mut command = cargo(["test", "--locked", "-p", "toroni-conformance"]);
            command.env("TORONI_CONFORMANCE_ALL", "1");
            // A node with a feed, and the examples that read it.
            run_command(&mut cargo(["build", "--locked", "-p", "toroni-cli", "--bin", "toroni"]))?;
            let examples = ["build", "--locked", "-p", "toroni-sequencer", "--examples"];
            run_command(&mut cargo(examples))?;
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
