//! The log of a node: lines on standard error, each with fields, or JSON. What repeats is written once in 10 s, with its
//! number.

use clap::ValueEnum;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toroni_shell::note;

/// Lines of one kind and reason are written at most once in this time.
const PAUSE: Duration = Duration::from_secs(10);
/// How many kinds and reasons are remembered.
const REMEMBERED: usize = 1_024;

/// How important a line is. The file's `log` names the least important that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    /// Also everything that repeats.
    Trace,
}

impl Level {
    const ALL: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// Returns the level of this name. The schema of the file allows no other.
    pub(super) fn named(name: &str) -> Self {
        Self::ALL.iter().find(|(known, _)| *known == name).map_or(Self::Info, |(_, level)| *level)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, level)| *level == self).map_or("info", |(name, _)| *name)
    }
}

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A sentence, and fields as name=value
    #[default]
    Text,
    /// One object per line
    Json,
}

/// One line.
pub(super) struct Line {
    level: Level,
    event: &'static str,
    reason: String,
    text: String,
    fields: Vec<(&'static str, Field)>,
}

/// The value of a field.
enum Field {
    /// A number, or a text without blanks.
    Word(String),
    /// What others have chosen.
    Text(String),
}

impl Line {
    /// Begins a line about a kind of event.
    pub(super) fn new(level: Level, event: &'static str, text: impl Into<String>) -> Self {
        let (reason, fields) = (String::new(), Vec::new());
        Self { level, event, reason, text: text.into(), fields }
    }

    /// Adds a field: a number, or a text without blanks.
    pub(super) fn with(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.fields.push((name, Field::Word(value.to_string())));
        self
    }

    /// Adds a field whose values are counted each for itself.
    pub(super) fn by(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.reason, "{value} ");
        self.with(name, value)
    }

    /// Adds a field whose values are counted each for itself, and are texts that others have chosen.
    pub(super) fn by_text(mut self, name: &'static str, value: &str) -> Self {
        let _ = write!(self.reason, "{value:?} ");
        self.fields.push((name, Field::Text(value.to_owned())));
        self
    }

    fn shown(&self, more: u64) -> String {
        let Self { level, event, text, fields, .. } = self;
        let mut shown = format!("{text} level={} event={event}", level.name());
        for (name, value) in fields {
            // Writing to a string cannot fail.
            let _ = match value {
                Field::Word(word) => write!(shown, " {name}={word}"),
                Field::Text(text) => write!(shown, " {name}={text:?}"),
            };
        }
        if more > 0 {
            let _ = write!(shown, " more={more}");
        }
        shown
    }

    /// Returns an object with the same fields, and the time in seconds since 1970.
    fn json(&self, more: u64, time: f64) -> String {
        let mut object = Map::new();
        object.insert("time".to_owned(), time.into());
        object.insert("level".to_owned(), self.level.name().into());
        object.insert("event".to_owned(), self.event.into());
        object.insert("text".to_owned(), self.text.as_str().into());
        for (name, value) in &self.fields {
            let value = match value {
                // The digits of a source id are hexadecimal, and may look like those of a number.
                Field::Word(word) if *name != "source" => {
                    word.parse::<u64>().map_or_else(|_| word.as_str().into(), Value::from)
                }
                Field::Word(text) | Field::Text(text) => text.as_str().into(),
            };
            object.insert((*name).to_owned(), value);
        }
        if more > 0 {
            object.insert("more".to_owned(), more.into());
        }
        Value::from(object).to_string()
    }
}

/// Writes lines.
pub(super) struct Log {
    least: Level,
    format: Format,
    /// When a line was written last, and how many were not since then.
    kinds: BTreeMap<(&'static str, String), (Instant, u64)>,
    write: fn(&str),
}

impl Log {
    pub(super) fn new(least: Level, format: Format) -> Self {
        let write = match format {
            Format::Text => note::remark,
            Format::Json => note::line,
        };
        Self { least, format, kinds: BTreeMap::new(), write }
    }

    /// Writes a line, unless it is not important enough, or one of its kind and reason was written within 10 s.
    pub(super) fn line(&mut self, line: Line) {
        self.line_at(Instant::now(), line);
    }

    fn line_at(&mut self, now: Instant, line: Line) {
        if line.level > self.least {
            return;
        }
        let more = if self.least == Level::Trace { Some(0) } else { self.admit(now, &line) };
        if let Some(more) = more {
            self.write(&line, more);
        }
    }

    /// Writes a line that somebody has asked for, whatever its level is and how often it comes.
    pub(super) fn answer(&self, line: &Line) {
        self.write(line, 0);
    }

    fn write(&self, line: &Line, more: u64) {
        let shown = match self.format {
            Format::Text => line.shown(more),
            Format::Json => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                line.json(more, now.as_secs_f64())
            }
        };
        (self.write)(&shown);
    }

    /// Returns how many of its kind were left out before, or `None` if it is left out, too.
    fn admit(&mut self, now: Instant, line: &Line) -> Option<u64> {
        let key = (line.event, line.reason.clone());
        if let Some((last, held)) = self.kinds.get_mut(&key) {
            if now.duration_since(*last) < PAUSE {
                *held += 1;
                return None;
            }
            *last = now;
            return Some(std::mem::take(held));
        }
        if self.kinds.len() >= REMEMBERED {
            self.kinds.retain(|_, (last, _)| now.duration_since(*last) < PAUSE);
        }
        // Others choose the reasons, such as the ids of sources: a flood of new ones is left out.
        if self.kinds.len() >= REMEMBERED {
            return None;
        }
        self.kinds.insert(key, (now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn log(least: Level) -> Log {
        let write = |line: &str| LINES.with_borrow_mut(|lines| lines.push(line.to_owned()));
        Log { write, ..Log::new(least, Format::Text) }
    }

    fn written() -> Vec<String> {
        LINES.take()
    }

    fn loss(reason: &str, messages: u64) -> Line {
        Line::new(Level::Warn, "loss", "lost some").by("reason", reason).with("messages", messages)
    }

    #[test]
    fn each_reason_is_written_once_in_ten_seconds_with_the_number_of_those_left_out() {
        let mut log = log(Level::Info);
        let begin = Instant::now();
        for number in 0..5 {
            log.line_at(begin, loss("gone", number));
        }
        log.line_at(begin + Duration::from_secs(5), loss("burst", 9));
        log.line_at(begin + PAUSE, loss("gone", 7));
        let gone = "lost some level=warn event=loss reason=gone";
        assert_eq!(
            written(),
            [
                format!("{gone} messages=0"),
                "lost some level=warn event=loss reason=burst messages=9".to_owned(),
                format!("{gone} messages=7 more=4"),
            ]
        );
    }

    #[test]
    fn the_level_decides_what_is_written() {
        for (name, wanted) in [("error", 0), ("warn", 1), ("info", 2), ("debug", 3), ("trace", 6)] {
            let mut log = log(Level::named(name));
            assert_eq!(log.least.name(), name);
            for _ in 0..2 {
                for level in [Level::Warn, Level::Info, Level::Debug] {
                    log.line(Line::new(level, "test", "x").by("level", level.name()));
                }
            }
            assert_eq!(written().len(), wanted, "{name}");
        }
    }

    #[test]
    fn json_has_the_same_fields_with_their_types() {
        let line = loss("gone", 7).with("source", "00000012").by_text("receiver", "a \"b\"\n");
        assert_eq!(
            line.shown(3),
            "lost some level=warn event=loss reason=gone messages=7 source=00000012 receiver=\"a \\\"b\\\"\\n\" more=3"
        );
        let object: Value = serde_json::from_str(&line.json(3, 1.5)).unwrap();
        let wanted = serde_json::json!({
            "time": 1.5, "level": "warn", "event": "loss", "text": "lost some", "reason": "gone", "messages": 7,
            "source": "00000012", "receiver": "a \"b\"\n", "more": 3,
        });
        assert_eq!(object, wanted);
    }

    #[test]
    fn a_flood_of_reasons_takes_no_more_memory() {
        let mut log = log(Level::Info);
        let now = Instant::now();
        for number in 0..3 * REMEMBERED {
            log.line_at(now, loss(&number.to_string(), 1));
        }
        assert_eq!((log.kinds.len(), written().len()), (REMEMBERED, REMEMBERED));
        log.line_at(now + PAUSE, loss("again", 1));
        assert_eq!(written().len(), 1);
    }
}
