//! Packs a tree of files with `dpkg-deb`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::write;
use crate::command::{Failure, run as run_command, shown};
use crate::metadata;

const MAINTAINER: &str = "The Toroni developers <toroni@localhost>";

/// What the file `control` says.
#[derive(Clone)]
pub(super) struct Control<'a> {
    pub(super) package: &'a str,
    pub(super) version: &'a str,
    pub(super) depends: String,
    pub(super) section: &'a str,
    pub(super) priority: &'a str,
    /// A line, and perhaps more lines that begin with a space.
    pub(super) description: &'a str,
}

impl Control<'_> {
    /// Packs the files below `root` into a package in `folder`, and returns its path.
    pub(super) fn build(&self, root: &Path, folder: &Path) -> Result<PathBuf, Failure> {
        let architecture = said(Command::new("dpkg").arg("--print-architecture"))?;
        let Self { package, version, depends, section, priority, description } = self;
        let size = kibibytes(root)?;
        let homepage = "https://github.com/toroni-bus/toroni";
        let control = format!(
            "Package: {package}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {size}\nDepends: {depends}\nSection: {section}\nPriority: {priority}\n\
             Homepage: {homepage}\nDescription: {description}\n"
        );
        write(&root.join("DEBIAN/control"), control.as_bytes())?;
        write(&root.join("DEBIAN/md5sums"), checksums(root)?.as_bytes())?;
        let file = folder.join(format!("{package}_{version}_{architecture}.deb"));
        // With a time that does not depend on when it is built, the same files give the same package.
        let time = said(
            Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(metadata::root()),
        );
        let mut command = Command::new("dpkg-deb");
        command.env("SOURCE_DATE_EPOCH", time.unwrap_or_else(|_| "0".to_owned()));
        command.args(["--root-owner-group", "-Zxz", "--build"]).arg(root).arg(&file);
        run_command(&mut command)?;
        Ok(file)
    }
}

/// Returns the packages of the libraries that a program is linked to, with their versions.
pub(super) fn needed_libraries(program: &Path, folder: &Path) -> Result<String, Failure> {
    // dpkg-shlibdeps reads the names of the source package from this file.
    let source = folder.join("source");
    write(
        &source.join("debian/control"),
        b"Source: toroni\n\nPackage: toroni\nArchitecture: any\n",
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    let text = said(command.current_dir(&source).arg("-O").arg(program))?;
    text.strip_prefix("shlibs:Depends=")
        .map(str::to_owned)
        .ok_or_else(|| Failure(format!("dpkg-shlibdeps printed {text:?}")))
}

/// Returns what a program printed, without the end of the line.
pub(super) fn said(command: &mut Command) -> Result<String, Failure> {
    let name = shown(command);
    let output =
        command.output().map_err(|error| Failure(format!("cannot start `{name}`: {error}")))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("`{name}` ended with {}: {errors}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Returns the files below a folder, without those of `DEBIAN`, relative to it and sorted.
fn files(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot = |error| Failure(format!("cannot read {}: {error}", folder.display()));
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if !path.is_dir() {
                found.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
            } else if !path.ends_with("DEBIAN") {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn kibibytes(root: &Path) -> Result<u64, Failure> {
    let length = |file: PathBuf| fs::metadata(root.join(file)).map_or(0, |it| it.len());
    Ok(files(root)?.into_iter().map(|file| length(file).div_ceil(1024)).sum())
}

fn checksums(root: &Path) -> Result<String, Failure> {
    let mut command = Command::new("md5sum");
    said(command.current_dir(root).arg("--").args(files(root)?)).map(|lines| lines + "\n")
}
