//! The terminal: takes it over, gives it back however the program ends, and reads keys.

use crate::failure::Failure;
use crate::stop::Stop;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Action, QueueSelector, tcflow, tcflush};
use signal_hook::consts::{SIGTSTP, SIGWINCH};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the terminal is taken over.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether there is a terminal to draw on and to read keys from.
pub(super) fn is_usable() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Returns the number of columns of standard output, if it is a terminal.
pub(super) fn width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// The terminal of this process, taken over until this is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<std::fs::File>>>,
    /// Readable after the size has changed.
    resized: UnixStream,
}

impl Screen {
    /// Takes the terminal over. A panic, and [`give_back`], return it too.
    pub(super) fn take() -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::Failed(format!("cannot use this terminal: {error} (--once prints one screen)"))
        };
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let report = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                report(panic);
            }));
        });
        let (resized, writer) = UnixStream::pair().map_err(failed)?;
        resized.set_nonblocking(true).map_err(failed)?;
        signal_hook::low_level::pipe::register(SIGWINCH, writer).map_err(failed)?;
        let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
        let output = BufWriter::with_capacity(64 << 10, std::fs::File::from(output));
        enter().map_err(failed)?;
        // From here on, an error has to give it back.
        let made = Terminal::new(CrosstermBackend::new(output));
        let terminal = made.map_err(|error| {
            give_back();
            failed(error)
        })?;
        Ok(Self { terminal, resized })
    }

    /// Draws a screen: what differs from the one before is written.
    pub(super) fn draw(&mut self, mut draw: impl FnMut(Rect, &mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut()))?;
        Ok(())
    }

    /// Makes the next call of [`Self::draw`] write everything.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    pub(super) fn height(&self) -> usize {
        self.terminal.size().map_or(24, |size| size.height.into())
    }

    /// Waits for a key, a change of the size, or a signal. Returns whether there may be keys.
    pub(super) fn wait(&mut self, stop: &Stop, limit: Duration) -> bool {
        stop.wait_any(&[rustix::stdio::stdin(), self.resized.as_fd()], limit);
        let mut wasted = [0; 64];
        while matches!(self.resized.read(&mut wasted), Ok(1..)) {}
        // At the end of a terminal that was closed, the library that reads keys would not return.
        let stdin = rustix::stdio::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents() == PollFlags::IN
    }

    /// Whether the terminal was closed.
    pub(super) fn is_gone(&self) -> bool {
        let stdin = rustix::stdio::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && !fds[0].revents().is_empty()
    }

    /// Returns the keys that were pressed.
    pub(super) fn keys(&mut self) -> io::Result<Vec<event::KeyEvent>> {
        let mut keys = Vec::new();
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Gives the terminal back and stops this process until it is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::raise(SIGTSTP)?;
        enter()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::SeqCst);
    let entered = write(|into| queue!(into, EnterAlternateScreen, Hide));
    if entered.is_err() {
        give_back();
    }
    entered
}

/// Gives the terminal back, if it is taken over: for the end, a panic, and a process that is about to exit.
pub(super) fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // If the terminal is gone, there is nothing to give back.
        let _ = write(|into| queue!(into, LeaveAlternateScreen, Show));
        let _ = disable_raw_mode();
    }
}

/// Gives the terminal back although its output may be stopped (Ctrl-S), or nothing reads it.
pub(super) fn give_back_by_force() {
    let _ = tcflow(rustix::stdio::stdout(), Action::OOn);
    let _ = tcflush(rustix::stdio::stdout(), QueueSelector::OFlush);
    give_back();
}

/// Writes to standard output without a lock that a panic could find locked.
fn write(fill: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut bytes = Vec::new();
    fill(&mut bytes)?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    std::fs::File::from(output).write_all(&bytes)
}
