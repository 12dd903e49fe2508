//! `net replay`: history of a running node, by number.

use crate::node_observed::{address as metrics_address, metrics, with};
use crate::node_tcp::{Counted, address, bus, leave, listen};
use crate::nodes::{file, group, start};
use crate::support::{Buses, wait_until};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Output;
use toroni::BusConfig;
use toroni_testkit::Program;

/// A node with messages in its ring.
struct Scene {
    buses: Buses,
    node: Program,
    group: String,
    address: SocketAddr,
}

impl Scene {
    fn new(capacity: u64, count: u64, length: usize) -> Self {
        let (buses, address, group) = (Buses::new(), address(), group());
        let a = bus(&buses, "a", capacity);
        let sections = format!(
            "[[send]]\nstream = 1\npatterns = ['t']\ngroup = '{group}'\ndata_rate = '400Mbit/s'\nloop = true\nttl = 0\n{}",
            listen(address)
        );
        let path = file(&buses, "a", &sections);
        with(&path, "metrics = '127.0.0.1:0'");
        let node = start(&buses, &path);
        Counted::new(&a, "t").publish(count, length);
        let observed = metrics_address(&node);
        wait_until("the node has read them", || {
            metrics(&observed).value("toroni_net_sent_lag_bytes", &[("stream", "1")]) == Some(0.0)
        });
        Self { buses, node, group, address }
    }

    /// Runs the command: exit code, standard output, standard error.
    fn replay(&self, options: &[&str]) -> (i32, String, String) {
        let command = ["net", "replay", "--realm", "test"];
        let Output { status, stdout, stderr } = self.buses.run(&[&command[..], options].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

fn numbers(lines: &str) -> Vec<u64> {
    lines.lines().map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect()
}

#[test]
fn history_is_printed_by_number() {
    let scene = Scene::new(16 << 20, 1_000, 100);
    let address = scene.address.to_string();
    let connect = ["--connect", &address];
    let (code, stdout, stderr) =
        scene.replay(&[&connect[..], &["--from", "40", "--to", "42"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(numbers(&stdout), [40, 41, 42]);
    // The source says in its group where it listens.
    let options =
        ["--source", "a", "--group", &scene.group, "--interface", "lo", "--json", "--from", "990"];
    let (code, stdout, stderr) = scene.replay(&options);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sequences: Vec<&str> =
        lines.iter().map(|line| line["sequence"].as_str().unwrap()).collect();
    assert_eq!(sequences, (990..1_000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(lines.iter().all(|line| line["topic"] == "t"));
    let (code, stdout, stderr) =
        scene.replay(&[&connect[..], &["--from", "998", "--to", "5000"]].concat());
    assert_eq!((code, numbers(&stdout)), (0, vec![998, 999]));
    assert!(stderr.contains("the source has nothing from number 1000 on"), "{stderr}");
    leave(scene.node);
}

/// The node has kept a place for whom it reads the ring.
#[test]
fn history_is_there_although_the_bus_takes_no_more_subscribers() {
    let scene = Scene::new(16 << 20, 100, 100);
    let bus = BusConfig::new().directory(scene.buses.path()).open("a").unwrap();
    let mut others = Vec::new();
    while let Ok(subscriber) = bus.subscribe("**") {
        others.push(subscriber);
    }
    let address = scene.address.to_string();
    for _ in 0..2 {
        let (code, stdout, stderr) = scene.replay(&["--connect", &address, "--strict"]);
        assert_eq!((code, stderr.as_str()), (0, ""));
        assert!(numbers(&stdout).into_iter().eq(0..100));
    }
    leave(scene.node);
}

#[test]
fn what_was_overwritten_is_reported_with_its_numbers() {
    let scene = Scene::new(1 << 20, 5_000, 1_000);
    let address = scene.address.to_string();
    let options = ["--connect", &address, "--json", "--strict"];
    let (code, stdout, _) = scene.replay(&options);
    assert_eq!(code, 3);
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (lost, rest) = lines.split_first().unwrap();
    let lost = &lost["lost"];
    let until: u64 = lost["until"].as_str().unwrap().parse().unwrap();
    assert_eq!((lost["from"].as_str(), lost["bound"].as_str()), (Some("0"), Some("at_most")));
    assert_eq!(lost["messages"], until.to_string());
    let sequences =
        rest.iter().map(|line| line["sequence"].as_str().unwrap().parse::<u64>().unwrap());
    assert!(sequences.eq(until..5_000));
    leave(scene.node);
}

/// A bus takes each message once.
#[test]
fn history_is_brought_to_a_bus_with_its_origin() {
    let scene = Scene::new(16 << 20, 3_000, 1_000);
    let address = scene.address.to_string();
    let into = ["--connect", &address, "--into", "copy"];
    let (code, _, stderr) = scene.replay(&[&into[..], &["--to", "999"]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("brought 1000 messages to bus copy"), "{stderr}");
    assert_eq!(scene.replay(&into).0, 0);
    let output = scene
        .buses
        .run(&["sub", "--bus", "copy", "--from", "oldest", "--count", "3000", "--strict", "**"]);
    assert!(output.status.success(), "{output:?}");
    assert!(numbers(&String::from_utf8(output.stdout).unwrap()).into_iter().eq(0..3_000));
    let stats = scene.buses.run(&[
        "sub",
        "--bus",
        "copy",
        "--from",
        "oldest",
        "--count",
        "3001",
        "--timeout",
        "200ms",
        "**",
    ]);
    assert!(!stats.status.success(), "there are no more");
    leave(scene.node);
}

#[test]
fn what_cannot_be_had_is_said() {
    let scene = Scene::new(1 << 20, 10, 10);
    let address = scene.address.to_string();
    for (options, code, wanted) in [
        (&["--connect", &address, "--from", "9", "--to", "3"][..], 2, "--to is before --from"),
        (&["--connect", &address, "--source", "a"], 2, "--source is an id of 8 hexadecimal digits"),
        (&["--connect", &address, "--source", "00000001"], 1, "has no such stream"),
        (&["--connect", &address, "--stream", "9"], 1, "has no such stream"),
        (&["--connect", &address, "--from", "999999999999999999"], 2, "it is below 2^48"),
        (&["--connect", "127.0.0.1:1"], 1, "no connection to 127.0.0.1:1: Connection refused"),
        (&["--from", "1"], 2, "--source"),
    ] {
        let (found, _, stderr) = scene.replay(options);
        assert!(found == code && stderr.contains(wanted), "{options:?}: {found}, {stderr}");
    }
    let other = scene.buses.run(&["net", "replay", "--connect", &address, "--realm", "other"]);
    assert_eq!(other.status.code(), Some(1));
    // A user waits for this command, so it does not wait for another process.
    let copy = BusConfig::new().directory(scene.buses.path()).open("copy").unwrap();
    let _exclusive = copy.exclusive().unwrap();
    let (code, _, stderr) = scene.replay(&["--connect", &address, "--into", "copy"]);
    let wanted = format!("process {}, can publish on bus copy", std::process::id());
    assert!(code == 1 && stderr.contains(&wanted), "{code}, {stderr}");
    leave(scene.node);
}
