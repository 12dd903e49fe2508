//! Errors of publishers.

use super::{Corrupt, FileError, Forked};
use crate::topic::TopicError;
use std::io;
use std::path::PathBuf;

/// Why a publisher could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublisherError {
    /// The topic is malformed.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// All slots for publishing participants are taken.
    #[error(
        "all {limit} publishing participants of the bus are taken: close some, or create the bus for more of them"
    )]
    TooManyPublishers {
        /// Slots of the bus.
        limit: u32,
    },
    /// The caller is inside `publish_with` of the same bus.
    #[error(
        "this thread is in a function that writes a message in place, and holds the writer lock: do not use the bus in that function"
    )]
    Reentrant,
    /// The files of the bus cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a message was not published. No part of it is visible to subscribers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The message, or batch, is larger than the bus can carry.
    #[error(
        "{length} bytes are too long, the bus carries at most {limit}: split the message, or create the bus with a larger capacity"
    )]
    TooLong {
        /// Bytes of the message, or of the whole batch as records.
        length: u64,
        /// The most bytes that the call accepts.
        limit: u64,
    },
    /// The ring is full because a gating subscriber is slow. Only calls that do not wait return this
    /// ([`Limit::Try`](crate::Limit::Try)).
    #[error(
        "the ring is full because a subscriber is slow: try again later, or find the subscriber with `toroni info`"
    )]
    Full,
    /// Another publisher holds the writer lock. Only calls that do not wait return this
    /// ([`Limit::Try`](crate::Limit::Try)).
    #[error("another publisher holds the writer lock: try again")]
    Busy,
    /// The bus has an exclusive publisher, and this is not it. The call does not wait for it.
    #[error(
        "only {name:?}, process {pid}, can publish on this bus, because it publishes exclusively: end that process, or publish on another bus"
    )]
    Exclusive {
        /// What the exclusive publisher calls itself.
        name: String,
        /// Its process id, in its own PID namespace.
        pid: u32,
    },
    /// The topic was made by another handle, of the same bus or of another one.
    #[error(
        "the topic was made by another handle, of this bus or of another one: make it by the handle that publishes"
    )]
    ForeignTopic,
    /// Another inlet brings the streams of this series. It may have another filter, so two at a time would hide one
    /// another's messages.
    #[error(
        "{name:?}, process {pid}, already brings the messages of source {from_source:08x}, series {series:08x}: end that process, or leave them to it"
    )]
    Taken {
        /// The source, as in [`Origin::source`](crate::Origin::source).
        from_source: u32,
        /// The series, as in [`Origin::series`](crate::Origin::series).
        series: u32,
        /// What the participant calls itself.
        name: String,
        /// Its process id, in its own PID namespace.
        pid: u32,
    },
    /// The bus keeps track of as many streams as it can.
    #[error(
        "the bus keeps track of {limit} streams from elsewhere, and can have no more: create it with a larger max_arrivals"
    )]
    TooManyArrivals {
        /// Entries of the table of arrivals.
        limit: u32,
    },
    /// A number of an origin is too large.
    #[error("the number {number} of an origin is too large: numbers have 48 bits")]
    OriginNumber {
        /// The number.
        number: u64,
    },
    /// The numbers of a loss do not fit together, or are too large.
    #[error(
        "a loss from number {from} until number {until} is invalid: the second must not be smaller, and at most 2^48"
    )]
    LostNumbers {
        /// The first number that may be lost.
        from: u64,
        /// The number after the last one that may be lost.
        until: u64,
    },
    /// The scope of a loss has no patterns, or too many.
    #[error(
        "the scope of a loss has {patterns} patterns: it must have 1 to 16, ** if it could be any topic"
    )]
    LostScope {
        /// The number of patterns.
        patterns: usize,
    },
    /// The message is longer than a value may be. Only a publisher that has declared its topic retained
    /// ([`Publisher::retained`](crate::Publisher::retained)) returns this and the next.
    #[error(
        "a record of {length} bytes is too long for a value, which may have {limit}: make it shorter, or create the bus with more bytes for retained topics"
    )]
    ValueTooLong {
        /// Bytes of the record: the message, and 8 to 40 more.
        length: u64,
        /// A quarter of the bytes for values.
        limit: u64,
    },
    /// The message finds no room among the values.
    #[error(
        "all {limit} bytes for values are in use: create the bus with more bytes for retained topics"
    )]
    RetainedFull {
        /// Bytes for values.
        limit: u64,
    },
    /// The handle has not declared its topic retained, so there is no value that it could clear.
    #[error("this handle has not declared its topic retained: call `retained` first")]
    NotRetained,
    /// The time is over. Only calls with a time limit return this
    /// ([`Limit::Within`](crate::Limit::Within)).
    #[error(
        "the message could not be published in time: a subscriber is slow, or a publisher is stopped: find it with `toroni info`"
    )]
    Timeout,
    /// The caller is inside `publish_with` of the same bus, and holds the writer lock.
    #[error(
        "this thread is in a function that writes a message in place, and holds the writer lock: do not use the bus in that function"
    )]
    Reentrant,
    /// This thread would wait for a subscriber that only this thread reads: it was the last to receive
    /// from it, or it made the subscriber and no other thread has begun to receive within a second. The
    /// subscriber has not read the oldest messages, or [holds](crate::Subscriber::hold) them.
    #[error(
        "the ring is full because of a subscriber that this very thread reads: receive first, or let it join without gating"
    )]
    WouldWaitForItself,
    /// The bus was removed.
    #[error("the bus was removed: open it again")]
    Unlinked,
    /// The lease of this process is lost: other processes would take it for dead.
    #[error(
        "the descriptor by which others see that this process lives was closed (close_range in daemonising code?): open the bus after daemonising"
    )]
    LeaseLost,
    /// The handle belongs to the parent process.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Shared memory holds something that no correct process writes.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Any other error of the operating system.
    #[error("cannot {action}: {source}")]
    Os {
        /// What was tried, as a verb.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a topic was not retained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainError {
    /// The bus was created without values.
    #[error("{}", super::NO_VALUES)]
    NoValues,
    /// The table of topics is full, so that the topic has no number.
    #[error(
        "the table of topics is full, or half full for an inlet: create the bus with a larger topic_table_bytes, or declare \
         topics before the table fills"
    )]
    TopicTableFull,
    /// The topic is none of the first ones of the bus.
    #[error(
        "only the first {limit} topics of a bus can be retained: declare topics before there are that many"
    )]
    TooManyTopics {
        /// How many topics can be retained as to their number.
        limit: u32,
    },
    /// As many topics are retained as the bus has room for.
    #[error("{limit} topics are retained: create the bus with more `retained_topics`")]
    TooManyRetained {
        /// Topics that the bus has room for.
        limit: u32,
    },
    /// The topic cannot be declared now, for example because another publisher is exclusive.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// What an error says something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concern {
    Moment,
    Message,
    Bus,
}

impl PublishError {
    /// Returns whether something is in the way that may pass by itself: a slow subscriber, or another publisher. The same call can
    /// succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.concern() == Concern::Moment
    }

    /// Returns whether the error says something about this message, loss or stream alone. The bus takes others.
    ///
    /// If neither this nor [`Self::is_temporary`] is true, the caller has made a mistake, or the bus can no longer be used.
    #[must_use]
    pub fn concerns_one_message(&self) -> bool {
        self.concern() == Concern::Message
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Full
            | Self::Busy
            | Self::Timeout
            | Self::WouldWaitForItself
            | Self::Exclusive { .. } => Concern::Moment,
            Self::TooLong { .. }
            | Self::Taken { .. }
            | Self::TooManyArrivals { .. }
            | Self::OriginNumber { .. }
            | Self::LostNumbers { .. }
            | Self::LostScope { .. }
            | Self::ValueTooLong { .. }
            | Self::RetainedFull { .. } => Concern::Message,
            Self::ForeignTopic
            | Self::NotRetained
            | Self::Reentrant
            | Self::Unlinked
            | Self::LeaseLost
            | Self::Forked(_)
            | Self::Corrupt(_)
            | Self::Os { .. } => Concern::Bus,
        }
    }
}

/// Why there is no exclusive publisher.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExclusiveError {
    /// The bus cannot be opened for publishing.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
    /// The bus has an exclusive publisher.
    #[error(
        "{name:?}, process {pid}, publishes exclusively on this bus: end that process, or publish on another bus"
    )]
    Taken {
        /// What it calls itself.
        name: String,
        /// Its process id, in its own PID namespace.
        pid: u32,
    },
    /// Another publisher holds the writer lock. Only [`Bus::try_exclusive`](crate::Bus::try_exclusive) returns this.
    #[error("another publisher holds the writer lock: try again")]
    Busy,
    /// Another publisher held the writer lock until the time was over.
    #[error("another publisher holds the writer lock: try again, or find it with `toroni info`")]
    Timeout,
    /// The lock is a robust mutex. It belongs to a thread, so a publisher that can be sent to another thread cannot keep it.
    #[error(
        "the bus at {path} uses the lock kind `robust`, which an exclusive publisher cannot keep: create the bus with the lock kind `lease`"
    )]
    RobustLock {
        /// Directory of the bus.
        path: PathBuf,
    },
}

/// Why a burst ended before its last message.
#[derive(Debug, thiserror::Error)]
#[error("{published} messages of the burst were published, then: {source}")]
pub struct BurstError {
    /// How many messages, from the first one on, were published.
    pub published: usize,
    /// Why the next one was not published.
    pub source: PublishError,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that bring messages from elsewhere wait, leave out what cannot be published, or end.
    #[test]
    fn each_error_says_whether_to_wait_to_leave_a_message_out_or_to_end() {
        let (name, from_source, series) = (String::new, 1, 2);
        let temporary = [
            PublishError::Full,
            PublishError::Busy,
            PublishError::Timeout,
            PublishError::WouldWaitForItself,
            PublishError::Exclusive { name: name(), pid: 1 },
        ];
        let of_one = [
            PublishError::TooLong { length: 2, limit: 1 },
            PublishError::Taken { from_source, series, name: name(), pid: 1 },
            PublishError::TooManyArrivals { limit: 1 },
            PublishError::OriginNumber { number: 1 << 48 },
            PublishError::LostNumbers { from: 2, until: 1 },
            PublishError::LostScope { patterns: 0 },
        ];
        let of_the_bus = [
            PublishError::ForeignTopic,
            PublishError::Reentrant,
            PublishError::Unlinked,
            PublishError::LeaseLost,
            PublishError::Forked(Forked),
            PublishError::Corrupt(Corrupt { what: "length", value: 1, position: 2 }),
            PublishError::Os { action: "wait", source: io::Error::other("no") },
        ];
        let says = |error: &PublishError| (error.is_temporary(), error.concerns_one_message());
        assert!(temporary.iter().all(|error| says(error) == (true, false)));
        assert!(of_one.iter().all(|error| says(error) == (false, true)));
        assert!(of_the_bus.iter().all(|error| says(error) == (false, false)));
    }
}
