//! Retained topics: each topic that arrives is declared on the bus, which then keeps its newest message.

use super::Inlet;
use super::known::Name;
use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use thiserror::Error;
use toroni::{PublishError, RetainError};

/// Why a topic that arrives is not retained. Its messages are published nevertheless.
#[derive(Debug, Error)]
#[error(
    "cannot retain {} on bus {bus}: {error}; what arrives is published, and the bus does not keep it for late subscribers",
    .topic.as_deref().unwrap_or("topics")
)]
pub struct Unretained {
    /// The name of the bus.
    pub bus: String,
    /// The topic. `None`: each, because the bus keeps no values.
    pub topic: Option<String>,
    /// Why.
    pub error: RetainError,
}

/// Whether an inlet retains topics, and what has come of that.
#[derive(Default)]
pub(super) struct Retaining {
    pub(super) is_wanted: bool,
    /// Topics that are declared once an exclusive publisher has ended, by the place of their stream and of their name there.
    waiting: BTreeMap<(usize, usize), String>,
    /// Errors that were reported: each kind is reported once.
    reported: Vec<Discriminant<RetainError>>,
    /// What is to be reported.
    report: Vec<Unretained>,
}

impl Retaining {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Forgets what waits for the stream at a place that is freed.
    pub(super) fn forget(&mut self, place: usize) {
        self.waiting.retain(|(of, _), _| *of != place);
    }

    fn note(&mut self, bus: &str, topic: Option<String>, error: RetainError) {
        let kind = discriminant(&error);
        if !self.reported.contains(&kind) {
            self.reported.push(kind);
            self.report.push(Unretained { bus: bus.to_owned(), topic, error });
        }
    }
}

impl Inlet {
    /// Sets whether the topics that arrive are retained on the bus. If the bus keeps no values, that is reported at once.
    #[must_use]
    pub fn retaining(mut self, is_wanted: bool) -> Self {
        self.retaining.is_wanted = is_wanted;
        let bus = self.bus.bus();
        if is_wanted && bus.stats().is_ok_and(|stats| stats.retained.max_topics == 0) {
            self.retaining.note(bus.name(), None, RetainError::NoValues);
        }
        self
    }

    /// Takes why topics are not retained: each reason once.
    pub(crate) fn unretained(&mut self) -> Option<Unretained> {
        self.retaining.report.pop()
    }

    /// Retains the topic of a name.
    ///
    /// # Errors
    /// If a publisher is exclusive. [`Self::retain_waiting`] tries again.
    pub(super) fn retain(
        &mut self,
        place: (usize, usize),
        topic: String,
    ) -> Result<(), PublishError> {
        let name = self.known.get_mut(place.0).and_then(|known| known.names.get_mut(place.1));
        let Some(Name::Accepted(known) | Name::Above(known)) = name else { return Ok(()) };
        match self.bus.retain(known) {
            Ok(()) => {}
            Err(RetainError::Publish(error)) if error.is_temporary() => {
                self.retaining.waiting.insert(place, topic);
                return Err(error);
            }
            Err(RetainError::Publish(error)) => self.note_error(error),
            Err(error) => {
                self.counters.unretained += 1;
                self.retaining.note(self.bus.bus().name(), Some(topic), error);
            }
        }
        Ok(())
    }

    /// Retains the topics that wait for an exclusive publisher. Their messages must not be published before.
    ///
    /// # Errors
    /// If a publisher is exclusive.
    pub(super) fn retain_waiting(&mut self) -> Result<(), PublishError> {
        while let Some((place, topic)) = self.retaining.waiting.pop_first() {
            self.retain(place, topic)?;
        }
        Ok(())
    }
}
