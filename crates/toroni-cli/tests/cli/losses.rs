//! `sub` reports the messages that it lost because it was too slow.

use crate::support::{Buses, Process, json_lines};
use rustix::process::Signal;
use serde_json::Value;

/// Starts and stops a subscriber, publishes twice as much as the ring holds, and continues the subscriber.
fn overwhelmed(buses: &Buses, arguments: &[&str]) -> Process {
    buses.succeed(&["create", "default", "--capacity", "64KiB", "--policy", "overwrite"]);
    let subscriber = buses.subscribe(arguments);
    subscriber.signal(Signal::STOP);
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "150"]);
    buses.succeed(&["pub", "t", "the last"]);
    subscriber.signal(Signal::CONT);
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
