//! The terminal: takes it over, gives it back however the program ends, and reads keys.

use super::input::Input;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Action, QueueSelector, tcflow, tcflush};
use signal_hook::consts::SIGWINCH;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;
use toroni_shell::failure::Failure;
use toroni_shell::stop::Stop;
use toroni_shell::suspend::Suspend;

/// Whether the terminal is taken over. Locked while it is given back: the process must not exit in the middle of that.
static IS_TAKEN: Mutex<bool> = Mutex::new(false);

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
    /// Never dropped: that would show the cursor, which [`give_back`] has done, and panic if the terminal is gone.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<std::fs::File>>>>,
    /// Readable after the size has changed, and when `suspend` has to be asked.
    signals: UnixStream,
    suspend: Suspend,
    input: Input,
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
        let (signals, writer) = UnixStream::pair().map_err(failed)?;
        signals.set_nonblocking(true).map_err(failed)?;
        let suspend = Suspend::install()?;
        suspend.wake(&writer)?;
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
        let terminal = ManuallyDrop::new(terminal);
        Ok(Self { terminal, signals, suspend, input: Input::default() })
    }

    /// Draws a screen: what differs from the one before is written.
    pub(super) fn draw(&mut self, mut draw: impl FnMut(Rect, &mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut()))?;
        Ok(())
    }

    /// Makes the next call of [`Self::draw`] write everything.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        // Not `clear`, which asks the terminal where the cursor is and waits for the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    pub(super) fn height(&self) -> usize {
        self.terminal.size().map_or(24, |size| size.height.into())
    }

    /// Waits for a key, a change of the size, or a signal. Returns whether there may be keys.
    pub(super) fn wait(&mut self, stop: &Stop, limit: Duration) -> bool {
        stop.wait_any(&[rustix::stdio::stdin(), self.signals.as_fd()], limit);
        let mut wasted = [0; 64];
        while matches!(self.signals.read(&mut wasted), Ok(1..)) {}
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

    /// Returns the keys that were pressed. To be called after [`Self::wait`] has returned `true`.
    pub(super) fn keys(&mut self) -> io::Result<Vec<KeyEvent>> {
        let mut bytes = [0; 256];
        match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => Ok(self.input.keys(&bytes[..length])),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether another process has asked this one to stop as Ctrl-Z does.
    pub(super) fn is_suspension_wanted(&self) -> bool {
        self.suspend.is_wanted()
    }

    /// Gives the terminal back and stops this process until it is continued. Returns `false` if it was not stopped.
    pub(super) fn suspend(&mut self) -> io::Result<bool> {
        give_back();
        self.suspend.stop();
        let was_stopped = self.suspend.has_continued();
        enter()?;
        self.forget()?;
        Ok(was_stopped)
    }

    /// Takes the terminal again if this process was stopped and continued in another way, as by SIGSTOP: the shell has set
    /// other modes and has written to the screen. Returns whether that was so.
    pub(super) fn take_again(&mut self) -> io::Result<bool> {
        if !self.suspend.has_continued() {
            return Ok(false);
        }
        // Otherwise `enter` takes the modes for set.
        give_back();
        enter()?;
        self.forget()?;
        Ok(true)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    *IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = true;
    let entered = write(|into| queue!(into, EnterAlternateScreen, Hide));
    if entered.is_err() {
        give_back();
    }
    entered
}

/// Gives the terminal back, if it is taken over: for the end, a panic, and a process that is about to exit.
pub(super) fn give_back() {
    let mut is_taken = IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_taken) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};
    use std::fs::OpenOptions;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::{Command, Stdio};

    /// The process in which the test below starts a panic.
    const PANICS: &str = "TORONI_TEST_TOP_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_reported() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::take().unwrap();
            panic!("on purpose");
        }
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let mut options = OpenOptions::new();
        // O_NOCTTY: it must not become the terminal that controls the tests.
        options.read(true).write(true).custom_flags(0o400);
        let slave = options.open(std::ffi::OsStr::from_bytes(name.as_bytes())).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let name =
            "commands::top::terminal::tests::a_panic_gives_the_terminal_back_before_it_is_reported";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(PANICS, "1")
            .env("RUST_BACKTRACE", "0")
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        // It writes less than a terminal holds.
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(101));
        assert_eq!(tcgetattr(&slave).unwrap().local_modes, before.local_modes);
        assert!(before.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON));
        drop(slave);
        let mut said = Vec::new();
        let mut master = std::fs::File::from(master);
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = master.read(&mut buffer) {
            said.extend(&buffer[..length]);
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("no {what:?} in {said:?}"));
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l"));
        assert!(at("\x1b[?25h") < at("on purpose"), "the report would be lost: {said:?}");
    }
}
