//! A terminal for tests: a pseudo-terminal and what a program has drawn on it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    Action, OptionalActions, Termios, Winsize, tcflow, tcgetattr, tcsetattr, tcsetwinsize,
};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A pseudo-terminal. A thread reads what is written to it.
pub(crate) struct Terminal {
    master: File,
    slave: File,
    drawn: Arc<Mutex<Drawn>>,
    is_closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    pub(crate) fn new(columns: u16, rows: u16) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let mut options = OpenOptions::new();
        // O_NOCTTY: it must not become the terminal that controls the tests.
        options.read(true).write(true).custom_flags(0o400);
        let slave = options.open(OsStr::from_bytes(name.as_bytes())).unwrap();
        let mut terminal = Self {
            master: File::from(master),
            slave,
            drawn: Arc::default(),
            is_closing: Arc::default(),
            reader: None,
        };
        terminal.resize(columns, rows);
        let mut master = terminal.master.try_clone().unwrap();
        let (drawn, is_closing) = (Arc::clone(&terminal.drawn), Arc::clone(&terminal.is_closing));
        terminal.reader = Some(std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !is_closing.load(Ordering::Relaxed) {
                let a_while = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                if poll(&mut [PollFd::new(&master, PollFlags::IN)], Some(&a_while)) == Ok(0) {
                    continue;
                }
                let Ok(length @ 1..) = master.read(&mut buffer) else { break };
                let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
                drawn.bytes.extend(&buffer[..length]);
            }
        }));
        terminal
    }

    /// Makes it the terminal of a command.
    pub(crate) fn attach(&self, command: &mut Command) {
        let stdio = || Stdio::from(self.slave.try_clone().unwrap());
        command.stdin(stdio()).stdout(stdio()).env("TERM", "xterm-256color");
    }

    /// Makes it the terminal of a command, also for what that says on standard error.
    pub(crate) fn attach_all(&self, command: &mut Command) {
        self.attach(command);
        command.stderr(Stdio::from(self.slave.try_clone().unwrap()));
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
    }

    /// Stops the output, as Ctrl-S does.
    pub(crate) fn stop_output(&self) {
        tcflow(&self.slave, Action::OOff).unwrap();
    }

    /// Does what a shell does with the terminal of a program that was stopped: sets its own modes, and writes.
    pub(crate) fn take_back(&self, modes: &Termios) {
        tcsetattr(&self.slave, OptionalActions::Now, modes).unwrap();
        (&self.slave).write_all(b"\x1b[?1049l\x1b[?25h\x1b[2J$ fg").unwrap();
    }

    /// Presses keys.
    pub(crate) fn press(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    /// Returns what a person would see.
    pub(crate) fn screen(&self) -> String {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).screen().0
    }

    /// Whether the alternate screen is shown, and whether the cursor is hidden.
    pub(crate) fn is_taken(&self) -> (bool, bool) {
        let (_, alternate, hidden) =
            self.drawn.lock().unwrap_or_else(PoisonError::into_inner).screen();
        (alternate, hidden)
    }

    /// Whether a sequence was ever written.
    pub(crate) fn has_received(&self, sequence: &str) -> bool {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&drawn.bytes).contains(sequence)
    }
}

/// Closes it: its programs get an end of file.
impl Drop for Terminal {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

#[derive(Default)]
struct Drawn {
    bytes: Vec<u8>,
}

/// Larger than every screen of the tests.
const ROWS: usize = 100;
const COLUMNS: usize = 300;

impl Drawn {
    /// Interprets the sequences that `toroni top` uses.
    fn screen(&self) -> (String, bool, bool) {
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        let mut cells = vec![vec![' '; COLUMNS]; ROWS];
        let (mut row, mut column) = (0, 0);
        let (mut alternate, mut hidden) = (false, false);
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let Some(end) = sequence.find(|c: char| c.is_ascii_alphabetic()) else { break };
                let (parameters, after) = sequence.split_at(end);
                let numbers: Vec<usize> =
                    parameters.split(';').filter_map(|one| one.parse().ok()).collect();
                match (&after[..1], parameters) {
                    ("H", _) => {
                        row = numbers.first().copied().unwrap_or(1) - 1;
                        column = numbers.get(1).copied().unwrap_or(1) - 1;
                    }
                    ("J", _) => cells.iter_mut().flatten().for_each(|cell| *cell = ' '),
                    ("h" | "l", "?1049") => alternate = after.starts_with('h'),
                    ("h" | "l", "?25") => hidden = after.starts_with('l'),
                    ("m", _) => {}
                    (other, parameters) => panic!("unknown sequence {parameters:?} {other:?}"),
                }
                rest = &after[1..];
                continue;
            }
            match c {
                '\r' => column = 0,
                '\n' => row += 1,
                _ => {
                    if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                        *cell = c;
                    }
                    column += 1;
                }
            }
            rest = &rest[c.len_utf8()..];
        }
        let lines = cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
        let text = lines.collect::<Vec<_>>().join("\n");
        (text.trim_end().to_owned(), alternate, hidden)
    }
}
