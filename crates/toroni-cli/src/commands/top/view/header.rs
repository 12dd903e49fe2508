//! The two lines at the top of a bus, the notices below them, and the line of keys.

use super::super::keys::{Choices, View};
use super::super::model::{BusModel, Holder, Lock, LockState, State};
use super::table::{MARGIN, Part, draw_parts};
use super::text;
use super::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use toroni_shell::human;
use toroni_shell::output::printable;

/// The width of the chart of rates.
const CHART: usize = 16;

/// Returns the lines below the header: what does not work, and what to do about it.
pub(super) fn notices(model: &BusModel) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(problem) = &model.problem {
        notices.push(format!("{problem} (trying again; the figures are old)"));
    }
    if let Lock { holder: Some(holder), state, .. } = &model.lock {
        let (who, pid) =
            (named(holder), holder.pid.map_or_else(String::new, |pid| pid.to_string()));
        match (holder.state, state) {
            (State::Stopped, LockState::Exclusive) => notices.push(format!(
                "exclusive publisher {who} is stopped: nothing is published until it continues (kill -CONT {pid}) or ends"
            )),
            (State::Stopped, _) => notices.push(format!(
                "{who} is stopped and has the writer lock: publishers wait until it continues (kill -CONT {pid}) or ends"
            )),
            (State::Dumping, _) => {
                notices.push(format!("{who} has the writer lock, and is dumping core"));
            }
            (State::Dead, _) => notices.push(format!(
                "{who} died with the writer lock: the next publisher takes it over"
            )),
            (State::Alive, _) => {}
        }
    }
    if model.dead > 0 {
        let who = human::counted(model.dead.into(), "participant");
        let slots = if model.dead == 1 { "its slot is" } else { "their slots are" };
        notices.push(format!("{who} died without closing the bus: {slots} free for others"));
    }
    notices.extend(super::network::problems(model));
    notices
}

/// Draws the two lines and the notices.
pub(super) fn draw(
    model: &BusModel,
    choices: &Choices,
    theme: &Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    draw_parts(
        Rect { height: area.height.min(1), ..area },
        buffer,
        3,
        first(model, choices, theme),
    );
    let second_line = Rect { y: area.y + 1, height: area.height.saturating_sub(1).min(1), ..area };
    draw_parts(second_line, buffer, 3, second(model, theme));
    let below = Rect { y: area.y + 2, height: area.height.saturating_sub(2), ..area };
    draw_notices(&notices(model), theme, below, buffer);
}

/// Draws one line for each notice, as far as there is room.
pub(super) fn draw_notices(notices: &[String], theme: &Theme, area: Rect, buffer: &mut Buffer) {
    for (y, notice) in (area.top()..area.bottom()).zip(notices) {
        let text = text::fit(&printable(&format!("! {notice}")), area.width.saturating_sub(MARGIN));
        buffer.set_string(area.x + MARGIN, y, text, theme.alarm());
    }
}

fn first(model: &BusModel, choices: &Choices, theme: &Theme) -> Vec<Part> {
    let plain = Style::new();
    let lock_style = match model.lock.state {
        LockState::Held => theme.warning(),
        _ => plain,
    };
    let mut parts = vec![Part::new(&model.name, theme.bold(), 0)];
    if model.capacity > 0 {
        parts.push(Part::new(format!("{} ring", human::bytes(model.capacity)), plain, 6));
    }
    if let Some(share) = model.unread_share {
        let style = if share >= 0.75 { theme.warning() } else { plain };
        parts.push(Part::new(format!("{} unread", text::percent(Some(share))), style, 2));
    }
    if model.history.is_some_and(|age| age.seconds > 0.0) {
        parts.push(Part::new(format!("{} of history", text::age(model.history)), plain, 3));
    }
    if !model.policy.is_empty() {
        parts.push(Part::new(format!("policy {}", model.policy), plain, 7));
        parts.push(Part::new(lock(&model.lock), lock_style, 1));
    }
    parts.extend(clock(model.time, choices, theme));
    parts
}

/// Returns the right end of the first line.
pub(super) fn clock(time: f64, choices: &Choices, theme: &Theme) -> Vec<Part> {
    let mut parts = Vec::new();
    if choices.is_paused {
        parts.push(Part::new("PAUSED", theme.warning(), 0).at_the_right());
    }
    let every = format!("every {}", human::duration(choices.interval));
    parts.push(Part::new(format!("{} UTC", text::clock(time)), theme.dim(), 5).at_the_right());
    parts.push(Part::new(every, theme.dim(), 8).at_the_right());
    parts
}

fn second(model: &BusModel, theme: &Theme) -> Vec<Part> {
    let plain = Style::new();
    if model.messages_per_second.is_none() {
        return vec![Part::new("measuring …", theme.dim(), 0)];
    }
    let rate = format!("{} msg/s", text::rate(model.messages_per_second).trim_end());
    let bytes = format!("{}/s", text::bytes(model.bytes_per_second).trim_end());
    let mut parts = vec![
        Part::new(rate, theme.bold(), 0),
        Part::new(bytes, theme.bold(), 2),
        Part::new(text::chart(&model.recent_rates, CHART), theme.bar(), 6),
    ];
    if let Some(waited) = model.waited_per_second {
        let slow = model.subscribers.iter().flatten().find(|one| one.in_the_way);
        let for_whom =
            slow.map_or_else(String::new, |one| format!(" for {} #{}", one.who.name, one.who.slot));
        let style = if waited >= 0.005 { theme.warning() } else { plain };
        let text = if waited > 0.0 {
            format!("waited {}/s{for_whom}", waited_text(waited))
        } else {
            "no waiting".to_owned()
        };
        parts.push(Part::new(text, style, 3));
    }
    if let Some(wakes) = model.wakes_per_second {
        let wakes = text::rate(Some(wakes));
        parts.push(Part::new(format!("wakes {}/s", wakes.trim_end()), plain, 5));
    }
    if model.subscribers.is_some() {
        let style = |lost: u64| if lost > 0 { theme.warning() } else { plain };
        let (lost, recent) = (model.lost_messages, model.lost_last_minute);
        parts.push(Part::new(format!("lost {}", text::count(lost).trim_end()), style(lost), 1));
        let recent_text = format!("last minute {}", text::count(recent).trim_end());
        parts.push(Part::new(recent_text, style(recent), 4));
    }
    parts
}

/// Prints seconds of waiting in a second, which may be more than one.
fn waited_text(seconds: f64) -> String {
    if seconds < 0.0005 { "<1 ms".to_owned() } else { text::seconds((seconds * 1e3).round() / 1e3) }
}

fn lock(lock: &Lock) -> String {
    let Some(holder) = &lock.holder else { return "lock free".to_owned() };
    let held = lock
        .held_seconds
        .map_or_else(String::new, |held| format!(" for {}", text::seconds(held.round().max(1.0))));
    match lock.state {
        LockState::Free => "lock free".to_owned(),
        // It changes hands all the time: a name would be chance.
        LockState::InUse => "lock in use".to_owned(),
        LockState::Held => format!("lock held by {}{held}", named(holder)),
        LockState::Exclusive => format!("exclusive: {}", named(holder)),
    }
}

fn named(holder: &Holder) -> String {
    let pid = holder.pid.map(|pid| format!("pid {pid}"));
    match (&holder.name, pid) {
        (Some(name), Some(pid)) => format!("{name} ({pid})"),
        (Some(name), None) => name.clone(),
        (None, Some(pid)) => pid,
        (None, None) => "an unknown process".to_owned(),
    }
}

/// Draws the line of keys, or the filter that is being typed.
pub(super) fn draw_keys(choices: &Choices, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    if choices.is_typing {
        let parts = vec![
            Part::new(format!("/{}▏", choices.filter), theme.bold(), 0),
            Part::new("Enter keeps it, Esc clears it", theme.dim(), 1),
        ];
        draw_parts(area, buffer, 3, parts);
        return;
    }
    if let Some(note) = choices.note {
        draw_parts(area, buffer, 3, vec![Part::new(note, theme.warning(), 0)]);
        return;
    }
    let (plain, shown) = (theme.dim(), theme.bold());
    let view = |view| if choices.view == view { shown } else { plain };
    let mut parts = Vec::new();
    if choices.view == View::List {
        parts.push(Part::new("Enter open", plain, 1));
    } else {
        parts.push(Part::new("1 bus", view(View::Bus), 2));
        parts.push(Part::new("2 topics", view(View::Topics), 3));
        parts.push(Part::new("3 losses", view(View::Losses), 4));
        parts.push(Part::new("4 network", view(View::Network), 4));
    }
    let filter = if choices.filter.is_empty() {
        "/ filter".to_owned()
    } else {
        format!("/{}", choices.filter)
    };
    let filter_style = if choices.filter.is_empty() { plain } else { shown };
    parts.push(Part::new(filter, filter_style, if choices.filter.is_empty() { 6 } else { 1 }));
    parts.push(Part::new(format!("s sort: {}", choices.sort.as_str()), plain, 5));
    parts.push(Part::new("p pause", if choices.is_paused { shown } else { plain }, 7));
    parts.push(Part::new("+ - interval", plain, 9));
    if choices.view != View::List {
        parts.push(Part::new("Esc buses", plain, 8));
    }
    parts.push(Part::new("? keys", if choices.has_help { shown } else { plain }, 1));
    parts.push(Part::new("q quit", plain, 0));
    draw_parts(area, buffer, 3, parts);
}

/// Draws the header of the list of buses.
pub(super) fn draw_list(
    directory: &str,
    rate: f64,
    time: f64,
    choices: &Choices,
    theme: &Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    let rate = text::rate(Some(rate));
    let mut parts = vec![
        Part::new(directory, theme.bold(), 0),
        Part::new(format!("{} msg/s", rate.trim_end()), Style::new(), 1),
    ];
    parts.extend(clock(time, choices, theme));
    draw_parts(Rect { height: area.height.min(1), ..area }, buffer, 3, parts);
}
