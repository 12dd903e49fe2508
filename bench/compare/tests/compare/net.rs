//! The program measures between hosts. Each experiment reports every row, and a verdict for each goal.

use serde_json::Value;
use std::process::Command;
use toroni_testkit::network::{Setup, skip};

/// Runs an experiment as shortly as the program can. Returns its report, or `None` if there can be no hosts here.
fn measured(experiment: &str) -> Option<Vec<Value>> {
    Setup::new(2).bridged()?;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("two cores are needed");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-bench"));
    command.args(["net", experiment, "--seconds", "1", "--repetitions", "1", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn value(lines: &[Value], row: &str, column: &str) -> Option<f64> {
    let cell = lines.iter().find(|line| line["row"] == row && line["column"] == column)?;
    cell["value"].as_f64()
}

fn goals(lines: &[Value]) -> Vec<&str> {
    let goals = lines.iter().filter(|line| line["kind"] == "goal");
    goals.map(|goal| goal["what"].as_str().unwrap()).collect()
}

#[test]
fn latency_has_a_row_from_bus_to_bus_and_measures_what_its_goal_needs() {
    let Some(lines) = measured("latency") else { return };
    for size in [16, 1024] {
        for way in ["plain datagrams", "Toroni, no bus", "Toroni, from bus to bus"] {
            let p50 = value(&lines, &format!("{size} B, {way}"), "p50");
            assert!(p50.is_some_and(|p50| p50 > 0.0), "{size} B, {way}: {p50:?}");
        }
        let goal = format!("{size} B, blocking, Toroni, from bus to bus");
        assert!(goals(&lines).contains(&goal.as_str()), "{goal}: {lines:?}");
    }
    let wake_ns = value(&lines, "futex, across cores, one way", "median").unwrap();
    let of = |key: &str| {
        let what = "16 B, blocking, Toroni, no bus";
        lines.iter().find(|line| line["what"] == what).unwrap()[key].as_f64().unwrap()
    };
    let (bound, plain) = (of("bound"), of("reference"));
    assert!((bound - plain - 2.0 * wake_ns / 1e3).abs() < 1e-6, "{bound}, {plain}, {wake_ns}");
}

#[test]
fn loss_measures_repairs_and_judges_them() {
    let Some(lines) = measured("loss") else { return };
    for row in ["1 % lost", "5 % lost", "a burst of 1,000 lost"] {
        for column in ["messages", "p99 ms", "largest gap", "closed after ms"] {
            let value = value(&lines, row, column);
            assert!(value.is_some_and(|value| value > 0.0), "{row}, {column}: {value:?}");
        }
    }
    let goals = goals(&lines);
    for what in ["p99 of what was repaired, 1 % lost", "p99 of what was repaired, 5 % lost"] {
        assert!(goals.contains(&what), "{goals:?}");
    }
    let burst = value(&lines, "a burst of 1,000 lost", "largest gap").unwrap();
    // Among 1,000 frames some are no messages.
    assert!((900.0..=1_000.0).contains(&burst), "{burst}");
    let what = format!("{burst} messages in a row are repaired");
    assert!(goals.contains(&what.as_str()), "{goals:?}");
}
