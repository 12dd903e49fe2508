//! What can be wrong with a log.

use std::io;
use std::path::{Path, PathBuf};

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A call of the system failed.
    #[error("could not {what} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The disk has no room for another segment. Nothing was written.
    #[error("no room for another segment in {}", .0.display())]
    Full(PathBuf),
    /// Bytes that were synced have changed.
    #[error("{}: the bytes at {offset} were synced and have changed", path.display())]
    Rotten {
        /// The file.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
    },
    /// A file that is none of this log's.
    #[error("{}: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another process uses the log.
    #[error("another process uses the log in {}", .0.display())]
    InUse(PathBuf),
    /// The log was closed.
    #[error("the log was closed")]
    Closed,
    /// An entry that was purged.
    #[error("entry {wanted} was purged: the log begins with {first}")]
    Gone {
        /// The index that was asked for.
        wanted: u64,
        /// That of the first entry that there is, or comes next.
        first: u64,
    },
    /// Entries that are neither in the log nor in the snapshot.
    #[error(
        "entries up to {0} are neither in the log nor in a snapshot: remove this member from the group, start it with an \
         empty log, and add it again"
    )]
    Gap(u64),
    /// An entry that does not follow the last one, or a place that is not in the log.
    #[error("index {0} is not in the log, or does not follow it")]
    Order(u64),
}

impl LogError {
    /// Returns the error of a call.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            if source.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error()) {
                Self::Full(path)
            } else {
                Self::Io { what, path, source }
            }
        }
    }
}
