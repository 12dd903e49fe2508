//! Reports as text for people.

use super::{Bound, Goal, Report, Table};
use std::fmt::Write;

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("{}\n{}\n\n", report.title, "=".repeat(report.title.chars().count()));
    let width = report.conditions.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    for (label, value) in &report.conditions {
        let _ = writeln!(text, "{label:<width$}  {value}");
    }
    let mut defined = Vec::new();
    for table in &report.tables {
        text.push('\n');
        render_table(table, &mut defined, &mut text);
    }
    if !report.goals.is_empty() {
        text.push('\n');
        render_goals(&report.goals, &mut text);
    }
    if !report.notes.is_empty() {
        text.push('\n');
        for note in &report.notes {
            let _ = writeln!(text, "{note}");
        }
    }
    text
}

/// Formats a number with three significant digits and a separator for thousands: 48,600, 23.1, 0.042.
#[must_use]
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 {
        return grouped(value);
    }
    let decimals = match size {
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        0.0 => 0,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Leaves out definitions that were printed below an earlier table.
fn render_table<'a>(table: &'a Table, defined: &mut Vec<&'a (String, String)>, text: &mut String) {
    let _ = writeln!(text, "{}\n", table.title);
    let mut lines = vec![vec![table.corner.clone()]];
    lines[0].extend(table.columns.iter().cloned());
    for (label, cells) in &table.rows {
        let mut line = vec![label.clone()];
        line.extend(cells.iter().map(|cell| cell.text.clone()));
        lines.push(line);
    }
    align(&lines, text);
    let new: Vec<_> =
        table.definitions.iter().filter(|definition| !defined.contains(definition)).collect();
    if !new.is_empty() {
        text.push('\n');
    }
    let width = new.iter().map(|(term, _)| term.chars().count()).max().unwrap_or(0);
    for (term, meaning) in &new {
        let _ = writeln!(text, "  {term:<width$}  {meaning}");
    }
    defined.extend(new);
}

fn render_goals(goals: &[Goal], text: &mut String) {
    let titles = ["Goal", "compared with", "to reach", "measured", "", ""];
    let mut lines = vec![titles.map(str::to_owned).to_vec()];
    for goal in goals {
        let reference = goal.reference.as_ref();
        let reference = reference.map_or_else(
            || "–".to_owned(),
            |(value, whose)| format!("{} ({whose})", figure(*value)),
        );
        let bound = match goal.bound {
            Bound::AtLeast(bound) => format!("≥ {}", figure(bound)),
            Bound::AtMost(bound) => format!("≤ {}", figure(bound)),
        };
        let met = match goal.is_met() {
            true => "met",
            false if goal.is_noise() => "NOISE",
            false => "MISSED",
        };
        lines.push(vec![
            goal.what.clone(),
            reference,
            bound,
            figure(goal.measured),
            goal.unit.clone(),
            met.to_owned(),
        ]);
    }
    align(&lines, text);
}

/// Aligns the first column to the left, the others to the right.
fn align(lines: &[Vec<String>], text: &mut String) {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for line in lines {
        let mut row = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(row, "{cell:<width$}")
            } else {
                write!(row, "  {cell:>width$}")
            };
        }
        let _ = writeln!(text, "  {}", row.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (48_600.4, "48,600"),
            (1_234_567.0, "1,234,567"),
            (123.4, "123"),
            (23.14, "23.1"),
            (2.345, "2.35"),
            (0.0423, "0.042"),
            (0.0, "0"),
            (-1500.0, "-1,500"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn a_term_is_defined_once() {
        let mut report = example();
        report.tables.push(report.tables[0].clone());
        let text = render(&report);
        assert_eq!(text.matches("R  readers").count(), 1);
        assert_eq!(text.matches("123,457").count(), 2);
    }

    #[test]
    fn a_report_is_laid_out() {
        let expected = "\
An example
==========

machine  this one

Rates, Kmsg/s

  R \\ W     1        2
  1      30.0  123,457
  16        –     many

  R  readers

  Goal       compared with  to reach  measured
  one   10.0 (the prototype)    ≥ 50.0      30.0  Kmsg/s  MISSED
  two                      –    ≤ 50.0      30.0      µs     met

lost = 0
";
        // The widths of the columns of goals do not matter here.
        let squeeze = |text: &str| {
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let text = render(&example());
        assert_eq!(squeeze(&text), squeeze(expected));
        let table: Vec<&str> = text.lines().filter(|line| line.contains("123,457")).collect();
        assert_eq!(table, ["  1      30.0  123,457"]);
    }
}
