//! The program measures floors, by the names by which goals find them.

use serde_json::Value;
use std::process::Command;

#[test]
fn the_floors_of_goals_are_measured() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("not tested: there is one core");
        return;
    }
    let program = env!("CARGO_BIN_EXE_toroni-bench");
    let output = Command::new(program).args(["floors", "--quick", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for name in [
        "copy of 1024 B into a ring of 4 MiB",
        "two cache lines, across cores, one way",
        "futex, not pinned, one way",
    ] {
        let median = lines.iter().find(|line| line["row"] == name && line["column"] == "median");
        let value = median.and_then(|line| line["value"].as_f64());
        assert!(value.is_some_and(|value| value > 0.0), "{name}: {median:?}");
    }
}
