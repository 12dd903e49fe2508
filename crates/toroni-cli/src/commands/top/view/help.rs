//! The keys, over the panels.

use super::super::keys::KEYS;
use super::table::{Cell, Column, Table};
use super::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Draws the keys in the middle of an area, or in all of it if it is small.
pub(super) fn draw(theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let mut table =
        Table::new(vec![Column::left("KEY", 7, 0), Column::names("WHAT IT DOES", 12)], "");
    for (key, effect) in KEYS {
        table.row(vec![Cell::new(key, theme.bold()), Cell::from(effect)]);
    }
    // With an empty column and an empty line on each side.
    let width = table.width().saturating_add(2).min(area.width);
    let height = table.height().saturating_add(2).min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    for position in place.intersection(buffer.area).positions() {
        if let Some(cell) = buffer.cell_mut(position) {
            cell.reset();
        }
    }
    // One line is too little for both.
    let has_margins = height >= table.height().saturating_add(2);
    let margin = u16::from(has_margins);
    let inner = Rect {
        x: place.x + 1.min(width),
        y: place.y + margin,
        width: width.saturating_sub(2),
        height: height - 2 * margin,
    };
    table.draw(inner, buffer, theme, 0, None);
}
