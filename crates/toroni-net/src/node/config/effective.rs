//! The configuration in force, and what follows from it.

use super::document::Document;
use super::model::{Destination, Node};
use super::ring;
use super::schema::sections;
use super::units::Quantity;
use crate::host::address::Mac;
use crate::host::buffers::{Load, usual_charge};
use std::time::Duration;
use toroni_proto::config::WIRE_OVERHEAD_BYTES;

/// What a receive buffer is called where the speed of the interface is not known.
pub const RECEIVE_BUFFER: &str = "receive buffer for each 100 Mbit/s of the fastest interface";

/// Returns a file that sets every value which the document sets or which has a default.
pub(super) fn text(document: &Document) -> String {
    let mut text = String::new();
    for section in sections() {
        for values in document.all(section.name) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&section.header());
            text.push('\n');
            for key in &section.keys {
                // The table `[node.bus]` stands for it, and a list of addresses for the group.
                let is_replaced = ((section.name, key.name) == ("node", "bus")
                    && !document.all("node.bus").is_empty())
                    || (key.name == "group" && values.has("to"));
                let value = values.get(key.name).filter(|_| !is_replaced);
                if let Some(value) = value.and_then(|value| value.to_toml(key.kind)) {
                    text.push_str(&format!("{} = {value}\n", key.name));
                }
            }
        }
    }
    text
}

/// A number that follows from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// What it is about, such as `[[send]] 1`.
    pub of: String,
    /// What it is.
    pub what: &'static str,
    /// The number with its unit.
    pub value: String,
}

/// Returns what follows from a configuration: quotas, times, addresses, buffers.
#[must_use]
pub fn derived(node: &Node) -> Vec<Derived> {
    let mut all = ring::derived(node);
    for (index, send) in node.sends.iter().enumerate() {
        let of = format!("[[send]] {}", index + 1);
        let mut add = |what, value: String| all.push(Derived { of: of.clone(), what, value });
        let config = &send.config;
        if let Destination::Group(group) = send.to
            && let Some(mac) = Mac::of_group(group.ip())
        {
            add("Ethernet address of the group", mac.to_string());
        }
        let quota = |rate: u64| {
            let bytes = product(rate, config.rate_interval_ns) / 8;
            let datagrams = bytes / (config.datagram_bytes + WIRE_OVERHEAD_BYTES);
            format!("{bytes} bytes, {datagrams} full datagrams")
        };
        if let Some(rate) = config.data_rate {
            add("quota of an interval, new data", quota(rate));
            let window = config.window_bytes.saturating_mul(8_000) / rate.max(1);
            add("time that the window holds at the full rate", format!("{window} ms"));
        }
        if let Some(rate) = config.retransmit_rate() {
            add("quota of an interval, retransmissions", quota(rate));
        }
        if let (Some(data), Some(repairs)) = (config.data_rate, config.retransmit_rate()) {
            // What is lost meanwhile must be repaired within the generation interval.
            let outage =
                u128::from(config.generation_ns) * u128::from(repairs) / u128::from(data.max(1));
            add(
                "longest outage that can be repaired at the full rate",
                format!("{} ms", outage / 1_000_000),
            );
        }
    }
    if let Some(sequencer) = &node.sequencer {
        let mut add = |what, value: String| {
            all.push(Derived { of: "[sequencer]".to_owned(), what, value });
        };
        let count = sequencer.members.len();
        add("members of which a majority keeps the order", format!("{} of {count}", count / 2 + 1));
        add("members that may be down", ((count - 1) / 2).to_string());
        add("bus of commands", format!("{}.commands", sequencer.feed));
        if let Some(directory) = sequencer.archive_place(node).filter(|_| sequencer.archive) {
            add("directory of the archive", directory.display().to_string());
        }
        if let Some((id, (name, address))) = sequencer.own() {
            add("this member", format!("{name}, number {id}, at {address}"));
            let log = sequencer.log_directory(node);
            add(
                "directory of its log",
                log.map_or_else(String::new, |log| log.display().to_string()),
            );
            if let Some(rate) = sequencer.data_rate {
                let seconds = sequencer.retain.saturating_mul(8) / rate.max(1);
                add("least time that the log holds at the full rate", format!("{seconds} s"));
            }
        }
    }
    if !node.receives.is_empty() {
        let of = "[node]".to_owned();
        let size = 1_408;
        let load = Load::new(100_000_000, size, usual_charge(size));
        let request = load.request(node.stall);
        let value = format!("{request} bytes (SO_RCVBUF; the kernel doubles it)");
        all.push(Derived { of: of.clone(), what: RECEIVE_BUFFER, value });
        let memory = node.receives.iter().map(|receive| receive.config.receive_memory_bytes).max();
        let value = Quantity::Bytes.show(memory.unwrap_or(0));
        all.push(Derived { of, what: "memory for datagrams that wait", value });
    }
    all
}

fn product(rate: u64, time_ns: u64) -> u64 {
    let nanoseconds = u128::from(rate) * u128::from(time_ns);
    u64::try_from(nanoseconds / Duration::from_secs(1).as_nanos()).unwrap_or(u64::MAX)
}
