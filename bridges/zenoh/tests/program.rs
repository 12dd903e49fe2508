//! The program `toroni-zenoh` as a process, without a network: the command line, files, signals, logs and metrics.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use toroni_testkit::{Directory, Program};

/// A folder for the bus and for files. Bridges in it connect to no other program.
struct Folder(Directory);

impl Folder {
    fn new() -> Self {
        Self(Directory::new())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.join("bridge.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-zenoh"));
        command
            .args(arguments)
            .env("TORONI_DIR", self.0.join("buses"))
            .env_remove("TORONI_BUS")
            .env_remove("TORONI_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Program::start(self.command(arguments)).finish()
    }

    fn check(&self, text: &str) -> Output {
        let path = self.file(text);
        self.run(&["check", path.to_str().unwrap()])
    }

    /// Starts a bridge with a file, to which a table of Zenoh is added that keeps it to itself.
    fn start(&self, text: &str, arguments: &[&str]) -> Program {
        let path = self.file(&format!("{ALONE}{text}"));
        let all = [&["--config", path.to_str().unwrap()], arguments].concat();
        let mut program = Program::start_with_ready_fd(self.command(&all));
        program.wait_ready();
        program
    }
}

const ALONE: &str = "settle = '10ms'\n[zenoh]\nlisten = { endpoints = ['tcp/127.0.0.1:0'] }\n\
                     scouting = { multicast = { enabled = false }, gossip = { enabled = false } }\n";
const EXPORT: &str = "[[export]]\npatterns = ['plant/**']\n";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_prints_the_effective_configuration_and_accepts_it_again() {
    let folder = Folder::new();
    let first = folder.check(EXPORT);
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    let effective = String::from_utf8(first.stdout).unwrap();
    for part in
        ["heartbeat = \"1s\"", "bytes = \"64MiB\"", "congestion = \"drop\"", "name = \"default\""]
    {
        assert!(effective.contains(part), "{part}\n{effective}");
    }
    let again = folder.check(&effective);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), effective);
    assert!(!folder.0.join("buses").exists(), "check opens no bus");
}

#[test]
fn check_names_every_finding_and_exits_with_2() {
    let folder = Folder::new();
    let output = folder
        .check("hops = 9\n[[export]]\npatterns = ['a//b', '**']\n[[export]]\npatterns = ['a']\n");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    for part in ["refused: hops", "refused: export 1: patterns", "refused: export 1 and export 2"] {
        assert!(said(&output).contains(part), "{part}\n{}", said(&output));
    }
    assert!(said(&output).contains("3 of these findings are reasons"), "{}", said(&output));
}

#[test]
fn what_check_refuses_does_not_start() {
    let folder = Folder::new();
    for (text, part) in [
        ("", "nothing is exported or imported"),
        ("[[export]]\npaterns = ['a']\n", "bridge.toml:2:1: unknown field `paterns`"),
        ("heartbeat = 1\n", "a duration with a unit"),
        ("[[import]]\npatterns = ['a*b']\n", "import 1: patterns"),
        ("zenoh = { modee = 'peer' }\n[[import]]\npatterns = ['a']\n", "refused: zenoh: "),
        ("zenoh = 'nosuch.json5'\n[[import]]\npatterns = ['a']\n", "refused: zenoh: "),
        ("[[import]]\npatterns = ['a/*']\n[[import]]\npatterns = ['a/b']\n", "import 2: patterns"),
    ] {
        let path = folder.file(text);
        for arguments in [["check", path.to_str().unwrap()], ["--config", path.to_str().unwrap()]] {
            let output = folder.run(&arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?} {text}: {}", said(&output));
            assert!(said(&output).contains(part), "{arguments:?} {part}: {}", said(&output));
            assert!(said(&output).starts_with("toroni zenoh: "), "{}", said(&output));
        }
    }
    assert!(!folder.0.join("buses").exists(), "nothing was opened");
}

#[test]
fn wrong_usage_is_refused() {
    let folder = Folder::new();
    for (arguments, code, part) in [
        (&["--config", "/no/such/file"][..], 1, "cannot read /no/such/file"),
        (&["check", "/no/such/file"], 1, "cannot read /no/such/file"),
        (&["--export", "a", "--config", "f"], 2, "cannot be used with"),
        (&["--bus", "b"], 2, "nothing is exported or imported"),
        (&["--export", "a//b"], 2, "export 1: patterns"),
        (&["--export", "a", "--ready-fd", "99"], 2, "--ready-fd 99"),
        (&["--export", "a", "--metrics", "nowhere"], 2, "--metrics"),
        (&["--nonsense"], 2, "unexpected argument"),
        (&[], 2, "Usage: toroni zenoh"),
    ] {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(part), "{arguments:?}: {}", said(&output));
    }
    let mut command = folder.command(&["--export", "a"]);
    let output = Program::start(command.env("TORONI_LOG", "toroni_zenoh=loud")).finish();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("TORONI_LOG=toroni_zenoh=loud"), "{}", said(&output));
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let folder = Folder::new();
    for option in ["--help", "--version"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = folder.command(&[option]).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
    }
}

#[test]
fn signals_do_what_the_help_says() {
    let folder = Folder::new();
    for end in [Signal::TERM, Signal::INT] {
        let mut bridge = folder.start(EXPORT, &[]);
        bridge.wait_for_error("the bridge works");
        bridge.signal(Signal::HUP);
        bridge.wait_for_error("SIGHUP: the configuration is not loaded again");
        bridge.signal(Signal::USR1);
        bridge.wait_for_error("counters: ");
        bridge.signal(end);
        let status = bridge.wait();
        assert_eq!(status.code(), Some(0), "{}", bridge.errors());
        bridge.wait_for_error("the bridge stops");
    }
}

/// A signal also ends a start that waits.
#[test]
fn a_signal_ends_a_bridge_that_is_still_starting() {
    let folder = Folder::new();
    let text = format!("{}{EXPORT}", ALONE.replace("10ms", "60s"));
    let path = folder.file(&text);
    let mut bridge = Program::start(folder.command(&["--config", path.to_str().unwrap()]));
    bridge.wait_for_error("the bridge starts");
    bridge.signal(Signal::TERM);
    assert_eq!(bridge.wait().code(), Some(0), "{}", bridge.errors());
}

#[test]
fn logs_are_json_if_asked() {
    let folder = Folder::new();
    let mut bridge = folder.start(EXPORT, &["--log", "json"]);
    bridge.wait_for_error("the bridge works");
    bridge.signal(Signal::TERM);
    bridge.wait();
    let errors = String::from_utf8(bridge.stderr()).unwrap();
    assert!(errors.lines().count() > 2, "{errors}");
    for line in errors.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

#[test]
fn metrics_are_served_on_request_only() {
    let folder = Folder::new();
    let bridge = folder.start(EXPORT, &["--metrics", "127.0.0.1:0"]);
    bridge.wait_for_error("metrics are at http://");
    let errors = bridge.errors();
    let address = errors.split_once("http://").unwrap().1.split('/').next().unwrap();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(ask("/healthz").ends_with("\r\n\r\nok\n"));
    let text = ask("/metrics");
    assert!(text.contains("\ntoroni_zenoh_heartbeats_sent_total "), "{text}");
    drop(bridge);
    let bridge = Folder::new().start(EXPORT, &[]);
    assert!(!bridge.errors().contains("http://"), "{}", bridge.errors());
    let sockets = std::fs::read_dir(format!("/proc/{}/task", bridge.id())).unwrap();
    let names: Vec<String> = sockets
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap())
        .collect();
    assert!(!names.iter().any(|name| name.trim() == "metrics"), "{names:?}");
}

/// The environment names the bus, unless the file does.
#[test]
fn a_file_takes_precedence_over_the_environment() {
    let folder = Folder::new();
    for (line, wanted) in [("", "of-environment"), ("bus = 'of-file'\n", "of-file")] {
        let path = folder.file(&format!("{line}{EXPORT}"));
        let mut command = folder.command(&["check", path.to_str().unwrap()]);
        let output = Program::start(command.env("TORONI_BUS", "of-environment")).finish();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains(&format!("name = \"{wanted}\"")), "{shown}");
    }
}

/// The files of the example are accepted.
/// The nodes' unit reads /etc/toroni/NAME.toml.
#[test]
fn the_unit_reads_the_documented_file_and_waits_long_enough() {
    let unit = include_str!("../../../packaging/systemd/toroni-zenoh@.service");
    let guide = include_str!("../../../docs/zenoh.md");
    assert!(unit.contains("--config /etc/toroni/zenoh-%i.toml\n"), "{unit}");
    assert!(guide.contains("install -D -m 640 -g toroni bridge.toml /etc/toroni/zenoh-plant.toml"));
    let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
    let seconds = Duration::from_secs(seconds.unwrap().parse().unwrap());
    // After the drain it has 10 s.
    assert!(toroni_zenoh::Config::default().drain + Duration::from_secs(10) < seconds);
}

#[test]
fn the_example_is_valid() {
    let folder = Folder::new();
    for site in ["site-a", "site-b"] {
        let path = format!("{}/examples/mutual-tls/{site}.toml", env!("CARGO_MANIFEST_DIR"));
        let output = folder.run(&["check", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(said(&output), "", "no warnings");
    }
}

/// The benchmark runs to its end, whatever it measures on this machine.
#[test]
fn the_benchmark_prints_a_row_for_each_size_and_way() {
    let output = Folder::new().run(&["bench", "--rounds", "1", "--seconds", "0.05"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    for size in ["64", "1024", "65536"] {
        for way in ["plain", "attached", "samples", "batches"] {
            let is_its = |row: &&Vec<&str>| row.len() == 6 && row[..2] == [size, way];
            assert_eq!(rows.iter().filter(is_its).count(), 1, "{size} {way}: {table}");
        }
    }
    for way in ["samples", "batches"] {
        let is_its = |row: &&Vec<&str>| row.len() == 4 && row[0] == way;
        assert_eq!(rows.iter().filter(is_its).count(), 1, "{way}, stopped: {table}");
    }
}
