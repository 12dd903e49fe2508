//! `toroni pub`: messages from the command line, standard input, a file, or made up.

mod audience;
pub(crate) mod source;

use crate::cli::{Place, Publish};
use crate::failure::Failure;
use crate::human;
use crate::output::Output;
use crate::progress::Progress;
use crate::stop::{Patience, Stop};
use audience::Wanted;
use serde_json::json;
use source::{Next, Source};
use std::time::{Duration, Instant};
use toroni::Publisher;

/// The progress bar and its clock are looked at once for so many messages, unless a rate is kept.
const STEPS_BETWEEN_LOOKS: u64 = 1024;

/// Publishes everything that the source gives.
pub(crate) fn run(place: &Place, arguments: Publish) -> Result<(), Failure> {
    if arguments.repeat.is_some() && arguments.message.is_none() && arguments.size.is_none() {
        return Err(Failure::Usage("--repeat needs a MESSAGE or --size".to_owned()));
    }
    let stop = Stop::install(Patience::ASecond(format!(
        "waiting for a slow subscriber, or for a publisher that holds the lock: see `toroni info {}`",
        place.bus
    )))?;
    let bus = super::config(place)
        .participant_name(arguments.name.as_str())
        .timestamps(arguments.timestamps)
        .open(&place.bus)?;
    let publisher = bus.publisher(&arguments.topic)?.to_descendants(arguments.to_descendants);
    let mut source = Source::new(&arguments, publisher.largest_message())?;
    if let Some(count) = arguments.wait_subscribers {
        let to_descendants = arguments.to_descendants;
        let wanted = Wanted { count, topic: &arguments.topic, to_descendants };
        audience::wait_for(&wanted, &bus, &stop)?;
    }

    let mut run = Run {
        publisher: &publisher,
        batch: Vec::new(),
        batch_length: usize::try_from(arguments.batch).unwrap_or(usize::MAX),
        pace: arguments.rate.map(Pace::new),
        stop: &stop,
        messages: 0,
        bytes: 0,
    };
    let started = Instant::now();
    if run.publish_all(&mut source)? == Next::Interrupted && !source.is_endless() {
        let published = human::counted(run.messages, "message");
        return Err(stop.interrupted(format!("interrupted after {published}")));
    }
    if arguments.json {
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

struct Run<'a> {
    publisher: &'a Publisher,
    /// Messages that wait for their batch to be full; empty without `--batch`.
    batch: Vec<Vec<u8>>,
    batch_length: usize,
    pace: Option<Pace>,
    stop: &'a Stop,
    messages: u64,
    bytes: u64,
}

impl Run<'_> {
    /// Until the end of the source, or a signal.
    fn publish_all(&mut self, source: &mut Source) -> Result<Next, Failure> {
        let mut progress = Progress::is_wanted().then(|| Progress::new(source.total_messages()));
        let mut message = Vec::new();
        loop {
            let next = source.next(&mut message, self.stop)?;
            if next != Next::Message {
                // What was read is published, even after a signal.
                self.publish_batch()?;
                return Ok(next);
            }
            if self.batch_length > 1 {
                self.batch.push(std::mem::take(&mut message));
                if self.batch.len() == self.batch_length {
                    self.wait_for_turn(self.batch_length);
                    self.publish_batch()?;
                }
            } else {
                if !self.wait_for_turn(1) {
                    return Ok(Next::Interrupted);
                }
                self.publisher.publish(&message)?;
                self.count(1, message.len());
            }
            if let Some(progress) = &mut progress
                && (self.pace.is_some() || self.messages.is_multiple_of(STEPS_BETWEEN_LOOKS))
            {
                progress.set(self.messages);
            }
        }
    }

    fn publish_batch(&mut self) -> Result<(), Failure> {
        if !self.batch.is_empty() {
            self.publisher.publish_batch(&self.batch)?;
            self.count(self.batch.len(), self.batch.iter().map(Vec::len).sum());
            self.batch.clear();
        }
        Ok(())
    }

    fn count(&mut self, messages: usize, bytes: usize) {
        self.messages += as_u64(messages);
        self.bytes += as_u64(bytes);
    }

    /// Waits until the rate allows `messages` more; `false` if a signal came first.
    fn wait_for_turn(&mut self, messages: usize) -> bool {
        let Some(pace) = &mut self.pace else { return true };
        match pace.wait_before(as_u64(messages), Instant::now()) {
            Duration::ZERO => true,
            wait => self.stop.sleep(wait),
        }
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// When the next message is due.
struct Pace {
    seconds_each: f64,
    started: Option<Instant>,
    due_seconds: f64,
}

impl Pace {
    fn new(per_second: f64) -> Self {
        Self { seconds_each: 1.0 / per_second, started: None, due_seconds: 0.0 }
    }

    /// Counts `messages` and says how long to wait before they are published. Who is late is not
    /// told to wait until it has caught up, so the rate holds on average.
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
    fn a_pace_holds_on_average() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(100.0);
        assert_eq!(pace.wait_before(1, start), Duration::ZERO);
        assert_eq!(pace.wait_before(1, start).as_millis(), 10);
        // Late by 30 ms: three messages without a wait, then 10 ms apart again.
        assert_eq!(pace.wait_before(1, after(50)), Duration::ZERO);
        assert_eq!(pace.wait_before(2, after(50)), Duration::ZERO);
        assert_eq!(pace.wait_before(1, after(50)), Duration::ZERO);
        let wait = pace.wait_before(1, after(50));
        assert!((9..=10).contains(&wait.as_millis()), "{wait:?}");
    }
}
