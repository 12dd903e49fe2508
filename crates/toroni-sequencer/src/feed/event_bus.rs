//! Events as messages of a bus.
//!
//! | an event | in the bus |
//! |---|---|
//! | of a command | the message, with the command's origin, and the event's number as its number |
//! | LOST | a loss of the commander's numbers, at this place of the order |
//! | OPEN, BEGIN | nothing: there is no message of this number |
//!
//! The table of arrivals knows the feed as one stream, so the bus itself says with which event to go on. The mark of a second stream
//! is the series of the feed that the bus follows. It is raised before the bus has any event of that series: a series that is known
//! too early says only that it continues this bus, which is so.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::HashMap;
use std::time::Duration;

use toroni::{
    BusConfig, Entry, Inlet, InletTopic, Limit, Lost, LostBound, LostReason, Origin, Pattern,
    PublishError, StreamKey,
};
use toroni_proto::id::Source;

use super::FollowError;
use super::recheck::{End, Recheck};
use crate::batch::{Command, Publish};
use crate::hook::mutant;
use crate::machine::Chain;
use crate::rpc::Events;

/// At most this many messages are published with one call.
const AT_ONCE: usize = 256;
/// At most this many topics are remembered.
const TOPICS: usize = 4096;
/// How long a call waits for slow subscribers before it is checked whether the follower must end.
const PATIENCE: Duration = Duration::from_millis(200);
/// Divergences are a stream of their own: they go back behind what has arrived.
const DIVERGENCES: u16 = 1;
/// The stream whose mark is the series of the feed. It has no messages.
const SERIES: u16 = 2;

/// Kills the process here, if `TORONI_CRASH=NAME:N` asks for the N-th time.
#[inline(always)]
pub(super) fn point(name: &str) {
    let _ = name;
    #[cfg(test)]
    toroni_testkit::crash::point(name);
}

/// The bus of a feed.
pub(super) struct EventBus {
    inlet: Inlet,
    feed: u32,
    next: u64,
    /// The series of the feed that it follows; 0 if it does not say.
    series: u32,
    topics: HashMap<String, InletTopic>,
}

impl EventBus {
    /// Opens the bus, and learns which event it wants next, and which series it follows.
    pub(super) fn open(config: &BusConfig, name: &str, feed: &str) -> Result<Self, FollowError> {
        let inlet = config.open(name)?.inlet()?;
        let feed = Source::of_feed(feed).0;
        let claim = |stream| {
            let arrived = inlet.claim(StreamKey { source: feed, series: 0, stream }, Limit::Policy);
            arrived.map(|arrived| arrived.next)
        };
        // That of the events first: a second follower ends there.
        let (next, series) = (claim(0)?, claim(SERIES)?);
        let series = u32::try_from(series).unwrap_or(u32::MAX);
        Ok(Self { inlet, feed, next, series, topics: HashMap::new() })
    }

    /// Returns the series of the feed that it follows, if it says so.
    pub(super) fn series(&self) -> Option<u32> {
        (self.series > 0).then_some(self.series)
    }

    /// Notes that it follows this series, or a later one.
    pub(super) fn follow(&mut self, series: u32) -> Result<(), FollowError> {
        if series <= self.series {
            return Ok(());
        }
        point("feed-series-begins");
        let mark = Origin { stream: SERIES, ..self.place(series.into()) };
        self.inlet.advance(mark, Limit::Policy)?;
        self.series = series;
        point("feed-series-raised");
        Ok(())
    }

    /// Returns where it ends now.
    pub(super) fn end(&self) -> Result<End, FollowError> {
        Ok(End { sequence: self.inlet.bus().stats()?.sequence, next: self.next })
    }

    /// Reads the last events on it before a place. None if there are none.
    pub(super) fn tail(&self, end: End) -> Result<Option<Recheck>, String> {
        Recheck::read(self.inlet.bus(), self.feed, end)
    }

    /// Returns the number of the event that it wants next.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether nothing was ever published on it.
    pub(super) fn is_fresh(&self) -> Result<bool, FollowError> {
        Ok(self.next == 0 && self.inlet.bus().stats()?.sequence == 0)
    }

    fn place(&self, number: u64) -> Origin {
        Origin { source: self.feed, series: 0, stream: 0, number }
    }

    /// Begins with this event, which is in this series. What is before was never wanted.
    pub(super) fn begin_with(&mut self, next: u64, series: u32) -> Result<(), FollowError> {
        self.follow(series)?;
        self.skip_to(next)
    }

    /// Continues with this event. There is no message of those before.
    fn skip_to(&mut self, next: u64) -> Result<(), FollowError> {
        self.inlet.advance(self.place(next), Limit::Policy)?;
        self.next = next;
        Ok(())
    }

    /// Writes events, the first of which is the next one. `chain` goes on with each. `ends` says whether to stop early;
    /// then it returns false.
    pub(super) fn write(
        &mut self,
        events: &Events,
        chain: &mut Chain,
        ends: impl Fn() -> bool,
    ) -> Result<bool, FollowError> {
        let mut run = vec![];
        for (command, bytes) in events.commands() {
            let event = chain.append(command, bytes);
            match command {
                Command::Publish(publish) => {
                    run.push((event.number, publish));
                    if run.len() < AT_ONCE {
                        continue;
                    }
                }
                Command::Lost(lost) => {
                    if !self.publish(&run, &ends)? {
                        return Ok(false);
                    }
                    run.clear();
                    let from = Origin {
                        source: lost.source,
                        series: lost.series,
                        stream: 0,
                        number: lost.first,
                    };
                    let lost = loss(
                        from,
                        lost.last.saturating_add(1),
                        LostReason::Overtaken,
                        LostBound::Exact,
                    );
                    if !self.publish_loss(&lost, &ends)? {
                        return Ok(false);
                    }
                }
                Command::Begin { series } => {
                    // What is before it is of the earlier series.
                    if !self.publish(&run, &ends)? {
                        return Ok(false);
                    }
                    run.clear();
                    if !mutant("series_after_its_events") {
                        self.follow(series)?;
                    }
                    continue;
                }
                Command::Open(_) | Command::Release { .. } | Command::Remove { .. } => continue,
            }
            if !self.publish(&run, &ends)? {
                return Ok(false);
            }
            run.clear();
        }
        if !self.publish(&run, &ends)? {
            return Ok(false);
        }
        if mutant("series_after_its_events") {
            self.follow(chain.series)?;
        }
        // Events that are no messages.
        if self.next < chain.next {
            self.skip_to(chain.next)?;
        }
        Ok(true)
    }

    /// Publishes the messages of these events.
    fn publish(
        &mut self,
        run: &[(u64, Publish<'_>)],
        ends: &impl Fn() -> bool,
    ) -> Result<bool, FollowError> {
        let mut topics = Vec::with_capacity(run.len());
        for (at, (number, publish)) in run.iter().enumerate() {
            match self.topic(publish.topic) {
                Ok(topic) => topics.push(topic),
                // It was not published on a bus. What is before it is published first.
                Err(_) => {
                    return Ok(self.publish_on(&run[..at], &topics, ends)?
                        && self.lost(
                            *number,
                            number.saturating_add(1),
                            LostReason::Topic,
                            ends,
                        )?
                        && self
                            .publish(run.get(at.saturating_add(1)..).unwrap_or_default(), ends)?);
                }
            }
        }
        self.publish_on(run, &topics, ends)
    }

    fn topic(&mut self, name: &str) -> Result<InletTopic, toroni::PublisherError> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(topic.clone());
        }
        let topic = self.inlet.topic(name)?;
        if self.topics.len() == TOPICS {
            self.topics.clear();
        }
        self.topics.insert(name.to_owned(), topic.clone());
        Ok(topic)
    }

    fn publish_on(
        &mut self,
        run: &[(u64, Publish<'_>)],
        topics: &[InletTopic],
        ends: &impl Fn() -> bool,
    ) -> Result<bool, FollowError> {
        let parts: Vec<_> = run.iter().map(|(_, publish)| [publish.payload]).collect();
        let entry = |((number, publish), (topic, parts)): (&(u64, Publish<'_>), _)| {
            let Publish { id, to_descendants, .. } = *publish;
            let origin =
                Origin { source: id.source, series: id.series, stream: 0, number: id.number };
            Entry {
                to_descendants,
                origin: Some(origin),
                number: Some(*number),
                arrival: Some(self.place(*number)),
                ..Entry::new(topic, parts)
            }
        };
        let slices: Vec<&[&[u8]]> = parts.iter().map(|parts| &parts[..]).collect();
        let entries: Vec<_> = run.iter().zip(topics.iter().zip(slices)).map(entry).collect();
        let (mut done, mut at_once) = (0, entries.len());
        while done < entries.len() {
            if ends() {
                return Ok(false);
            }
            let call = &entries[done..entries.len().min(done.saturating_add(at_once))];
            let Err(error) = self.inlet.publish(call, PATIENCE) else {
                done = done.saturating_add(call.len());
                continue;
            };
            done = done.saturating_add(error.published);
            match error.source {
                PublishError::Timeout => {}
                // One that is too long has refused all of the call.
                PublishError::TooLong { .. } if call.len() > 1 => at_once = 1,
                PublishError::TooLong { .. } => {
                    let number = run[done].0;
                    if !self.lost(number, number.saturating_add(1), LostReason::TooLong, ends)? {
                        return Ok(false);
                    }
                    done = done.saturating_add(1);
                }
                error => return Err(error.into()),
            }
        }
        if let Some((last, _)) = run.last() {
            self.next = last.saturating_add(1);
        }
        Ok(true)
    }

    /// Reports that these events are not in the bus, and goes on after them.
    pub(super) fn lost(
        &mut self,
        from: u64,
        until: u64,
        reason: LostReason,
        ends: &impl Fn() -> bool,
    ) -> Result<bool, FollowError> {
        let bound = if reason == LostReason::Gone { LostBound::AtMost } else { LostBound::Exact };
        let written = self.publish_loss(&loss(self.place(from), until, reason, bound), ends)?;
        if written {
            self.next = until;
        }
        Ok(written)
    }

    /// Reports that these events, which are in the bus, are others than those of the order.
    pub(super) fn diverged(
        &self,
        series: u32,
        from: u64,
        until: u64,
        ends: &impl Fn() -> bool,
    ) -> Result<bool, FollowError> {
        let from = Origin { series, stream: DIVERGENCES, ..self.place(from) };
        self.publish_loss(&loss(from, until, LostReason::Diverged, LostBound::AtMost), ends)
    }

    fn publish_loss(&self, lost: &Lost, ends: &impl Fn() -> bool) -> Result<bool, FollowError> {
        loop {
            match self.inlet.publish_lost(lost, None, PATIENCE) {
                Ok(()) => return Ok(true),
                Err(PublishError::Timeout) if ends() => return Ok(false),
                Err(PublishError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn loss(from: Origin, until: u64, reason: LostReason, bound: LostBound) -> Lost {
    let scope = vec![Pattern::new("**").expect("a pattern")];
    Lost { from, until, messages: until.saturating_sub(from.number), bound, reason, scope }
}
