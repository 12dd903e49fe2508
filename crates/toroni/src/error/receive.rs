//! Errors of receiving.

use super::{Corrupt, Forked};
use std::io;

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Messages were overwritten before this subscriber read them. The next call continues with the oldest
    /// message that is still intact.
    #[error(
        "{lost_messages} messages ({lost_bytes} bytes) were overwritten before they were read: read faster, or create the bus with a larger capacity or a policy that waits longer"
    )]
    Lapped {
        /// Messages of the whole bus that were missed, whatever their topics.
        lost_messages: u64,
        /// Bytes of the stream that were missed.
        lost_bytes: u64,
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
