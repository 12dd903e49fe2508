//! What can go wrong, one type per occasion.

use crate::buffer::BufResult;
use crate::operation::OperationKind;
use std::io;
use std::os::fd::RawFd;

/// How an operation ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}{}: {}", on(*descriptor), io::Error::from_raw_os_error(*errno))]
pub struct OperationError {
    /// What was to be done.
    pub operation: OperationKind,
    /// On which descriptor, by its number; none for timers.
    pub descriptor: Option<RawFd>,
    /// The error number of the system.
    pub errno: i32,
}

fn advice(operation: OperationKind) -> &'static str {
    match operation {
        OperationKind::WaitWord => "only io_uring does, of Linux 6.7 and newer",
        _ => "configure a secondary one, for instance with `provider = \"select\"`",
    }
}

fn on(descriptor: Option<RawFd>) -> String {
    descriptor.map_or(String::new(), |number| format!(" on descriptor {number}"))
}

impl OperationError {
    /// It was cancelled: by its owner, by the last handle of its descriptor, or by a graceful stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.errno == libc::ECANCELED
    }

    /// The kind, as the standard library sorts errors.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.errno).kind()
    }
}

impl From<OperationError> for io::Error {
    fn from(error: OperationError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// Why an operation could not be started. Nothing has happened, and nothing will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The engine refused it.
    #[error(transparent)]
    Refused(#[from] OperationError),
    /// No processor of this proactor supports it.
    #[error(
        "no processor of this proactor does {operation}: {}", advice(*operation)
    )]
    Unsupported {
        /// What was to be done.
        operation: OperationKind,
    },
    /// The buffer has no room.
    #[error(
        "{operation} into a buffer without room: 0 bytes would look like the end; give a vector capacity, or a longer buffer"
    )]
    NoRoom {
        /// What was to be done.
        operation: OperationKind,
    },
    /// The proactor is stopping, stopped or dropped.
    #[error("the proactor is stopping and starts nothing new; it was asked for {operation}")]
    Stopping {
        /// What was to be done.
        operation: OperationKind,
    },
    /// The proactor was made before `fork`, by the parent of this process.
    #[error(
        "this proactor was made before fork() and belongs to the parent process: make one in the child"
    )]
    Forked,
}

impl StartError {
    /// As the result of an operation: what a future gives, which has no other way to say it.
    pub(crate) fn of(self, operation: OperationKind) -> OperationError {
        let errno = match self {
            Self::Refused(error) => return error,
            Self::Unsupported { .. } => libc::EOPNOTSUPP,
            Self::NoRoom { .. } => libc::EINVAL,
            Self::Stopping { .. } => libc::ECANCELED,
            Self::Forked => libc::EPERM,
        };
        OperationError { operation, descriptor: None, errno }
    }
}

/// An operation that could not be started, with what it was to work with: nothing is lost.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused<B, H> {
    /// Why.
    pub error: StartError,
    /// The buffer; `()` for operations without one.
    pub buffer: B,
    /// The handler, which was not called.
    pub handler: H,
}

impl<B, H> Refused<B, H> {
    pub(crate) fn into_result<T>(self, operation: OperationKind) -> BufResult<T, B> {
        BufResult(Err(self.error.of(operation)), self.buffer)
    }
}

impl<B, H> std::fmt::Debug for Refused<B, H> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B, H> From<Refused<B, H>> for StartError {
    fn from(refused: Refused<B, H>) -> Self {
        refused.error
    }
}

/// Why a proactor could not be made, or a descriptor not be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The kernel refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as a verb: `make an epoll descriptor`, …
        action: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The proactor belongs to the parent process.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl SetupError {
    pub(crate) fn system(action: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System { action, source: errno.into() }
    }
}
