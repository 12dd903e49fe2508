//! The messages between the parent and its children: one JSON object a line.

use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Setup};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a child reads from its standard input: everything it needs to do its part of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Process id of the parent: a child that finds another parent is an orphan.
    pub parent: u32,
    /// Name of the transport.
    pub transport: String,
    /// The directory of the run.
    pub directory: RunDirectory,
    /// Numbers of processes, sizes, and how to wait.
    pub setup: Setup,
    /// Which child of the run this one is.
    pub role: Role,
    /// Name of the work; see [`Work::NAME`](crate::registry::Work::NAME).
    pub work: String,
    /// The work itself, as JSON.
    pub parameters: serde_json::Value,
}

/// Which child of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Creates what the others need, such as the bus, and keeps it until they have ended.
    Host,
    /// Sends; counted from 0.
    Sender(u16),
    /// Receives; counted from 0.
    Receiver(u16),
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => formatter.write_str("the host"),
            Self::Sender(number) => write!(formatter, "sender {number}"),
            Self::Receiver(number) => write!(formatter, "receiver {number}"),
        }
    }
}

/// What a child writes to its standard output. Any other line comes from some library, and the parent copies it to
/// standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "toroni_bench", rename_all = "snake_case")]
pub enum Answer {
    /// Everything is prepared.
    Ready {
        /// What is measured; only the host sends it.
        about: Option<About>,
    },
    /// The child is still working.
    Progress {
        /// Steps that it has done so far.
        done: u64,
    },
    /// All children have done their work.
    Result {
        /// [`Work::Sent`](crate::registry::Work::Sent) or [`Work::Received`](crate::registry::Work::Received).
        value: serde_json::Value,
    },
    /// The work failed.
    Failed {
        /// The reason.
        text: String,
    },
}

impl Answer {
    /// Returns the answer as a line, with its line feed.
    ///
    /// # Errors
    /// If a value has no JSON form.
    pub fn line(&self) -> Result<Vec<u8>, Failure> {
        let mut line = serde_json::to_vec(self).map_err(Failure::of("write an answer"))?;
        line.push(b'\n');
        Ok(line)
    }

    /// Returns the answer in a line, or `None` if the line is not one.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        line.starts_with(b"{\"toroni_bench\":").then(|| serde_json::from_slice(line).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_pipe_and_other_lines_are_not_answers() {
        for answer in [
            Answer::Ready { about: None },
            Answer::Progress { done: 7 },
            Answer::Result { value: serde_json::json!({"received": 3}) },
            Answer::Failed { text: "no\nroom".to_owned() },
        ] {
            let line = answer.line().unwrap();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let back = Answer::parse(line.trim_ascii_end()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{answer:?}"));
        }
        assert!(Answer::parse(b"[driver] started").is_none());
        assert!(Answer::parse(b"{\"toroni_bench\":\"sings\"}").is_none());
    }
}
