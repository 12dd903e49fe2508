//! Temporary directories of buses, and processes that are killed and reaped when dropped.

use serde_json::Value;
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Command, Output, Stdio};
pub(crate) use toroni_testkit::wait::{LIMIT, until as wait_until};
use toroni_testkit::{Directory, Program};

/// A directory of buses, removed with everything in it.
pub(crate) struct Buses(Directory);

impl Buses {
    pub(crate) fn new() -> Self {
        Self(Directory::new())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the program with `TORONI_DIR` set to this directory, not yet started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(crate::program());
        command
            .env_remove("TORONI_BUS")
            .env("TORONI_DIR", self.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.start(arguments).finish()
    }

    /// Runs the program to its end with bytes on standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut process = Process::start(self.command(arguments).stdin(Stdio::piped()));
        let mut pipe = process.stdin().unwrap();
        // A program that rejects its arguments does not read.
        let _ = pipe.write_all(input);
        drop(pipe);
        process.finish()
    }

    /// Runs the program to its end and returns what it printed. Panics if it fails.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Process {
        Process::start(&mut self.command(arguments))
    }

    /// Starts `toroni sub --create` and waits until it is subscribed.
    pub(crate) fn subscribe(&self, arguments: &[&str]) -> Process {
        let mut program =
            Program::start_with_ready_fd(self.command(&[&["sub", "--create"], arguments].concat()));
        program.wait_ready();
        Process(program)
    }

    /// Starts `toroni record` and waits until it is subscribed.
    pub(crate) fn record(&self, file: &Path, arguments: &[&str]) -> Process {
        let file = file.to_str().unwrap();
        let command = self.command(&[&["record", file], arguments].concat());
        let mut program = Program::start_with_ready_fd(command);
        program.wait_ready();
        Process(program)
    }

    /// Returns the examples in the help of a command, without what the help says about them.
    pub(crate) fn examples(&self, command: &str) -> Vec<String> {
        let help = self.succeed(&[command, "--help"]);
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        let examples = lines.filter(|line| line.starts_with("toroni "));
        // Remarks are in a column of their own.
        examples.map(|line| line.split("  ").next().unwrap_or(line).to_owned()).collect()
    }

    /// Returns a shell that runs a line as a user would write it, not yet started.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let program = crate::program();
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(
            std::iter::once(program.parent().unwrap().to_owned())
                .chain(std::env::split_paths(&others)),
        );
        let mut command = Command::new("sh");
        command.args(["-ec", line]).env("PATH", path.unwrap());
        command.env("TORONI_DIR", self.path()).env_remove("TORONI_BUS");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the program for another user, not yet started. Only root can start it.
    pub(crate) fn as_other_user(&self, arguments: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;

        // The other user may not be able to reach the program where it was built.
        let copy = self.path().join("toroni");
        toroni_testkit::program::copy_program(crate::program(), &copy);
        let mut other = Command::new(&copy);
        other.args(arguments).env("TORONI_DIR", self.path()).env_remove("TORONI_BUS");
        other.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        other.uid(65534).gid(65534);
        other
    }

    /// Returns what `toroni info --json` prints for a bus.
    pub(crate) fn info(&self, bus: &str) -> Value {
        serde_json::from_str(&self.succeed(&["info", bus, "--json"])).unwrap()
    }

    pub(crate) fn subscriber_count(&self, bus: &str) -> usize {
        self.info(bus)["subscribers"].as_array().unwrap().len()
    }

    /// Returns the sorted names in the directory, with hidden ones.
    pub(crate) fn entries(&self) -> Vec<String> {
        self.0.entries()
    }
}

/// A running program.
pub(crate) struct Process(Program);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Program::start(command))
    }

    /// Waits for the next line of standard output, and returns it with its line feed.
    pub(crate) fn line(&mut self) -> String {
        self.0.line().expect("a line") + "\n"
    }

    /// Waits for the first line of standard error, and returns it with its line feed.
    pub(crate) fn error_line(&self) -> String {
        wait_until("a line on standard error", || self.stderr().contains(&b'\n'));
        let stderr = String::from_utf8(self.stderr()).unwrap();
        stderr.split_inclusive('\n').next().unwrap().to_owned()
    }

    /// Waits for the end and returns the rest of the output.
    pub(crate) fn finish(mut self) -> Output {
        self.0.finish()
    }
}

impl From<Program> for Process {
    fn from(program: Program) -> Self {
        Self(program)
    }
}

impl Deref for Process {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.0
    }
}

/// Parses each line as a JSON value.
pub(crate) fn json_lines(text: &[u8]) -> Vec<Value> {
    std::str::from_utf8(text)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
