//! Dial: the socket of a client, which is opened again when it is lost.

use super::lookup::Lookup;
use super::{Poller, TcpError, Token, socket};
use crate::node::host_port::HostPort;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use toroni_proto::arrivals::Inbox;
use toroni_proto::bounded::client::{self, Client, Identity};
use toroni_proto::config::tcp::TcpConfig;
use toroni_proto::random::Random;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::TableName;
use toroni_proto::wire::tcp::{Bye, NONCE_BYTES};

/// How often a socket is read before others have their turn.
const READS_PER_TURN: usize = 16;

/// What has become of the connection.
pub(in crate::node) enum Change {
    /// The server has listed its streams.
    Live,
    /// It has ended, or could not be made: with what the kernel says.
    Down(Bye, Option<io::Error>),
}

/// A client and its socket.
pub(in crate::node) struct Dial {
    host: HostPort,
    bind: Option<SocketAddr>,
    dscp: u8,
    /// Only if the host is a name.
    lookup: Option<Lookup>,
    /// What is left to try of the addresses that were found last.
    addresses: VecDeque<SocketAddr>,
    /// The client waits for a connection, and none is being made.
    is_wanted: bool,
    token: Token,
    pub(in crate::node) client: Client,
    socket: Option<TcpStream>,
    /// The connection is being made.
    is_connecting: bool,
    may_have_more: bool,
    can_write: bool,
    /// Why the last attempt failed.
    failed: Option<io::Error>,
}

impl Dial {
    pub(in crate::node) fn new(
        host: &HostPort,
        bind: Option<SocketAddr>,
        token: Token,
        client: Client,
    ) -> Result<Self, TcpError> {
        let lookup = match host.address() {
            Some(_) => None,
            None => Some(Lookup::new(host.clone())?),
        };
        Ok(Self {
            host: host.clone(),
            bind,
            dscp: 0,
            lookup,
            addresses: VecDeque::new(),
            is_wanted: false,
            token,
            client,
            socket: None,
            is_connecting: false,
            may_have_more: false,
            can_write: false,
            failed: None,
        })
    }

    /// Gives what it sends a class, as [`crate::socket::datagram::Options::dscp`].
    pub(in crate::node) fn with_dscp(self, dscp: u8) -> Self {
        Self { dscp, ..self }
    }

    /// Makes a client that receives nothing but history, of messages that are no longer than this, in bytes.
    pub(in crate::node) fn for_history(
        address: SocketAddr,
        token: Token,
        identity: &Identity,
        message_max_bytes: u64,
        random: Random,
        now: Monotonic,
    ) -> Result<Self, TcpError> {
        let config = TcpConfig { message_max_bytes, ..TcpConfig::default() };
        let all: Vec<TableName<'_>> = TableName::new("**").into_iter().collect();
        let client = Client::new(&config, identity, &all, random, now)?.only_history();
        Self::new(&address.into(), None, token, client)
    }

    /// Returns where the other node listens.
    pub(in crate::node) const fn host(&self) -> &HostPort {
        &self.host
    }

    /// Notes what the kernel says of its socket.
    pub(in crate::node) fn is_ready(&mut self, can_read: bool, can_write: bool) {
        self.may_have_more |= can_read;
        self.can_write |= can_write;
    }

    /// Completes the connection, if it is being made and the kernel says that it is there or has failed.
    pub(in crate::node) fn complete(
        &mut self,
        now: Monotonic,
        nonce: &mut impl FnMut() -> io::Result<[u8; NONCE_BYTES]>,
    ) -> Result<(), TcpError> {
        if !(self.is_connecting && self.can_write) {
            return Ok(());
        }
        self.is_connecting = false;
        match self.socket.as_ref().map(TcpStream::take_error) {
            Some(Ok(None)) => {
                // They may be others when this connection has ended.
                self.addresses.clear();
                self.client.connected(now, nonce().map_err(TcpError::Random)?);
            }
            Some(Ok(Some(error)) | Err(error)) => self.try_next(now, error),
            None => {}
        }
        Ok(())
    }

    /// Returns whether there may be something to read.
    pub(in crate::node) fn has_input(&self) -> bool {
        self.may_have_more && self.socket.is_some() && !self.is_connecting
    }

    /// Reads what has come, while `goes_on` returns `true`.
    pub(in crate::node) fn read<I: Inbox>(
        &mut self,
        now: Monotonic,
        inbox: &mut I,
        goes_on: impl Fn(&I) -> bool,
    ) {
        for _ in 0..READS_PER_TURN {
            if !self.has_input() {
                return;
            }
            if !goes_on(inbox) {
                return self.client.postpone(now);
            }
            let (Some(socket), room) = (&mut self.socket, self.client.room()) else { return };
            if room.is_empty() {
                return;
            }
            match socket.read(room) {
                Ok(0) => {
                    self.may_have_more = false;
                    return self.client.disconnected(now);
                }
                Ok(length) => self.client.received(now, length, inbox),
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

    /// Does what is due, and connects if it is time. Returns what has changed, once each.
    pub(in crate::node) fn change(&mut self, now: Monotonic, poller: &Poller) -> Option<Change> {
        self.client.handle_timeout(now);
        match self.lookup.as_mut().and_then(Lookup::found) {
            Some(Ok(found)) => self.addresses = found.into(),
            Some(Err(error)) if self.is_wanted => self.fail(now, error),
            Some(Err(_)) | None => {}
        }
        loop {
            self.connect(now, poller);
            match self.client.poll_event()? {
                client::Event::Connect => self.is_wanted = true,
                client::Event::Live => return Some(Change::Live),
                client::Event::Down(reason) => {
                    self.close();
                    return Some(Change::Down(reason, self.failed.take()));
                }
            }
        }
    }

    /// Begins to connect, if the client waits for that: to the next address that was found. If there is none, the host is looked
    /// up first.
    fn connect(&mut self, now: Monotonic, poller: &Poller) {
        while self.is_wanted {
            let Some(address) = self.addresses.pop_front().or_else(|| self.host.address()) else {
                let asked = self.lookup.as_mut().map_or(Ok(()), |it| it.ask(poller, self.token));
                return asked.unwrap_or_else(|error| self.fail(now, error));
            };
            self.is_wanted = false;
            let opened = socket::begin_connect(address, self.bind, self.dscp);
            let opened = opened.and_then(|socket| poller.add(&socket, self.token).map(|()| socket));
            match opened {
                Ok(socket) => {
                    self.socket = Some(socket);
                    self.is_connecting = true;
                    (self.may_have_more, self.can_write) = (false, false);
                }
                Err(error) => self.try_next(now, error),
            }
        }
    }

    /// Tries the next address of the host, or gives the attempt up.
    fn try_next(&mut self, now: Monotonic, error: io::Error) {
        if self.addresses.is_empty() {
            return self.fail(now, error);
        }
        self.close();
        self.is_wanted = true;
    }

    fn fail(&mut self, now: Monotonic, error: io::Error) {
        self.failed = Some(error);
        self.close();
        self.client.disconnected(now);
    }

    pub(in crate::node) fn close(&mut self) {
        self.is_wanted = false;
        self.socket = None;
        self.is_connecting = false;
        (self.may_have_more, self.can_write) = (false, false);
    }

    /// Writes what the client has to say, as far as the kernel takes it.
    pub(in crate::node) fn write(&mut self, now: Monotonic) {
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

    /// Says goodbye, and does not connect again.
    pub(in crate::node) fn end(&mut self, now: Monotonic) {
        self.client.end();
        self.write(now);
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now::now;
    use std::net::{Ipv4Addr, TcpListener};
    use toroni_proto::audience::Name;
    use toroni_proto::id::{Realm, Session, Source};
    use toroni_proto::wire::NodeName;

    fn dial(host: &str) -> Dial {
        let identity = Identity {
            realm: Realm(1),
            keys: None,
            source: Source(1),
            session: Session(1),
            name: Name::new(NodeName::new("a").expect("a name")),
        };
        let (now, random) = (now().monotonic, Random::new(1));
        let all: Vec<TableName<'_>> = TableName::new("**").into_iter().collect();
        let client = Client::new(&TcpConfig::default(), &identity, &all, random, now);
        let host = host.parse().expect("a host");
        Dial::new(&host, None, Token::Connection(0), client.expect("a client")).expect("a dial")
    }

    /// Takes turns until the listener has a connection.
    fn connect(dial: &mut Dial, listener: &TcpListener) {
        let poller = Poller::new().expect("a poller");
        listener.set_nonblocking(true).expect("a socket");
        toroni_testkit::wait::until("it has connected", || {
            let ready = |_, can_read, can_write| dial.is_ready(can_read, can_write);
            poller.ready(ready).expect("events");
            dial.complete(now().monotonic, &mut || Ok([0; NONCE_BYTES])).expect("no nonce");
            let change = dial.change(now().monotonic, &poller);
            if let Some(Change::Down(reason, error)) = change {
                panic!("{reason}: {error:?}");
            }
            listener.accept().is_ok()
        });
    }

    fn listener() -> TcpListener {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")
    }

    #[test]
    fn the_addresses_of_a_host_are_tried_in_turn_within_an_attempt() {
        let (listener, gone) = (listener(), toroni_testkit::port::free());
        let own = listener.local_addr().expect("an address");
        let mut dial = dial(&own.to_string());
        // Both refuse: nothing listens at one, and the other belongs to no host.
        let nowhere = "[ff02::1]:1".parse().expect("an address");
        dial.addresses.extend([gone, nowhere, own]);
        connect(&mut dial, &listener);
    }

    #[test]
    fn a_name_is_looked_up_beside_the_node_and_again_when_its_addresses_are_used_up() {
        let listener = listener();
        let port = listener.local_addr().expect("an address").port();
        let mut dial = dial(&format!("localhost:{port}"));
        for _ in 0..3 {
            connect(&mut dial, &listener);
            dial.close();
            dial.client.disconnected(now().monotonic);
            while dial.client.poll_event().is_some() {}
        }
    }
}
