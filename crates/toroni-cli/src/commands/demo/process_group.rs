//! The processes of a demo: starts them, exchanges messages with them, ends and reaps them.

use super::protocol::{Instruction, Report};
use std::fmt;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use toroni_process::Process;
use toroni_process::lines::{Line, Lines, wait_readable};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::stop::Stop;

/// Longer than any healthy process is silent, even on a busy machine.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Publisher(u16),
    Victim,
    Subscriber(u16),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publisher(index) => write!(f, "publisher {index}"),
            Self::Victim => f.write_str("the publisher to be killed"),
            Self::Subscriber(index) => write!(f, "subscriber {index}"),
        }
    }
}

pub(super) enum Event {
    Reported(Role, Report),
    Ended(Role),
}

/// All child processes. Dropping the group kills and reaps them.
pub(super) struct ProcessGroup {
    children: Vec<Child>,
    /// Where [`ProcessGroup::next`] begins, so that a child that reports a lot does not hide the others.
    first: usize,
}

struct Child {
    role: Role,
    process: Process,
    instructions: Option<ChildStdin>,
    /// `None` after its end.
    reports: Option<Lines>,
}

impl ProcessGroup {
    pub(super) fn new() -> Self {
        Self { children: Vec::new(), first: 0 }
    }

    /// Starts this program again, as one of the demo's processes.
    pub(super) fn start(
        &mut self,
        role: Role,
        index: u16,
        size: u64,
        location: &BusLocation,
    ) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::Failed(format!("cannot start {role}: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["--bus", &location.bus]);
        if let Some(directory) = &location.dir {
            command.arg("--dir").arg(directory);
        }
        command.arg(match role {
            Role::Subscriber(_) => "demo-subscriber",
            Role::Publisher(_) | Role::Victim => "demo-publisher",
        });
        command.args(["--index", &index.to_string(), "--size", &size.to_string()]);
        // In a process group of its own, so that Ctrl-C reaches only the demo, which then ends the others.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = Process::spawn(&mut command).map_err(failed)?;
        let instructions = process.stdin();
        let reports = process.stdout().map(Lines::new).transpose().map_err(failed)?;
        self.children.push(Child { role, process, instructions, reports });
        Ok(())
    }

    /// Returns the next event of any process. Fails after a signal, or if all processes are silent for too long.
    pub(super) fn next(&mut self, stop: &Stop) -> Result<Event, Failure> {
        let deadline = Instant::now() + LONGEST_SILENCE;
        loop {
            if stop.is_set() {
                return Err(stop.interrupted("interrupted"));
            }
            let count = self.children.len();
            for offset in 0..count {
                let index = (self.first + offset) % count;
                if let Some(event) = self.children[index].next() {
                    self.first = index + 1;
                    return Ok(event);
                }
            }
            if Instant::now() >= deadline {
                return Err(Failure::Failed(format!(
                    "no process of the demo has reported anything for {} s: the machine may be overloaded",
                    LONGEST_SILENCE.as_secs()
                )));
            }
            let pipes = self.children.iter().filter_map(|child| child.reports.as_ref()?.pipe());
            wait_readable(pipes, Duration::from_millis(50)).map_err(|error| {
                Failure::Failed(format!("cannot wait for the processes of the demo: {error}"))
            })?;
        }
    }

    /// Sends an instruction to one publisher.
    pub(super) fn instruct(
        &mut self,
        role: Role,
        instruction: &Instruction,
    ) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::Failed(format!("cannot instruct {role}: {error}"));
        let mut line = serde_json::to_vec(instruction).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        match self.children.iter_mut().find(|child| child.role == role) {
            Some(Child { instructions: Some(pipe), .. }) => pipe.write_all(&line).map_err(failed),
            _ => Err(failed(std::io::ErrorKind::NotConnected.into())),
        }
    }

    /// Kills one process with SIGKILL, and reaps it.
    pub(super) fn kill(&mut self, role: Role) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::Failed(format!("cannot kill {role}: {error}"));
        for child in self.children.iter_mut().filter(|child| child.role == role) {
            child.process.end().map_err(failed)?;
        }
        Ok(())
    }

    /// Closes the input of all processes and waits until they end. Fails if one other than `killed` failed.
    pub(super) fn end(&mut self, killed: Role) -> Result<(), Failure> {
        for child in &mut self.children {
            child.instructions = None;
        }
        for child in self.children.iter_mut().filter(|child| child.role != killed) {
            let status = child.process.wait_within(LONGEST_SILENCE).map_err(|error| {
                Failure::Failed(format!("cannot wait for {}: {error}", child.role))
            })?;
            let role = child.role;
            match status {
                Some(status) if status.success() => {}
                Some(status) => {
                    return Err(Failure::Failed(format!("{role} ended with {status}")));
                }
                None => return Err(Failure::Failed(format!("{role} does not end"))),
            }
        }
        Ok(())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // All at once, before the first one is waited for.
        self.children.iter().for_each(|child| child.process.kill());
    }
}

impl Child {
    /// Returns its next event, if there is one already.
    fn next(&mut self) -> Option<Event> {
        let report = match self.reports.as_mut()?.next_now() {
            Ok(Line::Timeout) => return None,
            // A killed process may leave half a line: treat it as the end.
            Ok(Line::Text(line)) => serde_json::from_slice(&line).ok(),
            Ok(Line::End) | Err(_) => None,
        };
        if report.is_none() {
            self.reports = None;
        }
        Some(report.map_or(Event::Ended(self.role), |report| Event::Reported(self.role, report)))
    }
}
