//! The ids of the topics that a participant publishes on.

use super::participant::Participant;
use super::reentrancy;
use super::terms::Terms;
use crate::bus::views::table_of;
use crate::error::{Corrupt, PublishError};
use crate::topic::table::{Appended, TopicCache};
use crate::topic::{Topic, frame::TopicId};
use std::sync::{Mutex, PoisonError};

/// The participant's copy of the topic table.
#[derive(Default)]
pub(super) struct Topics(Mutex<TopicCache>);

/// How much of the table a new topic may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableShare {
    All,
    /// The first half. The rest is for topics of this host.
    Half,
}

impl Topics {
    /// Returns the id of a topic, as [`Self::enter`] does. Returns `None`, too, if the table belongs to an exclusive publisher:
    /// then the name has to travel with each message.
    pub(super) fn intern(
        &self,
        participant: &Participant,
        topic: &Topic,
        share: TableShare,
        terms: &Terms,
    ) -> Result<Option<TopicId>, PublishError> {
        match self.enter(participant, topic, share, terms) {
            Err(PublishError::Exclusive { .. }) => Ok(None),
            entered => entered,
        }
    }

    /// Returns the id of a topic, and appends the topic to the table if it is new. Returns `None` if the
    /// share of the table is full.
    pub(super) fn enter(
        &self,
        participant: &Participant,
        topic: &Topic,
        share: TableShare,
        terms: &Terms,
    ) -> Result<Option<TopicId>, PublishError> {
        participant.check_fork()?;
        // Before the cache is locked: another thread may hold that lock and wait for the writer lock, which
        // this thread would then never give back.
        if reentrancy::by_this_thread(&participant.bus_id) {
            return Err(PublishError::Reentrant);
        }
        let mut topic_cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table_of(&participant.ring);
        topic_cache.sync(table).map_err(Corrupt::from)?;
        if let Some(id) = topic_cache.lookup(topic.as_str()) {
            return Ok(Some(id));
        }
        if share == TableShare::Half && topic_cache.is_half_full(table) {
            return Ok(None);
        }
        let held = participant.hold(terms)?;
        let appended = topic_cache.append(table_of(&participant.ring), topic);
        drop(held);
        match appended.map_err(Corrupt::from)? {
            Appended::Added(id) | Appended::Existing(id) => Ok(Some(id)),
            Appended::Full => Ok(None),
        }
    }
}
