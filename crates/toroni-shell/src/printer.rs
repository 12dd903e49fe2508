//! Prints messages and losses, as `toroni sub` does.

use crate::exchange::{self, Loss, Shown};
use crate::failure::Failure;
use crate::note;
use crate::output::{Output, hex};
use crate::template::{Template, write_bytes};
use clap::ValueEnum;

/// What `--format` names.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Topic, tab, payload, line feed
    Text,
    /// Topic, tab, payload in hexadecimal digits, line feed
    Hex,
    /// Only the payload, without a line feed
    Raw,
    /// An object with topic, position, sequence, length and payload
    Json,
}

/// How a message is printed.
pub enum Style {
    /// As `--format` says.
    Format {
        /// The form.
        format: Format,
        /// Whether the topic is left out.
        payload_only: bool,
    },
    /// As `--template` says.
    Template(Template),
}

/// Prints messages and losses.
pub struct Printer {
    /// Where they are printed.
    pub output: Output,
    style: Style,
    /// The byte after each message.
    end: u8,
    /// Whether text begins with the state of the value.
    shows_state: bool,
    scratch: Vec<u8>,
}

impl Printer {
    /// Creates a printer. `end` is the byte after each message.
    pub fn new(output: Output, style: Style, end: u8) -> Self {
        Self { output, style, end, shows_state: false, scratch: Vec::new() }
    }

    /// Lets text begin with a field that says whether it is a value, `retained`, or that one was cleared, `cleared`. Otherwise it
    /// is `-`.
    #[must_use]
    pub fn showing_state(mut self) -> Self {
        self.shows_state = true;
        self
    }

    /// Prints a message.
    pub fn print(&mut self, message: &Shown<'_>) -> Result<(), Failure> {
        let mut line = std::mem::take(&mut self.scratch);
        line.clear();
        self.render(message, &mut line);
        let printed = self.output.bytes(&line);
        self.scratch = line;
        printed
    }

    /// Appends the printed form of a message. For a terminal, control characters are escaped. A form that cannot say that a value
    /// was cleared has nothing for it.
    pub fn render(&self, message: &Shown<'_>, into: &mut Vec<u8>) {
        if message.is_cleared && !self.can_say_cleared() {
            return;
        }
        let terminal = self.output.is_terminal();
        let (format, payload_only) = match &self.style {
            Style::Template(template) => {
                template.write(message, terminal, into);
                return into.push(self.end);
            }
            Style::Format { format, payload_only } => (*format, *payload_only),
        };
        match format {
            Format::Raw => return write_bytes(message.payload, terminal, into),
            Format::Json => return exchange::write(message, !payload_only, into),
            Format::Text | Format::Hex => {}
        }
        if !payload_only {
            if self.shows_state {
                into.extend_from_slice(message.state().as_bytes());
                into.push(b'\t');
            }
            write_bytes(message.topic.as_bytes(), terminal, into);
            into.push(b'\t');
        }
        if format == Format::Hex {
            hex(message.payload, into);
        } else {
            write_bytes(message.payload, terminal, into);
        }
        into.push(self.end);
    }

    fn can_say_cleared(&self) -> bool {
        match &self.style {
            Style::Template(template) => template.shows_state(),
            Style::Format { format: Format::Json, .. } => true,
            Style::Format { format: Format::Raw, .. } => false,
            Style::Format { payload_only, .. } => self.shows_state && !payload_only,
        }
    }

    /// Reports a loss: with JSON in the output, otherwise on standard error, so that the output has only what was
    /// received.
    pub fn loss(&mut self, loss: &Loss, text: &str, quiet: bool) -> Result<(), Failure> {
        if matches!(self.style, Style::Format { format: Format::Json, .. }) {
            let mut line = Vec::new();
            exchange::write_loss(loss, &mut line);
            return self.output.bytes(&line);
        }
        if quiet {
            return Ok(());
        }
        // On a terminal that shows both streams, the loss appears after the messages before it.
        self.output.flush()?;
        note::loss(text);
        Ok(())
    }
}
