//! From messages to the frames of a set.

use super::super::batch::Open;
use super::super::frames::{About, Handle};
use super::slot::State;
use super::{Held, Server};
use crate::batcher::Now;
use crate::config::tcp::Pace;
use crate::hook::mutant;
use crate::id::Number;
use crate::time::Monotonic;
use crate::wire::tcp::{Context, Flags, FrameWriter, Seal};
use crate::wire::{Chunk, LostReason, MAC_BYTES, Start};

/// What a frame needs besides the payload, at most.
const FRAME_OVERHEAD_BYTES: usize = 128;

impl Server {
    /// Adds a message of a stream to the frames of a set of patterns that it matches. The caller does so
    /// for each such set, and then calls [`Self::taken`]. Numbers grow from message to message. A message
    /// that is too long for the server, or for the clients of the set, is reported as lost.
    ///
    /// # Errors
    ///
    /// If a client holds the server. Then nothing happened, and the caller calls again with the same
    /// message and set when something was written. Until then, the sets that have the message keep their
    /// patterns.
    pub fn message(
        &mut self,
        now: Now,
        stream: usize,
        set: usize,
        start: Start,
        payload: &[u8],
    ) -> Result<(), Held> {
        if self.is_too_long(set, payload) {
            return self.lost(now, stream, set, 1, start.number.plus(1), LostReason::TooLong);
        }
        if self.sets[set].members.is_none() {
            self.pass(stream, set, start.number.plus(1));
            return Ok(());
        }
        let parts = payload.len() / self.room.of_part(Some(&start)) + 1;
        self.admit(now.monotonic, set, payload.len(), parts)?;
        if self.room.fits(&start, payload.len()) {
            self.chunk(now, stream, set, &Chunk::Message { start, payload });
            return Ok(());
        }
        let mut offset = 0;
        while offset < payload.len() {
            // The parts of a message have frames of their own, so that they can be left out together.
            self.close_batch(now, set);
            let chunk = self.room.part(start, payload, offset);
            let (Chunk::First { payload: part, .. } | Chunk::Rest { payload: part, .. }) = chunk
            else {
                break;
            };
            offset += part.len();
            self.chunk(now, stream, set, &chunk);
        }
        self.close_batch(now, set);
        Ok(())
    }

    /// Whether the clients of a set do not take a message.
    pub(super) fn is_too_long(&self, set: usize, payload: &[u8]) -> bool {
        let most = self.sets[set].message_max_bytes;
        let most = if mutant("message_max_ignored") { self.config.message_max_bytes } else { most };
        payload.len() as u64 > most
    }

    /// Reports messages that the source itself missed, at least one, to a set of patterns. Their numbers
    /// are below `until`, and those of all later messages are not.
    ///
    /// # Errors
    ///
    /// As [`Self::message`].
    pub fn lost(
        &mut self,
        now: Now,
        stream: usize,
        set: usize,
        count: u64,
        until: Number,
        reason: LostReason,
    ) -> Result<(), Held> {
        if self.sets[set].members.is_none() {
            self.pass(stream, set, until);
            return Ok(());
        }
        self.admit(now.monotonic, set, 0, 1)?;
        self.chunk(now, stream, set, &Chunk::Lost { count, until, reason });
        Ok(())
    }

    /// Notes that a set without clients does not get what lies below this number. A client that joins before
    /// all sets have it gets it by a replay.
    fn pass(&mut self, stream: usize, set: usize, until: Number) {
        let lane = self.lane(set, stream);
        let given = &mut self.lanes[lane].given;
        *given = (*given).max(until);
    }

    /// Notes that all messages of a stream below this number were added to all sets that they match.
    pub fn taken(&mut self, stream: usize, number: Number) {
        let next = &mut self.streams[stream].next;
        *next = (*next).max(number);
    }

    /// Closes all open frames. A caller without more messages calls it, unless there is a `batch_delay`.
    pub fn flush(&mut self, now: Now) {
        for set in 0..self.sets.len() {
            self.close_batch(now, set);
        }
    }

    /// Closes the open frames that have waited for `batch_delay`.
    pub(super) fn close_late_batches(&mut self, now: Now) {
        for set in 0..self.sets.len() {
            if self.batch_due(set).is_some_and(|due| due <= now.monotonic) {
                self.close_batch(now, set);
            }
        }
    }

    pub(super) fn batch_due(&self, set: usize) -> Option<Monotonic> {
        let open = self.sets[set].batch.open.as_ref()?;
        Some(open.since.after(self.config.batch_delay_ns))
    }

    /// Makes room for a message in the queues of all clients of the set.
    fn admit(
        &mut self,
        now: Monotonic,
        set: usize,
        payload: usize,
        parts: usize,
    ) -> Result<(), Held> {
        let open = self.sets[set].batch.open.as_ref().map_or(0, |open| open.writer.length());
        // The frame that is open, and one for each part.
        let needed = open + payload + (parts + 1) * FRAME_OVERHEAD_BYTES;
        let most = self.config.queue_bytes.saturating_sub(needed as u64);
        let mut held = false;
        let mut member = self.sets[set].members;
        while let Some(at) = member {
            let slot = &mut self.slots[usize::from(at)];
            member = slot.next_member;
            match self.config.pace {
                // The parts of a message must not push one another out.
                Pace::Source if parts > 1 => {
                    self.counters.left_out += slot.queue.shrink(&mut self.frames, most);
                }
                Pace::Source => {}
                Pace::Receiver if slot.queue.bytes() > most => {
                    slot.held_since.get_or_insert(now);
                    held = true;
                }
                Pace::Receiver => {}
            }
        }
        if self.config.pace == Pace::Receiver
            && let Err(oldest) = self.frames.make_room(needed, parts + 1)
        {
            for slot in self.slots.iter_mut().filter(|slot| slot.waits_for(oldest)) {
                slot.held_since.get_or_insert(now);
            }
            held = true;
        }
        if held { Err(Held) } else { Ok(()) }
    }

    /// Writes a chunk into the open frame of a set, or into a new one if it does not fit.
    fn chunk(&mut self, now: Now, stream: usize, set: usize, chunk: &Chunk<'_>) {
        let other = self.sets[set].batch.open.as_ref().is_some_and(|open| open.stream != stream);
        if other || !self.sets[set].batch.push(self.room, chunk) {
            self.close_batch(now, set);
            let number = self.lane_end(set, stream);
            let message = self.lanes[self.lane(set, stream)].message;
            let given = self.lanes[self.lane(set, stream)].given;
            let writer = FrameWriter::new(message, number);
            let since = now.monotonic;
            let batch = &mut self.sets[set].batch;
            // The further parts of a message have its number.
            let until = if matches!(chunk, Chunk::Rest { .. }) { given } else { number };
            batch.open = Some(Open {
                stream,
                writer,
                since,
                until,
                message,
                topics_end: 0,
                continues: false,
                opens: false,
            });
            let written = batch.push(self.room, chunk);
            debug_assert!(written, "a chunk is cut so that it fits an empty frame");
        }
        let lane = self.lane(set, stream);
        if let Some(open) = &self.sets[set].batch.open {
            self.lanes[lane].given = open.until;
        }
    }

    /// Closes the open frame of a set, and adds it to the queues of all its clients.
    pub(super) fn close_batch(&mut self, now: Now, set: usize) {
        let Some(open) = self.sets[set].batch.open.take() else { return };
        let (lane, stream) = (self.lane(set, open.stream), open.stream);
        let index = u16::try_from(stream).unwrap_or(u16::MAX);
        let flags = if self.streams[stream].feed { Flags::FEED } else { Flags::NONE };
        let context =
            Context::of_set(self.identity.instance, u16::try_from(set).unwrap_or(u16::MAX));
        let seal = Seal { keys: self.identity.keys.as_ref(), context };
        let buffer = &mut self.sets[set].batch.buffer;
        let finished = open.writer.finish(index, flags, now.wall, &seal, buffer);
        debug_assert!(finished.is_ok(), "an open frame has a chunk and room for its MAC");
        let Ok(length) = finished else { return };
        while let Err(oldest) = self.frames.make_room(length, 1) {
            self.evict(oldest);
        }
        let first = match open.continues {
            // The message that it continues is not complete yet.
            true => open.until.minus(1),
            false => open.writer.number(),
        };
        let about = About {
            lane: u32::try_from(lane).unwrap_or(u32::MAX),
            made: open.since,
            first,
            until: open.until,
            message: open.message,
            count: open.writer.next_message().since(open.message),
            topics_end: open.topics_end,
            continues: open.continues,
            opens: open.opens,
        };
        let (handle, memory) = self.frames.push(length, about);
        let built = self.sets[set].batch.buffer.get(..length).unwrap_or_default();
        memory.copy_from_slice(built);
        self.lanes[lane].message = open.writer.next_message();
        self.counters.frames += 1;
        let mut member = self.sets[set].members;
        while let Some(at) = member {
            let slot = &mut self.slots[usize::from(at)];
            member = slot.next_member;
            slot.queue.offer(&mut self.frames, stream, handle);
            if self.config.pace == Pace::Source {
                let most = self.config.queue_bytes;
                self.counters.left_out += slot.queue.shrink(&mut self.frames, most);
            }
        }
    }

    /// Leaves the oldest frame out of all queues, so that its memory is free.
    fn evict(&mut self, oldest: Handle) {
        // A client that has begun it may have left its set since.
        for slot in &mut self.slots {
            if slot.state != State::Free {
                slot.keep(&mut self.frames, oldest);
                self.counters.left_out += slot.queue.evict(&mut self.frames, oldest);
            }
        }
    }

    /// The memory for the chunks of a frame of this length.
    pub(super) fn chunks_end(batch_bytes: u64, signed: bool) -> usize {
        let bytes = usize::try_from(batch_bytes).unwrap_or(usize::MAX);
        bytes - if signed { MAC_BYTES } else { 0 }
    }
}
