//! The panel of publishers.

use super::super::keys::{Choices, Sort};
use super::super::model::{BusModel, PublisherModel};
use super::table::{Cell, Column, Table};
use super::theme::Theme;
use super::{alive, pid, state, text};
use std::cmp::Reverse;

pub(super) fn table(model: &BusModel, choices: &Choices, theme: &Theme) -> Table {
    let Some(all) = &model.publishers else {
        return Table::new(
            vec![Column::names("PUBLISHERS", 8)],
            "this process may not read them: who publishes and who waits is unknown",
        );
    };
    let mut shown: Vec<&PublisherModel> =
        all.iter().filter(|one| choices.shows(&one.who.name)).collect();
    let rank = |rate: Option<f64>| Reverse(order(rate));
    match choices.sort {
        Sort::Rate => shown.sort_by_key(|one| rank(one.messages_per_second)),
        Sort::Bytes => shown.sort_by_key(|one| rank(one.bytes_per_second)),
        Sort::Name => shown.sort_by(|a, b| a.who.name.cmp(&b.who.name)),
    }
    let has_states = shown.iter().any(|one| state(&one.who).is_some());
    let has_overwrites = shown.iter().any(|one| one.overwrites > 0);
    let mut columns = vec![
        Column::names(
            format!(
                "PUBLISHERS {}/{}",
                alive(all.iter().map(|one| &one.who)),
                model.max_publishers
            ),
            10,
        ),
        Column::right("PID", 7, 3),
        Column::right("MSG/S", 6, 0),
        Column::right("BYTES/S", 8, 4),
        Column::right("WAITS", 6, 1),
        Column::right("WAKES/S", 7, 5),
        Column::right("OVERWRITES", 10, if has_overwrites { 2 } else { 6 }),
    ];
    if has_states {
        columns.push(Column::left("", 7, 0));
    }
    let empty = if choices.filter.is_empty() { "none" } else { "none with this text" };
    let mut table = Table::new(columns, empty);
    for one in shown {
        let waits = one.waited_share.is_some_and(|share| share >= 0.005);
        let overwrites = if one.overwrites > 0 { theme.warning() } else { theme.dim() };
        let mut row = vec![
            Cell::from(&one.who.name),
            Cell::new(pid(&one.who), theme.dim()),
            Cell::from(text::rate(one.messages_per_second)),
            Cell::from(text::bytes(one.bytes_per_second)),
            Cell::new(
                text::percent(one.waited_share),
                if waits { theme.warning() } else { theme.dim() },
            ),
            Cell::from(text::rate(one.wakes_per_second)),
            Cell::new(text::count(one.overwrites), overwrites),
        ];
        row.extend(state(&one.who).map(|state| Cell::new(state, theme.alarm())));
        table.row(row);
    }
    table
}

/// Orders rates: the bits of numbers that are not negative have their order.
fn order(rate: Option<f64>) -> u64 {
    rate.unwrap_or(0.0).max(0.0).to_bits()
}
