//! One order, through the program: three `toroni pub` publish every line of a text file each, while
//! four `toroni sub` print what they receive. All four print the same, to the byte.

use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use system_tests::program::workspace;
use system_tests::{Program, TempRoot, Watchdog};

/// Real text: prose, tables, a licence, and long runs of short lines.
const TEXTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "LICENSE-APACHE", "Cargo.lock"];

/// Each text is published this many times in a row, so that the ring is lapped.
const TIMES: usize = 16;

#[test]
fn four_subscribers_print_the_same_with_the_lock_kind_lease() {
    for (number, notify) in ["futex", "datagram", "multicast"].iter().enumerate() {
        publish_three_of(number, "lease", notify);
    }
}

#[test]
fn four_subscribers_print_the_same_with_the_lock_kind_robust() {
    for (number, notify) in ["futex", "datagram", "multicast"].iter().enumerate() {
        publish_three_of(number + 1, "robust", notify);
    }
}

/// All texts but the one of that number, around the corner.
fn publish_three_of(left_out: usize, lock: &str, notify: &str) {
    let _watchdog = Watchdog::start("order", Duration::from_secs(300));
    let texts: Vec<(String, Vec<u8>)> = TEXTS
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != left_out % TEXTS.len())
        .map(|(_, name)| {
            let bytes = std::fs::read(workspace().join(name)).expect("a text of this repository");
            (format!("text/{}", name.to_lowercase().replace('.', "-")), bytes.repeat(TIMES))
        })
        .collect();
    let total: usize = texts.iter().map(|(_, bytes)| lines(bytes).len()).sum();
    let bytes: usize = texts.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes > 4 * (64 << 10), "that is little text: {bytes} bytes");

    let root = TempRoot::new();
    // The smallest ring: a publisher that is ahead has to wait.
    let settings =
        ["--capacity", "64KiB", "--policy", "wait:forever", "--lock", lock, "--notify", notify];
    let _ = root.succeed(&[&["create", "texts"], &settings[..]].concat());

    let count = total.to_string();
    let mut subscribers: Vec<(Program, PathBuf)> = ["spin", "yield", "backoff", "block"]
        .iter()
        .map(|wait| {
            let output = root.file(&format!("output-{wait}"));
            let mut command = root.toroni(&["--bus", "texts", "sub", "**", "--json", "--strict"]);
            command.args(["--count", &count, "--timeout", "60", "--wait", wait]);
            command.stdout(File::create(&output).expect("a file for the output"));
            (Program::start_with_ready_fd(command), output)
        })
        .collect();
    subscribers.iter_mut().for_each(|(subscriber, _)| subscriber.wait_ready());

    let publishers: Vec<Program> = texts
        .iter()
        .map(|(topic, bytes)| {
            let input = root.file(&topic.replace('/', "-"));
            std::fs::write(&input, bytes).expect("a copy of the text");
            let mut command = root.toroni(&["--bus", "texts", "pub", topic]);
            command.args(["--wait-subscribers", "4"]);
            command.stdin(Stdio::from(File::open(&input).expect("the copy")));
            Program::start(command)
        })
        .collect();
    publishers.into_iter().for_each(|publisher| drop(publisher.succeed()));
    let outputs: Vec<Vec<u8>> = subscribers
        .into_iter()
        .map(|(subscriber, output)| {
            drop(subscriber.succeed());
            std::fs::read(output).expect("the output")
        })
        .collect();

    for output in &outputs[1..] {
        assert!(*output == outputs[0], "{lock} {notify}: two outputs differ");
    }
    check(&outputs[0], &texts);
    root.info("texts").assert_no_dead(true);
    root.assert_clean_leaves_nothing();
}

/// The messages are numbered without a gap, and those of each topic are the lines of its text.
fn check(output: &[u8], texts: &[(String, Vec<u8>)]) {
    let messages: Vec<Value> = lines(output)
        .into_iter()
        .map(|line| serde_json::from_slice(line).expect("a JSON object a line"))
        .collect();
    for (sequence, message) in messages.iter().enumerate() {
        assert_eq!(message["sequence"], sequence.to_string(), "{message}");
    }
    for (topic, bytes) in texts {
        let received: Vec<&[u8]> = messages
            .iter()
            .filter(|message| message["topic"] == **topic)
            .map(|message| message["payload"].as_str().expect("text").as_bytes())
            .collect();
        assert_eq!(received.len(), lines(bytes).len(), "{topic} is complete");
        assert!(received == lines(bytes), "the lines of {topic} are in order");
    }
}

/// The lines of a text, without their line feeds.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.split(|byte| *byte == b'\n').collect()
}
