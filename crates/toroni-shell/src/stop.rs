//! Signals that end a command (SIGINT, SIGTERM, SIGHUP): a flag to check, and a descriptor to wait on.

use crate::failure::{Failure, code_of_signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How long a command may take to end after the signal.
pub enum GracePeriod {
    /// After a second, the process exits and reports what it was doing, for example "waiting for a slow subscriber".
    /// For commands that may block in a write to a full pipe or in a publish, and that hold nothing that the kernel
    /// does not release.
    OneSecond(String),
    /// Like `OneSecond`. Before the process exits, the function is called.
    OneSecondAnd(String, fn()),
    /// For commands that have files to remove, and that never block for long. One that may take its time checks
    /// [`Stop::is_repeated`].
    Unlimited,
}

/// The grace period is counted in ticks and not by the clock: while the machine was suspended or overloaded, the
/// command could not end either.
const TICK: Duration = Duration::from_millis(20);
/// The grace period: one second.
const GRACE_TICKS: u32 = 50;
/// A second signal within this time, 200 ms, is ignored; later, it ends the grace period. `timeout` signals its child
/// and then the process group of the child, and a terminal that is closed sends more than one signal.
const ECHO_TICKS: u32 = 10;

/// How long a command sleeps before it checks again for signals and for a closed output. A silent subscriber
/// polls the ring every 250 ms by itself, so this wakes it only a little more often.
pub const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Whether SIGINT, SIGTERM or SIGHUP arrived.
pub struct Stop {
    /// The first signal that arrived, or 0.
    signal: Arc<AtomicI32>,
    /// Whether another one arrived later.
    repeated: Arc<AtomicBool>,
    /// Reports a hang-up from the first signal on.
    wake: OwnedFd,
    /// The other end of `wake`, if no thread owns it.
    #[expect(dead_code, reason = "held open")]
    writer: Option<OwnedFd>,
}

impl Stop {
    /// Installs the signal handlers.
    pub fn install(grace: GracePeriod) -> Result<Self, Failure> {
        Self::install_for(&[SIGINT, SIGTERM, SIGHUP], grace)
    }

    /// Installs handlers for some of these signals.
    pub fn install_for(signals: &[i32], grace: GracePeriod) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::Failed(format!(
                "cannot install a signal handler: {error} (see the limits `ulimit -u` and `ulimit -n`)"
            ))
        };
        let (wake, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| failed(e.into()))?;
        let mut signals = Signals::new(signals).map_err(failed)?;
        let first = Arc::new(AtomicI32::new(0));
        let arrived = Arc::clone(&first);
        let repeated = Arc::new(AtomicBool::new(false));
        let again = Arc::clone(&repeated);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let Some(signal) = signals.forever().next() else { return };
                arrived.store(signal, Ordering::Relaxed);
                drop(writer);
                match grace {
                    GracePeriod::OneSecond(doing) => end_soon(&mut signals, signal, &doing, || {}),
                    GracePeriod::OneSecondAnd(doing, last) => {
                        end_soon(&mut signals, signal, &doing, last);
                    }
                    GracePeriod::Unlimited => {
                        std::thread::sleep(TICK * ECHO_TICKS);
                        // Those that came meanwhile belong to the first one.
                        signals.pending().for_each(drop);
                        again.store(signals.forever().next().is_some(), Ordering::Relaxed);
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self { signal: first, repeated, wake, writer: None })
    }

    /// Returns a `Stop` that no signal sets.
    pub fn never() -> Self {
        let (wake, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .expect("the fuzz harness has descriptors left");
        let repeated = Arc::default();
        Self { signal: Arc::default(), repeated, wake, writer: Some(writer) }
    }

    /// Whether a signal arrived.
    pub fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Whether another signal arrived more than 200 ms after the first one: the command should not take its time any more. Only with
    /// [`GracePeriod::Unlimited`].
    pub fn is_repeated(&self) -> bool {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Returns a descriptor that becomes readable with the first signal. Nothing may be read from it.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.wake.try_clone()
    }

    /// Returns the failure of a command that a signal ended before it was done.
    pub fn interrupted(&self, text: impl Into<String>) -> Failure {
        Failure::Interrupted { signal: self.signal.load(Ordering::Relaxed), text: text.into() }
    }

    /// Sleeps. Returns `false` if a signal arrived first.
    pub fn sleep(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_set() {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            // After an interruption or an error, the loop checks the clock again.
            let _ = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], timespec(left).as_ref());
        }
    }

    /// Waits until one of `inputs` is readable or at its end, a signal arrived, or the time is over.
    pub fn wait_any(&self, inputs: &[BorrowedFd<'_>], limit: Duration) {
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        fds.extend(inputs.iter().map(|input| PollFd::new(input, PollFlags::IN)));
        // After an interruption or an error, the caller checks everything again.
        let _ = poll(&mut fds, timespec(limit).as_ref());
    }

    /// Waits until `input` is readable or at its end. Returns `false` if a signal arrived first.
    pub fn wait_readable(&self, input: BorrowedFd<'_>) -> io::Result<bool> {
        loop {
            let mut fds =
                [PollFd::new(&self.wake, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !fds[0].revents().is_empty() {
                return Ok(false);
            }
            if !fds[1].revents().is_empty() {
                return Ok(true);
            }
        }
    }
}

/// Whether the reader of a pipe has closed it. Does not write to the pipe.
pub(crate) fn is_hung_up(output: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&output, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok()
        && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

fn timespec(duration: Duration) -> Option<Timespec> {
    Timespec::try_from(duration).ok()
}

fn end_soon(signals: &mut Signals, signal: i32, doing: &str, last: fn()) {
    for tick in 1..=GRACE_TICKS {
        std::thread::sleep(TICK);
        // Also read a signal that is ignored, so that it does not count later.
        let again = signals.pending().next().is_some();
        if again && tick >= ECHO_TICKS {
            break;
        }
    }
    last();
    crate::note::failure(&format!("interrupted while {doing}"));
    std::process::exit(code_of_signal(signal).into());
}
