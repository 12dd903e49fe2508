//! `cargo xtask msrv`: checks that nothing needs a newer Rust than `rust-version` in Cargo.toml.
//!
//! If a toolchain of exactly that version is installed, it compiles the workspace. If not, there are two weaker checks:
//! clippy's `incompatible_msrv` (denied in Cargo.toml) refuses newer functions of the standard library, and no
//! dependency may declare a newer version. These two do not notice newer *syntax*, or a dependency that declares no
//! version.

use std::process::Command;

use crate::check::clippy;
use crate::command::{Failure, answers, cargo, run as run_command};
use crate::metadata::{self, Package};

pub(crate) fn run() -> Result<(), Failure> {
    check().map(drop)
}

/// Checks, and returns which of the two ways it took.
pub(crate) fn check() -> Result<String, Failure> {
    let packages = metadata::everything()?.packages;
    let stated = packages
        .iter()
        .find(|package| package.name == "toroni")
        .and_then(|package| package.rust_version.clone())
        .ok_or_else(|| Failure("crates/toroni states no rust-version".to_owned()))?;
    no_dependency_is_newer(&packages, &stated)?;
    let remark = match installed_toolchain(&stated) {
        Some(toolchain) => {
            compile_with(&toolchain)?;
            format!("{stated}: compiled with toolchain {toolchain}")
        }
        None => {
            // The same arguments as in `cargo xtask check`, so that cargo has nothing to lint again.
            run_command(&mut cargo(clippy(&["--workspace", "--all-features"])))?;
            format!("{stated}: lint and declared versions only (this toolchain is not installed)")
        }
    };
    println!("{remark}");
    Ok(remark)
}

/// The full name of an installed rustup toolchain of this version.
fn installed_toolchain(version: &str) -> Option<String> {
    let listed = Command::new("rustup").args(["toolchain", "list"]).output().ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let found = names.rfind(|name| is_version(name, version))?.to_owned();
    answers(Command::new("rustup").args(["run", &found, "cargo", "--version"])).then_some(found)
}

/// `1.88-x86_64-…`, `1.88.0-…` and `1.88.1-…` are all 1.88.
fn is_version(toolchain: &str, version: &str) -> bool {
    let number = toolchain.split('-').next().unwrap_or_default();
    number == version || number.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
}

fn compile_with(toolchain: &str) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory.join("msrv");
    let mut command = Command::new("rustup");
    command
        .args(["run", toolchain, "cargo", "check", "--workspace", "--all-features", "--locked"])
        .current_dir(metadata::root())
        .env("CARGO_TARGET_DIR", target);
    // The cargo that runs this task has set these, and they select its own compiler.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    run_command(&mut command)
}

fn no_dependency_is_newer(packages: &[Package], stated: &str) -> Result<(), Failure> {
    let limit = numbers(stated);
    let newer: Vec<String> = packages
        .iter()
        .filter_map(|package| Some((package, package.rust_version.as_deref()?)))
        .filter(|(_, needed)| numbers(needed) > limit)
        .map(|(package, needed)| format!("{} {} needs {needed}", package.name, package.version))
        .collect();
    if newer.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("rust-version is {stated}, but {}", newer.join(", "))))
}

/// `1.88` as (1, 88, 0).
fn numbers(version: &str) -> (u32, u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_not_by_letter() {
        assert!(numbers("1.100") > numbers("1.88"));
        assert!(numbers("1.88.0") == numbers("1.88"));
        assert!(numbers("1.88.1") > numbers("1.88"));
    }

    #[test]
    fn a_toolchain_is_recognised_by_its_number() {
        assert!(is_version("1.88-x86_64-unknown-linux-gnu", "1.88"));
        assert!(is_version("1.88.0-x86_64-unknown-linux-gnu", "1.88"));
        assert!(!is_version("1.880-x86_64-unknown-linux-gnu", "1.88"));
        assert!(!is_version("stable-x86_64-unknown-linux-gnu", "1.88"));
    }

    #[test]
    fn a_dependency_that_declares_a_newer_rust_is_named() {
        let package = |name: &str, rust_version: Option<&str>| Package {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            rust_version: rust_version.map(str::to_owned),
            ..Package::default()
        };
        let fitting = [package("old", Some("1.56")), package("silent", None)];
        assert!(no_dependency_is_newer(&fitting, "1.88").is_ok());
        let newer = [package("old", Some("1.56")), package("fresh", Some("1.90"))];
        let failure = no_dependency_is_newer(&newer, "1.88").unwrap_err();
        assert!(failure.0.contains("fresh 1.2.3 needs 1.90"), "{failure}");
    }
}
