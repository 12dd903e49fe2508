//! The messages: all of one size, with their number in the first eight bytes and in the last eight.

use serde::{Deserialize, Serialize};

/// Bytes of the smallest message.
pub(crate) const SMALLEST: usize = 8;

/// Bytes of the length in front of each message in a byte stream.
pub(super) const PREFIX: usize = 4;

/// Writes the number of a message at both of its ends.
#[inline]
pub(super) fn stamp(message: &mut [u8], number: u64) {
    let bytes = number.to_le_bytes();
    if let Some(last) = message.last_chunk_mut::<8>() {
        *last = bytes;
    }
    if let Some(first) = message.first_chunk_mut::<8>() {
        *first = bytes;
    }
}

/// What the reader has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Number of messages.
    pub(crate) messages: u64,
    /// Number of messages that were not the next one, or had another size.
    pub(crate) wrong: u64,
}

impl Seen {
    /// Checks a message by the numbers at its ends.
    #[inline]
    pub(super) fn check(&mut self, length: usize, expected: usize, ends: Option<[u64; 2]>) {
        let is_right = length == expected && ends == Some([self.messages; 2]);
        self.messages += 1;
        self.wrong += u64::from(!is_right);
    }
}

/// Returns the numbers at both ends, or `None` if the message is too short.
#[inline]
pub(super) fn ends(message: &[u8]) -> Option<[u64; 2]> {
    let first = message.first_chunk::<8>()?;
    let last = message.last_chunk::<8>()?;
    Some([u64::from_le_bytes(*first), u64::from_le_bytes(*last)])
}

/// Finds messages, each after its length, in a byte stream.
pub(super) struct Parser {
    buffer: Vec<u8>,
    /// The part of the buffer that is filled and not yet parsed.
    start: usize,
    end: usize,
}

impl Parser {
    /// Makes a parser with a buffer of at least `buffer` bytes, and large enough for a message of `longest`.
    pub(super) fn new(buffer: usize, longest: usize) -> Self {
        Self { buffer: vec![0; buffer.max(longest + PREFIX)], start: 0, end: 0 }
    }

    /// Returns the free part of the buffer, to read into. After [`Self::parse`] it is never empty, unless a message is longer
    /// than the buffer.
    pub(super) fn free(&mut self) -> &mut [u8] {
        &mut self.buffer[self.end..]
    }

    /// Passes on the complete messages after `read` bytes were read into [`Self::free`].
    #[inline]
    pub(super) fn parse(&mut self, read: usize, mut each: impl FnMut(&[u8])) {
        self.end += read;
        while let Some(message) = self.next() {
            each(message);
        }
        // The beginning of a message moves to the front, so that the rest of it fits.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    #[inline]
    fn next(&mut self) -> Option<&[u8]> {
        let unread = &self.buffer[self.start..self.end];
        let (length, rest) = unread.split_first_chunk::<PREFIX>()?;
        let message = rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        self.start += PREFIX + message.len();
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_parsed_however_it_is_cut() {
        let mut stream = Vec::new();
        let lengths = [8, 9, 15, 16, 100, 8];
        for (number, length) in (0..).zip(lengths) {
            let mut message = vec![0; length];
            stamp(&mut message, number);
            stream.extend(u32::try_from(length).unwrap().to_le_bytes());
            stream.extend(message);
        }
        for cut in 1..=stream.len() {
            let mut parser = Parser::new(16, 100);
            let mut found = Vec::new();
            let mut unread = &stream[..];
            while !unread.is_empty() {
                let free = parser.free();
                let length = free.len().min(cut).min(unread.len());
                assert!(length > 0, "no space at a cut of {cut}");
                free[..length].copy_from_slice(&unread[..length]);
                unread = &unread[length..];
                parser.parse(length, |message| found.push(message.to_vec()));
            }
            let found_lengths: Vec<usize> = found.iter().map(Vec::len).collect();
            assert_eq!(found_lengths, lengths);
            for (number, message) in (0..).zip(&found).filter(|(_, message)| message.len() >= 16) {
                assert_eq!(ends(message), Some([number; 2]));
            }
        }
    }

    #[test]
    fn what_is_not_the_next_whole_message_is_wrong() {
        let mut seen = Seen::default();
        let mut message = [0; 20];
        stamp(&mut message, 0);
        seen.check(20, 20, ends(&message));
        assert_eq!(seen, Seen { messages: 1, wrong: 0 });
        seen.check(20, 20, ends(&message));
        stamp(&mut message, 2);
        seen.check(20, 21, ends(&message));
        message[19] ^= 1;
        stamp(&mut message[..8], 3);
        seen.check(20, 20, ends(&message));
        seen.check(7, 7, ends(&message[..7]));
        assert_eq!(seen, Seen { messages: 5, wrong: 4 });
    }
}
