//! The tables, the goal, the chart and the notes.

use super::measured::{Figure, Lane};
use super::{Kind, NAME, Options};
use crate::experiment::{self, count};
use crate::report::{Bound, Cell, Chart, Goal, Report, Scale, Series, Table};
use crate::transport::About;

pub(super) fn report(options: &Options, lanes: &[Lane]) -> Report {
    let mut report = Report {
        name: NAME.to_owned(),
        title: "Bystanders: what a message costs while other subscribers sleep".to_owned(),
        conditions: experiment::conditions(options.repetitions),
        ..Report::default()
    };
    let text = format!(
        "{} messages of 64 bytes a second for {:?}, after as long a silence",
        count(options.rate.into()),
        options.length
    );
    report.condition("work", text);
    report.condition(
        "processes",
        "a publisher, a subscriber of its topic, each bystander, and the broker if there is one",
    );
    let figures: [(&str, &str, &str, Figure); 2] = [
        (
            "processor",
            "Processor time of all processes for each message, less that in silence",
            "µs",
            |run| run.each_ns / 1e3,
        ),
        (
            "sleeps",
            "How often a bystander goes to sleep (voluntary context switches) for 1,000 messages, more than in silence",
            "",
            |run| run.sleeps,
        ),
    ];
    for (name, title, unit, figure) in figures {
        for (index, kind) in options.kinds.iter().enumerate() {
            let rows = options.counts.iter().enumerate().map(|(row, bystanders)| {
                let cells = lanes.iter().map(|lane| lane.runs[index][row].cell(figure)).collect();
                (bystanders.to_string(), cells)
            });
            report.tables.push(Table {
                name: format!("{name}_{}", kind.name()),
                title: format!("{title}: {}", kind.title()),
                unit: unit.to_owned(),
                corner: "bystanders".to_owned(),
                columns: lanes.iter().map(|lane| lane.contender.name.clone()).collect(),
                rows: rows.collect(),
                definitions: Vec::new(),
            });
        }
    }
    report.tables.push(contenders(lanes));
    report.goals.extend(goal(options, lanes));
    report.charts.extend(options.kinds.iter().enumerate().map(|(index, kind)| {
        let lines = lanes.iter().map(|lane| {
            let points =
                options.counts.iter().zip(&lane.runs[index]).filter_map(|(count, runs)| {
                    let each = runs.summary(|run| run.each_ns / 1e3)?.median;
                    // The scale is logarithmic.
                    (each > 0.0).then_some((f64::from(*count), each))
                });
            Series::line(lane.contender.name.clone(), points.collect())
        });
        Chart {
            title: format!("Processor time of a message: {}", kind.title()),
            x_label: "bystanders".to_owned(),
            y_label: "µs".to_owned(),
            x_scale: Scale::Linear,
            y_scale: Scale::Logarithmic,
            categories: Vec::new(),
            series: lines.filter(|line| !line.points.is_empty()).collect(),
        }
    }));
    report.notes.extend(notes(options, lanes));
    report
}

fn contenders(lanes: &[Lane]) -> Table {
    let rows = lanes.iter().map(|lane| {
        let state = if lane.contender.program.is_ok() { "measured" } else { "MISSING, see below" };
        let of = |text: fn(&About) -> &String| {
            lane.about.as_ref().map_or_else(Cell::none, |about| Cell::text(text(about)))
        };
        let cells =
            vec![Cell::text(state), of(|about| &about.version), of(|about| &about.settings)];
        (lane.contender.name.clone(), cells)
    });
    Table {
        name: "contenders".to_owned(),
        title: "The contenders".to_owned(),
        corner: "contender".to_owned(),
        columns: ["state", "version", "topics"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        ..Table::default()
    }
}

fn goal(options: &Options, lanes: &[Lane]) -> Option<Goal> {
    let toroni = lanes.iter().find(|lane| lane.contender.is_toroni())?;
    let kind = options.kinds.iter().position(|kind| *kind == Kind::Others)?;
    let each = |bystanders: u16| {
        let row = options.counts.iter().position(|count| *count == bystanders)?;
        Some(toroni.runs[kind][row].summary(|run| run.each_ns)?.median)
    };
    Some(Goal {
        what: "64 bystanders of other topics, beside none".to_owned(),
        unit: "x".to_owned(),
        reference: None,
        bound: Bound::AtMost(1.2),
        measured: each(64)? / each(0)?,
    })
}

/// A rate below this part of what was asked for is reported.
const KEPT: f64 = 0.95;

fn notes(options: &Options, lanes: &[Lane]) -> Vec<String> {
    let mut notes = Vec::new();
    for lane in lanes {
        let name = &lane.contender.name;
        if let Err(reason) = &lane.contender.program {
            notes.push(format!("MISSING: {name}: {reason}"));
            continue;
        }
        for (kind, rows) in options.kinds.iter().zip(&lane.runs) {
            for (bystanders, runs) in options.counts.iter().zip(rows) {
                let of = format!("{name}, {bystanders} {}", kind.title());
                if let Some(reason) = &runs.failed {
                    notes.push(format!("FAILED: {of}: {reason}"));
                }
                if runs.lost() > 0 {
                    notes.push(format!("LOST: {of}: {} messages", count(runs.lost())));
                }
                let rate = runs.summary(|run| run.rate).map(|summary| summary.median);
                if let Some(rate) = rate.filter(|rate| *rate < KEPT * f64::from(options.rate)) {
                    notes.push(format!(
                        "SLOW: {of}: the publisher reached only {rate:.0} messages a second"
                    ));
                }
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::measured::{Lane, Measured};
    use super::super::{Contender, TORONI};
    use super::*;
    use crate::options::RunLength;
    use crate::process_group::Program;

    #[test]
    fn a_contender_that_is_missing_is_named_with_the_reason() {
        let mut options = Options::of(RunLength::Quick, 500);
        options.counts = vec![64, 0];
        let contender = |name: &str, program| Contender { name: name.to_owned(), program };
        let program = Program { path: "/bin/true".into(), arguments: Vec::new() };
        let missing = contender("dbus", Err("there is no dbus-daemon".to_owned()));
        let mut toroni = Lane::new(&contender(TORONI, Ok(program)), &options);
        for (row, cost) in [(0, 22.0), (1, 20.0)] {
            let run = Measured { each_ns: cost, sleeps: 0.0, lost: 0, rate: 300.0 };
            toroni.runs[0][row].measured = vec![run; 2];
        }
        toroni.runs[1][0].failed = Some("it broke".to_owned());
        let report = report(&options, &[toroni, Lane::new(&missing, &options)]);
        let notes = report.notes.join("\n");
        for part in [
            "SLOW: toroni, 64 bystanders of other topics: the publisher reached only 300 messages",
            "FAILED: toroni, 64 bystanders of the same topic: it broke",
            "MISSING: dbus: there is no dbus-daemon",
        ] {
            assert!(notes.contains(part), "{part} in {notes}");
        }
        assert!((report.goals[0].measured - 1.1).abs() < 1e-9);
        let names: Vec<_> = report.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(
            names,
            ["processor_others", "processor_same", "sleeps_others", "sleeps_same", "contenders"]
        );
        assert!(report.svg().is_ok());
    }
}
