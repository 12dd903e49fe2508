//! Whether a configuration suits the interfaces of a host.

use super::finding::{Finding, Severity, suggestion};
use super::model::{Destination, Node, Outgoing};
use crate::host::interface::InterfaceError;
use std::net::SocketAddr;
use toroni_proto::config::{Config as StreamConfig, check_interface};

/// What a host has of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The greatest IP packet, in bytes.
    pub mtu: u32,
    /// Its speed in bit/s, if it is known.
    pub speed: Option<u64>,
    /// Whether a node whose file names no interface may use it: it is up, has an address, can multicast and leads to other
    /// hosts.
    pub is_candidate: bool,
}

/// Checks whether a configuration suits the interfaces of a host.
#[must_use]
pub fn check_host(node: &Node, links: &[Link]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |setting: String, problem: String| {
        findings.push(Finding { severity: Severity::Error, place: None, setting, problem });
    };
    let named = || "[node]: interfaces".to_owned();
    let mut used = Vec::new();
    for name in &node.interfaces {
        match links.iter().find(|link| link.name == *name) {
            Some(link) => used.push(link),
            None => {
                let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
                let hint = suggestion(name, known.iter().copied());
                let problem = format!("this host has no {name:?}, only {}{hint}", known.join(", "));
                refuse(named(), problem);
            }
        }
    }
    // TCP finds its way without.
    if node.interfaces.is_empty() && node.has_datagrams() {
        let candidates: Vec<&Link> = links.iter().filter(|link| link.is_candidate).collect();
        match candidates[..] {
            [only] => used.push(only),
            _ => {
                let names: Vec<&str> = candidates.iter().map(|link| link.name.as_str()).collect();
                let candidates = Some(names.join(", ")).filter(|names| !names.is_empty());
                let problem = InterfaceError::Ambiguous { candidates }.to_string();
                refuse(named(), format!("is missing: {problem}"));
            }
        }
    }
    let feed = node.sequencer.as_ref().filter(|feed| feed.group.is_some());
    let is_feed_ipv6 = feed.and_then(|feed| feed.group).is_some_and(|group| group.is_ipv6());
    let headers = if node.sends.iter().any(is_ipv6) || is_feed_ipv6 { 48 } else { 28 };
    for link in used {
        let streams = node.sends.iter().map(|send| on_the_wire(send, link.mtu));
        let streams: Vec<StreamConfig> = streams.chain(feed.map(|feed| feed.stream())).collect();
        let streams: Vec<&StreamConfig> = streams.iter().collect();
        let speed = link.speed.unwrap_or(u64::MAX);
        if let Err(error) = check_interface(&streams, link.mtu.into(), headers, speed) {
            refuse(format!("interface {}", link.name), error.to_string());
        }
        // The length of their datagrams follows from the interface, so the rules about it could not be checked before.
        for send in node.sends.iter().filter(|send| send.fills_mtu) {
            if let Err(error) = send.on(link.mtu).check_sender() {
                refuse(format!("interface {}", link.name), error.to_string());
            }
        }
    }
    findings
}

/// Returns the parameters of a stream with what an interface with this MTU must bear of it.
fn on_the_wire(send: &Outgoing, mtu: u32) -> StreamConfig {
    let mut config = send.on(mtu);
    if let Destination::Addresses(all) = &send.to {
        // Each datagram is sent to each of them.
        let count = all.len() as u64;
        config.data_rate = config.data_rate.map(|rate| rate.saturating_mul(count));
    }
    config
}

fn is_ipv6(send: &Outgoing) -> bool {
    match &send.to {
        Destination::Group(group) => group.is_ipv6(),
        Destination::Addresses(all) => all.iter().any(SocketAddr::is_ipv6),
    }
}
