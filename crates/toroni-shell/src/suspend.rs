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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long [`Suspend::stop`] waits for the stop. In a process group that no shell could continue, there is none.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

/// What SIGTSTP and SIGCONT have asked of this process.
pub struct Suspend {
    wanted: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl Suspend {
    /// Installs the signal handlers.
    pub fn install() -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::Failed(format!("cannot install a signal handler: {error}"));
        let suspend = Self { wanted: Arc::default(), continued: Arc::default() };
        for (signal, flag) in [(SIGTSTP, &suspend.wanted), (SIGCONT, &suspend.continued)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed)?;
        }
        Ok(suspend)
    }

    /// Whether the terminal or a process has asked this one to stop.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether the process was continued since this was last asked: a shell may have changed the modes of the terminal.
    pub fn has_continued(&self) -> bool {
        self.continued.swap(false, Ordering::Relaxed)
    }

    /// Stops the process until it is continued.
    pub fn stop(&self) {
        self.continued.store(false, Ordering::Relaxed);
        self.wanted.store(false, Ordering::Relaxed);
        // SIGTSTP has a handler. SIGTTIN stops as SIGTSTP does by default, so not in an orphaned process group, where SIGSTOP
        // would stop the process forever.
        if kill_process(getpid(), Signal::TTIN).is_err() {
            return;
        }
        // The clock runs on while the process is stopped.
        let began = Instant::now();
        while !self.continued.load(Ordering::Relaxed) && began.elapsed() < STOPS_WITHIN {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether this process may read keys from a terminal and set its modes. A terminal that does not control the process does
/// not stop it either.
pub fn is_foreground(terminal: impl AsFd) -> bool {
    tcgetpgrp(terminal).map_or(true, |group| group == getpgrp())
}
