//! Link: all sockets of a node, on each of its legs.
//!
//! ```text
//!   leg 0   group socket ──► ┐                        ┌ ──► outbox ──► unicast socket ──► group, peers
//!           unicast socket ► ├──► one datagram        │
//!   leg 1   group socket ──► ┤    after the other ──► ┤
//!           unicast socket ► ┘                        └ ──► outbox ──► unicast socket ──► group, peers
//! ```
//!
//! What is to be sent is copied into the outbox of its leg, and leaves with other datagrams in one system call. If the
//! kernel has no room, it stays there, and the node stops packing until there is room again. If the address of an interface
//! changes, the sockets of its leg are opened again (`follow.rs`).

mod follow;
mod leg;
mod too_long;

pub use self::follow::Moved;
pub use self::too_long::TooLong;

use self::follow::Follower;
use self::leg::{Plan, Sockets};
use crate::hook::mutant;
use crate::host::buffers::{memory, usual_charge};
use crate::host::interface::{Interface, InterfaceError};
use crate::socket::batch::{self, Arrival, BATCH};
use crate::socket::buffer;
use crate::socket::{self, Datagram, Options, SocketError};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use thiserror::Error;
use toroni_proto::arrivals::{Arrivals, Collisions};
use toroni_proto::batcher::Now;
use toroni_proto::legs::{Leg, MAX_LEGS, Path};
use toroni_proto::sender::Sender;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND};
use toroni_proto::wire::{Address, LegAddresses};

/// How often a turn reads all sockets, or packs for a stream, before others have their turn.
pub(crate) const ROUNDS: usize = 8;
/// How many datagrams the first round of a turn asks each socket for. Asking for more costs time although they do not come.
const FIRST_ROUND: usize = 8;
/// A turn that begins so much later than it should has slept.
pub(crate) const STALL_NS: u64 = 20 * MILLISECOND;
/// The longest sleep: the bus may be removed, or an interface may change, without any event.
pub(crate) const LONGEST_SLEEP_NS: u64 = SECOND;
/// While datagrams wait for the kernel, senders have their turn at least so often.
const CLOGGED_NS: u64 = 10 * MILLISECOND;
/// The receive buffer of a socket for which none was asked, as the value of `SO_RCVBUF`: the usual `net.core.rmem_default`.
const DEFAULT_BUFFER: u64 = 212_992;
/// The longest datagram that is received, in bytes.
const LONGEST: usize = 65_536;

/// Why the sockets of a node cannot be opened.
#[derive(Debug, Error)]
pub enum LinkError {
    /// There are none, or too many.
    #[error("a node has 1 to {MAX_LEGS} interfaces, not {0}: name them")]
    Legs(usize),
    /// There is no address at all, or both IPv4 and IPv6 addresses.
    #[error("a node sends and receives by IPv4 or by IPv6, not by both or neither: {0:?}")]
    Family(Vec<SocketAddr>),
    /// An interface has no address of the groups' family.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// What a link has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams that it refused: the interface is down, and receivers ask again for them. Or they are longer than it sends.
    pub refused: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// Datagrams that were longer than any stream may send.
    pub truncated: u64,
}

/// Where a datagram came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To one of the groups that the node receives, by its place among them.
    Group(usize),
    /// To a group to which the node only sends: a SESSION.
    Watched,
    /// To the node alone.
    Node,
}

/// A socket that receives messages or requests.
pub(super) struct Listening<'a> {
    pub(super) leg: Leg,
    pub(super) interface: &'a Interface,
    /// Whether it receives a group.
    pub(super) is_group: bool,
    pub(super) socket: &'a Datagram,
    /// How often it was opened again: then the kernel's counters of it are new.
    pub(super) reopened: u64,
}

/// The sockets of a node.
pub struct Link {
    legs: Vec<Sockets>,
    plan: Plan,
    follower: Follower,
    receiver: batch::Receiver,
    memory: Box<[u8]>,
    datagram_bytes: usize,
    counters: Counters,
    refusal: Option<io::Error>,
    /// How many datagrams in a row the kernel has refused, and what that was before it took one.
    refused: u64,
    recovery: Option<u64>,
}

impl Link {
    /// Opens the sockets: on each interface one for each group that is received, and one that sends, also to `peers`.
    /// `datagram_bytes` is the longest datagram of any stream.
    ///
    /// A group among the peers is joined, too. The kernel passes only its SESSIONs and ECHOs on, which show whether another node has
    /// the same source id. And with a TTL of 0, Linux keeps datagrams on the host only if a socket of it is in the group.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn open(
        interfaces: &[Interface],
        groups: &[SocketAddr],
        peers: &[SocketAddr],
        options: &Options,
        datagram_bytes: usize,
    ) -> Result<Self, LinkError> {
        let plan = Plan::new(groups, peers, options)?;
        // From here on, a change is noticed.
        let follower = Follower::new().map_err(InterfaceError::System)?;
        let mut legs = Vec::with_capacity(interfaces.len());
        for (index, interface) in interfaces.iter().enumerate() {
            let leg = Leg::new(index).ok_or(LinkError::Legs(interfaces.len()))?;
            legs.push(Sockets::open(leg, interface, &plan)?);
        }
        if legs.is_empty() {
            return Err(LinkError::Legs(0));
        }
        // A byte more shows that a datagram is too long.
        let datagram_bytes = datagram_bytes.min(LONGEST) + 1;
        Ok(Self {
            legs,
            plan,
            follower,
            receiver: batch::Receiver::new(),
            memory: vec![0; BATCH * datagram_bytes].into(),
            datagram_bytes,
            counters: Counters::default(),
            refusal: None,
            refused: 0,
            recovery: None,
        })
    }

    /// Makes one without sockets: the node sends and receives no datagrams.
    #[must_use]
    pub fn none() -> Self {
        Self {
            legs: Vec::new(),
            plan: Plan::default(),
            follower: Follower::none(),
            receiver: batch::Receiver::new(),
            memory: Box::default(),
            datagram_bytes: 1,
            counters: Counters::default(),
            refusal: None,
            refused: 0,
            recovery: None,
        }
    }

    /// Receives what has arrived, and hands it over. Returns whether a socket may have more. After eight rounds others have
    /// their turn, unless this turn is late: then everything that waited when it began is read, because no timer may be
    /// looked at before. That is no more than the buffer of a socket holds, however fast more arrives.
    ///
    /// # Errors
    /// If a socket cannot be read.
    pub fn receive(
        &mut self,
        is_late: bool,
        mut take: impl FnMut(Path, To, &Arrival, &[u8]),
    ) -> io::Result<bool> {
        let mut has_more = true;
        let rounds = match (is_late, mutant("late_without_end")) {
            (false, _) => ROUNDS,
            (true, false) => self.held().div_ceil(BATCH).max(ROUNDS),
            (true, true) => usize::MAX,
        };
        for round in 0..rounds {
            if !has_more {
                break;
            }
            let most = if round == 0 { FIRST_ROUND } else { BATCH };
            has_more = self.receive_once(most, &mut take)?;
        }
        Ok(has_more)
    }

    /// Returns how many datagrams the largest buffer of a socket holds at most.
    fn held(&self) -> usize {
        let granted = self.buffers().map(|grant| grant.granted).max().unwrap_or(DEFAULT_BUFFER);
        usize::try_from(memory(granted) / u64::from(usual_charge(0))).unwrap_or(usize::MAX)
    }

    /// Receives at most `most` datagrams from each socket. Returns whether a socket may have more.
    fn receive_once(
        &mut self,
        most: usize,
        take: &mut impl FnMut(Path, To, &Arrival, &[u8]),
    ) -> io::Result<bool> {
        let mut has_more = false;
        let received = self.plan.received.len();
        for sockets in &self.legs {
            let to = |place| if place < received { To::Group(place) } else { To::Watched };
            let groups = sockets.groups.iter().enumerate().map(|(at, group)| (to(at), group));
            for (to, socket) in groups.chain([(To::Node, &sockets.unicast)]) {
                let buffers = self.memory.chunks_exact_mut(self.datagram_bytes).take(most);
                let arrivals = self.receiver.receive(socket, buffers)?;
                has_more |= arrivals.len() == most;
                self.counters.received += arrivals.len() as u64;
                for (arrival, buffer) in
                    arrivals.iter().zip(self.memory.chunks_exact(self.datagram_bytes))
                {
                    if arrival.is_truncated() {
                        self.counters.truncated += 1;
                        continue;
                    }
                    let path = Path { leg: sockets.leg, address: to_address(arrival.from) };
                    take(path, to, arrival, &buffer[..arrival.length]);
                }
            }
        }
        Ok(has_more)
    }

    /// Returns whether datagrams wait for the kernel: then nothing should be packed for now.
    #[must_use]
    pub fn is_clogged(&self) -> bool {
        self.legs.iter().any(|sockets| !sockets.outbox.datagrams.is_empty())
    }

    /// Returns when to send next, if a sender could at this time. While datagrams wait for the kernel, the next turn comes when
    /// it has room; see [`Self::descriptors`]. The time is a safety net.
    #[must_use]
    pub(crate) fn due(&self, now: Monotonic, next: Monotonic) -> Monotonic {
        if self.is_clogged() { next.max(now.after(CLOGGED_NS)) } else { next }
    }

    /// Returns whether more datagrams than leave at once are in an outbox.
    pub(crate) fn is_full(&self) -> bool {
        self.legs.iter().any(|sockets| sockets.outbox.datagrams.len() >= BATCH)
    }

    /// Puts what a sender may send now into the outboxes, as far as they have room.
    pub fn transmit(&mut self, now: Now, sender: &mut Sender, to: &[SocketAddr]) {
        while !self.is_full()
            && let Some(datagram) = sender.poll_transmit(now)
        {
            to.iter().for_each(|to| self.send_on_all(*to, datagram));
        }
    }

    /// Puts what receivers have to ask or to say into the outboxes, as far as they have room.
    pub fn ask(&mut self, now: Monotonic, arrivals: &mut Arrivals) {
        while !self.is_full()
            && let Some((path, datagram)) = arrivals.poll_transmit(now)
        {
            self.send(path, datagram);
        }
    }

    /// The same for what a node asks another one that may have its source id.
    pub fn ask_other(&mut self, now: Monotonic, collisions: &mut Collisions) {
        while !self.is_full()
            && let Some((path, datagram)) = collisions.poll_transmit(now)
        {
            self.send(path, datagram);
        }
    }

    /// Returns the addresses from which it sends, and at which it takes what receivers ask.
    #[must_use]
    pub fn addresses(&self) -> LegAddresses {
        let all: Vec<Address> =
            self.legs.iter().map(|sockets| to_address(sockets.unicast.address())).collect();
        LegAddresses::new(&all).unwrap_or_default()
    }

    /// Puts a datagram for a group, or for one peer that all legs reach, into the outbox of each leg.
    fn send_on_all(&mut self, to: SocketAddr, bytes: &[u8]) {
        for sockets in &mut self.legs {
            sockets.outbox.push(sockets.interface.scoped(to), bytes);
        }
    }

    /// Puts a datagram for a peer into the outbox of one leg.
    fn send(&mut self, path: Path, bytes: &[u8]) {
        if let Some(sockets) = self.legs.get_mut(path.leg.index()) {
            sockets.outbox.push(sockets.interface.scoped(to_socket(path.address)), bytes);
        }
    }

    /// Gives what is in the outboxes to the kernel, as far as it has room.
    pub fn flush(&mut self) {
        for sockets in &mut self.legs {
            let Sockets { outbox, sender, unicast, too_long, .. } = sockets;
            while let Some(waiting) = outbox.waiting() {
                match sender.send(unicast, &waiting) {
                    Ok(0) => break,
                    Ok(sent) => {
                        self.counters.sent += sent as u64;
                        let refused = std::mem::take(&mut self.refused);
                        let refused = refused + too_long.taken(&waiting[..sent]);
                        if refused > 0 {
                            self.recovery = Some(self.recovery.unwrap_or(0) + refused);
                        }
                        outbox.sent += sent;
                    }
                    // It may be so for long, and shorter ones leave meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                        self.counters.refused += 1;
                        too_long.refused(waiting[0].bytes.len());
                        outbox.sent += 1;
                    }
                    // Only the first one: what follows may have another destination.
                    Err(error) => {
                        self.counters.refused += 1;
                        self.refused += 1;
                        self.refusal = Some(error);
                        self.follower.hurry();
                        outbox.sent += 1;
                    }
                }
            }
        }
    }

    /// Takes why the kernel refused a datagram since the last call, unless that was too long.
    pub fn refusal(&mut self) -> Option<io::Error> {
        self.refusal.take()
    }

    /// Takes what was too long for an interface since the last call, at most once a second for each.
    pub fn too_long(&mut self, now: Monotonic) -> Option<TooLong> {
        let headers = if self.plan.family.is_ipv4() { 28 } else { 48 };
        self.legs.iter_mut().find_map(|it| it.too_long.report(now, &it.interface.name, headers))
    }

    /// Takes how many datagrams the kernel has refused before it took one again, if it did since the last call.
    pub fn recovery(&mut self) -> Option<u64> {
        self.recovery.take()
    }

    /// Returns what was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns each socket that receives messages or requests.
    pub(super) fn sockets(&self) -> Vec<Listening<'_>> {
        let mut all = Vec::new();
        for Sockets { leg, interface, groups, unicast, reopened, .. } in &self.legs {
            let (leg, [groups_again, unicast_again]) = (*leg, *reopened);
            let of = |is_group, socket, reopened| Listening {
                leg,
                interface,
                is_group,
                socket,
                reopened,
            };
            let groups = groups.iter().take(self.plan.received.len());
            all.extend(groups.map(|group| of(true, group, groups_again)));
            all.push(of(false, unicast, unicast_again));
        }
        all
    }

    /// Returns what the kernel gave each socket that receives messages or requests for the receive buffer that was asked for.
    pub fn buffers(&self) -> impl Iterator<Item = buffer::Grant> {
        let sockets = self.legs.iter().flat_map(|leg| leg.groups.iter().chain([&leg.unicast]));
        sockets.filter_map(Datagram::grant)
    }

    /// Sleeps until a socket or one of `also` has something, there is room for what waits, or the time is over.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn wait<'a, E: From<io::Error>>(
        &'a self,
        longest: Duration,
        also: impl IntoIterator<Item = Result<BorrowedFd<'a>, E>>,
    ) -> Result<(), E> {
        let also = also.into_iter().map(|also| Ok((also?, false)));
        socket::wait(self.descriptors().map(Ok).chain(also), longest)
    }

    /// Returns all descriptors, and for each whether it waits for room.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.legs.iter().flat_map(|sockets| {
            let waits = !sockets.outbox.datagrams.is_empty();
            let groups = sockets.groups.iter().map(|group| (group.as_fd(), false));
            groups.chain([(sockets.unicast.as_fd(), waits)])
        })
    }
}

/// Returns an address as it stands in datagrams.
#[must_use]
pub fn to_address(socket: SocketAddr) -> Address {
    let ip = match socket.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Address { ip: ip.octets(), port: socket.port() }
}

/// Returns an address of a datagram as sockets take it.
#[must_use]
pub fn to_socket(address: Address) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(address.ip).to_canonical(), address.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::interface;
    use std::net::UdpSocket;

    /// A stranger who sends as fast as the node reads keeps it from nothing but reading its own.
    #[test]
    fn a_late_turn_ends_although_more_arrives_than_it_reads() {
        let lo = interface::named("lo").unwrap();
        let group = "239.192.84.79:0".parse().unwrap();
        let options = Options { receive_buffer: Some(1 << 20), ..Options::default() };
        let mut link = Link::open(&[lo], &[group], &[], &options, 1_500).unwrap();
        let to = link.legs[0].unicast.address();
        let most = link.held() + 2 * BATCH;
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = || stranger.send_to(b"x", to).map(drop).unwrap();
        (0..2 * BATCH).for_each(|_| send());
        for is_late in [false, true] {
            let mut taken = 0;
            let has_more = link.receive(is_late, |_, _, _, _| {
                taken += 1;
                assert!(taken <= most, "it does not end");
                send();
            });
            assert!(has_more.unwrap(), "more than {taken} have arrived");
            assert!(taken > FIRST_ROUND && is_late == (taken > ROUNDS * BATCH), "{taken}");
        }
    }

    #[test]
    fn addresses_survive_the_way_there_and_back() {
        for text in ["10.1.2.3:4479", "[2001:db8::1]:1", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(to_socket(to_address(address)), address);
        }
    }
}
