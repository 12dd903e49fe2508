//! Members of a feed: real nodes on the loopback interface, or on hosts that are network namespaces, each with buses of its own,
//! and `toroni sequencer`.

use crate::hosts;
use crate::nodes::{group, start};
use crate::support::{Buses, LIMIT, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use toroni_testkit::network::Network;
use toroni_testkit::wait::within;
use toroni_testkit::{Place, Places, Program};

/// Members elect another leader if the one that they have is late. If the members of many tests share the processors,
/// each is late.
pub(crate) static FEEDS: Places = Places::new(4);

/// Takes a place, unless the only member has no other to elect.
fn place(members: usize) -> Option<Place<'static>> {
    (members > 1).then(|| FEEDS.take())
}

/// The members of a feed `orders`: m0, m1, … A further host takes part without a member.
pub(crate) struct Hosts {
    pub(crate) buses: Buses,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether the files have the name of the host instead of the address.
    pub(crate) is_named: bool,
    /// Without one, all are on the loopback interface.
    pub(crate) network: Option<Network>,
    /// More keys of `[node]` and of `[sequencer]`, on all hosts.
    pub(crate) keys: [String; 2],
    /// The tests declare nodes after this, so it is free again when they have ended.
    _place: Option<Place<'static>>,
}

impl Hosts {
    pub(crate) fn new(members: usize) -> Self {
        let place = place(members);
        let addresses = (0..members).map(|_| toroni_testkit::port::free()).collect();
        let keys = [String::new(), String::new()];
        let (buses, is_named) = (Buses::new(), false);
        Self { buses, addresses, is_named, network: None, keys, _place: place }
    }

    /// Members on the first hosts of a network, of which the one that leads multicasts events.
    pub(crate) fn on(network: Network, members: usize) -> Self {
        let addresses =
            network.hosts[..members].iter().map(|host| SocketAddr::from((host.address(), 4481)));
        let addresses = addresses.collect();
        let node = "key_file = 'key'\ninterfaces = ['eth0']".to_owned();
        let keys = [node, "group = '239.192.84.80:4482'".to_owned()];
        let (buses, network) = (Buses::new(), Some(network));
        let hosts =
            Self { buses, addresses, is_named: false, network, keys, _place: place(members) };
        hosts.write_key();
        hosts
    }

    fn write_key(&self) {
        let key = self.buses.path().join("key");
        std::fs::write(&key, [5; 32]).unwrap();
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn list(&self) -> Vec<String> {
        let host = |address: &SocketAddr| match self.is_named {
            true => format!("localhost:{}", address.port()),
            false => address.to_string(),
        };
        let numbered = self.addresses.iter().enumerate();
        numbered.map(|(number, address)| format!("m{number}={}", host(address))).collect()
    }

    /// The realm. It is the test's own: on a host, a source id of a realm belongs to one process.
    pub(crate) fn realm(&self) -> String {
        self.buses.path().file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// The directory of the buses of a host.
    pub(crate) fn directory(&self, host: usize) -> PathBuf {
        self.buses.path().join(format!("buses-{host}"))
    }

    pub(crate) fn log(&self, host: usize) -> String {
        self.buses.path().join(format!("state-{host}/log")).to_str().unwrap().to_owned()
    }

    /// Writes the file of a host, with more keys of `[node]` and of `[sequencer]`.
    pub(crate) fn file(&self, host: usize, node: &str, sequencer: &str) -> String {
        std::fs::create_dir_all(self.directory(host)).unwrap();
        let mut text = format!(
            "[node]\nrealm = '{}'\nname = 'host-{host}'\nstate = 'state-{host}'\n{}\n{node}\n[node.bus]\ndirectory = '{}'\n\
             [sequencer]\nfeed = 'orders'\nmembers = {:?}\n{}\n{sequencer}\n",
            self.realm(),
            self.keys[0],
            self.directory(host).display(),
            self.list(),
            self.keys[1],
        );
        if host < self.addresses.len() {
            let _ = writeln!(text, "member = 'm{host}'");
            if self.keys[1].contains("group = ") {
                let _ = writeln!(text, "data_rate = '50Mbit/s'");
            }
        }
        let path = self.buses.path().join(format!("host-{host}.toml"));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn start(&self, host: usize) -> Program {
        self.start_with(host, "")
    }

    /// Starts a node with more keys of `[node]`.
    pub(crate) fn start_with(&self, host: usize, node: &str) -> Program {
        let path = self.file(host, node, "");
        match &self.network {
            Some(network) => {
                hosts::start(&network.hosts[host], &self.buses, &["node", "--config", &path])
            }
            None => start(&self.buses, &path),
        }
    }

    /// Starts all members, and begins the group.
    pub(crate) fn begin(&self) -> Vec<Program> {
        let nodes = (0..self.addresses.len()).map(|host| self.start(host)).collect();
        self.init();
        self.wait_for_leader();
        nodes
    }

    /// Begins the group. Its members may be too busy to answer in time, and may have begun all the same.
    pub(crate) fn init(&self) {
        wait_until("the group begins", || {
            let output = self.try_sequencer(0, &["init"]);
            output.status.success() || error(&output).contains("has begun already")
        });
    }

    /// Runs `toroni sequencer …` with the file of the first host, and returns what it printed.
    pub(crate) fn sequencer(&self, arguments: &[&str]) -> String {
        let output = self.try_sequencer(0, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn try_sequencer(&self, host: usize, arguments: &[&str]) -> Output {
        let path = self.buses.path().join(format!("host-{host}.toml"));
        let all = [&["sequencer"], arguments, &["--config", path.to_str().unwrap()]].concat();
        match &self.network {
            Some(network) => {
                Program::start(hosts::on(&network.hosts[host], &self.buses, &all)).finish()
            }
            None => self.buses.run(&all),
        }
    }

    /// Returns what `status --json` prints: nothing if all members are too busy to answer in time.
    pub(crate) fn status(&self) -> Value {
        let output = self.try_sequencer(0, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> Option<usize> {
        let status = self.status();
        status["leader"].as_str()?.strip_prefix('m')?.parse().ok()
    }

    /// Waits until a member leads. On a busy machine, members elect another one at any time.
    pub(crate) fn wait_for_leader(&self) -> usize {
        let mut leader = None;
        wait_until("there is a leader", || {
            leader = self.leader();
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Waits until all members have all events that the leader has.
    pub(crate) fn wait_until_equal(&self) {
        wait_until("all members have all events", || self.are_equal());
    }

    pub(crate) fn are_equal(&self) -> bool {
        let status = self.status();
        let is_equal =
            |member: &Value| member["events"] == status["events"] && member["behind_entries"] == 0;
        status["events"].is_u64()
            && status["members"].as_array().is_some_and(|members| members.iter().all(is_equal))
    }

    /// Asks for what is refused with this text. Who would refuse it may be too busy to answer in time, or another leader may be
    /// elected meanwhile.
    pub(crate) fn refused(&self, host: usize, arguments: &[&str], wanted: &str) {
        wait_until(wanted, || {
            let output = self.try_sequencer(host, arguments);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            error(&output).contains(wanted)
        });
    }

    /// Has the leader change the group, which it cannot while another one is elected.
    pub(crate) fn change(&self, arguments: &[&str]) {
        let mut said = String::new();
        let done = within(LIMIT, || {
            let output = self.try_sequencer(0, arguments);
            said = error(&output);
            output.status.success()
        });
        assert!(done, "{arguments:?}: {said}");
    }

    /// Returns the table of `status` when it has all this.
    pub(crate) fn table_with(&self, parts: &[&str]) -> String {
        let mut table = String::new();
        wait_until(&format!("the status has {parts:?}"), || {
            table = String::from_utf8(self.try_sequencer(0, &["status"]).stdout).unwrap();
            parts.iter().all(|part| table.contains(part))
        });
        table
    }

    /// Returns the digests of all members, when they could be compared.
    pub(crate) fn digests(&self) -> Value {
        let mut digests = Value::Null;
        wait_until("the members are compared", || {
            let output = self.try_sequencer(0, &["digest", "--json"]);
            digests = serde_json::from_slice(&output.stdout).unwrap_or_default();
            !digests.is_null()
        });
        digests
    }
}

pub(crate) fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn leave(mut node: Program) {
    node.signal(Signal::TERM);
    assert!(node.wait().success(), "{}", node.errors());
}

#[test]
fn three_nodes_keep_one_order_and_a_fourth_takes_part() {
    let hosts = Hosts::new(3);
    hosts.file(0, "", "");
    let unanswered = hosts.try_sequencer(0, &["status"]);
    assert_eq!(unanswered.status.code(), Some(1));
    assert!(error(&unanswered).contains("no member of the feed orders answers"), "{unanswered:?}");

    let mut nodes: Vec<Program> = (0..2).map(|host| hosts.start(host)).collect();
    hosts.refused(0, &["init"], "all members must run, and m2 does not answer");
    nodes.push(hosts.start(2));
    hosts.refused(0, &["status"], "has not begun: toroni sequencer init begins it");
    hosts.init();
    hosts.refused(1, &["init"], "has begun already");
    hosts.wait_for_leader();

    nodes.push(hosts.start(3));
    let mut last = None;
    for host in [0, 1, 2, 3, 0] {
        let payload = format!("from {host}");
        let output = hosts
            .try_sequencer(host, &["send", "new/order", &payload, "--json", "--timeout", "60"]);
        assert!(output.status.success(), "{output:?}");
        let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
        let event = sent["event"].as_u64().unwrap();
        assert!(last.is_none_or(|last| event > last), "event {event} after {last:?}");
        assert!(sent["round_trip_seconds"].as_f64().unwrap() > 0.0);
        last = Some(event);
    }
    hosts.wait_until_equal();
    hosts.table_with(&["leads", "follows m"]);
    let top = |host: usize| {
        let arguments = ["top", "orders", "--once"];
        let command = system_tests::program::toroni(&hosts.directory(host), &arguments);
        Program::start(command).succeed()
    };
    wait_until("top shows the leader", || {
        (0..3).any(|host| ["leads", "own member"].iter().all(|part| top(host).contains(part)))
    });
    wait_until("top shows the host without a member", || {
        ["no member", "TCP"].iter().all(|part| top(3).contains(part))
    });
    let digest = hosts.digests();
    assert_eq!(digest["equal"], true);
    assert_eq!(digest["digests"].as_object().unwrap().len(), 3);
    for mut node in nodes {
        node.signal(Signal::TERM);
        assert!(node.wait().success(), "{}", node.errors());
    }
    for host in 0..3 {
        let output = hosts.buses.run(&["sequencer", "log", &hosts.log(host), "--check"]);
        let said = error(&output);
        assert!(output.status.success() && said.contains(", closed"), "{output:?}");
        assert!(said.contains(digest["digests"]["m0"].as_str().unwrap()), "{said}");
    }
}

#[test]
fn members_may_be_named_by_their_hosts() {
    let mut hosts = Hosts::new(3);
    hosts.is_named = true;
    let mut nodes = hosts.begin();
    // A host that is no member finds them by name, too.
    nodes.push(hosts.start(3));
    let output = hosts.try_sequencer(3, &["send", "new/order", "1", "--timeout", "60"]);
    assert!(output.status.success(), "{output:?}");
    hosts.wait_until_equal();
    let port = hosts.addresses[2].port();
    hosts.table_with(&[&format!("localhost:{port}"), "leads", "follows m"]);
    let members = hosts.list().join(",");
    let reach = ["sequencer", "status", "--feed", "orders", "--members", &members];
    wait_until("the members answer without a file", || hosts.buses.run(&reach).status.success());
    nodes.into_iter().for_each(leave);
}

#[test]
fn members_with_a_key_obey_only_who_has_it() {
    let hosts = Hosts::new(1);
    let key = |name: &str, byte| {
        let path = hosts.buses.path().join(name);
        std::fs::write(&path, [byte; 32]).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (key("right", 1), key("wrong", 2));
    let node = start(&hosts.buses, &hosts.file(0, &format!("key_file = '{right}'"), ""));
    let members = hosts.list().join(",");
    let run = |command: &str, key: &[&str]| {
        let feed = ["sequencer", command, "--feed", "orders", "--members", &members];
        hosts.buses.run(&[&feed, key].concat())
    };
    for key in [&[][..], &["--key-file", &wrong]] {
        for command in ["init", "status", "digest"] {
            let output = run(command, key);
            assert_eq!(output.status.code(), Some(1), "{command} {key:?}: {output:?}");
        }
    }
    // It may be too busy to answer in time.
    wait_until("it has not begun", || {
        error(&run("status", &["--key-file", &right])).contains("has not begun")
    });
    wait_until("the group begins", || {
        let output = run("init", &["--key-file", &right]);
        output.status.success() || error(&output).contains("has begun already")
    });
    wait_until("there is a leader", || run("status", &["--key-file", &right]).status.success());
    let other = hosts.buses.run(&[
        "sequencer",
        "status",
        "--feed",
        "other",
        "--members",
        &members,
        "--key-file",
        &right,
    ]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    leave(node);
}

#[test]
fn different_orders_have_different_digests() {
    let groups = [Hosts::new(1), Hosts::new(1)];
    let nodes: Vec<_> = groups.iter().flat_map(Hosts::begin).collect();
    for (hosts, payload) in groups.iter().zip(["one", "other"]) {
        hosts.sequencer(&["send", "t", payload, "--timeout", "60"]);
    }
    let both = format!("a={},b={}", groups[0].addresses[0], groups[1].addresses[0]);
    wait_until("the difference is found", || {
        let output =
            groups[0].buses.run(&["sequencer", "digest", "--feed", "orders", "--members", &both]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        error(&output).contains("have different events up to ")
    });
    nodes.into_iter().for_each(leave);
}

#[test]
fn a_command_that_no_node_takes_is_not_sent() {
    let hosts = Hosts::new(1);
    let node = hosts.begin();
    hosts.file(1, "", "");
    let output = hosts.try_sequencer(1, &["send", "t", "1", "--timeout", "0.2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error(&output).contains("nothing was sent: no node of this host takes"), "{output:?}");
    let long = "x".repeat(100_000);
    let topic = "t/".repeat(200) + "t";
    for (topic, payload, code) in [(topic.as_str(), "1", 2), ("t", long.as_str(), 0)] {
        let output = hosts.try_sequencer(0, &["send", topic, payload, "--timeout", "60"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    node.into_iter().for_each(leave);
}

#[test]
fn a_node_refuses_a_section_that_it_cannot_carry_out() {
    let hosts = Hosts::new(2);
    let refused = |path: &str, wanted: &str| crate::nodes::refused(&hosts.buses, path, wanted);
    refused(
        &hosts.file(0, "", "archive = true"),
        "[sequencer]: archive: is for nodes that are no members",
    );
    // The log is that of the first member: somebody has changed the list's order.
    leave(hosts.start(0));
    let path = hosts.file(0, "", "");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("\"m0=", "\"x=").replace("\"m1=", "\"m0=").replace("\"x=", "\"m1="),
    )
    .unwrap();
    refused(&path, "is the log of another member: it says \"feed orders, member m0, number 0\"");
    std::fs::write(&path, text.replace("feed = 'orders'", "feed = 'other'")).unwrap();
    refused(&path, "the file of this node says \"feed other, member m0, number 0\"");
    // Another process has its address, and then its log.
    let taken = TcpListener::bind(hosts.addresses[0]).unwrap();
    refused(&hosts.file(0, "", ""), "the member m0 cannot listen on ");
    drop(taken);
    let first = hosts.start(0);
    let second = hosts.file(1, "", &format!("log = '{}'", hosts.log(0)));
    refused(&second, "is the log of another member");
    leave(first);
}

#[test]
fn metrics_and_notices_tell_of_the_feed() {
    use crate::node_observed;
    use crate::prometheus::Prometheus;

    let mut hosts = Hosts::new(1);
    hosts.write_key();
    hosts.keys = [
        "key_file = 'key'\ninterfaces = ['lo']\nmetrics = '127.0.0.1:0'".to_owned(),
        format!("group = '{}'", group()),
    ];
    let node = hosts.start(0);
    node.wait_for_error("the feed orders has not begun");
    hosts.init();
    hosts.sequencer(&["send", "t", "1", "--timeout", "60"]);
    node.wait_for_error("leads the feed orders in term ");
    let address = node_observed::address(&node);
    let metrics = || node_observed::metrics(&address);
    let realm = hosts.realm();
    let labels = [("realm", &*realm), ("feed", "orders")];
    wait_until("the command was counted", || {
        metrics().value("toroni_sequencer_commands_total", &labels) == Some(1.0)
    });
    let samples = metrics();
    let value = |name: &str| samples.value(name, &labels).unwrap();
    assert_eq!(value("toroni_sequencer_leader"), 1.0);
    assert!(value("toroni_sequencer_term") >= 1.0);
    // The series of the feed, that of the command bus, and the command.
    assert_eq!(value("toroni_sequencer_events_total"), 3.0);
    assert!(value("toroni_sequencer_log_bytes") > 0.0);
    let bus = format!("node.{realm}");
    let mut command = hosts.buses.command(&["sub", "--bus", &bus, "term", "--from", "oldest"]);
    command.env("TORONI_DIR", hosts.directory(0));
    Program::start(command).line_where(|line| {
        let notice: Value = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        assert_eq!(notice["feed"], "orders", "{line}");
        notice["leader"] == "m0"
    });
    if crate::prometheus::is_installed("metrics_and_notices_tell_of_the_feed") {
        let archive = format!(
            "archive = true\narchive_capacity = '1GiB'\narchive_address = '{}'",
            toroni_testkit::port::free()
        );
        let archive = start(&hosts.buses, &hosts.file(1, "", &archive));
        archive.wait_for_error(", and to an archive");
        let targets = [address.clone(), node_observed::address(&archive)];
        let prometheus = Prometheus::start(&hosts.buses, "sequencer-alerts", &targets);
        let mut answer = Value::Null;
        let is_scraped = toroni_testkit::wait::within(toroni_testkit::wait::LIMIT, || {
            answer = prometheus.query("toroni_sequencer_commands_total");
            let found = answer["data"]["result"].as_array();
            found.is_some_and(|found| found.iter().any(|one| one["value"][1] == "1"))
        });
        assert!(is_scraped, "{answer}; up: {}", prometheus.query("up"));
        prometheus.answers_dashboard("toroni-sequencer");
        leave(archive);
    }
    leave(node);
}

#[test]
fn a_leader_that_hears_no_majority_does_not_look_healthy() {
    use crate::node_observed;

    let mut hosts = Hosts::new(3);
    hosts.keys[0] = "metrics = '127.0.0.1:0'".to_owned();
    let nodes = hosts.begin();
    hosts.wait_until_equal();
    let leads = hosts.wait_for_leader();
    let address = node_observed::address(&nodes[leads]);
    let realm = hosts.realm();
    let value = |name: &str| {
        let labels = [("realm", &*realm), ("feed", "orders")];
        node_observed::metrics(&address).value(name, &labels)
    };
    wait_until("it leads", || value("toroni_sequencer_leader") == Some(1.0));
    let others: Vec<_> = (0..3).filter(|host| *host != leads).collect();
    others.iter().for_each(|host| nodes[*host].signal(Signal::STOP));
    nodes[leads].wait_for_error("but it hears no majority: it takes no commands");
    wait_until("the metrics say so", || value("toroni_sequencer_leader") == Some(0.0));
    assert_eq!(value("toroni_sequencer_has_leader"), Some(0.0));
    assert!(value("toroni_sequencer_contact_seconds").unwrap() > 0.6);
    let status = hosts.try_sequencer(0, &["status", "--json"]);
    assert_eq!(status.status.code(), Some(1), "{status:?}");
    let wanted = format!("no majority of the members of the feed orders confirms m{leads}");
    assert!(error(&status).contains(&wanted), "{status:?}");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["leader"], Value::Null);
    assert_eq!(status["unconfirmed_leader"], format!("m{leads}"));
    assert_eq!(status["members"][leads]["is_out_of_contact"], true);
    let table = hosts.table_with(&["claims to lead in term ", "it hears no majority"]);
    assert!(table.contains("so it has taken no commands for "), "{table}");

    others.iter().for_each(|host| nodes[*host].signal(Signal::CONT));
    hosts.wait_for_leader();
    wait_until("the metrics say so", || value("toroni_sequencer_has_leader") == Some(1.0));
    hosts.table_with(&["confirmed by a majority", "follows m"]);
    nodes.into_iter().for_each(leave);
}

#[test]
fn a_member_without_its_log_is_not_advised_to_begin_the_group() {
    let hosts = Hosts::new(3);
    let mut nodes = hosts.begin();
    hosts.wait_until_equal();
    leave(nodes.pop().unwrap());
    std::fs::remove_dir_all(hosts.log(2)).unwrap();
    let node = hosts.start(2);
    node.wait_for_error(
        "its log is empty, and the group has begun: add it with toroni sequencer members add",
    );
    assert!(!node.errors().contains("has not begun"), "{}", node.errors());
    hosts.table_with(&["m2: its log is empty, and the group has begun"]);
    // As it says.
    hosts.change(&["members", "remove", "m2"]);
    hosts.change(&["members", "add", &format!("m2={}", hosts.addresses[2])]);
    hosts.wait_until_equal();
    nodes.push(node);
    nodes.into_iter().for_each(leave);
}

#[test]
fn a_bus_that_was_restored_from_a_backup_brings_nothing_and_ends_no_node() {
    let hosts = Hosts::new(1);
    let member = hosts.begin();
    let (bus, backup) = (hosts.directory(1), hosts.buses.path().join("backup"));
    let send = |payload: &str| {
        let output = hosts.try_sequencer(1, &["send", "t", payload, "--timeout", "60"]);
        assert!(output.status.success(), "{output:?}");
    };
    let node = hosts.start(1);
    send("on the first bus");
    leave(node);
    std::fs::rename(&bus, &backup).unwrap();
    let node = hosts.start(1);
    send("on the second");
    leave(node);
    std::fs::remove_dir_all(&bus).unwrap();
    std::fs::rename(&backup, &bus).unwrap();
    let node = hosts.start(1);
    node.wait_for_error(
        "so this one was restored from a backup, or its source was removed. Remove the bus",
    );
    let events = hosts.status()["events"].as_u64().unwrap();
    leave(node);
    assert_eq!(hosts.status()["events"].as_u64(), Some(events));
    // As it says.
    std::fs::remove_dir_all(&bus).unwrap();
    let node = hosts.start(1);
    send("on the third");
    leave(node);
    member.into_iter().for_each(leave);
}

#[test]
fn a_host_with_the_name_of_another_has_to_be_let_in() {
    let hosts = Hosts::new(1);
    let member = hosts.begin();
    let send = |seconds: &str| hosts.try_sequencer(1, &["send", "t", "1", "--timeout", seconds]);
    let sources = || {
        let output = hosts.try_sequencer(1, &["sources", "--json"]);
        let lines = String::from_utf8(output.stdout).unwrap();
        let all: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        all
    };
    let mut node = hosts.start(1);
    // Neither the member nor this host has sent a command.
    assert_eq!(sources(), [Value::Null; 0]);
    assert!(send("60").status.success());
    let [known] = &sources()[..] else { panic!("one source") };
    assert_eq!((&known["node"], &known["next"]), (&"host-1".into(), &1.into()));
    let source = known["source"].as_str().unwrap().to_owned();
    leave(node);

    // Its disk is lost, or another host has its name.
    std::fs::remove_dir_all(hosts.directory(1)).unwrap();
    std::fs::remove_dir_all(hosts.buses.path().join("state-1")).unwrap();
    node = hosts.start(1);
    let refused = send("60");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let why = "another host has opened this source";
    assert!(error(&refused).contains(why), "{refused:?}");
    node.wait_for_error(why);
    let table = hosts.try_sequencer(1, &["sources", "release", &source]);
    assert!(table.status.success(), "{table:?}");
    // What it holds is brought.
    wait_until("its commands are events", || {
        let last = |one: &Value| one["next"].as_u64();
        sources().first().and_then(last).is_some_and(|next| next > 0)
            && sources()[0]["bus"] != known["bus"]
    });
    assert!(send("60").status.success());
    leave(node);

    hosts.change(&["sources", "remove", &source]);
    assert_eq!(sources(), [Value::Null; 0]);
    hosts.refused(0, &["sources", "release", &source], "the order knows no such source");
    let node = hosts.start(1);
    node.wait_for_error("or its source was removed");
    leave(node);
    member.into_iter().for_each(leave);
}

#[test]
fn send_prints_the_number_that_the_event_has_on_every_bus_and_rewind_keeps_it() {
    let hosts = Hosts::new(1);
    let mut nodes = hosts.begin();
    nodes.push(hosts.start(1));
    let bus = |host: usize, name: &str| {
        let config = toroni::BusConfig::new().directory(hosts.directory(host));
        config.open_existing(name).unwrap()
    };
    let mut subscribers = [0, 1].map(|host| bus(host, "orders").subscribe("**").unwrap());
    let mut numbers = vec![];
    for payload in ["one", "two", "three"] {
        let output =
            hosts.try_sequencer(1, &["send", "new/order", payload, "--json", "--timeout", "60"]);
        assert!(output.status.success(), "{output:?}");
        let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
        let series = u32::try_from(sent["series"].as_u64().unwrap()).unwrap();
        for subscriber in &mut subscribers {
            let event = subscriber.receive_timeout(LIMIT).unwrap().unwrap();
            assert_eq!((event.topic(), &*event.text()), ("new/order", payload));
            assert_eq!(event.number(), sent["event"].as_u64());
            assert_eq!(event.origin().unwrap().series, series);
        }
        numbers.push(sent["event"].as_u64().unwrap());
    }
    // Into the directory of the host's other buses.
    let from = numbers[1].to_string();
    let again = ["rewind", "again", "--capacity", "1MiB", "--from", &from];
    let output = hosts.try_sequencer(1, &again);
    assert!(output.status.success(), "{output:?}");
    let builder = bus(1, "again").subscriber().pattern("**").start(toroni::Start::Oldest);
    let mut rewound = builder.build().unwrap();
    for number in &numbers[1..] {
        let event = rewound.receive_timeout(LIMIT).unwrap().unwrap();
        assert_eq!(event.number(), Some(*number));
    }
    let twice = hosts.try_sequencer(1, &again);
    assert_eq!(twice.status.code(), Some(1));
    assert!(error(&twice).contains("has messages: rewind into a new one"), "{twice:?}");
    nodes.into_iter().for_each(leave);
}
