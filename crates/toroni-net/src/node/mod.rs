//! Node: the process that connects a bus with the network.
//!
//! ```text
//!   turn:  link ──► arrivals ──► inlet ──► bus              everything that has arrived
//!          bus ──► outlets ──► senders ──► link             everything that may be sent now
//!          timers, then sleep until a socket, the bus or a timer has something
//! ```
//!
//! A node has one thread, and never waits for one of its parts while another has something to do.

#[cfg(test)]
mod clock_tests;
pub mod config;
mod crash_point;
#[cfg(test)]
mod crash_tests;
pub mod fetch;
pub mod host_port;
pub mod kernel;
pub mod lineage;
pub mod link;
pub mod overlap;
mod receiving;
pub mod replay;
pub mod report;
pub mod scheduling;
pub mod start;
pub mod state;
pub mod strangers;
pub mod tcp;
#[cfg(test)]
mod tests;

use self::receiving::{Inlets, Receiving};
use crate::hook::mutant;
use crate::inlet::{self, Awaited, Inlet, InletError};
use crate::losses::Lost;
use crate::membership::{Claim, ClaimError, Membership};
use crate::now::now;
use crate::outlet::{self, Outlet, OutletError};
use crate::times::{self, Received};
use crash_point::{CrashPoint, point};
use kernel::{Attribution, Kernel};
use lineage::{Doubt, Lineage, LineageError};
use link::{LONGEST_SLEEP_NS, Link, LinkError, Moved, ROUNDS, STALL_NS, To, TooLong};
use overlap::Overlap;
use state::{Journal, State, StateError};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use strangers::{Stranger, Strangers};
use tcp::{Tcp, TcpError};
use thiserror::Error;
use toroni::{Bus, FileError, Pattern, PublisherError, Start, SubscriberError};
use toroni_proto::arrivals::{self, Arrivals, Collisions};
use toroni_proto::batcher::Now;
use toroni_proto::budget::{Exceeded, Limits};
use toroni_proto::config::Config;
use toroni_proto::id::{Realm, Sequence, Source, Stream};
use toroni_proto::legs::Path;
use toroni_proto::sender::{self, Identity};
use toroni_proto::time::{MILLISECOND, Monotonic, Wall};
use toroni_proto::wire::{FirstSent, Kind, NodeName, Reject};

/// The causes of losses are looked for at most so often, because that reads files of /proc.
const LOSSES_APART_NS: u64 = 100 * MILLISECOND;

/// How long a node goes on sending when it ends, unless something else is said: half of the time that containers usually get.
pub const DRAIN: Duration = Duration::from_secs(5);

/// What a node is and does.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who it is.
    pub member: Membership,
    /// What it sends.
    pub send: Vec<Send>,
    /// What it receives.
    pub receive: Vec<Receive>,
    /// What it serves over TCP.
    pub listen: Option<tcp::Listen>,
    /// From where it receives over TCP.
    pub connect: Vec<tcp::Connect>,
    /// Whether it refuses to start if the kernel gives a smaller receive buffer than it asks for.
    pub strict_buffers: bool,
    /// How long it goes on sending what is on the bus when it ends.
    pub drain: Duration,
    /// Where it keeps how far its streams were sent. Without it, a stream starts over with each process: what was
    /// published meanwhile is reported as lost.
    pub state: Option<Arc<State>>,
}

impl Settings {
    /// Returns those of a node that sends and receives nothing yet, and keeps no state.
    #[must_use]
    pub const fn new(member: Membership) -> Self {
        Self {
            member,
            send: Vec::new(),
            receive: Vec::new(),
            listen: None,
            connect: Vec::new(),
            strict_buffers: false,
            drain: DRAIN,
            state: None,
        }
    }
}

/// A stream that a node sends.
#[derive(Clone, Debug)]
pub struct Send {
    /// Its number, unique in the node.
    pub stream: Stream,
    /// The topics.
    pub selection: outlet::Selection,
    /// Rates, window and all else; checked.
    pub config: Config,
    /// The group, or a list of receivers.
    pub to: Vec<SocketAddr>,
    /// The first message, unless the journal knows where the stream continues.
    pub start: Start,
    /// Whether publishers of the bus wait until it has taken their messages.
    pub is_gating: bool,
    /// With the policy slowest: the names of the nodes that it waits for, if they ask for it.
    pub required: Vec<String>,
}

/// What a node receives with one set of settings.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The groups that it joins.
    pub groups: Vec<SocketAddr>,
    /// The topics.
    pub selection: inlet::Selection,
    /// Buffers, times and all else; checked.
    pub config: Config,
    /// The names of the nodes whose streams are taken. Empty: all.
    pub sources: Vec<String>,
    /// Whether senders with the policy slowest should wait for this node.
    pub is_required: bool,
    /// Which subscribers learn of losses: those of these topics of the bus, at most 16. `None`: those of the streams'
    /// patterns.
    pub lost_scope: Option<Vec<Pattern>>,
    /// Whether the topics that arrive are retained.
    pub retains: bool,
    /// The bus to which it is written, if that is not the node's.
    pub into: Option<Bus>,
    /// How what was sent before is fetched.
    pub fetch: fetch::Settings,
}

impl Receive {
    /// Which subscribers learn that more may be missing of a stream that never came.
    fn scope(&self) -> Vec<Pattern> {
        self.lost_scope.clone().unwrap_or_else(|| self.selection.scope())
    }
}

/// Why a node does not start, or ends.
#[derive(Debug, Error)]
pub enum NodeError {
    /// Its name breaks a rule.
    #[error("{0:?} is no name of a node: use 1 to 64 bytes without control characters")]
    Name(String),
    /// Another process of this host has its source id.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Another node sends some of the same messages to the same realm.
    #[error("{0}")]
    Overlap(Box<Overlap>),
    /// It cannot find out whether another node does.
    #[error("cannot make sure that no other node sends the same messages: {0}")]
    Opening(io::Error),
    /// Its sockets cannot be opened.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A socket cannot be used.
    #[error("cannot use a socket: {0}")]
    Socket(#[from] io::Error),
    /// It cannot take messages from the bus.
    #[error(transparent)]
    Outlet(#[from] OutletError),
    /// It cannot bring messages to the bus.
    #[error(transparent)]
    Inlet(#[from] InletError),
    /// The bus has no place for an inlet.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
    /// A required receiver cannot have this name.
    #[error("{0:?} is no name of a node, so no receiver can be required by it")]
    Required(String),
    /// The receive buffer is too small, and `strict_buffers` is set.
    #[error(
        "the kernel gave a receive buffer of {granted} bytes, and {requested} are needed: {change}"
    )]
    Buffer {
        /// What it gave.
        granted: u64,
        /// What was asked for.
        requested: u64,
        /// What helps.
        change: String,
    },
    /// It cannot say which series it sends.
    #[error(transparent)]
    Lineage(#[from] LineageError),
    /// It cannot keep its state.
    #[error(transparent)]
    State(#[from] StateError),
    /// It cannot use TCP.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The files of the bus cannot be read.
    #[error("cannot use the files of the bus: {0}")]
    File(#[from] FileError),
}

/// What a node reports, seldom.
#[derive(Debug)]
pub enum Event {
    /// Of a stream that it sends.
    Sender(Stream, sender::Event),
    /// Of a stream that it receives.
    Arrivals(arrivals::Event),
    /// Of a connection over TCP.
    Tcp(tcp::Event),
    /// A stream that comes over TCP with other topics, or in another order, is not brought by multicast as well.
    Aside(Source, Stream),
    /// What a source had sent before was fetched over TCP, or could not be.
    Fetched(fetch::Fetched),
    /// The bus refused messages of a source.
    Refused(toroni::PublishError),
    /// A topic that arrives is not retained.
    Unretained(inlet::Unretained),
    /// A stream has ended, and at most that many messages were not sent. They are sent after a restart, if the bus still has them.
    Undrained(Stream, u64),
    /// The kernel refused a datagram. Receivers ask again for what was not sent.
    Unsent(io::Error),
    /// The kernel refused datagrams because an interface takes only shorter ones. Receivers report what was in them as lost.
    TooLong(TooLong),
    /// It takes datagrams again. States how many it has refused since it took one.
    SentAgain(u64),
    /// The address of an interface has changed.
    Moved(Moved),
    /// Datagrams of someone are refused, because the keys or the versions differ.
    Stranger(Stranger),
    /// A journal cannot be written: a restart would begin at an earlier checkpoint.
    Journal(io::Error),
    /// The bus may not be as this node left it, so its messages are another series from now on.
    NewSeries(Doubt),
    /// A journal can be written again. States how many checkpoints have failed since the last one.
    JournalAgain(u64),
    /// Messages that were reported as lost since the last such event, and where their datagrams may have gone.
    Lost(Lost, Attribution),
    /// A part of the way that the node measures took longer than its budget.
    Exceeded(Exceeded),
    /// For how long this process did not run, in nanoseconds.
    Stalled(u64),
}

/// A node.
pub struct Node {
    link: Link,
    outlets: Vec<Sending>,
    receiving: Vec<Receiving>,
    awaited: Vec<Awaited>,
    tcp: Option<Tcp>,
    /// For the groups to which it only sends: whether another node has its source id.
    collisions: Collisions,
    collision: Option<arrivals::Event>,
    realm: Realm,
    is_observed: bool,
    strangers: Strangers,
    source: Source,
    kernel: Kernel,
    received: Received,
    /// How old the drop that caused a loss may be, in nanoseconds: a sender that rests names its last message each `session_max`,
    /// and a gap is open for `generation` then.
    gap_ns: u64,
    /// New losses that have no event yet, and when the next ones get theirs.
    losses: Vec<(Lost, Attribution)>,
    losses_due: Monotonic,
    /// When it should have begun its turn at the latest.
    due: Option<Monotonic>,
    longest_sleep_ns: u64,
    drain_ns: u64,
    stalled: Option<u64>,
    /// When the last turn began.
    turned: Monotonic,
    /// Has the state, and so keeps other nodes out of its directory.
    lineage: Lineage,
    /// Keeps other nodes from its source id.
    _claim: Arc<Claim>,
}

struct Sending {
    stream: Stream,
    to: Vec<SocketAddr>,
    outlet: Outlet,
    journal: Option<Journal>,
    /// What was packed at some time, and will have been sent later: the next checkpoint.
    mark: Option<Packed>,
    journal_error: Option<io::Error>,
    /// How many checkpoints failed since the last one,
    journal_failures: u64,
    /// and how many had failed when one could be written again.
    journal_recovery: Option<u64>,
}

/// A place in a stream: the datagrams before `lead` have all messages of the bus before `sequence`.
#[derive(Clone, Copy)]
struct Packed {
    lead: Sequence,
    sequence: u64,
}

impl Sending {
    /// Packs and sends what may be sent now. Returns whether there may be more at once.
    fn turn(&mut self, now: Now, link: &mut Link) -> Result<bool, NodeError> {
        let Self { outlet, to, .. } = self;
        outlet.sender().handle_timeout(now);
        // Others have their turn after this many rounds, also if the stream has no rate.
        for _ in 0..ROUNDS {
            if link.is_clogged() {
                return Ok(false);
            }
            let has_more = outlet.turn(now)?;
            link.transmit(now, outlet.sender(), to);
            if !link.is_clogged() {
                if outlet.sender().is_ending() {
                    link.flush();
                    point(CrashPoint::AfterEnd);
                }
                return Ok(has_more);
            }
            link.flush();
        }
        Ok(true)
    }

    /// Writes a checkpoint, if one is due and what it says is true: the datagrams were given to the kernel.
    fn checkpoint(&mut self, now: Monotonic) {
        let Some(journal) = &mut self.journal else { return };
        let sequence = self.outlet.subscriber().sequence();
        let sender = self.outlet.sender();
        let packed = Packed { lead: sender.packed_until(), sequence };
        let unsent = sender.window().unsent();
        let unsent = if mutant("checkpoint_before_sent") { packed.lead } else { unsent };
        let mark = *self.mark.get_or_insert(packed);
        let sent = if unsent >= packed.lead { packed } else { mark };
        if unsent >= sent.lead && journal.is_due(now) {
            point(CrashPoint::BeforeCheckpoint);
            self.note(now, sent.sequence);
            point(CrashPoint::AfterCheckpoint);
            self.mark = None;
        }
    }

    /// Writes a checkpoint.
    fn note(&mut self, now: Monotonic, sequence: u64) {
        let Some(journal) = &mut self.journal else { return };
        match journal.note(now, sequence) {
            Ok(()) => {
                let failures = std::mem::take(&mut self.journal_failures);
                let recovery = Some(failures).filter(|_| failures > 0);
                self.journal_recovery = recovery.or(self.journal_recovery);
            }
            Err(error) => {
                self.journal_failures += 1;
                self.journal_error = Some(error);
            }
        }
    }
}

impl Node {
    /// Opens the sockets, and begins to send and to receive with the next [`Self::turn`].
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(bus: &Bus, settings: &Settings) -> Result<Self, NodeError> {
        let Settings { member, .. } = settings;
        let wrong = || NodeError::Name(member.name.clone());
        let name = member.node_name().ok_or_else(wrong)?;
        let claim = member.claim()?;
        let opening = overlap::refuse(bus, member, &settings.send)?;
        let now = now();
        let groups: Vec<SocketAddr> =
            settings.receive.iter().flat_map(|receive| receive.groups.iter().copied()).collect();
        let datagrams = settings.send.iter().map(|send| send.config.datagram_bytes);
        let received = settings.receive.iter().map(|receive| receive.config.datagram_bytes);
        let datagram = datagrams.chain(received).max().unwrap_or_default();
        let datagram = usize::try_from(datagram).unwrap_or(usize::MAX);
        let peers: Vec<SocketAddr> =
            settings.send.iter().flat_map(|send| send.to.iter().copied()).collect();
        let link = if settings.send.is_empty() && settings.receive.is_empty() {
            Link::none()
        } else {
            Link::open(&member.interfaces, &groups, &peers, &member.sockets, datagram)?
        };
        if settings.strict_buffers {
            refuse_small_buffers(&link)?;
        }
        let mut inlets = Inlets::default();
        let bus_inlet = if settings.connect.is_empty() { None } else { Some(inlets.of(bus)?) };
        let checkpoint = |meaning| {
            let journals = settings.send.iter().filter_map(|it| journal_of(settings, it, meaning));
            let greatest = journals.map(|journal| journal.map(|it| it.greatest()));
            greatest.collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().max().unwrap_or(0))
        };
        let lineage = Lineage::begin(bus, settings.state.as_ref(), member.session, checkpoint)?;
        let tcp = if settings.listen.is_some() || !settings.connect.is_empty() {
            let what = (settings.listen.as_ref(), &settings.connect[..], &settings.send[..]);
            let inlet = bus_inlet.as_ref().map(|(inlet, ways)| (inlet, ways));
            Some(Tcp::open(bus, inlet, what, (member, name), &lineage, now)?)
        } else {
            None
        };
        let listen = tcp.as_ref().and_then(Tcp::listener).map_or(0, |it| it.address().port());
        let outlets = settings.send.iter().map(|send| {
            let Send { selection, config, stream, is_gating, .. } = send;
            let required = send
                .required
                .iter()
                .map(|name| NodeName::new(name).ok_or_else(|| NodeError::Required(name.clone())));
            let required = required.collect::<Result<Vec<_>, _>>()?;
            // The outlet knows the patterns.
            let identity = member.identity(name, *stream, lineage.series, &[]);
            let (past, legs) = (lineage.past, member.legs(link.addresses()));
            let identity = Identity { past, listen, legs, required: &required, ..identity };
            let journal = journal_of(settings, send, lineage.meaning).transpose()?;
            let resumed = journal.as_ref().and_then(Journal::resume);
            let begin = |start| {
                Outlet::new(bus, selection, config, &identity, start, *is_gating, now.monotonic)
            };
            let mut outlet = match begin(resumed.map_or(send.start, Start::Sequence)) {
                // Receivers learn from the session how many messages are missing at most.
                Err(OutletError::Subscribe(SubscriberError::SequenceLost { .. })) => {
                    begin(Start::Oldest)
                }
                other => other,
            }?;
            outlet.subscriber().enable_fd()?;
            let mut sending = Sending {
                stream: *stream,
                to: send.to.clone(),
                outlet,
                journal,
                mark: None,
                journal_error: None,
                journal_failures: 0,
                journal_recovery: None,
            };
            // Where it begins: if it goes back, the journal says otherwise.
            if !mutant("going_back_unsaid") {
                let sequence = sending.outlet.subscriber().sequence();
                sending.note(now.monotonic, sequence);
            }
            Ok(sending)
        });
        let outlets = outlets.collect::<Result<_, NodeError>>()?;
        // The bus shows their patterns from here on.
        drop(opening);
        let receiving = receiving::open(bus, member, name, &settings.receive, &mut inlets)?;
        let collisions = member.collisions(name);
        Ok(Self {
            link,
            outlets,
            receiving,
            awaited: inlets.awaited(bus, settings, now.monotonic),
            tcp,
            collisions,
            collision: None,
            realm: member.realm,
            is_observed: member.is_observed,
            strangers: Strangers::default(),
            source: member.source,
            kernel: Kernel::default(),
            received: Received::default(),
            gap_ns: settings
                .receive
                .iter()
                .map(|it| it.config.generation_ns.saturating_add(it.config.session_max_ns))
                .max()
                .unwrap_or(0),
            losses: Vec::new(),
            losses_due: now.monotonic,
            due: None,
            longest_sleep_ns: LONGEST_SLEEP_NS,
            drain_ns: u64::try_from(settings.drain.as_nanos()).unwrap_or(u64::MAX),
            stalled: None,
            turned: now.monotonic,
            lineage,
            _claim: claim,
        })
    }

    /// Does everything that can be done now. Returns whether there may be more at once.
    ///
    /// # Errors
    /// If the bus or a socket cannot be used any more.
    pub fn turn(&mut self) -> Result<bool, NodeError> {
        self.lineage.sends()?;
        let now = now();
        self.turned = now.monotonic;
        if self.link.follow(now.monotonic) && !self.is_observed {
            let legs = self.link.addresses();
            self.outlets.iter_mut().for_each(|it| it.outlet.sender().set_legs(now.monotonic, legs));
        }
        self.look(now.monotonic);
        let stall = self.due.map_or(0, |due| now.monotonic.since(due));
        let Self { link, outlets, receiving, collisions, collision, realm, received, .. } = self;
        let strangers = &mut self.strangers;
        // Deadlines move before anything is read: the first datagram that waited would give gaps up whose repairs wait
        // behind it.
        for one in receiving.iter_mut() {
            one.arrivals.begin_turn(now.monotonic);
        }
        let mut has_arrived = false;
        let mut has_more = link.receive(stall >= STALL_NS, |path, to, arrival, bytes| {
            has_arrived = true;
            let group = match to {
                To::Watched => {
                    let event = collisions.handle_datagram(now.monotonic, path, bytes);
                    *collision = event.or(*collision);
                    return;
                }
                To::Group(group) => Some(group),
                To::Node => None,
            };
            match route(now, path, group, bytes, outlets, receiving) {
                Ok(true) => {
                    if let Some(at) = arrival.received_ns
                        && let Some(first) = FirstSent::of(bytes)
                    {
                        received.record(now.wall, Wall::from_ns(at), &first);
                    }
                }
                Ok(false) => {}
                Err(reason) => strangers.refused(path.address, bytes, *realm, reason),
            }
        })?;
        if has_arrived {
            point(CrashPoint::BeforeRing);
        }
        for one in receiving.iter_mut() {
            has_more |= one.publish(now.monotonic)?;
        }
        if has_arrived {
            point(CrashPoint::BeforeStatus);
        }
        if stall >= STALL_NS {
            self.stalled = Some(stall);
        }
        link.flush();
        for sending in outlets.iter_mut() {
            has_more |= sending.turn(now, link)?;
        }
        for one in receiving.iter_mut() {
            link.ask(now.monotonic, &mut one.arrivals);
        }
        link.ask_other(now.monotonic, collisions);
        link.flush();
        if let Some(tcp) = &mut self.tcp {
            has_more |= tcp.turn(now)?;
        }
        for awaited in &mut self.awaited {
            if stall >= STALL_NS {
                awaited.postpone(stall);
            }
            if now.monotonic < awaited.poll_timeout() {
                continue;
            }
            let by_tcp = self.tcp.iter_mut().flat_map(Tcp::inlets_mut);
            let mut inlets = receiving.iter_mut().map(|one| &mut one.inlet).chain(by_tcp);
            let inlet = inlets.find(|inlet| inlet.is_of(awaited));
            awaited.turn(now.monotonic, inlet)?;
        }
        if !link.is_clogged() {
            outlets.iter_mut().for_each(|sending| sending.checkpoint(now.monotonic));
        }
        self.due = self.next(now.monotonic);
        Ok(has_more && !self.link.is_clogged())
    }

    /// Reads the counters of the kernel if that is due, and states them in STATUS.
    fn look(&mut self, now: Monotonic) {
        if self.kernel.look(now, &self.link, self.gap_ns) {
            // The field of STATUS has 32 bits. After more, it stays.
            let dropped = u32::try_from(self.kernel.total()).unwrap_or(u32::MAX);
            self.receiving.iter_mut().for_each(|it| it.arrivals.set_kernel_dropped(dropped));
        }
    }

    /// Sets how long each part of the way may take.
    pub fn set_limits(&mut self, limits: &Limits) {
        self.outlets.iter_mut().for_each(|it| it.outlet.set_limits(limits));
        times::set_limits(self.received.budgets_mut(), limits);
        for one in &mut self.receiving {
            one.arrivals.set_limits(limits);
            one.inlet.set_limits(limits);
        }
        let by_tcp = self.tcp.iter_mut().flat_map(Tcp::inlets_mut);
        by_tcp.for_each(|inlet| inlet.set_limits(limits));
        let queueing = self.tcp.iter_mut().filter_map(Tcp::queueing);
        times::set_limits(queueing, limits);
    }

    fn next(&mut self, now: Monotonic) -> Option<Monotonic> {
        let senders = self.outlets.iter().filter_map(|it| it.outlet.poll_timeout());
        let receiving = self.receiving.iter().filter_map(Receiving::poll_timeout);
        let tcp = self.tcp.iter().filter_map(Tcp::poll_timeout);
        let senders = senders.map(|next| self.link.due(now, next));
        let awaited = self.awaited.iter().map(Awaited::poll_timeout);
        let other = self.collisions.poll_timeout();
        let next = senders.chain(receiving).chain(tcp).chain(awaited).chain(other).min();
        next.or(Some(now.after(LONGEST_SLEEP_NS)))
    }

    /// Sets how long [`Self::wait`] takes at most: 1 s or less.
    pub fn set_longest_sleep(&mut self, longest: Duration) {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        self.longest_sleep_ns = longest.min(LONGEST_SLEEP_NS);
    }

    /// Sleeps until a socket, the bus, or `also` has something, or a timer is due.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> Result<(), NodeError> {
        let now = now().monotonic;
        let left = self.due.map_or(0, |due| due.since(now)).min(self.longest_sleep_ns);
        let Self { link, outlets, tcp, receiving, .. } = self;
        // A stream that is as far ahead as it may be waits for its rate, and one whose datagrams wait for the kernel for room
        // there, not for the bus.
        let waits_for_bus =
            |sending: &&mut Sending| sending.outlet.wants_more() && !link.is_clogged();
        let streams = outlets.iter_mut().filter(waits_for_bus);
        let streams = streams.map(|sending| Ok(sending.outlet.subscriber().fd()?));
        let tcp = tcp.as_mut().map(Tcp::wakes).transpose()?;
        let tcp = tcp.into_iter().flat_map(|(sockets, bus)| [Some(sockets), bus]).flatten();
        let fetches = receiving.iter().filter_map(|one| one.fetches.wakes());
        let watched = also.into_iter().chain(tcp).chain(fetches).map(Ok).chain(streams);
        link.wait(Duration::from_nanos(left), watched)
    }

    /// Ends all streams that it sends, once what is on the bus now was sent. `for_good` says that no other process continues them.
    /// It must still take turns until [`Self::is_closed`].
    pub fn end(&mut self, for_good: bool) {
        let (now, drain_ns) = (now(), self.drain_ns);
        self.outlets.iter_mut().for_each(|it| it.outlet.end(now, drain_ns, for_good));
        self.lineage.ends = true;
        self.tcp.iter_mut().for_each(|tcp| tcp.end(now, drain_ns));
    }

    /// Ends at once, after [`Self::end`]: what was not sent is not waited for. It must take one more turn, and then be dropped.
    pub fn abandon(&mut self) {
        let now = now();
        self.outlets.iter_mut().for_each(|it| it.outlet.abandon(now));
        self.tcp.iter_mut().for_each(|tcp| tcp.abandon(now));
    }

    /// Returns whether all streams have ended.
    pub fn is_closed(&mut self) -> bool {
        self.tcp.as_ref().is_none_or(Tcp::is_closed)
            && self.outlets.iter_mut().all(|it| it.outlet.sender().is_closed())
    }

    /// Returns the next thing to report.
    pub fn event(&mut self) -> Option<Event> {
        let now = self.turned;
        let listener = self.tcp.as_ref().and_then(Tcp::listener);
        let sends = !self.outlets.is_empty() || listener.is_some();
        if let Some(doubt) = self.lineage.doubt.take_if(|_| sends) {
            return Some(Event::NewSeries(doubt));
        }
        if let Some(stalled) = self.stalled.take() {
            return Some(Event::Stalled(stalled));
        }
        if let Some(moved) = self.link.moved() {
            return Some(Event::Moved(moved));
        }
        if let Some(stranger) = self.strangers.report() {
            return Some(Event::Stranger(stranger));
        }
        if let Some(error) = self.link.refusal() {
            return Some(Event::Unsent(error));
        }
        if let Some(too_long) = self.link.too_long(now) {
            return Some(Event::TooLong(too_long));
        }
        if let Some(refused) = self.link.recovery() {
            return Some(Event::SentAgain(refused));
        }
        for sending in &mut self.outlets {
            let Sending { stream, outlet, journal_error, journal_recovery, .. } = sending;
            if let Some(error) = journal_error.take() {
                return Some(Event::Journal(error));
            }
            if let Some(failures) = journal_recovery.take() {
                return Some(Event::JournalAgain(failures));
            }
            if let Some(unsent) = outlet.unsent() {
                return Some(Event::Undrained(*stream, unsent));
            }
            if let Some(event) = outlet.sender().poll_event() {
                return Some(Event::Sender(*stream, event));
            }
            if let Some(exceeded) = outlet.exceeded(now) {
                return Some(Event::Exceeded(exceeded));
            }
        }
        if let Some((lost, attribution)) = self.new_loss(now) {
            return Some(Event::Lost(lost, attribution));
        }
        if let Some(exceeded) = times::exceeded(self.received.budgets_mut(), now) {
            return Some(Event::Exceeded(exceeded));
        }
        if let Some(tcp) = &mut self.tcp {
            if let Some(event) = tcp.event() {
                return Some(Event::Tcp(event));
            }
            let exceeded = tcp.inlets_mut().find_map(|inlet| inlet.exceeded(now));
            if let Some(exceeded) = exceeded.or_else(|| tcp.queueing()?.poll(now)) {
                return Some(Event::Exceeded(exceeded));
            }
        }
        let collision = self.collision.take().map(Event::Arrivals);
        collision.or_else(|| self.receiving.iter_mut().find_map(|one| one.event(now)))
    }

    /// Returns the next loss that has no event yet. Their causes are looked for at most every 100 ms, for all of them.
    fn new_loss(&mut self, now: Monotonic) -> Option<(Lost, Attribution)> {
        if self.losses.is_empty() && now >= self.losses_due {
            let by_tcp = self.tcp.iter_mut().flat_map(Tcp::inlets_mut);
            // TCP loses nothing on the way: what waits for too long is left out.
            let by_tcp = by_tcp.flat_map(|inlet| inlet.losses_mut().take());
            self.losses.extend(by_tcp.map(|lost| (lost, Attribution::default())));
            if self.receiving.iter().any(|one| one.inlet.losses().has_new()) {
                let found = self.kernel.attribute(now, &self.link, self.gap_ns);
                let new = self.receiving.iter_mut().flat_map(|one| one.inlet.losses_mut().take());
                let attributed = new.map(|lost| {
                    let is_about = kernel::is_about_datagrams(lost.reason);
                    (lost, if is_about { found.clone() } else { Attribution::default() })
                });
                self.losses.extend(attributed);
            }
            if !self.losses.is_empty() {
                self.losses_due = now.after(LOSSES_APART_NS);
            }
        }
        self.losses.pop()
    }

    /// Returns the sockets.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns what it receives with each set of settings, and the inlets that bring it to their buses.
    pub fn receiving(&self) -> impl Iterator<Item = (&Arrivals, &Inlet)> {
        self.receiving.iter().map(|one| (&one.arrivals, &one.inlet))
    }

    /// Returns the name of the node that sends as this source, once it has stated it.
    #[must_use]
    pub fn name_of(&self, source: Source) -> Option<&str> {
        self.receiving.iter().find_map(|one| one.arrivals.name_of(source))
    }

    /// Returns what it serves and receives over TCP.
    #[must_use]
    pub fn tcp(&self) -> Option<&Tcp> {
        self.tcp.as_ref()
    }

    /// Returns the outlets, with the numbers of their streams.
    pub fn outlets(&mut self) -> impl Iterator<Item = (Stream, &mut Outlet)> {
        self.outlets.iter_mut().map(|it| (it.stream, &mut it.outlet))
    }
}

/// Gives a datagram to whom it concerns. What is refused is counted there. Returns whether it was taken as one of a stream
/// that is received.
///
/// # Errors
/// Why no stream has taken it.
fn route(
    now: Now,
    path: Path,
    group: Option<usize>,
    bytes: &[u8],
    outlets: &mut [Sending],
    receiving: &mut [Receiving],
) -> Result<bool, Reject> {
    if Kind::of(bytes).is_some_and(Kind::is_for_sender) {
        for Sending { outlet, .. } in outlets {
            match outlet.sender().handle_datagram(now, path.address, bytes) {
                // It is for another stream.
                Err(Reject::Stream) => {}
                other => return other.map(|_| false),
            }
        }
        return Ok(false);
    }
    let (mut is_taken, mut refused) = (false, None);
    for one in receiving {
        match one.take(now.monotonic, path, group, bytes) {
            Ok(taken) => is_taken |= taken,
            Err(reason) => refused = Some(reason),
        }
    }
    refused.filter(|_| !is_taken).map_or(Ok(is_taken), Err)
}

/// Refuses a receive buffer that is smaller than what was asked for.
fn refuse_small_buffers(link: &Link) -> Result<(), NodeError> {
    let Some(small) = link.buffers().find(|grant| !grant.is_enough()) else { return Ok(()) };
    let change = small.change().map_or_else(String::new, |change| change.to_string());
    Err(NodeError::Buffer { granted: small.granted, requested: small.requested, change })
}

/// Returns the journal of a stream, if the node keeps one. Its sequences are those of a bus with this meaning.
fn journal_of(settings: &Settings, send: &Send, bus: u64) -> Option<Result<Journal, StateError>> {
    let state = settings.state.as_ref()?;
    Some(state.journal(send.stream, bus, meaning_of(&send.selection), send.config.generation_ns))
}

/// Returns a hash of what the numbers of a stream mean: which messages of the bus they name.
fn meaning_of(selection: &outlet::Selection) -> u64 {
    let mut texts: Vec<&str> = selection.patterns.iter().map(toroni::Pattern::as_str).collect();
    texts.sort_unstable();
    texts.insert(0, &selection.prefix);
    // No text has a control character.
    state::hash(texts.join("\n").as_bytes())
}
