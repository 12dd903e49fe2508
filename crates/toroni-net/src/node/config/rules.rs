//! How the values of a file must relate.

use super::document::{Document, Values};
use super::finding::Findings;
use super::model::{FEED_RATE_MAX, Listen, stream_policy};
use super::ring;
use super::schema::{OF_NODES, OF_RECEIVERS, OF_SENDERS, key_of};
use super::value::Value;
use crate::host::address;
use crate::host::buffers::{Load, USUAL_DATAGRAM, usual_charge};
use crate::node::host_port::HostPort;
use std::net::SocketAddr;
use std::time::Duration;
use toroni::{Pattern, Policy as BusPolicy};
use toroni_proto::config::{Config as StreamConfig, ConfigError};
use toroni_proto::wire::{NodeName, Policy};

const MILLISECOND: u64 = 1_000_000;
const WHOLE: &str = "has a fraction of a millisecond: members count whole ones";
/// Members of a group have the numbers 0 to 7.
const MEMBERS_MAX: usize = 8;

/// How long a node may take to end, less than `TimeoutStopSec` of its unit.
const MOST_ENDING: Duration = Duration::from_secs(25);

/// Checks everything that needs no host.
pub(super) fn check(document: &Document, findings: &mut Findings) {
    let Some(node) = document.one("node") else { return };
    let mut rules = Rules { document, findings };
    rules.node(node);
    for values in document.all("send") {
        rules.send(values);
    }
    for values in document.all("receive") {
        rules.receive(values, node);
    }
    rules.streams(document.all("send"));
    rules.shared_socket(document.all("send"));
    rules.joined_twice(document.all("receive"));
    rules.groups();
    ring::check(document, rules.findings);
    if let Some(values) = document.one("listen") {
        rules.listen(values);
    }
    for values in document.all("connect") {
        rules.connect(values, node);
    }
    if let Some(values) = document.one("sequencer") {
        rules.sequencer(values, node);
    }
    let sections = ["send", "receive", "listen", "connect", "sequencer"];
    if sections.iter().all(|section| document.all(section).is_empty()) {
        let problem = "there is nothing to do: add [[send]], [[receive]], [listen], [[connect]] or [sequencer]";
        rules.findings.refuse(node.place, "[node]", problem);
    }
}

struct Rules<'a> {
    document: &'a Document,
    findings: &'a mut Findings,
}

impl Rules<'_> {
    fn refuse(&mut self, values: &Values, key: &str, problem: impl Into<String>) {
        self.findings.refuse(values.place_of(key), values.name_of(key), problem);
    }

    fn warn(&mut self, values: &Values, key: &str, problem: impl Into<String>) {
        self.findings.warn(values.place_of(key), values.name_of(key), problem);
    }

    fn node(&mut self, node: &Values) {
        let lingers = self.document.all("send").iter().filter_map(|send| send.time("generation"));
        let lingers = lingers.max().unwrap_or_default();
        if node.time("drain").is_some_and(|drain| drain.saturating_add(lingers) > MOST_ENDING) {
            let problem = "takes more than 25 s together with `generation`: systemd kills the unit of a node 30 s after it has asked it to stop";
            self.warn(node, "drain", problem);
        }
        if node.has("key_file_next") && !node.has("key_file") {
            self.refuse(
                node,
                "key_file_next",
                "is given without key_file: datagrams need a first key",
            );
        }
        let sends = ["send", "listen", "sequencer"];
        let sends = sends.iter().any(|section| !self.document.all(section).is_empty());
        if sends && !node.has("state") {
            self.warn(
                node,
                "state",
                "is missing: after a restart, the node cannot tell what it had sent, and other hosts report a loss",
            );
        }
        if node.has("cpu") && node.text("poll").as_deref() == Some("backoff") {
            self.warn(node, "cpu", "has no effect: only `poll = \"busy\"` stays on one processor");
        }
        if let Some(Value::Names(names)) = node.get("interfaces") {
            let twice =
                names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
            if let Some((_, name)) = twice {
                self.refuse(node, "interfaces", format!("names {name:?} twice"));
            }
        }
        if let Some(metrics) = node.address("metrics").filter(|address| !address.ip().is_loopback())
        {
            let problem = format!(
                "{metrics} is no loopback address: everyone who reaches it reads the metrics"
            );
            self.warn(node, "metrics", problem);
        }
    }

    fn send(&mut self, values: &Values) {
        if values.has("group") && values.has("to") {
            self.refuse(values, "to", "is given beside group: remove one of them");
        }
        if matches!(values.get("to"), Some(Value::Addresses(all)) if all.is_empty()) {
            self.refuse(values, "to", "is empty: name at least one receiver");
        }
        if matches!(values.get("patterns"), Some(Value::Patterns(all)) if all.is_empty()) {
            self.refuse(values, "patterns", "is empty: [\"**\"] sends everything");
        }
        if let (Some(patterns), Some(express)) =
            (values.patterns("patterns"), values.patterns("express"))
        {
            for one in express.iter().filter(|one| !patterns.iter().any(|it| it.intersects(one))) {
                self.warn(
                    values,
                    "express",
                    format!("{:?} matches no topic of the stream", one.as_str()),
                );
            }
        }
        match values.number("ttl") {
            Some(0) => self.warn(values, "ttl", "is 0: no datagram leaves the host"),
            Some(1) => self.warn(
                values,
                "ttl",
                "is 1: some routers handle each datagram in software to find that it has expired; 16 costs nothing",
            ),
            _ => {}
        }
        let mut config = values.stream_config(OF_SENDERS);
        self.relations(values, &config, OF_SENDERS);
        let Some(policy) = values.text("policy").and_then(|word| stream_policy(&word)) else {
            return;
        };
        config.policy = policy;
        match config.check_rates() {
            Ok(()) => {}
            Err(ConfigError::Missing { name, why }) => {
                // A rate that is there and wrong is a finding already.
                if values.get(name).is_none() {
                    self.refuse(values, name, format!("is missing: {why}"));
                }
            }
            Err(error) => self.refuse(values, "data_rate", error.to_string()),
        }
        self.required(values, &config);
        self.hold_limit(values, &config);
    }

    /// The receivers that a sender waits for.
    fn required(&mut self, values: &Values, config: &StreamConfig) {
        let Some(Value::Names(required)) = values.get("required") else { return };
        let count = required.len() as u64;
        let wrong = required.iter().find(|name| NodeName::new(name).is_none()).cloned();
        let twice = required.iter().enumerate().find(|(at, name)| required[..*at].contains(name));
        let twice = twice.map(|(_, name)| name.clone());
        if let Some(name) = wrong {
            self.refuse(values, "required", format!("{name:?} is no name of a node"));
        }
        if let Some(name) = twice {
            self.refuse(values, "required", format!("names {name:?} twice"));
        }
        if config.policy != Policy::Slowest {
            if count > 0 {
                let problem = "has no effect: only the policy slowest waits for receivers";
                self.warn(values, "required", problem);
            }
        } else if count == 0 {
            let problem = "is missing: name the nodes that the sender waits for, or choose the policy bounded";
            self.refuse(values, "required", problem);
        } else if config.group_min > count {
            let problem = format!(
                "is {}, and `required` names {count}: the sender would wait for ever",
                config.group_min
            );
            self.refuse(values, "group_min", problem);
        }
    }

    /// A sender that waits for receivers lets the publishers of its bus wait.
    fn hold_limit(&mut self, values: &Values, config: &StreamConfig) {
        if config.policy != Policy::Slowest {
            return;
        }
        if values.flag("gating") == Some(false) {
            let problem =
                "is false, and the policy is slowest: the node would be overtaken while it waits";
            self.refuse(values, "gating", problem);
        }
        self.publishers_wait(values, config.hold_limit_ns);
    }

    /// Publishers must wait as long as a receiver may hold them.
    fn publishers_wait(&mut self, values: &Values, hold_limit_ns: u64) {
        let bus = self.document.one("node.bus").and_then(|bus| match bus.get("policy") {
            Some(Value::Policy(policy)) => Some(*policy),
            _ => None,
        });
        let Some(policy) = bus else { return };
        let limit = bus_patience(policy);
        if limit.is_some_and(|limit| limit.as_nanos() < hold_limit_ns.into()) {
            let held = super::units::Quantity::Time.show(hold_limit_ns);
            let problem = format!(
                "is {held}, and publishers wait by the bus's policy {policy}: choose a policy that waits as long, or \
                 messages are lost while the sender waits"
            );
            self.refuse(values, "hold_limit", problem);
        }
    }

    fn receive(&mut self, values: &Values, node: &Values) {
        if matches!(values.get("accept"), Some(Value::Patterns(all)) if all.is_empty()) {
            self.refuse(values, "accept", "is empty: [\"**\"] takes everything");
        }
        let mut config = values.stream_config(OF_RECEIVERS);
        node.apply(OF_NODES, &mut config);
        self.relations(values, &config, &[OF_RECEIVERS, OF_NODES].concat());
        self.stale(values, node);
        let has_history =
            values.get("join").is_some_and(|join| *join != Value::Text("live".to_owned()));
        if has_history && values.text("order").as_deref() == Some("arrival") {
            let problem = "asks for history, which is brought only with `order = \"source\"`";
            self.refuse(values, "join", problem);
        }
        if has_history && values.number("replay_limit") == Some(0) {
            let problem = "asks for history, and `replay_limit` allows no time for it";
            self.refuse(values, "join", problem);
        }
        let is_slowest = |send: &Values| send.text("policy").as_deref() == Some("slowest");
        let bus = self.document.one("node.bus").and_then(|bus| bus.text("name"));
        let bus = bus.or_else(|| node.text("bus"));
        let is_same_bus = values.text("into").is_none_or(|into| Some(into) == bus);
        if values.flag("required") == Some(true)
            && is_same_bus
            && self.document.all("send").iter().any(is_slowest)
        {
            let problem = "is true, and a [[send]] has the policy slowest: two hosts would wait for each other";
            self.refuse(values, "required", problem);
        }
        if values.flag("proof") == Some(false) {
            let problem = if node.has("key_file") {
                "is false: a host that has recorded datagrams of the realm can send them again, and their messages reach the bus"
            } else {
                "has no effect: without key_file, no sender has to answer"
            };
            self.warn(values, "proof", problem);
        }
        self.lost_scope(values);
    }

    /// Checks which subscribers learn of losses.
    fn lost_scope(&mut self, values: &Values) {
        if let Some(Value::Patterns(scope)) = values.get("lost_scope")
            && !(1..=super::schema::PATTERNS_MAX).contains(&scope.len())
        {
            let problem = format!(
                "has {} patterns: write 1 to {}; [\"**\"] reports losses to all subscribers",
                scope.len(),
                super::schema::PATTERNS_MAX
            );
            self.refuse(values, "lost_scope", problem);
        }
    }

    /// What waits in a receive buffer for longer than the generation interval comes too late to ask for what is missing.
    fn stale(&mut self, values: &Values, node: &Values) {
        let (Some(stall), Some(generation)) = (node.time("stall"), values.time("generation"))
        else {
            return;
        };
        // The time is the same at every rate.
        let load = Load::new(1_000_000_000, USUAL_DATAGRAM, usual_charge(USUAL_DATAGRAM));
        let holds = load.latency(load.request(stall));
        if generation.is_zero() || holds <= generation {
            return;
        }
        let show = |time: Duration| {
            super::units::Quantity::Time.show(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let problem = format!(
            "the receive buffer for a stall of {} holds what arrives in {} ms, and gaps of {} are repaired for {} \
             (generation): what waits for longer comes too late. Choose a shorter stall, or a longer generation",
            show(stall),
            holds.as_millis(),
            values.name,
            show(generation)
        );
        let of = if node.has("stall") { (node, "stall") } else { (values, "generation") };
        self.warn(of.0, of.1, problem);
    }

    /// Checks the relations among these parameters. The other ones are not this section's.
    fn relations(&mut self, values: &Values, config: &StreamConfig, parameters: &[&str]) {
        for error in config.broken_relations() {
            let ConfigError::Relation { name, other, .. } = error else { continue };
            if ![name, other].iter().all(|name| parameters.contains(name)) {
                continue;
            }
            let is_invalid = |name: &str| values.get(key_of(name)) == Some(&Value::Invalid);
            if is_invalid(name) || is_invalid(other) {
                continue;
            }
            // At the key that is in the file; it may be either.
            let key = if values.has(key_of(name)) { key_of(name) } else { key_of(other) };
            self.refuse(values, key, error.to_string());
        }
    }

    fn streams(&mut self, sends: &[Values]) {
        for (index, one) in sends.iter().enumerate() {
            for other in &sends[..index] {
                let number = one.number("stream");
                if number.is_some() && number == other.number("stream") {
                    self.refuse(one, "stream", format!("is that of {}, too", other.name));
                }
                if let Some((a, b)) = overlap(one, other) {
                    let problem = format!(
                        "a topic can match {:?} and, in {}, {:?}: it would belong to two streams",
                        a.as_str(),
                        other.name,
                        b.as_str()
                    );
                    self.refuse(one, "patterns", problem);
                }
            }
        }
    }

    /// All streams leave through one socket on each interface, which has one TTL and one loop.
    fn shared_socket(&mut self, sends: &[Values]) {
        let Some((first, others)) = sends.split_first() else { return };
        let differs = |key: &str, show: &dyn Fn(&Values) -> Option<String>| {
            let of_first = show(first)?;
            let (other, found) = others.iter().find_map(|other| {
                show(other).filter(|found| *found != of_first).map(|found| (other, found))
            })?;
            let problem = format!(
                "is {found}, and in {} it is {of_first}: all streams of a node leave through one socket, so choose one value",
                first.name
            );
            Some((other, key.to_owned(), problem))
        };
        let ttl = differs("ttl", &|values| values.number("ttl").map(|ttl| ttl.to_string()));
        let looped = differs("loop", &|values| values.flag("loop").map(|on| on.to_string()));
        for (values, key, problem) in [ttl, looped].into_iter().flatten() {
            self.refuse(values, &key, problem);
        }
    }

    /// Two sections for one group would both answer the senders.
    fn joined_twice(&mut self, receives: &[Values]) {
        for (index, one) in receives.iter().enumerate() {
            let group = one.address("group");
            let same = receives[..index].iter().find(|other| other.address("group") == group);
            if let (Some(group), Some(other)) = (group, same) {
                self.refuse(one, "group", format!("{group} is that of {}, too", other.name));
            }
        }
    }

    /// All groups together: cards and switches tell them apart by parts of their addresses.
    fn groups(&mut self) {
        let mut all: Vec<(&Values, SocketAddr)> = Vec::new();
        for section in ["send", "receive", "sequencer"] {
            for values in self.document.all(section).iter().filter(|values| !values.has("to")) {
                all.extend(values.address("group").map(|group| (values, group)));
            }
        }
        let groups: Vec<SocketAddr> = all.iter().map(|(_, group)| *group).collect();
        let review = address::review(&groups);
        let owner = |text: &str| {
            let named =
                |(_, group): &&(&Values, SocketAddr)| text.contains(&group.ip().to_string());
            // What is found about two groups stands at the one that came later.
            all.iter().rev().find(named).map(|(values, _)| *values)
        };
        let refusals = review.refusals.iter().map(|refusal| (true, refusal.to_string()));
        let concerns = review.concerns.iter().map(|concern| (false, concern.to_string()));
        for (is_refused, problem) in refusals.chain(concerns) {
            let Some(values) = owner(&problem) else { continue };
            if is_refused {
                self.refuse(values, "group", problem);
            } else {
                self.warn(values, "group", problem);
            }
        }
    }

    fn listen(&mut self, values: &Values) {
        let rates = self.document.all("send").iter().filter_map(|send| send.number("data_rate"));
        if let (Some(replay), Some(data)) = (values.number("replay_rate"), rates.max())
            && replay < data
        {
            let [replay, data] = [replay, data].map(|rate| super::units::Quantity::Rate.show(rate));
            let problem = format!(
                "is {replay}, and a stream has the data_rate {data}: who catches up slower than the stream runs never does"
            );
            self.refuse(values, "replay_rate", problem);
        }
        if let Some(listen) = Listen::of(values) {
            let parameters = listen.parameters(None);
            if let Err(error) = parameters.check() {
                let key = match error {
                    ConfigError::Limit { name, .. } | ConfigError::Relation { name, .. } => name,
                    _ => "address",
                };
                self.refuse(values, key, error.to_string());
            }
            if listen.waits_for_receivers {
                self.publishers_wait(values, parameters.hold_limit_ns);
            }
        }
        if values.has("hold_limit") && values.text("pace").as_deref() == Some("source") {
            self.warn(
                values,
                "hold_limit",
                "has no effect: with `pace = \"source\"`, no receiver holds the sender",
            );
        }
    }

    fn connect(&mut self, values: &Values, node: &Values) {
        self.lost_scope(values);
        if let Some(Value::Host(host)) = values.get("address")
            && host.address().is_none()
            && !host.is_loopback()
            && !node.has("key_file")
        {
            let problem = format!(
                "{host} has a name, and [node] has no key_file: the host that answers for the name is believed"
            );
            self.warn(values, "address", problem);
        }
    }

    fn archive(&mut self, values: &Values, node: &Values) {
        if values.flag("archive") != Some(true) {
            let of_archives = ["archive_address", "archive_directory", "archive_capacity"];
            for key in of_archives.into_iter().filter(|key| values.has(key)) {
                self.warn(values, key, "has no effect: it needs `archive = true`");
            }
            return;
        }
        if values.has("member") {
            let problem =
                "is for nodes that are no members: a member keeps events in its log, see `retain`";
            self.refuse(values, "archive", problem);
        }
        if !values.has("archive_address") {
            let problem = "is missing: an archive needs an address where it answers";
            self.refuse(values, "archive_address", problem);
        }
        if !values.has("archive_capacity") {
            let problem = "is missing: set how much of the disk the archive may fill";
            self.refuse(values, "archive_capacity", problem);
        }
        if values.address("archive_address").is_some_and(|address| !address.ip().is_loopback())
            && !node.has("key_file")
        {
            let problem = "is reachable for other hosts, and [node] has no key_file: everyone who reaches it reads all \
                 events";
            self.warn(values, "archive_address", problem);
        }
        if !values.has("archive_directory") && !node.has("state") {
            let problem = "is missing: an archive is on a disk. Set it, or `state` in [node]";
            self.refuse(values, "archive_directory", problem);
        }
    }

    fn feed_by_multicast(&mut self, values: &Values, node: &Values) {
        let Some(group) = values.address("group") else {
            if values.has("data_rate") && values.has("member") {
                let problem = "has no effect: it needs `group`";
                self.warn(values, "data_rate", problem);
            }
            return;
        };
        if !node.has("key_file") {
            let problem = "needs a key_file in [node]: without one, anybody could forge events with one datagram";
            self.refuse(values, "group", problem);
        }
        let others = ["send", "receive"].into_iter().flat_map(|name| self.document.all(name));
        let same = others
            .filter(|other| !other.has("to"))
            .find(|other| other.address("group") == Some(group))
            .map(|other| other.name.clone());
        if let Some(other) = same {
            let problem = format!("{group} is that of {other}, too: a feed has a group of its own");
            self.refuse(values, "group", problem);
        }
        if let Some(rate) = values.number("data_rate").filter(|rate| *rate > FEED_RATE_MAX) {
            let [rate, most] =
                [rate, FEED_RATE_MAX].map(|it| super::units::Quantity::Rate.show(it));
            let problem =
                format!("is {rate}, and a feed is sent at {most} at most: choose a lower one");
            self.refuse(values, "data_rate", problem);
        }
    }

    fn sequencer(&mut self, values: &Values, node: &Values) {
        let Some(Value::Members(members)) = values.get("members") else { return };
        let members = members.clone();
        match members.len() {
            0 => self.refuse(values, "members", "is empty: name at least one"),
            count if count > MEMBERS_MAX => self.refuse(
                values,
                "members",
                format!("has {count} members: a group has 1, 3 or 5, and room for {MEMBERS_MAX}"),
            ),
            count if count % 2 == 0 => self.warn(
                values,
                "members",
                format!("has {count} members: {} survive the death of as many", count - 1),
            ),
            _ => {}
        }
        for (index, (name, address)) in members.iter().enumerate() {
            if members[..index].iter().any(|(other, at)| other == name || at == address) {
                self.refuse(
                    values,
                    "members",
                    format!("names {name}={address} or a part of it twice"),
                );
            }
        }
        let is_nowhere = |(_, at): &&(String, HostPort)| {
            at.address().is_some_and(|address| address.ip().is_unspecified())
        };
        if let Some((name, address)) = members.iter().find(is_nowhere) {
            let problem = format!(
                "has {name} at {address}, where no other host reaches it: give the address that the others know"
            );
            self.refuse(values, "members", problem);
        }
        if let Some(member) = values.text("member") {
            let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
            if !names.contains(&member.as_str()) {
                let problem =
                    format!("is {member:?}, which is none of the members {}", names.join(", "));
                self.refuse(values, "member", problem);
            }
            if values.has("group") && !values.has("data_rate") {
                let problem = "is missing: set what the network and the receivers can carry";
                self.refuse(values, "data_rate", problem);
            }
            if !values.has("log") && !node.has("state") {
                let problem =
                    "is missing: a member keeps its log on a disk. Set it, or `state` in [node]";
                self.refuse(values, "log", problem);
            }
        } else {
            let of_members =
                ["data_rate", "election_timeout", "heartbeat", "sync", "log", "retain"];
            for key in of_members.into_iter().filter(|key| values.has(key)) {
                self.warn(values, key, "has no effect: it is for members, and `member` is missing");
            }
        }
        if !node.has("state") {
            let problem = "needs `state` in [node]: there, the node notes which buses of commands it has had. Without it, the order takes no \
                           commands of a new bus";
            self.refuse(values, "feed", problem);
        }
        self.feed_by_multicast(values, node);
        self.archive(values, node);
        let is_reachable = |(_, address): &&(String, HostPort)| !address.is_loopback();
        if let Some((name, address)) = members.iter().find(is_reachable)
            && !node.has("key_file")
        {
            let is_named = members.iter().any(|(_, address)| address.address().is_none());
            let believed =
                if is_named { ", and the host that answers for a name is believed" } else { "" };
            let problem = format!(
                "has {name} at {address}, and [node] has no key_file: everyone who reaches a member can send commands \
                 and begin a group{believed}. Members know one another by these addresses alone, so a member behind NAT is refused"
            );
            self.warn(values, "members", problem);
        }
        if values.has("sync_interval") && values.text("sync").as_deref() == Some("always") {
            self.warn(values, "sync_interval", "has no effect: it needs `sync = \"interval\"`");
        }
        if let Some(Value::Range(election)) = values.get("election_timeout")
            && [election.start, election.end].iter().any(|time| !time.is_multiple_of(MILLISECOND))
        {
            self.refuse(values, "election_timeout", WHOLE);
        }
        if values.number("heartbeat").is_some_and(|time| !time.is_multiple_of(MILLISECOND)) {
            self.refuse(values, "heartbeat", WHOLE);
        }
        if let (Some(Value::Range(election)), Some(heartbeat)) =
            (values.get("election_timeout"), values.number("heartbeat"))
            && election.start < heartbeat.saturating_mul(2)
        {
            let show = |time| super::units::Quantity::Time.show(time);
            let problem = format!(
                "is {}, and elections begin after {}: choose at most half of it, so that one late heartbeat does not \
                 cause an election",
                show(heartbeat),
                show(election.start)
            );
            self.refuse(values, "heartbeat", problem);
        }
    }
}

/// Returns how long a publisher of a bus with this policy waits for a slow subscriber, or `None` if it waits as long as
/// that lives.
#[must_use]
pub fn bus_patience(policy: BusPolicy) -> Option<Duration> {
    match policy {
        BusPolicy::Wait { limit } => limit,
        BusPolicy::Bounded { budget, .. } => Some(budget),
        _ => Some(Duration::ZERO),
    }
}

fn overlap(one: &Values, other: &Values) -> Option<(Pattern, Pattern)> {
    let (one, other) = (one.patterns("patterns")?, other.patterns("patterns")?);
    one.iter().find_map(|a| other.iter().find(|b| a.intersects(b)).map(|b| (a.clone(), b.clone())))
}
