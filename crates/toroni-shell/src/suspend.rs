//! Ctrl-Z and `fg`, for a command that changes the modes of its terminal.
//!
//! The command asks [`Suspend::is_wanted`] in its loop. It gives the terminal back, calls [`Suspend::stop`], and takes the
//! terminal again if [`is_foreground`] says so. A process in the background that set modes or read keys would be stopped.

use crate::failure::Failure;
use rustix::fd::AsFd;
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCONT, SIGTSTP};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long [`Suspend::stop`] waits for the stop. In a process group that no shell could continue, there is none.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// What SIGTSTP and SIGCONT have asked of this process.
pub struct Suspend {
    wanted: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl Suspend {
    /// Installs the signal handlers.
    pub fn install() -> Result<Self, Failure> {
        let suspend = Self { wanted: Arc::default(), continued: Arc::default() };
        for (signal, flag) in [(SIGTSTP, &suspend.wanted), (SIGCONT, &suspend.continued)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed)?;
        }
        Ok(suspend)
    }

    /// Makes a descriptor readable with each of the signals, so that a command that sleeps asks.
    pub fn wake(&self, writer: &UnixStream) -> Result<(), Failure> {
        for signal in [SIGTSTP, SIGCONT] {
            let registered = writer
                .try_clone()
                .and_then(|writer| signal_hook::low_level::pipe::register(signal, writer));
            registered.map_err(failed)?;
        }
        Ok(())
    }

    /// Whether the terminal or a process has asked this one to stop.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether the process was continued since this was last asked: a shell may have changed the modes of the terminal.
    pub fn has_continued(&self) -> bool {
        self.continued.swap(false, Ordering::Relaxed)
    }

    /// Stops the process until it is continued. Afterwards [`Self::has_continued`] says whether it was stopped: the kernel does
    /// not stop a process that no shell could continue, such as the first one of a container.
    pub fn stop(&self) {
        self.continued.store(false, Ordering::Relaxed);
        self.wanted.store(false, Ordering::Relaxed);
        // SIGTSTP has a handler. SIGTTIN stops as SIGTSTP does by default, so not in an orphaned process group, where SIGSTOP
        // would stop the process forever.
        if kill_process(getpid(), Signal::TTIN).is_err() {
            return;
        }
        // Another thread may handle the signal that continued the process. Not by the clock, which runs on while the process
        // is stopped.
        let mut left = STOPS_WITHIN.as_millis() / PAUSE.as_millis();
        while !self.continued.load(Ordering::Relaxed) && left > 0 {
            std::thread::sleep(PAUSE);
            left = left.saturating_sub(1);
        }
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot install a signal handler: {error}"))
}

/// Whether this process may read keys from a terminal and set its modes. A terminal that does not control the process does
/// not stop it either.
pub fn is_foreground(terminal: impl AsFd) -> bool {
    tcgetpgrp(terminal).map_or(true, |group| group == getpgrp())
}
