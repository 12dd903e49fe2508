//! Messages in a stream of bytes: each is its length in 4 bytes, then its bytes.

use crate::Failure;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const LENGTH_BYTES: usize = 4;
/// Bytes that are sent with one call, unless a single message is longer.
const OUT_BYTES: usize = 64 << 10;
/// Bytes that are read with one call, unless a single message is longer.
const IN_BYTES: usize = 256 << 10;

/// Frames to be sent.
pub(super) struct Outgoing {
    bytes: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(longest: usize) -> Self {
        Self { bytes: Vec::with_capacity(OUT_BYTES.max(longest + LENGTH_BYTES)) }
    }

    /// Returns whether a message of this length fits after those that it holds. Any message fits into an empty buffer.
    pub(super) fn has_space_for(&self, length: usize) -> bool {
        self.bytes.is_empty() || self.bytes.len() + LENGTH_BYTES + length <= OUT_BYTES
    }

    #[inline]
    pub(super) fn push(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.push_length(payload.len())?;
        self.bytes.extend_from_slice(payload);
        Ok(())
    }

    /// Adds a message of zeros, and returns its bytes.
    pub(super) fn push_empty(&mut self, length: usize) -> Result<&mut [u8], Failure> {
        self.push_length(length)?;
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        Ok(&mut self.bytes[start..])
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    #[inline]
    fn push_length(&mut self, length: usize) -> Result<(), Failure> {
        let length = u32::try_from(length).map_err(Failure::of("send a message of that length"))?;
        self.bytes.extend_from_slice(&length.to_le_bytes());
        Ok(())
    }
}

/// Bytes that have come, up to the middle of a frame.
pub(super) struct Incoming {
    buffer: Vec<u8>,
    /// Number of bytes that have come and are not passed on. Between two reads they are at the front.
    filled: usize,
}

impl Incoming {
    pub(super) fn new(longest: usize) -> Self {
        // Twice, so that the rest of a long frame leaves space for the next one.
        Self { buffer: vec![0; IN_BYTES.max(2 * (longest + LENGTH_BYTES))], filled: 0 }
    }

    /// Reads once, and passes on the complete messages. Returns their number; 0 means that there is nothing to read, or only
    /// a part of a message.
    #[inline]
    pub(super) fn read(
        &mut self,
        stream: &OwnedFd,
        each: &mut impl FnMut(&[u8]),
    ) -> Result<usize, Failure> {
        match rustix::io::read(stream, &mut self.buffer[self.filled..]) {
            // The other end was told to end, and its last message was passed on before.
            Ok(0) => return Err(Failure::new("the other end has closed its stream")),
            Ok(read) => self.filled += read,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(error) => return Err(Failure::of("read")(error)),
        }
        let (mut start, mut count) = (0, 0);
        while let Some(length) = self.buffer[start..self.filled].first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_le_bytes(*length) as usize;
            let body = start + LENGTH_BYTES;
            if self.filled - body < length {
                if length + LENGTH_BYTES > self.buffer.len() {
                    return Err(Failure::new(format!("a message of {length} bytes is too long")));
                }
                break;
            }
            each(&self.buffer[body..body + length]);
            start = body + length;
            count += 1;
        }
        if start > 0 {
            self.buffer.copy_within(start..self.filled, 0);
            self.filled -= start;
        }
        Ok(count)
    }
}
