//! The errors. Each message says what happened and what to do about it.

mod open;
mod publish;
mod receive;

pub use open::OpenError;
pub use publish::{BurstError, PublishError};
pub use receive::ReceiveError;

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
    use std::io;
    use std::path::PathBuf;

    fn texts() -> Vec<String> {
        let path = || PathBuf::from("/dev/shm/toroni/b");
        let text = || "so".to_owned();
        let corrupt = || Corrupt { what: "length", value: 1, position: 2 };
        let os = || io::Error::other("no");
        let opening = [
            OpenError::InvalidName { name: ".".to_owned() },
            OpenError::NotFound { path: path() },
            OpenError::AlreadyExists { path: path() },
            OpenError::PermissionDenied { action: "open", path: path(), hint: text() },
            OpenError::NoSpace { wanted: 2, available: 1, path: path() },
            OpenError::NoInodes { path: path() },
            OpenError::FileTooLong { limit: 1, path: path() },
            OpenError::ReadOnly { path: path() },
            OpenError::MissingDirectory { path: path() },
            OpenError::NotADirectory { path: path() },
            OpenError::Symlink { path: path() },
            OpenError::UntrustedDirectory { path: path(), what: text(), hint: text() },
            OpenError::ForeignOwner { path: path(), found: text(), wanted: text() },
            OpenError::AclsUnsupported { path: path() },
            OpenError::UnknownGroup { name: text() },
            OpenError::MemoryLock { wanted: 2, limit: 1, path: path() },
            OpenError::Busy { path: path() },
            OpenError::NotABus { path: path(), what: text() },
            OpenError::VersionMismatch { path: path(), found: 1, supported: 2 },
            OpenError::EndiannessMismatch { path: path() },
            OpenError::Truncated { path: path(), found: 1, wanted: 2 },
            OpenError::HeaderDamaged { path: path(), what: text() },
            OpenError::ForeignFile { path: path() },
            OpenError::RobustLockRefused { path: path(), boundary: "C libraries" },
            OpenError::RobustOnDisk { path: path() },
            OpenError::NotCheckedSinceBoot { path: path() },
            OpenError::NetworkNamespace { path: path() },
            OpenError::TooManyPublishers { limit: 1 },
            OpenError::TooManySubscribers { limit: 1 },
            OpenError::NotAPosition { position: 1 },
            OpenError::PositionAhead { position: 2, end: 1 },
            OpenError::PositionLost { position: 1, oldest: 2 },
            OpenError::Corrupt(corrupt()),
            OpenError::Unlinked { path: path() },
            OpenError::Forked(Forked),
            OpenError::Reentrant,
            OpenError::Os { action: "open", path: path(), source: os() },
        ];
        let publishing = [
            PublishError::TooLong { length: 2, limit: 1 },
            PublishError::Full,
            PublishError::Busy,
            PublishError::Timeout,
            PublishError::Reentrant,
            PublishError::WouldWaitForItself,
            PublishError::Unlinked,
            PublishError::LeaseLost,
            PublishError::Corrupt(corrupt()),
            PublishError::Os { action: "wait", source: os() },
        ];
        let receiving = [
            ReceiveError::Lapped { lost_messages: 1, lost_bytes: 2 },
            ReceiveError::Interrupted,
            ReceiveError::Unlinked,
            ReceiveError::Os { action: "wait", source: os() },
        ];
        let opening = opening.iter().map(ToString::to_string);
        let publishing = publishing.iter().map(ToString::to_string);
        opening.chain(publishing).chain(receiving.iter().map(ToString::to_string)).collect()
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
    fn nobody_is_advised_to_remove_what_is_not_a_bus() {
        let path = || PathBuf::from("/dev/shm/toroni/b");
        let what = || "so".to_owned();
        for error in [
            OpenError::NotADirectory { path: path() },
            OpenError::NotABus { path: path(), what: what() },
            OpenError::Symlink { path: path() },
            OpenError::ForeignOwner { path: path(), found: what(), wanted: what() },
            OpenError::NoInodes { path: path() },
        ] {
            let text = error.to_string();
            assert!(!text.contains("remove"), "{text}");
        }
    }
}
