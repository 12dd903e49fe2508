//! Runs the examples as their users do.

use crate::common::Fixture;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time limit for everything. Only a test that hangs reaches it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

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
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            // Ends with the example, or when the test ends.
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        let mut errors = child.stderr.take().unwrap();
        let errors_so_far = Arc::new(Mutex::new(String::new()));
        let so_far = Arc::clone(&errors_so_far);
        let errors = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = errors.read(&mut part) {
                so_far.lock().unwrap().push_str(&String::from_utf8_lossy(&part[..length]));
            }
            so_far.lock().unwrap().clone()
        });
        Self { name, child, lines, seen: Vec::new(), errors: Some(errors), errors_so_far }
    }

    /// Returns its process id.
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
