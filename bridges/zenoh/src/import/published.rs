//! What an earlier import has published, and what it has missed.
//!
//! The bus knows two numbers of the stream of a sender: the mark, above which nothing has arrived but what came while a
//! gap was open, and up to where the stream is settled (see the module `order`). An import that begins after another one
//! was killed asks for everything from there on. So it gets messages that are on the bus, above the mark or below, and
//! below also those that the other one has missed without knowing. The ring tells which is which: on one topic the numbers
//! of a stream only grow, and a message that is missing before another one of its topic was reported. So the last message
//! of each topic is enough.

use crate::context::Context;
use crate::export::end_of;
use crate::limit::warn_rarely;
use crate::order::{STREAMS, StreamKey};
use foldhash::HashMap;
use toroni::{Arrived, Lost, LostBound, Origin, Pattern, ReceiveError, Start, SubscriberError};

/// As many messages of the ring are read, the newest.
const MESSAGES: u64 = 1 << 20;
/// As many topics of streams are remembered.
const TOPICS: usize = 1 << 17;
/// As many losses of a stream are remembered.
const LOSSES: usize = 1 << 10;

#[derive(Debug, Default)]
pub(super) struct Published {
    /// The sequence up to which the ring was read, once it was.
    read: Option<u64>,
    /// Whether something is missing in what was read, at its beginning or within.
    is_cut: Cut,
    topics: usize,
    streams: HashMap<StreamKey, Seen>,
    /// The number after the last one of each topic of this bus, as far as it is above the mark.
    above: HashMap<StreamKey, HashMap<String, u64>>,
}

/// What the ring does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    /// It has all that was ever published.
    #[default]
    Nothing,
    /// What was published first.
    Beginning,
    /// Something in between.
    Middle,
}

/// What the ring has of a stream.
#[derive(Debug, Default)]
struct Seen {
    /// The mark when this import first claimed the stream: what an earlier one has left.
    mark: u64,
    is_claimed: bool,
    /// The number after the last one of each topic of this bus.
    topics: HashMap<String, u64>,
    /// The numbers that came before the claim, in the order of the ring.
    numbers: Vec<u64>,
    losses: Vec<(u64, u64, Vec<Pattern>)>,
}

impl Published {
    /// Learns that this import brings a stream from now on, and has claimed it.
    pub(super) fn claim(&mut self, context: &Context, key: StreamKey, arrived: &Arrived) {
        let is_first = self.streams.get(&key).is_none_or(|seen| !seen.is_claimed);
        if arrived.next > 0 && (is_first || arrived.taken_over) {
            self.read(context);
        }
        if !is_first && !arrived.taken_over {
            return;
        }
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&key) {
            return;
        }
        let seen = self.streams.entry(key).or_default();
        (seen.mark, seen.is_claimed) = (arrived.next, true);
        let above = seen.topics.iter().filter(|(_, next)| **next > arrived.next);
        let above: HashMap<String, u64> =
            above.map(|(topic, next)| (topic.clone(), *next)).collect();
        if above.is_empty() {
            self.above.remove(&key);
        } else {
            self.above.insert(key, above);
        }
    }

    /// Learns that others may bring a stream from now on.
    pub(super) fn release(&mut self, key: StreamKey) {
        if let Some(seen) = self.streams.get_mut(&key) {
            seen.is_claimed = false;
        }
    }

    /// Returns the numbers of a sender's stream, from `settled` on, that an earlier import has published. They are sorted.
    pub(super) fn came(&mut self, context: &Context, key: StreamKey, settled: u64) -> Vec<u64> {
        if self.read.is_none() {
            self.read(context);
        }
        let numbers = self.streams.get_mut(&key).map(|seen| std::mem::take(&mut seen.numbers));
        let mut numbers = numbers.unwrap_or_default();
        numbers.retain(|number| *number >= settled);
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns whether a message was published by an earlier import above the mark. `local` is its topic on this bus.
    pub(super) fn has(&mut self, origin: Origin, local: impl FnOnce() -> String) -> bool {
        if self.above.is_empty() {
            return false;
        }
        let key = StreamKey::of(origin);
        let Some(topics) = self.above.get_mut(&key) else { return false };
        let local = local();
        let Some(next) = topics.get(&local) else { return false };
        if origin.number < *next {
            return true;
        }
        // From here on the order knows the topic.
        topics.remove(&local);
        if topics.is_empty() {
            self.above.remove(&key);
        }
        false
    }

    /// Returns whether a message below the mark was missed by an earlier import, and if so, whether that is sure.
    pub(super) fn misses(
        &self,
        origin: Origin,
        local: impl FnOnce() -> String,
    ) -> Option<LostBound> {
        let seen = self.streams.get(&StreamKey::of(origin))?;
        if origin.number >= seen.mark {
            return None;
        }
        let local = local();
        let next = seen.topics.get(&local);
        if next.is_some_and(|next| origin.number < *next) {
            return None;
        }
        let is_told = || {
            seen.losses.len() >= LOSSES
                || seen.losses.iter().any(|(from, until, scope)| {
                    let concerns = if from == until {
                        // Others had passed before it was reported.
                        origin.number < *from
                    } else {
                        (*from..*until).contains(&origin.number)
                    };
                    concerns && scope.iter().any(|pattern| pattern.matches(&local))
                })
        };
        let has_all = match self.is_cut {
            Cut::Nothing => true,
            // All that came after a message of the same topic is there.
            Cut::Beginning => next.is_some(),
            Cut::Middle => false,
        };
        Some(if has_all && !is_told() { LostBound::Exact } else { LostBound::AtMost })
    }

    fn read(&mut self, context: &Context) {
        if let Err(error) = self.try_read(context) {
            self.is_cut = Cut::Middle;
            warn_rarely!(%error, "cannot find what was published before: it may arrive twice");
        }
    }

    fn try_read(&mut self, context: &Context) -> Result<(), SubscriberError> {
        let end = end_of(context)?;
        let from = self.read.unwrap_or(0).max(end.saturating_sub(MESSAGES));
        if from > self.read.unwrap_or(0) {
            self.cut(if self.read.is_some() { Cut::Middle } else { Cut::Beginning });
        }
        let is_first = self.read.is_none();
        if from >= end {
            self.read = Some(end);
            return Ok(());
        }
        let subscribe = |start| {
            let builder = context.bus.subscriber().gating(false).start(start);
            builder.name("toroni-zenoh import").pattern("**").build()
        };
        let mut subscriber = match subscribe(Start::Sequence(from)) {
            Err(SubscriberError::SequenceLost { .. }) => {
                self.cut(if is_first { Cut::Beginning } else { Cut::Middle });
                subscribe(Start::Oldest)?
            }
            other => other?,
        };
        // Not before: without a place for a subscriber, it is read later.
        self.read = Some(end);
        loop {
            match subscriber.try_receive() {
                Ok(Some(message)) if message.sequence() >= end => return Ok(()),
                Ok(Some(message)) => {
                    if let Some(origin) = message.origin() {
                        self.note(origin, message.topic());
                    }
                }
                Ok(None) => return Ok(()),
                Err(ReceiveError::Lapped { .. }) => self.cut(Cut::Middle),
                Err(ReceiveError::Lost(lost)) => self.note_loss(*lost),
                Err(error) => {
                    self.cut(Cut::Middle);
                    warn_rarely!(%error, "cannot read the ring to its end");
                    return Ok(());
                }
            }
        }
    }

    fn cut(&mut self, cut: Cut) {
        self.is_cut = self.is_cut.max(cut);
    }

    fn note(&mut self, origin: Origin, topic: &str) {
        let seen = self.streams.entry(StreamKey::of(origin)).or_default();
        let is_full = seen.numbers.len() as u64 >= MESSAGES;
        if !seen.is_claimed && !is_full {
            seen.numbers.push(origin.number);
        }
        if let Some(next) = seen.topics.get_mut(topic) {
            *next = origin.number + 1;
        } else if self.topics < TOPICS {
            seen.topics.insert(topic.to_owned(), origin.number + 1);
            self.topics += 1;
        } else {
            self.cut(Cut::Middle);
        }
        if is_full {
            self.cut(Cut::Middle);
        }
    }

    fn note_loss(&mut self, Lost { from, until, scope, .. }: Lost) {
        let seen = self.streams.entry(StreamKey::of(from)).or_default();
        if seen.losses.len() < LOSSES {
            seen.losses.push((from.number, until, scope));
        }
    }
}
