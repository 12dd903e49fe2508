//! `record` writes what a bus carries, and what it has written survives whatever ends it.

use crate::support::{Buses, Process, json_lines, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use toroni::{BusConfig, Entry, Limit, Lost, LostBound, LostReason, Origin};
use toroni_testkit::Directory;
use toroni_testkit::directory::entries;

/// Ends a recorder with a signal, and returns what it said.
fn end(recorder: Process, signal: Signal) -> Output {
    recorder.signal(signal);
    recorder.finish()
}

/// Ends a recorder as Ctrl-C does, which must succeed.
pub(crate) fn finish(recorder: Process) {
    let output = end(recorder, Signal::INT);
    assert!(output.status.success(), "{output:?}");
}

/// Returns the messages and losses of a recording.
pub(crate) fn printed(buses: &Buses, file: &Path) -> Vec<Value> {
    json_lines(buses.succeed(&["sub", "--json", "--file", file.to_str().unwrap()]).as_bytes())
}

/// Returns the payloads of a recording.
fn payloads(buses: &Buses, file: &Path) -> Vec<String> {
    let lines = printed(buses, file);
    lines.iter().filter_map(|line| Some(line.get("payload")?.as_str()?.to_owned())).collect()
}

pub(crate) fn listed(buses: &Buses, file: &Path) -> Value {
    let text = buses.succeed(&["replay", "--list", "--json", file.to_str().unwrap()]);
    serde_json::from_str(&text).unwrap()
}

/// Returns a Python with the package `mcap`, or `None` after it has said why the test is skipped. CI requires it:
/// `TORONI_CLIENTS=required`.
pub(crate) fn python() -> Option<PathBuf> {
    let candidates =
        [std::env::var_os("TORONI_MCAP_PYTHON").map(PathBuf::from), Some(PathBuf::from("python3"))];
    let found = candidates.into_iter().flatten().find(|python| {
        let imported = Command::new(python).args(["-c", "import mcap, lz4, zstandard"]).output();
        imported.is_ok_and(|output| output.status.success())
    });
    let said = "skipped: no Python with the package mcap (pip install -r tests/requirements-mcap.txt, and name that \
                python in TORONI_MCAP_PYTHON)";
    let required = std::env::var_os("TORONI_CLIENTS").is_some_and(|it| it == "required");
    assert!(found.is_some() || !required, "{said}");
    if found.is_none() {
        eprintln!("{said}");
    }
    found
}

/// Prints one JSON object for each message that is neither a loss nor an origin, in the order of the file.
const READ: &str = r#"
import base64, json, sys
from mcap.reader import make_reader
with open(sys.argv[1], "rb") as file:
    reader = make_reader(file, validate_crcs=True)
    assert reader.get_summary() is not None
    count = reader.get_summary().statistics.message_count
    for schema, channel, message in reader.iter_messages(log_time_order=False):
        count -= 1
        if "toroni.kind" in channel.metadata:
            continue
        print(json.dumps([channel.topic, base64.b64encode(message.data).decode(), message.sequence,
            channel.metadata.get("toroni.to_descendants") == "true"]))
    assert count == 0, count
"#;

/// Compares what Python's package reads with what `sub --file` prints.
pub(crate) fn check_with_python(buses: &Buses, file: &Path) {
    let Some(python) = python() else { return };
    let output = Command::new(python).args(["-c", READ]).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let theirs = json_lines(&output.stdout);
    let text = buses.succeed(&[
        "sub",
        "--quiet",
        "--file",
        file.to_str().unwrap(),
        "--template",
        "%t %b %s %d",
    ]);
    let ours: Vec<&str> = text.lines().collect();
    assert_eq!(theirs.len(), ours.len(), "{}", file.display());
    for (theirs, ours) in theirs.iter().zip(ours) {
        let said = format!(
            "{} {} {} {}",
            theirs[0].as_str().unwrap(),
            theirs[1].as_str().unwrap(),
            theirs[2],
            u8::from(theirs[3].as_bool().unwrap())
        );
        assert_eq!(said, ours);
    }
}

/// Publishes messages of all kinds, and two losses.
pub(crate) fn publish_all_kinds(buses: &Buses, bus: &str) {
    buses.succeed(&["-b", bus, "pub", "plant/a", "first"]);
    buses.succeed(&["-b", bus, "pub", "plant/b", "stamped", "--timestamps"]);
    buses.succeed(&["-b", bus, "pub", "plant", "to all", "--to-descendants"]);
    buses.succeed(&["-b", bus, "pub", "plant", "to one"]);
    buses.succeed(&["-b", bus, "pub", "plant/a", "--size", "100", "--repeat", "5000"]);
    let opened = BusConfig::new().directory(buses.path()).open_existing(bus).unwrap();
    let inlet = opened.inlet().unwrap();
    let topic = inlet.topic("far/away").unwrap();
    let origin = |number| Origin { source: 0xA, series: 0xB, stream: 3, number };
    for number in [1, 2, 3, 10] {
        let payload: &[&[u8]] = &[b"from ", b"elsewhere"];
        let entry = Entry {
            origin: Some(origin(number)),
            number: Some(number + 90),
            ..Entry::new(&topic, payload)
        };
        inlet.publish(&[entry], Limit::Policy).unwrap();
    }
    for (from, messages, scope) in [(20, 5, "plant/**"), (30, 7, "far/**")] {
        let lost = Lost {
            from: origin(from),
            until: from + 10,
            messages,
            bound: LostBound::AtMost,
            reason: LostReason::Budget,
            scope: vec![scope.parse().unwrap()],
        };
        inlet.publish_lost(&lost, None, Limit::Policy).unwrap();
    }
    buses.succeed(&["-b", bus, "pub", "plant/a", ""]);
    buses.succeed(&["-b", bus, "pub", "plant/a", "last"]);
}

#[test]
fn everything_is_in_the_file_and_python_reads_it() {
    for compress in ["none", "lz4", "zstd"] {
        let (buses, files) = (Buses::new(), Directory::new());
        let file = files.path().join("a.mcap");
        buses.succeed(&["create", "default"]);
        let recorder = buses.record(&file, &["--compress", compress, "--encoding", "plant/*=json"]);
        let subscriber = buses.subscribe(&["--json", "--count", "5010"]);
        publish_all_kinds(&buses, "default");
        finish(recorder);
        let strip = |mut line: Value| {
            if let Some(line) = line.as_object_mut() {
                // What a recording does not know.
                line.remove("position");
                line.remove("age_ns");
            }
            line
        };
        let received = subscriber.finish().stdout;
        let expected: Vec<Value> = json_lines(&received).into_iter().map(strip).collect();
        let found = printed(&buses, &file);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{compress}");
        }
        let listed = listed(&buses, &file);
        assert_eq!((&listed["complete"], &listed["messages"]), (&true.into(), &5010.into()));
        assert_eq!((&listed["losses"], &listed["lost_messages"]), (&2.into(), &12.into()));
        assert_eq!(listed["topics"][1]["encoding"], "application/octet-stream", "{listed}");
        check_with_python(&buses, &file);
        assert_eq!(buses.subscriber_count("default"), 0);
    }
}

/// Sums up sequences and losses: together they have no gap.
fn check_sums(lines: &[Value], until: u64) {
    let (mut expected, mut losses) = (0, 0);
    for line in lines {
        if let Some(lost) = line.get("lost") {
            expected += lost["messages"].as_str().unwrap().parse::<u64>().unwrap();
            losses += 1;
        } else {
            assert_eq!(line["sequence"], expected.to_string(), "{line}");
            expected += 1;
        }
    }
    assert!(losses > 0);
    assert_eq!(expected, until);
}

#[test]
fn a_recorder_that_was_overtaken_says_exactly_what_is_missing() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default", "--capacity", "64KiB"]);
    let recorder = buses.record(&file, &["--strict"]);
    buses.succeed(&["pub", "t", "before"]);
    recorder.stop();
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "500"]);
    buses.succeed(&["pub", "t", "after"]);
    recorder.resume();
    let output = end(recorder, Signal::TERM);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("overwritten before they were read"), "{said}");
    check_sums(&printed(&buses, &file), 502);
    check_with_python(&buses, &file);
}

#[test]
fn publishers_wait_for_a_recorder_that_gates() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default", "--capacity", "64KiB", "--policy", "wait:forever"]);
    let recorder = buses.record(&file, &["--gate"]);
    recorder.stop();
    let publisher = buses.start(&["pub", "t", "--size", "1000", "--repeat", "500"]);
    wait_until("the publisher waits", || {
        let info = buses.info("default");
        info["subscribers"][0]["lag_bytes"].as_u64().is_some_and(|lag| lag > 50_000)
    });
    recorder.resume();
    assert!(publisher.finish().status.success());
    finish(recorder);
    assert_eq!(payloads(&buses, &file).len(), 500);
}

#[test]
fn a_killed_recorder_leaves_whole_chunks_and_repair_completes_the_file() {
    for round in 0..4 {
        let (buses, files) = (Buses::new(), Directory::new());
        let file = files.path().join("a.mcap");
        buses.succeed(&["create", "default"]);
        let recorder = buses.record(&file, &["--compress", ["none", "zstd"][round % 2]]);
        let publisher =
            buses.start(&["pub", "t", "--size", "200", "--repeat", "100000000", "--rate", "50k/s"]);
        // At least a whole chunk with messages, and then at any moment. On a busy machine the first one may be large, and
        // most of it in the file before all of it is.
        let least = 200_000 * (round as u64 + 1);
        wait_until("chunks are in the file", || {
            std::fs::metadata(&file).is_ok_and(|file| file.len() > least / [1, 4][round % 2])
                && listed(&buses, &file)["messages"].as_u64() > Some(0)
        });
        recorder.signal(Signal::KILL);
        let _ = recorder.finish();
        publisher.signal(Signal::TERM);
        let _ = publisher.finish();
        let before = listed(&buses, &file);
        assert_eq!(before["complete"], false, "{before}");
        let count = before["messages"].as_u64().unwrap();
        assert!(count > 0, "{before}");
        let output = buses.run(&["record", "--repair", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let repaired = files.path().join("a.repaired.mcap");
        let after = listed(&buses, &repaired);
        assert_eq!((&after["complete"], &after["messages"]), (&true.into(), &before["messages"]));
        let messages = printed(&buses, &repaired);
        assert_eq!(
            messages,
            json_lines(
                buses
                    .succeed(&["sub", "--quiet", "--json", "--file", file.to_str().unwrap()])
                    .as_bytes()
            )
        );
        check_with_python(&buses, &repaired);
        // The slot of the dead recorder is free for others.
        buses.succeed(&["clean", "default"]);
        assert_eq!(buses.subscriber_count("default"), 0);
    }
}

#[test]
fn any_cut_leaves_a_readable_front() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default"]);
    let recorder = buses.record(&file, &[]);
    publish_all_kinds(&buses, "default");
    finish(recorder);
    let bytes = std::fs::read(&file).unwrap();
    let whole = printed(&buses, &file);
    for cut in [9, 100, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
        let path = files.path().join(format!("cut-{cut}.mcap"));
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let text = buses.succeed(&["sub", "-q", "--json", "--file", path.to_str().unwrap()]);
        let front = json_lines(text.as_bytes());
        assert_eq!(front[..], whole[..front.len()], "{cut}");
        let output = buses.run(&["record", "--repair", path.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let repaired = files.path().join(format!("cut-{cut}.repaired.mcap"));
        assert_eq!(printed(&buses, &repaired), front);
    }
}

#[test]
fn parts_are_complete_and_lose_nothing() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("log.mcap");
    buses.succeed(&["create", "default", "--policy", "wait:forever"]);
    let recorder = buses.record(&file, &["--compress", "none", "--split", "1MiB", "--gate"]);
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "5000"]);
    finish(recorder);
    let mut sequence = 0;
    let mut parts = 0;
    loop {
        let part = files.path().join(format!("log.{:04}.mcap", parts + 1));
        if !part.exists() {
            break;
        }
        let listed = listed(&buses, &part);
        assert_eq!(listed["complete"], true);
        let previous = (parts > 0).then(|| format!("log.{parts:04}.mcap"));
        assert_eq!(listed["previous"].as_str(), previous.as_deref());
        for line in printed(&buses, &part) {
            assert_eq!(line["sequence"], sequence.to_string());
            sequence += 1;
        }
        check_with_python(&buses, &part);
        parts += 1;
    }
    assert!(parts >= 4, "{parts}");
    assert_eq!(sequence, 5000);
}

#[test]
fn only_the_newest_parts_are_kept() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("log.mcap");
    buses.succeed(&["create", "default", "--policy", "wait:forever"]);
    let arguments = ["--compress", "none", "--split", "1MiB", "--gate", "--keep", "2"];
    let recorder = buses.record(&file, &arguments);
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "5000"]);
    finish(recorder);
    let names = entries(files.path());
    assert_eq!(names.len(), 2, "{names:?}");
    let last = printed(&buses, &files.path().join(&names[1]));
    assert_eq!(last.last().unwrap()["sequence"], "4999");
}

#[test]
fn parts_of_an_earlier_run_are_continued_and_counted() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("log.mcap");
    buses.succeed(&["create", "default", "--policy", "wait:forever"]);
    // What is left of earlier runs: the first parts were removed. Another file only looks like a part.
    for name in ["log.0009.mcap", "log.0010.mcap", "log.0011.mcap", "log.2.mcap"] {
        std::fs::write(files.path().join(name), "left").unwrap();
    }
    let arguments = ["--compress", "none", "--split", "1MiB", "--gate", "--keep", "3"];
    let recorder = buses.record(&file, &arguments);
    wait_until("the next part", || files.path().join("log.0012.mcap").exists());
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "1500"]);
    finish(recorder);
    let names = entries(files.path());
    assert_eq!(names, ["log.0011.mcap", "log.0012.mcap", "log.0013.mcap", "log.2.mcap"]);
    let parts = [&names[1], &names[2]].map(|name| printed(&buses, &files.path().join(name)).len());
    assert_eq!(parts.iter().sum::<usize>(), 1500);
}

#[test]
fn nothing_is_written_until_a_message_triggers_it() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("fault.mcap");
    buses.succeed(&["create", "default"]);
    buses.succeed(&["pub", "t", "from before the recorder"]);
    let arguments = ["t", "--trigger", "alarm/**", "--before", "60s", "--after", "300ms"];
    let recorder = buses.record(&file, &arguments);
    buses.succeed(&["pub", "t", "one"]);
    buses.succeed(&["pub", "t", "two"]);
    assert!(!file.exists());
    buses.succeed(&["pub", "alarm/fire", "now"]);
    buses.succeed(&["pub", "t", "three"]);
    let output = recorder.finish();
    assert!(output.status.success(), "{output:?}");
    let found = payloads(&buses, &file);
    assert_eq!(found[..3], ["one", "two", "now"], "{found:?}");
    check_with_python(&buses, &file);
}

#[test]
fn limits_end_a_recording() {
    let (buses, files) = (Buses::new(), Directory::new());
    let path = |name: &str| files.path().join(name);
    buses.succeed(&["create", "default"]);
    for payload in ["a", "b", "c"] {
        buses.succeed(&["pub", payload, payload]);
    }
    let counted = path("counted.mcap");
    let output = buses.run(&["record", counted.to_str().unwrap(), "--from", "oldest", "-n", "2"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(payloads(&buses, &counted), ["a", "b"]);
    let timed = path("timed.mcap");
    let arguments = [
        "record",
        timed.to_str().unwrap(),
        "--from",
        "oldest",
        "--duration",
        "0.2",
        "--exclude",
        "b",
    ];
    assert!(buses.run(&arguments).status.success());
    assert_eq!(payloads(&buses, &timed), ["a", "c"]);
    // It never overwrites a file.
    let output = buses.run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let interrupted = buses.record(&path("interrupted.mcap"), &["-n", "5"]);
    assert_eq!(end(interrupted, Signal::INT).status.code(), Some(130));
    assert_eq!(listed(&buses, &path("interrupted.mcap"))["complete"], true);
}

#[test]
fn a_bus_that_is_removed_ends_the_recording_in_order() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default"]);
    let recorder = buses.record(&file, &[]);
    buses.succeed(&["pub", "t", "kept"]);
    std::fs::remove_dir_all(buses.path().join("default")).unwrap();
    let output = recorder.finish();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(payloads(&buses, &file), ["kept"]);
    assert_eq!(listed(&buses, &file)["complete"], true);
}

#[test]
fn the_examples_of_the_help_run_as_written() {
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default"]);
    let killed = files.path().join("killed.mcap");
    let recorder = buses.record(&killed, &[]);
    buses.succeed(&["pub", "plant/a", "before"]);
    finish(recorder);
    let bytes = std::fs::read(&killed).unwrap();
    std::fs::write(&killed, &bytes[..bytes.len() - 1]).unwrap();
    let examples = buses.examples("record");
    assert_eq!(examples.len(), 7, "{examples:?}");
    for example in &examples {
        if example.contains("--control") {
            let recorder = buses.record(&files.path().join("log.mcap"), &["--split", "1h"]);
            let mut command = buses.shell(&format!("exec {example}"));
            let mut control = Process::start(command.current_dir(files.path()));
            assert!(control.wait().success(), "{example}: {}", control.errors());
            finish(recorder);
            continue;
        }
        // The signal is for the recorder, not for a shell that waits for it.
        let mut command = buses.shell(&format!("exec {example}"));
        let mut recorder = Process::start(command.current_dir(files.path()));
        let file = example.split(' ').find(|word| word.ends_with(".mcap")).unwrap();
        let (file, expected) = if example.contains("--repair") {
            assert!(recorder.wait().success(), "{example}: {}", recorder.errors());
            (file.replace(".mcap", ".repaired.mcap"), "plant/a=before")
        } else {
            wait_until("the recorder has subscribed", || buses.subscriber_count("default") == 1);
            buses.succeed(&["pub", "plant/a", "{}"]);
            buses.succeed(&["pub", "alarm/fire", "now"]);
            if example.contains("--trigger") {
                recorder.wait_for_error("recording");
            }
            recorder.signal(Signal::INT);
            let code = if example.contains("--duration") { 130 } else { 0 };
            assert_eq!(recorder.wait().code(), Some(code), "{example}: {}", recorder.errors());
            let name = if example.contains("--split") { ".0001.mcap" } else { ".mcap" };
            (file.replace(".mcap", name), "plant/a={}")
        };
        let lines = printed(&buses, &files.path().join(&file));
        let found = format!("{}={}", lines[0]["topic"], lines[0]["payload"]).replace('"', "");
        assert_eq!(found, expected, "{example}");
        assert_eq!(listed(&buses, &files.path().join(&file))["complete"], true, "{example}");
    }
}
