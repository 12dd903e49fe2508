//! Stage: what an inlet has received and its bus has not taken yet, in order.
//!
//! ```text
//!   messages, losses ──► lane of streams whose sender waits   ──┐  try, and wait as long as the bus's policy says
//!                    ──► lane of all other streams            ──┴─► bus
//!                                                                  try, and wait 10 ms in each 100 ms
//! ```
//!
//! A lane never blocks its node. If the ring has no room, because a subscriber is slow, what is staged stays. The lane then
//! has no room for more, so that messages wait in the receive buffers of their streams. Once its patience is over, the lane
//! overwrites: the slow subscribers learn how much they have missed.
//!
//! An exclusive publisher keeps the bus for itself for as long as it likes. Overwriting does not help then, so the lane waits,
//! and what is beyond its memory becomes a loss for each stream, which is reported once that publisher has ended.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::loss::join;
use std::collections::HashMap;
use std::time::Duration;
use toroni::{Entry, InletTopic, Limit, Lost, Origin, Policy, PublishError};
use toroni_proto::time::{MILLISECOND, Monotonic, Wall};

/// Messages that are longer are published by calls of their own.
pub(super) const LONG_BYTES: usize = 16 << 10;
/// When this many bytes are staged, they are published.
pub(super) const STAGE_BYTES: usize = 256 << 10;
/// What receivers must give up, because their memory is short, is staged although there is no room. Beyond this it
/// overwrites, or is lost if that does not help.
const MOST_BYTES: usize = 64 << 20;
/// How long the streams wait whose senders do not wait for them, and in which time.
const HASTY_NS: u64 = 10 * MILLISECOND;
const HASTY_PER_NS: u64 = 100 * MILLISECOND;
/// The pause between two attempts. A subscriber that takes nothing for long is asked less often.
const PAUSE_NS: u64 = MILLISECOND;
const LONG_PAUSE_NS: u64 = 10 * MILLISECOND;
/// The longest wait for a publisher that holds the lock of the bus.
const LOCK_WAIT: Duration = Duration::from_millis(2);

/// How long a lane waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// `None`: as long as the slow subscriber lives.
    budget_ns: Option<u64>,
    /// The budget holds for each of these intervals. `None`: it begins again whenever a message has found room.
    per_ns: Option<u64>,
}

impl Patience {
    /// For streams whose senders wait for their receivers: as long as a publisher of the bus would.
    pub(super) fn of_bus(policy: Policy) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match policy {
            Policy::Wait { limit } => Self { budget_ns: limit.map(ns), per_ns: None },
            Policy::Bounded { budget, per } => {
                Self { budget_ns: Some(ns(budget)), per_ns: Some(ns(per)) }
            }
            // It waits for none.
            _ => Self { budget_ns: Some(0), per_ns: None },
        }
    }

    /// For all other streams. Waiting longer for one slow subscriber would overflow the sockets for all.
    pub(super) fn hasty(policy: Policy) -> Self {
        let Self { budget_ns, .. } = Self::of_bus(policy);
        let budget_ns = Some(budget_ns.map_or(HASTY_NS, |budget| budget.min(HASTY_NS)));
        Self { budget_ns, per_ns: Some(HASTY_PER_NS) }
    }
}

/// What waits for the next call of the bus.
pub(super) struct Staged {
    /// Which of the inlet's streams it is of.
    pub(super) stream: usize,
    pub(super) origin: Origin,
    pub(super) open_from: Option<u64>,
    /// When the first of its turn was delivered.
    pub(super) since: Monotonic,
    /// The publisher's time stamp, or else when it was sent.
    pub(super) began: Option<Wall>,
    pub(super) item: Item,
}

pub(super) enum Item {
    Message {
        topic: toroni_proto::wire::TopicNumber,
        from: usize,
        to: usize,
        to_descendants: bool,
        published_ns: Option<u64>,
    },
    Loss(Box<Lost>),
    /// The stream does not come any more. `is_over` says that nothing follows in its series.
    Release {
        is_over: bool,
    },
    /// The stream comes in this session from now on. If its sender has forgotten earlier ones, it continues at this number.
    Begin {
        session: u32,
        back_to: Option<u64>,
    },
}

impl Staged {
    fn length(&self) -> usize {
        match &self.item {
            Item::Message { from, to, .. } => to.saturating_sub(*from),
            Item::Loss(_) | Item::Release { .. } | Item::Begin { .. } => 0,
        }
    }
}

/// What came of an attempt.
pub(super) enum Attempt {
    /// The bus has everything.
    Done,
    /// The rest must wait, and why.
    Full(PublishError),
    /// The bus refuses the first of the rest.
    Refused(PublishError),
    /// The bus cannot be written.
    Failed(PublishError),
}

/// What is staged of some streams, in order.
pub(super) struct Lane {
    patience: Patience,
    staged: Vec<Staged>,
    /// How many of them the bus has.
    done: usize,
    bytes: Vec<u8>,
    /// Memory for the parts and entries of the next call of the bus.
    parts: Vec<[&'static [u8]; 1]>,
    entries: Vec<Entry<'static>>,
    /// Since when there is no room, and of that the time which counts; and when to try again.
    waits: Option<Waiting>,
    /// When the interval of the patience has begun, and how long the lane has waited in it.
    interval: (Monotonic, u64),
    /// Where the loss of each stream is to which more can be added.
    losses: HashMap<usize, usize>,
    /// How much may wait for an exclusive publisher.
    pub(super) most_bytes: usize,
}

#[derive(Clone, Copy)]
struct Waiting {
    since: Monotonic,
    counted: Monotonic,
    due: Monotonic,
    /// It waits for an exclusive publisher, which takes no part of its patience.
    is_exclusive: bool,
}

impl Lane {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            patience,
            staged: Vec::new(),
            done: 0,
            bytes: Vec::with_capacity(STAGE_BYTES),
            parts: Vec::new(),
            entries: Vec::new(),
            waits: None,
            interval: (Monotonic::default(), 0),
            losses: HashMap::new(),
            most_bytes: MOST_BYTES,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.done == self.staged.len()
    }

    /// Whether the ring had room when this last tried.
    pub(super) fn has_room(&self) -> bool {
        self.waits.is_none()
    }

    /// When to try again, if it waits.
    pub(super) fn due(&self) -> Option<Monotonic> {
        self.waits.map(|waits| waits.due)
    }

    /// How many bytes wait for the bus.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.staged[self.done..].iter().map(|it| it.length() as u64).sum()
    }

    /// How many bytes are staged.
    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Stages the bytes of a message, and returns where they are.
    pub(super) fn append<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> (usize, usize) {
        let from = self.bytes.len();
        parts.for_each(|part| self.bytes.extend_from_slice(part));
        (from, self.bytes.len())
    }

    /// Returns whether a message of this length must be lost, because there is no memory in which it could wait for an
    /// exclusive publisher.
    pub(super) fn is_beyond(&self, length: usize) -> bool {
        let items = self.staged.len().saturating_mul(size_of::<Staged>());
        let needed = self.bytes.len().saturating_add(items).saturating_add(length);
        self.is_exclusive() && needed > self.most_bytes
    }

    fn is_exclusive(&self) -> bool {
        self.waits.is_some_and(|waits| waits.is_exclusive)
    }

    pub(super) fn push(&mut self, staged: Staged) {
        let stream = staged.stream;
        let is_loss = matches!(&staged.item, Item::Loss(lost) if lost.until > lost.from.number);
        if !is_loss {
            self.losses.remove(&stream);
        } else if self.is_exclusive() {
            let before = self.losses.get(&stream).filter(|at| **at >= self.done);
            let before = before.and_then(|at| self.staged.get_mut(*at));
            if let Some(Staged { item: Item::Loss(lost), open_from, origin, .. }) = before
                && let Item::Loss(more) = &staged.item
                && origin.series == staged.origin.series
            {
                join(lost, more);
                *open_from = staged.open_from;
                return;
            }
            self.losses.insert(stream, self.staged.len());
        }
        self.staged.push(staged);
    }

    /// Whether something like this waits for the bus.
    pub(super) fn has(&self, is_it: impl Fn(&Staged) -> bool) -> bool {
        self.staged[self.done..].iter().any(is_it)
    }

    /// Notes for the last of a stream where the stream continues: of messages that arrive in any order, all below have arrived.
    pub(super) fn complete(&mut self, stream: usize, open_from: u64) {
        let is_of_it = |staged: &&mut Staged| staged.stream == stream && staged.open_from.is_some();
        if let Some(last) = self.staged[self.done..].iter_mut().rev().find(is_of_it) {
            last.open_from = Some(open_from);
        }
    }

    /// Returns the first that the bus does not have.
    pub(super) fn first(&self) -> Option<&Staged> {
        self.staged.get(self.done)
    }

    /// Forgets what waits for the bus and is void.
    pub(super) fn discard(&mut self, is_void: impl Fn(&Staged) -> bool) {
        let mut at = 0_usize;
        let done = self.done;
        self.staged.retain(|staged| {
            at = at.saturating_add(1);
            at <= done || !is_void(staged)
        });
        self.losses.clear();
        self.tidy();
    }

    /// Puts this in the place of the first that the bus does not have, or removes that.
    pub(super) fn replace_first(&mut self, by: Option<Staged>) {
        match (self.staged.get_mut(self.done), by) {
            (Some(first), Some(by)) => *first = by,
            _ => self.done = self.done.saturating_add(1),
        }
    }

    /// Gives the bus what it has room for. `topic` returns the topic of a message on the bus; `now` is asked for only
    /// if there is no room. `committed` is called for each that the bus has taken. Returns also how many messages and losses the bus has taken.
    pub(super) fn publish<'a>(
        &mut self,
        bus: &toroni::Inlet,
        now: impl Fn() -> Monotonic,
        topic: impl Fn(&Staged) -> Option<&'a InletTopic>,
        mut committed: impl FnMut(&Staged),
    ) -> (Attempt, Taken) {
        let mut taken = Taken::default();
        let mut overwrites =
            self.bytes.len() > MOST_BYTES || (self.waits.is_some() && self.is_over(now()));
        let attempt = loop {
            let before = taken.all();
            let attempt = self.attempt(bus, overwrites, &topic, &mut committed, &mut taken);
            if overwrites {
                let more = taken.all().saturating_sub(before);
                taken.overwriting = taken.overwriting.saturating_add(more);
            }
            if taken.any() && self.patience.per_ns.is_none() {
                self.interval.1 = 0;
            }
            let Attempt::Full(error) = attempt else { break attempt };
            let at = now();
            self.wait(at, matches!(error, PublishError::Exclusive { .. }));
            if overwrites || !self.is_over(at) {
                break Attempt::Full(error);
            }
            overwrites = true;
        };
        self.tidy();
        (attempt, taken)
    }

    /// Frees its memory if nothing waits.
    fn tidy(&mut self) {
        if self.is_empty() {
            self.staged.clear();
            self.bytes.clear();
            self.losses.clear();
            (self.done, self.waits) = (0, None);
        }
    }

    fn attempt<'a>(
        &mut self,
        bus: &toroni::Inlet,
        overwrites: bool,
        topic: &impl Fn(&Staged) -> Option<&'a InletTopic>,
        committed: &mut impl FnMut(&Staged),
        taken: &mut Taken,
    ) -> Attempt {
        while let Some(first) = self.staged.get(self.done) {
            let result = match &first.item {
                Item::Loss(lost) => {
                    let result = put_lost(bus, overwrites, lost, first.open_from);
                    if result.is_ok() {
                        committed(first);
                        taken.losses = taken.losses.saturating_add(1);
                        taken.lost = taken.lost.saturating_add(lost.messages);
                        self.done = self.done.saturating_add(1);
                    }
                    result
                }
                Item::Release { is_over } => {
                    let result = release(bus, first.origin, *is_over);
                    if result.is_ok() {
                        self.done = self.done.saturating_add(1);
                    }
                    result
                }
                Item::Begin { session, back_to } => {
                    let stream = first.origin.into();
                    let result = bus.begin_session(stream, *session, *back_to, LOCK_WAIT);
                    if result.is_ok() {
                        committed(first);
                        self.done = self.done.saturating_add(1);
                    }
                    result
                }
                Item::Message { .. } => {
                    let rest = &self.staged[self.done..];
                    let run = run_of(rest);
                    let mut parts: Vec<[&[u8]; 1]> = std::mem::take(&mut self.parts);
                    parts.extend(rest[..run].iter().map(|one| [bytes_of(one, &self.bytes)]));
                    let mut entries: Vec<Entry<'_>> = std::mem::take(&mut self.entries);
                    let known = rest[..run].iter().zip(&parts);
                    entries.extend(
                        known.map_while(|(one, parts)| Some(entry(one, topic(one)?, parts))),
                    );
                    let outcome = match &entries[..] {
                        [] => None,
                        entries => Some(match put(bus, overwrites, entries) {
                            Ok(()) => (entries.len(), Ok(())),
                            Err(error) => (error.published, Err(error.source)),
                        }),
                    };
                    self.entries = emptied(entries);
                    self.parts = emptied(parts);
                    let Some((published, result)) = outcome else {
                        // No topic was resolved for it, so it was not accepted.
                        self.done = self.done.saturating_add(1);
                        continue;
                    };
                    rest.iter().take(published).for_each(&mut *committed);
                    taken.messages = taken.messages.saturating_add(published as u64);
                    self.done = self.done.saturating_add(published);
                    result
                }
            };
            match result {
                Ok(()) => {}
                Err(error) if error.is_temporary() => return Attempt::Full(error),
                Err(error) if error.concerns_one_message() => {
                    return Attempt::Refused(error);
                }
                Err(error) => return Attempt::Failed(error),
            }
        }
        Attempt::Done
    }

    /// Notes that there is no room.
    pub(super) fn wait(&mut self, now: Monotonic, is_exclusive: bool) {
        self.roll(now);
        let waits = Waiting { since: now, counted: now, due: now, is_exclusive };
        let waits = self.waits.get_or_insert(waits);
        if is_exclusive || waits.is_exclusive {
            (waits.is_exclusive, waits.counted) = (is_exclusive, now);
        }
        let long = now.since(waits.since) > HASTY_PER_NS;
        waits.due = now.after(if long { LONG_PAUSE_NS } else { PAUSE_NS });
    }

    /// Begins the next interval, if this one is over.
    fn roll(&mut self, now: Monotonic) {
        if self.patience.per_ns.is_some_and(|per| now.since(self.interval.0) >= per) {
            self.interval = (now, 0);
            self.waits.iter_mut().for_each(|waits| waits.counted = now);
        }
    }

    /// Counts the time until now. Returns whether the patience is over.
    fn is_over(&mut self, now: Monotonic) -> bool {
        self.roll(now);
        let Some(waits) = self.waits.as_mut().filter(|waits| !waits.is_exclusive) else {
            return false;
        };
        self.interval.1 = self.interval.1.saturating_add(now.since(waits.counted));
        waits.counted = now;
        self.patience.budget_ns.is_some_and(|budget| self.interval.1 >= budget)
    }
}

/// How much the bus has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) messages: u64,
    pub(super) losses: u64,
    /// Messages of these losses.
    pub(super) lost: u64,
    /// Messages and losses that did not wait for slow subscribers any more.
    pub(super) overwriting: u64,
}

impl Taken {
    const fn any(&self) -> bool {
        self.messages > 0 || self.losses > 0
    }

    const fn all(&self) -> u64 {
        self.messages.saturating_add(self.losses)
    }
}

/// Returns the memory of a vector, for elements with other lifetimes.
pub(super) fn emptied<T, U>(mut memory: Vec<T>) -> Vec<U> {
    memory.clear();
    // The standard library collects into the same memory if the elements have the same size.
    memory.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// How many of these go into one call: those before the next loss. A long one goes alone, because the bus does not say which
/// message of a call is too long.
fn run_of(rest: &[Staged]) -> usize {
    let is_short =
        |one: &&Staged| matches!(one.item, Item::Message { .. }) && one.length() <= LONG_BYTES;
    rest.iter().take_while(is_short).count().max(1)
}

fn bytes_of<'a>(staged: &Staged, bytes: &'a [u8]) -> &'a [u8] {
    match staged.item {
        Item::Message { from, to, .. } => &bytes[from..to],
        Item::Loss(_) | Item::Release { .. } | Item::Begin { .. } => &[],
    }
}

/// Returns the message as the bus takes it.
pub(super) fn entry<'a>(
    staged: &Staged,
    topic: &'a InletTopic,
    parts: &'a [&'a [u8]],
) -> Entry<'a> {
    let (to_descendants, published_ns) = match staged.item {
        Item::Message { to_descendants, published_ns, .. } => (to_descendants, published_ns),
        Item::Loss(_) | Item::Release { .. } | Item::Begin { .. } => (false, None),
    };
    let Staged { origin, open_from, .. } = *staged;
    let origin = Some(origin);
    Entry { to_descendants, published_ns, origin, open_from, ..Entry::new(topic, parts) }
}

fn put(
    bus: &toroni::Inlet,
    overwrites: bool,
    entries: &[Entry<'_>],
) -> Result<(), toroni::BurstError> {
    if overwrites {
        return bus.publish(entries, Limit::Overwrite);
    }
    match bus.publish(entries, Limit::Try) {
        // Its owner is at work. One that waits for room has given the lock back.
        Err(error) if matches!(error.source, PublishError::Busy) => {
            let rest = entries.get(error.published..).unwrap_or_default();
            bus.publish(rest, LOCK_WAIT).map_err(|mut later| {
                later.published = later.published.saturating_add(error.published);
                later
            })
        }
        other => other,
    }
}

fn put_lost(
    bus: &toroni::Inlet,
    overwrites: bool,
    lost: &Lost,
    open_from: Option<u64>,
) -> Result<(), PublishError> {
    if overwrites {
        return bus.publish_lost(lost, open_from, Limit::Overwrite);
    }
    match bus.publish_lost(lost, open_from, Limit::Try) {
        Err(PublishError::Busy) => bus.publish_lost(lost, open_from, LOCK_WAIT),
        other => other,
    }
}

fn release(bus: &toroni::Inlet, origin: Origin, is_over: bool) -> Result<(), PublishError> {
    bus.release(origin.into(), is_over, LOCK_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(1_000 * MILLISECOND).after(ms * MILLISECOND)
    }

    fn lane(patience: Patience) -> Lane {
        Lane::new(patience)
    }

    #[test]
    fn a_stream_whose_sender_does_not_wait_waits_10_ms_in_each_100_ms() {
        let mut lane = lane(Patience::hasty(Policy::Wait { limit: None }));
        lane.wait(at(0), false);
        assert!(!lane.is_over(at(0)) && !lane.is_over(at(9)));
        assert!(lane.is_over(at(10)));
        // There was room for a while: that changes nothing in this interval.
        lane.waits = None;
        lane.wait(at(50), false);
        assert!(lane.is_over(at(50)));
        lane.wait(at(100), false);
        assert!(!lane.is_over(at(100)), "another interval");
        assert!(lane.is_over(at(110)));
    }

    #[test]
    fn a_stream_whose_sender_waits_waits_as_long_as_a_publisher() {
        let second = Some(Duration::from_secs(1));
        let mut lane = lane(Patience::of_bus(Policy::Wait { limit: second }));
        lane.wait(at(0), false);
        assert!(!lane.is_over(at(999)) && lane.is_over(at(1_000)));
        let mut lane = self::lane(Patience::of_bus(Policy::Wait { limit: None }));
        lane.wait(at(0), false);
        assert!(!lane.is_over(at(1_000_000)));
        let mut lane = self::lane(Patience::of_bus(Policy::Overwrite));
        lane.wait(at(0), false);
        assert!(lane.is_over(at(0)));
        let per = Duration::from_secs(1);
        let bounded = Policy::Bounded { budget: Duration::from_millis(50), per };
        let mut lane = self::lane(Patience::of_bus(bounded));
        lane.wait(at(0), false);
        assert!(!lane.is_over(at(49)) && lane.is_over(at(50)));
        assert_eq!(Patience::hasty(Policy::Overwrite).budget_ns, Some(0));
    }

    #[test]
    fn the_wait_for_an_exclusive_publisher_takes_nothing_of_the_patience() {
        let mut lane = lane(Patience::hasty(Policy::Wait { limit: None }));
        lane.wait(at(0), true);
        assert!(!lane.is_over(at(50)) && !lane.is_beyond(MOST_BYTES));
        assert!(lane.is_beyond(MOST_BYTES + 1));
        // It has ended, and a subscriber is slow.
        lane.wait(at(60), false);
        assert!(!lane.is_over(at(69)) && !lane.is_beyond(MOST_BYTES + 1));
        assert!(lane.is_over(at(70)));
    }

    #[test]
    fn one_that_waits_for_long_tries_less_often() {
        let mut lane = lane(Patience::of_bus(Policy::Wait { limit: None }));
        lane.wait(at(0), false);
        assert_eq!(lane.due(), Some(at(1)));
        lane.wait(at(500), false);
        assert_eq!(lane.due(), Some(at(510)));
        assert!(!lane.has_room());
    }
}
