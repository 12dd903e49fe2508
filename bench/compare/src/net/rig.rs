//! Hosts, senders and receivers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::time::{ClockId, clock_gettime};
use toroni::{Pattern, Start};
use toroni_bench_harness::Failure;
use toroni_net::direct::{Direct, Receive, Send, Settings};
use toroni_net::host::interface;
use toroni_net::membership::Membership;
use toroni_net::node::{self, Node};
use toroni_net::socket::Options;
use toroni_net::{inlet, outlet};
use toroni_proto::config::Config;
use toroni_proto::id::{Realm, Session, Source, Stream};
use toroni_testkit::network::{Host, Network, Setup};

/// The group of all experiments.
pub(super) const GROUP: &str = "239.192.84.79:4479";
/// The topic of all messages.
pub(super) const TOPIC: &str = "bench/net";

/// Joins this many hosts by a bridge of the kernel.
pub(super) fn bridged(hosts: u8) -> Result<Network, Failure> {
    Setup::new(hosts).bridged().ok_or_else(no_network)
}

/// Joins this many hosts by a switch whose faults follow from a seed.
pub(super) fn switched(hosts: u8, seed: u64) -> Result<Network, Failure> {
    Setup::new(hosts).switched(seed).ok_or_else(no_network)
}

fn no_network() -> Failure {
    Failure::new("this needs network namespaces: run it as root")
}

/// What a socket asks for, in bytes.
pub(super) const RECEIVE_BUFFER: u64 = 8 << 20;

/// The name of a host, by its number.
pub(super) fn name(number: u8) -> String {
    format!("host-{number}")
}

/// A process on the host of the calling thread. Its source is the number of its host plus 1.
fn member(number: u8) -> Result<Membership, Failure> {
    Ok(Membership {
        realm: Realm::of("bench"),
        keys: None,
        name: name(number),
        source: Source(u32::from(number) + 1),
        session: Session(1),
        instance: [number; 16],
        is_observed: false,
        interfaces: vec![interface::named("eth0").map_err(Failure::of("find eth0"))?],
        sockets: Options { receive_buffer: Some(RECEIVE_BUFFER), ..Options::default() },
        claim: None,
    })
}

fn group() -> SocketAddr {
    GROUP.parse().expect("the address of a group")
}

/// Opens a program on a host that sends and receives as asked.
pub(super) fn open(
    host: &Host,
    number: u8,
    send: Option<&Config>,
    receive: Option<&Config>,
) -> Result<Direct, Failure> {
    host.enter(|| open_here(number, send, receive))
}

/// Opens a program on the host of the calling thread that sends and receives as asked.
pub(super) fn open_here(
    number: u8,
    send: Option<&Config>,
    receive: Option<&Config>,
) -> Result<Direct, Failure> {
    let send = send.map(|config| Send {
        stream: Stream(1),
        patterns: vec!["**".to_owned()],
        config: config.clone(),
        to: vec![group()],
    });
    let receive = receive.map(|config| Receive { groups: vec![group()], config: config.clone() });
    let settings = Settings { member: member(number)?, send, receive };
    Direct::open(&settings).map_err(Failure::of("open a socket"))
}

/// A node on the host of the calling thread that does nothing yet.
pub(super) fn settings(number: u8) -> Result<node::Settings, Failure> {
    Ok(node::Settings::new(member(number)?))
}

/// The same node, which sends all of its bus to the group, and waits for `required` if its policy says so.
pub(super) fn sending(
    settings: node::Settings,
    config: &Config,
    required: &[String],
) -> node::Settings {
    let patterns = vec![Pattern::everything()];
    let send = node::Send {
        stream: Stream(1),
        selection: outlet::Selection { patterns, prefix: String::new(), express: Vec::new() },
        config: config.clone(),
        to: vec![group()],
        start: Start::Latest,
        is_gating: !required.is_empty(),
        required: required.to_vec(),
    };
    node::Settings { send: vec![send], ..settings }
}

/// The same node, which receives all of the group. Senders whose policy says so wait for it.
pub(super) fn receiving(settings: node::Settings, config: &Config) -> node::Settings {
    let accept = vec![Pattern::everything()];
    let receive = node::Receive {
        groups: vec![group()],
        selection: inlet::Selection { accept, prefix: String::new(), order: config.order },
        config: config.clone(),
        sources: Vec::new(),
        is_required: true,
        lost_scope: None,
        retains: false,
        into: None,
        fetch: node::fetch::Settings::default(),
    };
    node::Settings { receive: vec![receive], ..settings }
}

/// A node in a thread. It ends when this is dropped.
pub(super) struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(super) fn start(mut node: Node) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                match node.turn() {
                    Ok(true) => {}
                    Ok(false) if node.wait(None).is_ok() => {}
                    // The other end sees that nothing comes any more.
                    _ => return,
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How long this thread has run, in nanoseconds.
pub(super) fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
