//! Commands of a host: from programs to a local bus, and from there to the leader.
//!
//! ```text
//!  program ─ Commands::send ─► bus `<feed>.commands` ─► Courier ══ TCP ══► leader ─► order
//!                                       ▲                  │
//!                                       └─ held until ─────┘ the leader answers that it is an event
//! ```
//!
//! A command's number is its sequence in the bus, and its series is that of the bus. So no state need be stored beside the
//! bus: the order itself knows how far each series has come.

mod courier;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use toroni::{
    Bus, BusConfig, Message, OpenError, Origin, Policy, PublishError, Publisher, PublisherError,
};
use toroni_proto::id::Series;

use crate::batch::MAX_COMMAND_BYTES;

pub use self::courier::{COURIER, Courier, CourierCounts, CourierError, CourierOptions};

/// Why commands cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum CommandsError {
    /// The bus of commands cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
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

/// A command that was sent. Only its event says that it is part of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sent {
    /// The series of the command bus.
    pub series: u32,
    /// The number in the series.
    pub number: u64,
}

impl Sent {
    /// Returns whether the message with this origin is the event of this command.
    #[must_use]
    pub fn is_echo(&self, origin: &Origin) -> bool {
        origin.series == self.series && origin.number == self.number
    }
}

/// Publishers are kept for at most so many topics. Making one anew costs little.
const MOST_PUBLISHERS: usize = 1_024;

/// Sends commands to a feed.
#[derive(Debug)]
pub struct Commands {
    bus: Bus,
    series: u32,
    publishers: HashMap<String, Publisher>,
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
        Ok(Self { bus, series, publishers: HashMap::new() })
    }

    /// Sends a command, and returns how to know its event. Waits while the leader cannot take more.
    ///
    /// # Errors
    ///
    /// If it is too long, or the bus cannot be published on.
    pub fn send(&mut self, topic: &str, payload: impl AsRef<[u8]>) -> Result<Sent, CommandsError> {
        let payload = payload.as_ref();
        // The header of a command, and its identity. The bus checks the topic.
        let length = 24 + topic.len() + payload.len();
        if length > MAX_COMMAND_BYTES {
            return Err(CommandsError::TooLong(length));
        }
        if !self.publishers.contains_key(topic) {
            if self.publishers.len() >= MOST_PUBLISHERS {
                self.publishers.clear();
            }
            self.publishers.insert(topic.to_owned(), self.bus.publisher(topic)?);
        }
        // It was inserted if it was not there.
        let publisher = &self.publishers[topic];
        Ok(Sent { series: self.series, number: publisher.publish_numbered(payload)? })
    }

    /// Returns the bus of the commands.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.bus
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
