//! Buses and bridges of one process, connected over loopback TCP.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, Lost, Policy, ReceiveError, Subscriber};
use toroni_testkit::{Directory, Program};
use toroni_zenoh::config::{BusSettings, Export, Import, ZenohSource};
use toroni_zenoh::{Bridge, Config, State};
use zenoh::{Session, Wait};

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Returns a port of the loopback interface that is free.
pub(crate) fn free_port() -> u16 {
    toroni_testkit::port::free().port()
}

/// Returns a configuration of Zenoh: a peer on a port, connected to others, without scouting.
pub(crate) fn zenoh(port: u16, others: &[u16]) -> serde_json::Map<String, serde_json::Value> {
    let endpoint = |port: &u16| format!("tcp/127.0.0.1:{port}");
    let table = serde_json::json!({
        "mode": "peer",
        "listen": { "endpoints": [endpoint(&port)] },
        "connect": { "endpoints": others.iter().map(endpoint).collect::<Vec<_>>() },
        "scouting": { "multicast": { "enabled": false }, "gossip": { "enabled": false } },
    });
    let serde_json::Value::Object(table) = table else { unreachable!() };
    table
}

/// A bus in a directory of its own.
pub(crate) struct Site {
    pub(crate) directory: Directory,
    pub(crate) bus: Bus,
    pub(crate) port: u16,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(BusConfig::new().capacity(64 << 20).policy(Policy::Wait { limit: None }))
    }

    pub(crate) fn with(config: BusConfig) -> Self {
        let directory = Directory::new();
        let bus = config.directory(directory.path()).open("default").unwrap();
        Self { directory, bus, port: free_port() }
    }

    /// Returns the settings of a bridge of this bus that listens on its port, and connects to others.
    pub(crate) fn config(&self, others: &[&Site]) -> Config {
        self.config_at(self.port, &others.iter().map(|site| site.port).collect::<Vec<_>>())
    }

    pub(crate) fn config_at(&self, port: u16, others: &[u16]) -> Config {
        let directory = Some(self.directory.path().to_owned());
        Config {
            bus: BusSettings { name: "default".to_owned(), directory },
            zenoh: ZenohSource::Table(zenoh(port, others)),
            heartbeat: Duration::from_millis(100),
            settle: Duration::from_millis(300),
            ..Config::default()
        }
    }

    /// Starts a bridge that exports, and connects to others.
    pub(crate) fn exporting(&self, export: Export, others: &[&Site]) -> Bridge {
        start(&Config { exports: vec![export], ..self.config(others) })
    }

    /// Starts a bridge that imports, and connects to others.
    pub(crate) fn importing(&self, import: Import, others: &[&Site]) -> Bridge {
        start(&Config { imports: vec![import], ..self.config(others) })
    }

    pub(crate) fn subscribe(&self, pattern: &str) -> Subscriber {
        self.bus.subscribe(pattern).unwrap()
    }

    pub(crate) fn publish(&self, topic: &str, payload: impl AsRef<[u8]>) {
        self.bus.publisher(topic).unwrap().publish(payload).unwrap();
    }
}

/// An export whose subscriber gates: nothing is overwritten before it is sent. Zenoh waits for room.
pub(crate) fn export(patterns: &[&str]) -> Export {
    let mut export = Export::new(patterns.iter().copied());
    export.gating = true;
    export.congestion = toroni_zenoh::config::Congestion::Block;
    export
}

/// The same, and it sends what comes from elsewhere, too.
pub(crate) fn relay(patterns: &[&str]) -> Export {
    let mut export = export(patterns);
    export.relay = true;
    export
}

/// An import, which takes batches in the tests of `batches.rs`.
pub(crate) fn import(patterns: &[&str]) -> Import {
    let batches = env!("CARGO_CRATE_NAME") == "batches";
    Import { batches, ..Import::new(patterns.iter().copied()) }
}

/// Starts a bridge, and waits until it works.
pub(crate) fn start(config: &Config) -> Bridge {
    let bridge = Bridge::start(config).unwrap();
    assert_eq!(bridge.wait_for(&State::Active, LONG), State::Active);
    bridge
}

/// Starts the program with a file of its own, and does not wait until it is ready.
pub(crate) fn start_program(file: &Path, text: &str) -> Program {
    std::fs::write(file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-zenoh"));
    command.arg("--config").arg(file).env_remove("TORONI_LOG").env_remove("TORONI_BUS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Program::start_with_ready_fd(command)
}

/// Two sites, and bridges that take everything from the first to the second.
pub(crate) struct Pair {
    pub(crate) a: Site,
    pub(crate) b: Site,
    pub(crate) from: Bridge,
    pub(crate) to: Bridge,
    /// Of all that arrives at the second. The way there is open.
    pub(crate) subscriber: Subscriber,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::of(Site::new(), Site::new())
    }

    pub(crate) fn of(a: Site, b: Site) -> Self {
        let from = a.exporting(export(&["**"]), &[]);
        let to = b.importing(import(&["**"]), &[&a]);
        let mut subscriber = b.subscribe("**");
        connect(&a, "x", &mut subscriber);
        Self { a, b, from, to, subscriber }
    }
}

/// Opens a session of a program that is no bridge, and connects it to a site.
pub(crate) fn peer(site: &Site) -> Session {
    let table = serde_json::Value::Object(zenoh(free_port(), &[site.port])).to_string();
    zenoh::open(zenoh::Config::from_json5(&table).unwrap()).wait().unwrap()
}

/// Puts on a key until a message arrives at the subscriber: the way is open, and empty after it.
pub(crate) fn connect_peer(peer: &Session, key: &str, subscriber: &mut Subscriber) {
    wait_until("no connection", || {
        peer.put(key, "probe").wait().unwrap();
        next_within(subscriber, Duration::from_millis(100)).is_some()
    });
    peer.put(key, "connected").wait().unwrap();
    until(subscriber, "connected");
}

/// What a subscriber got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Message { topic: String, payload: String },
    Lost(Lost),
}

impl Got {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Message { topic, payload } => format!("{topic}={payload}"),
            Self::Lost(lost) => format!("lost {} {}", lost.messages, lost.reason.as_str()),
        }
    }
}

/// Returns what was got as text.
pub(crate) fn payloads(got: &[Got]) -> Vec<String> {
    got.iter().map(Got::text).collect()
}

/// Receives within a time.
pub(crate) fn next_within(subscriber: &mut Subscriber, timeout: Duration) -> Option<Got> {
    match subscriber.receive_timeout(timeout) {
        Ok(None) => None,
        Ok(Some(message)) => Some(Got::Message {
            topic: message.topic().to_owned(),
            payload: message.text().into_owned(),
        }),
        Err(ReceiveError::Lost(lost)) => Some(Got::Lost(*lost)),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn next(subscriber: &mut Subscriber) -> Got {
    next_within(subscriber, LONG).expect("nothing came")
}

/// Receives until a message has this payload, which is not returned.
pub(crate) fn until(subscriber: &mut Subscriber, last: &str) -> Vec<Got> {
    let mut all = Vec::new();
    let deadline = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < deadline, "{last} did not come, but {} others", all.len());
        match next(subscriber) {
            Got::Message { payload, .. } if payload == last => return all,
            got => all.push(got),
        }
    }
}

/// Publishes on one bus until a message arrives at the subscriber of another: the way is open, and empty after it.
pub(crate) fn connect(from: &Site, topic: &str, to: &mut Subscriber) {
    let publisher = from.bus.publisher(topic).unwrap();
    let deadline = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < deadline, "no connection");
        publisher.publish("probe").unwrap();
        if next_within(to, Duration::from_millis(100)).is_some() {
            break;
        }
    }
    publisher.publish("connected").unwrap();
    until(to, "connected");
}

/// Waits until something is true.
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
