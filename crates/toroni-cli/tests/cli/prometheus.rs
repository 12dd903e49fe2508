//! Prometheus itself, for tests of what it scrapes, and its tool promtool.

use crate::support::{Buses, Process, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether Debian's package `prometheus` is installed. If not, the test is skipped and reports that; with
/// `TORONI_CLIENTS=required`, as in CI, it fails.
pub(crate) fn is_installed(test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    if is_there("prometheus") && is_there("promtool") {
        return true;
    }
    let said = "prometheus or promtool is missing: apt-get install prometheus";
    assert!(std::env::var_os("TORONI_CLIENTS").is_none_or(|it| it != "required"), "{said}");
    // Not `eprintln!`: the test runner hides what passing tests print with it.
    let _ = writeln!(std::io::stderr(), "{test} skipped: {said}");
    false
}

pub(crate) fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// Runs promtool with an input, and returns what it printed. Panics if it fails.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(&mut command);
    process.stdin().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.finish();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the expressions of all panels, with the variables of Grafana filled in.
fn dashboard_queries(name: &str) -> Vec<String> {
    let text = fs::read_to_string(packaging(&format!("grafana/{name}.json"))).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap())
        .map(|query| query.replace("$bus", ".*").replace("$realm", ".*"))
        .map(|query| query.replace("$instance", ".*").replace("$feed", ".*"))
        .map(|query| query.replace("$__rate_interval", "1m").replace("$__range", "1m"))
        .collect();
    assert!(queries.len() >= 10, "{queries:?}");
    assert!(queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    queries
}

/// A Prometheus that scrapes every two seconds. That is also how long a node on a busy machine may take to answer.
pub(crate) struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    /// Starts it with rules of the packaging.
    pub(crate) fn start(buses: &Buses, rules: &str, targets: &[String]) -> Self {
        let configuration = format!(
            "global: {{scrape_interval: 2s}}\n\
             rule_files: [{}]\n\
             scrape_configs:\n\
             - job_name: toroni\n  static_configs: [{{targets: ['{}']}}]\n",
            packaging(&format!("prometheus/{rules}.yml")).canonicalize().unwrap().display(),
            targets.join("', '"),
        );
        let file = buses.path().join("prometheus.yml");
        fs::write(&file, configuration).unwrap();
        let storage = buses.path().join("storage");
        let mut command = Command::new("prometheus");
        command
            .arg("--config.file")
            .arg(&file)
            .arg("--storage.tsdb.path")
            .arg(&storage)
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = Process::start(&mut command);
        process.wait_for_error("Server is ready to receive web requests");
        Self { address: listening(process.id()), _process: process }
    }

    /// Asks everything that a dashboard asks. A panel that never shows anything has a wrong label or name.
    pub(crate) fn answers_dashboard(&self, name: &str) {
        for expression in dashboard_queries(name) {
            let shown = || {
                let answer = self.query(&expression);
                assert_eq!(answer["status"], "success", "{expression}: {answer}");
                answer["data"]["result"].as_array().map_or(0, Vec::len)
            };
            // A rate needs two values.
            if expression.contains("rate(") || expression.contains("increase(") {
                shown();
            } else {
                wait_until(&format!("{expression} shows something"), || shown() > 0);
            }
        }
    }

    pub(crate) fn query(&self, expression: &str) -> Value {
        let mut encoded = String::new();
        for byte in expression.bytes() {
            encoded += &format!("%{byte:02X}");
        }
        self.get(&format!("/api/v1/query?query={encoded}"))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        // In HTTP/1.0, the answer is not chunked.
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }
}

/// Returns the address that a process listens on: Prometheus does not say which port it was given.
fn listening(process: u32) -> SocketAddr {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    let sockets: BTreeSet<String> = links
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // State 0A is LISTEN.
        if fields[3] == "0A" && sockets.contains(fields[9]) {
            let port = fields[1].split(':').nth(1).unwrap();
            return SocketAddr::from(([127, 0, 0, 1], u16::from_str_radix(port, 16).unwrap()));
        }
    }
    panic!("process {process} does not listen: {table}");
}
