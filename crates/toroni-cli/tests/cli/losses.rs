//! `sub` reports the messages that it lost because it was too slow, and those that were lost on their way to the bus.

use crate::support::{Buses, Process, json_lines, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use toroni::{BusConfig, Limit, Lost, LostBound, LostReason, Origin};

/// Starts and stops a subscriber, publishes twice as much as the ring holds, and continues the subscriber.
fn overwhelmed(buses: &Buses, arguments: &[&str]) -> Process {
    buses.succeed(&["create", "default", "--capacity", "64KiB", "--policy", "overwrite"]);
    let subscriber = buses.subscribe(arguments);
    subscriber.stop();
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "150"]);
    buses.succeed(&["pub", "t", "the last"]);
    subscriber.resume();
    subscriber
}

#[test]
fn strict_ends_with_3() {
    let buses = Buses::new();
    let output = overwhelmed(&buses, &["--strict"]).finish();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("messages"), "{output:?}");
    assert_eq!(buses.subscriber_count("default"), 0);
}

#[test]
fn newest_continues_with_the_last_message_and_counts_all_others() {
    let buses = Buses::new();
    let output = overwhelmed(&buses, &["--json", "--newest", "--count", "1", "t"]).finish();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = json_lines(&output.stdout);
    let [lapse, last] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&lapse["lost"]["messages"], &last["payload"]), (&json!("150"), &json!("the last")));
}

#[test]
fn without_strict_sub_continues() {
    let buses = Buses::new();
    let mut subscriber = overwhelmed(&buses, &["--json"]);
    let mut received = Vec::new();
    loop {
        let line = subscriber.line();
        let message = json_lines(line.as_bytes()).remove(0);
        let last = message["payload"] == "the last";
        received.push(message);
        if last {
            break;
        }
    }
    subscriber.signal(Signal::INT);
    let output = subscriber.finish();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{output:?}");
    // Each loss is reported between the messages around it, so sequence numbers and losses add up.
    let (mut expected, mut losses) = (0, 0);
    for line in &received {
        if let Some(lost) = line.get("lost") {
            expected += number(&lost["messages"]);
            assert!(number(&lost["bytes"]) >= 1000 * number(&lost["messages"]), "{line}");
            losses += 1;
        } else {
            assert_eq!(number(&line["sequence"]), expected, "{line}");
            expected += 1;
        }
    }
    assert!(losses > 0);
    assert_eq!(expected, 151);
}

/// Parses an exact integer, which is a string in the JSON.
fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn text_losses_go_to_standard_error_unless_quiet() {
    for quiet in [false, true] {
        let buses = Buses::new();
        let arguments = if quiet { &["--quiet"][..] } else { &["--color", "always"] };
        let mut subscriber = overwhelmed(&buses, arguments);
        while !subscriber.line().ends_with("\tthe last\n") {}
        subscriber.signal(Signal::INT);
        let said = String::from_utf8(subscriber.finish().stderr).unwrap();
        assert_eq!(said.is_empty(), quiet, "{said}");
        assert!(quiet || said.starts_with("\u{1b}[1;33mtoroni:\u{1b}[0m "), "{said:?}");
    }
}

/// Publishes a loss of `messages` messages.
fn publish_lost(buses: &Buses, messages: u64, scope: &str) {
    let bus = BusConfig::new().directory(buses.path()).open_existing("default").unwrap();
    let lost = Lost {
        from: Origin { source: 0xA, series: 0xB, stream: 3, number: 7 },
        until: 90,
        messages,
        bound: LostBound::AtMost,
        reason: LostReason::Budget,
        scope: vec![scope.parse().unwrap()],
    };
    // Its numbers remain open, so that the next loss is not a duplicate.
    bus.inlet().unwrap().publish_lost(&lost, Some(0), Limit::Policy).unwrap();
}

/// A bus with a message on `plant/a`, a loss for patterns below `plant`, one for patterns below `alarm`, and a message.
fn with_losses_on_the_way() -> Buses {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    buses.succeed(&["pub", "plant/a", "before"]);
    publish_lost(&buses, 5, "plant/**");
    publish_lost(&buses, 6, "alarm/**");
    buses.succeed(&["pub", "plant/a", "after"]);
    buses
}

#[test]
fn losses_on_the_way_stand_at_their_place_in_json() {
    let buses = with_losses_on_the_way();
    for start in [["--from", "oldest"], ["--last", "2"]] {
        let arguments = [&["sub", "--json", "-n", "2", "plant/*"], &start[..]].concat();
        let lines = json_lines(buses.succeed(&arguments).as_bytes());
        let [before, lost, after] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&before["payload"], &before["sequence"]), (&json!("before"), &json!("0")));
        assert_eq!((&after["payload"], &after["sequence"]), (&json!("after"), &json!("3")));
        let expected = json!({
            "messages": "5",
            "bound": "at_most",
            "reason": "budget",
            "source": "0000000a",
            "series": "0000000b",
            "stream": 3,
            "from": "7",
            "until": "90",
            "scope": ["plant/**"],
        });
        assert_eq!(lost, &json!({ "lost": expected }));
    }
}

#[test]
fn losses_on_the_way_are_reported_like_others() {
    const SAID: &str = "toroni: at most 5 messages of stream 3 of source 0000000a were lost on the way to this bus: they could not be repaired in time\n";
    let buses = with_losses_on_the_way();
    let sub = |more: &[&str]| {
        buses.run(&[&["sub", "--from", "oldest", "-n", "2", "plant/*"], more].concat())
    };
    let plain = sub(&[]);
    assert_eq!(plain.status.code(), Some(0), "{plain:?}");
    assert_eq!(plain.stdout, b"plant/a\tbefore\nplant/a\tafter\n");
    assert_eq!(String::from_utf8(plain.stderr).unwrap(), SAID);
    let quiet = sub(&["-q"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{quiet:?}");
    let strict = sub(&["--strict"]);
    assert_eq!(strict.status.code(), Some(3), "{strict:?}");
    assert_eq!(strict.stdout, b"plant/a\tbefore\n");
    assert!(String::from_utf8(strict.stderr).unwrap().starts_with(SAID));
    let verbose = String::from_utf8(sub(&["--verbose"]).stderr).unwrap();
    assert!(verbose.ends_with(", 5 lost\n"), "{verbose}");
    // Nothing concerns this one.
    let other = buses.run(&["sub", "--from", "oldest", "--strict", "-t", "100ms", "other"]);
    assert!(other.status.success() && other.stderr.is_empty(), "{other:?}");
}

#[test]
fn losses_on_the_way_are_neither_topics_nor_errors_of_other_commands() {
    let buses = with_losses_on_the_way();
    let topics = json_lines(buses.succeed(&["topics", "--json"]).as_bytes());
    let counts = |name: &str| {
        let topic = topics.iter().find(|topic| topic["topic"] == name);
        topic.map(|topic| topic["messages"].clone())
    };
    assert_eq!(counts("plant/a"), Some(json!(2)), "{topics:?}");
    assert_eq!(topics.len(), 1, "{topics:?}");
    assert_eq!(buses.info("default")["messages"], 4);

    let mut copied = buses.run(&["sub", "--json", "--from", "oldest", "-n", "2", "plant/*"]);
    let input = std::mem::take(&mut copied.stdout);
    buses.succeed(&["create", "copy"]);
    let output = buses.run_with_input(&["-b", "copy", "pub", "--json"], &input);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "toroni: line 2 of standard input reports a loss of at most 5 messages on the way to the bus that it is from\n"
    );
    assert_eq!(buses.info("copy")["messages"], 2);
    let strict = buses.run_with_input(&["-b", "copy", "pub", "--json", "--strict"], &input);
    assert_eq!(strict.status.code(), Some(3), "{strict:?}");
}

#[test]
fn info_shows_the_losses_that_a_subscriber_was_told_of() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let mut subscriber = buses.subscribe(&["--json", "plant/*"]);
    for messages in [5, 6] {
        publish_lost(&buses, messages, "plant/**");
        let line = json_lines(subscriber.line().as_bytes()).remove(0);
        assert_eq!(line["lost"]["messages"], messages.to_string(), "{line}");
    }
    let info = buses.info("default");
    let shown = &info["subscribers"][0];
    assert_eq!((&shown["losses"], &shown["lost_on_the_way"]), (&json!(2), &json!(11)), "{info}");
    assert_eq!((&shown["lost_messages"], &shown["lapses"]), (&json!(0), &json!(0)));
    // The losses have sequences.
    assert_eq!(info["messages"], 2);
    let text = buses.succeed(&["info", "default"]);
    let mut lines = text.lines().skip_while(|line| !line.contains("LOST ON THE WAY"));
    let (head, row) = (lines.next().unwrap(), lines.next().unwrap());
    let end = head.find("LOST ON THE WAY").unwrap() + "LOST ON THE WAY".len();
    assert!(row[..end].ends_with(" 11"), "{text}");
    subscriber.signal(Signal::INT);
    assert_eq!(subscriber.finish().status.code(), Some(0));
}

#[test]
fn hz_counts_losses_on_the_way_separately() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let mut hz = buses.start(&["hz", "--json", "--interval", "200ms", "plant/*"]);
    wait_until("hz has subscribed", || buses.subscriber_count("default") == 1);
    publish_lost(&buses, 5, "plant/**");
    let report = loop {
        let report = json_lines(hz.line().as_bytes()).remove(0);
        if report["lost_on_the_way"] != 0 {
            break report;
        }
    };
    assert_eq!((&report["lost_on_the_way"], &report["lost_messages"]), (&json!(5), &json!(0)));
    hz.signal(Signal::INT);
    assert_eq!(hz.finish().status.code(), Some(0));
}
