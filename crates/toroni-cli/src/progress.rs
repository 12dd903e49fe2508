//! The bar of long work, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// Work that is over before this shows no bar at all.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// How far a piece of work is.
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: bool,
    started: Instant,
}

impl Progress {
    /// Of `total` steps; `None` if nobody knows, and then there is no bar.
    pub(crate) fn new(total: Option<u64>) -> Self {
        let bar = ProgressBar::hidden();
        bar.set_length(total.unwrap_or(0));
        // The template is constant and a test renders it.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar, shown: total.is_none(), started: Instant::now() }
    }

    /// So many steps are done.
    pub(crate) fn set(&mut self, done: u64) {
        if !self.shown && self.started.elapsed() >= SHOWN_AFTER {
            // Stays invisible if standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(done);
    }

    /// Whether looking at the clock for the bar is worth it.
    pub(crate) fn is_wanted() -> bool {
        std::io::IsTerminal::is_terminal(&std::io::stderr())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

const TEMPLATE: &str = "{bar:30} {percent:>3} %  {human_pos} of {human_len}  {eta} left";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
