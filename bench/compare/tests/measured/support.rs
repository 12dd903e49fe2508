//! A directory for the runs of the program, which is removed with everything in it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use toroni_testkit::{Directory, Program};

pub(crate) struct Runs(Directory);

impl Runs {
    pub(crate) fn new() -> Self {
        Self(Directory::new())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the program, not yet started, with `TORONI_DIR` set to this directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-bench"));
        command
            .env("TORONI_DIR", self.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        Program::start(self.command(arguments))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.start(arguments).finish()
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut program = Program::start(self.command(arguments).stdin(Stdio::piped()));
        program.stdin().unwrap().write_all(input).unwrap();
        program.finish()
    }

    /// Runs the program to its end and returns what it printed. Panics if it fails.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        self.start(arguments).succeed()
    }

    /// Returns the sorted names in the directory, with hidden ones.
    pub(crate) fn entries(&self) -> Vec<String> {
        self.0.entries()
    }
}
