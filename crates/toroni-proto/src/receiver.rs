//! Receiver: one session of one stream, from datagrams to messages and losses.
//!
//! ```text
//!   ┌─────────┐   SESSION, or     ┌──────┐   END and all before it,    ┌───────┐
//!   │ JOINING │ ────────────────► │ LIVE │ ──────────────────────────► │ ENDED │
//!   └─────────┘   it was known    └──────┘   silence, another session  └───────┘
//!    holds DATA                    DATA ──► gaps ──► reassembly ──► messages, losses
//!    STATUS new                    STATUS, NAK, TOPICS_WANTED ──► sender
//! ```
//!
//! While it joins, it holds the first datagrams and asks for a SESSION, which has what it must know: the
//! series, the patterns, and the names so far. It then begins with the first message that starts in the
//! first datagram held. If the series was known before, it begins with the session's first datagram, so that
//! nothing is missing between two sessions.

use crate::audience::{Name, STATUS_OF_SLOWEST_NS};
use crate::config::{Config, Order};
use crate::gaps::{Gaps, GivenUp};
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Sequence, Series};
use crate::random::Random;
use crate::reassembly::{
    AHEAD, Arrival, Bound, Buffer, ByArrival, Deliver, InOrder, Loss, Message, Pool, Refused,
};
use crate::repair::MAX_QUEUED;
use crate::time::{MICROSECOND, MILLISECOND, Monotonic, SECOND, Wall};
use crate::topics::Known;
use crate::wire::{
    Address, Body, Chunk, Data, Datagram, Flags, Header, Keys, LostReason, MAX_RANGES,
    MAX_TABLE_NAMES, Nak, Ncf, Policy, Range, Receiver as Id, SessionInfo, Status, TableName,
    TopicNumber, Topics, TopicsWanted,
};

/// How many datagrams are held while a receiver joins.
pub const JOIN_HELD: usize = 64;
/// For how long they are held.
const JOIN_NS: u64 = 200 * MILLISECOND;
/// How often a receiver that joins asks for a SESSION, and one that misses names asks for them.
const ASK_NS: u64 = 20 * MILLISECOND;
/// The longest pause between two requests that were not answered.
const ASK_MAX_NS: u64 = 2 * SECOND;
/// The shortest pause between two NAKs.
const NAK_NS: u64 = MILLISECOND;
/// The memory for a NAK, STATUS or TOPICS_WANTED.
const SCRATCH_BYTES: usize = 1_024;

/// Who receives.
#[derive(Debug, Clone, Copy)]
pub struct Me {
    /// Our own source and session.
    pub id: Id,
    /// The name of our node.
    pub name: Name,
    /// Whether senders with the policy slowest should wait for us.
    pub required: bool,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages that were delivered.
    pub messages: u64,
    /// Messages that were reported as lost.
    pub lost: u64,
    /// Datagrams that came more than once.
    pub duplicates: u64,
    /// Messages that came in an earlier session.
    pub known: u64,
    /// Sequences that were missing and arrived.
    pub repaired: u64,
    /// NAKs.
    pub naks: u64,
    /// The longest time from a gap to its repair.
    pub repair_max_ns: u64,
}

/// Where a known series continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The series.
    pub series: Series,
    /// All numbers below were delivered or reported as lost.
    pub next: Number,
}

/// A DATA datagram that was checked.
#[derive(Debug)]
pub struct Arrived {
    /// Its number.
    pub sequence: Sequence,
    /// Whether it was sent before.
    pub again: bool,
    /// The sender's trail.
    pub trail: Sequence,
    /// The greatest topic of its messages, plus 1.
    pub topics_end: u32,
    /// Where it lies.
    pub buffer: Buffer,
    /// Its length without the MAC.
    pub length: u16,
}

/// A place in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// All datagrams before had their turn.
    pub sequence: Sequence,
    /// All messages before were delivered or reported as lost.
    pub message: MessageNumber,
}

/// How a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With END, and with all that came before.
    Complete,
    /// The source was silent.
    Silent,
}

#[derive(Debug)]
enum Reassembly {
    InOrder(InOrder),
    ByArrival(ByArrival),
}

macro_rules! either {
    ($self:expr, $one:ident => $call:expr) => {
        match $self {
            Reassembly::InOrder($one) => $call,
            Reassembly::ByArrival($one) => $call,
        }
    };
}

/// What SESSION said last.
#[derive(Debug, Clone, Copy)]
struct Stated {
    sequence: Sequence,
    message: MessageNumber,
    number: Number,
    sent: Wall,
    arrived: Monotonic,
    policy: Policy,
    receivers: u16,
    next_ns: u64,
    ended: bool,
}

#[derive(Debug)]
struct Live {
    reassembly: Reassembly,
    gaps: Gaps,
    /// The greatest sequence that is accounted for, plus 1.
    next: Sequence,
    /// A datagram or SESSION that is too far ahead to be believed alone.
    jump: Option<Sequence>,
    stated: Stated,
    /// When the datagrams that wait for names are given up.
    names_until: Option<Monotonic>,
    /// All names below should be known.
    names_due: u32,
}

#[derive(Debug)]
enum State {
    Joining { held: Vec<(Sequence, Buffer, u16)>, since: Option<Monotonic> },
    Live(Box<Live>),
    Ended(End),
}

/// Receives one session of one stream.
#[derive(Debug)]
pub struct Receiver {
    me: Me,
    header: Header,
    keys: Option<Keys>,
    config: Config,
    held_max: usize,
    random: Random,
    state: State,
    known: Known,
    series: Option<Series>,
    /// All numbers below were delivered or reported as lost, of this series.
    mark: Option<Number>,
    /// Messages below came in an earlier session.
    skip: Number,
    /// Where this session was left, when it was silent.
    resume: Option<Position>,
    from: Address,
    heard: Monotonic,
    status_due: Monotonic,
    /// The pause until the next request for a SESSION.
    ask_ns: u64,
    nak_after: Monotonic,
    topics_due: Option<Monotonic>,
    topics_pause_ns: u64,
    taken: u64,
    kernel_dropped: u32,
    counters: Counters,
    scratch: Box<[u8]>,
}

/// Hands out what the reassembly delivers, once each.
struct Out<'a, D> {
    out: &'a mut D,
    known: &'a mut Known,
    counters: &'a mut Counters,
    mark: &'a mut Option<Number>,
    skip: Number,
    /// Whether what is delivered is in the order of the source, so that nothing before it is open.
    ordered: bool,
    named: bool,
    /// The datagram that has just arrived, and its greatest topic plus 1.
    arriving: Option<(Sequence, u32)>,
}

impl<D: Deliver> Deliver for Out<'_, D> {
    #[inline]
    fn message(&mut self, message: Message<'_>) {
        let number = message.start.number;
        if number < self.skip {
            self.counters.known += 1;
            return;
        }
        if !self.known.has(message.start.topic) {
            let after = number.get().checked_sub(1).and_then(Number::new);
            return self.loss(Loss {
                message: message.message,
                count: 1,
                bound: Bound::Exact,
                reason: LostReason::Topic,
                after,
                until: Some(number.plus(1)),
            });
        }
        self.counters.messages += 1;
        if self.ordered {
            let next = if mutant("mark_off_by_one") { number } else { number.plus(1) };
            *self.mark = (*self.mark).max(Some(next));
        }
        self.out.message(message);
    }

    fn topic(&mut self, number: TopicNumber, name: TableName<'_>) {
        if self.known.add(number) {
            self.named = true;
            self.out.topic(number, name);
        }
    }

    fn loss(&mut self, loss: Loss) {
        let mut loss = loss;
        if loss.until.is_some_and(|until| until <= self.skip) {
            return;
        }
        // Some of them may have come, or been reported, in an earlier session.
        let may_be_known = |after: Number| after.plus(1) < self.skip;
        if loss.after.is_none_or(may_be_known) && self.skip > Number::ZERO {
            loss.after = Some(self.skip.minus(1));
            loss.bound = Bound::AtMost;
        }
        // By arrival, something before them may be open: then the reassembly knows the mark.
        if self.ordered && !mutant("loss_leaves_mark") {
            *self.mark = (*self.mark).max(loss.until);
        }
        self.counters.lost = self.counters.lost.saturating_add(loss.count);
        self.out.loss(loss);
    }

    fn is_ready(&mut self, sequence: Sequence, data: &Data<'_>) -> bool {
        let below = self.known.below();
        if self.arriving.is_some_and(|(at, end)| at == sequence && end <= below) {
            return true;
        }
        let mut declared = None;
        data.chunks().all(|placed| match placed.chunk {
            Chunk::Message { start, .. } | Chunk::First { start, .. } => {
                declared.is_some_and(|(first, end)| (first..end).contains(&start.topic.get()))
                    || self.known.has(start.topic)
                    || start.number < self.skip
            }
            Chunk::Topic { number, .. } => {
                let number = number.get();
                let (first, end) = declared.unwrap_or((number, number));
                // Names are declared in order; others are found by `known` later.
                declared =
                    Some(if end == number { (first, end + 1) } else { (number, number + 1) });
                true
            }
            _ => true,
        })
    }
}

impl Receiver {
    /// Makes the receiver of a session that was heard for the first time. `header` names the session, with
    /// the flags of its datagrams. `mark` is where its series continues, if it is known.
    #[must_use]
    pub fn new(
        config: &Config,
        me: Me,
        header: Header,
        keys: Option<Keys>,
        random: Random,
        now: Monotonic,
    ) -> Self {
        let datagram = config.datagram_bytes.max(1);
        let held_max =
            usize::try_from(config.reorder_memory_bytes / datagram).unwrap_or(usize::MAX);
        Self {
            me,
            header,
            keys,
            held_max,
            config: config.clone(),
            random,
            state: State::Joining { held: Vec::with_capacity(JOIN_HELD), since: None },
            known: Known::new(),
            series: None,
            mark: None,
            skip: Number::ZERO,
            resume: None,
            from: Address::default(),
            heard: now,
            status_due: now,
            ask_ns: ASK_NS,
            nak_after: now,
            topics_due: None,
            topics_pause_ns: ASK_NS,
            taken: 0,
            kernel_dropped: 0,
            counters: Counters::default(),
            scratch: vec![0; SCRATCH_BYTES].into(),
        }
    }

    /// Returns what happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns where the series continues after what was delivered and reported.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        Some(Mark { series: self.series?, next: self.mark? })
    }

    /// Returns the series, once a SESSION has come.
    #[must_use]
    pub const fn series(&self) -> Option<Series> {
        self.series
    }

    /// Continues where this session was left when its source was silent.
    pub const fn resume(&mut self, position: Option<Position>) {
        self.resume = position;
    }

    /// Returns where the session was left, if it has ended in silence.
    #[must_use]
    pub const fn left(&self) -> Option<Position> {
        self.resume
    }

    /// Returns how the session has ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<End> {
        match self.state {
            State::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Returns whether the receiver still waits for a SESSION.
    #[must_use]
    pub const fn is_joining(&self) -> bool {
        matches!(self.state, State::Joining { .. })
    }

    /// Returns when something was heard last.
    #[must_use]
    pub const fn heard(&self) -> Monotonic {
        self.heard
    }

    /// Returns within which time the sender promised to be heard.
    pub(crate) const fn promised_ns(&self) -> u64 {
        match &self.state {
            State::Live(live) => live.stated.next_ns,
            _ => 0,
        }
    }

    /// Returns how many buffers are held.
    #[must_use]
    pub fn held(&self) -> usize {
        match &self.state {
            State::Joining { held, .. } => held.len(),
            State::Live(live) => either!(&live.reassembly, one => one.held()),
            State::Ended(_) => 0,
        }
    }

    /// Returns how many gaps are open.
    #[must_use]
    pub fn open_gaps(&self) -> usize {
        match &self.state {
            State::Live(live) => live.gaps.ranges().len(),
            _ => 0,
        }
    }

    /// Notes how many datagrams the kernel has dropped so far, for STATUS.
    pub const fn set_kernel_dropped(&mut self, dropped: u32) {
        self.kernel_dropped = dropped;
    }

    /// Takes DATA that was checked, in a buffer of the pool. A buffer that is not kept is given back.
    pub fn data(
        &mut self,
        now: Monotonic,
        from: Address,
        arrived: Arrived,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        let Arrived { sequence, again, trail, topics_end, buffer, length } = arrived;
        (self.heard, self.from) = (now, from);
        self.taken += u64::from(length);
        let ordered = self.config.order == Order::Source;
        let Self { state, known, counters, mark, skip, .. } = self;
        match state {
            State::Ended(_) => pool.give(buffer),
            State::Joining { held, since } => {
                // What is repaired for others lies before what we want.
                if again {
                    return pool.give(buffer);
                }
                since.get_or_insert(now);
                if held.len() < JOIN_HELD && held.iter().all(|(at, ..)| *at != sequence) {
                    held.push((sequence, buffer, length));
                } else {
                    pool.give(buffer);
                }
            }
            State::Live(live) => {
                let arriving = Some((sequence, topics_end));
                let mut out = Out {
                    out,
                    known,
                    counters,
                    mark,
                    skip: *skip,
                    ordered,
                    named: false,
                    arriving,
                };
                live.data(now, sequence, buffer, length, pool, &mut out);
                if !live.gaps.is_empty() {
                    live.gaps.trail(now, trail);
                }
                live.expire(now, pool, &mut out);
                self.settle(now, pool);
            }
        }
    }

    /// Takes SESSION, NCF or TOPICS that was checked.
    pub fn control(
        &mut self,
        now: Monotonic,
        from: Address,
        datagram: &Datagram<'_>,
        known_series: Option<Mark>,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        (self.heard, self.from) = (now, from);
        match &datagram.body {
            Body::Session(info) => {
                self.session(now, datagram.header, info, known_series, pool, out);
            }
            Body::Ncf(ncf) => self.ncf(now, ncf, pool, out),
            Body::Topics(topics) => self.topics(now, topics, pool, out),
            _ => {}
        }
    }

    fn session(
        &mut self,
        now: Monotonic,
        header: Header,
        info: &SessionInfo<'_>,
        known_series: Option<Mark>,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        if self.is_joining() {
            self.join(now, header.sequence, info, known_series, pool, out);
        }
        if self.series != Some(info.series) {
            return;
        }
        let ordered = self.config.order == Order::Source;
        let Self { state, known, counters, mark, skip, .. } = self;
        let State::Live(live) = state else { return };
        let arriving = None;
        let mut out =
            Out { out, known, counters, mark, skip: *skip, ordered, named: false, arriving };
        live.session(now, header, info, pool, &mut out);
        live.expire(now, pool, &mut out);
        let slowest = info.policy == Policy::Slowest;
        if slowest && self.status_due > now.after(STATUS_OF_SLOWEST_NS) {
            self.status_due = now.after(STATUS_OF_SLOWEST_NS);
        }
        self.settle(now, pool);
    }

    /// Leaves the state JOINING.
    fn join(
        &mut self,
        now: Monotonic,
        sequence: Sequence,
        info: &SessionInfo<'_>,
        known_series: Option<Mark>,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        let State::Joining { held, .. } = &mut self.state else { return };
        let mut held = core::mem::take(held);
        held.sort_unstable_by_key(|(at, ..)| *at);
        self.series = Some(info.series);
        let known = known_series.filter(|mark| mark.series == info.series || mutant("series_kept"));
        let begin = info.first.max(info.trail);
        // More than a sender queues for one receiver is not asked for: it would cost all the others.
        let is_near = sequence.since(begin) <= MAX_QUEUED;
        let is_whole = begin == info.first
            && held.iter().all(|(at, ..)| *at >= info.first)
            && sequence.since(info.first) <= JOIN_HELD as u64;
        let resume = self.resume.filter(|left| left.sequence >= info.first);
        // What is received here has numbers from `from` on.
        let (first, message, from) = match (held.first(), resume.zip(known)) {
            (_, Some((left, mark))) => (left.sequence, Some(left.message), mark.next),
            (_, None) if known.is_some() && is_near => {
                (info.first, Some(MessageNumber::ZERO), info.begins)
            }
            (_, None) if is_whole => (info.first, Some(MessageNumber::ZERO), info.begins),
            (Some((at, buffer, length)), None) => {
                let bytes = pool.get(buffer).get(..usize::from(*length)).unwrap_or_default();
                let number = Data::reopen(bytes).map_or(info.begins, |data| data.number);
                (*at, None, number)
            }
            (None, None) => (sequence, Some(info.message), info.number),
        };
        let mut before = None;
        self.mark = Some(from);
        if let Some(mark) = known {
            // A session that is resumed brings nothing twice.
            let skip = mark.next.max(from);
            self.skip = if resume.is_some() { Number::ZERO } else { skip };
            self.mark = Some(skip);
            if from > mark.next {
                before = Some(Loss {
                    message: MessageNumber::ZERO,
                    count: from.since(mark.next),
                    bound: Bound::AtMost,
                    reason: LostReason::Restart,
                    after: mark.next.get().checked_sub(1).and_then(Number::new),
                    until: Some(from),
                });
            }
        }
        let reassembly = match self.config.order {
            Order::Source => Reassembly::InOrder(InOrder::new(first, message, self.held_max)),
            Order::Arrival => Reassembly::ByArrival(ByArrival::new(first, message, self.held_max)),
        };
        let mut live = Box::new(Live {
            reassembly,
            gaps: Gaps::new(&self.config, self.random.clone()),
            next: first,
            jump: None,
            stated: Stated {
                sequence: first,
                message: message.unwrap_or_default(),
                number: info.begins,
                sent: info.sent,
                arrived: now,
                policy: info.policy,
                receivers: info.receivers,
                next_ns: u64::from(info.next_ms) * MILLISECOND,
                ended: false,
            },
            names_until: None,
            names_due: 0,
        });
        if let Some(loss) = before {
            self.counters.lost = self.counters.lost.saturating_add(loss.count);
            out.loss(loss);
        }
        let ordered = self.config.order == Order::Source;
        let Self { known, counters, mark, skip, .. } = self;
        let arriving = None;
        let mut out =
            Out { out, known, counters, mark, skip: *skip, ordered, named: false, arriving };
        // What left the window before we came cannot be repaired.
        let (least, reason) = match sequence.since(live.next) > MAX_QUEUED {
            true if resume.is_some() => (sequence.max(info.trail), LostReason::Silent),
            _ => (info.trail, LostReason::Gone),
        };
        if least > live.next {
            live.reassembly_skip(least, reason, pool, &mut out);
        }
        for (at, buffer, length) in held {
            live.data(now, at, buffer, length, pool, &mut out);
        }
        // Until the names so far have come, what uses them waits.
        live.names_due = info.topics;
        self.topics_due = Some(now);
        self.topics_pause_ns = ASK_NS;
        self.state = State::Live(live);
    }

    fn ncf(&mut self, now: Monotonic, ncf: &Ncf<'_>, pool: &mut Pool, out: &mut impl Deliver) {
        let ordered = self.config.order == Order::Source;
        let Self { state, known, counters, mark, skip, .. } = self;
        let State::Live(live) = state else { return };
        if live.gaps.is_empty() {
            return;
        }
        for range in ncf.ranges.iter() {
            live.gaps.answered(now, range, ncf.reason);
        }
        let arriving = None;
        let mut out =
            Out { out, known, counters, mark, skip: *skip, ordered, named: false, arriving };
        live.expire(now, pool, &mut out);
        self.settle(now, pool);
    }

    fn topics(
        &mut self,
        now: Monotonic,
        topics: &Topics<'_>,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        let ordered = self.config.order == Order::Source;
        let Self { state, known, counters, mark, skip, .. } = self;
        let State::Live(live) = state else { return };
        let arriving = None;
        let mut out =
            Out { out, known, counters, mark, skip: *skip, ordered, named: false, arriving };
        for (number, name) in (topics.first.get()..).zip(topics.names()) {
            if let Some(number) = TopicNumber::new(number) {
                out.topic(number, name);
            }
        }
        if out.named {
            self.topics_pause_ns = ASK_NS;
            either!(&mut live.reassembly, one => one.retry(pool, false, &mut out));
            live.after_turn(pool, &mut out);
        }
        self.settle(now, pool);
    }

    /// Sets the timers that depend on the state, and ends the session if it is complete.
    fn settle(&mut self, now: Monotonic, pool: &mut Pool) {
        let below = self.known.below();
        let State::Live(live) = &mut self.state else { return };
        let blocked = either!(&live.reassembly, one => one.is_blocked());
        if blocked {
            let until = now.after(self.config.generation_ns);
            live.names_until.get_or_insert(until);
        } else {
            live.names_until = None;
        }
        if blocked || below < live.names_due {
            self.topics_due.get_or_insert(now);
        } else {
            self.topics_due = None;
            self.topics_pause_ns = ASK_NS;
        }
        let Stated { ended, sequence, .. } = live.stated;
        let next = either!(&live.reassembly, one => one.next());
        if ended && (mutant("end_closes_gaps") || next >= sequence && live.gaps.is_empty()) {
            either!(&mut live.reassembly, one => one.clear(pool));
            self.state = State::Ended(End::Complete);
        }
    }

    /// Returns the next datagram for the sender, and where it goes.
    pub fn poll_transmit(&mut self, now: Monotonic) -> Option<(Address, &[u8])> {
        let length = self.prepare(now)?;
        self.prepared(length)
    }

    /// Returns what [`Self::prepare`] has made, and where it goes.
    pub(crate) fn prepared(&self, length: usize) -> Option<(Address, &[u8])> {
        Some((self.from, self.scratch.get(..length)?))
    }

    /// Makes the next datagram, if there is one, and returns its length.
    pub(crate) fn prepare(&mut self, at: Monotonic) -> Option<usize> {
        if let State::Live(live) = &mut self.state
            && at >= self.nak_after
        {
            let mut ranges = [Range::new(Sequence::ZERO, 1)?; MAX_RANGES];
            let count = live.gaps.nak(at, &mut ranges);
            if count > 0 {
                self.nak_after = at.after(NAK_NS);
                self.counters.naks += 1;
                let header = self.header_now();
                let (id, keys) = (self.me.id, self.keys.as_ref());
                return Nak::encode(&header, id, &ranges[..count], keys, &mut self.scratch).ok();
            }
        }
        if let Some(length) = self.topics_wanted(at) {
            return Some(length);
        }
        self.status(at)
    }

    /// The header of what we send: it names the stream and what we expect of it.
    fn header_now(&self) -> Header {
        let sequence = match &self.state {
            State::Live(live) => either!(&live.reassembly, one => one.next()),
            _ => Sequence::ZERO,
        };
        let flags = if self.header.flags.has(Flags::FEED) { Flags::FEED } else { Flags::NONE };
        Header { flags, sequence, ttl: self.config.ttl, ..self.header }
    }

    fn topics_wanted(&mut self, now: Monotonic) -> Option<usize> {
        if self.topics_due.is_none_or(|due| due > now) {
            return None;
        }
        let State::Live(live) = &self.state else { return None };
        let first = self.known.below();
        let blocked = either!(&live.reassembly, one => one.is_blocked());
        let end = if blocked { live.names_due.max(first + 1) } else { live.names_due };
        self.topics_due = Some(now.after(self.topics_pause_ns));
        self.topics_pause_ns = (self.topics_pause_ns * 2).min(ASK_MAX_NS);
        let count = end.min(MAX_TABLE_NAMES).checked_sub(first).filter(|count| *count > 0)?;
        let first = TopicNumber::new(first)?;
        let wanted = TopicsWanted { receiver: self.me.id, first, count };
        wanted.encode(&self.header_now(), self.keys.as_ref(), &mut self.scratch).ok()
    }

    fn status(&mut self, now: Monotonic) -> Option<usize> {
        let window_bytes = self.config.reorder_memory_bytes;
        let is_due = self.status_due <= now;
        let pause = match &self.state {
            _ if !is_due && self.taken <= window_bytes / 4 => return None,
            State::Ended(_) => return None,
            // What a stranger forges must not make us ask for long.
            State::Joining { .. } => {
                self.ask_ns = (self.ask_ns * 2).min(ASK_MAX_NS);
                self.ask_ns / 2
            }
            State::Live(live) if live.stated.policy == Policy::Slowest => STATUS_OF_SLOWEST_NS,
            State::Live(live) => {
                let group = u64::from(live.stated.receivers) * 10 * MILLISECOND;
                self.config.status_ns.max(group)
            }
        };
        let is_slowest = pause == STATUS_OF_SLOWEST_NS;
        if !is_due && !is_slowest {
            return None;
        }
        self.taken = 0;
        self.status_due = now.after(pause);
        let new = self.is_joining();
        let (echo, held_ns) = match &self.state {
            State::Live(live) => (live.stated.sent, now.since(live.stated.arrived)),
            _ => (Wall::default(), 0),
        };
        let held = self.held() as u64 * self.config.datagram_bytes;
        let name = self.me.name;
        let status = Status {
            receiver: self.me.id,
            window: u32::try_from(window_bytes.saturating_sub(held)).unwrap_or(u32::MAX),
            required: self.me.required,
            new,
            lost: self.counters.lost,
            naks: self.counters.naks,
            echo,
            held_us: u32::try_from(held_ns / MICROSECOND).unwrap_or(u32::MAX),
            dropped: self.kernel_dropped,
            name: name.as_node_name(),
        };
        status.encode(&self.header_now(), self.keys.as_ref(), &mut self.scratch).ok()
    }

    /// Returns when [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let silent = self.heard.after(self.config.activity_ns);
        match &self.state {
            State::Ended(_) => None,
            State::Joining { since, .. } => {
                let until = since.map(|since| since.after(JOIN_NS));
                [Some(self.status_due), Some(silent), until].into_iter().flatten().min()
            }
            State::Live(live) => {
                // A NAK that is due may have to wait for the one before.
                let gaps = live.gaps.poll_timeout().map(|at| {
                    let deadline = live.gaps.deadline().unwrap_or(at);
                    at.max(self.nak_after).min(deadline)
                });
                [Some(self.status_due), Some(silent), gaps, live.names_until, self.topics_due]
                    .into_iter()
                    .flatten()
                    .min()
            }
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Monotonic, pool: &mut Pool, out: &mut impl Deliver) {
        if self.heard.after(self.config.activity_ns) <= now && self.ended().is_none() {
            self.finish(LostReason::Silent, pool, out);
            self.state = State::Ended(End::Silent);
            return;
        }
        let ordered = self.config.order == Order::Source;
        let Self { state, known, counters, mark, skip, .. } = self;
        match state {
            State::Joining { held, since } => {
                if since.is_some_and(|since| since.after(JOIN_NS) <= now) {
                    // It was no loss until now: it joins later.
                    held.drain(..).for_each(|(_, buffer, _)| pool.give(buffer));
                    *since = None;
                }
            }
            State::Live(live) => {
                let arriving = None;
                let mut out = Out {
                    out,
                    known,
                    counters,
                    mark,
                    skip: *skip,
                    ordered,
                    named: false,
                    arriving,
                };
                live.expire(now, pool, &mut out);
                if live.names_until.is_some_and(|until| until <= now) {
                    live.names_until = None;
                    either!(&mut live.reassembly, one => one.retry(pool, true, &mut out));
                    live.after_turn(pool, &mut out);
                }
                self.settle(now, pool);
            }
            State::Ended(_) => {}
        }
    }

    /// Gives the oldest gap up, or what waits for a name, because memory is short. Returns whether there was
    /// anything.
    pub fn shed(&mut self, pool: &mut Pool, out: &mut impl Deliver) -> bool {
        let before = self.held();
        let ordered = self.config.order == Order::Source;
        let Self { state, known, counters, mark, skip, .. } = self;
        let arriving = None;
        let mut out =
            Out { out, known, counters, mark, skip: *skip, ordered, named: false, arriving };
        match state {
            State::Joining { held, .. } => {
                held.drain(..).for_each(|(_, buffer, _)| pool.give(buffer));
            }
            State::Live(live) => {
                live.shed(pool, &mut out);
            }
            State::Ended(_) => {}
        }
        self.held() < before
    }

    /// Moves all deadlines, because this process did not run for so long.
    pub fn postpone(&mut self, by_ns: u64) {
        self.heard = self.heard.after(by_ns);
        if let State::Live(live) = &mut self.state {
            live.gaps.postpone(by_ns);
            live.names_until = live.names_until.map(|until| until.after(by_ns));
        }
    }

    /// Ends the session because another one follows, or because the source is silent. Reports what is missing,
    /// and that more may have been lost. A session of the same series may bring what is missing again: then
    /// `reason` is `None`.
    pub fn close(&mut self, reason: Option<LostReason>, pool: &mut Pool, out: &mut impl Deliver) {
        match reason {
            Some(reason) if self.ended().is_none() => self.finish(reason, pool, out),
            None if self.config.order == Order::Arrival => {
                // What was delivered behind a gap must not come again, so the gap ends here.
                self.give_up_all(LostReason::Restart, pool, out);
            }
            _ => {}
        }
        self.release(pool);
    }

    fn release(&mut self, pool: &mut Pool) {
        match &mut self.state {
            State::Joining { held, .. } => {
                held.drain(..).for_each(|(_, buffer, _)| pool.give(buffer));
            }
            State::Live(live) => either!(&mut live.reassembly, one => one.clear(pool)),
            State::Ended(_) => return,
        }
        self.state = State::Ended(End::Silent);
    }

    fn finish(&mut self, reason: LostReason, pool: &mut Pool, out: &mut impl Deliver) {
        let was_live = matches!(self.state, State::Live(_));
        let message = self.give_up_all(reason, pool, out);
        if was_live {
            // What was sent last and lost with the host, nobody knows.
            let after = self.mark.and_then(|mark| mark.get().checked_sub(1)).and_then(Number::new);
            let bound = Bound::AtLeast;
            out.loss(Loss { message, count: 0, bound, reason, after, until: None });
        }
        self.release(pool);
    }

    /// Reports all that is known to be missing. Returns the next message number.
    fn give_up_all(
        &mut self,
        reason: LostReason,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) -> MessageNumber {
        let ordered = self.config.order == Order::Source;
        let Self { state, known, counters, mark, skip, .. } = self;
        let State::Live(live) = state else { return MessageNumber::ZERO };
        let arriving = None;
        let mut out =
            Out { out, known, counters, mark, skip: *skip, ordered, named: false, arriving };
        while live.gaps.give_up_oldest().is_some() {}
        let next = live.next;
        live.reassembly_skip(next, reason, pool, &mut out);
        live.after_turn(pool, &mut out);
        let next = either!(&live.reassembly, one => one.next_message());
        let message = next.unwrap_or(live.stated.message);
        self.resume = Some(Position { sequence: live.next, message });
        message
    }
}

impl Live {
    fn data<D: Deliver>(
        &mut self,
        now: Monotonic,
        sequence: Sequence,
        buffer: Buffer,
        length: u16,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        if sequence >= self.next.plus(AHEAD as u64) && !mutant("jump_unlimited") {
            match self.jump {
                Some(before) if sequence > before && sequence.since(before) < AHEAD as u64 => {
                    self.jump_to(before, pool, out);
                }
                _ => {
                    self.jump = Some(sequence);
                    return pool.give(buffer);
                }
            }
        } else if sequence >= self.next.minus(AHEAD as u64) {
            self.jump = None;
        }
        if sequence >= self.next {
            self.missing(now, self.next, sequence, pool, out);
            self.next = sequence.plus(1);
        }
        let mut buffer = buffer;
        let arrival = loop {
            let taken = either!(&mut self.reassembly, one => one.datagram(pool, sequence, buffer, length, out));
            match taken {
                Ok(arrival) => break arrival,
                Err(Refused::Full(back) | Refused::TooFar(back)) => {
                    if !self.shed(pool, out) {
                        // Its sequence is asked for again.
                        self.missing_again(now, sequence, pool, out);
                        return pool.give(back);
                    }
                    buffer = back;
                }
            }
        };
        if arrival == Arrival::Duplicate {
            out.counters.duplicates += 1;
        } else if !self.gaps.is_empty() {
            let (repaired, lost) = self.gaps.arrived(sequence);
            if let Some(repaired) = repaired {
                out.counters.repaired += 1;
                let took = now.since(repaired.detected);
                out.counters.repair_max_ns = out.counters.repair_max_ns.max(took);
            }
            if let Some(lost) = lost {
                self.given_up(&lost, pool, out);
            }
        }
        if out.named {
            out.named = false;
            either!(&mut self.reassembly, one => one.retry(pool, false, out));
        }
        self.after_turn(pool, out);
    }

    fn session<D: Deliver>(
        &mut self,
        now: Monotonic,
        header: Header,
        info: &SessionInfo<'_>,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        let sequence = header.sequence;
        // One that was overtaken by a later one says nothing new.
        if sequence < self.stated.sequence || info.message < self.stated.message {
            return;
        }
        if sequence >= self.next.plus(AHEAD as u64) {
            match self.jump {
                Some(before) if sequence >= before => self.jump_to(before, pool, out),
                _ => {
                    self.jump = Some(sequence);
                    return;
                }
            }
            if sequence >= self.next.plus(AHEAD as u64) {
                return;
            }
        }
        self.gaps.set_group(info.rtt_us, info.receivers);
        if sequence > self.next {
            self.missing(now, self.next, sequence, pool, out);
            self.next = sequence;
        }
        self.gaps.trail(now, info.trail);
        self.stated = Stated {
            sequence,
            message: info.message,
            number: info.number,
            sent: info.sent,
            arrived: now,
            policy: info.policy,
            receivers: info.receivers,
            next_ns: u64::from(info.next_ms) * MILLISECOND,
            ended: header.flags.has(Flags::END),
        };
        self.after_turn(pool, out);
        let next = either!(&self.reassembly, one => one.next());
        if next >= sequence {
            self.names_due = self.names_due.max(info.topics);
        }
    }

    /// Opens a gap from `first` to before `end`.
    fn missing<D: Deliver>(
        &mut self,
        now: Monotonic,
        first: Sequence,
        end: Sequence,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        let count = u32::try_from(end.since(first)).unwrap_or(u32::MAX);
        let Some(range) = Range::new(first, count) else { return };
        if let Some(lost) = self.gaps.open(now, range) {
            self.given_up(&lost, pool, out);
        }
    }

    /// A datagram came but could not be kept. If it was the newest, it becomes a gap; else it still is one.
    fn missing_again<D: Deliver>(
        &mut self,
        now: Monotonic,
        sequence: Sequence,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        let is_newest = sequence.plus(1) == self.next;
        let is_gap = self.gaps.ranges().any(|range| range.end() > sequence);
        if is_newest && !is_gap {
            self.missing(now, sequence, self.next, pool, out);
        }
    }

    fn given_up<D: Deliver>(&mut self, lost: &GivenUp, pool: &mut Pool, out: &mut Out<'_, D>) {
        either!(&mut self.reassembly, one => one.give_up(pool, lost.range, lost.reason, out));
        self.after_turn(pool, out);
    }

    /// Gives up all gaps whose time is over.
    fn expire<D: Deliver>(&mut self, now: Monotonic, pool: &mut Pool, out: &mut Out<'_, D>) {
        while let Some(lost) = self.gaps.give_up(now) {
            self.given_up(&lost, pool, out);
        }
    }

    /// Makes room. Returns whether it could.
    fn shed<D: Deliver>(&mut self, pool: &mut Pool, out: &mut Out<'_, D>) -> bool {
        if either!(&self.reassembly, one => one.is_blocked()) {
            either!(&mut self.reassembly, one => one.retry(pool, true, out));
            self.after_turn(pool, out);
            return true;
        }
        let Some(lost) = self.gaps.give_up_oldest() else { return false };
        self.given_up(&lost, pool, out);
        true
    }

    /// Believes that the stream has gone far ahead.
    fn jump_to<D: Deliver>(&mut self, sequence: Sequence, pool: &mut Pool, out: &mut Out<'_, D>) {
        self.jump = None;
        while self.gaps.give_up_oldest().is_some() {}
        self.reassembly_skip(sequence, LostReason::Jump, pool, out);
    }

    fn reassembly_skip<D: Deliver>(
        &mut self,
        sequence: Sequence,
        reason: LostReason,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        either!(&mut self.reassembly, one => one.skip_to(pool, sequence, reason, out));
        self.next = self.next.max(sequence);
    }

    /// If all before the last SESSION had their turn, what is missing is lost, although no datagram follows.
    fn after_turn<D: Deliver>(&mut self, pool: &mut Pool, out: &mut Out<'_, D>) {
        let Stated { sequence, message, number, .. } = self.stated;
        if either!(&self.reassembly, one => one.next()) == sequence {
            either!(
                &mut self.reassembly,
                one => one.session(pool, sequence, message, number, out)
            );
            // If nothing is being collected, all that the source has taken from its bus had its turn.
            let next = either!(&self.reassembly, one => one.next_message());
            if next == Some(message) {
                *out.mark = (*out.mark).max(Some(number));
            }
        }
        if let Reassembly::ByArrival(one) = &self.reassembly {
            let number = one.number().map(|number| number.plus(1));
            *out.mark = (*out.mark).max(number);
        }
    }
}
