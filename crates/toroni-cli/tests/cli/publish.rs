//! `pub`: sources, sizes, batches, rates, waiting for subscribers.

use crate::support::{Buses, json_lines, wait_until};
use std::collections::HashMap;
use std::fmt::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn several_publishers_and_subscribers_see_one_order() {
    const LINES: usize = 3000;
    let buses = Buses::new();
    let subscribers: Vec<_> =
        (0..4).map(|_| buses.subscribe(&["--json", "--count", &(3 * LINES).to_string()])).collect();
    let texts: Vec<String> = (0..3)
        .map(|publisher| {
            let mut text = String::new();
            for line in 0..LINES {
                writeln!(text, "{publisher} {line} {}", "·".repeat(line % 97)).unwrap();
            }
            text
        })
        .collect();
    std::thread::scope(|scope| {
        for (publisher, text) in texts.iter().enumerate() {
            let buses = &buses;
            scope.spawn(move || {
                let topic = format!("file/{publisher}");
                let output = buses.run_with_input(&["pub", &topic], text.as_bytes());
                assert!(output.status.success(), "{output:?}");
            });
        }
    });
    let outputs: Vec<_> = subscribers
        .into_iter()
        .map(|subscriber| {
            let output = subscriber.finish();
            assert!(output.status.success(), "{:?}", output.stderr);
            output.stdout
        })
        .collect();
    assert!(outputs.windows(2).all(|two| two[0] == two[1]), "the outputs differ");
    let mut by_topic: HashMap<String, String> = HashMap::new();
    for message in json_lines(&outputs[0]) {
        let text = by_topic.entry(message["topic"].as_str().unwrap().to_owned()).or_default();
        writeln!(text, "{}", message["payload"].as_str().unwrap()).unwrap();
    }
    for (publisher, text) in texts.iter().enumerate() {
        assert_eq!(by_topic[&format!("file/{publisher}")], *text);
    }
}

#[test]
fn lines_are_bytes() {
    let buses = Buses::new();
    let input = b"\xff\xfe\n\ra\r\nwithout a line feed at the end";
    assert!(buses.run_with_input(&["pub", "t"], input).status.success());
    let output = buses.run(&["sub", "--from", "oldest", "--count", "3", "--payload-only"]);
    assert_eq!(output.stdout, b"\xff\xfe\n\ra\r\nwithout a line feed at the end\n");
}

#[test]
fn no_input_is_no_message() {
    let buses = Buses::new();
    assert!(buses.run_with_input(&["pub", "t"], b"").status.success());
    assert_eq!(buses.info("default")["messages"], 0);
}

#[test]
fn lines_are_published_at_once() {
    let buses = Buses::new();
    let mut subscriber = buses.subscribe(&["--payload-only"]);
    let mut command = buses.command(&["pub", "t"]);
    let mut publisher = crate::support::Process::start(command.stdin(Stdio::piped()));
    let mut input = publisher.stdin().unwrap();
    for line in ["first\n", "second\n"] {
        std::io::Write::write_all(&mut input, line.as_bytes()).unwrap();
        assert_eq!(subscriber.line(), line);
    }
    drop(input);
    assert!(publisher.wait().success());
}

#[test]
fn a_message_is_repeated_and_summarized() {
    let buses = Buses::new();
    let summary = buses.succeed(&["pub", "t", "four", "--repeat", "25", "--summary"]);
    let summary = &json_lines(summary.as_bytes())[0];
    assert_eq!(summary["messages"], 25);
    assert_eq!(summary["bytes"], 100);
    assert_eq!(buses.info("default")["messages"], 25);
    assert_eq!(buses.succeed(&["pub", "t", "quiet"]), "");
    assert_eq!(buses.succeed(&["pub", "t", "-5"]), "");
}

#[test]
fn generated_messages_are_numbered() {
    let buses = Buses::new();
    buses.succeed(&["pub", "t", "--size", "8", "--repeat", "12", "--batch", "5"]);
    let output = buses.succeed(&["sub", "--from", "oldest", "--count", "12", "--payload-only"]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "0 abcdef");
    assert_eq!(lines[11], "11 abcde");
    for (number, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("{number} ")) && line.len() == 8, "{line}");
    }
}

#[test]
fn batches_of_lines_are_complete() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "t", "--batch", "4"], b"1\n2\n3\n4\n5\n6\n");
    let output = buses.succeed(&["sub", "--from", "oldest", "--count", "6", "--payload-only"]);
    assert_eq!(output, "1\n2\n3\n4\n5\n6\n");
}

#[test]
fn a_file_is_published_in_chunks() {
    let buses = Buses::new();
    let path = buses
        .path()
        .join("..")
        .join(format!("{}.input", buses.path().file_name().unwrap().to_str().unwrap()));
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &content).unwrap();
    let subscriber = buses.subscribe(&["--format", "raw", "--count", "67"]);
    let path_text = path.to_str().unwrap();
    let output = buses.run(&["pub", "f", "--file", path_text, "--chunk", "6000"]);
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{output:?}");
    let received = subscriber.finish();
    assert!(received.status.success());
    assert!(received.stdout == content, "{} bytes came back", received.stdout.len());
    assert_eq!(buses.run(&["pub", "f", "--file", path_text]).status.code(), Some(1));
}

#[test]
fn pub_waits_for_subscribers() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let mut publisher = buses.start(&["pub", "t", "hello", "--wait-subscribers", "2"]);
    let first = buses.subscribe(&["--count", "1"]);
    assert!(publisher.ended().is_none());
    let second = buses.subscribe(&["--count", "1"]);
    assert!(publisher.wait().success());
    for subscriber in [first, second] {
        assert_eq!(subscriber.finish().stdout, b"t\thello\n");
    }
}

/// A subscriber of another topic does not count. `pub` reports what it waits for and which subscribers there are.
#[test]
fn pub_waits_for_subscribers_of_its_topic() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let _other = buses.subscribe(&["plants/**", "pump/speed"]);
    let mut publisher = buses.start(&["pub", "plant/pump", "hello", "--wait-subscribers", "1"]);
    let said = publisher.error_line();
    assert_eq!(
        said,
        "toroni: waiting for 1 subscriber of plant/pump: 1 on the bus, 0 of them match\n"
    );
    assert!(publisher.ended().is_none());
    let subscriber = buses.subscribe(&["alarm", "plant/*", "--count", "1"]);
    assert!(publisher.wait().success());
    assert_eq!(subscriber.finish().stdout, b"plant/pump\thello\n");
}

#[test]
fn subscribers_below_the_topic_count_for_descendants_only() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let below = buses.subscribe(&["plant/pump/speed", "--count", "1"]);
    buses.succeed(&["pub", "plant", "stop", "--to-descendants", "--wait-subscribers", "1"]);
    assert_eq!(below.finish().stdout, b"plant\tstop\n");
    let _below = buses.subscribe(&["plant/pump/speed"]);
    let publisher = buses.start(&["pub", "plant", "stop", "--wait-subscribers", "1"]);
    publisher.error_line();
    publisher.signal(rustix::process::Signal::INT);
    let output = publisher.finish();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("interrupted while waiting for 1 subscriber of plant: 1 on"), "{said}");
    assert_eq!(buses.info("default")["messages"], 1);
}

#[test]
fn a_rate_is_not_exceeded() {
    let buses = Buses::new();
    let started = Instant::now();
    buses.succeed(&["pub", "t", "--size", "10", "--repeat", "11", "--rate", "50/s"]);
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert_eq!(buses.info("default")["messages"], 11);
}

#[test]
fn too_long_messages_are_rejected() {
    let buses = Buses::new();
    buses.succeed(&["create", "small", "--capacity", "64KiB"]);
    let long = vec![b'x'; 40_000];
    for arguments in [&["--bus", "small", "pub", "t", "--raw"][..], &["--bus", "small", "pub", "t"]]
    {
        let output = buses.run_with_input(arguments, &long);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("too long (more than 32"), "{said}");
        assert!(!said.contains("40000"), "the input was not read to its end: {said}");
    }
    let output = buses.run(&["--bus", "small", "pub", "t", "--size", "1MiB"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(buses.info("small")["messages"], 0);
}

#[test]
fn the_longest_line_fits() {
    let buses = Buses::new();
    buses.succeed(&["create", "small", "--capacity", "64KiB"]);
    let run = |length: usize| {
        let mut line = vec![b'x'; length];
        line.extend(b"\nnext\n");
        buses.run_with_input(&["--bus", "small", "pub", "t"], &line)
    };
    let said = String::from_utf8(run(40_000).stderr).unwrap();
    let limit: usize =
        said.split_whitespace().find_map(|word| word.parse().ok()).expect("it says the limit");
    assert!(run(limit).status.success());
    assert_eq!(buses.info("small")["messages"], 2);
    assert_eq!(run(limit + 1).status.code(), Some(1));
    assert_eq!(buses.info("small")["messages"], 2);
}

#[test]
fn the_environment_names_the_bus() {
    let buses = Buses::new();
    let mut command = buses.command(&["pub", "t", "x"]);
    let output = command.env("TORONI_BUS", "other").output().unwrap();
    assert!(output.status.success());
    assert_eq!(buses.entries(), ["other"]);
    // The command line takes precedence.
    let mut command = buses.command(&["--bus", "third", "pub", "t", "x"]);
    assert!(command.env("TORONI_BUS", "other").output().unwrap().status.success());
    wait_until("both are there", || buses.entries() == ["other", "third"]);
}

#[test]
fn topics_have_no_wildcards() {
    let buses = Buses::new();
    let output = buses.run(&["pub", "plant/*", "x"]);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("toroni: "));
}
