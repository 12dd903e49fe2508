//! `toroni pub`: publishes messages from the command line, standard input, a file or another bus, or generates them.

pub(super) mod copy;
pub(crate) mod options;
mod publishers;
pub(crate) mod source;

use crate::audience::Wanted;
use copy::Losses;
use options::Publish;
use publishers::{Publishers, TopicPublisher};
use serde_json::json;
use source::{Lines, Next, Source};
use std::time::{Duration, Instant};
use toroni::{Bus, Topic};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;
use toroni_shell::progress::Progress;
use toroni_shell::stop::{GracePeriod, Stop};
use toroni_shell::{human, note};

/// Without a rate, the progress bar is updated once per this many messages.
const MESSAGES_PER_UPDATE: u64 = 1024;
/// The largest part of a `--json` line that is not payload: a topic of 255 bytes, names of fields, numbers.
const LINE_BYTES: u64 = 4096;

/// Publishes all messages of the input.
pub(crate) fn run(location: &BusLocation, arguments: Publish) -> Result<(), Failure> {
    if arguments.topic.is_none() && !arguments.json {
        return Err(Failure::Usage(
            "the topic is missing: name it, as in `toroni pub TOPIC`; with --json, each message on standard input \
             names its own"
                .to_owned(),
        ));
    }
    if arguments.repeat.is_some() && arguments.message.is_none() && arguments.size.is_none() {
        return Err(Failure::Usage("--repeat needs a MESSAGE or --size".to_owned()));
    }
    // After TOPIC, clap parses it as a negative number.
    if arguments.message.as_ref().is_some_and(|message| message == "-0") {
        return Err(Failure::Usage(
            "-0 after TOPIC is ambiguous: for the option, write `toroni pub -0 TOPIC`; publish the message -0 \
             from standard input"
                .to_owned(),
        ));
    }
    // Not `requires`: clap does not check that if another argument conflicts with --json, as TOPIC does.
    if arguments.strict && !arguments.json {
        return Err(Failure::Usage("--strict needs --json".to_owned()));
    }
    if let Some(topic) = &arguments.topic {
        // Before a bus is created.
        Topic::new(topic)?;
    }
    let stop = Stop::install(GracePeriod::OneSecond(format!(
        "waiting for a slow subscriber, or for a publisher that holds the lock; `toroni info {}` shows both",
        location.bus
    )))?;
    let config = location
        .config()
        .participant_name(arguments.name.as_str())
        .timestamps(arguments.timestamps);
    let bus = crate::opening::open_or_create(&config, location)?;
    // An exclusive publisher refuses other publishers from here on, also while it waits for subscribers or for input.
    let publishers = if arguments.exclusive {
        Publishers::exclusive(&bus, arguments.retain, &stop)?
    } else {
        Publishers::shared(&bus, arguments.retain)
    };
    let mut input = Input::new(&bus, &publishers, &arguments)?;
    if let Some(count) = arguments.wait_subscribers {
        let (topic, to_descendants) = (arguments.topic.as_deref(), arguments.to_descendants);
        crate::audience::wait_for(&Wanted { count, topic, to_descendants }, &bus, &stop)?;
    }

    let shows_progress = Progress::is_wanted() && !arguments.quiet;
    let mut run = Run {
        batch: Vec::new(),
        batch_length: usize::try_from(arguments.batch).unwrap_or(usize::MAX),
        rate: arguments.rate.map(Rate::new),
        progress: shows_progress.then(|| Progress::new(input.total_messages())),
        stop: &stop,
        messages: 0,
        bytes: 0,
    };
    let started = Instant::now();
    let ended = match &mut input {
        Input::Topic(publisher, source) => run.publish_all(publisher, source),
        Input::Json(lines) => {
            let losses = Losses { strict: arguments.strict, quiet: arguments.quiet };
            copy::run(&publishers, lines, &losses, &mut run)
        }
    };
    // Remove the bar before anything is printed.
    run.progress = None;
    let published = human::counted(run.messages, "message");
    if arguments.verbose {
        note::remark(&format!(
            "published {published}, {}, in {}",
            human::bytes(run.bytes),
            human::duration(started.elapsed())
        ));
    }
    if ended? == Next::Interrupted && !input.is_endless() {
        return Err(stop.interrupted(format!("interrupted after {published}")));
    }
    if arguments.summary {
        let mut output = Output::new()?;
        output.json(&json!({
            "messages": run.messages,
            "bytes": run.bytes,
            "seconds": started.elapsed().as_secs_f64(),
        }))?;
        output.flush()?;
    }
    Ok(())
}

enum Input {
    /// Messages on one topic.
    Topic(TopicPublisher, Source),
    /// Messages with their topics.
    Json(Lines),
}

impl Input {
    fn new(bus: &Bus, publishers: &Publishers, arguments: &Publish) -> Result<Self, Failure> {
        let Some(topic) = &arguments.topic else {
            // At worst, one message fills half of the ring and each of its bytes takes six, as in \u0000.
            let limit = bus.stats()?.capacity.saturating_mul(3).saturating_add(LINE_BYTES);
            return Ok(Self::Json(Lines::of_standard_input(b'\n', limit)?));
        };
        let publisher = publishers.on(topic)?.with_descendants(arguments.to_descendants);
        let source = Source::new(arguments, publisher.largest_message())?;
        Ok(Self::Topic(publisher, source))
    }

    fn total_messages(&self) -> Option<u64> {
        match self {
            Self::Topic(_, source) => source.total_messages(),
            Self::Json(_) => None,
        }
    }

    /// Whether a signal is the usual way to end the input.
    fn is_endless(&self) -> bool {
        match self {
            Self::Topic(_, source) => source.is_endless(),
            Self::Json(lines) => lines.is_endless(),
        }
    }
}

struct Run<'a> {
    /// Messages of an incomplete batch. Empty without `--batch`.
    batch: Vec<Vec<u8>>,
    batch_length: usize,
    rate: Option<Rate>,
    progress: Option<Progress>,
    stop: &'a Stop,
    messages: u64,
    bytes: u64,
}

impl Run<'_> {
    /// Publishes until the end of the source, or a signal.
    fn publish_all(
        &mut self,
        publisher: &TopicPublisher,
        source: &mut Source,
    ) -> Result<Next, Failure> {
        let mut message = Vec::new();
        loop {
            let next = source.next(&mut message, self.stop)?;
            if next != Next::Message {
                // Publish what was read, even after a signal.
                self.publish_batch(publisher)?;
                return Ok(next);
            }
            if self.batch_length == 1 {
                if !self.publish(publisher, &message)? {
                    return Ok(Next::Interrupted);
                }
                continue;
            }
            self.batch.push(std::mem::take(&mut message));
            if self.batch.len() == self.batch_length {
                self.wait_for_turn(self.batch_length);
                self.publish_batch(publisher)?;
            }
        }
    }

    /// Publishes one message when the rate allows it. Returns `false` if a signal came first.
    fn publish(&mut self, publisher: &TopicPublisher, message: &[u8]) -> Result<bool, Failure> {
        if !self.wait_for_turn(1) {
            return Ok(false);
        }
        publisher.publish(message)?;
        self.count(1, message.len());
        Ok(true)
    }

    fn publish_batch(&mut self, publisher: &TopicPublisher) -> Result<(), Failure> {
        if !self.batch.is_empty() {
            publisher.publish_batch(&self.batch)?;
            self.count(self.batch.len(), self.batch.iter().map(Vec::len).sum());
            self.batch.clear();
        }
        Ok(())
    }

    fn count(&mut self, messages: usize, bytes: usize) {
        self.messages += as_u64(messages);
        self.bytes += as_u64(bytes);
        if let Some(progress) = &mut self.progress
            && (self.rate.is_some() || self.messages.is_multiple_of(MESSAGES_PER_UPDATE))
        {
            progress.set(self.messages);
        }
    }

    /// Waits until the rate allows `messages` more. Returns `false` if a signal came first.
    fn wait_for_turn(&mut self, messages: usize) -> bool {
        let Some(rate) = &mut self.rate else { return true };
        match rate.wait_before(as_u64(messages), Instant::now()) {
            Duration::ZERO => true,
            wait => self.stop.sleep(wait),
        }
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A rate of messages. Holds on average: a publisher that is late does not wait until it has caught up.
struct Rate {
    seconds_each: f64,
    started: Option<Instant>,
    due_seconds: f64,
}

impl Rate {
    fn new(per_second: f64) -> Self {
        Self { seconds_each: 1.0 / per_second, started: None, due_seconds: 0.0 }
    }

    /// Counts `messages` and returns how long to wait before publishing them.
    fn wait_before(&mut self, messages: u64, now: Instant) -> Duration {
        let started = *self.started.get_or_insert(now);
        let due = self.due_seconds;
        self.due_seconds += self.seconds_each * human::as_f64(messages);
        let wait = due - now.duration_since(started).as_secs_f64();
        Duration::try_from_secs_f64(wait).unwrap_or(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_holds_on_average() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut rate = Rate::new(100.0);
        assert_eq!(rate.wait_before(1, start), Duration::ZERO);
        assert_eq!(rate.wait_before(1, start).as_millis(), 10);
        // Late by 30 ms: three messages without a wait, then 10 ms apart again.
        assert_eq!(rate.wait_before(1, after(50)), Duration::ZERO);
        assert_eq!(rate.wait_before(2, after(50)), Duration::ZERO);
        assert_eq!(rate.wait_before(1, after(50)), Duration::ZERO);
        let wait = rate.wait_before(1, after(50));
        assert!((9..=10).contains(&wait.as_millis()), "{wait:?}");
    }
}
