//! Replays: history of a stream, for one client, at its own pace.
//!
//! ```text
//!  REPLAY, or a resume point        next_replay: the client can take a frame
//!   │                                │
//!   ▼                                ▼
//!  replay begins ──► caller: messages from `from` below `end` ──► replay_to ──► frame ──► … ──► live
//! ```
//!
//! The caller has the history. It is asked for a piece of it when the client has taken the one before, so
//! a replay needs the memory of one frame. When a replay has brought all that was added to the stream, the
//! client gets what is new from there on.

use super::super::queue::{Announce, Mode};
use super::slot::{Building, Part, Sending, State};
use super::{ClientId, Server};
use crate::batcher::Now;
use crate::hook::mutant;
use crate::id::{MessageNumber, Number};
use crate::reassembly::Bound;
use crate::time::Monotonic;
use crate::wire::tcp::{Flags, FrameWriter, Gap, Replay, Seal};
use crate::wire::{Chunk, LostReason, NoRoom, Reject, Start};

/// The client cannot take more now. [`Server::next_replay`] returns it when it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client has not taken the frame before")]
pub struct Full;

/// A client that can take a piece of history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub client: ClientId,
    /// The stream.
    pub stream: usize,
    /// The set of patterns of the client.
    pub set: usize,
    /// The first number that it wants.
    pub from: Number,
    /// It wants numbers below this one.
    pub end: Number,
}

impl Server {
    pub(super) fn replay_asked(
        &mut self,
        at: usize,
        stream: usize,
        flags: Flags,
        asked: Replay,
    ) -> Result<(), Reject> {
        if stream >= self.streams.len() {
            return Err(Reject::Stream);
        }
        let ends = flags.has(Flags::END);
        if flags.has(Flags::REPLAY) || (ends && asked.until < asked.first) {
            return Err(Reject::Unexpected);
        }
        if ends {
            // The end moves the client's resume point, so nothing that comes later may lie below it.
            let until = asked.until.min(self.lane_end(self.slots[at].set, stream));
            self.begin_replay(at, stream, asked.first.min(until), Some(until));
        } else {
            // What waits is not sent, so the replay begins there at the latest.
            let end = self.lane_start(self.slots[at].set, stream);
            let position = self.slots[at].queue.position(&self.frames, stream, end);
            self.begin_replay(at, stream, asked.first.min(position.number), None);
        }
        Ok(())
    }

    pub(super) fn begin_replay(
        &mut self,
        at: usize,
        stream: usize,
        next: Number,
        until: Option<Number>,
    ) {
        let slot = &mut self.slots[at];
        slot.queue.remove(&mut self.frames, stream);
        if slot.building.is_some_and(|building| building.stream == stream) {
            slot.building = None;
        }
        slot.part = slot.part.filter(|part| part.stream != stream);
        let lane = &mut slot.queue.lanes[stream];
        let mut next = next;
        lane.left_out = lane.left_out.filter(|left_out| left_out.gap.first < next);
        if let Some(Announce::Live(first, _)) = lane.announce {
            // The client does not know that the replay before has ended, so this one continues it.
            lane.left_out = None;
            next = if until.is_none() { next.min(first) } else { next };
        }
        lane.mode = Mode::Replay { next, until, message: MessageNumber::ZERO };
        lane.announce = Some(Announce::Begins(next));
    }

    /// Returns a client that can take a piece of history. The caller answers by
    /// [`Self::replay_message`] and [`Self::replay_lost`] for what it has, and then by
    /// [`Self::replay_to`], before it asks for the next one.
    pub fn next_replay(&mut self, now: Monotonic) -> Option<Wanted> {
        if now < self.replay_from {
            return None;
        }
        let may = self.replay_rate.has(now, self.config.batch_bytes);
        let count = self.slots.len();
        for step in 0..count {
            let at = (self.replay_next + step) % count;
            // A message that was begun holds up what is new, so it does not wait for the rate.
            if (may || self.slots[at].part.is_some())
                && let Some(stream) = self.replay_stream(at)
            {
                self.replay_next = (at + 1) % count;
                return self.wanted(at, stream);
            }
        }
        None
    }

    /// Notes that the caller can bring no history until then.
    pub const fn postpone_replays(&mut self, until: Monotonic) {
        self.replay_from = until;
    }

    fn wanted(&self, at: usize, stream: usize) -> Option<Wanted> {
        let slot = &self.slots[at];
        let Mode::Replay { next, until, .. } = slot.queue.lanes[stream].mode else { return None };
        let end = until.unwrap_or_else(|| self.lane_end(slot.set, stream));
        let client = ClientId(u16::try_from(at).ok()?);
        Some(Wanted { client, stream, set: slot.set, from: next, end: end.max(next) })
    }

    /// The stream of which a client can take history now.
    fn replay_stream(&self, at: usize) -> Option<usize> {
        let slot = &self.slots[at];
        let idle = slot.state == State::Live
            && slot.sending == Sending::Nothing
            && !slot.blocked
            && !slot.has_news()
            && !slot.queue.is_within_a_message()
            && (slot.waits_for_replay() || slot.queue.oldest().is_none());
        if !idle {
            return None;
        }
        let is_replay = |stream: usize| {
            matches!(slot.queue.lanes.get(stream)?.mode, Mode::Replay { .. }).then_some(stream)
        };
        // The parts of a message follow one another.
        let begun = slot.part.map(|part| part.stream);
        begun.or_else(|| (0..slot.queue.lanes.len()).find_map(is_replay))
    }

    /// Returns when a client can take a piece of history.
    pub(super) fn replay_due(&self) -> Option<Monotonic> {
        let rate = self.replay_rate.next(self.config.batch_bytes);
        let waiting = (0..self.slots.len()).filter(|at| self.replay_stream(*at).is_some());
        let due = |at: usize| if self.slots[at].part.is_some() { self.replay_from } else { rate };
        waiting.map(due).min().map(|due| due.max(self.replay_from))
    }

    /// Sends a message of history, in the order of numbers. The topic's number is that of [`Self::topic`].
    ///
    /// # Errors
    ///
    /// If the client can take no more now. The caller begins with this message when the client can.
    pub fn replay_message(
        &mut self,
        now: Now,
        wanted: &Wanted,
        start: Start,
        payload: &[u8],
    ) -> Result<(), Full> {
        let Wanted { stream, .. } = *wanted;
        if self.is_too_long(wanted.set, payload) {
            let until = start.number.plus(1);
            return self.replay_lost(now, wanted, 1, Bound::Exact, until, LostReason::TooLong);
        }
        let at = self.filling(wanted)?;
        let slot = &mut self.slots[at];
        let Mode::Replay { next, message, .. } = &mut slot.queue.lanes[stream].mode else {
            return Err(Full);
        };
        let begun = slot.part.filter(|part| part.number == start.number);
        let offset = begun.map_or(0, |part| part.offset);
        let long = !self.room.fits(&start, payload.len());
        if long && slot.building.is_some_and(|building| !building.writer.is_empty()) {
            self.close_replay(now, at);
            return Err(Full);
        }
        let end = self.room.chunks_end;
        let memory = slot.own.get_mut(..end).unwrap_or_default();
        let building = slot
            .building
            .get_or_insert_with(|| Building { stream, writer: FrameWriter::new(*message, *next) });
        // A name goes into the frame itself. If it takes the room of the message, that goes into the next.
        if !slot.known[stream].has(start.topic)
            && let Some(name) = self.streams[stream].names.get(start.topic.get())
        {
            let declared = Chunk::Topic { number: start.topic, name };
            let fits = building.writer.push(&declared, memory).is_ok();
            if fits {
                slot.known[stream].add(start.topic);
            }
            if !fits || long {
                self.close_replay(now, at);
                return Err(Full);
            }
        }
        let chunk = if long {
            self.room.part(start, payload, offset)
        } else {
            Chunk::Message { start, payload }
        };
        if building.writer.push(&chunk, memory).is_err() {
            self.close_replay(now, at);
            return Err(Full);
        }
        *message = building.writer.next_message();
        let (Chunk::First { payload: part, .. }
        | Chunk::Rest { payload: part, .. }
        | Chunk::Message { payload: part, .. }) = chunk
        else {
            return Ok(());
        };
        let done = offset + part.len() == payload.len();
        let offset = offset + part.len();
        slot.part = (!done).then_some(Part { stream, number: start.number, offset });
        if done {
            *next = start.number.plus(1);
        }
        if long {
            self.close_replay(now, at);
            // The next part, if there is one, needs the next frame.
            return if done { Ok(()) } else { Err(Full) };
        }
        Ok(())
    }

    /// Says that messages of history are not there any more: all numbers below `until`, of which `count`
    /// would have been sent.
    ///
    /// # Errors
    ///
    /// As [`Self::replay_message`].
    pub fn replay_lost(
        &mut self,
        now: Now,
        wanted: &Wanted,
        count: u64,
        bound: Bound,
        until: Number,
        reason: LostReason,
    ) -> Result<(), Full> {
        let at = self.filling(wanted)?;
        if self.slots[at].building.is_some() {
            self.close_replay(now, at);
            return Err(Full);
        }
        let slot = &mut self.slots[at];
        let Mode::Replay { next, message, .. } = &mut slot.queue.lanes[wanted.stream].mode else {
            return Err(Full);
        };
        let until = until.max(*next);
        if bound == Bound::Exact {
            // A message of which some parts were sent was counted when it began.
            *message = message.plus(count.saturating_sub(u64::from(slot.part.is_some())));
        }
        let (gap, after) = (Gap { first: *next, until, count, bound, reason }, *message);
        *next = until;
        slot.part = None;
        let index = u16::try_from(wanted.stream).unwrap_or(u16::MAX);
        self.build_replay(now, at, |seal, own| gap.encode(index, Flags::REPLAY, after, seal, own));
        Ok(())
    }

    /// Says that everything below this number was sent, and sends what is packed. At the end of the
    /// history, the client gets what is new.
    pub fn replay_to(&mut self, now: Now, wanted: &Wanted, number: Number) {
        let (at, stream) = (usize::from(wanted.client.0), wanted.stream);
        self.close_replay(now, at);
        let Some(slot) = self.slots.get(at).filter(|slot| slot.state == State::Live) else {
            return;
        };
        let (end, start) = (self.lane_end(slot.set, stream), self.lane_start(slot.set, stream));
        let slot = &mut self.slots[at];
        slot.replay_turn = false;
        let begun = slot.part.is_some();
        let lane = &mut slot.queue.lanes[stream];
        let Mode::Replay { next, until, .. } = &mut lane.mode else { return };
        if begun {
            return;
        }
        *next = number.max(*next);
        let next = *next;
        match until {
            Some(until) if next >= *until => {
                lane.mode = Mode::Ended(next);
                lane.announce = Some(Announce::Ended(next));
            }
            None if next >= end || mutant("replay_joins_early") => {
                lane.mode = Mode::Live;
                lane.announce = Some(Announce::Live(next, start.message));
            }
            _ => {}
        }
    }

    /// The client, if it can take a frame.
    fn filling(&self, wanted: &Wanted) -> Result<usize, Full> {
        let at = usize::from(wanted.client.0);
        let slot = self.slots.get(at).ok_or(Full)?;
        let free = slot.state == State::Live && slot.sending == Sending::Nothing;
        let other = slot.building.is_some_and(|building| building.stream != wanted.stream);
        if free && !other { Ok(at) } else { Err(Full) }
    }

    /// Sends the frame of a replay that is being built.
    fn close_replay(&mut self, now: Now, at: usize) {
        let slot = &mut self.slots[at];
        let Some(building) = slot.building.take().filter(|one| !one.writer.is_empty()) else {
            return;
        };
        let feed = self.streams[building.stream].feed;
        let flags = if feed { Flags::REPLAY.with(Flags::FEED) } else { Flags::REPLAY };
        let index = u16::try_from(building.stream).unwrap_or(u16::MAX);
        slot.replay_turn = false;
        slot.begun = Some(building.writer.number());
        self.build_replay(now, at, |seal, own| {
            building.writer.finish(index, flags, now.wall, seal, own)
        });
    }

    /// Builds a frame of a replay. Its bytes count for the rate, even if it did not wait for the rate.
    fn build_replay(
        &mut self,
        now: Now,
        at: usize,
        encode: impl FnOnce(&Seal<'_>, &mut [u8]) -> Result<usize, NoRoom>,
    ) {
        let slot = &mut self.slots[at];
        slot.build(self.identity.keys.as_ref(), encode);
        if let Sending::Own { to, .. } = slot.sending {
            self.replay_rate.charge(now.monotonic, to as u64);
        }
    }
}
