//! A text on a terminal that takes the place of the one before.

use toroni_shell::failure::Failure;
use toroni_shell::output::Output;

/// Standard output, and what stands there for a while.
pub(super) struct Screen {
    pub(super) output: Output,
    /// How many lines the text has on the terminal.
    lines: usize,
}

impl Screen {
    pub(super) fn new(output: Output) -> Self {
        Self { output, lines: 0 }
    }

    /// Shows a text until the next one.
    pub(super) fn show(&mut self, text: &str) -> Result<(), Failure> {
        self.print(text)?;
        self.lines = terminal_lines(text);
        Ok(())
    }

    /// Prints the last text, which stays.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Failure> {
        if self.lines > 0 {
            self.output.bytes(format!("\x1b[{}A\x1b[J", self.lines).as_bytes())?;
            self.lines = 0;
        }
        self.output.bytes(text.as_bytes())?;
        self.output.flush()
    }
}

/// Returns how many lines a text takes on this terminal, which breaks long ones.
fn terminal_lines(text: &str) -> usize {
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col);
    let width = if width == 0 { usize::MAX } else { usize::from(width) };
    text.lines().map(|line| line.chars().count().div_ceil(width).max(1)).sum()
}
