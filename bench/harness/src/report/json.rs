//! Reports as JSON lines for programs.

use super::{Bound, Cell, Goal, Report, Table};
use serde_json::{Map, Value, json};

pub(super) fn lines(report: &Report) -> Vec<Value> {
    let conditions: Map<String, Value> =
        report.conditions.iter().map(|(label, value)| (label.clone(), json!(value))).collect();
    let mut lines = vec![json!({
        "kind": "report",
        "workload": report.name,
        "title": report.title,
        "conditions": conditions,
    })];
    lines.extend(report.tables.iter().flat_map(cells));
    lines.extend(report.goals.iter().map(goal));
    lines.extend(report.notes.iter().map(|note| json!({ "kind": "note", "text": note })));
    lines
}

fn cells(table: &Table) -> Vec<Value> {
    let mut lines = Vec::new();
    for (row, cells) in &table.rows {
        for (column, cell) in table.columns.iter().zip(cells) {
            lines.push(one(table, row, column, cell));
        }
    }
    lines
}

fn one(table: &Table, row: &str, column: &str, cell: &Cell) -> Value {
    let mut line = json!({
        "kind": "cell",
        "table": table.name,
        "row": row,
        "column": column,
        "value": cell.value,
    });
    if !table.unit.is_empty() {
        line["unit"] = json!(table.unit);
    }
    if cell.value.is_none() {
        line["text"] = json!(cell.text);
    }
    if let Some(summary) = &cell.summary {
        line["mean"] = json!(summary.mean);
        line["median"] = json!(summary.median);
        line["low"] = json!(summary.low);
        line["high"] = json!(summary.high);
        line["repetitions"] = json!(summary.count);
    }
    line
}

fn goal(goal: &Goal) -> Value {
    let (relation, bound) = match goal.bound {
        Bound::AtLeast(bound) => ("at least", bound),
        Bound::AtMost(bound) => ("at most", bound),
    };
    json!({
        "kind": "goal",
        "what": goal.what,
        "unit": goal.unit,
        "reference": goal.reference.as_ref().map(|(value, _)| value),
        "reference_is": goal.reference.as_ref().map(|(_, whose)| whose),
        "relation": relation,
        "bound": bound,
        "measured": goal.measured,
        "met": goal.is_met(),
        "noise": goal.is_noise(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn every_cell_and_goal_is_a_line() {
        let lines = lines(&example());
        let kinds: Vec<&str> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
        let expected = ["report", "cell", "cell", "cell", "cell", "goal", "goal", "note"];
        assert_eq!(kinds, expected);
        assert_eq!(lines[0]["conditions"]["machine"], "this one");
        assert_eq!((&lines[1]["row"], &lines[1]["column"]), (&json!("1"), &json!("1")));
        assert_eq!((&lines[1]["median"], &lines[1]["repetitions"]), (&json!(20.0), &json!(3)));
        assert_eq!((&lines[4]["value"], &lines[4]["text"]), (&Value::Null, &json!("many")));
        assert_eq!((&lines[5]["met"], &lines[6]["met"]), (&json!(false), &json!(true)));
        assert_eq!(lines[5]["reference"], 10.0);
        assert_eq!(lines[6]["noise"], false);
        let mut noise = example();
        noise.goals[1].measured = -0.1;
        assert_eq!(super::lines(&noise)[6]["noise"], true);
    }
}
