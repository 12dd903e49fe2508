//! What an earlier import has published with numbers above the mark of their stream.
//!
//! The bus knows one mark for each stream. While a gap is open it stands before the gap, and for the own stream of a relay
//! it follows the heartbeats. An import that begins after another one was killed asks for everything from the mark on, and
//! so gets messages that are on the bus. The ring tells which: on one topic the numbers of a stream only grow, so the last
//! message of each topic is enough.

use crate::context::Context;
use crate::export::end_of;
use crate::limit::warn_rarely;
use crate::order::StreamKey;
use foldhash::HashMap;
use toroni::{Arrived, Origin, ReceiveError, Start, SubscriberError};

/// As many messages of the ring are read, the newest.
const MESSAGES: u64 = 1 << 20;
/// As many topics of streams are remembered.
const TOPICS: usize = 1 << 17;

#[derive(Debug, Default)]
pub(super) struct Published {
    /// The sequence up to which the ring was read, once it was.
    read: Option<u64>,
    topics: usize,
    /// The number after the last one of each topic of this bus.
    streams: HashMap<StreamKey, HashMap<String, u64>>,
}

impl Published {
    /// Learns that this import brings a stream from now on, and has claimed it.
    pub(super) fn claim(&mut self, context: &Context, key: StreamKey, arrived: &Arrived) {
        let has_predecessor = arrived.next > 0 && (self.read.is_none() || arrived.taken_over);
        if has_predecessor && let Err(error) = self.read(context) {
            warn_rarely!(%error, "cannot find what was published before: it may arrive twice");
        }
        if let Some(topics) = self.streams.get_mut(&key) {
            let before = topics.len();
            topics.retain(|_, next| *next > arrived.next);
            self.topics -= before - topics.len();
            if topics.is_empty() {
                self.streams.remove(&key);
            }
        }
    }

    /// Returns whether a message was published by an earlier import. `local` is its topic on this bus.
    pub(super) fn has(&mut self, origin: Origin, local: impl FnOnce() -> String) -> bool {
        if self.streams.is_empty() {
            return false;
        }
        let key = StreamKey::of(origin);
        let Some(topics) = self.streams.get_mut(&key) else { return false };
        let local = local();
        let Some(next) = topics.get(&local) else { return false };
        if origin.number < *next {
            return true;
        }
        // From here on the order knows the topic.
        topics.remove(&local);
        self.topics -= 1;
        if topics.is_empty() {
            self.streams.remove(&key);
        }
        false
    }

    fn read(&mut self, context: &Context) -> Result<(), SubscriberError> {
        let end = end_of(context)?;
        let from = self.read.unwrap_or(0).max(end.saturating_sub(MESSAGES));
        self.read = Some(end);
        if from >= end {
            return Ok(());
        }
        let subscribe = |start| {
            let builder = context.bus.subscriber().gating(false).start(start);
            builder.name("toroni-zenoh import").pattern("**").build()
        };
        let mut subscriber = match subscribe(Start::Sequence(from)) {
            Err(SubscriberError::SequenceLost { .. }) => subscribe(Start::Oldest)?,
            other => other?,
        };
        loop {
            match subscriber.try_receive() {
                Ok(Some(message)) if message.sequence() >= end => return Ok(()),
                Ok(Some(message)) => {
                    if let Some(origin) = message.origin() {
                        self.note(origin, message.topic());
                    }
                }
                Ok(None) => return Ok(()),
                Err(ReceiveError::Lapped { .. } | ReceiveError::Lost(_)) => {}
                Err(error) => {
                    warn_rarely!(%error, "cannot read the ring to its end");
                    return Ok(());
                }
            }
        }
    }

    fn note(&mut self, origin: Origin, topic: &str) {
        let topics = self.streams.entry(StreamKey::of(origin)).or_default();
        if let Some(next) = topics.get_mut(topic) {
            *next = origin.number + 1;
        } else if self.topics < TOPICS {
            topics.insert(topic.to_owned(), origin.number + 1);
            self.topics += 1;
        }
    }
}
