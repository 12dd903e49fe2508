//! The panel of topics.

use super::super::keys::{Choices, Sort};
use super::super::model::{BusModel, TopicModel};
use super::table::{Cell, Column, Table};
use super::text;
use super::theme::Theme;
use toroni_shell::age::{self, Summary};

/// The width of the bar.
const BAR: u16 = 10;

pub(super) fn table(model: &BusModel, choices: &Choices, theme: &Theme) -> Table {
    let Some(topics) = &model.topics else {
        let reason = model.topics_problem.as_deref().unwrap_or("measuring …");
        return Table::new(vec![Column::names("TOPICS", 8)], reason);
    };
    let mut shown: Vec<&TopicModel> =
        topics.rows.iter().filter(|row| choices.shows(&row.topic)).collect();
    match choices.sort {
        Sort::Rate => {}
        Sort::Bytes => shown.sort_by(|a, b| b.bytes_per_second.total_cmp(&a.bytes_per_second)),
        Sort::Name => shown.sort_by(|a, b| a.topic.cmp(&b.topic)),
    }
    let all: f64 = topics.rows.iter().map(|row| row.messages_per_second).sum();
    let mut columns = vec![
        Column::names(format!("TOPICS {}", model.topics_known), 10),
        Column::right("MSG/S", 7, 0),
        Column::right("BYTES/S", 9, 1),
        Column::right("SIZE", 8, 2),
        Column::left("SHARE", BAR, 7),
    ];
    let has_ages = shown.iter().any(|row| row.age.is_some());
    if has_ages {
        let ages = ["AGE P50", "AGE P99", "LONGEST"].into_iter().zip([4, 6, 5]);
        columns.splice(4..4, ages.map(|(title, drop)| Column::right(title, 9, drop)));
    }
    let empty = if choices.filter.is_empty() {
        "no messages since this panel was opened"
    } else {
        "none with this text"
    };
    let mut table = Table::new(columns, empty);
    for row in shown {
        let is_sample = topics.approximate && row.messages_per_second > 0.0;
        let sign = if is_sample { "~" } else { "" };
        let style =
            if row.messages_per_second > 0.0 { ratatui::style::Style::new() } else { theme.dim() };
        let mut cells = vec![
            Cell::new(&row.topic, style),
            Cell::new(format!("{sign}{}", text::rate(Some(row.messages_per_second))), style),
            Cell::new(format!("{sign}{}", text::bytes(Some(row.bytes_per_second))), style),
            Cell::new(text::bytes(row.mean_bytes), style),
            Cell::new(text::bar(row.messages_per_second / all.max(1e-9), BAR), theme.bar()),
        ];
        if has_ages {
            cells.splice(4..4, ages(row.age, sign, theme));
        }
        table.row(cells);
    }
    table
}

/// Returns how old half of the messages, nearly all of them, and the oldest one were. A stamp in the future, of another clock,
/// is marked.
fn ages(age: Option<Summary>, sign: &str, theme: &Theme) -> [Cell; 3] {
    let cell = |age: f64| {
        let style = if age < 0.0 { theme.warning() } else { theme.dim() };
        Cell::new(format!("{sign}{}", age::shown(age)), style)
    };
    match age {
        Some(Summary { p50, p99, longest }) => [p50, p99, longest].map(cell),
        None => [(); 3].map(|()| Cell::new("-", theme.dim())),
    }
}
