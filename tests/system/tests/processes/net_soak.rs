//! The soak between hosts notices what it is there for, and a short one ends clean.

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use system_tests::{Program, TempRoot, Watchdog, program};
use toroni_testkit::network::Setup;

/// Runs the soak: what it printed, and what it wrote as JSON. `None` where there can be no network namespaces.
fn soak(words: &[&str]) -> Option<(Output, Value)> {
    drop(Setup::new(1).bridged()?);
    let _watchdog = Watchdog::start("soak between hosts", Duration::from_secs(400));
    let root = TempRoot::new();
    let json = root.file("figures.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-net-soak"));
    command.env("TORONI_BIN", program::path()).args(words);
    command.arg(format!("json={}", json.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = Program::start(command).finish_within(Duration::from_secs(350));
    let text = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Some((output, serde_json::from_str(&text).expect("JSON")))
}

#[test]
fn a_message_that_is_hidden_doubled_or_late_is_noticed() {
    for (sabotage, wanted) in [
        ("drop", "host 0: lost WITHOUT report: 1"),
        ("double", "host 0: doubled: 1"),
        ("swap", "host 0: out of order: 1"),
    ] {
        // No kills, and no losses that could be taken for the mistake.
        let quiet = ["seconds=1", "seed=5", "calm_ms=60000", "loss=0", "crybaby_loss=0"];
        let sabotage = format!("sabotage={sabotage}");
        let words = [&quiet[..], &[&sabotage]].concat();
        let Some((output, figures)) = soak(&words) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let violations = figures["violations"].as_array().expect("violations");
        let is_named = |one: &Value| one.as_str().is_some_and(|text| text.starts_with(wanted));
        assert!(violations.iter().any(is_named), "{wanted} in {violations:?}");
        assert!(said.contains("VIOLATION") && said.contains("seed 5"), "{said}");
    }
}

#[test]
fn nodes_that_are_killed_lose_nothing_without_a_report() {
    let Some((output, figures)) = soak(&["seconds=8", "seed=6", "calm_ms=300"]) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    // On a busy machine, the first ones may take all the time.
    let disturbances = figures["disturbances"].as_object().expect("disturbances");
    assert!(disturbances.values().any(|count| count.as_u64() > Some(0)), "{said}");
    for receiver in figures["receivers"].as_array().expect("receivers") {
        assert!(receiver["messages"].as_u64().is_some_and(|messages| messages > 1_000), "{said}");
    }
}
