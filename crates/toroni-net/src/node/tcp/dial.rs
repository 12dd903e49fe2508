//! Dial: the socket of a client, which is opened again when it is lost.

use super::{Poller, TcpError, Token, socket};
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
    address: SocketAddr,
    bind: Option<SocketAddr>,
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
        address: SocketAddr,
        bind: Option<SocketAddr>,
        token: Token,
        client: Client,
    ) -> Self {
        Self {
            address,
            bind,
            token,
            client,
            socket: None,
            is_connecting: false,
            may_have_more: false,
            can_write: false,
            failed: None,
        }
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
        Ok(Self::new(address, None, token, client))
    }

    /// Returns where the other node listens.
    pub(in crate::node) fn address(&self) -> SocketAddr {
        self.address
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
            Some(Ok(None)) => self.client.connected(now, nonce().map_err(TcpError::Random)?),
            Some(Ok(Some(error)) | Err(error)) => self.fail(now, error),
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
            if !self.has_input() || !goes_on(inbox) {
                return;
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
        loop {
            match self.client.poll_event()? {
                client::Event::Connect => self.connect(now, poller),
                client::Event::Live => return Some(Change::Live),
                client::Event::Down(reason) => {
                    self.close();
                    return Some(Change::Down(reason, self.failed.take()));
                }
            }
        }
    }

    fn connect(&mut self, now: Monotonic, poller: &Poller) {
        let opened = socket::begin_connect(self.address, self.bind);
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

    pub(in crate::node) fn close(&mut self) {
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
