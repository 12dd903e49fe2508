//! The errors. Each message says what happened and what to do about it.
//!
//! Each kind of call has an error of its own, so that a caller who matches sees only what the call can return. The
//! errors of opening a bus, and of making a publisher or subscriber, contain [`FileError`]. Those of publishing and
//! receiving do not, because those calls open no files. The errors of names are beside the names, in `topic/`.

mod directory;
mod file;
mod open;
mod publish;
mod receive;

pub use directory::{DirectoryError, InvalidName, UntrustedDirectory};
pub use file::FileError;
pub use open::OpenError;
pub use publish::{BurstError, ExclusiveError, PublishError, PublisherError, RetainError};
pub use receive::{HoldError, ReceiveError, RetainedError, SubscriberError};

/// Of a bus without values.
const NO_VALUES: &str = "the bus keeps no values: create it with `retained_topics` above 0";

/// A handle was used in the child of a `fork`. The handle belongs to the parent; the child has to open the
/// bus again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this handle was made before fork() and belongs to the parent process: open the bus again in the child"
)]
pub struct Forked;

/// Shared memory holds something that no correct process writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the shared memory of the bus is corrupt ({what}, value {value:#x} at position {position}): remove the bus with `toroni rm` and create it again"
)]
pub struct Corrupt {
    /// The word that is wrong.
    pub what: &'static str,
    /// Its value.
    pub value: u64,
    /// The position in the stream, or 0.
    pub position: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic::{Lost, LostBound, LostReason, Origin, Pattern};
    use std::io;
    use std::path::PathBuf;

    fn all(errors: &[impl ToString]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn texts() -> Vec<String> {
        let path = || PathBuf::from("/dev/shm/toroni/b");
        let text = || "so".to_owned();
        let corrupt = || Corrupt { what: "length", value: 1, position: 2 };
        let os = || io::Error::other("no");
        let files = [
            FileError::NotFound { path: path() },
            FileError::PermissionDenied { action: "open", path: path(), hint: text() },
            FileError::ReadOnly { path: path() },
            FileError::NotADirectory { path: path() },
            FileError::Symlink { path: path() },
            FileError::MemoryLock { wanted: 2, limit: 1, path: path() },
            FileError::Busy { path: path() },
            FileError::NotABus { path: path(), what: text() },
            FileError::VersionMismatch { path: path(), found: 1, supported: 2 },
            FileError::UnknownFeatures { path: path(), unknown: 5, action: "open it" },
            FileError::EndiannessMismatch { path: path() },
            FileError::Truncated { path: path(), found: 1, wanted: 2 },
            FileError::HeaderDamaged { path: path(), what: text() },
            FileError::ForeignFile { path: path() },
            FileError::RobustLockRefused { path: path(), boundary: "C libraries" },
            FileError::RobustOnDisk { path: path() },
            FileError::NetworkNamespace { path: path() },
            FileError::Corrupt(corrupt()),
            FileError::Unlinked { path: path() },
            FileError::Forked(Forked),
            FileError::Os { action: "open", path: path(), source: os() },
        ];
        let directories = [
            DirectoryError::InvalidName(InvalidName { name: ".".to_owned() }),
            UntrustedDirectory { path: path(), what: text(), hint: text() }.into(),
        ];
        let opening = [
            OpenError::AlreadyExists { path: path() },
            OpenError::NoSpace { wanted: 2, available: 1, path: path() },
            OpenError::NoInodes { path: path() },
            OpenError::FileTooLong { limit: 1, path: path() },
            OpenError::MissingDirectory { path: path() },
            OpenError::ForeignOwner { path: path(), found: text(), wanted: text() },
            OpenError::AclsUnsupported { path: path() },
            OpenError::UnknownGroup { name: text() },
            OpenError::SettingMismatch {
                path: path(),
                setting: "capacity",
                found: text(),
                wanted: text(),
            },
            OpenError::NotCheckedSinceBoot { path: path() },
        ];
        let publishers =
            [PublisherError::TooManyPublishers { limit: 1 }, PublisherError::Reentrant];
        let subscribers = [
            SubscriberError::TooManySubscribers { limit: 1 },
            SubscriberError::NotAPosition { position: 1 },
            SubscriberError::PositionAhead { position: 2, end: 1 },
            SubscriberError::PositionLost { position: 1, oldest: 2 },
            SubscriberError::SequenceAhead { sequence: 2, end: 1 },
            SubscriberError::SequenceLost { sequence: 1, oldest: 2 },
        ];
        let holding = [
            HoldError::NotGating,
            HoldError::SequenceLost { sequence: 1, oldest: 2 },
            HoldError::LeaseLost,
        ];
        let publishing = [
            PublishError::TooLong { length: 2, limit: 1 },
            PublishError::Full,
            PublishError::Busy,
            PublishError::Exclusive { name: text(), pid: 1 },
            PublishError::ForeignTopic,
            PublishError::Timeout,
            PublishError::Reentrant,
            PublishError::WouldWaitForItself,
            PublishError::Unlinked,
            PublishError::LeaseLost,
            PublishError::Corrupt(corrupt()),
            PublishError::Os { action: "wait", source: os() },
        ];
        let exclusive = [
            ExclusiveError::Taken { name: text(), pid: 1 },
            ExclusiveError::Busy,
            ExclusiveError::Timeout,
            ExclusiveError::RobustLock { path: path() },
        ];
        let receiving = [
            ReceiveError::Lapped { lost_messages: 1, lost_bytes: 2 },
            ReceiveError::Lost(Box::new(Lost {
                from: Origin { source: 1, series: 2, stream: 3, number: 4 },
                until: 9,
                messages: 5,
                bound: LostBound::Exact,
                reason: LostReason::Gone,
                scope: vec![Pattern::new("plant/**").expect("valid")],
            })),
            ReceiveError::Interrupted,
            ReceiveError::Unlinked,
            ReceiveError::Os { action: "wait", source: os() },
        ];
        [
            all(&files),
            all(&directories),
            all(&opening),
            all(&publishers),
            all(&subscribers),
            all(&publishing),
            all(&exclusive),
            all(&receiving),
            all(&holding),
        ]
        .concat()
    }

    /// The same texts are shown to programs in C and Python, and to users of the program.
    #[test]
    fn texts_name_neither_rust_nor_options() {
        for text in texts() {
            // `docker run --shm-size` is meant.
            let ours = text.replace("--shm-size", "");
            let rust = ["::", "BusConfig", "publish_with", "--", " { ", "Some(", "max_"];
            assert!(!rust.iter().any(|part| ours.contains(part)), "{text}");
            let quoted = text.split('`').skip(1).step_by(2);
            for name in quoted {
                assert!(name.starts_with(char::is_lowercase), "{text}");
            }
        }
    }

    #[test]
    fn no_error_advises_to_remove_what_is_not_a_bus() {
        let path = || PathBuf::from("/dev/shm/toroni/b");
        let what = || "so".to_owned();
        for error in [
            OpenError::File(FileError::NotADirectory { path: path() }),
            OpenError::File(FileError::NotABus { path: path(), what: what() }),
            OpenError::File(FileError::Symlink { path: path() }),
            OpenError::ForeignOwner { path: path(), found: what(), wanted: what() },
            OpenError::NoInodes { path: path() },
        ] {
            let text = error.to_string();
            assert!(!text.contains("remove"), "{text}");
        }
    }
}
