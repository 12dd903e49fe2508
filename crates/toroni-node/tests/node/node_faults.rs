//! Nodes on hosts, which are network namespaces, whose network or configuration fails in one way after the other.

use crate::hosts;
use crate::node_observed::{address as metrics_address, metrics, with};
use crate::node_tcp::{Checked, Counted, bus, leave};
use crate::nodes::file;
use crate::support::{Buses, wait_until};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use toroni_testkit::Program;
use toroni_testkit::network::switch::{Corruption, Direction, Faults, Loss, Reordering};
use toroni_testkit::network::{Network, Setup};

pub(crate) const SENDING: &str =
    "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '40Mbit/s'\n";
pub(crate) const RECEIVING: &str = "[[receive]]\n";
/// Repairs may take as long as a busy machine makes them take.
pub(crate) const PATIENT: &str = "generation = '9s'\n";
pub(crate) const BYTES: usize = 500;
/// More than a socket has room for.
const MISSED_WHILE_STOPPED: u64 = 20_000;
pub(crate) const FROM: usize = 0;
pub(crate) const TO: usize = 1;

/// A host that sends, and a host that receives.
pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) buses: Buses,
    pub(crate) counted: Counted,
    pub(crate) checked: Checked,
}

impl Scene {
    pub(crate) fn new(setup: Setup, seed: u64) -> Option<Self> {
        let network = setup.switched(seed)?;
        let buses = Buses::new();
        let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 32 << 20));
        let (counted, checked) = (Counted::new(&a, "t"), Checked::new(&b));
        Some(Self { network, buses, counted, checked })
    }

    /// Starts a node on a host, with more keys below `[node]`.
    pub(crate) fn node(&self, host: usize, name: &str, keys: &str, sections: &str) -> Program {
        let path = file(&self.buses, name, sections);
        let text = std::fs::read_to_string(&path).unwrap();
        let legs = if self.network.hosts[host].enter(|| has_interface("eth1")) {
            "'eth0', 'eth1'"
        } else {
            "'eth0'"
        };
        std::fs::write(&path, text.replace("'lo'", legs)).unwrap();
        with(&path, keys);
        hosts::start(&self.network.hosts[host], &self.buses, &["node", "--config", &path])
    }

    /// Starts the sender and the receiver, and lets them meet.
    pub(crate) fn pair(&mut self, keys: &str, more: &str) -> [Program; 2] {
        let sender = self.node(FROM, "a", keys, &(SENDING.to_owned() + more));
        let receiver = self.node(TO, "b", keys, &(RECEIVING.to_owned() + more));
        receiver.wait_for_error("follows stream 1 of ");
        self.pass(100);
        [sender, receiver]
    }

    /// Publishes messages, and wants all of them. Never more are on the way than a socket has room for: not every receiver
    /// can ask for what it has no room for, and on a busy machine it may not run for long.
    pub(crate) fn pass(&mut self, count: u64) {
        for _ in (0..count).step_by(100) {
            self.counted.publish(100, BYTES);
            self.checked.receive_all_to(self.counted.next);
        }
    }

    /// Publishes messages after those that may be lost, until nothing is missing any more that was not reported.
    pub(crate) fn settle(&mut self) {
        self.counted.publish(100, BYTES);
        self.checked.receive_to(self.counted.next);
        self.pass(500);
    }

    pub(crate) fn key(&self, name: &str, byte: u8) {
        let path = self.buses.path().join(name);
        std::fs::write(&path, [byte; 32]).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
}

fn has_interface(name: &str) -> bool {
    toroni_net::host::interface::named(name).is_ok()
}

#[test]
fn frames_that_vanish_come_twice_or_are_damaged_cost_no_message() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6661_756c) else { return };
    let nodes = scene.pair("", PATIENT);
    let good = Faults::default();
    let reordering = Reordering { probability: 0.1, distance: 8, limit: Duration::from_millis(5) };
    let burst = Loss::GilbertElliott { to_bad: 0.005, to_good: 0.05, in_good: 0.0, in_bad: 0.9 };
    let all = [
        Faults { loss: Loss::Bernoulli(0.2), ..good },
        Faults { loss: burst, ..good },
        Faults { loss: Loss::Bursts { probability: 0.002, frames: 100 }, ..good },
        Faults { duplication: 0.1, ..good },
        Faults { reordering, ..good },
        Faults { corruption: Corruption { probability: 0.05, ..Corruption::default() }, ..good },
    ];
    for faults in all {
        let counts = || scene.network.switch().counts(FROM).received;
        let before = counts();
        scene.network.switch().set_faults(FROM, Direction::In, &faults);
        let is_changed = || {
            let after = counts();
            after.lost > before.lost
                || after.corrupted > before.corrupted
                || after.duplicated > before.duplicated
                || after.reordered > before.reordered
        };
        // How many messages share a frame depends on the machine, and so does which frame is the first that changes.
        for round in 0.. {
            scene.counted.publish(1_000, BYTES);
            scene.checked.receive_all_to(scene.counted.next);
            if round >= 2 && is_changed() {
                break;
            }
            assert!(round < 30, "{faults:?} changes nothing");
        }
    }
    nodes.into_iter().for_each(leave);
}

#[test]
fn a_network_that_is_cut_one_way_loses_only_what_is_reported() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6f6e_6577) else { return };
    let nodes = scene.pair("", "");
    // Without a way back, nothing is asked for. Nothing is lost, either.
    scene.network.switch().block(&[TO], &[FROM]);
    scene.pass(2_000);
    scene.network.switch().heal();
    let before = scene.network.switch().counts(TO).blocked;
    scene.network.switch().block(&[FROM], &[TO]);
    scene.counted.publish(2_000, BYTES);
    wait_until("frames are stopped", || scene.network.switch().counts(TO).blocked > before + 500);
    scene.network.switch().heal();
    scene.settle();
    nodes.into_iter().for_each(leave);
}

#[test]
fn a_receiver_that_stands_still_reports_what_it_missed_and_continues() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x7374_6f70) else { return };
    let [sender, receiver] = scene.pair("", "generation = '500ms'\n");
    receiver.stop();
    scene.counted.publish(MISSED_WHILE_STOPPED, BYTES);
    // Longer than anything may be repaired.
    std::thread::sleep(Duration::from_secs(1));
    receiver.resume();
    scene.settle();
    leave(receiver);
    leave(sender);
}

#[test]
fn an_interface_that_is_down_for_a_while_is_used_again() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x646f_776e) else { return };
    let nodes = scene.pair("", "");
    for host in [TO, FROM] {
        let namespace = scene.network.hosts[host].namespace();
        namespace.ip(&["link set eth0 down"]);
        scene.counted.publish(200, BYTES);
        namespace.ip(&["link set eth0 up"]);
        scene.settle();
    }
    nodes.into_iter().for_each(leave);
}

#[test]
fn a_node_whose_address_changes_sends_and_asks_from_the_new_one() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6164_6472) else { return };
    let nodes = scene.pair("", PATIENT);
    let faults = Faults { loss: Loss::Bernoulli(0.1), ..Faults::default() };
    // The receiver, and then the sender, without which nothing arrives at all.
    for (host, address) in [(TO, "10.77.0.200"), (FROM, "10.77.0.201")] {
        let before = scene.network.hosts[host].address();
        scene.network.hosts[host].namespace().ip(&[
            format!("address delete {before}/24 dev eth0"),
            format!("address add {address}/24 dev eth0"),
        ]);
        let lost = || scene.network.switch().counts(FROM).received.lost;
        let lost_before = lost();
        scene.network.switch().set_faults(FROM, Direction::In, &faults);
        scene.counted.publish(1_000, BYTES);
        scene.checked.receive_all_to(scene.counted.next);
        assert!(lost() > lost_before, "the network has lost nothing");
        scene.network.switch().set_faults(FROM, Direction::In, &Faults::default());
        let wanted = format!("the node sends from {address}, and no longer from {before}");
        nodes[host].wait_for_error(&wanted);
    }
    nodes.into_iter().for_each(leave);
}

#[test]
fn a_receiver_without_an_address_loses_only_what_is_reported() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6e6f_6e65) else { return };
    let nodes = scene.pair("", "");
    let host = scene.network.hosts[TO].namespace().clone();
    host.ip(&[format!("address delete {}/24 dev eth0", scene.network.hosts[TO].address())]);
    let faults = Faults { loss: Loss::Bernoulli(0.1), ..Faults::default() };
    scene.network.switch().set_faults(FROM, Direction::In, &faults);
    scene.counted.publish(1_000, BYTES);
    wait_until("the network has lost frames", || {
        scene.network.switch().counts(FROM).received.lost >= 10
    });
    nodes[TO].wait_for_error("cannot send: ");
    scene.network.switch().set_faults(FROM, Direction::In, &Faults::default());
    scene.settle();
    assert!(scene.checked.lost > 0);
    host.ip(&["address add 10.77.0.200/24 dev eth0"]);
    nodes[TO].wait_for_error("the node sends from 10.77.0.200");
    nodes[TO].wait_for_error("sends again: ");
    nodes.into_iter().for_each(leave);
}

/// IP fragments nothing, so longer datagrams are lost, and so are their repairs. Everything else arrives.
#[test]
fn an_interface_whose_mtu_becomes_smaller_loses_only_what_is_too_long_for_it() {
    const LONG: usize = 1_300;
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6d74_7500) else { return };
    let nodes = scene.pair("metrics = '127.0.0.1:0'\n", "generation = '2s'\n");
    let address = metrics_address(&nodes[FROM]);
    let host = scene.network.hosts[FROM].namespace().clone();
    host.ip(&["link set eth0 mtu 1280"]);
    scene.counted.publish(200, LONG);
    scene.checked.receive_to(scene.counted.next);
    assert_eq!(scene.checked.lost, 200);
    nodes[FROM].wait_for_error("cannot send datagrams of ");
    nodes[FROM].wait_for_error("on eth0, whose MTU of 1280 bytes leaves less beside 28 bytes");
    nodes[FROM].wait_for_error("or `datagram` to at most 1252B, and start the node again");
    wait_until("what was not sent is counted", || {
        let samples = scene.network.hosts[FROM].enter(|| metrics(&address));
        samples.value("toroni_net_datagrams_unsent_total", &[]) >= Some(200.0)
    });
    // Two of these and no third are in a datagram.
    scene.pass(500);
    host.ip(&["link set eth0 mtu 1500"]);
    scene.counted.publish(100, LONG);
    scene.checked.receive_all_to(scene.counted.next);
    nodes[FROM].wait_for_error("sends again: ");
    nodes.into_iter().for_each(leave);
}

#[test]
fn of_two_networks_one_may_be_cut() {
    let Some(mut scene) = Scene::new(Setup::new(2).legs(2), 0x6c65_6773) else { return };
    let nodes = scene.pair("", PATIENT);
    for leg in [0, 1] {
        scene.network.cut(0, leg);
        scene.pass(1_000);
        scene.network.rejoin(0, leg);
        scene.pass(1_000);
    }
    nodes.into_iter().for_each(leave);
}

/// The reasons, as the log and the metrics name them, and what the log advises.
const WRONG: [&str; 3] =
    ["mac_wrong", "signed with another key", "set the same `key_file` on both hosts"];
const NONE: [&str; 3] =
    ["mac_unexpected", "signed, although this realm has no key", "set the same `key_file` here"];
const UNSIGNED: [&str; 3] =
    ["mac_missing", "not signed, although this realm has a key", "set the same `key_file` there"];

#[test]
fn another_realm_and_a_wrong_key_get_nothing_of_a_group() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x7265_616c) else { return };
    scene.key("key", 7);
    scene.key("wrong", 8);
    let observed = "metrics = '127.0.0.1:0'\n";
    let start =
        |name: &str, key: &str| scene.node(TO, name, &format!("{observed}{key}"), RECEIVING);
    let other = start("c", "key_file = 'key'\n");
    let path = scene.buses.path().join("c.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("realm = 'test'", "realm = 'other'")).unwrap();
    leave(other);
    let arguments = ["node", "--config", path.to_str().unwrap()];
    let other = hosts::start(&scene.network.hosts[TO], &scene.buses, &arguments);
    let strangers = [
        ("c", other, ["realm", "", ""]),
        ("d", start("d", "key_file = 'wrong'\n"), WRONG),
        ("e", start("e", ""), NONE),
    ];
    let [sender, receiver] = scene.pair(&format!("{observed}key_file = 'key'\n"), PATIENT);
    scene.pass(1_000);
    let refused = |node: &Program, reason| {
        let address = metrics_address(node);
        let samples = scene.network.hosts[TO].enter(|| metrics(&address));
        samples.value("toroni_net_datagrams_refused_total", &[("reason", reason)])
    };
    for (name, stranger, [reason, why, what]) in strangers {
        wait_until("it has refused what is not for it", || {
            refused(&stranger, reason) >= Some(50.0)
        });
        let bus = toroni::BusConfig::new().directory(scene.buses.path()).open_existing(name);
        assert_eq!(bus.unwrap().stats().unwrap().sequence, 0, "{name}");
        // However many it has refused. Two realms in one group are no mistake.
        let log = stranger.errors();
        let lines: Vec<&str> = log.lines().filter(|it| it.contains("event=stranger")).collect();
        match (lines[..].as_ref(), name) {
            ([], "c") => {}
            ([line], "d" | "e") => {
                for wanted in ["refuses what comes from 10.77.0.1", reason, why, what] {
                    assert!(line.contains(wanted), "{wanted}: {line}");
                }
            }
            other => panic!("{name}: {other:?}"),
        }
        leave(stranger);
    }
    // The other way round: a sender that does not sign.
    let stranger = scene.node(FROM, "f", "", SENDING);
    UNSIGNED.iter().for_each(|wanted| receiver.wait_for_error(wanted));
    wait_until("it has counted them", || refused(&receiver, UNSIGNED[0]) >= Some(1.0));
    [stranger, receiver, sender].into_iter().for_each(leave);
}

/// First every node learns the next key, then every node uses it first, and then the old one is forgotten.
#[test]
fn a_key_is_changed_node_by_node_and_the_stream_continues() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6b65_7973) else { return };
    scene.key("old", 7);
    scene.key("new", 8);
    let steps = [
        "key_file = 'old'\nkey_file_next = 'new'\n",
        "key_file = 'new'\nkey_file_next = 'old'\n",
        "key_file = 'new'\n",
    ];
    let [mut sender, mut receiver] = scene.pair("key_file = 'old'\n", PATIENT);
    for keys in steps {
        leave(receiver);
        receiver = scene.node(TO, "b", keys, &(RECEIVING.to_owned() + PATIENT));
        receiver.wait_for_error("follows stream 1 of ");
        scene.pass(200);
        leave(sender);
        sender = scene.node(FROM, "a", keys, &(SENDING.to_owned() + PATIENT));
        scene.pass(200);
    }
    leave(receiver);
    leave(sender);
}
