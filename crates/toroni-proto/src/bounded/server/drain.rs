//! The end of a server: what it has is still sent, for a limited time.
//!
//! A client that was sent everything gets HEARTBEAT with the flag END, and then BYE. So it knows that nothing is missing of what was
//! on the bus then. The others only get BYE: for them, the connection is lost.

use super::super::queue::Mode;
use super::slot::State;
use super::{Bye, ClientId, Server};
use crate::hook::mutant;
use crate::id::Number;
use crate::time::Monotonic;

/// What is still sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// The messages of all streams below this number.
    goal: Number,
    pub(super) until: Monotonic,
}

impl Server {
    /// Begins to end. The caller continues to add messages up to `goal`, and to answer replays. A client that was sent everything
    /// learns that, and leaves. At `until`, the caller calls [`Self::end`] for those that remain.
    ///
    /// No further client is accepted: it would delay the end, and gets the same from the next server, which it asks from where it
    /// stands.
    pub fn drain(&mut self, now: Monotonic, goal: Number, until: Monotonic) {
        self.ended = true;
        self.drain = Some(Drain { goal, until });
        for at in 0..self.slots.len() {
            if self.slots[at].state == State::Opening {
                self.close(now, at, Bye::Ended);
            }
        }
    }

    /// Whether a client was sent everything, and the server ends.
    pub(super) fn is_drained(&self, at: usize) -> bool {
        let Some(Drain { goal, .. }) = self.drain else { return false };
        let slot = &self.slots[at];
        let is_taken = self.streams.iter().all(|stream| stream.next >= goal);
        let in_replay =
            slot.queue.lanes.iter().any(|lane| matches!(lane.mode, Mode::Replay { .. }));
        is_taken
            && slot.state == State::Live
            && self.sets[slot.set].batch.open.is_none()
            && slot.queue.oldest().is_none()
            && !slot.has_news()
            && slot.building.is_none()
            && (!in_replay || mutant("end_within_a_replay"))
    }

    /// Returns the clients that were not sent everything up to the goal, and how many messages of the streams that are, at most.
    pub fn unsent(&self) -> impl Iterator<Item = (ClientId, u64)> {
        let live = (0..).zip(&self.slots).filter(|(_, slot)| slot.state == State::Live);
        let unsent = live.map(|(at, _)| (ClientId(at), self.unsent_of(usize::from(at))));
        unsent.filter(|(_, unsent)| *unsent > 0)
    }

    fn unsent_of(&self, at: usize) -> u64 {
        let Some(Drain { goal, .. }) = self.drain else { return 0 };
        let slot = &self.slots[at];
        let owed = (0..self.streams.len()).filter_map(|stream| {
            let end = self.lane_start(slot.set, stream);
            let lane = &slot.queue.lanes[stream];
            let from = slot.queue.position(&self.frames, stream, end).number;
            // What was left out, and not reported yet, is sent when the client asks for it.
            let from = lane.left_out.map_or(from, |left_out| from.min(left_out.gap.first));
            match lane.mode {
                Mode::Live | Mode::Replay { until: None, .. } => Some((from, goal)),
                Mode::Replay { until: Some(until), .. } => Some((from, until)),
                Mode::Ended(_) => None,
            }
        });
        // The numbers of all streams are those of one bus, so each message is counted once.
        let (mut first, mut end) = (slot.begun.unwrap_or(Number::MAX), Number::ZERO);
        for (from, to) in owed {
            (first, end) = (first.min(from), end.max(to));
        }
        end.get().saturating_sub(first.get())
    }
}
