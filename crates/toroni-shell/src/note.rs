//! Standard error: failures, losses and remarks, in color on a terminal.

use crate::output::printable;
use clap::ColorChoice;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// The choice of `--color`.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// The kind of a text, which determines its color.
#[derive(Clone, Copy)]
pub enum Kind {
    /// An error that ends the command.
    Failure,
    /// Messages were lost.
    Loss,
}

/// Sets the choice of `--color` for the whole process.
pub(crate) fn choose(choice: ColorChoice) {
    // `main` calls this once.
    let _ = CHOICE.set(choice);
}

/// Returns the choice of `--color`.
pub(crate) fn choice() -> ColorChoice {
    CHOICE.get().copied().unwrap_or(ColorChoice::Auto)
}

/// Finds the choice of `--color` before clap parses the command line, because clap also prints its errors in color.
pub(crate) fn choice_in(arguments: impl IntoIterator<Item = OsString>) -> ColorChoice {
    let mut arguments = arguments.into_iter().take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        let value = match argument.to_str() {
            Some("--color") => arguments.next().and_then(|value| value.into_string().ok()),
            Some(text) => text.strip_prefix("--color=").map(str::to_owned),
            None => None,
        };
        if let Some(choice) = value.and_then(|value| value.parse().ok()) {
            return choice;
        }
    }
    ColorChoice::Auto
}

/// Prints why the command failed.
pub fn failure(text: &str) {
    say(&painted("toroni:", Kind::Failure, io::stderr().is_terminal()), text);
}

/// Prints that messages were lost.
pub fn loss(text: &str) {
    say(&painted("toroni:", Kind::Loss, io::stderr().is_terminal()), text);
}

/// Prints other remarks: what a command waits for, what it created, and what `--verbose` adds.
pub fn remark(text: &str) {
    say("toroni:", &printable(text));
}

/// Prints a line as it is, for programs that read it.
pub fn line(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Returns the text in the color of its kind, or unchanged if the output is not to be in color.
pub fn painted(text: &str, kind: Kind, terminal: bool) -> String {
    if !is_colored(terminal) {
        return text.to_owned();
    }
    let code = match kind {
        Kind::Failure => "1;31",
        Kind::Loss => "1;33",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Whether an output is to be in color.
pub fn is_colored(terminal: bool) -> bool {
    match choice() {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => terminal && !is_disabled(),
    }
}

/// Whether the environment disables color. See <https://no-color.org>: NO_COLOR counts unless it is empty.
fn is_disabled() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

fn say(prefix: &str, text: &str) {
    // One write, so that lines of several processes do not mix. If standard error is closed, the text is lost.
    let _ = io::stderr().write_all(format!("{prefix} {text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_found_before_the_end_of_options() {
        let choice = |words: &[&str]| choice_in(words.iter().map(OsString::from));
        assert_eq!(choice(&["sub", "--color", "never"]), ColorChoice::Never);
        assert_eq!(choice(&["--color=always", "sub"]), ColorChoice::Always);
        assert_eq!(choice(&["sub", "--", "--color=always"]), ColorChoice::Auto);
        assert_eq!(choice(&["--color"]), ColorChoice::Auto);
    }
}
