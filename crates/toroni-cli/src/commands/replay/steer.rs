//! Keys and the line with the progress, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use toroni_shell::failure::Failure;
use toroni_shell::suspend::{Suspend, is_foreground};

const TEMPLATE: &str = "{bar:30} {percent:>3} %  {msg}";
const SHOW_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Pause,
    Step,
    Back,
    Faster,
    Slower,
    Quit,
}

/// How often a replay in the background checks whether it has come to the foreground.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// How often a replay without waits looks for keys.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Standard input as a keyboard, while this process is in the foreground. When dropped, the terminal is as it was.
pub(super) struct Keyboard {
    suspend: Suspend,
    /// The modes of the terminal before it was taken. `None` while it is not taken.
    before: Option<Termios>,
    checked: Instant,
    /// When keys were looked for.
    looked: Instant,
    /// What was typed and is not handled yet.
    typed: Vec<u8>,
}

impl Keyboard {
    /// Whether there is a terminal with keys, and one that shows what they do.
    pub(super) fn is_there() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Returns `None` if there is no terminal.
    pub(super) fn open() -> Result<Option<Self>, Failure> {
        if !Self::is_there() {
            return Ok(None);
        }
        let now = Instant::now();
        let suspend = Suspend::install()?;
        let mut keyboard =
            Self { suspend, before: None, checked: now, looked: now, typed: Vec::new() };
        keyboard.before = keyboard.take();
        Ok(Some(keyboard))
    }

    /// Sets the modes of the terminal. Returns those before, or `None` in the background, where that would stop the process.
    fn take(&mut self) -> Option<Termios> {
        self.checked = Instant::now();
        let input = std::io::stdin();
        if !is_foreground(&input) {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut raw = before.clone();
        // Keys come at once and are not shown. Ctrl-C stays a signal.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&input, OptionalActions::Now, &raw).ok()?;
        Some(before)
    }

    fn give_back(&mut self) {
        // In the background, the modes are those of a shell. If the terminal is gone, there is nothing to restore.
        if let Some(before) = self.before.take()
            && is_foreground(std::io::stdin())
        {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
        }
    }

    /// Whether the process is to be stopped: then call [`Self::stop`].
    pub(super) fn wants_stop(&self) -> bool {
        self.suspend.is_wanted()
    }

    /// Gives the terminal back, and stops the process until it is continued.
    pub(super) fn stop(&mut self) {
        self.give_back();
        self.suspend.stop();
    }

    /// Takes the terminal if this process has come to the foreground, or was continued there.
    fn renew(&mut self) {
        if self.suspend.has_continued() {
            let found = self.take();
            // If it was stopped without a chance to give the terminal back, what it finds may be its own modes.
            self.before = found.map(|found| self.before.take().unwrap_or(found));
        } else if self.before.is_none() && self.checked.elapsed() >= CHECK_EVERY {
            self.before = self.take();
        }
    }

    /// Whether it is time to look for keys. Each look takes system calls, which a replay without waits would feel.
    pub(super) fn is_due(&self) -> bool {
        self.looked.elapsed() >= LOOK_EVERY
    }

    /// Returns a key that was pressed. Waits for it at most for `wait`.
    pub(super) fn key(&mut self, wait: Duration) -> Option<Key> {
        self.looked = Instant::now();
        self.renew();
        if let Some(key) = next(&mut self.typed) {
            return Some(key);
        }
        let input = std::io::stdin();
        // Not in the background, where reading would stop the process.
        if self.before.is_none() || !is_foreground(&input) {
            std::thread::sleep(wait);
            return None;
        }
        let wait = Timespec::try_from(wait).ok()?;
        // Where there is nothing to read, a read would wait if another process has set the modes.
        if poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait)).ok()? == 0 {
            return None;
        }
        let mut bytes = [0; 64];
        let count = rustix::io::read(&input, &mut bytes).ok()?;
        self.typed.extend_from_slice(bytes.get(..count)?);
        next(&mut self.typed)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Takes the first key from what was typed. What is no key is dropped.
fn next(typed: &mut Vec<u8>) -> Option<Key> {
    while !typed.is_empty() {
        let (key, length) = parse(typed);
        typed.drain(..length);
        if key.is_some() {
            return key;
        }
    }
    None
}

/// Returns the key that bytes begin with, if it is one, and its length.
fn parse(bytes: &[u8]) -> (Option<Key>, usize) {
    let (key, length) = match bytes {
        [b' ', ..] => (Key::Pause, 1),
        [0x1b, b'[' | b'O', b'C', ..] => (Key::Step, 3),
        [0x1b, b'[' | b'O', b'D', ..] => (Key::Back, 3),
        [b'+' | b'=', ..] => (Key::Faster, 1),
        [b'-', ..] => (Key::Slower, 1),
        [b'q' | b'Q', ..] => (Key::Quit, 1),
        // Other keys of a terminal begin with an escape and end with a letter or `~`.
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| byte.is_ascii_alphabetic() || *byte == b'~');
            return (None, end.map_or(bytes.len(), |end| end.saturating_add(3)));
        }
        _ => return (None, 1),
    };
    (Some(key), length)
}

/// The line with the progress. It is shown only if standard error is a terminal.
pub(super) struct Line {
    bar: Option<ProgressBar>,
    start: u64,
    shown: Instant,
    /// The message that was played last.
    time: u64,
    topic: String,
}

impl Line {
    pub(super) fn new(start: u64, end: u64, quiet: bool) -> Self {
        let wanted = !quiet && std::io::stderr().is_terminal();
        let bar = wanted.then(|| {
            let bar = ProgressBar::with_draw_target(
                Some(end.saturating_sub(start)),
                ProgressDrawTarget::stderr(),
            );
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, start, shown: Instant::now(), time: start, topic: String::new() }
    }

    /// Whether the line is shown: standard error is a terminal, and no shell uses it now.
    fn bar(&self) -> Option<&ProgressBar> {
        self.bar.as_ref().filter(|_| is_foreground(std::io::stderr()))
    }

    /// Prints a remark above the line.
    pub(super) fn remark(&self, text: &str) {
        match self.bar() {
            Some(bar) => bar.suspend(|| toroni_shell::note::remark(text)),
            None => toroni_shell::note::remark(text),
        }
    }

    /// Shows the time and the topic of a message, now and then.
    pub(super) fn show(&mut self, time: u64, topic: &str) {
        self.time = time;
        if self.bar.is_some() && self.shown.elapsed() >= SHOW_EVERY {
            self.topic = toroni_shell::output::printable(topic);
            self.draw(time, "");
        }
    }

    /// Shows what a key has changed, and the time that is played.
    pub(super) fn show_state(&mut self, time: u64, state: &str) {
        if self.bar.is_some() {
            self.draw(time, state);
        }
    }

    /// Shows during a silence, now and then, how many nanoseconds have passed since the last message.
    pub(super) fn pass(&mut self, silence: u64) {
        if self.bar.is_some() && self.shown.elapsed() >= SHOW_EVERY {
            self.draw(self.time.saturating_add(silence), "");
        }
    }

    /// Removes the line until it is shown again.
    pub(super) fn clear(&self) {
        if self.bar().is_some() {
            // A terminal that is gone shows nothing.
            let _ = std::io::stderr().write_all(b"\r\x1b[2K");
        }
    }

    fn draw(&mut self, time: u64, state: &str) {
        self.shown = Instant::now();
        let Some(bar) = self.bar() else { return };
        bar.set_position(time.saturating_sub(self.start));
        let time = toroni_shell::human::rfc3339(time);
        bar.set_message(format!("{time}  {}{state}", self.topic));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = self.bar() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_counts_that_was_typed() {
        let mut typed = b" x\x1b[C\x1bOC\x1b[5~+\x1b[1;5D=\x1b[D-\x1b[Aq".to_vec();
        for expected in [
            Key::Pause,
            Key::Step,
            Key::Step,
            Key::Faster,
            Key::Faster,
            Key::Back,
            Key::Slower,
            Key::Quit,
        ] {
            assert_eq!(next(&mut typed), Some(expected));
        }
        for rest in [&b"\x1b"[..], b"\x1b[", b"\x1b[1;", b"xyz", b""] {
            assert_eq!(next(&mut rest.to_vec()), None);
        }
    }

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
