//! Messages as JSON, one object per line. `sub --json` writes this format and `pub --json` reads it, so a pipe
//! between them copies messages exactly.
//!
//! Numbers that may exceed 2^53 are strings of decimal digits: many readers of JSON, such as JavaScript's, store
//! numbers as 64-bit floats and would round them.

use crate::human;
use crate::output::write_json;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize, Serializer};
use std::time::{SystemTime, UNIX_EPOCH};
use toroni::Message;

const BASE64: &str = "base64";

#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(serialize_with = "as_text")]
    position: u64,
    #[serde(serialize_with = "as_text")]
    sequence: u64,
    length: usize,
    /// Time of publication (RFC 3339), if the publisher adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    /// Time of publication in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp_ns: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    to_descendants: bool,
    /// `base64` if the payload is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    payload: &'a str,
}

#[derive(Serialize)]
struct WrittenLoss {
    lost: Loss,
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    #[serde(serialize_with = "as_text")]
    pub(crate) messages: u64,
    #[serde(serialize_with = "as_text")]
    pub(crate) bytes: u64,
}

fn as_text<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(number)
}

/// Appends a message as one line.
pub(crate) fn write(message: &Message<'_>, with_topic: bool, into: &mut Vec<u8>) {
    let bytes = message.payload();
    let encoded;
    let (encoding, payload) = match std::str::from_utf8(bytes) {
        Ok(text) => (None, text),
        Err(_) => {
            encoded = base64(bytes);
            (Some(BASE64), encoded.as_str())
        }
    };
    let stamp = message.timestamp().and_then(nanoseconds);
    append(
        &Written {
            topic: with_topic.then(|| message.topic()),
            position: message.position(),
            sequence: message.sequence(),
            length: bytes.len(),
            timestamp: stamp.map(human::rfc3339),
            timestamp_ns: stamp.map(|stamp| stamp.to_string()),
            to_descendants: message.to_descendants(),
            encoding,
            payload,
        },
        into,
    );
}

/// Appends a loss as one line.
pub(crate) fn write_loss(lost: Loss, into: &mut Vec<u8>) {
    append(&WrittenLoss { lost }, into);
}

fn append(value: &impl Serialize, into: &mut Vec<u8>) {
    write_json(into, value).expect("strings and numbers can be written to memory as JSON");
}

/// Encodes bytes in base64, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Returns the nanoseconds since 1970, or `None` before 1970 and after 2554.
pub(crate) fn nanoseconds(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// The content of one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Message { topic: String, to_descendants: bool, payload: Vec<u8> },
    Lost(Loss),
}

/// The fields that are read. Position, sequence, length and time belong to the source bus.
#[derive(Deserialize)]
struct Read {
    topic: Option<String>,
    payload: Option<String>,
    encoding: Option<String>,
    #[serde(default)]
    to_descendants: bool,
    lost: Option<ReadLoss>,
}

#[derive(Deserialize)]
struct ReadLoss {
    messages: String,
    bytes: String,
}

/// Parses a line. The error says what is wrong with it.
pub(crate) fn read(line: &[u8]) -> Result<Entry, String> {
    let Read { topic, payload, encoding, to_descendants, lost } = serde_json::from_slice(line)
        .map_err(|error| {
            let text = error.to_string();
            // Its line number is always 1.
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            format!("column {}: {what}", error.column())
        })?;
    match (topic, payload, lost) {
        (Some(topic), Some(payload), None) => {
            let payload = decode(payload, encoding.as_deref())?;
            Ok(Entry::Message { topic, to_descendants, payload })
        }
        (None, None, Some(lost)) => Ok(Entry::Lost(Loss {
            messages: number("messages", &lost.messages)?,
            bytes: number("bytes", &lost.bytes)?,
        })),
        (_, _, Some(_)) => Err("an object with \"lost\" cannot also be a message".to_owned()),
        (None, _, None) => Err("\"topic\" is missing".to_owned()),
        (_, None, None) => Err("\"payload\" is missing".to_owned()),
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

    #[test]
    fn losses_go_both_ways_exactly() {
        let loss = Loss { messages: u64::MAX, bytes: (1 << 53) + 1 };
        let mut line = Vec::new();
        write_loss(loss, &mut line);
        assert_eq!(
            line,
            b"{\"lost\":{\"messages\":\"18446744073709551615\",\"bytes\":\"9007199254740993\"}}\n"
        );
        assert_eq!(read(&line), Ok(Entry::Lost(loss)));
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
            ("{\"lost\":{\"messages\":1,\"bytes\":\"1\"}}", "invalid type"),
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
