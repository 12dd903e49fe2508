//! What Toroni adds to MCAP: the channels of losses and of origins, and the metadata.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use toroni::{Lost, LostBound, LostReason, Origin, Pattern};
use toroni_shell::exchange;

/// The topic of the channel with the losses.
pub(crate) const LOST_TOPIC: &str = "@toroni/lost";
/// The topic of the channel with the origins.
pub(crate) const ORIGIN_TOPIC: &str = "@toroni/origin";
/// The topic of the channel with the notes of the recorder.
pub(crate) const NOTE_TOPIC: &str = "@toroni/note";
/// The key in the metadata of a channel that says what Toroni uses it for: `lost`, `origin` or `note`. A bus may have a
/// topic with the name of one of them, but its channel does not have this key.
pub(crate) const KIND: &str = "toroni.kind";
/// The numbers of the channels of losses, notes and origins: a recorder describes them first.
pub(crate) const OWN_CHANNELS: std::ops::RangeInclusive<u16> = 1..=3;
/// The key in the metadata of a channel whose messages were published to descendants.
pub(crate) const TO_DESCENDANTS: &str = "toroni.to_descendants";
/// The key in the metadata of a channel of a topic that is retained; see [`Retention`].
pub(crate) const RETAINED: &str = "toroni.retained";
/// The name of the metadata records.
pub(crate) const METADATA: &str = "toroni";
/// Keys in the metadata record at the front.
pub const SEQUENCE_BASE: &str = "sequence_base";
/// The patterns of the recorder.
pub const PATTERNS: &str = "patterns";
/// How far the wall clock was ahead of the times of the file when the file began, in nanoseconds. Only if it was set before.
pub const CLOCK_OFFSET: &str = "clock_offset_ns";
/// A key in the metadata record at the end.
pub(crate) const ENDED: &str = "ended";

/// Why messages are lost that are in a damaged part of a recording.
const DAMAGED: &str = "damaged";
/// Why the value of a topic is missing: the bus, or the recorder, had no room for it.
const NO_ROOM: &str = "no_room_for_value";

/// What a message of a recording has to do with the value of its topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Nothing, as far as the recorder knew: the topic was not retained.
    #[default]
    None,
    /// It is a message of the stream, and the value of its topic from then on.
    Message,
    /// It is the value of its topic at this place, and was published before.
    Value,
    /// It is no message, but says that the value was cleared.
    Cleared,
}

impl Retention {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::Message, Self::Value, Self::Cleared];

    /// Returns what the metadata of a channel say, or `None` if they say nothing.
    pub(crate) fn as_str(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Message => Some("message"),
            Self::Value => Some("value"),
            Self::Cleared => Some("cleared"),
        }
    }
}

/// The JSON Schema of the channel with the losses.
pub(crate) const LOST_SCHEMA: &str = r#"{
  "title": "toroni.Lost",
  "description": "Messages that are missing at this place of the recording",
  "type": "object",
  "properties": {
    "from_sequence": {"type": "integer", "description": "sequence of the bus at which the loss stands"},
    "messages": {"type": "integer", "description": "how many messages were lost; see bound"},
    "bytes": {"type": ["integer", "null"], "description": "bytes of the stream that were lost, if known"},
    "at_least": {"type": "boolean", "description": "whether there may have been more"},
    "bound": {"type": "string", "enum": ["exact", "at_least", "at_most"]},
    "reason": {"type": "string"},
    "scope": {"type": "array", "items": {"type": "string"}, "description": "patterns of the topics they may have had"},
    "origin": {
      "type": ["object", "null"],
      "description": "the stream in which they were lost on their way to the bus; null if the recorder was overtaken, or the bus had no room for a value",
      "properties": {
        "source": {"type": "integer"}, "series": {"type": "integer"}, "stream": {"type": "integer"},
        "from": {"type": "integer"}, "until": {"type": "integer"}
      }
    }
  },
  "required": ["from_sequence", "messages", "reason"]
}"#;

/// The JSON Schema of the channel with the notes.
pub(crate) const NOTE_SCHEMA: &str = r#"{
  "title": "toroni.Note",
  "description": "What happened to the recorder at this place of the recording",
  "type": "object",
  "properties": {
    "kind": {"type": "string", "enum": ["clock_step", "paused", "resumed"]},
    "step_ns": {"type": "integer", "description": "how far the wall clock was set, negative if back"},
    "offset_ns": {"type": "integer", "description": "how far it is ahead of the log times since then"},
    "messages": {"type": "integer", "description": "how many messages were not recorded during the pause"},
    "paused_ns": {"type": "integer", "description": "how long the pause was"}
  },
  "required": ["kind"]
}"#;

/// A message of the channel with the notes: what happened to the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RecordedNote {
    /// The wall clock was set. The log times of the recording advance with the monotonic clock.
    ClockStep {
        /// How far it was set, negative if back.
        step_ns: i64,
        /// How far it is ahead of the log times since then.
        offset_ns: i64,
    },
    /// The recorder was told to pause.
    Paused,
    /// The recorder records again.
    Resumed {
        /// How many messages were not recorded.
        messages: u64,
        /// How long the pause was.
        paused_ns: u64,
    },
}

impl fmt::Display for RecordedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |ns| toroni_shell::human::duration(Duration::from_nanos(ns));
        match self {
            Self::ClockStep { step_ns, .. } => {
                let way = if *step_ns < 0 { "back" } else { "forward" };
                write!(f, "the wall clock was set {way} by {}", text(step_ns.unsigned_abs()))
            }
            Self::Paused => write!(f, "the recorder was paused"),
            Self::Resumed { messages, paused_ns } => write!(
                f,
                "the recorder continued after {}, during which it left out {}",
                text(*paused_ns),
                toroni_shell::human::counted(*messages, "message")
            ),
        }
    }
}

/// A message of the channel with the losses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedLoss {
    /// The sequence of the bus at which the loss stands.
    pub from_sequence: u64,
    /// How many messages were lost.
    pub messages: u64,
    /// Bytes of the stream that were lost, if known.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Whether there may have been more.
    #[serde(default)]
    pub at_least: bool,
    /// Whether the number is exact, the least or the most.
    #[serde(default)]
    pub bound: String,
    /// Why they were lost.
    pub reason: String,
    /// Empty if the recorder was overtaken: then any topic of the bus may be concerned.
    #[serde(default)]
    pub scope: Vec<String>,
    /// The stream in which they were lost. `None` if the recorder was overtaken.
    #[serde(default)]
    pub origin: Option<LostOrigin>,
}

/// Where messages were lost on their way to the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostOrigin {
    source: u32,
    series: u32,
    stream: u16,
    from: u64,
    until: u64,
}

impl RecordedLoss {
    /// Returns the loss of a recorder that publishers have overtaken.
    pub fn lapse(from_sequence: u64, messages: u64, bytes: u64) -> Self {
        Self {
            from_sequence,
            messages,
            bytes: Some(bytes),
            at_least: false,
            bound: LostBound::Exact.as_str().to_owned(),
            reason: LostReason::Overtaken.as_str().to_owned(),
            scope: Vec::new(),
            origin: None,
        }
    }

    /// Returns the loss of messages that are in a damaged part of a recording: how many, or `None` if that is unknown.
    pub fn damage(from_sequence: u64, messages: Option<u64>) -> Self {
        let bound = if messages.is_some() { LostBound::Exact } else { LostBound::AtLeast };
        Self {
            messages: messages.unwrap_or(1),
            bytes: None,
            at_least: messages.is_none(),
            bound: bound.as_str().to_owned(),
            reason: DAMAGED.to_owned(),
            ..Self::lapse(from_sequence, 0, 0)
        }
    }

    /// Returns the loss of the value of a topic, of this length, for which there was no room.
    pub fn value(from_sequence: u64, topic: &str, length: u64) -> Self {
        Self {
            reason: NO_ROOM.to_owned(),
            scope: vec![topic.to_owned()],
            ..Self::lapse(from_sequence, 1, length)
        }
    }

    /// Returns the topic whose value is missing, if it is such a loss.
    pub fn of_value(&self) -> Option<&str> {
        self.scope.first().map(String::as_str).filter(|_| self.reason == NO_ROOM)
    }

    /// Returns whether they are in a damaged part of a recording.
    pub fn is_damage(&self) -> bool {
        self.reason == DAMAGED
    }

    /// Returns a loss on the way to the bus.
    pub fn on_the_way(from_sequence: u64, lost: &Lost) -> Self {
        let Origin { source, series, stream, number } = lost.from;
        Self {
            from_sequence,
            messages: lost.messages,
            bytes: None,
            at_least: lost.bound == LostBound::AtLeast,
            bound: lost.bound.as_str().to_owned(),
            reason: lost.reason.as_str().to_owned(),
            scope: lost.scope.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
            origin: Some(LostOrigin { source, series, stream, from: number, until: lost.until }),
        }
    }

    /// Returns how exact the number of messages is.
    pub fn bound(&self) -> LostBound {
        let known = LostBound::ALL.into_iter().find(|bound| bound.as_str() == self.bound);
        known.unwrap_or(if self.at_least { LostBound::AtLeast } else { LostBound::Exact })
    }

    /// Returns the loss as a bus reports it. `fallback` names the stream and the numbers if the recording does not,
    /// and `scope` the topics.
    pub fn to_lost(&self, fallback: Origin, until: u64, scope: Vec<Pattern>) -> Lost {
        let reason = LostReason::ALL.iter().copied().find(|reason| reason.as_str() == self.reason);
        Lost {
            from: fallback,
            until,
            messages: self.messages,
            bound: self.bound(),
            reason: reason.unwrap_or(LostReason::Gone),
            scope,
        }
    }

    /// Returns the stream and the numbers of a loss on the way to the bus, if they are within their limits.
    pub fn numbers(&self) -> Option<(Origin, u64)> {
        let LostOrigin { source, series, stream, from, until } = self.origin?;
        let is_valid =
            from <= until && from < Origin::NUMBER_LIMIT && until <= Origin::NUMBER_LIMIT;
        is_valid.then_some((Origin { source, series, stream, number: from }, until))
    }
}

/// The length of a message of the channel with the origins.
pub(crate) const ORIGIN_RUN_BYTES: usize = 40;

/// Where consecutive messages were first published: a message of the channel with the origins. It is in the same chunk
/// as its messages.
///
/// ```text
///  byte 0                16       24           28           32           34              40
///       +----------------+--------+------------+------------+------------+---------------+
///       | sequence u64,  | as in Origin: source u32, series u32, stream u16, number u48  |
///       | count u64      |                                                               |
///       +----------------+-----------------------------------+---------------------------+
///                        16                                  32                          40
///                                                            | number of the first, or all bits: none |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginRun {
    /// The sequence of the first message. The others have the following sequences.
    pub sequence: u64,
    /// How many messages it is about.
    pub count: u64,
    /// The origin of the first message. The numbers of the others follow it.
    pub origin: Origin,
    /// The place of the first message in an order over several buses. The others follow it.
    pub number: Option<u64>,
}

/// Stands for a message without a place in an order over several buses.
const NO_NUMBER: u64 = u64::MAX;

impl OriginRun {
    /// Returns a run of one message.
    pub fn of(sequence: u64, origin: Origin, number: Option<u64>) -> Self {
        Self { sequence, count: 1, origin, number }
    }

    /// Adds a message if it continues the run.
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        let is_next = self.at(next.sequence, self.count) == Some((next.origin, next.number));
        self.count = self.count.saturating_add(u64::from(is_next));
        is_next
    }

    /// Returns origin and number of the message with a sequence, if it is within `count`.
    fn at(&self, sequence: u64, last: u64) -> Option<(Origin, Option<u64>)> {
        let offset = sequence.checked_sub(self.sequence).filter(|offset| *offset <= last)?;
        let number = self.origin.number.checked_add(offset)?;
        let place = match self.number {
            Some(place) => Some(place.checked_add(offset)?),
            None => None,
        };
        (number < Origin::NUMBER_LIMIT).then_some((Origin { number, ..self.origin }, place))
    }

    /// Returns origin and number of the message with this sequence, if the run has it.
    pub(crate) fn of_message(&self, sequence: u64) -> Option<(Origin, Option<u64>)> {
        self.at(sequence, self.count.checked_sub(1)?)
    }

    /// Returns it as it is in a file.
    pub(crate) fn encode(&self) -> [u8; ORIGIN_RUN_BYTES] {
        let mut bytes = [0; ORIGIN_RUN_BYTES];
        let Origin { source, series, stream, number } = self.origin;
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..20].copy_from_slice(&source.to_le_bytes());
        bytes[20..24].copy_from_slice(&series.to_le_bytes());
        bytes[24..26].copy_from_slice(&stream.to_le_bytes());
        bytes[26..32].copy_from_slice(&number.to_le_bytes()[..6]);
        bytes[32..].copy_from_slice(&self.number.unwrap_or(NO_NUMBER).to_le_bytes());
        bytes
    }

    /// Reads it from a file. Returns `None` if it has another length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ORIGIN_RUN_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at..][byte]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at..][byte]));
        let number = word(32);
        Some(Self {
            sequence: word(0),
            count: word(8),
            origin: Origin {
                source: half(16),
                series: half(20),
                stream: u16::from_le_bytes([bytes[24], bytes[25]]),
                number: word(24) >> 16,
            },
            number: (number != NO_NUMBER).then_some(number),
        })
    }
}

/// Returns the metadata of a channel that Toroni uses itself.
pub(crate) fn kind(kind: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(KIND.to_owned(), kind.to_owned())])
}

/// Returns the metadata of a topic's channel.
pub(crate) fn of_topic(to_descendants: bool, retention: Retention) -> BTreeMap<String, String> {
    let below = to_descendants.then_some((TO_DESCENDANTS, "true"));
    let entries = below.into_iter().chain(retention.as_str().map(|text| (RETAINED, text)));
    entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl From<&RecordedLoss> for exchange::Loss {
    fn from(loss: &RecordedLoss) -> Self {
        let Some((from, until)) = loss.numbers() else {
            let bytes = loss.bytes.unwrap_or(0);
            return match loss.of_value() {
                Some(topic) => Self::Value(exchange::MissingValue::new(topic, None, bytes)),
                None => Self::Lapse(exchange::Lapse { messages: loss.messages, bytes }),
            };
        };
        let scope = loss.scope.iter().filter_map(|scope| scope.parse().ok()).collect();
        Self::from(&loss.to_lost(from, until, scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_origins_are_extended_and_encoded() {
        let origin = |number| Origin { source: 7, series: 8, stream: 9, number };
        let mut run = OriginRun::of(100, origin(5), Some(50));
        assert!(run.extend(&OriginRun::of(101, origin(6), Some(51))));
        for other in [
            OriginRun::of(103, origin(7), Some(52)),
            OriginRun::of(102, origin(8), Some(52)),
            OriginRun::of(102, origin(7), Some(53)),
            OriginRun::of(102, origin(7), None),
            OriginRun::of(102, Origin { stream: 1, ..origin(7) }, Some(52)),
        ] {
            assert!(!run.extend(&other), "{other:?}");
        }
        assert_eq!(run.count, 2);
        assert_eq!(OriginRun::decode(&run.encode()), Some(run));
        assert_eq!(run.of_message(101), Some((origin(6), Some(51))));
        assert_eq!((run.of_message(99), run.of_message(102)), (None, None));
        let whole = OriginRun { sequence: 0, count: u64::MAX, origin: origin(5), number: None };
        assert_eq!(whole.of_message(u64::MAX - 1), None, "its number is beyond the limit");
        assert_eq!(OriginRun::decode(&whole.encode()), Some(whole));
    }

    #[test]
    fn losses_go_both_ways() {
        let lost = Lost {
            from: Origin { source: 1, series: 2, stream: 3, number: 4 },
            until: 9,
            messages: 5,
            bound: LostBound::AtMost,
            reason: LostReason::Diverged,
            scope: vec!["plant/**".parse().unwrap()],
        };
        let recorded = RecordedLoss::on_the_way(7, &lost);
        let text = serde_json::to_string(&recorded).unwrap();
        let read: RecordedLoss = serde_json::from_str(&text).unwrap();
        assert_eq!(read, recorded);
        let (from, until) = read.numbers().unwrap();
        assert_eq!(read.to_lost(from, until, lost.scope.clone()), lost);
        let minimal: RecordedLoss = serde_json::from_str(
            r#"{"from_sequence":1,"messages":2,"at_least":true,"reason":"?"}"#,
        )
        .unwrap();
        assert_eq!(minimal.bound(), LostBound::AtLeast);
    }

    #[test]
    fn the_schemas_are_json() {
        let step = RecordedNote::ClockStep { step_ns: -1, offset_ns: -1 };
        let resumed = RecordedNote::Resumed { messages: 1, paused_ns: 2 };
        for (schema, recorded) in [
            (LOST_SCHEMA, serde_json::to_value(RecordedLoss::lapse(1, 2, 3))),
            (NOTE_SCHEMA, serde_json::to_value(step)),
            (NOTE_SCHEMA, serde_json::to_value(RecordedNote::Paused)),
            (NOTE_SCHEMA, serde_json::to_value(resumed)),
        ] {
            let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
            let recorded = recorded.unwrap();
            for field in recorded.as_object().unwrap().keys() {
                assert!(schema["properties"].get(field).is_some(), "{field} is not in the schema");
            }
            if let Some(kind) = recorded.get("kind") {
                let kinds = schema["properties"]["kind"]["enum"].as_array().unwrap();
                assert!(kinds.contains(kind), "{kind}");
            }
        }
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        let hour = 3_600_000_000_000;
        let step = RecordedNote::ClockStep { step_ns: -hour, offset_ns: -hour };
        let resumed = RecordedNote::Resumed { messages: 5, paused_ns: 2_000_000_000 };
        for (note, text) in [
            (step, "set back by 60 min"),
            (RecordedNote::Paused, "paused"),
            (resumed, "after 2 s, during which it left out 5 messages"),
        ] {
            let json = serde_json::to_string(&note).unwrap();
            assert_eq!(serde_json::from_str::<RecordedNote>(&json).unwrap(), note);
            assert!(note.to_string().contains(text), "{note}");
        }
        let least = RecordedNote::ClockStep { step_ns: i64::MIN, offset_ns: 0 };
        assert!(least.to_string().contains("back"));
    }
}
