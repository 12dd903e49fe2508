//! Errors of runs and of their children.

use std::fmt::Display;

/// The reason why a run failed. The text says what happened and, if possible, what to do.
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
    /// Makes a failure with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// Makes a function for `map_err`, whose text is `cannot {action}: {error}`.
    pub fn of<E: Display>(action: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed(format!("cannot {action}: {error}"))
    }
}

impl From<toroni_chart::Error> for Failure {
    fn from(error: toroni_chart::Error) -> Self {
        Self::new(error.to_string())
    }
}
