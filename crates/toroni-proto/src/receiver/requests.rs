//! What a receiver sends: NAK, TOPICS_WANTED and STATUS.

use super::{Me, Phase, Receiver};
use crate::audience::STATUS_OF_SLOWEST_NS;
use crate::id::{Sequence, Session};
use crate::legs::{Legs, Path};
use crate::reassembly::AHEAD;
use crate::time::{MICROSECOND, MILLISECOND, Monotonic, SECOND, Wall};
use crate::wire::{
    Flags, Header, Keys, MAX_RANGES, MAX_TABLE_NAMES, Nak, Policy, Range, Repairers, Status,
    TopicNumber, TopicsWanted,
};

/// How often a receiver that joins asks for a SESSION, and one that misses names asks for them.
const ASK_NS: u64 = 20 * MILLISECOND;
/// The longest pause between two requests that were not answered.
const ASK_MAX_NS: u64 = 2 * SECOND;
/// The same of requests for a sign that the sender lives.
const PROOF_MAX_NS: u64 = 200 * MILLISECOND;
/// The shortest pause between two NAKs.
const NAK_NS: u64 = MILLISECOND;
/// The memory for a NAK, STATUS or TOPICS_WANTED.
const SCRATCH_BYTES: usize = 1_024;

/// When to ask for what, and whom.
#[derive(Debug)]
pub(super) struct Requests {
    me: Me,
    /// Names the session that is asked.
    header: Header,
    keys: Option<Keys>,
    pub(super) legs: Legs,
    /// How many requests other than NAKs there were, for the choice of a leg.
    turn: u32,
    /// Where what lies in `scratch` goes.
    to: Path,
    pub(super) status_due: Monotonic,
    /// The pause until the next request for a SESSION.
    ask_ns: u64,
    nak_after: Monotonic,
    pub(super) topics_due: Option<Monotonic>,
    topics_pause_ns: u64,
    /// Bytes that came since the last STATUS.
    pub(super) taken: u64,
    pub(super) kernel_dropped: u32,
    /// The `count` of the last STATUS: the time, so that it grows however often this object starts over.
    count: u64,
    scratch: Box<[u8]>,
}

impl Requests {
    pub(super) fn new(me: Me, header: Header, keys: Option<Keys>, ttl: u8, now: Monotonic) -> Self {
        let mut requests = Self {
            me,
            header: Header { ttl, ..header },
            keys,
            legs: Legs::default(),
            turn: 0,
            to: Path::default(),
            status_due: now,
            ask_ns: ASK_NS,
            nak_after: now,
            topics_due: None,
            topics_pause_ns: ASK_NS,
            taken: 0,
            kernel_dropped: 0,
            count: 0,
            scratch: vec![0; SCRATCH_BYTES].into(),
        };
        requests.restart(header, now);
        requests
    }

    /// Asks another session.
    pub(super) fn restart(&mut self, header: Header, now: Monotonic) {
        let flags = if header.flags.has(Flags::FEED) { Flags::FEED } else { Flags::NONE };
        self.header = Header { flags, ttl: self.header.ttl, ..header };
        self.legs = Legs::default();
        self.turn = 0;
        (self.status_due, self.nak_after) = (now, now);
        self.ask_ns = ASK_NS;
        self.has_names();
        self.taken = 0;
    }

    /// Asks for names at once.
    pub(super) const fn want_names(&mut self, now: Monotonic) {
        self.topics_due = Some(now);
        self.topics_pause_ns = ASK_NS;
    }

    /// Names came, so the next request for names follows soon.
    pub(super) const fn names_came(&mut self) {
        self.topics_pause_ns = ASK_NS;
    }

    /// No name is missing.
    pub(super) const fn has_names(&mut self) {
        self.topics_due = None;
        self.topics_pause_ns = ASK_NS;
    }

    /// A sender that waits for its receivers hears of us soon.
    pub(super) fn hurry(&mut self, now: Monotonic) {
        self.status_due = self.status_due.min(now.after(STATUS_OF_SLOWEST_NS));
    }

    pub(super) fn postpone(&mut self, by_ns: u64) {
        self.status_due = self.status_due.after(by_ns);
        self.topics_due = self.topics_due.map(|due| due.after(by_ns));
    }

    pub(super) const fn session(&self) -> Session {
        self.header.session
    }

    pub(super) const fn is_feed(&self) -> bool {
        self.header.flags.has(Flags::FEED)
    }

    /// Makes the next datagram for the sender go over the next leg.
    fn take_next_leg(&mut self, heard_since: Monotonic) {
        self.to = self.legs.to_sender(heard_since, self.turn);
        self.turn = self.turn.wrapping_add(1);
    }

    /// When a NAK that is due at `due` may leave: it may have to wait for the one before.
    pub(super) fn nak_at(&self, due: Monotonic) -> Monotonic {
        due.max(self.nak_after)
    }
}

impl Receiver {
    /// Returns the next datagram for the sender or a repairer, and where it goes.
    pub fn poll_transmit(&mut self, now: Monotonic) -> Option<(Path, &[u8])> {
        let length = self.prepare(now, 0)?;
        self.prepared(length)
    }

    /// Returns what [`Self::prepare`] has made, and where it goes.
    pub(crate) fn prepared(&self, length: usize) -> Option<(Path, &[u8])> {
        Some((self.requests.to, self.requests.scratch.get(..length)?))
    }

    /// Makes the next datagram, if there is one, and returns its length. While it joins, it asks the sender to repeat `nonce`.
    pub(crate) fn prepare(&mut self, now: Monotonic, nonce: u64) -> Option<usize> {
        if let Some(length) = self.nak(now) {
            return Some(length);
        }
        if let Some(length) = self.topics_wanted(now) {
            return Some(length);
        }
        self.status(now, nonce)
    }

    /// A leg that was silent for longer is not used.
    const fn heard_since(&self, now: Monotonic) -> Monotonic {
        Monotonic::from_ns(now.ns().saturating_sub(self.config.activity_ns))
    }

    /// The header of what we send: it names the stream and what we expect of it.
    fn header_now(&self) -> Header {
        let sequence = match self.phase {
            Phase::Live => self.live.reassembly.next(),
            _ => Sequence::ZERO,
        };
        Header { sequence, ..self.requests.header }
    }

    fn nak(&mut self, now: Monotonic) -> Option<usize> {
        if self.phase != Phase::Live || now < self.requests.nak_after || self.is_full() {
            return None;
        }
        let live = &mut self.live;
        let mut ranges = [Range::new(Sequence::ZERO, 1)?; MAX_RANGES];
        let asked = live.gaps.nak(now, &mut ranges)?;
        let ranges = ranges.get(..asked.ranges)?;
        // Only a feed has repairers: what another stream states is not trusted with our NAKs.
        let is_feed = self.requests.is_feed();
        let repairers = if is_feed { live.stated.repairers } else { Repairers::default() };
        let since = self.heard_since(now);
        let start = self.requests.me.id.source.0;
        self.requests.to = self.requests.legs.to_repair(since, asked.tries, start, &repairers);
        self.delivery.counters.naks += 1;
        let (header, sent) = (self.header_now(), self.sent);
        let Requests { me, keys, nak_after, scratch, .. } = &mut self.requests;
        *nak_after = now.after(NAK_NS);
        Nak::encode(&header, me.id, sent, ranges, keys.as_ref(), scratch).ok()
    }

    fn topics_wanted(&mut self, now: Monotonic) -> Option<usize> {
        if self.phase != Phase::Live || self.requests.topics_due.is_none_or(|due| due > now) {
            return None;
        }
        let live = &self.live;
        let first = self.delivery.known.below();
        let blocked = live.reassembly.is_blocked();
        let end = if blocked { live.names_due.max(first + 1) } else { live.names_due };
        let header = self.header_now();
        let (since, echo) = (self.heard_since(now), self.sent);
        let Requests { me, keys, topics_due, topics_pause_ns, scratch, .. } = &mut self.requests;
        *topics_due = Some(now.after(*topics_pause_ns));
        *topics_pause_ns = (*topics_pause_ns * 2).min(ASK_MAX_NS);
        let count = end.min(MAX_TABLE_NAMES).checked_sub(first).filter(|count| *count > 0)?;
        let first = TopicNumber::new(first)?;
        let wanted = TopicsWanted { receiver: me.id, first, count, echo };
        let length = wanted.encode(&header, keys.as_ref(), scratch).ok()?;
        self.requests.take_next_leg(since);
        Some(length)
    }

    fn status(&mut self, now: Monotonic, nonce: u64) -> Option<usize> {
        // More than the reassembly remembers cannot wait here.
        let most = (AHEAD as u64).saturating_mul(self.config.datagram_bytes);
        let window_bytes = self.config.reorder_memory_bytes.min(most);
        let requests = &mut self.requests;
        let is_due = requests.status_due <= now;
        let has_taken = requests.taken > window_bytes / 4;
        let (pause, echo, held_ns) = match self.phase {
            Phase::Ended(_) => return None,
            // What a stranger forges must not make us ask for long.
            Phase::Joining if is_due => {
                let pause = requests.ask_ns;
                // Only a recording makes it ask in vain where there is a key, and those who ask are few.
                let most = if nonce == 0 { ASK_MAX_NS } else { PROOF_MAX_NS };
                requests.ask_ns = (pause * 2).min(most);
                (pause, Wall::default(), 0)
            }
            Phase::Joining => return None,
            Phase::Live => {
                let stated = &self.live.stated;
                let slowest = stated.policy == Policy::Slowest;
                let sends = is_due || (slowest && has_taken);
                if !sends {
                    return None;
                }
                let group = u64::from(stated.receivers) * 10 * MILLISECOND;
                let pause = self.config.status_ns.max(group);
                let pause = if slowest { STATUS_OF_SLOWEST_NS } else { pause };
                (pause, self.sent, now.since(stated.arrived))
            }
        };
        requests.taken = 0;
        requests.status_due = now.after(pause);
        let header = self.header_now();
        let held = self.held() as u64 * self.config.datagram_bytes;
        let new = self.is_joining();
        self.requests.take_next_leg(self.heard_since(now));
        let Requests { me, keys, kernel_dropped, count, scratch, .. } = &mut self.requests;
        *count = now.ns().max(count.saturating_add(1));
        let name = me.name;
        let status = Status {
            receiver: me.id,
            window: u32::try_from(window_bytes.saturating_sub(held)).unwrap_or(u32::MAX),
            required: me.required,
            new,
            lost: self.delivery.counters.lost,
            naks: self.delivery.counters.naks,
            echo,
            held_us: u32::try_from(held_ns / MICROSECOND).unwrap_or(u32::MAX),
            dropped: *kernel_dropped,
            count: *count,
            nonce: if new { nonce } else { 0 },
            name: name.as_node_name(),
        };
        status.encode(&header, keys.as_ref(), scratch).ok()
    }
}
