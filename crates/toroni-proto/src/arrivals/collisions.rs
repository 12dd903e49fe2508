//! Collisions: another node of the realm that uses our source id.
//!
//! Each process draws an `instance` that its SESSIONs state. So a SESSION with our own source id is our echo, or it is
//! that of another node.

use super::Event;
use crate::hook::mutant;
use crate::id::{Realm, Session};
use crate::time::{MILLISECOND, Monotonic, SECOND};
use crate::wire::{self, Address, Body, Keys, Kind, Receiver, Reject, Rules, SessionInfo};

/// How many foreign SESSIONs with our id, one soon after the other, are a collision.
const COLLISIONS: u32 = 3;
/// A SESSION counts with the one before if it comes within this time after it,
const APART_NS: u64 = 3 * SECOND;
/// or within this many times the pause that the one before has stated: a node without data sends few.
const PAUSES: u64 = 3;

/// What a SESSION with our own source id is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collision {
    /// Our own.
    Echo,
    /// That of another node. There were too few of them to report it, or it was reported already.
    Foreign,
    /// That of another node, and it is to be reported.
    Reported {
        /// Whether we are the one that must stop sending. Without a key no node must, since anybody could forge this.
        stop: bool,
    },
}

impl Collision {
    /// Returns whether we must stop, if it is to be reported.
    #[must_use]
    pub const fn reported(self) -> Option<bool> {
        match self {
            Self::Reported { stop } => Some(stop),
            Self::Echo | Self::Foreign => None,
        }
    }
}

/// Counts the SESSIONs of other nodes with our source id.
///
/// A node that receives has [`Arrivals`](super::Arrivals), which does this. One that only sends reads the SESSIONs of its
/// groups with this alone.
#[derive(Debug)]
pub struct Collisions {
    me: Receiver,
    instance: [u8; 16],
    /// How many there were, and until when the next one counts with them.
    seen: Option<(u32, Monotonic)>,
}

impl Collisions {
    /// Returns one that has seen nothing. `me` and `instance` are what our own SESSIONs state.
    #[must_use]
    pub const fn new(me: Receiver, instance: [u8; 16]) -> Self {
        Self { me, instance, seen: None }
    }

    /// Takes a SESSION with our own source id.
    pub fn session(
        &mut self,
        now: Monotonic,
        session: Session,
        info: &SessionInfo<'_>,
        has_key: bool,
    ) -> Collision {
        let instance = info.instance;
        if instance == self.instance {
            return Collision::Echo;
        }
        let count = match self.seen {
            Some((count, until)) if now <= until => count + 1,
            _ => 1,
        };
        let pauses_ns = PAUSES * u64::from(info.next_ms) * MILLISECOND;
        self.seen = Some((count, now.after(pauses_ns.max(APART_NS))));
        if count < COLLISIONS {
            return Collision::Foreign;
        }
        self.seen = None;
        let greater = (self.me.session, self.instance) > (session, instance) || mutant("both_stop");
        Collision::Reported { stop: greater && has_key }
    }

    /// Takes any datagram of a group. Returns the event to report, if it is a SESSION with our source id that makes one.
    pub fn handle_datagram(
        &mut self,
        now: Monotonic,
        from: Address,
        bytes: &[u8],
        realm: Realm,
        keys: Option<&Keys>,
    ) -> Option<Event> {
        let rules = Rules { realm, keys, message_max: 0 };
        let ours = self.me.source;
        let datagram = wire::parse(bytes, &rules, |kind, header| {
            if kind == Kind::Session && header.source == ours {
                Ok(())
            } else {
                Err(Reject::Stream)
            }
        });
        let datagram = datagram.ok()?;
        let Body::Session(info) = datagram.body else { return None };
        let seen = self.session(now, datagram.header.session, &info, keys.is_some());
        seen.reported().map(|stop| Event::Collision { address: from, stop })
    }
}
