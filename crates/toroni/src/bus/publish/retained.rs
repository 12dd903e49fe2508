//! Retained topics: a publisher declares one, and keeps its newest message for late subscribers (`ring/values.rs`).

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::commit::Commit;
use super::participant::CallEnd;
use super::publisher::Publisher;
use super::publishing::Publishing;
use super::terms::{Limit, Terms};
use super::topics::TableShare;
use crate::bus::views::{number_of, values_of};
use crate::error::{PublishError, RetainError};
use crate::ring::bounds;
use crate::ring::values::{NoRoom, NotDeclared, Values};
use crate::ring::writer::{Appender, Record};
use crate::topic::Topic;
use crate::topic::frame::{Tag, TopicId};

impl Publishing {
    /// Publishes what one commit makes visible, of a topic that may be retained. The caller has the lock.
    #[inline(never)]
    pub(super) fn publish_value<C: Commit>(
        &self,
        appender: Appender<'_>,
        end: CallEnd,
        commit: C,
        needs_room: bool,
    ) -> Result<C::Result, PublishError> {
        let values = values_of(&self.participant.ring);
        if needs_room && let Some(values) = values {
            let lock = self.participant.lock_guard(end);
            check_room(values, commit.tag(), commit.newest())?;
            lock.defer();
        }
        self.write_and_wake(appender.with_values(values), end, commit)
    }

    /// Retains a topic. If it has no id yet, because the table was full or belonged to an exclusive publisher, the topic is
    /// entered now.
    pub(super) fn declare(
        &self,
        topic: &Topic,
        id: &mut Option<TopicId>,
        share: TableShare,
        terms: &Terms,
    ) -> Result<(), RetainError> {
        let participant = &self.participant;
        participant.check_fork()?;
        let Some(values) = values_of(&participant.ring) else { return Err(RetainError::NoValues) };
        if id.is_none() {
            *id = self.enter(topic, share, terms)?;
        }
        let number = number_of(id.ok_or(RetainError::TopicTableFull)?);
        let held = participant.hold(terms)?;
        let declared = values.declare(participant.ring.control(), number);
        drop(held);
        declared.map_err(|error| match error {
            NotDeclared::Untracked { tracked } => RetainError::TooManyTopics { limit: tracked },
            NotDeclared::Full { entries } => RetainError::TooManyRetained { limit: entries },
        })
    }
}

/// Makes room for a record as the value of its topic, if that is retained.
pub(super) fn check_room(values: Values<'_>, tag: u32, bytes: u64) -> Result<(), PublishError> {
    let Some(entry) = values.entry(bounds::topic_of(tag)) else { return Ok(()) };
    values.make_room(entry, bytes).map_err(|no_room| match no_room {
        NoRoom::TooLong { longest } => PublishError::ValueTooLong { length: bytes, limit: longest },
        NoRoom::Full => PublishError::RetainedFull { limit: values.usage().1 },
    })
}

impl Publisher {
    /// Retains the topic: from now on the bus keeps its newest message, by any publisher. A subscriber that joins later can
    /// have it at once ([`SubscriberBuilder::retained`](crate::SubscriberBuilder::retained)), and any program can read it
    /// ([`Bus::retained`](crate::Bus::retained)). The topic stays retained as long as the bus exists.
    ///
    /// The calls of this handle publish only what can be kept. Those of other handles publish what they always do; if their
    /// message finds no room, the value is missing, and readers learn that. A message that carries the name of its topic, because
    /// the table of topics was full or the bus exclusive when its handle was made, becomes no value.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-retained-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// let setpoint = bus.publisher("plant/setpoint")?.retained()?;
    /// setpoint.publish(b"350")?;
    /// let mut late = bus.subscriber().pattern("plant/**").retained(true).build()?;
    /// assert_eq!(late.receive()?.text(), "350");
    /// # drop((setpoint, late, bus));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RetainError`].
    pub fn retained(self) -> Result<Self, RetainError> {
        let terms = self.publishing().participant.terms_without_deadline();
        self.retained_on(&terms)
    }

    pub(super) fn retained_on(mut self, terms: &Terms) -> Result<Self, RetainError> {
        self.declare(terms)?;
        Ok(self)
    }

    /// Ends the value of the topic, at its place in the order, and returns the sequence of that. Afterwards there is none until
    /// the next message. Subscribers that asked for values learn it
    /// ([`Message::is_cleared`](crate::Message::is_cleared)); others notice nothing. A message without a payload is a value, and
    /// clears nothing.
    ///
    /// # Errors
    /// Returns [`PublishError::NotRetained`] if this handle has not declared the topic; see [`Limit`] and [`PublishError`].
    pub fn clear(&self, limit: impl Into<Limit>) -> Result<u64, PublishError> {
        self.clear_on(&self.terms(limit.into()))
    }

    pub(super) fn clear_on(&self, terms: &Terms) -> Result<u64, PublishError> {
        if !self.is_declared() {
            return Err(PublishError::NotRetained);
        }
        let mut buffer = None;
        let (tag, extensions) = self.frame(&mut buffer);
        let tag = Tag::from_raw(tag).cleared().raw();
        // Readers need none of its bytes, so it needs no room.
        self.publishing().publish(Record { tag, extensions, payload: &[] }, terms)
    }
}
