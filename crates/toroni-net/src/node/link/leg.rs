//! Leg: the sockets on one interface.

use super::too_long::Refused;
use super::{LinkError, batch};
use crate::host::interface::Interface;
use crate::socket::batch::{BATCH, Outgoing};
use crate::socket::{Datagram, Options, SocketError};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Deref, Range};
use toroni_proto::legs::Leg;
use toroni_proto::wire::Kind;

/// Where a datagram has its type, and those that show whether another node has our source id.
const COLLISION_PLACE: (u8, [u8; 2]) = (3, [Kind::Session as u8, Kind::Echo as u8]);

/// Which sockets each leg has.
pub(super) struct Plan {
    /// Any address of the family that all have.
    pub(super) family: IpAddr,
    /// The groups that are received.
    pub(super) received: Vec<SocketAddr>,
    /// The groups of which only SESSIONs and ECHOs are.
    watched: Vec<SocketAddr>,
    options: Options,
}

impl Default for Plan {
    fn default() -> Self {
        let family = Ipv4Addr::UNSPECIFIED.into();
        let options = Options::default();
        Self { family, received: Vec::new(), watched: Vec::new(), options }
    }
}

impl Plan {
    /// `groups` are received, and datagrams go to `peers`; see [`Link::open`](super::Link::open).
    pub(super) fn new(
        groups: &[SocketAddr],
        peers: &[SocketAddr],
        options: &Options,
    ) -> Result<Self, LinkError> {
        let all = [groups, peers].concat();
        let family = match all.first() {
            Some(one) if all.iter().all(|other| other.is_ipv4() == one.is_ipv4()) => one.ip(),
            _ => return Err(LinkError::Family(all)),
        };
        let mut watched: Vec<SocketAddr> = peers
            .iter()
            .filter(|peer| peer.ip().is_multicast() && !groups.contains(peer))
            .copied()
            .collect();
        watched.sort_unstable();
        watched.dedup();
        Ok(Self { family, received: groups.to_vec(), watched, options: *options })
    }

    /// Opens the sockets of the groups: those that are received stand first.
    fn groups(&self, interface: &Interface) -> Result<Vec<Datagram>, SocketError> {
        let small = Options { receive_buffer: None, ..self.options };
        let received =
            self.received.iter().map(|group| Datagram::group(*group, interface, &self.options));
        let watched = self.watched.iter().map(|group| {
            let place = COLLISION_PLACE;
            Datagram::group_filtered(*group, interface, &small, place)
        });
        received.chain(watched).collect()
    }
}

/// The sockets on one interface.
pub(super) struct Sockets {
    pub(super) leg: Leg,
    pub(super) interface: Interface,
    pub(super) groups: Vec<Datagram>,
    pub(super) unicast: Datagram,
    /// How often those of the groups, and the other one, were opened again.
    pub(super) reopened: [u64; 2],
    pub(super) sender: batch::Sender,
    pub(super) outbox: Outbox,
    pub(super) too_long: Refused,
}

impl Sockets {
    pub(super) fn open(leg: Leg, interface: &Interface, plan: &Plan) -> Result<Self, LinkError> {
        let unicast = Datagram::leg(interface.source(plan.family)?, interface, &plan.options)?;
        Ok(Self {
            leg,
            interface: interface.clone(),
            groups: plan.groups(interface)?,
            sender: batch::Sender::new(&unicast),
            unicast,
            reopened: [0; 2],
            outbox: Outbox::default(),
            too_long: Refused::default(),
        })
    }

    /// Opens the sockets again that do not work on what the interface is now: the one that sends, and if the interface
    /// was removed and made again, those of the groups too. If one of them cannot be opened, all stay as they are. What
    /// waits in the outbox leaves through the new ones.
    pub(super) fn reopen(&mut self, now: &Interface, plan: &Plan) -> Result<(), LinkError> {
        let unicast = Datagram::leg(now.source(plan.family)?, now, &plan.options)?;
        // A membership outlives every address, but not the interface.
        if now.index != self.interface.index {
            self.groups = plan.groups(now)?;
            self.reopened[0] += 1;
        }
        self.interface = now.clone();
        self.sender = batch::Sender::new(&unicast);
        self.unicast = unicast;
        self.reopened[1] += 1;
        Ok(())
    }
}

/// Datagrams that wait for the kernel.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    pub(super) datagrams: Vec<(SocketAddr, Range<usize>)>,
    /// How many the kernel has taken.
    pub(super) sent: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, to: SocketAddr, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.datagrams.push((to, start..self.bytes.len()));
    }

    /// Returns those that the kernel has not taken yet, as many as leave at once. Frees the memory when there are none.
    pub(super) fn waiting(&mut self) -> Option<Waiting<'_>> {
        if self.sent >= self.datagrams.len() {
            self.datagrams.clear();
            self.bytes.clear();
            self.sent = 0;
            return None;
        }
        let none = Outgoing { to: (Ipv4Addr::UNSPECIFIED, 0).into(), bytes: &[] };
        let mut waiting = Waiting { datagrams: [none; BATCH], count: 0 };
        for ((to, at), place) in self.datagrams[self.sent..].iter().zip(&mut waiting.datagrams) {
            *place = Outgoing { to: *to, bytes: &self.bytes[at.clone()] };
            waiting.count += 1;
        }
        Some(waiting)
    }
}

/// Some datagrams of an outbox, in order.
pub(super) struct Waiting<'a> {
    datagrams: [Outgoing<'a>; BATCH],
    count: usize,
}

impl<'a> Deref for Waiting<'a> {
    type Target = [Outgoing<'a>];

    fn deref(&self) -> &Self::Target {
        &self.datagrams[..self.count]
    }
}
