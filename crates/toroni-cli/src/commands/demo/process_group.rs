//! The processes of a demo: starts them, exchanges messages with them, ends and reaps them.

use super::protocol::{Instruction, Report};
use crate::cli::BusLocation;
use crate::failure::Failure;
use crate::stop::Stop;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    events: Receiver<Event>,
    sender: Sender<Event>,
}

struct Child {
    role: Role,
    process: process::Child,
    instructions: Option<ChildStdin>,
    listener: Option<JoinHandle<()>>,
}

impl ProcessGroup {
    pub(super) fn new() -> Self {
        let (sender, events) = channel();
        Self { children: Vec::new(), events, sender }
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
        let mut process = command.spawn().map_err(failed)?;
        let instructions = process.stdin.take();
        let reports = process.stdout.take();
        let sender = self.sender.clone();
        // From here on the process is reaped, even if this function fails.
        self.children.push(Child { role, process, instructions, listener: None });
        let listener = std::thread::Builder::new()
            .name(role.to_string())
            .spawn(move || {
                for line in reports.into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
                    // A killed process may leave half a line: treat it as the end.
                    let Ok(line) = line else { break };
                    let Ok(report) = serde_json::from_str(&line) else { break };
                    if sender.send(Event::Reported(role, report)).is_err() {
                        return;
                    }
                }
                let _ = sender.send(Event::Ended(role));
            })
            .map_err(failed)?;
        if let Some(child) = self.children.last_mut() {
            child.listener = Some(listener);
        }
        Ok(())
    }

    /// Returns the next event of any process. Fails after a signal, or if all processes are silent for too long.
    pub(super) fn next(&self, stop: &Stop) -> Result<Event, Failure> {
        let deadline = Instant::now() + LONGEST_SILENCE;
        loop {
            if stop.is_set() {
                return Err(stop.interrupted("interrupted"));
            }
            match self.events.recv_timeout(Duration::from_millis(50)) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => {
                    return Err(Failure::Failed(format!(
                        "no process of the demo has reported anything for {} s: the machine may be overloaded",
                        LONGEST_SILENCE.as_secs()
                    )));
                }
            }
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
            child.process.kill().map_err(failed)?;
            child.process.wait().map_err(failed)?;
        }
        Ok(())
    }

    /// Closes the input of all processes and waits until they end. Fails if one other than `killed` failed.
    pub(super) fn end(&mut self, killed: Role) -> Result<(), Failure> {
        for child in &mut self.children {
            child.instructions = None;
        }
        for child in self.children.iter_mut().filter(|child| child.role != killed) {
            let status = child.process.wait().map_err(|error| {
                Failure::Failed(format!("cannot wait for {}: {error}", child.role))
            })?;
            if !status.success() {
                return Err(Failure::Failed(format!("{} ended with {status}", child.role)));
            }
        }
        Ok(())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Fails only if the process has been reaped.
            let _ = child.process.kill();
        }
        for child in &mut self.children {
            let _ = child.process.wait();
            if let Some(listener) = child.listener.take() {
                let _ = listener.join();
            }
        }
    }
}
