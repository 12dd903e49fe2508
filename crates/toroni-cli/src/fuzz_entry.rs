//! Entry points for the fuzz harness: parts of the program that take arbitrary input, without starting a process.

use crate::cli::{Cli, definitions};
use crate::commands::publish::source::{Lines, Next, Source};
use crate::commands::subscribe::options::Format;
use crate::commands::subscribe::printer::{Printer, Style};
use crate::exchange::{self, Entry};
use crate::output::Output;
use crate::stop::Stop;
use crate::{human, output};
use clap::{FromArgMatches, ValueEnum};
use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use toroni::Message;

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

/// Prints a message to a file, as `toroni sub` does with this `--format`.
///
/// # Errors
/// Returns the text of the error that `toroni sub` would report.
pub fn print(
    message: &Message<'_>,
    format: &str,
    payload_only: bool,
    into: File,
) -> Result<(), String> {
    let format = Format::from_str(format, false)?;
    let style = Style::Format { format, payload_only };
    let mut printer = Printer::new(Output::to(into), style, b'\n');
    let said = |failure: crate::failure::Failure| failure.report().1.unwrap_or_default();
    printer.print(&message.into()).map_err(said)?;
    printer.output.flush().map_err(said)
}

/// Parses a line as `toroni pub --json` does. Returns the topic, whether the message goes to descendants, and the
/// payload, or `None` for a loss.
///
/// # Errors
/// Returns the text of the error that `toroni pub` would report.
pub fn read_json(line: &[u8]) -> Result<Option<(String, bool, Vec<u8>)>, String> {
    Ok(match exchange::read(line)? {
        Entry::Message { topic, to_descendants, payload } => Some((topic, to_descendants, payload)),
        Entry::Lapse(_) | Entry::LostOnTheWay { .. } => None,
    })
}

/// Reads a recording to its end, or to what is wrong with it. Returns how many messages and losses it has, and the
/// most bytes of memory that one of its chunks took.
#[cfg(feature = "record")]
#[must_use]
pub fn recording(bytes: &[u8], with_origins: bool) -> (u64, usize) {
    use crate::recording::reader::Reader;
    let (mut items, mut most) = (0, 0);
    let input = std::io::Cursor::new(bytes);
    let Ok(mut reader) = Reader::open(input, bytes.len() as u64, with_origins) else {
        return (items, most);
    };
    for start in [None, Some(1_000)] {
        if start.is_some_and(|time| reader.rewind().and_then(|()| reader.seek_time(time)).is_err())
        {
            break;
        }
        loop {
            let loaded = reader.load();
            most = most.max(reader.chunk_capacity());
            if !matches!(loaded, Ok(true)) {
                break;
            }
            while let Ok(Some(item)) = reader.next() {
                items += 1;
                assert!(reader.payload(&item).len() <= reader.chunk_capacity());
                assert!(reader.channel_of(item.channel).is_some(), "a message has a channel");
                if item.is_loss {
                    let _ = reader.loss(&item);
                }
            }
        }
        assert!(reader.whole_until <= bytes.len() as u64);
    }
    (items, most)
}

/// Parses a size in bytes, and prints it again.
#[must_use]
pub fn bytes(text: &str) -> Option<(u64, String)> {
    let count = human::parse_bytes(text).ok()?;
    Some((count, human::bytes(count)))
}

/// Escapes a name for a terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    output::printable(text)
}
