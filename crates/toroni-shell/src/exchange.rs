//! Messages as JSON, one object per line. `sub --json` writes this format and `pub --json` reads it, so a pipe
//! between them copies messages exactly.
//!
//! Numbers that may exceed 2^53 are strings of decimal digits: many readers of JSON, such as JavaScript's, store
//! numbers as 64-bit floats and would round them.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::human;
use crate::output::write_json;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use toroni::{Lost, LostBound, Message, Origin, ReceiveError, RetainedMessage};

const BASE64: &str = "base64";

#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    #[serde(serialize_with = "as_text")]
    sequence: u64,
    /// Its place in an order over several buses, such as that of an event in its feed.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<WrittenOrigin>,
    /// Whether it is the value of its topic, and older than the stream that follows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retained: bool,
    /// Whether it is no message, but says that the value of its topic was cleared.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cleared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<usize>,
    /// Time of publication (RFC 3339), if the publisher adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    /// Time of publication in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp_ns: Option<String>,
    /// Time from publication to receipt, if both are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ns: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    to_descendants: bool,
    /// `base64` if the payload is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
}

/// Where a message was published first.
#[derive(Serialize)]
struct WrittenOrigin {
    /// Hexadecimal digits, as texts show it.
    source: String,
    series: String,
    stream: u16,
    #[serde(serialize_with = "as_text")]
    number: u64,
}

impl From<Origin> for WrittenOrigin {
    fn from(origin: Origin) -> Self {
        Self {
            source: format!("{:08x}", origin.source),
            series: format!("{:08x}", origin.series),
            stream: origin.stream,
            number: origin.number,
        }
    }
}

#[derive(Serialize)]
struct WrittenLoss<'a> {
    lost: &'a Loss,
}

/// What `sub` did not receive.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub enum Loss {
    /// Overwritten in the ring before `sub` read them.
    Lapse(Lapse),
    /// Lost between hosts.
    OnTheWay(LossOnTheWay),
    /// The value of a topic, for which the bus had no room.
    Value(MissingValue),
}

/// Messages that were overwritten before `sub` read them.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lapse {
    /// How many.
    #[serde(serialize_with = "as_text")]
    pub messages: u64,
    /// Bytes of the stream.
    #[serde(serialize_with = "as_text")]
    pub bytes: u64,
}

/// A message that is the value of its topic, and that the bus had no room for. Readers that know only [`Lapse`] see one of one
/// message.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
pub struct MissingValue {
    #[serde(serialize_with = "as_text")]
    messages: u64,
    #[serde(serialize_with = "as_text")]
    bytes: u64,
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
}

impl MissingValue {
    /// Describes the newest message of a topic, which has this many bytes. A recording does not have its sequence.
    pub fn new(topic: &str, sequence: Option<u64>, bytes: u64) -> Self {
        let sequence = sequence.map(|sequence| sequence.to_string());
        Self { messages: 1, bytes, topic: topic.to_owned(), sequence }
    }
}

impl fmt::Display for MissingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, bytes, .. } = self;
        write!(f, "the value of {topic} has {bytes} bytes, for which there was no room")
    }
}

/// Messages that were lost on their way from elsewhere to the bus.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
pub struct LossOnTheWay {
    #[serde(serialize_with = "as_text")]
    messages: u64,
    bound: &'static str,
    reason: &'static str,
    /// Hexadecimal digits, as texts show it.
    source: String,
    series: String,
    stream: u16,
    #[serde(serialize_with = "as_text")]
    from: u64,
    #[serde(serialize_with = "as_text")]
    until: u64,
    /// Patterns.
    scope: Vec<String>,
}

impl Loss {
    /// Returns how many messages it is about.
    pub fn messages(&self) -> u64 {
        match self {
            Self::Lapse(lapse) => lapse.messages,
            Self::OnTheWay(loss) => loss.messages,
            Self::Value(value) => value.messages,
        }
    }
}

impl From<&Lost> for Loss {
    fn from(lost: &Lost) -> Self {
        Self::OnTheWay(LossOnTheWay {
            messages: lost.messages,
            bound: lost.bound.as_str(),
            reason: lost.reason.as_str(),
            source: format!("{:08x}", lost.from.source),
            series: format!("{:08x}", lost.from.series),
            stream: lost.from.stream,
            from: lost.from.number,
            until: lost.until,
            scope: lost.scope.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
        })
    }
}

/// Describes a loss, with the option that changes what the text advises to change.
pub fn loss_text(error: &ReceiveError) -> String {
    match error {
        ReceiveError::ValueMissing { .. } => format!("{error} (option --retained-bytes)"),
        _ => error.to_string(),
    }
}

fn as_text<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(number)
}

/// A message as `sub` prints it: of a bus, or of a recording, which has no positions.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// Its position in the stream.
    pub position: Option<u64>,
    /// Its sequence on the bus.
    pub sequence: u64,
    /// Its place in an order over several buses.
    pub number: Option<u64>,
    /// Where it was published first.
    pub origin: Option<Origin>,
    /// Time of publication in nanoseconds since 1970.
    pub stamp: Option<u64>,
    /// Nanoseconds from then until it was received; negative if the clock of the publisher is ahead.
    pub age: Option<i64>,
    /// Whether it goes to the topics below its own, too.
    pub to_descendants: bool,
    /// Whether it is the value of its topic, and older than the stream that follows.
    pub is_retained: bool,
    /// Whether it is no message, but says that the value of its topic was cleared.
    pub is_cleared: bool,
}

impl Shown<'_> {
    /// Returns what it has to do with the value of its topic.
    pub(crate) fn state(&self) -> &'static str {
        match (self.is_retained, self.is_cleared) {
            (_, true) => "cleared",
            (true, false) => "retained",
            (false, false) => "-",
        }
    }
}

impl<'a> From<&Message<'a>> for Shown<'a> {
    fn from(message: &Message<'a>) -> Self {
        let stamp = message.timestamp().and_then(nanoseconds);
        Self {
            topic: message.topic(),
            payload: message.payload(),
            position: Some(message.position()),
            sequence: message.sequence(),
            number: message.number(),
            origin: message.origin(),
            stamp,
            age: stamp.map(|stamp| age(stamp, now_ns())),
            to_descendants: message.to_descendants(),
            is_retained: message.is_retained(),
            is_cleared: message.is_cleared(),
        }
    }
}

impl<'a> From<&'a RetainedMessage> for Shown<'a> {
    fn from(value: &'a RetainedMessage) -> Self {
        let stamp = value.timestamp().and_then(nanoseconds);
        Self {
            topic: value.topic(),
            payload: value.payload(),
            position: Some(value.position()),
            sequence: value.sequence(),
            number: value.number(),
            origin: value.origin(),
            stamp,
            age: stamp.map(|stamp| age(stamp, now_ns())),
            to_descendants: value.to_descendants(),
            is_retained: true,
            is_cleared: false,
        }
    }
}

/// Appends a message as one line.
pub fn write(message: &Shown<'_>, with_topic: bool, into: &mut Vec<u8>) {
    let bytes = message.payload;
    let encoded;
    let (encoding, payload) = match std::str::from_utf8(bytes) {
        Ok(text) => (None, text),
        Err(_) => {
            encoded = base64(bytes);
            (Some(BASE64), encoded.as_str())
        }
    };
    let stamp = message.stamp;
    append(
        &Written {
            topic: with_topic.then_some(message.topic),
            position: message.position.map(|position| position.to_string()),
            sequence: message.sequence,
            number: message.number.map(|number| number.to_string()),
            origin: message.origin.map(WrittenOrigin::from),
            retained: message.is_retained,
            cleared: message.is_cleared,
            length: (!message.is_cleared).then_some(bytes.len()),
            timestamp: stamp.map(human::rfc3339),
            timestamp_ns: stamp.map(|stamp| stamp.to_string()),
            age_ns: message.age.map(|age| age.to_string()),
            to_descendants: message.to_descendants,
            encoding,
            payload: (!message.is_cleared).then_some(payload),
        },
        into,
    );
}

/// Appends a loss as one line.
pub(crate) fn write_loss(lost: &Loss, into: &mut Vec<u8>) {
    append(&WrittenLoss { lost }, into);
}

fn append(value: &impl Serialize, into: &mut Vec<u8>) {
    write_json(into, value).expect("strings and numbers can be written to memory as JSON");
}

/// Encodes bytes in base64, with padding.
pub fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Returns the nanoseconds since 1970, or `None` before 1970 and after 2554.
pub fn nanoseconds(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// Returns the nanoseconds from one time to another, as far as they fit.
fn age(stamp: u64, now: u64) -> i64 {
    let apart = i64::try_from(now.abs_diff(stamp)).unwrap_or(i64::MAX);
    if now < stamp { apart.saturating_neg() } else { apart }
}

/// Returns the time of day in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    nanoseconds(SystemTime::now()).unwrap_or(0)
}

/// The content of one line.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// A message.
    Message {
        /// The topic.
        topic: String,
        /// Whether it goes to the topics below its own, too.
        to_descendants: bool,
        /// The payload, decoded.
        payload: Vec<u8>,
    },
    /// The value of a topic was cleared.
    Cleared {
        /// The topic.
        topic: String,
        /// Whether that goes to the topics below it, too.
        to_descendants: bool,
    },
    /// Messages that were overwritten on the source bus.
    Lapse(Lapse),
    /// Messages that were lost on their way to the source bus.
    LostOnTheWay {
        /// How many.
        messages: u64,
        /// Whether that is exact, the least or the most.
        bound: LostBound,
    },
}

/// The fields that are read. Position, sequence, number, origin, length and time belong to the source bus.
#[derive(Deserialize)]
struct Read {
    topic: Option<String>,
    payload: Option<String>,
    encoding: Option<String>,
    #[serde(default)]
    to_descendants: bool,
    #[serde(default)]
    cleared: bool,
    lost: Option<ReadLoss>,
}

/// The fields that are read: a lapse has `bytes`, a loss on the way has `bound`.
#[derive(Deserialize)]
struct ReadLoss {
    messages: String,
    bytes: Option<String>,
    bound: Option<String>,
}

/// Parses a line. The error says what is wrong with it.
pub fn read(line: &[u8]) -> Result<Entry, String> {
    let Read { topic, payload, encoding, to_descendants, cleared, lost } =
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // Its line number is always 1.
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            format!("column {}: {what}", error.column())
        })?;
    match (topic, payload, lost) {
        (Some(_), Some(_), None) if cleared => {
            Err("an object with \"cleared\" cannot also be a message".to_owned())
        }
        (Some(topic), None, None) if cleared => Ok(Entry::Cleared { topic, to_descendants }),
        (Some(topic), Some(payload), None) => {
            let payload = decode(payload, encoding.as_deref())?;
            Ok(Entry::Message { topic, to_descendants, payload })
        }
        (None, None, Some(lost)) => read_loss(&lost),
        (_, _, Some(_)) => Err("an object with \"lost\" cannot also be a message".to_owned()),
        (None, _, None) => Err("\"topic\" is missing".to_owned()),
        (_, None, None) => Err("\"payload\" is missing".to_owned()),
    }
}

fn read_loss(lost: &ReadLoss) -> Result<Entry, String> {
    let messages = number("messages", &lost.messages)?;
    match (&lost.bytes, &lost.bound) {
        (Some(bytes), None) => Ok(Entry::Lapse(Lapse { messages, bytes: number("bytes", bytes)? })),
        (None, Some(word)) => {
            let bounds = [LostBound::Exact, LostBound::AtLeast, LostBound::AtMost];
            let bound = bounds.into_iter().find(|bound| bound.as_str() == word);
            let bound = bound.ok_or_else(|| {
                format!("\"bound\" of \"lost\" is {word:?}: use exact, at_least or at_most")
            })?;
            Ok(Entry::LostOnTheWay { messages, bound })
        }
        _ => Err("\"lost\" needs either \"bytes\" or \"bound\"".to_owned()),
    }
}

fn decode(payload: String, encoding: Option<&str>) -> Result<Vec<u8>, String> {
    match encoding {
        None => Ok(payload.into_bytes()),
        Some(BASE64) => {
            BASE64_STANDARD.decode(payload).map_err(|error| format!("\"payload\": {error}"))
        }
        Some(other) => {
            Err(format!("\"encoding\" {other:?} is unknown: use \"{BASE64}\", or omit it for text"))
        }
    }
}

fn number(name: &str, digits: &str) -> Result<u64, String> {
    digits.parse().map_err(|_| {
        format!("\"{name}\" of \"lost\" is {digits:?}: use a string of decimal digits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni::{LostReason, Origin};

    #[test]
    fn losses_go_both_ways_exactly() {
        let lapse = Lapse { messages: u64::MAX, bytes: (1 << 53) + 1 };
        let mut line = Vec::new();
        write_loss(&Loss::Lapse(lapse), &mut line);
        assert_eq!(
            line,
            b"{\"lost\":{\"messages\":\"18446744073709551615\",\"bytes\":\"9007199254740993\"}}\n"
        );
        assert_eq!(read(&line), Ok(Entry::Lapse(lapse)));
    }

    #[test]
    fn losses_on_the_way_go_both_ways() {
        for (bound, word) in [
            (LostBound::Exact, "exact"),
            (LostBound::AtLeast, "at_least"),
            (LostBound::AtMost, "at_most"),
        ] {
            let from = Origin { source: 0xA, series: 0xFFFF_FFFF, stream: 3, number: 1 << 47 };
            let lost = Lost {
                from,
                until: Origin::NUMBER_LIMIT,
                messages: u64::MAX,
                bound,
                reason: LostReason::TooLong,
                scope: ["plant/**", "*"].map(|text| text.parse().unwrap()).to_vec(),
            };
            let loss = Loss::from(&lost);
            assert_eq!(loss.messages(), u64::MAX);
            let mut line = Vec::new();
            write_loss(&loss, &mut line);
            assert_eq!(
                String::from_utf8(line.clone()).unwrap(),
                format!(
                    "{{\"lost\":{{\"messages\":\"18446744073709551615\",\"bound\":\"{word}\",\
                     \"reason\":\"too_long\",\"source\":\"0000000a\",\"series\":\"ffffffff\",\
                     \"stream\":3,\"from\":\"140737488355328\",\"until\":\"281474976710656\",\
                     \"scope\":[\"plant/**\",\"*\"]}}}}\n"
                )
            );
            assert_eq!(read(&line), Ok(Entry::LostOnTheWay { messages: u64::MAX, bound }));
        }
    }

    /// `pub --json` of this and of older releases counts it as one message.
    #[test]
    fn a_missing_value_is_read_as_one_message() {
        let mut line = Vec::new();
        write_loss(&Loss::Value(MissingValue::new("a", Some(7), 5000)), &mut line);
        assert_eq!(
            line,
            b"{\"lost\":{\"messages\":\"1\",\"bytes\":\"5000\",\"topic\":\"a\",\"sequence\":\"7\"}}\n"
        );
        assert_eq!(read(&line), Ok(Entry::Lapse(Lapse { messages: 1, bytes: 5000 })));
    }

    #[test]
    fn bad_lines_say_why() {
        for (line, why) in [
            ("", "column 0: EOF"),
            ("[1]", "invalid"),
            ("{\"topic\":\"a\"", "column 12: EOF"),
            ("{\"topic\":\"a\"}", "\"payload\" is missing"),
            ("{\"payload\":\"x\"}", "\"topic\" is missing"),
            ("{\"topic\":\"a\",\"payload\":7}", "invalid type"),
            ("{\"topic\":\"a\",\"payload\":\"\\ud800\"}", "column 31"),
            ("{\"topic\":\"a\",\"topic\":\"b\",\"payload\":\"\"}", "duplicate field"),
            ("{\"topic\":\"a\",\"payload\":\"?\",\"encoding\":\"base64\"}", "\"payload\": "),
            ("{\"topic\":\"a\",\"payload\":\"\",\"encoding\":\"hex\"}", "\"hex\" is unknown"),
            (
                "{\"topic\":\"a\",\"payload\":\"\",\"lost\":{\"messages\":\"1\",\"bytes\":\"1\"}}",
                "cannot also be a message",
            ),
            (
                "{\"topic\":\"a\",\"payload\":\"\",\"cleared\":true}",
                "\"cleared\" cannot also be a message",
            ),
            ("{\"cleared\":true}", "\"topic\" is missing"),
            ("{\"lost\":{\"messages\":1,\"bytes\":\"1\"}}", "invalid type"),
            ("{\"lost\":{\"messages\":\"1\"}}", "either \"bytes\" or \"bound\""),
            (
                "{\"lost\":{\"messages\":\"1\",\"bytes\":\"1\",\"bound\":\"exact\"}}",
                "either \"bytes\" or \"bound\"",
            ),
            ("{\"lost\":{\"messages\":\"1\",\"bound\":\"about\"}}", "\"about\""),
            ("{\"lost\":{\"messages\":\"-1\",\"bytes\":\"1\"}}", "decimal digits"),
            (
                "{\"lost\":{\"messages\":\"18446744073709551616\",\"bytes\":\"1\"}}",
                "decimal digits",
            ),
            ("{\"topic\":\"a\",\"payload\":\"x\"} {}", "trailing characters"),
        ] {
            let said = read(line.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
        assert!(read(b"{\"topic\":\"\xff\",\"payload\":\"\"}").is_err());
    }
}
