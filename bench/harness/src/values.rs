//! What a channel that keeps the newest message of each topic must offer to be measured: publish a value, read one without a
//! subscription, and hand all of them to a subscriber that joins.

use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::About;
use std::time::Duration;

/// A kind of channel that keeps values: one process writes them, and another one reads them.
pub trait Values {
    /// Its name, in lower case; see [`Transport::NAME`](crate::transport::Transport::NAME).
    const NAME: &'static str;
    /// What a process of its own keeps during the run: a bus, a server, a storage.
    type Host;
    /// The end that publishes values.
    type Writer: Writer;
    /// The end that reads them.
    type Reader: Reader;

    /// Returns its version, its guarantees, and the settings that matter.
    fn about(kept: &Kept) -> About;

    /// Creates what the ends need. There are no values yet.
    ///
    /// # Errors
    /// If it cannot.
    fn host(directory: &RunDirectory, kept: &Kept) -> Result<Self::Host, Failure>;

    /// Opens the end that writes. It needs only the host, and returns when what it writes is kept.
    ///
    /// # Errors
    /// If it cannot.
    fn writer(directory: &RunDirectory, kept: &Kept) -> Result<Self::Writer, Failure>;

    /// Opens the end that reads. It needs only the host, and subscribes to nothing.
    ///
    /// # Errors
    /// If it cannot.
    fn reader(directory: &RunDirectory, kept: &Kept) -> Result<Self::Reader, Failure>;
}

/// The end that publishes values.
pub trait Writer {
    /// Publishes a value, which replaces that of the topic.
    ///
    /// # Errors
    /// If it cannot be published.
    fn write(&mut self, topic: u16, value: &[u8]) -> Result<(), Failure>;

    /// Returns when everything that was written can be read.
    ///
    /// # Errors
    /// If the channel fails.
    fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// The end that reads values.
pub trait Reader {
    /// What [`Self::join`] returns and [`Self::leave`] takes.
    type Subscriber;

    /// Reads the value of one topic, without being subscribed afterwards.
    ///
    /// # Errors
    /// If there is none, or the channel fails.
    fn get(&mut self, topic: u16, each: impl FnOnce(&[u8])) -> Result<(), Failure>;

    /// Joins as a new subscriber of all topics, and returns when it has the value of each. The connection to a server exists.
    ///
    /// # Errors
    /// If a value does not come, or the channel fails.
    fn join(&mut self, each: impl FnMut(&[u8])) -> Result<Self::Subscriber, Failure>;

    /// Ends a subscription.
    ///
    /// # Errors
    /// If it cannot.
    fn leave(&mut self, subscriber: Self::Subscriber) -> Result<(), Failure> {
        drop(subscriber);
        Ok(())
    }
}

/// Matches all of [`Kept::topics`], where `**` stands for any parts of a topic.
pub const PATTERN: &str = "value/**";

/// An end that hears nothing from a server or a storage for this long gives up.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(20);

/// The values of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Number of topics. Each has a value.
    pub topics: u16,
    /// Bytes of each value.
    pub value_bytes: usize,
}

impl Kept {
    /// Returns all topics, in order. Each has two parts.
    #[must_use]
    pub fn topics(&self) -> Vec<String> {
        (0..self.topics).map(|index| format!("value/{index}")).collect()
    }

    /// Returns the failure of a read that finds no value.
    #[must_use]
    pub fn missing(topic: u16) -> Failure {
        Failure::new(format!("topic {topic} has no value"))
    }
}
