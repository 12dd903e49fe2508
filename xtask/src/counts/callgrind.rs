//! Builds the program that runs the paths, and runs it under callgrind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, cargo, run as run_command, shown};
use crate::metadata;

/// Callgrind counts from the entry of this function to its return (`tests/counts/src/fixture.rs`).
const COUNTED: &str = "--toggle-collect=*toroni_counted*";

/// The C library chooses its `memcpy` by the features of the processor. Without these features it chooses the same one
/// on each machine, so that the counts are the same.
const SAME_LIBC_FUNCTIONS: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,\
     -AVX_Fast_Unaligned_Load,-SSSE3,-ERMS,-FSRM";

/// The program that runs the paths, once it is built.
pub(super) struct Counter {
    program: PathBuf,
    /// Holds callgrind's files of the last run.
    pub(super) folder: PathBuf,
}

impl Counter {
    pub(super) fn new() -> Result<Self, Failure> {
        let target = metadata::members()?.target_directory;
        // A release has no symbols, and callgrind finds a function by its name.
        let mut build = cargo(["build", "--profile", "symbols", "--locked", "-p", "toroni-counts"]);
        // Flags of the developer would change the counts.
        run_command(build.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS"))?;
        let folder = target.join("counts");
        fs::create_dir_all(&folder)
            .map_err(|error| Failure(format!("cannot make {}: {error}", folder.display())))?;
        Ok(Self { program: target.join("symbols/toroni-counts"), folder })
    }

    /// The names of all paths, in the order of their table.
    pub(super) fn paths(&self) -> Result<Vec<String>, Failure> {
        let listed = said(Command::new(&self.program).arg("list"))?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Runs one path. The count is rounded to hundredths, as in the baseline.
    pub(super) fn instructions_per_message(&self, path: &str) -> Result<f64, Failure> {
        let file = self.folder.join(format!("{path}.callgrind"));
        let said = said(self.valgrind(&file).arg(&self.program).args(["run", path]))?;
        let messages: u64 = said.trim().parse().map_err(|_| {
            Failure(format!("{path} did not print how many messages it sent, but {said:?}"))
        })?;
        let profile = fs::read_to_string(&file)
            .map_err(|error| Failure(format!("cannot read {}: {error}", file.display())))?;
        let instructions = total(&profile).ok_or_else(|| {
            Failure(format!(
                "callgrind counted nothing ({}): it found no function toroni_counted; does the \
                 program have symbols?",
                file.display()
            ))
        })?;
        Ok((instructions as f64 / messages as f64 * 100.0).round() / 100.0)
    }

    /// Valgrind with a small environment of its own. The size of the environment moves the stack, and Valgrind would
    /// obey options in it.
    fn valgrind(&self, file: &Path) -> Command {
        let mut command = Command::new("valgrind");
        command.env_clear().env("GLIBC_TUNABLES", SAME_LIBC_FUNCTIONS);
        for variable in ["PATH", "VALGRIND_LIB", "TMPDIR"] {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
        command.args(["--command-line-only=yes", "--quiet", "--tool=callgrind"]);
        command.args(["--collect-atstart=no", COUNTED]);
        command.arg(format!("--callgrind-out-file={}", file.display()));
        command
    }
}

/// The versions of the tools that determine the counts, besides the sources.
pub(super) fn made_with() -> Result<BTreeMap<String, String>, Failure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc = said(Command::new(rustc).arg("--version").current_dir(metadata::root()))?;
    let valgrind = said(Command::new("valgrind").arg("--version")).map_err(|failure| {
        Failure(format!("{failure}\nvalgrind is needed: `apt-get install valgrind` on Debian"))
    })?;
    let libc = said(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let tools = [("rustc", rustc), ("valgrind", valgrind), ("libc", libc)];
    Ok(tools.map(|(tool, version)| (tool.to_owned(), version.trim().to_owned())).into())
}

/// The number of instructions in a profile, or `None` for 0.
fn total(profile: &str) -> Option<u64> {
    let line = |label| profile.lines().find_map(|line| line.strip_prefix(label));
    let total = line("summary:").or_else(|| line("totals:"))?.trim().parse().ok()?;
    (total > 0).then_some(total)
}

/// Runs a program and returns what it prints.
fn said(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .output()
        .map_err(|error| Failure(format!("cannot start `{}`: {error}", shown(command))))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("`{}`: {}\n{said}", shown(command), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_profile_is_found() {
        let profile = "# callgrind format\nevents: Ir\nsummary: 13508304\n\nfn=(0) x\n0 7\n";
        assert_eq!(total(profile), Some(13_508_304));
        assert_eq!(total("events: Ir\n\nfn=(0) x\n0 7\ntotals: 7\n"), Some(7));
    }

    #[test]
    fn a_profile_of_nothing_has_no_total() {
        assert_eq!(total("events: Ir\nsummary: 0\n"), None);
        assert_eq!(total("events: Ir\n"), None);
        assert_eq!(total("summary: many\n"), None);
    }
}
