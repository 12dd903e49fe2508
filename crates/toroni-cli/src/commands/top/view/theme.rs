//! Styles. Without colors, bold, dim and reverse remain.

use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Theme {
    is_colored: bool,
}

impl Theme {
    pub(in super::super) fn new(is_colored: bool) -> Self {
        Self { is_colored }
    }

    fn color(self, color: Color) -> Style {
        if self.is_colored { Style::new().fg(color) } else { Style::new() }
    }

    /// The titles of columns.
    pub(super) fn title(&self) -> Style {
        if self.is_colored {
            Style::new().fg(Color::Black).bg(Color::Cyan)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    pub(super) fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn bold(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Bars and charts.
    pub(super) fn bar(&self) -> Style {
        self.color(Color::Cyan)
    }

    /// What slows others, and losses.
    pub(super) fn warning(&self) -> Style {
        self.color(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// What does not work.
    pub(super) fn alarm(&self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }
}
