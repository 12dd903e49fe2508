//! What clients say: HELLO, REPLAY and BYE.

use super::super::queue::Mode;
use super::slot::{Sending, State};
use super::{ClientId, Door, Server};
use crate::hook::mutant;
use crate::time::{MILLISECOND, Monotonic};
use crate::wire::tcp::{
    self, About, Body, Bye, Context, Direction, Flags, Hello, Incoming, Offer, Reached, Seal,
    Welcome,
};
use crate::wire::{NoRoom, Reject, Rules};

impl Server {
    /// Returns memory into which the caller receives the next bytes of a client. It is empty if the
    /// connection ends.
    pub fn room(&mut self, client: ClientId) -> &mut [u8] {
        match self.slots.get_mut(usize::from(client.0)) {
            Some(slot) if matches!(slot.state, State::Opening | State::Live) => {
                slot.incoming.room()
            }
            _ => &mut [],
        }
    }

    /// Takes this many bytes that were received into [`Self::room`].
    pub fn received(
        &mut self,
        now: Monotonic,
        client: ClientId,
        length: usize,
        door: &mut impl Door,
    ) {
        let at = usize::from(client.0);
        let Some(slot) = self.slots.get_mut(at) else { return };
        let mut incoming = core::mem::take(&mut slot.incoming);
        incoming.received(length);
        let count = slot.received;
        let taken = self.frames_of(now, client, &mut incoming, door);
        let slot = &mut self.slots[at];
        if slot.state == State::Live {
            let is_rest = slot.received == count && !mutant("frame_of_client_without_end");
            let goes_on = slot.awaited_since.filter(|_| is_rest);
            let since = goes_on.unwrap_or(now);
            slot.awaited_since = incoming.is_within_a_frame().then_some(since);
        }
        slot.incoming = incoming;
        if let Err(reason) = taken {
            self.counters.rejects[reason.index()] += 1;
            self.close(now, at, Bye::Refused);
        }
    }

    fn frames_of(
        &mut self,
        now: Monotonic,
        client: ClientId,
        incoming: &mut Incoming,
        door: &mut impl Door,
    ) -> Result<(), Reject> {
        let at = usize::from(client.0);
        while matches!(self.slots[at].state, State::Opening | State::Live)
            && let Some(bytes) = incoming.next_frame()?
        {
            let slot = &mut self.slots[at];
            let keys = self.identity.keys;
            let rules = Rules { realm: self.identity.realm, keys: keys.as_ref(), message_max: 0 };
            let (nonces, count) = (slot.nonces, slot.received);
            slot.received += 1;
            let frame = tcp::parse(bytes, &rules, |_, _| {
                Context::of_connection(&nonces, Direction::ToServer, count)
            })?;
            match (slot.state, frame.body) {
                (State::Opening, Body::Hello(hello)) => {
                    self.hello(now, client, frame.header.flags, &hello, door)?;
                }
                (State::Live, Body::Replay(replay)) => {
                    let stream = usize::from(frame.header.stream);
                    self.replay_asked(at, stream, frame.header.flags, replay)?;
                }
                (_, Body::Bye(reason)) => self.close_at_once(at, reason),
                _ => return Err(Reject::Unexpected),
            }
        }
        Ok(())
    }

    fn hello(
        &mut self,
        now: Monotonic,
        client: ClientId,
        flags: Flags,
        hello: &Hello<'_>,
        door: &mut impl Door,
    ) -> Result<(), Reject> {
        let at = usize::from(client.0);
        // What was sent before HELLO has arrived, because HELLO answers it.
        if self.slots[at].sending != Sending::Nothing {
            return Err(Reject::Unexpected);
        }
        // What no message of the server exceeds makes no difference.
        let most = u32::try_from(self.config.message_max_bytes).unwrap_or(u32::MAX);
        let mut hello = *hello;
        hello.message_max = hello.message_max.min(most);
        let set = door.hello(client, &hello).filter(|set| *set < self.sets.len());
        let Some(set) = set else {
            self.close(now, at, Bye::Patterns);
            return Ok(());
        };
        let slot = &mut self.slots[at];
        slot.nonces.client = hello.nonce;
        slot.state = State::Live;
        slot.set = set;
        let of_set = &mut self.sets[set];
        let most = hello.message_max.into();
        of_set.message_max_bytes = match of_set.members {
            None => most,
            Some(_) => of_set.message_max_bytes.min(most),
        };
        slot.next_member = of_set.members.replace(client.0);
        slot.beat_due = now.after(self.config.heartbeat_ns);
        let mut own = core::mem::take(&mut slot.own);
        let seal = Seal { keys: self.identity.keys.as_ref(), context: slot.context() };
        let built = self.welcome(set, &seal, &mut own);
        let slot = &mut self.slots[at];
        slot.own = own;
        slot.send(built);
        if flags.has(Flags::REPLAY) {
            for stream in 0..self.streams.len() {
                let start = self.lane_start(set, stream);
                self.slots[at].queue.lanes[stream].mode = Mode::Ended(start.number);
            }
            return Ok(());
        }
        for resume in hello.resumes() {
            let found = self.streams.iter().position(|one| {
                (one.source, one.stream, one.series)
                    == (resume.source, resume.stream, resume.series)
            });
            if let Some(stream) = found
                && resume.next < self.lane_start(set, stream).number
            {
                self.begin_replay(at, stream, resume.next, None);
            }
        }
        Ok(())
    }

    pub(super) fn welcome(
        &self,
        set: usize,
        seal: &Seal<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let beat_ms = self.config.heartbeat_ns.div_ceil(MILLISECOND);
        let about = About {
            realm: self.identity.realm,
            source: self.identity.source,
            session: self.identity.session,
            instance: self.identity.instance,
            set: u16::try_from(set).unwrap_or(u16::MAX),
            beat_ms: u16::try_from(beat_ms).unwrap_or(u16::MAX),
        };
        let offers = self.streams.iter().enumerate().map(|(stream, one)| {
            let Reached { number, message } = self.lane_start(set, stream);
            Offer {
                source: one.source,
                session: one.session,
                series: one.series,
                stream: one.stream,
                number,
                message,
                past: one.past,
                patterns: &one.patterns,
            }
        });
        Welcome::encode(&about, offers, seal, buffer)
    }
}
