//! The errors, one type for each occasion.

use crate::buffer::BufResult;
use crate::operation::OperationKind;
use std::io;
use std::os::fd::RawFd;

/// The error of an operation that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}{}: {}", on(*descriptor), io::Error::from_raw_os_error(*errno))]
pub struct OperationError {
    /// The kind of operation.
    pub operation: OperationKind,
    /// The number of its descriptor; `None` for timers and words.
    pub descriptor: Option<RawFd>,
    /// The error number of the system.
    pub errno: i32,
}

fn advice(operation: OperationKind) -> &'static str {
    match operation {
        OperationKind::WaitWord => "only io_uring does, on Linux 6.7 and newer",
        _ => "add a secondary one, for example with `provider = \"select\"`",
    }
}

fn on(descriptor: Option<RawFd>) -> String {
    descriptor.map_or(String::new(), |number| format!(" on descriptor {number}"))
}

impl OperationError {
    /// Returns whether the operation was cancelled: by its owner, with the last handle of its descriptor, or
    /// by a graceful stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.errno == libc::ECANCELED
    }

    /// Returns the standard library's kind of this error.
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

/// The reason why an operation was not started. Nothing was transferred, and the handler is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The engine refused the operation.
    #[error(transparent)]
    Refused(#[from] OperationError),
    /// No processor of this proactor supports the operation.
    #[error(
        "no processor of this proactor supports {operation}: {}", advice(*operation)
    )]
    Unsupported {
        /// The kind of operation.
        operation: OperationKind,
    },
    /// The buffer has no capacity.
    #[error(
        "the buffer for {operation} has no capacity, and 0 bytes would look like the end: give the vector capacity, or use a longer buffer"
    )]
    NoRoom {
        /// The kind of operation.
        operation: OperationKind,
    },
    /// The proactor is stopping, stopped or dropped.
    #[error("the proactor is stopping and does not start {operation}")]
    Stopping {
        /// The kind of operation.
        operation: OperationKind,
    },
    /// The proactor was made before `fork`, by the parent of this process.
    #[error(
        "this proactor was created before fork() and belongs to the parent process: create one in the child"
    )]
    Forked,
}

impl StartError {
    /// Converts to the error of an operation: a future has no other way to report it.
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

/// An operation that was not started, with its buffer and handler.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused<B, H> {
    /// The reason.
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

/// The reason why a proactor could not be created, or a descriptor not be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What the proactor tried, as a verb phrase: `make an epoll descriptor`, …
        action: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The configuration is invalid.
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
