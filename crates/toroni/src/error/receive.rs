//! Errors of subscribers.

use super::{Corrupt, FileError, Forked};
use crate::topic::{Lost, PatternError, TopicError};
use std::io;

/// Why a subscriber could not be made, or a pattern could not be added to one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriberError {
    /// The pattern is malformed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// All slots for subscribers are taken.
    #[error(
        "all {limit} subscribers of the bus are taken: close some, or create the bus for more of them"
    )]
    TooManySubscribers {
        /// Slots of the bus.
        limit: u32,
    },
    /// Values were asked for, and the bus was created without.
    #[error("{}", super::NO_VALUES)]
    NoValues,
    /// A start position that no record starts at.
    #[error(
        "no message starts at position {position}: take positions only from messages of this bus"
    )]
    NotAPosition {
        /// The position that was given.
        position: u64,
    },
    /// A start position beyond the end of the stream.
    #[error(
        "position {position} is beyond the end of the stream at {end}: it may be from an earlier bus of this name"
    )]
    PositionAhead {
        /// The position that was given.
        position: u64,
        /// Where the stream ends.
        end: u64,
    },
    /// A start position whose message is no longer in the ring.
    #[error(
        "position {position} is no longer in the ring, whose oldest message is at {oldest}: start at the oldest"
    )]
    PositionLost {
        /// The position that was given.
        position: u64,
        /// Position of the oldest message.
        oldest: u64,
    },
    /// A start sequence beyond that of the next message.
    #[error(
        "sequence {sequence} is beyond the end of the stream, whose next message gets {end}: it may be from an earlier bus of this name"
    )]
    SequenceAhead {
        /// The sequence that was given.
        sequence: u64,
        /// The sequence of the message that will be published next.
        end: u64,
    },
    /// A start sequence whose message is no longer in the ring.
    #[error(
        "message {sequence} is no longer in the ring, whose oldest message has sequence {oldest}: start at the oldest"
    )]
    SequenceLost {
        /// The sequence that was given.
        sequence: u64,
        /// Sequence of the oldest message.
        oldest: u64,
    },
    /// The files of the bus cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a subscriber cannot hold messages; see [`Subscriber::hold`](crate::Subscriber::hold).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// Publishers do not wait for the subscriber, because it joined without gating.
    #[error("the subscriber does not gate, so no publisher waits for it: let it join with gating")]
    NotGating,
    /// The first message to be held is no longer in the ring.
    #[error(
        "message {sequence} is no longer in the ring, whose oldest message has sequence {oldest}: hold messages before they are overwritten, or create the bus with a larger capacity or a policy that waits longer"
    )]
    SequenceLost {
        /// The sequence that was given.
        sequence: u64,
        /// Sequence of the oldest message.
        oldest: u64,
    },
    /// The lease of this subscriber is lost: publishers no longer wait for it.
    #[error(
        "the descriptor by which others see that this subscriber lives was closed (close_range in daemonising code?): open the bus after daemonising"
    )]
    LeaseLost,
    /// The handle belongs to the parent process.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Shared memory holds something that no correct process writes.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Why the value of a topic was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainedError {
    /// The topic is malformed.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The pattern is malformed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The bus was created without values.
    #[error("{}", super::NO_VALUES)]
    NoValues,
    /// There is a value, which the bus had no room for.
    #[error(
        "the value of {topic} has {length} bytes, for which the bus had no room: create it with more bytes for retained topics"
    )]
    Missing {
        /// The topic.
        topic: String,
        /// The sequence of its newest message.
        sequence: u64,
        /// Bytes of that message, and of what it carries besides.
        length: u64,
    },
    /// The value changed at each of many attempts to read it.
    #[error("the value of {topic} changes faster than it can be read: subscribe to it")]
    Unstable {
        /// The topic.
        topic: String,
    },
    /// The files of the bus cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Shared memory holds something that no correct process writes.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Why no message was received.
///
/// [`Self::Lapped`] and [`Self::Lost`] report messages that this subscriber will not receive. Each is returned once, at
/// its place in the order, and the next call continues after it. `Lapped` means that this subscriber was too slow for
/// this bus. `Lost` means that messages from elsewhere, such as another host, did not arrive on this bus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Messages were overwritten before this subscriber read them, and not all of them were for others. The next call
    /// continues with the oldest message that is still intact.
    #[error(
        "{lost_messages} messages ({lost_bytes} bytes) were overwritten before they were read: read faster, or create the bus with a larger capacity or a policy that waits longer"
    )]
    Lapped {
        /// Messages of the whole bus that were missed, whatever their topics.
        lost_messages: u64,
        /// Bytes of the stream that were missed.
        lost_bytes: u64,
    },
    /// Messages from elsewhere were lost on their way to this bus, and this subscriber's patterns may have
    /// matched some of them. Only buses to which messages are brought from elsewhere have such losses.
    #[error("{0}")]
    Lost(Box<Lost>),
    /// The topic has a value, which the bus had no room for. Only subscribers that asked for values return this. The next call
    /// continues with the next value.
    #[error(
        "the value of {topic} has {length} bytes, for which the bus had no room: create it with more bytes for retained topics"
    )]
    ValueMissing {
        /// The topic.
        topic: String,
        /// The sequence of its newest message.
        sequence: u64,
        /// Bytes of that message, and of what it carries besides.
        length: u64,
    },
    /// An [`Interrupter`](crate::Interrupter) has ended the wait. No message is lost.
    #[error("the wait for a message was interrupted: stop, or call again to continue waiting")]
    Interrupted,
    /// The bus was removed, and its remaining messages have been read.
    #[error("the bus was removed: open it again")]
    Unlinked,
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

impl ReceiveError {
    /// Returns whether it is [`Self::Lapped`], [`Self::Lost`] or [`Self::ValueMissing`]: messages are missing here, and the next
    /// call continues after them.
    ///
    /// ```
    /// # use toroni::{ReceiveError, Subscriber};
    /// fn serve(subscriber: &mut Subscriber) -> Result<(), ReceiveError> {
    ///     loop {
    ///         match subscriber.receive() {
    ///             Ok(message) => println!("{}", message.text()),
    ///             Err(loss) if loss.is_loss() => eprintln!("{loss}"),
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Lapped { .. } | Self::Lost(_) | Self::ValueMissing { .. })
    }
}
