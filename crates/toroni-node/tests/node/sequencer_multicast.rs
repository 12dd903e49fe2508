//! Events by multicast: members on three hosts, and a fourth host without one. Hosts are network namespaces, behind a switch
//! that loses datagrams of the group.

use crate::node_observed::metrics;
use crate::openmetrics::Samples;
use crate::sequencer::Hosts;
use crate::support::wait_until;
use toroni::{BusConfig, Policy, Start, Subscriber};
use toroni_sequencer::commands::Commands;
use toroni_testkit::Program;
use toroni_testkit::network::switch::{Direction, Faults, Loss, Reach};
use toroni_testkit::network::{Network, Setup};

const MEMBERS: usize = 3;
/// The host without a member.
const FOLLOWS: usize = MEMBERS;
const ALL: usize = MEMBERS + 1;
/// That of [`Hosts::on`].
const GROUP_PORT: u16 = 4482;

struct Scene {
    hosts: Hosts,
    commands: Vec<Commands>,
    readers: Vec<Subscriber>,
    /// What each reader has found: number and text.
    found: Vec<Vec<(u64, String)>>,
    sent: usize,
}

impl Scene {
    fn new(seed: u64) -> Option<Self> {
        let network = Setup::new(u8::try_from(ALL).unwrap()).switched(seed)?;
        let hosts = Hosts::on(network, MEMBERS);
        let (mut commands, mut readers) = (vec![], vec![]);
        for host in 0..ALL {
            let directory = hosts.directory(host);
            std::fs::create_dir_all(&directory).unwrap();
            // Before the node does, so that it waits for the subscriber.
            let config = BusConfig::new().directory(directory).policy(Policy::Wait { limit: None });
            let bus = config.open("orders").unwrap();
            let reader = bus.subscriber().pattern("**").start(Start::Oldest).gating(true);
            readers.push(reader.build().unwrap());
            commands.push(Commands::open_with(config, "orders").unwrap());
        }
        Some(Self { hosts, commands, readers, found: vec![vec![]; ALL], sent: 0 })
    }

    fn network(&self) -> &Network {
        self.hosts.network.as_ref().unwrap()
    }

    fn start(&self, host: usize) -> Program {
        self.hosts.start_with(host, "metrics = '127.0.0.1:9464'")
    }

    fn begin(&self) -> Vec<Program> {
        let nodes = (0..ALL).map(|host| self.start(host)).collect();
        self.hosts.init();
        nodes
    }

    /// Loses this part of the datagrams of the group that the hosts send.
    fn lose(&self, part: f64) {
        let loss = if part > 0.0 { Loss::Bernoulli(part) } else { Loss::default() };
        let faults = Faults { reach: Reach::UdpTo(GROUP_PORT), loss, ..Faults::default() };
        for host in 0..ALL {
            self.network().switch().set_faults(host, Direction::In, &faults);
        }
    }

    /// Adds or deletes routes by which the host that follows reaches no member.
    fn routes(&self, verb: &str) {
        let members = self.network().hosts[..MEMBERS].iter();
        let route = |address| format!("route {verb} unreachable {address}/32");
        let all: Vec<_> = members.map(|host| route(host.address())).collect();
        self.network().hosts[FOLLOWS].namespace().ip(&all);
    }

    fn lost(&self) -> u64 {
        (0..ALL).map(|host| self.network().switch().counts(host).received.lost).sum()
    }

    fn send(&mut self, host: usize) {
        self.commands[host].send("new/order", format!("{}", self.sent)).unwrap();
        self.sent += 1;
    }

    /// Takes all that was sent from the buses of these hosts.
    fn receive(&mut self, which: impl Iterator<Item = usize>) {
        let Self { readers, found, sent, .. } = self;
        for host in which {
            wait_until("all events arrive", || {
                while let Some(message) = readers[host].try_receive().unwrap() {
                    found[host].push((message.number().unwrap(), message.text().into_owned()));
                }
                found[host].len() >= *sent
            });
            assert_eq!(found[host].len(), *sent, "host {host} got events twice");
        }
    }

    /// Sends commands from all hosts, one after the other, and takes their events everywhere.
    fn pass(&mut self, rounds: usize) {
        for _ in 0..rounds {
            (0..ALL).for_each(|host| self.send(host));
            self.receive(0..ALL);
        }
    }

    fn metrics(&self, host: usize) -> Samples {
        self.network().hosts[host].enter(|| metrics("127.0.0.1:9464"))
    }

    fn metric(&self, host: usize, name: &str) -> f64 {
        let name = format!("toroni_sequencer_{name}");
        self.metrics(host).value(&name, &[]).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Sends commands until a host gets their events without asking for them.
    fn until_live(&mut self, host: usize) {
        let before = self.metric(host, "live_events_total");
        let mut rounds = 0;
        while self.metric(host, "live_events_total") == before || self.metric(host, "live") != 1.0 {
            self.pass(10);
            rounds += 1;
            assert!(rounds < 1_000, "host {host} has to ask for all events");
        }
    }
}

#[test]
fn events_come_by_multicast_whatever_is_lost_and_whoever_leads() {
    let Some(mut scene) = Scene::new(0x6665_6564) else { return };
    let mut nodes = scene.begin();
    scene.pass(5);
    scene.until_live(FOLLOWS);

    // A tenth of the datagrams is lost, and repaired.
    let before = scene.lost();
    scene.lose(0.1);
    for round in 0.. {
        scene.pass(20);
        if scene.lost() >= before + 10 {
            break;
        }
        assert!(round < 200, "the network loses nothing");
    }

    // No member can be reached any more, and nothing is lost: events come all the same.
    scene.lose(0.0);
    scene.until_live(FOLLOWS);
    scene.routes("add");
    let mut asked = None;
    for _ in 0..2 {
        let delivered = scene.metric(FOLLOWS, "delivered_total");
        for _ in 0..20 {
            scene.send(0);
            scene.receive(0..ALL);
        }
        // Metrics are those of the last report.
        let reported = || scene.metric(FOLLOWS, "delivered_total") >= delivered + 20.0;
        wait_until("the events are reported", reported);
        let now = scene.metric(FOLLOWS, "asked_events_total");
        assert!(asked.is_none_or(|before| before == now), "{asked:?} {now}");
        asked = Some(now);
    }
    scene.routes("delete");

    // No datagram of the group arrives any more: events come by TCP.
    scene.lose(1.0);
    let asked = scene.metric(FOLLOWS, "asked_events_total");
    scene.pass(10);
    let reported = || scene.metric(FOLLOWS, "asked_events_total") > asked;
    wait_until("events that were asked for are reported", reported);
    scene.lose(0.0);

    // Another member leads, and multicasts.
    for _ in 0..2 {
        let leader = scene.hosts.wait_for_leader();
        nodes[leader].kill();
        let others: Vec<_> = (0..ALL).filter(|host| *host != leader).collect();
        for _ in 0..10 {
            others.iter().for_each(|host| scene.send(*host));
            scene.receive(others.iter().copied());
        }
        nodes[leader] = scene.start(leader);
        scene.receive(0..ALL);
        scene.until_live(FOLLOWS);
    }

    for host in 1..ALL {
        let differs =
            scene.found[host].iter().zip(&scene.found[0]).find(|(one, other)| one != other);
        assert_eq!(differs, None, "host {host}");
    }
    // On hosts of members, they come from the member.
    (0..MEMBERS).for_each(|host| scene.until_live(host));
    assert_eq!(scene.metric(FOLLOWS, "lost_events_total"), 0.0);
    assert_eq!(scene.metric(FOLLOWS, "divergences_total"), 0.0);
    let digest = scene.hosts.digests();
    assert_eq!(digest["equal"], true, "{digest}");
}
