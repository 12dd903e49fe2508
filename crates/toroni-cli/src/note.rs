//! Standard error: failures, losses and what `--verbose` adds, with colour where a person reads it.

use crate::output::printable;
use clap::ColorChoice;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// The choice of `--color`, for the whole process.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// What a text is about, and so its colour.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Failure,
    Loss,
}

/// Sets what `--color` asks for. Without it, terminals get colour and files do not.
pub(crate) fn choose(choice: ColorChoice) {
    // Set once, by `main`.
    let _ = CHOICE.set(choice);
}

/// What `--color` asks for, before the command line is parsed: clap prints its errors in colour, too.
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

/// Says why the command failed.
pub(crate) fn failure(text: &str) {
    say(&painted("toroni:", Kind::Failure, io::stderr().is_terminal()), text);
}

/// Reports lost messages.
pub(crate) fn loss(text: &str) {
    say(&painted("toroni:", Kind::Loss, io::stderr().is_terminal()), text);
}

/// Says what is neither: what a command waits for, what it made, and what `--verbose` adds.
pub(crate) fn remark(text: &str) {
    say("toroni:", &printable(text));
}

/// The text in the colour of its kind, if colour is wanted on an output that is a `terminal` or not.
pub(crate) fn painted(text: &str, kind: Kind, terminal: bool) -> String {
    let wanted = match CHOICE.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        _ => terminal && !is_refused(),
    };
    if !wanted {
        return text.to_owned();
    }
    let code = match kind {
        Kind::Failure => "1;31",
        Kind::Loss => "1;33",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// See <https://no-color.org>: any value but an empty one.
fn is_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

fn say(prefix: &str, text: &str) {
    // There is nobody to tell if standard error is closed.
    let _ = writeln!(io::stderr(), "{prefix} {text}");
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
