//! Messages and losses as `sub` prints them.

use super::options::Format;
use super::template::{Template, write_bytes};
use crate::exchange::{self, Loss};
use crate::failure::Failure;
use crate::note;
use crate::output::{Output, hex};
use toroni::Message;

/// What is printed of a message.
pub(crate) enum Style {
    Format { format: Format, payload_only: bool },
    Template(Template),
}

/// Messages in one of the styles.
pub(crate) struct Printer {
    pub(crate) output: Output,
    style: Style,
    /// What follows a message.
    end: u8,
    scratch: Vec<u8>,
}

impl Printer {
    pub(crate) fn new(output: Output, style: Style, end: u8) -> Self {
        Self { output, style, end, scratch: Vec::new() }
    }

    /// Prints a message.
    pub(crate) fn print(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        let mut line = std::mem::take(&mut self.scratch);
        line.clear();
        self.render(message, &mut line);
        let printed = self.output.bytes(&line);
        self.scratch = line;
        printed
    }

    /// Appends what is printed of a message. A terminal must not obey what somebody published.
    pub(crate) fn render(&self, message: &Message<'_>, into: &mut Vec<u8>) {
        let terminal = self.output.is_terminal();
        let (format, payload_only) = match &self.style {
            Style::Template(template) => {
                template.write(message, terminal, into);
                return into.push(self.end);
            }
            Style::Format { format, payload_only } => (*format, *payload_only),
        };
        match format {
            Format::Raw => return write_bytes(message.payload(), terminal, into),
            Format::Json => return exchange::write(message, !payload_only, into),
            Format::Text | Format::Hex => {}
        }
        if !payload_only {
            write_bytes(message.topic().as_bytes(), terminal, into);
            into.push(b'\t');
        }
        if format == Format::Hex {
            hex(message.payload(), into);
        } else {
            write_bytes(message.payload(), terminal, into);
        }
        into.push(self.end);
    }

    /// Reports a loss: as JSON at its place in the output, else on standard error, so that what was
    /// received is all that the output has.
    pub(crate) fn loss(&mut self, loss: Loss, text: &str, quiet: bool) -> Result<(), Failure> {
        if matches!(self.style, Style::Format { format: Format::Json, .. }) {
            let mut line = Vec::new();
            exchange::write_loss(loss, &mut line);
            return self.output.bytes(&line);
        }
        if quiet {
            return Ok(());
        }
        // Behind what came before it, for whoever sees both.
        self.output.flush()?;
        note::loss(text);
        Ok(())
    }
}
