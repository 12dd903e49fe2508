//! A child, from the parent's side.

use super::Program;
use crate::Failure;
use crate::job::{Answer, Job, Role};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest line that a child may send: it bounds what the parent keeps.
const LONGEST_LINE: usize = 64 << 20;

/// A child process, killed and reaped when dropped.
pub(super) struct ChildProcess {
    pub(super) role: Role,
    pub(super) ready: bool,
    pub(super) done: bool,
    process: Child,
    /// Closing it lets the child end.
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    /// The beginning of a line whose end has not come yet.
    unread: Vec<u8>,
}

impl ChildProcess {
    /// Starts the program and sends it its job.
    pub(super) fn start(program: &Program, job: &Job) -> Result<Self, Failure> {
        let role = job.role;
        let path = program.path.display();
        let mut command = Command::new(&program.path);
        // With a process group of its own: Ctrl-C reaches only the parent, which ends the children in order.
        command
            .args(&program.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().map_err(Failure::of(format!("start {role} ({path})")))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        // From here on it is reaped, whatever happens next.
        let mut child =
            Self { role, ready: false, done: false, process, input, output, unread: Vec::new() };
        if let Some(output) = &child.output {
            rustix::fs::fcntl_setfl(output, OFlags::NONBLOCK)
                .map_err(Failure::of(format!("listen to {role}")))?;
        }
        let mut line = serde_json::to_vec(job).map_err(Failure::of("write a job"))?;
        line.push(b'\n');
        if let Some(input) = &mut child.input
            && let Err(error) = input.write_all(&line)
        {
            // It is already dead; how it died says more.
            return Err(match error.kind() {
                std::io::ErrorKind::BrokenPipe => child.died(Duration::from_secs(1)),
                _ => Failure::of(format!("send {role} its job"))(error),
            });
        }
        Ok(child)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns whether its result is still to come.
    pub(super) fn is_at_work(&self) -> bool {
        self.role != Role::Host && !self.done
    }

    /// Returns what to poll, or `None` after the end of its output.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(AsFd::as_fd)
    }

    /// Passes on the answers that have come. Returns `false` after the last.
    pub(super) fn read(&mut self, mut each: impl FnMut(Answer)) -> Result<bool, Failure> {
        let mut buffer = [0; 16 << 10];
        loop {
            let Some(output) = &self.output else { return Ok(false) };
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => self.output = None,
                Ok(length) => self.unread.extend_from_slice(&buffer[..length]),
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    return Err(Failure::of(format!("listen to {}", self.role))(error));
                }
            }
            while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                match Answer::parse(line.trim_ascii_end()) {
                    Some(answer) => each(answer),
                    None => {
                        let _ = std::io::stderr().write_all(&line);
                    }
                }
            }
            if self.unread.len() > LONGEST_LINE {
                return Err(Failure::new(format!("{} sends too long a line", self.role)));
            }
        }
    }

    /// Returns the failure of a child that ended too early.
    pub(super) fn died(&mut self, timeout: Duration) -> Failure {
        let when = if self.ready { "before its work was done" } else { "before it was ready" };
        let how = match self.wait(timeout) {
            Ok(Some(status)) => format!("ended with {status}"),
            Ok(None) => "closed its output".to_owned(),
            Err(error) => format!("ended ({error})"),
        };
        let hint = if self.input.is_none() { "" } else { ": see what it wrote to standard error" };
        Failure::new(format!("{} (pid {}) {how} {when}{hint}", self.role, self.pid()))
    }

    /// Lets it end, and fails if it ends badly.
    pub(super) fn leave(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.done = true;
        self.input = None;
        let failed = format!("wait for {}", self.role);
        match self.wait(timeout).map_err(Failure::of(failed))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(format!("{} ended with {status}", self.role))),
            None => Err(Failure::new(format!("{} does not end", self.role))),
        }
    }

    pub(super) fn kill(&mut self) {
        // Fails only if it has been reaped.
        let _ = self.process.kill();
    }

    fn wait(&mut self, timeout: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
        let deadline = Instant::now() + timeout;
        let mut pause = Duration::from_micros(50);
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.process.wait();
    }
}
