//! `--template '%t %p %s'`: parses and applies the form in which messages are printed. Does no I/O.

use crate::exchange::{Shown, base64};
use crate::human;
use crate::output::{hex, printable};
use std::io::Write;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Vec<u8>),
    Field(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Topic,
    Payload,
    Hex,
    Base64,
    Length,
    Sequence,
    Position,
    Time,
    Nanoseconds,
    Age,
    Descendants,
    State,
}

/// All letters. The help of `toroni sub` lists them as well.
const LETTERS: [(char, Field, &str); 12] = [
    ('t', Field::Topic, "topic"),
    ('p', Field::Payload, "payload"),
    ('x', Field::Hex, "payload in hexadecimal digits"),
    ('b', Field::Base64, "payload in base64"),
    ('l', Field::Length, "length of the payload in bytes"),
    ('s', Field::Sequence, "sequence number"),
    ('o', Field::Position, "position in the stream"),
    ('T', Field::Time, "time of publication (RFC 3339, UTC), or -"),
    ('n', Field::Nanoseconds, "time of publication in nanoseconds since 1970, or -"),
    ('A', Field::Age, "nanoseconds from publication to receipt, or -"),
    ('d', Field::Descendants, "1 if published to descendants, else 0"),
    ('r', Field::State, "retained for a value, cleared if one was cleared, else -"),
];

/// Returns all letters, each with its meaning.
pub fn letters() -> impl Iterator<Item = (char, &'static str)> {
    LETTERS.into_iter().map(|(letter, _, meaning)| (letter, meaning))
}

impl Template {
    /// Parses a template. The error lists the letters that exist.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '%' => match letters.next() {
                    Some('%') => literal.push(b'%'),
                    next => {
                        let field = field(next)?;
                        if !literal.is_empty() {
                            parts.push(Part::Literal(std::mem::take(&mut literal)));
                        }
                        parts.push(Part::Field(field));
                    }
                },
                '\\' => literal.push(escaped(&mut letters)?),
                other => {
                    literal.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }

    /// Whether it says what a message has to do with the value of its topic.
    pub(crate) fn shows_state(&self) -> bool {
        self.0.contains(&Part::Field(Field::State))
    }

    /// Appends a message in this form. For a terminal, control characters in names and payloads are escaped.
    pub fn write(&self, message: &Shown<'_>, terminal: bool, into: &mut Vec<u8>) {
        for part in &self.0 {
            match part {
                Part::Literal(bytes) => into.extend_from_slice(bytes),
                Part::Field(field) => field.write(message, terminal, into),
            }
        }
    }
}

impl Field {
    fn write(self, message: &Shown<'_>, terminal: bool, into: &mut Vec<u8>) {
        let payload = message.payload;
        let stamp = message.stamp;
        match self {
            Self::Topic => write_bytes(message.topic.as_bytes(), terminal, into),
            Self::Payload => write_bytes(payload, terminal, into),
            Self::Hex => hex(payload, into),
            Self::Base64 => into.extend_from_slice(base64(payload).as_bytes()),
            Self::Length => write_text(payload.len(), into),
            Self::Sequence => write_text(message.sequence, into),
            Self::Position => match message.position {
                Some(position) => write_text(position, into),
                None => into.push(b'-'),
            },
            Self::Time => match stamp {
                Some(stamp) => write_text(human::rfc3339(stamp), into),
                None => into.push(b'-'),
            },
            Self::Nanoseconds => match stamp {
                Some(stamp) => write_text(stamp, into),
                None => into.push(b'-'),
            },
            Self::Age => match message.age {
                Some(age) => write_text(age, into),
                None => into.push(b'-'),
            },
            Self::Descendants => write_text(u8::from(message.to_descendants), into),
            Self::State => write_text(message.state(), into),
        }
    }
}

/// Appends bytes. For a terminal, control characters are escaped.
pub fn write_bytes(bytes: &[u8], terminal: bool, into: &mut Vec<u8>) {
    if terminal {
        into.extend_from_slice(printable(&String::from_utf8_lossy(bytes)).as_bytes());
    } else {
        into.extend_from_slice(bytes);
    }
}

fn write_text(value: impl std::fmt::Display, into: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(into, "{value}");
}

fn field(letter: Option<char>) -> Result<Field, String> {
    if let Some((_, field, _)) = LETTERS.iter().find(|(known, ..)| Some(*known) == letter) {
        return Ok(*field);
    }
    let known: Vec<String> =
        LETTERS.iter().map(|(letter, _, meaning)| format!("%{letter} {meaning}")).collect();
    let given = letter.map(String::from).unwrap_or_default();
    Err(format!("%{given} is unknown: use {}; %% a percent sign", known.join("; ")))
}

fn escaped(letters: &mut std::str::Chars<'_>) -> Result<u8, String> {
    let letter = letters.next();
    match letter {
        Some('n') => Ok(b'\n'),
        Some('t') => Ok(b'\t'),
        Some('r') => Ok(b'\r'),
        Some('e') => Ok(0x1b),
        Some('0') => Ok(0),
        Some('\\') => Ok(b'\\'),
        Some('x') => {
            let is_hex = |text: &&str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let digits = letters.as_str().get(..2).filter(is_hex);
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            letters.nth(1);
            byte.ok_or_else(|| "\\x needs two hexadecimal digits, such as \\x1f".to_owned())
        }
        _ => Err(format!(
            "\\{} is unknown: use \\n, \\t, \\r, \\e, \\0, \\xHH and \\\\",
            letter.map(String::from).unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_taken_apart() {
        let literal = |text: &str| Part::Literal(text.as_bytes().to_vec());
        assert_eq!(
            Template::parse("%t = %p%%\\t\\x41ä"),
            Ok(Template(vec![
                Part::Field(Field::Topic),
                literal(" = "),
                Part::Field(Field::Payload),
                literal("%\tAä"),
            ]))
        );
        assert_eq!(Template::parse(""), Ok(Template(Vec::new())));
        assert_eq!(
            Template::parse("\\xff\\0\\e\\\\\\r\\n"),
            Ok(Template(vec![Part::Literal(vec![0xff, 0, 0x1b, b'\\', b'\r', b'\n'])]))
        );
    }

    #[test]
    fn the_age_is_a_number_or_a_dash() {
        for (age, text) in [(Some(1_500), "1500;"), (Some(-3), "-3;"), (None, "-;")] {
            let shown = Shown {
                topic: "a",
                payload: &[],
                position: None,
                sequence: 0,
                number: None,
                origin: None,
                stamp: None,
                age,
                to_descendants: false,
                is_retained: false,
                is_cleared: false,
            };
            let mut written = Vec::new();
            Template::parse("%A;").unwrap().write(&shown, false, &mut written);
            assert_eq!(String::from_utf8(written).unwrap(), text);
        }
    }

    #[test]
    fn what_is_unknown_lists_what_is_known() {
        for (text, said) in [
            ("%q", "%q is unknown: use %t topic; %p payload;"),
            ("100%", "% is unknown"),
            ("\\q", "\\q is unknown: use \\n,"),
            ("\\", "\\ is unknown"),
            ("\\x4", "two hexadecimal digits"),
            ("\\xä", "two hexadecimal digits"),
            ("\\x+1", "two hexadecimal digits"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
