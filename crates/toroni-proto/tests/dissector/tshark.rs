//! Runs tshark, with the dissector.

use std::io::Write;
use std::process::{Command, Stdio};

use super::capture::Capture;
use super::fields::{Fields, NAMES};

/// Separates the values of a field that a packet has several times. No name in the packets contains it.
pub(super) const AGGREGATOR: char = '|';

const DISSECTOR: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wireshark/toroni.lua");

/// Whether Debian's package `tshark` is installed. If not, the test is skipped and reports that; with
/// `TORONI_CLIENTS=required`, as in CI, it fails.
pub(super) fn is_installed(test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("tshark").exists()) {
        return true;
    }
    let said = "tshark is missing: apt-get install tshark";
    assert!(std::env::var_os("TORONI_CLIENTS").is_none_or(|it| it != "required"), "{said}");
    // Not `eprintln!`: the test runner hides what passing tests print with it.
    let _ = writeln!(std::io::stderr(), "{test} skipped: {said}");
    false
}

/// Returns what tshark prints about the packets.
pub(super) fn run(capture: &Capture, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", "-", "-X", &format!("lua_script:{DISSECTOR}")]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tshark = command.spawn().unwrap();
    let mut input = tshark.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // tshark prints while it reads, and neither pipe holds everything.
        scope.spawn(move || input.write_all(capture.as_bytes()).unwrap());
        tshark.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the fields of each packet.
pub(super) fn fields(capture: &Capture) -> Vec<Fields> {
    let aggregator = format!("aggregator={AGGREGATOR}");
    let mut arguments = vec!["-T", "fields", "-E", "occurrence=a", "-E", "separator=/t"];
    arguments.extend(["-E", &aggregator]);
    for name in NAMES {
        arguments.extend(["-e", name]);
    }
    run(capture, &arguments).lines().map(Fields::of_line).collect()
}
