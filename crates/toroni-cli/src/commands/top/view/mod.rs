//! Draws a model. One file per panel; none of them does I/O.
//!
//! There are no borders: the titles of the columns, in one line, are the head of a panel.

pub(super) mod buses;
mod header;
mod help;
mod losses;
mod network;
mod publishers;
mod subscribers;
mod table;
mod text;
pub(super) mod theme;
mod topics;

#[cfg(test)]
mod picture;
#[cfg(test)]
mod tests;

use super::keys::{Choices, View};
use super::model::{BusModel, ListModel, State, Who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use table::Table;
use theme::Theme;

/// From this width on, publishers and subscribers are side by side.
const WIDE: u16 = 150;
/// The share of the publishers of a wide screen, in percent.
const PUBLISHERS_PERCENT: u32 = 43;

/// What is shown.
#[derive(Clone, Copy)]
pub(super) enum Shown<'a> {
    List(&'a ListModel),
    Bus(&'a BusModel),
}

/// Draws one screen. Without keys, it is for a reader and not for a user.
pub(super) fn draw(
    shown: Shown<'_>,
    choices: &Choices,
    theme: &Theme,
    has_keys: bool,
    area: Rect,
    buffer: &mut Buffer,
) {
    let keys = u16::from(has_keys && area.height >= 3);
    let body = Rect { height: area.height.saturating_sub(keys), ..area };
    match shown {
        Shown::List(model) => draw_list(model, choices, theme, has_keys, body, buffer),
        Shown::Bus(model) => draw_bus(model, choices, theme, body, buffer),
    }
    if choices.has_help {
        help::draw(theme, body, buffer);
    }
    if keys > 0 {
        let line = Rect { y: body.bottom(), height: 1, ..area };
        header::draw_keys(choices, theme, line, buffer);
    }
}

/// Returns one screen as text, as high as it needs.
pub(super) fn as_text(shown: Shown<'_>, choices: &Choices, width: u16) -> String {
    let theme = Theme::new(false);
    let rows = match shown {
        Shown::List(model) => model.buses.len(),
        Shown::Bus(model) => {
            let publishers = model.publishers.as_ref().map_or(0, Vec::len);
            let subscribers = model.subscribers.as_ref().map_or(0, Vec::len);
            let topics = model.topics.as_ref().map_or(0, |topics| topics.rows.len());
            publishers + subscribers + topics
        }
    };
    // With the header, the notices, the titles and the lines between the panels.
    let height = u16::try_from(rows.saturating_add(20)).unwrap_or(u16::MAX);
    // A buffer has at most 65,535 cells in each direction, and memory for all of them.
    let area = Rect::new(0, 0, width, height.min(10_000));
    let mut buffer = Buffer::empty(area);
    draw(shown, choices, &theme, false, area, &mut buffer);
    let text = lines(&buffer);
    match shown {
        Shown::Bus(model) => text + &network_as_text(model, choices, &theme, width),
        Shown::List(_) => text,
    }
}

/// Returns the panels of the network as text, if a node connects the bus.
fn network_as_text(model: &BusModel, choices: &Choices, theme: &Theme, width: u16) -> String {
    if model.network.as_ref().is_none_or(|network| network.nodes.is_empty()) {
        return String::new();
    }
    let tables = network::tables(model, choices, theme);
    let all: Vec<&Table> = tables.iter().collect();
    // A node states as many rows as it likes.
    let most = |table: &Table| table.height().min(1_000);
    let height = tables.iter().map(most).sum::<u16>() + 2;
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw_below_each_other(&all, 0, theme, 1, area, &mut buffer);
    format!("\n{}", lines(&buffer))
}

/// Returns the text in a buffer, without empty lines at the end.
fn lines(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut line = String::new();
        let mut skipped = 0;
        for x in buffer.area.left()..buffer.area.right() {
            let symbol = buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
            // The cell after a wide character is no cell of its own.
            if skipped == 0 {
                line.push_str(symbol);
                skipped = table::columns_of(symbol).saturating_sub(1);
            } else {
                skipped -= 1;
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn draw_list(
    model: &ListModel,
    choices: &Choices,
    theme: &Theme,
    has_keys: bool,
    area: Rect,
    buffer: &mut Buffer,
) {
    let rates = model.buses.iter().filter_map(|row| row.messages_per_second);
    // Not `sum`, which is -0 without numbers.
    let rate = rates.fold(0.0, |sum, rate| sum + rate);
    let problems = buses::shown(model, choices)
        .into_iter()
        .filter_map(|row| Some(format!("{}: {}", row.name, row.problem.as_ref()?)));
    let problems: Vec<String> = problems.collect();
    let wanted = u16::try_from(problems.len() + 1).unwrap_or(u16::MAX);
    let top = wanted.min((area.height / 3).max(1)).min(area.height);
    let head = Rect { height: top, ..area };
    header::draw_list(&model.directory, rate, model.time, choices, theme, head, buffer);
    header::draw_notices(&problems, theme, without_top(head, 1), buffer);
    let table = buses::table(model, choices, theme);
    let below = without_top(area, top + u16::from(area.height >= 8));
    let rows = usize::from(below.height.saturating_sub(2)).max(1);
    let selected = choices.selected.min(table.rows().saturating_sub(1));
    let offset = (selected + 1).saturating_sub(rows);
    table.draw(below, buffer, theme, offset, has_keys.then_some(selected));
}

fn draw_bus(model: &BusModel, choices: &Choices, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    // On a low screen, the panels are more important than the last notices.
    let most = (area.height / 3).max(2);
    let notices = u16::try_from(header::notices(model).len()).unwrap_or(0);
    let top = (2 + notices).min(most).min(area.height);
    header::draw(model, choices, theme, Rect { height: top, ..area }, buffer);
    let gap = u16::from(area.height >= 14);
    let area = without_top(area, top + gap);
    match choices.view {
        View::Topics => {
            topics::table(model, choices, theme).draw(area, buffer, theme, choices.offset, None);
        }
        View::Losses => {
            losses::table(model, choices, theme).draw(area, buffer, theme, choices.offset, None);
        }
        View::Network => {
            let tables = network::tables(model, choices, theme);
            let all: Vec<&Table> = tables.iter().collect();
            draw_below_each_other(&all, choices.offset, theme, gap, area, buffer);
        }
        View::Bus | View::List => draw_panels(model, choices, theme, gap, area, buffer),
    }
}

/// Draws panels below each other, each with a part of the room.
fn draw_below_each_other(
    tables: &[&Table],
    offset: usize,
    theme: &Theme,
    gap: u16,
    area: Rect,
    buffer: &mut Buffer,
) {
    let gaps = gap * u16::try_from(tables.len().saturating_sub(1)).unwrap_or(0);
    let wanted: Vec<u16> = tables.iter().map(|table| table.height()).collect();
    let heights = share_out(area.height.saturating_sub(gaps), &wanted);
    let mut rest = area;
    for (table, height) in tables.iter().zip(heights).filter(|(_, height)| *height > 0) {
        let area = Rect { height: height.min(rest.height), ..rest };
        let offset = offset.min(table.rows().saturating_sub(usize::from(area.height) / 2));
        table.draw(area, buffer, theme, offset, None);
        rest = without_top(rest, height + gap);
    }
}

fn draw_panels(
    model: &BusModel,
    choices: &Choices,
    theme: &Theme,
    gap: u16,
    area: Rect,
    buffer: &mut Buffer,
) {
    let publishers = publishers::table(model, choices, theme);
    let subscribers = subscribers::table(model, choices, theme);
    let topics = topics::table(model, choices, theme);
    let offset = choices.offset;
    let mut one = |table: &Table, area: Rect| {
        let offset = offset.min(table.rows().saturating_sub(usize::from(area.height) / 2));
        table.draw(area, buffer, theme, offset, None);
    };
    if area.width >= WIDE {
        let upper = publishers.height().max(subscribers.height());
        let heights = share_out(area.height.saturating_sub(gap), &[upper, topics.height()]);
        let left = left_width(area.width, publishers.width(), subscribers.width());
        let upper = Rect { height: heights[0], ..area };
        one(&publishers, Rect { width: left - 1, ..upper });
        one(&subscribers, Rect { x: area.x + left, width: area.width - left, ..upper });
        let lower = without_top(area, heights[0] + gap);
        one(&topics, Rect { height: heights[1].min(lower.height), ..lower });
        return;
    }
    // Where there is no room for lines between the panels, their heads separate them.
    // The most important panel comes first when the room is shared out.
    let wanted = [subscribers.height(), publishers.height(), topics.height()];
    let heights = share_out(area.height.saturating_sub(2 * gap), &wanted);
    let mut rest = area;
    for (table, height) in
        [(&publishers, heights[1]), (&subscribers, heights[0]), (&topics, heights[2])]
    {
        if height > 0 {
            one(table, Rect { height: height.min(rest.height), ..rest });
            rest = without_top(rest, height + gap);
        }
    }
}

/// Divides the width of a screen: each panel gets what it needs if there is room for both, or if the other one needs less
/// than its share.
fn left_width(width: u16, left: u16, right: u16) -> u16 {
    let part = |width: u16| u16::try_from(u32::from(width) * PUBLISHERS_PERCENT / 100).unwrap_or(0);
    // With the column between them.
    let left = left.saturating_add(1);
    match width.checked_sub(left.saturating_add(right)) {
        Some(spare) => left + part(spare),
        None => part(width).clamp(width.saturating_sub(right).min(left), left),
    }
}

/// Divides lines among panels: to each an equal part at first, and what one does not need to the others, in their
/// order. Less than a head and two rows is no use, so the last panels get nothing if there is no room for that.
fn share_out(lines: u16, wanted: &[u16]) -> Vec<u16> {
    let mut count = wanted.len();
    while count > 1 && lines < 3 * u16::try_from(count).unwrap_or(u16::MAX) {
        count -= 1;
    }
    let part = lines / u16::try_from(count.max(1)).unwrap_or(1);
    let mut heights: Vec<u16> = wanted.iter().map(|wanted| (*wanted).min(part)).collect();
    heights.iter_mut().skip(count).for_each(|height| *height = 0);
    let mut left = lines.saturating_sub(heights.iter().sum());
    for (height, wanted) in heights.iter_mut().zip(wanted).take(count) {
        let more = left.min(wanted - *height);
        *height += more;
        left -= more;
    }
    heights
}

fn without_top(area: Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}

fn pid(who: &Who) -> String {
    // In this namespace, the number means another process.
    if who.same_pid_namespace { who.pid.to_string() } else { format!("({})", who.pid) }
}

/// Counts those that live: the slots of the others are free.
fn alive<'a>(all: impl Iterator<Item = &'a Who>) -> usize {
    all.filter(|who| who.state != State::Dead).count()
}

/// Returns the state of a participant that does not simply live.
fn state(who: &Who) -> Option<&'static str> {
    match who.state {
        State::Alive => None,
        State::Stopped => Some("stopped"),
        State::Dumping => Some("dumping"),
        State::Dead => Some("dead"),
    }
}
