//! What a host or a log has of the order.

use serde_json::Value;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toroni::{Lost, LostReason, Message, ReceiveError, Subscriber};
use toroni_testkit::history::{Event, Id, now};

/// How often a reader sees whether it must end.
const TICK: Duration = Duration::from_millis(100);

/// A command of a host whose event came to the same host.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The command.
    pub number: u64,
    pub event: u64,
    pub at: Duration,
}

/// What came to the bus of a host.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub events: Vec<Event>,
    /// The commands of the host itself.
    pub answers: Vec<Answer>,
    /// Events that no member had any more.
    pub losses: Vec<Range<u64>>,
    /// Commands that the order reports as lost: the first one, and the number after the last one.
    pub overwritten: Vec<(Id, u64)>,
    /// What must never come.
    pub problems: Vec<String>,
}

impl Seen {
    fn message(&mut self, message: &Message<'_>, series: u32) -> Option<u64> {
        let (Some(number), Some(origin)) = (message.number(), message.origin()) else {
            self.problems.push(format!("a message of {} that is no event", message.topic()));
            return None;
        };
        let id = Id { source: origin.source, series: origin.series, number: origin.number };
        self.events.push(Event::new(number, Some(id), message.topic(), message.payload()));
        let is_own = id.series == series;
        if is_own {
            self.answers.push(Answer { number: id.number, event: number, at: now() });
        }
        is_own.then_some(id.number)
    }

    fn lost(&mut self, lost: &Lost) {
        let from = lost.from;
        match lost.reason {
            LostReason::Gone => self.losses.push(from.number..lost.until),
            LostReason::Overtaken => {
                let id = Id { source: from.source, series: from.series, number: from.number };
                self.overwritten.push((id, lost.until));
            }
            _ => self.problems.push(lost.to_string()),
        }
    }
}

/// Reads all events from the bus of a host, over all deaths of its node. It ends when this is dropped.
#[derive(Debug)]
pub struct Reader {
    seen: Arc<Mutex<Seen>>,
    answered: Arc<AtomicU64>,
}

impl Reader {
    /// Starts a reader. The commands of this host have the series.
    #[must_use]
    pub fn start(mut subscriber: Subscriber, series: u32) -> Self {
        let (seen, answered) = (Arc::new(Mutex::new(Seen::default())), Arc::default());
        let reader = Self { seen: Arc::clone(&seen), answered: Arc::clone(&answered) };
        let seen = Arc::downgrade(&seen);
        std::thread::spawn(move || {
            while let Some(seen) = seen.upgrade() {
                let received = subscriber.receive_timeout(TICK);
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                match received {
                    Ok(None) => {}
                    Ok(Some(message)) => {
                        if let Some(number) = seen.message(&message, series) {
                            answered.store(number + 1, Ordering::Relaxed);
                        }
                    }
                    Err(ReceiveError::Lost(lost)) => seen.lost(&lost),
                    Err(error) => {
                        seen.problems.push(error.to_string());
                        if !error.is_loss() {
                            break;
                        }
                    }
                }
            }
        });
        reader
    }

    /// What came so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// How many events came so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().events.len()
    }

    /// The number after that of the last event.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.lock().events.last().map_or(0, |event| event.number + 1)
    }

    /// Up to which number all commands of this host are events here.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `toroni sequencer log --json` prints of a command that became an event.
#[must_use]
pub fn event_of(printed: &Value) -> Option<Event> {
    if printed["outcome"] != "event" {
        return None;
    }
    let number = printed["event"].as_u64()?;
    Some(match (printed["topic"].as_str(), printed["payload"].as_str()) {
        (Some(topic), Some(payload)) => {
            Event::new(number, Some(id_of(printed)), topic, payload.as_bytes())
        }
        _ => {
            // The same event may be in an entry of another term, at another place, only in a log that is wrong.
            Event::new(number, None, "", printed.to_string().as_bytes())
        }
    })
}

/// The command that a program has printed. Its sender does not name the source.
#[must_use]
pub fn id_of(printed: &Value) -> Id {
    let number = |key: &str| printed[key].as_u64().unwrap_or_default();
    let small = |key: &str| u32::try_from(number(key)).unwrap_or_default();
    Id { source: small("source"), series: small("series"), number: number("number") }
}
