//! From a bus of one host to a bus of another one, by a node at each.

use std::time::{Duration, Instant};

use toroni::{Bus, BusConfig, Limit, Policy, Publisher, Subscriber};
use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{About, Guarantees, Receiver, Sender, Setup, Transport};
use toroni_net::node::{Event, Node};
use toroni_proto::arrivals;
use toroni_proto::config::Config;
use toroni_proto::time::MILLISECOND;
use toroni_proto::wire;

use super::super::rig::{self, Running, TOPIC};

const PATIENCE: Duration = Duration::from_secs(20);
/// More than this machine can carry; the receiver's window is the limit.
const RATE: u64 = 10_000_000_000;

/// Messages that one `poll` passes on, at most.
const POLL_LIMIT: usize = 256;

/// Publisher, bus and node; and at the other host node, bus and subscriber.
pub(super) struct Buses;

pub(super) struct Sending {
    publisher: Publisher,
    _node: Running,
}

pub(super) struct Receiving {
    subscriber: Subscriber,
    _node: Running,
}

fn config() -> Config {
    Config {
        policy: wire::Policy::Slowest,
        group_min: 1,
        generation_ns: 40 * MILLISECOND,
        rate_interval_ns: MILLISECOND / 10,
        reorder_memory_bytes: 1 << 20,
        ..Config::with_rate(RATE)
    }
}

fn bus(directory: &RunDirectory, setup: &Setup, name: &str) -> Result<Bus, Failure> {
    BusConfig::new()
        .directory(&directory.path)
        .prefault(true)
        .capacity(setup.capacity_bytes)
        .policy(Policy::Wait { limit: None })
        .create(name)
        .map_err(Failure::of("create a bus"))
}

impl Transport for Buses {
    const NAME: &'static str = "toroni-buses";
    type Host = ();
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(setup: &Setup) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: format!(
                "buses of {} bytes whose publishers wait, a node at each, policy slowest with {} Gbit/s",
                setup.capacity_bytes,
                RATE / 1_000_000_000
            ),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
        Ok(())
    }

    fn sender(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Sending, Failure> {
        let bus = bus(directory, setup, "from")?;
        let publisher = bus.publisher(TOPIC).map_err(Failure::of("open a publisher"))?;
        let settings = rig::sending(rig::settings(0)?, &config(), &[rig::name(1)]);
        let node = Node::new(&bus, &settings).map_err(Failure::of("start a node"))?;
        Ok(Sending { publisher, _node: Running::start(node) })
    }

    fn receiver(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Receiving, Failure> {
        let bus = bus(directory, setup, "to")?;
        let subscriber = bus.subscribe(TOPIC).map_err(Failure::of("subscribe"))?;
        let settings = rig::receiving(rig::settings(1)?, &config());
        let mut node = Node::new(&bus, &settings).map_err(Failure::of("start a node"))?;
        let begin = Instant::now();
        while !matches!(node.event(), Some(Event::Arrivals(arrivals::Event::Joined(_)))) {
            if begin.elapsed() > PATIENCE {
                return Err(Failure::new("the node hears nothing"));
            }
            node.turn().map_err(Failure::of("listen"))?;
            node.wait(None).map_err(Failure::of("wait"))?;
        }
        Ok(Receiving { subscriber, _node: Running::start(node) })
    }
}

impl Sender for Sending {
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.publisher.publish(payload).map(drop).map_err(Failure::of("publish"))
    }

    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        self.publisher.burst(payloads, Limit::Policy).map_err(Failure::of("publish a burst"))
    }
}

impl Receiver for Receiving {
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        for count in 0..POLL_LIMIT {
            match self.subscriber.try_receive().map_err(Failure::of("receive"))? {
                None => return Ok(count),
                Some(message) => each(message.payload()),
            }
        }
        Ok(POLL_LIMIT)
    }

    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let message = self.subscriber.receive().map_err(Failure::of("receive"))?;
        each(message.payload());
        Ok(1 + self.poll(each)?)
    }
}
