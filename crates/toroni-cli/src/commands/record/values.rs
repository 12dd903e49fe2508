//! The values of retained topics: which topics are retained, and the newest message of each, with which the next part begins.

use std::collections::HashMap;
use toroni::{Bus, Origin, RetainedError};
use toroni_recording::format::Retention;

/// Which topics of a bus are retained, for the intake.
pub(super) struct Retained {
    pub(super) bus: Bus,
    /// What is recorded.
    pub(super) patterns: Vec<String>,
    /// The topics, by their numbers.
    pub(super) topics: Vec<Known>,
    /// How often the bus was asked.
    round: u64,
}

/// A topic that was recorded.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) is_retained: bool,
    /// When the bus was asked last whether it is.
    round: u64,
}

impl Retained {
    pub(super) fn new(bus: &Bus, patterns: Vec<String>) -> Self {
        Self { bus: bus.clone(), patterns, topics: Vec::new(), round: 0 }
    }

    /// Adds the topic with the next number.
    pub(super) fn add(&mut self, name: &str) {
        self.topics.push(Known { name: name.to_owned(), is_retained: false, round: 0 });
    }

    /// Returns those of these topics of which the bus says now that they are retained, and did not before. A topic that has a
    /// value is: that which was received is its value, or a newer message.
    pub(super) fn found(&mut self, topics: impl Iterator<Item = u32>) -> Vec<u32> {
        self.round += 1;
        let mut found = Vec::new();
        for topic in topics {
            let Some(known) = self.topics.get_mut(topic as usize) else { continue };
            if known.is_retained || known.round == self.round {
                continue;
            }
            known.round = self.round;
            let is_retained = match self.bus.retained(&known.name) {
                Ok(value) => value.is_some(),
                Err(error) => {
                    matches!(error, RetainedError::Missing { .. } | RetainedError::Unstable { .. })
                }
            };
            if is_retained {
                found.push(topic);
            }
        }
        found
    }
}

/// The newest message of a topic.
pub(super) struct Value {
    pub(super) topic: u32,
    pub(super) sequence: u64,
    /// Time of publication, if the message had a stamp.
    pub(super) published: Option<u64>,
    pub(super) origin: Option<(Origin, Option<u64>)>,
    pub(super) payload: Payload,
}

/// The bytes of a value.
pub(super) enum Payload {
    Kept(Vec<u8>),
    /// There was no room for as many.
    Missing(u64),
}

/// The newest message of each retained topic, as far as it was recorded, for the writer.
#[derive(Default)]
pub(super) struct Newest {
    values: HashMap<String, Value>,
    /// Bytes of all payloads, and how many there may be: those that the bus has for values.
    bytes: u64,
    limit: u64,
    /// By the number of a topic.
    are_retained: Vec<bool>,
}

impl Newest {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Notes that a topic is retained.
    pub(super) fn mark(&mut self, topic: u32) {
        let index = topic as usize;
        if self.are_retained.len() <= index {
            self.are_retained.resize(index + 1, false);
        }
        self.are_retained[index] = true;
    }

    /// Returns what a message is of which the intake says this.
    pub(super) fn retention(&self, topic: u32, retention: Retention) -> Retention {
        match self.are_retained.get(topic as usize) {
            Some(true) if retention == Retention::None => Retention::Message,
            _ => retention,
        }
    }

    /// Replaces the value of a topic. If it finds no room, it is missing.
    pub(super) fn keep(&mut self, name: &str, mut value: Value, payload: &[u8]) {
        let mut old = self.values.get_mut(name);
        let mut bytes = match old.as_mut().map(|old| &mut old.payload) {
            Some(Payload::Kept(bytes)) => std::mem::take(bytes),
            _ => Vec::new(),
        };
        self.bytes -= bytes.len() as u64;
        if matches!(value.payload, Payload::Kept(_)) {
            let length = payload.len() as u64;
            value.payload = if self.bytes + length <= self.limit {
                self.bytes += length;
                bytes.clear();
                bytes.extend_from_slice(payload);
                // One that was long once does not keep the memory.
                bytes.shrink_to(payload.len().saturating_mul(2));
                Payload::Kept(bytes)
            } else {
                Payload::Missing(length)
            };
        }
        match old {
            Some(old) => *old = value,
            None => _ = self.values.insert(name.to_owned(), value),
        }
    }

    /// Removes the value of a topic.
    pub(super) fn clear(&mut self, name: &str) {
        if let Some(Payload::Kept(bytes)) = self.values.remove(name).map(|value| value.payload) {
            self.bytes -= bytes.len() as u64;
        }
    }

    /// Removes all values.
    pub(super) fn clear_all(&mut self) {
        self.values.clear();
        self.bytes = 0;
    }

    /// Returns all values with their topics, in the order of the bus.
    pub(super) fn in_order(&self) -> Vec<(&str, &Value)> {
        let mut all: Vec<_> =
            self.values.iter().map(|(name, value)| (name.as_str(), value)).collect();
        all.sort_unstable_by_key(|(_, value)| value.sequence);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(sequence: u64) -> Value {
        let payload = Payload::Kept(Vec::new());
        Value { topic: 0, sequence, published: None, origin: None, payload }
    }

    fn texts(newest: &Newest) -> Vec<String> {
        let text = |(name, value): (&str, &Value)| match &value.payload {
            Payload::Kept(bytes) => format!("{name}={}", String::from_utf8_lossy(bytes)),
            Payload::Missing(length) => format!("{name}: {length} missing"),
        };
        newest.in_order().into_iter().map(text).collect()
    }

    #[test]
    fn the_newest_are_kept_in_order_and_within_the_limit() {
        let mut newest = Newest::new(10);
        newest.keep("a", value(1), b"12345");
        newest.keep("b", value(2), b"1234");
        newest.keep("a", value(3), b"123456");
        assert_eq!(texts(&newest), ["b=1234", "a=123456"]);
        newest.keep("c", value(4), b"x");
        assert_eq!(texts(&newest), ["b=1234", "a=123456", "c: 1 missing"]);
        newest.clear("b");
        newest.keep("c", value(5), b"xyzw");
        assert_eq!((texts(&newest), newest.bytes), (vec!["a=123456".into(), "c=xyzw".into()], 10));
        newest.clear_all();
        assert!(newest.in_order().is_empty());
        assert_eq!(newest.bytes, 0);
    }

    #[test]
    fn a_message_of_a_retained_topic_becomes_its_value() {
        let mut newest = Newest::default();
        newest.mark(2);
        assert_eq!(newest.retention(2, Retention::None), Retention::Message);
        assert_eq!(newest.retention(2, Retention::Cleared), Retention::Cleared);
        for other in [1, 3] {
            assert_eq!(newest.retention(other, Retention::None), Retention::None);
        }
    }
}
