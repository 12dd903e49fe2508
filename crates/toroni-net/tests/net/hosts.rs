//! Nodes on several hosts, which are network namespaces, behind a switch that loses and reorders by a seed.

use crate::support::{PATIENCE, Running, buses, config, receiving, sending, settings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toroni::{Bus, ReceiveError, Subscriber};
use toroni_net::node::Settings;
use toroni_net::node::state::State;
use toroni_proto::config::Config;
use toroni_proto::time::{SECOND, Wall};
use toroni_testkit::network::switch::{Direction, Faults, Loss, Reordering};
use toroni_testkit::network::{Host, Setup};
use toroni_testkit::{Directory, Random};

const HOSTS: usize = 3;
const PUBLISHERS: usize = 10;

fn group() -> SocketAddr {
    "239.192.84.79:4479".parse().unwrap()
}

/// Starts a node on a host, with a session later than all before.
fn start(host: &Host, number: usize, bus: &Bus, state: &Path) -> Running {
    let state = Arc::new(State::open(state).unwrap());
    let session = state.begin_session(Wall::from_ns(1_800_000_000 * SECOND)).unwrap();
    // What a receiver lacks for longer than this is lost if the sender dies. A busy machine can take more than 8 s.
    let config = Config { generation_ns: 60 * SECOND, ..config(50_000_000) };
    host.enter(|| {
        let name = format!("host-{number}");
        let source = u32::try_from(number).unwrap() + 1;
        let mut settings: Settings = settings(&["eth0"], &name, source);
        settings.member.session = session;
        settings.member.sockets.is_looped = false;
        settings.state = Some(state);
        let settings = receiving(sending(settings, group(), &config), group(), &config);
        Running::start(bus, &settings)
    })
}

/// What a subscriber got of each publisher, as numbers.
fn collect(subscriber: &mut Subscriber, wanted: usize) -> BTreeMap<String, Vec<usize>> {
    let mut got: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let (mut count, begin) = (0, Instant::now());
    while count < wanted {
        assert!(begin.elapsed() < 2 * PATIENCE, "{count} of {wanted} messages came");
        match subscriber.receive_timeout(Duration::from_secs(1)) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let number = message.text().trim().parse().unwrap();
                got.entry(message.topic().to_owned()).or_default().push(number);
                count += 1;
            }
            Err(ReceiveError::Lost(lost)) => panic!("after {count}: {lost}"),
            Err(error) => panic!("{error}"),
        }
    }
    got
}

/// Every node sends and receives. All of them are killed in turn, and 5 % of all frames are lost. Every subscriber gets
/// every message of every publisher once, in its order.
#[test]
fn three_hosts_exchange_everything_although_nodes_die() {
    let seed = 11;
    let Some(network) = Setup::new(3).switched(seed) else { return };
    let reordering = Reordering { probability: 0.05, distance: 5, limit: Duration::from_millis(2) };
    let faults = Faults { loss: Loss::Bernoulli(0.05), reordering, ..Faults::default() };
    network.switch().set_all_faults(Direction::In, &faults);
    let directory = Directory::new();
    let all: [Bus; HOSTS] = buses(&directory);
    let mut subscribers = all.clone().map(|bus| bus.subscribe("**").unwrap());
    let states: [_; HOSTS] =
        std::array::from_fn(|number| directory.path().join(format!("state{number}")));
    let begin =
        |number: usize| start(&network.hosts[number], number, &all[number], &states[number]);
    let mut nodes: [Option<Running>; HOSTS] = std::array::from_fn(|number| Some(begin(number)));
    nodes.iter().flatten().for_each(|node| node.has_joined(HOSTS - 1));
    let publishers: Vec<_> = (0..HOSTS * PUBLISHERS)
        .map(|at| all[at % HOSTS].publisher(&format!("host-{}/{at}", at % HOSTS)).unwrap())
        .collect();
    let mut random = Random::new(seed);
    let rounds = 300;
    for round in 0..rounds {
        for publisher in &publishers {
            let length = usize::try_from(random.below(600)).unwrap();
            publisher.publish(format!("{round:>length$}")).unwrap();
        }
        if round % 50 == 25 {
            let at = usize::try_from(random.below(HOSTS as u64)).unwrap();
            nodes[at].take().unwrap().die();
            nodes[at] = Some(begin(at));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let wanted: Vec<usize> = (0..rounds).collect();
    for subscriber in &mut subscribers {
        let got = collect(subscriber, rounds * HOSTS * PUBLISHERS);
        assert_eq!(got.len(), HOSTS * PUBLISHERS);
        for (topic, numbers) in got {
            assert_eq!(numbers, wanted, "{topic}");
        }
    }
    assert!(network.switch().counts(0).received.lost > 0, "the switch loses");
    // In order, each would repair for `generation`.
    nodes.into_iter().flatten().for_each(Running::die);
}
