//! DATA: messages, from the server to a client.
//!
//! ```text
//!  byte 16                24                32       34             40
//!       +-----------------+-----------------+--------+--------------+--------+
//!       | sent_ns (u64)   | number (u64)    | chunks | 0            | chunks |
//!       |                 |                 | u16 ≥ 1| 6 bytes      |        |
//!       +-----------------+-----------------+--------+--------------+--------+
//!
//!  sent_ns  CLOCK_REALTIME when the frame was made
//!  number   the number of the first message that starts here; if none does, or LOST comes before it,
//!           what comes has this number or a greater one
//! ```
//!
//! Chunks are those of a [datagram](crate::wire::chunk). The parts of a long message have frames of
//! their own, and no other DATA comes between them.

use super::super::chunk::Chunk;
use super::super::cursor::{NoRoom, Reader, Writer};
use super::super::data::{Chunks, DataWriter, Run};
use super::super::mac::MAC_BYTES;
use super::{Flags, HEADER_BYTES, Header, Kind, Reject, Seal, close};
use crate::id::{MessageNumber, Number};
use crate::time::Wall;

/// The place of the first chunk in a frame, in bytes.
pub const CHUNKS_AT: usize = 40;

/// The messages of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameData<'a> {
    /// When the frame was made.
    pub sent: Wall,
    /// The number of the first message that starts here, or less.
    pub number: Number,
    run: Run<'a>,
}

impl<'a> FrameData<'a> {
    pub(super) fn parse(
        bytes: &'a [u8],
        header: &Header,
        message_max: u32,
    ) -> Result<Self, Reject> {
        let data = Self::fields(bytes, header.message, header.flags.has(Flags::FEED))?;
        data.run.check(message_max)?;
        Ok(data)
    }

    /// Views a frame that this crate made.
    pub(crate) fn reopen(frame: &'a [u8], signed: bool) -> Option<Self> {
        let (header, body) = frame.split_first_chunk::<HEADER_BYTES>()?;
        let body = body.get(..body.len().checked_sub(if signed { MAC_BYTES } else { 0 })?)?;
        let (_, message) = header.split_last_chunk::<8>()?;
        let message = MessageNumber::new(u64::from_le_bytes(*message))?;
        Self::fields(body, message, Flags(header[super::FLAGS_AT]).has(Flags::FEED)).ok()
    }

    fn fields(bytes: &'a [u8], message: MessageNumber, feed: bool) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let sent = Wall::from_ns(reader.u64()?);
        let number = Number::new(reader.u64()?).ok_or(Reject::Number)?;
        let count = reader.u16()?;
        reader.zeros::<6>()?;
        if count == 0 {
            return Err(Reject::Count);
        }
        let run = Run { message, number, count, feed, bytes: reader.rest() };
        Ok(Self { sent, number, run })
    }

    /// Returns the chunks in order, each with the number of its message.
    pub fn chunks(&self) -> Chunks<'a> {
        self.run.chunks()
    }
}

/// Builds a DATA frame in a buffer, chunk by chunk. The buffer is given to each call.
#[derive(Debug, Clone, Copy)]
pub struct FrameWriter(DataWriter);

impl FrameWriter {
    /// Begins a frame. `message` is the number of the next message that starts. No later message has a
    /// number below `number`.
    #[must_use]
    pub const fn new(message: MessageNumber, number: Number) -> Self {
        Self(DataWriter::after(CHUNKS_AT, message, number))
    }

    /// Adds a chunk, as [`DataWriter::push`] does.
    ///
    /// # Errors
    ///
    /// If the chunk does not fit before the end of `buffer`, from which the caller has cut off what
    /// the MAC needs. Then the frame is as before.
    pub fn push(&mut self, chunk: &Chunk<'_>, buffer: &mut [u8]) -> Result<(), NoRoom> {
        self.0.push(chunk, buffer)
    }

    /// Returns whether there is no chunk yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number that the frame states.
    #[must_use]
    pub const fn number(&self) -> Number {
        self.0.number()
    }

    /// Returns the number of the next message that starts.
    #[must_use]
    pub const fn next_message(&self) -> MessageNumber {
        self.0.next_message()
    }

    /// Returns the length of the frame so far, without a MAC.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.0.length()
    }

    /// Completes the frame, whose chunks are in `buffer`, and returns its length.
    ///
    /// # Errors
    ///
    /// If the buffer has no room for the MAC, or there is no chunk.
    pub fn finish(
        &self,
        stream: u16,
        flags: Flags,
        sent: Wall,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        if self.is_empty() {
            return Err(NoRoom);
        }
        let (count, message) = self.0.counts();
        let mut writer = Writer::new(buffer.get_mut(HEADER_BYTES..).ok_or(NoRoom)?);
        writer.u64(sent.ns())?;
        writer.u64(self.number().get())?;
        writer.u16(count)?;
        writer.bytes(&[0; 6])?;
        close(&Header { kind: Kind::Data, flags, stream, message }, seal, buffer, self.0.length())
    }
}
