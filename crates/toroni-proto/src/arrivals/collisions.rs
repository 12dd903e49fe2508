//! Collisions: another node of the realm that uses our source id.
//!
//! Each process draws an `instance` that its SESSIONs state. So a SESSION with our own source id is our echo, or it is
//! that of another node.

use super::Event;
use crate::hook::mutant;
use crate::id::{Realm, Session};
use crate::time::{Monotonic, SECOND};
use crate::wire::{self, Address, Body, Keys, Kind, Receiver, Reject, Rules};

/// How many foreign SESSIONs with our id, within [`COLLISION_NS`], are a collision.
const COLLISIONS: u32 = 3;
const COLLISION_NS: u64 = 3 * SECOND;

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
    /// The first of those that count, and how many there were.
    seen: Option<(Monotonic, u32)>,
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
        instance: [u8; 16],
        has_key: bool,
    ) -> Collision {
        if instance == self.instance {
            return Collision::Echo;
        }
        let (since, count) = match self.seen {
            Some((since, count)) if now.since(since) <= COLLISION_NS => (since, count + 1),
            _ => (now, 1),
        };
        self.seen = Some((since, count));
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
        let seen = self.session(now, datagram.header.session, info.instance, keys.is_some());
        seen.reported().map(|stop| Event::Collision { address: from, stop })
    }
}
