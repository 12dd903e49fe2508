//! Sender: one stream of one session, from messages to datagrams.
//!
//! ```text
//!             first SESSION sent          nothing left to send
//!   ┌──────┐ ───────────────► ┌─────────┐ ───────────────► ┌──────┐
//!   │ OPEN │                  │ SENDING │                  │ IDLE │   SESSION after 20 ms, 40 ms, … 2 s
//!   └──────┘                  └─────────┘ ◄─────────────── └──────┘
//!                                  │            message        │
//!                                  └──────── end() ────────────┘
//!                                              ▼
//!                                         ┌────────┐  4 SESSIONs with END, then `generation`   ┌────────┐
//!                                         │ ENDING │ ────────────────────────────────────────► │ CLOSED │
//!                                         └────────┘                                           └────────┘
//! ```
//!
//! [`Sender::poll_transmit`] returns one datagram after another, in this order: NCF, ECHO, SESSION,
//! retransmissions and names, new data. New data and retransmissions have a rate each. NCFs get at most
//! an eighth of the latter, and take from it, and so do ECHOs with the SESSION that follows each. The bytes lie in the
//! window, or in a small buffer of the sender.

use crate::audience::{Audience, Change, Name, PutOut};
use crate::batcher::{Batcher, Full, Mark as BatchMark, Now};
use crate::budget::{Budget, Case, Exceeded, Limits, Part};
use crate::config::Config;
use crate::echoes::Echoes;
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Sequence, Series};
use crate::limiter::Limiter;
use crate::past::Past;
use crate::repair::{Next, Repair};
use crate::time::{self, MILLISECOND, Monotonic, SECOND, Wall};
use crate::topics::Table;
use crate::window::Window;
use crate::wire::{
    self, Address, Body, Data, Echo, Flags, Header, Keys, LegAddresses, LostReason, MAX_RANGES,
    Ncf, NodeName, Range, Reject, Repairers, Rules, SessionInfo, Start, TableName, TopicNumber,
    Topics,
};

/// While data flow, a SESSION is sent this often, so that joining never waits for silence.
const SESSION_IN_FLOW_NS: u64 = 200 * MILLISECOND;
/// How many SESSIONs with END are sent.
const ENDS: u32 = 4;
/// The memory for a datagram that does not lie in the window.
const SCRATCH_BYTES: usize = 1_024;
/// How many events wait for the caller. Later ones are dropped.
const MAX_EVENTS: usize = 64;
/// NCFs take at most an eighth of the retransmission rate, and so do ECHOs. Any host can cause them, and they go to all receivers.
const ANSWERS_SHARE: u64 = 8;
/// A receiver that heard no SESSION for longer has nothing to ask: what it asks is a recording.
const RECENT_NS: u64 = 10 * SECOND;

/// Who sends a stream, and how.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Realm, source, session, stream, flags and TTL. Its sequence is the first of the session.
    pub header: Header,
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// The name of the node.
    pub name: NodeName<'a>,
    /// Drawn by each process when it starts.
    pub instance: [u8; 16],
    /// The series of the numbers.
    pub series: Series,
    /// The session brings no message below this number.
    pub begins: Number,
    /// What the sender remembers of earlier sessions.
    pub past: Past,
    /// The stream's patterns, at most 16.
    pub patterns: &'a [TableName<'a>],
    /// Where it takes what receivers answer. Without any, they answer to where its datagrams come from.
    pub legs: LegAddresses,
    /// Who repairs, besides the sender.
    pub repairers: Repairers,
    /// The TCP port for replay, or 0.
    pub listen: u16,
    /// With the policy slowest: the receivers that the sender waits for.
    pub required: &'a [NodeName<'a>],
}

/// What a sender reports, seldom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A receiver takes more than half of the retransmissions, for 10 s.
    Crybaby {
        /// Where it is.
        address: Address,
        /// The name of its node, if it sent STATUS.
        name: Option<Name>,
        /// How many datagrams its kernel has dropped, as it says.
        dropped: u32,
    },
    /// The sender waits no more for a required receiver.
    PutOut {
        /// Which.
        name: Name,
        /// Why.
        why: PutOut,
    },
    /// It waits for it again, or from now on: it has caught up.
    Back {
        /// Which.
        name: Name,
    },
    /// Batching or pacing took longer than its budget.
    Exceeded(Exceeded),
    /// The session has ended, and nothing is answered any more.
    Closed,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// New datagrams.
    pub data: u64,
    /// Datagrams that were sent again.
    pub repairs: u64,
    /// SESSIONs.
    pub sessions: u64,
    /// NCFs.
    pub ncfs: u64,
    /// NCFs that were dropped, because the rate allowed no more.
    pub ncfs_dropped: u64,
    /// ECHOs.
    pub echoes: u64,
    /// TOPICS.
    pub topics: u64,
    /// NAKs that were read.
    pub naks: u64,
    /// Events that the caller did not fetch in time.
    pub events_dropped: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Live,
    Ending { sealed: bool, sent: u32 },
    Closed,
}

/// A state to which a sender can go back, as far as nothing of it was sent.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    batch: BatchMark,
    names: u32,
}

/// Sends one stream of one session.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    header: Header,
    keys: Option<Keys>,
    name: Name,
    instance: [u8; 16],
    series: Series,
    begins: Number,
    past: Past,
    patterns: u8,
    legs: LegAddresses,
    repairers: Repairers,
    listen: u16,
    window: Window,
    batcher: Batcher,
    names: Table,
    data: Limiter,
    retransmit: Limiter,
    /// What NCFs take of `retransmit` at most.
    confirm: Limiter,
    repair: Repair,
    audience: Audience,
    state: State,
    session_due: Monotonic,
    session_interval_ns: u64,
    session_last: Option<Monotonic>,
    /// What the clock of the session shows: when it began by the calendar, and by the clock that never goes back.
    began: Option<(Wall, Monotonic)>,
    /// What the last SESSION or ECHO stated.
    stated: Wall,
    echoes: Echoes,
    /// An ECHO was sent, so a SESSION is due besides those that are due in their turn.
    owes_session: bool,
    /// How long the last SESSION was.
    session_bytes: usize,
    /// A receiver asked for a SESSION.
    wanted: bool,
    /// When new data and repairs may be sent again, if they wait.
    data_due: Option<Monotonic>,
    repair_due: Option<Monotonic>,
    closes: Option<Monotonic>,
    scratch: Box<[u8]>,
    events: Vec<Event>,
    counters: Counters,
    pacing: Budget,
}

/// The patterns of a stream do not fit its table, or are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stream has at most 16 patterns, and they must fit its table of names")]
pub struct TooManyPatterns;

impl Sender {
    /// Starts a session. The configuration was checked by [`Config::check_sender`].
    ///
    /// # Errors
    ///
    /// If there are too many patterns.
    pub fn new(
        config: &Config,
        identity: &Identity<'_>,
        now: Monotonic,
    ) -> Result<Self, TooManyPatterns> {
        let Identity { header, keys, .. } = *identity;
        let mut names = Table::new(u32::try_from(config.topics).unwrap_or(u32::MAX));
        if identity.patterns.len() > usize::from(wire::MAX_PATTERNS) {
            return Err(TooManyPatterns);
        }
        for pattern in identity.patterns {
            names.add(*pattern).map_err(|_| TooManyPatterns)?;
        }
        let bytes = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let limiter =
            |rate| Limiter::new(rate, config.rate_interval_ns, config.datagram_bytes, now);
        let datagram = bytes(config.datagram_bytes);
        let answers = config.retransmit_rate().map(|rate| rate / ANSWERS_SHARE);
        Ok(Self {
            header,
            keys,
            name: Name::new(identity.name),
            instance: identity.instance,
            series: identity.series,
            begins: identity.begins,
            past: identity.past,
            patterns: u8::try_from(identity.patterns.len()).unwrap_or(0),
            legs: identity.legs,
            repairers: identity.repairers,
            listen: identity.listen,
            window: Window::new(bytes(config.window_bytes), datagram, header.sequence),
            batcher: Batcher::new(config, header, keys, identity.begins),
            names,
            data: limiter(config.data_rate),
            retransmit: limiter(config.retransmit_rate()),
            confirm: limiter(answers),
            repair: Repair::new(config, now),
            audience: Audience::new(config, identity.required),
            state: State::Open,
            session_due: now,
            session_interval_ns: config.session_min_ns,
            session_last: None,
            began: None,
            stated: Wall::default(),
            echoes: Echoes::new(limiter(answers)),
            owes_session: false,
            session_bytes: 0,
            wanted: false,
            data_due: None,
            repair_due: None,
            closes: None,
            scratch: vec![0; SCRATCH_BYTES.min(datagram)].into(),
            events: Vec::with_capacity(MAX_EVENTS),
            counters: Counters::default(),
            pacing: Budget::new(Part::Pacing),
            config: config.clone(),
        })
    }

    /// Returns the number of a topic. Declares the name if it is new. Returns `None` if the table is full:
    /// then the caller reports its messages with [`Self::lost`] and [`LostReason::Topic`].
    ///
    /// # Errors
    ///
    /// If the window is full. Then nothing happened.
    pub fn topic(&mut self, now: Now, name: TableName<'_>) -> Result<Option<TopicNumber>, Full> {
        let found = self.names.find(name.as_str());
        // A pattern without wildcards has the text of a topic and its number, but was never declared.
        if found.is_some() {
            return Ok(found);
        }
        let Ok(number) = self.names.add(name) else { return Ok(None) };
        if let Err(full) = self.batcher.topic(&mut self.window, now, number, name) {
            self.names.truncate(number.get());
            return Err(full);
        }
        Ok(Some(number))
    }

    /// Packs a message. Numbers must grow.
    ///
    /// # Errors
    ///
    /// If the window is full of datagrams that were not sent yet: the caller must call again with the same
    /// message and nothing else, or go back to a mark.
    #[inline]
    pub fn message(&mut self, now: Now, start: Start, payload: &[u8]) -> Result<(), Full> {
        self.batcher.message(&mut self.window, now, start, payload)
    }

    /// Reports messages that the source itself missed, at least one. Their numbers are below `until`, and those of
    /// all later messages are not.
    ///
    /// # Errors
    ///
    /// If the window is full. Then nothing happened.
    pub fn lost(
        &mut self,
        now: Now,
        count: u64,
        until: Number,
        reason: LostReason,
    ) -> Result<(), Full> {
        self.batcher.lost(&mut self.window, now, count, until, reason)
    }

    /// Notes that all messages of the stream below this number were taken from the bus.
    pub fn taken(&mut self, number: Number) {
        self.batcher.skip_to(number);
    }

    /// Sends what is packed without waiting for more. A caller without more messages calls it, unless the
    /// stream has a `batch_delay`.
    pub fn flush(&mut self, now: Now) {
        self.batcher.flush(&mut self.window, now);
    }

    /// Returns the present state.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { batch: self.batcher.mark(&self.window), names: self.names.len() }
    }

    /// Goes back to a state. What was packed and named since then is forgotten.
    ///
    /// # Panics
    ///
    /// If some of it was sent.
    pub fn go_back(&mut self, mark: &Mark) {
        self.batcher.go_back(&mut self.window, &mark.batch);
        self.names.truncate(mark.names);
    }

    /// Ends the session when all that is packed was sent. `sealed` says that no message of its series ever follows. Must not be called within a message. Afterwards, the caller packs nothing more.
    ///
    /// If messages are packed and `group_min` receivers never came, nothing of it was sent, and perhaps never will be. Then
    /// the session closes at once, without END: receivers notice its silence.
    pub fn end(&mut self, now: Now, sealed: bool) {
        self.flush(now);
        if self.audience.waits_for_group() && !self.is_idle() {
            self.state = State::Closed;
        }
        if !matches!(self.state, State::Closed | State::Ending { .. }) {
            self.state = State::Ending { sealed, sent: 0 };
            self.session_due = now.monotonic;
        }
    }

    /// Ends the session at once, if it has not said END. Receivers notice its silence, as after a death. Returns whether something that
    /// was packed was not sent.
    pub fn abandon(&mut self) -> bool {
        let is_unsent = !self.is_idle();
        if is_unsent || !self.is_ending() {
            self.state = State::Closed;
        }
        is_unsent
    }

    /// Returns the number of the bus from which on messages were not sent yet.
    #[must_use]
    pub fn unsent_from(&self) -> Number {
        self.position().1
    }

    /// Takes a datagram that asks this stream for something: NAK, STATUS or TOPICS_WANTED.
    ///
    /// # Errors
    ///
    /// If it is refused.
    pub fn handle_datagram(&mut self, now: Now, from: Address, bytes: &[u8]) -> Result<(), Reject> {
        let keys = self.keys;
        let rules = Rules { realm: self.header.realm, keys: keys.as_ref(), message_max: 0 };
        let (ours, state) = (self.header, self.state);
        let datagram = wire::parse(bytes, &rules, |kind, header| {
            if !kind.is_for_sender() || header.source != ours.source || header.stream != ours.stream
            {
                return Err(Reject::Stream);
            }
            if header.session != ours.session || state == State::Closed {
                return Err(Reject::Session);
            }
            Ok(())
        })?;
        let clock = self.clock(now);
        match datagram.body {
            Body::Nak(nak) => {
                self.check_recent(clock, nak.echo)?;
                if !self.repair.admit(now.monotonic, from) {
                    return Ok(());
                }
                nak.ranges.check_lead(self.window.unsent())?;
                self.counters.naks += 1;
                if self.config.generation_ns > 0 {
                    let busy = !self.retransmit.has(now.monotonic, self.config.datagram_bytes);
                    self.repair.nak(now.monotonic, from, &nak.ranges, &self.window, busy);
                    self.repair_due = Some(now.monotonic);
                }
            }
            Body::Status(status) => {
                // What asks whether we live may be a recording, so nothing else of it counts.
                if status.new {
                    match status.nonce {
                        0 => self.wanted = true,
                        nonce => self.echoes.ask(status.receiver, status.count, nonce),
                    }
                    return Ok(());
                }
                self.check_recent(clock, status.echo)?;
                let expected = datagram.header.sequence;
                let change = self.audience.status(
                    now.monotonic,
                    clock,
                    from,
                    expected,
                    &status,
                    &self.window,
                    keys.is_some(),
                )?;
                self.changed(change);
                if self.window.unsent() < self.window.lead() {
                    self.data_due = Some(now.monotonic);
                }
            }
            Body::TopicsWanted(wanted) => {
                self.check_recent(clock, wanted.echo)?;
                if self.repair.admit(now.monotonic, from) {
                    let first = wanted.first.get();
                    let end = first.saturating_add(wanted.count).min(self.names.len());
                    if first < end {
                        self.repair.topics(from, first, end);
                        self.repair_due = Some(now.monotonic);
                    }
                }
            }
            _ => return Err(Reject::Stream),
        }
        Ok(())
    }

    /// What the clock of the session shows: it begins with the calendar, and never goes back.
    fn clock(&mut self, now: Now) -> Wall {
        let (wall, since) = *self.began.get_or_insert((now.wall, now.monotonic));
        Wall::from_ns(wall.ns().saturating_add(now.monotonic.since(since)))
    }

    /// The same for a SESSION or ECHO: each states a later time than the one before.
    fn stamp(&mut self, now: Now) -> Wall {
        let clock = self.clock(now);
        self.stated = clock.max(Wall::from_ns(self.stated.ns().saturating_add(1)));
        self.stated
    }

    /// With a key, what a receiver asks must answer a SESSION that was sent lately.
    fn check_recent(&self, clock: Wall, echo: Wall) -> Result<(), Reject> {
        let limit = RECENT_NS.max(self.config.session_max_ns.saturating_mul(3));
        let is_recent = echo <= self.stated && clock.since(echo) <= limit;
        if is_recent || self.keys.is_none() || mutant("old_questions_answered") {
            Ok(())
        } else {
            Err(Reject::Old)
        }
    }

    /// States other addresses from now on, and says so at once.
    pub fn set_legs(&mut self, now: Monotonic, legs: LegAddresses) {
        if legs != self.legs {
            self.legs = legs;
            self.session_due = self.session_due.min(now);
        }
    }

    /// Returns the next datagram for the group, until there is none now.
    pub fn poll_transmit(&mut self, now: Now) -> Option<&[u8]> {
        let length = match self.choose(now)? {
            Chosen::Scratch(length) => length,
            Chosen::Repair(at) => {
                return self.window.repair(at, now.monotonic, self.keys.as_ref());
            }
            Chosen::New(at) => return self.window.get(at),
        };
        self.scratch.get(..length)
    }

    fn choose(&mut self, now: Now) -> Option<Chosen> {
        if self.state == State::Closed {
            return None;
        }
        if self.state == State::Open {
            self.state = State::Live;
            return self.session(now).map(Chosen::Scratch);
        }
        if let Some(length) = self.ncf(now.monotonic) {
            return Some(Chosen::Scratch(length));
        }
        if self.echoes.is_due(now.monotonic)
            && let Some(length) = self.echo(now)
        {
            return Some(Chosen::Scratch(length));
        }
        if self.session_at().is_some_and(|due| due <= now.monotonic)
            && let Some(length) = self.session(now)
        {
            return Some(Chosen::Scratch(length));
        }
        self.repair(now.monotonic).or_else(|| self.new_data(now.monotonic))
    }

    /// Returns when [`Self::handle_timeout`] and [`Self::poll_transmit`] have something to do. If the caller
    /// has packed something since it asked last, it polls at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        if self.state == State::Closed {
            return None;
        }
        time::earliest([
            self.batcher.poll_timeout(),
            self.session_at(),
            self.echoes.poll_timeout(),
            self.data_due,
            self.repair_due.filter(|_| !self.repair.is_empty()),
            self.closes,
            self.audience.poll_timeout(),
            self.batcher.batching().poll_timeout(),
            self.pacing.poll_timeout(),
        ])
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.batcher.handle_timeout(&mut self.window, now);
        while let Some(change) = self.audience.handle_timeout(now.monotonic) {
            self.changed(Some(change));
        }
        self.repair.tick(now.monotonic);
        if let Some(crybaby) = self.repair.crybaby() {
            let member = self.audience.at(crybaby.address);
            let name = member.map(|member| member.name);
            let dropped = member.map_or(0, |member| member.dropped);
            self.event(Event::Crybaby { address: crybaby.address, name, dropped });
        }
        let batching = self.batcher.batching_mut().poll(now.monotonic);
        let pacing = self.pacing.poll(now.monotonic);
        for exceeded in [batching, pacing].into_iter().flatten() {
            self.event(Event::Exceeded(exceeded));
        }
        if self.closes.is_some_and(|at| at <= now.monotonic) && self.state != State::Closed {
            self.state = State::Closed;
            self.event(Event::Closed);
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        (!self.events.is_empty()).then(|| self.events.remove(0))
    }

    /// Returns what happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Sets how long batching and pacing may take.
    pub const fn set_limits(&mut self, limits: &Limits) {
        self.batcher.batching_mut().set_limits(limits);
        self.pacing.set_limits(limits);
    }

    /// Returns how long datagrams were being filled.
    #[must_use]
    pub const fn batching(&self) -> &Budget {
        self.batcher.batching()
    }

    /// Returns how long new datagrams waited for the rate limit, or for required receivers.
    #[must_use]
    pub const fn pacing(&self) -> &Budget {
        &self.pacing
    }

    /// Returns how many NAKs were dropped because of the budgets.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.repair.refused()
    }

    /// Returns how many datagrams receivers asked for that were not queued, because too many waited.
    #[must_use]
    pub const fn shed(&self) -> u64 {
        self.repair.shed()
    }

    /// Returns the window.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the receivers that are known.
    #[must_use]
    pub const fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Returns whether the session ends, so that nothing may be packed.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending { .. } | State::Closed)
    }

    /// Returns whether the session has ended, and nothing is answered any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the sequence before which the datagrams have all that was packed. The last of them may still be open.
    #[must_use]
    pub fn packed_until(&self) -> Sequence {
        let lead = self.window.lead();
        if self.batcher.poll_timeout().is_some() { lead.plus(1) } else { lead }
    }

    /// Returns whether all that was packed was sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.window.unsent() == self.window.lead()
    }

    /// When the next SESSION is due.
    fn session_at(&self) -> Option<Monotonic> {
        let due = match self.state {
            State::Closed => return None,
            State::Ending { sent, .. } if sent >= ENDS => None,
            State::Ending { sent: 0, .. } if !self.is_idle() => Some(self.session_due),
            State::Ending { .. } | State::Open | State::Live => Some(self.session_due),
        };
        let last = self.session_last.unwrap_or_default();
        if self.owes_session {
            return Some(last);
        }
        let asked = self.wanted.then(|| last.after(self.config.session_min_ns));
        match (due, asked) {
            (Some(due), Some(asked)) => Some(due.min(asked)),
            (due, asked) => due.or(asked),
        }
    }

    #[inline(never)]
    fn session(&mut self, now: Now) -> Option<usize> {
        let mut flags = self.header.flags;
        let mut closes = None;
        let is_extra = core::mem::take(&mut self.owes_session);
        if let State::Ending { sealed, sent } = &mut self.state
            && self.window.unsent() == self.window.lead()
        {
            flags = flags.with(Flags::END);
            if *sealed {
                flags = flags.with(Flags::SEALED);
            }
            // Recorded questions must not use up those that receivers count on.
            *sent += u32::from(!is_extra);
            if !is_extra && *sent == ENDS {
                closes = Some(now.monotonic.after(self.config.generation_ns));
            }
            self.session_interval_ns = self.config.session_min_ns;
        }
        self.closes = self.closes.or(closes);
        // While new data wait for their turn, the stream is not idle.
        let flows = !self.is_idle();
        let interval = if flows { self.config.session_min_ns } else { self.session_interval_ns };
        let next = interval.max(SESSION_IN_FLOW_NS);
        let (message, number, unsure) = self.position();
        let sent = self.stamp(now);
        let kbit = |rate: Option<u64>| {
            rate.map_or(0, |rate| u32::try_from(rate / 1_000).unwrap_or(u32::MAX))
        };
        let header = Header { flags, sequence: self.window.unsent(), ..self.header };
        let window_ms = self.config.data_rate.map_or(0, |rate| {
            let ms = u128::from(self.config.window_bytes) * 8_000 / u128::from(rate.max(1));
            u32::try_from(ms).unwrap_or(u32::MAX)
        });
        let info = SessionInfo {
            sent,
            message,
            number: number.max(self.begins),
            first: self.header.sequence,
            begins: self.begins,
            past: self.past,
            series: self.series,
            rtt_us: self.audience.rtt_us(),
            receivers: u16::try_from(self.audience.members().len()).unwrap_or(u16::MAX),
            listen: self.listen,
            trail: self.window.trail(),
            topics: self.names.len(),
            data_kbit: kbit(self.config.data_rate),
            retransmit_kbit: kbit(self.config.retransmit_rate()),
            window_ms,
            next_ms: u16::try_from(next / MILLISECOND).unwrap_or(u16::MAX),
            datagram: u16::try_from(self.config.datagram_bytes).unwrap_or(u16::MAX),
            instance: self.instance,
            policy: self.config.policy,
            patterns: self.patterns,
            unsure,
            legs: (&self.legs).into(),
            repairers: (&self.repairers).into(),
            name: self.name.as_node_name(),
        };
        let encoded = info.encode(&header, self.keys.as_ref(), &mut self.scratch);
        if !is_extra {
            self.session_due = now.monotonic.after(interval);
            self.session_interval_ns = (interval * 2).min(self.config.session_max_ns);
        }
        self.session_last = Some(now.monotonic);
        self.wanted = false;
        self.counters.sessions += 1;
        self.session_bytes = encoded.unwrap_or(0);
        encoded.ok()
    }

    /// The message number and the number of what is sent next, and how many losses of unknown size were sent before.
    fn position(&self) -> (MessageNumber, Number, u16) {
        if let Some(next) = self.window.next_unsent().and_then(Data::reopen) {
            return (next.message, next.number, next.unsure);
        }
        let (message, number) = self.batcher.closed();
        (message, number, self.batcher.unsure())
    }

    /// Encodes an ECHO if receivers wait for one. A SESSION follows at once: it is what they begin with.
    #[inline(never)]
    fn echo(&mut self, now: Now) -> Option<usize> {
        let header = Header { sequence: self.window.unsent(), ..self.header };
        let (sent, keys) = (self.stamp(now), self.keys.as_ref());
        let nonces = self.echoes.nonces();
        let (length, count) = Echo::encode(&header, sent, nonces, keys, &mut self.scratch).ok()?;
        let bytes = (length + self.session_bytes) as u64;
        self.echoes.sent(now.monotonic, count, bytes)?;
        self.retransmit.charge(now.monotonic, bytes);
        self.counters.echoes += 1;
        self.owes_session = true;
        Some(length)
    }

    /// Encodes the next NCF for which there is credit. The others are dropped: what is gone, receivers also
    /// learn from the trail, and for the rest they ask again.
    fn ncf(&mut self, now: Monotonic) -> Option<usize> {
        while self.repair.has_ncf() {
            let mut ranges = [Range::new(Sequence::ZERO, 1)?; MAX_RANGES];
            let (reason, count) = self.repair.ncf(&mut ranges)?;
            let header = Header { sequence: self.window.unsent(), ..self.header };
            let keys = self.keys.as_ref();
            let encoded =
                Ncf::encode(&header, reason, &ranges[..count], keys, &mut self.scratch).ok()?;
            let length = encoded as u64;
            if !(self.confirm.take(now, length) || mutant("ncf_without_rate")) {
                self.counters.ncfs_dropped += 1;
                continue;
            }
            // Not only if there is credit: where repairs use up their rate, NCFs are what keeps receivers from
            // asking again.
            self.retransmit.charge(now, length);
            self.counters.ncfs += 1;
            return Some(encoded);
        }
        None
    }

    fn repair(&mut self, now: Monotonic) -> Option<Chosen> {
        self.repair_due = None;
        let (next, bytes) = self.repair.peek(now, &self.window)?;
        let length = bytes - crate::config::WIRE_OVERHEAD_BYTES;
        if !self.retransmit.take(now, length) {
            self.repair_due = Some(self.retransmit.next(length));
            return None;
        }
        self.repair_due = Some(now);
        match next {
            Next::Datagram(at) => {
                self.repair.take(now, next, bytes, 0);
                self.counters.repairs += 1;
                Some(Chosen::Repair(at))
            }
            Next::Topics { first, count } => {
                let (length, until) =
                    self.topics(first, count.min(self.names.len().saturating_sub(first)));
                self.repair.take(now, next, bytes, until);
                self.counters.topics += 1;
                length.map(Chosen::Scratch)
            }
        }
    }

    /// Encodes names from a number on. Returns the length, and the next number.
    fn topics(&mut self, first: u32, count: u32) -> (Option<usize>, u32) {
        let header = Header { sequence: self.window.unsent(), ..self.header };
        let names = self.names.from(first).take(count as usize);
        let number = TopicNumber::new(first);
        let encoded = number.and_then(|number| {
            Topics::encode(&header, number, names, self.keys.as_ref(), &mut self.scratch).ok()
        });
        match encoded {
            Some((length, sent)) => (Some(length), first + u32::from(sent)),
            None => (None, u32::MAX),
        }
    }

    fn new_data(&mut self, now: Monotonic) -> Option<Chosen> {
        self.data_due = None;
        let length = self.window.unsent_bytes()?;
        // A receiver that holds the sender is noticed by its STATUS, or put out by a timer.
        if !self.audience.allows(now, &self.window) {
            return None;
        }
        if !self.data.take(now, length) {
            self.data_due = Some(self.data.next(length));
            return None;
        }
        self.data_due = Some(now);
        let at = self.window.unsent();
        let took_ns = self.window.sent().map_or(0, |closed| now.since(closed));
        let Header { source, stream, .. } = self.header;
        self.pacing.record(Case { source, stream, number: at.get(), took_ns });
        self.counters.data += 1;
        // The pause after the SESSION that follows this datagram.
        self.session_interval_ns = (self.config.session_min_ns * 2).min(self.config.session_max_ns);
        let last = self.session_last.unwrap_or(now);
        self.session_due =
            now.after(self.config.session_min_ns).min(last.after(SESSION_IN_FLOW_NS));
        Some(Chosen::New(at))
    }

    fn changed(&mut self, change: Option<Change>) {
        match change {
            Some(Change::Out(name, why)) => self.event(Event::PutOut { name, why }),
            Some(Change::Back(name)) => self.event(Event::Back { name }),
            None => {}
        }
    }

    fn event(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        } else {
            self.counters.events_dropped += 1;
        }
    }
}

enum Chosen {
    Scratch(usize),
    Repair(Sequence),
    New(Sequence),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{SECOND, Wall};
    use crate::wire::chunk::tests::start;
    use crate::wire::samples::{self, header};
    use crate::wire::{Kind, Nak, Status};

    fn now(ms: u64) -> Now {
        let ns = SECOND + ms * MILLISECOND;
        Now { monotonic: Monotonic::from_ns(ns), wall: Wall::from_ns(ns) }
    }

    fn config() -> Config {
        Config { window_bytes: 1 << 20, message_max_bytes: 10_000, ..Config::with_rate(80_000_000) }
    }

    fn sender(config: &Config) -> Sender {
        keyed(config, None)
    }

    fn keyed(config: &Config, keys: Option<Keys>) -> Sender {
        let identity = Identity {
            header: header(1_000),
            keys,
            name: NodeName::new("line-3").unwrap(),
            instance: [1; 16],
            series: Series(1),
            begins: Number::ZERO,
            past: Past::NONE,
            patterns: &[TableName::new("plant/**").unwrap()],
            legs: LegAddresses::NONE,
            repairers: Repairers::default(),
            listen: 0,
            required: &[],
        };
        Sender::new(config, &identity, now(0).monotonic).unwrap()
    }

    fn publish(sender: &mut Sender, ms: u64, number: u64) {
        sender.message(now(ms), start(number), &[7; 100]).unwrap();
        sender.flush(now(ms));
    }

    #[test]
    fn a_session_whose_group_never_came_ends_with_what_it_has_packed() {
        let config = Config { policy: crate::wire::Policy::Slowest, group_min: 2, ..config() };
        let mut waiting = sender(&config);
        publish(&mut waiting, 1, 100);
        waiting.end(now(2), false);
        assert!(waiting.is_closed());
        // Without messages it says that it ends.
        let mut idle = sender(&config);
        idle.end(now(2), false);
        assert!(!idle.is_closed());
    }

    /// What leaves now: the types, and which are repairs.
    fn sent(sender: &mut Sender, ms: u64) -> Vec<Vec<u8>> {
        sender.handle_timeout(now(ms));
        let mut list = Vec::new();
        while let Some(bytes) = sender.poll_transmit(now(ms)) {
            list.push(bytes.to_vec());
        }
        list
    }

    fn kinds(list: &[Vec<u8>]) -> Vec<(u8, u8)> {
        list.iter().map(|bytes| (bytes[3], bytes[4])).collect()
    }

    fn ask(sender: &mut Sender, ms: u64, first: u64, count: u32) -> Result<(), Reject> {
        ask_from(sender, ms, first, count, 0)
    }

    fn ask_from(
        sender: &mut Sender,
        ms: u64,
        first: u64,
        count: u32,
        port: u64,
    ) -> Result<(), Reject> {
        let range = Range::new(samples::sequence(first), count).unwrap();
        let id =
            crate::wire::Receiver { source: crate::id::Source(5), session: crate::id::Session(5) };
        let mut bytes = [0; 100];
        let length =
            Nak::encode(&header(0), id, Wall::default(), &[range], None, &mut bytes).unwrap();
        let from = Address { port: u16::try_from(port).unwrap(), ..Address::default() };
        sender.handle_datagram(now(ms), from, &bytes[..length])
    }

    const SESSION: (u8, u8) = (2, 0);
    const DATA: (u8, u8) = (1, 0);
    const REPAIR: (u8, u8) = (1, 1);
    const NCF: (u8, u8) = (4, 0);

    #[test]
    fn what_waits_too_long_for_the_rate_is_reported_with_its_place() {
        // A datagram of 1 kB on the wire each 8 ms.
        let mut sender = sender(&Config { data_rate: Some(1_000_000), ..config() });
        let mut limits = Limits::default();
        limits.set(Part::Pacing, Some(20 * MILLISECOND));
        sender.set_limits(&limits);
        for number in 0..5 {
            sender.message(now(0), start(number), &[7; 800]).unwrap();
            sender.flush(now(3));
        }
        assert_eq!(sender.batching().histogram().longest_ns(), 3 * MILLISECOND);
        for ms in 3..60 {
            sent(&mut sender, ms);
        }
        let pacing = sender.pacing();
        assert_eq!((pacing.histogram().count(), sender.counters().data), (5, 5));
        assert!(pacing.histogram().longest_ns() > 20 * MILLISECOND, "{pacing:?}");
        let Some(Event::Exceeded(exceeded)) = sender.poll_event() else { panic!() };
        assert_eq!((exceeded.part, exceeded.times), (Part::Pacing, 1));
        assert_eq!(exceeded.worst.source, header(0).source);
        assert!((1_002..=1_004).contains(&exceeded.worst.number), "{exceeded:?}");
        assert_eq!(sender.poll_event(), None, "the others are reported in 10 s");
        let due = now(3).monotonic.after(10 * SECOND);
        assert!(sender.pacing.poll_timeout().is_none_or(|at| at >= due));
    }

    #[test]
    fn the_first_datagram_is_a_session_and_silence_is_filled_with_more_of_them() {
        let mut sender = sender(&config());
        publish(&mut sender, 0, 0);
        assert_eq!(kinds(&sent(&mut sender, 0)), [SESSION, DATA]);
        let mut times = Vec::new();
        for ms in 1..3_000 {
            times.extend(sent(&mut sender, ms).iter().map(|_| ms));
        }
        assert_eq!(times, [20, 60, 140, 300, 620, 1_260, 2_540]);
    }

    #[test]
    fn while_data_flow_a_session_comes_every_200_ms() {
        let mut sender = sender(&config());
        let mut times = Vec::new();
        for ms in 0..1_000 {
            publish(&mut sender, ms, ms);
            let list = sent(&mut sender, ms);
            times.extend(list.iter().filter(|bytes| bytes[3] == 2).map(|_| ms));
        }
        assert_eq!(times, [0, 200, 400, 600, 800]);
    }

    #[test]
    fn repairs_leave_before_new_data_and_within_a_rate_of_their_own() {
        let mut sender = sender(&config());
        for number in 0..200 {
            publish(&mut sender, 0, number);
        }
        // 80 Mbit/s are 10,000 bytes in a millisecond, and a datagram takes 64 + 108 + 66.
        assert_eq!(sent(&mut sender, 0).len(), 1 + 42);
        assert_eq!(sender.poll_timeout(), Some(now(1).monotonic));
        assert_eq!(ask(&mut sender, 1, 1_000, 30), Ok(()));
        let list = kinds(&sent(&mut sender, 1));
        // A quarter of the rate, 2,500 bytes, and 1,474 that were left over.
        let repairs = list.iter().take_while(|kind| **kind == REPAIR).count();
        assert_eq!(repairs, 16, "{list:?}");
        assert!(list[repairs..].iter().all(|kind| *kind == DATA));
    }

    /// Asks from 20 addresses, each for another datagram, every millisecond. Returns the bytes of NCFs on the wire, and those
    /// of NCFs and repairs.
    fn flood(sender: &mut Sender, from_ms: u64, until_ms: u64) -> (u64, u64) {
        let on_wire = |bytes: &[u8]| bytes.len() as u64 + crate::config::WIRE_OVERHEAD_BYTES;
        let (mut confirmed, mut repairs) = (0, 0);
        for ms in from_ms..until_ms {
            for number in 0..20 {
                let _ = ask_from(sender, ms, 1_000 + number, 1, number);
                for bytes in sent(sender, ms) {
                    match Kind::of(&bytes) {
                        Some(Kind::Ncf) => confirmed += on_wire(&bytes),
                        Some(Kind::Data) => repairs += on_wire(&bytes),
                        _ => {}
                    }
                }
            }
        }
        (confirmed, confirmed + repairs)
    }

    #[test]
    fn a_flood_of_naks_gets_ncfs_and_repairs_only_within_their_rates() {
        const SECONDS: u64 = 5;
        let config =
            Config { naks_each: 10_000, naks_all: 1_000_000, ..Config::with_rate(1_000_000) };
        let mut sender = sender(&Config { window_bytes: 1 << 20, ..config });
        for number in 0..20 {
            publish(&mut sender, 0, number);
        }
        // 20 datagrams of 238 bytes on the wire take 38 ms of the rate.
        for ms in 0..100 {
            sent(&mut sender, ms);
        }
        let (confirmed, all) = flood(&mut sender, 100, 100 + SECONDS * 1_000);
        let counters = sender.counters();
        assert!(counters.ncfs > 0 && counters.ncfs_dropped > 10 * counters.ncfs, "{counters:?}");
        // A quarter of the rate is for repairs, and an eighth of that for NCFs. A bucket begins with up to a datagram.
        let bytes = |rate: u64| rate / 8 * SECONDS + 2_000;
        assert!(confirmed <= bytes(250_000 / 8), "{confirmed} bytes of NCFs");
        assert!(all <= bytes(250_000), "{all} bytes of NCFs and repairs");
        // No NCF was queued.
        let dropped = sender.counters().ncfs_dropped;
        let later = 200 + SECONDS * 1_000;
        assert!(sent(&mut sender, later).iter().all(|bytes| bytes[3] != 4));
        // A receiver that asks again gets an answer.
        let _ = ask_from(&mut sender, later, 1_000, 1, 77);
        let _ = sent(&mut sender, later);
        let _ = ask_from(&mut sender, later, 1_000, 1, 78);
        assert_eq!(kinds(&sent(&mut sender, later)), [NCF]);
        assert_eq!(sender.counters().ncfs_dropped, dropped);
    }

    #[test]
    fn a_nak_for_what_was_not_sent_or_is_not_ours_is_refused() {
        let mut sender = sender(&config());
        publish(&mut sender, 0, 0);
        assert_eq!(ask(&mut sender, 0, 1_000, 1), Err(Reject::Ranges), "it is packed, not sent");
        sent(&mut sender, 0);
        assert_eq!(ask(&mut sender, 0, 1_000, 1), Ok(()));
        assert_eq!(ask(&mut sender, 0, 1_000, 2), Err(Reject::Ranges));
        for kind in [Kind::Data, Kind::Session, Kind::Ncf, Kind::Topics, Kind::Probe] {
            let bytes = samples::of(kind).bytes;
            let refused = sender.handle_datagram(now(0), Address::default(), &bytes);
            assert_eq!(refused, Err(Reject::Stream), "{kind:?}");
        }
    }

    #[test]
    fn a_session_states_what_was_sent_and_not_what_waits() {
        let mut sender = sender(&config());
        for number in 0..200 {
            publish(&mut sender, 0, number);
        }
        let list = sent(&mut sender, 0);
        let state = |bytes: &[u8]| match samples::parse(bytes).unwrap().body {
            Body::Session(info) => (info.message.get(), info.number.get(), info.topics),
            other => panic!("{other:?}"),
        };
        assert_eq!(state(&list[0]), (0, 0, 1));
        // A STATUS of a new receiver is answered by a SESSION, 20 ms after the last.
        sender.handle_datagram(now(0), Address::default(), &status(None, true, 0, 1)).unwrap();
        assert_eq!(sender.audience().members().len(), 0, "who asks may be a recording");
        let list = sent(&mut sender, 20);
        assert_eq!(state(&list[0]), (42, 42, 1));
    }

    /// A STATUS of receiver 5.
    fn status(keys: Option<&Keys>, new: bool, nonce: u64, count: u64) -> Vec<u8> {
        let bytes = samples::of(Kind::Status).bytes;
        let Body::Status(status) = samples::parse(&bytes).unwrap().body else { panic!() };
        let status = Status { new, nonce, count, echo: now(0).wall, ..status };
        let mut bytes = vec![0; 200];
        let length = status.encode(&header(1_000), keys, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn a_nonce_is_repeated_at_once_and_a_session_follows() {
        let mut sender = sender(&config());
        publish(&mut sender, 0, 0);
        assert_eq!(kinds(&sent(&mut sender, 0)), [SESSION, DATA]);
        let mut ask = |ms, nonce| {
            let bytes = status(None, true, nonce, 1);
            sender.handle_datagram(now(ms), Address::default(), &bytes).unwrap();
            sent(&mut sender, ms)
        };
        let list = ask(1, 7);
        assert_eq!(kinds(&list), [(9, 0), SESSION]);
        let times: Vec<u64> = list
            .iter()
            .map(|bytes| match samples::parse(bytes).unwrap().body {
                Body::Echo(echo) => {
                    assert!(echo.nonces().eq([7]));
                    echo.sent.ns()
                }
                Body::Session(info) => info.sent.ns(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(times[0] < times[1], "{times:?}");
        assert_eq!(kinds(&ask(2, 8)), [], "not within 2 ms of the one before");
        assert_eq!(kinds(&ask(3, 9)), [(9, 0), SESSION]);
    }

    #[test]
    fn with_a_key_what_receivers_sent_long_ago_is_refused() {
        let keys = samples::KEYS;
        let config = config();
        let mut sender = keyed(&config, Some(keys));
        publish(&mut sender, 0, 0);
        sent(&mut sender, 0);
        let mut hears = |ms: u64, bytes: &[u8]| {
            let result = sender.handle_datagram(now(ms), Address::default(), bytes);
            sent(&mut sender, ms);
            result
        };
        let (one, other) = (status(Some(&keys), false, 0, 1), status(Some(&keys), false, 0, 2));
        assert_eq!(hears(1, &other), Ok(()));
        assert_eq!(hears(2, &one), Err(Reject::Old));
        assert_eq!(hears(2, &other), Err(Reject::Old));
        let later = status(Some(&keys), false, 0, 3);
        assert_eq!(hears(10_001, &later), Err(Reject::Old), "it answers a SESSION of 10 s ago");
        assert_eq!(hears(10_000, &later), Ok(()));
        // What asks whether the sender lives may be as old as it likes.
        assert_eq!(hears(60_000, &status(Some(&keys), true, 5, 1)), Ok(()));
        let ask = |echo_ms: u64| {
            let range = Range::new(samples::sequence(1_000), 1).unwrap();
            let id = crate::wire::Receiver {
                source: crate::id::Source(5),
                session: crate::id::Session(5),
            };
            let mut bytes = vec![0; 100];
            let echo = now(echo_ms).wall;
            let length =
                Nak::encode(&header(0), id, echo, &[range], Some(&keys), &mut bytes).unwrap();
            bytes.truncate(length);
            bytes
        };
        assert_eq!(hears(60_001, &ask(50_000)), Err(Reject::Old));
        assert_eq!(hears(60_001, &ask(50_001)), Ok(()));
        assert_eq!(
            hears(60_001, &ask(70_000)),
            Err(Reject::Old),
            "it answers what was not sent yet"
        );
    }

    #[test]
    fn the_end_is_said_four_times_and_naks_are_answered_for_the_generation_interval() {
        let mut sender = sender(&config());
        publish(&mut sender, 0, 0);
        sender.end(now(0), false);
        let list = kinds(&sent(&mut sender, 0));
        assert_eq!(list, [SESSION, DATA]);
        let mut ends = Vec::new();
        for ms in 1..560 {
            let list = sent(&mut sender, ms);
            ends.extend(list.iter().filter(|bytes| bytes[4] == 2).map(|_| ms));
            assert!(!sender.is_closed(), "{ms}");
        }
        assert_eq!(ends, [20, 40, 60, 80]);
        assert_eq!(ask(&mut sender, 570, 1_000, 1), Ok(()));
        assert_eq!(kinds(&sent(&mut sender, 570)), [REPAIR]);
        assert!(sent(&mut sender, 580).is_empty() && sender.is_closed());
        assert_eq!(sender.poll_event(), Some(Event::Closed));
        assert_eq!(sender.poll_timeout(), None);
        assert_eq!(ask(&mut sender, 580, 1_000, 1), Err(Reject::Session));
    }

    #[test]
    fn names_are_declared_once_and_forgotten_with_what_is_taken_back() {
        let mut sender = sender(&config());
        let name = |text| TableName::new(text).unwrap();
        let number =
            |sender: &mut Sender, text| sender.topic(now(0), name(text)).unwrap().unwrap().get();
        assert_eq!(number(&mut sender, "plant/a"), 1, "after the pattern");
        let mark = sender.mark();
        assert_eq!(number(&mut sender, "plant/b"), 2);
        sender.go_back(&mark);
        assert_eq!(number(&mut sender, "plant/c"), 2);
        assert_eq!(number(&mut sender, "plant/a"), 1);
        sender.flush(now(0));
        let list = sent(&mut sender, 0);
        let Body::Data(data) = samples::parse(&list[1]).unwrap().body else { panic!() };
        assert_eq!(data.chunk_count(), 2);
    }
}
