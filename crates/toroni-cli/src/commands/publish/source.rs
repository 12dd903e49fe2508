//! The sources of the messages of `toroni pub`.

use super::as_u64;
use super::options::Publish;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use toroni_shell::failure::Failure;
use toroni_shell::stop::Stop;

const INPUT_BUFFER_BYTES: usize = 128 << 10;

/// The result of [`Source::next`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Message,
    /// There are no more messages.
    End,
    /// A signal came first.
    Interrupted,
}

/// An iterator over messages.
pub(crate) enum Source {
    /// The same message, `left` times.
    Repeated { message: Vec<u8>, total: u64, left: u64 },
    /// `size` bytes that start with a counter.
    Generated { size: usize, total: u64, next: u64 },
    /// Lines of standard input.
    Lines(Lines),
    /// All of standard input.
    Whole { input: File, limit: u64, done: bool },
    /// Pieces of a file.
    Chunks { file: File, name: OsString, chunk: u64, total: u64 },
}

impl Source {
    /// Returns the source for the arguments. `limit` is the longest message of the bus, in bytes.
    pub(crate) fn new(arguments: &Publish, limit: u64) -> Result<Self, Failure> {
        let total = arguments.repeat.unwrap_or(1);
        if let Some(message) = &arguments.message {
            return Ok(Self::Repeated { message: message.clone().into_vec(), total, left: total });
        }
        if let Some(size) = arguments.size {
            check_length("--size", size, limit)?;
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            return Ok(Self::Generated { size, total, next: 0 });
        }
        if arguments.raw {
            return Ok(Self::Whole { input: standard_input()?, limit, done: false });
        }
        let Some(path) = &arguments.file else {
            let end = if arguments.null { 0 } else { b'\n' };
            return Ok(Self::Lines(Lines::of_standard_input(end, limit)?));
        };
        if arguments.chunk == 0 {
            return Err(Failure::Usage("--chunk must be at least 1 byte".to_owned()));
        }
        check_length("--chunk", arguments.chunk, limit)?;
        let failed = |error| Failure::Failed(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(failed)?;
        // A pipe has the length 0; then there is no progress bar.
        let total = file.metadata().map_err(failed)?.len().div_ceil(arguments.chunk);
        Ok(Self::Chunks { file, name: path.clone().into(), chunk: arguments.chunk, total })
    }

    /// Reads the next message into `into`, whose content it replaces.
    pub(crate) fn next(&mut self, into: &mut Vec<u8>, stop: &Stop) -> Result<Next, Failure> {
        into.clear();
        if stop.is_set() {
            return Ok(Next::Interrupted);
        }
        match self {
            Self::Repeated { left: 0, .. } => Ok(Next::End),
            Self::Repeated { message, left, .. } => {
                *left -= 1;
                into.extend_from_slice(message);
                Ok(Next::Message)
            }
            Self::Generated { total, next, .. } if next == total => Ok(Next::End),
            Self::Generated { size, next, .. } => {
                generate(*next, *size, into);
                *next += 1;
                Ok(Next::Message)
            }
            Self::Lines(lines) => lines.next(into, stop),
            Self::Whole { done: true, .. } => Ok(Next::End),
            Self::Whole { input, limit, done } => {
                *done = true;
                read_all(input, *limit, into, stop)
            }
            Self::Chunks { file, name, chunk, .. } => {
                let read = file.take(*chunk).read_to_end(into).map_err(|error| {
                    Failure::Failed(format!("cannot read {}: {error}", name.display()))
                })?;
                Ok(if read > 0 { Next::Message } else { Next::End })
            }
        }
    }

    /// Returns the number of messages, if it is known in advance.
    pub(crate) fn total_messages(&self) -> Option<u64> {
        match self {
            Self::Repeated { total, .. } | Self::Generated { total, .. } => Some(*total),
            Self::Chunks { total, .. } => Some(*total).filter(|total| *total > 0),
            Self::Lines(_) | Self::Whole { .. } => None,
        }
    }

    /// Whether a signal is the usual way to end the source.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Self::Lines(lines) if lines.is_endless())
    }
}

/// Splits the input after each `end` byte, which is not part of a piece.
pub(crate) struct Lines {
    input: BufReader<File>,
    end: u8,
    /// The longest piece, in bytes.
    limit: u64,
}

impl Lines {
    pub(crate) fn new(input: BufReader<File>, end: u8, limit: u64) -> Self {
        Self { input, end, limit }
    }

    pub(crate) fn of_standard_input(end: u8, limit: u64) -> Result<Self, Failure> {
        let input = BufReader::with_capacity(INPUT_BUFFER_BYTES, standard_input()?);
        Ok(Self::new(input, end, limit))
    }

    /// Whether a signal is the usual way to end the input. A regular file ends by itself; a terminal or a pipe may not.
    pub(crate) fn is_endless(&self) -> bool {
        !self.input.get_ref().metadata().is_ok_and(|metadata| metadata.is_file())
    }

    /// Appends the next piece to `into`.
    pub(crate) fn next(&mut self, into: &mut Vec<u8>, stop: &Stop) -> Result<Next, Failure> {
        let Self { input, end, limit } = self;
        let limit_bytes = usize::try_from(*limit).unwrap_or(usize::MAX);
        // One byte more than fits: the longest line that fits may be followed by its line feed.
        let most = limit_bytes.saturating_add(1);
        loop {
            if stop.is_set()
                || (input.buffer().is_empty()
                    && !stop.wait_readable(input.get_ref().as_fd()).map_err(of_input)?)
            {
                // After a signal in the middle of a line, its first part is not a message.
                return Ok(Next::Interrupted);
            }
            let available = match input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(of_input(error)),
            };
            if available.is_empty() {
                // The last line may lack its line feed.
                return Ok(if into.is_empty() { Next::End } else { Next::Message });
            }
            let length = available.len().min(most - into.len());
            let found = available[..length].iter().position(|byte| byte == end);
            into.extend_from_slice(&available[..found.unwrap_or(length)]);
            input.consume(found.map_or(length, |index| index + 1));
            if into.len() > limit_bytes {
                return Err(Failure::Failed(too_long("a line", *limit)));
            }
            if found.is_some() {
                return Ok(Next::Message);
            }
        }
    }
}

/// Opens descriptor 0 without the buffer of `io::stdin()`: `poll` does not see bytes in that buffer.
fn standard_input() -> Result<File, Failure> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned().map_err(of_input)?))
}

fn check_length(option: &str, length: u64, limit: u64) -> Result<(), Failure> {
    if length <= limit {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{option} {length}: a message on this bus has at most {limit} bytes; create a bus with a larger --capacity"
    )))
}

/// Writes the number in decimal digits, a space, and letters, cut at `size`.
fn generate(number: u64, size: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(number.to_string().as_bytes());
    into.push(b' ');
    into.truncate(size);
    into.extend((b'a'..=b'z').cycle().take(size - into.len()));
}

fn read_all(input: &File, limit: u64, into: &mut Vec<u8>, stop: &Stop) -> Result<Next, Failure> {
    // Read one byte more than fits, to notice that the input is too long.
    Stoppable { input, stop }.take(limit.saturating_add(1)).read_to_end(into).map_err(of_input)?;
    if as_u64(into.len()) > limit {
        return Err(Failure::Failed(too_long("the input", limit)));
    }
    // After a signal, the input is incomplete and not a message.
    Ok(if stop.is_set() { Next::Interrupted } else { Next::Message })
}

/// Reading stops at the limit, so the whole length is not known.
pub(super) fn too_long(what: &str, limit: u64) -> String {
    format!(
        "{what} is too long (more than {limit} bytes): split it, or create a bus with a larger --capacity"
    )
}

fn of_input(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot read standard input: {error}"))
}

/// A reader that reports the end of the input after a signal.
struct Stoppable<'a> {
    input: &'a File,
    stop: &'a Stop,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.stop.wait_readable(self.input.as_fd())? { self.input.read(into) } else { Ok(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_messages_start_with_their_number() {
        let mut message = Vec::new();
        generate(17, 8, &mut message);
        assert_eq!(message, b"17 abcde");
        message.clear();
        generate(1234, 2, &mut message);
        assert_eq!(message, b"12");
        message.clear();
        generate(5, 0, &mut message);
        assert!(message.is_empty());
    }
}
