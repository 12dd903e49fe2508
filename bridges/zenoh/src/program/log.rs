//! Log lines on standard error: as text, or as a JSON object each.
//!
//! A warning that repeats is printed at most once in [`WINDOW`]: the first at once, and at the end of that time the
//! last, with the number of those between. Warnings are of one kind if one place in the code makes them.

use super::Failure;
use super::options::LogFormat;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

const WINDOW: Duration = Duration::from_secs(10);

/// Zenoh reports its own affairs in detail. At `info`, only the addresses on which it can be reached are of interest.
const DEFAULT: &str = "warn,toroni_zenoh=info,zenoh::net::runtime::orchestrator=info";

/// Begins to log, to standard error.
pub(crate) fn start(format: LogFormat) -> Result<(), Failure> {
    let filter = match std::env::var("TORONI_LOG") {
        Ok(text) if !text.is_empty() => text.parse().map_err(|error| {
            Failure::Refused(format!(
                "TORONI_LOG={text}: {error}: write a level, error, warn, info, debug or trace, or some such as \
                 warn,toroni_zenoh=debug"
            ))
        })?,
        _ => DEFAULT.parse::<Targets>().unwrap_or_default(),
    };
    let log = Log::new(format, WINDOW, |line| {
        // If standard error is closed, the line is lost.
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
    tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .try_init()
        .map_err(|error| Failure::Failed(format!("cannot log: {error}")))
}

/// Returns the text without line feeds and other control characters: each log entry is one line, and none can forge
/// another or control a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

type Print = dyn Fn(&str) + Send + Sync;

struct Log {
    format: LogFormat,
    window: Duration,
    print: Arc<Print>,
    kinds: Arc<Mutex<HashMap<Identifier, Kind>>>,
    /// Wakes the thread that prints what was held back.
    held: Mutex<Sender<(Instant, Identifier)>>,
}

/// A kind of warnings.
struct Kind {
    /// From then on, one is printed again.
    until: Instant,
    /// How many were held back.
    held: u64,
    last: Option<Line>,
}

impl Log {
    fn new(
        format: LogFormat,
        window: Duration,
        print: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let kinds: Arc<Mutex<HashMap<Identifier, Kind>>> = Arc::default();
        let print: Arc<Print> = Arc::new(print);
        let (held, receiver) = channel();
        let (of_thread, by_thread) = (Arc::clone(&kinds), Arc::clone(&print));
        // Without this thread, held lines are printed with the next one of their kind.
        let _ = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || print_held(&receiver, format, window, &of_thread, &*by_thread));
        Self { format, window, print, kinds, held: Mutex::new(held) }
    }

    /// Returns the line if it is to be printed now.
    fn admit(&self, event: &Event<'_>, line: Line) -> Option<Line> {
        if *event.metadata().level() > Level::WARN {
            return Some(line);
        }
        let now = Instant::now();
        let id = event.metadata().callsite();
        let mut kinds = locked(&self.kinds);
        let kind = kinds.entry(id.clone()).or_insert(Kind { until: now, held: 0, last: None });
        if now >= kind.until {
            let more = std::mem::take(&mut kind.held);
            kind.last = None;
            kind.until = now + self.window;
            return Some(Line { more, ..line });
        }
        kind.held += 1;
        if kind.last.replace(line).is_none() {
            let _ = locked(&self.held).send((kind.until, id));
        }
        None
    }
}

fn print_held(
    receiver: &Receiver<(Instant, Identifier)>,
    format: LogFormat,
    window: Duration,
    kinds: &Mutex<HashMap<Identifier, Kind>>,
    print: &Print,
) {
    while let Ok((until, id)) = receiver.recv() {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        let mut kinds = locked(kinds);
        let Some(kind) = kinds.get_mut(&id) else { continue };
        let Some(last) = kind.last.take() else { continue };
        // `last` is printed itself.
        let more = std::mem::take(&mut kind.held).saturating_sub(1);
        kind.until = Instant::now() + window;
        drop(kinds);
        print(&Line { more, ..last }.shown(format));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(line) = self.admit(event, Line::of(event)) {
            (self.print)(&line.shown(self.format));
        }
    }
}

/// A log entry.
struct Line {
    time: String,
    level: Level,
    target: &'static str,
    message: String,
    fields: Vec<(&'static str, serde_json::Value)>,
    /// How many of the same kind were held back.
    more: u64,
}

impl Line {
    fn of(event: &Event<'_>) -> Self {
        let mut time = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let metadata = event.metadata();
        let mut line = Self {
            time,
            level: *metadata.level(),
            target: metadata.target(),
            message: String::new(),
            fields: Vec::new(),
            more: 0,
        };
        event.record(&mut line);
        line
    }

    /// Returns the line with its line feed.
    fn shown(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Text => {
                let message = one_line(&self.message);
                let mut text =
                    format!("{} {:>5} {}: {message}", self.time, self.level.as_str(), self.target);
                for (name, value) in &self.fields {
                    let value = match value {
                        serde_json::Value::String(text) => one_line(text),
                        other => other.to_string(),
                    };
                    let _ = write!(text, " {name}={value}");
                }
                if self.more > 0 {
                    let _ = write!(text, " ({} more like this)", self.more);
                }
                text + "\n"
            }
            LogFormat::Json => {
                let mut object = serde_json::json!({
                    "timestamp": self.time,
                    "level": self.level.as_str().to_ascii_lowercase(),
                    "target": self.target,
                    "message": self.message,
                });
                if !self.fields.is_empty() {
                    let fields = self.fields.iter().map(|(n, v)| ((*n).to_owned(), v.clone()));
                    object["fields"] = serde_json::Value::Object(fields.collect());
                }
                if self.more > 0 {
                    object["more"] = self.more.into();
                }
                format!("{object}\n")
            }
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.fields.push((field.name(), text.into()));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.fields.push((field.name(), value.into()));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), value.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lines = Arc<Mutex<Vec<String>>>;

    fn logged(format: LogFormat, window: Duration, work: impl FnOnce(&Lines)) {
        let lines: Lines = Arc::default();
        let into = Arc::clone(&lines);
        let log = Log::new(format, window, move |line| locked(&into).push(line.to_owned()));
        let subscriber = tracing_subscriber::registry().with(log);
        tracing::subscriber::with_default(subscriber, || work(&lines));
    }

    #[test]
    fn repeated_warnings_are_printed_once_and_counted() {
        logged(LogFormat::Text, Duration::from_secs(2), |lines| {
            for number in 0..5 {
                tracing::warn!(number, "the link is slow");
            }
            tracing::warn!("another kind");
            assert_eq!(locked(lines).len(), 2, "{lines:?}");
            let deadline = Instant::now() + Duration::from_secs(60);
            while locked(lines).len() < 3 {
                assert!(Instant::now() < deadline, "what was held back is lost");
                std::thread::sleep(Duration::from_millis(5));
            }
            let lines = locked(lines);
            assert!(lines[0].ends_with("the link is slow number=0\n"), "{lines:?}");
            assert!(
                lines[2].ends_with("the link is slow number=4 (3 more like this)\n"),
                "{lines:?}"
            );
        });
    }

    #[test]
    fn other_lines_are_all_printed() {
        logged(LogFormat::Json, Duration::from_secs(600), |lines| {
            for number in 0..5 {
                tracing::info!(number, text = "a\nb", "done");
            }
            let lines = locked(lines);
            assert_eq!(lines.len(), 5);
            let line: serde_json::Value = serde_json::from_str(&lines[4]).unwrap();
            assert_eq!(line["fields"], serde_json::json!({"number": 4, "text": "a\nb"}));
            assert_eq!((&line["level"], &line["message"]), (&"info".into(), &"done".into()));
            assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
        });
    }

    #[test]
    fn no_text_makes_two_lines() {
        logged(LogFormat::Text, Duration::from_secs(600), |lines| {
            tracing::info!(key = "x\ny\u{1b}[2J", "a\r\nb");
            let lines = locked(lines);
            assert_eq!(lines[0].matches(char::is_control).count(), 1, "{lines:?}");
        });
    }
}
