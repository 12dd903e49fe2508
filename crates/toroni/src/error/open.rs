//! Errors of opening and creating a bus.

use super::{DirectoryError, FileError, InvalidName, UntrustedDirectory};
use crate::settings::InvalidSetting;
use std::path::PathBuf;

/// Why a bus could not be opened or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name cannot be the name of a bus.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// A setting is outside its range.
    #[error(transparent)]
    InvalidSetting(#[from] InvalidSetting),
    /// The bus exists already, and the call creates a new one.
    #[error("there is already a bus at {path}: open it, or remove it with `toroni rm`")]
    AlreadyExists {
        /// Its directory.
        path: PathBuf,
    },
    /// The file system has too little space for the bus.
    #[error(
        "not enough space in {path}: the bus needs {wanted} bytes, {available} are available: choose a smaller capacity, or enlarge the file system (Docker: --shm-size)"
    )]
    NoSpace {
        /// Bytes the bus needs.
        wanted: u64,
        /// Bytes the file system has left.
        available: u64,
        /// Directory of the bus.
        path: PathBuf,
    },
    /// The file system has no inode for another file.
    #[error(
        "the file system of {path} has no free inodes: mount it with more of them (nr_inodes=), or set TORONI_DIR to another directory"
    )]
    NoInodes {
        /// Directory of the bus.
        path: PathBuf,
    },
    /// A file of the bus is longer than the files that this process may write.
    #[error(
        "{path} needs a file longer than the {limit} bytes that this process may write: raise the limit (ulimit -f), or choose a smaller capacity"
    )]
    FileTooLong {
        /// Bytes, RLIMIT_FSIZE.
        limit: u64,
        /// Directory of the bus.
        path: PathBuf,
    },
    /// The default directory of buses is under the control of another user.
    #[error(transparent)]
    UntrustedDirectory(#[from] UntrustedDirectory),
    /// A directory that must exist does not.
    #[error("there is no directory {path}: create it, or set TORONI_DIR to one that exists")]
    MissingDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The bus does not belong to the required user.
    #[error(
        "the bus at {path} belongs to {found}, but {wanted} is required: another user has made it: choose another name, or set TORONI_DIR to another directory"
    )]
    ForeignOwner {
        /// Directory of the bus.
        path: PathBuf,
        /// The user that controls it.
        found: String,
        /// The required user.
        wanted: String,
    },
    /// The file system does not support access control lists, which permissions by group need.
    #[error(
        "the file system of {path} has no POSIX access control lists, which permissions by group need: mount it with them, or set permissions by mode"
    )]
    AclsUnsupported {
        /// The file.
        path: PathBuf,
    },
    /// There is no such group on this machine.
    #[error(
        "there is no group {name:?} on this machine: give the name or number of an existing one"
    )]
    UnknownGroup {
        /// The name that was given.
        name: String,
    },
    /// The bus exists with another value of a required setting.
    #[error(
        "the bus at {path} has {setting} {found}, but {wanted} is required: adapt the requirement, or create the bus again"
    )]
    SettingMismatch {
        /// Directory of the bus.
        path: PathBuf,
        /// Name of the setting.
        setting: &'static str,
        /// What the bus has.
        found: String,
        /// What was required.
        wanted: String,
    },
    /// The bus is on a disk and was used before a reboot, and no process that may write it has checked it
    /// since.
    #[error(
        "the bus at {path} was last used before this machine booted: open it once for publishing, which checks what is left of it"
    )]
    NotCheckedSinceBoot {
        /// Directory of the bus.
        path: PathBuf,
    },
    /// The files of the bus cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<DirectoryError> for OpenError {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::InvalidName(error) => error.into(),
            DirectoryError::InvalidSetting(error) => error.into(),
            DirectoryError::UntrustedDirectory(error) => error.into(),
            DirectoryError::File(error) => error.into(),
        }
    }
}
