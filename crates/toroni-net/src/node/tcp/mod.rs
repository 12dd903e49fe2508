//! TCP of a node: for receivers that multicast does not reach, with a bound on the age of what they get.
//!
//! ```text
//!   bus ──► feed ─────► server ──► frames, shared ──► sockets of clients      [listen]
//!    ▲      history ──►   ▲ HELLO, REPLAY ◄──────────────┘
//!    │
//!    └── inlet ◄── client ◄── socket                                          [[connect]]
//! ```
//!
//! The machines are those of [`toroni_proto::bounded`]. Here are their sockets, the bus at both ends, and the ring as the
//! history of a client that was away. All sockets are watched through one descriptor.

pub(in crate::node) mod connection;
pub(in crate::node) mod dial;
mod feed;
mod history;
mod listener;
mod lookup;
mod sets;
mod socket;
mod streams;

pub use self::connection::Connection;
pub use self::listener::Listener;
pub use self::streams::BEYOND;

use super::Send;
use super::host_port::HostPort;
use super::lineage::Lineage;
use crate::inlet::{self, InletError, Ways};
use crate::membership::Membership;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use toroni::{Bus, FileError, Pattern, Policy, ReceiveError, SubscriberError};
use toroni_proto::batcher::Now;
use toroni_proto::bounded::client::TooManyPatterns;
use toroni_proto::bounded::server::{ClientId, TooManyStreams};
use toroni_proto::budget::Budget;
use toroni_proto::config::tcp::TcpConfig;
use toroni_proto::config::{ConfigError, Order};
use toroni_proto::id::{Source, Stream};
use toroni_proto::time::Monotonic;
use toroni_proto::wire::NodeName;
use toroni_proto::wire::tcp::{Bye, NONCE_BYTES};

/// How many events of the kernel are taken at a time.
const EVENTS: usize = 64;
/// How many reports wait for the caller. Later ones are dropped.
const MAX_REPORTS: usize = 256;

/// What a node serves over TCP.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Where.
    pub address: SocketAddr,
    /// The topics that it serves beyond those of its streams.
    pub patterns: Vec<Pattern>,
    /// Queues, times and all else.
    pub config: TcpConfig,
}

/// A node from which this one receives over TCP.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Where it listens.
    pub address: HostPort,
    /// The topics.
    pub patterns: Vec<Pattern>,
    /// From where; `None`: the kernel chooses.
    pub bind: Option<SocketAddr>,
    /// After how long without a connection its sources are gone.
    pub activity: Duration,
    /// Which subscribers learn of losses: those of these topics, at most 16. `None`: those of the streams' patterns.
    pub lost_scope: Option<Vec<Pattern>>,
    /// Whether the topics that arrive are retained.
    pub retains: bool,
    /// Times, and the longest message.
    pub config: TcpConfig,
}

impl Connect {
    /// Returns what it brings.
    fn selection(&self) -> inlet::Selection {
        // TCP keeps the order: a message does not wait for others.
        let (accept, order) = (self.patterns.clone(), Order::Source);
        inlet::Selection { accept, prefix: String::new(), order }
    }

    /// Which subscribers learn that more may be missing of a stream that never came.
    pub(super) fn scope(&self) -> Vec<Pattern> {
        self.lost_scope.clone().unwrap_or_else(|| self.selection().scope())
    }
}

/// Why a node cannot use TCP, or no longer.
#[derive(Debug, Error)]
pub enum TcpError {
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not say which socket is ready.
    #[error("cannot watch connections: {0}")]
    Watch(io::Error),
    /// Names of hosts cannot be looked up.
    #[error(
        "cannot start the thread that looks up names of hosts: {0} (see `ulimit -u` and `ulimit -n`)"
    )]
    Lookup(io::Error),
    /// The kernel gives no random numbers.
    #[error("cannot read /dev/urandom: {0}")]
    Random(io::Error),
    /// The parameters break a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There are too many streams.
    #[error(transparent)]
    Streams(#[from] TooManyStreams),
    /// There are too many patterns.
    #[error(transparent)]
    Patterns(#[from] TooManyPatterns),
    /// The bus refuses a subscriber.
    #[error(transparent)]
    Subscribe(#[from] SubscriberError),
    /// The bus cannot be read.
    #[error(transparent)]
    Receive(ReceiveError),
    /// The files of the bus cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The bus cannot be written.
    #[error(transparent)]
    Inlet(#[from] InletError),
    /// Publishers do not wait as long as a client may hold them.
    #[error(
        "with `pace = \"receiver\"`, publishers must wait at least the hold_limit of {hold_limit:?}, and the policy of the \
         bus {bus} is {policy}: create it with `--policy wait:{}s`",
        hold_limit.as_secs_f64().ceil()
    )]
    Policy {
        /// The name of the bus.
        bus: String,
        /// What its publishers do.
        policy: Policy,
        /// How long a client may hold them.
        hold_limit: Duration,
    },
}

/// What happens seldom.
#[derive(Debug)]
pub enum Event {
    /// A node has connected to this one.
    Joined {
        /// Its name.
        name: String,
        /// From where.
        address: SocketAddr,
    },
    /// A connection to this node has ended.
    Left {
        /// The name of the other node; empty if it never said who it is.
        name: String,
        /// From where it had connected.
        address: SocketAddr,
        /// Why.
        reason: Bye,
    },
    /// This node ends, and had no time to send everything to a client: at most that many messages. It gets them after a restart, if
    /// the bus still has them.
    Undrained {
        /// Its name.
        name: String,
        /// From where it had connected.
        address: SocketAddr,
        /// How many messages, at most.
        unsent: u64,
    },
    /// There was no place for another client.
    Full(SocketAddr),
    /// The kernel did not hand a connection over.
    Unaccepted(io::Error),
    /// This node has connected to another one.
    Connected(HostPort),
    /// Its connection to another node has ended, or could not be made. It tries again.
    Disconnected {
        /// Where the other one listens.
        address: HostPort,
        /// Why.
        reason: Bye,
        /// What the kernel says.
        error: Option<io::Error>,
    },
    /// A stream comes by two ways, of which one leaves out what the other brings: the second one does not bring it.
    Aside {
        /// Where the other node listens.
        address: HostPort,
        /// The source.
        source: Source,
        /// Its stream.
        stream: Stream,
    },
    /// The bus refused messages that came over TCP.
    Refused(toroni::PublishError),
    /// A topic that arrives over TCP is not retained.
    Unretained(inlet::Unretained),
}

/// Whose socket it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) enum Token {
    Listener,
    Client(ClientId),
    Connection(usize),
}

/// Distinguishes connections from clients, whose numbers have 16 bits.
const CONNECTION: u64 = 1 << 32;
const LISTENER: u64 = u64::MAX;

impl Token {
    fn to_data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Listener => LISTENER,
            Self::Client(client) => u64::from(client.0),
            Self::Connection(index) => CONNECTION | index as u64,
        })
    }

    fn of(data: u64) -> Self {
        match u16::try_from(data) {
            Ok(client) => Self::Client(ClientId(client)),
            Err(_) if data == LISTENER => Self::Listener,
            Err(_) => Self::Connection(usize::try_from(data ^ CONNECTION).unwrap_or(usize::MAX)),
        }
    }
}

/// Knows which sockets are ready.
pub(in crate::node) struct Poller(OwnedFd);

impl Poller {
    pub(in crate::node) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches a connection: each time it begins to have something to read, or room to write.
    pub(in crate::node) fn add(&self, socket: &impl AsFd, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, socket, token.to_data(), flags)?)
    }

    /// Asks the kernel which sockets are ready: whose, and whether they can be read and written. Returns whether there may be
    /// more of them.
    pub(in crate::node) fn ready(
        &self,
        mut then: impl FnMut(Token, bool, bool),
    ) -> Result<bool, TcpError> {
        let mut memory = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = match epoll::wait(&self.0, &mut memory[..], Some(&none)) {
            Ok((ready, _)) => ready,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(TcpError::Watch(error.into())),
        };
        for event in &*ready {
            let (data, flags) = (event.data, event.flags);
            let ended = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
            let can_read = flags.intersects(EventFlags::IN | ended);
            let can_write = flags.intersects(EventFlags::OUT | ended);
            then(Token::of(data.u64()), can_read, can_write);
        }
        Ok(ready.len() == EVENTS)
    }

    /// Returns a descriptor that can be read when a socket is ready.
    pub(in crate::node) fn wakes(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Watches for connections that wait to be taken.
    fn add_listening(&self, socket: &impl AsFd) -> io::Result<()> {
        self.add_reading(socket, Token::Listener)
    }

    /// Watches what is never written: each time there is more to read.
    fn add_reading(&self, socket: &impl AsFd, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.0, socket, token.to_data(), flags)?)
    }
}

/// Draws the nonces of connections.
pub(in crate::node) struct Nonces(File);

impl Nonces {
    pub(in crate::node) fn open() -> Result<Self, TcpError> {
        File::open("/dev/urandom").map(Self).map_err(TcpError::Random)
    }

    pub(in crate::node) fn nonce(&mut self) -> io::Result<[u8; NONCE_BYTES]> {
        let mut nonce = [0; NONCE_BYTES];
        self.0.read_exact(&mut nonce).map(|()| nonce)
    }
}

/// All of a node's TCP.
pub struct Tcp {
    poller: Poller,
    random: Nonces,
    listener: Option<Listener>,
    connections: Vec<Connection>,
    reports: VecDeque<Event>,
}

impl Tcp {
    /// Listens, and begins to connect with the next [`Self::turn`]. Connections share the inlet of the bus with all else
    /// that the node receives.
    pub(super) fn open(
        bus: &Bus,
        inlet: Option<(&Arc<toroni::Inlet>, &Ways)>,
        (listen, connects, senders): (Option<&Listen>, &[Connect], &[Send]),
        (member, name): (&Membership, NodeName<'_>),
        lineage: &Lineage,
        now: Now,
    ) -> Result<Self, TcpError> {
        let poller = Poller::new().map_err(TcpError::Watch)?;
        let open = |listen| Listener::open(bus, listen, senders, (member, lineage), &poller, now);
        let listener = listen.map(open).transpose()?;
        let connections = inlet.into_iter().flat_map(|(inlet, ways)| {
            connects.iter().enumerate().map(move |(index, connect)| {
                let inlet = (Arc::clone(inlet), ways);
                Connection::new(connect, index, inlet, member, name, now.monotonic)
            })
        });
        Ok(Self {
            connections: connections.collect::<Result<_, _>>()?,
            listener,
            poller,
            random: Nonces::open()?,
            reports: VecDeque::new(),
        })
    }

    /// Does everything that can be done now. Returns whether there may be more at once.
    pub(super) fn turn(&mut self, now: Now) -> Result<bool, TcpError> {
        let mut has_more = self.look()?;
        let Self { poller, random, listener, connections, reports, .. } = self;
        let mut nonce = || random.nonce();
        let mut report = |event| {
            if reports.len() < MAX_REPORTS {
                reports.push_back(event);
            }
        };
        for connection in connections {
            has_more |= connection.turn(now.monotonic, poller, &mut nonce, &mut report)?;
            if let Some(error) = connection.refusal() {
                report(Event::Refused(error));
            }
            while let Some(unretained) = connection.inlet_mut().unretained() {
                report(Event::Unretained(unretained));
            }
            while let Some((source, stream)) = connection.aside() {
                let address = connection.host().clone();
                report(Event::Aside { address, source, stream });
            }
        }
        if let Some(listener) = listener {
            has_more |= listener.turn(now, poller, &mut nonce, &mut report)?;
        }
        Ok(has_more)
    }

    /// Asks the kernel which sockets are ready. Returns whether there may be more of them.
    fn look(&mut self) -> Result<bool, TcpError> {
        let Self { poller, listener, connections, .. } = self;
        poller.ready(|token, can_read, can_write| match token {
            Token::Listener => listener.iter_mut().for_each(Listener::has_arrival),
            Token::Client(client) => {
                if let Some(listener) = listener {
                    listener.is_ready(client, can_read, can_write);
                }
            }
            Token::Connection(index) => {
                if let Some(connection) = connections.get_mut(index) {
                    connection.is_ready(can_read, can_write);
                }
            }
        })
    }

    /// Returns when it must have a turn next.
    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        let connections = self.connections.iter().filter_map(Connection::poll_timeout);
        connections.chain(self.listener.as_ref().and_then(Listener::poll_timeout)).min()
    }

    /// Returns a descriptor that can be read when a socket is ready, and that of the bus.
    pub(super) fn wakes(&mut self) -> Result<(BorrowedFd<'_>, Option<BorrowedFd<'_>>), FileError> {
        let bus = self.listener.as_mut().map(Listener::wakes).transpose()?.flatten();
        Ok((self.poller.wakes(), bus))
    }

    /// Sends clients what is on the bus now, for at most `longest_ns`, and then sends them away. Connections to other nodes stay until
    /// this node is gone.
    pub(super) fn end(&mut self, now: Now, longest_ns: u64) {
        self.listener.iter_mut().for_each(|listener| listener.end(now, longest_ns));
    }

    /// Sends all clients away with the next turn, after [`Self::end`].
    pub(super) fn abandon(&mut self, now: Now) {
        self.listener.iter_mut().for_each(|listener| listener.abandon(now));
    }

    /// Returns whether all clients have left.
    pub(super) fn is_closed(&self) -> bool {
        self.listener.as_ref().is_none_or(Listener::is_closed)
    }

    /// Returns the next thing to report.
    pub(super) fn event(&mut self) -> Option<Event> {
        self.reports.pop_front()
    }

    /// Returns how long frames for clients take until they are written, if it listens.
    pub(super) fn queueing(&mut self) -> Option<&mut Budget> {
        self.listener.as_mut().map(Listener::queueing)
    }

    /// Returns what brings messages of the connections to the bus.
    pub(super) fn inlets_mut(&mut self) -> impl Iterator<Item = &mut crate::inlet::Inlet> {
        self.connections.iter_mut().map(Connection::inlet_mut)
    }

    /// Returns what serves clients.
    #[must_use]
    pub fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }

    /// Returns the connections to other nodes.
    #[must_use]
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }
}
