//! Zenoh's Python module, which knows nothing of Toroni, as a peer and as a router.
//!
//! `cargo xtask bridge` installs it and sets TORONI_ZENOH_PYTHON to the Python that has it.

use crate::hosts::{Host, Network, meet, skip};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use toroni_testkit::{Program, wait};

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("TORONI_ZENOH_PYTHON").map(PathBuf::from);
    if python.is_none() {
        skip(
            "TORONI_ZENOH_PYTHON does not name a Python with eclipse-zenoh: run `cargo xtask bridge`",
        );
    }
    python
}

/// Starts the peer on a host, and waits until its session is open.
fn peer(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Program {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/between_hosts/peer.py");
    let mut command = host.command(python().unwrap(), &[&[script], arguments].concat());
    command.envs(variables.iter().copied()).stdin(Stdio::piped());
    let mut program = Program::start(&mut command);
    program.expect("ready");
    program
}

/// Prints what a program has written to standard error if the test fails.
struct Logged(&'static str, Program);

impl Drop for Logged {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:{}", self.0, self.1.errors());
        }
    }
}

fn network(hosts: u8) -> Option<Network> {
    python()?;
    Network::new(hosts)
}

#[test]
fn a_foreign_program_reads_what_a_bus_says() {
    let Some(network) = network(2) else { return };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    let mut reader = peer(b, &["subscribe", "site-a/**"], &[]);
    let _bridge = a.bridge(&["--export", "plant/**", "--prefix", "site-a"]);
    // The first ones may come before the two know one another.
    let mut publisher = a.start_publishing("plant/line", 0..5_000, &["--rate", "1k/s"]);
    let mut samples: Vec<Value> = Vec::new();
    while samples.len() < 500 {
        let line = reader.line().expect("the peer lives");
        let sample: Value = serde_json::from_str(&line).unwrap();
        if sample["key"] == "site-a/plant/line" {
            samples.push(sample);
        }
    }
    publisher.kill();
    let first: u64 = samples[0]["payload"].as_str().unwrap().parse().unwrap();
    for (number, sample) in (first..).zip(&samples) {
        assert_eq!(sample["payload"], number.to_string(), "in order and complete");
        assert_eq!(sample["encoding"], "application/octet-stream");
        assert!(sample["attachment"].is_string(), "{sample}");
    }
}

#[test]
fn a_bus_gets_what_a_foreign_program_says() {
    let Some(network) = network(2) else { return };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    a.create_bus();
    let listener = a.listen(&["**"]);
    let address = "127.0.0.1:9480";
    let _bridge = a.bridge(&["--import", "**", "--prefix", "site-b", "--metrics", address]);
    let topics = [("plain", None), ("attached", Some("00")), ("long", Some("ab"))];
    for (deletions, (topic, attachment)) in (1..).zip(topics) {
        let key = format!("site-b/{topic}");
        let attachment = attachment.map(|byte| byte.repeat(40));
        let mut arguments = vec!["publish", &key, "2000"];
        arguments.extend(attachment.as_deref());
        let mut writer = peer(b, &arguments, &[]);
        listener.wait_settled(topic, 2_000);
        wait::until("the deletion arrives", || metrics_of(a, address)("deletes") == deletions);
        drop(writer.stdin());
        assert!(writer.wait().success(), "{}", writer.errors());
        assert_eq!(listener.account().balance(topic, 2_000), 0, "a deletion is no message");
    }
    let metrics = metrics_of(a, address);
    assert_eq!(metrics("unnumbered"), 6_000);
    assert_eq!(metrics("lost_messages"), 0);
}

/// Attachments of any bytes, keys that are no topics: counted, and the bridge works on.
#[test]
fn hostile_samples_do_no_harm() {
    let Some(network) = network(3) else { return };
    let [a, b, c] = &network.hosts[..] else { unreachable!() };
    a.create_bus();
    b.create_bus();
    let listener = b.listen(&["line", "hello"]);
    let _exporter = Logged("exporter", a.bridge(&["--export", "**"]));
    let importer = b.bridge(&["--import", "**", "--metrics", "127.0.0.1:9480"]);
    let mut importer = Logged("importer", importer);
    // A real attachment, to be changed.
    let mut reader = peer(c, &["subscribe", "**"], &[]);
    meet(a, "hello", &[&listener]);
    let seen = loop {
        a.publish("hello2", 0..1, &[]);
        let sample: Value = serde_json::from_str(&reader.line().unwrap()).unwrap();
        if let (Some("hello2"), Some(bytes)) =
            (sample["key"].as_str(), sample["attachment"].as_str())
        {
            break bytes.to_owned();
        }
    };
    let hostile = peer(c, &["hostile", "evil", "5000"], &[("SEEN", &seen)]);
    // Its seed is in what it writes.
    let mut hostile = Logged("hostile", hostile);
    a.publish("line", 0..5_000, &["--rate", "2k/s"]);
    listener.wait_settled("line", 5_000);
    drop(hostile.1.stdin());
    assert!(hostile.1.wait().success());
    listener.account().balance_within_bounds("line", 5_000);
    assert!(importer.1.ended().is_none());
    let log = importer.1.errors();
    assert!(!log.contains("panicked"));
    let metrics = metrics_of(b, "127.0.0.1:9480");
    assert!(metrics("bad_attachment") + metrics("foreign_attachment") > 0);
    let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
    assert!(warnings < 100, "the log is flooded: {warnings} warnings");
}

/// Zenoh's Python module as a router.
#[test]
fn a_router_joins_two_clients() {
    let Some(network) = network(3) else { return };
    let router = &network.hosts[2];
    let _router = peer(router, &["router", &router.address()], &[]);
    through_a_router(&network);
}

/// Zenoh's own router, which `cargo xtask bridge --router` builds.
#[test]
fn zenohd_joins_two_clients() {
    let Some(zenohd) = std::env::var_os("TORONI_ZENOHD") else {
        eprintln!(
            "SKIPPED: TORONI_ZENOHD does not name Zenoh's router: run `cargo xtask bridge --router`"
        );
        return;
    };
    let Some(network) = Network::new(3) else { return };
    let router = &network.hosts[2];
    let endpoint = format!("tcp/{}:7447", router.address());
    // A router that is killed would leave a file in /dev/shm.
    let memory = "transport/shared_memory/enabled:false";
    let options = ["--listen", &endpoint, "--no-multicast-scouting", "--cfg", memory];
    let mut command = router.command(PathBuf::from(zenohd), &options);
    let mut zenohd = Program::start(command.env("RUST_LOG", "info").env("NO_COLOR", "1"));
    zenohd.line_where(|line| line.contains("Zenoh can be reached at"));
    through_a_router(&network);
    assert!(zenohd.ended().is_none(), "{}", zenohd.errors());
}

/// Connects two sites that reach only the router on the third host.
fn through_a_router(network: &Network) {
    let [a, b, r] = &network.hosts[..] else { unreachable!() };
    a.create_bus();
    b.create_bus();
    let file = |host: &Host, role: &str| {
        let path = host.path().join("bridge.toml");
        let endpoint = format!("tcp/{}:7447", r.address());
        let text = format!(
            "zenoh = {{ mode = \"client\", connect = {{ endpoints = [\"{endpoint}\"] }} }}\n[[{role}]]\npatterns = [\"**\"]\n"
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let _exporter = a.bridge(&["--config", &file(a, "export")]);
    let _importer = b.bridge(&["--config", &file(b, "import")]);
    let listener = b.listen(&["**"]);
    meet(a, "hello", &[&listener]);
    a.publish("line", 0..20_000, &["--rate", "10k/s"]);
    listener.wait_settled("line", 20_000);
    listener.account().balance("line", 20_000);
}

/// A foreign program asks for the history of an export.
#[test]
fn a_foreign_program_asks_for_the_newest_messages() {
    let Some(network) = network(2) else { return };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    let _bridge = a.bridge(&["--export", "plant/**", "--history"]);
    a.publish("plant/line", 0..10, &[]);
    wait::until("the newest message is the answer", || {
        let mut asker = peer(b, &["query", "plant/line"], &[]);
        let answers = String::from_utf8(asker.finish().stdout).unwrap();
        let payloads: Vec<String> = answers
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|answer| answer["payload"].as_str().map(str::to_owned))
            .collect();
        payloads == ["9"]
    });
}

/// Reads the metrics of a bridge on this host.
fn metrics_of(host: &Host, address: &str) -> impl Fn(&str) -> u64 {
    let request = format!(
        "import urllib.request as u; print(u.urlopen('http://{address}/metrics').read().decode())"
    );
    let mut reader = Program::start(host.command("python3", &["-c", &request]));
    let text = String::from_utf8(reader.finish().stdout).unwrap();
    move |name| {
        let wanted = format!("toroni_zenoh_{name}_total ");
        let line = text.lines().find_map(|line| line.strip_prefix(&wanted).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no metric {name}: {text}")).parse().unwrap()
    }
}
