//! `cargo xtask deny`: checks the licences, sources and duplicate versions of all dependencies with `cargo-deny`.
//!
//! It takes minutes to build cargo-deny. If it is not installed, `cargo xtask check` leaves this step out, and says so
//! in its table.

use std::process::Command;

use clap::Args;

use crate::command::{Failure, answers, cargo, run as run_command};

/// Pinned, because the newest version may need a newer Rust than ours.
const VERSION: &str = "0.20.2";

/// The workspaces from which users get something, and their rules.
const WORKSPACES: [(&str, &str); 3] = [
    ("Cargo.toml", "deny.toml"),
    ("bindings/python/Cargo.toml", "deny.toml"),
    ("bridges/zenoh/Cargo.toml", "bridges/zenoh/deny.toml"),
];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Build and install cargo-deny first if it is missing
    #[arg(long)]
    install: bool,
    /// Also check for known vulnerabilities (fetches the RustSec database)
    #[arg(long)]
    advisories: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if !options.install && !installed() {
        return Err(Failure(
            "cargo-deny is not installed: run `cargo xtask deny --install`".to_owned(),
        ));
    }
    check(options).map(drop)
}

/// Checks, or returns why it did not, for the table of `cargo xtask check`.
pub(crate) fn check(options: &Options) -> Result<String, Failure> {
    if !installed() {
        if !options.install {
            let remark = "LEFT OUT: no cargo-deny (`cargo xtask deny --install`)";
            println!("{remark}");
            return Ok(remark.to_owned());
        }
        run_command(&mut cargo(["install", "cargo-deny", "--locked", "--version", VERSION]))?;
    }
    for (manifest, config) in WORKSPACES {
        let mut command = cargo(["deny", "--config", config, "--manifest-path", manifest]);
        command.args(["--all-features", "check", "bans", "licenses", "sources"]);
        if options.advisories {
            command.arg("advisories");
        }
        run_command(&mut command)?;
    }
    Ok(String::new())
}

fn installed() -> bool {
    answers(Command::new("cargo-deny").arg("--version"))
}
