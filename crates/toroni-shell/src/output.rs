//! Standard output: buffered lines, JSON objects, tables.

use crate::failure::Failure;
use serde::Serialize;
use serde_json::ser::Formatter;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

/// Enough for about a thousand small messages per system call.
const BUFFER_BYTES: usize = 64 << 10;

/// Standard output with a buffer. Call [`Output::flush`] at the end.
pub struct Output {
    // Not `io::stdout()`, which searches everything written for line feeds.
    writer: BufWriter<File>,
    terminal: bool,
}

impl Output {
    /// Opens the standard output of this process.
    pub fn new() -> Result<Self, Failure> {
        let file = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Failure::of_output(&error))?;
        let terminal = io::stdout().is_terminal();
        Ok(Self { writer: BufWriter::with_capacity(BUFFER_BYTES, File::from(file)), terminal })
    }

    /// Writes to a file instead of standard output.
    pub fn to(file: File) -> Self {
        Self { writer: BufWriter::with_capacity(BUFFER_BYTES, file), terminal: false }
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(|error| Failure::of_output(&error))
    }

    /// Writes a line of text.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes one object on a line of its own.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        write_json(&mut self.writer, value).map_err(|error| Failure::of_output(&error))
    }

    /// Writes a table with aligned columns.
    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        self.bytes(table.render().as_bytes())
    }

    /// Writes the content of the buffer.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| Failure::of_output(&error))
    }

    /// Fails with [`Failure::ClosedPipe`] if the reader of the output has closed it. Without this check, a command
    /// would notice only at its next write.
    pub fn check_reader(&self) -> Result<(), Failure> {
        if crate::stop::is_hung_up(self.writer.get_ref()) {
            Err(Failure::ClosedPipe)
        } else {
            Ok(())
        }
    }
}

/// A table with aligned columns.
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table. Columns whose title starts with `>` are aligned to the right.
    pub fn new(titles: &[&str]) -> Self {
        let right = titles.iter().map(|title| title.starts_with('>')).collect();
        let titles = titles.iter().map(|title| title.trim_start_matches('>').to_owned()).collect();
        Self { right, rows: vec![titles] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// Whether the table has no rows below its titles.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Returns all lines, each with a line feed.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.right.len())
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or(0);
                if self.right.get(column).copied().unwrap_or(false) {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:<width$}  "));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Escapes what would control a terminal: names come from other processes.
pub fn printable(text: &str) -> String {
    if !text.chars().any(controls) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| match c {
            _ if c.is_control() => c.escape_default().to_string(),
            _ if controls(c) => c.escape_unicode().to_string(),
            _ => c.to_string(),
        })
        .collect()
}

/// Whether a character controls a terminal instead of being shown: control characters, and Unicode's line separators
/// and direction marks, which can make a text read differently from what it is.
fn controls(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes one object and a line feed.
pub(crate) fn write_json(into: impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(into, Escaping);
    value.serialize(&mut serializer)?;
    serializer.into_inner().write_all(b"\n")
}

/// Escapes what would control a terminal. For readers of JSON this makes no difference.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| controls(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            // All these characters are below U+10000.
            write!(writer, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Appends two lowercase hexadecimal digits for each byte.
pub fn hex(bytes: &[u8], into: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    into.reserve(bytes.len() * 2);
    for byte in bytes {
        into.push(DIGITS[usize::from(byte >> 4)]);
        into.push(DIGITS[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(&["NAME", ">BYTES"]);
        assert!(table.is_empty());
        table.row(vec!["a".to_owned(), "1234567".to_owned()]);
        table.row(vec!["längerer".to_owned(), "1".to_owned()]);
        assert_eq!(table.render(), "NAME        BYTES\na         1234567\nlängerer        1\n");
    }

    #[test]
    fn terminals_do_not_obey_names() {
        assert_eq!(printable("plain"), "plain");
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("txt.\u{202e}exe"), "txt.\\u{202e}exe");
    }

    #[test]
    fn terminals_do_not_obey_json() {
        let text = "a\n\"\u{7f}\u{9b}31m\u{202e}ä\u{1f600}\\";
        let mut line = Vec::new();
        write_json(&mut line, &text).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, concat!(r#""a\n\"\u007f\u009b31m\u202eä"#, "\u{1f600}", r#"\\""#, "\n"));
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }

    #[test]
    fn bytes_become_hexadecimal() {
        let mut text = Vec::new();
        hex(&[0x00, 0x7f, 0xff], &mut text);
        assert_eq!(text, b"007fff");
    }
}
