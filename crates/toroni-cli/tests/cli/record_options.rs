//! Options of `record` and `replay` that change when and how messages are written and played.

use crate::record::{listed, printed};
use crate::support::{Buses, Process, json_lines, wait_until};
use mcap::records::MessageHeader;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use toroni_testkit::Directory;

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const HOUR: u64 = 3600 * SECOND;

/// Writes a recording of messages on the topic `t`: when each was received and published, and its payload.
pub(crate) fn write(path: &Path, messages: &[(u64, u64, &str)]) {
    let mut writer = mcap::Writer::new(File::create_new(path).unwrap()).unwrap();
    let channel = writer.add_channel(0, "t", "text", &BTreeMap::new()).unwrap();
    for (number, (log_time, publish_time, payload)) in (0..).zip(messages) {
        let header = MessageHeader {
            channel_id: channel,
            sequence: number,
            log_time: *log_time,
            publish_time: *publish_time,
        };
        writer.write_to_known_channel(&header, payload.as_bytes()).unwrap();
    }
    writer.finish().unwrap();
}

/// Plays recordings into a new bus, and returns what is on it.
fn played(files: &[&Path], arguments: &[&str]) -> Vec<Value> {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    buses.succeed(&[&["replay"], &files[..], arguments].concat());
    let count = buses.info("default")["messages"].to_string();
    let read = ["sub", "--from", "oldest", "--json", "--count", &count];
    json_lines(buses.succeed(&read).as_bytes())
}

fn payloads(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["payload"].as_str().unwrap()).collect()
}

/// Without the limit it would take two hours.
#[test]
fn gap_limit_shortens_silences() {
    let files = Directory::new();
    let file = files.path().join("a.mcap");
    write(&file, &[(0, 0, "a"), (HOUR, HOUR, "b"), (2 * HOUR, 2 * HOUR, "c")]);
    let began = Instant::now();
    let lines = played(&[&file], &["--gap-limit", "50ms"]);
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(payloads(&lines), ["a", "b", "c"]);
}

#[test]
fn by_publish_plays_at_the_times_and_in_the_order_of_publication() {
    let files = Directory::new();
    let [slow, first, second] =
        ["slow.mcap", "first.mcap", "second.mcap"].map(|name| files.path().join(name));
    // Received an hour after each other, published 50 ms after each other.
    write(&slow, &[(HOUR, SECOND, "a"), (2 * HOUR, SECOND + SECOND / 20, "b")]);
    let began = Instant::now();
    assert_eq!(payloads(&played(&[&slow], &["--by", "publish"])), ["a", "b"]);
    assert!(began.elapsed() >= Duration::from_millis(50));
    // Received in one order, published in the other.
    write(&first, &[(10, 5, "received first")]);
    write(&second, &[(20, 1, "published first")]);
    let both: &[&Path] = &[&first, &second];
    assert_eq!(payloads(&played(both, &[])), ["received first", "published first"]);
    let lines = played(both, &["--by", "publish"]);
    assert_eq!(payloads(&lines), ["published first", "received first"]);
}

#[test]
fn stamp_sets_the_time_of_publication() {
    let files = Directory::new();
    let file = files.path().join("a.mcap");
    write(&file, &[(10, 7, "stamped"), (20, 20, "not stamped")]);
    let stamps = |stamp: &str| -> Vec<Option<u64>> {
        let lines = played(&[&file], &["--speed", "max", "--stamp", stamp]);
        let stamp = |line: &Value| Some(line.get("timestamp_ns")?.as_str()?.parse().unwrap());
        lines.iter().map(stamp).collect()
    };
    let now = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        u64::try_from(now.as_nanos()).unwrap()
    };
    assert_eq!(stamps("recorded"), [Some(7), None]);
    assert_eq!(stamps("none"), [None, None]);
    let before = now();
    let found = stamps("now");
    let after = now();
    let is_now = |stamp: &Option<u64>| stamp.is_some_and(|stamp| (before..=after).contains(&stamp));
    assert!(found.len() == 2 && found.iter().all(is_now), "{before} {found:?} {after}");
}

#[test]
fn schemas_are_in_the_file_at_their_topics() {
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default"]);
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (json, types, file) = (path("reading.json"), path("types.bin"), path("a.mcap"));
    fs::write(&json, r#"{"type": "object"}"#).unwrap();
    fs::write(&types, b"\x0a\x00").unwrap();
    let (of_plant, of_raw) = (format!("plant/**={json}"), format!("raw={types}:plant.Raw"));
    let schemas = ["--schema", &of_plant, "--schema", &of_raw, "--encoding", "raw=protobuf"];
    let recorder = buses.record(Path::new(&file), &schemas);
    for topic in ["plant/a", "raw", "other"] {
        buses.succeed(&["pub", topic, "{}"]);
    }
    crate::record::finish(recorder);
    let bytes = fs::read(&file).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let of_topic = |topic: &str| {
        let channel = summary.channels.values().find(|channel| channel.topic == topic).unwrap();
        let schema = channel.schema.as_ref();
        let schema = schema.map(|it| (it.name.clone(), it.encoding.clone(), it.data.to_vec()));
        (channel.message_encoding.clone(), schema)
    };
    let schema = |name: &str, encoding: &str, data: &[u8]| {
        Some((name.to_owned(), encoding.to_owned(), data.to_vec()))
    };
    let unknown = "application/octet-stream".to_owned();
    let of_plant = schema("reading", "jsonschema", br#"{"type": "object"}"#);
    assert_eq!(of_topic("plant/a"), (unknown.clone(), of_plant));
    assert_eq!(
        of_topic("raw"),
        ("protobuf".to_owned(), schema("plant.Raw", "protobuf", b"\x0a\0"))
    );
    assert_eq!(of_topic("other"), (unknown, None));
    // Nothing is created with a schema that cannot be read, or whose type is unknown.
    let other = path("b.mcap");
    for (schema, code, words) in [
        (format!("t={}", path("missing.json")), 1, "cannot read the schema"),
        (format!("t={types}"), 2, "for protobuf, add the type"),
    ] {
        let output = buses.run(&["record", &other, "--schema", &schema]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{output:?}");
        assert!(!Path::new(&other).exists());
    }
}

/// Starts a recorder that writes a file for each alarm.
fn black_box(buses: &Buses, files: &Directory, arguments: &[&str]) -> Process {
    let black_box = ["--trigger", "alarm", "--before", "60s", "--after", "50ms", "--split", "1GiB"];
    buses.record(&files.path().join("a.mcap"), &[&black_box, arguments].concat())
}

#[test]
fn each_trigger_begins_a_part_and_what_is_between_belongs_to_the_next() {
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default"]);
    let recorder = black_box(&buses, &files, &[]);
    for round in 1..=3 {
        let part = files.path().join(format!("a.{round:04}.mcap"));
        let (before, alarm) = (format!("before {round}"), format!("alarm {round}"));
        buses.succeed(&["pub", "t", &before]);
        assert!(!part.exists());
        buses.succeed(&["pub", "alarm", &alarm]);
        wait_until("the part is complete", || {
            let output = buses.run(&["replay", "--list", "--json", part.to_str().unwrap()]);
            output.status.success() && json_lines(&output.stdout)[0]["complete"] == true
        });
        assert_eq!(payloads(&printed(&buses, &part)), [before, alarm]);
        let previous = (round > 1).then(|| format!("a.{:04}.mcap", round - 1));
        assert_eq!(listed(&buses, &part)["previous"].as_str(), previous.as_deref());
    }
    recorder.signal(Signal::INT);
    assert!(recorder.finish().status.success());
    assert_eq!(files.entries().len(), 3, "{:?}", files.entries());
}

#[test]
fn a_count_ends_a_recorder_that_would_wait_for_the_next_trigger() {
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default"]);
    let recorder = black_box(&buses, &files, &["--count", "2"]);
    buses.succeed(&["pub", "t", "before"]);
    buses.succeed(&["pub", "alarm", "now"]);
    assert!(recorder.finish().status.success());
    assert_eq!(files.entries(), ["a.0001.mcap"]);
}
