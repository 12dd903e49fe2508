//! `create`, `ls`, `info`, `topics`, `hz`, `doctor`.

use crate::support::{Buses, json_lines};
use serde_json::Value;
use std::path::Path;

#[test]
fn create_applies_all_settings() {
    let buses = Buses::new();
    let created = buses.succeed(&[
        "create",
        "plant",
        "--capacity",
        "1MiB",
        "--max-subscribers",
        "7",
        "--max-publishers",
        "5",
        "--policy",
        "bounded:10ms/1s",
        "--lock",
        "robust",
        "--notify",
        "multicast:239.255.1.2:5000",
        "--topic-table",
        "64KiB",
        "--retained-topics",
        "9",
        "--retained-bytes",
        "8KiB",
        "--mode",
        "0640",
        "--json",
    ]);
    let created = &json_lines(created.as_bytes())[0];
    let info = buses.info("plant");
    for (field, value) in [
        ("name", Value::from("plant")),
        ("capacity", (1 << 20).into()),
        ("max_subscribers", 7.into()),
        ("max_publishers", 5.into()),
        ("policy", "bounded:10ms/1s".into()),
        ("lock", "robust".into()),
        ("notify", "multicast:239.255.1.2:5000".into()),
        ("persistent", true.into()),
        ("topic_table_bytes", (64 << 10).into()),
    ] {
        assert_eq!(created[field], value, "{field}");
        assert_eq!(info[field], value, "{field}");
    }
    for retained in [&created["retained"], &info["retained"]] {
        assert_eq!((&retained["max_topics"], &retained["bytes"]), (&9.into(), &8192.into()));
    }
    let ring = std::fs::metadata(buses.path().join("plant/ring")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&ring.permissions()) & 0o777, 0o640);
}

/// The library has one setting for both, so the program knows the other one's default.
#[test]
fn one_setting_of_retained_topics_leaves_the_other_as_it_is() {
    let buses = Buses::new();
    let limits = |arguments: &[&str]| {
        let created = buses.succeed(&[&["create", "--json"], arguments].concat());
        let retained = json_lines(created.as_bytes())[0]["retained"].clone();
        [&retained["max_topics"], &retained["bytes"]].map(|limit| limit.as_u64().unwrap())
    };
    let [topics, bytes] = limits(&["plain"]);
    assert_eq!(limits(&["topics", "--retained-topics", "7"]), [7, bytes]);
    assert_eq!(limits(&["bytes", "--retained-bytes", "8KiB"]), [topics, 8192]);
    assert_eq!(limits(&["none", "--retained-topics", "0"])[0], 0);
    let text = buses.succeed(&["info", "none"]);
    assert!(text.contains("\nretained    the bus was created to retain no topics\n"), "{text}");
}

#[test]
fn a_bus_is_created_once() {
    let buses = Buses::new();
    assert!(buses.succeed(&["create", "b"]).starts_with("Created "));
    let again = buses.run(&["create", "b"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("already"));
}

#[test]
fn wrong_settings_are_wrong_usage() {
    let buses = Buses::new();
    for arguments in [
        &["create", "b", "--capacity", "100000"][..],
        &["create", "b", "--capacity", "many"],
        &["create", "b", "--policy", "sometimes"],
        &["create", "b", "--mode", "0999"],
        &["create", "../b"],
        &["create", ".b"],
        &["create"],
        &["pub"],
        &["pub", "t", "--repeat", "3"],
        &["pub", "t", "x", "--repeat", "0"],
        &["clean", "--yes"],
        &["clean", "b", "--all"],
        &["clean", "--all"],
        &["--bus", "b", "clean", "--all", "--yes"],
        &["rm"],
        &["pub", "t", "x", "--size", "3"],
        &["pub", "t", "x", "--rate", "0"],
        &["sub", "--format", "xml"],
        &["sub", "--from", "yesterday"],
        &["hz", "--interval", "0"],
        &["demo", "--size", "15"],
        &["demo", "--publishers", "0"],
        &["nonsense"],
        &[],
    ] {
        let output = buses.run_with_input(arguments, b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty());
        assert!(output.stdout.is_empty());
    }
    assert!(buses.entries().is_empty());
}

#[test]
fn inspecting_creates_no_bus() {
    let buses = Buses::new();
    for arguments in [&["info"][..], &["info", "x"], &["topics", "-b", "x"], &["clean", "x"]] {
        let output = buses.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("toroni: there is no bus"));
    }
    let output = buses.run(&["ls"]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("No buses in "), "{output:?}");
    assert!(buses.run(&["ls", "--json"]).stderr.is_empty());
    assert!(buses.entries().is_empty());
}

#[test]
fn ls_shows_the_state_of_buses() {
    let buses = Buses::new();
    buses.succeed(&["--bus", "idle", "pub", "t", "x"]);
    buses.succeed(&["create", "kept", "--capacity", "64KiB"]);
    let _subscriber = buses.subscribe(&["--bus", "busy"]);
    let listed = json_lines(buses.succeed(&["ls", "--json"]).as_bytes());
    let state = |name: &str| {
        let bus = listed.iter().find(|bus| bus["name"] == name).unwrap();
        (bus["in_use"].as_bool().unwrap(), bus["persistent"].as_bool().unwrap())
    };
    assert_eq!(listed.len(), 3);
    assert_eq!(state("idle"), (false, false));
    assert_eq!(state("kept"), (false, true));
    assert_eq!(state("busy"), (true, false));
    let text = buses.succeed(&["ls"]);
    assert_eq!(text.lines().count(), 4);
    assert!(text.starts_with("NAME "));
}

#[test]
fn info_shows_a_stopped_subscriber() {
    let buses = Buses::new();
    let subscriber = buses.subscribe(&["--bus", "b"]);
    let info = || json_lines(buses.succeed(&["info", "b", "--json"]).as_bytes()).remove(0);
    assert_eq!(info()["subscribers"][0]["stopped"], false);
    subscriber.signal(rustix::process::Signal::STOP);
    while info()["subscribers"][0]["stopped"] != true {
        std::thread::yield_now();
    }
    assert_eq!(info()["subscribers"][0]["alive"], true);
    assert!(buses.succeed(&["info", "b"]).contains(" stopped "));
    subscriber.signal(rustix::process::Signal::CONT);
}

#[test]
fn damaged_buses_are_listed_and_removed_by_name() {
    let buses = Buses::new();
    buses.succeed(&["create", "good", "--temporary"]);
    buses.succeed(&["create", "bad"]);
    let ring = buses.path().join("bad/ring");
    let mut bytes = std::fs::read(&ring).unwrap();
    // Keep the first bytes: without them it would not count as a bus and would not be removed.
    bytes[16..64].fill(0x5a);
    std::fs::write(&ring, bytes).unwrap();
    let text = buses.succeed(&["ls"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("bad ") && lines[1].contains("cannot be opened  "), "{text}");
    assert!(lines[2].starts_with("good ") && lines[3].is_empty(), "{text}");
    assert!(lines[4].starts_with("bad: ") && lines.len() == 5, "{text}");
    buses.succeed(&["clean"]);
    assert_eq!(buses.entries(), ["bad"]);
    buses.succeed(&["rm", "bad"]);
    assert!(buses.entries().is_empty());
}

/// A bus that a release with layout version 2 left behind, with one message in it.
const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stored/layout-2");

/// The error names both versions, and its advice works.
#[test]
fn a_bus_of_an_older_layout_is_refused_and_removed_by_name() {
    let buses = Buses::new();
    let old = buses.path().join("old");
    std::fs::create_dir(&old).unwrap();
    for file in ["ring", "publishers", "readers"] {
        std::fs::copy(Path::new(STORED).join(file), old.join(file)).unwrap();
    }
    refused_for_its_version(
        &buses,
        "old",
        "has layout version 2, and this release of Toroni uses version 8",
    );
}

/// As an older release sees the bus of a newer one.
#[test]
fn a_bus_of_a_newer_layout_is_refused_and_removed_by_name() {
    let buses = Buses::new();
    buses.succeed(&["create", "new"]);
    for file in ["ring", "publishers", "readers"] {
        let file = std::fs::File::options().write(true).open(buses.path().join("new").join(file));
        std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &9_u32.to_ne_bytes(), 12).unwrap();
    }
    refused_for_its_version(
        &buses,
        "new",
        "has layout version 9, and this release of Toroni uses version 8",
    );
}

fn refused_for_its_version(buses: &Buses, bus: &str, versions: &str) {
    let before = std::fs::read(buses.path().join(bus).join("ring")).unwrap();
    for command in [
        &["info", bus][..],
        &["pub", "--bus", bus, "greetings", "hello"],
        &["sub", "--bus", bus, "greetings"],
        &["create", bus],
    ] {
        let refused = buses.run(command);
        assert_eq!(refused.status.code(), Some(1), "{command:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        if command[0] != "create" {
            assert!(said.contains(versions), "{command:?}: {said}");
            assert!(said.contains("remove it with `toroni rm NAME`"), "{command:?}: {said}");
        }
    }
    let after = std::fs::read(buses.path().join(bus).join("ring")).unwrap();
    assert!(before == after, "it is left as it was");
    buses.succeed(&["rm", bus]);
    assert!(buses.entries().is_empty());
}

#[test]
fn participants_are_shown() {
    let buses = Buses::new();
    let subscriber = buses.subscribe(&["--name", "my-subscriber"]);
    let mut command = buses.command(&["pub", "t", "--name", "my-publisher"]);
    let mut publisher = crate::support::Process::start(command.stdin(std::process::Stdio::piped()));
    let mut input = publisher.stdin().unwrap();
    std::io::Write::write_all(&mut input, b"hello\n").unwrap();
    crate::support::wait_until("it published", || buses.info("default")["messages"] == 1);
    let info = buses.info("default");
    let one = |kind: &str| {
        let all = info[kind].as_array().unwrap();
        assert_eq!(all.len(), 1, "{info}");
        all[0].clone()
    };
    assert_eq!(one("publishers")["name"], "my-publisher");
    assert_eq!(one("publishers")["pid"], publisher.id());
    assert_eq!(one("publishers")["alive"], true);
    assert_eq!(one("subscribers")["name"], "my-subscriber");
    assert_eq!(one("subscribers")["pid"], subscriber.id());
    assert_eq!(one("subscribers")["gating"], true);
    let text = buses.succeed(&["info"]);
    assert!(text.contains("my-publisher") && text.contains("my-subscriber"), "{text}");
    assert!(text.contains("policy      wait:100ms"), "{text}");
    drop(input);
    assert!(publisher.wait().success());
}

#[test]
fn topics_are_counted() {
    let buses = Buses::new();
    buses.succeed(&["pub", "b", "xyz", "--repeat", "3"]);
    buses.succeed(&["pub", "a/c", "x"]);
    let topics = json_lines(buses.succeed(&["topics", "--json"]).as_bytes());
    let found: Vec<_> = topics
        .iter()
        .map(|t| (t["topic"].as_str().unwrap(), t["messages"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("a/c", 1), ("b", 3)]);
    assert!(buses.succeed(&["topics"]).starts_with("TOPIC "));
}

#[test]
fn patterns_and_subscribers_are_shown() {
    let buses = Buses::new();
    let one = buses.subscribe(&["plant/**", "alarm", "--name", "dashboard"]);
    let _two = buses.subscribe(&["*/boiler", "--name", "logger"]);
    for topic in ["plant/boiler", "alarm", "other"] {
        buses.succeed(&["pub", topic, "x"]);
    }
    let info = buses.info("default");
    let subscribers = info["subscribers"].as_array().unwrap();
    let of = |name: &str| subscribers.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(of("dashboard")["patterns"], serde_json::json!(["plant/**", "alarm"]));
    assert_eq!(of("dashboard")["patterns_truncated"], false);
    assert_eq!(of("logger")["patterns"], serde_json::json!(["*/boiler"]));
    let text = buses.succeed(&["info"]);
    assert!(text.contains("plant/**, alarm\n") && text.contains("*/boiler\n"), "{text}");

    let topics = json_lines(buses.succeed(&["topics", "--json"]).as_bytes());
    let listeners = |topic: &str| {
        let topic = topics.iter().find(|one| one["topic"] == topic).unwrap();
        let all = topic["subscribers"].as_array().unwrap();
        let mut names: Vec<_> = all.iter().map(|one| one["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert!(all.iter().all(|one| one["certain"] == true), "{topic}");
        (names.join(" "), all.iter().any(|found| found["pid"] == one.id()))
    };
    assert_eq!(listeners("plant/boiler"), ("dashboard logger".to_owned(), true));
    assert_eq!(listeners("alarm"), ("dashboard".to_owned(), true));
    assert_eq!(listeners("other"), (String::new(), false));
    let text = buses.succeed(&["topics"]);
    let alarm = text.lines().find(|line| line.starts_with("alarm ")).unwrap();
    assert!(alarm.ends_with(&format!("1  dashboard ({})", one.id())), "{text}");
}

/// `info` shows that patterns are missing. `pub` counts the subscriber and reports that.
#[test]
fn truncated_patterns_may_match() {
    let buses = Buses::new();
    let patterns: Vec<String> =
        (0..8).map(|number| format!("{number}/{}", "x".repeat(90))).collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let _subscriber = buses.subscribe(&[&patterns[..], &["last"]].concat());
    let info = buses.info("default");
    let shown = &info["subscribers"][0];
    assert_eq!(shown["patterns_truncated"], true, "{info}");
    assert_eq!(shown["patterns"].as_array().unwrap()[0], patterns[0]);
    assert!(buses.succeed(&["info"]).contains(", …\n"));
    // A pattern that is in the list.
    let sure = buses.run(&["pub", patterns[0], "x", "--wait-subscribers", "1"]);
    assert!(sure.status.success() && sure.stderr.is_empty(), "{sure:?}");
    // A pattern that is missing from the list.
    let perhaps = buses.run(&["pub", "last", "x", "--wait-subscribers", "1"]);
    assert!(perhaps.status.success(), "{perhaps:?}");
    let said = String::from_utf8(perhaps.stderr).unwrap();
    assert!(said.contains("counted 1 subscriber whose list of patterns is truncated"), "{said}");
    let topics = json_lines(buses.succeed(&["topics", "--json"]).as_bytes());
    let last = topics.iter().find(|one| one["topic"] == "last").unwrap();
    assert_eq!(last["subscribers"][0]["certain"], false, "{last}");
    assert!(buses.succeed(&["topics"]).contains("perhaps toroni-sub ("));
}

/// Another subscriber may have overwritten the patterns: nothing of them reaches the terminal, and they match nothing.
#[test]
fn patterns_that_are_none_are_shown_as_such() {
    let buses = Buses::new();
    buses.succeed(&["create", "default", "--max-subscribers", "2"]);
    let _subscriber = buses.subscribe(&["**"]);
    let readers = buses.path().join("default/readers");
    let bytes = std::fs::read(&readers).unwrap();
    // The text of slot 0, after the rows of 4,096 topics, two slots of 128 bytes and four words.
    let text = (4096 + 2 * 8 + 4096 * 8_usize).next_multiple_of(4096) + 2 * 128 + 16;
    assert_eq!(&bytes[text..text + 3], b"**\0");
    for hostile in [&b"\x1b["[..], b"\xff\xfe", b"a/", b"*\n", b"\n*", b"\0\0"] {
        let file = std::fs::File::options().write(true).open(&readers).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, hostile, text as u64).unwrap();
        let info = buses.info("default");
        assert!(info["subscribers"][0]["patterns"].is_null(), "{hostile:?}: {info}");
        let shown = buses.succeed(&["info"]);
        assert!(shown.contains("unreadable\n") && !shown.contains('\x1b'), "{shown}");
    }
    buses.succeed(&["pub", "t", "x"]);
    let topics = json_lines(buses.succeed(&["topics", "--json"]).as_bytes());
    assert_eq!(topics[0]["subscribers"], serde_json::json!([]));
    let publisher = buses.start(&["pub", "t", "x", "--wait-subscribers", "1"]);
    let said = publisher.error_line();
    assert!(
        said.contains("1 on the bus, 0 of them match; the patterns of 1 are unreadable"),
        "{said}"
    );
}

#[test]
fn rates_are_reported() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let nothing = buses.succeed(&["hz", "--count", "1", "--interval", "0.01"]);
    assert_eq!(nothing, "no messages yet on bus default\n\n");
    let mut hz = buses.start(&["hz", "a/**", "--interval", "0.2", "--json"]);
    crate::support::wait_until("hz is subscribed", || {
        buses.entries() == ["default"] && buses.subscriber_count("default") == 1
    });
    buses.succeed(&["pub", "a/b", "--size", "10", "--repeat", "50"]);
    buses.succeed(&["pub", "other", "x"]);
    let mut total = 0;
    while total < 50 {
        let report = json_lines(hz.line().as_bytes()).remove(0);
        assert!(report["seconds"].as_f64().unwrap() > 0.0);
        assert_eq!(report["lost_messages"], 0);
        for topic in report["topics"].as_array().unwrap() {
            assert_eq!(topic["topic"], "a/b");
            total = topic["total_messages"].as_u64().unwrap();
            assert_eq!(topic["total_bytes"], total * 10);
            // n messages have n - 1 gaps, and the gap to the interval before counts as well.
            let (messages, jitter) =
                (topic["messages"].as_u64().unwrap(), &topic["jitter_seconds"]);
            let longest = topic["longest_gap_seconds"].as_f64();
            assert!(messages < 3 || jitter.as_f64() < longest, "{topic}");
            assert!(messages > 0 || (jitter.is_null() && longest.is_none()), "{topic}");
        }
    }
    hz.signal(rustix::process::Signal::INT);
    assert_eq!(hz.finish().status.code(), Some(0));
    let mut hz = buses.start(&["hz", "--interval", "0.05"]);
    crate::support::wait_until("it watches", || buses.subscriber_count("default") == 1);
    buses.succeed(&["pub", "a/b", "x"]);
    loop {
        let line = hz.line();
        if line.starts_with("TOPIC ") {
            assert!(line.contains(" JITTER ") && line.contains(" LONGEST GAP "), "{line}");
            break;
        }
    }
    assert!(hz.line().starts_with("a/b "));
}

#[test]
fn the_doctor_checks_and_leaves_nothing() {
    let buses = Buses::new();
    let output = buses.run(&["doctor", "--json"]);
    let findings = json_lines(&output.stdout);
    assert!(findings.len() > 10);
    let mut failed = false;
    for finding in &findings {
        let status = finding["status"].as_str().unwrap();
        assert!(["ok", "warn", "fail"].contains(&status));
        assert_eq!(finding["remedy"].is_null(), status == "ok", "{finding}");
        failed |= status == "fail";
    }
    assert_eq!(output.status.code(), Some(i32::from(failed)));
    let message = findings.iter().find(|finding| finding["check"] == "a message").unwrap();
    assert_eq!(message["status"], "ok", "{message}");
    assert!(buses.entries().is_empty());
    let text = buses.run(&["doctor"]);
    assert_eq!(text.status.code(), Some(i32::from(failed)));
}

#[test]
fn the_doctor_distinguishes_idle_buses_from_leftovers() {
    let buses = Buses::new();
    let leftovers = || {
        let output = buses.run(&["doctor", "--json"]);
        let all = json_lines(&output.stdout);
        all.into_iter().find(|finding| finding["check"] == "leftovers").unwrap()
    };
    buses.succeed(&["pub", "t", "x"]);
    assert_eq!(leftovers()["status"], "ok");
    let mut subscriber = buses.subscribe(&[]);
    let other = buses.subscribe(&[]);
    subscriber.kill();
    assert_eq!(leftovers()["status"], "warn", "{}", leftovers());
    buses.succeed(&["clean"]);
    assert_eq!(leftovers()["status"], "ok", "{}", leftovers());
    drop(other);
}

#[test]
fn the_doctor_fails_where_no_bus_can_be_created() {
    let buses = Buses::new();
    let file = buses.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = buses.run(&["--dir", file.to_str().unwrap(), "doctor"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAIL"));
}

/// Publishers of one topic stamp its messages. A stamp in the future comes from another host, or from a clock that was set back.
#[test]
fn hz_shows_how_old_messages_with_a_stamp_are() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let mut hz = buses.start(&["hz", "--interval", "0.5", "--json"]);
    crate::support::wait_until("hz is subscribed", || buses.subscriber_count("default") == 1);
    buses.succeed(&["pub", "plain", "x"]);
    buses.succeed(&["pub", "stamped", "x", "--timestamps", "--repeat", "20"]);
    let config = toroni::BusConfig::new().directory(buses.path());
    let bus = config.open_existing("default").unwrap();
    let inlet = bus.inlet().unwrap();
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    let since_1970 = ahead.duration_since(std::time::UNIX_EPOCH).unwrap();
    let topic = inlet.topic("ahead").unwrap();
    let mut entry = toroni::Entry::new(&topic, &[b"x"]);
    entry.published_ns = Some(u64::try_from(since_1970.as_nanos()).unwrap());
    inlet.publish(&[entry], toroni::Limit::Policy).unwrap();
    let mut ages = std::collections::BTreeMap::new();
    while ages.len() < 3 {
        let report = json_lines(hz.line().as_bytes()).remove(0);
        for topic in report["topics"].as_array().unwrap() {
            if topic["messages"].as_u64() > Some(0) {
                ages.insert(topic["topic"].as_str().unwrap().to_owned(), topic["age"].clone());
            }
        }
    }
    assert!(ages["plain"].is_null(), "{ages:?}");
    let stamped = |key: &str| ages["stamped"][key].as_f64().unwrap();
    let [p50, p99, longest] = ["p50_seconds", "p99_seconds", "longest_seconds"].map(stamped);
    assert!(0.0 < p50 && p50 <= p99 && p99 <= longest, "{ages:?}");
    let ahead = ages["ahead"]["longest_seconds"].as_f64().unwrap();
    assert!((-3600.0..-3000.0).contains(&ahead), "{ages:?}");
    hz.kill();
    // The table has the columns only with stamps.
    for (options, has_ages) in [(&[][..], false), (&["--timestamps"], true)] {
        let mut hz = buses.start(&["hz", "fresh", "--interval", "0.05"]);
        crate::support::wait_until("hz is subscribed", || buses.subscriber_count("default") == 1);
        buses.succeed(&[&["pub", "fresh", "x"], options].concat());
        let titles = hz.line_where(|line| line.starts_with("TOPIC"));
        assert_eq!(titles.contains("AGE P50  AGE P99  LONGEST AGE"), has_ages, "{titles}");
        hz.kill();
        crate::support::wait_until("hz has ended", || {
            buses.run(&["clean"]);
            buses.subscriber_count("default") == 0
        });
    }
}
