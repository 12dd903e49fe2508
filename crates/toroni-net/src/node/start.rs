//! Start: from a configuration to a node that can run.

use super::config::{self, Destination};
use super::link::LinkError;
use super::state::{State, StateError};
use super::tcp::TcpError;
use super::{Node, NodeError, Receive, Send, Settings, fetch, tcp};
use crate::host::buffers::{Load, USUAL_DATAGRAM};
use crate::host::ethtool::Ethtool;
use crate::host::interface::{self, Interface, InterfaceError};
use crate::inlet::{self, InletError};
use crate::membership::{Claim, ClaimError, Membership};
use crate::now::now;
use crate::outlet::{self, OutletError};
use crate::socket::buffer::Charge;
use crate::socket::{Options, SocketError};
use rustix::fs::Mode;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use toroni::{
    Bus, BusConfig, FileError, OpenError, Policy as BusPolicy, PublisherError, Start,
    SubscriberError,
};
use toroni_proto::id::{Realm, Session, Source, Stream};
use toroni_proto::time::{SECOND, Wall};
use toroni_proto::wire::{Key, Keys, NodeName, Policy};

/// How long the kernel polls the card for a node that never sleeps, where it may.
const BUSY_POLL: Duration = Duration::from_micros(50);
/// The rate for which a receive buffer is made where the interface states no speed: 1 Gbit/s.
const USUAL_RATE: u64 = 1_000_000_000;

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration asks for something that this program does not do.
    #[error("this program does not do all of this: {}", list(.0))]
    Unsupported(Vec<Unsupported>),
    /// The sender waits for its receivers for longer than publishers of the bus wait for it.
    #[error(
        "[[send]] {stream} waits up to {hold_limit:?} for a required receiver (hold_limit), and publishers of the bus \
         {bus} wait by its policy {policy}: messages would be lost while the sender waits. Choose a shorter hold_limit, or \
         create the bus with a policy that waits as long"
    )]
    HoldLimit {
        /// The number of the stream.
        stream: u16,
        /// How long it may wait.
        hold_limit: Duration,
        /// The name of the bus.
        bus: String,
        /// The policy of the bus.
        policy: BusPolicy,
    },
    /// The interfaces of this host do not fit.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// They do not bear the streams.
    #[error("{}", .0.join("; "))]
    Unsuitable(Vec<String>),
    /// The name of this host cannot be that of a node.
    #[error(
        "the name of this host, {0:?}, is no name of a node: set `name` in [node], 1 to 64 bytes without control characters"
    )]
    HostName(String),
    /// The key cannot be used.
    #[error("cannot use the key in {path}: {problem}", path = path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The bus cannot be opened.
    #[error("cannot open the bus {name}: {source}")]
    Bus {
        /// Its name.
        name: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// The bus cannot be looked at.
    #[error("cannot read the settings of the bus {name}: {source}")]
    Stats {
        /// Its name.
        name: String,
        /// Why.
        source: Box<FileError>,
    },
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another process of this host has its source id.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The kernel gives no random numbers.
    #[error("cannot read /dev/urandom: {0}")]
    Random(io::Error),
    /// The clock is beyond 2156.
    #[error(
        "the clock of this host is beyond the year 2156, after which there are no sessions: set it"
    )]
    Clock,
    /// The node itself does not start.
    #[error(transparent)]
    Node(#[from] NodeError),
}

impl StartError {
    /// Returns what is missing, if it may come without a change of the file: then another attempt makes sense.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        match self {
            // If there are several, the file must name one.
            Self::Interface(InterfaceError::Ambiguous { candidates: Some(_) }) => None,
            Self::Interface(_) | Self::Unsuitable(_) => Some(Lack::Interface),
            Self::Claim(error) => Lack::of_claim(error),
            Self::Node(error) => Lack::of_node(error),
            _ => None,
        }
    }
}

/// What a node may lack when it starts, or later, and get without a change of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// An interface, its address, or an MTU that its streams need.
    Interface,
    /// A place among the publishers of a bus.
    Publisher,
    /// A place among the subscribers of the bus.
    Subscriber,
    /// The address of `[listen]`.
    Listen,
    /// Its source id, which another process has.
    Source,
    /// The right to publish on a bus, which another process has for itself. Only a node that works lacks that.
    Exclusive,
}

impl Lack {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Interface,
        Self::Publisher,
        Self::Subscriber,
        Self::Listen,
        Self::Source,
        Self::Exclusive,
    ];

    /// Returns its name in metrics and in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Publisher => "publisher",
            Self::Subscriber => "subscriber",
            Self::Listen => "listen",
            Self::Source => "source",
            Self::Exclusive => "exclusive",
        }
    }

    fn of_claim(error: &ClaimError) -> Option<Self> {
        matches!(error, ClaimError::Taken { .. }).then_some(Self::Source)
    }

    /// An interface that has just been read may have lost its address, or be gone.
    fn of_socket(error: &SocketError) -> Option<Self> {
        let is_gone = match error {
            SocketError::Interface(_) => true,
            SocketError::System { source, .. } => {
                let gone = [libc::ENODEV, libc::EADDRNOTAVAIL, libc::ENETDOWN];
                source.raw_os_error().is_some_and(|error| gone.contains(&error))
            }
            SocketError::NotMulticast(_) => false,
        };
        is_gone.then_some(Self::Interface)
    }

    fn of_node(error: &NodeError) -> Option<Self> {
        match error {
            NodeError::Claim(error) => Self::of_claim(error),
            NodeError::Link(LinkError::Interface(_)) => Some(Self::Interface),
            NodeError::Link(LinkError::Socket(error)) => Self::of_socket(error),
            NodeError::Publisher(error)
            | NodeError::Inlet(InletError::Topic(error))
            | NodeError::Tcp(TcpError::Inlet(InletError::Topic(error))) => {
                matches!(error, PublisherError::TooManyPublishers { .. }).then_some(Self::Publisher)
            }
            NodeError::Outlet(OutletError::Subscribe(error))
            | NodeError::Tcp(TcpError::Subscribe(error)) => {
                matches!(error, SubscriberError::TooManySubscribers { .. })
                    .then_some(Self::Subscriber)
            }
            NodeError::Tcp(TcpError::Listen { source, .. }) => {
                let passes = [ErrorKind::AddrInUse, ErrorKind::AddrNotAvailable];
                passes.contains(&source.kind()).then_some(Self::Listen)
            }
            _ => None,
        }
    }
}

/// What a configuration names and a node has from its first attempt to start on: the bus, the keys and the state.
pub struct Prepared<'a> {
    config: &'a config::Node,
    bus: Bus,
    keys: Option<Keys>,
    state: Option<Arc<State>>,
    receive: Vec<Receive>,
    /// Who takes part, once a session has begun: it counts as used.
    member: Option<Membership>,
}

/// Opens the bus and the state that a configuration names, and reads its keys. The section `[sequencer]` is for the program,
/// which has the crate for it.
///
/// # Errors
/// See [`StartError`]. None of these errors passes by itself.
pub fn prepare(config: &config::Node) -> Result<Prepared<'_>, StartError> {
    let keys = keys(config)?;
    let bus = open(&config.bus)?;
    check_hold_limits(config, &bus)?;
    let state = config.state.as_deref().map(State::open).transpose()?.map(Arc::new);
    let receive = receiving(config)?;
    Ok(Prepared { config, bus, keys, state, receive, member: None })
}

impl Prepared<'_> {
    /// Starts the node. If that fails with an error that has a [`StartError::lack`], it may be called again.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(&mut self) -> Result<(Settings, Node), StartError> {
        let Self { config, bus, keys, state, receive, member } = self;
        // An earlier attempt may have found other interfaces.
        let interfaces = interfaces(config)?;
        check_interfaces(config, &interfaces)?;
        let joined = match member.take() {
            None => self::member(config, interfaces, *keys, state.as_deref())?,
            Some(known) => {
                Membership { sockets: sockets(config, &interfaces), interfaces, ..known }
            }
        };
        let member = member.insert(joined).clone();
        let mtu = member.interfaces.iter().map(|interface| interface.mtu).min();
        let settings = Settings {
            member,
            send: config.sends.iter().map(|send| sending(send, mtu)).collect(),
            receive: receive.clone(),
            listen: config.listen.as_ref().map(|listen| listening(listen, &config.sends)),
            connect: config.connects.iter().map(connecting).collect(),
            strict_buffers: config.strict_buffers,
            drain: config.drain,
            state: state.clone(),
        };
        let node = Node::new(bus, &settings)?;
        Ok((settings, node))
    }

    /// Returns the bus.
    #[must_use]
    pub const fn bus(&self) -> &Bus {
        &self.bus
    }
}

/// Returns the interfaces that a configuration names, or the only one.
///
/// # Errors
/// If the host does not have them, or has several and none is named.
pub fn interfaces(config: &config::Node) -> Result<Vec<Interface>, InterfaceError> {
    match &config.interfaces[..] {
        // TCP finds its way without.
        [] if !config.has_datagrams() => Ok(Vec::new()),
        [] => Ok(vec![interface::only()?]),
        names => names.iter().map(|name| interface::named(name)).collect(),
    }
}

/// Returns what a configuration is compared with of an interface.
#[must_use]
pub fn link(interface: &Interface, is_candidate: bool) -> config::Link {
    let Interface { name, mtu, .. } = interface;
    let speed = Ethtool::open(name).ok().and_then(|card| card.link()).and_then(|link| link.speed);
    config::Link { name: name.clone(), mtu: *mtu, speed, is_candidate }
}

/// Refuses datagrams that are longer than the interfaces take, and streams that are faster than these.
pub(crate) fn check_interfaces(
    config: &config::Node,
    interfaces: &[Interface],
) -> Result<(), StartError> {
    let links: Vec<config::Link> =
        interfaces.iter().map(|interface| link(interface, true)).collect();
    let found = config::check_host(config, &links);
    if found.is_empty() {
        return Ok(());
    }
    let shown = |it: config::Finding| format!("{}: {}", it.setting, it.problem);
    Err(StartError::Unsuitable(found.into_iter().map(shown).collect()))
}

/// Returns who takes part. Begins a session.
pub(crate) fn member(
    config: &config::Node,
    interfaces: Vec<Interface>,
    keys: Option<Keys>,
    state: Option<&State>,
) -> Result<Membership, StartError> {
    let (name, source) = identity(config)?;
    let realm = Realm::of(&config.realm);
    // Before the session begins: see `full_second`.
    let claim = Claim::take(realm, source)?;
    let is_sending = !config.sends.is_empty() || config.sequencer.is_some();
    let last = state.map(State::last_session).transpose()?.flatten();
    let now = if is_sending && last.is_none() { full_second() } else { now().wall };
    let session = match state {
        Some(state) => state.begin_session(now)?,
        None => Session::begin(now, None).ok_or(StartError::Clock)?,
    };
    Ok(Membership {
        realm,
        keys,
        name,
        source,
        session,
        instance: random().map_err(StartError::Random)?,
        is_observed: config.is_observed,
        sockets: sockets(config, &interfaces),
        interfaces,
        claim: Some(Arc::new(claim)),
    })
}

/// Returns how sockets on these interfaces are opened.
fn sockets(config: &config::Node, interfaces: &[Interface]) -> Options {
    let ttl = config.sends.iter().map(|send| send.config.ttl).max();
    Options {
        ttl: ttl.unwrap_or(Options::default().ttl),
        is_looped: config.sends.iter().any(|send| send.config.loopback),
        dscp: config.dscp,
        receive_buffer: Some(receive_buffer(receive_rate(interfaces), config.stall)),
        busy_poll: if config.is_busy { BUSY_POLL } else { Duration::ZERO },
    }
}

/// Returns the name of the node of a configuration, and its number as a source.
///
/// # Errors
/// [`StartError::HostName`] if it has the host's name, and that is none for a node.
pub fn identity(config: &config::Node) -> Result<(String, Source), StartError> {
    let name = match &config.name {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    let source = config.id.map_or_else(|| source_of(&config.realm, &name), Source);
    Ok((name, source))
}

/// Returns when the session of a process begins that does not know its last one, as without `state`, or if that was lost: with the next
/// full second, for which this waits. The process has claimed its source id, so no other one can have begun with that second and
/// sent something. Whatever the clock says then: it may have been set meanwhile.
fn full_second() -> Wall {
    let now = now().wall;
    let next = now.seconds().saturating_add(1).saturating_mul(SECOND);
    std::thread::sleep(Duration::from_nanos(next.saturating_sub(now.ns())));
    Wall::from_ns(next)
}

/// A setting that a program does not act on. It is refused rather than ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The name of its section, such as `send`.
    pub section: &'static str,
    /// The place of that among the sections of the same name, from 0.
    pub index: usize,
    /// The key, unless it is the section as a whole.
    pub key: Option<&'static str>,
    /// What is missing, and what to do.
    pub problem: String,
}

/// `[[receive]] 2: join: …`
impl fmt::Display for Unsupported {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.setting(), self.problem)
    }
}

impl Unsupported {
    /// Returns the setting as findings name it.
    fn setting(&self) -> String {
        let sections = config::schema::sections();
        let section = sections.iter().find(|section| section.name == self.section);
        let header = section.map_or_else(String::new, config::schema::Section::header);
        let is_list = section.is_some_and(|section| section.is_list);
        let number = if is_list { format!(" {}", self.index + 1) } else { String::new() };
        let key = self.key.map_or_else(String::new, |key| format!(": {key}"));
        format!("{header}{number}{key}")
    }
}

fn list(all: &[Unsupported]) -> String {
    all.iter().map(Unsupported::to_string).collect::<Vec<_>>().join("; ")
}

/// A sender that waits for receivers lets the publishers of its bus wait, and they must not give up before it does.
fn check_hold_limits(config: &config::Node, bus: &Bus) -> Result<(), StartError> {
    let waiting: Vec<_> =
        config.sends.iter().filter(|send| send.config.policy == Policy::Slowest).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    let broken =
        |source| StartError::Stats { name: bus.name().to_owned(), source: Box::new(source) };
    let policy = bus.stats().map_err(broken)?.policy;
    let patience = config::bus_patience(policy);
    let too_long = waiting.iter().find(|send| {
        patience.is_some_and(|limit| limit < Duration::from_nanos(send.config.hold_limit_ns))
    });
    let Some(send) = too_long else { return Ok(()) };
    Err(StartError::HoldLimit {
        stream: send.stream,
        hold_limit: Duration::from_nanos(send.config.hold_limit_ns),
        bus: bus.name().to_owned(),
        policy,
    })
}

fn host_name() -> Result<String, StartError> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if NodeName::new(&name).is_some() { Ok(name) } else { Err(StartError::HostName(name)) }
}

fn source_of(realm: &str, name: &str) -> Source {
    // Without one, hosts differ by the names of their nodes only.
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Source::of_node(machine.trim(), realm, name)
}

/// Returns the keys of the realm, if it has any.
///
/// # Errors
/// [`StartError::Key`].
pub fn keys(config: &config::Node) -> Result<Option<Keys>, StartError> {
    let Some(first) = &config.key_file else { return Ok(None) };
    let next = config.key_file_next.as_deref().map(key).transpose()?;
    Ok(Some(Keys { first: key(first)?, next }))
}

/// Reads a key. The file must be of no use to other users.
///
/// # Errors
/// [`StartError::Key`].
pub fn key(path: &Path) -> Result<Key, StartError> {
    let wrong = |problem: String| StartError::Key { path: path.to_owned(), problem };
    let read = || {
        let file = File::open(path)?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        let mut bytes = Vec::new();
        // One byte more shows that it is too long. A device may never end.
        file.take(Key::BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok((mode, bytes))
    };
    let (mode, bytes) = read().map_err(|error: io::Error| wrong(error.to_string()))?;
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        let path = path.display();
        return Err(wrong(format!("other users may use the file: chmod 600 {path}")));
    }
    let bytes: [u8; Key::BYTES] = bytes.try_into().map_err(|bytes: Vec<u8>| {
        let path = path.display();
        wrong(format!(
            "it has {} bytes, and a key has {}: head -c {} /dev/urandom > {path}",
            if bytes.len() > Key::BYTES {
                "more than 32".to_owned()
            } else {
                bytes.len().to_string()
            },
            Key::BYTES,
            Key::BYTES,
        ))
    })?;
    Ok(Key::new(bytes))
}

fn open(bus: &config::Bus) -> Result<Bus, StartError> {
    let config::Bus { name, directory, capacity, policy, writers, readers } = bus;
    let mut config = BusConfig::new().participant_name("node");
    if let Some(directory) = directory {
        config = config.directory(directory);
    }
    if let Some(capacity) = capacity {
        config = config.capacity(*capacity);
    }
    if let Some(policy) = policy {
        config = config.policy(*policy);
    }
    if let Some(group) = writers {
        config = config.writers_group(group);
    }
    if let Some(group) = readers {
        config = config.readers_group(group);
    }
    config
        .open(name)
        .map_err(|source| StartError::Bus { name: name.clone(), source: Box::new(source) })
}

/// Returns the rate for which receive buffers are made, in bits per second: that of the fastest interface.
#[must_use]
pub fn receive_rate(interfaces: &[Interface]) -> u64 {
    let speed = |interface: &Interface| Ethtool::open(&interface.name).ok()?.link()?.speed;
    interfaces.iter().filter_map(speed).max().unwrap_or(USUAL_RATE)
}

/// Returns the receive buffer (`SO_RCVBUF`) that survives the stall at this rate, with this kernel's charge for a datagram.
#[must_use]
pub fn receive_buffer(rate: u64, stall: Duration) -> u64 {
    Load::new(rate, USUAL_DATAGRAM, Charge::of(USUAL_DATAGRAM).bytes).request(stall)
}

pub(super) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn sending(send: &config::Outgoing, mtu: Option<u32>) -> Send {
    Send {
        stream: Stream(send.stream),
        selection: outlet::Selection {
            patterns: send.patterns.clone(),
            prefix: send.prefix.clone(),
            express: send.express.clone(),
        },
        config: mtu.map_or_else(|| send.config.clone(), |mtu| send.on(mtu)),
        to: match &send.to {
            Destination::Group(group) => vec![*group],
            Destination::Addresses(all) => all.clone(),
        },
        start: Start::Latest,
        is_gating: send.is_gating,
        required: send.required.clone(),
    }
}

/// Returns what is received, once for all groups with the same settings.
fn receiving(node: &config::Node) -> Result<Vec<Receive>, StartError> {
    let mut all: Vec<(&config::Incoming, Receive)> = Vec::new();
    for incoming in &node.receives {
        let same = |(other, _): &&mut (&config::Incoming, Receive)| {
            config::Incoming { group: incoming.group, ..(*other).clone() } == *incoming
        };
        if let Some((_, receive)) = all.iter_mut().find(same) {
            receive.groups.push(incoming.group);
            continue;
        }
        let into = incoming.into.as_ref().filter(|into| **into != node.bus.name);
        let into = into.map(|name| {
            let (directory, policy) = (node.bus.directory.clone(), node.bus.policy);
            let (writers, readers) = (node.bus.writers.clone(), node.bus.readers.clone());
            let (name, capacity) = (name.clone(), node.bus.capacity);
            open(&config::Bus { name, directory, capacity, policy, writers, readers })
        });
        let receive = Receive {
            groups: vec![incoming.group],
            selection: inlet::Selection {
                accept: incoming.accept.clone(),
                prefix: incoming.prefix.clone(),
                order: incoming.config.order,
            },
            config: incoming.config.clone(),
            sources: incoming.sources.clone(),
            is_required: incoming.is_required,
            lost_scope: incoming.lost_scope.clone(),
            retains: incoming.retains,
            into: into.transpose()?,
            fetch: fetch::Settings {
                join: incoming.join,
                limit_ns: incoming.replay_limit_ns,
                message_max_bytes: incoming.config.message_max_bytes,
            },
        };
        all.push((incoming, receive));
    }
    Ok(all.into_iter().map(|(_, receive)| receive).collect())
}

fn listening(listen: &config::Listen, sends: &[config::Outgoing]) -> tcp::Listen {
    let rates = sends.iter().filter_map(|send| send.config.data_rate);
    tcp::Listen {
        address: listen.address,
        patterns: listen.patterns.clone(),
        config: listen.parameters(rates.max()),
    }
}

fn connecting(connect: &config::Connect) -> tcp::Connect {
    tcp::Connect {
        address: connect.address.clone(),
        patterns: connect.patterns.clone(),
        bind: connect.bind,
        activity: connect.activity,
        lost_scope: connect.lost_scope.clone(),
        retains: connect.retains,
        config: connect.parameters(),
    }
}
