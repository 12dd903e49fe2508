//! Packs the messages of a set of patterns into frames.

use crate::id::{MessageNumber, Number};
use crate::time::Monotonic;
use crate::wire::chunk::{CHUNK_HEADER_BYTES, FRAGMENT_BYTES};
use crate::wire::tcp::{CHUNKS_AT, FrameWriter};
use crate::wire::{Chunk, Start};

/// The frame that is being built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) stream: usize,
    pub(super) writer: FrameWriter,
    /// When its first chunk was written.
    pub(super) since: Monotonic,
    /// All messages in it have numbers below this one.
    pub(super) until: Number,
    /// The message number of the first message that starts in it.
    pub(super) message: MessageNumber,
    /// The greatest topic in it, plus 1.
    pub(super) topics_end: u32,
    /// It begins with a further part of a message.
    pub(super) continues: bool,
    /// It ends within a message.
    pub(super) opens: bool,
}

/// The frame of a set that is open, in memory of its own.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) buffer: Box<[u8]>,
    pub(super) open: Option<Open>,
}

/// Frames are built in memory of this length, and chunks must end before the MAC.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) chunks_end: usize,
}

impl Room {
    /// Whether one frame can hold the message.
    pub(super) const fn fits(self, start: &Start, payload: usize) -> bool {
        let chunk = CHUNK_HEADER_BYTES + start.extension_bytes(false) + payload;
        CHUNKS_AT + chunk <= self.chunks_end
    }

    /// How much of a long message fits into its first frame, or into a further one.
    pub(super) const fn of_part(self, first: Option<&Start>) -> usize {
        let extensions = match first {
            Some(start) => start.extension_bytes(false),
            None => 0,
        };
        self.chunks_end - CHUNKS_AT - CHUNK_HEADER_BYTES - FRAGMENT_BYTES - extensions
    }

    /// The part of a long message that begins at `offset`.
    pub(super) fn part(self, start: Start, payload: &[u8], offset: usize) -> Chunk<'_> {
        let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let rest = payload.get(offset..).unwrap_or_default();
        let first = (offset == 0).then_some(&start);
        let part = rest.get(..self.of_part(first)).unwrap_or(rest);
        match first {
            Some(_) => Chunk::First { start, total: length(payload.len()), payload: part },
            None => {
                let (offset, last) = (length(offset), part.len() == rest.len());
                Chunk::Rest { topic: start.topic, offset, last, payload: part }
            }
        }
    }
}

impl Batch {
    pub(super) fn new(bytes: usize) -> Self {
        Self { buffer: vec![0; bytes].into(), open: None }
    }

    /// Adds a chunk to the open frame. Returns `false` if it does not fit.
    pub(super) fn push(&mut self, room: Room, chunk: &Chunk<'_>) -> bool {
        let Some(open) = &mut self.open else { return false };
        let memory = self.buffer.get_mut(..room.chunks_end).unwrap_or_default();
        if open.writer.push(chunk, memory).is_err() {
            return false;
        }
        match chunk {
            Chunk::Message { start, .. } | Chunk::First { start, .. } => {
                open.until = start.number.plus(1);
                open.topics_end = open.topics_end.max(start.topic.get() + 1);
            }
            Chunk::Lost { until, .. } => open.until = *until,
            Chunk::Rest { .. } | Chunk::Topic { .. } => {}
        }
        open.continues |= matches!(chunk, Chunk::Rest { .. });
        open.opens = matches!(chunk, Chunk::First { .. } | Chunk::Rest { last: false, .. });
        true
    }
}
