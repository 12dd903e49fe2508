//! Arrivals: all streams of a realm that a node hears, and who sends them.
//!
//! ```text
//!   datagram ──► header, MAC ──► whose? ──► ours: echo, or another node with our id
//!                                  │
//!                                  ├──► a session that is followed ──► its receiver
//!                                  ├──► another session: with a key, followed once it has shown that it lives
//!                                  └──► a new source: a receiver that joins, with a key in the same way
//! ```
//!
//! With a key, a session is followed once it has repeated a nonce. Then a later one replaces the current one at
//! once, and an earlier one (a clock that went back) when the current one has been silent for longer than it promised.
//!
//! Without a key, a host that can forge a datagram can also answer, so nothing is asked. One forged datagram cannot silence a source
//! nevertheless: a later session replaces the current one only when that has been silent for longer than it promised in its last
//! SESSION, and is left again if the one before is heard before it has sent a SESSION. An earlier session replaces the current
//! one when that was silent for `activity` and two SESSIONs, a second apart, named the earlier one. The same holds with a key for
//! a receiver that has no way back to its senders, and cannot ask.
//!
//! A receiver is allocated when more sources than ever before are followed. There are at most `sources` of them,
//! and as many for sessions that another one has just replaced. Their memory is used again and never given back.

mod collisions;
mod counts;
mod proof;
mod sessions;
#[cfg(test)]
mod tests;

use self::collisions::Collision;
pub use self::collisions::Collisions;
pub use self::counts::Backlog;
use self::proof::{Asks, Nonces};
use self::sessions::{Entry, Place, Spare};
use core::cmp::Ordering;

use crate::audience::Name;
use crate::budget::{Exceeded, Limits};
use crate::config::Config;
use crate::hook::mutant;
use crate::id::{Number, Realm, Series, Session, Source, Stream};
use crate::legs::{Leg, Path};
use crate::past::Past;
use crate::random::Random;
use crate::reassembly::{Buffer, Deliver, Loss, Message, Pool};
use crate::receiver::{Arrived, End, Mark, Me, Receiver};
use crate::time::{MILLISECOND, Monotonic};
use crate::wire::{
    self, Address, Body, Data, Datagram, Flags, Header, Keys, Kind, LostReason, MAC_BYTES, Reject,
    Rules, SessionInfo, TableName, TopicNumber,
};

/// Receivers that join may hold this part of all buffers.
const JOINING_SHARE: usize = 16;
/// A turn that begins so much later than it was due was kept from running.
const LATE_NS: u64 = 20 * MILLISECOND;
/// How many events wait for the caller. Later ones are dropped.
const MAX_EVENTS: usize = 64;

/// A stream of a source, in one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Who sends it.
    pub source: Source,
    /// In which life.
    pub session: Session,
    /// Which of its streams.
    pub stream: Stream,
    /// The series of its numbers.
    pub series: Series,
}

/// What a session states when it begins to be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// How many names at the start of its table are the stream's patterns. No message comes before they are known.
    pub patterns: u8,
    /// What the sender remembers of earlier sessions.
    pub past: Past,
    /// The sender has taken all messages of the stream below this number from its bus.
    pub taken: Number,
}

/// Receives what arrives from all sources.
pub trait Inbox {
    /// A source states what its session is, before that is followed, from this address. Returns whether it is wanted. If not,
    /// nothing of it comes, and it is not asked for anything.
    fn wants(&mut self, flow: Flow, from: Address, session: &SessionInfo<'_>) -> bool {
        let _ = (flow, from, session);
        true
    }

    /// A pattern of a stream that comes over TCP, whose names have no patterns among them: called for each before
    /// [`Self::begins`].
    fn carries(&mut self, flow: Flow, pattern: TableName<'_>) {
        let _ = (flow, pattern);
    }

    /// A session begins to be followed. Returns where the series continues, if the caller has kept that and has not
    /// called [`Arrivals::remember`].
    fn begins(&mut self, flow: Flow, opening: &Opening) -> Option<Mark> {
        let _ = (flow, opening);
        None
    }

    /// Returns whether there is room for more of this flow. If not, what is complete waits in the receive buffers, and
    /// STATUS tells the sender how much room is left there. Once there is room again, the caller calls
    /// [`Arrivals::deliver_held`].
    fn has_room(&mut self, flow: Flow) -> bool {
        let _ = flow;
        true
    }

    /// A message.
    fn message(&mut self, flow: Flow, message: Message<'_>);
    /// The name of a topic, or a pattern, of this session.
    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>);
    /// Messages that were lost.
    fn loss(&mut self, flow: Flow, loss: Loss);

    /// The session that was followed has ended. What is missing of it was handed over before.
    fn ends(&mut self, flow: Flow, end: End) {
        let _ = (flow, end);
    }

    /// A stream whose sessions have ended made room for that of another source. Nothing comes of it before it begins
    /// again, and what was kept for it can be freed.
    fn forgets(&mut self, source: Source, stream: Stream) {
        let _ = (source, stream);
    }
}

/// What happens seldom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A session is followed from now on.
    Joined(Flow),
    /// A session has ended.
    Ended(Flow, End),
    /// Another node uses our source id.
    Collision {
        /// Where it is.
        address: Address,
        /// Whether we are the one that must stop sending. Without a key no node must, since anybody could
        /// forge this.
        stop: bool,
    },
    /// Repairs or the order of a stream took longer than their budget.
    Exceeded(Exceeded),
    /// What a source sends comes from an address that it does not list: perhaps there is a translation of addresses between. Once for
    /// each session.
    Unlisted(Flow, Address),
    /// A leg brings less of a stream than another: 1,000 datagrams or 1 s.
    LegBehind(Flow, Leg),
}

/// What is refused, by reason, in the order of [`Reject::ALL`].
pub type Rejects = [u64; Reject::ALL.len()];

/// Follows all sources of a realm.
#[derive(Debug)]
pub struct Arrivals {
    config: Config,
    realm: Realm,
    keys: Option<Keys>,
    me: Me,
    random: Random,
    pool: Pool,
    /// Sorted by source and stream. Never grows beyond `sources`, for which it has memory.
    entries: Vec<Entry>,
    spare: Spare,
    /// How many buffers receivers that join may hold.
    joining_max: usize,
    kernel_dropped: u32,
    limits: Limits,
    rejects: Rejects,
    /// Sources for which there was no entry, and datagrams for which there was no buffer.
    no_entry: u64,
    no_buffer: u64,
    events_dropped: u64,
    collisions: Collisions,
    nonces: Nonces,
    /// Which question the next session is asked of which nothing is known.
    question: u64,
    asks: Asks,
    turn: usize,
    events: Vec<Event>,
}

struct Labelled<'a, I> {
    flow: Flow,
    out: &'a mut I,
}

impl<I: Inbox> Deliver for Labelled<'_, I> {
    fn message(&mut self, message: Message<'_>) {
        self.out.message(self.flow, message);
    }
    fn topic(&mut self, number: TopicNumber, name: TableName<'_>) {
        self.out.topic(self.flow, number, name);
    }
    fn loss(&mut self, loss: Loss) {
        self.out.loss(self.flow, loss);
    }
    #[inline]
    fn has_room(&mut self) -> bool {
        self.out.has_room(self.flow)
    }
}

impl Arrivals {
    /// Allocates what all receivers share. The configuration was checked by [`Config::check_receiver`].
    #[must_use]
    pub fn new(
        config: &Config,
        realm: Realm,
        keys: Option<Keys>,
        me: Me,
        instance: [u8; 16],
        random: Random,
    ) -> Self {
        let datagram = usize::try_from(config.datagram_bytes).unwrap_or(usize::MAX).max(1);
        let buffers = config.receive_memory_bytes / config.datagram_bytes.max(1);
        let buffers = u32::try_from(buffers).unwrap_or(u32::MAX);
        let sources = usize::try_from(config.sources).unwrap_or(usize::MAX);
        Self {
            realm,
            keys,
            me,
            random,
            pool: Pool::new(buffers, datagram),
            entries: Vec::with_capacity(sources),
            spare: Spare::new(sources.saturating_mul(3)),
            joining_max: (buffers as usize / JOINING_SHARE).max(1),
            kernel_dropped: 0,
            limits: Limits::default(),
            rejects: [0; Reject::ALL.len()],
            no_entry: 0,
            no_buffer: 0,
            events_dropped: 0,
            collisions: Collisions::new(me, instance, realm, keys, config.ttl),
            nonces: Nonces::new(me.id, &instance),
            question: 0,
            asks: Asks::default(),
            turn: 0,
            events: Vec::with_capacity(MAX_EVENTS),
            config: config.clone(),
        }
    }

    /// Notes where a series continues, from what the caller has kept. A receiver that follows it begins again there with the next
    /// SESSION. If the source is not heard for `activity`, that is reported: it may have sent more. Returns whether there was room.
    pub fn remember(&mut self, now: Monotonic, source: Source, stream: Stream, mark: Mark) -> bool {
        // Where a session need not show that it lives, no stranger can make us believe one that is over.
        let is_sure = self.keys.is_some() && !self.asks_for_proof();
        let session = if is_sure { mark.session } else { Session(0) };
        // What it displaces was not heard by this process.
        let Some((at, _)) = self.entry(source, stream, session, now) else {
            return false;
        };
        let entry = &mut self.entries[at];
        entry.release(&mut self.pool, &mut self.spare);
        (entry.mark, entry.complete, entry.left) = (Some(mark), None, None);
        entry.unwanted = None;
        entry.awaited = Some(now).filter(|_| !mutant("remembered_not_awaited"));
        true
    }

    /// Notes how many datagrams the kernel has dropped so far, which STATUS states.
    pub fn set_kernel_dropped(&mut self, dropped: u32) {
        self.kernel_dropped = dropped;
        for receiver in self.entries.iter_mut().filter_map(|entry| entry.receiver.as_mut()) {
            receiver.set_kernel_dropped(dropped);
        }
    }

    /// Sets how long repairs and the order of each stream may take.
    pub fn set_limits(&mut self, limits: &Limits) {
        self.limits = *limits;
        for receiver in self.entries.iter_mut().filter_map(|entry| entry.receiver.as_mut()) {
            receiver.set_limits(limits);
        }
    }

    /// Takes a buffer, to receive into it. If none is free, the stream that holds most gives up its oldest
    /// gap, so that one gap never stops the others.
    pub fn take_buffer(&mut self, out: &mut impl Inbox) -> Option<Buffer> {
        if let Some(buffer) = self.pool.take() {
            return Some(buffer);
        }
        let most = self.entries.iter_mut().max_by_key(|entry| entry.held())?;
        most.shed(&mut self.pool, out);
        self.pool.take()
    }

    /// Returns the memory of a buffer.
    pub fn buffer_mut(&mut self, buffer: &Buffer) -> &mut [u8] {
        self.pool.get_mut(buffer)
    }

    /// Takes a datagram that lies elsewhere, and copies it if it must be kept.
    ///
    /// # Errors
    ///
    /// If it is refused.
    pub fn handle_datagram(
        &mut self,
        now: Monotonic,
        from: Path,
        bytes: &[u8],
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let Some(buffer) = self.take_buffer(out) else {
            self.no_buffer += 1;
            return Ok(());
        };
        let Some(memory) = self.pool.get_mut(&buffer).get_mut(..bytes.len()) else {
            // Longer than any of our streams.
            self.pool.give(buffer);
            self.rejects[Reject::TooLong.index()] += 1;
            return Err(Reject::TooLong);
        };
        memory.copy_from_slice(bytes);
        self.handle_buffer(now, from, buffer, bytes.len(), out)
    }

    /// Takes a datagram of this length in a buffer that [`Self::take_buffer`] returned.
    ///
    /// # Errors
    ///
    /// If it is refused. It is counted, and the buffer is given back in any case.
    pub fn handle_buffer(
        &mut self,
        now: Monotonic,
        from: Path,
        buffer: Buffer,
        length: usize,
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let mut kept = Some(buffer);
        let result = self.handle(now, from, &mut kept, length, out);
        if let Some(buffer) = kept {
            if let Err(reason) = result {
                self.count_reject(reason, &buffer, length);
            }
            self.pool.give(buffer);
        }
        result
    }

    fn handle(
        &mut self,
        now: Monotonic,
        from: Path,
        kept: &mut Option<Buffer>,
        length: usize,
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let Some(buffer) = kept.as_ref() else { return Ok(()) };
        let (ours, keys) = (self.me.id.source, self.keys);
        let message_max = u32::try_from(self.config.message_max_bytes).unwrap_or(u32::MAX);
        let rules = Rules { realm: self.realm, keys: keys.as_ref(), message_max };
        let bytes = self.pool.get(buffer).get(..length).unwrap_or_default();
        let is_ours = |header: &Header| {
            if header.source == ours { Err(Reject::Echo) } else { Ok(()) }
        };
        if let Some(parsed) = wire::parse_data(bytes, &rules, is_ours) {
            let (header, Data { trail, topics_end, .. }) = parsed?;
            let (at, place) = self.follow(now, &header, Kind::Data, out)?;
            if self.is_stranger_too_many(at, place) {
                self.no_buffer += 1;
                return Ok(());
            }
            let Some(buffer) = kept.take() else { return Ok(()) };
            let mac = if self.keys.is_some() { MAC_BYTES } else { 0 };
            let length = u16::try_from(length - mac).unwrap_or(u16::MAX);
            let sequence = header.sequence;
            let again = header.flags.has(Flags::RETRANSMISSION);
            let arrived = Arrived { sequence, again, trail, topics_end, buffer, length };
            let entry = &mut self.entries[at];
            let mut labelled = Labelled { flow: entry.flow(), out };
            let Some(receiver) = entry.receiver_at(place) else {
                self.pool.give(arrived.buffer);
                return Ok(());
            };
            receiver.data(now, from, arrived, &mut self.pool, &mut labelled);
            self.after(now, at, out);
            return Ok(());
        }
        let mut kind = Kind::Data;
        let datagram = wire::parse(bytes, &rules, |parsed, header| {
            kind = parsed;
            if kind.is_for_sender() || kind == Kind::Probe {
                Err(Reject::Stream)
            } else if header.source == ours && !matches!(kind, Kind::Session | Kind::Echo) {
                Err(Reject::Echo)
            } else {
                Ok(())
            }
        })?;
        let header = datagram.header;
        if header.source == ours {
            let seen = self.collisions.handle(now, from, &datagram);
            if let Collision::Reported { address, stop } = seen {
                self.event(Event::Collision { address, stop });
            }
            return Err(if seen == Collision::Echo { Reject::Echo } else { Reject::Collision });
        }
        if let Body::Echo(echo) = &datagram.body {
            if self.asks_for_proof() && self.is_repeated(now, &header, echo) {
                let sent = echo.sent;
                return self.proven(now, &header, sent, out);
            }
            return Ok(());
        }
        // The receiver takes buffers of the pool while it reads this, so it reads a copy.
        let mut copy = [0; CONTROL_BYTES];
        let Some(copied) = copy.get_mut(..length) else { return Err(Reject::TooLong) };
        copied.copy_from_slice(bytes);
        let (at, place) = self.follow(now, &header, kind, out)?;
        match place {
            Place::Followed => self.control(now, at, from, copied, out),
            Place::Candidate if kind == Kind::Session => self.introduce(now, at, from, copied, out),
            // What else it says counts once it is followed.
            Place::Candidate => Ok(()),
        }
    }

    /// Reads the copy of a datagram that was checked and is not DATA.
    fn reparsed<'b>(&self, bytes: &'b [u8]) -> Result<Datagram<'b>, Reject> {
        let rules = Rules { realm: self.realm, keys: self.keys.as_ref(), message_max: 0 };
        wire::parse(bytes, &rules, |_, _| Ok(()))
    }

    /// Takes SESSION, NCF or TOPICS of a session that is followed.
    fn control(
        &mut self,
        now: Monotonic,
        at: usize,
        from: Path,
        bytes: &[u8],
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let datagram = self.reparsed(bytes)?;
        let has_key = self.keys.is_some();
        let entry = &mut self.entries[at];
        if let Body::Session(info) = &datagram.body
            && let Some(receiver) = entry.receiver.as_mut().filter(|it| !it.is_joining())
            && has_key
            && !mutant("session_repeated")
        {
            match receiver.compare(now, from, info.sent) {
                Ordering::Greater => {}
                Ordering::Equal => return Ok(()),
                Ordering::Less => return Err(Reject::Old),
            }
        }
        // The flow's series is known from the first SESSION on.
        let mut flow = entry.flow();
        if let Body::Session(info) = &datagram.body {
            entry.name = Some(Name::new(info.name));
            if let Some(receiver) = &entry.receiver
                && receiver.is_joining()
            {
                flow.series = info.series;
                if !out.wants(flow, receiver.back(from).address, info) {
                    entry.leave(&mut self.pool, &mut self.spare);
                    return Err(Reject::Session);
                }
                entry.begins(info, &mut self.pool, &mut self.spare, out);
                let opening =
                    Opening { patterns: info.patterns, past: info.past, taken: info.number };
                let known = out.begins(flow, &opening);
                entry.mark = known.filter(|known| known.series == info.series).or(entry.mark);
            } else if flow.series != info.series {
                return Err(Reject::Session);
            }
        }
        let mut labelled = Labelled { flow, out };
        let Some(receiver) = &mut entry.receiver else { return Ok(()) };
        let mark = entry.mark;
        receiver.control(now, from, &datagram, mark, &mut self.pool, &mut labelled);
        if matches!(datagram.body, Body::Session(_)) {
            self.note_address(at, Place::Followed, flow, from);
        }
        self.after(now, at, out);
        Ok(())
    }

    /// Reports once for each session that it comes from an address that it does not list.
    fn note_address(&mut self, at: usize, place: Place, flow: Flow, from: Path) {
        let entry = &mut self.entries[at];
        let is_unlisted = entry.receiver_at(place).is_some_and(|it| it.is_unlisted(from));
        if is_unlisted && entry.unlisted != Some(flow.session) {
            entry.unlisted = Some(flow.session);
            self.event(Event::Unlisted(flow, from.address));
        }
    }

    /// Whether a receiver that joins would hold more than all those that join may hold.
    fn is_stranger_too_many(&mut self, at: usize, place: Place) -> bool {
        let receiver = self.entries[at].receiver_at(place);
        receiver.is_some_and(|receiver| receiver.is_joining()) && self.are_joining_too_many()
    }

    #[inline(never)]
    fn are_joining_too_many(&self) -> bool {
        let joining = |entry: &Entry| {
            entry.receivers().filter(|one| one.is_joining()).map(Receiver::held).sum::<usize>()
        };
        self.entries.iter().map(joining).sum::<usize>() >= self.joining_max
            && !mutant("strangers_take_all")
    }

    /// Notes what has changed in an entry.
    fn after(&mut self, now: Monotonic, at: usize, out: &mut impl Inbox) {
        let entry = &mut self.entries[at];
        let flow = entry.flow();
        let Some(receiver) = &mut entry.receiver else { return };
        let exceeded = receiver.exceeded(now).map(Event::Exceeded);
        let behind = receiver.leg_behind(now).map(|leg| Event::LegBehind(flow, leg));
        for event in [exceeded, behind].into_iter().flatten() {
            self.event(event);
        }
        let entry = &mut self.entries[at];
        let Some(receiver) = &entry.receiver else { return };
        let mut event = None;
        if !entry.joined && receiver.series().is_some() {
            event = Some(Event::Joined(flow));
        }
        if event.is_some() {
            self.entries[at].joined = true;
        }
        let entry = &mut self.entries[at];
        if let Some(receiver) = &entry.receiver
            && let Some(end) = receiver.ended()
        {
            entry.mark = receiver.mark().or(entry.mark);
            entry.left = receiver.left();
            entry.complete = Some(end).filter(|end| *end != End::Silent);
            let joined = receiver.series().is_some();
            if let Some(receiver) = entry.receiver.take() {
                self.spare.keep(receiver);
            }
            if !joined {
                entry.never_joined(&mut self.pool, &mut self.spare, out);
            }
            out.ends(flow, end);
            self.event(Event::Ended(flow, end));
        }
        if let Some(event) = event {
            self.event(event);
        }
    }

    /// Delivers what waited because the inbox had no room, as far as it has room now.
    pub fn deliver_held(&mut self, now: Monotonic, out: &mut impl Inbox) {
        for at in 0..self.entries.len() {
            let entry = &mut self.entries[at];
            let flow = entry.flow();
            if let Some(receiver) = &mut entry.receiver
                && receiver.is_paused()
                && out.has_room(flow)
            {
                let mut labelled = Labelled { flow, out };
                receiver.deliver_held(now, &mut self.pool, &mut labelled);
                self.after(now, at, out);
            }
        }
    }

    /// Returns how many streams wait for room in the inbox.
    #[must_use]
    pub fn paused(&self) -> usize {
        let receivers = self.entries.iter().filter_map(|entry| entry.receiver.as_ref());
        receivers.filter(|receiver| receiver.is_paused()).count()
    }

    /// Returns whether a stream waits for which the inbox has room again.
    #[must_use]
    pub fn can_deliver(&self, out: &mut impl Inbox) -> bool {
        let is_paused = |entry: &&Entry| entry.receiver.as_ref().is_some_and(|it| it.is_paused());
        self.entries.iter().filter(is_paused).any(|entry| out.has_room(entry.flow()))
    }

    /// Returns whether a stream is received, and nothing of it is missing or waits.
    #[must_use]
    pub fn is_even(&self, source: Source, stream: Stream) -> bool {
        let receiver = self.entries.iter().find(|entry| entry.key() == (source, stream));
        receiver.and_then(|entry| entry.receiver.as_ref()).is_some_and(|receiver| {
            receiver.series().is_some() && receiver.held() == 0 && receiver.open_gaps() == 0
        })
    }

    /// Returns the name of the node that sends as this source, once it has stated it.
    #[must_use]
    pub fn name_of(&self, source: Source) -> Option<&str> {
        self.names().find_map(|(of, _, name)| (of == source).then(|| name.as_str()))
    }

    /// Returns the next datagram, and where it goes: through the socket of that leg to that address.
    pub fn poll_transmit(&mut self, now: Monotonic) -> Option<(Path, &[u8])> {
        // The borrow checker cannot see that the loop ends with the first datagram, so the place is found
        // before it is borrowed for the caller.
        if self.collisions.is_due(now) {
            return self.collisions.poll_transmit(now);
        }
        for _ in 0..self.entries.len() {
            self.turn = (self.turn + 1) % self.entries.len();
            let Some((place, length)) = self.prepare(now, self.turn) else { continue };
            // The same receiver may have more.
            let at = self.turn;
            self.turn = (at + self.entries.len() - 1) % self.entries.len();
            return self.entries[at].receiver_at(place)?.prepared(length);
        }
        None
    }

    /// Makes the next datagram of a stream's receiver, or for its candidate.
    fn prepare(&mut self, now: Monotonic, at: usize) -> Option<(Place, usize)> {
        let entry = &mut self.entries[at];
        if let Some(length) = entry.receiver.as_mut().and_then(|it| it.prepare(now, 0)) {
            return Some((Place::Followed, length));
        }
        let (source, stream, is_known) = (entry.source, entry.stream, entry.mark.is_some());
        let candidate = entry.candidate.as_mut()?;
        if candidate.receiver.status_due() > now {
            return None;
        }
        if !is_known && !self.asks.take(now) {
            candidate.receiver.ask_later(now);
            return None;
        }
        let question = entry.question;
        let nonce = self.nonces.draw(now, question, source, stream, candidate.session);
        Some((Place::Candidate, candidate.receiver.prepare(now, nonce)?))
    }

    /// Returns when [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let receivers = self.entries.iter().flat_map(|entry| {
            entry.receiver.iter().chain(entry.candidate.iter().map(|it| &it.receiver))
        });
        let silences = self.entries.iter().filter_map(|entry| self.silent_at(entry));
        let receivers = receivers.filter_map(|receiver| receiver.poll_timeout());
        receivers.chain(silences).chain(self.collisions.poll_timeout()).min()
    }

    /// When the silence of a source is reported that was known before and not heard since.
    fn silent_at(&self, entry: &Entry) -> Option<Monotonic> {
        entry.awaited.map(|since| since.after(self.config.activity_ns))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Monotonic, out: &mut impl Inbox) {
        for at in 0..self.entries.len() {
            let entry = &mut self.entries[at];
            let mut labelled = Labelled { flow: entry.flow(), out };
            if let Some(receiver) = &mut entry.receiver
                && receiver.poll_timeout().is_some_and(|due| due <= now)
            {
                receiver.handle_timeout(now, &mut self.pool, &mut labelled);
                self.after(now, at, out);
            }
            self.candidate_timeout(now, at, out);
            if self.silent_at(&self.entries[at]).is_some_and(|due| due <= now) {
                let entry = &mut self.entries[at];
                entry.awaited = None;
                entry.perhaps_more(LostReason::Silent, out);
                out.ends(entry.flow(), End::Silent);
            }
        }
    }

    /// Begins a turn of the caller, before it reads its sockets. If the turn is more than 20 ms late, because the
    /// process was stopped or the machine is busy, moves all deadlines by that time and returns it: what was
    /// sent meanwhile waits in the sockets, and this process's own sleep is no loss. The caller then reads all that
    /// waits before it calls [`Self::handle_timeout`].
    pub fn begin_turn(&mut self, now: Monotonic) -> Option<u64> {
        let late_ns = now.since(self.poll_timeout()?);
        (late_ns > LATE_NS && !mutant("sleep_is_loss")).then(|| {
            self.postpone(late_ns);
            late_ns
        })
    }

    /// Moves all deadlines by the time that this process did not run.
    pub fn postpone(&mut self, by_ns: u64) {
        if !mutant("question_not_postponed") {
            self.collisions.postpone(by_ns);
        }
        for entry in &mut self.entries {
            entry.heard = entry.heard.after(by_ns);
            entry.awaited = entry.awaited.map(|since| since.after(by_ns));
            if let Some(receiver) = &mut entry.receiver {
                receiver.postpone(by_ns);
            }
            if let Some(candidate) = &mut entry.candidate {
                candidate.postpone(by_ns);
            }
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        (!self.events.is_empty()).then(|| self.events.remove(0))
    }

    fn event(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        } else {
            self.events_dropped += 1;
        }
    }
}

/// The longest datagram that is not DATA: TOPICS, whose sender has this much memory, and its MAC.
const CONTROL_BYTES: usize = 2_048;
