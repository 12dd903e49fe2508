//! The examples, run as their users run them: they work with each other, end on Ctrl-C, and leave
//! nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod common;

use common::Fixture;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The limit for everything: only a test that hangs reaches it.
const LIMIT: Duration = Duration::from_secs(60);

/// A running example; killed when dropped.
struct Example {
    name: &'static str,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    errors: Option<JoinHandle<String>>,
}

impl Example {
    /// Starts it on the buses of the fixture.
    fn start(fixture: &Fixture, name: &'static str, arguments: &[&str]) -> Self {
        Self::start_on(fixture, "default", name, arguments)
    }

    fn start_on(fixture: &Fixture, bus: &str, name: &'static str, arguments: &[&str]) -> Self {
        let mut child = Command::new(path(name))
            .args(arguments)
            .env("TORONI_DIR", fixture.path())
            .env("TORONI_BUS", bus)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            // Ends with the example, or when the test has ended.
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        let mut errors = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            errors.read_to_end(&mut text).ok();
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { name, child, lines, seen: Vec::new(), errors: Some(errors) }
    }

    /// Waits for a line that it prints.
    fn wait_for(&mut self, what: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if what(&line) {
                        return line;
                    }
                }
                Err(error) => {
                    let errors = match error {
                        RecvTimeoutError::Disconnected => {
                            self.errors.take().unwrap().join().unwrap()
                        }
                        RecvTimeoutError::Timeout => String::new(),
                    };
                    let name = self.name;
                    panic!("{name}: {error}; it printed:\n{}\n{errors}", self.seen.join("\n"));
                }
            }
        }
    }

    fn wait_for_prefix(&mut self, prefix: &str) -> String {
        self.wait_for(|line| line.starts_with(prefix))
    }

    /// Ends it with a signal; it has to succeed and be silent about it. Returns what else it printed.
    fn end(mut self, signal: Signal) -> Vec<String> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let status = self.wait();
        let errors = self.errors.take().unwrap().join().unwrap();
        assert!(status.success(), "{}: {status}\n{errors}", self.name);
        assert_eq!(errors, "", "{}", self.name);
        self.lines.iter().collect()
    }

    fn interrupt(self) -> Vec<String> {
        self.end(Signal::INT)
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `cargo test` builds examples beside its tests.
fn path(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build -p toroni --examples", path.display());
    path
}

/// No slot, dead or alive, and no socket.
fn assert_nothing_left(fixture: &Fixture, bus: &str) {
    let stats = fixture.config().open_existing(bus).unwrap().stats().unwrap();
    assert!(stats.publishers.as_ref().unwrap().is_empty(), "{stats:?}");
    assert!(stats.subscribers.as_ref().unwrap().is_empty(), "{stats:?}");
    assert!(stats.sockets.is_empty(), "{stats:?}");
    assert_eq!(stats.lock_owner, None);
}

#[test]
fn subscribe_prints_what_publish_publishes() {
    let fixture = Fixture::new();
    let mut subscribe = Example::start(&fixture, "subscribe", &[]);
    let publish = Example::start(&fixture, "publish", &[]);
    let first = subscribe.wait_for_prefix("hello/world hello ");
    let number: u64 = first.rsplit(' ').next().unwrap().parse().unwrap();
    // And from there on every one.
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
    // Each sees a sequence without a gap: the numbers of one publisher.
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
    // Three ticks: the timer is read, and goes on.
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
    bus.publisher("hello/you/there").unwrap().publish(b"nobody's but the counter's").unwrap();
    bus.publisher("host/cpu/7").unwrap().publish(b"busy").unwrap();
    assert_eq!(router.wait_for(|_| true), "greeting: good day");
    assert_eq!(router.wait_for(|_| true), "processor 7: busy");
    assert_eq!(router.interrupt(), ["3 messages in all"]);
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
    let shares: Vec<f64> = processor.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!(shares.len(), 5, "{processor}");
    assert!(shares.iter().all(|share| (0.0..=100.0).contains(share)), "{processor}");

    let total = watch.wait_for_prefix("host/memory/MemTotal ");
    let said = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kilobytes: u64 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(total.ends_with(&format!(" {} bytes", kilobytes * 1024)), "{total}");

    // Whatever has no network at all has a loopback interface.
    let network = watch.wait_for(|line| {
        line.starts_with("host/network/") && line.contains("/tx ") && line.ends_with(" packets/s")
    });
    assert!(network.contains(" bytes/s "), "{network}");

    // The folder was under watch before the first measurement.
    std::fs::write(folder.join("touched"), b"content").unwrap();
    let events = ["created", "modified", "written"].map(|event| format!("host/files/{event} "));
    for event in &events {
        let seen = watch.seen.iter().any(|line| line.starts_with(event));
        assert!(!seen, "{event} before its time");
    }
    // One picture shows them all, sorted.
    for event in &events {
        assert!(watch.wait_for_prefix(event).ends_with(" touched"));
    }
    std::fs::remove_file(folder.join("touched")).unwrap();
    assert!(watch.wait_for_prefix("host/files/deleted ").ends_with(" touched"));

    assert!(telemetry.end(Signal::TERM).is_empty());
    watch.interrupt();
    assert_nothing_left(&fixture, "default");
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
        let errors = telemetry.errors.take().unwrap().join().unwrap();
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

/// Waits until somebody has subscribed.
fn wait_for_a_subscriber(bus: &toroni::Bus) {
    let deadline = Instant::now() + LIMIT;
    while bus.stats().unwrap().subscribers.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "nobody subscribes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder that goes with the fixture; its name is no bus's.
fn tempdir(fixture: &Fixture) -> PathBuf {
    let folder = fixture.path().join(".folder");
    std::fs::create_dir(&folder).unwrap();
    folder
}
