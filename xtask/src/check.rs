//! `cargo xtask check`: what CI runs, in an order that finds cheap mistakes first and builds every
//! crate once per kind of build.

use clap::Args;

use crate::command::{Failure, Steps, cargo, run as run_command};
use crate::{deny, evidence, msrv};

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out the tests: format, lints, documentation and licences only
    #[arg(long)]
    no_test: bool,
}

/// The features of the library, each linted by itself: code that compiles only with all of them
/// would break for whoever enables one.
const LIBRARY_FEATURES: &[&str] = &["tokio", "crash-points"];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut steps = Steps::default();
    steps.step("format", || cargo_step(&["fmt", "--all", "--check"]));
    steps.step("lints: default features", || cargo_step(&clippy(&["--workspace"])));
    for feature in LIBRARY_FEATURES {
        let selection = ["-p", "toroni", "--features", feature];
        steps.step(&format!("lints: feature {feature}"), || cargo_step(&clippy(&selection)));
    }
    steps.step("lints: all features", || cargo_step(&clippy(&["--workspace", "--all-features"])));
    steps.step("minimum supported Rust version", msrv::check);
    steps.step("documentation", documentation);
    steps.step("evidence that the documents name", evidence::check);
    steps.step("licences and sources", || deny::check(&deny::Options::default()));
    if !options.no_test {
        steps.step("tests", || cargo_step(&["test", "--workspace", "--locked", "--no-fail-fast"]));
        steps.step("tests: feature tokio", || {
            // Behind `--`: with a filter of its own, cargo would not build the examples that a test runs.
            cargo_step(&["test", "-p", "toroni", "--features", "tokio", "--locked", "--", "tokio"])
        });
        steps.step("examples in the documentation: feature tokio", || {
            cargo_step(&["test", "-p", "toroni", "--features", "tokio", "--locked", "--doc"])
        });
    }
    steps.finish()
}

fn clippy<'a>(selection: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["clippy", "--locked", "--all-targets"];
    arguments.extend(selection);
    arguments.extend(["--", "-D", "warnings"]);
    arguments
}

fn documentation() -> Result<String, Failure> {
    let mut command = cargo(["doc", "--workspace", "--no-deps", "--all-features", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_command(&mut command)?;
    Ok(String::new())
}

fn cargo_step(arguments: &[&str]) -> Result<String, Failure> {
    run_command(&mut cargo(arguments))?;
    Ok(String::new())
}
