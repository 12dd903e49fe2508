//! What a node tells: its log, its metrics and its notices.

use crate::node_tcp::leave;
use crate::nodes::{file, group, receiving, sending, start};
use crate::openmetrics::{self, Samples};
use crate::prometheus::Prometheus;
use crate::support::{Buses, LIMIT, Process, json_lines, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use toroni_testkit::Program;

/// Adds keys to the section `[node]` of a file.
pub(crate) fn with(path: &str, keys: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, text.replacen("[node]\n", &format!("[node]\n{keys}\n"), 1)).unwrap();
}

/// Returns the address at which a node serves its metrics.
pub(crate) fn address(node: &Program) -> String {
    node.wait_for_error("serving http://");
    let said = node.errors();
    let line = said.lines().find_map(|line| line.split("http://").nth(1)).unwrap().to_owned();
    line.split('/').next().unwrap().to_owned()
}

fn get(address: &str, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    body.to_owned()
}

pub(crate) fn metrics(address: &str) -> Samples {
    openmetrics::parse(&get(address, "/metrics", "application/openmetrics-text"))
}

/// Follows the notices of the realm, from the oldest on.
pub(crate) struct Notices {
    process: Process,
    seen: Vec<(String, Value)>,
}

impl Notices {
    pub(crate) fn new(buses: &Buses) -> Self {
        wait_until("the bus of notices exists", || buses.path().join("node.test").exists());
        let arguments = ["sub", "--bus", "node.test", "**", "--from", "oldest", "--json"];
        Self { process: Process::start(&mut buses.command(&arguments)), seen: Vec::new() }
    }

    /// Waits for a notice of a node on a topic, and returns it.
    pub(crate) fn wait(&mut self, topic: &str, condition: impl Fn(&Value) -> bool) -> Value {
        loop {
            let found = self.seen.iter().find(|(on, notice)| on == topic && condition(notice));
            if let Some((_, notice)) = found {
                return notice.clone();
            }
            let line: Value = serde_json::from_str(&self.process.line()).unwrap();
            let notice = serde_json::from_str(line["payload"].as_str().unwrap()).unwrap();
            self.seen.push((line["topic"].as_str().unwrap().to_owned(), notice));
        }
    }
}

fn of(node: &'static str) -> impl Fn(&Value) -> bool {
    move |notice| notice["node"] == node
}

/// Two nodes on the loopback interface: one that sends, and one that receives with more keys.
fn pair(buses: &Buses, keys: &str, receive: &str) -> (Program, Program) {
    pair_with(buses, keys, "", receive)
}

/// The same, where the sender also has more keys.
fn pair_with(buses: &Buses, keys: &str, send: &str, receive: &str) -> (Program, Program) {
    let group = group();
    let from = file(buses, "from", &(sending(&group) + send));
    let to = file(buses, "to", &(receiving(&group).replace("'9s'", receive)));
    for path in [&from, &to] {
        with(path, &format!("metrics = '127.0.0.1:0'\n{keys}"));
    }
    let to = start(buses, &to);
    let from = start(buses, &from);
    to.wait_for_error("follows stream 1");
    (from, to)
}

#[test]
fn metrics_and_notices_say_what_two_nodes_exchange() {
    let buses = Buses::new();
    let (mut from, mut to) = pair(&buses, "", "'9s'");
    let mut publisher = Process::start(
        buses.command(&["pub", "--bus", "from", "t", "-q", "--timestamps"]).stdin(Stdio::piped()),
    );
    for number in 0..100 {
        publisher.tell(&number.to_string());
    }
    let (sender, receiver) = (address(&from), address(&to));
    let realm = ("realm", "test");
    wait_until("all messages arrived", || {
        let samples = metrics(&receiver);
        samples.value("toroni_net_received_messages_total", &[("stream", "1")]) == Some(100.0)
    });
    wait_until("the sender counted them", || {
        let samples = metrics(&sender);
        samples.value("toroni_net_sent_messages_total", &[realm, ("stream", "1")]) == Some(100.0)
            && samples.value("toroni_net_receivers", &[realm]) == Some(1.0)
    });
    let samples = metrics(&sender);
    assert_eq!(samples.value("toroni_net_receiver_naks_total", &[("name", "to")]), Some(0.0));
    let part = |samples: &Samples, part: &str| {
        samples.value("toroni_net_time_seconds_count", &[("part", part)]).unwrap()
    };
    assert_eq!(part(&samples, "bus"), 100.0);
    assert!(part(&samples, "batching") > 0.0 && part(&samples, "pacing") > 0.0);
    let samples = metrics(&receiver);
    for name in ["network", "socket", "ring", "total"] {
        assert!(part(&samples, name) > 0.0, "{name}");
        // Every bucket has at least what those before have, and the last one has everything.
        let buckets = samples.all("toroni_net_time_seconds_bucket", &[("part", name)]);
        assert!(buckets.is_sorted(), "{name}: {buckets:?}");
        assert_eq!(buckets.last().copied(), Some(part(&samples, name)));
    }
    assert_eq!(part(&samples, "total"), 100.0);
    assert_eq!(samples.value("toroni_net_kernel_dropped_total", &[("kind", "group")]), Some(0.0));
    assert_eq!(get(&sender, "/healthz", "*/*"), "ok\n");

    let mut notices = Notices::new(&buses);
    let up = notices.wait("source/up", of("to"));
    let joined = notices.wait("receiver/in", of("from"));
    assert_eq!((&up["stream"], &up["bus"]), (&1.into(), &"to".into()));
    assert_eq!((&joined["name"], &joined["why"]), (&"to".into(), &"heard".into()));
    let stats = notices.wait("stats", |it| it["node"] == "to" && it["heard"][0]["messages"] == 100);
    assert_eq!(stats["heard"][0]["name"], "from");
    assert_eq!(stats["heard"][0]["source"], up["source"]);
    let stats =
        notices.wait("stats", |it| it["node"] == "from" && it["sent"][0]["messages"] == 100);
    assert_eq!((&stats["realm"], &stats["source"]), (&"test".into(), &up["source"]));
    from.signal(Signal::TERM);
    assert!(from.wait().success());
    let down = notices.wait("source/down", of("to"));
    assert_eq!((&down["source"], &down["end"]), (&up["source"], &"complete".into()));
    to.signal(Signal::TERM);
    assert!(to.wait().success());
}

#[test]
fn promtool_finds_no_fault_in_the_metrics_of_a_node() {
    if !crate::prometheus::is_installed("promtool_finds_no_fault_in_the_metrics_of_a_node") {
        return;
    }
    let buses = Buses::new();
    let (_from, to) = pair(&buses, "", "'9s'");
    let text = get(&address(&to), "/metrics", "text/plain");
    assert!(text.contains("# TYPE toroni_net_time_seconds histogram\n"), "{text}");
    crate::prometheus::promtool(&["check", "metrics"], &text);
}

/// While a receiver is stopped, its receive buffer overflows. It says so itself, and to the sender.
#[test]
fn a_loss_is_attributed_to_the_receive_buffer() {
    let buses = Buses::new();
    // A small buffer, and no time for repairs. On a busy machine other losses may come first, so all lines are written.
    // The buffer keeps what came first. What is missing behind it is noticed with the next SESSION, which comes late.
    let keys = "stall = '1ms'\nlog = 'trace'";
    let late = "session_max = '5s'\nactivity = '15s'\n";
    let send = format!("session_min = '5s'\n{late}");
    let (from, to) = pair_with(&buses, keys, &send, &format!("'0ms'\n{late}"));
    let mut notices = Notices::new(&buses);
    notices.wait("receiver/in", of("from"));
    to.stop();
    let bus = toroni::BusConfig::new().directory(buses.path()).open_existing("from").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let (sender, count) = (address(&from), 3_000);
    for _ in 0..count {
        publisher.publish([7; 1_000]).unwrap();
    }
    wait_until("all of it was sent", || {
        let name = "toroni_net_sent_messages_total";
        let samples = metrics(&sender);
        samples.value(name, &[]) == Some(f64::from(count))
            && samples.value("toroni_net_sent_lag_bytes", &[]) == Some(0.0)
    });
    to.resume();
    to.wait_for_error("datagrams were dropped in this socket's buffer: see toroni net buffer");
    let said = to.errors();
    let line = said.lines().find(|line| line.contains(" place=socket ")).unwrap();
    assert!(line.contains(" level=warn event=loss reason=budget "), "{line}");
    // The document shows such a line.
    let document = include_str!("../../../../docs/network.md");
    let shown = document.lines().find(|line| line.starts_with("toroni: lost 40 ")).unwrap();
    assert_eq!(crate::samples::shape(line), crate::samples::shape(shown), "{line}");
    let loss = notices.wait("loss", |loss| loss["node"] == "to" && loss["place"] == "socket");
    assert_eq!(loss["stream"], 1);
    assert!(loss["socket_dropped"].as_u64().unwrap() > 0 && loss["messages"].as_u64().unwrap() > 0);
    let receiver = address(&to);
    wait_until("the metrics have it", || {
        let samples = metrics(&receiver);
        let lost = samples.all("toroni_net_lost_messages_total", &[("stream", "1")]);
        let dropped = samples.value("toroni_net_kernel_dropped_total", &[("kind", "group")]);
        lost.iter().sum::<f64>() > 0.0 && dropped > Some(0.0)
    });
    // STATUS carries it to the sender.
    notices.wait("stats", |it| it["sent"][0]["receivers"][0]["kernel_dropped"].as_u64() > Some(0));
}

#[test]
fn budgets_are_counted_logged_and_published() {
    let buses = Buses::new();
    let group = group();
    let budget = "[budget]\ntotal = '1ns'\nbatching = '1h'\n";
    let to = file(&buses, "to", &format!("{}{budget}", receiving(&group)));
    let from = file(&buses, "from", &format!("{}{budget}", sending(&group)));
    with(&to, "metrics = '127.0.0.1:0'");
    let (to, from) = (start(&buses, &to), start(&buses, &from));
    to.wait_for_error("follows stream 1");
    buses.succeed(&["pub", "--bus", "from", "t", "x"]);
    to.wait_for_error("total took longer than 0.000 ms 1 times");
    to.wait_for_error(" level=warn event=budget part=total times=1 ");
    let mut notices = Notices::new(&buses);
    let excess = notices.wait("budget", of("to"));
    assert_eq!((&excess["part"], &excess["times"]), (&"total".into(), &1.into()));
    assert_eq!(excess["limit_seconds"], 1e-9);
    let address = address(&to);
    wait_until("the metrics have it", || {
        let exceeded =
            |part| metrics(&address).value("toroni_net_time_exceeded_total", &[("part", part)]);
        exceeded("total") == Some(1.0) && exceeded("ring") == Some(0.0)
    });
    assert!(!from.errors().contains("event=budget"), "{}", from.errors());
}

#[test]
fn the_log_has_what_its_level_says() {
    let buses = Buses::new();
    let (mut from, mut to) = pair(&buses, "log = 'debug'", "'9s'");
    to.wait_for_error(" level=debug event=counters ");
    for node in [&mut from, &mut to] {
        node.signal(Signal::TERM);
        assert!(node.wait().success());
    }
    let said = to.errors();
    assert!(said.contains(" level=info event=source_up source="), "{said}");
    let group = group();
    let path = file(&buses, "quiet", &receiving(&group));
    with(&path, "log = 'error'");
    let mut quiet = start(&buses, &path);
    quiet.signal(Signal::TERM);
    assert!(quiet.wait().success());
    assert_eq!(quiet.errors(), "");
    // Notices that the reader did not wait for are whole, too.
    let json = buses.run(&[
        "sub",
        "--bus",
        "node.test",
        "**",
        "--from",
        "oldest",
        "--count",
        "1",
        "--json",
    ]);
    assert_eq!(json_lines(&json.stdout).len(), 1);
}

/// A node whose notices cannot be published works on.
#[test]
fn a_node_needs_no_bus_of_notices() {
    let buses = Buses::new();
    std::fs::write(buses.path().join("node.test"), "no bus").unwrap();
    let (from, to) = pair(&buses, "", "'9s'");
    for node in [&from, &to] {
        node.wait_for_error("cannot publish notices on the bus node.test: ");
    }
    let receiver = address(&to);
    buses.succeed(&["pub", "--bus", "from", "t", "x"]);
    wait_until("the message arrived", || {
        let name = "toroni_net_received_messages_total";
        metrics(&receiver).value(name, &[("stream", "1")]) == Some(1.0)
    });
}

/// `top` reads the notices, and shows the nodes of the bus that it looks at.
#[test]
fn top_shows_the_nodes_of_a_bus() {
    let buses = Buses::new();
    let (from, mut to) = pair(&buses, "", "'9s'");
    let mut notices = Notices::new(&buses);
    // What top shows is in these.
    let has_receiver = |it: &Value| it["sent"][0]["receivers"][0]["name"] == "to";
    notices.wait("stats", |it| it["node"] == "from" && has_receiver(it));
    notices.wait("stats", |it| it["node"] == "to" && it["heard"][0]["name"] == "from");
    let top = |bus: &str| -> Value {
        serde_json::from_str(&buses.succeed(&["top", bus, "--once", "--json"])).unwrap()
    };
    let shown = top("from");
    assert_eq!(shown["network"]["nodes"].as_array().unwrap().len(), 1);
    let node = &shown["network"]["nodes"][0];
    assert_eq!((&node["node"], &node["realm"]), (&"from".into(), &"test".into()));
    assert_eq!(
        (&node["sent"][0]["stream"], &node["receivers"][0]["name"]),
        (&1.into(), &"to".into())
    );
    let shown = top("to");
    let node = &shown["network"]["nodes"][0];
    assert_eq!((&node["node"], &node["heard"][0]["name"]), (&"to".into(), &"from".into()));
    let screen = buses.succeed(&["top", "to", "--once"]);
    assert!(screen.contains("SOURCES HEARD") && screen.contains("from stream 1"), "{screen}");
    // One that was stopped in order is not there any more, and one that was killed is.
    leave(from);
    assert_eq!(top("from")["network"]["nodes"].as_array().unwrap().len(), 0);
    to.kill();
    assert_eq!(top("to")["network"]["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn an_address_for_metrics_that_is_in_use_is_named() {
    let buses = Buses::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let path = file(&buses, "a", &receiving(&group()));
    with(&path, &format!("metrics = '{address}'"));
    let output = buses.run(&["node", "--config", &path]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("cannot serve metrics on {address}: ")), "{said}");
    assert!(said.contains("choose another `metrics`"), "{said}");
}

#[test]
fn metrics_include_tcp() {
    let buses = Buses::new();
    let free = toroni_testkit::port::free();
    let budget = "[budget]\ntcp_queue = '1h'\n";
    let from = file(
        &buses,
        "from",
        &format!("{}[listen]\naddress = '{free}'\n{budget}", sending(&group())),
    );
    let to = file(&buses, "to", &format!("[[connect]]\naddress = '{free}'\nretry = '20ms'\n"));
    for path in [&from, &to] {
        with(path, "metrics = '127.0.0.1:0'");
    }
    let (from, to) = (start(&buses, &from), start(&buses, &to));
    to.wait_for_error("connected to ");
    let (server, client) = (address(&from), address(&to));
    wait_until("the client is counted", || {
        metrics(&server).value("toroni_net_tcp_clients", &[]) == Some(1.0)
    });
    let bus = toroni::BusConfig::new().directory(buses.path()).open_existing("from").unwrap();
    let publisher = bus.publisher("t").unwrap();
    wait_until("messages arrive", || {
        publisher.publish("x").unwrap();
        let brought = metrics(&client).all("toroni_net_tcp_received_messages_total", &[]);
        brought.iter().sum::<f64>() > 0.0
    });
    wait_until("its times are there", || {
        let name = "toroni_net_time_seconds_count";
        metrics(&server).value(name, &[("part", "tcp_queue")]) > Some(0.0)
    });
}

/// What waits for a node over TCP, for how long, and what was left out.
#[test]
fn the_queue_of_each_client_is_measured() {
    let buses = Buses::new();
    let free = toroni_testkit::port::free();
    // What does not fit is left out, and nothing because it is old.
    let listen = format!(
        "[listen]\naddress = '{free}'\nqueue_bytes = '256KiB'\nlatency_bound = '60s'\nstall = '90s'\n"
    );
    let from = file(&buses, "from", &listen);
    let to = file(&buses, "to", &format!("[[connect]]\naddress = '{free}'\nretry = '20ms'\n"));
    with(&from, "metrics = '127.0.0.1:0'");
    let from = start(&buses, &from);
    let to = start(&buses, &to);
    to.wait_for_error("connected to ");
    let server = address(&from);
    let of = |name: &str| metrics(&server).value(name, &[("name", "to")]);
    wait_until("the client has a queue", || of("toroni_net_tcp_queue_bytes") == Some(0.0));
    assert_eq!(of("toroni_net_tcp_queue_seconds"), Some(0.0));
    assert_eq!(of("toroni_net_tcp_queue_dropped_messages_total"), Some(0.0));
    to.stop();
    let bus = toroni::BusConfig::new().directory(buses.path()).open_existing("from").unwrap();
    let publisher = bus.publisher("t").unwrap();
    wait_until("its queue is full", || {
        (0..1_000).for_each(|_| _ = publisher.publish([7; 1_000]).unwrap());
        of("toroni_net_tcp_queue_dropped_messages_total") > Some(0.0)
    });
    assert!(of("toroni_net_tcp_queue_bytes") > Some(100_000.0));
    wait_until("it becomes old", || of("toroni_net_tcp_queue_seconds") > Some(1.0));
    to.resume();
    wait_until("the queue is empty", || of("toroni_net_tcp_queue_bytes") == Some(0.0));
}

/// If the sender waits for the receiver, messages wait in the stage of the inlet. Otherwise the node overwrites.
#[test]
fn what_waits_for_a_slow_subscriber_is_measured() {
    for waits in [true, false] {
        let buses = Buses::new();
        let bus = |name: &str, capacity| {
            let config = toroni::BusConfig::new().directory(buses.path()).capacity(capacity);
            config.policy(toroni::Policy::Wait { limit: None }).open(name).unwrap()
        };
        let (from, to) = (bus("from", 16 << 20), bus("to", 1 << 20));
        let mut slow = to.subscribe("**").unwrap();
        let (send, receive) = if waits {
            ("policy = 'slowest'\nrequired = ['to']\nhold_limit = '60s'\n", "required = true\n")
        } else {
            ("", "")
        };
        let group = group();
        let receiver = file(&buses, "to", &(receiving(&group) + receive));
        with(&receiver, "metrics = '127.0.0.1:0'");
        let receiver = start(&buses, &receiver);
        let _sender = start(&buses, &file(&buses, "from", &(sending(&group) + send)));
        receiver.wait_for_error("follows stream 1");
        let address = address(&receiver);
        let of = |name: &str| metrics(&address).value(name, &[]).unwrap();
        let publisher = from.publisher("t").unwrap();
        (0..3_000).for_each(|_| _ = publisher.publish([7; 1_000]).unwrap());
        if waits {
            wait_until("messages wait", || of("toroni_net_staged_bytes") > 0.0);
            wait_until("they become old", || of("toroni_net_staged_seconds") > 1.0);
            assert_eq!(of("toroni_net_overwriting_messages_total"), 0.0);
            for _ in 0..3_000 {
                slow.receive_timeout(LIMIT).unwrap().unwrap();
            }
        } else {
            wait_until("some did not wait", || of("toroni_net_overwriting_messages_total") > 0.0);
        }
        wait_until("the bus has all", || of("toroni_net_published_messages_total") == 3_000.0);
        wait_until("nothing waits", || {
            of("toroni_net_staged_bytes") == 0.0 && of("toroni_net_staged_seconds") == 0.0
        });
    }
}

#[test]
fn signals_ask_for_counters_and_for_nothing_else() {
    let buses = Buses::new();
    let path = file(&buses, "a", &sending(&group()));
    let command = buses.command(&["node", "--config", &path, "--log", "json"]);
    let mut node = Program::start_with_ready_fd(command);
    node.wait_ready();
    buses.succeed(&["pub", "--bus", "a", "t", "x"]);
    node.signal(Signal::HUP);
    node.wait_for_error("\"event\":\"hangup\"");
    wait_until("the message was counted", || {
        node.signal(Signal::USR1);
        let counted = "toroni_net_sent_messages_total{realm=\\\"test\\\",stream=\\\"1\\\"} 1";
        node.errors().contains(counted)
    });
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    // Every line is an object, beside the remark about the bus that did not exist.
    let errors = node.errors();
    let objects: Vec<Value> = errors
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("toroni: "))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(objects.iter().all(|it| it["time"].as_f64() > Some(0.0) && it["level"].is_string()));
    let start = objects.iter().find(|it| it["event"] == "start").unwrap();
    assert!(start["source"].is_string() && start["session"].is_u64(), "{start}");
    // What it has counted is the last that it says.
    let summary = objects.last().unwrap();
    assert_eq!((&summary["event"], &summary["level"]), (&"summary".into(), &"info".into()));
    let counted = ["sent_messages", "lost_messages"].map(|name| summary[name].as_u64());
    assert_eq!(counted, [Some(1), Some(0)], "{summary}");
    let text = summary["text"].as_str().unwrap();
    assert!(text.contains(": sent 1 message, and 0 datagrams again; brought 0 messages"), "{text}");
}

/// A user who closes the terminal in which it runs wants it to end.
#[test]
fn a_hangup_ends_a_node_without_a_file() {
    let buses = Buses::new();
    let mut receiver =
        Program::start_with_ready_fd(buses.command(&["net", "receive", "--interface", "lo"]));
    receiver.wait_ready();
    receiver.signal(Signal::HUP);
    assert!(receiver.wait().success());
}

/// Prometheus scrapes two nodes, and evaluates all queries of the dashboard.
#[test]
fn prometheus_scrapes_nodes() {
    if !crate::prometheus::is_installed("prometheus_scrapes_nodes") {
        return;
    }
    let buses = Buses::new();
    let free = toroni_testkit::port::free();
    let (from, to) = pair_with(&buses, "", &format!("[listen]\naddress = '{free}'\n"), "'9s'");
    let by_tcp = file(&buses, "tcp", &format!("[[connect]]\naddress = '{free}'\n"));
    let by_tcp = start(&buses, &by_tcp);
    by_tcp.wait_for_error("connected to ");
    buses.succeed(&["pub", "--bus", "from", "t", "x"]);
    let targets = [&from, &to].map(address);
    let prometheus = Prometheus::start(&buses, "net-alerts", &targets);
    let total = "sum(toroni_net_received_messages_total)";
    wait_until("Prometheus has scraped", || {
        prometheus.query(total)["data"]["result"][0]["value"][1] == "1"
    });
    prometheus.answers_dashboard("toroni-net");
}
