//! The figures of the Toroni paper's appendix: WT, WW, WN, E, N, B and R of a run.

use super::grid::Runs;
use crate::report::{Cell, Table, figure};
use crate::summary::{Summary, mean};

const COLUMNS: [&str; 7] = ["WT ms", "WW ms", "WN ms", "E", "N", "B", "R"];

/// Makes a table with a row for each cell of the grid: the `first` columns, then the appendix.
pub(super) fn table(
    name: &str,
    title: &str,
    runs: &[Runs],
    titles: &[&str],
    first: impl Fn(&Runs) -> Vec<Cell>,
) -> Table {
    let mut columns: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    columns.extend(COLUMNS.map(str::to_owned));
    columns.push("lost".to_owned());
    let rows = runs
        .iter()
        .map(|runs| {
            let mut cells = first(runs);
            cells.extend(figures(runs));
            (format!("{} × {}", runs.writers, runs.readers), cells)
        })
        .collect();
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        corner: "W × R".to_owned(),
        columns,
        rows,
        definitions: definitions(),
        ..Table::default()
    }
}

/// Returns the figures of one cell.
pub(super) fn figures(runs: &Runs) -> Vec<Cell> {
    let senders = || runs.outcomes.iter().flat_map(|outcome| &outcome.senders);
    let receivers = || runs.outcomes.iter().flat_map(|outcome| &outcome.receivers);
    let ms = |ns: u64| ns as f64 / 1e6;
    let per_run = |of: &dyn Fn(usize) -> Option<f64>| {
        let values: Vec<f64> = (0..runs.outcomes.len()).filter_map(of).collect();
        match Summary::of(&values) {
            Some(summary) => Cell::mean(summary),
            None => Cell::none(),
        }
    };
    let of_senders = |of: &dyn Fn(&super::flow::Sent) -> Option<f64>| {
        per_run(&|run| {
            let values: Option<Vec<f64>> = runs.outcomes[run].senders.iter().map(of).collect();
            values.filter(|values| !values.is_empty()).map(|values| mean(&values))
        })
    };
    let lost: u64 = receivers().map(|receiver| receiver.faults.lost).sum();
    let notifications: u64 = senders().filter_map(|sender| sender.counts.notifications).sum();
    let notifying = (notifications > 0)
        .then(|| senders().map(|sender| sender.counts.notifying_ns).sum::<Option<u64>>())
        .flatten();
    vec![
        of_senders(&|sender| Some(ms(sender.ended_ns - sender.started_ns))),
        of_senders(&|sender| {
            let apart = sender.counts.waited_ns? + sender.counts.notifying_ns.unwrap_or(0);
            Some(ms((sender.ended_ns - sender.started_ns).saturating_sub(apart)))
        }),
        match notifying {
            Some(total_ns) => Cell::number(ms(total_ns) / notifications as f64),
            None => Cell::text("in WW"),
        },
        per_run(&|run| {
            let receivers = &runs.outcomes[run].receivers;
            let lapses: Option<Vec<f64>> =
                receivers.iter().map(|receiver| Some(receiver.counts.lapses? as f64)).collect();
            lapses.map(|lapses| mean(&lapses))
        }),
        of_senders(&|sender| sender.counts.notifications.map(|count| count as f64)),
        of_senders(&|sender| sender.counts.waits.map(|count| count as f64)),
        per_run(&|run| {
            let receivers = runs.outcomes[run].receivers.iter();
            let sleeps: Vec<f64> = receivers.map(|receiver| receiver.sleeps as f64).collect();
            Some(mean(&sleeps))
        }),
        Cell { text: figure(lost as f64), value: Some(lost as f64), summary: None },
    ]
}

fn definitions() -> Vec<(String, String)> {
    [
        ("WT", "time that a writer takes to post all its messages, ms, mean over writers"),
        ("WW", "WT without the waits for slow readers, ms. In the paper: WT without notifications"),
        (
            "WN",
            "time of one notification, ms. A notification is one futex wake, sent only if a reader \
             sleeps; writers do not time it: it is part of WW",
        ),
        ("E", "number of times that a reader was overtaken and lost messages, mean over readers"),
        ("N", "number of notifications that a writer sent, mean over writers. In the paper at least 1"),
        (
            "B",
            "number of times that a writer waited for slow readers, mean over writers. In the paper a \
             wait is a sleep of 5 ms under the lock; here it ends when there is space",
        ),
        (
            "R",
            "number of times that a reader slept and was woken (voluntary context switches), mean over \
             readers. In the paper: wake-ups by datagrams",
        ),
        ("lost", "messages that any reader missed, according to the numbers that each writer gives its messages"),
    ]
    .map(|(term, meaning)| (term.to_owned(), meaning.to_owned()))
    .to_vec()
}
