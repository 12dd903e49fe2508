//! Why a bridge does not start.

use toroni::{OpenError, PatternError, PublisherError, SubscriberError};

/// Why a bridge could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The settings do not fit together.
    #[error("{setting}: {problem}")]
    Config {
        /// Which setting.
        setting: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A pattern is malformed.
    #[error("{setting}: {source}")]
    Pattern {
        /// Which setting.
        setting: String,
        /// What is wrong.
        source: PatternError,
    },
    /// The bus cannot be opened.
    #[error("cannot open the bus: {0}")]
    Bus(#[from] OpenError),
    /// The bridge cannot publish on the bus.
    #[error("cannot publish on the bus: {0}")]
    Inlet(#[from] PublisherError),
    /// The bridge cannot subscribe to the bus.
    #[error("cannot subscribe to the bus: {0}")]
    Subscribe(#[from] SubscriberError),
    /// Zenoh refused.
    #[error("cannot {action}: {source}")]
    Zenoh {
        /// What was tried, as a verb.
        action: &'static str,
        /// Zenoh's error.
        source: zenoh::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
