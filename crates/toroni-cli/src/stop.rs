//! Ctrl-C and its relatives: a flag to look at between two steps, and a descriptor to wait on.

use crate::failure::{Failure, code_of_signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// What happens to a command that does not end by itself after the signal.
pub(crate) enum GracePeriod {
    /// It may be blocked for long in a write to a full pipe, or in a publish that waits for a slow
    /// subscriber. It holds nothing that the kernel does not give back: end it after a second, and
    /// say what it was doing, as in "waiting for a slow subscriber".
    OneSecond(String),
    /// It has things to remove, and never blocks for long: let it.
    Unlimited,
}

/// Times are counted in these and not by the clock: while the machine stood still, or had no core to spare,
/// the command could not end either.
const TICK: Duration = Duration::from_millis(20);
/// How long a command may take to end after the signal: a second.
const LONGEST_END_TICKS: u32 = 50;
/// A second signal within this time, 200 ms, is no impatient user: `timeout` signals its child and then the
/// group of processes that the child is in, and a terminal that is closed signals more than once.
const ECHO_TICKS: u32 = 10;

/// Whether SIGINT, SIGTERM or SIGHUP arrived.
pub(crate) struct Stop {
    /// The signal that arrived first; 0 before.
    signal: Arc<AtomicI32>,
    /// Reports a hang-up from the first signal on, for ever.
    wake: OwnedFd,
    /// Its other end, where no thread has it.
    #[expect(dead_code, reason = "held open")]
    writer: Option<OwnedFd>,
}

impl Stop {
    /// Handles the signals from now on.
    pub(crate) fn install(patience: GracePeriod) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::Failed(format!("cannot handle signals: {error}"));
        let (wake, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| failed(e.into()))?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let first = Arc::new(AtomicI32::new(0));
        let arrived = Arc::clone(&first);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let Some(signal) = signals.forever().next() else { return };
                arrived.store(signal, Ordering::Relaxed);
                drop(writer);
                if let GracePeriod::OneSecond(doing) = patience {
                    end_soon(&mut signals, signal, &doing);
                }
            })
            .map_err(failed)?;
        Ok(Self { signal: first, wake, writer: None })
    }

    /// Without signals: nobody stops it.
    pub(crate) fn never() -> Self {
        let (wake, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .expect("a trial has descriptors left");
        Self { signal: Arc::default(), wake, writer: Some(writer) }
    }

    /// Whether to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// The failure of a command that a signal ended before it was done.
    pub(crate) fn interrupted(&self, text: impl Into<String>) -> Failure {
        Failure::Interrupted { signal: self.signal.load(Ordering::Relaxed), text: text.into() }
    }

    /// Waits; `false` if the signal cut it short.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_set() {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            // An interruption or a failure to wait only means: look at the clock again.
            let _ = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], timespec(left).as_ref());
        }
    }

    /// Waits until `input` can be read (or is at its end); `false` if the signal came first.
    pub(crate) fn wait_readable(&self, input: BorrowedFd<'_>) -> io::Result<bool> {
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

/// Whether the reader of a pipe is gone, without writing to it.
pub(crate) fn is_hung_up(output: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&output, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok()
        && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

fn timespec(duration: Duration) -> Option<Timespec> {
    Timespec::try_from(duration).ok()
}

fn end_soon(signals: &mut Signals, signal: i32, doing: &str) {
    for tick in 1..=LONGEST_END_TICKS {
        std::thread::sleep(TICK);
        // Read also where it is an echo, which must not count later.
        let again = signals.pending().next().is_some();
        if again && tick >= ECHO_TICKS {
            break;
        }
    }
    crate::note::failure(&format!("interrupted while {doing}"));
    std::process::exit(code_of_signal(signal).into());
}
