//! A child process that never outlives its parent.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal, waitid,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A running child. Dropping it kills and reaps it.
///
/// If this process is killed itself, the kernel kills the child. Precisely, the child dies with the *thread* that
/// started it (`PR_SET_PDEATHSIG`), so do not start one in a short-lived thread. The kernel forgets this when the child
/// executes a set-user-ID program.
///
/// Signals reach only the child: a child that has been reaped is never signalled, because its process id may have
/// been reused.
#[derive(Debug)]
pub struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts the command. Pipes that it asks for are taken with [`Self::stdin`], [`Self::stdout`] and
    /// [`Self::stderr`].
    ///
    /// Add `command.process_group(0)` if Ctrl-C in the terminal should reach only the parent.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let parent = std::process::id();
        // SAFETY: two system calls between fork and exec; nothing is allocated.
        unsafe { command.pre_exec(move || die_with_parent(parent)) };
        Ok(Self { child: command.spawn()?, status: None })
    }

    /// Returns its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes the pipe to its standard input. Drop the pipe to close it.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the pipe from its standard output, for example for [`Lines`](crate::lines::Lines).
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the pipe from its standard error.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the child has been reaped, or the system refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.status.is_some() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it has ended"));
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Sends SIGKILL, and does not wait. Does nothing if the child has been reaped.
    pub fn kill(&self) {
        let _ = self.signal(Signal::KILL);
    }

    /// Returns how it ended, or `None` if it still runs.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Returns whether it still runs. Does not reap it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn is_running(&self) -> io::Result<bool> {
        if self.status.is_some() {
            return Ok(false);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_none())
    }

    /// Whether it has been reaped by one of these calls.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// Waits for its end, and returns how it ended, or `None` if it still runs after `timeout`.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait_within(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let started = Instant::now();
        // Readable when the child has ended. It needs Linux 5.3, and a container's seccomp filter may refuse it.
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).ok();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if left.is_zero() {
                return Ok(None);
            }
            let Some(end) = &end else {
                std::thread::sleep(left.min(Duration::from_millis(1)));
                continue;
            };
            // If `poll` cannot represent the limit, it waits without one.
            let left = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(end, PollFlags::IN)], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills and reaps it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        self.kill();
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }
}

/// Takes a child that was started without [`Process::spawn`], whose start from a forked process may take longer. The child
/// calls [`die_with_parent`] itself.
impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self { child, status: None }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Makes the kernel kill this process when the thread that started it ends. Call it in a child that was started
/// without [`Process`].
///
/// # Errors
/// If the system refuses, or the process `parent` is not the parent: then it has died already.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the kernel knew. A parent in another PID namespace has no number here.
    let is_alive =
        getppid().is_none_or(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent));
    if is_alive { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
}

/// Returns the state letter of a process in `/proc/PID/stat` (see `man 5 proc`): for example `R` for running, `S` for
/// sleeping, `T` for stopped, `Z` for ended but not reaped. `None` if there is no such process.
#[must_use]
pub fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses comes first, and may contain anything.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process is stopped.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    state_of(pid) == Some('T')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    #[test]
    fn a_dropped_process_is_dead_and_reaped() {
        let process = Process::spawn(Command::new("sleep").arg("1000")).unwrap();
        let pid = process.id();
        assert!(state_of(pid).is_some());
        drop(process);
        assert_eq!(state_of(pid), None);
    }

    #[test]
    fn a_look_at_a_process_does_not_reap_it() {
        let mut process = Process::spawn(Command::new("sleep").arg("1000")).unwrap();
        assert!(process.is_running().unwrap());
        process.kill();
        toroni_testkit::wait::until("the child ends", || !process.is_running().unwrap());
        assert!(state_of(process.id()).is_some(), "it is not reaped");
        process.end().unwrap();
        assert!(!process.is_running().unwrap());
    }

    #[test]
    fn a_process_dies_with_the_thread_that_started_it() {
        let start = || Process::spawn(Command::new("sleep").arg("1000")).unwrap();
        let mut process = std::thread::spawn(start).join().unwrap();
        let status = process.wait_within(toroni_testkit::wait::LIMIT).unwrap();
        assert_eq!(status.and_then(|status| status.signal()), Some(9));
        assert!(process.signal(Signal::KILL).is_err(), "a reaped process is not signalled");
    }

    #[test]
    fn a_wait_ends_with_the_process_or_the_time() {
        let mut process = Process::spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        assert_eq!(process.wait_within(Duration::from_millis(5)).unwrap(), None);
        drop(process.stdin());
        assert!(process.wait_within(toroni_testkit::wait::LIMIT).unwrap().unwrap().success());
    }

    #[test]
    fn a_process_is_not_bound_to_a_stranger() {
        assert!(die_with_parent(u32::MAX).is_err());
        set_parent_process_death_signal(None).unwrap();
    }
}
