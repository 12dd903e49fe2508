//! Replay: history by number, from the server of a node, for a program that is none.

use super::link::to_socket;
use super::tcp::connection::identity;
use super::tcp::dial::{Change, Dial};
use super::tcp::{BEYOND, Nonces, Poller, TcpError, Token};
use crate::host::interface::Interface;
use crate::membership::Membership;
use crate::now::now;
use crate::socket::{self, Datagram, Options, Receiver, SocketError};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thiserror::Error;
use toroni_proto::arrivals::{Flow, Inbox, Opening};
use toroni_proto::config::Config;
use toroni_proto::id::{Number, Realm, Session, Source, Stream};
use toroni_proto::reassembly::{Loss, Message};
use toroni_proto::receiver::Mark;
use toroni_proto::wire::tcp::Bye;
use toroni_proto::wire::{self, Address, Body, Keys, Rules, TableName, TopicNumber};

/// The longest datagram of any stream.
const LONGEST: usize = 65_536;
/// How often the reason to stop is asked for.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Which history.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The realm.
    pub realm: Realm,
    /// Its keys.
    pub keys: Option<Keys>,
    /// Whose stream; `None`: the only one of the server.
    pub source: Option<Source>,
    /// Which stream; `None`: the only one.
    pub stream: Option<Stream>,
    /// The first number.
    pub first: Number,
    /// Numbers below this one. `None`: all that the server has now.
    pub until: Option<Number>,
}

/// Why history does not come.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The group cannot be heard.
    #[error("cannot listen to the group: {0}")]
    Listen(#[from] SocketError),
    /// A socket cannot be used.
    #[error("cannot use a socket: {0}")]
    Socket(#[from] io::Error),
    /// No such source was heard.
    #[error("no source {0} was heard in this group; `toroni net latency` shows who is")]
    Unheard(String),
    /// The source does not listen.
    #[error("{0} serves no history: its node has no [listen]")]
    NoServer(String),
    /// TCP cannot be used.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The connection has ended.
    #[error("no connection to {address}: {why}; what comes next has the number {next}")]
    Ended {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: String,
        /// Where to continue.
        next: Number,
    },
    /// The server has no such stream.
    #[error("the server at {0} has no such stream")]
    NoStream(SocketAddr),
    /// The server has several.
    #[error("the server at {address} has several streams: {streams}; choose one with --stream")]
    Ambiguous {
        /// Where.
        address: SocketAddr,
        /// Which.
        streams: String,
    },
}

/// A source that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its id.
    pub source: Source,
    /// Where its server listens.
    pub address: SocketAddr,
}

/// Waits until a source of this name or id is heard in a group. Returns `None` if `stops` says so.
///
/// # Errors
/// If the group cannot be heard, or no source of this name is heard within `limit`.
pub fn find(
    (group, on): (SocketAddr, &Interface),
    realm: Realm,
    keys: Option<&Keys>,
    source: &str,
    limit: Duration,
    stops: impl Fn() -> bool,
) -> Result<Option<Found>, ReplayError> {
    let socket = Datagram::group(group, on, &Options::default())?;
    let (mut receiver, mut memory) = (Receiver::new(), vec![0; LONGEST]);
    let rules = Rules { realm, keys, message_max: u32::MAX };
    let begun = Instant::now();
    let mut without = false;
    while begun.elapsed() < limit {
        if stops() {
            return Ok(None);
        }
        let arrived = receiver.receive(&socket, [&mut memory[..]])?.first().copied();
        let Some(arrival) = arrived else {
            socket::wait([Ok::<_, io::Error>((socket.as_fd(), false))].into_iter(), CHECK_EVERY)?;
            continue;
        };
        let parsed = wire::parse(&memory[..arrival.length], &rules, |_, _| Ok(()));
        let Ok(wire::Datagram { header, body: Body::Session(session) }) = parsed else { continue };
        if session.name.as_str() != source && header.source.to_string() != source {
            continue;
        }
        if session.listen > 0 {
            let from = super::link::to_address(arrival.from);
            let address = to_socket(Address { port: session.listen, ..from });
            return Ok(Some(Found { source: header.source, address }));
        }
        without = true;
    }
    let source = source.to_owned();
    Err(if without { ReplayError::NoServer(source) } else { ReplayError::Unheard(source) })
}

/// Brings history of one stream.
pub struct Replay {
    asked: Asked,
    dial: Dial,
    poller: Poller,
    nonces: Nonces,
    flow: Option<Flow>,
    next: Number,
    has_ended: bool,
}

impl Replay {
    /// Begins to connect with the next [`Self::turn`].
    ///
    /// # Errors
    /// If the kernel gives no descriptors or random numbers.
    pub fn open(asked: &Asked) -> Result<Self, ReplayError> {
        let mut nonces = Nonces::open()?;
        let instance = nonces.nonce()?;
        let [a, b, c, d, ..] = instance;
        let member = Membership {
            realm: asked.realm,
            keys: asked.keys,
            name: "replay".to_owned(),
            // Only its server hears of this program.
            source: Source(u32::from_le_bytes([a, b, c, d])),
            session: Session(1),
            instance,
            is_observed: false,
            interfaces: Vec::new(),
            sockets: Options::default(),
            claim: None,
        };
        // As a node takes them from the stream itself, unless its file says otherwise.
        let most = Config::default().message_max_bytes;
        let dial = member.node_name().into_iter().map(|name| {
            let (token, identity) = (Token::Connection(0), identity(&member, name));
            let (random, now) = (member.random(), now().monotonic);
            Dial::for_history(asked.address, token, &identity, most, random, now)
        });
        let mut dials = dial.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            asked: asked.clone(),
            dial: dials.remove(0),
            poller: Poller::new().map_err(TcpError::Watch)?,
            nonces,
            flow: None,
            next: asked.first,
            has_ended: false,
        })
    }

    /// Returns whether everything was brought. Then [`Self::next`] says up to where.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the number before which everything was brought or reported.
    #[must_use]
    pub fn next(&self) -> Number {
        self.next
    }

    /// Hands over what has come, while `goes_on` returns `true`. Returns whether there may be more at once.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn turn<I: Inbox>(
        &mut self,
        inbox: &mut I,
        goes_on: impl Fn(&I) -> bool,
    ) -> Result<bool, ReplayError> {
        let now = now().monotonic;
        let Self { asked, dial, poller, nonces, .. } = self;
        poller.ready(|_, can_read, can_write| dial.is_ready(can_read, can_write))?;
        dial.complete(now, &mut || nonces.nonce())?;
        let mut only = Only { asked, inbox };
        dial.read(now, &mut only, |only| goes_on(only.inbox));
        if let Some(Flow { source, stream, .. }) = self.flow
            && let Some((next, has_ended)) = dial.client.replayed(source, stream)
        {
            (self.next, self.has_ended) = (next, has_ended);
        }
        while let Some(change) = self.dial.change(now, &self.poller) {
            match change {
                Change::Live => self.begin()?,
                Change::Down(..) if self.has_ended => {}
                Change::Down(reason, error) => return Err(self.ended(reason, error)),
            }
        }
        self.dial.write(now);
        Ok(self.dial.has_input() && !self.has_ended)
    }

    /// Asks for the history of the stream that is wanted.
    fn begin(&mut self) -> Result<(), ReplayError> {
        let Self { asked, dial, .. } = self;
        let address = asked.address;
        let flows: Vec<Flow> = dial.client.flows().filter(|flow| asked.is_about(*flow)).collect();
        let [flow] = flows[..] else {
            if flows.is_empty() {
                return Err(ReplayError::NoStream(address));
            }
            let streams: Vec<String> = flows.iter().map(|flow| flow.stream.to_string()).collect();
            return Err(ReplayError::Ambiguous { address, streams: streams.join(", ") });
        };
        self.flow = Some(flow);
        let until = asked.until.unwrap_or(Number::MAX);
        dial.client.replay(flow.source, flow.stream, asked.first, Some(until));
        Ok(())
    }

    fn ended(&self, reason: Bye, error: Option<io::Error>) -> ReplayError {
        let why = error.map_or_else(|| reason.to_string(), |error| error.to_string());
        ReplayError::Ended { address: self.asked.address, why, next: self.next }
    }

    /// Sleeps until the server or `also` has something, at most for `longest`.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn wait(&self, longest: Duration, also: Option<BorrowedFd<'_>>) -> Result<(), ReplayError> {
        let due = self.dial.client.poll_timeout();
        let left = due.map_or(u64::MAX, |due| due.since(now().monotonic));
        let watched = also.into_iter().chain([self.poller.wakes()]).map(|fd| Ok((fd, false)));
        socket::wait(watched, longest.min(Duration::from_nanos(left)))
    }
}

impl Asked {
    fn is_about(&self, flow: Flow) -> bool {
        let is_stream = self.stream.map_or(flow.stream != BEYOND, |stream| stream == flow.stream);
        is_stream && self.source.is_none_or(|source| source == flow.source)
    }
}

/// Passes over the streams that are not asked for.
struct Only<'a, I> {
    asked: &'a Asked,
    inbox: &'a mut I,
}

impl<I: Inbox> Inbox for Only<'_, I> {
    fn begins(&mut self, flow: Flow, opening: &Opening) -> Option<Mark> {
        if self.asked.is_about(flow) { self.inbox.begins(flow, opening) } else { None }
    }

    fn message(&mut self, flow: Flow, message: Message<'_>) {
        if self.asked.is_about(flow) {
            self.inbox.message(flow, message);
        }
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        if self.asked.is_about(flow) {
            self.inbox.topic(flow, number, name);
        }
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        if self.asked.is_about(flow) {
            self.inbox.loss(flow, loss);
        }
    }
}
