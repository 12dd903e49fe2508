//! The progress bar, shown only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// Work that takes less time shows no bar.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// A progress bar on standard error.
pub struct Progress {
    bar: ProgressBar,
    shown: bool,
    started: Instant,
}

impl Progress {
    /// Starts a bar of `total` steps. If that is `None`, no bar is shown.
    pub fn new(total: Option<u64>) -> Self {
        let bar = ProgressBar::hidden();
        bar.set_length(total.unwrap_or(0));
        // A test checks the template.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar, shown: total.is_none(), started: Instant::now() }
    }

    /// Sets how many steps are done.
    pub fn set(&mut self, done: u64) {
        if !self.shown && self.started.elapsed() >= SHOWN_AFTER {
            // Shows nothing if standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(done);
    }

    /// Whether standard error is a terminal.
    pub fn is_wanted() -> bool {
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
