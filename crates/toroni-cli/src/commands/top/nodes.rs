//! Reads the notices of the nodes that connect a bus. Nothing asks the nodes themselves.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::network::{NetworkModel, NodeHistory};
use super::topics::{NAME, unix_seconds};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use toroni::{ReceiveError, Start, Subscriber, admin};
use toroni_shell::location::BusLocation;
use toroni_shell::notice::{BUS_PREFIX, End, Notice, Stats, topic};

/// How often buses of notices are searched for.
const SEARCH_EVERY: Duration = Duration::from_secs(5);
/// How many of them are read, and how many nodes are shown.
const MOST_REALMS: usize = 16;
const MOST_NODES: usize = 64;
/// How many notices are read in one go.
const MOST_NOTICES: usize = 10_000;

/// The notices of all realms in a directory, as far as they are about one bus.
pub(super) struct NodeReader {
    location: BusLocation,
    /// The bus that the nodes connect.
    bus: String,
    realms: BTreeMap<String, Subscriber>,
    /// By the name of the bus of notices, and of the node.
    nodes: BTreeMap<(String, String), NodeHistory>,
    search_at: Instant,
}

impl NodeReader {
    pub(super) fn new(location: &BusLocation, bus: &str) -> Self {
        let (realms, nodes) = (BTreeMap::new(), BTreeMap::new());
        let (location, bus) = (location.clone(), bus.to_owned());
        Self { location, bus, realms, nodes, search_at: Instant::now() }
    }

    /// Reads what is there.
    pub(super) fn look(&mut self) {
        if Instant::now() >= self.search_at {
            self.search_at = Instant::now().checked_add(SEARCH_EVERY).unwrap_or(self.search_at);
            self.search();
        }
        let Self { realms, nodes, bus, .. } = self;
        // A bus that cannot be read any more is searched for again.
        realms.retain(|realm, subscriber| read(subscriber, realm, bus, nodes).is_ok());
    }

    fn search(&mut self) {
        // A directory that cannot be read has no nodes; the bus itself says why.
        let found = admin::list(self.location.dir.as_deref()).unwrap_or_default();
        let names = found.into_iter().map(|bus| bus.name);
        let realms = names.filter(|name| name.starts_with(BUS_PREFIX) && *name != self.bus);
        for name in realms.take(MOST_REALMS) {
            if !self.realms.contains_key(&name)
                && let Some(subscriber) = self.subscribe(&name)
            {
                self.realms.insert(name, subscriber);
            }
        }
    }

    /// Subscribes from the oldest notice on, so that rates and crybabies are known at once.
    fn subscribe(&self, name: &str) -> Option<Subscriber> {
        let config = self.location.config().participant_name(NAME);
        let bus = config.open_existing(name).ok()?;
        let builder = [topic::STATS, topic::CRYBABY, topic::END]
            .into_iter()
            .fold(bus.subscriber(), toroni::SubscriberBuilder::pattern);
        builder.gating(false).start(Start::Oldest).name(NAME).build().ok()
    }

    /// Returns what is to be shown.
    pub(super) fn model(&self) -> NetworkModel {
        let now = unix_seconds();
        NetworkModel { nodes: self.nodes.values().filter_map(|node| node.model(now)).collect() }
    }
}

fn read(
    subscriber: &mut Subscriber,
    realm: &str,
    bus: &str,
    nodes: &mut BTreeMap<(String, String), NodeHistory>,
) -> Result<(), ReceiveError> {
    for _ in 0..MOST_NOTICES {
        match subscriber.try_receive() {
            Ok(Some(message)) if message.topic() == topic::STATS => {
                let takes_part = |stats: &Stats| {
                    let feed = stats.sequencer.as_ref();
                    feed.is_some_and(|it| it.commands == *bus || it.feed == *bus)
                };
                with(message.payload(), realm, bus, nodes, takes_part, NodeHistory::stats);
            }
            Ok(Some(message)) if message.topic() == topic::END => {
                end(message.payload(), realm, nodes);
            }
            Ok(Some(message)) => {
                with(message.payload(), realm, bus, nodes, |_| false, NodeHistory::crybaby);
            }
            Ok(None) => break,
            // The newest notices say everything.
            Err(error) if error.is_loss() => {}
            Err(ReceiveError::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Forgets a node that was stopped in order. A node for a feed may connect another bus than this one.
fn end(payload: &[u8], realm: &str, nodes: &mut BTreeMap<(String, String), NodeHistory>) {
    let Ok(notice) = serde_json::from_slice::<Notice<End>>(payload) else { return };
    let key = (realm.to_owned(), notice.node);
    if nodes.get(&key).is_some_and(|node| node.is_ended_by(&notice.content)) {
        nodes.remove(&key);
    }
}

/// Gives a notice to its node, if that connects the bus, or `is_about` it in another way. Others may publish there, too: what
/// is no notice is left out.
fn with<T: DeserializeOwned>(
    payload: &[u8],
    realm: &str,
    bus: &str,
    nodes: &mut BTreeMap<(String, String), NodeHistory>,
    is_about: impl Fn(&T) -> bool,
    give: fn(&mut NodeHistory, Notice<T>),
) {
    let Ok(notice) = serde_json::from_slice::<Notice<T>>(payload) else { return };
    let key = (realm.to_owned(), notice.node.clone());
    let is_about = notice.bus == bus || is_about(&notice.content);
    if is_about && (nodes.contains_key(&key) || has_space(nodes, notice.time)) {
        give(nodes.entry(key).or_default(), notice);
    }
}

/// Returns whether one more node can be shown at a time. If there are too many, the one that has been silent for the longest
/// time gives way.
fn has_space(nodes: &mut BTreeMap<(String, String), NodeHistory>, now: f64) -> bool {
    if nodes.len() < MOST_NODES {
        return true;
    }
    let oldest =
        nodes.iter().min_by(|(_, one), (_, other)| one.latest().total_cmp(&other.latest()));
    let silent = oldest.filter(|(_, node)| node.is_silent(now)).map(|(key, _)| key.clone());
    silent.is_some_and(|key| nodes.remove(&key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Nodes = BTreeMap<(String, String), NodeHistory>;

    fn stats(nodes: &mut Nodes, node: &str, time: f64) {
        let (content, bus) = (Stats { session: 7, ..Stats::default() }, "plant".to_owned());
        let notice = Notice { time, node: node.to_owned(), bus, content };
        let payload = serde_json::to_vec(&notice).unwrap();
        with(&payload, "node.a", "plant", nodes, |_: &Stats| false, NodeHistory::stats);
    }

    fn ended(nodes: &mut Nodes, node: &str, session: u32) {
        let notice = json!({ "time": 1.0, "node": node, "bus": "plant", "session": session });
        end(notice.to_string().as_bytes(), "node.a", nodes);
    }

    fn names(nodes: &Nodes) -> Vec<&str> {
        nodes.keys().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn nodes_that_have_ended_leave_room_for_others() {
        let mut nodes = Nodes::new();
        for number in 0..2 * MOST_NODES {
            let name = format!("node-{number}");
            stats(&mut nodes, &name, 100.0);
            ended(&mut nodes, &name, 6);
            assert_eq!(names(&nodes), [&name], "that was another session");
            ended(&mut nodes, &name, 7);
            assert!(nodes.is_empty());
        }
    }

    #[test]
    fn a_node_that_was_silent_for_longest_gives_way() {
        let mut nodes = Nodes::new();
        for number in 0..u32::try_from(MOST_NODES).unwrap() {
            stats(&mut nodes, &format!("node-{number:02}"), 100.0 - f64::from(number % 7));
        }
        // All of them may publish again at any moment.
        stats(&mut nodes, "new", 98.0);
        assert!(!names(&nodes).contains(&"new") && nodes.len() == MOST_NODES);
        stats(&mut nodes, "new", 200.0);
        assert!(names(&nodes).contains(&"new") && nodes.len() == MOST_NODES);
        assert!(!names(&nodes).contains(&"node-06"), "it was silent for the longest time");
        assert!(names(&nodes).contains(&"node-05"));
    }
}
