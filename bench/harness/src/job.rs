//! What parent and children say to each other: one JSON object a line.

use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Setup};
use crate::workload::Work;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a child is told, on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Process id of the parent: a child that finds another parent is an orphan.
    pub parent: u32,
    /// Which transport, by its name.
    pub transport: String,
    /// Where.
    pub directory: RunDirectory,
    /// With which sizes.
    pub setup: Setup,
    /// As whom.
    pub role: Role,
    /// Doing what.
    pub work: Work,
}

/// Which child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Makes what the others meet in, and keeps it.
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

/// What a child says, on its standard output. Lines of other forms are noise of some library, and
/// passed to standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "rig", rename_all = "snake_case")]
pub enum Answer {
    /// Everything is prepared.
    Ready {
        /// The host says what is measured.
        about: Option<About>,
    },
    /// So many steps of the work are done.
    Progress {
        /// In all.
        done: u64,
    },
    /// The work is done, and everybody else's, too.
    Result {
        /// As the workload says.
        value: serde_json::Value,
    },
    /// It could not be done.
    Failed {
        /// Why.
        text: String,
    },
}

impl Answer {
    /// The line, with its line feed.
    ///
    /// # Errors
    /// If a value has no JSON form.
    pub fn line(&self) -> Result<Vec<u8>, Failure> {
        let mut line = serde_json::to_vec(self).map_err(Failure::of("write an answer"))?;
        line.push(b'\n');
        Ok(line)
    }

    /// The answer in a line; `None` if it is noise.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        line.starts_with(b"{\"rig\":").then(|| serde_json::from_slice(line).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_pipe_and_noise_is_told_apart() {
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
        assert!(Answer::parse(b"{\"rig\":\"sings\"}").is_none());
    }
}
