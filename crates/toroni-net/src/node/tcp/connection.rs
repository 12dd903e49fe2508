//! Connection: receives the streams of another node over TCP, and brings them to the bus.

use super::{Connect, Event, Poller, TcpError, Token, socket};
use crate::inlet::{self, Inlet, Ways};
use crate::membership::Membership;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use toroni_proto::audience::Name;
use toroni_proto::bounded::client::{self, Client, Identity};
use toroni_proto::config::Order;
use toroni_proto::id::{Source, Stream};
use toroni_proto::random::Random;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::tcp::{Bye, NONCE_BYTES};
use toroni_proto::wire::{NodeName, TableName};

/// How often a socket is read before others have their turn.
const READS_PER_TURN: usize = 16;

/// A connection to another node, which is made again when it is lost.
pub struct Connection {
    connect: Connect,
    token: Token,
    client: Client,
    inlet: Inlet,
    socket: Option<TcpStream>,
    /// The connection is being made.
    is_connecting: bool,
    may_have_more: bool,
    can_write: bool,
    /// Why the last attempt failed.
    failed: Option<io::Error>,
    ends: bool,
}

impl Connection {
    pub(super) fn new(
        connect: &Connect,
        index: usize,
        (bus, ways): (Arc<toroni::Inlet>, &Ways),
        member: &Membership,
        name: NodeName<'_>,
        now: Monotonic,
    ) -> Result<Self, TcpError> {
        connect.config.check()?;
        let identity = Identity {
            realm: member.realm,
            keys: member.keys,
            source: member.source,
            session: member.session,
            name: Name::new(name),
        };
        let texts = connect.patterns.iter().map(|pattern| pattern.as_str());
        let patterns: Vec<TableName<'_>> = texts.filter_map(TableName::new).collect();
        // Others must not try again in the same instants.
        let random = Random::new(member.random().number().wrapping_add(index as u64));
        let client = Client::new(&connect.config, &identity, &patterns, random, now)?;
        // TCP keeps the order: a message does not wait for others.
        let (accept, order) = (connect.patterns.clone(), Order::Source);
        let selection = inlet::Selection { accept, prefix: String::new(), order };
        Ok(Self {
            connect: connect.clone(),
            token: Token::Connection(index),
            client,
            inlet: Inlet::new(bus, selection).selected_by_the_source().by_way(index + 1, ways),
            socket: None,
            is_connecting: false,
            may_have_more: false,
            can_write: false,
            failed: None,
            ends: false,
        })
    }

    /// Returns where the other node listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.connect.address
    }

    /// Returns the protocol's side of it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns what it brings to the bus.
    #[must_use]
    pub fn inlet(&self) -> &Inlet {
        &self.inlet
    }

    pub(super) fn inlet_mut(&mut self) -> &mut Inlet {
        &mut self.inlet
    }

    /// Takes why the bus has refused something since the last call.
    pub(super) fn refusal(&mut self) -> Option<toroni::PublishError> {
        self.inlet.refusal()
    }

    /// Takes a stream that another way brings.
    pub(super) fn aside(&mut self) -> Option<(Source, Stream)> {
        self.inlet.aside()
    }

    /// Notes what the kernel says of its socket.
    pub(super) fn is_ready(&mut self, can_read: bool, can_write: bool) {
        self.may_have_more |= can_read;
        self.can_write |= can_write;
    }

    /// Does everything that can be done now. Returns whether there may be more at once.
    pub(super) fn turn(
        &mut self,
        now: Monotonic,
        poller: &Poller,
        nonce: &mut impl FnMut() -> io::Result<[u8; NONCE_BYTES]>,
        report: &mut impl FnMut(Event),
    ) -> Result<bool, TcpError> {
        if self.is_connecting && self.can_write {
            self.is_connecting = false;
            match self.socket.as_ref().map(TcpStream::take_error) {
                Some(Ok(None)) => self.client.connected(now, nonce().map_err(TcpError::Random)?),
                Some(Ok(Some(error)) | Err(error)) => self.fail(now, error),
                None => {}
            }
        }
        // What the bus has no room for stays in the socket, and the other node leaves out what becomes too old.
        if !self.is_connecting && self.may_have_more && !self.inlet.is_full() {
            self.read(now);
        }
        self.inlet.publish(std::iter::empty())?;
        self.client.handle_timeout(now);
        while let Some(event) = self.client.poll_event() {
            let address = self.connect.address;
            match event {
                client::Event::Connect => self.connect(now, poller),
                client::Event::Live => report(Event::Connected(address)),
                client::Event::Down(reason) => {
                    if reason == Bye::Ended && self.ends {
                        continue;
                    }
                    self.close();
                    report(Event::Disconnected { address, reason, error: self.failed.take() });
                }
            }
        }
        self.write(now);
        let can_read = self.may_have_more && !self.inlet.is_full();
        Ok(can_read && self.socket.is_some() && !self.is_connecting)
    }

    fn connect(&mut self, now: Monotonic, poller: &Poller) {
        let opened = socket::begin_connect(self.connect.address, self.connect.bind);
        let opened = opened.and_then(|socket| poller.add(&socket, self.token).map(|()| socket));
        match opened {
            Ok(socket) => {
                self.socket = Some(socket);
                self.is_connecting = true;
                (self.may_have_more, self.can_write) = (false, false);
            }
            Err(error) => self.fail(now, error),
        }
    }

    fn fail(&mut self, now: Monotonic, error: io::Error) {
        self.failed = Some(error);
        self.close();
        self.client.disconnected(now);
    }

    fn close(&mut self) {
        self.socket = None;
        self.is_connecting = false;
        (self.may_have_more, self.can_write) = (false, false);
    }

    fn read(&mut self, now: Monotonic) {
        for _ in 0..READS_PER_TURN {
            let Some(socket) = &mut self.socket else { return };
            let room = self.client.room();
            if room.is_empty() {
                return;
            }
            match socket.read(room) {
                Ok(0) => {
                    self.may_have_more = false;
                    return self.client.disconnected(now);
                }
                Ok(length) => self.client.received(now, length, &mut self.inlet),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.may_have_more = false;
                    if error.kind() != ErrorKind::WouldBlock {
                        self.fail(now, error);
                    }
                    return;
                }
            }
        }
    }

    fn write(&mut self, now: Monotonic) {
        while self.can_write
            && !self.is_connecting
            && let Some(socket) = &mut self.socket
            && let Some(bytes) = self.client.transmit()
        {
            match socket.write(bytes) {
                Ok(length) => self.client.wrote(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.can_write = false;
                    if error.kind() != ErrorKind::WouldBlock {
                        self.fail(now, error);
                    }
                }
            }
        }
    }

    /// Returns when it must have a turn next.
    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        let attempt = self.inlet.next_attempt();
        self.client.poll_timeout().into_iter().chain(attempt).min()
    }

    /// Says goodbye, and does not connect again.
    pub(super) fn end(&mut self, now: Monotonic) {
        self.ends = true;
        self.client.end();
        self.write(now);
        self.close();
    }
}
