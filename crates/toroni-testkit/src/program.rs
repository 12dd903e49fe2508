//! A child process under test.

use crate::lines::{Line, Lines};
use crate::process::{Process, is_stopped};
use crate::wait::{self, LIMIT};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::borrow::BorrowMut;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running program. Each method panics if the program does not do what the test expects, and then shows what it
/// printed to standard error. Dropping it kills and reaps it; see [`Process`] for what else ends it.
#[derive(Debug)]
pub struct Program {
    process: Process,
    /// The command line, for messages.
    what: String,
    stdin: Option<ChildStdin>,
    stdout: Option<Lines>,
    stderr: Arc<Mutex<Vec<u8>>>,
    /// Fills `stderr` until the pipe ends.
    reader: Mutex<Option<JoinHandle<()>>>,
    ready: Option<Lines>,
}

impl Program {
    /// Starts the command. Pipe its standard output to read it with [`Self::line`] or [`Self::finish`]. Pipe its
    /// standard error to have it in messages.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        let what = format!("{command:?}");
        let mut process =
            Process::spawn(command).unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let reader = process.stderr().map(|mut pipe| {
            let stderr = Arc::clone(&stderr);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                    let mut stderr = stderr.lock().unwrap_or_else(PoisonError::into_inner);
                    stderr.extend(&buffer[..length]);
                }
            })
        });
        let stdin = process.stdin();
        let stdout = process.stdout().map(|pipe| Lines::new(pipe).expect("a pipe"));
        Self { process, what, stdin, stdout, stderr, reader: Mutex::new(reader), ready: None }
    }

    /// Starts the command with the additional arguments `--ready-fd N`. [`Self::wait_ready`] waits for a line on that
    /// descriptor.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_with_ready_fd(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let number = write.as_raw_fd();
        command.arg("--ready-fd").arg(number.to_string());
        // SAFETY: one system call between fork and exec, on a descriptor that is open until `spawn` returns. In this
        // process it stays close-on-exec: no other child inherits it.
        unsafe {
            command.pre_exec(move || {
                Ok(fcntl_setfd(BorrowedFd::borrow_raw(number), FdFlags::empty())?)
            });
        }
        let program = Self::start(command);
        drop(write);
        Self { ready: Some(Lines::new(read).expect("a pipe")), ..program }
    }

    /// Returns its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Takes the pipe to its standard input. Drop the pipe to close it.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    /// If that is not piped, or the program has ended.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("a piped standard input");
        if let Err(error) = stdin.write_all(format!("{line}\n").as_bytes()) {
            self.fail(&format!("cannot be told {line:?}: {error}"));
        }
    }

    /// Waits for the line on the descriptor of [`Self::start_with_ready_fd`].
    ///
    /// # Panics
    /// If it does not come.
    pub fn wait_ready(&mut self) {
        let mut ready = self.ready.take().expect("started with a ready descriptor");
        match ready.next_within(LIMIT) {
            Ok(Line::Text(_)) => {}
            other => self.fail(&format!("is not ready: {other:?}")),
        }
    }

    /// Returns the next line of its standard output without the line feed, or `None` at the end.
    ///
    /// # Panics
    /// If neither comes.
    pub fn line(&mut self) -> Option<String> {
        let stdout = self.stdout.as_mut().expect("a piped standard output");
        match stdout.next_within(LIMIT) {
            Ok(Line::Text(line)) => Some(String::from_utf8_lossy(&line).into_owned()),
            Ok(Line::End) => None,
            other => self.fail(&format!("prints nothing: {other:?}")),
        }
    }

    /// Reads the next line, which must begin with `word`. Returns the rest of the line, trimmed.
    ///
    /// # Panics
    /// If another line comes, or none.
    pub fn expect(&mut self, word: &str) -> String {
        let line = self.line();
        match line.as_deref().and_then(|line| line.strip_prefix(word)) {
            Some(rest) => rest.trim().to_owned(),
            None => self.fail(&format!("printed {line:?} instead of {word:?}")),
        }
    }

    /// Reads lines up to the first one that satisfies the condition, and returns that one.
    ///
    /// # Panics
    /// If there is none.
    pub fn line_where(&mut self, mut condition: impl FnMut(&str) -> bool) -> String {
        let mut skipped = Vec::new();
        while let Some(line) = self.line() {
            if condition(&line) {
                return line;
            }
            skipped.push(line);
        }
        self.fail(&format!("printed only:\n{}", skipped.join("\n")))
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the program has been reaped: another process may have its id now.
    pub fn signal(&self, signal: Signal) {
        if let Err(error) = self.process.signal(signal) {
            self.fail(&format!("cannot be signalled: {error}"));
        }
    }

    /// Kills it with SIGKILL, and reaps it.
    ///
    /// # Panics
    /// If it had ended before by something else.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let status = self.wait();
        if status.signal() != Some(9) {
            self.fail(&format!("had ended by itself with {status}"));
        }
    }

    /// Stops it with SIGSTOP, and waits until it is stopped.
    ///
    /// # Panics
    /// If it does not stop.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        wait::until(&format!("{} is stopped", self.what), || is_stopped(self.id()));
    }

    /// Lets it continue with SIGCONT.
    ///
    /// # Panics
    /// If it has been reaped.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns how it ended, or `None` if it still runs.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended().expect("the state of a child")
    }

    /// Returns whether it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_running().expect("the state of a child")
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end within [`LIMIT`].
    pub fn wait(&mut self) -> ExitStatus {
        self.wait_within(LIMIT)
    }

    fn wait_within(&mut self, limit: Duration) -> ExitStatus {
        match self.process.wait_within(limit).expect("the state of a child") {
            Some(status) => status,
            None => self.fail("does not end"),
        }
    }

    /// Waits for its end. Returns what it printed that was not read before, and all of its standard error.
    ///
    /// # Panics
    /// If it does not end within [`LIMIT`].
    pub fn finish(&mut self) -> Output {
        self.finish_within(LIMIT)
    }

    /// As [`Self::finish`], for a program that takes longer.
    ///
    /// # Panics
    /// If it does not end in that time.
    pub fn finish_within(&mut self, limit: Duration) -> Output {
        let stdout = self.stdout.take();
        // In another thread, so that a program that does not end fails the test.
        let reader = std::thread::spawn(move || stdout.map(Lines::rest).unwrap_or_default());
        let status = self.wait_within(limit);
        let stdout = reader.join().expect("the reader of its output");
        Output { status, stdout, stderr: self.stderr() }
    }

    /// Waits for its end, which must be a success, and returns what it printed that was not read before.
    ///
    /// # Panics
    /// If it fails, or prints bytes that are not UTF-8.
    #[must_use]
    pub fn succeed(mut self) -> String {
        let output = self.finish();
        let printed = String::from_utf8(output.stdout).expect("UTF-8");
        if !output.status.success() {
            self.fail(&format!("ended with {} and printed {printed:?}", output.status));
        }
        printed
    }

    /// Returns what it has written to standard error so far; all of it after its end.
    #[must_use]
    pub fn stderr(&self) -> Vec<u8> {
        if self.process.has_ended()
            && let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            let _ = reader.join();
        }
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns [`Self::stderr`] for the end of a message: as text after a line feed, or empty.
    #[must_use]
    pub fn errors(&self) -> String {
        let stderr = self.stderr();
        if stderr.is_empty() {
            String::new()
        } else {
            format!("\n{}", String::from_utf8_lossy(&stderr))
        }
    }

    /// Waits until it has written this text to standard error.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_for_error(&self, text: &str) {
        wait::until(&format!("{} reports {text:?}", self.what), || {
            String::from_utf8_lossy(&self.stderr()).contains(text)
        });
    }

    /// Takes the pipe from its standard output, for a reader of another kind. Bytes that [`Self::line`] has read ahead
    /// are lost, so call one of the two.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take().and_then(Lines::into_pipe).map(ChildStdout::from)
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("{} {why}{}", self.what, self.errors());
    }
}

/// Copies a program or a script to where every user may start it. Not with `fs::copy`: a child that another thread starts
/// meanwhile has the copy open for writing until it executes its own program, and the kernel starts no such file.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut install = Command::new("install");
    install.args(["-m", "755"]).arg(from.as_ref()).arg(to.as_ref());
    let copied = install.status().expect("the program install");
    assert!(copied.success(), "{install:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Program::start(command)
    }

    #[test]
    fn a_program_gets_lines_and_its_lines_are_read() {
        let mut program = shell("read a; echo \"got $a\"; echo more; printf rest; echo why >&2");
        program.tell("this");
        assert_eq!(program.expect("got"), "this");
        assert_eq!(program.line_where(|line| line.starts_with('m')), "more");
        program.wait_for_error("why");
        let output = program.finish();
        assert!(output.status.success());
        assert_eq!((&*output.stdout, &*output.stderr), (&b"rest"[..], &b"why\n"[..]));
    }

    #[test]
    fn a_failure_shows_the_command_and_its_standard_error() {
        let program = shell("echo reason >&2; exit 3");
        let failure = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.succeed()));
        let text = *failure.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("reason") && text.contains("exit 3") && text.contains("status: 3"));
    }

    #[test]
    fn a_program_says_that_it_is_ready_on_a_descriptor() {
        let mut command = Command::new("sh");
        // Not `>&$2`: dash takes only one digit.
        command.args(["-c", "echo ready >/dev/fd/$2; exec sleep 1000", "sh"]);
        let mut program = Program::start_with_ready_fd(command);
        program.wait_ready();
        program.stop();
        program.resume();
        assert_eq!(program.ended(), None);
        program.kill();
    }

    #[test]
    fn a_copy_can_be_started_while_other_threads_start_programs() {
        let directory = crate::Directory::new();
        let script = directory.join("script");
        std::fs::write(&script, "#!/bin/sh\necho started\n").unwrap();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (directory, script) = (&directory, &script);
                scope.spawn(move || {
                    for round in 0..25 {
                        let copy = directory.join(format!("copy-{number}-{round}"));
                        copy_program(script, &copy);
                        let mut command = Command::new(copy);
                        assert_eq!(
                            Program::start(command.stdout(Stdio::piped())).succeed(),
                            "started\n"
                        );
                    }
                });
            }
        });
    }
}
