//! `net send` and `net receive`: two terminals on two hosts, which are network namespaces.

use crate::hosts::{on, publish, start};
use crate::support::Buses;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;
use toroni_testkit::Program;
use toroni_testkit::network::switch::{Direction, Faults, Loss, Reach};
use toroni_testkit::network::{Namespace, Setup, skip};

#[test]
fn messages_pass_between_two_terminals_without_a_file() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let [here, there] = [Buses::new(), Buses::new()];
    let mut receiver = start(
        to,
        &there,
        &["net", "receive", "plant/**", "--json", "--count", "20", "--realm", "trial"],
    );
    let arguments = ["net", "send", "plant/**", "--rate", "20Mbit/s", "--realm", "trial"];
    let mut sender = start(from, &here, &arguments);
    // Who has another realm hears nothing of it.
    let mut other = start(to, &there, &["net", "receive", "--bus", "other", "--realm", "other"]);
    sender.wait_for_error(
        "sends plant/** of bus default to 239.192.84.79:4479, at most 20 Mbit/s; a signal (Ctrl-C) ends it",
    );
    receiver.wait_for_error("listens to 239.192.84.79:4479 for plant/**, and brings it to bus");
    receiver.wait_for_error("follows stream 1 of ");
    // Neither is sent, nor what another process publishes on the receiver's host printed.
    publish(from, &here, "elsewhere", "0");
    publish(to, &there, "plant/local", "0");
    for number in 0..20 {
        publish(from, &here, "plant/boiler", &number.to_string());
    }
    let output = receiver.finish();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 20);
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(
            (&line["topic"], &line["payload"]),
            (&"plant/boiler".into(), &number.to_string().into())
        );
    }
    sender.signal(Signal::TERM);
    assert!(sender.wait().success());
    other.signal(Signal::INT);
    let output = other.finish();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

/// A node continues its streams when it is back. What a terminal has sent is complete, and no receiver waits for more.
#[test]
fn what_a_terminal_has_sent_is_complete_when_it_ends() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let [here, there] = [Buses::new(), Buses::new()];
    let mut receiver = start(to, &there, &["net", "receive", "**"]);
    let mut sender = start(from, &here, &["net", "send", "**", "--rate", "1Mbit/s"]);
    receiver.wait_for_error("follows stream 1 of ");
    publish(from, &here, "a", "1");
    assert_eq!(receiver.line().as_deref(), Some("a\t1"));
    sender.signal(Signal::INT);
    assert!(sender.wait().success());
    receiver.wait_for_error("has ended");
    receiver.signal(Signal::INT);
    assert!(receiver.wait().success());
    let bus = toroni::BusConfig::new().directory(there.path()).open("default").unwrap();
    let inlet = bus.inlet().unwrap().awaiting();
    assert_eq!(inlet.open_streams(toroni::Limit::Policy).unwrap(), []);
}

#[test]
fn several_senders_of_a_host_are_several_sources() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let [here, there] = [Buses::new(), Buses::new()];
    let arguments = ["net", "receive", "--order", "arrival", "-n", "2"];
    let mut receiver = start(to, &there, &arguments);
    let senders = ["a", "b"].map(|topic| {
        let arguments = ["net", "send", topic, "--rate", "1Mbit/s"];
        let sender = start(from, &here, &arguments);
        let id = sender.id();
        sender.wait_for_error(&format!("-send-{id} of realm default: source "));
        sender
    });
    for sender in &senders {
        let errors = sender.errors();
        let source = errors.split("source ").nth(1).unwrap().split(',').next().unwrap();
        receiver.wait_for_error(&format!("(source {source}, session "));
    }
    for topic in ["a", "b"] {
        publish(from, &here, topic, "1");
    }
    let output = receiver.finish();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!((output.status.code(), lines), (Some(0), vec!["a\t1", "b\t1"]));
}

#[test]
fn the_file_that_is_printed_is_one_that_a_node_takes() {
    let buses = Buses::new();
    for (arguments, wanted) in [
        (
            &[
                "net",
                "send",
                "a/**",
                "b",
                "--rate",
                "2.5Gbit/s",
                "--to",
                "10.0.0.2:4479",
                "--print",
            ][..],
            &[
                "patterns = [\"a/**\", \"b\"]",
                "to = [\"10.0.0.2:4479\"]",
                "data_rate = \"2500Mbit/s\"",
            ][..],
        ),
        (
            &[
                "net",
                "receive",
                "x",
                "--order",
                "arrival",
                "--group",
                "239.1.2.3",
                "--print",
                "-b",
                "y",
            ],
            &[
                "accept = [\"x\"]",
                "order = \"arrival\"",
                "group = \"239.1.2.3:4479\"",
                "name = \"y\"",
            ],
        ),
    ] {
        let file = buses.succeed(arguments);
        for line in wanted {
            assert!(file.lines().any(|found| found == *line), "{line}\n{file}");
        }
        let checked = buses.run_with_input(&["node", "check", "-", "--no-host"], file.as_bytes());
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    }
}

#[test]
fn options_that_a_node_would_refuse_are_refused() {
    let buses = Buses::new();
    for (arguments, wanted) in [
        (&["send", "a"][..], "--rate <R>"),
        (&["send", "a", "--rate", "100"], "write a rate with a unit"),
        (&["send", "a//b", "--rate", "1Mbit/s"], "[[send]] 1: patterns: "),
        (&["send", "a", "--rate", "1Mbit/s", "--realm", "a/b"], "[node]: realm: "),
        (&["send", "a", "--rate", "1Mbit/s", "--group", "224.0.0.9"], "224.0.0.9 is reserved"),
        (&["send", "a", "--rate", "1Mbit/s", "--interface", "nonesuch0"], "nonesuch0"),
        (&["receive", "--name", "a b\n"], "[node]: name: "),
        (&["receive", "--interface", "nonesuch0"], "nonesuch0"),
    ] {
        let output = buses.run(&[&["net"], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(wanted), "{arguments:?}: {error}");
    }
}

/// Without `net receive`'s own reader, it ends as `sub` does.
#[test]
fn a_closed_output_ends_it() {
    let Some(network) = Setup::new(1).bridged() else { return };
    let buses = Buses::new();
    let mut receiver = start(&network.hosts[0], &buses, &["net", "receive"]);
    drop(receiver.take_stdout());
    assert_eq!(receiver.wait().code(), Some(0));
}

/// Datagrams that the interface does not bear are refused before anything is sent. Without a length, they are as long as it
/// bears.
#[test]
fn datagrams_are_no_longer_than_the_interface_takes() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return skip(&format!("network namespaces cannot be made here: {error}")),
    };
    namespace.ip(&[
        "link add d0 type veth peer name p0",
        "link set p0 up",
        "address add 10.9.0.1/24 dev d0",
        "link set d0 mtu 1400 up",
    ]);
    let buses = Buses::new();
    let send = |more: &[&str]| {
        let mut command = namespace.command(crate::program());
        // Soon the other end has an address, too.
        command.args(["net", "send", "**", "--rate", "1Mbit/s", "--interface", "d0"]).args(more);
        command.env("TORONI_DIR", buses.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let output = send(&["--datagram", "1408B"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    let wanted =
        "interface d0: datagram is 1408 bytes, and the interface's MTU of 1400 bytes leaves less";
    assert!(error.contains(wanted), "{error}");
    for more in [&[][..], &["--datagram", "1200B"], &["--datagram", "mtu"]] {
        let mut sender = Program::start_with_ready_fd(send(more));
        sender.wait_ready();
        let text =
            "datagrams have at most 1352 bytes instead of 1408: d0 takes packets of 1400 bytes";
        if more.is_empty() {
            sender.wait_for_error(text);
        }
        assert_eq!(sender.errors().contains(text), more.is_empty());
        sender.signal(Signal::TERM);
        assert!(sender.wait().success());
    }
}

/// A packet filter, a switch or another realm may keep hosts from hearing each other. Each end says what it can know.
#[test]
fn who_hears_nothing_from_other_hosts_learns_what_to_run() {
    let Some(network) = Setup::new(2).switched(0x7369_6c65) else { return };
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let [here, there] = [Buses::new(), Buses::new()];
    let groups = ["239.192.84.79:4479", "239.192.84.80:4479", "239.192.84.81:4479"];
    let send = |group: &str, realm: &str, topic: &str| {
        let arguments = ["net", "send", topic, "--rate", "1Mbit/s", "--group", group];
        start(from, &here, &[&arguments[..], &["--realm", realm]].concat())
    };
    let receive = |group: &str, realm: &str| {
        let bus = format!("of-{realm}");
        let arguments = ["net", "receive", "--bus", &bus, "--group", group, "--realm", realm];
        start(to, &there, &arguments)
    };
    // One pair works.
    let good = [receive(groups[0], "good"), send(groups[0], "good", "good")];
    publish(from, &here, "good", "1");
    good[0].wait_for_error("follows stream 1 of ");
    // One receiver hears only another realm.
    let (other, stranger) = (receive(groups[1], "other"), send(groups[1], "stranger", "stranger"));
    other.wait_for_error("datagrams come, and none that answers this host: ");
    // One hears nothing at all.
    let alone = receive(groups[2], "alone");
    alone.wait_for_error("no datagram has come for 5 s: ");
    // A sender that has sent something gets no answer, ...
    publish(from, &here, "stranger", "1");
    stranger.wait_for_error("messages were sent 5 s ago, and no receiver has answered: ");
    // ... and all say what to run. Those that hear each other have said nothing meanwhile.
    for silent in [&other, &alone, &stranger] {
        let said = silent.errors();
        assert!(said.contains("`toroni net probe`, run on both hosts at once"), "{said}");
        assert_eq!(said.matches("event=silence").count(), 1, "{said}");
    }
    for heard in &good {
        assert!(!heard.errors().contains("event=silence"), "{}", heard.errors());
    }
}

/// A packet filter often lets the datagrams of a group in, and not what receivers send to the host of a stream.
#[test]
fn a_receiver_whose_answers_do_not_arrive_learns_that() {
    let Some(network) = Setup::new(2).switched(0x616e_7377) else { return };
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let loss = Loss::Bernoulli(1.0);
    network.switch().set_faults(
        1,
        Direction::In,
        &Faults { reach: Reach::Udp, loss, ..Faults::default() },
    );
    let [here, there] = [Buses::new(), Buses::new()];
    let realm = ["--realm", "deaf"];
    let sends = ["net", "send", "t", "--rate", "1Mbit/s", "--name", "line-3"];
    let sender = start(from, &here, &[&sends[..], &realm].concat());
    let receiver = start(to, &there, &[&["net", "receive"][..], &realm].concat());
    publish(from, &here, "t", "1");
    receiver.wait_for_error("none of them has counted this host as a receiver: ");
    sender.wait_for_error("messages were sent 5 s ago, and no receiver has answered: ");
    assert_eq!(receiver.errors().matches("event=silence").count(), 1, "{}", receiver.errors());
}

/// A stream says who sends it and what it carries, and the host that lists it does not become one of its receivers.
#[test]
fn the_nodes_of_a_realm_are_listed_with_what_they_send() {
    let Some(network) = Setup::new(3).bridged() else { return };
    let [from, to, third] = &network.hosts[..] else { panic!("three hosts") };
    let (a, b) = (Buses::new(), Buses::new());
    let realm = ["--realm", "plant"];
    let sends = ["net", "send", "plant/**", "office/*", "--rate", "10Mbit/s", "--name", "line-3"];
    let _sender = start(from, &a, &[&sends[..], &realm].concat());
    let receiver = start(to, &b, &[&["net", "receive", "--name", "line-4"][..], &realm].concat());
    receiver.wait_for_error("follows stream 1 of line-3");
    let list = |more: &[&str]| {
        let arguments = [&["net", "nodes"], more, &realm].concat();
        let output = Program::start(on(third, &a, &arguments)).finish();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // The first list may be made before the sender knows its receiver.
    let text = list(&[]);
    assert!(text.contains("10 Mbit/s") && text.contains("plant/**, office/*"), "{text}");
    let text = list(&["--json"]);
    let node: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(node["node"], "line-3");
    assert!(node["address"].as_str().unwrap().starts_with("10.77.0.1:"), "{node}");
    assert_eq!(node["patterns"], json!(["plant/**", "office/*"]));
    assert_eq!((&node["receivers"], &node["stream"]), (&1.into(), &1.into()));
    assert_eq!(node["rate_bits"], 10_000_000);
    assert_eq!(node["source"].as_str().unwrap().len(), 8);
    let arguments = ["net", "nodes", "--realm", "other"];
    let output = Program::start(on(third, &a, &arguments)).finish();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no node of realm other was heard: "), "{error}");
}
