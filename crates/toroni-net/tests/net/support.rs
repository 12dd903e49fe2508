//! Nodes in threads, and what they send and receive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, Pattern, ReceiveError, Start, Subscriber};
use toroni_net::host::interface;
use toroni_net::membership::Membership;
use toroni_net::node::{Event, Node, Receive, Send, Settings, tcp};
use toroni_net::socket::{Datagram, Options};
use toroni_net::{inlet, outlet};
use toroni_proto::arrivals;
use toroni_proto::config::{Config, Order};
use toroni_proto::id::{Realm, Session, Source, Stream};
use toroni_proto::time::SECOND;
use toroni_testkit::Directory;

/// Nothing here takes this long, unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A node in a thread of its own. It ends when it is dropped, or when the test panics.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    /// Whether it ends as after a SIGKILL, without a word to the others.
    dies: Arc<AtomicBool>,
    /// How many streams it has followed.
    joined: Arc<AtomicUsize>,
    /// How many datagrams with messages it has sent.
    sent: Arc<AtomicUsize>,
    /// How often it has connected over TCP, and how often a connection has ended.
    connections: Arc<[AtomicUsize; 2]>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(bus: &Bus, settings: &Settings) -> Self {
        let mut node = Node::new(bus, settings).unwrap();
        let [stop, dies] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let [joined, sent] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let counted = sent.clone();
        let connections = Arc::new([0, 0].map(AtomicUsize::new));
        let changes = connections.clone();
        let (asked, killed, heard) = (stop.clone(), dies.clone(), joined.clone());
        let thread = std::thread::spawn(move || {
            let mut is_ending = false;
            while !(killed.load(Ordering::Relaxed) || is_ending && node.is_closed()) {
                if asked.load(Ordering::Relaxed) && !is_ending {
                    is_ending = true;
                    node.end(false);
                }
                let has_more = node.turn().unwrap();
                let datagrams = node.outlets().map(|(_, outlet)| outlet.sender().counters().data);
                counted.store(usize::try_from(datagrams.sum::<u64>()).unwrap(), Ordering::Relaxed);
                while let Some(event) = node.event() {
                    if matches!(event, Event::Arrivals(arrivals::Event::Joined(_))) {
                        heard.fetch_add(1, Ordering::Relaxed);
                    }
                    let change = match event {
                        Event::Tcp(tcp::Event::Connected(_)) => Some(0),
                        Event::Tcp(tcp::Event::Disconnected { error: None, .. }) => Some(1),
                        _ => None,
                    };
                    if let Some(change) = change {
                        changes[change].fetch_add(1, Ordering::Relaxed);
                    }
                }
                if !has_more {
                    node.wait(None).unwrap();
                }
            }
        });
        Self { stop, dies, joined, sent, connections, thread: Some(thread) }
    }

    pub(crate) fn die(self) {
        self.dies.store(true, Ordering::Relaxed);
    }

    /// Waits until it follows `streams` streams.
    pub(crate) fn has_joined(&self, streams: usize) {
        reaches(&self.joined, streams, "the node hears nothing");
    }

    /// Waits until it has sent this many datagrams with messages.
    pub(crate) fn has_sent(&self, datagrams: usize) {
        reaches(&self.sent, datagrams, "the node does not send");
    }

    /// Waits until it has connected over TCP so often.
    pub(crate) fn has_connected(&self, times: usize) {
        reaches(&self.connections[0], times, "the node does not connect");
    }

    /// Returns how many connections have ended.
    pub(crate) fn disconnections(&self) -> usize {
        self.connections[1].load(Ordering::Relaxed)
    }

    /// Waits until this many connections have ended.
    pub(crate) fn has_disconnected(&self, times: usize) {
        reaches(&self.connections[1], times, "the connection does not end");
    }
}

/// Waits until a count is at least this much.
pub(crate) fn reaches(count: &AtomicUsize, wanted: usize, otherwise: &str) {
    let begin = Instant::now();
    while count.load(Ordering::Relaxed) < wanted {
        assert!(begin.elapsed() < PATIENCE, "{otherwise}");
        std::thread::yield_now();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().unwrap().join();
        assert!(outcome.is_ok() || std::thread::panicking(), "the node has panicked");
    }
}

/// A group whose port no other test uses now.
pub(crate) fn group() -> SocketAddr {
    let lo = interface::named("lo").unwrap();
    let free = Datagram::leg("127.0.0.1:0".parse().unwrap(), &lo, &Options::default()).unwrap();
    SocketAddr::new("239.192.84.79".parse().unwrap(), free.address().port())
}

/// Repairs may take as long as a busy machine makes them take: the window holds all that a test sends.
pub(crate) fn config(data_rate: u64) -> Config {
    Config { generation_ns: 8 * SECOND, ..Config::with_rate(data_rate) }
}

pub(crate) fn everything() -> Vec<Pattern> {
    vec![Pattern::everything()]
}

/// Tests run at the same time, on one host.
pub(crate) fn realm() -> Realm {
    Realm::of(&format!("{} {:?}", std::process::id(), std::thread::current().name()))
}

pub(crate) fn settings(interfaces: &[&str], name: &str, source: u32) -> Settings {
    let member = Membership {
        realm: realm(),
        keys: None,
        name: name.to_owned(),
        source: Source(source),
        session: Session(1),
        instance: [u8::try_from(source).unwrap(); 16],
        is_observed: false,
        interfaces: interfaces.iter().map(|name| interface::named(name).unwrap()).collect(),
        sockets: Options { ttl: 1, is_looped: true, ..Options::default() },
        claim: None,
    };
    Settings::new(member)
}

pub(crate) fn sending(settings: Settings, group: SocketAddr, config: &Config) -> Settings {
    let patterns = everything();
    let selection = outlet::Selection { patterns, prefix: String::new(), express: Vec::new() };
    let (config, to, start) = (config.clone(), vec![group], Start::Latest);
    let (is_gating, required) = (false, Vec::new());
    let send = Send { stream: Stream(1), selection, config, to, start, is_gating, required };
    Settings { send: vec![send], ..settings }
}

pub(crate) fn receiving(settings: Settings, group: SocketAddr, config: &Config) -> Settings {
    let (accept, order) = (everything(), Order::Source);
    let selection = inlet::Selection { accept, prefix: String::new(), order };
    let receive = Receive {
        groups: vec![group],
        selection,
        config: config.clone(),
        sources: Vec::new(),
        is_required: false,
        lost_scope: None,
        retains: false,
        into: None,
        fetch: toroni_net::node::fetch::Settings::default(),
    };
    Settings { receive: vec![receive], ..settings }
}

pub(crate) fn buses<const N: usize>(directory: &Directory) -> [Bus; N] {
    std::array::from_fn(|number| {
        let config = BusConfig::new().directory(directory.path()).capacity(16 << 20);
        config.open(&format!("bus{number}")).unwrap()
    })
}

/// Receives `count` messages. A loss fails the test.
pub(crate) fn receive(subscriber: &mut Subscriber, count: usize) -> Vec<(String, Vec<u8>)> {
    let begin = Instant::now();
    let mut received = Vec::with_capacity(count);
    while received.len() < count {
        assert!(begin.elapsed() < PATIENCE, "{} of {count} messages came", received.len());
        match subscriber.receive_timeout(Duration::from_secs(1)) {
            Ok(Some(message)) => {
                received.push((message.topic().to_owned(), message.payload().to_vec()));
            }
            Ok(None) => {}
            Err(ReceiveError::Lost(lost)) => panic!("after {}: {lost}", received.len()),
            Err(error) => panic!("{error}"),
        }
    }
    received
}
