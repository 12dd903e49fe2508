//! The exclusive publisher: who may become it, and what it publishes with.

use super::act::{CrashPoint, act, bury};
use super::state::State;
use super::writers::Writer;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use toroni::{
    BurstError, Exclusive, ExclusiveError, ExclusiveTopic, Limit, PublishError, Publisher,
    RacyBytesMut,
};
use toroni_oracle::Attempt;

/// As that of calls that publish.
const TIMEOUT: Duration = Duration::from_micros(300);

/// A publisher of a topic, shared or exclusive.
pub(super) enum Handle<'a> {
    Shared(Publisher),
    Exclusive(&'a Exclusive, ExclusiveTopic),
}

impl Handle<'_> {
    pub(super) fn largest_message(&self) -> u64 {
        match self {
            Self::Shared(publisher) => publisher.largest_message(),
            Self::Exclusive(_, topic) => topic.largest_message(),
        }
    }

    pub(super) fn publish(&self, payload: &[u8], limit: Limit) -> Result<u64, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.publish_within(payload, limit),
            Self::Exclusive(exclusive, topic) => exclusive.publish(topic, payload, limit),
        }
    }

    pub(super) fn publish_with(
        &self,
        length: usize,
        fill: impl FnOnce(&mut RacyBytesMut<'_>),
    ) -> Result<u64, PublishError> {
        let published = match self {
            Self::Shared(publisher) => publisher.publish_with(length, Limit::Policy, fill),
            Self::Exclusive(exclusive, topic) => {
                exclusive.publish_with(topic, length, Limit::Policy, fill)
            }
        };
        published.map(|(sequence, ())| sequence)
    }

    pub(super) fn clear(&self) -> Result<u64, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.clear(Limit::Policy),
            Self::Exclusive(exclusive, topic) => exclusive.clear(topic, Limit::Policy),
        }
    }

    pub(super) fn publish_batch(&self, payloads: &[Vec<u8>]) -> Result<Range<u64>, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.publish_batch(payloads, Limit::Policy),
            Self::Exclusive(exclusive, topic) => {
                exclusive.publish_batch(topic, payloads, Limit::Policy)
            }
        }
    }

    pub(super) fn burst(&self, payloads: &[Vec<u8>]) -> Result<(), BurstError> {
        match self {
            Self::Shared(publisher) => publisher.burst(payloads, Limit::Policy),
            Self::Exclusive(exclusive, topic) => exclusive.burst(topic, payloads, Limit::Policy),
        }
    }
}

impl State {
    pub(super) fn become_exclusive(&mut self, number: usize, by: Attempt, die_at: u8) {
        let mut slot = self.writers[number].take();
        // It would wait for ever for another handle of this very thread; one of the same handle is refused at once.
        let would_wait = self.exclusive.is_some_and(|exclusive| exclusive != number);
        let by = if by == Attempt::Wait && would_wait { Attempt::Timed } else { by };
        let (this, place) = (&*self, &mut slot);
        let (reached, result) = act(die_at, self.setup.robust, || {
            let writer = Writer::opened(place, number, this);
            let bus = &writer.bus;
            let result = match by {
                Attempt::Try => match bus.try_exclusive() {
                    // The second attempt finds out that the owner is dead.
                    Err(ExclusiveError::Busy) if this.orphaned => bus.try_exclusive(),
                    result => result,
                },
                Attempt::Timed => bus.exclusive_timeout(TIMEOUT),
                Attempt::Wait => bus.exclusive(),
            };
            writer.is_participant = true;
            result.map(|exclusive| writer.exclusive = Some(Mutex::new(exclusive)))
        });
        self.writers[number] = slot;
        if reached.contains(&CrashPoint::AfterLock) {
            self.model.stored = self.model.count();
        }
        match result {
            None => self.bury_writer(number),
            Some(Ok(())) => {
                assert!(self.exclusive.is_none() && !self.setup.robust, "there is one already");
                self.model.stored = self.model.count();
                (self.exclusive, self.orphaned) = (Some(number), false);
                self.tally.reigns += 1;
            }
            Some(Err(error)) => {
                self.tally.refused += 1;
                match (&error, self.exclusive) {
                    (ExclusiveError::RobustLock { .. }, _) if self.setup.robust => {}
                    (ExclusiveError::Taken { name, pid }, Some(exclusive)) => {
                        let holder = self.writers[exclusive].as_ref().unwrap();
                        assert_eq!((name, *pid), (&holder.name, std::process::id()));
                    }
                    (ExclusiveError::Timeout, None) if self.orphaned && by == Attempt::Timed => {}
                    (error, exclusive) => {
                        panic!("{by:?} came to {error:?}, and {exclusive:?} lives")
                    }
                }
            }
        }
    }

    pub(super) fn give_up(&mut self, die_at: u8) {
        let Some(number) = self.exclusive else { return };
        let mut exclusive =
            self.writers[number].as_mut().and_then(|writer| writer.exclusive.take());
        let (_, lived) = act(die_at, false, || drop(exclusive.take()));
        if lived.is_none() {
            bury(exclusive);
            self.bury_writer(number);
        }
        self.exclusive = None;
    }
}
