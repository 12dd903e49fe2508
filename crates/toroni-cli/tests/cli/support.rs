//! Temporary directories of buses, and processes that are killed and reaped when dropped.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use toroni_testkit::Directory;

/// Longer than any operation of these tests takes, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_toroni"));
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
        let mut process = Process::start(self.command(arguments).stdin(Stdio::piped()), arguments);
        let mut pipe = process.child.stdin.take().unwrap();
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
        Process::start(&mut self.command(arguments), arguments)
    }

    /// Starts `toroni sub --create` and waits until it is subscribed.
    pub(crate) fn subscribe(&self, arguments: &[&str]) -> Process {
        let mut all = vec!["sub", "--create", "--ready-fd", "2"];
        all.extend(arguments);
        let mut process = self.start(&all);
        let mut ready = String::new();
        process.stderr.as_mut().unwrap().read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "{arguments:?}");
        process
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

/// A running program; killed and reaped when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) stdout: Option<BufReader<std::process::ChildStdout>>,
    pub(crate) stderr: Option<BufReader<std::process::ChildStderr>>,
    what: String,
}

impl Process {
    pub(crate) fn start(command: &mut Command, arguments: &[&str]) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        let stderr = child.stderr.take().map(BufReader::new);
        Self { child, stdout, stderr, what: format!("{arguments:?}") }
    }

    /// Waits for the next line of standard output.
    pub(crate) fn line(&mut self) -> String {
        let stdout = self.stdout.as_mut().unwrap();
        let mut line = String::new();
        while !line.ends_with('\n') {
            if stdout.buffer().is_empty() {
                wait_readable(stdout.get_ref(), &self.what);
            }
            let available = stdout.fill_buf().unwrap();
            assert!(!available.is_empty(), "{} printed only {line:?}", self.what);
            let end = available.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(available.len(), |end| end + 1);
            line.push_str(std::str::from_utf8(&available[..length]).unwrap());
            stdout.consume(length);
        }
        line
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end and returns the rest of the output.
    pub(crate) fn finish(mut self) -> Output {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        // In threads, so that a program that does not end fails the test.
        let stdout = std::thread::spawn(move || read_all(stdout));
        let stderr = std::thread::spawn(move || read_all(stderr));
        let status = self.wait();
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }

    /// Waits for the end. Panics after [`TIMEOUT`].
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end", self.what);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).unwrap();
    }
    bytes
}

fn wait_readable(pipe: &impl AsFd, what: &str) {
    let timeout = Timespec::try_from(TIMEOUT).unwrap();
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    assert!(poll(&mut fds, Some(&timeout)).unwrap() > 0, "{what} prints nothing");
}

/// Polls until the condition holds. Panics after [`TIMEOUT`].
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
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
