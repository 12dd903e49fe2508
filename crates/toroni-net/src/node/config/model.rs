//! The configuration as the node uses it.

use super::document::{Document, Values};
use super::schema::{OF_NODES, OF_RECEIVERS, OF_SENDERS, key_of};
use super::value::Value;
use crate::node::host_port::HostPort;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toroni::{Pattern, Policy as BusPolicy};
use toroni_proto::config::{Config as StreamConfig, Order};
use toroni_proto::id::Stream;
use toroni_proto::wire::Policy;

/// The configuration of a node. Every value keeps the limits of the schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The nodes of one realm hear one another.
    pub realm: String,
    /// The name of the node; without it, that of the host.
    pub name: Option<String>,
    /// The number of the node as a source; without it, it follows from the names.
    pub id: Option<u32>,
    /// The bus of the node.
    pub bus: Bus,
    /// Where the node remembers what it sent and heard.
    pub state: Option<PathBuf>,
    /// The file with the realm's key.
    pub key_file: Option<PathBuf>,
    /// The file with the realm's next key.
    pub key_file_next: Option<PathBuf>,
    /// The names of the interfaces; none: the only one that can multicast.
    pub interfaces: Vec<String>,
    /// Whether the node never sleeps.
    pub is_busy: bool,
    /// The processor on which it runs.
    pub cpu: Option<u32>,
    /// Its priority in SCHED_FIFO.
    pub realtime: Option<u8>,
    /// The DSCP of what it sends, 0 to 63.
    pub dscp: u8,
    /// Where it serves metrics.
    pub metrics: Option<SocketAddr>,
    /// Whether it refuses to start with a receive buffer that is too small.
    pub strict_buffers: bool,
    /// The longest time for which it may not run.
    pub stall: Duration,
    /// How long the node goes on sending when it is stopped.
    pub drain: Duration,
    /// Whether receivers answer to where its datagrams come from.
    pub is_observed: bool,
    /// The least important messages that it logs.
    pub log: String,
    /// The streams that it sends.
    pub sends: Vec<Outgoing>,
    /// The groups that it joins.
    pub receives: Vec<Incoming>,
    /// What it serves over TCP.
    pub listen: Option<Listen>,
    /// The nodes to which it connects.
    pub connects: Vec<Connect>,
    /// The feed that it follows or decides on.
    pub sequencer: Option<Sequencer>,
    /// The limits of latencies, by the name of the part.
    pub budget: Vec<(&'static str, Duration)>,
}

/// The bus of a node. What is `None` is the library's default.
#[derive(Clone, Debug, PartialEq)]
pub struct Bus {
    /// Its name.
    pub name: String,
    /// The directory of buses.
    pub directory: Option<PathBuf>,
    /// The size of the ring, in bytes.
    pub capacity: Option<u64>,
    /// How long publishers wait.
    pub policy: Option<BusPolicy>,
    /// The group that may publish.
    pub writers: Option<String>,
    /// The group that may subscribe.
    pub readers: Option<String>,
}

/// A stream that the node sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Its number.
    pub stream: u16,
    /// The topics that it carries.
    pub patterns: Vec<Pattern>,
    /// Where it is sent.
    pub to: Destination,
    /// Topics that never wait in an incomplete datagram.
    pub express: Vec<Pattern>,
    /// Segments that are put before topics, or nothing.
    pub prefix: String,
    /// Whether publishers wait for the node.
    pub is_gating: bool,
    /// The names of the nodes that it waits for.
    pub required: Vec<String>,
    /// Whether datagrams are as large as the interface takes. If so, `config` has the default.
    pub fills_mtu: bool,
    /// The parameters of the protocol.
    pub config: StreamConfig,
}

/// Where a stream is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a multicast group.
    Group(SocketAddr),
    /// To each of these.
    Addresses(Vec<SocketAddr>),
}

/// A group from which the node takes messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// The group.
    pub group: SocketAddr,
    /// The topics that are written to the bus.
    pub accept: Vec<Pattern>,
    /// Segments that are put before topics, or nothing.
    pub prefix: String,
    /// Where a new source begins.
    pub join: Join,
    /// Whether slow senders wait for this node.
    pub is_required: bool,
    /// The names of the sources that are taken; none: all.
    pub sources: Vec<String>,
    /// Who hears of losses; `None`: subscribers of the stream's patterns.
    pub lost_scope: Option<Vec<Pattern>>,
    /// Whether the topics that arrive are retained.
    pub retains: bool,
    /// Another bus than the node's.
    pub into: Option<String>,
    /// How long a stream waits for its history, in nanoseconds; 0: none is fetched.
    pub replay_limit_ns: u64,
    /// The parameters of the protocol.
    pub config: StreamConfig,
}

/// Where a source that is new begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// With what it sends from now on.
    Live,
    /// With the oldest message that it still has.
    Window,
    /// With this number, from its history.
    Number(u64),
}

/// What the node serves over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Where.
    pub address: SocketAddr,
    /// Which topics.
    pub patterns: Vec<Pattern>,
    /// The greatest age of what waits.
    pub latency_bound: Duration,
    /// How many bytes wait for one receiver at most.
    pub queue_bytes: u64,
    /// The length at which a frame is complete.
    pub batch_bytes: u64,
    /// How long one that is not waits for more messages.
    pub batch_delay: Duration,
    /// Whether the sender waits for the slowest receiver.
    pub waits_for_receivers: bool,
    /// How long one may hold it.
    pub hold_limit: Duration,
    /// How long a connection may take nothing.
    pub stall: Duration,
    /// How many connections there may be.
    pub clients: u32,
    /// The limit for history, in bit/s.
    pub replay_rate: Option<u64>,
}

/// A node to which this one connects.
#[derive(Clone, Debug, PartialEq)]
pub struct Connect {
    /// Where.
    pub address: HostPort,
    /// Which topics.
    pub patterns: Vec<Pattern>,
    /// In which order messages are delivered.
    pub order: Order,
    /// The first pause before it connects again.
    pub retry: Duration,
    /// After how long without a connection its sources are gone.
    pub activity: Duration,
    /// Which subscribers hear of losses; `None`: those of the streams' patterns.
    pub lost_scope: Option<Vec<Pattern>>,
    /// Whether the topics that arrive are retained.
    pub retains: bool,
    /// From where.
    pub bind: Option<SocketAddr>,
}

/// One order over several hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequencer {
    /// The name of the feed.
    pub feed: String,
    /// Who decides.
    pub members: Vec<(String, HostPort)>,
    /// Which of them this node is.
    pub member: Option<String>,
    /// The group of the feed.
    pub group: Option<SocketAddr>,
    /// The limit for events, in bit/s.
    pub data_rate: Option<u64>,
    /// The limit for commands, in bit/s.
    pub command_rate: Option<u64>,
    /// The time without a leader before an election, in nanoseconds.
    pub election_timeout_ns: Range<u64>,
    /// How often a leader says that it lives.
    pub heartbeat: Duration,
    /// The interval in which the log is written to the disk; `None`: before each confirmation.
    pub sync_interval: Option<Duration>,
    /// Where the log is.
    pub log: Option<PathBuf>,
    /// How much of the log stays, in bytes.
    pub retain: u64,
    /// Whether events are archived.
    pub archive: bool,
    /// Where the archive answers.
    pub archive_address: Option<SocketAddr>,
    /// Where it is.
    pub archive_directory: Option<PathBuf>,
    /// How much, in bytes.
    pub archive_capacity: Option<u64>,
    /// Nodes with an archive.
    pub archives: Vec<HostPort>,
    /// Whether a node stops if they differ.
    pub stops_on_divergence: bool,
}

impl Node {
    /// Returns whether the node sends or receives datagrams. TCP needs no interface.
    #[must_use]
    pub fn has_datagrams(&self) -> bool {
        let feed = self.sequencer.as_ref().is_some_and(|feed| feed.group.is_some());
        feed || !(self.sends.is_empty() && self.receives.is_empty())
    }

    /// Makes the configuration of a document without errors. `folder` is where relative paths begin.
    pub(super) fn of(document: &Document, folder: &Path) -> Option<Self> {
        let node = document.one("node")?;
        Some(Self {
            realm: node.text("realm")?,
            name: node.text("name"),
            id: node.number("id").and_then(|id| u32::try_from(id).ok()),
            bus: Bus::of(document, node, folder)?,
            state: node.path("state", folder),
            key_file: node.path("key_file", folder),
            key_file_next: node.path("key_file_next", folder),
            interfaces: node.names("interfaces")?,
            is_busy: node.text("poll")? == "busy",
            cpu: node.number("cpu").and_then(|cpu| u32::try_from(cpu).ok()),
            realtime: node.number("realtime").and_then(|priority| u8::try_from(priority).ok()),
            dscp: node.number("dscp").and_then(|dscp| u8::try_from(dscp).ok())?,
            metrics: node.address("metrics"),
            strict_buffers: node.flag("strict_buffers")?,
            stall: node.time("stall")?,
            drain: node.time("drain")?,
            is_observed: node.text("announce")? == "observed",
            log: node.text("log")?,
            sends: collect(document.all("send"), Outgoing::of)?,
            receives: collect(document.all("receive"), |values| Incoming::of(values, node))?,
            listen: optional(document.one("listen"), Listen::of)?,
            connects: collect(document.all("connect"), Connect::of)?,
            sequencer: optional(document.one("sequencer"), |values| Sequencer::of(values, folder))?,
            budget: document.one("budget").map_or_else(Vec::new, Values::times),
        })
    }
}

fn collect<T>(all: &[Values], of: impl Fn(&Values) -> Option<T>) -> Option<Vec<T>> {
    all.iter().map(of).collect()
}

fn optional<T>(values: Option<&Values>, of: impl Fn(&Values) -> Option<T>) -> Option<Option<T>> {
    match values {
        Some(values) => of(values).map(Some),
        None => Some(None),
    }
}

impl Bus {
    fn of(document: &Document, node: &Values, folder: &Path) -> Option<Self> {
        let Some(table) = document.one("node.bus") else {
            return Some(Self {
                name: node.text("bus")?,
                directory: None,
                capacity: None,
                policy: None,
                writers: None,
                readers: None,
            });
        };
        Some(Self {
            name: table.text("name")?,
            directory: table.path("directory", folder),
            capacity: table.number("capacity"),
            policy: match table.get("policy") {
                Some(Value::Policy(policy)) => Some(*policy),
                _ => None,
            },
            writers: table.text("writers"),
            readers: table.text("readers"),
        })
    }
}

/// Returns the length of the longest datagram that fits into a packet of an interface with this MTU, in bytes.
#[must_use]
pub fn datagram_within(mtu: u32) -> u64 {
    // The headers of IPv6 and UDP; those of IPv4 are shorter.
    u64::from(mtu.saturating_sub(48))
}

impl Outgoing {
    /// Returns the parameters on an interface with this MTU, which may say how long datagrams are.
    pub(in crate::node) fn on(&self, mtu: u32) -> StreamConfig {
        let mut config = self.config.clone();
        if self.fills_mtu {
            config.datagram_bytes = datagram_within(mtu);
        }
        config
    }

    pub(super) fn of(values: &Values) -> Option<Self> {
        let mut config = values.stream_config(OF_SENDERS);
        config.policy = stream_policy(&values.text("policy")?)?;
        config.loopback = values.flag("loop")?;
        let to = match values.get("to") {
            Some(Value::Addresses(all)) => Destination::Addresses(all.clone()),
            _ => Destination::Group(values.address("group")?),
        };
        Some(Self {
            stream: values.number("stream").and_then(|stream| u16::try_from(stream).ok())?,
            patterns: values.patterns("patterns")?,
            to,
            express: values.patterns("express")?,
            prefix: values.text("prefix")?,
            is_gating: values.flag("gating").unwrap_or(config.policy == Policy::Slowest),
            required: values.names("required")?,
            fills_mtu: values.get("datagram") == Some(&Value::Mtu),
            config,
        })
    }
}

impl Incoming {
    pub(super) fn of(values: &Values, node: &Values) -> Option<Self> {
        let mut config = values.stream_config(OF_RECEIVERS);
        node.apply(OF_NODES, &mut config);
        config.order = order(&values.text("order")?);
        config.proof = values.flag("proof")?;
        Some(Self {
            group: values.address("group")?,
            accept: values.patterns("accept")?,
            prefix: values.text("prefix")?,
            join: match values.get("join")? {
                Value::Number(number) => Join::Number(*number),
                Value::Text(word) if word == "window" => Join::Window,
                _ => Join::Live,
            },
            replay_limit_ns: values.number("replay_limit")?,
            is_required: values.flag("required")?,
            sources: values.names("sources")?,
            lost_scope: values.patterns("lost_scope"),
            retains: values.flag("retain")?,
            into: values.text("into"),
            config,
        })
    }
}

pub(super) fn stream_policy(word: &str) -> Option<Policy> {
    match word {
        "bounded" => Some(Policy::Bounded),
        "uncontrolled" => Some(Policy::Uncontrolled),
        "slowest" => Some(Policy::Slowest),
        _ => None,
    }
}

fn order(word: &str) -> Order {
    if word == "arrival" { Order::Arrival } else { Order::Source }
}

impl Listen {
    pub(super) fn of(values: &Values) -> Option<Self> {
        Some(Self {
            address: values.address("address")?,
            patterns: values.patterns("patterns")?,
            latency_bound: values.time("latency_bound")?,
            queue_bytes: values.number("queue_bytes")?,
            batch_bytes: values.number("batch_bytes")?,
            batch_delay: values.time("batch_delay")?,
            waits_for_receivers: values.text("pace")? == "receiver",
            hold_limit: values.time("hold_limit")?,
            stall: values.time("stall")?,
            clients: values.number("clients").and_then(|clients| u32::try_from(clients).ok())?,
            replay_rate: values.number("replay_rate"),
        })
    }
}

impl Connect {
    fn of(values: &Values) -> Option<Self> {
        Some(Self {
            address: values.host("address")?,
            patterns: values.patterns("patterns")?,
            order: order(&values.text("order")?),
            retry: values.time("retry")?,
            activity: values.time("activity")?,
            lost_scope: values.patterns("lost_scope"),
            retains: values.flag("retain")?,
            bind: values.address("bind"),
        })
    }
}

/// The stream of a member in which it multicasts events while it leads: above [`STREAM_MAX`](super::schema::STREAM_MAX).
pub const FEED_STREAM: Stream = Stream(0xfffe);

/// A message has some entries of the log, of 256 KiB at most, or a single command of 1 MiB.
const FEED_MESSAGE_MAX_BYTES: u64 = 2 << 20;
const FEED_WINDOW_BYTES: RangeInclusive<u64> = 8 << 20..=64 << 20;
/// At this rate, in bit/s, the largest window lasts for two and a half NAKs.
pub(super) const FEED_RATE_MAX: u64 = 10_000_000_000;
const FEED_RECEIVE_BYTES: u64 = 64 << 20;
/// Up to eight members, and what is left of them from their lives before.
const FEED_SOURCES: u64 = 16;

impl Sequencer {
    /// Returns the parameters of the stream of events: those of the sender with its rate, and those of receivers without.
    #[must_use]
    pub fn stream(&self) -> StreamConfig {
        let mut config = StreamConfig {
            data_rate: self.data_rate.filter(|_| self.member.is_some()),
            message_max_bytes: FEED_MESSAGE_MAX_BYTES,
            reorder_memory_bytes: FEED_RECEIVE_BYTES,
            receive_memory_bytes: FEED_RECEIVE_BYTES,
            sources: FEED_SOURCES,
            loopback: true,
            ..StreamConfig::default()
        };
        let rate = config.data_rate.unwrap_or(0);
        let bytes = |ns: u64| (u128::from(rate) * u128::from(ns)).div_ceil(8_000_000_000);
        let wanted = u64::try_from(bytes(config.generation_ns)).unwrap_or(u64::MAX);
        let wanted = wanted.saturating_add(config.datagram_bytes);
        config.window_bytes = wanted.clamp(*FEED_WINDOW_BYTES.start(), *FEED_WINDOW_BYTES.end());
        // A faster stream repairs for a shorter time: what is lost then, members are asked for.
        let room = config.window_bytes - config.datagram_bytes;
        let longest = u128::from(room) * 8_000_000_000 / u128::from(rate.max(1));
        let longest = u64::try_from(longest).unwrap_or(u64::MAX);
        config.generation_ns = config.generation_ns.min(longest);
        config
    }

    /// Returns which member this node is: its number, its name and its address. The number is the place in the list.
    #[must_use]
    pub fn own(&self) -> Option<(u64, &(String, HostPort))> {
        let own = self.member.as_ref()?;
        (0..).zip(&self.members).find(|(_, (name, _))| name == own)
    }

    /// Returns the directory of the archive.
    #[must_use]
    pub fn archive_place(&self, node: &Node) -> Option<PathBuf> {
        self.archive_directory.clone().or_else(|| Some(node.state.as_ref()?.join("archive")))
    }

    /// Returns the file in which the node notes which buses of commands it has had.
    #[must_use]
    pub fn buses(&self, node: &Node) -> Option<PathBuf> {
        Some(node.state.as_ref()?.join(format!("commands-{}", self.feed)))
    }

    /// Returns the directory of a member's log.
    #[must_use]
    pub fn log_directory(&self, node: &Node) -> Option<PathBuf> {
        self.log.clone().or_else(|| Some(node.state.as_ref()?.join("log")))
    }

    fn of(values: &Values, folder: &Path) -> Option<Self> {
        let Some(Value::Members(members)) = values.get("members") else { return None };
        let Some(Value::Range(election)) = values.get("election_timeout") else { return None };
        let Some(Value::Hosts(archives)) = values.get("archives") else { return None };
        let interval = values.time("sync_interval")?;
        Some(Self {
            feed: values.text("feed")?,
            members: members.clone(),
            member: values.text("member"),
            group: values.address("group"),
            data_rate: values.number("data_rate"),
            command_rate: values.number("command_rate"),
            election_timeout_ns: election.clone(),
            heartbeat: values.time("heartbeat")?,
            sync_interval: (values.text("sync")? == "interval").then_some(interval),
            log: values.path("log", folder),
            retain: values.number("retain")?,
            archive: values.flag("archive")?,
            archive_address: values.address("archive_address"),
            archive_directory: values.path("archive_directory", folder),
            archive_capacity: values.number("archive_capacity"),
            archives: archives.clone(),
            stops_on_divergence: values.text("on_divergence")? == "stop",
        })
    }
}

/// Values by their kind. `None`: there is none, and no default.
impl Values {
    pub(super) fn text(&self, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn time(&self, key: &str) -> Option<Duration> {
        self.number(key).map(Duration::from_nanos)
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    fn path(&self, key: &str, folder: &Path) -> Option<PathBuf> {
        self.text(key).map(|path| folder.join(path))
    }

    fn names(&self, key: &str) -> Option<Vec<String>> {
        match self.get(key)? {
            Value::Names(names) => Some(names.clone()),
            _ => None,
        }
    }

    pub(super) fn patterns(&self, key: &str) -> Option<Vec<Pattern>> {
        match self.get(key)? {
            Value::Patterns(patterns) => Some(patterns.clone()),
            _ => None,
        }
    }

    fn host(&self, key: &str) -> Option<HostPort> {
        match self.get(key)? {
            Value::Host(host) => Some(host.clone()),
            _ => None,
        }
    }

    pub(super) fn address(&self, key: &str) -> Option<SocketAddr> {
        match self.get(key)? {
            Value::Address(address) => Some(*address),
            _ => None,
        }
    }

    fn times(&self) -> Vec<(&'static str, Duration)> {
        let keys = super::schema::sections().into_iter().find(|section| section.name == "budget");
        let names = keys.into_iter().flat_map(|section| section.keys).map(|key| key.name);
        names.filter_map(|name| Some((name, self.time(name)?))).collect()
    }

    /// Returns the protocol's parameters of these names; the others have their defaults.
    pub(super) fn stream_config(&self, parameters: &[&'static str]) -> StreamConfig {
        let mut config = StreamConfig::default();
        self.apply(parameters, &mut config);
        config
    }

    pub(super) fn apply(&self, parameters: &[&'static str], config: &mut StreamConfig) {
        for parameter in parameters {
            if let Some(value) = self.number(key_of(parameter)) {
                assert!(config.set(parameter, value), "{parameter} is a parameter of the protocol");
            }
        }
    }
}
