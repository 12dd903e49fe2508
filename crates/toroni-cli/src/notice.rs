//! What a node publishes about itself on its bus of notices, `node.REALM`: the topics, and the JSON on each. `toroni top`
//! reads it. docs/network.md has the same tables.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The bus of notices of a realm is named so, and then the realm.
pub(crate) const BUS_PREFIX: &str = "node.";

/// Topics of the bus of notices.
pub(crate) mod topic {
    /// [`super::Stats`], each second.
    pub(crate) const STATS: &str = "stats";
    /// [`super::Source`]: a stream is followed that was not.
    pub(crate) const UP: &str = "source/up";
    /// [`super::Source`]: a stream has ended, or is silent.
    pub(crate) const DOWN: &str = "source/down";
    /// [`super::Source`]: a stream is followed in another session than before.
    pub(crate) const RESTART: &str = "source/restart";
    /// [`super::Collision`]: another node has the source id of this one.
    pub(crate) const COLLISION: &str = "source/collision";
    /// [`super::Member`]: a receiver of one of our streams is new, or waited for again.
    pub(crate) const IN: &str = "receiver/in";
    /// [`super::Member`]: a receiver is not heard any more, or no longer waited for.
    pub(crate) const OUT: &str = "receiver/out";
    /// [`super::Group`]: a stream waits for its required receivers before it sends anything, or waits no more.
    pub(crate) const GROUP: &str = "receiver/group";
    /// [`super::Loss`]: messages were reported as lost.
    pub(crate) const LOSS: &str = "loss";
    /// [`super::Crybaby`]: a receiver takes more than half of all retransmissions.
    pub(crate) const CRYBABY: &str = "crybaby";
    /// [`super::Excess`]: a part of the way took longer than its budget.
    pub(crate) const BUDGET: &str = "budget";
    /// [`super::Term`]: a member of a feed is in another term, or follows another leader.
    pub(crate) const TERM: &str = "term";

    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [&str; 12] =
        [STATS, UP, DOWN, RESTART, COLLISION, IN, OUT, GROUP, LOSS, CRYBABY, BUDGET, TERM];
}

/// A notice, with who publishes it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Notice<T> {
    /// In seconds since 1970.
    pub(crate) time: f64,
    /// The name of the node.
    pub(crate) node: String,
    /// The bus that it connects.
    pub(crate) bus: String,
    #[serde(flatten)]
    pub(crate) content: T,
}

/// Everything that a node counts, since it started.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Stats {
    pub(crate) realm: String,
    /// The source id and the session of the node.
    pub(crate) source: String,
    pub(crate) session: u32,
    /// The streams that it sends.
    pub(crate) sent: Vec<Sent>,
    /// The streams that it hears.
    pub(crate) heard: Vec<Heard>,
    /// What was reported as lost of each stream, by reason.
    pub(crate) losses: Vec<LossCount>,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) datagrams: Datagrams,
    /// Refused datagrams, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) times: Vec<Time>,
    /// The feed that the node takes part in, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sequencer: Option<Sequencer>,
    /// How many entries of these lists do not fit a message of the bus.
    #[serde(default)]
    pub(crate) left_out: u64,
}

impl Stats {
    /// Keeps at most `most` entries of each list.
    pub(crate) fn shorten(&mut self, most: usize) {
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

/// What a node does for a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Sequencer {
    pub(crate) feed: String,
    /// The bus of commands.
    pub(crate) commands: String,
    /// Commands that the order has.
    pub(crate) brought: u64,
    /// How often a leader was found.
    pub(crate) connections: u64,
    /// Commands in the ring that the order may not have, in bytes.
    pub(crate) waiting_bytes: u64,
    /// Events that were brought to the bus of the host: the number of the next one.
    #[serde(default)]
    pub(crate) delivered: u64,
    /// Events that no member had any more.
    #[serde(default)]
    pub(crate) lost: u64,
    /// How often the order had other events than the bus.
    #[serde(default)]
    pub(crate) divergences: u64,
    /// Events that came to the bus of the host without being asked for, and those that members were asked for.
    #[serde(default)]
    pub(crate) came: u64,
    #[serde(default)]
    pub(crate) asked: u64,
    /// Whether events come without being asked for now.
    #[serde(default)]
    pub(crate) is_live: bool,
    /// `null` without a group.
    #[serde(default)]
    pub(crate) multicast: Option<FeedMulticast>,
    /// `null` without an archive.
    #[serde(default)]
    pub(crate) archive: Option<FeedArchive>,
    /// `null` if the node is no member.
    pub(crate) member: Option<OrderMember>,
}

/// An archive of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct FeedArchive {
    /// The first event that it has, and the number after the last one.
    pub(crate) first_event: u64,
    pub(crate) events: u64,
    /// The length of its files.
    pub(crate) bytes: u64,
    /// Whether its disk has no room.
    pub(crate) is_full: bool,
    /// Why it takes no more events, if it does not.
    #[serde(default)]
    pub(crate) problem: Option<String>,
}

/// The multicast of a feed: what a member has sent, or another node has received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct FeedMulticast {
    pub(crate) messages: u64,
    pub(crate) events: u64,
    /// Messages that were lost on the way, or could not be read.
    pub(crate) lost: u64,
    /// Datagrams that a member has sent again.
    pub(crate) retransmissions: u64,
    /// Events for which there was no room in the queue: those of a member beyond `data_rate`.
    pub(crate) dropped: u64,
    /// Why no event goes this way now, if that is so.
    #[serde(default)]
    pub(crate) problem: Option<String>,
}

impl Sequencer {
    /// Returns how many events this host knows of.
    #[cfg(feature = "top")]
    pub(crate) fn events(&self) -> u64 {
        self.member.as_ref().map_or(self.delivered, |member| member.events)
    }
}

/// A member of the group that keeps an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct OrderMember {
    pub(crate) name: String,
    pub(crate) number: u64,
    pub(crate) leads: bool,
    /// Whom it takes for the leader.
    pub(crate) leader: Option<String>,
    pub(crate) term: u64,
    /// How often it has seen a leader come into office.
    pub(crate) elections: u64,
    pub(crate) series: u32,
    /// The first event that it still has by its number, if it knows.
    pub(crate) first_event: Option<u64>,
    /// Events that it has applied: the number of the next one.
    pub(crate) events: u64,
    pub(crate) last_entry: Option<u64>,
    pub(crate) applied_entry: Option<u64>,
    pub(crate) log_bytes: u64,
    /// What is free on the disk of the log.
    pub(crate) room_bytes: u64,
    /// Commands that wait for their answer.
    pub(crate) in_flight: u64,
    /// Whether the disk is too full for more entries.
    pub(crate) is_full: bool,
    /// Whether it may lack entries that it had answered for, and so neither votes nor leads.
    pub(crate) is_uncertain: bool,
    /// Whether too many members are uncertain for any to be elected.
    pub(crate) needs_recovery: bool,
    /// The digest of these events, in hexadecimal.
    pub(crate) digest: String,
}

/// A member of a feed is in another term, or follows another leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Term {
    pub(crate) feed: String,
    pub(crate) member: String,
    pub(crate) term: u64,
    pub(crate) leader: Option<String>,
}

/// A stream that the node sends.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Sent {
    pub(crate) stream: u16,
    pub(crate) messages: u64,
    /// New datagrams, and those that were sent again.
    pub(crate) datagrams: u64,
    pub(crate) retransmissions: u64,
    pub(crate) naks: u64,
    /// Messages of the bus that were overwritten before they were sent, by reason.
    pub(crate) overtaken: u64,
    pub(crate) too_long: u64,
    pub(crate) no_topic: u64,
    /// What waits in the ring, in bytes.
    pub(crate) lag_bytes: u64,
    pub(crate) window_datagrams: u64,
    /// The limit, in bits per second; `null` without one.
    pub(crate) data_rate: Option<u64>,
    pub(crate) receivers: Vec<Receiver>,
}

/// A receiver as its sender knows it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Receiver {
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) lag_datagrams: u64,
    pub(crate) lost: u64,
    pub(crate) naks: u64,
    pub(crate) kernel_dropped: u32,
    pub(crate) rtt_seconds: f64,
}

/// A stream that the node hears. Its counters begin with the session.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Heard {
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) stream: u16,
    pub(crate) session: u32,
    pub(crate) messages: u64,
    pub(crate) lost: u64,
    pub(crate) naks: u64,
    pub(crate) repaired: u64,
    pub(crate) duplicates: u64,
    pub(crate) open_gaps: u64,
    pub(crate) held_datagrams: u64,
    pub(crate) legs: Vec<Leg>,
}

/// What one interface brought of a stream.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Leg {
    pub(crate) interface: String,
    pub(crate) first: u64,
    pub(crate) duplicates: u64,
    pub(crate) missing: u64,
}

/// How much of a stream was lost for one reason.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct LossCount {
    pub(crate) source: String,
    pub(crate) stream: u16,
    pub(crate) reason: String,
    pub(crate) reports: u64,
    pub(crate) messages: u64,
}

/// A socket of the node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Socket {
    pub(crate) interface: String,
    /// `group` or `unicast`.
    pub(crate) kind: String,
    /// Datagrams for which its buffer had no room.
    pub(crate) dropped: u64,
}

/// All sockets together.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Datagrams {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Those that the kernel refused to send.
    pub(crate) refused: u64,
    pub(crate) truncated: u64,
}

/// How long a part of the way took.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Time {
    pub(crate) part: String,
    /// The stream as `SOURCE/STREAM`; `null` if the part is measured for all together.
    pub(crate) stream: Option<String>,
    pub(crate) count: u64,
    pub(crate) p50_seconds: f64,
    pub(crate) p99_seconds: f64,
    pub(crate) p999_seconds: f64,
    pub(crate) longest_seconds: f64,
    pub(crate) limit_seconds: Option<f64>,
    pub(crate) exceeded: u64,
}

/// A stream of another node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Source {
    pub(crate) source: String,
    pub(crate) stream: u16,
    pub(crate) session: u32,
    /// `complete` or `silent` if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<String>,
}

/// Another node with our source id.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Collision {
    pub(crate) address: String,
    /// Whether this node must stop.
    pub(crate) stop: bool,
}

/// A receiver of one of our streams.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Member {
    pub(crate) stream: u16,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// `heard`, `not_heard`; with the policy `slowest`, `silent`, `holds` or `caught_up`.
    pub(crate) why: String,
}

/// For whom a stream waits before it sends anything.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Group {
    pub(crate) stream: u16,
    /// How many required receivers are missing; 0 if it waits no more.
    pub(crate) missing: u64,
    /// Those that are not there.
    pub(crate) absent: Vec<String>,
}

/// Messages that were reported as lost.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Loss {
    pub(crate) source: String,
    pub(crate) stream: u16,
    pub(crate) reason: String,
    /// `exact`, `at_least` or `at_most`.
    pub(crate) bound: String,
    pub(crate) messages: u64,
    pub(crate) reports: u64,
    /// Where the datagrams were lost: `socket`, `host`, `before` (this host), or `none` if no datagram is missing.
    pub(crate) place: String,
    /// Datagrams that the sockets of the node had no room for since before the loss.
    pub(crate) socket_dropped: u64,
    /// The same in words, with what helps.
    pub(crate) text: String,
}

/// A receiver that takes more than half of all retransmissions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Crybaby {
    pub(crate) stream: u16,
    pub(crate) name: Option<String>,
    pub(crate) address: String,
    pub(crate) kernel_dropped: u32,
}

/// A part of the way took longer than its budget.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Excess {
    pub(crate) part: String,
    pub(crate) limit_seconds: f64,
    pub(crate) times: u64,
    pub(crate) worst_seconds: f64,
    pub(crate) source: String,
    pub(crate) stream: u16,
    /// A message, or a datagram for `batching`, `pacing`, `network`, `socket`, `repair` and `order`.
    pub(crate) number: u64,
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
