//! The soak notices what it is there for: a worker that makes a mistake on request is found, with the
//! seed, the evidence and the bus; and a short soak without one ends clean.

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use system_tests::{Program, TempRoot, Watchdog};

/// Runs the supervisor; what it printed, and what it wrote as JSON.
fn soak(root: &TempRoot, words: &[&str]) -> (Output, Value) {
    let json = root.file("figures.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-soak"));
    // The machine may be slow: a mistake ends the run long before.
    command.args(["seconds=60", "capacity=262144", "calm_ms=100"]).args(words);
    command.arg(format!("json={}", json.display()));
    command.arg(format!("keep={}", root.file("kept").display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = Program::start(command).finish_within(std::time::Duration::from_secs(250));
    let text = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, serde_json::from_str(&text).expect("JSON"))
}

/// A mistake, and what it must be called, by one of these names.
fn must_be_noticed(sabotage: &str, names: &[&str]) {
    let _watchdog = Watchdog::start("soak", std::time::Duration::from_secs(300));
    let root = TempRoot::new();
    let (output, figures) = soak(&root, &[&format!("sabotage={sabotage}"), "seed=7"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let violations = figures["violations"].as_array().expect("violations");
    let is_named = |violation: &Value| {
        let text = violation.as_str().unwrap_or_default();
        names.iter().any(|name| text.starts_with(name))
    };
    assert!(violations.iter().any(is_named), "{names:?} in {violations:?}");
    assert!(said.contains("VIOLATION") && said.contains("seed 7"), "{said}");
    let kept = toroni_testkit::directory::entries(&root.file("kept"));
    assert_eq!(kept.len(), 1, "{said}");
    let kept = root.file("kept").join(&kept[0]);
    assert!(kept.join("buses/soak/ring").is_file(), "the bus is kept");
    let files = toroni_testkit::directory::entries(&kept.join("files"));
    assert!(files.iter().any(|name| name.starts_with("record-")), "so are the records: {files:?}");
}

#[test]
fn a_message_that_is_dropped_is_noticed() {
    must_be_noticed("subscriber:drop", &["lost-without-report", "half-a-batch", "miscounted-loss"]);
}

#[test]
fn a_message_that_is_doubled_is_noticed() {
    must_be_noticed("subscriber:double", &["doubled"]);
}

#[test]
fn messages_that_are_swapped_are_noticed() {
    must_be_noticed(
        "subscriber:swap",
        &["lost-without-report", "order", "half-a-batch", "miscounted-loss"],
    );
}

#[test]
fn a_message_that_is_torn_is_noticed() {
    must_be_noticed("subscriber:tear", &["torn"]);
}

#[test]
fn a_loss_that_is_not_reported_is_noticed() {
    must_be_noticed("subscriber:swallow", &["lost-without-report"]);
}

#[test]
fn a_loss_that_is_reported_as_larger_than_it_was_is_noticed() {
    must_be_noticed("subscriber:overcount", &["miscounted-loss"]);
}

#[test]
fn an_order_that_only_one_subscriber_saw_is_noticed() {
    must_be_noticed("subscriber:exchange", &["order", "lost-without-report"]);
}

#[test]
fn a_value_that_is_older_than_what_was_received_is_noticed() {
    must_be_noticed("subscriber:stale", &["order"]);
}

#[test]
fn a_message_that_was_never_published_is_noticed() {
    must_be_noticed("publisher:skip", &["lost-without-report"]);
}

#[test]
fn a_worker_that_ends_by_itself_is_noticed() {
    must_be_noticed("publisher:die", &["failed"]);
}

#[test]
fn exclusive_publishers_that_are_killed_leave_nothing_wrong() {
    let _watchdog = Watchdog::start("soak", std::time::Duration::from_secs(300));
    let root = TempRoot::new();
    let (output, figures) = soak(&root, &["seconds=4", "exclusive=true"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let number =
        |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("no {name}: {figures}"));
    assert!(number("reigns") > 1 && number("kept_out") > 0, "{said}");
    assert!(number("published") > 0 && number("delivered") > 0 && number("compared") > 0, "{said}");
}

#[test]
fn without_a_mistake_nothing_is_wrong() {
    let _watchdog = Watchdog::start("soak", std::time::Duration::from_secs(300));
    let root = TempRoot::new();
    let (output, figures) = soak(&root, &["seconds=4"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(figures["violations"].as_array().map(Vec::len), Some(0), "{said}");
    let number =
        |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("no {name}: {figures}"));
    assert!(number("published") > 0 && number("delivered") > 0 && number("compared") > 0, "{said}");
    assert!(number("values_compared") > 0 && number("values_after_kills") > 0, "{said}");
    assert_eq!(number("leaked_slots") + number("leaked_files") + number("leaked_descriptors"), 0);
    assert!(!root.file("kept").exists(), "nothing is kept where nothing is wrong");
}
