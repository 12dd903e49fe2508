//! What is wrong or doubtful in a configuration, and where.

use std::fmt;

/// Whether a node starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The node refuses to start.
    Error,
    /// The node starts, and may not do what was meant.
    Warning,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

impl Place {
    /// Returns the place of a byte of a text.
    #[must_use]
    pub fn of(text: &str, byte: usize) -> Self {
        Lines::new(text).place(byte)
    }
}

/// Where the lines of a text begin, to find many places in it.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let after = text.match_indices('\n').map(|(feed, _)| feed + 1);
        Self { text, starts: std::iter::once(0).chain(after).collect() }
    }

    /// Returns the place of a byte. One within a character counts as that character.
    pub(super) fn place(&self, byte: usize) -> Place {
        let mut end = byte.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= end);
        let column = self.text[self.starts[line - 1]..end].chars().count() + 1;
        Place { line, column }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the node starts with it.
    pub severity: Severity,
    /// Where, if it is about something that is in the file.
    pub place: Option<Place>,
    /// The setting, such as `[[send]] 1: data_rate`. Empty if the file is no TOML.
    pub setting: String,
    /// What is wrong, and what to write.
    pub problem: String,
}

/// `12:1: error: [[send]] 1: data_rate: …`
impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(formatter, "{line}:{column}: ")?;
        }
        formatter.write_str(match self.severity {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
        })?;
        if !self.setting.is_empty() {
            write!(formatter, "{}: ", self.setting)?;
        }
        formatter.write_str(&self.problem)
    }
}

/// How many findings are collected. A file that has more is no configuration.
pub(super) const MOST: usize = 100;

/// Findings, as they are collected.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn refuse(
        &mut self,
        place: Option<Place>,
        setting: impl Into<String>,
        problem: impl Into<String>,
    ) {
        self.add(Severity::Error, place, setting.into(), problem.into());
    }

    pub(super) fn warn(
        &mut self,
        place: Option<Place>,
        setting: impl Into<String>,
        problem: impl Into<String>,
    ) {
        self.add(Severity::Warning, place, setting.into(), problem.into());
    }

    fn add(&mut self, severity: Severity, place: Option<Place>, setting: String, problem: String) {
        match self.0.len() {
            MOST => {
                let problem = format!("there are more than {MOST} findings");
                let (place, setting) = (None, String::new());
                self.0.push(Finding { severity: Severity::Error, place, setting, problem });
            }
            0..MOST => self.0.push(Finding { severity, place, setting, problem }),
            _ => {}
        }
    }

    /// Whether further findings are left out.
    pub(super) fn are_full(&self) -> bool {
        self.0.len() > MOST
    }

    pub(super) fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Returns them, errors first, each kind in the order of the file.
    pub(super) fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| (finding.severity, finding.place));
        self.0
    }
}

/// Returns `: did you mean …?` with the most similar of these names, if one is similar enough.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    /// One wrong letter in three is allowed.
    const SIMILARITY: f64 = 0.6;
    known
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(similarity, _)| *similarity > SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map_or_else(String::new, |(_, known)| format!(": did you mean `{known}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_and_lines_from_1() {
        let text = "größe = 1\nx = 2";
        for (byte, line, column) in [(0, 1, 1), (4, 1, 4), (3, 1, 3), (12, 2, 1), (99, 2, 6)] {
            assert_eq!(Place::of(text, byte), Place { line, column }, "{byte}");
        }
    }
}
