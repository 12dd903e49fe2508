//! The client: receives streams over TCP, and connects again where it was.
//!
//! ```text
//!   ┌─────────┐ 200 ms … 5 s  ┌────────────┐ connected ┌──────────┐ WELCOME  ┌──────┐
//!   │ WAITING │ ────────────► │ CONNECTING │ ────────► │ GREETING │ ───────► │ LIVE │
//!   └─────────┘               └────────────┘           └──────────┘          └──────┘
//!        ▲                          │  CHALLENGE first,     │                    │
//!        │                          │  if there is a key    │                    │ silence, BYE, refused
//!        └──────────────────────────┴───────────────────────┴────────────────────┘
//! ```
//!
//! Each stream is a **lane**. Its mark is the number below which everything was delivered or reported; HELLO
//! states it, and the server brings what lies between by a replay. Every DATA and GAP states how many
//! messages came before, so a client notices if a server sends something else than it says.

mod lane;
#[cfg(test)]
mod tests;

use self::lane::{Lane, Mode};
use crate::arrivals::{Flow, Inbox};
use crate::audience::Name;
use crate::config::tcp::TcpConfig;
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Realm, Session, Source, Stream};
use crate::random::Random;
use crate::reassembly::{Bound, Message, Parts};
use crate::time::{MILLISECOND, Monotonic};
use crate::wire::tcp::{
    self, Body, Bye, Context, Direction, Flags, FrameData, Gap, Hello, Incoming,
    MAX_CLIENT_FRAME_BYTES, MAX_FRAME_BYTES, MAX_STREAMS, NONCE_BYTES, Nonces, Replay, Resume,
    Seal, Welcome,
};
use crate::wire::{Chunk, Keys, Reject, Rules, Start, TableName};

/// Who connects.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// The realm of server and client.
    pub realm: Realm,
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// The client's own source id.
    pub source: Source,
    /// The client's own session.
    pub session: Session,
    /// The name of the client's node.
    pub name: Name,
}

/// What the caller must do or may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Connect, and call [`Client::connected`] or [`Client::disconnected`].
    Connect,
    /// The server has listed its streams.
    Live,
    /// The connection has ended: close it. A client that has not [ended](Client::end) connects again.
    Down(Bye),
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were delivered.
    pub messages: u64,
    /// Messages that were reported as lost.
    pub lost: u64,
    /// Messages that came before, and were dropped.
    pub known: u64,
    /// Connections on which the server answered.
    pub connections: u64,
    /// What was refused, in the order of [`Reject::ALL`].
    pub rejects: [u64; Reject::ALL.len()],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting {
        until: Monotonic,
    },
    Connecting {
        since: Monotonic,
    },
    /// With a key, until CHALLENGE comes, `greeted` is false.
    Greeting {
        since: Monotonic,
        greeted: bool,
    },
    Live,
    Ended,
}

/// How many times the silence that it bears a client waits for a frame of this connection alone, as HEARTBEAT is, and for the answer
/// to a REPLAY. Other bytes prove nothing: a host on the path may have changed the length of a frame, so that they complete nothing,
/// or taken out all but the DATA of another stream.
const PATIENCE: u64 = 4;

/// A message of which some parts have arrived.
#[derive(Debug, Clone, Copy)]
struct Collected {
    place: usize,
    start: Start,
    message: MessageNumber,
    total: usize,
    received: usize,
}

/// The patterns do not fit a HELLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the patterns of a client must fit a HELLO of {MAX_CLIENT_FRAME_BYTES} bytes, at least one"
)]
pub struct TooManyPatterns;

/// Receives the streams of one server.
#[derive(Debug)]
pub struct Client {
    config: TcpConfig,
    identity: Identity,
    patterns: Box<[Box<str>]>,
    /// Nothing comes but the history that it asks for.
    is_historian: bool,
    random: Random,
    state: State,
    /// What the caller was not told yet.
    down: Option<Bye>,
    live: bool,
    connect: bool,
    nonces: Nonces,
    instance: [u8; 16],
    set: u16,
    beat_ns: u64,
    /// How many frames of this connection alone were sent and received.
    sent: u64,
    received: u64,
    incoming: Incoming,
    outgoing: Box<[u8]>,
    unsent: (usize, usize),
    lanes: Box<[Lane]>,
    /// The lanes in the order of WELCOME. Never grows beyond [`MAX_STREAMS`], for which it has memory.
    places: Vec<usize>,
    collected: Option<Collected>,
    /// The server has said that it has sent everything, and ends.
    is_complete: bool,
    assembly: Box<[u8]>,
    retry_ns: u64,
    heard: Monotonic,
    /// When the last frame of this connection alone came, whose MAC says that none before it is missing.
    counted: Monotonic,
    /// Since when the server owes an answer to a REPLAY.
    asked_since: Option<Monotonic>,
    counters: Counters,
}

impl Client {
    /// Makes a client that connects at once. The configuration was checked by [`TcpConfig::check`].
    ///
    /// # Errors
    ///
    /// If the patterns, at least one, do not fit a HELLO.
    pub fn new(
        config: &TcpConfig,
        identity: &Identity,
        patterns: &[TableName<'_>],
        random: Random,
        now: Monotonic,
    ) -> Result<Self, TooManyPatterns> {
        let message_max = usize::try_from(config.message_max_bytes).unwrap_or(usize::MAX);
        let mut client = Self {
            is_historian: false,
            config: config.clone(),
            identity: *identity,
            patterns: patterns.iter().map(|pattern| pattern.as_str().into()).collect(),
            random,
            state: State::Waiting { until: now },
            down: None,
            live: false,
            connect: false,
            nonces: Nonces::default(),
            instance: [0; 16],
            set: 0,
            beat_ns: 0,
            sent: 0,
            received: 0,
            incoming: Incoming::new(MAX_FRAME_BYTES),
            outgoing: vec![0; MAX_CLIENT_FRAME_BYTES].into(),
            unsent: (0, 0),
            lanes: (0..MAX_STREAMS).map(|_| Lane::new()).collect(),
            places: Vec::with_capacity(MAX_STREAMS),
            collected: None,
            is_complete: false,
            assembly: vec![0; message_max].into(),
            retry_ns: config.retry_ns,
            heard: now,
            counted: now,
            asked_since: None,
            counters: Counters {
                messages: 0,
                lost: 0,
                known: 0,
                connections: 0,
                rejects: [0; Reject::ALL.len()],
            },
        };
        // It must fit with as many resume points as there can be.
        let names: usize = patterns.iter().map(|name| 1 + name.as_str().len()).sum();
        let room = MAX_CLIENT_FRAME_BYTES - lane::HELLO_BYTES;
        if patterns.is_empty() || patterns.len() > usize::from(u16::MAX) || names > room {
            return Err(TooManyPatterns);
        }
        client.handle_timeout(now);
        Ok(client)
    }

    /// Receives nothing but the history that [`Self::replay`] asks for.
    #[must_use]
    pub fn only_history(self) -> Self {
        Self { is_historian: true, ..self }
    }

    /// Notes where a stream continues, before the first connection. Returns `false` if there are too many.
    pub fn remember(&mut self, resume: Resume) -> bool {
        match self.lane_of(resume.source, resume.stream) {
            Some(lane) => {
                lane.remember(resume);
                true
            }
            None => false,
        }
    }

    /// Returns where each stream continues.
    pub fn marks(&self) -> impl Iterator<Item = Resume> {
        self.lanes.iter().filter_map(Lane::resume)
    }

    /// Returns the patterns of a stream, as the server states them.
    pub fn patterns(&self, source: Source, stream: Stream) -> impl Iterator<Item = TableName<'_>> {
        self.lanes.iter().filter(move |lane| lane.is(source, stream)).flat_map(Lane::patterns)
    }

    /// Returns what happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Asks for history: messages of a stream from `first` on. Once it has begun, the next connection continues it if this
    /// one is lost. A client that receives [only history](Self::only_history) says with `until` where it ends: there, or
    /// after what the server has now. Returns `false` if the connection has no such stream now, or if `until` is missing
    /// there or given by another client, whose streams do not end.
    pub fn replay(
        &mut self,
        source: Source,
        stream: Stream,
        first: Number,
        until: Option<Number>,
    ) -> bool {
        let live = self.state == State::Live;
        let place = self.places.iter().find(|place| self.lanes[**place].is(source, stream));
        match place.copied().filter(|_| live && until.is_some() == self.is_historian) {
            Some(place) => {
                self.lanes[place].ask = Some((first, until));
                true
            }
            None => false,
        }
    }

    /// What a stream has brought since this number was not taken: the client asks for it, and delivers nothing else of the stream
    /// before that comes.
    pub fn rejoin(&mut self, source: Source, stream: Stream, next: Number) {
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.is(source, stream)) {
            lane.rejoin(next);
        }
    }

    /// Returns how far the history of a stream has come that was asked for, and whether that was all. `None` if the server has
    /// not answered.
    #[must_use]
    pub fn replayed(&self, source: Source, stream: Stream) -> Option<(Number, bool)> {
        let lane = self.lanes.iter().find(|lane| lane.is(source, stream))?;
        let asked = lane.ask.is_some() || lane.asked.is_some();
        (self.state == State::Live && !asked && lane.mode != Mode::Live)
            .then(|| (lane.mark(), lane.mode == Mode::Ended))
    }

    /// The lane of a stream, a new one if there is none.
    fn lane_of(&mut self, source: Source, stream: Stream) -> Option<&mut Lane> {
        let found = self.lanes.iter().position(|lane| lane.is(source, stream));
        let place = found.or_else(|| self.lanes.iter().position(Lane::is_free))?;
        let lane = self.lanes.get_mut(place)?;
        lane.take(source, stream);
        Some(lane)
    }

    /// Notes that the caller has connected. With a key, `nonce` must be random.
    pub fn connected(&mut self, now: Monotonic, nonce: [u8; NONCE_BYTES]) {
        if !matches!(self.state, State::Connecting { .. }) {
            return;
        }
        self.nonces = Nonces { server: [0; NONCE_BYTES], client: nonce };
        (self.sent, self.received) = (0, 0);
        self.incoming.clear();
        self.unsent = (0, 0);
        self.places.clear();
        self.collected = None;
        self.is_complete = false;
        (self.heard, self.counted) = (now, now);
        self.asked_since = None;
        let keyed = self.identity.keys.is_some();
        self.state = State::Greeting { since: now, greeted: !keyed };
        if !keyed {
            self.hello();
        }
    }

    /// Notes that the connection was lost, or could not be made.
    pub fn disconnected(&mut self, now: Monotonic) {
        self.down(now, Bye::Lost);
    }

    fn down(&mut self, now: Monotonic, reason: Bye) {
        if matches!(self.state, State::Waiting { .. } | State::Ended) {
            return;
        }
        self.down = Some(reason);
        (self.live, self.connect) = (false, false);
        self.unsent = (0, 0);
        self.places.clear();
        self.collected = None;
        let pause = self.random.between(self.retry_ns * 3 / 4, self.retry_ns * 5 / 4);
        self.retry_ns = self.retry_ns.saturating_mul(2).min(self.config.retry_max_ns);
        self.state = State::Waiting { until: now.after(pause) };
    }

    /// Ends the connection for good. What [`Self::transmit`] still returns says so to the server.
    pub fn end(&mut self) {
        if self.state == State::Live && self.unsent.0 == self.unsent.1 {
            self.build(|seal, buffer| Bye::Ended.encode(seal, buffer));
        }
        let open = !matches!(self.state, State::Waiting { .. } | State::Ended);
        self.down = open.then_some(Bye::Ended).or(self.down);
        (self.live, self.connect) = (false, false);
        self.state = State::Ended;
    }

    /// The longest message that it takes, in bytes.
    fn message_max(&self) -> u32 {
        u32::try_from(self.config.message_max_bytes).unwrap_or(u32::MAX)
    }

    fn hello(&mut self) {
        let Identity { realm, keys, source, session, name } = self.identity;
        let patterns = self.patterns.iter().filter_map(|name| TableName::new(name));
        let (flags, most) =
            if self.is_historian { (Flags::REPLAY, 0) } else { (Flags::NONE, MAX_STREAMS) };
        let resumes = self.lanes.iter().filter_map(Lane::resume).take(most);
        // Until WELCOME, the client's nonce counts as 0.
        let nonces = Nonces { client: [0; NONCE_BYTES], ..self.nonces };
        let context = Context::of_connection(&nonces, Direction::ToServer, self.sent);
        let built = Hello::encode(
            realm,
            (source, session),
            flags,
            self.nonces.client,
            self.message_max(),
            name.as_node_name(),
            patterns,
            resumes,
            &Seal { keys: keys.as_ref(), context },
            &mut self.outgoing,
        );
        debug_assert!(built.is_ok(), "the patterns were measured");
        self.sent += 1;
        self.unsent = (0, built.unwrap_or(0));
    }

    fn build(
        &mut self,
        encode: impl FnOnce(&Seal<'_>, &mut [u8]) -> Result<usize, crate::wire::NoRoom>,
    ) {
        let context = Context::of_connection(&self.nonces, Direction::ToServer, self.sent);
        let seal = Seal { keys: self.identity.keys.as_ref(), context };
        let built = encode(&seal, &mut self.outgoing);
        self.sent += 1;
        self.unsent = (0, built.unwrap_or(0));
    }

    /// Returns what the caller must write, if there is something.
    pub fn transmit(&mut self) -> Option<&[u8]> {
        if self.unsent.0 >= self.unsent.1 && self.state == State::Live {
            let asked = self.places.iter().enumerate().find_map(|(place, lane)| {
                self.lanes.get(*lane).and_then(|lane| lane.ask).map(|ask| (place, *lane, ask))
            });
            if let Some((place, lane, (first, until))) = asked {
                self.lanes[lane].ask = None;
                self.lanes[lane].asked = Some(first);
                self.asked_since.get_or_insert(self.heard);
                let flags = if until.is_some() { Flags::END } else { Flags::NONE };
                let replay = Replay { first, until: until.unwrap_or_default() };
                let (place, zero) = (u16::try_from(place).unwrap_or(u16::MAX), MessageNumber::ZERO);
                self.build(|seal, buffer| replay.encode(place, flags, zero, seal, buffer));
            }
        }
        let (from, to) = self.unsent;
        self.outgoing.get(from..to).filter(|bytes| !bytes.is_empty())
    }

    /// Notes that the connection took this many bytes of [`Self::transmit`].
    pub fn wrote(&mut self, length: usize) {
        self.unsent.0 = self.unsent.0.saturating_add(length).min(self.unsent.1);
    }

    /// Returns memory into which the caller receives the next bytes. It is empty if there is no connection.
    pub fn room(&mut self) -> &mut [u8] {
        match self.state {
            State::Greeting { .. } | State::Live => self.incoming.room(),
            _ => &mut [],
        }
    }

    /// Notes that something has come that the caller does not take yet: the server is not silent, and what it owes may be there.
    pub fn postpone(&mut self, now: Monotonic) {
        let pause = now.since(self.heard);
        self.heard = now;
        self.counted = self.counted.after(pause);
        self.asked_since = self.asked_since.map(|since| since.after(pause));
    }

    /// Takes this many bytes that were received into [`Self::room`].
    pub fn received(&mut self, now: Monotonic, length: usize, out: &mut impl Inbox) {
        self.heard = now;
        let mut incoming = core::mem::take(&mut self.incoming);
        incoming.received(length);
        let taken = self.frames(now, &mut incoming, out);
        self.incoming = incoming;
        if let Err(reason) = taken {
            self.counters.rejects[reason.index()] += 1;
            self.down(now, Bye::Refused);
        }
    }

    fn frames(
        &mut self,
        now: Monotonic,
        incoming: &mut Incoming,
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let keys = self.identity.keys;
        let message_max = self.message_max();
        let rules = Rules { realm: self.identity.realm, keys: keys.as_ref(), message_max };
        while matches!(self.state, State::Greeting { .. } | State::Live)
            && let Some(bytes) = incoming.next_frame()?
        {
            let (instance, set, count) = (self.instance, self.set, self.received);
            let (mut nonces, live) = (self.nonces, self.state == State::Live);
            let is_shared =
                |kind, flags: Flags| kind == tcp::Kind::Data && !flags.has(Flags::REPLAY);
            let frame = tcp::parse(bytes, &rules, |kind, flags| {
                if is_shared(kind, flags) {
                    return Context::of_set(instance, set);
                }
                if !live && kind != tcp::Kind::Welcome {
                    nonces.client = [0; NONCE_BYTES];
                }
                Context::of_connection(&nonces, Direction::ToClient, count)
            })?;
            let shared = is_shared(frame.header.kind, frame.header.flags);
            if !shared || mutant("data_counts_as_heartbeat") {
                self.counted = now;
            }
            self.received += u64::from(!shared);
            let stream = usize::from(frame.header.stream);
            let header = frame.header;
            match (self.state, frame.body) {
                (State::Greeting { since, greeted: false }, Body::Challenge(challenge)) => {
                    self.nonces.server = challenge.0;
                    self.state = State::Greeting { since, greeted: true };
                    self.hello();
                }
                (State::Greeting { greeted: true, .. }, Body::Welcome(welcome)) => {
                    self.welcome(&welcome, out)?;
                }
                (_, Body::Bye(reason)) => self.down(now, reason),
                // Only BYE follows the end.
                _ if self.is_complete => return Err(Reject::Unexpected),
                (State::Live, Body::Data(data)) => self.data(&header, &data, out)?,
                (State::Live, Body::Gap(gap)) => self.gap(&header, &gap, out)?,
                (State::Live, Body::Topics(names)) => {
                    let lane = self.lane_at(stream)?;
                    for (number, name) in names.entries() {
                        lane.topic(number, name, out);
                    }
                }
                (State::Live, Body::Heartbeat(beat)) => {
                    let streams = || self.places.iter().zip(beat.streams());
                    let has_come = |(place, reached): (&usize, tcp::Reached)| {
                        // Nor is the rest missing of a message that was begun.
                        let mut begun = self.collected.iter().filter(|one| one.place == *place);
                        self.lanes[*place].has_come(reached.message)
                            && (begun.all(|one| one.start.number >= reached.number)
                                || mutant("heartbeat_within_a_message"))
                    };
                    if beat.streams().len() != self.places.len() || !streams().all(has_come) {
                        return Err(Reject::Unexpected);
                    }
                    let is_end = header.flags.has(Flags::END);
                    if is_end && self.collected.is_some() {
                        return Err(Reject::Unexpected);
                    }
                    for (place, reached) in streams() {
                        let lane = &mut self.lanes[*place];
                        lane.heartbeat(reached.number, &mut self.counters, out);
                        if is_end {
                            lane.complete(out);
                        }
                    }
                    self.is_complete = is_end;
                }
                (State::Live, Body::Replay(replay)) => {
                    let place = *self.places.get(stream).ok_or(Reject::Stream)?;
                    self.collected = self.collected.filter(|one| one.place != place);
                    let lane = &mut self.lanes[place];
                    lane.replay(&header, &replay, &mut self.counters, out)?;
                    let owes = self.places.iter().any(|place| self.lanes[*place].asked.is_some());
                    self.asked_since = owes.then_some(now);
                }
                _ => return Err(Reject::Unexpected),
            }
        }
        Ok(())
    }

    fn lane_at(&mut self, stream: usize) -> Result<&mut Lane, Reject> {
        let place = *self.places.get(stream).ok_or(Reject::Stream)?;
        self.lanes.get_mut(place).ok_or(Reject::Stream)
    }

    fn welcome(&mut self, welcome: &Welcome<'_>, out: &mut impl Inbox) -> Result<(), Reject> {
        (self.instance, self.set) = (welcome.instance, welcome.set);
        self.beat_ns = u64::from(welcome.beat_ms) * MILLISECOND;
        for offer in welcome.streams() {
            self.lane_of(offer.source, offer.stream).ok_or(Reject::Count)?;
            let place = self
                .lanes
                .iter()
                .position(|lane| lane.is(offer.source, offer.stream))
                .filter(|place| !self.places.contains(place))
                .ok_or(Reject::Unexpected)?;
            self.places.push(place);
            if self.is_historian {
                self.lanes[place].attend(&offer, out);
            } else {
                self.lanes[place].join(&offer, &mut self.counters, out);
            }
        }
        self.state = State::Live;
        self.live = true;
        self.retry_ns = self.config.retry_ns;
        self.counters.connections += 1;
        Ok(())
    }

    fn data(
        &mut self,
        header: &tcp::Header,
        data: &FrameData<'_>,
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let place = *self.places.get(usize::from(header.stream)).ok_or(Reject::Stream)?;
        let lane = &mut self.lanes[place];
        lane.expect(header.flags, header.message)?;
        lane.settle(&mut self.counters, out);
        let mut after = header.message;
        for (index, placed) in data.chunks().enumerate() {
            let message = placed.message;
            let begun = self.collected.take();
            match placed.chunk {
                Chunk::Rest { topic, offset, last, payload } => {
                    // The first chunk of a frame continues the message that was begun.
                    let mut one = begun
                        .filter(|one| {
                            one.place == place
                                && one.message == message
                                && one.start.topic == topic
                                && one.received == offset as usize
                        })
                        .ok_or(Reject::Unexpected)?;
                    let end = one.received + payload.len();
                    if end > one.total || (end == one.total) != last {
                        return Err(Reject::Fragment);
                    }
                    let part = self.assembly.get_mut(one.received..end).ok_or(Reject::TooLong)?;
                    part.copy_from_slice(payload);
                    one.received = end;
                    if last {
                        let bytes = self.assembly.get(..end).unwrap_or_default();
                        let (start, parts) = (one.start, Parts::one(bytes));
                        let whole = Message { message, start, sent: None, parts };
                        lane.message(whole, &mut self.counters, out)?;
                    } else {
                        self.collected = Some(one);
                    }
                }
                // What was begun is finished, or left out, before anything else comes.
                _ if index == 0 && begun.is_some() => return Err(Reject::Unexpected),
                Chunk::Message { start, payload } => {
                    let parts = Parts::one(payload);
                    let whole = Message { message, start, sent: None, parts };
                    lane.message(whole, &mut self.counters, out)?;
                    after = message.plus(1);
                }
                Chunk::First { start, total, payload } => {
                    let (total, received) = (total as usize, payload.len());
                    let part = self.assembly.get_mut(..received).ok_or(Reject::TooLong)?;
                    part.copy_from_slice(payload);
                    self.collected = Some(Collected { place, start, message, total, received });
                    after = message.plus(1);
                }
                Chunk::Topic { number, name } => lane.topic(number, name, out),
                Chunk::Lost { count, until, reason } => {
                    let first = lane.mark();
                    let gap = Gap { first, until, count, bound: Bound::Exact, reason };
                    lane.lost(message, &gap, &mut self.counters, out);
                    after = message.plus(count);
                }
            }
        }
        lane.advance(after);
        Ok(())
    }

    fn gap(&mut self, header: &tcp::Header, gap: &Gap, out: &mut impl Inbox) -> Result<(), Reject> {
        let place = *self.places.get(usize::from(header.stream)).ok_or(Reject::Stream)?;
        let lane = &mut self.lanes[place];
        let due = lane.expected(header.flags)?;
        // A message of which some parts came is lost too.
        let cut = self.collected.is_some_and(|one| one.place == place);
        if cut {
            self.collected = None;
        }
        let counted = header.message.since(due) + u64::from(cut);
        if header.message < due || (gap.bound == Bound::Exact && counted != gap.count) {
            return Err(Reject::Unexpected);
        }
        lane.settle(&mut self.counters, out);
        lane.lost(due, gap, &mut self.counters, out);
        lane.advance(header.message);
        Ok(())
    }

    /// Returns when [`Self::handle_timeout`] must be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Connecting { since } if !self.connect => Some(since.after(self.config.hello_ns)),
            State::Greeting { since, .. } => Some(since.after(self.config.hello_ns)),
            State::Live => {
                let silence = self.config.silence_ns.max(self.beat_ns.saturating_mul(3));
                let patience = silence.saturating_mul(PATIENCE);
                let asked = self.asked_since.filter(|_| !mutant("question_without_end"));
                let owed = asked.map_or(self.counted, |asked| asked.min(self.counted));
                Some(owed.after(patience).min(self.heard.after(silence)))
            }
            State::Connecting { .. } | State::Ended => None,
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        match self.state {
            State::Waiting { .. } => {
                self.state = State::Connecting { since: now };
                self.connect = true;
            }
            State::Live => self.down(now, Bye::Silent),
            State::Connecting { .. } | State::Greeting { .. } => self.down(now, Bye::Late),
            State::Ended => {}
        }
    }

    /// Returns what happened, once each.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(reason) = self.down.take() {
            return Some(Event::Down(reason));
        }
        if core::mem::take(&mut self.connect) {
            return Some(Event::Connect);
        }
        core::mem::take(&mut self.live).then_some(Event::Live)
    }

    /// Returns the streams of the connection.
    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        self.places.iter().filter_map(|place| self.lanes.get(*place)?.flow())
    }

    /// Returns whether all streams of the connection get what is new, and none a replay.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let live = |place: &usize| self.lanes[*place].mode == Mode::Live;
        self.state == State::Live && self.places.iter().all(live)
    }
}
