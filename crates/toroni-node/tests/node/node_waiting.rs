//! Nodes that lack something when they start, and get it later: each says so, and works then.

use crate::hosts;
use crate::node_observed::{address, metrics, with};
use crate::nodes::{file, group, receiving, sending, start};
use crate::support::{Buses, LIMIT, wait_until};
use rustix::process::Signal;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use toroni::BusConfig;
use toroni_testkit::network::Setup;
use toroni_testkit::{Program, port};

/// Starts a node that must say that it waits, and why.
fn wait(buses: &Buses, path: &str, lack: &str, why: &str) -> Program {
    let node = Program::start_with_ready_fd(buses.command(&["node", "--config", path]));
    says(&node, lack, why);
    node
}

fn says(node: &Program, lack: &str, why: &str) {
    node.wait_for_error(&format!("event=waiting for={lack}"));
    let said = node.errors();
    let mut lines = said.lines().filter(|line| line.contains(&format!("for={lack}")));
    let line = lines.next().unwrap();
    assert!(line.contains("the node waits, and tries again each second: "), "{line}");
    assert!(line.contains(why), "{line}");
    assert_eq!(lines.next(), None, "it says so once a minute");
}

/// What systemd hears from a node.
struct Supervisor(UnixDatagram);

impl Supervisor {
    fn new(at: &Path) -> Self {
        let socket = UnixDatagram::bind(at).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self(socket)
    }

    /// Waits for a message that contains this, and returns all up to it.
    fn hears(&self, wanted: &str) -> String {
        let mut heard = String::new();
        while !heard.contains(wanted) {
            let mut bytes = [0; 2048];
            let length = self.0.recv(&mut bytes).unwrap_or_else(|error| panic!("{error}: {heard}"));
            heard.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
            heard.push('\n');
        }
        heard
    }
}

#[test]
fn an_interface_and_its_address_may_come_after_the_node() {
    let Some(network) = Setup::new(1).bridged() else { return };
    let host = &network.hosts[0];
    let buses = Buses::new();
    let path = file(&buses, "a", &sending("239.192.84.79:4479"));
    let text = std::fs::read_to_string(&path).unwrap().replace("'lo'", "'late0'");
    std::fs::write(&path, text).unwrap();
    with(&path, "metrics = '127.0.0.1:0'");
    let at = buses.path().join("notify");
    let supervisor = Supervisor::new(&at);
    let mut command = hosts::on(host, &buses, &["node", "--config", &path]);
    command.env("NOTIFY_SOCKET", &at);
    let mut node = Program::start_with_ready_fd(command);
    says(&node, "interface", "there is no interface \"late0\": this host has ");
    // A unit that is not ready would be stopped.
    let heard = supervisor.hears("STATUS=waits: there is no interface \"late0\"");
    assert!(heard.contains("READY=1"), "{heard}");
    let at = address(&node);
    let waits = |lack: &str| {
        let samples = host.enter(|| metrics(&at));
        samples.value("toroni_net_waiting", &[("realm", "test"), ("for", lack)])
    };
    assert_eq!((waits("interface"), waits("source")), (Some(1.0), Some(0.0)));
    // It needs its address, and then a larger MTU: it says both to systemd, and still waits for an interface.
    host.namespace().ip(&[
        "link add late0 mtu 1400 type veth peer name other0",
        "link set other0 up",
        "link set late0 up",
    ]);
    let mtu = "datagram is 1408 bytes, and the interface's MTU of 1400 bytes leaves less";
    supervisor.hears(mtu);
    host.namespace().ip(&["link set late0 mtu 1500"]);
    supervisor.hears("STATUS=waits: late0 has no IPv4 address");
    host.namespace().ip(&["address add 10.78.0.1/24 dev late0"]);
    node.wait_ready();
    node.wait_for_error("on late0");
    wait_until("the metrics say that it works", || waits("interface") == Some(0.0));
    supervisor.hears("STATUS=sends");
}

#[test]
fn a_signal_ends_a_node_that_waits() {
    let buses = Buses::new();
    let path = file(&buses, "a", &receiving(&group()));
    let text = std::fs::read_to_string(&path).unwrap().replace("'lo'", "'nonesuch0'");
    std::fs::write(&path, text).unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut node = wait(&buses, &path, "interface", "there is no interface \"nonesuch0\"");
        node.signal(signal);
        assert!(node.wait().success());
    }
}

#[test]
fn the_address_of_listen_may_be_free_later() {
    let buses = Buses::new();
    let at = port::free();
    let taken = TcpListener::bind(at).unwrap();
    let listen = format!("{}[listen]\naddress = '{at}'\n", sending(&group()));
    let path = file(&buses, "a", &listen);
    let mut node = wait(&buses, &path, "listen", &format!("cannot listen on {at}: "));
    drop(taken);
    node.wait_ready();
    node.wait_for_error(&format!("listens on {at}"));
}

#[test]
fn a_source_id_that_another_process_has_may_be_free_later() {
    let buses = Buses::new();
    let (one, other) = (file(&buses, "one", ""), file(&buses, "other", ""));
    let id = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().find(|line| line.starts_with("id = ")).unwrap().to_owned()
    };
    let text = std::fs::read_to_string(&other).unwrap().replace(&id(&other), &id(&one));
    std::fs::write(&other, text + &receiving(&group())).unwrap();
    let text = std::fs::read_to_string(&one).unwrap();
    std::fs::write(&one, text + &receiving(&group())).unwrap();
    let mut first = start(&buses, &one);
    let why = format!("another process of this host (process {}) has the source id ", first.id());
    let mut second = wait(&buses, &other, "source", &why);
    first.signal(Signal::TERM);
    assert!(first.wait().success());
    second.wait_ready();
    second.signal(Signal::TERM);
    assert!(second.wait().success());
}

#[test]
fn a_place_on_the_bus_may_be_free_later() {
    let buses = Buses::new();
    let bus = config_of(&buses).max_publishers(1).max_subscribers(1).open("a").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let path = file(&buses, "a", &receiving(&group()));
    let mut node = wait(&buses, &path, "publisher", "all 1 publishing participants of the bus");
    drop((publisher, bus));
    node.wait_ready();
    node.signal(Signal::TERM);
    assert!(node.wait().success());

    let bus = config_of(&buses).open("a").unwrap();
    let subscriber = bus.subscribe("**").unwrap();
    let path = file(&buses, "a", &sending(&group()));
    let mut node = wait(&buses, &path, "subscriber", "all 1 subscribers of the bus are taken");
    drop(subscriber);
    node.wait_ready();
}

fn config_of(buses: &Buses) -> BusConfig {
    BusConfig::new().directory(buses.path())
}

/// A user runs them to see something now.
#[test]
fn commands_without_a_file_do_not_wait() {
    let buses = Buses::new();
    let bus = config_of(&buses).max_publishers(1).open("default").unwrap();
    let _publisher = bus.publisher("t").unwrap();
    let output = buses.run(&["net", "receive", "--interface", "lo"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("all 1 publishing participants of the bus"), "{error}");
}
