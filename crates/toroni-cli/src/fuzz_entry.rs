//! Entry points for the fuzz harness: parts of the program that take arbitrary input, without starting a process.

use crate::cli::{Cli, definitions};
use crate::commands::publish::source::{Lines, Next, Source};
use clap::FromArgMatches;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use toroni_shell::stop::Stop;

/// Parses arguments, without the program's name.
///
/// # Errors
/// Returns the exit code and the text of clap's error.
pub fn arguments(arguments: &[OsString]) -> Result<(), (i32, String)> {
    let all = std::iter::once(OsString::from("toroni")).chain(arguments.iter().cloned());
    let said = |error: clap::Error| (error.exit_code(), error.render().to_string());
    let matches = definitions().try_get_matches_from(all).map_err(said)?;
    Cli::from_arg_matches(&matches).map(drop).map_err(said)
}

/// How `toroni pub` splits its input into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Lines that end with this byte.
    Lines(u8),
    /// The whole input is one message.
    Whole,
    /// Pieces of this many bytes.
    Chunks(u64),
}

/// Returns the messages that `toroni pub` reads from its input, and the error that ended it, if any. `buffer` is the
/// size of its read buffer, and `limit` the longest message, in bytes.
#[must_use]
pub fn messages(
    input: File,
    way: Way,
    buffer: usize,
    limit: u64,
) -> (Vec<Vec<u8>>, Option<String>) {
    let stop = Stop::never();
    let mut source = match way {
        Way::Lines(end) => {
            Source::Lines(Lines::new(BufReader::with_capacity(buffer, input), end, limit))
        }
        Way::Whole => Source::Whole { input, limit, done: false },
        Way::Chunks(chunk) => {
            Source::Chunks { file: input, name: OsString::from("input"), chunk, total: 0 }
        }
    };
    let (mut messages, mut message) = (Vec::new(), Vec::new());
    loop {
        match source.next(&mut message, &stop) {
            Ok(Next::Message) => messages.push(message.clone()),
            Ok(Next::End | Next::Interrupted) => return (messages, None),
            Err(failure) => {
                return (messages, Some(failure.report().1.unwrap_or_default()));
            }
        }
    }
}
