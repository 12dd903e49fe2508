//! Tables whose columns disappear in a fixed order if the screen is narrow, and lines whose parts do.

use super::text::fit;
use super::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use toroni_shell::output::printable;

/// The columns between two columns.
const GAP: u16 = 2;
/// A column of names may take this much room before other columns disappear.
const NAMES: u16 = 20;
/// The columns to the left of everything.
pub(super) const MARGIN: u16 = 1;

pub(super) struct Column {
    title: String,
    width: u16,
    is_right: bool,
    /// Columns with the highest number disappear first, and those with 0 never.
    drop: u8,
    /// Whether it is as wide as its longest cell, but at least `width` and at most what is left.
    is_flexible: bool,
}

impl Column {
    /// Makes a column of numbers.
    pub(super) fn right(title: impl Into<String>, width: u16, drop: u8) -> Self {
        Self { title: title.into(), width, is_right: true, drop, is_flexible: false }
    }

    pub(super) fn left(title: impl Into<String>, width: u16, drop: u8) -> Self {
        Self { is_right: false, ..Self::right(title, width, drop) }
    }

    /// Makes a column of names. A table has one at most.
    pub(super) fn names(title: impl Into<String>, least: u16) -> Self {
        Self { is_flexible: true, ..Self::left(title, least, 0) }
    }
}

pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Makes a cell. Names come from other processes, so what would control a terminal is escaped.
    pub(super) fn new(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: printable(text.as_ref()), style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Style::new())
    }
}

pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// What is said if there are no rows.
    empty: String,
}

impl Table {
    pub(super) fn new(columns: Vec<Column>, empty: impl Into<String>) -> Self {
        Self { columns, rows: Vec::new(), empty: empty.into() }
    }

    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns how many lines it needs.
    pub(super) fn height(&self) -> u16 {
        u16::try_from(self.rows.len().max(1)).unwrap_or(u16::MAX - 1).saturating_add(1)
    }

    /// Returns how many columns of the terminal it needs to show everything.
    pub(super) fn width(&self) -> u16 {
        let columns = (0..self.columns.len()).map(|index| match &self.columns[index] {
            column if column.is_flexible => self.longest(index).max(column.width),
            column => column.width,
        });
        let gaps = GAP * u16::try_from(self.columns.len().saturating_sub(1)).unwrap_or(0);
        columns.fold(MARGIN + gaps, u16::saturating_add)
    }

    /// Draws the titles and the rows from `offset` on. If not all fit, the last line says how many are missing.
    pub(super) fn draw(
        &self,
        area: Rect,
        buffer: &mut Buffer,
        theme: &Theme,
        offset: usize,
        selected: Option<usize>,
    ) {
        let area = area.intersection(buffer.area);
        if area.is_empty() {
            return;
        }
        let columns = self.columns_in(area.width);
        buffer.set_style(Rect { height: 1, ..area }, theme.title());
        let titles = self.columns.iter().map(|column| (column.title.as_str(), Style::new()));
        self.line(area, buffer, &columns, &titles.collect::<Vec<_>>());
        let room = usize::from(area.height - 1);
        let offset = offset.min(self.rows.len().saturating_sub(1));
        let left = self.rows.len() - offset;
        // One row says more than how many are missing.
        let shown = if left > room && room > 1 { room - 1 } else { left.min(room) };
        let mut below = Rect { y: area.y + 1, height: 1, ..area };
        for (index, row) in self.rows.iter().enumerate().skip(offset).take(shown) {
            let cells: Vec<_> = row.iter().map(|cell| (cell.text.as_str(), cell.style)).collect();
            if selected == Some(index) {
                buffer.set_style(below, theme.selected());
            }
            self.line(below, buffer, &columns, &cells);
            below.y += 1;
        }
        let note = match left - shown {
            _ if room == 0 || shown == room => return,
            0 if self.rows.is_empty() => self.empty.clone(),
            0 => return,
            more => format!("… {more} more"),
        };
        let width = area.width.saturating_sub(MARGIN);
        buffer.set_string(area.x + MARGIN, below.y, fit(&printable(&note), width), theme.dim());
    }

    fn line(
        &self,
        area: Rect,
        buffer: &mut Buffer,
        columns: &[(usize, u16)],
        cells: &[(&str, Style)],
    ) {
        let mut x = area.x + MARGIN;
        for (index, width) in columns {
            let (Some((text, style)), Some(column)) = (cells.get(*index), self.columns.get(*index))
            else {
                continue;
            };
            let text = fit(text, *width);
            let taken = columns_of(&text);
            let indent = if column.is_right { width.saturating_sub(taken) } else { 0 };
            buffer.set_string(x + indent, area.y, text, *style);
            x += width + GAP;
        }
    }

    /// Returns the columns that fit, each with its width.
    fn columns_in(&self, width: u16) -> Vec<(usize, u16)> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let preferred = |index: usize| match &self.columns[index] {
            column if column.is_flexible => self.longest(index).clamp(column.width, NAMES),
            column => column.width,
        };
        let gaps = |shown: &[usize]| {
            MARGIN + GAP * u16::try_from(shown.len().saturating_sub(1)).unwrap_or(0)
        };
        let needed = |shown: &[usize]| {
            gaps(shown) + shown.iter().map(|index| preferred(*index)).sum::<u16>()
        };
        while needed(&shown) > width {
            let last = shown.iter().enumerate().max_by_key(|(_, index)| self.columns[**index].drop);
            match last {
                Some((at, index)) if self.columns[*index].drop > 0 => {
                    shown.remove(at);
                }
                _ => break,
            }
        }
        let least: u16 = shown.iter().map(|index| self.columns[*index].width).sum();
        let spare = width.saturating_sub(gaps(&shown) + least);
        let widths = shown.into_iter().map(|index| {
            let column = &self.columns[index];
            let most = if column.is_flexible { column.width + spare } else { column.width };
            let wanted = if column.is_flexible { self.longest(index) } else { column.width };
            (index, wanted.clamp(column.width, most))
        });
        widths.collect()
    }

    /// Returns the width of the longest cell of a column, or of its title.
    fn longest(&self, index: usize) -> u16 {
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        let title = columns_of(&self.columns[index].title);
        cells.map(|cell| columns_of(&cell.text)).fold(title, u16::max)
    }
}

pub(super) fn columns_of(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// A part of a line. Parts with the highest number disappear first, and those with 0 never.
pub(super) struct Part {
    pub(super) text: String,
    pub(super) style: Style,
    pub(super) drop: u8,
    /// Whether it stands at the right end.
    pub(super) is_right: bool,
}

impl Part {
    pub(super) fn new(text: impl AsRef<str>, style: Style, drop: u8) -> Self {
        Self { text: printable(text.as_ref()), style, drop, is_right: false }
    }

    pub(super) fn at_the_right(self) -> Self {
        Self { is_right: true, ..self }
    }
}

/// Draws the parts that fit, with `gap` columns between them.
pub(super) fn draw_parts(area: Rect, buffer: &mut Buffer, gap: u16, parts: Vec<Part>) {
    let area = area.intersection(buffer.area);
    if area.is_empty() {
        return;
    }
    let mut parts: Vec<Part> = parts.into_iter().filter(|part| !part.text.is_empty()).collect();
    let width = |part: &Part| columns_of(&part.text) + gap;
    while MARGIN + parts.iter().map(width).sum::<u16>() > area.width + gap {
        match parts.iter().enumerate().max_by_key(|(_, part)| part.drop) {
            Some((at, part)) if part.drop > 0 => {
                parts.remove(at);
            }
            _ => break,
        }
    }
    let right: u16 = parts.iter().filter(|part| part.is_right).map(width).sum();
    let mut left = area.x + MARGIN;
    // As far from the right edge as the left parts are from the left one.
    let mut after = (area.right() + gap).saturating_sub(right + MARGIN).max(area.x);
    for part in parts {
        let x = if part.is_right { &mut after } else { &mut left };
        let room = area.right().saturating_sub(*x);
        let text = fit(&part.text, room);
        buffer.set_string(*x, area.y, &text, part.style);
        *x = (*x).saturating_add(columns_of(&text) + gap);
    }
}
