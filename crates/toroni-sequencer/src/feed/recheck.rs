//! The last events on the bus, compared with those of the order before anything is added.
//!
//! A bus outlives its follower, and a member can come back without what it had. So a start compares number, origin, topic,
//! descendants and payload of the last messages with what a member has under these numbers. No evidence is: a member that is behind
//! the bus, or no longer has the first of these numbers. What the bus reported as lost is not compared.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use blake3::{Hash, Hasher};
use toroni::{
    Bus, Lost, LostReason, Message, Origin, ReceiveError, Start, Subscriber, SubscriberError,
};

use crate::batch::{Command, Publish};
use crate::rpc::{Events, Fetched};

/// At most this many of the last messages and losses on the bus are read.
const RECORDS: u64 = 256;
/// Messages are compared from at most this many events before the end of the bus.
const EVENTS: u64 = 4096;
/// Older messages are left out once the payloads have this many bytes. The last one is always compared.
const BYTES: usize = 1 << 20;

/// The end of what is compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The sequence on the bus.
    pub(super) sequence: u64,
    /// The event that the bus wanted next there.
    pub(super) next: u64,
}

/// What is left to compare.
#[derive(Debug)]
pub(super) struct Recheck {
    messages: BTreeMap<u64, Hash>,
    /// Numbers that the bus reported as lost.
    lost: Vec<Range<u64>>,
    /// The number of the first message.
    first: u64,
    /// The number of the event that the bus wants next.
    end: u64,
    /// The member that compares, and the number that it is asked for next.
    asked: Option<(usize, u64)>,
    /// Members that cannot compare, and since when there is one. Those that are behind may be able to, later.
    cannot: BTreeSet<usize>,
    since: Option<Instant>,
}

/// What a member's answer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The member must be asked for more.
    More,
    /// All events are those of the order.
    Equal,
    /// From this number on, the order has other events.
    Differs(u64),
    /// The member is behind the bus.
    Behind,
    /// The member no longer has the events.
    Cannot,
}

impl Recheck {
    /// Reads the last messages of a bus before a place. None if there is nothing to compare.
    pub(super) fn read(bus: &Bus, feed: u32, end: End) -> Result<Option<Self>, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let End { sequence: end, next } = end;
        let from = Start::Sequence(end.saturating_sub(RECORDS));
        let mut subscriber = match subscribe(bus, from) {
            Err(SubscriberError::SequenceLost { .. }) => subscribe(bus, Start::Oldest),
            subscriber => subscriber,
        }
        .map_err(|error| failed(&error))?;
        let mut tail = Tail { feed, ..Tail::default() };
        while subscriber.sequence() < end {
            match subscriber.try_receive() {
                Ok(Some(message)) => tail.message(&message),
                Ok(None) => break,
                Err(ReceiveError::Lost(lost)) => tail.lost(&lost),
                // What was read does not continue any more.
                Err(ReceiveError::Lapped { .. }) => tail = Tail { feed, ..Tail::default() },
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(tail.end(next))
    }

    /// Returns the number from which on a member is asked.
    pub(super) fn from(&self, member: usize) -> u64 {
        self.asked.filter(|(asked, _)| *asked == member).map_or(self.first, |(_, from)| from)
    }

    /// Compares what a member has answered to a question from [`Self::from`] on.
    pub(super) fn compare(&mut self, member: usize, fetched: &Fetched) -> Compared {
        if fetched.now.next < self.end {
            return Compared::Behind;
        }
        let from = self.from(member);
        let follows = |events: &&Events| events.before().next == from && !events.is_empty();
        let Some(events) = fetched.events.as_ref().filter(follows) else {
            self.asked = None;
            self.cannot.insert(member);
            self.since.get_or_insert_with(Instant::now);
            return Compared::Cannot;
        };
        if let Some(number) = self.difference(events) {
            return Compared::Differs(number);
        }
        self.asked = Some((member, events.end()));
        if events.end() < self.end { Compared::More } else { Compared::Equal }
    }

    /// Returns the number of the first event that is another one on the bus.
    fn difference(&self, events: &Events) -> Option<u64> {
        let numbers = events.before().next..self.end;
        let differs = |(number, (command, _)): &(u64, (Command<'_>, &[u8]))| {
            let expected = match command {
                Command::Publish(publish) => Some(hash_of(publish)),
                _ => None,
            };
            let is_lost = self.lost.iter().any(|lost| lost.contains(number));
            !is_lost && self.messages.get(number) != expected.as_ref()
        };
        numbers.zip(events.commands()).find(differs).map(|(number, _)| number)
    }

    /// Returns whether none of this many members can compare. One that does not answer, or is behind, has this much time after the first
    /// that could not.
    pub(super) fn is_hopeless(&self, members: usize, patience: Duration) -> bool {
        let is_late = self.since.is_some_and(|since| since.elapsed() >= patience);
        is_late || self.cannot.len() >= members
    }

    /// Returns the numbers of the events that are compared.
    pub(super) const fn numbers(&self) -> Range<u64> {
        self.first..self.end
    }
}

fn subscribe(bus: &Bus, start: Start) -> Result<Subscriber, SubscriberError> {
    bus.subscriber().pattern("**").start(start).build()
}

/// What was read of a bus.
#[derive(Default)]
struct Tail {
    feed: u32,
    /// The messages with numbers, each with the length of its payload.
    messages: BTreeMap<u64, (Hash, usize)>,
    lost: Vec<Range<u64>>,
    /// Up to here, the bus was reported as diverged.
    diverged: u64,
}

impl Tail {
    fn message(&mut self, message: &Message<'_>) {
        let Some(number) = message.number() else { return };
        let (topic, payload) = (message.topic(), message.payload());
        let hash = hash(message.origin(), message.to_descendants(), topic, payload);
        self.messages.insert(number, (hash, payload.len()));
    }

    fn lost(&mut self, lost: &Lost) {
        if lost.from.source != self.feed {
            return;
        }
        if lost.reason == LostReason::Diverged {
            self.diverged = self.diverged.max(lost.until);
        } else {
            self.lost.push(lost.from.number..lost.until);
        }
    }

    fn end(mut self, next: u64) -> Option<Recheck> {
        let mut from = next.saturating_sub(EVENTS);
        // If the bus was continued after a divergence, only what came then is of the order.
        if self.diverged < next {
            from = from.max(self.diverged);
        }
        self.messages.retain(|number, _| (from..next).contains(number));
        let mut bytes = 0_usize;
        let kept = self.messages.iter().rev().take_while(|(_, (_, length))| {
            let is_kept = bytes == 0 || bytes.saturating_add(*length) <= BYTES;
            bytes = bytes.saturating_add((*length).max(1));
            is_kept
        });
        let first = kept.last().map(|(number, _)| *number)?;
        let messages = self.messages.range(first..).map(|(number, (hash, _))| (*number, *hash));
        Some(Recheck {
            messages: messages.collect(),
            lost: self.lost,
            first,
            end: next,
            asked: None,
            cannot: BTreeSet::new(),
            since: None,
        })
    }
}

fn hash_of(publish: &Publish<'_>) -> Hash {
    let Publish { id, to_descendants, topic, payload } = *publish;
    let origin = Origin { source: id.source, series: id.series, stream: 0, number: id.number };
    hash(Some(origin), to_descendants, topic, payload)
}

fn hash(origin: Option<Origin>, to_descendants: bool, topic: &str, payload: &[u8]) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(&[u8::from(origin.is_some()), u8::from(to_descendants)]);
    if let Some(Origin { source, series, stream, number }) = origin {
        hasher.update(&source.to_le_bytes()).update(&series.to_le_bytes());
        hasher.update(&stream.to_le_bytes()).update(&number.to_le_bytes());
    }
    // The length of the topic tells where the payload begins.
    hasher.update(&topic.len().to_le_bytes()).update(topic.as_bytes()).update(payload);
    hasher.finalize()
}
