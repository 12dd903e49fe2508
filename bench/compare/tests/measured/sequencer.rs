//! Rows of the sequencer that need several processes or hosts, as shortly as the program can measure them.

use crate::support::Runs;
use serde_json::Value;
use toroni_testkit::network::Setup;
use toroni_testkit::turn;

/// Measures the rows with this text.
fn measured(only: &str) -> Vec<Value> {
    let runs = Runs::new();
    let printed = runs.succeed(&["sequencer", "--seconds", "1", "--only", only, "--json"]);
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn value(lines: &[Value], row: &str, column: &str) -> Option<f64> {
    let cell = lines.iter().find(|line| line["row"] == row && line["column"] == column)?;
    cell["value"].as_f64()
}

fn rows(lines: &[Value]) -> Vec<&str> {
    let mut rows: Vec<_> = lines.iter().filter_map(|line| line["row"].as_str()).collect();
    rows.dedup();
    rows
}

#[test]
fn five_members_are_measured_and_their_leader_is_killed() {
    let _turn = turn();
    if !toroni_testkit::long::is_asked() {
        return;
    }
    let row = "5 members, interval";
    let lines = measured("5 members");
    assert_eq!(rows(&lines), [row]);
    for column in ["median µs", "p99 µs", "commands/s", "stall ms, longest"] {
        let value = value(&lines, row, column);
        assert!(value.is_some_and(|value| value > 0.0), "{column}: {lines:?}");
    }
}

#[test]
fn events_on_another_host_are_measured_by_both_ways() {
    let _turn = turn();
    if Setup::new(1).bridged().is_none() {
        return;
    }
    // The program starts the nodes that lie beside it.
    system_tests::program::path();
    let lines = measured("events");
    assert_eq!(rows(&lines), ["events by multicast", "events over TCP"], "{lines:?}");
    for row in rows(&lines) {
        for column in ["median µs", "p99 µs"] {
            let value = value(&lines, row, column);
            assert!(value.is_some_and(|value| value > 0.0), "{row}, {column}: {lines:?}");
        }
    }
}
