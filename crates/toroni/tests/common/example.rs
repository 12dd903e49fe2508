//! Runs the examples as their users do.

use crate::common::Fixture;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
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
    child: Child,
    lines: Receiver<String>,
    pub(crate) seen: Vec<String>,
    pub(crate) errors: Option<JoinHandle<String>>,
    errors_so_far: Arc<Mutex<String>>,
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
        let mut child = Command::new(path(name))
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
        self.child.id()
    }

    /// Waits until it prints a matching line.
    pub(crate) fn wait_for(&mut self, what: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if what(&line) {
                        return line;
                    }
                }
                Err(error) => {
                    let errors = match error {
                        RecvTimeoutError::Disconnected => {
                            self.errors.take().unwrap().join().unwrap()
                        }
                        RecvTimeoutError::Timeout => String::new(),
                    };
                    let name = self.name;
                    panic!("{name}: {error}; it printed:\n{}\n{errors}", self.seen.join("\n"));
                }
            }
        }
    }

    pub(crate) fn wait_for_prefix(&mut self, prefix: &str) -> String {
        self.wait_for(|line| line.starts_with(prefix))
    }

    /// Waits until it has reported an error that contains `part`.
    pub(crate) fn wait_for_error(&self, part: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.errors_so_far.lock().unwrap().contains(part) {
            assert!(Instant::now() < deadline, "{} does not report {part:?}", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it with a signal. It must succeed without an error message. Returns what else it
    /// printed.
    pub(crate) fn end(mut self, signal: Signal) -> Vec<String> {
        self.signal(signal);
        let status = self.wait();
        let errors = self.errors.take().unwrap().join().unwrap();
        assert!(status.success(), "{}: {status}\n{errors}", self.name);
        assert_eq!(errors, "", "{}", self.name);
        self.lines.iter().collect()
    }

    pub(crate) fn interrupt(self) -> Vec<String> {
        self.end(Signal::INT)
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
