//! `serve-metrics`: real publishers and subscribers, and what is wrong with a bus.

mod http;
mod prometheus;

use crate::openmetrics::{self, Samples};
use crate::support::{Buses, LIMIT, Process, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A running `serve-metrics`.
struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    fn start(buses: &Buses, arguments: &[&str]) -> Self {
        let arguments = [&["serve-metrics", "--listen", "127.0.0.1:0"], arguments].concat();
        Self::of(Process::start(&mut buses.command(&arguments)))
    }

    fn of(process: Process) -> Self {
        let line = loop {
            let said = process.errors();
            if let Some(line) = said.lines().find(|line| line.contains("serving http://")) {
                break line.to_owned();
            }
            process.wait_for_error("serving http://");
        };
        let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
        Self { process, address: address.parse().unwrap() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Sends a request and returns everything that comes back.
    fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the body of an answer with status 200.
    fn get(&self, path: &str, accept: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
        let answer = self.exchange(&request);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        body.to_owned()
    }

    fn metrics(&self) -> Samples {
        openmetrics::parse(&self.get("/metrics", "application/openmetrics-text"))
    }

    fn wait_for(&self, what: &str, condition: impl Fn(&Samples) -> bool) -> Samples {
        let mut last = self.metrics();
        wait_until(what, || {
            last = self.metrics();
            condition(&last)
        });
        last
    }
}

const RING: &str = "ring";

fn is_readable(samples: &Samples, bus: &str, part: &str) -> Option<f64> {
    samples.value("toroni_bus_readable", &[("bus", bus), ("part", part)])
}

/// Starts `pub` on a topic with a pipe as its input.
fn publisher(buses: &Buses, arguments: &[&str]) -> Process {
    let arguments = [&["pub", "t", "-q"], arguments].concat();
    Process::start(buses.command(&arguments).stdin(Stdio::piped()))
}

#[test]
fn metrics_show_what_publishers_and_subscribers_do() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant", "--capacity", "64KiB"]);
    let slow = buses.subscribe(&["-b", "plant", "t", "--no-gate", "--name", "slow \"one\"\\"]);
    let _quick = buses.subscribe(&["-b", "plant", "t", "--name", "quick"]);
    slow.stop();
    let server = Server::start(&buses, &["--bus", "plant"]);
    let bus = ("bus", "plant");
    let (mut camera, mut plc) = (
        publisher(&buses, &["-b", "plant", "--name", "camera", "--timestamps"]),
        publisher(&buses, &["-b", "plant", "--name", "plc"]),
    );
    for _ in 0..3 {
        camera.tell("351.2");
    }
    // Its first message is the oldest one, and has a timestamp.
    wait_until("the camera has published", || buses.info("plant")["messages"] == 3);
    plc.tell("1");
    // A publisher counts a message after subscribers can see it.
    let four = server.wait_for("all messages are counted", |samples| {
        let published = |name| samples.value("toroni_publisher_messages_total", &[("name", name)]);
        samples.value("toroni_messages_total", &[bus]) == Some(4.0)
            && samples.value("toroni_subscriber_received_total", &[("name", "quick")]) == Some(4.0)
            && [published("camera"), published("plc")] == [Some(3.0), Some(1.0)]
    });
    assert!(four.value("toroni_bytes_total", &[bus]).unwrap() >= 4.0 * 8.0);
    assert_eq!(four.value("toroni_ring_bytes", &[bus]), Some(65536.0));
    assert_eq!(four.value("toroni_topics", &[bus]), Some(1.0));
    let age = four.value("toroni_history_seconds", &[bus]).unwrap();
    assert!((0.0..600.0).contains(&age), "{age}");
    assert_eq!(four.value("toroni_lock_stopped", &[bus]), Some(0.0));
    let slow_one = ("name", "slow \"one\"\\");
    assert!(four.value("toroni_subscriber_lag_bytes", &[slow_one]).unwrap() > 0.0, "{four:?}");
    assert_eq!(four.value("toroni_subscriber_gating", &[slow_one]), Some(0.0));
    assert_eq!(four.value("toroni_subscriber_gating", &[("name", "quick")]), Some(1.0));
    let states = |role, state| {
        four.value("toroni_participants", &[bus, ("role", role), ("state", state)]).unwrap()
    };
    assert_eq!((states("subscriber", "stopped"), states("subscriber", "alive")), (1.0, 1.0));
    assert_eq!((states("publisher", "alive"), states("publisher", "dead")), (2.0, 0.0));

    // More than fits into the ring, while the slow one is stopped.
    buses.succeed(&["-b", "plant", "pub", "t", "--size", "1000", "--repeat", "200", "-q"]);
    slow.resume();
    let lost = server.wait_for("a loss is counted", |samples| {
        samples.value("toroni_subscriber_lapses_total", &[slow_one]) == Some(1.0)
    });
    let count = lost.value("toroni_subscriber_lost_messages_total", &[slow_one]).unwrap();
    assert!((1.0..204.0).contains(&count), "{count}");
    // The oldest message has no timestamp now. The publisher of the 200 has left, with its samples.
    assert_eq!(lost.value("toroni_history_seconds", &[bus]), None);
    assert_eq!(lost.all("toroni_publisher_messages_total", &[bus]).len(), 2);
    camera.kill();
    server.wait_for("a dead publisher is counted", |samples| {
        let dead = [bus, ("role", "publisher"), ("state", "dead")];
        samples.value("toroni_participants", &dead) == Some(1.0)
    });
}

#[test]
fn a_stopped_owner_of_the_lock_is_shown() {
    let buses = Buses::new();
    let exclusive = publisher(&buses, &["-b", "plant", "--exclusive"]);
    let server = Server::start(&buses, &["--bus", "plant"]);
    let is = |value| {
        move |samples: &Samples| {
            samples.value("toroni_lock_stopped", &[("bus", "plant")]) == Some(value)
                && !samples.all("toroni_publisher_messages_total", &[]).is_empty()
        }
    };
    server.wait_for("the publisher is there", is(0.0));
    exclusive.stop();
    server.wait_for("its owner is stopped", is(1.0));
    exclusive.resume();
    server.wait_for("its owner continues", is(0.0));
}

/// However often clients ask, a snapshot is at least half a second old before the next one is taken.
#[test]
fn a_snapshot_is_taken_twice_a_second_at_most() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let server = Server::start(&buses, &["--bus", "plant"]);
    let count = || server.metrics().value("toroni_messages_total", &[("bus", "plant")]).unwrap();
    let before = Instant::now();
    assert_eq!(count(), 0.0);
    buses.succeed(&["-b", "plant", "pub", "t", "x"]);
    wait_until("the next snapshot is taken", || count() == 1.0);
    assert!(before.elapsed() >= Duration::from_millis(500), "{:?}", before.elapsed());
}

#[test]
fn all_buses_of_the_directory_are_served_also_later_ones() {
    let buses = Buses::new();
    let elsewhere = buses.path().join("none");
    let server = Server::start(&buses, &["--dir", elsewhere.to_str().unwrap()]);
    assert!(server.metrics().0.is_empty(), "the directory does not exist");
    drop(server);
    buses.succeed(&["create", "a"]);
    let server = Server::start(&buses, &[]);
    assert_eq!(is_readable(&server.metrics(), "a", RING), Some(1.0));
    buses.succeed(&["create", "b"]);
    let both = server.wait_for("b is found", |all| is_readable(all, "b", RING) == Some(1.0));
    assert_eq!(is_readable(&both, "a", RING), Some(1.0));
    buses.succeed(&["rm", "a"]);
    server.wait_for("a has left", |all| is_readable(all, "a", RING).is_none());
    // The directory vanishes, with everything in it.
    fs::remove_dir_all(buses.path()).unwrap();
    server.wait_for("b has left", |all| all.0.is_empty());
    assert_eq!(server.get("/healthz", "*/*"), "ok\n");
}

#[test]
fn a_bus_may_be_removed_and_created_again() {
    let buses = Buses::new();
    let server = Server::start(&buses, &["--bus", "plant", "--bus", "office", "--bus", "plant"]);
    let samples = server.metrics();
    assert_eq!(is_readable(&samples, "plant", RING), Some(0.0));
    assert_eq!(is_readable(&samples, "office", RING), Some(0.0));
    server.process.wait_for_error("bus plant: there is no bus");
    for round in 0..2 {
        buses.succeed(&["create", "plant", "--capacity", "64KiB"]);
        buses.succeed(&["-b", "plant", "pub", "t", "x", "--repeat", "5", "-q"]);
        server.wait_for("its messages are counted", |all| {
            all.value("toroni_messages_total", &[("bus", "plant")]) == Some(5.0)
        });
        // Nothing holds the bus between two snapshots.
        let removed = || buses.run(&["rm", "plant"]).status.success();
        wait_until(&format!("it can be removed, round {round}"), removed);
        server.wait_for("it is gone", |all| is_readable(all, "plant", RING) == Some(0.0));
    }
}

/// A corrupt bus is shown as one that cannot be read, and the others are served.
#[test]
fn a_corrupt_bus_does_not_hide_the_others() {
    let buses = Buses::new();
    for bus in ["header", "short", "empty", "slots", "stream", "good"] {
        buses.succeed(&["create", bus, "--capacity", "64KiB"]);
        buses.succeed(&["-b", bus, "pub", "t", "x", "-q"]);
    }
    let fill = |file: &str, from: usize, with: u8| {
        let path = buses.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        bytes[from..].fill(with);
        fs::write(&path, bytes).unwrap();
    };
    let cut = |file: &str, length| {
        let file = fs::File::options().write(true).open(buses.path().join(file)).unwrap();
        file.set_len(length).unwrap();
    };
    fill("header/ring", 16, 0x5a);
    cut("short/ring", 5000);
    cut("empty/ring", 0);
    fill("slots/publishers", 128, 0xff);
    fill("slots/readers", 128, 0xff);
    fill("stream/ring", 128, 0xff);
    let server = Server::start(&buses, &[]);
    let samples = server.metrics();
    for bus in ["header", "short", "empty"] {
        // A file without a header counts as no bus.
        assert_ne!(is_readable(&samples, bus, RING), Some(1.0), "{bus}");
        assert_eq!(samples.value("toroni_messages_total", &[("bus", bus)]), None);
    }
    assert_eq!(is_readable(&samples, "good", RING), Some(1.0));
    assert_eq!(samples.value("toroni_messages_total", &[("bus", "good")]), Some(1.0));
    // It is the same with the next snapshots, and after a cut beneath an open bus.
    cut("good/ring", 4096);
    server.wait_for("good is corrupt", |all| is_readable(all, "good", RING) == Some(0.0));
    assert_eq!(server.get("/healthz", "*/*"), "ok\n");
}

/// The owner of a bus can lock it, so that opening it takes 2 s. The other buses are served nevertheless.
#[test]
fn locked_buses_do_not_hold_up_the_others() {
    let buses = Buses::new();
    buses.succeed(&["create", "z-good"]);
    let _locked: Vec<fs::File> = (0..40)
        .map(|number| {
            let name = format!("locked-{number:02}");
            buses.succeed(&["create", &name, "--capacity", "64KiB"]);
            let ring = buses.path().join(name).join("ring");
            let ring = fs::File::options().read(true).write(true).open(ring).unwrap();
            let exclusively = rustix::fs::FlockOperation::NonBlockingLockExclusive;
            rustix::fs::fcntl_lock(&ring, exclusively).unwrap();
            ring
        })
        .collect();
    let server = Server::start(&buses, &[]);
    let started = Instant::now();
    let samples = server.metrics();
    // One after the other would take 80 s.
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert_eq!(is_readable(&samples, "z-good", RING), Some(1.0));
    assert_eq!(is_readable(&samples, "locked-00", RING), Some(0.0));
    server.process.wait_for_error("bus locked-00: ");
    // They are not tried with each answer.
    buses.succeed(&["-b", "z-good", "pub", "t", "x"]);
    server.wait_for("the next snapshot is taken", |all| {
        all.value("toroni_messages_total", &[("bus", "z-good")]) == Some(1.0)
    });
}

/// A user who may only read the ring gets what is in it, and no wrong zeros.
#[test]
fn parts_that_may_not_be_read_are_left_out() {
    let buses = Buses::new();
    let _subscriber = buses.subscribe(&["-b", "plant", "t"]);
    let mut publisher = publisher(&buses, &["-b", "plant", "--exclusive"]);
    publisher.tell("x");
    wait_until("it published", || buses.info("plant")["messages"] == 1);
    let mode = |path: &str, mode| {
        fs::set_permissions(buses.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (path, bits) in [("", 0o755), ("plant", 0o755), ("plant/ring", 0o644)] {
        mode(path, bits);
    }
    let is_root = rustix::process::geteuid().is_root();
    let hidden = if is_root { 0o600 } else { 0o000 };
    mode("plant/publishers", hidden);
    mode("plant/readers", hidden);
    let arguments = ["serve-metrics", "--listen", "127.0.0.1:0"];
    let mut command = buses.command(&arguments);
    if is_root {
        // Root may read everything, so another user serves. The program is copied to where that user may run it.
        let program = buses.path().join("toroni");
        toroni_testkit::program::copy_program(env!("CARGO_BIN_EXE_toroni"), &program);
        let mut other = Command::new("setpriv");
        other.args(["--reuid=61817", "--regid=61817", "--clear-groups", "--"]).arg(&program);
        other.args(arguments).env("TORONI_DIR", buses.path()).env_remove("TORONI_BUS");
        other.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command = other;
    }
    let server = Server::of(Process::start(&mut command));
    let samples = server.metrics();
    assert_eq!(is_readable(&samples, "plant", RING), Some(1.0), "{samples:?}");
    assert_eq!(is_readable(&samples, "plant", "publishers"), Some(0.0));
    assert_eq!(is_readable(&samples, "plant", "subscribers"), Some(0.0));
    assert_eq!(samples.value("toroni_messages_total", &[("bus", "plant")]), Some(1.0));
    // The lock is held, but who holds it is not known.
    assert_eq!(samples.value("toroni_lock_stopped", &[("bus", "plant")]), None);
    for metric in ["toroni_participants", "toroni_subscriber_alive"] {
        assert!(samples.all(metric, &[]).is_empty(), "{metric}");
    }
    drop(server);
    mode("plant/publishers", 0o600);
    mode("plant/readers", 0o600);
}

#[test]
fn a_signal_ends_it_and_it_leaves_nothing() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let buses = Buses::new();
        buses.succeed(&["create", "plant"]);
        let server = Server::start(&buses, &[]);
        let _idle = server.connect();
        assert_eq!(is_readable(&server.metrics(), "plant", RING), Some(1.0));
        server.process.signal(signal);
        let output = server.process.finish();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(TcpStream::connect(server.address).is_err());
        assert_eq!(buses.entries(), ["plant"]);
        buses.succeed(&["rm", "plant"]);
    }
}

/// Killed at any moment, it leaves neither a slot nor a lock.
#[test]
fn a_killed_server_leaves_nothing() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    for round in 0..10 {
        let mut server = Server::start(&buses, &[]);
        let mut stream = server.connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        if round % 2 == 0 {
            let _ = stream.read(&mut [0; 100]).unwrap();
        }
        server.process.kill();
        let _ = server.process.wait();
    }
    let info = buses.info("plant");
    assert_eq!(info["subscribers"].as_array().map(Vec::len), Some(0), "{info}");
    assert_eq!(info["publishers"].as_array().map(Vec::len), Some(0), "{info}");
    buses.succeed(&["rm", "plant"]);
    assert!(buses.entries().is_empty());
}

#[test]
fn an_address_in_use_is_named() {
    let buses = Buses::new();
    let server = Server::start(&buses, &[]);
    let address = server.address.to_string();
    let second = buses.run(&["serve-metrics", "--listen", &address]);
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
    assert_eq!(buses.run(&["serve-metrics", "--listen", "everywhere"]).status.code(), Some(2));
}

/// Returns what the server says about all buses.
pub(super) fn of(buses: &Buses) -> Samples {
    Server::start(buses, &[]).metrics()
}
