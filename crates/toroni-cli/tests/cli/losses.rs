//! A subscriber that was too slow is told, and says so.

use crate::support::{Buses, Process, json_lines};
use rustix::process::Signal;

/// A stopped subscriber, and twice as much published as its ring holds.
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
fn without_strict_it_goes_on() {
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
    let lost: u64 =
        json_lines(&output.stderr).iter().map(|loss| loss["lost_messages"].as_u64().unwrap()).sum();
    assert_eq!(lost + u64::try_from(received.len()).unwrap(), 151);
    assert_eq!(received[0]["sequence"], lost);
}
