//! Prometheus scrapes the server, and its tools check the metrics and the rules.

use super::Server;
use crate::prometheus::{Prometheus, is_installed, packaging, promtool};
use crate::support::{Buses, Process, wait_until};
use std::collections::BTreeSet;
use std::process::Stdio;

/// A bus with a publisher and a subscriber, so that every metric has a sample.
fn busy(buses: &Buses) -> (Process, Process) {
    let subscriber = buses.subscribe(&["-b", "plant", "t"]);
    let mut command = buses.command(&["-b", "plant", "pub", "t", "--timestamps"]);
    let mut publisher = Process::start(command.stdin(Stdio::piped()));
    publisher.tell("351.2");
    wait_until("it is published", || buses.info("plant")["messages"] == 1);
    (subscriber, publisher)
}

#[test]
fn promtool_finds_no_fault_in_the_metrics() {
    if !is_installed("promtool_finds_no_fault_in_the_metrics") {
        return;
    }
    let buses = Buses::new();
    let _participants = busy(&buses);
    let server = Server::start(&buses, &[]);
    let text = server.get("/metrics", "text/plain");
    assert!(text.contains("toroni_history_seconds{"), "{text}");
    promtool(&["check", "metrics"], &text);
}

#[test]
fn promtool_finds_no_fault_in_the_rules() {
    if !is_installed("promtool_finds_no_fault_in_the_rules") {
        return;
    }
    for name in ["alerts", "net-alerts", "sequencer-alerts"] {
        let rules = packaging(&format!("prometheus/{name}.yml"));
        let said = promtool(&["check", "rules", "--lint-fatal", rules.to_str().unwrap()], "");
        assert!(said.contains("SUCCESS"), "{said}");
        let tests = packaging(&format!("prometheus/{name}_test.yml"));
        promtool(&["test", "rules", tests.to_str().unwrap()], "");
    }
}

/// Prometheus scrapes the server, has every metric, and evaluates the rules and all queries of the dashboard.
#[test]
fn prometheus_scrapes_the_metrics() {
    if !is_installed("prometheus_scrapes_the_metrics") {
        return;
    }
    let buses = Buses::new();
    let _participants = busy(&buses);
    let server = Server::start(&buses, &[]);
    let prometheus = Prometheus::start(&buses, "alerts", &[server.address.to_string()]);
    let total = "toroni_messages_total{bus=\"plant\"}";
    wait_until("Prometheus has scraped", || {
        prometheus.query(total)["data"]["result"][0]["value"][1] == "1"
    });
    assert_eq!(prometheus.query("up")["data"]["result"][0]["value"][1], "1");
    // Every metric that the server writes has arrived, with its type.
    let text = server.get("/metrics", "*/*");
    let written: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let metadata = prometheus.get("/api/v1/metadata");
    for name in &written {
        assert!(metadata["data"].get(name).is_some(), "{name} is missing: {metadata}");
    }
    let rules = prometheus.get("/api/v1/rules");
    let rules = &rules["data"]["groups"][0]["rules"];
    assert!(rules.as_array().is_some_and(|all| all.len() >= 4), "{rules}");
    prometheus.answers_dashboard("toroni");
}
