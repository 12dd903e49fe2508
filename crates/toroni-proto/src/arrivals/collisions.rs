//! Collisions: another node of the realm that uses our source id.
//!
//! Each process draws an `instance` that its SESSIONs state. So a SESSION with our own source id is our echo, or it is
//! that of another node, or a recording of an earlier life of ours. With a key, the other one is asked to repeat a nonce: one
//! ECHO is enough. Without a key, three SESSIONs are, but no node must stop then, since anybody could forge them.

use super::Event;
use super::proof::Nonces;
use crate::hook::mutant;
use crate::id::{Realm, Sequence, Session};
use crate::legs::{Legs, Path};
use crate::receiver::Me;
use crate::time::{MILLISECOND, Monotonic, SECOND, Wall};
use crate::wire::{
    self, Address, Body, Datagram, Flags, Header, Keys, Kind, Reject, Rules, SessionInfo, Status,
};

/// How many foreign SESSIONs with our id, one soon after the other, are a collision.
const COLLISIONS: u32 = 3;
/// A SESSION counts with the one before if it comes within this time after it,
const APART_NS: u64 = 3 * SECOND;
/// or within this many times the pause that the one before has stated: a node without data sends few.
const PAUSES: u64 = 3;
/// How often the other node is asked.
const ASK_NS: u64 = 100 * MILLISECOND;
/// The memory for a STATUS.
const SCRATCH_BYTES: usize = 256;

/// What a datagram with our own source id is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collision {
    /// Our own.
    Echo,
    /// That of another node, or a recording. It is not reported, or was already.
    Foreign,
    /// That of another node, and it is to be reported.
    Reported {
        /// Where it is.
        address: Address,
        /// Whether we are the one that must stop sending.
        stop: bool,
    },
}

/// Notices other nodes with our source id.
///
/// A node that receives has [`Arrivals`](super::Arrivals), which does this. One that only sends reads the SESSIONs of its
/// groups with this alone.
#[derive(Debug)]
pub struct Collisions {
    me: Me,
    instance: [u8; 16],
    realm: Realm,
    keys: Option<Keys>,
    ttl: u8,
    nonces: Nonces,
    question: u64,
    /// Without a key: how many there were, and until when the next one counts with them.
    seen: Option<(u32, Monotonic)>,
    /// With a key: who is asked.
    asked: Option<Asked>,
    scratch: [u8; SCRATCH_BYTES],
}

#[derive(Debug)]
struct Asked {
    header: Header,
    instance: [u8; 16],
    to: Path,
    due: Monotonic,
    until: Monotonic,
}

/// Until when another SESSION counts with this one.
fn counts_until(now: Monotonic, info: &SessionInfo<'_>) -> Monotonic {
    let pauses_ns = PAUSES * u64::from(info.next_ms) * MILLISECOND;
    now.after(pauses_ns.max(APART_NS))
}

impl Collisions {
    /// Returns one that has seen nothing. `me` and `instance` are what our own SESSIONs state.
    #[must_use]
    pub fn new(me: Me, instance: [u8; 16], realm: Realm, keys: Option<Keys>, ttl: u8) -> Self {
        let nonces = Nonces::new(me.id, &instance);
        let scratch = [0; SCRATCH_BYTES];
        Self {
            me,
            instance,
            realm,
            keys,
            ttl,
            nonces,
            question: 0,
            seen: None,
            asked: None,
            scratch,
        }
    }

    /// Takes a SESSION or an ECHO with our own source id.
    pub(super) fn handle(
        &mut self,
        now: Monotonic,
        from: Path,
        datagram: &Datagram<'_>,
    ) -> Collision {
        let header = &datagram.header;
        match &datagram.body {
            Body::Session(info) if info.instance == self.instance => Collision::Echo,
            Body::Session(info) if self.keys.is_some() && !mutant("collision_by_session") => {
                self.ask(now, from, header, info);
                Collision::Foreign
            }
            Body::Session(info) => self.count(now, from, header.session, info),
            Body::Echo(echo) if self.keys.is_some() => {
                let is_asked = |asked: &Asked| {
                    (asked.header.stream, asked.header.session) == (header.stream, header.session)
                };
                let is_asked = self.asked.as_ref().is_some_and(is_asked);
                if !is_asked || !self.nonces.is_repeated(now, self.question, header, echo) {
                    return Collision::Echo;
                }
                let Some(asked) = self.asked.take() else { return Collision::Echo };
                // An ECHO reports one collision.
                self.question += 1;
                let stop = self.is_greater(header.session, asked.instance);
                Collision::Reported { address: asked.to.address, stop }
            }
            _ => Collision::Echo,
        }
    }

    /// Asks a node whether it lives.
    fn ask(&mut self, now: Monotonic, from: Path, header: &Header, info: &SessionInfo<'_>) {
        let until = counts_until(now, info);
        let mut legs = Legs::default();
        legs.list(info.legs.into());
        let to = legs.back(from);
        match &mut self.asked {
            Some(asked) if asked.header.session == header.session => {
                (asked.until, asked.to) = (until, to);
            }
            // Of two that are heard, each has its turn.
            Some(asked) if now < asked.until => {}
            asked => {
                let header = Header {
                    flags: Flags::NONE,
                    ttl: self.ttl,
                    sequence: Sequence::ZERO,
                    ..*header
                };
                let instance = info.instance;
                *asked = Some(Asked { header, instance, to, due: now, until });
            }
        }
    }

    /// Counts the SESSIONs of others.
    fn count(
        &mut self,
        now: Monotonic,
        from: Path,
        session: Session,
        info: &SessionInfo<'_>,
    ) -> Collision {
        let count = match self.seen {
            Some((count, until)) if now <= until => count + 1,
            _ => 1,
        };
        self.seen = Some((count, counts_until(now, info)));
        if count < COLLISIONS {
            return Collision::Foreign;
        }
        self.seen = None;
        let stop = self.keys.is_some() && self.is_greater(session, info.instance);
        Collision::Reported { address: from.address, stop }
    }

    /// Whether we are the one that must stop.
    fn is_greater(&self, session: Session, instance: [u8; 16]) -> bool {
        (self.me.id.session, self.instance) > (session, instance) || mutant("both_stop")
    }

    /// Takes any datagram of a group. Returns the event to report, if it shows that another node has our source id.
    pub fn handle_datagram(&mut self, now: Monotonic, from: Path, bytes: &[u8]) -> Option<Event> {
        let keys = self.keys;
        let rules = Rules { realm: self.realm, keys: keys.as_ref(), message_max: 0 };
        let ours = self.me.id.source;
        let datagram = wire::parse(bytes, &rules, |kind, header| {
            if matches!(kind, Kind::Session | Kind::Echo) && header.source == ours {
                Ok(())
            } else {
                Err(Reject::Stream)
            }
        });
        match self.handle(now, from, &datagram.ok()?) {
            Collision::Reported { address, stop } => Some(Event::Collision { address, stop }),
            Collision::Echo | Collision::Foreign => None,
        }
    }

    /// Returns when it asks the other node next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.asked.as_ref().filter(|asked| asked.due < asked.until).map(|asked| asked.due)
    }

    /// Moves its deadlines by the time that this process did not run.
    pub(super) fn postpone(&mut self, by_ns: u64) {
        if let Some(asked) = &mut self.asked {
            (asked.due, asked.until) = (asked.due.after(by_ns), asked.until.after(by_ns));
        }
    }

    pub(super) fn is_due(&self, now: Monotonic) -> bool {
        self.poll_timeout().is_some_and(|due| due <= now)
    }

    /// Returns the question for the other node, if it is due, and where it goes.
    pub fn poll_transmit(&mut self, now: Monotonic) -> Option<(Path, &[u8])> {
        if !self.is_due(now) {
            return None;
        }
        let asked = self.asked.as_mut()?;
        asked.due = now.after(ASK_NS);
        let (header, to) = (asked.header, asked.to);
        let status = Status {
            receiver: self.me.id,
            window: 0,
            required: false,
            new: true,
            lost: 0,
            naks: 0,
            echo: Wall::default(),
            held_us: 0,
            dropped: 0,
            count: now.ns().max(1),
            nonce: self.nonces.draw(
                now,
                self.question,
                header.source,
                header.stream,
                header.session,
            ),
            name: self.me.name.as_node_name(),
        };
        let length = status.encode(&header, self.keys.as_ref(), &mut self.scratch).ok()?;
        Some((to, self.scratch.get(..length)?))
    }
}
