//! `sub --json | pub --json` copies messages from one bus to another.

use crate::support::{Buses, Process, json_lines};
use std::process::Stdio;

/// Returns topic, `to_descendants` and payload in hexadecimal digits of each message on the bus.
fn content(buses: &Buses, bus: &str) -> Vec<(String, String, String)> {
    let arguments = ["-b", bus, "sub", "--from", "oldest", "-t", "0.2", "-F", "%t %d %x"];
    buses
        .succeed(&arguments)
        .lines()
        .map(|line| {
            let mut fields = line.split(' ').map(str::to_owned);
            (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap())
        })
        .collect()
}

#[test]
fn a_pipe_copies_messages_exactly() {
    let buses = Buses::new();
    let large: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let payloads: [&[u8]; 9] = [
        b"",
        b"\0",
        b"line\nfeeds\r\n\n",
        b"\xff\xfe\x00\x80",
        "quote \" backslash \\ \u{2028} \u{7f} \u{1b} ä\u{1f600}".as_bytes(),
        b"{\"topic\":\"x\",\"payload\":\"y\"}",
        b"{\"lost\":{\"messages\":\"1\",\"bytes\":\"1\"}}",
        &large,
        // In JSON, each byte takes six.
        &[1; 300_000],
    ];
    for (number, payload) in payloads.iter().enumerate() {
        let topic = format!("from/\"{number}\\");
        let mut arguments = vec!["-b", "a", "pub", &topic, "--raw"];
        if number % 2 == 1 {
            arguments.push("--to-descendants");
        }
        let output = buses.run_with_input(&arguments, payload);
        assert!(output.status.success(), "{output:?}");
    }
    let count = payloads.len().to_string();
    let sub = ["-b", "a", "sub", "--json", "--from", "oldest", "-n", &count];
    let mut subscriber = buses.start(&sub);
    let pipe = subscriber.take_stdout().unwrap();
    let mut command = buses.command(&["-b", "b", "pub", "--json", "--summary"]);
    let publisher = Process::start(command.stdin(Stdio::from(pipe)));
    let output = publisher.finish();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json_lines(&output.stdout)[0]["messages"], payloads.len());
    assert!(subscriber.wait().success());

    let copied = content(&buses, "b");
    assert_eq!(copied, content(&buses, "a"));
    for (number, payload) in payloads.iter().enumerate() {
        let digits: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        let descendants = (number % 2).to_string();
        assert_eq!(copied[number], (format!("from/\"{number}\\"), descendants, digits));
    }
}

const LOSSY: &[u8] = b"{\"topic\":\"t\",\"payload\":\"before\"}\n\
    {\"lost\":{\"messages\":\"18446744073709551615\",\"bytes\":\"9007199254740993\"}}\n\
    {\"topic\":\"t\",\"payload\":\"behind\"}\n";

#[test]
fn losses_in_the_input_are_reported() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let output = buses.run_with_input(&["pub", "--json"], LOSSY);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "toroni: line 2 of standard input reports a loss of 18,446,744,073,709,551,615 messages (9007199254740993 bytes)\n"
    );
    assert_eq!(buses.info("default")["messages"], 2);
    let quiet = buses.run_with_input(&["pub", "--json", "-q"], LOSSY);
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{quiet:?}");
    let strict = buses.run_with_input(&["pub", "--json", "--strict"], LOSSY);
    assert_eq!(strict.status.code(), Some(3));
    assert_eq!(buses.info("default")["messages"], 5, "what was before the loss is published");
}

#[test]
fn a_bad_line_is_reported_with_number_and_reason() {
    let buses = Buses::new();
    buses.succeed(&["create", "default", "--capacity", "64KiB"]);
    let long = "x".repeat(40_000);
    let longest = "x".repeat(300_000);
    for (line, reason) in [
        ("not JSON", "column 2: expected ident"),
        ("", "column 0: EOF while parsing a value"),
        ("{\"topic\":\"t\"}", "\"payload\" is missing"),
        ("{\"topic\":\"a/*\",\"payload\":\"\"}", "a/*"),
        ("{\"topic\":\"t\",\"payload\":\"!\",\"encoding\":\"base64\"}", "\"payload\": Invalid"),
        (
            &format!("{{\"topic\":\"t\",\"payload\":\"{long}\"}}"),
            "the payload is too long (more than 32",
        ),
        (
            &format!("{{\"topic\":\"t\",\"payload\":\"{longest}\"}}"),
            "a line is too long (more than 20",
        ),
    ] {
        let input = format!("{{\"topic\":\"t\",\"payload\":\"fine\"}}\n{line}\n");
        let before = buses.info("default")["messages"].as_u64().unwrap();
        let output = buses.run_with_input(&["pub", "--json"], input.as_bytes());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("toroni: line 2 of standard input: "), "{said}");
        assert!(said.contains(reason), "{said}");
        assert_eq!(buses.info("default")["messages"], before + 1);
    }
}

#[test]
fn options_that_conflict_with_json_are_rejected() {
    let buses = Buses::new();
    for arguments in [
        &["pub", "--json", "t"][..],
        &["pub", "--json", "--raw"],
        &["pub", "--json", "--batch", "2"],
        &["pub", "t", "x", "--strict"],
        &["pub"],
    ] {
        let output = buses.run_with_input(arguments, b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert!(buses.entries().is_empty());
}
