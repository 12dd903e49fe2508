//! Direct: a program that sends to the network and receives from it itself, without a bus in between.
//!
//! It is the loop of a node with the program in the place of outlet and inlet. Use it where one program of a host takes
//! part, and the time that a second process costs is too much. Where several do, a bus and a node cost less: the network
//! is read once.
//!
//! ```
//! use toroni_net::direct::{Direct, Receive, Received, Send, Settings};
//! use toroni_net::host::interface;
//! use toroni_net::membership::Membership;
//! use toroni_net::socket::Options;
//! use toroni_proto::config::Config;
//! use toroni_proto::id::{Realm, Session, Source, Stream};
//!
//! let group = "239.192.84.79:24479".parse()?;
//! let member = |name: &str, source| -> Result<Membership, Box<dyn std::error::Error>> {
//!     Ok(Membership {
//!         realm: Realm::of(&format!("example {}", std::process::id())),
//!         keys: None,
//!         name: name.to_owned(),
//!         source: Source(source),
//!         session: Session(1),
//!         instance: [source as u8; 16],
//!         is_observed: false,
//!         interfaces: vec![interface::named("lo")?],
//!         sockets: Options { ttl: 0, is_looped: true, ..Options::default() },
//!         claim: None,
//!     })
//! };
//! let config = Config::with_rate(100_000_000);
//! let receive = Receive { groups: vec![group], config: config.clone() };
//! let send = Send { stream: Stream(1), patterns: vec!["plant/**".to_owned()], config, to: vec![group] };
//! let mut receiver =
//!     Direct::open(&Settings { member: member("b", 2)?, send: None, receive: Some(receive) })?;
//! let mut sender =
//!     Direct::open(&Settings { member: member("a", 1)?, send: Some(send), receive: None })?;
//!
//! // Receivers begin with what is sent after they know the sender.
//! while receiver.streams() == 0 {
//!     sender.turn()?;
//!     receiver.turn()?;
//! }
//! sender.send("plant/boiler", b"351.2")?;
//! let received = loop {
//!     sender.turn()?;
//!     if let Some(Received::Message { topic, payload, .. }) = receiver.try_receive()? {
//!         break (topic.to_owned(), payload.to_vec());
//!     }
//! };
//! assert_eq!(received, ("plant/boiler".to_owned(), b"351.2".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::membership::{Claim, ClaimError, Membership};
use crate::node::link::{LONGEST_SLEEP_NS, Link, LinkError, ROUNDS, STALL_NS, To};
use crate::now::now;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use toroni_proto::arrivals::{self, Arrivals, Collisions, Flow, Inbox, Opening};
use toroni_proto::batcher::Now;
use toroni_proto::config::Config;
use toroni_proto::id::{MessageNumber, Number, Series, Session, Source, Stream};
use toroni_proto::reassembly::{Loss, Message};
use toroni_proto::receiver::Mark;
use toroni_proto::sender::{self, Identity, Sender, TooManyPatterns};
use toroni_proto::time::{Monotonic, Wall};
use toroni_proto::wire::{Bound, Kind, LostReason, Start, TableName, TopicNumber};

/// Who the program is, and what it does.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who it is.
    pub member: Membership,
    /// What it sends, if anything.
    pub send: Option<Send>,
    /// What it receives, if anything.
    pub receive: Option<Receive>,
}

/// The stream that it sends.
#[derive(Clone, Debug)]
pub struct Send {
    /// Its number.
    pub stream: Stream,
    /// Patterns of the topics: 1 to 16. Losses are reported to receivers that want one of them.
    pub patterns: Vec<String>,
    /// Rates, window and all else; checked.
    pub config: Config,
    /// The group, or a list of receivers.
    pub to: Vec<SocketAddr>,
}

/// What it receives.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The groups.
    pub groups: Vec<SocketAddr>,
    /// Buffers, times, order and all else; checked.
    pub config: Config,
}

/// Why a program cannot take part.
#[derive(Debug, Error)]
pub enum DirectError {
    /// Its name breaks a rule.
    #[error("{0:?} is no name of a node: use 1 to 64 bytes without control characters")]
    Name(String),
    /// A pattern breaks a rule.
    #[error("{0:?} is no pattern")]
    Pattern(String),
    /// There are too many patterns.
    #[error(transparent)]
    Patterns(#[from] TooManyPatterns),
    /// Another process of this host has its source id.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Its sockets cannot be opened.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A socket cannot be used.
    #[error("cannot use a socket: {0}")]
    Socket(#[from] io::Error),
    /// Another process of the realm has the same source id, and was there first.
    #[error(
        "another node of this realm, at {0}, has the same source id, and was there first: give one of them another `name` or `id`"
    )]
    Collision(SocketAddr),
}

/// Why a message is not sent.
#[derive(Debug, Error)]
pub enum SendError {
    /// The program was opened without a stream.
    #[error("this program sends nothing: open it with a stream")]
    NoStream,
    /// The topic breaks a rule.
    #[error("{0:?} is no topic")]
    Topic(String),
    /// The stream has named as many topics as its table takes.
    #[error("the stream has named as many topics as `topics` allows")]
    TooManyTopics,
    /// The message is longer than the stream allows.
    #[error("a message of {length} bytes is longer than message_max, {limit} bytes")]
    TooLong {
        /// Its length.
        length: usize,
        /// The limit.
        limit: u64,
    },
    /// The window is full of what the stream's rate does not allow to send yet. Only [`Direct::try_send`] says so.
    #[error("the stream's rate does not allow more now")]
    Full,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// A socket cannot be used.
    #[error(transparent)]
    Direct(#[from] DirectError),
}

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A message.
    Message {
        /// Who has sent it, in which stream and series.
        flow: Flow,
        /// Its place in the series.
        number: Number,
        /// Its topic.
        topic: &'a str,
        /// Whether it is also for everything below its topic.
        to_descendants: bool,
        /// When it was published, if the sender stamps messages.
        published: Option<Wall>,
        /// Its bytes.
        payload: &'a [u8],
    },
    /// Messages were lost.
    Lost {
        /// Whose.
        flow: Flow,
        /// How many, which, and why.
        loss: Loss,
    },
}

/// Sends to the network, and receives from it.
pub struct Direct {
    link: Link,
    sending: Option<Sending>,
    receiving: Option<Arrivals>,
    /// For the groups to which it only sends: whether another process has its source id.
    collisions: Collisions,
    collision: Option<arrivals::Event>,
    is_observed: bool,
    inbox: Queue,
    due: Option<Monotonic>,
    /// Keeps other processes of this host from its source id.
    _claim: Arc<Claim>,
}

struct Sending {
    sender: Sender,
    to: Vec<SocketAddr>,
    message_max: u64,
    next: Number,
    delays: bool,
}

impl Sending {
    /// Packs a message. After an error nothing of it is packed.
    fn pack(&mut self, now: Now, name: TableName<'_>, payload: &[u8]) -> Result<(), SendError> {
        let Self { sender, message_max, next, .. } = self;
        if payload.len() as u64 > *message_max {
            return Err(SendError::TooLong { length: payload.len(), limit: *message_max });
        }
        // A quarter of the window is enough for any message.
        if !sender.window().is_half_free() {
            return Err(SendError::Full);
        }
        let full = |_| SendError::Full;
        let topic = sender.topic(now, name).map_err(full)?.ok_or(SendError::TooManyTopics)?;
        let (number, to_descendants) = (*next, false);
        let start = Start { topic, number, to_descendants, published: None, origin: None };
        sender.message(now, start, payload).map_err(full)?;
        *next = number.plus(1);
        Ok(())
    }
}

impl Direct {
    /// Opens the sockets.
    ///
    /// # Errors
    /// See [`DirectError`].
    pub fn open(settings: &Settings) -> Result<Self, DirectError> {
        let Settings { member, send, receive } = settings;
        let name = member.node_name().ok_or_else(|| DirectError::Name(member.name.clone()))?;
        let claim = member.claim()?;
        let groups = receive.as_ref().map_or(&[][..], |receive| &receive.groups);
        let peers = send.as_ref().map_or(&[][..], |send| &send.to);
        let configs = send.iter().map(|it| &it.config).chain(receive.iter().map(|it| &it.config));
        let datagram = configs.map(|config| config.datagram_bytes).max().unwrap_or_default();
        let datagram = usize::try_from(datagram).unwrap_or(usize::MAX);
        let link = Link::open(&member.interfaces, groups, peers, &member.sockets, datagram)?;
        let sending = send.as_ref().map(|Send { stream, patterns, config, to }| {
            let names = patterns.iter().map(|pattern| {
                TableName::new(pattern).ok_or_else(|| DirectError::Pattern(pattern.clone()))
            });
            let names = names.collect::<Result<Vec<_>, _>>()?;
            // The numbers begin at 0 with each process.
            let [a, b, c, d, ..] = member.instance;
            let series = Series(u32::from_le_bytes([a, b, c, d]) ^ member.session.0);
            let identity = member.identity(name, *stream, series, &names);
            let identity = Identity { legs: member.legs(link.addresses()), ..identity };
            Ok::<_, DirectError>(Sending {
                sender: Sender::new(config, &identity, now().monotonic)?,
                to: to.clone(),
                message_max: config.message_max_bytes,
                next: Number::ZERO,
                delays: config.batch_delay_ns > 0,
            })
        });
        let receiving = receive.as_ref().map(|Receive { config, .. }| {
            let (realm, keys, instance) = (member.realm, member.keys, member.instance);
            Arrivals::new(config, realm, keys, member.me(name), instance, member.random())
        });
        let sending = sending.transpose()?;
        Ok(Self {
            link,
            sending,
            receiving,
            collisions: member.collisions(name),
            collision: None,
            is_observed: member.is_observed,
            inbox: Queue::default(),
            due: None,
            _claim: claim,
        })
    }

    /// Sends a message. If the stream's rate does not allow it yet, waits until it does.
    ///
    /// # Errors
    /// See [`SendError`]. The message was not sent then, and none was lost.
    pub fn send(&mut self, topic: &str, payload: &[u8]) -> Result<(), SendError> {
        loop {
            match self.try_send(topic, payload) {
                Err(SendError::Full) => {}
                other => return other,
            }
            self.turn()?;
            self.sleep(None)?;
        }
    }

    /// Sends several messages of a topic, in this order. If the stream's rate does not allow them yet, waits until it does.
    /// They share datagrams and system calls, so each costs much less than with [`Self::send`].
    ///
    /// # Errors
    /// See [`SendError`]. The first ones may have been sent then.
    pub fn send_all<P: AsRef<[u8]>>(
        &mut self,
        topic: &str,
        payloads: &[P],
    ) -> Result<(), SendError> {
        let mut rest = payloads;
        while !rest.is_empty() {
            match self.try_send_all(topic, rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(SendError::Full) => {
                    self.turn()?;
                    self.sleep(None)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a message, or returns [`SendError::Full`] if the stream's rate does not allow it yet: call [`Self::turn`]
    /// and [`Self::sleep`] before you try again.
    ///
    /// # Errors
    /// See [`SendError`]. The message was not sent then, and none was lost.
    pub fn try_send(&mut self, topic: &str, payload: &[u8]) -> Result<(), SendError> {
        self.try_send_all(topic, &[payload]).map(drop)
    }

    /// Sends as many of these messages as the stream's rate allows now, in this order. Returns how many; that is at least
    /// one, unless there are none.
    ///
    /// # Errors
    /// See [`SendError`]. The first message that was not sent is the reason; if others were sent before it, it is the reason
    /// of the next call.
    pub fn try_send_all<P: AsRef<[u8]>>(
        &mut self,
        topic: &str,
        payloads: &[P],
    ) -> Result<usize, SendError> {
        let Self { link, sending, due, .. } = self;
        let Some(sending) = sending else { return Err(SendError::NoStream) };
        let name = TableName::new(topic).filter(|name| !name.has_wildcard());
        let name = name.ok_or_else(|| SendError::Topic(topic.to_owned()))?;
        if sending.sender.is_ending() {
            return Err(SendError::Ended);
        }
        let now = now();
        let mut packed = 0;
        for payload in payloads {
            match sending.pack(now, name, payload.as_ref()) {
                Ok(()) => packed = usize::saturating_add(packed, 1),
                Err(_) if packed > 0 => break,
                Err(error) => return Err(error),
            }
        }
        let Sending { sender, to, delays, .. } = sending;
        if !*delays {
            sender.flush(now);
        }
        for _ in 0..ROUNDS {
            link.transmit(now, sender, to);
            if !link.is_full() {
                break;
            }
            link.flush();
        }
        link.flush();
        // What the rate or `batch_delay` holds back is due earlier than the last turn could know.
        let next = sender.poll_timeout().map(|next| link.due(now.monotonic, next));
        *due = due.iter().copied().chain(next).min();
        Ok(packed)
    }

    /// Returns the next message or loss, if there is one.
    ///
    /// # Errors
    /// If a socket cannot be used.
    pub fn try_receive(&mut self) -> Result<Option<Received<'_>>, DirectError> {
        if self.inbox.is_empty() {
            self.turn()?;
        }
        Ok(self.inbox.pop())
    }

    /// Waits for the next message or loss, at most for `timeout`.
    ///
    /// # Errors
    /// If a socket cannot be used.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Received<'_>>, DirectError> {
        // `None`: beyond what the clock can count.
        let deadline = Instant::now().checked_add(timeout);
        while self.inbox.is_empty() {
            self.turn()?;
            if !self.inbox.is_empty() {
                break;
            }
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.sleep(left)?;
        }
        Ok(self.inbox.pop())
    }

    /// Does everything that can be done now: reads the sockets, sends what the rate allows, asks for what is missing.
    /// [`Self::receive`] does it too, but a send only if it has to wait. So a program that only sends, or does neither for a
    /// while, calls this: otherwise others get no repairs.
    ///
    /// # Errors
    /// If a socket cannot be used.
    pub fn turn(&mut self) -> Result<(), DirectError> {
        let now = now();
        let Self { link, sending, receiving, inbox, due, collisions, collision, .. } = self;
        let is_observed = self.is_observed;
        let stall = due.map_or(0, |due| now.monotonic.since(due));
        if link.follow(now.monotonic)
            && let Some(sending) = sending.as_mut().filter(|_| !is_observed)
        {
            sending.sender.set_legs(now.monotonic, link.addresses());
        }
        // There is no log.
        while link.moved().is_some() {}
        inbox.tidy();
        // As a node does, before anything is read.
        if let Some(arrivals) = receiving {
            arrivals.begin_turn(now.monotonic);
        }
        link.receive(stall >= STALL_NS, |path, to, _, bytes| {
            if to == To::Watched {
                let event = collisions.handle_datagram(now.monotonic, path, bytes);
                *collision = event.or(*collision);
                return;
            }
            let asks = Kind::of(bytes).is_some_and(Kind::is_for_sender);
            if let (true, Some(sending)) = (asks, sending.as_mut()) {
                // What is refused is counted there.
                let _ = sending.sender.handle_datagram(now, path.address, bytes);
            } else if let (false, Some(arrivals)) = (asks, receiving.as_mut()) {
                let _ = arrivals.handle_datagram(now.monotonic, path, bytes, inbox);
            }
        })?;
        if let Some(arrivals) = receiving {
            arrivals.handle_timeout(now.monotonic, inbox);
            if arrivals.paused() > 0 && inbox.has_space() {
                arrivals.deliver_held(now.monotonic, inbox);
            }
            link.ask(now.monotonic, arrivals);
        }
        link.ask_other(now.monotonic, collisions);
        if let Some(Sending { sender, to, .. }) = sending {
            sender.handle_timeout(now);
            for _ in 0..ROUNDS {
                link.transmit(now, sender, to);
                if !link.is_clogged() {
                    break;
                }
                link.flush();
            }
        }
        link.flush();
        let next = sending.as_ref().and_then(|it| it.sender.poll_timeout());
        let next = next.map(|next| link.due(now.monotonic, next));
        let asked = receiving.as_ref().and_then(Arrivals::poll_timeout);
        let other = collisions.poll_timeout();
        *due = next
            .into_iter()
            .chain(asked)
            .chain(other)
            .min()
            .or(Some(now.monotonic.after(LONGEST_SLEEP_NS)));
        Ok(())
    }

    /// Sleeps until a socket has something or a timer is due, at most for `longest`.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn sleep(&self, longest: Option<Duration>) -> Result<(), DirectError> {
        self.sleep_beside(longest, [])
    }

    /// Sleeps as [`Self::sleep`] does, and also until one of these descriptors is readable.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn sleep_beside<'a>(
        &'a self,
        longest: Option<Duration>,
        also: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> Result<(), DirectError> {
        let left = self.due.map_or(0, |due| due.since(now().monotonic)).min(LONGEST_SLEEP_NS);
        let left = Duration::from_nanos(left).min(longest.unwrap_or(Duration::MAX));
        self.link.wait(left, also.into_iter().map(Ok))
    }

    /// Returns the descriptors, for a program with an event loop of its own: when one is readable (or writable, where the
    /// flag says so), or at [`Self::deadline`], it calls [`Self::turn`]. A turn may open sockets again, because the address of
    /// an interface has changed. An event loop that keeps the descriptors then needs the new ones: [`Link::reopened`] of
    /// [`Self::link`] says how often that has happened.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.link.descriptors()
    }

    /// Returns how long the program may sleep until its next call.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_nanos(self.due.map_or(0, |due| due.since(now().monotonic)))
    }

    /// Ends the stream. The program must still call [`Self::turn`] until [`Self::is_closed`], so that others get their
    /// repairs.
    pub fn end(&mut self) {
        if let Some(sending) = &mut self.sending {
            // What it sends ends with this process.
            sending.sender.end(now(), true);
        }
    }

    /// Returns whether the stream has ended, or there is none.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sending.as_ref().is_none_or(|sending| sending.sender.is_closed())
    }

    /// Returns whether a message or loss has been read, and not been taken.
    #[must_use]
    pub fn has_received(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Limits how many received bytes wait to be taken.
    #[cfg(test)]
    pub(crate) fn limit_queue(&mut self, most: usize) {
        self.inbox.most = most;
    }

    #[cfg(test)]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.inbox.weight()
    }

    /// Returns how many streams of others have begun. One that has ended counts until another one needs its place.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.inbox.names.len()
    }

    /// Returns the next event of a stream of others, or that another process has the same source id.
    pub fn event(&mut self) -> Option<arrivals::Event> {
        self.collision.take().or_else(|| self.receiving.as_mut()?.poll_event())
    }

    /// Returns the next event of the own stream.
    pub fn sender_event(&mut self) -> Option<sender::Event> {
        self.sending.as_mut()?.sender.poll_event()
    }

    /// Returns what the own stream has sent so far, and how often it was asked to repeat something. `None` without a
    /// stream.
    #[must_use]
    pub fn sender_counters(&self) -> Option<sender::Counters> {
        self.sending.as_ref().map(|sending| sending.sender.counters())
    }

    /// Returns the sockets.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }
}

/// When so much waits in the queue, in bytes, further messages wait in the receive buffers. What receivers must give up from
/// there, because their memory is short, is queued nevertheless, up to twice as much; beyond, it is lost.
const QUEUE_BYTES: usize = 16 << 20;

/// What has arrived and was not taken yet.
struct Queue {
    items: Vec<Item>,
    next: usize,
    bytes: Vec<u8>,
    names: HashMap<(Source, Stream), Names>,
    /// How much may wait before it has no more space, in bytes.
    most: usize,
}

impl Default for Queue {
    fn default() -> Self {
        let (items, bytes, names) = (Vec::new(), Vec::new(), HashMap::new());
        Self { items, next: 0, bytes, names, most: QUEUE_BYTES }
    }
}

enum Item {
    Message {
        flow: Flow,
        number: Number,
        topic: Arc<str>,
        to_descendants: bool,
        published: Option<Wall>,
        payload: Range<usize>,
    },
    Lost {
        flow: Flow,
        loss: Loss,
    },
}

struct Names {
    session: Session,
    topics: Vec<Option<Arc<str>>>,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.next >= self.items.len()
    }

    /// Returns how much memory it holds, in bytes. What was taken counts until all is.
    fn weight(&self) -> usize {
        self.items.len().saturating_mul(size_of::<Item>()).saturating_add(self.bytes.len())
    }

    fn has_space(&self) -> bool {
        self.weight() < self.most
    }

    /// Queues the loss of a message for which there is no memory. A run of them is one loss.
    fn lose(&mut self, flow: Flow, message: MessageNumber, number: Number) {
        let until = number.plus(1);
        if self.next < self.items.len()
            && let Some(Item::Lost { flow: last, loss }) = self.items.last_mut()
            && *last == flow
            && loss.reason == LostReason::Memory
            && loss.bound == Bound::Exact
            && loss.message.plus(loss.count) == message
        {
            (loss.count, loss.until) = (loss.count.saturating_add(1), Some(until));
            return;
        }
        let after = number.get().checked_sub(1).and_then(Number::new);
        let (reason, bound) = (LostReason::Memory, Bound::Exact);
        self.items.push(Item::Lost {
            flow,
            loss: Loss { message, after, until: Some(until), count: 1, bound, reason },
        });
    }

    /// Frees what was taken.
    fn tidy(&mut self) {
        if self.is_empty() {
            self.items.clear();
            self.bytes.clear();
            self.next = 0;
        }
    }

    fn pop(&mut self) -> Option<Received<'_>> {
        let item = self.items.get(self.next)?;
        self.next = self.next.saturating_add(1);
        Some(match item {
            Item::Message { flow, number, topic, to_descendants, published, payload } => {
                Received::Message {
                    flow: *flow,
                    number: *number,
                    topic,
                    to_descendants: *to_descendants,
                    published: *published,
                    payload: &self.bytes[payload.clone()],
                }
            }
            Item::Lost { flow, loss } => Received::Lost { flow: *flow, loss: *loss },
        })
    }
}

impl Inbox for Queue {
    fn has_room(&mut self, _: Flow) -> bool {
        self.has_space()
    }

    fn begins(&mut self, flow: Flow, _: &Opening) -> Option<Mark> {
        let names = Names { session: flow.session, topics: Vec::new() };
        self.names.insert((flow.source, flow.stream), names);
        None
    }

    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let Message { message, start, parts, .. } = message;
        let names = self.names.get(&(flow.source, flow.stream));
        let names = names.filter(|names| names.session == flow.session);
        let topic = names.and_then(|names| names.topics.get(start.topic.get() as usize)?.clone());
        // The protocol delivers no message before the name of its topic.
        let Some(topic) = topic else { return };
        if self.weight() >= self.most.saturating_mul(2) {
            return self.lose(flow, message, start.number);
        }
        let from = self.bytes.len();
        parts.for_each(|part| self.bytes.extend_from_slice(part));
        self.items.push(Item::Message {
            flow,
            number: start.number,
            topic,
            to_descendants: start.to_descendants,
            published: start.published,
            payload: from..self.bytes.len(),
        });
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let Some(names) = self.names.get_mut(&(flow.source, flow.stream)) else { return };
        let at = number.get() as usize;
        if names.topics.len() <= at {
            names.topics.resize(at.saturating_add(1), None);
        }
        names.topics[at] = Some(name.as_str().into());
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        let loss = Loss { bound: loss.bound_for_subscribers(), ..loss };
        self.items.push(Item::Lost { flow, loss });
    }

    fn forgets(&mut self, source: Source, stream: Stream) {
        self.names.remove(&(source, stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_memory_are_one_loss() {
        let flow =
            Flow { source: Source(1), session: Session(1), stream: Stream(1), series: Series(1) };
        let mut queue = Queue::default();
        // Others of the bus have the numbers between.
        for (message, number) in [(0, 7), (1, 8), (2, 12), (9, 20)] {
            let message = MessageNumber::new(message).unwrap();
            queue.lose(flow, message, Number::new(number).unwrap());
        }
        let mut losses = Vec::new();
        while let Some(received) = queue.pop() {
            let Received::Lost { loss, .. } = received else { panic!("{received:?}") };
            losses.push((loss.after.unwrap().get(), loss.until.unwrap().get(), loss.count));
        }
        assert_eq!(losses, [(6, 13, 3), (19, 21, 1)]);
    }
}
