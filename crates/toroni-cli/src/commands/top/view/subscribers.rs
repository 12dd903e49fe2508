//! The panel of subscribers, with the one that publishers wait for on top.

use super::super::keys::{Choices, Sort};
use super::super::model::{BusModel, SubscriberModel};
use super::table::{Cell, Column, Table, columns_of};
use super::theme::Theme;
use super::{alive, pid, state, text};
use ratatui::style::Style;
use std::cmp::Reverse;
use toroni_shell::human::as_f64;

/// The width of the bar.
const BAR: u16 = 8;

pub(super) fn table(model: &BusModel, choices: &Choices, theme: &Theme) -> Table {
    let Some(all) = &model.subscribers else {
        return Table::new(
            vec![Column::names("SUBSCRIBERS", 8)],
            "this process may not read them: who lags and who lost messages is unknown",
        );
    };
    let mut shown: Vec<&SubscriberModel> =
        all.iter().filter(|one| choices.shows(&one.who.name)).collect();
    match choices.sort {
        Sort::Rate | Sort::Bytes => {
            shown.sort_by_key(|one| (Reverse(one.in_the_way), Reverse(one.lag_bytes)));
        }
        Sort::Name => shown.sort_by(|a, b| a.who.name.cmp(&b.who.name)),
    }
    let notes = shown.iter().map(|one| columns_of(note(one, theme).0)).max().unwrap_or(0);
    let has_states = shown.iter().any(|one| one.in_the_way && state(&one.who).is_some());
    let mut columns = vec![
        Column::names(
            format!(
                "SUBSCRIBERS {}/{}",
                alive(all.iter().map(|one| &one.who)),
                model.max_subscribers
            ),
            8,
        ),
        Column::right("PID", 7, 6),
        Column::right("MSG/S", 6, 4),
        Column::right("LAG", 8, 0),
        Column::left("OF RING", BAR, 5),
        Column::right("BEHIND", 8, 2),
        Column::right("LOST", 7, 1),
        Column::right("LAST MIN", 8, 7),
        Column::left("", notes, 0),
    ];
    if has_states {
        columns.push(Column::left("", 7, 3));
    }
    let has_losses_elsewhere = shown.iter().any(|one| one.lost_on_the_way > 0);
    if has_losses_elsewhere {
        columns.insert(8, Column::right("ON THE WAY", 10, 7));
    }
    let empty = if choices.filter.is_empty() { "none" } else { "none with this text" };
    let mut table = Table::new(columns, empty);
    for one in shown {
        let (note, style) = note(one, theme);
        let lost = |messages| {
            let style = if messages > 0 { theme.warning() } else { theme.dim() };
            Cell::new(text::count(messages), style)
        };
        let mut row = vec![
            Cell::from(format!("{} #{}", one.who.name, one.who.slot)),
            Cell::new(pid(&one.who), theme.dim()),
            Cell::from(text::rate(one.received_per_second)),
            Cell::from(text::bytes(Some(as_f64(one.lag_bytes)))),
            Cell::new(text::bar(one.lag_share, BAR), theme.bar()),
            Cell::from(text::age(one.behind)),
            lost(one.lost_messages),
            lost(one.lost_last_minute),
            Cell::new(note, style),
            Cell::new(
                state(&one.who).filter(|_| one.in_the_way).unwrap_or_default(),
                theme.alarm(),
            ),
        ];
        if has_losses_elsewhere {
            row.insert(8, lost(one.lost_on_the_way));
        }
        table.row(row);
    }
    table
}

/// Returns what is special about a subscriber.
fn note(one: &SubscriberModel, theme: &Theme) -> (&'static str, Style) {
    match state(&one.who) {
        _ if one.in_the_way => ("◄ in the way", theme.warning()),
        Some(state) => (state, theme.alarm()),
        None if one.lapped_now => ("overtaken", theme.warning()),
        None if !one.gating => ("guest", theme.dim()),
        None => ("", Style::new()),
    }
}
