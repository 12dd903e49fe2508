//! The publishers of `toroni pub`: shared ones, or those of the exclusive publisher of the bus.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};
use toroni::{Bus, Exclusive, ExclusiveError, ExclusiveTopic, Limit, PublishError, Publisher};
use toroni_shell::failure::Failure;
use toroni_shell::note;
use toroni_shell::stop::Stop;

/// How often `--exclusive` checks for a signal while it waits.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// How long `--exclusive` waits before it reports that.
const REPORT_AFTER: Duration = Duration::from_millis(500);

/// Makes the publishers.
pub(super) struct Publishers {
    kind: Kind,
    /// Whether each topic is retained.
    pub(super) retain: bool,
}

enum Kind {
    Shared(Bus),
    Exclusive(Rc<Exclusive>),
}

/// Publishes on one topic.
#[derive(Clone)]
pub(super) enum TopicPublisher {
    Shared(Publisher),
    Exclusive(Rc<Exclusive>, ExclusiveTopic),
}

impl Publishers {
    pub(super) fn shared(bus: &Bus, retain: bool) -> Self {
        Self { kind: Kind::Shared(bus.clone()), retain }
    }

    /// Waits until the publishers that are publishing have finished their message. Another exclusive publisher may
    /// never end, so its presence is a failure.
    pub(super) fn exclusive(bus: &Bus, retain: bool, stop: &Stop) -> Result<Self, Failure> {
        let started = Instant::now();
        let mut is_reported = false;
        let mut attempt = bus.try_exclusive();
        loop {
            match attempt {
                Err(ExclusiveError::Busy | ExclusiveError::Timeout) => {}
                result => {
                    let kind = Kind::Exclusive(Rc::new(result?));
                    return Ok(Self { kind, retain });
                }
            }
            if stop.is_set() {
                return Err(stop
                    .interrupted("interrupted while waiting for a publisher that holds the lock"));
            }
            if !is_reported && started.elapsed() >= REPORT_AFTER {
                let bus = bus.name();
                note::remark(&format!(
                    "waiting for a publisher that holds the lock: `toroni info {bus}` shows it"
                ));
                is_reported = true;
            }
            attempt = bus.exclusive_timeout(CHECK_EVERY);
        }
    }

    pub(super) fn on(&self, topic: &str) -> Result<TopicPublisher, Failure> {
        Ok(match &self.kind {
            Kind::Shared(bus) => {
                let publisher = bus.publisher(topic)?;
                let publisher = if self.retain { publisher.retained()? } else { publisher };
                TopicPublisher::Shared(publisher)
            }
            Kind::Exclusive(exclusive) => {
                let topic = exclusive.topic(topic)?;
                let topic = if self.retain { exclusive.retained(topic)? } else { topic };
                TopicPublisher::Exclusive(Rc::clone(exclusive), topic)
            }
        })
    }
}

impl TopicPublisher {
    /// Publishes also to the topics below this one, if `wanted`.
    pub(super) fn with_descendants(self, wanted: bool) -> Self {
        match self {
            Self::Shared(publisher) => Self::Shared(publisher.to_descendants(wanted)),
            Self::Exclusive(exclusive, topic) => {
                Self::Exclusive(exclusive, topic.to_descendants(wanted))
            }
        }
    }

    pub(super) fn largest_message(&self) -> u64 {
        match self {
            Self::Shared(publisher) => publisher.largest_message(),
            Self::Exclusive(_, topic) => topic.largest_message(),
        }
    }

    pub(super) fn publish(&self, message: &[u8]) -> Result<u64, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.publish(message),
            Self::Exclusive(exclusive, topic) => exclusive.publish(topic, message, Limit::Policy),
        }
    }

    pub(super) fn clear(&self) -> Result<u64, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.clear(Limit::Policy),
            Self::Exclusive(exclusive, topic) => exclusive.clear(topic, Limit::Policy),
        }
    }

    pub(super) fn publish_batch(&self, messages: &[Vec<u8>]) -> Result<Range<u64>, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.publish_batch(messages, Limit::Policy),
            Self::Exclusive(exclusive, topic) => {
                exclusive.publish_batch(topic, messages, Limit::Policy)
            }
        }
    }
}
