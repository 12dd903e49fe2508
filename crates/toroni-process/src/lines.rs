//! Lines that child processes print, read without blocking.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of the longest line. It bounds what this process keeps of a child that never ends its line.
pub const LONGEST_LINE: usize = 64 << 20;

/// What the end of a pipe has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its line feed. The last one of a pipe may have had none.
    Text(Vec<u8>),
    /// All writers have closed the pipe.
    End,
    /// Nothing came in time.
    Timeout,
}

/// Reads lines from a pipe.
#[derive(Debug)]
pub struct Lines {
    /// `None` after its end.
    pipe: Option<OwnedFd>,
    whole: VecDeque<Vec<u8>>,
    /// The beginning of a line.
    part: Vec<u8>,
}

impl Lines {
    /// Takes the reading end of a pipe, and makes it non-blocking.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(pipe: impl Into<OwnedFd>) -> io::Result<Self> {
        let pipe = pipe.into();
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self { pipe: Some(pipe), whole: VecDeque::new(), part: Vec::new() })
    }

    /// Returns the pipe for [`wait_readable`]; `None` after its end.
    #[must_use]
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Returns the next line if it is there already. Never waits.
    ///
    /// # Errors
    /// If the pipe fails, or a line is longer than [`LONGEST_LINE`].
    pub fn next_now(&mut self) -> io::Result<Line> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(line) = self.whole.pop_front() {
                return Ok(Line::Text(line));
            }
            let Some(pipe) = &self.pipe else {
                let part = std::mem::take(&mut self.part);
                return Ok(if part.is_empty() { Line::End } else { Line::Text(part) });
            };
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(length) => self.take(&buffer[..length])?,
                Err(Errno::AGAIN) => return Ok(Line::Timeout),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the next line, and waits for it as long as `timeout`.
    ///
    /// # Errors
    /// As [`Self::next_now`].
    pub fn next_within(&mut self, timeout: Duration) -> io::Result<Line> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.next_now()? {
                Line::Timeout => {}
                line => return Ok(line),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Line::Timeout);
            }
            wait_readable(self.pipe(), left)?;
        }
    }

    /// Reads up to the end of the pipe, and returns all bytes that were not read before. A pipe that fails counts as
    /// ended.
    #[must_use]
    pub fn rest(mut self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        for line in self.whole.drain(..) {
            bytes.extend(line);
            bytes.push(b'\n');
        }
        bytes.append(&mut self.part);
        if let Some(pipe) = self.into_pipe() {
            let _ = std::fs::File::from(pipe).read_to_end(&mut bytes);
        }
        bytes
    }

    /// Returns the pipe, blocking again, or `None` after its end. Lines that were read ahead are lost.
    #[must_use]
    pub fn into_pipe(self) -> Option<OwnedFd> {
        let pipe = self.pipe?;
        let flags = fcntl_getfl(&pipe).ok()?;
        fcntl_setfl(&pipe, flags - OFlags::NONBLOCK).ok()?;
        Some(pipe)
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.part.extend_from_slice(&rest[..end]);
            self.whole.push_back(std::mem::take(&mut self.part));
            rest = &rest[end + 1..];
        }
        self.part.extend_from_slice(rest);
        if self.part.len() > LONGEST_LINE {
            let text = format!("a line of more than {LONGEST_LINE} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }
}

/// Waits until one of these pipes can be read or has ended, or the time is over. A signal ends the wait too.
///
/// # Errors
/// If the system refuses.
pub fn wait_readable<'a>(
    pipes: impl IntoIterator<Item = BorrowedFd<'a>>,
    timeout: Duration,
) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    let mut fds: Vec<PollFd<'_>> =
        pipes.into_iter().map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_come_whole_and_the_last_one_needs_no_line_feed() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut lines = Lines::new(reader).unwrap();
        assert_eq!(lines.next_within(Duration::from_millis(1)).unwrap(), Line::Timeout);
        writer.write_all(b"one\n\ntw").unwrap();
        let text = |text: &str| Line::Text(text.into());
        assert_eq!(lines.next_now().unwrap(), text("one"));
        assert_eq!(lines.next_now().unwrap(), text(""));
        assert_eq!(lines.next_now().unwrap(), Line::Timeout);
        writer.write_all(b"o\nend").unwrap();
        assert_eq!(lines.next_within(Duration::from_secs(1)).unwrap(), text("two"));
        drop(writer);
        // A child that another test is just starting has the other end as well, until it runs its own program.
        assert_eq!(lines.next_within(toroni_testkit::wait::LIMIT).unwrap(), text("end"));
        assert!(lines.pipe().is_none());
        assert_eq!(lines.next_now().unwrap(), Line::End);
    }

    #[test]
    fn the_rest_contains_what_was_read_ahead() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut lines = Lines::new(reader).unwrap();
        writer.write_all(b"one\ntwo\nth").unwrap();
        assert_eq!(lines.next_now().unwrap(), Line::Text(b"one".into()));
        writer.write_all(b"ree\n").unwrap();
        drop(writer);
        assert_eq!(lines.rest(), b"two\nthree\n");
    }
}
