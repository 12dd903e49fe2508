//! Start: from a configuration to a node that can run.

use super::config::{self, Destination, Join};
use super::state::{State, StateError};
use super::{Receive, Send, Settings, tcp};
use crate::host::buffers::{Load, USUAL_DATAGRAM};
use crate::host::ethtool::Ethtool;
use crate::host::interface::{self, Interface, InterfaceError};
use crate::membership::Membership;
use crate::now::now;
use crate::socket::Options;
use crate::socket::buffer::Charge;
use crate::{inlet, outlet};
use rustix::fs::Mode;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use toroni::{Bus, BusConfig, OpenError, Start};
use toroni_proto::id::{Realm, Session, Source, Stream};
use toroni_proto::wire::{Key, Keys, NodeName, Policy};

/// The rate for which a receive buffer is made where the interface states no speed: 1 Gbit/s.
const USUAL_RATE: u64 = 1_000_000_000;

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration asks for something that this version does not do.
    #[error("this version does not do {what} yet: leave it out")]
    NotYet {
        /// The setting.
        what: String,
    },
    /// The interfaces of this host do not fit.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
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
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The kernel gives no random numbers.
    #[error("cannot read /dev/urandom: {0}")]
    Random(io::Error),
    /// The clock is beyond 2156.
    #[error(
        "the clock of this host is beyond the year 2156, after which there are no sessions: set it"
    )]
    Clock,
}

/// Opens what a configuration names: bus, state, key and interfaces. Opens no socket yet.
///
/// # Errors
/// See [`StartError`].
pub fn prepare(config: &config::Node) -> Result<(Bus, Settings), StartError> {
    if let Some(what) = not_yet(config) {
        return Err(StartError::NotYet { what });
    }
    let name = match &config.name {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    let source = config.id.map_or_else(|| source_of(&config.realm, &name), Source);
    let interfaces = match &config.interfaces[..] {
        // TCP finds its way without.
        [] if config.sends.is_empty() && config.receives.is_empty() => Vec::new(),
        [] => vec![interface::only()?],
        names => names.iter().map(|name| interface::named(name)).collect::<Result<_, _>>()?,
    };
    let keys = keys(config)?;
    let bus = open(&config.bus)?;
    let state = config.state.as_deref().map(State::open).transpose()?.map(Arc::new);
    let session = match &state {
        Some(state) => state.begin_session(now().wall)?,
        None => Session::begin(now().wall, None).ok_or(StartError::Clock)?,
    };
    let ttl = config.sends.iter().map(|send| send.config.ttl).max();
    let sockets = Options {
        ttl: ttl.unwrap_or(Options::default().ttl),
        is_looped: config.sends.iter().any(|send| send.config.loopback),
        receive_buffer: Some(buffer(&interfaces, config.stall)),
        ..Options::default()
    };
    let member = Membership {
        realm: Realm::of(&config.realm),
        keys,
        name,
        source,
        session,
        instance: random().map_err(StartError::Random)?,
        interfaces,
        sockets,
    };
    let mtu = member.interfaces.iter().map(|interface| interface.mtu).min();
    let send = config.sends.iter().map(|send| sending(send, mtu)).collect();
    let receive = receiving(&config.receives);
    let listen = config.listen.as_ref().map(|listen| listening(listen, &config.sends));
    let connect = config.connects.iter().map(connecting).collect();
    Ok((bus, Settings { member, send, receive, listen, connect, state }))
}

/// Returns the first setting that has no effect in this version. A setting without effect would be a promise.
fn not_yet(config: &config::Node) -> Option<String> {
    let is = |given: bool, what: &str| given.then(|| what.to_owned());
    let of_node = [
        is(config.sequencer.is_some(), "[sequencer]"),
        is(!config.budget.is_empty(), "[budget]"),
        is(config.metrics.is_some(), "metrics in [node]"),
        is(config.is_busy, "poll = \"busy\" in [node]"),
        is(config.cpu.is_some(), "cpu in [node]"),
        is(config.realtime.is_some(), "realtime in [node]"),
        is(config.strict_buffers, "strict_buffers in [node]"),
        is(config.log != "info", "log in [node]"),
    ];
    let of_sends = config.sends.iter().flat_map(|send| {
        let of = |what: &str| format!("{what} in [[send]] {}", send.stream);
        [
            is(send.config.policy == Policy::Slowest, &of("policy = \"slowest\"")),
            is(send.is_gating, &of("gating = true")),
        ]
    });
    let first = config.receives.first();
    let of_receives = config.receives.iter().flat_map(|receive| {
        let of = |what: &str| format!("{what} in [[receive]] {}", receive.group);
        let differs = first.is_some_and(|first| {
            (&first.accept, &first.prefix, &first.config)
                != (&receive.accept, &receive.prefix, &receive.config)
        });
        [
            is(receive.join != Join::Live, &of("join")),
            is(receive.is_required, &of("required = true")),
            is(!receive.sources.is_empty(), &of("sources")),
            is(receive.lost_scope.is_some(), &of("lost_scope")),
            is(receive.into.is_some(), &of("into")),
            is(differs, &of("settings other than those of the first group,")),
        ]
    });
    of_node.into_iter().chain(of_sends).chain(of_receives).flatten().next()
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

fn keys(config: &config::Node) -> Result<Option<Keys>, StartError> {
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

/// Returns the receive buffer that survives the stall at the speed of the fastest interface.
fn buffer(interfaces: &[Interface], stall: Duration) -> u64 {
    let speed = |interface: &Interface| Ethtool::open(&interface.name).ok()?.link()?.speed;
    let rate = interfaces.iter().filter_map(speed).max().unwrap_or(USUAL_RATE);
    Load::new(rate, USUAL_DATAGRAM, Charge::of(USUAL_DATAGRAM).bytes).request(stall)
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn sending(send: &config::Outgoing, mtu: Option<u32>) -> Send {
    let mut config = send.config.clone();
    if let (true, Some(mtu)) = (send.fills_mtu, mtu) {
        // The headers of IPv6 and UDP; those of IPv4 are shorter.
        config.datagram_bytes = u64::from(mtu.saturating_sub(48));
    }
    Send {
        stream: Stream(send.stream),
        selection: outlet::Selection {
            patterns: send.patterns.clone(),
            prefix: send.prefix.clone(),
            express: send.express.clone(),
        },
        config,
        to: match &send.to {
            Destination::Group(group) => vec![*group],
            Destination::Addresses(all) => all.clone(),
        },
        start: Start::Latest,
    }
}

fn receiving(receives: &[config::Incoming]) -> Option<Receive> {
    let first = receives.first()?;
    Some(Receive {
        groups: receives.iter().map(|receive| receive.group).collect(),
        selection: inlet::Selection {
            accept: first.accept.clone(),
            prefix: first.prefix.clone(),
            order: first.config.order,
        },
        config: first.config.clone(),
    })
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
        address: connect.address,
        patterns: connect.patterns.clone(),
        bind: connect.bind,
        config: connect.parameters(),
    }
}
