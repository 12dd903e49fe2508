//! Recordings of retained topics: values come first, in each part, and `replay` retains them, but not over newer ones.

use crate::record::{finish, listed, printed, python};
use crate::support::{Buses, wait_until};
use mcap::MessageStream;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use toroni::{Bus, BusConfig, Limit, Publisher};
use toroni_testkit::Directory;

/// Opens a bus of these, and creates it if it does not exist.
fn open(buses: &Buses, name: &str) -> Bus {
    BusConfig::new().directory(buses.path()).persistent(true).open(name).unwrap()
}

fn retained(bus: &Bus, topic: &str) -> Publisher {
    bus.publisher(topic).unwrap().retained().unwrap()
}

/// Returns the values of a bus: `topic=payload`.
fn values(bus: &Bus) -> Vec<String> {
    let all = bus.retained_matching("**").unwrap();
    let mut all: Vec<String> = all
        .into_iter()
        .map(|value| value.unwrap())
        .map(|value| format!("{}={}", value.topic(), value.text()))
        .collect();
    all.sort();
    all
}

/// Returns what a file has of topics, in its order: what it is to the value of its topic, and `topic=payload`.
fn messages(file: &Path) -> Vec<String> {
    let bytes = std::fs::read(file).unwrap();
    MessageStream::new(&bytes)
        .unwrap()
        .map(|message| message.unwrap())
        .filter(|message| !message.channel.metadata.contains_key("toroni.kind"))
        .map(|message| {
            let what = message.channel.metadata.get("toroni.retained");
            let text = String::from_utf8_lossy(&message.data).into_owned();
            let shown = if text.len() > 20 { format!("{} B", text.len()) } else { text };
            format!("{} {}={shown}", what.map_or("-", String::as_str), message.channel.topic)
        })
        .collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Plays files into a bus, and returns what the replay said.
fn replay(buses: &Buses, bus: &str, files: &[&Path], arguments: &[&str]) -> String {
    let files: Vec<&str> = files.iter().map(|file| text(file)).collect();
    let arguments = [&["-b", bus, "replay", "--speed", "max"], &files[..], arguments].concat();
    let output = buses.run(&arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Records the default bus while `publish` publishes. The recorder has what is published then.
fn recorded(buses: &Buses, file: &Path, arguments: &[&str], publish: impl FnOnce()) {
    let recorder = buses.record(file, arguments);
    publish();
    finish(recorder);
}

#[test]
fn values_come_before_the_stream_and_say_what_they_are() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let bus = open(&buses, "default");
    let [mode, limit, gone, other] =
        ["plant/mode", "plant/limit", "plant/gone", "other"].map(|topic| retained(&bus, topic));
    let plain = bus.publisher("plant/plain").unwrap();
    plain.publish("not kept").unwrap();
    mode.publish("manual").unwrap();
    limit.publish("350").unwrap();
    gone.publish("x").unwrap();
    gone.clear(Limit::Policy).unwrap();
    other.publish("of no pattern").unwrap();
    mode.publish("automatic").unwrap();
    recorded(&buses, &file, &["plant/**"], || {
        plain.publish("p").unwrap();
        limit.publish("360").unwrap();
        limit.publish("").unwrap();
        // Declared while it is recorded.
        retained(&bus, "plant/late").publish("l").unwrap();
        mode.clear(Limit::Policy).unwrap();
        other.publish("of no pattern").unwrap();
    });
    let expected = [
        "value plant/limit=350",
        "value plant/mode=automatic",
        "- plant/plain=p",
        "message plant/limit=360",
        "message plant/limit=",
        "message plant/late=l",
        "cleared plant/mode=",
    ];
    assert_eq!(messages(&file), expected);
    let listed = listed(&buses, &file);
    assert_eq!((&listed["messages"], &listed["values"]), (&4.into(), &2.into()));
    let topics = listed["topics"].as_array().unwrap();
    let of = |name: &str| topics.iter().find(|topic| topic["topic"] == name).unwrap();
    assert_eq!(of("plant/mode")["retained"], true);
    assert_eq!(
        (&of("plant/limit")["messages"], &of("plant/limit")["values"]),
        (&2.into(), &1.into())
    );
    assert_eq!(of("plant/plain")["retained"], false);
    assert!(buses.succeed(&["replay", "--list", text(&file)]).contains("values    2\n"));
    // The sequences are those of the bus.
    let lines = printed(&buses, &file);
    let sequences: Vec<&str> = lines.iter().filter_map(|line| line["sequence"].as_str()).collect();
    assert_eq!(&sequences[..4], ["2", "6", "7", "8"]);
    check_other_readers(&file);
    // A replay brings a bus to the same state.
    let said = replay(&buses, "copy", &[&file], &[]);
    assert!(said.contains("played 4 messages and 2 values, "), "{said}");
    assert_eq!(values(&open(&buses, "copy")), ["plant/late=l", "plant/limit="]);
}

/// Python's package reads it.
fn check_other_readers(file: &Path) {
    let Some(python) = python() else { return };
    let read = "import sys; from mcap.reader import make_reader\n\
                with open(sys.argv[1], 'rb') as file:\n \
                for _, channel, message in make_reader(file, validate_crcs=True).iter_messages():\n  \
                print(channel.metadata.get('toroni.retained'), channel.topic, message.data.decode())";
    let output = Command::new(python).args(["-c", read]).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("value plant/mode automatic") && text.contains("cleared plant/mode"),
        "{text}"
    );
}

#[test]
fn a_bus_without_values_is_recorded_and_played_as_before() {
    let (buses, files) = (Buses::new(), Directory::new());
    let (file, plain) = (files.path().join("a.mcap"), files.path().join("b.mcap"));
    let config = BusConfig::new().directory(buses.path()).persistent(true).retained_topics(0);
    let without = config.create("without").unwrap();
    recorded(&buses, &plain, &["-b", "without"], || {
        without.publisher("a").unwrap().publish("x").unwrap();
    });
    assert_eq!(messages(&plain), ["- a=x"]);
    let bus = open(&buses, "default");
    retained(&bus, "a").publish("kept").unwrap();
    recorded(&buses, &file, &[], || {
        retained(&bus, "a").publish("next").unwrap();
        bus.publisher("b").unwrap().publish("y").unwrap();
    });
    let said = replay(&buses, "without", &[&file], &[]);
    assert!(said.contains("left out") && said.contains("--retained-topics"), "{said}");
    assert!(said.contains("played 2 messages, "), "{said}");
    let all = buses.succeed(&["-b", "without", "sub", "--from", "oldest", "-n", "3"]);
    assert_eq!(all, "a\tx\na\tnext\nb\ty\n");
}

fn part(files: &Directory, number: u32) -> PathBuf {
    files.path().join(format!("a.{number:04}.mcap"))
}

#[test]
fn each_part_begins_with_the_values_at_its_place() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let bus = open(&buses, "default");
    let [mode, limit] = ["mode", "limit"].map(|topic| retained(&bus, topic));
    mode.publish("m0").unwrap();
    limit.publish("l0").unwrap();
    let plain = bus.publisher("plain").unwrap();
    let split = || {
        buses.succeed(&["record", "--control", text(&file), "split"]);
    };
    recorded(&buses, &file, &["--split", "1h"], || {
        plain.publish("1").unwrap();
        mode.publish("m1").unwrap();
        split();
        plain.publish("2").unwrap();
        limit.clear(Limit::Policy).unwrap();
        mode.publish("m2").unwrap();
        mode.publish("m3").unwrap();
        retained(&bus, "late").publish("l").unwrap();
        split();
        plain.publish("3").unwrap();
        mode.clear(Limit::Policy).unwrap();
        split();
        mode.publish("m4").unwrap();
    });
    assert_eq!(
        [1, 2, 3, 4].map(|number| messages(&part(&files, number))),
        [
            vec!["value mode=m0", "value limit=l0", "- plain=1", "message mode=m1"],
            vec![
                "value limit=l0",
                "value mode=m1",
                "- plain=2",
                "cleared limit=",
                "message mode=m2",
                "message mode=m3",
                "message late=l",
            ],
            vec!["value mode=m3", "value late=l", "- plain=3", "cleared mode="],
            vec!["value late=l", "message mode=m4"],
        ]
    );
    // A part alone brings the state, and in a row each value is published once.
    let parts: Vec<PathBuf> = (1..=4).map(|number| part(&files, number)).collect();
    let all: Vec<&Path> = parts.iter().map(PathBuf::as_path).collect();
    replay(&buses, "one", &all[2..3], &["--end", "+0"]);
    assert_eq!(values(&open(&buses, "one")), ["late=l", "mode=m3"]);
    let said = replay(&buses, "row", &all, &[]);
    assert!(said.contains("played 8 messages and 2 values, "), "{said}");
    assert_eq!(values(&open(&buses, "row")), ["late=l", "mode=m4"]);
}

#[test]
fn a_part_by_size_has_messages_besides_its_values() {
    part_by_size(false);
}

#[test]
fn a_missing_value_is_among_the_values_with_which_a_part_begins() {
    part_by_size(true);
}

fn part_by_size(with_missing: bool) {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let config = BusConfig::new().directory(buses.path()).persistent(true).capacity(16 << 20);
    let bus = config.retained_topics(64).retained_bytes(8 << 20).create("default").unwrap();
    if with_missing {
        // It is the first one, and longer than a value may be. Its record leaves the ring.
        drop(retained(&bus, "missing"));
        bus.publisher("missing").unwrap().publish(vec![b'm'; 2_200_000]).unwrap();
        let noise = bus.publisher("noise").unwrap();
        (0..20).for_each(|_| _ = noise.publish(vec![b'n'; 1_000_000]).unwrap());
    }
    // Together they are longer than a part.
    for number in 0..12 {
        retained(&bus, &format!("value/{number}")).publish(vec![b'v'; 200_000]).unwrap();
    }
    let plain = bus.publisher("plain").unwrap();
    let arguments = ["--split", "1MiB", "--compress", "none", "--gate", "--exclude", "noise"];
    recorded(&buses, &file, &arguments, || {
        (0..60).for_each(|_| _ = plain.publish([7; 50_000]).unwrap());
    });
    let parts: Vec<_> = (1..)
        .map(|number| part(&files, number))
        .take_while(|path| path.exists())
        .map(|path| messages(&path))
        .collect();
    assert!((3..6).contains(&parts.len()), "{parts:?}");
    for part in &parts {
        assert!(part.len() > 12, "{parts:?}");
        let (front, stream) = part.split_at(12);
        assert!(front.iter().all(|message| message.starts_with("value value/")), "{part:?}");
        assert!(!stream.is_empty() && stream.iter().all(|it| it == "- plain=50000 B"), "{part:?}");
    }
    for number in 1..=u32::try_from(parts.len()).unwrap() {
        let losses = &listed(&buses, &part(&files, number))["losses"];
        assert_eq!(*losses, i32::from(with_missing), "part {number}");
    }
}

#[test]
fn after_a_loss_the_values_of_the_loss_are_recorded() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let config = BusConfig::new().directory(buses.path()).persistent(true).capacity(64 << 10);
    let bus = config.policy(toroni::Policy::Overwrite).create("default").unwrap();
    let [mode, limit] = ["mode", "limit"].map(|topic| retained(&bus, topic));
    mode.publish("m0").unwrap();
    limit.publish("l0").unwrap();
    let noise = bus.publisher("noise").unwrap();
    let recorder = buses.record(&file, &["--split", "1h", "--exclude", "noise"]);
    mode.publish("m1").unwrap();
    wait_until("what was published is recorded", || recorded_until(&buses, "mode=m1", &file));
    recorder.stop();
    mode.publish("m2").unwrap();
    limit.clear(Limit::Policy).unwrap();
    (0..300).for_each(|_| _ = noise.publish([7; 1000]).unwrap());
    recorder.resume();
    limit.publish("l1").unwrap();
    buses.succeed(&["record", "--control", text(&file), "split"]);
    mode.publish("m3").unwrap();
    finish(recorder);
    let first = messages(&part(&files, 1));
    assert_eq!(&first[2..4], ["message mode=m1", "value mode=m2"], "{first:?}");
    assert_eq!(first.last().unwrap(), "message limit=l1");
    let second = messages(&part(&files, 2));
    assert_eq!(second, ["value mode=m2", "value limit=l1", "message mode=m3"]);
    let said = replay(&buses, "copy", &[&part(&files, 1), &part(&files, 2)], &[]);
    assert!(said.contains("played 3 messages and 3 values, "), "{said}");
    assert_eq!(values(&open(&buses, "copy")), ["limit=l1", "mode=m3"]);
}

/// Whether the open part of a recording has a message.
fn recorded_until(buses: &Buses, message: &str, file: &Path) -> bool {
    let part = file.with_extension("0001.mcap");
    let lines = printed(buses, &part);
    lines.iter().any(|line| {
        let field = |name: &str| line[name].as_str().unwrap_or("").to_owned();
        format!("{}={}", field("topic"), field("payload")) == message
    })
}

#[test]
fn a_value_for_which_there_was_no_room_is_recorded_as_a_loss() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let config = BusConfig::new().directory(buses.path()).persistent(true).capacity(64 << 10);
    let bus = config.retained_topics(8).retained_bytes(4096).create("default").unwrap();
    drop(retained(&bus, "a"));
    let plain = bus.publisher("a").unwrap();
    plain.publish([7; 3000]).unwrap();
    // Its record has left the ring.
    let noise = bus.publisher("noise").unwrap();
    (0..300).for_each(|_| _ = noise.publish([7; 1000]).unwrap());
    let recorder = buses.record(&file, &["--split", "1h", "--exclude", "noise", "--strict"]);
    buses.succeed(&["record", "--control", text(&file), "split"]);
    bus.publisher("b").unwrap().publish("x").unwrap();
    recorder.signal(rustix::process::Signal::INT);
    let output = recorder.finish();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("value of a has 3000 bytes"), "{said}");
    assert!(said.contains("(option --retained-bytes)"), "{said}");
    for number in [1, 2] {
        let file = part(&files, number);
        let lost = json!({ "messages": "1", "bytes": "3000", "topic": "a" });
        assert_eq!(printed(&buses, &file)[0], json!({ "lost": lost }), "part {number}");
        let output = buses.run(&["sub", "--file", text(&file)]);
        let said = "toroni: the value of a has 3000 bytes, for which there was no room\n";
        assert_eq!(String::from_utf8(output.stderr).unwrap(), said, "part {number}");
    }
}

/// Creates a bus with little room, on which these topics are retained.
fn small(buses: &Buses, topics: &[&str]) -> Bus {
    let config = BusConfig::new().directory(buses.path()).persistent(true).capacity(64 << 10);
    let config = config.policy(toroni::Policy::Overwrite);
    let bus = config.retained_topics(8).retained_bytes(4096).create("default").unwrap();
    topics.iter().for_each(|topic| drop(retained(&bus, topic)));
    bus
}

/// Publishes a value for which such a bus has no room, and 300 messages after it, so that it leaves the ring.
fn publish_missing(bus: &Bus, topic: &str) {
    bus.publisher(topic).unwrap().publish([7; 3000]).unwrap();
    let noise = bus.publisher("noise").unwrap();
    (0..300).for_each(|_| _ = noise.publish([7; 1000]).unwrap());
}

#[test]
fn a_value_that_is_missing_where_a_pause_ends_is_a_loss() {
    let (buses, files) = (Buses::new(), Directory::new());
    let control = |file: &Path, command: &str| {
        buses.succeed(&["record", "--control", text(file), command]);
    };
    let bus = small(&buses, &["a"]);
    for (name, is_resumed) in [("resumed.mcap", true), ("ended.mcap", false)] {
        let file = files.path().join(name);
        bus.publisher("a").unwrap().publish("short").unwrap();
        let recorder = buses.record(&file, &["--strict"]);
        control(&file, "pause");
        // The recorder is overtaken, so that it is the first to learn that the value is missing.
        recorder.stop();
        publish_missing(&bus, "a");
        recorder.resume();
        if is_resumed {
            control(&file, "resume");
        }
        recorder.signal(rustix::process::Signal::INT);
        let output = recorder.finish();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let missing = "toroni: the value of a has 3000 bytes, ";
        assert_eq!(said.matches(missing).count(), 1, "{said}");
        assert!(said.contains("1 message lost: the file says where"), "{said}");
        let listed = listed(&buses, &file);
        assert_eq!((&listed["losses"], &listed["lost_messages"]), (&1.into(), &1.into()));
        // It is no message of the pause.
        assert_eq!(listed["notes"][1]["messages"], 301, "{listed}");
    }
}

#[test]
fn what_changes_during_a_pause_is_recorded_where_it_ends() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let bus = open(&buses, "default");
    let [mode, limit, gone] = ["mode", "limit", "gone"].map(|topic| retained(&bus, topic));
    limit.publish("l0").unwrap();
    gone.publish("g0").unwrap();
    let control = |command: &str| {
        buses.succeed(&["record", "--control", text(&file), command]);
    };
    recorded(&buses, &file, &[], || {
        control("pause");
        mode.publish("m1").unwrap();
        mode.publish("m2").unwrap();
        gone.clear(Limit::Policy).unwrap();
        control("resume");
        limit.publish("l1").unwrap();
    });
    let expected =
        ["value limit=l0", "value gone=g0", "cleared gone=", "value mode=m2", "message limit=l1"];
    assert_eq!(messages(&file), expected);
    let listed = listed(&buses, &file);
    assert_eq!(listed["notes"][1]["messages"], 2, "{listed}");
}

#[test]
fn a_value_is_not_played_over_a_newer_one() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let stamped = BusConfig::new().directory(buses.path()).persistent(true).timestamps(true);
    let bus = stamped.open("default").unwrap();
    let old = stamped.open("copy").unwrap();
    retained(&old, "older").publish("before").unwrap();
    for topic in ["older", "newer", "unstamped", "none"] {
        retained(&bus, topic).publish("recorded").unwrap();
    }
    recorded(&buses, &file, &[], || {});
    retained(&old, "newer").publish("after").unwrap();
    retained(&open(&buses, "copy"), "unstamped").publish("by another").unwrap();
    let said = replay(&buses, "copy", &[&file], &[]);
    let kept: Vec<&str> = said.lines().filter(|line| line.contains("--overwrite-newer")).collect();
    assert_eq!(kept.len(), 2, "{said}");
    assert!(kept[0].contains("the value of newer on the bus is newer"), "{said}");
    assert!(kept[1].contains("the value of unstamped on the bus is not of this replay"), "{said}");
    let mixed = ["newer=after", "none=recorded", "older=recorded", "unstamped=by another"];
    assert_eq!(values(&old), mixed);
    // What it has published already is no newer value, and is not published again.
    let said = replay(&buses, "copy", &[&file], &["--overwrite-newer"]);
    assert!(said.contains("played 0 messages and 2 values, "), "{said}");
    let all = ["newer=recorded", "none=recorded", "older=recorded", "unstamped=recorded"];
    assert_eq!(values(&old), all);
}

#[test]
fn a_replay_that_starts_later_begins_with_the_values_of_that_place() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let bus = open(&buses, "default");
    let [mode, limit, gone] = ["mode", "limit", "gone"].map(|topic| retained(&bus, topic));
    mode.publish("m0").unwrap();
    gone.publish("g0").unwrap();
    recorded(&buses, &file, &[], || {
        mode.publish("m1").unwrap();
        limit.publish("l1").unwrap();
        gone.clear(Limit::Policy).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(900));
        mode.publish("m2").unwrap();
    });
    let said = replay(&buses, "copy", &[&file], &["--start", "+600ms", "--loop=2"]);
    // The second time, the topic that has changed begins again.
    assert!(said.contains("played 2 messages and 3 values, "), "{said}");
    let all = buses.succeed(&["-b", "copy", "sub", "--from", "oldest", "-n", "5"]);
    assert_eq!(all, "mode\tm1\nlimit\tl1\nmode\tm2\nmode\tm1\nmode\tm2\n");
    let nothing = replay(&buses, "other", &[&file], &["--start", "+600ms", "--exclude", "mode"]);
    assert!(nothing.contains("played 0 messages and 1 value, "), "{nothing}");
    assert_eq!(values(&open(&buses, "other")), ["limit=l1"]);
}

#[test]
fn a_replay_that_starts_later_plays_no_value_that_is_lost_there() {
    for with_value in [true, false] {
        let (buses, files) = (Buses::new(), Directory::new());
        let file = files.path().join("a.mcap");
        let bus = small(&buses, &["mode"]);
        if with_value {
            bus.publisher("mode").unwrap().publish("m0").unwrap();
        }
        let last = bus.publisher("last").unwrap();
        recorded(&buses, &file, &["--exclude", "noise"], || {
            last.publish("first").unwrap();
        });
        // It begins later, when the value is lost.
        publish_missing(&bus, "mode");
        let later = files.path().join("b.mcap");
        recorded(&buses, &later, &["--exclude", "noise"], || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            last.publish("end").unwrap();
        });
        let files = [&*file, &*later];
        let end = |path: &Path| {
            let listed = listed(&buses, path);
            let number = |field: &str| listed[field].as_str().unwrap().parse::<u64>().unwrap();
            (number("start_ns"), number("duration_ns"))
        };
        let ((start, _), (began, lasts)) = (end(&file), end(&later));
        let start = format!("+{}ms", (began + lasts - start) / 1_000_000 - 50);
        let said = replay(&buses, "copy", &files, &["--start", &start]);
        assert!(said.contains("played 1 message, ") && said.contains("1 loss report in"), "{said}");
        assert_eq!(values(&open(&buses, "copy")), Vec::<String>::new());
        let arguments = ["-b", "copy", "replay", text(&file), text(&later), "--start", &start];
        let output = buses.run(&[&arguments[..], &["--lost", "fail"]].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = replay(&buses, "copy", &files, &["--start", &start, "--exclude", "mode"]);
        assert!(said.contains("0 loss reports in"), "{said}");
    }
}

#[test]
fn a_replay_says_each_reason_once_why_values_are_left_out() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let bus = open(&buses, "default");
    for number in 0..40 {
        retained(&bus, &format!("{number:0200}")).publish("v").unwrap();
    }
    recorded(&buses, &file, &[], || {});
    // There is room for one value, and for the names of some of the topics.
    let small = BusConfig::new().directory(buses.path()).persistent(true).retained_topics(1);
    let copy = small.retained_bytes(4096).topic_table_bytes(4096).create("copy").unwrap();
    let said = replay(&buses, "copy", &[&file], &[]);
    let left_out: Vec<&str> = said.lines().filter(|line| line.contains("left out")).collect();
    let [of_number, of_table] = &left_out[..] else { panic!("{said}") };
    assert!(of_number.contains("01 is not retained, and its value is left out: "), "{said}");
    assert!(of_number.ends_with("(option --retained-topics)"), "{said}");
    assert!(of_table.contains(" is not retained, and its value is left out: "), "{said}");
    assert!(of_table.contains("--topic-table"), "{said}");
    assert_eq!(values(&copy), [format!("{:0200}=v", 0)]);
}

#[test]
fn a_trigger_records_the_values_of_its_place() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let bus = open(&buses, "default");
    retained(&bus, "alarm/limit").publish("350").unwrap();
    let arguments = ["--trigger", "alarm/**", "--before", "10s", "--after", "100ms"];
    let recorder = buses.record(&file, &[&["plant/**"], &arguments[..]].concat());
    // Its value is no message, so it triggers nothing.
    bus.publisher("plant/a").unwrap().publish("before").unwrap();
    bus.publisher("alarm/fire").unwrap().publish("now").unwrap();
    let output = recorder.finish();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(messages(&file), ["value alarm/limit=350", "- plant/a=before", "- alarm/fire=now"]);
}

#[test]
fn a_repair_keeps_values() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let bus = open(&buses, "default");
    retained(&bus, "mode").publish("m0").unwrap();
    let recorder = buses.record(&file, &[]);
    retained(&bus, "mode").publish("m1").unwrap();
    wait_until("it is in the file", || {
        file.exists() && printed(&buses, &file).iter().any(|line: &Value| line["payload"] == "m1")
    });
    recorder.signal(rustix::process::Signal::KILL);
    drop(recorder);
    let output = buses.run(&["record", "--repair", text(&file)]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("with 1 message"), "{output:?}");
    let repaired = file.with_extension("repaired.mcap");
    assert_eq!(messages(&repaired), ["value mode=m0", "message mode=m1"]);
    replay(&buses, "copy", &[&repaired], &["--end", "+0"]);
    assert_eq!(values(&open(&buses, "copy")), ["mode=m0"]);
}
