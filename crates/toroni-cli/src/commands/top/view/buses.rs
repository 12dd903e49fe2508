//! The list of buses.

use super::super::keys::{Choices, Sort};
use super::super::model::{BusRow, ListModel};
use super::table::{Cell, Column, Table};
use super::text;
use super::theme::Theme;
use ratatui::style::Style;
use toroni_shell::human::as_f64;

/// Returns the buses in the order in which they are shown.
pub(in super::super) fn shown<'a>(model: &'a ListModel, choices: &Choices) -> Vec<&'a BusRow> {
    let mut rows: Vec<&BusRow> =
        model.buses.iter().filter(|row| choices.shows(&row.name)).collect();
    let by = |rate: Option<f64>| rate.unwrap_or(-1.0);
    match choices.sort {
        // A list whose rows move is hard to choose from: the rate is no order for it.
        Sort::Rate | Sort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        Sort::Bytes => {
            rows.sort_by(|a, b| by(b.bytes_per_second).total_cmp(&by(a.bytes_per_second)));
        }
    }
    rows
}

pub(super) fn table(model: &ListModel, choices: &Choices, theme: &Theme) -> Table {
    let rows = shown(model, choices);
    let has_dead = rows.iter().any(|row| row.dead > 0);
    let mut columns = vec![
        Column::names(format!("BUSES {}", model.buses.len()), 10),
        Column::right("RING", 8, 5),
        Column::right("PUB", 4, 4),
        Column::right("SUB", 4, 3),
        Column::right("MSG/S", 6, 0),
        Column::right("BYTES/S", 8, 2),
        Column::right("UNREAD", 6, 6),
        Column::right("WAITED/S", 8, 7),
        Column::right("LOST", 7, 1),
        Column::right("LAST MIN", 8, 8),
    ];
    if has_dead {
        columns.insert(4, Column::right("DEAD", 4, 4));
    }
    let empty = match &model.problem {
        Some(problem) => problem.clone(),
        None if choices.filter.is_empty() => {
            format!("no buses in {}: `toroni create NAME` creates one", model.directory)
        }
        None => "none with this text".to_owned(),
    };
    let mut table = Table::new(columns, empty);
    for row in rows {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let lost = |messages| {
            let style = if messages > 0 { theme.warning() } else { theme.dim() };
            Cell::new(text::count(messages), style)
        };
        let name = if row.problem.is_some() { theme.alarm() } else { Style::new() };
        let mut cells = vec![
            Cell::new(&row.name, name),
            Cell::from(text::bytes(row.capacity.map(as_f64))),
            Cell::from(number(row.publishers)),
            Cell::from(number(row.subscribers)),
            Cell::from(text::rate(row.messages_per_second)),
            Cell::from(text::bytes(row.bytes_per_second)),
            Cell::from(text::percent(row.unread_share)),
            Cell::from(row.waited_per_second.map_or_else(|| "-".to_owned(), text::seconds)),
            lost(row.lost_messages),
            lost(row.lost_last_minute),
        ];
        if has_dead {
            let style = if row.dead > 0 { theme.alarm() } else { theme.dim() };
            cells.insert(4, Cell::new(row.dead.to_string(), style));
        }
        table.row(cells);
    }
    table
}
