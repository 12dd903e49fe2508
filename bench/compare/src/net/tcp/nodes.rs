//! Toroni: a node that listens, and a node and a bus at each client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use toroni::{BusConfig, Pattern, Policy, Publisher, ReceiveError, Subscriber};
use toroni_bench_harness::Failure;
use toroni_net::node::tcp::{Connect, Listen};
use toroni_net::node::{self, Event, Node, tcp};
use toroni_proto::config::tcp::TcpConfig;
use toroni_testkit::Directory;
use toroni_testkit::network::Host;

use super::super::rig::{self, Running, TOPIC};
use super::{BOUND, Client, Ends, PORT, Server};

const PATIENCE: Duration = Duration::from_secs(20);

struct Listening {
    publisher: Publisher,
    _node: Running,
    _directory: Directory,
}

struct Connected {
    subscriber: Subscriber,
    node: Node,
    _directory: Directory,
}

fn config() -> TcpConfig {
    let latency_bound_ns = u64::try_from(BOUND.as_nanos()).unwrap_or(u64::MAX);
    TcpConfig { latency_bound_ns, clients: 16, sets: 16, ..TcpConfig::default() }
}

fn bus(directory: &Directory) -> Result<toroni::Bus, Failure> {
    // No publisher waits when the bus is full: what the network brings, or a client misses, must not delay the others.
    let config = BusConfig::new().directory(directory.path()).capacity(16 << 20);
    config.policy(Policy::Overwrite).create("tcp").map_err(Failure::of("create a bus"))
}

pub(super) fn open(hosts: &[Host]) -> Result<Ends, Failure> {
    let [at, others @ ..] = hosts else { return Err(Failure::new("no hosts")) };
    let address = SocketAddr::new(at.address().into(), PORT);
    let server = at.enter(|| listen(address))?;
    let mut clients: Vec<Connected> = Vec::new();
    for (number, host) in (1..).zip(others) {
        clients.push(host.enter(|| connect(address, number))?);
    }
    let clients = clients.into_iter().map(|client| Box::new(client) as Box<dyn Client>);
    Ok((Box::new(server), clients.collect()))
}

fn listen(address: SocketAddr) -> Result<Listening, Failure> {
    let directory = Directory::new();
    let bus = bus(&directory)?;
    let publisher = bus.publisher(TOPIC).map_err(Failure::of("open a publisher"))?;
    let listen = Listen { address, patterns: vec![Pattern::everything()], config: config() };
    let settings = node::Settings { listen: Some(listen), ..rig::settings(0)? };
    let node = Node::new(&bus, &settings).map_err(Failure::of("start a node"))?;
    Ok(Listening { publisher, _node: Running::start(node), _directory: directory })
}

fn connect(address: SocketAddr, number: u8) -> Result<Connected, Failure> {
    let directory = Directory::new();
    let bus = bus(&directory)?;
    let subscriber = bus.subscribe("**").map_err(Failure::of("subscribe"))?;
    let patterns = vec![Pattern::everything()];
    let connect = Connect {
        address: address.into(),
        patterns,
        bind: None,
        activity: Duration::from_secs(10),
        lost_scope: None,
        retains: false,
        config: config(),
    };
    let settings = node::Settings { connect: vec![connect], ..rig::settings(number)? };
    let mut node = Node::new(&bus, &settings).map_err(Failure::of("start a node"))?;
    let begin = Instant::now();
    // Here, because only this thread is on the host.
    while !matches!(node.event(), Some(Event::Tcp(tcp::Event::Connected(_)))) {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("a client does not connect"));
        }
        node.turn().map_err(Failure::of("connect"))?;
    }
    Ok(Connected { subscriber, node, _directory: directory })
}

impl Server for Listening {
    fn publish(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.publisher.publish(payload).map(drop).map_err(Failure::of("publish"))
    }
}

impl Client for Connected {
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
        let mut has_more = self.node.turn().map_err(Failure::of("receive"))?;
        while self.node.event().is_some() {}
        loop {
            match self.subscriber.try_receive() {
                Ok(Some(message)) => {
                    each(message.payload());
                    has_more = true;
                }
                Ok(None) => break,
                Err(ReceiveError::Lost(_) | ReceiveError::Lapped { .. }) => {}
                Err(error) => return Err(Failure::of("receive")(error)),
            }
        }
        if has_more { Ok(()) } else { self.node.wait(None).map_err(Failure::of("wait")) }
    }
}
