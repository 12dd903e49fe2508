//! Runs the examples as their users do.

use crate::common::Fixture;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use toroni_testkit::Program;

/// A running example. It is killed when dropped.
pub(crate) struct Example {
    name: &'static str,
    program: Program,
    /// All lines that it has printed, as far as a test has waited for them.
    pub(crate) seen: Vec<String>,
}

impl Example {
    /// Starts an example on the bus `default` of the fixture. `TORONI_BUS` is empty, which counts
    /// as unset.
    pub(crate) fn start(fixture: &Fixture, name: &'static str, arguments: &[&str]) -> Self {
        Self::start_on(fixture, "", name, arguments)
    }

    pub(crate) fn start_on(
        fixture: &Fixture,
        bus: &str,
        name: &'static str,
        arguments: &[&str],
    ) -> Self {
        Self::start_with(fixture, bus, name, arguments, &[])
    }

    /// Starts an example with additional environment variables.
    pub(crate) fn start_with(
        fixture: &Fixture,
        bus: &str,
        name: &'static str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(path(name));
        command
            .args(arguments)
            .env("TORONI_DIR", fixture.path())
            .env("TORONI_BUS", bus)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { name, program: Program::start(command), seen: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Waits until it prints a matching line.
    pub(crate) fn wait_for(&mut self, what: impl Fn(&str) -> bool) -> String {
        let seen = &mut self.seen;
        self.program.line_where(|line| {
            seen.push(line.to_owned());
            what(line)
        })
    }

    pub(crate) fn wait_for_prefix(&mut self, prefix: &str) -> String {
        self.wait_for(|line| line.starts_with(prefix))
    }

    /// Waits until it has reported an error that contains `part`.
    pub(crate) fn wait_for_error(&self, part: &str) {
        self.program.wait_for_error(part);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Ends it with a signal. It must succeed without an error message. Returns what else it
    /// printed.
    pub(crate) fn end(mut self, signal: Signal) -> Vec<String> {
        self.signal(signal);
        let output = self.program.finish();
        let errors = self.errors();
        assert!(output.status.success(), "{}: {}\n{errors}", self.name, output.status);
        assert_eq!(errors, "", "{}", self.name);
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    pub(crate) fn interrupt(self) -> Vec<String> {
        self.end(Signal::INT)
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.program.wait()
    }

    /// All that it has written to standard error, when it has ended.
    pub(crate) fn errors(&mut self) -> String {
        self.wait();
        String::from_utf8_lossy(&self.program.stderr()).into_owned()
    }
}

/// Returns the path of an example. `cargo test` builds examples next to its tests.
fn path(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build -p toroni --examples", path.display());
    path
}

/// Checks that the bus has no used slot, dead or alive, and no socket.
pub(crate) fn assert_nothing_left(fixture: &Fixture, bus: &str) {
    let stats = fixture.config().open_existing(bus).unwrap().stats().unwrap();
    assert!(stats.publishers.as_ref().unwrap().is_empty(), "{stats:?}");
    assert!(stats.subscribers.as_ref().unwrap().is_empty(), "{stats:?}");
    assert!(stats.sockets.is_empty(), "{stats:?}");
    assert_eq!(stats.lock_owner, None);
}
