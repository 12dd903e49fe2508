//! Heartbeats: how many messages an export has sent on each topic.
//!
//! Importers compare them with what they have received, so they find the messages that were lost at the end. They keep
//! the last one, and return it to a bridge that was restarted: it continues there. A heartbeat is JSON:
//!
//! ```text
//! {"bus": "…", "realm": 8, "edition": 9, "source": 1, "series": 2, "stream": 3, "numbering": 4, "beat": 17,
//!  "begins": 100, "until": 250, "full": true, "topics": {"plant/pump": 12, "plant/boiler/temperature": 138}}
//! ```
//!
//! While there are few topics, each heartbeat has all of them. Otherwise one has those that changed lately, and a part of
//! the others in turn.

use crate::loss;
use crate::order::{StreamKey, Told};
use foldhash::{HashMap, HashMapExt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use toroni::{Origin, Topic};

/// As many topics are in each heartbeat.
pub(crate) const ALL_TOPICS: usize = 256;
/// A topic that has changed is in as many heartbeats.
pub(crate) const REPEATS: u64 = 8;

/// A heartbeat of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beat {
    /// The id of the bus.
    pub(crate) bus: String,
    /// Names the bridges that stand in for one another.
    #[serde(default)]
    pub(crate) realm: u32,
    /// Names what the bridge exports: another one follows if the configuration is edited.
    #[serde(default)]
    pub(crate) edition: u32,
    /// If the sequences of the bus have gone back, as those of a copy do: when, in milliseconds since 1970. The series is
    /// then another one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) life: u64,
    pub(crate) source: u32,
    pub(crate) series: u32,
    pub(crate) stream: u16,
    pub(crate) numbering: u32,
    /// Counts the heartbeats of the numbering.
    pub(crate) beat: u64,
    /// The first sequence that the numbering counts.
    pub(crate) begins: u64,
    /// The sequence up to which the bus was read, and its messages were given to Zenoh.
    pub(crate) until: u64,
    /// Where the numbering before this one ended, if the same bridge has begun a new one because it was overtaken, and
    /// how many messages of the bus were overwritten since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overtaken: Option<Overtaken>,
    /// Whether it has all topics.
    pub(crate) full: bool,
    /// The sequence from which on the answer of a join has all messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replayed_from: Option<u64>,
    /// The sequence up to which it has them. Without it, up to `until`. The importer asks for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replayed_until: Option<u64>,
    /// How many messages the answer of a join has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replayed: Option<u64>,
    /// How many messages it cannot have, because they are too long or on topics of bridges.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unsent: u64,
    /// Whether the export ends, and has sent all that was on its bus.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) ended: bool,
    /// The time between two heartbeats, in milliseconds. 0: unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) every: u64,
    /// How many messages were sent on each topic.
    pub(crate) topics: BTreeMap<String, u64>,
}

fn is_counted(topic: &str) -> bool {
    Topic::new(topic).is_ok() || topic == loss::TOPIC
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overtaken {
    pub(crate) ended: u64,
    pub(crate) messages: u64,
}

impl Beat {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a heartbeat, whose numbers and topics are then within their limits.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let beat: Self = serde_json::from_slice(bytes).ok()?;
        let numbers = [beat.begins, beat.until, beat.replayed_from.unwrap_or(0)];
        let is_number = |number: &u64| *number <= Origin::NUMBER_LIMIT;
        let is_sound = numbers.iter().all(is_number)
            && is_number(&beat.unsent)
            && is_number(&beat.life)
            && is_number(&beat.beat)
            && beat.begins <= beat.until
            && beat.replayed_until.is_none_or(|until| until <= beat.until)
            && beat.bus.len() <= 64
            && beat.topics.iter().all(|(topic, count)| is_counted(topic) && is_number(count));
        is_sound.then_some(beat)
    }

    pub(crate) fn key(&self) -> StreamKey {
        StreamKey { source: self.source, series: self.series, stream: self.stream }
    }

    pub(crate) fn told(&self) -> Told<'_> {
        Told {
            numbering: self.numbering,
            beat: self.beat,
            key: self.key(),
            begins: self.begins,
            until: self.until,
            overtaken: self.overtaken.map(|Overtaken { ended, messages }| (ended, messages)),
            full: self.full,
            topics: &self.topics,
        }
    }
}

/// The counts of an export.
#[derive(Debug)]
pub(crate) struct Table {
    /// The parts of a heartbeat that stay.
    head: Beat,
    topics: HashMap<Arc<str>, Counted>,
    /// The topics in the order in which they came, for turns.
    order: Vec<Arc<str>>,
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    count: u64,
    changed: u64,
}

impl Table {
    /// Begins a numbering.
    pub(crate) fn begin(head: Beat) -> Self {
        let mut table = Self {
            head: Beat { topics: BTreeMap::new(), ..head.clone() },
            topics: HashMap::new(),
            order: Vec::new(),
            turn: 0,
        };
        for (topic, count) in head.topics {
            let topic: Arc<str> = topic.into();
            table.order.push(topic.clone());
            table.topics.insert(topic, Counted { count, changed: 0 });
        }
        table
    }

    pub(crate) fn numbering(&self) -> u32 {
        self.head.numbering
    }

    pub(crate) fn until(&self) -> u64 {
        self.head.until
    }

    /// Counts the message with this sequence. Returns how many there were on its topic before.
    pub(crate) fn count(&mut self, topic: &str, sequence: u64) -> u64 {
        self.head.until = sequence.saturating_add(1);
        self.count_more(topic)
    }

    /// Learns that all messages before this sequence were counted, or are not for this export.
    pub(crate) fn read(&mut self, until: u64) {
        self.head.until = self.head.until.max(until);
    }

    /// Learns that nothing more is sent.
    pub(crate) fn end(&mut self) {
        self.head.ended = true;
    }

    /// Counts something that has no sequence. Returns how many there were before.
    pub(crate) fn count_more(&mut self, topic: &str) -> u64 {
        let changed = self.head.beat;
        if let Some(counted) = self.topics.get_mut(topic) {
            counted.count += 1;
            counted.changed = changed;
            return counted.count - 1;
        }
        let topic: Arc<str> = topic.into();
        self.order.push(topic.clone());
        self.topics.insert(topic, Counted { count: 1, changed });
        0
    }

    /// Returns the parts of a heartbeat that stay.
    pub(crate) fn head(&self) -> &Beat {
        &self.head
    }

    /// Returns a heartbeat with all topics.
    pub(crate) fn full(&self) -> Beat {
        let topics =
            self.topics.iter().map(|(topic, counted)| (topic.to_string(), counted.count)).collect();
        Beat { full: true, topics, ..self.head.clone() }
    }

    /// Returns the next heartbeat.
    pub(crate) fn next(&mut self) -> Beat {
        self.head.beat += 1;
        if self.topics.len() <= ALL_TOPICS {
            return self.full();
        }
        let now = self.head.beat;
        let mut topics: BTreeMap<String, u64> = self
            .topics
            .iter()
            .filter(|(_, counted)| counted.changed + REPEATS >= now)
            .map(|(topic, counted)| (topic.to_string(), counted.count))
            .collect();
        for _ in 0..ALL_TOPICS {
            self.turn = (self.turn + 1) % self.order.len();
            let topic = &self.order[self.turn];
            topics.insert(topic.to_string(), self.topics[topic].count);
        }
        Beat { full: false, topics, ..self.head.clone() }
    }
}

/// What an importer or a successor knows of an export from its heartbeats.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    beat: Beat,
    /// Whether the topics are all there are.
    is_complete: bool,
}

impl Known {
    pub(crate) fn take(&mut self, beat: &Beat) {
        if beat.full {
            // An answer may come after a younger heartbeat.
            if self.is_complete
                && beat.numbering == self.beat.numbering
                && beat.until < self.beat.until
            {
                return;
            }
            *self = Self { beat: beat.clone(), is_complete: true };
            return;
        }
        self.is_complete &= beat.numbering == self.beat.numbering
            && beat.beat <= self.beat.beat + REPEATS
            && beat.until >= self.beat.until;
        let mut topics = std::mem::take(&mut self.beat.topics);
        topics.extend(beat.topics.iter().map(|(topic, count)| (topic.clone(), *count)));
        self.beat = Beat { topics, full: true, ..beat.clone() };
    }

    pub(crate) fn numbering(&self) -> u32 {
        self.beat.numbering
    }

    /// Returns how much memory it takes at most, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let topics = self.beat.topics.keys();
        topics.fold(512, |sum, topic| sum.saturating_add(topic.len()).saturating_add(128))
    }

    /// Returns the last heartbeat with all topics, if they are known.
    pub(crate) fn complete(&self) -> Option<&Beat> {
        self.is_complete.then_some(&self.beat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> Beat {
        Beat { bus: "ab".into(), numbering: 7, begins: 5, until: 5, ..Beat::default() }
    }

    #[test]
    fn a_few_topics_are_in_each_heartbeat() {
        let mut table = Table::begin(head());
        assert_eq!((table.count("a", 5), table.count("b", 8), table.count("a", 9)), (0, 0, 1));
        let beat = table.next();
        assert!(beat.full);
        assert_eq!((beat.beat, beat.until), (1, 10));
        assert_eq!(beat.topics, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
        assert_eq!(Beat::parse(&beat.to_bytes()), Some(beat));
    }

    #[test]
    fn many_topics_come_in_turn_and_changes_at_once() {
        let mut table = Table::begin(head());
        let topics = 5 * ALL_TOPICS;
        for number in 0..topics {
            table.count(&format!("t/{number}"), number as u64 + 5);
        }
        let mut known = Known::default();
        known.take(&table.full());
        for _ in 0..2 * REPEATS {
            known.take(&table.next());
        }
        table.count("t/0", 9_999);
        let beat = table.next();
        assert!(!beat.full && beat.topics.len() <= ALL_TOPICS + 1, "{}", beat.topics.len());
        assert_eq!(beat.topics.get("t/0"), Some(&2));
        known.take(&beat);
        assert_eq!(known.complete().expect("no beat is missing").topics, table.full().topics);

        // Changes that were told in heartbeats that did not come.
        table.count("t/1", 10_000);
        for _ in 0..REPEATS {
            table.next();
        }
        known.take(&table.next());
        assert!(known.complete().is_none());
    }

    #[test]
    fn a_heartbeat_that_no_bridge_sends_is_refused() {
        let parse = |beat: Beat| Beat::parse(&beat.to_bytes());
        assert!(parse(head()).is_some());
        assert!(parse(Beat { until: 4, ..head() }).is_none());
        assert!(parse(Beat { until: 1 << 49, ..head() }).is_none());
        assert!(parse(Beat { beat: u64::MAX, ..head() }).is_none());
        assert!(parse(Beat { bus: "b".repeat(65), ..head() }).is_none());
        assert!(parse(Beat { topics: BTreeMap::from([("a//b".into(), 1)]), ..head() }).is_none());
        assert!(
            parse(Beat { topics: BTreeMap::from([("a".into(), u64::MAX)]), ..head() }).is_none()
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Beat::parse(&bytes);
        }
    }
}
