//! `cargo xtask bridge`: builds and tests the bridge to Zenoh, which is a workspace of its own (`bridges/zenoh`).
//!
//! Its tests run the program `toroni` of the main workspace and Zenoh's Python module, which this task installs into an
//! environment below `target`. Most of them need root, because they make network namespaces; see
//! `bridges/zenoh/tests/between_hosts/main.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::command::{Failure, Steps, cargo, run as run_command};
use crate::metadata;

const FOLDER: &str = "bridges/zenoh";
const REQUIREMENTS: &str = "tests/requirements.txt";

#[derive(Args)]
pub(crate) struct Options {
    /// Only tests whose names contain this
    filter: Option<String>,
    /// Skip format and lints
    #[arg(long)]
    only_test: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut steps = Steps::default();
    if !options.only_test {
        steps.step("bridge: format", || step(in_folder("cargo").args(["fmt", "--all", "--check"])));
        steps.step("bridge: lints", || {
            let lints =
                ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
            step(in_folder("cargo").args(lints))
        });
    }
    let programs = metadata::members()?.target_directory;
    let toroni = programs.join("debug/toroni");
    steps.step("bridge: the program toroni", || {
        step(&mut cargo(["build", "--locked", "-p", "toroni-cli"]))
    });
    let environment = programs.join("bridge-python");
    steps.step("bridge: Zenoh for Python", || make(&environment));
    steps.step("bridge: tests", || {
        let mut command = in_folder("cargo");
        command.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
        command.args(&options.filter);
        command.env("TORONI_PROGRAM", &toroni);
        command.env("TORONI_ZENOH_PYTHON", python(&environment));
        step(&mut command)
    });
    steps.finish()
}

/// Makes the environment of Python, unless it exists with these requirements.
fn make(environment: &Path) -> Result<String, Failure> {
    let wanted = std::fs::read(folder().join(REQUIREMENTS))
        .map_err(|error| Failure(format!("cannot read {REQUIREMENTS}: {error}")))?;
    let stamp = environment.join("requirements.txt");
    if std::fs::read(&stamp).is_ok_and(|found| found == wanted) {
        return Ok("exists".to_owned());
    }
    run_command(Command::new("python3").args(["-m", "venv"]).arg(environment))?;
    let mut install = in_folder(python(environment));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run_command(install.args(["-r", REQUIREMENTS]))?;
    std::fs::write(&stamp, wanted)
        .map(|()| String::new())
        .map_err(|error| Failure(format!("cannot write {}: {error}", stamp.display())))
}

fn python(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

fn folder() -> PathBuf {
    metadata::root().join(FOLDER)
}

fn in_folder(program: impl AsRef<Path>) -> Command {
    let program = program.as_ref();
    let mut command = match std::env::var_os("CARGO") {
        Some(cargo) if program == Path::new("cargo") => Command::new(cargo),
        _ => Command::new(program),
    };
    command.current_dir(folder());
    command
}

fn step(command: &mut Command) -> Result<String, Failure> {
    run_command(command)?;
    Ok(String::new())
}
