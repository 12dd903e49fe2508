//! The program measures every machine of the network protocol.

use serde_json::Value;
use std::process::Command;

#[test]
fn every_machine_has_a_time_and_each_goal_a_verdict() {
    let program = env!("CARGO_BIN_EXE_toroni-bench");
    let output = Command::new(program).args(["machines", "--quick", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in toroni_machines::ROWS {
        let median =
            lines.iter().find(|line| line["row"] == row.name && line["column"] == "median");
        let value = median.and_then(|line| line["value"].as_f64());
        assert!(value.is_some_and(|value| value > 0.0), "{}: {median:?}", row.name);
    }
    let goals = lines.iter().filter(|line| line["kind"] == "goal");
    let wanted = toroni_machines::ROWS.iter().filter(|row| row.goal_ns.is_some()).count();
    assert_eq!(goals.count(), wanted, "{text}");
}
