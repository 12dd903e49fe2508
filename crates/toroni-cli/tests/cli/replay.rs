//! `replay` plays recordings back: the same messages, in the same order, at their times.

use crate::record::{check_with_python, finish, listed, printed, publish_all_kinds};
use crate::support::{Buses, json_lines, wait_until};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use toroni_testkit::Directory;

/// Records what `publish` publishes on the default bus.
fn recorded(buses: &Buses, file: &Path, publish: impl FnOnce()) {
    buses.run(&["create", "default"]);
    let recorder = buses.record(file, &[]);
    publish();
    finish(recorder);
}

/// Plays files into a new bus, and returns a recording of that.
fn played(buses: &Buses, copy: &Path, arguments: &[&str]) -> Vec<Value> {
    buses.succeed(&["create", "copy", "--policy", "wait:forever"]);
    let recorder = buses.record(copy, &["-b", "copy", "--gate"]);
    buses.succeed(&[&["-b", "copy", "replay"], arguments].concat());
    finish(recorder);
    buses.succeed(&["rm", "copy"]);
    printed(buses, copy)
}

/// Returns what a replay keeps of each line: everything but what belongs to the first bus. Messages are new ones, so they have
/// neither the origin nor the number that was recorded.
fn essence(lines: &[Value]) -> Vec<Value> {
    let mut lines = lines.to_vec();
    for line in &mut lines {
        for field in ["sequence", "origin", "number"] {
            line.as_object_mut().unwrap().remove(field);
        }
        if let Some(lost) = line.get_mut("lost").and_then(Value::as_object_mut) {
            for field in ["source", "series", "stream", "from", "until"] {
                lost.remove(field);
            }
        }
    }
    lines
}

/// Returns the origins of the messages that have one, with their numbers in an order over several buses.
fn origins(lines: &[Value]) -> Vec<[&Value; 2]> {
    lines.iter().filter_map(|line| Some([line.get("origin")?, line.get("number")?])).collect()
}

fn texts(lines: &[Value]) -> Vec<String> {
    let text = |line: &Value| {
        Some(format!("{}={}", line.get("topic")?.as_str()?, line.get("payload")?.as_str()?))
    };
    lines.iter().filter_map(text).collect()
}

#[test]
fn a_round_trip_changes_nothing() {
    let (buses, files) = (Buses::new(), Directory::new());
    let (file, copy) = (files.path().join("a.mcap"), files.path().join("b.mcap"));
    recorded(&buses, &file, || publish_all_kinds(&buses, "default"));
    let original = printed(&buses, &file);
    let again = played(&buses, &copy, &[file.to_str().unwrap(), "--speed", "max"]);
    assert_eq!(essence(&again), essence(&original));
    assert_eq!((origins(&original).len(), origins(&again).len()), (4, 0));
    check_with_python(&buses, &copy);
    // With its origins, each message arrives once.
    let kept = files.path().join("c.mcap");
    let path = file.to_str().unwrap();
    buses.succeed(&["create", "copy"]);
    let recorder = buses.record(&kept, &["-b", "copy"]);
    for _ in 0..2 {
        let arguments =
            ["-b", "copy", "replay", path, "--speed", "max", "--keep-origin", "--topics", "far/**"];
        buses.succeed(&arguments);
    }
    finish(recorder);
    let kept = printed(&buses, &kept);
    let losses: Vec<&Value> = kept.iter().filter_map(|line| line.get("lost")).collect();
    assert_eq!(texts(&kept).len(), 4, "{kept:?}");
    assert_eq!(origins(&kept), origins(&original));
    assert_eq!(losses.last().unwrap()["from"], "30");
}

#[test]
fn a_lapse_is_played_as_a_loss() {
    let (buses, files) = (Buses::new(), Directory::new());
    let (file, copy) = (files.path().join("a.mcap"), files.path().join("b.mcap"));
    buses.succeed(&["create", "default", "--capacity", "64KiB"]);
    let recorder = buses.record(&file, &[]);
    recorder.stop();
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "300"]);
    recorder.resume();
    finish(recorder);
    let lost = |lines: &[Value]| -> u64 {
        let losses = lines.iter().filter_map(|line| line.get("lost"));
        losses.map(|lost| lost["messages"].as_str().unwrap().parse::<u64>().unwrap()).sum()
    };
    let original = printed(&buses, &file);
    assert!(lost(&original) > 0);
    let path = file.to_str().unwrap();
    let again = played(&buses, &copy, &[path, "--speed", "max"]);
    assert_eq!(lost(&again), lost(&original));
    assert_eq!(texts(&again), texts(&original));
    let overtaken = again.iter().find_map(|line| line.get("lost")).unwrap();
    assert_eq!((&overtaken["reason"], &overtaken["bound"]), (&"overtaken".into(), &"exact".into()));
    let output = buses.run(&["replay", path, "--speed", "max", "--lost", "fail"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let ignored = files.path().join("c.mcap");
    assert_eq!(lost(&played(&buses, &ignored, &[path, "--speed", "max", "--lost", "ignore"])), 0);
}

#[test]
fn topics_are_selected_and_renamed() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    recorded(&buses, &file, || {
        for topic in ["plant/a", "plant/b", "plants/x", "other"] {
            buses.succeed(&["pub", topic, "1"]);
        }
    });
    let path = file.to_str().unwrap();
    for (number, (arguments, expected)) in [
        (&["--topics", "plant/**"][..], &["plant/a=1", "plant/b=1"][..]),
        (&["--exclude", "plant/a", "--exclude", "other"], &["plant/b=1", "plants/x=1"]),
        (
            &["--map", "plant=factory", "--prefix", "site-b", "--exclude", "other"],
            &["site-b/factory/a=1", "site-b/factory/b=1", "site-b/plants/x=1"],
        ),
        (&["--topics", "other", "--loop=3"], &["other=1", "other=1", "other=1"]),
    ]
    .into_iter()
    .enumerate()
    {
        let copy = files.path().join(format!("copy-{number}.mcap"));
        let arguments = [&[path, "--speed", "max"], arguments].concat();
        assert_eq!(texts(&played(&buses, &copy, &arguments)), expected, "{arguments:?}");
    }
}

#[test]
fn messages_are_played_at_their_times() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    recorded(&buses, &file, || {
        buses.succeed(&["pub", "t", "--size", "10", "--repeat", "60", "--rate", "100/s"]);
    });
    let path = file.to_str().unwrap();
    let seconds = |arguments: &[&str]| {
        let began = Instant::now();
        buses.succeed(&[&["replay", path], arguments].concat());
        began.elapsed()
    };
    let span = listed(&buses, &file)["duration_ns"].as_str().unwrap().parse().unwrap();
    let span = Duration::from_nanos(span);
    // A busy machine only makes it longer.
    assert!(seconds(&[]) >= span);
    assert!(seconds(&["--speed", "0.5"]) >= 2 * span);
    assert!(seconds(&["--rate", "50/s"]) >= Duration::from_millis(59 * 20));
    // The first half.
    let copy = files.path().join("b.mcap");
    let end = format!("+{}ms", span.as_millis() / 2);
    let half = played(&buses, &copy, &[path, "--speed", "max", "--end", &end]);
    let copy = files.path().join("c.mcap");
    let rest = played(&buses, &copy, &[path, "--speed", "max", "--start", &end]);
    assert!((1..60).contains(&half.len()), "{}", half.len());
    assert!((60..=61).contains(&(half.len() + rest.len())), "{} {}", half.len(), rest.len());
}

#[test]
fn several_files_are_merged_by_time() {
    let (buses, files) = (Buses::new(), Directory::new());
    let [a, b, copy] = ["a.mcap", "b.mcap", "copy.mcap"].map(|name| files.path().join(name));
    buses.succeed(&["create", "default"]);
    let first = buses.record(&a, &["a"]);
    let second = buses.record(&b, &["b"]);
    for number in 0..6 {
        buses.succeed(&["pub", ["a", "b"][number % 2], &number.to_string()]);
        // Both recorders have to stamp it before the next one. They state their position after that.
        wait_until("both have it", || {
            let info = buses.info("default");
            let all = info["subscribers"].as_array().unwrap();
            all.len() == 2 && all.iter().all(|recorder| recorder["lag_bytes"] == 0)
        });
    }
    finish(first);
    finish(second);
    let merged =
        played(&buses, &copy, &[b.to_str().unwrap(), a.to_str().unwrap(), "--speed", "max"]);
    assert_eq!(texts(&merged), ["a=0", "b=1", "a=2", "b=3", "a=4", "b=5"]);
}

const WRITE: &str = r#"
import sys
from mcap.writer import Writer, CompressionType
compression = {"none": CompressionType.NONE, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}
with open(sys.argv[1], "wb") as file:
    chunked = sys.argv[2] != "unchunked"
    writer = Writer(file, use_chunking=chunked, chunk_size=4096,
        compression=compression.get(sys.argv[2], CompressionType.NONE))
    writer.start()
    schema = writer.register_schema(name="s", encoding="jsonschema", data=b"{}")
    channels = [writer.register_channel(topic=t, message_encoding="json", schema_id=schema)
        for t in ("/ros/topic", "plain")]
    for number in range(1000):
        writer.add_message(channel_id=channels[number % 2], log_time=number * 1000,
            publish_time=number * 1000 + 7, sequence=number, data=b"{%d}" % number)
    writer.finish()
"#;

#[test]
fn a_file_that_python_wrote_is_played() {
    let Some(python) = crate::record::python() else { return };
    for kind in ["none", "lz4", "zstd", "unchunked"] {
        let (buses, files) = (Buses::new(), Directory::new());
        let (file, copy) = (files.path().join("a.mcap"), files.path().join("b.mcap"));
        let output = std::process::Command::new(&python)
            .args(["-c", WRITE])
            .arg(&file)
            .arg(kind)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = played(&buses, &copy, &[file.to_str().unwrap(), "--speed", "max"]);
        let expected: Vec<String> =
            (0..1000).map(|n| format!("{}={{{n}}}", ["ros/topic", "plain"][n % 2])).collect();
        assert_eq!(texts(&lines), expected, "{kind}");
        assert_eq!(lines[3]["timestamp_ns"], "3007", "{kind}");
    }
}

#[test]
fn bad_files_are_refused_with_a_reason() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    for (content, why) in [(&b""[..], "too short"), (b"not a recording at all", "not an MCAP file")]
    {
        std::fs::write(&file, content).unwrap();
        for arguments in
            [&["replay"][..], &["replay", "--list"], &["sub", "--file"], &["record", "--repair"]]
        {
            let output = buses.run(&[arguments, &[file.to_str().unwrap()]].concat());
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
        }
    }
    recorded(&buses, &files.path().join("b.mcap"), || {
        buses.succeed(&["pub", "t", "--size", "100", "--repeat", "100"]);
    });
    let mut bytes = std::fs::read(files.path().join("b.mcap")).unwrap();
    // The checksum covers it: somewhere in the middle of the messages.
    let at = bytes.windows(4).rposition(|window| window == b"zstd").unwrap() / 2;
    bytes[at] ^= 0x10;
    std::fs::write(&file, &bytes).unwrap();
    let output = buses.run(&["sub", "--json", "--file", file.to_str().unwrap()]);
    let _ = json_lines(&output.stdout);
    assert_ne!(output.status.code(), Some(101), "{output:?}");
}

/// Keys pause, step and end a replay, and the terminal is afterwards as before, whatever ends it.
#[test]
fn keys_steer_a_replay_and_the_terminal_is_restored() {
    use crate::support::Process;
    use rustix::process::Signal;
    use rustix::termios::{LocalModes, tcgetattr};
    use std::io::Write;

    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    recorded(&buses, &file, || {
        buses.succeed(&["pub", "t", "--size", "10", "--repeat", "5"]);
    });
    for ended_by_key in [true, false] {
        let (mut master, terminal) = crate::formats::terminal();
        let is_raw = || {
            let modes = tcgetattr(&terminal).unwrap().local_modes;
            !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
        };
        assert!(!is_raw());
        let arguments = ["replay", file.to_str().unwrap(), "--rate", "1/h", "-q"];
        let mut command = buses.command(&arguments);
        command.stdin(terminal.try_clone().unwrap()).stderr(terminal.try_clone().unwrap());
        let before = buses.info("default")["messages"].as_u64().unwrap();
        let mut process = Process::start(&mut command);
        let played = || buses.info("default")["messages"].as_u64().unwrap() - before;
        wait_until("the first message", || played() == 1);
        assert!(is_raw());
        // One each hour, but for the key.
        master.write_all(b"\x1b[C").unwrap();
        wait_until("the second message", || played() == 2);
        if ended_by_key {
            master.write_all(b"q").unwrap();
            assert!(process.wait().success());
        } else {
            process.signal(Signal::TERM);
            assert_eq!(process.wait().code(), Some(143));
        }
        assert!(!is_raw());
        assert_eq!(played(), 2);
    }
}

#[test]
fn the_examples_of_the_help_run_as_written() {
    use crate::support::Process;

    let (buses, files) = (Buses::new(), Directory::new());
    for name in ["day", "log.0001", "log.0002", "plant"] {
        recorded(&buses, &files.path().join(format!("{name}.mcap")), || {
            buses.succeed(&["pub", "plant/a", name]);
        });
    }
    let examples = buses.examples("replay");
    assert_eq!(examples.len(), 6, "{examples:?}");
    let published = || buses.info("default")["messages"].as_u64().unwrap();
    for example in &examples {
        let before = published();
        let mut command = buses.shell(&format!("exec {example}"));
        let mut replay = Process::start(command.current_dir(files.path()));
        if example.contains("--loop") {
            let mut subscriber = buses.subscribe(&["-b", "test", "--count", "3", "--payload-only"]);
            assert!(subscriber.wait().success());
            replay.signal(rustix::process::Signal::INT);
        }
        assert!(replay.wait().success(), "{example}: {}", replay.errors());
        let expected = match &example[..] {
            list if list.contains("--list") => 0,
            // The recording is shorter.
            late if late.contains("--start +1h") => 0,
            several if several.contains("log.0002") => 2,
            other_bus if other_bus.contains("-b test") => 0,
            _ => 1,
        };
        assert_eq!(published() - before, expected, "{example}");
    }
}
