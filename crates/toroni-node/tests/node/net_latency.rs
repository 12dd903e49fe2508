//! `net latency` beside a running stream, with a switch between the hosts that delays.

use crate::hosts::{on, publish, start};
use crate::support::Buses;
use serde_json::Value;
use std::time::Duration;
use toroni_testkit::Program;
use toroni_testkit::network::Setup;
use toroni_testkit::network::switch::{Direction, Faults, Loss, Reach};

/// All hosts of the test have one clock, so the delay of the switch is the least that may be measured.
#[test]
fn the_delay_of_the_network_is_what_is_measured() {
    let Some(network) = Setup::new(2).switched(3) else { return };
    let delay = Duration::from_millis(7);
    let faults = Faults { delay, ..Faults::default() };
    network.switch().set_faults(1, Direction::Out, &faults);
    let buses = Buses::new();
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let chart = buses.path().join("latency.svg");
    let chart_path = chart.to_str().unwrap();
    let arguments = ["net", "latency", "--minutes", "0.7", "--json", "--realm", "plant"];
    let mut listener = start(to, &buses, &[&arguments[..], &["--plot", chart_path]].concat());
    let mut other = start(to, &buses, &["net", "latency", "--minutes", "0.1", "--realm", "other"]);
    let arguments =
        ["net", "send", "**", "--rate", "1Mbit/s", "--realm", "plant", "--name", "line-3"];
    let _sender = start(from, &buses, &arguments);
    for number in 0..50 {
        publish(from, &buses, "t", &number.to_string());
    }
    let output = listener.finish_within(Duration::from_secs(120));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(0), 1), "{text}");
    let stream: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&stream["node"], &stream["stream"]), (&"line-3".into(), &1.into()));
    assert!(stream["datagrams"].as_u64().unwrap() >= 50, "{stream}");
    let times = ["least_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "most_ns"]
        .map(|name| stream[name].as_u64().unwrap());
    assert!(times.is_sorted() && times[0] >= 7_000_000, "{stream}");
    // A busy machine may add to it, but hardly to every datagram.
    assert!(times[0] < 1_000_000_000, "{stream}");
    let windows = stream["windows"].as_array().unwrap();
    assert!((2..=6).contains(&windows.len()), "{stream}");
    assert!(windows.iter().all(|window| window["least_ns"].as_u64().unwrap() >= times[0]));
    assert!(windows.iter().all(|window| window["most_ns"].as_u64().unwrap() <= times[5]));
    // How the times change, and how they are distributed.
    let svg = std::fs::read_to_string(&chart).unwrap();
    for text in
        ["least time in each 10 s", "greatest time in each 10 s", "one in N datagrams", "<circle"]
    {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    // What is there is of another realm.
    let output = other.finish();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no stream of realm other was heard: "), "{error}");
}

/// What the network loses is shown beside the times, although the listener asks for nothing.
#[test]
fn what_does_not_come_is_counted() {
    let Some(network) = Setup::new(2).switched(5) else { return };
    let loss = Loss::Bernoulli(0.3);
    let faults = Faults { reach: Reach::Udp, loss, ..Faults::default() };
    network.switch().set_faults(1, Direction::Out, &faults);
    let buses = Buses::new();
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let arguments = ["net", "latency", "--minutes", "0.5", "--json", "--realm", "plant"];
    let mut listener = start(to, &buses, &arguments);
    let arguments =
        ["net", "send", "**", "--rate", "10Mbit/s", "--realm", "plant", "--name", "line-3"];
    let _sender = start(from, &buses, &arguments);
    // Each message fills a datagram.
    let lines = buses.path().join("lines");
    std::fs::write(&lines, format!("{}\n", "x".repeat(1_000)).repeat(200)).unwrap();
    let mut publisher = on(from, &buses, &["pub", "t", "--quiet"]);
    publisher.stdin(std::fs::File::open(&lines).unwrap());
    assert!(Program::start(publisher).finish().status.success());
    let output = listener.finish_within(Duration::from_secs(120));
    let text = String::from_utf8(output.stdout).unwrap();
    let stream: Value = serde_json::from_str(&text).unwrap();
    let [came, missing] = ["datagrams", "missing"].map(|name| stream[name].as_u64().unwrap());
    // 60 of 200 are expected; SESSIONs are among those that came.
    assert!((20..120).contains(&missing) && came + missing >= 200, "{stream}");
}

/// Without the key of the realm nothing is measured; with it, as without one.
#[test]
fn a_realm_with_a_key_needs_the_key() {
    use std::os::unix::fs::PermissionsExt;
    let Some(network) = Setup::new(2).bridged() else { return };
    let buses = Buses::new();
    let key = buses.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let key = key.to_str().unwrap();
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let mut with = start(to, &buses, &["net", "latency", "--minutes", "0.4", "--key-file", key]);
    let mut without = start(to, &buses, &["net", "latency", "--minutes", "0.4"]);
    let arguments = ["net", "send", "**", "--rate", "1Mbit/s", "--key-file", key, "--name", "x"];
    let _sender = start(from, &buses, &arguments);
    let output = with.finish();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("x     1 ")), "{text}");
    assert!(text.contains("least in each 10 s from x, stream 1: "), "{text}");
    assert_eq!(without.finish().status.code(), Some(1));
}

#[test]
fn a_chart_that_cannot_be_written_is_refused_before_the_measurement() {
    let output =
        Buses::new().run(&["net", "latency", "--interface", "lo", "--plot", "/nonexistent/x.svg"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write /nonexistent/x.svg"), "{error}");
}
