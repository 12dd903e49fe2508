//! Kernel: how many datagrams the kernel of this host has dropped, and whether that explains a loss.
//!
//! A gap is noticed within `session_max`, and repaired or given up within `generation`. So counters are remembered for a
//! while: the difference between now and the time before the gap says where its datagrams went.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::link::Link;
use crate::host::counters::{Drops, Snapshot};
use crate::socket::drops::{self, Overflow};
use std::collections::VecDeque;
use std::fmt;
use toroni::LostReason;
use toroni_proto::legs::Leg;
use toroni_proto::time::{Monotonic, SECOND};

/// How often the counters of the sockets are read.
const EVERY_NS: u64 = SECOND;
/// How many states of all counters are remembered.
const REMEMBERED: usize = 8;
/// The times between those: a gap may begin and end within one each.
const GAPS: u64 = REMEMBERED as u64 - 2;

/// How many datagrams one socket had no room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketDrops {
    /// The leg of the socket.
    pub leg: Leg,
    /// The name of the interface.
    pub interface: String,
    /// Whether it receives a group, or what is sent to this node alone.
    pub is_group: bool,
    /// Datagrams.
    pub dropped: u64,
}

/// Where the datagrams of a loss may have gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// Dropped since before the loss because a socket of this node had no room.
    pub socket: u64,
    /// Dropped elsewhere on this host.
    pub host: Drops,
    /// Whether datagrams were missing at all: some losses have other reasons.
    pub is_about_datagrams: bool,
}

impl Attribution {
    /// Returns the place in one word: `socket`, `host`, `before` (this host), or `none` if no datagram is missing.
    #[must_use]
    pub fn place(&self) -> &'static str {
        match self {
            Self { is_about_datagrams: false, .. } => "none",
            Self { socket: 1.., .. } => "socket",
            Self { host, .. } if !host.is_empty() => "host",
            _ => "before",
        }
    }
}

/// Prints where the datagrams went, and what helps.
impl fmt::Display for Attribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, host, .. } = self;
        match self.place() {
            "none" => f.write_str("no datagram is missing"),
            "socket" => {
                write!(
                    f,
                    "{socket} datagrams were dropped in this socket's buffer: see toroni net buffer"
                )
            }
            "host" => write!(f, "dropped on this host: {host}"),
            _ => f.write_str("they were lost before this host"),
        }
    }
}

/// What the kernel has dropped.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    sockets: Vec<Socket>,
    /// Counters at earlier times, the oldest first.
    before: VecDeque<(Monotonic, u64, Snapshot)>,
    due: Option<Monotonic>,
}

/// What the kernel has dropped for a socket, which may have been opened again.
#[derive(Debug, Default)]
struct Socket {
    reopened: u64,
    overflow: Overflow,
    dropped: u64,
}

impl Kernel {
    /// Reads the counters if that is due. A gap is noticed and given up within `gap_ns`. Returns whether it has read them.
    pub(crate) fn look(&mut self, now: Monotonic, link: &Link, gap_ns: u64) -> bool {
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        self.due = Some(now.after(EVERY_NS));
        self.read(link);
        // So far apart that those remembered reach back beyond a gap, and a turn.
        let apart = (gap_ns / GAPS).max(EVERY_NS);
        let is_due = self.before.back().is_none_or(|(at, ..)| now.since(*at) >= apart);
        // Without /proc, only the sockets are known.
        if is_due {
            let snapshot = Snapshot::read().unwrap_or_default();
            self.before.push_back((now, self.total(), snapshot));
            while self.before.len() > REMEMBERED {
                self.before.pop_front();
            }
        }
        true
    }

    fn read(&mut self, link: &Link) {
        let sockets = link.sockets();
        self.sockets.resize_with(sockets.len(), Default::default);
        for (known, listening) in self.sockets.iter_mut().zip(sockets) {
            if known.reopened != listening.reopened {
                (known.reopened, known.overflow) = (listening.reopened, Overflow::default());
            }
            // A kernel that does not know the option (before 4.12) drops without saying so here.
            if let Ok(memory) = drops::memory(listening.socket) {
                known.dropped = known.dropped.saturating_add(known.overflow.advance(memory.drops));
            }
        }
    }

    /// Returns how many datagrams the sockets had no room for.
    pub(crate) fn total(&self) -> u64 {
        self.sockets.iter().map(|socket| socket.dropped).sum()
    }

    /// Returns the same for each socket.
    pub(crate) fn of_sockets(&self, link: &Link) -> Vec<SocketDrops> {
        let both = link.sockets().into_iter().zip(&self.sockets);
        let shown = both.map(|(listening, known)| SocketDrops {
            leg: listening.leg,
            interface: listening.interface.name.clone(),
            is_group: listening.is_group,
            dropped: known.dropped,
        });
        shown.collect()
    }

    /// Says where the datagrams of a loss that was reported now may have gone.
    pub(crate) fn attribute(&mut self, now: Monotonic, link: &Link, gap_ns: u64) -> Attribution {
        self.read(link);
        // The latest state before the gap: the loss may be a turn younger.
        let reach = gap_ns.saturating_add(EVERY_NS);
        let earlier = self.before.iter().rev().find(|(at, ..)| now.since(*at) >= reach);
        let Some((_, total, snapshot)) = earlier.or(self.before.front()) else {
            return Attribution::default();
        };
        let mut host = Snapshot::read().map(|now| now.since(snapshot)).unwrap_or_default();
        // Those of other programs.
        host.socket_buffers = 0;
        let socket = self.total().saturating_sub(*total);
        Attribution { socket, host, is_about_datagrams: true }
    }
}

/// Whether messages are missing because datagrams are.
pub(crate) fn is_about_datagrams(reason: LostReason) -> bool {
    matches!(
        reason,
        LostReason::Gone
            | LostReason::Budget
            | LostReason::Memory
            | LostReason::Burst
            | LostReason::Jump
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::interface;
    use crate::socket::Options;
    use std::net::{SocketAddr, UdpSocket};
    use toroni_testkit::network::{Namespace, skip};

    /// Sends `count` datagrams to the node alone, more than its socket has room for.
    fn flood(link: &Link, count: u32) {
        let sockets = link.sockets();
        let to = sockets.iter().find(|it| !it.is_group).unwrap().socket.address();
        let socket = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).unwrap();
        for _ in 0..count {
            socket.send_to(&[0; 1_000], to).unwrap();
        }
    }

    #[test]
    fn drops_are_counted_on_after_a_socket_was_opened_again() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => return skip(&format!("no network namespace: {error}")),
        };
        namespace.ip(&["link add a0 type veth peer name b0", "link set a0 up"]);
        namespace.ip(&["address add 10.78.0.1/24 dev a0"]);
        let group = "239.192.84.79:4479".parse().unwrap();
        let options = Options { receive_buffer: Some(4_096), ..Options::default() };
        let mut kernel = Kernel::default();
        let open = || {
            let interface = interface::named("a0").unwrap();
            Link::open(&[interface], &[group], &[], &options, 1_408).unwrap()
        };
        let mut link = namespace.enter(open);
        namespace.enter(|| flood(&link, 200));
        kernel.read(&link);
        let before = kernel.total();
        assert!(before > 100, "{before}");
        namespace.ip(&["address delete 10.78.0.1/24 dev a0", "address add 10.79.0.1/24 dev a0"]);
        namespace.enter(|| {
            link.follow(Monotonic::from_ns(SECOND));
            flood(&link, 100);
        });
        // The counter of the new socket is lower than that of the one before.
        kernel.read(&link);
        let after = kernel.total();
        assert!((before + 50..=before + 100).contains(&after), "{before}, {after}");
    }

    #[test]
    fn the_nearest_place_is_named() {
        let mut found = Attribution::default();
        assert_eq!(found.to_string(), "no datagram is missing");
        found.is_about_datagrams = true;
        assert_eq!(found.to_string(), "they were lost before this host");
        found.host.interfaces = vec![("eth0".to_owned(), 3)];
        assert_eq!(found.to_string(), "dropped on this host: 3 by eth0 (see ethtool -g eth0)");
        found.socket = 12;
        assert_eq!(
            found.to_string(),
            "12 datagrams were dropped in this socket's buffer: see toroni net buffer"
        );
        assert_eq!(found.place(), "socket");
    }
}
