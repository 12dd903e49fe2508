//! What a node publishes about itself on its bus of notices, `node.REALM`: the topics, and the JSON on each. `toroni top`
//! reads it. docs/network.md has the same tables.

#![allow(missing_docs, reason = "fields are named as in the JSON, which docs/network.md describes")]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The bus of notices of a realm is named so, and then the realm.
pub const BUS_PREFIX: &str = "node.";

/// Topics of the bus of notices.
pub mod topic {
    /// [`super::Stats`], each second.
    pub const STATS: &str = "stats";
    /// [`super::End`]: the node was stopped in order.
    pub const END: &str = "end";
    /// [`super::Source`]: a stream is followed that was not.
    pub const UP: &str = "source/up";
    /// [`super::Source`]: a stream has ended, or is silent.
    pub const DOWN: &str = "source/down";
    /// [`super::Source`]: a stream is followed in another session than before.
    pub const RESTART: &str = "source/restart";
    /// [`super::Collision`]: another node has the source id of this one.
    pub const COLLISION: &str = "source/collision";
    /// [`super::Member`]: a receiver of one of our streams is new, or waited for again.
    pub const IN: &str = "receiver/in";
    /// [`super::Member`]: a receiver is not heard any more, or no longer waited for.
    pub const OUT: &str = "receiver/out";
    /// [`super::Group`]: a stream waits for its required receivers before it sends anything, or waits no more.
    pub const GROUP: &str = "receiver/group";
    /// [`super::Loss`]: messages were reported as lost.
    pub const LOSS: &str = "loss";
    /// [`super::Crybaby`]: a receiver takes more than half of all retransmissions.
    pub const CRYBABY: &str = "crybaby";
    /// [`super::Excess`]: a part of the way took longer than its budget.
    pub const BUDGET: &str = "budget";
    /// [`super::Term`]: a member of a feed is in another term, or follows another leader.
    pub const TERM: &str = "term";

    /// All of them.
    pub const ALL: [&str; 13] =
        [STATS, END, UP, DOWN, RESTART, COLLISION, IN, OUT, GROUP, LOSS, CRYBABY, BUDGET, TERM];
}

/// A notice, with who publishes it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Notice<T> {
    /// In seconds since 1970.
    pub time: f64,
    /// The name of the node.
    pub node: String,
    /// The bus that it connects.
    pub bus: String,
    #[serde(flatten)]
    pub content: T,
}

/// Everything that a node counts, since it started.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Stats {
    pub realm: String,
    /// The source id and the session of the node.
    pub source: String,
    pub session: u32,
    /// The streams that it sends.
    pub sent: Vec<Sent>,
    /// The streams that it hears.
    pub heard: Vec<Heard>,
    /// What was reported as lost of each stream, by reason.
    pub losses: Vec<LossCount>,
    pub sockets: Vec<Socket>,
    pub datagrams: Datagrams,
    /// Refused datagrams, by reason.
    pub refused: BTreeMap<String, u64>,
    pub times: Vec<Time>,
    /// The feed that the node takes part in, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequencer: Option<Sequencer>,
    /// How many entries of these lists do not fit a message of the bus.
    #[serde(default)]
    pub left_out: u64,
}

impl Stats {
    /// Keeps at most `most` entries of each list.
    pub fn shorten(&mut self, most: usize) {
        let mut left_out = 0;
        for sent in &mut self.sent {
            shorten(&mut sent.receivers, most, &mut left_out);
        }
        shorten(&mut self.sent, most, &mut left_out);
        shorten(&mut self.heard, most, &mut left_out);
        shorten(&mut self.losses, most, &mut left_out);
        shorten(&mut self.sockets, most, &mut left_out);
        shorten(&mut self.times, most, &mut left_out);
        self.left_out += left_out;
    }
}

fn shorten<T>(list: &mut Vec<T>, most: usize, left_out: &mut u64) {
    *left_out += list.len().saturating_sub(most) as u64;
    list.truncate(most);
}

/// Which session of a node has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct End {
    pub session: u32,
}

/// What a node does for a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sequencer {
    pub feed: String,
    /// The bus of commands.
    pub commands: String,
    /// Commands that the order has.
    pub brought: u64,
    /// How often a leader was found.
    pub connections: u64,
    /// Commands in the ring that the order may not have, in bytes.
    pub waiting_bytes: u64,
    /// Why the order takes no commands of this host, if that is so.
    #[serde(default)]
    pub refused: Option<String>,
    /// Why no events are brought to the bus of the host any more, if that is so.
    #[serde(default)]
    pub stopped: Option<String>,
    /// Events that were brought to the bus of the host: the number of the next one.
    #[serde(default)]
    pub delivered: u64,
    /// Events that no member had any more.
    #[serde(default)]
    pub lost: u64,
    /// How often the order had other events than the bus.
    #[serde(default)]
    pub divergences: u64,
    /// Events that came to the bus of the host without being asked for, and those that members were asked for.
    #[serde(default)]
    pub came: u64,
    #[serde(default)]
    pub asked: u64,
    /// Whether events come without being asked for now.
    #[serde(default)]
    pub is_live: bool,
    /// `null` without a group.
    #[serde(default)]
    pub multicast: Option<FeedMulticast>,
    /// `null` without an archive.
    #[serde(default)]
    pub archive: Option<FeedArchive>,
    /// `null` if the node is no member.
    pub member: Option<OrderMember>,
}

/// An archive of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FeedArchive {
    /// The first event that it has, and the number after the last one.
    pub first_event: u64,
    pub events: u64,
    /// The length of its files.
    pub bytes: u64,
    /// Whether its disk has no room.
    pub is_full: bool,
    /// Why it takes no more events, if it does not.
    #[serde(default)]
    pub problem: Option<String>,
}

/// The multicast of a feed: what a member has sent, or another node has received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FeedMulticast {
    pub messages: u64,
    pub events: u64,
    /// Messages that were lost on the way, or could not be read.
    pub lost: u64,
    /// Datagrams that a member has sent again.
    pub retransmissions: u64,
    /// Events for which there was no room in the queue: those of a member beyond `data_rate`.
    pub dropped: u64,
    /// Why no event goes this way now, if that is so.
    #[serde(default)]
    pub problem: Option<String>,
}

impl Sequencer {
    /// Returns how many events this host knows of.
    pub fn events(&self) -> u64 {
        self.member.as_ref().map_or(self.delivered, |member| member.events)
    }
}

/// A member of the group that keeps an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct OrderMember {
    pub name: String,
    pub number: u64,
    /// Whether it leads, and has heard a majority of the members.
    pub leads: bool,
    /// Whom it takes for the leader. None if it has not heard that one for too long.
    pub leader: Option<String>,
    /// Why it takes no commands although it leads, or belongs to no group although there is one.
    #[serde(default)]
    pub hindrance: Option<String>,
    /// How long ago it heard a majority, if it leads, else its leader.
    #[serde(default)]
    pub contact_ns: u64,
    pub term: u64,
    /// How often it has seen a leader come into office.
    pub elections: u64,
    pub series: u32,
    /// How many sources the order knows.
    #[serde(default)]
    pub sources: u64,
    /// The first event that it still has by its number, if it knows.
    pub first_event: Option<u64>,
    /// Events that it has applied: the number of the next one.
    pub events: u64,
    pub last_entry: Option<u64>,
    pub applied_entry: Option<u64>,
    pub log_bytes: u64,
    /// What is free on the disk of the log.
    pub room_bytes: u64,
    /// Commands that wait for their answer.
    pub in_flight: u64,
    /// Whether the disk is too full for more entries.
    pub is_full: bool,
    /// Whether it may lack entries that it had answered for, and so neither votes nor leads.
    pub is_uncertain: bool,
    /// Whether too many members are uncertain for any to be elected.
    pub needs_recovery: bool,
    /// The digest of these events, in hexadecimal.
    pub digest: String,
}

/// A member of a feed is in another term, or follows another leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Term {
    pub feed: String,
    pub member: String,
    pub term: u64,
    pub leader: Option<String>,
    /// Why the member takes no commands although it leads, or belongs to no group although there is one.
    #[serde(default)]
    pub hindrance: Option<String>,
}

/// A stream that the node sends.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Sent {
    pub stream: u16,
    pub messages: u64,
    /// New datagrams, and those that were sent again.
    pub datagrams: u64,
    pub retransmissions: u64,
    pub naks: u64,
    /// Messages of the bus that were overwritten before they were sent, by reason.
    pub overtaken: u64,
    pub too_long: u64,
    pub no_topic: u64,
    /// What waits in the ring, in bytes.
    pub lag_bytes: u64,
    pub window_datagrams: u64,
    /// The limit, in bits per second; `null` without one.
    pub data_rate: Option<u64>,
    pub receivers: Vec<Receiver>,
}

/// A receiver as its sender knows it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Receiver {
    pub source: String,
    pub name: String,
    pub address: String,
    pub lag_datagrams: u64,
    pub lost: u64,
    pub naks: u64,
    pub kernel_dropped: u32,
    pub rtt_seconds: f64,
}

/// A stream that the node hears. Its counters begin with the session.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Heard {
    pub source: String,
    pub name: String,
    pub stream: u16,
    pub session: u32,
    pub messages: u64,
    pub lost: u64,
    pub naks: u64,
    pub repaired: u64,
    pub duplicates: u64,
    pub open_gaps: u64,
    pub held_datagrams: u64,
    pub legs: Vec<Leg>,
}

/// What one interface brought of a stream.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Leg {
    pub interface: String,
    pub first: u64,
    pub duplicates: u64,
    pub missing: u64,
}

/// How much of a stream was lost for one reason.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LossCount {
    pub source: String,
    pub stream: u16,
    pub reason: String,
    pub reports: u64,
    pub messages: u64,
}

/// A socket of the node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Socket {
    pub interface: String,
    /// `group` or `unicast`.
    pub kind: String,
    /// Datagrams for which its buffer had no room.
    pub dropped: u64,
}

/// All sockets together.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Datagrams {
    pub sent: u64,
    pub received: u64,
    /// Those that the kernel refused to send.
    pub refused: u64,
    pub truncated: u64,
}

/// How long a part of the way took.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Time {
    pub part: String,
    /// The stream as `SOURCE/STREAM`; `null` if the part is measured for all together.
    pub stream: Option<String>,
    pub count: u64,
    pub p50_seconds: f64,
    pub p99_seconds: f64,
    pub p999_seconds: f64,
    pub longest_seconds: f64,
    pub limit_seconds: Option<f64>,
    pub exceeded: u64,
}

/// A stream of another node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Source {
    pub source: String,
    pub stream: u16,
    pub session: u32,
    /// `complete` or `silent` if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Another node with our source id.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Collision {
    pub address: String,
    /// Whether this node must stop.
    pub stop: bool,
}

/// A receiver of one of our streams.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Member {
    pub stream: u16,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `heard`, `not_heard`; with the policy `slowest`, `silent`, `holds` or `caught_up`.
    pub why: String,
}

/// For whom a stream waits before it sends anything.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Group {
    pub stream: u16,
    /// How many required receivers are missing; 0 if it waits no more.
    pub missing: u64,
    /// Those that are not there.
    pub absent: Vec<String>,
}

/// Messages that were reported as lost.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Loss {
    pub source: String,
    pub stream: u16,
    pub reason: String,
    /// `exact`, `at_least` or `at_most`.
    pub bound: String,
    pub messages: u64,
    pub reports: u64,
    /// Where the datagrams were lost: `socket`, `host`, `before` (this host), or `none` if no datagram is missing.
    pub place: String,
    /// Datagrams that the sockets of the node had no room for since before the loss.
    pub socket_dropped: u64,
    /// The same in words, with what helps.
    pub text: String,
}

/// A receiver that takes more than half of all retransmissions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Crybaby {
    pub stream: u16,
    pub name: Option<String>,
    pub address: String,
    pub kernel_dropped: u32,
}

/// A part of the way took longer than its budget.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Excess {
    pub part: String,
    pub limit_seconds: f64,
    pub times: u64,
    pub worst_seconds: f64,
    pub source: String,
    pub stream: u16,
    /// A message, or a datagram for `batching`, `pacing`, `network`, `socket`, `repair` and `order`.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    /// The table of topics in the documents, without the section about other things.
    #[test]
    fn the_documentation_lists_every_topic() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // A crate that was unpacked elsewhere has no documents.
        if !root.join("xtask").exists() {
            return;
        }
        let text = std::fs::read_to_string(root.join("docs/network.md")).unwrap();
        let (_, notices) = text.split_once("### Notices\n").unwrap();
        let (notices, _) = notices.split_once("\n## ").unwrap();
        let rows = notices.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let mut found: Vec<&str> = rows.collect();
        let mut all = super::topic::ALL.to_vec();
        found.sort_unstable();
        all.sort_unstable();
        assert_eq!(found, all);
    }
}
