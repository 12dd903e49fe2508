//! Retained topics: `pub --retain`, `get`, `clear`, `sub --retained`, and what other commands show of values.

use crate::support::{Buses, json_lines};
use serde_json::json;
use std::process::Output;

const LONG: &[u8] = &[b'x'; 3000];

/// A bus with little room for values, and with messages on two retained topics and one other.
fn with_values() -> Buses {
    let buses = Buses::new();
    let room = ["--retained-topics", "3", "--retained-bytes", "4KiB"];
    let create = ["create", "default", "--capacity", "64KiB", "--policy", "overwrite"];
    buses.succeed(&[&create[..], &room].concat());
    buses.succeed(&["pub", "--retain", "plant/b", "old"]);
    buses.succeed(&["pub", "--retain", "plant/a", ""]);
    buses.succeed(&["pub", "other", "x"]);
    buses.succeed(&["pub", "plant/b", "ä", "--timestamps"]);
    buses
}

/// The same, and the value of `plant/a` has no room.
fn with_a_missing_value() -> Buses {
    let buses = with_values();
    assert!(buses.run_with_input(&["pub", "plant/a", "--raw"], LONG).status.success());
    // Until it has left the ring, it can be read there.
    assert_eq!(buses.succeed(&["get", "plant/a", "--format", "raw"]).len(), 3000);
    buses.succeed(&["pub", "other", "--size", "1000", "--repeat", "150", "-q"]);
    buses
}

const MISSING: &str = "toroni: the value of plant/a has 3000 bytes, for which the bus had no room: create it with more bytes for retained topics (option --retained-bytes)\n";

fn code_and_errors(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr.clone()).unwrap())
}

#[test]
fn get_prints_values_in_the_order_of_the_bus_and_in_each_form() {
    let buses = with_values();
    for (arguments, printed) in [
        (&[][..], "plant/a\t\nplant/b\tä\n"),
        (&["plant/*"], "plant/a\t\nplant/b\tä\n"),
        (&["plant/b", "plant/a", "plant/b"], "plant/a\t\nplant/b\tä\n"),
        (&["plant/b"], "plant/b\tä\n"),
        (&["plant/b", "--payload-only"], "ä\n"),
        (&["plant/b", "--format", "hex"], "plant/b\tc3a4\n"),
        (&["plant/b", "--format", "raw"], "ä"),
        (&["plant/b", "-0"], "plant/b\tä\0"),
        (&["plant/b", "-F", "%r %t %s %l"], "retained plant/b 3 2\n"),
    ] {
        let arguments = [&["get"], arguments].concat();
        assert_eq!(buses.succeed(&arguments), printed, "{arguments:?}");
    }
    let values = json_lines(buses.succeed(&["get", "--json"]).as_bytes());
    let [a, b] = &values[..] else { panic!("{values:?}") };
    assert_eq!(
        (&a["topic"], &a["payload"], &a["length"]),
        (&json!("plant/a"), &json!(""), &json!(0))
    );
    assert_eq!(
        (&b["topic"], &b["payload"], &b["sequence"]),
        (&json!("plant/b"), &json!("ä"), &json!("3"))
    );
    assert!(values.iter().all(|value| value["retained"] == true), "{values:?}");
    assert!(a.get("timestamp").is_none() && b.get("timestamp").is_some(), "{values:?}");
    assert_eq!(buses.run(&["get", "-0", "--format", "raw"]).status.code(), Some(2));
    // It is a reader like others of the file, and leaves nothing.
    assert_eq!(buses.subscriber_count("default"), 0);
}

#[test]
fn get_fails_if_there_is_no_value() {
    let buses = with_values();
    for arguments in [&["get", "other"][..], &["get", "no/such", "plant/c"]] {
        let output = buses.run(arguments);
        let advice = "has a value: `toroni topics` shows which have one\n";
        let (code, said) = code_and_errors(&output);
        assert!(code == Some(1) && said.ends_with(advice), "{arguments:?}: {said}");
        assert!(said.contains(&arguments[1..].join(", ")), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn get_reports_a_missing_value_and_prints_the_others() {
    let buses = with_a_missing_value();
    let output = buses.run(&["get"]);
    let (code, said) = code_and_errors(&output);
    assert_eq!((code, said), (Some(3), format!("{MISSING}toroni: printed 1 of 2 values\n")));
    assert_eq!(output.stdout, "plant/b\tä\n".as_bytes());
    let output = buses.run(&["get", "plant/a", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let lost = json!({ "messages": "1", "bytes": "3000", "topic": "plant/a", "sequence": "4" });
    assert_eq!(json_lines(&output.stdout), [json!({ "lost": lost })]);
    assert_eq!(buses.run(&["get", "plant/b"]).status.code(), Some(0), "it is not asked for");
}

#[test]
fn sub_begins_with_the_values_and_shows_which_messages_are_values() {
    let buses = with_values();
    let mut text = buses.subscribe(&["--retained", "plant/*"]);
    let mut json = buses.subscribe(&["--retained", "plant/*", "--json"]);
    let payloads = buses.subscribe(&["--retained", "plant/*", "--payload-only", "-n", "3"]);
    let mut template = buses.subscribe(&["--retained", "plant/*", "-F", "%r %t %p"]);
    let without_state = buses.subscribe(&["--retained", "plant/*", "-F", "%t", "-n", "3"]);
    let mut plain = buses.subscribe(&["plant/*"]);
    for line in ["retained\tplant/a\t\n", "retained\tplant/b\tä\n"] {
        assert_eq!(text.line(), line);
    }
    buses.succeed(&["clear", "plant/a"]);
    buses.succeed(&["pub", "plant/a", "new"]);
    for line in ["cleared\tplant/a\t\n", "-\tplant/a\tnew\n"] {
        assert_eq!(text.line(), line);
    }
    for line in
        ["retained plant/a \n", "retained plant/b ä\n", "cleared plant/a \n", "- plant/a new\n"]
    {
        assert_eq!(template.line(), line);
    }
    let lines: Vec<_> = (0..4).map(|_| json_lines(json.line().as_bytes()).remove(0)).collect();
    let state = |field: &str| lines.iter().map(|line| line[field] == true).collect::<Vec<_>>();
    assert_eq!(state("retained"), [true, true, false, false], "{lines:?}");
    assert_eq!(state("cleared"), [false, false, true, false], "{lines:?}");
    assert!(lines[2].get("payload").is_none() && lines[2].get("length").is_none(), "{lines:?}");
    assert_eq!((&lines[2]["topic"], &lines[2]["sequence"]), (&json!("plant/a"), &json!("4")));
    // Where there is no place for it, and where --count counts messages.
    assert_eq!(payloads.finish().stdout, "\nä\nnew\n".as_bytes());
    assert_eq!(without_state.finish().stdout, b"plant/a\nplant/b\nplant/a\n");
    assert_eq!(plain.line(), "plant/a\tnew\n", "others learn nothing of it");
    for excluded in [["--last", "1"], ["--file", "day.mcap"]] {
        let arguments = [&["sub", "--retained"], &excluded[..]].concat();
        assert_eq!(buses.run(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn sub_reports_a_missing_value_as_a_loss() {
    let buses = with_a_missing_value();
    let sub =
        |more: &[&str]| buses.run(&[&["sub", "--retained", "plant/*", "-t", "0.1"], more].concat());
    let output = sub(&[]);
    assert_eq!(code_and_errors(&output), (Some(0), MISSING.to_owned()));
    assert_eq!(output.stdout, "retained\tplant/b\tä\n".as_bytes());
    let (code, said) = code_and_errors(&sub(&["--strict"]));
    assert!(code == Some(3) && said.starts_with(MISSING), "{said}");
    assert_eq!(code_and_errors(&sub(&["-q"])), (Some(0), String::new()));
    let lines = json_lines(&sub(&["--json"]).stdout);
    let lost = json!({ "messages": "1", "bytes": "3000", "topic": "plant/a", "sequence": "4" });
    assert_eq!(lines[1], json!({ "lost": lost }), "{lines:?}");
    assert!(code_and_errors(&sub(&["-v"])).1.ends_with(", 1 lost\n"));
}

#[test]
fn clear_ends_a_value_and_says_if_there_was_none() {
    let buses = with_a_missing_value();
    // Also one that is missing.
    for topic in ["plant/a", "plant/b"] {
        assert_eq!(buses.succeed(&["clear", topic]), "");
        let (code, said) = code_and_errors(&buses.run(&["clear", topic]));
        let wanted = format!("toroni: {topic} has no value that could be cleared: `toroni topics`");
        assert!(code == Some(1) && said.starts_with(&wanted), "{said}");
        assert_eq!(buses.run(&["get", topic]).status.code(), Some(1));
    }
    // A name that was mistyped is not retained, and takes no place of another topic.
    for topic in ["plnat/a", "other"] {
        assert_eq!(buses.run(&["clear", topic]).status.code(), Some(1));
    }
    assert_eq!(buses.info("default")["retained"]["topics"], 2);
    let (code, said) = code_and_errors(&buses.run(&["clear", "plant/*"]));
    assert!(code == Some(2) && said.contains("is a pattern, and clear takes one topic"), "{said}");
    // The topic stays retained.
    buses.succeed(&["pub", "plant/a", "again"]);
    assert_eq!(buses.succeed(&["get"]), "plant/a\tagain\n");
}

#[test]
fn pub_retains_the_topic_of_each_kind_of_publisher() {
    let buses = Buses::new();
    buses.succeed(&["pub", "--retain", "a", "1"]);
    buses.succeed(&["pub", "--retain", "--exclusive", "b", "2"]);
    buses.run_with_input(&["pub", "--retain", "c"], b"first\nlast\n");
    buses.run_with_input(&["pub", "--retain", "d", "--batch", "2"], b"first\nlast\n");
    buses.run_with_input(&["pub", "--retain", "e"], b"");
    assert_eq!(buses.succeed(&["get"]), "a\t1\nb\t2\nc\tlast\nd\tlast\n");
    // Without a message, the topic is retained.
    assert_eq!(buses.info("default")["retained"]["topics"], 5);
}

#[test]
fn pub_publishes_only_what_can_be_retained_and_says_what_to_do() {
    let buses = with_values();
    buses.succeed(&["create", "without", "--retained-topics", "0"]);
    let published = buses.info("default")["messages"].clone();
    let output = buses.run_with_input(&["pub", "--retain", "plant/a", "--raw"], LONG);
    let (code, said) = code_and_errors(&output);
    let wanted =
        "a record of 3008 bytes is too long for a value, which may have 1024: make it shorter, or";
    assert!(code == Some(1) && said.contains(wanted), "{said}");
    assert!(said.ends_with("(option --retained-bytes)\n"), "{said}");
    assert_eq!(buses.info("default")["messages"], published);
    // The third topic is the last one that can be retained.
    buses.succeed(&["pub", "--retain", "c", "x"]);
    for (arguments, wanted) in [
        (&["pub", "--retain", "d", "x"][..], "3 topics are retained: "),
        (&["--bus", "without", "pub", "--retain", "a", "x"], "the bus keeps no values: "),
        (&["--bus", "without", "sub", "--retained"], "the bus keeps no values: "),
        (&["--bus", "without", "get"], "the bus keeps no values: "),
        (&["--bus", "without", "clear", "a"], "the bus keeps no values: "),
    ] {
        let (code, said) = code_and_errors(&buses.run(arguments));
        assert!(code == Some(1) && said.contains(wanted), "{arguments:?}: {said}");
        assert!(said.ends_with("(option --retained-topics)\n"), "{arguments:?}: {said}");
    }
    // All of the room is in use.
    let mut said = String::new();
    for size in (100..900).step_by(50) {
        for topic in ["plant/a", "plant/b", "c"] {
            let output = buses.run(&["pub", "--retain", topic, "--size", &size.to_string()]);
            said += &code_and_errors(&output).1;
        }
    }
    let wanted = "toroni: all 4096 bytes for values are in use: create the bus with more bytes for retained topics (option --retained-bytes)\n";
    assert!(said.ends_with(wanted), "{said}");
}

#[test]
fn a_pipe_copies_values_and_their_ends() {
    let buses = with_values();
    let mut subscriber = buses.subscribe(&["--retained", "plant/*", "--json", "-n", "3"]);
    let mut copied = subscriber.line() + &subscriber.line();
    buses.succeed(&["clear", "plant/a"]);
    buses.succeed(&["pub", "plant/b", "last"]);
    copied += std::str::from_utf8(&subscriber.finish().stdout).unwrap();
    assert_eq!(copied.lines().count(), 4, "{copied}");
    let copy = |bus: &str, more: &[&str]| {
        let arguments = [&["-b", bus, "pub", "--json", "-q"], more].concat();
        let output = buses.run_with_input(&arguments, copied.as_bytes());
        assert!(output.status.success(), "{output:?}");
    };
    copy("copy", &["--retain"]);
    assert_eq!(buses.succeed(&["-b", "copy", "get"]), "plant/b\tlast\n");
    assert_eq!(buses.info("copy")["retained"]["topics"], 2);
    copy("plain", &[]);
    let info = buses.info("plain");
    assert_eq!((&info["messages"], &info["retained"]["topics"]), (&json!(3), &json!(0)));
    // What is wrong with a topic says which line it is on.
    buses.succeed(&["create", "one", "--retained-topics", "1"]);
    let output =
        buses.run_with_input(&["-b", "one", "pub", "--json", "--retain"], copied.as_bytes());
    let (code, said) = code_and_errors(&output);
    let wanted = "toroni: line 2 of standard input: 1 topics are retained: ";
    assert!(code == Some(1) && said.starts_with(wanted), "{said}");
    assert!(said.ends_with("(option --retained-topics)\n"), "{said}");
}

#[test]
fn topics_and_info_show_values() {
    let buses = with_a_missing_value();
    buses.succeed(&["pub", "--retain", "plant/c", "x"]);
    buses.succeed(&["clear", "plant/c"]);
    let topics = json_lines(buses.succeed(&["topics", "--json"]).as_bytes());
    let value = |name: &str| &topics.iter().find(|topic| topic["topic"] == name).unwrap()["value"];
    assert_eq!(value("other"), &json!(null));
    assert_eq!(value("plant/a"), &json!({ "state": "missing", "sequence": 4, "bytes": 3000 }));
    let kept = value("plant/b");
    assert_eq!(
        (&kept["state"], &kept["sequence"], &kept["bytes"]),
        (&json!("kept"), &json!(3), &json!(2))
    );
    assert!(kept["published"].as_f64().is_some_and(|time| time > 1e9), "{kept}");
    assert_eq!(value("plant/c"), &json!({ "state": "none" }));
    let text = buses.succeed(&["topics"]);
    let cells = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect::<Vec<_>>()[3..5].to_vec()
    };
    assert_eq!(cells("TOPIC"), ["VALUE", "AGE"]);
    assert!(!buses.succeed(&["topics", "other"]).contains("VALUE"), "no topic there is retained");
    assert_eq!(cells("plant/a"), ["missing (2.93 KiB)", "-"]);
    assert_eq!(cells("plant/c"), ["none", "-"]);
    assert_eq!(cells("other"), ["-", "-"]);
    let [value, age] = &cells("plant/b")[..] else { panic!("{text}") };
    assert!(value == "2 B" && age.ends_with('s'), "{text}");

    let retained = &buses.info("default")["retained"];
    assert_eq!(
        [&retained["topics"], &retained["max_topics"], &retained["missing"], &retained["bytes"]],
        [&json!(3), &json!(3), &json!(1), &json!(4096)]
    );
    assert!(retained["used_bytes"].as_u64().is_some_and(|used| used > 0), "{retained}");
    let text = buses.succeed(&["info"]);
    let line = text.lines().find(|line| line.starts_with("retained ")).unwrap();
    assert!(
        line.starts_with("retained    3 of 3 topics, ") && line.contains(" of 4 KiB in use; "),
        "{line}"
    );
    assert!(line.ends_with("no room for 1 value (`toroni create --retained-bytes`)"), "{line}");
}

#[test]
fn the_doctor_says_what_has_no_room() {
    let findings = |buses: &Buses| {
        let findings = json_lines(&buses.run(&["doctor", "--json"]).stdout);
        let of_values =
            findings.into_iter().filter(|finding| finding["check"] == "retained topics");
        let text = |finding: &serde_json::Value| {
            [&finding["status"], &finding["message"], &finding["remedy"]]
                .map(|field| field.as_str().unwrap_or("none").to_owned())
        };
        of_values.map(|finding| text(&finding)).collect::<Vec<_>>()
    };
    let buses = with_values();
    assert_eq!(findings(&buses), [["ok", "no value is missing", "none"]]);
    buses.succeed(&["pub", "--retain", "c", "x"]);
    let of_topics = [
        "warn",
        "default: 3 topics are retained, of at most 3",
        "create the bus again with a larger --retained-topics",
    ];
    assert_eq!(findings(&buses), [of_topics]);
    let buses = Buses::new();
    buses.succeed(&["create", "default", "--retained-bytes", "4KiB"]);
    let mut topics = (0..).map(|number| format!("t/{number}"));
    while buses.run(&["pub", "--retain", &topics.next().unwrap(), "short"]).status.success() {}
    let found = findings(&buses);
    let [[status, message, remedy]] = &found[..] else { panic!("{found:?}") };
    assert!(message.starts_with("default: the room for values is nearly used up, "), "{message}");
    assert_eq!(
        (&**status, &**remedy),
        ("warn", "create the bus again with a larger --retained-bytes")
    );
    let found = findings(&with_a_missing_value());
    let [[status, message, remedy]] = &found[..] else { panic!("{found:?}") };
    assert!(status == "warn" && message.starts_with("default: no room for 1 value, "), "{message}");
    assert_eq!(remedy, "create the bus again with a larger --retained-bytes");
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_count_values() {
    let buses = with_a_missing_value();
    let samples = crate::metrics::of(&buses);
    let value = |name: &str| {
        samples.value(&format!("toroni_retained_{name}"), &[("bus", "default")]).unwrap()
    };
    assert_eq!([value("topics"), value("max_topics"), value("missing")], [2.0, 3.0, 1.0]);
    assert_eq!(value("bytes"), 4096.0);
    assert!(value("used_bytes") > 0.0 && value("used_bytes") <= 4096.0);
}
