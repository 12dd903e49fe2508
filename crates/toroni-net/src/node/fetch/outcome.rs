//! Outcome: what became of the history that a node fetches, and how often.

use std::io;
use std::net::SocketAddr;
use thiserror::Error;
use toroni_proto::id::{Source, Stream};
use toroni_proto::wire::tcp::Bye;

/// What became of the history of a stream.
#[derive(Debug)]
pub struct Fetched {
    /// Whose.
    pub source: Source,
    /// The stream.
    pub stream: Stream,
    /// Where the source listens. `None`: it does not.
    pub address: Option<SocketAddr>,
    /// How many messages were brought.
    pub messages: u64,
    /// Why the rest was not, if there is one.
    pub failure: Option<Failure>,
}

/// What became of the history of streams since the node was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How often everything was brought that its source still had.
    pub complete: u64,
    /// How often the rest was reported as lost, in the order of [`Failure::NAMES`].
    pub failed: [u64; Failure::NAMES.len()],
    /// Messages that were brought.
    pub messages: u64,
}

impl Counters {
    /// Returns how often history was fetched with each outcome.
    pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let failed = Failure::NAMES.into_iter().zip(self.failed);
        std::iter::once(("complete", self.complete)).chain(failed)
    }

    /// Returns the sum of these and others.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.complete += other.complete;
        self.messages += other.messages;
        self.failed.iter_mut().zip(other.failed).for_each(|(sum, count)| *sum += count);
        self
    }

    pub(super) fn end(&mut self, failure: Option<&Failure>) {
        match failure {
            Some(failure) => self.failed[failure.place()] += 1,
            None => self.complete += 1,
        }
    }
}

/// Why history is not brought.
#[derive(Debug, Error)]
pub enum Failure {
    /// The source does not listen.
    #[error("it serves no history: it has no [listen]")]
    NoServer,
    /// The server refuses this node.
    #[error("its server refuses this node: {0}")]
    Refused(Bye),
    /// It cannot be reached.
    #[error("its server cannot be reached: {}", .0.as_ref().map_or_else(|| "no answer".to_owned(), io::Error::to_string))]
    Unreachable(Option<io::Error>),
    /// Its server has another series of numbers, or another stream.
    #[error("its server does not have this stream")]
    NoStream,
    /// The time was over.
    #[error("it took longer than replay_limit")]
    Late,
    /// The source follows another series, or is not received any more.
    #[error("the stream has started over")]
    Replaced,
}

impl Failure {
    /// A word for each, for metrics.
    pub const NAMES: [&str; 6] =
        ["no_server", "refused", "unreachable", "no_stream", "late", "replaced"];

    fn place(&self) -> usize {
        match self {
            Self::NoServer => 0,
            Self::Refused(_) => 1,
            Self::Unreachable(_) => 2,
            Self::NoStream => 3,
            Self::Late => 4,
            Self::Replaced => 5,
        }
    }
}
