//! `cargo xtask check`: what every change must pass. Cheap checks come first, and no kind of build is made twice.

use clap::Args;

use crate::command::{Failure, Steps, cargo, run as run_command, run_tests};
use crate::{book, deny, evidence, msrv, package, words};

#[derive(Args)]
pub(crate) struct Options {
    /// Run everything except the tests
    #[arg(long, conflicts_with = "long")]
    no_test: bool,
    /// Run the tests with their longest repetitions (sets TORONI_LONG_TESTS=1)
    #[arg(long)]
    long: bool,
}

/// The features of the library. Each is linted alone: code that compiles only with all of them would break for
/// a user who enables one.
const LIBRARY_FEATURES: &[&str] = &["tokio", "proactor", "crash-points"];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut steps = Steps::default();
    steps.step("format", || cargo_step(&["fmt", "--all", "--check"]));
    steps.step("words", words::check);
    for feature in LIBRARY_FEATURES {
        let selection = ["-p", "toroni", "--features", feature];
        steps.step(&format!("lints: feature {feature}"), || cargo_step(&clippy(&selection)));
    }
    // What `cargo install` builds: other members of the workspace do not add features to its dependencies.
    for program in ["toroni-cli", "toroni-node"] {
        let lints = ["clippy", "--locked", "-p", program, "--bins", "--", "-D", "warnings"];
        steps.step(&format!("lints: {program} alone"), || cargo_step(&lints));
    }
    // The tests compile the library with its features. These must compile without, as their users do.
    let users = ["-p", "toroni-cli", "-p", "toroni-net", "-p", "toroni-c", "--no-default-features"];
    steps.step("lints: programs and bindings without features", || cargo_step(&clippy(&users)));
    steps.step("lints: all features", || cargo_step(&clippy(&["--workspace", "--all-features"])));
    steps.step("minimum supported Rust version", msrv::check);
    steps.step("lock files of the other workspaces", lock_files);
    steps.step("documentation", documentation);
    steps.step("crates as they are published", package::crates);
    steps.step("evidence that the documents name", evidence::check);
    steps.step("pages and links of the documents", book::check);
    steps.step("licences and sources", deny::check);
    if !options.no_test {
        steps.step("tests", || {
            let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
            if options.long {
                command.env("TORONI_LONG_TESTS", "1");
            }
            run_tests(&mut command)?;
            Ok(String::new())
        });
    }
    steps.finish()
}

/// The arguments of `cargo clippy` for a selection of packages and features.
pub(crate) fn clippy<'a>(selection: &[&'a str]) -> Vec<&'a str> {
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

/// Other tasks build these workspaces with `--locked`, and would fail after a dependency of the library has changed.
fn lock_files() -> Result<String, Failure> {
    let manifest = std::fs::read_to_string("Cargo.toml")
        .map_err(|error| Failure(format!("cannot read Cargo.toml: {error}")))?;
    for workspace in excluded(&manifest) {
        let manifest = format!("{workspace}/Cargo.toml");
        run_command(&mut cargo([
            "update",
            "--workspace",
            "--locked",
            "--manifest-path",
            manifest.as_str(),
        ]))
        .map_err(|Failure(why)| {
            Failure(format!(
                "{why}: if a dependency changed, run `cargo update --workspace --manifest-path \
                 {manifest}`"
            ))
        })?;
    }
    Ok(String::new())
}

/// The folders in the manifest's `exclude`.
fn excluded(manifest: &str) -> Vec<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("exclude = ["));
    let folders = line.and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
    folders.split(',').map(|folder| folder.trim().trim_matches('"').to_owned()).collect()
}

fn cargo_step(arguments: &[&str]) -> Result<String, Failure> {
    run_command(&mut cargo(arguments))?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_workspaces_are_found() {
        let manifest = std::fs::read_to_string("../Cargo.toml").unwrap();
        let found = excluded(&manifest);
        assert!(found.iter().any(|folder| folder == "bench/peers"), "{found:?}");
        for folder in found {
            assert!(
                std::path::Path::new("..").join(&folder).join("Cargo.lock").exists(),
                "{folder}"
            );
        }
    }
}
