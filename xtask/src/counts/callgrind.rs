//! Counting: builds the program of the paths and runs it under callgrind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, cargo, run as run_command, shown};
use crate::metadata;

/// Callgrind collects from the entry of this function to its return (`tests/counts/src/stage.rs`).
const COUNTED: &str = "--toggle-collect=*toroni_counted*";

/// The C library chooses its `memcpy` by the processor. Without these it takes the same one on
/// each, so that the count is the same on each.
const SAME_LIBC_FUNCTIONS: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,\
     -AVX_Fast_Unaligned_Load,-SSSE3,-ERMS,-FSRM";

/// The program of the paths, built.
pub(super) struct Counter {
    program: PathBuf,
    /// Where callgrind's files of the last run lie.
    pub(super) folder: PathBuf,
}

impl Counter {
    pub(super) fn new() -> Result<Self, Failure> {
        let target = metadata::members()?.target_directory;
        // A release is stripped, and callgrind looks for a function by its name.
        let mut build = cargo(["build", "--profile", "symbols", "--locked", "-p", "toroni-counts"]);
        // What somebody sets for himself would count something else than the baseline.
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

    /// Runs one path. Rounded to hundredths, as it is committed.
    pub(super) fn instructions_per_message(&self, path: &str) -> Result<f64, Failure> {
        let file = self.folder.join(format!("{path}.callgrind"));
        let said = said(self.valgrind(&file).arg(&self.program).args(["run", path]))?;
        let messages: u64 = said
            .trim()
            .parse()
            .map_err(|_| Failure(format!("{path} did not say how many messages: {said:?}")))?;
        let profile = fs::read_to_string(&file)
            .map_err(|error| Failure(format!("cannot read {}: {error}", file.display())))?;
        let instructions = total(&profile).ok_or_else(|| {
            Failure(format!(
                "callgrind counted nothing ({}): it looks for the function toroni_counted, whose \
                 name the program must have; is it stripped?",
                file.display()
            ))
        })?;
        Ok((instructions as f64 / messages as f64 * 100.0).round() / 100.0)
    }

    /// Valgrind with an environment of its own: the size of ours moves the stack, and options in it
    /// or in a file of the user's would be obeyed.
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

/// What decides how many instructions there are, besides the sources.
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

/// All instructions of a profile; `None` if there are none.
fn total(profile: &str) -> Option<u64> {
    let line = |label| profile.lines().find_map(|line| line.strip_prefix(label));
    let total = line("summary:").or_else(|| line("totals:"))?.trim().parse().ok()?;
    (total > 0).then_some(total)
}

/// What a program prints.
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
