//! Why a run, or a child of one, came to nothing.

use std::fmt::Display;

/// The reason. The text says what happened and, where there is something, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// A failure with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// For `map_err`: `cannot {action}: {error}`.
    pub fn of<E: Display>(action: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed(format!("cannot {action}: {error}"))
    }
}
