//! One client, as the server knows it.

use super::super::frames::{Frames, Handle};
use super::super::queue::Queue;
use crate::hook::mutant;
use crate::id::Number;
use crate::time::Monotonic;
use crate::topics::Known;
use crate::wire::tcp::{
    Bye, Context, Direction, FrameWriter, Incoming, MAX_CLIENT_FRAME_BYTES, Nonces, Seal,
};
use crate::wire::{Keys, NoRoom};

/// The memory for a frame of one client.
pub(super) const OWN_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// HELLO has not come yet.
    Opening,
    Live,
    /// What was begun is finished, and BYE is sent.
    Closing(Bye, Monotonic),
    /// The caller was not told yet.
    Closed(Bye),
}

/// What is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Nothing,
    /// These bytes of the client's own memory.
    Own {
        from: usize,
        to: usize,
    },
    /// A frame that clients share.
    Shared {
        handle: Handle,
        written: usize,
    },
}

/// A frame of a replay that is being built in the client's own memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Building {
    pub(super) stream: usize,
    pub(super) writer: FrameWriter,
}

/// A message of a replay of which some parts were sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) stream: usize,
    pub(super) number: Number,
    pub(super) offset: usize,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    pub(super) nonces: Nonces,
    /// How many frames of this connection alone were sent and received.
    sent: u64,
    pub(super) received: u64,
    pub(super) incoming: Incoming,
    pub(super) own: Box<[u8]>,
    pub(super) sending: Sending,
    pub(super) queue: Queue,
    pub(super) known: Box<[Known]>,
    pub(super) set: usize,
    /// The next client of the same set.
    pub(super) next_member: Option<u16>,
    pub(super) bye: bool,
    pub(super) beat: bool,
    /// Since when HELLO is awaited, or the rest of a frame that the client has begun.
    pub(super) awaited_since: Option<Monotonic>,
    pub(super) beat_due: Monotonic,
    pub(super) blocked: bool,
    /// Since when nothing could be written, although something is there.
    pub(super) blocked_since: Option<Monotonic>,
    /// Since when it holds the server, and no frame was begun.
    pub(super) held_since: Option<Monotonic>,
    /// The frame that comes next is one of a replay.
    pub(super) replay_turn: bool,
    pub(super) building: Option<Building>,
    /// The message of a replay that was begun.
    pub(super) part: Option<Part>,
    /// No message in the frame that is being sent has a number below this one.
    pub(super) begun: Option<Number>,
}

impl Slot {
    pub(super) fn new(streams: usize, topics: u32) -> Self {
        Self {
            state: State::Free,
            nonces: Nonces::default(),
            sent: 0,
            received: 0,
            incoming: Incoming::new(MAX_CLIENT_FRAME_BYTES),
            own: vec![0; OWN_BYTES].into(),
            sending: Sending::Nothing,
            queue: Queue::new(streams),
            known: (0..streams).map(|_| Known::of(topics)).collect(),
            set: 0,
            next_member: None,
            bye: false,
            beat: false,
            awaited_since: None,
            beat_due: Monotonic::default(),
            blocked: false,
            blocked_since: None,
            held_since: None,
            replay_turn: false,
            building: None,
            part: None,
            begun: None,
        }
    }

    pub(super) fn open(&mut self, now: Monotonic) {
        self.state = State::Opening;
        self.nonces = Nonces::default();
        (self.sent, self.received) = (0, 0);
        self.incoming.clear();
        self.known.iter_mut().for_each(Known::clear);
        self.queue.restart();
        self.next_member = None;
        (self.bye, self.beat) = (false, false);
        self.awaited_since = Some(now);
        self.blocked = false;
        (self.blocked_since, self.held_since) = (None, None);
        self.replay_turn = false;
        (self.building, self.part, self.begun) = (None, None, None);
    }

    /// Forgets what was to be sent.
    pub(super) fn release(&mut self, frames: &mut Frames) {
        if let Sending::Shared { handle, .. } = self.sending {
            frames.release(handle);
        }
        self.sending = Sending::Nothing;
        self.queue.clear(frames);
    }

    /// Moves what is left of a frame that was begun into the client's own memory.
    pub(super) fn keep(&mut self, frames: &mut Frames, handle: Handle) {
        if let Sending::Shared { handle: begun, written } = self.sending
            && begun == handle
        {
            if mutant("begun_frame_overwritten") {
                frames.release(handle);
                return;
            }
            let rest = frames.bytes(handle).get(written..).unwrap_or_default();
            if let Some(own) = self.own.get_mut(..rest.len()) {
                own.copy_from_slice(rest);
            }
            self.sending = Sending::Own { from: 0, to: rest.len() };
            frames.release(handle);
        }
    }

    /// Whether a frame must stay in memory for this client.
    pub(super) fn waits_for(&self, handle: Handle) -> bool {
        matches!(self.sending, Sending::Shared { handle: begun, .. } if begun == handle)
            || self.queue.waits_for(handle)
    }

    /// Builds a frame for this client alone, which is sent next.
    pub(super) fn build(
        &mut self,
        keys: Option<&Keys>,
        encode: impl FnOnce(&Seal<'_>, &mut [u8]) -> Result<usize, NoRoom>,
    ) {
        let seal = Seal { keys, context: self.context() };
        let built = encode(&seal, &mut self.own);
        self.send(built);
    }

    /// What the MAC of the next frame for this client alone covers.
    pub(super) fn context(&self) -> Context {
        Context::of_connection(&self.nonces, Direction::ToClient, self.sent)
    }

    /// Sends next what was built in the client's own memory.
    pub(super) fn send(&mut self, built: Result<usize, NoRoom>) {
        debug_assert!(built.is_ok(), "the memory is as long as the longest frame");
        if let Ok(to) = built {
            self.sent += 1;
            self.sending = Sending::Own { from: 0, to };
        }
    }

    /// Whether a frame of a replay comes before what is new.
    pub(super) const fn waits_for_replay(&self) -> bool {
        self.replay_turn || self.part.is_some()
    }

    /// Whether something must be told before anything else.
    pub(super) fn has_news(&self) -> bool {
        let lanes = &self.queue.lanes;
        self.beat || lanes.iter().any(|lane| lane.announce.is_some() || lane.left_out.is_some())
    }
}
