//! Tests that run the examples as their users do: they work with each other, end on Ctrl-C, and
//! leave nothing behind.

use crate::common::Fixture;
use crate::example::{Example, assert_nothing_left};
use rustix::process::Signal;
use std::path::PathBuf;

#[test]
fn subscribe_prints_what_publish_publishes() {
    let fixture = Fixture::new();
    let mut subscribe = Example::start(&fixture, "subscribe", &[]);
    let publish = Example::start(&fixture, "publish", &[]);
    let first = subscribe.wait_for_prefix("hello/world hello ");
    let number: u64 = first.rsplit(' ').next().unwrap().parse().unwrap();
    // And then every message.
    for next in number + 1..number + 4 {
        assert_eq!(subscribe.wait_for(|_| true), format!("hello/world hello {next}"));
    }
    assert!(publish.interrupt().is_empty());
    subscribe.interrupt();
    assert_nothing_left(&fixture, "default");
}

#[test]
fn a_bus_of_another_name_is_another_bus() {
    let fixture = Fixture::new();
    let mut here = Example::start_on(&fixture, "here", "subscribe", &[]);
    let mut there = Example::start_on(&fixture, "there", "subscribe", &[]);
    let publish = [
        Example::start_on(&fixture, "here", "publish", &[]),
        Example::start_on(&fixture, "there", "publish", &[]),
    ];
    // Each sees a sequence without gaps: the numbers of one publisher.
    for subscriber in [&mut here, &mut there] {
        let first = subscriber.wait_for_prefix("hello/world hello ");
        let number: u64 = first.rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(subscriber.wait_for(|_| true), format!("hello/world hello {}", number + 1));
    }
    publish.into_iter().for_each(|one| drop(one.interrupt()));
    here.interrupt();
    there.interrupt();
    for bus in ["here", "there"] {
        assert_nothing_left(&fixture, bus);
    }
}

#[test]
fn poll_loop_serves_two_buses_and_a_timer() {
    let fixture = Fixture::new();
    let mut poll_loop = Example::start_on(&fixture, "first", "poll_loop", &["second"]);
    let first = Example::start_on(&fixture, "first", "publish", &[]);
    poll_loop.wait_for_prefix("first: hello/world hello ");
    let second = Example::start_on(&fixture, "second", "publish", &[]);
    poll_loop.wait_for_prefix("second: hello/world hello ");
    // Three ticks: the timer is read and continues.
    let mut counts = (0, 0);
    for _ in 0..3 {
        let tick = poll_loop.wait_for_prefix("tick: ");
        let numbers: Vec<u64> = tick.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[0] >= counts.0 && numbers[1] >= counts.1, "{tick}");
        counts = (numbers[0], numbers[1]);
    }
    assert!(counts.0 > 0 && counts.1 > 0);
    first.interrupt();
    second.interrupt();
    poll_loop.interrupt();
    for bus in ["first", "second"] {
        assert_nothing_left(&fixture, bus);
    }
}

#[test]
fn router_calls_each_handler_for_its_topics() {
    let fixture = Fixture::new();
    let bus = fixture.config().open("default").unwrap();
    let mut router = Example::start(&fixture, "router", &[]);
    wait_for_a_subscriber(&bus);
    bus.publisher("hello/you").unwrap().publish(b"good day").unwrap();
    bus.publisher("hello/you/there").unwrap().publish(b"for the counter only").unwrap();
    bus.publisher("host/cpu/7").unwrap().publish(b"busy").unwrap();
    assert_eq!(router.wait_for(|_| true), "greeting: good day");
    assert_eq!(router.wait_for(|_| true), "processor 7: busy");
    assert_eq!(router.interrupt(), ["3 messages in total"]);
    drop(bus);
    assert_nothing_left(&fixture, "default");
}

#[test]
fn watch_shows_what_telemetry_measures() {
    let fixture = Fixture::new();
    let folder = tempdir(&fixture);
    let mut watch = Example::start(&fixture, "watch", &[]);
    let arguments = ["--interval", "0.1", folder.to_str().unwrap()];
    let telemetry = Example::start(&fixture, "telemetry", &arguments);

    let processor = watch.wait_for_prefix("host/cpu/0 ");
    let shares = numbers(&processor);
    let names: Vec<&str> = shares.iter().map(|(name, _)| name.as_str()).collect();
    let states = ["busy", "user", "system", "iowait", "steal"];
    assert_eq!(names, states.map(|state| format!("{state}_percent")), "{processor}");
    assert!(shares.iter().all(|(_, share)| (0.0..=100.0).contains(share)), "{processor}");

    let total = watch.wait_for_prefix("host/memory/MemTotal ");
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kilobytes: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(total.ends_with(&format!(r#"  {{"bytes":{}}}"#, kilobytes * 1024)), "{total}");

    // Even a machine without a network has a loopback interface.
    let network = watch.wait_for(|line| line.starts_with("host/network/") && line.contains("/tx "));
    let rates = numbers(&network);
    let names: Vec<&str> = rates.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bytes_per_s", "packets_per_s"], "{network}");

    // The folder was watched before the first measurement.
    std::fs::write(folder.join("touched"), b"content").unwrap();
    let events = ["created", "modified", "written"].map(|event| format!("host/files/{event} "));
    for event in &events {
        let seen = watch.seen.iter().any(|line| line.starts_with(event));
        assert!(!seen, "{event} came too early");
    }
    // One update shows them all, sorted.
    for event in &events {
        assert!(watch.wait_for_prefix(event).ends_with(" touched"));
    }
    std::fs::remove_file(folder.join("touched")).unwrap();
    assert!(watch.wait_for_prefix("host/files/deleted ").ends_with(" touched"));

    assert!(telemetry.end(Signal::TERM).is_empty());
    watch.interrupt();
    assert_nothing_left(&fixture, "default");
}

/// Returns the names and numbers of the JSON object at the end of a line.
fn numbers(line: &str) -> Vec<(String, f64)> {
    let (_, object) = line.split_once('{').expect(line);
    let fields = object.strip_suffix('}').expect(line).split(',');
    let number = |field: &str| {
        let (name, number) = field.strip_prefix('"')?.split_once("\":")?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    fields.map(|field| number(field).expect(line)).collect()
}

#[test]
fn telemetry_says_what_is_wrong() {
    let fixture = Fixture::new();
    for (arguments, code, text) in [
        (&["--interval", "0"][..], 2, "usage: "),
        (&["--interval"], 2, "usage: "),
        (&["--no-such-option"], 2, "usage: "),
        (&["/no/such/folder"], 1, "telemetry: /no/such/folder: No such file"),
    ] {
        let mut telemetry = Example::start(&fixture, "telemetry", arguments);
        assert_eq!(telemetry.wait().code(), Some(code), "{arguments:?}");
        let errors = telemetry.errors();
        assert!(errors.starts_with(text), "{errors}");
    }
}

#[cfg(feature = "tokio")]
#[test]
fn tokio_example_receives_beside_a_timer() {
    let fixture = Fixture::new();
    let mut tokio = Example::start(&fixture, "tokio", &[]);
    let publish = Example::start(&fixture, "publish", &[]);
    tokio.wait_for_prefix("hello/world hello ");
    tokio.wait_for(|line| line.starts_with("tick: ") && line != "tick: 0 messages");
    publish.interrupt();
    tokio.interrupt();
    assert_nothing_left(&fixture, "default");
}

/// Waits until there is a subscriber.
fn wait_for_a_subscriber(bus: &toroni::Bus) {
    toroni_testkit::wait::until("there is a subscriber", || {
        !bus.stats().unwrap().subscribers.unwrap().is_empty()
    });
}

/// Returns a folder that is removed with the fixture. Its name is not a valid bus name.
fn tempdir(fixture: &Fixture) -> PathBuf {
    let folder = fixture.path().join(".folder");
    std::fs::create_dir(&folder).unwrap();
    folder
}
