//! One child, as the parent sees it.

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

/// A line of a child longer than this is no answer; it bounds what the parent keeps.
const LONGEST_LINE: usize = 64 << 20;

/// Killed and reaped when dropped.
pub(super) struct ChildProcess {
    pub(super) role: Role,
    pub(super) ready: bool,
    pub(super) done: bool,
    process: Child,
    /// Closed when it may leave.
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    /// The beginning of a line.
    unread: Vec<u8>,
}

impl ChildProcess {
    /// Starts the program and tells it its job.
    pub(super) fn start(program: &Program, job: &Job) -> Result<Self, Failure> {
        let role = job.role;
        let path = program.path.display();
        let mut command = Command::new(&program.path);
        // A group of its own: Ctrl-C reaches only the parent, which ends the children in order.
        command
            .args(&program.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().map_err(Failure::of(format!("start {role} ({path})")))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        // From here on it is reaped, whatever happens next.
        let mut member =
            Self { role, ready: false, done: false, process, input, output, unread: Vec::new() };
        if let Some(output) = &member.output {
            rustix::fs::fcntl_setfl(output, OFlags::NONBLOCK)
                .map_err(Failure::of(format!("listen to {role}")))?;
        }
        let mut line = serde_json::to_vec(job).map_err(Failure::of("write a job"))?;
        line.push(b'\n');
        if let Some(input) = &mut member.input
            && let Err(error) = input.write_all(&line)
        {
            // It is dead already; how it died says more.
            return Err(match error.kind() {
                std::io::ErrorKind::BrokenPipe => member.died(Duration::from_secs(1)),
                _ => Failure::of(format!("tell {role} its job"))(error),
            });
        }
        Ok(member)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether a result is to come of it.
    pub(super) fn is_at_work(&self) -> bool {
        self.role != Role::Host && !self.done
    }

    /// What to poll; `None` after its end.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(AsFd::as_fd)
    }

    /// Passes on the answers that are there; `false` after the last.
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
                return Err(Failure::new(format!("{} says too much", self.role)));
            }
        }
    }

    /// The failure of a child that ended too early.
    pub(super) fn died(&mut self, patience: Duration) -> Failure {
        let when = if self.ready { "before its work was done" } else { "before it was ready" };
        let how = match self.wait(patience) {
            Ok(Some(status)) => format!("ended with {status}"),
            Ok(None) => "closed its output".to_owned(),
            Err(error) => format!("ended ({error})"),
        };
        let hint = if self.input.is_none() { "" } else { ": see what it wrote to standard error" };
        Failure::new(format!("{} (pid {}) {how} {when}{hint}", self.role, self.pid()))
    }

    /// Lets it leave, and fails if it ends badly.
    pub(super) fn leave(&mut self, patience: Duration) -> Result<(), Failure> {
        self.done = true;
        self.input = None;
        let failed = format!("wait for {}", self.role);
        match self.wait(patience).map_err(Failure::of(failed))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(format!("{} ended with {status}", self.role))),
            None => Err(Failure::new(format!("{} does not end", self.role))),
        }
    }

    pub(super) fn kill(&mut self) {
        // Fails only for those that have been reaped.
        let _ = self.process.kill();
    }

    fn wait(&mut self, patience: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
        let deadline = Instant::now() + patience;
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
