//! Commands of a host: from programs to a local bus, and from there to the leader.
//!
//! ```text
//!  program ─ Commands::send ─► bus `<feed>.commands` ─► Courier ══ TCP ══► leader ─► order
//!                                       ▲                  │
//!                                       └─ held until ─────┘ the leader answers that it is an event
//! ```
//!
//! A command's number is its sequence in the bus, and its series is that of the bus. So nothing of commands need be stored beside the
//! bus: the order itself knows how far each series has come. Beside it, only the ids of earlier buses are noted (`buses.rs`).

#[cfg(feature = "member")]
mod buses;
#[cfg(feature = "member")]
mod courier;
mod echo;
#[cfg(all(test, feature = "member"))]
mod tests;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use toroni::{
    Bus, BusConfig, Message, OpenError, Policy, PublishError, Publisher, PublisherError,
    Subscriber, SubscriberError,
};
use toroni_proto::id::{Series, Source};

use crate::batch::MAX_COMMAND_BYTES;

#[cfg(feature = "member")]
pub use self::courier::{COURIER, Courier, CourierCounts, CourierError, CourierOptions, Refused};
pub use self::echo::{Echo, Pending, Sent};

/// Why commands cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum CommandsError {
    /// The bus of commands, or of events, cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The bus of events cannot be read.
    #[error(transparent)]
    Subscriber(#[from] SubscriberError),
    /// The topic cannot be published on.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
    /// The command could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The topic and the payload are too long together.
    #[error("a command of {0} bytes is longer than 1 MiB")]
    TooLong(usize),
}

/// Publishers are kept for at most this many topics. Making one again costs little.
const MOST_PUBLISHERS: usize = 1_024;

/// Sends commands to a feed. Threads may share it.
#[derive(Debug)]
pub struct Commands {
    bus: Bus,
    feed: String,
    series: u32,
    publishers: Mutex<HashMap<String, Publisher>>,
}

impl Commands {
    /// Opens the command bus of a feed, `<feed>.commands`. If there is none, creates it.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(feed: &str) -> Result<Self, CommandsError> {
        Self::open_with(BusConfig::new(), feed)
    }

    /// The same with settings, such as the directory. The policy is always to wait: publishers wait while the leader cannot
    /// take more.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open_with(config: BusConfig, feed: &str) -> Result<Self, CommandsError> {
        let bus = open_bus(config, feed)?;
        let series = series_of(&bus);
        Ok(Self { bus, feed: feed.to_owned(), series, publishers: Mutex::default() })
    }

    /// Returns the id of the bus of commands, by which the order knows it.
    #[must_use]
    pub fn bus_bytes(&self) -> [u8; 16] {
        bytes_of(&self.bus)
    }

    /// Sends a command, and returns how to know its event. Waits while the leader cannot take more.
    ///
    /// # Errors
    ///
    /// If it is too long, or the bus cannot be published on.
    pub fn send(&self, topic: &str, payload: impl AsRef<[u8]>) -> Result<Sent, CommandsError> {
        self.send_by(topic, payload.as_ref(), |publisher, payload| publisher.publish(payload))
    }

    /// The same, but waits at most for `limit`. After that, the error is [`PublishError::Timeout`], and nothing was sent.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_timeout(
        &self,
        topic: &str,
        payload: impl AsRef<[u8]>,
        limit: Duration,
    ) -> Result<Sent, CommandsError> {
        self.send_by(topic, payload.as_ref(), |publisher, payload| {
            publisher.publish_within(payload, limit)
        })
    }

    /// Subscribes to the events of the feed, and then sends a command. The result waits for the command's event. The bus of
    /// events must be there: the node of this host creates it.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], or if the bus of events cannot be read. Then nothing was sent.
    pub fn send_and_watch(
        &self,
        topic: &str,
        payload: impl AsRef<[u8]>,
    ) -> Result<Pending, CommandsError> {
        let events = self.watch()?;
        Ok(self.pending(self.send(topic, payload)?, events))
    }

    /// The same, but waits at most for `limit` until the command is sent.
    ///
    /// # Errors
    ///
    /// As [`Self::send_and_watch`], and [`PublishError::Timeout`].
    pub fn send_and_watch_timeout(
        &self,
        topic: &str,
        payload: impl AsRef<[u8]>,
        limit: Duration,
    ) -> Result<Pending, CommandsError> {
        let events = self.watch()?;
        Ok(self.pending(self.send_timeout(topic, payload, limit)?, events))
    }

    /// Subscribes to all events from now on: a later one of the same series says that the one that is awaited was missed.
    fn watch(&self) -> Result<Subscriber, CommandsError> {
        let directory = self.bus.path().parent().unwrap_or(Path::new("/"));
        let events = BusConfig::new().directory(directory).open_existing(&self.feed)?;
        Ok(events.subscriber().pattern("**").build()?)
    }

    fn pending(&self, sent: Sent, events: Subscriber) -> Pending {
        Pending::new(sent, Source::of_feed(&self.feed).0, events)
    }

    fn send_by(
        &self,
        topic: &str,
        payload: &[u8],
        publish: impl FnOnce(&Publisher, &[u8]) -> Result<u64, PublishError>,
    ) -> Result<Sent, CommandsError> {
        // The header of a command, and its identity. The bus checks the topic.
        let length = 24 + topic.len() + payload.len();
        if length > MAX_COMMAND_BYTES {
            return Err(CommandsError::TooLong(length));
        }
        let publisher = self.publisher(topic)?;
        Ok(Sent { series: self.series, number: publish(&publisher, payload)? })
    }

    /// Returns the publisher of a topic. It never waits for another thread, which may not exist: that of the parent, in the
    /// child of a fork.
    fn publisher(&self, topic: &str) -> Result<Publisher, PublisherError> {
        let publishers = || match self.publishers.try_lock() {
            Ok(publishers) => Some(publishers),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(known) = publishers().and_then(|known| known.get(topic).cloned()) {
            return Ok(known);
        }
        let made = self.bus.publisher(topic)?;
        if let Some(mut known) = publishers() {
            if known.len() >= MOST_PUBLISHERS {
                known.clear();
            }
            known.insert(topic.to_owned(), made.clone());
        }
        Ok(made)
    }

    /// Returns the bus of the commands.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Returns the series of the command bus. The events of this host's commands have it in their origin.
    #[must_use]
    pub fn series(&self) -> u32 {
        self.series
    }

    /// Returns whether a message is the event of a command of this host's bus.
    #[must_use]
    pub fn is_mine(&self, message: &Message<'_>) -> bool {
        message.origin().is_some_and(|origin| origin.series == self.series)
    }
}

/// Returns the name of the bus for the commands of a feed.
#[must_use]
pub fn bus_name(feed: &str) -> String {
    format!("{feed}.commands")
}

fn open_bus(config: BusConfig, feed: &str) -> Result<Bus, OpenError> {
    config.policy(Policy::Wait { limit: None }).require_policy().open(&bus_name(feed))
}

fn series_of(bus: &Bus) -> u32 {
    Series::of_bus(&bus.id().to_string()).0
}

fn bytes_of(bus: &Bus) -> [u8; 16] {
    u128::from_str_radix(&bus.id().to_string(), 16).map_or([0; 16], u128::to_be_bytes)
}
