//! `toroni hz`: shows rate, jitter, bandwidth and size per topic, live.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod jitter;
pub(crate) mod options;

use crate::opening;
use jitter::Jitter;
use options::Hz;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};
use toroni::{Message, ReceiveError, Subscriber};
use toroni_shell::age::{self, Ages, Summary};
use toroni_shell::failure::Failure;
use toroni_shell::human::{self, as_f64};
use toroni_shell::location::BusLocation;
use toroni_shell::note::{self, Kind};
use toroni_shell::output::{Output, Table};
use toroni_shell::stop::{GracePeriod, Stop};

/// How many messages are received without checking the clock, if there is always one more.
const MESSAGES_PER_CHECK: u32 = 256;

/// How many topics have a line of their own. All later topics share one line.
const MOST_TOPICS: usize = 10_000;
/// The name of the shared line. No topic has this name, because `*` is reserved.
const OTHER_TOPICS: &str = "* (other topics)";

/// Reports once per interval, until a signal, the count, or a closed output.
pub(crate) fn run(location: &BusLocation, arguments: &Hz) -> Result<(), Failure> {
    let stop = Stop::install(GracePeriod::OneSecond(
        "writing to standard output, which its reader does not read".to_owned(),
    ))?;
    let patterns = toroni_shell::location::patterns(&arguments.patterns)?;
    opening::remark_on_bus_as_pattern(location, &patterns, "hz");
    let mut output = Output::new()?;
    let config = location.config().participant_name("toroni-hz");
    let bus = config.open_existing(&location.bus)?;
    let mut builder = bus.subscriber().gating(false).name("toroni-hz");
    for pattern in &patterns {
        builder = builder.pattern(pattern.as_str());
    }
    let mut subscriber = builder.build()?;

    let mut counts = Counts::default();
    let mut screen = Screen::default();
    let mut started = Instant::now();
    let mut reports = 0;
    while arguments.count.is_none_or(|wanted| reports < wanted) {
        let until = started.checked_add(arguments.interval);
        counts.collect(&mut subscriber, until, &stop, &output)?;
        if stop.is_set() {
            let Some(wanted) = arguments.count else { break };
            output.flush()?;
            return Err(
                stop.interrupted(format!("interrupted after {reports} of {wanted} reports"))
            );
        }
        let seconds = started.elapsed().as_secs_f64();
        started = Instant::now();
        if arguments.json {
            output.json(&counts.json(seconds))?;
        } else {
            let nothing = || vec![(nothing_yet(&location.bus, &arguments.patterns), None)];
            let lines = if counts.is_empty() { nothing() } else { counts.text(seconds) };
            screen.show(&lines, &mut output)?;
        }
        output.flush()?;
        counts.next_interval();
        reports = u64::saturating_add(reports, 1);
    }
    output.flush()
}

/// What arrived on a topic, in this interval and since the start.
#[derive(Default)]
struct TopicCount {
    messages: u64,
    bytes: u64,
    total_messages: u64,
    total_bytes: u64,
    jitter: Jitter,
    /// Of the messages that have a stamp.
    ages: Ages,
}

#[derive(Default)]
struct Counts {
    topics: BTreeMap<String, TopicCount>,
    /// Overwritten before hz read them.
    lost_messages: u64,
    /// Lost on their way from elsewhere to the bus.
    lost_on_the_way: u64,
}

impl Counts {
    fn collect(
        &mut self,
        subscriber: &mut Subscriber,
        until: Option<Instant>,
        stop: &Stop,
        output: &Output,
    ) -> Result<(), Failure> {
        while !stop.is_set() {
            let left =
                until.map_or(Duration::MAX, |it| it.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(());
            }
            if self.take_some(subscriber)? {
                continue;
            }
            output.check_reader()?;
            match subscriber.receive_timeout(left.min(toroni_shell::stop::CHECK_EVERY)) {
                Ok(Some(message)) => self.add(&message),
                Ok(None) => {}
                Err(error) => self.add_loss(error)?,
            }
        }
        Ok(())
    }

    /// Receives some messages. Returns `false` if there are no more.
    fn take_some(&mut self, subscriber: &mut Subscriber) -> Result<bool, Failure> {
        for _ in 0..MESSAGES_PER_CHECK {
            match subscriber.try_receive() {
                Ok(Some(message)) => self.add(&message),
                Ok(None) => return Ok(false),
                Err(error) => self.add_loss(error)?,
            }
        }
        Ok(true)
    }

    fn add(&mut self, message: &Message<'_>) {
        let mut name = message.topic();
        // Not `entry`, which would need an owned name for every message.
        if !self.topics.contains_key(name) {
            if self.topics.len() >= MOST_TOPICS {
                name = OTHER_TOPICS;
            }
            self.topics.entry(name.to_owned()).or_default();
        }
        if let Some(topic) = self.topics.get_mut(name) {
            let bytes = u64::try_from(message.payload().len()).unwrap_or(u64::MAX);
            topic.messages = topic.messages.saturating_add(1);
            topic.bytes = topic.bytes.saturating_add(bytes);
            topic.total_messages = topic.total_messages.saturating_add(1);
            topic.total_bytes = topic.total_bytes.saturating_add(bytes);
            if let Some(published) = message.timestamp() {
                topic.ages.add(published, SystemTime::now());
            }
            // A gap between messages of different topics means nothing.
            if name != OTHER_TOPICS {
                topic.jitter.arrival(Instant::now());
            }
        }
    }

    fn add_loss(&mut self, error: ReceiveError) -> Result<(), Failure> {
        match &error {
            ReceiveError::Lapped { lost_messages, .. } => {
                self.lost_messages = self.lost_messages.saturating_add(*lost_messages);
            }
            ReceiveError::Lost(lost) => {
                self.lost_on_the_way = self.lost_on_the_way.saturating_add(lost.messages);
            }
            _ => return Err(error.into()),
        }
        for topic in self.topics.values_mut() {
            topic.jitter.interrupt();
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.lost_messages == 0 && self.lost_on_the_way == 0
    }

    fn next_interval(&mut self) {
        self.lost_messages = 0;
        self.lost_on_the_way = 0;
        for topic in self.topics.values_mut() {
            topic.messages = 0;
            topic.bytes = 0;
            topic.jitter.next_interval();
            topic.ages.clear();
        }
    }

    fn json(&self, seconds: f64) -> Value {
        let topics: Vec<Value> = self
            .topics
            .iter()
            .map(|(name, count)| {
                json!({
                    "topic": name,
                    "messages": count.messages,
                    "bytes": count.bytes,
                    "messages_per_second": as_f64(count.messages) / seconds,
                    "bytes_per_second": as_f64(count.bytes) / seconds,
                    "mean_bytes": mean(count.bytes, count.messages),
                    "jitter_seconds": seconds_of(count.jitter.deviation()),
                    "longest_gap_seconds": seconds_of(count.jitter.longest()),
                    "age": count.ages.summary(),
                    "total_messages": count.total_messages,
                    "total_bytes": count.total_bytes,
                })
            })
            .collect();
        json!({
            "seconds": seconds,
            "topics": topics,
            "lost_messages": self.lost_messages,
            "lost_on_the_way": self.lost_on_the_way,
        })
    }

    fn text(&self, seconds: f64) -> Vec<Line> {
        let shown = |gap: Option<Duration>| gap.map_or_else(|| "-".to_owned(), human::duration);
        let mut titles = vec![
            "TOPIC",
            ">RATE",
            ">JITTER",
            ">LONGEST GAP",
            ">BANDWIDTH",
            ">MEAN SIZE",
            ">MESSAGES",
            ">BYTES",
        ];
        let ages: Vec<Option<Summary>> =
            self.topics.values().map(|count| count.ages.summary()).collect();
        let has_ages = ages.iter().any(Option::is_some);
        if has_ages {
            titles.splice(4..4, [">AGE P50", ">AGE P99", ">LONGEST AGE"]);
        }
        let mut table = Table::new(&titles);
        for ((name, count), age) in self.topics.iter().zip(ages) {
            let mut cells = vec![
                name.clone(),
                human::per_second(as_f64(count.messages) / seconds),
                shown(count.jitter.deviation()),
                shown(count.jitter.longest()),
                human::bytes_per_second(as_f64(count.bytes) / seconds),
                mean(count.bytes, count.messages)
                    .and_then(human::to_u64)
                    .map_or_else(|| "-".to_owned(), human::bytes),
                human::count(count.total_messages),
                human::bytes(count.total_bytes),
            ];
            if has_ages {
                let of = |which: fn(Summary) -> f64| {
                    age.map_or_else(|| "-".to_owned(), |age| age::shown(which(age)))
                };
                cells.splice(4..4, [of(|age| age.p50), of(|age| age.p99), of(|age| age.longest)]);
            }
            table.row(cells);
        }
        let mut lines: Vec<Line> =
            table.render().lines().map(|line| (line.to_owned(), None)).collect();
        if self.lost_messages > 0 {
            let text = format!(
                "missed {} in {}: the bus is faster than hz",
                human::counted(self.lost_messages, "message"),
                human::duration(Duration::from_secs_f64(seconds))
            );
            lines.push((text, Some(Kind::Loss)));
        }
        if self.lost_on_the_way > 0 {
            let lost = human::counted(self.lost_on_the_way, "message");
            lines.push((format!("{lost} lost on the way to this bus"), Some(Kind::Loss)));
        }
        lines
    }
}

fn nothing_yet(bus: &str, patterns: &[String]) -> String {
    if patterns == ["**"] {
        return format!("no messages yet on bus {bus}");
    }
    format!("no messages yet on bus {bus} that match {}", patterns.join(", "))
}

fn seconds_of(gap: Option<Duration>) -> Option<f64> {
    gap.map(|gap| gap.as_secs_f64())
}

fn mean(bytes: u64, messages: u64) -> Option<f64> {
    (messages > 0).then(|| as_f64(bytes) / as_f64(messages))
}

/// A line of a report, and the kind that determines its color.
type Line = (String, Option<Kind>);

/// Prints reports one below the other; on a terminal, each report replaces the one before.
#[derive(Default)]
struct Screen {
    lines_shown: usize,
}

impl Screen {
    fn show(&mut self, lines: &[Line], output: &mut Output) -> Result<(), Failure> {
        let terminal = output.is_terminal();
        let painted = |text: &str, kind: Option<Kind>| match kind {
            Some(kind) => note::painted(text, kind, terminal),
            None => text.to_owned(),
        };
        if !terminal {
            for (text, kind) in lines {
                output.line(&painted(text, *kind))?;
            }
            return output.line("");
        }
        // Lines that scrolled away or wrapped cannot be overwritten: show only what fits.
        let (columns, rows) = terminal_size();
        if self.lines_shown > 0 {
            output.bytes(format!("\x1b[{}A\x1b[J", self.lines_shown).as_bytes())?;
        }
        let fitting = lines.len().min(rows.saturating_sub(1).max(1));
        for (text, kind) in &lines[..fitting] {
            let cut: String = text.chars().take(columns).collect();
            output.line(&painted(&cut, *kind))?;
        }
        self.lines_shown = fitting;
        Ok(())
    }
}

fn terminal_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_however_long_they_are() {
        let mut counts = Counts::default();
        for lost_messages in [1, u64::MAX] {
            counts.add_loss(ReceiveError::Lapped { lost_messages, lost_bytes: 8 }).unwrap();
        }
        assert_eq!(counts.lost_messages, u64::MAX);
    }
}
