//! Signals and closed pipes end a command, and leave nothing behind.

use crate::support::{Buses, Process, wait_until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_signal_ends_a_subscriber() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let buses = Buses::new();
        let mut subscriber = buses.subscribe(&[]);
        buses.succeed(&["pub", "t", "one"]);
        assert_eq!(subscriber.line(), "t\tone\n");
        assert_eq!(buses.subscriber_count("default"), 1);
        subscriber.signal(signal);
        assert_eq!(subscriber.wait().code(), Some(0), "{signal:?}");
        assert_eq!(buses.subscriber_count("default"), 0);
        let sockets = buses.info("default")["sockets"].as_array().unwrap().len();
        assert_eq!(sockets, 0);
    }
}

#[test]
fn a_second_signal_right_after_the_first_is_ignored() {
    let buses = Buses::new();
    for _ in 0..3 {
        let subscriber = buses.subscribe(&[]);
        // Two of the same signal could arrive as one.
        subscriber.signal(Signal::TERM);
        subscriber.signal(Signal::HUP);
        let output = subscriber.finish();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        assert_eq!(buses.subscriber_count("default"), 0);
    }
}

#[test]
fn a_subscriber_interrupted_before_its_count_fails() {
    let buses = Buses::new();
    let subscriber = buses.subscribe(&["--count", "3"]);
    subscriber.signal(Signal::INT);
    assert_eq!(subscriber.finish().status.code(), Some(130));
}

#[test]
fn a_closed_pipe_is_a_normal_end() {
    let buses = Buses::new();
    let mut subscriber = buses.subscribe(&[]);
    buses.succeed(&["pub", "t", "--size", "100", "--repeat", "1000"]);
    subscriber.line();
    drop(subscriber.take_stdout());
    // Nothing more is published; it notices the closed pipe all the same.
    let output = subscriber.finish();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert_eq!(buses.subscriber_count("default"), 0);
}

#[test]
fn a_closed_pipe_ends_what_prints_much() {
    let buses = Buses::new();
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", "2000"]);
    for arguments in [&["sub", "--from", "oldest"][..], &["completions", "bash"], &["ls"]] {
        let mut process = buses.start(arguments);
        drop(process.take_stdout());
        let output = process.finish();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_signal_ends_a_publisher() {
    let buses = Buses::new();
    let mut subscriber = buses.subscribe(&[]);
    let mut command = buses.command(&["pub", "t"]);
    let publisher = Process::start(command.stdin(Stdio::piped()));
    wait_until("it publishes", || {
        buses.info("default")["publishers"].as_array().is_some_and(|all| !all.is_empty())
    });
    publisher.signal(Signal::INT);
    // This is how users end typing messages.
    assert_eq!(publisher.finish().status.code(), Some(0));

    let endless = buses.start(&["pub", "t", "x", "--repeat", "1000000", "--rate", "100"]);
    subscriber.line();
    endless.signal(Signal::TERM);
    let output = endless.finish();
    assert_eq!(output.status.code(), Some(143));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted after"), "{output:?}");
    assert_eq!(buses.info("default")["publishers"].as_array().unwrap().len(), 0);
}

#[test]
fn a_signal_ends_a_publisher_that_waits_forever() {
    let buses = Buses::new();
    buses.succeed(&["create", "default", "--capacity", "64KiB", "--policy", "wait:forever"]);
    let subscriber = buses.subscribe(&[]);
    subscriber.stop();
    let publisher = buses.start(&["pub", "t", "--size", "1000", "--repeat", "1000"]);
    wait_until("it waits", || buses.info("default")["publishers"][0]["waits"].as_u64() > Some(0));
    publisher.signal(Signal::INT);
    let output = publisher.finish();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("slow subscriber") && said.contains("toroni info default"), "{said}");
}

#[test]
fn an_inherited_descriptor_gets_a_line() {
    let buses = Buses::new();
    let program = env!("CARGO_BIN_EXE_toroni");
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$0\" sub --create --ready-fd 7 7>&2 2>/dev/null", program])
        .env("TORONI_DIR", buses.path())
        .env_remove("TORONI_BUS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut subscriber = toroni_testkit::Process::spawn(&mut command).unwrap();
    let mut ready = BufReader::new(subscriber.stderr().unwrap());
    let mut line = String::new();
    ready.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    line.clear();
    // It has closed the descriptor and still runs.
    assert_eq!(ready.read_line(&mut line).unwrap(), 0);
    assert_eq!(buses.subscriber_count("default"), 1);
    buses.succeed(&["pub", "t", "after"]);
    BufReader::new(subscriber.stdout().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "t\tafter\n");
}

#[test]
fn a_missing_descriptor_is_rejected() {
    let buses = Buses::new();
    for number in ["9", "0", "-1", "100000"] {
        let output = buses.run(&["sub", &format!("--ready-fd={number}")]);
        assert_eq!(output.status.code(), Some(2), "{number}: {output:?}");
    }
    assert!(buses.entries().is_empty(), "nothing is created for wrong usage");
}
