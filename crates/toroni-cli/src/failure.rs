//! How a command ends when it does not simply succeed, and with which exit code.

use std::io;
use toroni::{BurstError, OpenError, PublishError, ReceiveError};

/// The reason for ending a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It did not work: exit code 1.
    Failed(String),
    /// The arguments make no sense together: exit code 2.
    Usage(String),
    /// A subscriber with `--strict` lost messages: exit code 3.
    Lost(String),
    /// Nobody reads standard output any more, as with `| head`: a normal end, exit code 0.
    ClosedPipe,
}

impl Failure {
    /// The exit code, and what to say on standard error.
    pub(crate) fn report(self) -> (u8, Option<String>) {
        match self {
            Self::Failed(text) => (1, Some(text)),
            Self::Usage(text) => (2, Some(text)),
            Self::Lost(text) => (3, Some(text)),
            Self::ClosedPipe => (0, None),
        }
    }

    /// A write to standard output went wrong.
    pub(crate) fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Failed(format!("cannot write to standard output: {error}"))
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InvalidName { .. }
            | OpenError::InvalidSetting(_)
            | OpenError::Topic(_)
            | OpenError::Pattern(_) => Self::Usage(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<BurstError> for Failure {
    fn from(error: BurstError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Self {
        Self::Failed(error.to_string())
    }
}
