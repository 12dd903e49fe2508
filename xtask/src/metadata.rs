//! Reads from `cargo metadata` what the tasks need to know about the workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::command::{Failure, cargo};

#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

#[derive(Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) rust_version: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) authors: Vec<String>,
    pub(crate) description: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) readme: Option<PathBuf>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// The registries that it may be published to: empty for `publish = false`, `None` for any.
    pub(crate) publish: Option<Vec<String>>,
    /// The table `[package.metadata]`.
    pub(crate) metadata: serde_json::Value,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) manifest_path: PathBuf,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, otherwise `dev` or `build`.
    pub(crate) kind: Option<String>,
}

/// The members of the workspace. Needs no network.
pub(crate) fn members() -> Result<Metadata, Failure> {
    read(&["metadata", "--format-version=1", "--no-deps"])
}

/// The members, and every package that they are built with on Linux on this kind of machine.
pub(crate) fn everything() -> Result<Metadata, Failure> {
    everything_of(root())
}

/// Like [`everything`], for the workspace in a folder.
pub(crate) fn everything_of(folder: &Path) -> Result<Metadata, Failure> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let manifest = folder.join("Cargo.toml").display().to_string();
    let workspace = ["metadata", "--format-version=1", "--locked", "--manifest-path", &manifest];
    read(&[&workspace[..], &["--filter-platform", &platform]].concat())
}

/// The files of these kinds (`*.md`) that git knows or would add, by their paths from the root.
pub(crate) fn files(kinds: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--"])
        .args(kinds)
        .current_dir(root())
        .output()
        .map_err(|error| Failure(format!("cannot start git: {error}")))?;
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    // One may have been removed, but not yet committed.
    Ok(names.lines().map(PathBuf::from).filter(|name| root().join(name).exists()).collect())
}

/// Reads a file, by its path from the root.
pub(crate) fn text(name: &Path) -> Result<String, Failure> {
    fs::read_to_string(root().join(name))
        .map_err(|error| Failure(format!("cannot read {}: {error}", name.display())))
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn read(arguments: &[&str]) -> Result<Metadata, Failure> {
    let mut command = cargo(arguments);
    let output = command
        .output()
        .map_err(|error| Failure(format!("cannot start cargo metadata: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("cargo metadata failed: {said}")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure(format!("cannot parse what cargo metadata printed: {error}")))
}
