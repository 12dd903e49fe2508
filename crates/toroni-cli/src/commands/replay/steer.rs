//! Keys and the line with the progress, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

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

/// Standard input as a keyboard. When dropped, the terminal is as it was.
pub(super) struct Keyboard {
    before: Termios,
}

impl Keyboard {
    /// Returns `None` if standard input is no terminal.
    pub(super) fn open() -> Option<Self> {
        let input = std::io::stdin();
        if !input.is_terminal() || !std::io::stderr().is_terminal() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut raw = before.clone();
        // Keys come at once and are not shown. Ctrl-C stays a signal.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&input, OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }

    /// Returns a key that was pressed. Waits for it at most for `wait`.
    pub(super) fn key(&self, wait: Duration) -> Option<Key> {
        let input = std::io::stdin();
        let wait = Timespec::try_from(wait).ok()?;
        poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait)).ok()?;
        let mut bytes = [0; 8];
        let count = rustix::io::read(&input, &mut bytes).ok()?;
        parse(bytes.get(..count)?)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn parse(bytes: &[u8]) -> Option<Key> {
    match bytes {
        [b' ', ..] => Some(Key::Pause),
        b"\x1b[C" | b"\x1bOC" => Some(Key::Step),
        b"\x1b[D" | b"\x1bOD" => Some(Key::Back),
        [b'+' | b'=', ..] => Some(Key::Faster),
        [b'-', ..] => Some(Key::Slower),
        [b'q' | b'Q', ..] => Some(Key::Quit),
        _ => None,
    }
}

/// The line with the progress. It is shown only if standard error is a terminal.
pub(super) struct Line {
    bar: Option<ProgressBar>,
    start: u64,
    shown: Instant,
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
        Self { bar, start, shown: Instant::now() }
    }

    /// Prints a remark above the line.
    pub(super) fn remark(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| toroni_shell::note::remark(text)),
            None => toroni_shell::note::remark(text),
        }
    }

    /// Shows the time and the topic of a message, now and then.
    pub(super) fn show(&mut self, time: u64, topic: &str, state: &str) {
        let Some(bar) = &self.bar else { return };
        if state.is_empty() && self.shown.elapsed() < SHOW_EVERY {
            return;
        }
        self.shown = Instant::now();
        bar.set_position(time.saturating_sub(self.start));
        let topic = toroni_shell::output::printable(topic);
        bar.set_message(format!("{}  {topic}{state}", toroni_shell::human::rfc3339(time)));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed() {
        assert_eq!(parse(b" "), Some(Key::Pause));
        assert_eq!(parse(b"\x1b[C"), Some(Key::Step));
        assert_eq!(parse(b"\x1b[D"), Some(Key::Back));
        assert_eq!(parse(b"x"), None);
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
