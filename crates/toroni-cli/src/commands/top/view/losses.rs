//! The panel of losses, the newest first.

use super::super::keys::Choices;
use super::super::model::BusModel;
use super::table::{Cell, Column, Table};
use super::text;
use super::theme::Theme;

pub(super) fn table(model: &BusModel, choices: &Choices, theme: &Theme) -> Table {
    let columns = vec![
        Column::left("TIME UTC", 8, 1),
        Column::right("LOST", 9, 0),
        Column::names("WHO", 10),
        Column::left("REASON", 40, 2),
    ];
    let empty = if !choices.filter.is_empty() {
        "none with this text"
    } else if model.subscribers.is_none() {
        "this process may not read the subscribers: whether they lost messages is unknown"
    } else {
        "none since top was started"
    };
    let mut table = Table::new(columns, empty);
    for loss in model.losses.iter().filter(|loss| choices.shows(&loss.who)) {
        let sign = match loss.bound.as_str() {
            "at_least" => "≥",
            "at_most" => "≤",
            _ => "",
        };
        let slot = loss.slot.map_or_else(String::new, |slot| format!(" #{slot}"));
        table.row(vec![
            Cell::new(text::clock(loss.time), theme.dim()),
            Cell::new(format!("{sign}{}", text::count(loss.messages)), theme.warning()),
            Cell::from(format!("{}{slot}", loss.who)),
            Cell::from(&loss.reason),
        ]);
    }
    table
}
