//! The log of a node: lines on standard error, each with fields, or JSON. What repeats is written at most once in 10 s: the
//! first line at once, and at the end of that time the last one, with what those between have counted.

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
    /// What it counts, and what the lines counted that were left out before it.
    count: u64,
    /// Says it with that count.
    text: Box<dyn Fn(u64) -> String>,
    fields: Vec<(&'static str, Field)>,
}

/// The value of a field.
enum Field {
    /// A number, or a text without blanks.
    Word(String),
    /// What others have chosen.
    Text(String),
    /// What the line counts.
    Count,
}

impl Line {
    /// Begins a line about a kind of event.
    pub(super) fn new(level: Level, event: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::counting(level, event, 0, move |_| text.clone())
    }

    /// Begins a line that counts. `text` makes the sentence with the count of all lines that this one stands for.
    pub(super) fn counting(
        level: Level,
        event: &'static str,
        count: u64,
        text: impl Fn(u64) -> String + 'static,
    ) -> Self {
        let (reason, text, fields) = (String::new(), Box::new(text), Vec::new());
        Self { level, event, reason, count, text, fields }
    }

    /// Adds a field with the count of a line that counts.
    pub(super) fn with_count(mut self, name: &'static str) -> Self {
        self.fields.push((name, Field::Count));
        self
    }

    fn text(&self) -> String {
        (self.text)(self.count)
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
        let Self { level, event, fields, .. } = self;
        let mut shown = format!("{} level={} event={event}", self.text(), level.name());
        for (name, value) in fields {
            // Writing to a string cannot fail.
            let _ = match value {
                Field::Word(word) => write!(shown, " {name}={word}"),
                Field::Text(text) => write!(shown, " {name}={text:?}"),
                Field::Count => write!(shown, " {name}={}", self.count),
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
        object.insert("text".to_owned(), self.text().into());
        for (name, value) in &self.fields {
            let value = match value {
                // The digits of a source id are hexadecimal, and may look like those of a number.
                Field::Word(word) if *name != "source" => {
                    word.parse::<u64>().map_or_else(|_| word.as_str().into(), Value::from)
                }
                Field::Word(text) | Field::Text(text) => text.as_str().into(),
                Field::Count => self.count.into(),
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
    kinds: BTreeMap<(&'static str, String), Kind>,
    write: fn(&str),
}

/// What was written of one kind and reason.
struct Kind {
    /// When a line was written last.
    last: Instant,
    /// The last line that was left out since then, and how many were before it.
    held: Option<(Line, u64)>,
}

impl Log {
    pub(super) fn new(least: Level, format: Format) -> Self {
        let write = match format {
            Format::Text => note::remark,
            Format::Json => note::line,
        };
        Self { least, format, kinds: BTreeMap::new(), write }
    }

    /// Writes a line, unless it is not important enough, or one of its kind and reason was written within 10 s. That one
    /// is held.
    pub(super) fn line(&mut self, line: Line) {
        self.line_at(Instant::now(), line);
    }

    /// Writes the lines that were held for 10 s. To be called about once a second.
    pub(super) fn write_held(&mut self) {
        self.write_held_at(Instant::now(), PAUSE);
    }

    /// Writes all lines that are held: the node ends.
    pub(super) fn finish(&mut self) {
        self.write_held_at(Instant::now(), Duration::ZERO);
    }

    fn line_at(&mut self, now: Instant, line: Line) {
        if line.level > self.least {
            return;
        }
        let admitted =
            if self.least == Level::Trace { Some((line, 0)) } else { self.admit(now, line) };
        if let Some((line, more)) = admitted {
            self.write(&line, more);
        }
    }

    fn write_held_at(&mut self, now: Instant, pause: Duration) {
        let mut due = Vec::new();
        for kind in self.kinds.values_mut() {
            if now.duration_since(kind.last) >= pause
                && let Some(held) = kind.held.take()
            {
                kind.last = now;
                due.push(held);
            }
        }
        for (line, more) in due {
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

    /// Returns the line to write now, and how many of its kind were left out before; `None` if it is held or left out.
    fn admit(&mut self, now: Instant, mut line: Line) -> Option<(Line, u64)> {
        let key = (line.event, line.reason.clone());
        if let Some(kind) = self.kinds.get_mut(&key) {
            let mut more = 0;
            if let Some((earlier, before)) = kind.held.take() {
                line.count = line.count.saturating_add(earlier.count);
                more = before.saturating_add(1);
            }
            if now.duration_since(kind.last) < PAUSE {
                kind.held = Some((line, more));
                return None;
            }
            kind.last = now;
            return Some((line, more));
        }
        if self.kinds.len() >= REMEMBERED {
            self.kinds
                .retain(|_, kind| kind.held.is_some() || now.duration_since(kind.last) < PAUSE);
        }
        // Others choose the reasons, such as the ids of sources: a flood of new ones is left out.
        if self.kinds.len() >= REMEMBERED {
            return None;
        }
        self.kinds.insert(key, Kind { last: now, held: None });
        Some((line, 0))
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
        let text = |messages| format!("lost {messages}");
        Line::counting(Level::Warn, "loss", messages, text)
            .by("reason", reason)
            .with_count("messages")
    }

    fn line_of(reason: &str, messages: u64, more: u64) -> String {
        let more = if more > 0 { format!(" more={more}") } else { String::new() };
        format!("lost {messages} level=warn event=loss reason={reason} messages={messages}{more}")
    }

    #[test]
    fn each_reason_is_written_once_in_ten_seconds_with_the_sum_of_what_was_left_out() {
        let mut log = log(Level::Info);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        for messages in [1, 2, 5_000, 4] {
            log.line_at(begin, loss("gone", messages));
        }
        log.line_at(at(5), loss("burst", 9));
        log.line_at(at(10), loss("gone", 7));
        assert_eq!(
            written(),
            [line_of("gone", 1, 0), line_of("burst", 9, 0), line_of("gone", 5_013, 3)]
        );
    }

    #[test]
    fn what_was_left_out_is_written_although_nothing_of_its_kind_follows() {
        let mut log = log(Level::Info);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        log.line_at(begin, loss("gone", 1));
        log.line_at(at(1), loss("gone", 5_000));
        log.write_held_at(at(9), PAUSE);
        assert_eq!(written(), [line_of("gone", 1, 0)]);
        log.write_held_at(at(10), PAUSE);
        log.write_held_at(at(11), PAUSE);
        assert_eq!(written(), [line_of("gone", 5_000, 0)]);
        // It was just written, so the next ones wait; and the end of the node waits for nothing.
        log.line_at(at(12), loss("gone", 2));
        log.line_at(at(13), loss("gone", 3));
        assert!(written().is_empty());
        log.finish();
        log.finish();
        assert_eq!(written(), [line_of("gone", 5, 1)]);
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
            "lost 7 level=warn event=loss reason=gone messages=7 source=00000012 receiver=\"a \\\"b\\\"\\n\" more=3"
        );
        let object: Value = serde_json::from_str(&line.json(3, 1.5)).unwrap();
        let wanted = serde_json::json!({
            "time": 1.5, "level": "warn", "event": "loss", "text": "lost 7", "reason": "gone", "messages": 7,
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
        // One that is held stays.
        log.line_at(now, loss("0", 1));
        log.line_at(now + PAUSE, loss("again", 1));
        assert_eq!((log.kinds.len(), written().len()), (2, 1));
    }
}
