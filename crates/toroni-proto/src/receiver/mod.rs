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

mod delivery;
mod ending;
mod joining;
mod live;
mod requests;
#[cfg(test)]
pub(crate) mod tests;
mod timing;

use core::cmp::Ordering;

use self::delivery::Delivery;
pub use self::ending::Over;
pub use self::joining::JOIN_HELD;
use self::joining::Joining;
use self::live::Live;
use self::requests::Requests;
use crate::audience::Name;
use crate::budget::{Budget, Exceeded, Limits};
use crate::config::Config;
use crate::hook::mutant;
use crate::id::{Number, Sequence, Series, Session};
use crate::legs::{Leg, LegCounters, Legs, Path};
use crate::random::Random;
use crate::reassembly::{Buffer, Counted, Deliver, Pool};
use crate::time::{self, MILLISECOND, Monotonic, Wall};
use crate::wire::{
    Body, Datagram, Header, Keys, NcfReason, Policy, Receiver as Id, SessionInfo, TopicNumber,
    Topics,
};

/// How much later a receiver asks that had to let others ask first.
const ASK_LATER_NS: u64 = 10 * MILLISECOND;

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
    /// Datagrams that came and were not kept, because as many waited as may. They are asked for again.
    pub dropped: u64,
}

/// Where a known series continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The session that was heard last.
    pub session: Session,
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
    pub counted: Counted,
    /// Messages with lower numbers came in an earlier session.
    pub skip: Number,
}

/// How a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With END, and with all that came before.
    Complete,
    /// The same, and no message of its series ever follows.
    Sealed,
    /// The source was silent.
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Joining,
    Live,
    Ended(End),
}

/// Receives one session of one stream.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    random: Random,
    phase: Phase,
    joining: Joining,
    live: Live,
    delivery: Delivery,
    requests: Requests,
    series: Option<Series>,
    /// Where this session was left, when it was silent.
    resume: Option<Position>,
    /// When something came last that had not come before.
    heard: Monotonic,
    /// The `sent` of the last SESSION.
    sent: Wall,
}

/// Something came. A copy, which anybody can send, is no sign that the sender lives.
#[inline]
fn hear(
    heard: &mut Monotonic,
    legs: &mut Legs,
    now: Monotonic,
    from: Path,
    is_sender: bool,
    is_new: bool,
) {
    if is_new || mutant("duplicate_is_heard") {
        *heard = now;
        legs.hear_any(from);
    }
    if is_sender {
        legs.hear(now, from, is_new);
    }
}

impl Receiver {
    /// Makes the receiver of a session that was heard for the first time. `header` names the session, with
    /// the flags of its datagrams.
    #[must_use]
    pub fn new(
        config: &Config,
        me: Me,
        header: Header,
        keys: Option<Keys>,
        random: Random,
        now: Monotonic,
    ) -> Self {
        Self {
            config: config.clone(),
            random,
            phase: Phase::Joining,
            joining: Joining::new(),
            live: Live::new(config),
            delivery: Delivery::new(config.order, &header),
            requests: Requests::new(me, header, keys, config.ttl, now),
            series: None,
            resume: None,
            heard: now,
            sent: Wall::default(),
        }
    }

    /// Follows another session, in the same memory. The one before was closed or has ended.
    pub fn restart(&mut self, header: Header, now: Monotonic, pool: &mut Pool) {
        self.release(pool);
        self.phase = Phase::Joining;
        self.delivery.restart(&header);
        self.requests.restart(header, now);
        self.series = None;
        self.resume = None;
        self.heard = now;
        self.sent = Wall::default();
        self.joining.from_start = false;
    }

    /// Returns what happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.delivery.counters
    }

    /// Returns where the series continues after what was delivered and reported.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        let session = self.requests.session();
        Some(Mark { session, series: self.series?, next: self.delivery.mark? })
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

    /// Returns where the session was left, if it has ended.
    #[must_use]
    pub const fn left(&self) -> Option<Position> {
        self.resume
    }

    /// Returns how the session has ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<End> {
        match self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Returns whether the receiver still waits for a SESSION.
    #[must_use]
    pub const fn is_joining(&self) -> bool {
        matches!(self.phase, Phase::Joining)
    }

    const fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Returns when something was heard last.
    #[must_use]
    pub const fn heard(&self) -> Monotonic {
        self.heard
    }

    /// Returns within which time the sender promised to be heard.
    pub(crate) const fn promised_ns(&self) -> u64 {
        if self.is_live() { self.live.stated.next_ns } else { 0 }
    }

    /// Returns how many receivers its sender knows, as it said last.
    pub(crate) fn audience(&self) -> Option<u16> {
        self.is_live().then_some(self.live.stated.receivers)
    }

    /// Returns how many buffers are held.
    #[must_use]
    pub fn held(&self) -> usize {
        match self.phase {
            Phase::Joining => self.joining.held(),
            Phase::Live => self.live.reassembly.held(),
            Phase::Ended(_) => 0,
        }
    }

    /// Returns since when the oldest of them is held.
    #[must_use]
    pub fn held_since(&self, pool: &Pool) -> Option<Monotonic> {
        match self.phase {
            Phase::Joining => self.joining.since(),
            Phase::Live => self.live.reassembly.held_since(pool),
            Phase::Ended(_) => None,
        }
    }

    /// Returns how many gaps are open.
    #[must_use]
    pub fn open_gaps(&self) -> usize {
        if self.is_live() { self.live.gaps.ranges().len() } else { 0 }
    }

    /// Returns what each leg has brought of this session.
    pub fn legs(&self) -> impl Iterator<Item = (Leg, LegCounters)> {
        self.requests.legs.counters()
    }

    /// Returns a leg that has fallen behind the others, once until it brings something again.
    pub fn leg_behind(&mut self, now: Monotonic) -> Option<Leg> {
        self.requests.legs.behind(now)
    }

    /// Sets how long repairs and the order may take.
    pub const fn set_limits(&mut self, limits: &Limits) {
        self.delivery.timing.set_limits(limits);
    }

    /// Returns how long each missing datagram took to arrive.
    #[must_use]
    pub const fn repair(&self) -> &Budget {
        &self.delivery.timing.repair
    }

    /// Returns how long each datagram waited behind a gap, or for a name. Those that did not wait are not counted.
    #[must_use]
    pub const fn order(&self) -> &Budget {
        &self.delivery.timing.order
    }

    /// Returns what took longer than it may, at most once in 10 s for each part.
    pub fn exceeded(&mut self, now: Monotonic) -> Option<Exceeded> {
        self.delivery.timing.poll(now)
    }

    /// Notes how many datagrams the kernel has dropped so far, for STATUS.
    pub const fn set_kernel_dropped(&mut self, dropped: u32) {
        self.requests.kernel_dropped = dropped;
    }

    /// Takes DATA that was checked, in a buffer of the pool. A buffer that is not kept is given back.
    pub fn data(
        &mut self,
        now: Monotonic,
        from: Path,
        arrived: Arrived,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        let Arrived { sequence, again, trail, topics_end, buffer, length } = arrived;
        self.delivery.timing.now = now;
        // On a feed, others repair. Only the sender says what is new, and where its window begins.
        let is_sender = !again || !self.requests.is_feed();
        self.requests.taken += u64::from(length);
        match self.phase {
            Phase::Ended(_) => pool.give(buffer),
            Phase::Joining => {
                self.hear(now, from, is_sender, true);
                self.joining.hold(now, sequence, again, buffer, length, pool);
            }
            Phase::Live => {
                let live = &mut self.live;
                let mut out = self.delivery.arriving(sequence, topics_end, out);
                let is_new = live.data(now, sequence, buffer, length, pool, &mut out);
                let legs = &mut self.requests.legs;
                hear(&mut self.heard, legs, now, from, is_sender, is_new);
                if !again {
                    legs.count(now, from.leg, is_new);
                }
                if is_sender && !live.gaps.is_empty() {
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
        from: Path,
        datagram: &Datagram<'_>,
        known_series: Option<Mark>,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        self.delivery.timing.now = now;
        match &datagram.body {
            Body::Session(info) => {
                self.introduce(now, from, &datagram.header, info);
                self.session(now, &datagram.header, info, known_series, pool, out);
            }
            Body::Ncf(ncf) if self.is_live() => {
                let live = &mut self.live;
                // What is gone from a repairer's window, others may still have.
                let is_sender =
                    !self.requests.is_feed() || self.requests.legs.is_sender(from.address);
                if is_sender || ncf.reason != NcfReason::Gone || mutant("repairer_believed") {
                    live.ncf(now, ncf);
                }
                live.expire(now, pool, &mut self.delivery.to(out));
            }
            Body::Topics(topics) if self.is_live() => self.topics(topics, pool, out),
            _ => {}
        }
        self.settle(now, pool);
    }

    fn hear(&mut self, now: Monotonic, from: Path, is_sender: bool, is_new: bool) {
        hear(&mut self.heard, &mut self.requests.legs, now, from, is_sender, is_new);
    }

    /// Takes from a SESSION who sends it and where that is. While the sender has not shown that it lives, that is all it takes.
    pub(crate) fn introduce(
        &mut self,
        now: Monotonic,
        from: Path,
        header: &Header,
        info: &SessionInfo<'_>,
    ) {
        self.requests.legs.list(info.legs.into());
        self.hear(now, from, true, true);
        self.sent = info.sent;
        self.joining.from_start |= header.sequence == info.first;
    }

    /// Compares a SESSION with the last one: it must have been sent later. A copy of the last one shows that its leg is alive, and
    /// nothing else.
    pub(crate) fn compare(&mut self, now: Monotonic, from: Path, sent: Wall) -> Ordering {
        let order = sent.cmp(&self.sent);
        if order == Ordering::Equal {
            self.hear(now, from, true, false);
        }
        order
    }

    /// Returns where the sender takes the answer to something that came this way.
    pub(crate) fn back(&self, from: Path) -> Path {
        self.requests.legs.back(from)
    }

    /// Whether the sender states other addresses than this one.
    pub(crate) fn is_unlisted(&self, from: Path) -> bool {
        !self.requests.legs.is_listed(from.address)
    }

    /// Returns when it sends its next STATUS.
    pub(crate) const fn status_due(&self) -> Monotonic {
        self.requests.status_due
    }

    /// Asks later, because others ask.
    pub(crate) fn ask_later(&mut self, now: Monotonic) {
        self.requests.status_due = now.after(ASK_LATER_NS);
    }

    fn session(
        &mut self,
        now: Monotonic,
        header: &Header,
        info: &SessionInfo<'_>,
        known_series: Option<Mark>,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        if self.is_joining() {
            self.join(now, header, info, known_series, pool, out);
        }
        if !self.is_live() || self.series != Some(info.series) {
            return;
        }
        let live = &mut self.live;
        let mut out = self.delivery.to(out);
        live.session(now, header, info, pool, &mut out);
        live.expire(now, pool, &mut out);
        if info.policy == Policy::Slowest {
            self.requests.hurry(now);
        }
    }

    fn topics(&mut self, topics: &Topics<'_>, pool: &mut Pool, out: &mut impl Deliver) {
        let live = &mut self.live;
        let mut out = self.delivery.to(out);
        for (number, name) in (topics.first.get()..).zip(topics.names()) {
            if let Some(number) = TopicNumber::new(number) {
                out.topic(number, name);
            }
        }
        if out.named {
            self.requests.names_came();
            live.retry(false, pool, &mut out);
        }
    }

    /// Sets the timers that depend on the state, and ends the session if it is complete.
    fn settle(&mut self, now: Monotonic, pool: &mut Pool) {
        if !self.is_live() {
            return;
        }
        let live = &mut self.live;
        // What waits for the caller's room does not wait for a name, as far as it is known.
        let blocked = live.reassembly.is_blocked() && !self.delivery.paused;
        if blocked {
            if live.names_until.is_none() {
                live.names_until = Some(now.after(self.config.generation_ns));
                // The pause between requests that were not answered may be longer than that.
                self.requests.want_names(now);
            }
        } else {
            live.names_until = None;
        }
        if blocked || self.delivery.known.below() < live.names_due {
            self.requests.topics_due.get_or_insert(now);
        } else {
            self.requests.has_names();
        }
        if live.is_complete() {
            self.resume = Some(live.position(self.delivery.skip));
            live.reassembly.clear(pool);
            let end = if live.stated.sealed { End::Sealed } else { End::Complete };
            self.phase = Phase::Ended(end);
        }
    }

    /// Returns when [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let silent = self.heard.after(self.config.activity_ns);
        let due = silent.min(self.requests.status_due);
        let exceeded = self.delivery.timing.poll_timeout();
        match self.phase {
            Phase::Ended(_) => None,
            Phase::Joining => time::earliest([Some(due), exceeded, self.joining.until()]),
            Phase::Live => {
                let live = &self.live;
                let gaps = live.gaps.poll_timeout().map(|at| {
                    let deadline = live.gaps.deadline().unwrap_or(at);
                    if self.is_full() { deadline } else { self.requests.nak_at(at).min(deadline) }
                });
                let names = [live.names_until, self.requests.topics_due];
                time::earliest([Some(due), exceeded, gaps, names[0], names[1]])
            }
        }
    }

    /// Returns whether something complete waits because the caller had no room for it.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.delivery.paused && self.is_live()
    }

    /// Delivers what waited for the caller's room, as far as there is room now.
    pub fn deliver_held(&mut self, now: Monotonic, pool: &mut Pool, out: &mut impl Deliver) {
        if !self.is_paused() {
            return;
        }
        self.delivery.paused = false;
        self.delivery.timing.now = now;
        let live = &mut self.live;
        live.retry(false, pool, &mut self.delivery.to(out));
        if live.stated.policy == Policy::Slowest {
            // The sender may wait for this room.
            self.requests.status_due = now;
        }
        self.settle(now, pool);
    }

    /// Whether the caller has no room, and as much waits for it as may. What is missing is not asked for then, because it
    /// could not be kept.
    fn is_full(&self) -> bool {
        let most = self.config.reorder_memory_bytes / self.config.datagram_bytes.max(1);
        self.is_paused() && self.live.reassembly.held() as u64 >= most
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Monotonic, pool: &mut Pool, out: &mut impl Deliver) {
        self.delivery.timing.now = now;
        if self.heard.after(self.config.activity_ns) <= now && self.ended().is_none() {
            return self.close(Over::Silent, pool, out);
        }
        match self.phase {
            Phase::Joining => self.joining.expire(now, pool),
            Phase::Live => {
                let live = &mut self.live;
                let mut out = self.delivery.to(out);
                live.expire(now, pool, &mut out);
                if live.names_until.is_some_and(|until| until <= now) {
                    live.names_until = None;
                    live.retry(true, pool, &mut out);
                }
                self.settle(now, pool);
            }
            Phase::Ended(_) => {}
        }
    }

    /// Gives the oldest gap up, or what waits for a name, because memory is short. Returns whether there was
    /// anything.
    pub fn shed(&mut self, pool: &mut Pool, out: &mut impl Deliver) -> bool {
        let before = self.held();
        match self.phase {
            Phase::Joining => self.joining.release(pool),
            Phase::Live => {
                self.live.shed(pool, &mut self.delivery.to(out));
            }
            Phase::Ended(_) => {}
        }
        self.held() < before
    }

    /// Moves all deadlines by the time that this process did not run.
    pub fn postpone(&mut self, by_ns: u64) {
        self.heard = self.heard.after(by_ns);
        self.requests.postpone(by_ns);
        self.joining.postpone(by_ns);
        if self.is_live() {
            let live = &mut self.live;
            live.gaps.postpone(by_ns);
            live.names_until = live.names_until.map(|until| until.after(by_ns));
        }
    }
}
