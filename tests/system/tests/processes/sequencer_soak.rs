//! The soak of the sequencer notices what it is there for, and a short one ends clean.

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use system_tests::{Program, TempRoot, Watchdog, program};
use toroni_testkit::network::Setup;

/// Runs the soak: what it printed, and what it wrote as JSON. `None` where there can be no network namespaces.
fn soak(words: &[&str]) -> Option<(Output, Value)> {
    drop(Setup::new(1).bridged()?);
    let _watchdog = Watchdog::start("soak of the sequencer", Duration::from_secs(400));
    let root = TempRoot::new();
    let json = root.file("figures.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-sequencer-soak"));
    command.env("TORONI_BIN", program::path()).args(words);
    command.arg(format!("json={}", json.display()));
    command.arg(format!("keep={}", root.file("kept").display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = Program::start(command).finish_within(Duration::from_secs(350));
    let text = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Some((output, serde_json::from_str(&text).expect("JSON")))
}

#[test]
fn an_event_that_is_hidden_is_noticed() {
    // Nothing else happens. Where the checker's own tests change histories, all kinds of mistakes are noticed.
    let words = ["seconds=0", "seed=5", "sabotage=drop"];
    let Some((output, figures)) = soak(&words) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let violations = figures["violations"].as_array().expect("violations");
    let is_named = |one: &Value| {
        one.as_str().is_some_and(|text| text.starts_with("H3: ") && text.contains("not on host 0"))
    };
    assert!(violations.iter().any(is_named), "{violations:?}");
    assert!(said.contains("VIOLATION") && said.contains("seed 5"), "{said}");
}

#[test]
fn nodes_that_are_killed_stopped_and_cut_off_change_nothing_about_the_order() {
    // The limit is for a busy machine.
    let words =
        ["seconds=5", "seed=6", "nemesis=kill,terminate,stop,cut,one-way", "limit_ms=60000"];
    let Some((output, figures)) = soak(&words) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    // On a busy machine, the first one may take all the time.
    let faults = figures["faults"].as_object().expect("faults");
    assert!(faults.values().any(|count| count.as_u64() > Some(0)), "{said}");
    assert!(figures["answered"].as_u64() > Some(100), "{said}");
    assert_eq!(figures["answered"], figures["commands"], "{said}");
}

#[test]
fn clocks_disks_and_power_that_fail_change_nothing_about_the_order() {
    let words = ["seconds=6", "seed=3", "nemesis=power,disk-error,restore,clock", "limit_ms=60000"];
    let Some((output, figures)) = soak(&words) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let faults = figures["faults"].as_object().expect("faults");
    assert!(faults.values().any(|count| count.as_u64() > Some(0)), "{said}");
    assert_eq!(figures["answered"], figures["commands"], "{said}");
}
