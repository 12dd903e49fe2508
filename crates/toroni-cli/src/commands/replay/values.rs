//! The values of retained topics: published before the stream, and not over newer ones.

use super::{CHECK_EVERY, Player, suspend};
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hasher};
use toroni::{
    Entry, InletTopic, Limit, Origin, PublishError, RetainError, RetainedError, RetainedMessage,
};
use toroni_recording::format::RecordedLoss;
use toroni_recording::reader::{Item, ItemKind};
use toroni_shell::exchange::{nanoseconds, now_ns};
use toroni_shell::failure::Failure;

/// What a recording says of the value of a topic before the place where a replay starts.
pub(super) struct Early {
    pub(super) log_time: u64,
    /// The value, or that it is lost, with the number of the source that says so.
    pub(super) what: Result<Value, (usize, RecordedLoss)>,
}

impl Early {
    /// Returns how many bytes the value has.
    pub(super) fn bytes(&self) -> usize {
        self.what.as_ref().map_or(0, |value| value.payload.len())
    }
}

/// The newest message of a topic in a recording.
pub(super) struct Value {
    payload: Vec<u8>,
    /// Whether it says that there is none: it was cleared.
    is_cleared: bool,
    to_descendants: bool,
    published_ns: Option<u64>,
    origin: Option<(Origin, Option<u64>)>,
}

impl Value {
    pub(super) fn new(item: &Item, to_descendants: bool, payload: &[u8]) -> Self {
        Self {
            payload: payload.to_vec(),
            is_cleared: item.kind == ItemKind::Cleared,
            to_descendants,
            published_ns: item.stamp(),
            origin: item.origin,
        }
    }
}

/// A message that was played, to know it again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Played {
    hash: u64,
    length: usize,
    published_ns: Option<u64>,
}

impl Played {
    pub(super) fn new(payload: &[u8], published_ns: Option<u64>) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(payload);
        Self { hash: hasher.finish(), length: payload.len(), published_ns }
    }
}

/// A topic of the replay.
pub(super) struct PlayedTopic {
    pub(super) inlet: InletTopic,
    /// Whether the bus keeps its value. `None` if it was not asked to.
    pub(super) is_retained: Option<bool>,
    /// What the replay has published on it last, if it is retained.
    pub(super) last: Option<Played>,
    /// Whether it has said that the bus has a newer value.
    is_newer_said: bool,
}

impl PlayedTopic {
    pub(super) fn new(inlet: InletTopic) -> Self {
        Self { inlet, is_retained: None, last: None, is_newer_said: false }
    }
}

/// What is done with the value of a recording.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Publish,
    /// The bus has it already.
    Same,
    /// The bus has a newer one, or one of which the replay cannot say whether it is newer.
    Keep(&'static str),
}

/// Compares the value of a recording with that of the bus.
fn compare(value: &Value, bus: &RetainedMessage, last: Option<Played>) -> Verdict {
    let on_bus = bus.timestamp().and_then(nanoseconds);
    let age = on_bus.zip(value.published_ns).map(|(bus, own)| bus.cmp(&own));
    if !value.is_cleared && bus.payload() == value.payload && age != Some(Ordering::Less) {
        return Verdict::Same;
    }
    if age.is_some_and(Ordering::is_le) || last == Some(Played::new(bus.payload(), on_bus)) {
        return Verdict::Publish;
    }
    Verdict::Keep(match age {
        Some(_) => "is newer than that of the recording",
        None => "is not of this replay, and without time stamps it counts as newer",
    })
}

impl Player<'_> {
    /// Retains a topic on the bus. Returns whether that succeeded.
    pub(super) fn retain(&mut self, index: usize) -> Result<bool, Failure> {
        self.topic(index)?;
        let topic = &mut self.topics[index];
        if let Some(is_retained) = topic.is_retained {
            return Ok(is_retained);
        }
        let failed = match self.inlet.retain(&mut topic.inlet) {
            Ok(()) => None,
            Err(RetainError::Publish(error)) => return Err(error.into()),
            Err(error) => Some(error),
        };
        topic.is_retained = Some(failed.is_none());
        let Some(error) = failed else { return Ok(true) };
        let reason = std::mem::discriminant(&error);
        if !self.arguments.quiet && !self.left_out.contains(&reason) {
            self.left_out.push(reason);
            let name = self.selection.names[index].as_str();
            self.line.remark(&match error {
                RetainError::NoValues => {
                    "the bus keeps no values: those of the recording are left out. Create it with \
                     --retained-topics to have them"
                        .to_owned()
                }
                error => {
                    let why = Failure::from(error).report().1.unwrap_or_default();
                    format!("{name} is not retained, and its value is left out: {why}")
                }
            });
        }
        Ok(false)
    }

    /// Publishes the value of a topic, or clears it, if that is not what the bus has, and the bus has no newer one. What was
    /// played before is published.
    pub(super) fn value(&mut self, index: usize, value: &Value) -> Result<(), Failure> {
        if !self.retain(index)? {
            return Ok(());
        }
        let name = self.selection.names[index].as_str();
        let last = self.topics[index].last;
        let verdict = match self.inlet.bus().retained(name) {
            Ok(None) if value.is_cleared => Verdict::Same,
            Ok(None) => Verdict::Publish,
            Ok(Some(bus)) => compare(value, &bus, last),
            Err(RetainedError::Missing { .. } | RetainedError::Unstable { .. }) => {
                Verdict::Keep("cannot be compared with that of the recording")
            }
            Err(_) if self.arguments.overwrite_newer => Verdict::Publish,
            Err(error) => {
                return Err(Failure::Failed(format!(
                    "cannot compare the value of {name} with that of the bus: {error}. \
                     With --overwrite-newer, it is published without a comparison"
                )));
            }
        };
        match verdict {
            Verdict::Same => return Ok(()),
            Verdict::Keep(why) if !self.arguments.overwrite_newer => {
                let is_said = std::mem::replace(&mut self.topics[index].is_newer_said, true);
                if !is_said && !self.arguments.quiet {
                    self.line.remark(&format!(
                        "the value of {name} on the bus {why}: it stays (--overwrite-newer replaces it)"
                    ));
                }
                return Ok(());
            }
            Verdict::Publish | Verdict::Keep(_) => {}
        }
        if value.is_cleared {
            return self.clear(index);
        }
        let published_ns = self.arguments.stamp.of(value.published_ns, now_ns());
        let (origin, number) = value.origin.unzip();
        let parts: &[&[u8]] = &[&value.payload];
        let entry = Entry {
            to_descendants: value.to_descendants,
            published_ns,
            origin,
            number: number.flatten(),
            ..Entry::new(&self.topics[index].inlet, parts)
        };
        while !self.stop.is_set() {
            match self.inlet.publish(&[entry], CHECK_EVERY).map_err(|error| error.source) {
                Err(PublishError::Timeout) => {
                    suspend(&mut self.keyboard, &self.line, &mut self.pace);
                }
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.values = self.values.saturating_add(1);
                    self.bytes = self.bytes.saturating_add(value.payload.len() as u64);
                    self.topics[index].last = Some(Played::new(&value.payload, published_ns));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Clears the value of a topic that is retained.
    fn clear(&mut self, index: usize) -> Result<(), Failure> {
        let name = self.selection.names[index].as_str();
        let publisher = self.inlet.bus().publisher(name)?;
        let publisher =
            publisher.retained().map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
        while !self.stop.is_set() {
            match publisher.clear(Limit::from(CHECK_EVERY)) {
                Err(PublishError::Timeout) => {
                    suspend(&mut self.keyboard, &self.line, &mut self.pace);
                }
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        self.topics[index].last = None;
        Ok(())
    }
}
