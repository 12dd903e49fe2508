//! A child, from the parent's side.

use super::{Place, Program};
use crate::Failure;
use crate::job::{Answer, Job, Role};
use std::io::{ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;
use toroni_process::Process;
use toroni_process::lines::{Line, Lines};

/// A child process, killed and reaped when dropped.
pub(super) struct ChildProcess {
    pub(super) role: Role,
    pub(super) ready: bool,
    pub(super) done: bool,
    process: Process,
    /// Closing it lets the child end.
    input: Option<ChildStdin>,
    output: Lines,
}

impl ChildProcess {
    /// Starts the program and sends it its job.
    pub(super) fn start(program: &Program, place: &dyn Place, job: &Job) -> Result<Self, Failure> {
        let role = job.role;
        let path = program.path.display();
        let mut command = place.command(role, &program.path);
        // With a process group of its own: Ctrl-C reaches only the parent, which ends the children in order.
        command
            .args(&program.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Not `Process::spawn`: how fast children start is a part of some results.
        let child = command.spawn().map_err(Failure::of(format!("start {role} ({path})")))?;
        let mut process = Process::from(child);
        let input = process.stdin();
        let output =
            process.stdout().ok_or_else(|| Failure::new(format!("{role} has no output")))?;
        let output = Lines::new(output).map_err(Failure::of(format!("listen to {role}")))?;
        let mut child = Self { role, ready: false, done: false, process, input, output };
        let mut line = serde_json::to_vec(job).map_err(Failure::of("write a job"))?;
        line.push(b'\n');
        match child.input.as_mut().map_or(Ok(()), |input| input.write_all(&line)) {
            Ok(()) => Ok(child),
            // It is already dead; how it died says more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                Err(child.died(Duration::from_secs(1)))
            }
            Err(error) => Err(Failure::of(format!("send {role} its job"))(error)),
        }
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
        self.output.pipe()
    }

    /// Passes on the answers that have come. Returns `false` after the last.
    pub(super) fn read(&mut self, mut each: impl FnMut(Answer)) -> Result<bool, Failure> {
        let failed = format!("listen to {}", self.role);
        loop {
            match self.output.next_now().map_err(Failure::of(&failed))? {
                Line::Text(mut line) => match Answer::parse(line.trim_ascii_end()) {
                    Some(answer) => each(answer),
                    None => {
                        line.push(b'\n');
                        let _ = std::io::stderr().write_all(&line);
                    }
                },
                Line::End => return Ok(false),
                Line::Timeout => return Ok(true),
            }
        }
    }

    /// Returns the failure of a child that ended too early.
    pub(super) fn died(&mut self, timeout: Duration) -> Failure {
        let when = if self.ready { "before its work was done" } else { "before it was ready" };
        let how = match self.process.wait_within(timeout) {
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
        match self.process.wait_within(timeout).map_err(Failure::of(failed))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(format!("{} ended with {status}", self.role))),
            None => Err(Failure::new(format!("{} does not end", self.role))),
        }
    }

    pub(super) fn kill(&mut self) {
        self.process.kill();
    }
}
