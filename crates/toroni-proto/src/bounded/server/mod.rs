//! The server: sends streams to clients over TCP.
//!
//! ```text
//!   ┌─────────┐   HELLO, after     ┌──────┐   refused, slow, late, ended   ┌─────────┐  BYE  ┌────────┐
//!   │ OPENING │ ─────────────────► │ LIVE │ ─────────────────────────────► │ CLOSING │ ────► │ CLOSED │
//!   └─────────┘   CHALLENGE if     └──────┘                                └─────────┘       └────────┘
//!                 there is a key      │           stalled, disconnected                           ▲
//!                                     └───────────────────────────────────────────────────────────┘
//! ```
//!
//! The caller accepts connections, reads from them into [`Server::room`], and knows which patterns belong
//! to which **set**. It adds each message to the sets that it matches. In each turn it asks for the clients
//! that have something to write, in an order that is drawn each time, and writes what [`Server::transmit`] returns
//! until it returns nothing or the connection takes no more.
//!
//! A client gets, in this order: what begins or ends its replays and what was left out, HEARTBEAT, names,
//! and frames, the oldest first. Between two frames of other streams, a replay may send one of its own.
//!
//! A server that ends first sends what the caller says that it owes: see [`Server::drain`].

mod arrive;
mod drain;
mod publish;
mod replay;
mod slot;
#[cfg(test)]
mod tests;
mod transmit;

pub use self::replay::{Full, Wanted};

use self::drain::Drain;
use self::slot::{Slot, State};
use super::batch::{Batch, Room};
use super::frames::Frames;
use crate::batcher::Now;
use crate::budget::{Budget, Part};
use crate::config::tcp::TcpConfig;
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Realm, Series, Session, Source, Stream};
use crate::limiter::Limiter;
use crate::past::Past;
use crate::random::Random;
use crate::time::{MILLISECOND, Monotonic, SECOND};
use crate::topics::Table;
use crate::wire::tcp::{
    self, Bye, Challenge, Context, Direction, Hello, MAX_STREAMS, NONCE_BYTES, Reached, Seal,
};
use crate::wire::{Keys, Reject, TableName, TopicNumber};

/// For how long a connection that ends may finish its last frames.
const CLOSING_NS: u64 = SECOND;
/// How often a limiter gets credit.
const RATE_INTERVAL_NS: u64 = 10 * MILLISECOND;

/// Who serves.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// The realm of server and clients.
    pub realm: Realm,
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// The server's own source id.
    pub source: Source,
    /// The server's own session.
    pub session: Session,
    /// Drawn by each process when it starts.
    pub instance: [u8; 16],
}

/// A stream that is served.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// Who sends it.
    pub source: Source,
    /// In which life.
    pub session: Session,
    /// The series of its numbers.
    pub series: Series,
    /// The stream.
    pub stream: Stream,
    /// Whether it is a feed, whose messages have origins.
    pub feed: bool,
    /// What is sent has this number or a greater one.
    pub next: Number,
    /// What the server remembers of earlier sessions.
    pub past: Past,
    /// The stream's patterns, at most 16.
    pub patterns: &'a [TableName<'a>],
}

/// A client. The number is used again after [`Event::Closed`] was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u16);

/// Decides what clients ask for.
pub trait Door {
    /// A client has said HELLO. Returns the set that it belongs to, or `None` if there is no place for it. Clients of a set have
    /// the same patterns and the same `message_max`, which is never above that of the server here.
    fn hello(&mut self, client: ClientId, hello: &Hello<'_>) -> Option<usize>;
}

/// What happens seldom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A connection has ended, and the caller must close it.
    Closed {
        /// Which.
        client: ClientId,
        /// Why.
        reason: Bye,
    },
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Clients that were accepted.
    pub accepted: u64,
    /// Clients for which there was no place.
    pub full: u64,
    /// Frames of messages that were made.
    pub frames: u64,
    /// Messages that were left out, counted for each client.
    pub left_out: u64,
    /// The longest time that a frame waited before it was begun.
    pub waited_max_ns: u64,
    /// What was refused, in the order of [`Reject::ALL`].
    pub rejects: [u64; Reject::ALL.len()],
}

/// What waits for one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Bytes of frames that were not begun.
    pub bytes: u64,
    /// When the oldest of them was made.
    pub since: Option<Monotonic>,
    /// Messages that were left out since it connected.
    pub left_out: u64,
}

/// A client holds the server, whose pace is that of its receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a client with a full queue holds the stream")]
pub struct Held;

/// A server cannot offer its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server has 1 to {MAX_STREAMS} streams, of which each has at most 16 patterns")]
pub struct TooManyStreams;

#[derive(Debug)]
struct Offered {
    source: Source,
    session: Session,
    series: Series,
    stream: Stream,
    feed: bool,
    patterns: Box<[Box<str>]>,
    /// All messages below were added to all sets that they match.
    next: Number,
    past: Past,
    names: Table,
}

/// A stream, for one set of patterns.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    /// The message number of the next message that is not in a frame yet.
    message: MessageNumber,
    /// All messages that were added have numbers below.
    given: Number,
}

#[derive(Debug)]
struct Set {
    batch: Batch,
    members: Option<u16>,
    /// The longest message that its clients take. A longer one is lost for them.
    message_max_bytes: u64,
}

/// Serves streams to clients.
#[derive(Debug)]
pub struct Server {
    config: TcpConfig,
    identity: Identity,
    streams: Box<[Offered]>,
    sets: Box<[Set]>,
    /// For each set, its streams.
    lanes: Box<[Lane]>,
    room: Room,
    frames: Frames,
    slots: Box<[Slot]>,
    /// The clients of this turn that were not served yet.
    order: Vec<u16>,
    replay_next: usize,
    replay_rate: Limiter,
    /// No history is brought before.
    replay_from: Monotonic,
    random: Random,
    /// It accepts no client any more.
    ended: bool,
    /// What it still sends before it ends.
    drain: Option<Drain>,
    farewell: [u8; 64],
    /// From the first message of a frame until a client's connection has taken it.
    queueing: Budget,
    counters: Counters,
}

impl Server {
    /// Allocates a server. The configuration was checked by [`TcpConfig::check`].
    ///
    /// # Errors
    ///
    /// If there are too many streams or patterns.
    pub fn new(
        config: &TcpConfig,
        identity: &Identity,
        streams: &[Served<'_>],
        random: Random,
        now: Monotonic,
    ) -> Result<Self, TooManyStreams> {
        let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let few_patterns =
            |one: &Served<'_>| one.patterns.len() <= usize::from(crate::wire::MAX_PATTERNS);
        if streams.is_empty() || streams.len() > MAX_STREAMS || !streams.iter().all(few_patterns) {
            return Err(TooManyStreams);
        }
        let topics = u32::try_from(config.topics).unwrap_or(u32::MAX);
        let offered: Box<[Offered]> = streams
            .iter()
            .map(|one| Offered {
                source: one.source,
                session: one.session,
                series: one.series,
                stream: one.stream,
                feed: one.feed,
                patterns: one.patterns.iter().map(|pattern| pattern.as_str().into()).collect(),
                next: one.next,
                past: one.past,
                names: Table::new(topics),
            })
            .collect();
        let (sets, clients) = (count(config.sets), count(config.clients));
        let lanes = sets * streams.len();
        let signed = identity.keys.is_some();
        let set = || Set {
            batch: Batch::new(count(config.batch_bytes)),
            members: None,
            message_max_bytes: config.message_max_bytes,
        };
        let server = Self {
            config: config.clone(),
            identity: *identity,
            sets: (0..sets).map(|_| set()).collect(),
            lanes: vec![Lane::default(); lanes].into(),
            room: Room { chunks_end: Self::chunks_end(config.batch_bytes, signed) },
            frames: Frames::new(count(config.frame_memory_bytes), lanes),
            slots: (0..clients).map(|_| Slot::new(streams.len(), topics)).collect(),
            order: Vec::with_capacity(clients),
            replay_next: 0,
            replay_rate: Limiter::new(
                Some(config.replay_rate()),
                RATE_INTERVAL_NS,
                config.batch_bytes,
                now,
            ),
            replay_from: now,
            random,
            ended: false,
            drain: None,
            farewell: [0; 64],
            queueing: Budget::new(Part::TcpQueue),
            counters: Counters {
                accepted: 0,
                full: 0,
                frames: 0,
                left_out: 0,
                waited_max_ns: 0,
                rejects: [0; Reject::ALL.len()],
            },
            streams: offered,
        };
        // What every client gets must fit the memory of one.
        let seal =
            Seal { keys: identity.keys.as_ref(), context: Context::of_set(identity.instance, 0) };
        let mut buffer = vec![0; slot::OWN_BYTES];
        server.welcome(0, &seal, &mut buffer).map_err(|_| TooManyStreams)?;
        Ok(server)
    }

    /// Returns what happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns what waits for each client that has said HELLO.
    pub fn queues(&self) -> impl Iterator<Item = (ClientId, Waiting)> {
        let live = (0..).zip(&self.slots).filter(|(_, slot)| slot.state == State::Live);
        live.map(|(at, slot)| {
            let since = slot.queue.oldest().map(|(_, handle)| self.frames.about(handle).made);
            let (bytes, left_out) = (slot.queue.bytes(), slot.queue.left_out());
            (ClientId(at), Waiting { bytes, since, left_out })
        })
    }

    /// Returns how long frames took until a connection had taken them, counted for each client. The caller sets its limit,
    /// and asks what exceeded it.
    pub const fn queueing(&mut self) -> &mut Budget {
        &mut self.queueing
    }

    /// Returns the number of a topic. Returns `None` if the stream's table is full: then the caller reports
    /// its messages with [`Self::lost`] and [`LostReason::Topic`](crate::wire::LostReason::Topic).
    pub fn topic(&mut self, stream: usize, name: TableName<'_>) -> Option<TopicNumber> {
        let names = &mut self.streams[stream].names;
        names.find(name.as_str()).or_else(|| names.add(name).ok())
    }

    /// Takes a new connection. With a key, `nonce` must be random: it makes recorded frames worthless.
    ///
    /// Returns `None` if there are as many clients as there may be. Then the caller writes
    /// [`Self::farewell`], as far as the connection takes it at once, and closes it.
    pub fn accept(&mut self, now: Monotonic, nonce: [u8; NONCE_BYTES]) -> Option<ClientId> {
        let free = self.slots.iter().position(|slot| slot.state == State::Free);
        let Some(at) = free.filter(|_| !self.ended) else {
            self.counters.full += u64::from(!self.ended);
            return None;
        };
        self.counters.accepted += 1;
        let slot = &mut self.slots[at];
        slot.open(now);
        if let Some(keys) = &self.identity.keys {
            slot.build(Some(keys), |seal, own| Challenge(nonce).encode(seal, own));
            slot.nonces.server = nonce;
        }
        u16::try_from(at).ok().map(ClientId)
    }

    /// Returns a BYE for a connection that was not accepted.
    pub fn farewell(&mut self) -> &[u8] {
        let context = Context::of_connection(&tcp::Nonces::default(), Direction::ToClient, 0);
        let seal = Seal { keys: self.identity.keys.as_ref(), context };
        let reason = if self.ended { Bye::Ended } else { Bye::Full };
        let length = reason.encode(&seal, &mut self.farewell).unwrap_or(0);
        self.farewell.get(..length).unwrap_or_default()
    }

    fn lane(&self, set: usize, stream: usize) -> usize {
        set * self.streams.len() + stream
    }

    /// All messages that were added to a lane have numbers below, and so have all that do not match it.
    fn lane_end(&self, set: usize, stream: usize) -> Number {
        self.streams[stream].next.max(self.lanes[self.lane(set, stream)].given)
    }

    /// What the next frame of a lane begins with.
    fn lane_start(&self, set: usize, stream: usize) -> Reached {
        match &self.sets[set].batch.open {
            Some(open) if open.stream == stream => {
                Reached { number: open.writer.number(), message: open.message }
            }
            _ => Reached {
                number: self.lane_end(set, stream),
                message: self.lanes[self.lane(set, stream)].message,
            },
        }
    }

    /// Ends a connection: what was begun is finished, then BYE is sent.
    fn close(&mut self, now: Monotonic, at: usize, reason: Bye) {
        let slot = &mut self.slots[at];
        if !matches!(slot.state, State::Opening | State::Live) {
            return;
        }
        self.leave_set(at);
        let slot = &mut self.slots[at];
        let until = now.after(CLOSING_NS);
        // A client that was sent everything may take its time to hear that.
        let drain = self.drain.filter(|_| slot.state == State::Live && reason == Bye::Ended);
        let until = drain.map_or(until, |drain| drain.until.max(until));
        slot.state = State::Closing(reason, until);
        slot.queue.clear(&mut self.frames);
        slot.building = None;
        if mutant("begun_frame_dropped") {
            slot.release(&mut self.frames);
        }
    }

    fn close_at_once(&mut self, at: usize, reason: Bye) {
        if matches!(self.slots[at].state, State::Free | State::Closed(_)) {
            return;
        }
        self.leave_set(at);
        let slot = &mut self.slots[at];
        slot.release(&mut self.frames);
        slot.state = State::Closed(reason);
    }

    fn leave_set(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if slot.state != State::Live {
            return;
        }
        let (after, set) = (slot.next_member.take(), slot.set);
        let this = u16::try_from(at).ok();
        if self.sets[set].members == this {
            self.sets[set].members = after;
        } else {
            let before = self.slots.iter_mut().find(|slot| {
                slot.state == State::Live && slot.set == set && slot.next_member == this
            });
            if let Some(before) = before {
                before.next_member = after;
            }
        }
        if self.sets[set].members.is_none() {
            // No client waits for it, and the set may get other patterns.
            self.sets[set].batch.open = None;
        }
    }

    /// Notes that a connection was lost, or closed by the client.
    pub fn disconnected(&mut self, client: ClientId) {
        if usize::from(client.0) < self.slots.len() {
            self.close_at_once(usize::from(client.0), Bye::Lost);
        }
    }

    /// Ends all connections, and accepts none any more. Messages that wait are not sent: clients that were not sent all of them
    /// find that their connection is lost, and ask for the rest when a server is back.
    pub fn end(&mut self, now: Monotonic) {
        (self.ended, self.drain) = (true, None);
        (0..self.slots.len()).for_each(|at| self.close(now, at, Bye::Ended));
    }

    /// Returns when [`Self::handle_timeout`] must be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let clients = self.slots.iter().filter_map(|slot| self.deadline(slot));
        let batches = (0..self.sets.len()).filter_map(|set| self.batch_due(set));
        let replay = self.replay_due();
        clients.chain(batches).chain(replay).min()
    }

    fn deadline(&self, slot: &Slot) -> Option<Monotonic> {
        let stalled = slot.blocked_since.map(|since| since.after(self.config.stall_ns));
        let late = slot.awaited_since.map(|since| since.after(self.config.hello_ns));
        match slot.state {
            State::Free | State::Closed(_) => None,
            State::Opening => late,
            State::Closing(_, until) => Some(until),
            State::Live => {
                let held = slot.held_since.map(|since| since.after(self.config.hold_limit_ns));
                // While it is blocked, it is not told that it lives.
                let beat = (!slot.beat).then_some(slot.beat_due);
                [stalled, held, late, beat].into_iter().flatten().min()
            }
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let due = |since: Option<Monotonic>, pause| {
                since.is_some_and(|since: Monotonic| since.after(pause) <= now.monotonic)
            };
            match slot.state {
                State::Free | State::Closed(_) => {}
                State::Opening | State::Live if due(slot.awaited_since, self.config.hello_ns) => {
                    self.close(now.monotonic, at, Bye::Late);
                }
                State::Opening => {}
                State::Closing(reason, until) if until <= now.monotonic => {
                    self.close_at_once(at, reason);
                }
                State::Closing(..) => {}
                State::Live if due(slot.blocked_since, self.config.stall_ns) => {
                    self.close_at_once(at, Bye::Stalled);
                }
                State::Live if due(slot.held_since, self.config.hold_limit_ns) => {
                    self.close(now.monotonic, at, Bye::Slow);
                }
                State::Live => slot.beat |= slot.beat_due <= now.monotonic,
            }
        }
        self.close_late_batches(now);
    }

    /// Returns what happened, once each.
    pub fn poll_event(&mut self) -> Option<Event> {
        let closed = (0..).zip(&mut self.slots).find_map(|(at, slot)| match slot.state {
            State::Closed(reason) => Some((at, slot, reason)),
            _ => None,
        });
        let (at, slot, reason) = closed?;
        slot.state = State::Free;
        Some(Event::Closed { client: ClientId(at), reason })
    }
}
