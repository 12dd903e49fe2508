//! Every section and key that a file may have: what it contains, its default, and what it is for.
//!
//! This is the only list. The reader, the documentation and the effective configuration follow it. The parameters of
//! streams come from [`toroni_proto::config::PARAMETERS`].

use super::units::Quantity;
use toroni_proto::config::{Config, PARAMETERS, Parameter, Unit};

/// What a key contains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text that is not empty.
    Text,
    /// One segment of a topic: no `/`, no wildcard.
    Segment,
    /// Segments that stand before topics, or nothing.
    Prefix,
    /// A path. A relative one begins at the folder of the file.
    Path,
    /// A number with a unit, between two limits.
    Quantity(Quantity, u64, u64),
    /// Two durations, `"150ms..300ms"`.
    TimeRange,
    /// A whole number between two limits.
    Count(u64, u64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Names,
    /// A list of patterns of topics.
    Patterns,
    /// An address and a port.
    Address,
    /// A list of addresses and ports.
    Addresses,
    /// An address or the name of a host, and a port.
    Host,
    /// A list of addresses or names of hosts, with ports.
    Hosts,
    /// A multicast group and a port.
    Group,
    /// A size of datagrams with a unit, or `"mtu"`.
    Datagram(u64, u64),
    /// `"live"`, `"window"`, or a number.
    Join,
    /// A policy of a bus, as `toroni create --policy` takes it.
    BusPolicy,
    /// Members of a sequencer, `"NAME=HOST:PORT"`.
    Members,
    /// The name of a bus, or a table with the keys of the section `[node.bus]`.
    Bus,
}

impl Kind {
    /// Returns what this is called in messages and in the documentation.
    #[must_use]
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Segment => "a name without `/`, `*` and spaces at its ends",
            Self::Prefix => "segments of a topic without wildcards, such as \"site-a\"",
            Self::Path => "a path",
            Self::Quantity(quantity, ..) => quantity.expected(),
            Self::TimeRange => "two durations with units, such as \"150ms..300ms\"",
            Self::Count(..) => "a whole number",
            Self::Flag => "true or false",
            Self::Choice(_) => "one of some words",
            Self::Names => "a list of texts",
            Self::Patterns => "a list of patterns, such as [\"plant/**\"]",
            Self::Address => "an address and a port, such as \"10.0.0.1:4480\"",
            Self::Addresses => "a list of addresses and ports, such as [\"10.0.0.2:4479\"]",
            Self::Host => {
                "an address or the name of a host, and a port, such as \"10.0.0.1:4480\" or \"line-3:4480\""
            }
            Self::Hosts => {
                "a list of addresses or names of hosts, and ports, such as [\"10.0.0.2:4479\"]"
            }
            Self::Group => "a multicast group and a port, such as \"239.192.84.79:4479\"",
            Self::Datagram(..) => "a size with a unit, such as \"1408B\", or \"mtu\"",
            Self::Join => "\"live\", \"window\", or a number",
            Self::BusPolicy => "wait, wait:100ms, wait:forever, overwrite or bounded:10ms/1s",
            Self::Members => {
                "a list of members, such as [\"a=10.0.0.1:4481\"] or [\"a=alpha:4481\"]"
            }
            Self::Bus => "the name of a bus, or a table",
        }
    }
}

/// What holds if a key is not in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Default {
    /// It must be there.
    Required,
    /// This value, as TOML.
    Value(String),
    /// What these words say.
    None(&'static str),
}

/// One key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it contains.
    pub kind: Kind,
    /// What holds without it.
    pub default: Default,
    /// What it is for. One or more sentences, the last without its point.
    pub about: &'static str,
}

/// One section.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Whether there may be several.
    pub is_list: bool,
    /// What it is for.
    pub about: &'static str,
    /// What it may contain.
    pub keys: Vec<Key>,
}

impl Section {
    /// Returns how the section stands in a file, such as `[[send]]`.
    #[must_use]
    pub fn header(&self) -> String {
        if self.is_list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }

    /// Returns the key of this name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const HOUR: u64 = 3_600 * SECOND;
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const KBIT: u64 = 1_000;
const GBIT: u64 = 1_000_000_000;

/// The greatest number of a stream. Those above it are the protocol's own: 0xfffe is that of a feed.
pub const STREAM_MAX: u64 = 0xfffd;

/// How many addresses a stream without multicast is sent to at most.
pub const DESTINATIONS_MAX: usize = 64;

/// How many patterns a stream has at most: a session names them all.
pub const PATTERNS_MAX: usize = 16;

const fn time(least: u64, most: u64) -> Kind {
    Kind::Quantity(Quantity::Time, least, most)
}

const fn bytes(least: u64, most: u64) -> Kind {
    Kind::Quantity(Quantity::Bytes, least, most)
}

const RATE: Kind = Kind::Quantity(Quantity::Rate, 10 * KBIT, 400 * GBIT);

fn required(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, default: Default::Required, about }
}

fn with(name: &'static str, kind: Kind, default: &str, about: &'static str) -> Key {
    Key { name, kind, default: Default::Value(default.to_owned()), about }
}

fn without(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default: Default::None(default), about }
}

/// The parameters that a sender uses, or tells its receivers.
pub(super) const OF_SENDERS: &[&str] = &[
    "data_rate",
    "retransmit_rate",
    "rate_interval",
    "window",
    "ignore",
    "session_min",
    "session_max",
    "nak_backoff",
    "generation",
    "activity",
    "datagram",
    "message_max",
    "batch_bytes",
    "batch_delay",
    "ttl",
    "group_min",
    "hold_limit",
    "receivers",
    "topics",
    "naks_each",
    "naks_all",
];

/// The parameters that a receiver uses.
pub(super) const OF_RECEIVERS: &[&str] = &[
    "nak_backoff_first",
    "nak_backoff",
    "nak_suppress",
    "generation",
    "activity",
    "session_max",
    "reorder_memory",
    "status",
    "message_max",
    "topics",
];

/// The parameters that all sources of a node share.
pub(super) const OF_NODES: &[&str] = &["receive_memory", "sources"];

/// The key with which a file sets a parameter. `sources` means names in `[[receive]]`.
pub(super) fn key_of(parameter: &str) -> &str {
    if parameter == "sources" { "max_sources" } else { parameter }
}

fn parameters(names: &[&str]) -> impl Iterator<Item = Key> {
    names.iter().map(|name| {
        let parameter = PARAMETERS.iter().find(|parameter| parameter.name == *name);
        of_parameter(parameter.expect("a parameter of the protocol"))
    })
}

fn of_parameter(parameter: &'static Parameter) -> Key {
    let Parameter { name, unit, least, most, reason: about, .. } = *parameter;
    let (kind, quantity) = match unit {
        Unit::Time => (time(least, most), Some(Quantity::Time)),
        Unit::Bytes if name == "datagram" => (Kind::Datagram(least, most), Some(Quantity::Bytes)),
        Unit::Bytes => (bytes(least, most), Some(Quantity::Bytes)),
        Unit::BitsPerSecond => (Kind::Quantity(Quantity::Rate, least, most), Some(Quantity::Rate)),
        Unit::Count => (Kind::Count(least, most), None),
    };
    let default = match ((parameter.value)(&Config::default()), parameter.derived) {
        (Some(value), _) => Default::Value(match quantity {
            Some(quantity) => format!("{:?}", quantity.show(value)),
            None => value.to_string(),
        }),
        (None, Some(words)) => Default::None(words),
        (None, None) => Default::None("required, unless the policy is uncontrolled"),
    };
    Key { name: key_of(name), kind, default, about }
}

/// Returns all sections, in the order of the documentation.
#[must_use]
pub fn sections() -> Vec<Section> {
    vec![node(), bus(), send(), receive(), listen(), connect(), sequencer(), budget()]
}

fn node() -> Section {
    let mut keys = vec![
        required(
            "realm",
            Kind::Segment,
            "The nodes of one realm hear one another. Datagrams of other realms are dropped",
        ),
        without(
            "name",
            Kind::Segment,
            "the name of the host",
            "How other nodes, logs and metrics call this one",
        ),
        without(
            "id",
            Kind::Count(1, u32::MAX as u64),
            "made of the machine's id, the realm and the name",
            "The number of the node as a source. Two nodes with one number are noticed, and one of them stops",
        ),
        with(
            "bus",
            Kind::Bus,
            "\"default\"",
            "The bus between which and the network the node moves messages",
        ),
        without(
            "state",
            Kind::Path,
            "memory",
            "Where the node remembers how far its streams were sent. Without it, what is published while a sending node is away is \
             lost, and receivers report it. If the bus is on a disk, each start without it is another series, and receivers report \
             that more may be missing. A node that only receives needs none: its bus remembers what has arrived. A node with \
             `[sequencer]` needs it: it notes there which buses of commands it has had",
        ),
        without(
            "key_file",
            Kind::Path,
            "no authentication",
            "A file of 32 bytes, readable only for its owner, with which all datagrams of the realm are authenticated",
        ),
        without(
            "key_file_next",
            Kind::Path,
            "none",
            "A second key that is accepted too, to change keys without a stop",
        ),
        with(
            "interfaces",
            Kind::Names,
            "[]",
            "The interfaces on which the node sends and listens. Each datagram leaves on all of them. Required if the host \
             has several that can multicast",
        ),
        with(
            "poll",
            Kind::Choice(&["backoff", "busy"]),
            "\"backoff\"",
            "`backoff` sleeps when there is nothing to do. `busy` never sleeps: least latency for one processor",
        ),
        without(
            "cpu",
            Kind::Count(0, 4_095),
            "any",
            "The processor on which the node runs, with `busy`",
        ),
        without(
            "realtime",
            Kind::Count(1, 99),
            "the usual priority",
            "The priority in SCHED_FIFO, man 7 sched",
        ),
        with(
            "dscp",
            Kind::Count(0, 63),
            "0",
            "The class of what the node sends, datagrams and TCP: the DSCP of RFC 2474, by which switches and routers choose whom \
             to serve first, for example 46 (EF). Its upper three bits are the priority of the sockets (`SO_PRIORITY`), by which \
             this host does",
        ),
        without("metrics", Kind::Address, "no listener", "Where the node serves metrics over HTTP"),
        with(
            "strict_buffers",
            Kind::Flag,
            "false",
            "Whether the node refuses to start if the kernel gives a smaller receive buffer than it needs",
        ),
        with(
            "stall",
            time(0, 60 * SECOND),
            "\"50ms\"",
            "The longest time for which the node may not run, without a loss: receive buffers are made for it",
        ),
        with(
            "drain",
            time(0, 60 * SECOND),
            "\"5s\"",
            "How long the node goes on sending what is on the bus when it is stopped",
        ),
        with(
            "announce",
            Kind::Choice(&["interfaces", "observed"]),
            "\"interfaces\"",
            "Where receivers send what they ask: to the addresses of the interfaces, or to where datagrams come from, which is for \
             a network that translates addresses",
        ),
        with(
            "log",
            Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
            "\"info\"",
            "Which messages the node writes to its log",
        ),
    ];
    keys.extend(parameters(OF_NODES));
    Section {
        name: "node",
        is_list: false,
        about: "The process itself. This section is required.",
        keys,
    }
}

fn bus() -> Section {
    let keys = vec![
        with("name", Kind::Segment, "\"default\"", "The name of the bus"),
        without("directory", Kind::Path, "that of the library", "The directory of buses"),
        without(
            "capacity",
            bytes(64 * KIB, TIB),
            "that of the library",
            "The size of the ring, if the node creates the bus",
        ),
        without(
            "policy",
            Kind::BusPolicy,
            "that of the library",
            "How long publishers wait for slow subscribers, if the node creates the bus",
        ),
        without(
            "writers",
            Kind::Text,
            "none",
            "The group that may publish, if the node creates the bus",
        ),
        without(
            "readers",
            Kind::Text,
            "none",
            "The group that may subscribe, if the node creates the bus",
        ),
    ];
    let about =
        "The bus, if its name alone is not enough. If it does not exist, the node creates it.";
    Section { name: "node.bus", is_list: false, about, keys }
}

fn send() -> Section {
    let mut keys = vec![
        required(
            "stream",
            Kind::Count(0, STREAM_MAX),
            "The number of the stream, unique in the node",
        ),
        required(
            "patterns",
            Kind::Patterns,
            "Which topics the stream carries: at most 16 patterns. No topic may belong to two streams",
        ),
        with(
            "group",
            Kind::Group,
            "\"239.192.84.79:4479\"",
            "The multicast group to which the stream is sent",
        ),
        without(
            "to",
            Kind::Addresses,
            "multicast",
            "Receivers to whom the stream is sent one by one, where there is no multicast: at most 64",
        ),
        with(
            "policy",
            Kind::Choice(&["bounded", "uncontrolled", "slowest"]),
            "\"bounded\"",
            "`bounded`: no receiver holds the sender. `uncontrolled`: new data have no limit. `slowest`: the sender waits \
             for its required receivers",
        ),
        with("loop", Kind::Flag, "false", "Whether other nodes of this host hear the stream"),
        with(
            "express",
            Kind::Patterns,
            "[]",
            "Messages of these topics never wait in an incomplete datagram",
        ),
        with("prefix", Kind::Prefix, "\"\"", "Segments that are put before the topics"),
        with(
            "required",
            Kind::Names,
            "[]",
            "With the policy slowest: the names of the nodes that the sender waits for, if they ask for it with \
             `required = true`",
        ),
        without(
            "gating",
            Kind::Flag,
            "true with the policy slowest",
            "Whether the publishers of the bus wait for the node",
        ),
    ];
    keys.extend(parameters(OF_SENDERS));
    let about = "A stream that the node sends: the messages of some topics of its bus.";
    Section { name: "send", is_list: true, about, keys }
}

fn receive() -> Section {
    let mut keys = vec![
        with(
            "group",
            Kind::Group,
            "\"239.192.84.79:4479\"",
            "The multicast group that the node joins",
        ),
        with("accept", Kind::Patterns, "[\"**\"]", "Which topics are written to the bus"),
        with("prefix", Kind::Prefix, "\"\"", "Segments that are put before the topics"),
        with(
            "order",
            Kind::Choice(&["source", "arrival"]),
            "\"source\"",
            "`source`: each stream in its order, and what is behind a gap waits. `arrival`: each message when it is there",
        ),
        with(
            "join",
            Kind::Join,
            "\"live\"",
            "Where a source that is new begins: `live`, `window` for all that the sender still has, or a number",
        ),
        with(
            "replay_limit",
            time(0, HOUR),
            "\"60s\"",
            "How long a stream may wait for what was sent before it was joined, which the node asks for over TCP if the sender \
             has a `[listen]`; `0s`: it does not ask",
        ),
        with(
            "required",
            Kind::Flag,
            "false",
            "Whether senders with the policy slowest wait for this node",
        ),
        with(
            "proof",
            Kind::Flag,
            "true",
            "With a key: whether a stream is taken only after its sender has answered. `false` is for a node that can send nothing \
             to it, and believes recordings",
        ),
        with("sources", Kind::Names, "[]", "The nodes whose streams are taken; empty: all"),
        without(
            "lost_scope",
            Kind::Patterns,
            "the patterns of the stream",
            "Which subscribers hear of losses: those of these topics",
        ),
        with(
            "retain",
            Kind::Flag,
            "false",
            "Whether the bus keeps the newest message of each topic that arrives, for subscribers that join later",
        ),
        without(
            "into",
            Kind::Segment,
            "that of the node",
            "Another bus, to which the messages are written",
        ),
    ];
    keys.extend(parameters(OF_RECEIVERS));
    let about = "A group from which the node takes messages of other hosts into its bus.";
    Section { name: "receive", is_list: true, about, keys }
}

fn listen() -> Section {
    let keys = vec![
        required("address", Kind::Address, "Where nodes connect that multicast does not reach"),
        with(
            "patterns",
            Kind::Patterns,
            "[\"**\"]",
            "Which topics they can have beyond those of the node's `[[send]]` streams",
        ),
        with(
            "latency_bound",
            time(MILLISECOND, HOUR),
            "\"250ms\"",
            "What has waited for a slow receiver for longer is dropped, and reported to it as lost",
        ),
        with(
            "queue_bytes",
            bytes(256 * KIB, 64 * GIB),
            "\"4MiB\"",
            "What may wait for one receiver. A message may have half as many bytes, and at most 16 MiB",
        ),
        with(
            "batch_bytes",
            bytes(512, 64 * KIB),
            "\"16KiB\"",
            "The length at which a frame is complete. The node keeps as many bytes for each different set of patterns and `message_max`",
        ),
        with(
            "batch_delay",
            time(0, SECOND),
            "\"0s\"",
            "How long an incomplete frame waits for more messages, which adds to their age. 0 sends it as soon as no message \
             is left",
        ),
        with(
            "pace",
            Kind::Choice(&["source", "receiver"]),
            "\"source\"",
            "`source`: the sender never waits. `receiver`: it waits for the slowest connection",
        ),
        with(
            "hold_limit",
            time(10 * MILLISECOND, HOUR),
            "\"5s\"",
            "With the pace receiver: a connection that holds the sender for longer is closed",
        ),
        with(
            "stall",
            time(100 * MILLISECOND, HOUR),
            "\"10s\"",
            "A connection that takes nothing for that long is closed",
        ),
        with("clients", Kind::Count(1, 65_535), "1024", "How many connections there may be"),
        without(
            "replay_rate",
            RATE,
            "twice the greatest `data_rate`, else 1 Gbit/s",
            "The limit for history. Who catches up slower than the stream runs never does",
        ),
    ];
    let about = "Serves streams and history over TCP, with a bound on their age.";
    Section { name: "listen", is_list: false, about, keys }
}

fn connect() -> Section {
    let keys = vec![
        required("address", Kind::Host, "The node to connect to: the address of its `[listen]`"),
        with("patterns", Kind::Patterns, "[\"**\"]", "Which topics are taken"),
        with(
            "order",
            Kind::Choice(&["source", "arrival"]),
            "\"source\"",
            "As in `[[receive]]`. TCP keeps the order, so both are the same here",
        ),
        with(
            "retry",
            time(MILLISECOND, 5 * SECOND),
            "\"200ms\"",
            "The pause before it connects again. It doubles up to 5 s, and varies by a quarter",
        ),
        with(
            "activity",
            time(30 * MILLISECOND, 24 * HOUR),
            "\"10s\"",
            "After that long without a connection, its sources are gone",
        ),
        without(
            "lost_scope",
            Kind::Patterns,
            "the patterns of the stream",
            "Which subscribers hear of losses: those of these topics",
        ),
        with(
            "retain",
            Kind::Flag,
            "false",
            "Whether the bus keeps the newest message of each topic that arrives, for subscribers that join later",
        ),
        without(
            "bind",
            Kind::Address,
            "chosen by the kernel",
            "The address from which it connects",
        ),
    ];
    let about = "A node from which this one takes messages over TCP.";
    Section { name: "connect", is_list: true, about, keys }
}

fn sequencer() -> Section {
    let keys = vec![
        required("feed", Kind::Segment, "The name of the feed, and of the bus with its events"),
        required(
            "members",
            Kind::Members,
            "Who decides on the order: 1, 3 or 5 members, the same list in the same order everywhere",
        ),
        without(
            "member",
            Kind::Segment,
            "this node only follows",
            "Which of the members this node is",
        ),
        without(
            "group",
            Kind::Group,
            "TCP alone",
            "The multicast group in which the member that leads sends events. The same on all hosts. Needs `key_file` in [node]",
        ),
        without(
            "data_rate",
            RATE,
            "none: required with `group`",
            "The limit for events in the group. Hosts ask members for what is beyond it, over TCP",
        ),
        without("command_rate", RATE, "no limit", "The limit for the commands of this host"),
        with(
            "election_timeout",
            Kind::TimeRange,
            "\"150ms..300ms\"",
            "A voter holds to a leader for the longer of the two after it heard from it. All times of elections follow from that. The shorter must be longer than a heartbeat. A longer one tolerates slower disks and networks, and makes commands wait longer after a leader was lost",
        ),
        with(
            "heartbeat",
            time(MILLISECOND, 10 * SECOND),
            "\"50ms\"",
            "How often a leader says that it lives",
        ),
        with(
            "sync",
            Kind::Choice(&["always", "interval"]),
            "\"always\"",
            "Whether a member writes its log to the disk before it confirms, or at intervals",
        ),
        with("sync_interval", time(MILLISECOND, 10 * SECOND), "\"50ms\"", "The interval of `sync`"),
        without(
            "log",
            Kind::Path,
            "`log` in the directory `state`",
            "Where a member keeps its log",
        ),
        with("retain", bytes(1 << 20, 1024 * TIB), "\"10GiB\"", "How much of the log stays"),
        with(
            "archive",
            Kind::Flag,
            "false",
            "Whether this node, which is no member, keeps all events on a disk, for hosts that ask for what members no longer have",
        ),
        without(
            "archive_address",
            Kind::Address,
            "required with `archive`",
            "Where it answers. The `archives` of other nodes have this address",
        ),
        without(
            "archive_directory",
            Kind::Path,
            "`archive` in the directory `state`",
            "Where it keeps them",
        ),
        without(
            "archive_capacity",
            bytes(64 << 20, 1024 * TIB),
            "required with `archive`",
            "How much it keeps. Then the oldest events go. They also go if the disk is full, which no other use of that disk should suffer from: leave room",
        ),
        with(
            "archives",
            Kind::Hosts,
            "[]",
            "Nodes with an archive, which are asked for what is no longer in the logs of members",
        ),
        with(
            "on_divergence",
            Kind::Choice(&["stop", "report"]),
            "\"stop\"",
            "What a node does if the events on its bus are not those of the order",
        ),
    ];
    let about = "Takes part in one order over several hosts, or follows it.";
    Section { name: "sequencer", is_list: false, about, keys }
}

fn budget() -> Section {
    let part = |name, about| without(name, time(0, HOUR), "measured, not limited", about);
    let keys = vec![
        part("total", "From the first sending, or the publisher's time stamp, to the ring"),
        part("bus", "From the publisher's time stamp to the node"),
        part("batching", "From the node to a complete datagram"),
        part("pacing", "From a complete datagram to the kernel: waiting for the rate limits"),
        part(
            "network",
            "From the first sending to the receiving kernel. The clocks of two hosts differ",
        ),
        part("socket", "From the receiving kernel to the node"),
        part("repair", "From the discovery of a gap to its repair"),
        part("order", "From reading to delivery: waiting behind a gap"),
        part("ring", "From delivery to the commit in the ring"),
        part("tcp_queue", "From a frame to its last byte written"),
    ];
    let about = "Limits for latencies. Each excess is counted, logged and published.";
    Section { name: "budget", is_list: false, about, keys }
}
