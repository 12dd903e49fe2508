//! The ways in which a command fails: exit codes and texts.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt::Display;
use std::io;
use std::path::Path;
use toroni::{
    BurstError, DirectoryError, ExclusiveError, FileError, InvalidSetting, OpenError, PatternError,
    PublishError, PublisherError, ReceiveError, RetainError, RetainedError, SubscriberError,
    TopicError, admin,
};

/// Why a command ended.
#[derive(Debug)]
pub enum Failure {
    /// The command failed: exit code 1.
    Failed(String),
    /// The arguments are invalid: exit code 2.
    Usage(String),
    /// Messages were lost and `--strict` was given: exit code 3.
    Lost(String),
    /// A signal came before the command was done: exit code 128 plus the signal's number, as in shells.
    Interrupted {
        /// The signal's number.
        signal: i32,
        /// What it interrupted.
        text: String,
    },
    /// The reader of standard output closed it, as `| head` does. A normal end: exit code 0.
    ClosedPipe,
}

impl Failure {
    /// Returns the exit code and the text for standard error.
    pub fn report(self) -> (u8, Option<String>) {
        match self {
            Self::Failed(text) => (1, Some(text)),
            Self::Usage(text) => (2, Some(text)),
            Self::Lost(text) => (3, Some(text)),
            Self::Interrupted { signal, text } => (code_of_signal(signal), Some(text)),
            Self::ClosedPipe => (0, None),
        }
    }

    /// Adds to an error of the library the option that changes what its text advises to change.
    fn with_option(error: &impl Display, option: &str) -> Self {
        Self::Failed(format!("{error} (option {option})"))
    }

    /// Converts an error of a write to standard output.
    pub fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Failed(format!("cannot write to standard output: {error}"))
        }
    }
}

/// Returns the exit code that a shell shows for a process killed by this signal.
pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(1, |signal| signal.saturating_add(128))
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotFound { path } => {
                let name = path.file_name().unwrap_or_default().display();
                Self::Failed(format!("{}: `toroni create {name}` creates it", no_bus(&path)))
            }
            FileError::RobustLockRefused { .. } | FileError::RobustOnDisk { .. } => {
                Self::with_option(&error, "--lock")
            }
            FileError::NetworkNamespace { .. } => Self::with_option(&error, "--notify"),
            FileError::NotADirectory { .. }
            | FileError::NotABus { .. }
            | FileError::ReadOnly { .. } => Self::with_option(&error, "--dir"),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let error = with_options(error);
        match error {
            OpenError::File(error) => error.into(),
            OpenError::InvalidName(_) | OpenError::InvalidSetting(_) => {
                Self::Usage(error.to_string())
            }
            OpenError::NoSpace { .. } | OpenError::FileTooLong { .. } => {
                Self::with_option(&error, "--capacity")
            }
            OpenError::UnknownGroup { .. } => Self::with_option(&error, "--writers or --readers"),
            OpenError::AclsUnsupported { .. } => {
                Self::with_option(&error, "--mode instead of --writers and --readers")
            }
            OpenError::MissingDirectory { .. } => Self::with_option(&error, "--dir"),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        OpenError::from(error).into()
    }
}

impl From<PublisherError> for Failure {
    fn from(error: PublisherError) -> Self {
        match error {
            PublisherError::File(error) => error.into(),
            PublisherError::Topic(error) => error.into(),
            PublisherError::TooManyPublishers { .. } => {
                Self::with_option(&error, "--max-publishers")
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<SubscriberError> for Failure {
    fn from(error: SubscriberError) -> Self {
        match error {
            SubscriberError::File(error) => error.into(),
            SubscriberError::Pattern(error) => error.into(),
            SubscriberError::TooManySubscribers { .. } => {
                Self::with_option(&error, "--max-subscribers")
            }
            SubscriberError::NoValues => Self::with_option(&error, "--retained-topics"),
            SubscriberError::PositionLost { .. } | SubscriberError::SequenceLost { .. } => {
                Self::with_option(&error, "--from oldest")
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<TopicError> for Failure {
    fn from(error: TopicError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<PatternError> for Failure {
    fn from(error: PatternError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// The library's names of settings, and the options of `create` that set them.
pub const SETTINGS: [(&str, &str); 14] = [
    ("capacity", "--capacity"),
    ("topic_table_bytes", "--topic-table"),
    ("max_publishers", "--max-publishers"),
    ("max_subscribers", "--max-subscribers"),
    ("max_arrivals", "--max-arrivals"),
    ("retained_topics", "--retained-topics"),
    ("retained_bytes", "--retained-bytes"),
    ("policy", "--policy"),
    ("lock", "--lock"),
    ("notify", "--notify"),
    ("huge_pages", "--huge-pages"),
    ("mode", "--mode"),
    ("writers_group", "--writers"),
    ("readers_group", "--readers"),
];

/// Replaces the name of a setting by the option.
fn with_options(error: OpenError) -> OpenError {
    let option = |setting| {
        let known = SETTINGS.iter().find(|(name, _)| *name == setting);
        known.map_or(setting, |(_, option)| *option)
    };
    match error {
        OpenError::InvalidSetting(invalid) => OpenError::InvalidSetting(InvalidSetting {
            setting: option(invalid.setting),
            ..invalid
        }),
        OpenError::SettingMismatch { path, setting, found, wanted } => {
            OpenError::SettingMismatch { path, setting: option(setting), found, wanted }
        }
        other => other,
    }
}

/// Returns a text that there is no bus at `path`. It lists the buses in the directory, in case the name was mistyped.
pub fn no_bus(path: &Path) -> String {
    const MOST_NAMES: usize = 20;
    let text = format!("there is no bus at {}", path.display());
    // If the directory cannot be read, the list is empty.
    let buses = admin::list(path.parent()).unwrap_or_default();
    let mut names: Vec<&str> = buses.iter().map(|bus| bus.name.as_str()).collect();
    if names.len() > MOST_NAMES {
        names.truncate(MOST_NAMES);
        names.push("…");
    }
    match &names[..] {
        [] => text,
        names => format!("{text} (in this directory: {})", names.join(", ")),
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::TooLong { .. } => Self::with_option(&error, "--capacity"),
            PublishError::Exclusive { .. } => Self::with_option(&error, "--bus"),
            PublishError::ValueTooLong { .. } | PublishError::RetainedFull { .. } => {
                Self::with_option(&error, "--retained-bytes")
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<RetainError> for Failure {
    fn from(error: RetainError) -> Self {
        match error {
            RetainError::Publish(error) => error.into(),
            RetainError::NoValues | RetainError::TooManyRetained { .. } => {
                Self::with_option(&error, "--retained-topics")
            }
            RetainError::TopicTableFull => Self::Failed(
                "the table of topics is full: create the bus with a larger --topic-table, or retain topics before it is"
                    .to_owned(),
            ),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<RetainedError> for Failure {
    fn from(error: RetainedError) -> Self {
        match error {
            RetainedError::File(error) => error.into(),
            RetainedError::Topic(error) => error.into(),
            RetainedError::Pattern(error) => error.into(),
            RetainedError::NoValues => Self::with_option(&error, "--retained-topics"),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<ExclusiveError> for Failure {
    fn from(error: ExclusiveError) -> Self {
        match error {
            ExclusiveError::Publisher(error) => error.into(),
            ExclusiveError::Taken { .. } => Self::with_option(&error, "--bus"),
            ExclusiveError::RobustLock { .. } => Self::with_option(&error, "--lock"),
            error => Self::Failed(error.to_string()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: impl Into<Failure>) -> String {
        error.into().report().1.unwrap()
    }

    #[test]
    fn settings_are_named_as_options() {
        let path = || "/dev/shm/toroni/b".into();
        for (said, wanted) in [
            (
                said(OpenError::SettingMismatch {
                    path: path(),
                    setting: "max_publishers",
                    found: "4".to_owned(),
                    wanted: "8".to_owned(),
                }),
                "has --max-publishers 4, but 8 is required",
            ),
            (
                said(OpenError::SettingMismatch {
                    path: path(),
                    setting: "retained_bytes",
                    found: "4096 bytes".to_owned(),
                    wanted: "8192 bytes".to_owned(),
                }),
                "has --retained-bytes 4096 bytes, but 8192 bytes is required",
            ),
            (
                said(OpenError::InvalidSetting(InvalidSetting {
                    setting: "retained_topics",
                    value: "5000 topics".to_owned(),
                    rule: "at most 4096 topics, or 0".to_owned(),
                })),
                "--retained-topics is 5000 topics, but must be at most 4096 topics",
            ),
            (said(SubscriberError::NoValues), "(option --retained-topics)"),
            (said(RetainedError::NoValues), "(option --retained-topics)"),
            (said(RetainError::TooManyRetained { limit: 1 }), "(option --retained-topics)"),
            (said(RetainError::TopicTableFull), "a larger --topic-table"),
            (said(RetainError::from(PublishError::TooLong { length: 2, limit: 1 })), "--capacity"),
            (said(PublishError::ValueTooLong { length: 2, limit: 1 }), "(option --retained-bytes)"),
            (said(PublishError::RetainedFull { limit: 1 }), "(option --retained-bytes)"),
            (
                said(OpenError::NoSpace { wanted: 2, available: 1, path: path() }),
                "(option --capacity)",
            ),
            (said(PublisherError::TooManyPublishers { limit: 1 }), "(option --max-publishers)"),
            (
                said(OpenError::AclsUnsupported { path: path() }),
                "(option --mode instead of --writers and --readers)",
            ),
            (said(SubscriberError::SequenceLost { sequence: 1, oldest: 2 }), "--from oldest"),
            (
                said(SubscriberError::PositionLost { position: 1, oldest: 2 }),
                "(option --from oldest)",
            ),
            (
                said(PublishError::Exclusive { name: "feed".to_owned(), pid: 1 }),
                "only \"feed\", process 1, can publish on this bus",
            ),
            (said(PublishError::Exclusive { name: "feed".to_owned(), pid: 1 }), "(option --bus)"),
            (
                said(ExclusiveError::Taken { name: "feed".to_owned(), pid: 1 }),
                "end that process, or publish on another bus (option --bus)",
            ),
            (said(ExclusiveError::RobustLock { path: path() }), "(option --lock)"),
            (
                said(ExclusiveError::Publisher(PublisherError::TooManyPublishers { limit: 1 })),
                "(option --max-publishers)",
            ),
            (said(ExclusiveError::Timeout), "another publisher holds the writer lock"),
        ] {
            assert!(said.contains(wanted), "{said}");
        }
        let Failure::Failed(said) = PublishError::TooLong { length: 2, limit: 1 }.into() else {
            panic!()
        };
        assert!(said.ends_with("(option --capacity)"), "{said}");
    }
}
