//! `toroni node doctor FILE`: whether this host suits the node that a file describes.
//!
//! Each check does what the node would do, and undoes it: its result holds for the user who runs the check.

use super::{Finding, hosts};
use crate::node::{keys, read, shown, user, users_of_new_bus};
use rustix::fs::{Access, access};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use toroni_net::host::interface::{self, Interface};
use toroni_net::node::config::{Destination, Node, Reading, Severity};
use toroni_net::node::scheduling::{self, SchedulingError};
use toroni_net::node::start;
use toroni_net::socket::buffer;
use toroni_shell::failure::Failure;
use toroni_shell::finding::existing;
use toroni_shell::human;

/// A file, and what it says.
pub(super) struct Wanted {
    findings: Vec<Finding>,
    keys: Vec<Finding>,
    node: Option<Node>,
}

impl Wanted {
    /// Reads a file as the node would, and compares it with the interfaces of this host.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        const CHECK: &str = "node file";
        let reading = read(path, true)?;
        let remedy = || {
            let file = path.display();
            format!("correct the file; toroni node check {file} shows all values in force")
        };
        let mut findings: Vec<Finding> = reading
            .findings
            .iter()
            .map(|found| match found.severity {
                Severity::Error => Finding::fail(CHECK, shown(path, found), remedy()),
                Severity::Warning => Finding::warn(CHECK, shown(path, found), remedy()),
            })
            .collect();
        if findings.is_empty() {
            let text = format!("{}: all values suit one another and this host", path.display());
            findings.push(Finding::ok(CHECK, text));
        }
        let is_wrong = reading.findings.iter().any(|found| found.severity == Severity::Error);
        let keys = key(path, &reading);
        Ok(Self { findings, keys, node: reading.node.filter(|_| !is_wrong) })
    }

    /// Returns the names of the interfaces that the file names, if it does.
    pub(super) fn interfaces(&self) -> &[String] {
        self.node.as_ref().map_or(&[], |node| &node.interfaces)
    }

    /// Returns what a packet filter must let in for this node.
    pub(super) fn admitted(&self) -> Option<Vec<String>> {
        let node = self.node.as_ref()?;
        let sent = node.sends.iter().filter_map(|send| match send.to {
            Destination::Group(group) => Some(group),
            Destination::Addresses(_) => None,
        });
        let received = node.receives.iter().map(|receive| receive.group);
        let feed = node.sequencer.as_ref();
        let groups: Vec<SocketAddr> =
            sent.chain(received).chain(feed.and_then(|feed| feed.group)).collect();
        let mut admitted =
            if node.has_datagrams() { hosts::datagrams(&groups) } else { Vec::new() };
        let listen = node.listen.as_ref().map(|listen| ("[listen]", listen.address.port()));
        let member = feed.and_then(|feed| feed.own()).map(|(_, own)| ("the member", own.1.port()));
        let served = listen.into_iter().chain(member);
        admitted.extend(served.map(|(of, at)| format!("TCP to port {at} of {of}")));
        Some(admitted)
    }

    /// Returns for how long the node may not run.
    pub(super) fn stall(&self) -> Option<Duration> {
        self.node.as_ref().map(|node| node.stall)
    }

    /// Returns what was found in the file, and then whether this host gives the node what it needs.
    pub(super) fn checks(self, rate: Option<u64>) -> Vec<Finding> {
        let Self { mut findings, keys, node } = self;
        let Some(node) = node else { return findings };
        findings.extend(keys);
        findings.extend(bus(&node));
        findings.extend(state(&node));
        findings.extend(receive_buffer(&node, rate));
        findings.extend(scheduling(&node));
        findings
    }
}

/// Checks whether this user can use the keys.
fn key(path: &Path, reading: &Reading) -> Vec<Finding> {
    const CHECK: &str = "key";
    const REMEDY: &str =
        "32 random bytes, readable for the user of the node only; check as that user";
    let found = keys(reading);
    if !found.is_empty() {
        let failed = found.iter().map(|found| Finding::fail(CHECK, shown(path, found), REMEDY));
        return failed.collect();
    }
    let node = reading.node.iter();
    let files = node.flat_map(|node| node.key_file.iter().chain(&node.key_file_next));
    let usable = |file: &PathBuf| {
        let text = format!("{} is for its owner only, and {} can read it", file.display(), user());
        Finding::ok(CHECK, text)
    };
    files.map(usable).collect()
}

/// Checks whether this user may use the bus as the node must. If the node would create it, says for whom.
fn bus(node: &Node) -> Option<Finding> {
    const CHECK: &str = "bus";
    let (name, directory) = (&node.bus.name, node.bus.directory.as_deref());
    let root = directory.map_or_else(toroni::admin::default_directory, Path::to_owned);
    if !root.join(name).exists() {
        let (who, is_shared) = users_of_new_bus(node)?;
        let text = format!("the node will create {name}, for {who}");
        return Some(if is_shared {
            Finding::ok(CHECK, text)
        } else {
            let remedy = "if other users are to publish or subscribe, name their groups as `writers` and `readers` in the bus of \
                          the file, or start the node with the umask 007";
            Finding::warn(CHECK, text, remedy)
        });
    }
    let rights = toroni::admin::rights(directory, name);
    let (mut wanted, mut refused) = (Vec::new(), None);
    if !node.receives.is_empty() || !node.connects.is_empty() {
        wanted.push("publish");
        refused = rights.publish.err();
    }
    if !node.sends.is_empty() || node.listen.is_some() {
        wanted.push("subscribe");
        refused = refused.or(rights.subscribe.err());
    }
    Some(match refused {
        Some(error) => {
            Finding::fail(CHECK, format!("{name}: {error}"), "check as the user of the node")
        }
        None if wanted.is_empty() => return None,
        None => Finding::ok(CHECK, format!("{name}: {} may {}", user(), wanted.join(" and "))),
    })
}

/// Checks whether the directory of the state can be written, or made.
fn state(node: &Node) -> Option<Finding> {
    const CHECK: &str = "state";
    let path = node.state.as_ref()?;
    let there = existing(path);
    let described = path.display();
    Some(match access(&there, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if !there.is_dir() => Finding::fail(
            CHECK,
            format!("{described}: {} is no directory", there.display()),
            "name another directory as `state`",
        ),
        Ok(()) if there == *path => Finding::ok(CHECK, format!("{described} can be written")),
        Ok(()) => Finding::ok(CHECK, format!("{described} will be made")),
        Err(error) => Finding::fail(
            CHECK,
            format!("{described}: this user cannot write {}: {error}", there.display()),
            format!(
                "mkdir -p {described}; chown USER {described}; or check as the user of the node"
            ),
        ),
    })
}

/// Asks the kernel for the receive buffer that the node would ask for.
fn receive_buffer(node: &Node, rate: Option<u64>) -> Option<Finding> {
    const CHECK: &str = "receive buffer";
    if node.sends.is_empty() && node.receives.is_empty() {
        return None;
    }
    let used: Vec<Interface> = match &node.interfaces[..] {
        [] => interface::only().into_iter().collect(),
        names => names.iter().filter_map(|name| interface::named(name).ok()).collect(),
    };
    let rate = rate.unwrap_or_else(|| start::receive_rate(&used));
    let needed = start::receive_buffer(rate, node.stall);
    let grant = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| buffer::request(&socket, needed));
    let grant = match grant {
        Ok(grant) => grant,
        Err(error) => return Some(Finding::ok(CHECK, format!("unknown: {error}"))),
    };
    let (stall, shown) = (human::duration(node.stall), human::bit_rate(rate));
    let described = format!(
        "{stall} (stall) without reading at {shown} need {} bytes, and the kernel gives {}",
        human::count(needed),
        human::count(grant.granted)
    );
    Some(match grant.change() {
        None => Finding::ok(CHECK, described),
        Some(change) if node.strict_buffers => Finding::fail(
            CHECK,
            format!("{described}: with strict_buffers the node does not start"),
            change.to_string(),
        ),
        Some(change) => Finding::warn(CHECK, described, change.to_string()),
    })
}

/// Tries the processor and the priority of the node, in a thread that ends then.
fn scheduling(node: &Node) -> Option<Finding> {
    const CHECK: &str = "scheduling";
    let (cpu, priority) = (node.cpu.filter(|_| node.is_busy), node.realtime);
    if cpu.is_none() && priority.is_none() {
        return None;
    }
    let tried = thread::spawn(move || -> Result<(), SchedulingError> {
        cpu.map_or(Ok(()), scheduling::stay_on)?;
        priority.map_or(Ok(()), scheduling::realtime)
    });
    let wanted = [
        cpu.map(|cpu| format!("processor {cpu}")),
        priority.map(|priority| format!("SCHED_FIFO, priority {priority}")),
    ];
    let wanted = wanted.into_iter().flatten().collect::<Vec<_>>().join(", ");
    Some(match tried.join() {
        Ok(Ok(())) => Finding::ok(CHECK, wanted),
        Ok(Err(error)) => Finding::fail(
            CHECK,
            error.to_string(),
            "AmbientCapabilities=CAP_SYS_NICE in the unit of the node; or leave `realtime` and `cpu` out",
        ),
        Err(_) => Finding::ok(CHECK, format!("{wanted}: unknown")),
    })
}
