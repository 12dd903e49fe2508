//! Listener: serves the streams of this node to those that connect.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::feed::Feed;
use super::history::History;
use super::sets::Sets;
use super::streams::Streams;
use super::{Event, Listen, Poller, TcpError, Token, socket};
use crate::drain::Drain;
use crate::membership::Membership;
use crate::node::Send;
use crate::node::lineage::Lineage;
use crate::outlet::number;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use toroni::{Bus, FileError, Policy, ReceiveError};
use toroni_proto::batcher::Now;
use toroni_proto::bounded::server::{self, ClientId, Identity, Server, Waiting};
use toroni_proto::budget::Budget;
use toroni_proto::config::tcp::Pace;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND};
use toroni_proto::wire::tcp::{Bye, NONCE_BYTES};

/// How many connections are taken before others have their turn.
const ACCEPTED_PER_TURN: usize = 64;
/// How often one client is read in a turn. What clients say is short.
const READS_PER_TURN: usize = 8;
/// For how long no connection is taken after the kernel had none to give.
const ACCEPT_PAUSE_NS: u64 = 100 * MILLISECOND;
/// For how long the socket of a client that was sent away stays open: if it is closed while the client speaks, the reason
/// does not reach it.
const LEAVING_NS: u64 = SECOND;
/// How many of those there are.
const MAX_LEAVING: usize = 64;

struct Peer {
    socket: TcpStream,
    address: SocketAddr,
    /// Empty until it has said HELLO.
    name: String,
    may_have_more: bool,
}

/// Serves the streams of a node over TCP.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    bus: Bus,
    streams: Streams,
    server: Server,
    sets: Sets,
    feed: Feed,
    history: History,
    peers: HashMap<ClientId, Peer>,
    has_arrivals: bool,
    /// Until when no connection is taken.
    paused: Option<Monotonic>,
    leaving: VecDeque<(Monotonic, TcpStream)>,
    /// How long a client may stand still.
    patience_ns: u64,
    dscp: u8,
    drain: Option<Drain>,
}

impl Listener {
    pub(super) fn open(
        bus: &Bus,
        listen: &Listen,
        senders: &[Send],
        (member, lineage): (&Membership, &Lineage),
        poller: &Poller,
        now: Now,
    ) -> Result<Self, TcpError> {
        let config = &listen.config;
        config.check()?;
        if config.pace == Pace::Receiver {
            can_wait(bus, config.hold_limit_ns)?;
        }
        let streams = Streams::new(senders, &listen.patterns);
        let feed =
            Feed::new(bus, &streams, config.pace == Pace::Receiver, config.batch_delay_ns > 0)?;
        let identity = Identity {
            realm: member.realm,
            keys: member.keys,
            source: member.source,
            session: member.session,
            instance: member.instance,
        };
        let server = streams.describe(member, lineage, feed.next(), |served| {
            Server::new(config, &identity, served, member.random(), now.monotonic)
        })?;
        let failed = |source| TcpError::Listen { address: listen.address, source };
        socket::allow(config.clients);
        let socket = socket::listen(listen.address).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        poller.add_listening(&socket).map_err(failed)?;
        Ok(Self {
            socket,
            address,
            bus: bus.clone(),
            streams,
            server,
            sets: Sets::new(usize::try_from(config.sets).unwrap_or(usize::MAX)),
            feed,
            history: History::new(bus)?,
            peers: HashMap::new(),
            has_arrivals: true,
            paused: None,
            leaving: VecDeque::new(),
            patience_ns: config.stall_ns.max(config.hold_limit_ns),
            dscp: member.sockets.dscp,
            drain: None,
        })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what the server has counted.
    #[must_use]
    pub fn counters(&self) -> &server::Counters {
        self.server.counters()
    }

    /// Returns how many clients there are, with those that have not said who they are.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.peers.len()
    }

    /// Returns what waits for each client that has said who it is: its name, its address, and that.
    pub fn queues(&self) -> impl Iterator<Item = (&str, SocketAddr, Waiting)> {
        self.server.queues().filter_map(|(client, waiting)| {
            let peer = self.peers.get(&client)?;
            Some((peer.name.as_str(), peer.address, waiting))
        })
    }

    /// Returns how many messages of the whole bus were overwritten before they were read.
    #[must_use]
    pub fn overtaken(&self) -> u64 {
        self.feed.overtaken()
    }

    /// Returns how long frames take until they are written.
    pub(super) fn queueing(&mut self) -> &mut Budget {
        self.server.queueing()
    }

    /// Notes that a connection waits to be taken.
    pub(super) fn has_arrival(&mut self) {
        self.has_arrivals = true;
    }

    /// Notes what the kernel says of a client's socket.
    pub(super) fn is_ready(&mut self, client: ClientId, can_read: bool, can_write: bool) {
        if let Some(peer) = self.peers.get_mut(&client) {
            peer.may_have_more |= can_read;
            if can_write {
                self.server.writable(client);
            }
        }
    }

    /// Does everything that can be done now. Returns whether there may be more at once.
    pub(super) fn turn(
        &mut self,
        now: Now,
        poller: &Poller,
        nonce: &mut impl FnMut() -> io::Result<[u8; NONCE_BYTES]>,
        report: &mut impl FnMut(Event),
    ) -> Result<bool, TcpError> {
        let mut has_more = self.accept(now.monotonic, poller, nonce, report)?;
        has_more |= self.read(now.monotonic);
        while let Some((client, name)) = self.sets.joined() {
            if let Some(peer) = self.peers.get_mut(&client) {
                peer.name.clone_from(&name);
                report(Event::Joined { name, address: peer.address });
            }
        }
        if self.server.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            // If this process did not run, a client that can take something now is not to blame.
            self.write(now.monotonic);
            self.server.handle_timeout(now);
        }
        self.close_ended(now.monotonic, report);
        let is_over = self.is_over();
        let Self { streams, server, sets, feed, history, .. } = self;
        if !is_over {
            has_more |= feed.turn(now, streams, server, sets)?;
            has_more |= history.turn(now, streams, server, sets)?;
        }
        let was_held = self.feed.is_held();
        has_more |= self.write(now.monotonic) && was_held;
        self.finish(now.monotonic, report);
        self.close_ended(now.monotonic, report);
        while self.leaving.front().is_some_and(|(until, _)| *until <= now.monotonic) {
            self.leaving.pop_front();
        }
        Ok(has_more)
    }

    fn accept(
        &mut self,
        now: Monotonic,
        poller: &Poller,
        nonce: &mut impl FnMut() -> io::Result<[u8; NONCE_BYTES]>,
        report: &mut impl FnMut(Event),
    ) -> Result<bool, TcpError> {
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
            self.has_arrivals = true;
        }
        if !self.has_arrivals || self.paused.is_some() {
            return Ok(false);
        }
        for _ in 0..ACCEPTED_PER_TURN {
            let (mut socket, address) = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.has_arrivals = false;
                    return Ok(false);
                }
                // It was gone before it was taken.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Too many descriptors, or no memory: clients that leave give some back.
                    self.paused = Some(now.after(ACCEPT_PAUSE_NS));
                    report(Event::Unaccepted(error));
                    return Ok(false);
                }
            };
            if let Err(error) = socket::prepare(&socket, self.patience_ns, self.dscp) {
                report(Event::Unaccepted(error));
                continue;
            }
            let Some(client) = self.server.accept(now, nonce().map_err(TcpError::Random)?) else {
                let _ = socket.write(self.server.farewell());
                self.leave(now, socket);
                if self.drain.is_none() {
                    report(Event::Full(address));
                }
                continue;
            };
            if let Err(error) = poller.add(&socket, Token::Client(client)) {
                self.server.disconnected(client);
                report(Event::Unaccepted(error));
                continue;
            }
            let name = String::new();
            self.peers.insert(client, Peer { socket, address, name, may_have_more: true });
        }
        Ok(true)
    }

    fn read(&mut self, now: Monotonic) -> bool {
        let Self { peers, server, sets, .. } = self;
        let mut has_more = false;
        for (client, peer) in peers.iter_mut().filter(|(_, peer)| peer.may_have_more) {
            for _ in 0..READS_PER_TURN {
                let room = server.room(*client);
                if room.is_empty() {
                    // It is being sent away: what it says is of no interest.
                    peer.may_have_more = false;
                    break;
                }
                match peer.socket.read(room) {
                    Ok(0) => {
                        peer.may_have_more = false;
                        server.disconnected(*client);
                    }
                    Ok(length) => {
                        server.received(now, *client, length, sets);
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => {
                        peer.may_have_more = false;
                        if error.kind() != ErrorKind::WouldBlock {
                            server.disconnected(*client);
                        }
                    }
                }
                break;
            }
            has_more |= peer.may_have_more;
        }
        has_more
    }

    /// Writes what clients can take. Returns whether something was written.
    fn write(&mut self, now: Monotonic) -> bool {
        let Self { peers, server, .. } = self;
        let mut has_written = false;
        server.begin_turn();
        while let Some(client) = server.next_ready() {
            let Some(peer) = peers.get_mut(&client) else {
                server.disconnected(client);
                continue;
            };
            while let Some(bytes) = server.transmit(now, client) {
                match peer.socket.write(bytes) {
                    Ok(length) => {
                        has_written = true;
                        // The time of the turn would be that at which most frames were made.
                        server.wrote(crate::now::now().monotonic, client, length);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        server.blocked(now, client);
                        break;
                    }
                    Err(_) => {
                        server.disconnected(client);
                        break;
                    }
                }
            }
        }
        has_written
    }

    fn close_ended(&mut self, now: Monotonic, report: &mut impl FnMut(Event)) {
        while let Some(server::Event::Closed { client, reason }) = self.server.poll_event() {
            self.sets.leave(client);
            self.history.leave(client);
            let Some(Peer { socket, address, name, .. }) = self.peers.remove(&client) else {
                continue;
            };
            report(Event::Left { name, address, reason });
            if !matches!(reason, Bye::Lost | Bye::Stalled) {
                self.leave(now, socket);
            }
        }
    }

    /// Lets a client read why it was sent away.
    fn leave(&mut self, now: Monotonic, socket: TcpStream) {
        let _ = socket.shutdown(Shutdown::Write);
        if self.leaving.len() >= MAX_LEAVING {
            self.leaving.pop_front();
        }
        self.leaving.push_back((now.after(LEAVING_NS), socket));
    }

    /// Returns when it must have a turn next.
    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        let leaving = self.leaving.front().map(|(until, _)| *until);
        let until = self.drain.and_then(|drain| drain.until()).filter(|_| !self.is_closed());
        [self.server.poll_timeout(), self.paused, leaving, until].into_iter().flatten().min()
    }

    /// Returns what wakes it when something is published, unless it waits for a client.
    pub(super) fn wakes(&mut self) -> Result<Option<BorrowedFd<'_>>, FileError> {
        if self.is_over() || self.feed.is_held() || self.feed.has_ended() {
            return Ok(None);
        }
        self.feed.subscriber().fd().map(Some)
    }

    /// Sends clients what is on the bus now, for at most `longest_ns`, and then sends them away.
    pub(super) fn end(&mut self, now: Now, longest_ns: u64) {
        if self.drain.is_none() {
            let now = now.monotonic;
            let taken = self.feed.subscriber().sequence();
            let drain = Drain::begin(&self.bus, taken, now, longest_ns);
            self.feed.end_at(drain.goal());
            self.server.drain(now, number(drain.goal()), now.after(longest_ns));
            self.drain = Some(drain);
        }
    }

    /// Sends all clients away with the next turn, after [`Self::end`].
    pub(super) fn abandon(&mut self, now: Now) {
        self.drain.iter_mut().for_each(|drain| drain.hurry(now.monotonic));
    }

    /// Sends the clients away for which the time was too short, and says what they were not sent.
    fn finish(&mut self, now: Monotonic, report: &mut impl FnMut(Event)) {
        if !self.drain.as_mut().is_some_and(|drain| drain.take_end(now)) {
            return;
        }
        for (client, unsent) in self.server.unsent() {
            if let Some(Peer { address, name, .. }) = self.peers.get(&client) {
                let (address, name) = (*address, name.clone());
                report(Event::Undrained { name, address, unsent });
            }
        }
        self.server.end(now);
        self.write(now);
    }

    /// Returns whether nothing more is sent.
    fn is_over(&self) -> bool {
        self.drain.is_some_and(|drain| drain.until().is_none())
    }

    /// Returns whether all have left.
    pub(super) fn is_closed(&self) -> bool {
        self.drain.is_some() && self.peers.is_empty()
    }
}

/// Whether publishers of this bus wait long enough: otherwise the pace of the receivers would be a loss.
fn can_wait(bus: &Bus, hold_limit_ns: u64) -> Result<(), TcpError> {
    let hold_limit = Duration::from_nanos(hold_limit_ns);
    match bus.stats()?.policy {
        Policy::Wait { limit: None } => Ok(()),
        Policy::Wait { limit: Some(limit) } | Policy::Bounded { budget: limit, .. }
            if limit >= hold_limit =>
        {
            Ok(())
        }
        policy => Err(TcpError::Policy { bus: bus.name().to_owned(), policy, hold_limit }),
    }
}

impl From<ReceiveError> for TcpError {
    fn from(error: ReceiveError) -> Self {
        Self::Receive(error)
    }
}
