//! What clients are sent, and in which order.

use super::super::frames::Handle;
use super::super::queue::{Announce, Mode};
use super::slot::{OWN_BYTES, Sending, State};
use super::{ClientId, Offered, Server};
use crate::budget::Case;
use crate::config::tcp::Pace;
use crate::hook::mutant;
use crate::id::{MessageNumber, Number};
use crate::time::Monotonic;
use crate::wire::Chunk;
use crate::wire::tcp::{
    self, Bye, Flags, FrameData, Heartbeat, MAX_STREAMS, Names, Reached, Replay, Seal,
};

impl Server {
    /// Begins a turn: draws an order of all clients.
    pub fn begin_turn(&mut self) {
        self.order.clear();
        for (at, slot) in (0..).zip(&self.slots) {
            if !matches!(slot.state, State::Free | State::Closed(_)) {
                self.order.push(at);
            }
        }
        // Fisher and Yates.
        for at in (1..self.order.len()).rev() {
            let other = usize::try_from(self.random.below(at as u64 + 1)).unwrap_or(at);
            self.order.swap(at, other);
        }
    }

    /// Returns the next client of this turn that has something to write and can.
    pub fn next_ready(&mut self) -> Option<ClientId> {
        while let Some(at) = self.order.pop() {
            if self.is_ready(usize::from(at)) {
                return Some(ClientId(at));
            }
        }
        None
    }

    fn is_ready(&self, at: usize) -> bool {
        let slot = &self.slots[at];
        let has_work = match slot.state {
            State::Free | State::Closed(_) => false,
            State::Opening => slot.sending != Sending::Nothing,
            State::Closing(..) => true,
            State::Live => {
                slot.sending != Sending::Nothing
                    || slot.has_news()
                    || (slot.queue.oldest().is_some() && !slot.waits_for_replay())
                    || self.is_drained(at)
            }
        };
        has_work && !slot.blocked
    }

    /// Returns what a client is sent next, if there is something. The caller writes as much of it as the
    /// connection takes, and says so by [`Self::wrote`] or [`Self::blocked`].
    pub fn transmit(&mut self, now: Monotonic, client: ClientId) -> Option<&[u8]> {
        let at = usize::from(client.0);
        if self.slots.get(at)?.sending == Sending::Nothing {
            self.choose(now, at);
        }
        let slot = &self.slots[at];
        match slot.sending {
            Sending::Nothing => None,
            Sending::Own { from, to } => slot.own.get(from..to),
            Sending::Shared { handle, written } => self.frames.bytes(handle).get(written..),
        }
    }

    /// Notes that the connection took this many bytes of [`Self::transmit`].
    pub fn wrote(&mut self, now: Monotonic, client: ClientId, length: usize) {
        let Some(slot) = self.slots.get_mut(usize::from(client.0)) else { return };
        if length > 0 {
            slot.blocked_since = None;
        }
        match &mut slot.sending {
            Sending::Nothing => {}
            Sending::Own { from, to } => {
                *from = from.saturating_add(length);
                if from >= to {
                    slot.sending = Sending::Nothing;
                    slot.begun = None;
                }
            }
            Sending::Shared { handle, written } => {
                *written = written.saturating_add(length);
                if *written as u64 >= self.frames.length(*handle) {
                    let about = self.frames.about(*handle);
                    let at = about.lane as usize % self.streams.len();
                    let Offered { source, stream, .. } = self.streams[at];
                    let (number, took_ns) = (about.first.get(), now.since(about.made));
                    self.queueing.record(Case { source, stream, number, took_ns });
                    self.frames.release(*handle);
                    slot.sending = Sending::Nothing;
                    slot.begun = None;
                    slot.held_since = None;
                }
            }
        }
    }

    /// Notes that the connection takes nothing at present, until [`Self::writable`] is called.
    pub fn blocked(&mut self, now: Monotonic, client: ClientId) {
        if let Some(slot) = self.slots.get_mut(usize::from(client.0)) {
            slot.blocked = true;
            slot.blocked_since.get_or_insert(now);
        }
    }

    /// Notes that the connection may take bytes again.
    pub fn writable(&mut self, client: ClientId) {
        if let Some(slot) = self.slots.get_mut(usize::from(client.0)) {
            slot.blocked = false;
        }
    }

    /// Chooses what a client is sent next.
    fn choose(&mut self, now: Monotonic, at: usize) {
        let slot = &mut self.slots[at];
        match slot.state {
            // A frame of a replay is being built.
            State::Live if slot.building.is_some() => return,
            State::Live => {}
            State::Closing(reason, _) => {
                if slot.bye {
                    self.close_at_once(at, reason);
                } else {
                    slot.bye = true;
                    slot.build(self.identity.keys.as_ref(), |seal, own| reason.encode(seal, own));
                }
                return;
            }
            _ => return,
        }
        if self.config.pace == Pace::Source && !mutant("frame_age_unchecked") {
            let bound = self.config.latency_bound_ns;
            self.counters.left_out += slot.queue.expire(&mut self.frames, now, bound);
        }
        if self.choose_news(now, at) {
            return;
        }
        let slot = &mut self.slots[at];
        // What is new does not wait for the rate of replays.
        if slot.replay_turn && !self.replay_rate.has(now, self.config.batch_bytes) {
            slot.replay_turn = false;
        }
        let Some((stream, handle)) = slot.queue.oldest().filter(|_| !slot.waits_for_replay())
        else {
            if self.is_drained(at) {
                self.build_beat(at, Flags::END);
                self.close(now, at, Bye::Ended);
            }
            return;
        };
        if !mutant("topics_dropped") && self.choose_names(at, stream, handle) {
            return;
        }
        let slot = &mut self.slots[at];
        slot.queue.start(&self.frames, stream, handle);
        slot.sending = Sending::Shared { handle, written: 0 };
        slot.begun = Some(self.frames.about(handle).first);
        slot.held_since = None;
        let waited = now.since(self.frames.about(handle).made);
        self.counters.waited_max_ns = self.counters.waited_max_ns.max(waited);
        let in_replay = |mode| matches!(mode, Mode::Replay { .. });
        slot.replay_turn = !slot.queue.is_within_a_message()
            && slot.queue.lanes.iter().any(|lane| in_replay(lane.mode));
    }

    /// Builds what a client must be told before anything else.
    fn choose_news(&mut self, now: Monotonic, at: usize) -> bool {
        let slot = &mut self.slots[at];
        let keys = self.identity.keys.as_ref();
        for stream in 0..self.streams.len() {
            let index = u16::try_from(stream).unwrap_or(u16::MAX);
            let lane = &mut slot.queue.lanes[stream];
            // What was left out is reported before the beginning of a replay is announced, but after its end is.
            let begins = matches!(lane.announce, Some(Announce::Begins(_)));
            if (begins || lane.announce.is_none())
                && let Some(left_out) = lane.left_out.take()
            {
                let (gap, message) = (left_out.gap, left_out.message);
                slot.build(keys, |seal, own| gap.encode(index, Flags::NONE, message, seal, own));
                return true;
            }
            if let Some(announce) = lane.announce.take() {
                let zero = MessageNumber::ZERO;
                let (first, flags, message) = match announce {
                    Announce::Begins(first) => (first, Flags::REPLAY, zero),
                    Announce::Live(first, message) => (first, Flags::NONE, message),
                    Announce::Ended(first) => (first, Flags::END, zero),
                };
                let replay = Replay { first, until: Number::ZERO };
                slot.build(keys, |seal, own| replay.encode(index, flags, message, seal, own));
                return true;
            }
        }
        if !slot.beat {
            return false;
        }
        slot.beat = false;
        slot.beat_due = now.after(self.config.heartbeat_ns);
        self.build_beat(at, Flags::NONE);
        true
    }

    /// Builds HEARTBEAT, with END if nothing follows.
    fn build_beat(&mut self, at: usize, flags: Flags) {
        let keys = self.identity.keys.as_ref();
        let set = self.slots[at].set;
        let mut reached = [Reached::ZERO; MAX_STREAMS];
        for (stream, reached) in reached.iter_mut().enumerate().take(self.streams.len()) {
            let end = self.lane_start(set, stream);
            *reached = self.slots[at].queue.position(&self.frames, stream, end);
        }
        let reached = reached.get(..self.streams.len()).unwrap_or_default();
        self.slots[at]
            .build(keys, |seal, own| Heartbeat::encode(reached.iter().copied(), flags, seal, own));
    }

    /// Builds TOPICS with the names that a frame uses and the client does not know.
    fn choose_names(&mut self, at: usize, stream: usize, handle: Handle) -> bool {
        let slot = &mut self.slots[at];
        let seal = Seal { keys: self.identity.keys.as_ref(), context: slot.context() };
        let (known, names) = (&mut slot.known[stream], &self.streams[stream].names);
        if self.frames.about(handle).topics_end <= known.below() {
            return false;
        }
        let signed = self.identity.keys.is_some();
        let chunks_end = Self::chunks_end(OWN_BYTES as u64, signed);
        // Header, count, and then the entries.
        let mut left = chunks_end - tcp::HEADER_BYTES - 4;
        let bytes = self.frames.bytes(handle);
        let mut new = FrameData::reopen(bytes, signed)
            .into_iter()
            .flat_map(|data| data.chunks())
            .filter_map(|placed| match placed.chunk {
                Chunk::Message { start, .. } | Chunk::First { start, .. } => Some(start.topic),
                _ => None,
            })
            .filter_map(|topic| names.get(topic.get()).map(|name| (topic, name)))
            .map_while(|(topic, name)| {
                if known.has(topic) {
                    return Some(None);
                }
                left = left.checked_sub(5 + name.as_str().len())?;
                known.add(topic);
                Some(Some((topic, name)))
            })
            .flatten()
            .peekable();
        if new.peek().is_none() {
            return false;
        }
        let index = u16::try_from(stream).unwrap_or(u16::MAX);
        let mut own = core::mem::take(&mut slot.own);
        let built = Names::encode(index, new, &seal, &mut own);
        slot.own = own;
        slot.send(built.map(|(length, _)| length));
        true
    }
}
