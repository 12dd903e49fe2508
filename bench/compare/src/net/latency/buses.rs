//! Both ends of a conversation on buses: publisher, bus, node, network, node, bus, subscriber.
//!
//! All of them sleep while nothing comes. If they polled, two nodes, a publisher and a subscriber would need four cores.

use std::time::{Duration, Instant};

use toroni::{Bus, BusConfig, Publisher, Subscriber};
use toroni_bench_harness::Failure;
use toroni_net::node::{Event, Node};
use toroni_proto::arrivals;
use toroni_testkit::Directory;
use toroni_testkit::network::{Host, Network};

use super::super::rig::{self, Running};
use super::ends::End;
use super::{LONGEST_WAIT, PATIENCE, config, two_hosts};

/// Topics of the two directions: a subscriber does not hear what is published on its own bus.
const TOPICS: [&str; 2] = ["bench/net/there", "bench/net/back"];
const CAPACITY: u64 = 4 << 20;

/// A program with a bus, and the node of its host. Fields are dropped in this order.
struct OnBus {
    publisher: Publisher,
    subscriber: Subscriber,
    _node: Running,
    _directory: Directory,
}

impl End for OnBus {
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.publisher.publish(payload).map(drop).map_err(Failure::of("publish"))
    }

    fn receive(&mut self) -> Result<bool, Failure> {
        let received = self.subscriber.receive_timeout(LONGEST_WAIT);
        Ok(received.map_err(Failure::of("receive"))?.is_some())
    }
}

/// An end whose node does not run yet.
struct Prepared {
    directory: Directory,
    bus: Bus,
    node: Node,
    has_joined: bool,
}

impl Prepared {
    fn open(host: &Host, number: u8) -> Result<Self, Failure> {
        let directory = Directory::new();
        let bus = BusConfig::new().directory(directory.path()).capacity(CAPACITY).prefault(true);
        let bus = bus.create("latency").map_err(Failure::of("create a bus"))?;
        let node = host.enter(|| {
            let settings = rig::sending(rig::settings(number)?, &config(), &[]);
            let settings = rig::receiving(settings, &config());
            Node::new(&bus, &settings).map_err(Failure::of("start a node"))
        })?;
        Ok(Self { directory, bus, node, has_joined: false })
    }

    fn listen(&mut self) -> Result<(), Failure> {
        self.node.turn().map_err(Failure::of("listen"))?;
        while let Some(event) = self.node.event() {
            self.has_joined |= matches!(event, Event::Arrivals(arrivals::Event::Joined(_)));
        }
        Ok(())
    }

    /// Starts the node. Its thread stays on its host.
    fn start(self, host: &Host, [to, from]: [&str; 2]) -> Result<OnBus, Failure> {
        let Self { directory, bus, node, .. } = self;
        Ok(OnBus {
            publisher: bus.publisher(to).map_err(Failure::of("open a publisher"))?,
            subscriber: bus.subscribe(from).map_err(Failure::of("subscribe"))?,
            _node: host.enter(|| Running::start(node)),
            _directory: directory,
        })
    }
}

/// Opens both ends, and waits until their nodes hear each other.
pub(super) fn buses(network: &Network) -> Result<[Box<dyn End>; 2], Failure> {
    let [near, far] = two_hosts(network)?;
    let mut ends = [Prepared::open(near, 0)?, Prepared::open(far, 1)?];
    let begin = Instant::now();
    while !ends.iter().all(|end| end.has_joined) {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("the nodes hear nothing"));
        }
        ends.iter_mut().try_for_each(Prepared::listen)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let [one, other] = ends;
    let [there, back] = TOPICS;
    Ok([Box::new(one.start(near, [there, back])?), Box::new(other.start(far, [back, there])?)])
}
