//! What the tests of access, containers, and surroundings share: programs that run as other users, in
//! namespaces of their own, and what they say when they are refused.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use system_tests::{Program, TempRoot, program};

pub(crate) mod container;
pub(crate) mod user;

/// Says that a test is skipped, and why: also when the test runner swallows what passing tests print.
pub(crate) fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Whether this process may become other users and make namespaces; says so if not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "only root can become other users and mount file systems");
    }
    root
}

/// Whether this process may mount in a mount namespace of its own; says so if not. Some containers
/// forbid it to root.
pub(crate) fn can_mount(test: &str) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    let can = *CAN.get_or_init(|| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", "--", "sh", "-c"]);
        command.arg("mount -t tmpfs none /mnt").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    if !can {
        skip(test, "this process may not mount, or make PID namespaces");
    }
    can
}

/// The `toroni` program at a place that every user can reach: the target directory may lie in
/// somebody's home, and `/dev/shm` may be mounted `noexec`.
pub(crate) struct ProgramForAll(PathBuf);

impl ProgramForAll {
    pub(crate) fn new() -> Self {
        Self::of(program::path())
    }

    pub(crate) fn of(program: &Path) -> Self {
        let name = format!("toroni-test-program-{}-{:p}", std::process::id(), &raw const program);
        let path = std::env::temp_dir().join(name);
        toroni_testkit::program::copy_program(program, &path);
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ProgramForAll {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    what: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program to its end.
pub(crate) fn run(mut command: Command) -> Outcome {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("{command:?}");
    Outcome::of(what, &Program::start(command).finish())
}

impl Outcome {
    /// Describes the end of a program that was started with pipes.
    pub(crate) fn of(what: String, finished: &Output) -> Self {
        Self {
            what,
            code: finished.status.code(),
            stdout: String::from_utf8_lossy(&finished.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&finished.stderr).into_owned(),
        }
    }

    /// Asserts that it succeeded; what it printed.
    pub(crate) fn succeeded(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.stdout
    }

    /// Asserts that it failed with exit code 1 and an explanation in one line, in which all these words
    /// stand.
    pub(crate) fn refused(&self, words: &[&str]) -> &Self {
        self.failed(1, words)
    }

    /// As [`Self::refused`], with another exit code.
    pub(crate) fn failed(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        let said = self.stderr.trim();
        assert!(said.starts_with("toroni: "), "{self:?}");
        assert_eq!(said.lines().count(), 1, "one line, and no trace of a panic: {self:?}");
        for word in words {
            assert!(said.contains(word), "{word:?} is missing: {self:?}");
        }
        self
    }
}

/// `program --dir ROOT ARGUMENTS`, without what the environment says about buses.
pub(crate) fn toroni_at(directory: &Path, arguments: &[&str]) -> Command {
    program::toroni(directory, arguments)
}

/// A shell script with positional arguments, in a mount namespace of its own: what it mounts ends with
/// it.
pub(crate) fn script_in_mounts(script: &str, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"]);
    command.args(arguments);
    command
}

/// Names in the directory of buses of a root.
pub(crate) fn assert_empty(root: &TempRoot) {
    assert_eq!(root.entries(), [""; 0], "left behind");
}
